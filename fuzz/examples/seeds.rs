//! Writes the initial inputs of the fuzzers to `seeds/`.

use std::{fs, io};

fn main() -> io::Result<()> {
    for seed in mez_fuzz::seeds::all() {
        let folder = format!("{}/seeds/{}", env!("CARGO_MANIFEST_DIR"), seed.target);
        fs::create_dir_all(&folder)?;
        fs::write(format!("{folder}/{}", seed.name), seed.bytes)?;
    }
    Ok(())
}
