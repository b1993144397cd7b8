//! Prints an input of a broker's fuzzer as text: `script TARGET FILE`. In `scripts/TARGET/` it becomes a seed.

use std::{env, fs};

fn main() -> Result<(), String> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [target, file] = &*words else { return Err("write: script edge_broker|camera_broker FILE".into()) };
    let language = match &**target {
        "edge_broker" => mez_fuzz::edge_broker::LANGUAGE,
        "camera_broker" => mez_fuzz::camera_broker::LANGUAGE,
        other => return Err(format!("{other} has no scripts; edge_broker and camera_broker have")),
    };
    let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    print!("{}", language.print(&bytes));
    Ok(())
}
