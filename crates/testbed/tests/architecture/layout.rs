//! Where files lie: a module with parts is a folder with `mod.rs`. Its tests, if they do not fit into it, are `tests.rs` or `tests/`.

use std::collections::BTreeSet;

use super::assert_none;
use super::source::files;

/// Every misplaced file, one sentence each.
fn misplaced(paths: &[String]) -> Vec<String> {
    let folders: BTreeSet<&str> =
        paths.iter().filter_map(|path| path.rsplit_once('/')).map(|(folder, _)| folder).collect();
    let mut found = Vec::new();
    for path in paths {
        let stem = path.trim_end_matches(".rs");
        if folders.contains(stem) {
            found.push(format!("{path}: it has parts, so its place is {stem}/mod.rs"));
        }
        if let Some(module) = stem.strip_suffix("_tests") {
            found.push(format!("{path}: its place is {module}/tests.rs, or tests/ beside it"));
        }
    }
    found
}

#[test]
fn files_lie_where_one_looks_for_them() {
    let mut paths = files("crates", ".rs");
    paths.retain(|path| path.split('/').nth(2) == Some("src"));
    assert!(paths.len() > 300, "only {} files were found", paths.len());
    assert_none(&misplaced(&paths));
}

#[test]
fn a_file_beside_its_folder_is_found() {
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    assert_eq!(misplaced(&paths(&["src/a/mod.rs", "src/a/b.rs", "src/a/tests.rs", "src/c.rs"])), [""; 0]);
    let found = misplaced(&paths(&["src/a.rs", "src/a/b.rs", "src/c_tests.rs"]));
    assert!(
        matches!(&found[..], [one, two] if one.starts_with("src/a.rs") && two.starts_with("src/c_tests.rs")),
        "{found:?}"
    );
}
