//! Worked examples of the documents, in bytes.

use std::collections::BTreeMap;

/// The blocks of a document that begin with ` ```hex NAME `. Text after a `#` is a comment.
pub fn blocks(document: &'static str) -> BTreeMap<&'static str, Vec<u8>> {
    let mut blocks = BTreeMap::new();
    let mut open: Option<(&str, Vec<u8>)> = None;
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("```hex ") {
            open = Some((name.trim(), Vec::new()));
        } else if line.starts_with("```") {
            if let Some((name, bytes)) = open.take() {
                assert!(blocks.insert(name, bytes).is_none(), "two examples are called {name}");
            }
        } else if let Some((name, bytes)) = &mut open {
            for word in line.split('#').next().unwrap_or("").split_whitespace() {
                let byte = u8::from_str_radix(word, 16);
                bytes.push(byte.unwrap_or_else(|_| panic!("{word:?} in the example {name}")));
            }
        }
    }
    blocks
}

/// Bytes as a document shows them, sixteen per line.
pub fn hex(bytes: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|byte| format!("{byte:02x} ")).collect::<String>() + "\n";
    bytes.chunks(16).map(row).collect()
}
