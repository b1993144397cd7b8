//! Limits the length of files and functions, so that a file fits into a head and a function onto a few screens.

use super::assert_none;
use super::source::{code, files, is_test, read};

/// The most lines of a file of a crate or of the Python package, without its tests.
const FILE_LINES_MAX: usize = 600;
/// The most lines of a function, including tests, from its name to its closing brace.
const FUNCTION_LINES_MAX: usize = 80;

/// How many lines a file has up to its tests, which come last.
fn lines_of(path: &str, text: &str) -> usize {
    let is_rust = path.ends_with(".rs");
    let code = if is_rust { code(text) } else { text.to_owned() };
    let last = code.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).last();
    last.map_or(0, |(place, _)| place + 1)
}

/// The functions of a file, and the number of lines of each. rustfmt closes a function at the indentation at which it begins.
fn functions_of(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indentation = &line[..line.len() - line.trim_start().len()];
        // A declaration ends with its signature, and a short body ends on the line of its name.
        let is_end = |line: &&&str| {
            line.strip_prefix(indentation).is_some_and(|rest| {
                rest == "}"
                    || !rest.starts_with([' ', ')']) && rest.ends_with([';', '}'])
                    || rest.starts_with(')') && rest.ends_with(';')
            })
        };
        let length = lines[place..].iter().position(|line| is_end(&line)).map_or(1, |end| end + 1);
        found.push((name.to_owned(), length));
    }
    found
}

/// The name of the function that begins on this line.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    loop {
        let (word, behind) = rest.split_once(' ')?;
        match word {
            "fn" => return behind.split(['(', '<']).next(),
            "pub" | "async" | "const" | "unsafe" | "extern" | "\"C\"" => rest = behind,
            _ if word.starts_with("pub(") => rest = rest.split_once(") ")?.1,
            _ => return None,
        }
    }
}

/// Every file that is too long, one sentence each.
fn long_files(texts: &[(String, String)]) -> Vec<String> {
    let long = texts.iter().map(|(path, text)| (path, lines_of(path, text)));
    let long = long.filter(|(_, lines)| *lines > FILE_LINES_MAX);
    long.map(|(path, lines)| {
        format!(
            "{path}: {lines} lines without its tests, and a file may have {FILE_LINES_MAX}; divide it by idea"
        )
    })
    .collect()
}

/// Every function that is too long, one sentence each.
fn long_functions(texts: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts {
        for (name, lines) in functions_of(text) {
            if lines > FUNCTION_LINES_MAX {
                found.push(format!(
                    "{path}: {name} has {lines} lines, and a function may have {FUNCTION_LINES_MAX}; name its steps"
                ));
            }
        }
    }
    found
}

fn with_texts(paths: Vec<String>) -> Vec<(String, String)> {
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The Rust files in this folder of each crate.
fn of_crates(folder: &str) -> Vec<String> {
    files("crates", ".rs").into_iter().filter(|path| path.split('/').nth(2) == Some(folder)).collect()
}

#[test]
fn no_file_is_longer_than_it_may_be() {
    let mut paths = of_crates("src");
    paths.extend(files("python/mez", ".py"));
    paths.retain(|path| !is_test(path));
    assert!(paths.len() > 300, "only {} files were found", paths.len());
    let texts = with_texts(paths);
    assert_none(&long_files(&texts));
}

#[test]
fn no_function_is_longer_than_it_may_be() {
    let texts = with_texts([of_crates("src"), of_crates("tests")].concat());
    assert!(texts.iter().map(|(_, text)| functions_of(text).len()).sum::<usize>() > 3_000);
    assert_none(&long_functions(&texts));
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let lines = |count: usize| "const ONE: u8 = 1;\n".repeat(count);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(50));
    let file = |text: String| [("crates/core/src/a.rs".to_owned(), text)];
    assert_eq!(long_files(&file(lines(600) + &tests)), [""; 0]);
    let found = long_files(&file(lines(601) + &tests));
    assert!(matches!(&found[..], [one] if one.starts_with("crates/core/src/a.rs: 601 lines")), "{found:?}");
    let python = [("python/mez/a.py".to_owned(), "one = 1\n".repeat(601))];
    assert_eq!(long_files(&python).len(), 1);
}

#[test]
fn a_long_function_is_found_wherever_it_stands() {
    let body = |count: usize, indentation: &str| format!("{indentation}    one();\n").repeat(count);
    for (signature, indentation) in [
        ("fn f() {", ""),
        ("    pub(in crate::log) const fn f<T>(", "    "),
        ("pub async fn f() -> Result<(), String> {", ""),
        ("    unsafe extern \"C\" fn f() {", "    "),
    ] {
        for (count, is_long) in [(78, false), (79, true)] {
            let text = format!("{signature}\n{}{indentation}}}\n", body(count, indentation));
            let found = long_functions(&[("crates/core/src/a.rs".to_owned(), text)]);
            assert_eq!(!found.is_empty(), is_long, "{signature}: {found:?}");
        }
    }
    let several = "trait T {\n    fn a(\n        &self,\n    );\n    fn b(&self) {}\n    fn c(&self);\n}\n";
    let lengths: Vec<usize> = functions_of(several).into_iter().map(|(_, lines)| lines).collect();
    assert_eq!(lengths, [3, 1, 1]);
}
