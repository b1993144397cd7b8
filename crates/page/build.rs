//! Lists the files in `web/dist`, which `tools/build` makes, for `src/lib.rs` to include.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Media types by file extension. A file of another kind stops the build, so that no browser has to guess.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../web/dist");
    // If the path did not exist, cargo would run this script at every build, and
    // compile all that depends on it. This happens where sources are read-only.
    let _ = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed={}", dist.display());

    let mut files = Vec::new();
    collect(&dist, &mut files);
    files.sort();
    let mut list = String::from("&[\n");
    for file in &files {
        let path = file.strip_prefix(&dist).expect("it was found there").to_str().expect("names are UTF-8");
        let Some(content_type) = media_type(path) else {
            println!(
                "cargo::error=web/dist/{path}: what kind of file is it? Name its media type in crates/page/build.rs"
            );
            continue;
        };
        let file = file.canonicalize().expect("it is there");
        list += &format!(
            "    File {{ path: {path:?}, content_type: {content_type:?}, bytes: include_bytes!({file:?}) }},\n"
        );
    }
    list += "]\n";
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("files.rs");
    fs::write(out, list).expect("OUT_DIR can be written to");
}

/// Adds all files below a folder. Adds nothing if the folder does not exist.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

fn media_type(path: &str) -> Option<&'static str> {
    let (_, end) = path.rsplit_once('.')?;
    MEDIA_TYPES.iter().find(|(known, _)| *known == end).map(|(_, media_type)| *media_type)
}
