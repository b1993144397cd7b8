//! Reads Rust source files as far as these tests need: which paths a file names, and where its tests begin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file, by its path from the root of the repository.
pub(super) fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// The files below a folder whose names end with `end`, by their paths from the root of the repository, in order.
pub(super) fn files(folder: &str, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else { return found };
    for entry in entries {
        let entry = entry.expect("the folder can be listed");
        let path = format!("{folder}/{}", entry.file_name().to_str().expect("names are UTF-8"));
        if entry.path().is_dir() {
            found.extend(files(&path, end));
        } else if path.ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Whether a file contains only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// The same lines without comments, quoted text, and test modules.
pub(super) fn code(text: &str) -> String {
    without_tests(&without_words(text))
}

/// Blanks comments, strings and characters.
fn without_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let is_name = before.is_alphanumeric() || before == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if !is_name && let Some(length) = quoted(rest) {
            length
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
            before = next;
            continue;
        };
        out.extend(rest[..length].chars().filter(|known| *known == '\n'));
        rest = &rest[length..];
        before = ' ';
    }
    out
}

/// The length of the string or character that begins here, if one does.
fn quoted(text: &str) -> Option<usize> {
    let plain = text.trim_start_matches(['b', 'c']);
    if let Some(raw) = plain.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let opened = text.len() - raw.len() + hashes + 1;
            return Some(text[opened..].find(&end).map_or(text.len(), |at| opened + at + end.len()));
        }
    }
    let opened = text.len() - plain.len();
    if plain.starts_with('"') {
        let mut escaped = false;
        for (at, next) in plain.char_indices().skip(1) {
            match next {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some(opened + at + 1),
                _ => {}
            }
        }
        return Some(text.len());
    }
    // A lifetime has no second quote after its first character.
    let character = plain.strip_prefix('\'')?;
    let end = if character.starts_with('\\') {
        2 + character[2..].find('\'')?
    } else {
        character.chars().next()?.len_utf8()
    };
    character[end..].starts_with('\'').then_some(opened + 1 + end + 1)
}

/// Blanks modules after `#[cfg(test)]` and similar attributes. rustfmt ends an item at the indentation at which it begins.
fn without_tests(code: &str) -> String {
    let mut lines: Vec<&str> = code.lines().collect();
    let mut place = 0;
    while place < lines.len() {
        let line = lines[place].trim_start();
        place += 1;
        if !(line.starts_with("#[cfg(") && line.contains("test")) {
            continue;
        }
        let item =
            (place..lines.len()).find(|at| !lines[*at].trim_start().starts_with("#[")).unwrap_or(place);
        let Some(begin) = lines.get(item) else { break };
        let words = begin.trim_start().trim_start_matches("pub(super) ").trim_start_matches("pub(crate) ");
        if !words.starts_with("mod ") {
            continue;
        }
        let indentation = &begin[..begin.len() - begin.trim_start().len()];
        let close = format!("{indentation}}}");
        let end = if begin.trim_end().ends_with(';') {
            item
        } else {
            (item..lines.len()).find(|at| lines[*at] == close).unwrap_or(lines.len() - 1)
        };
        lines[place - 1..=end].fill("");
        place = end + 1;
    }
    lines.join("\n")
}

/// A path in a file: its line, and its segments from the root of the crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
}

/// A file of a crate.
pub(super) struct SourceFile {
    /// The path from the root of the repository.
    pub(super) path: String,
    /// The module, from the root of the crate.
    pub(super) module: Vec<String>,
    /// The paths that the file names.
    pub(super) named: Vec<Named>,
    /// The names that `use` declarations import or re-export, with their paths.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
}

/// The files of a crate without its tests. `folder` is its `src`.
pub(super) fn crate_files(folder: &str) -> Vec<SourceFile> {
    let paths = files(folder, ".rs").into_iter().filter(|path| !is_test(path));
    let texts: Vec<(String, String)> = paths.map(|path| (path.clone(), read(&path))).collect();
    parse(folder, &texts)
}

/// Parses files from their texts.
pub(super) fn parse(folder: &str, texts: &[(String, String)]) -> Vec<SourceFile> {
    let modules: BTreeSet<Vec<String>> = texts.iter().map(|(path, _)| module_of(folder, path)).collect();
    let file = |(path, text): &(String, String)| {
        let module = module_of(folder, path);
        let mut reader = Reader { module: &module, modules: &modules, tokens: tokens(&code(text)), at: 0 };
        let (named, aliases) = reader.read();
        SourceFile { path: path.clone(), named, aliases, module }
    };
    texts.iter().map(file).collect()
}

fn module_of(folder: &str, path: &str) -> Vec<String> {
    let inside = path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')).expect("it lies there");
    let mut module: Vec<String> =
        inside.trim_end_matches(".rs").split('/').map(|name| name.to_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Names, `::`, and other single characters, each with its line, from 1.
fn tokens(code: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    for (place, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_name = |next: char| next.is_alphanumeric() || next == '_';
            let length = if is_name(first) {
                rest.find(|next| !is_name(next)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push((place + 1, rest[..length].to_owned()));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Reads paths from the tokens of one file.
struct Reader<'a> {
    module: &'a [String],
    modules: &'a BTreeSet<Vec<String>>,
    tokens: Vec<(usize, String)>,
    at: usize,
}

/// One path of a `use` declaration: its line, its segments, and the imported name.
type Leaf = (usize, Vec<String>, String);

impl Reader<'_> {
    fn read(&mut self) -> (Vec<Named>, BTreeMap<String, Vec<String>>) {
        let (mut named, mut aliases, mut handed_on) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut names = BTreeSet::new();
        let mut is_public = false;
        while let Some((line, token)) = self.tokens.get(self.at).cloned() {
            if token == "use" {
                self.at += 1;
                let mut leaves = Vec::new();
                self.tree(&mut Vec::new(), &mut leaves);
                for (line, path, name) in leaves {
                    let Some(path) = self.absolute(&path) else { continue };
                    aliases.insert(name.clone(), path.clone());
                    let path = Named { line, path };
                    if is_public { handed_on.push((name, path)) } else { named.push(path) }
                }
            } else if self.begins_path() {
                let path = self.path();
                named.extend(self.absolute(&path).map(|path| Named { line, path }));
            } else {
                // `pub use` and `pub(super) use` re-export.
                is_public =
                    token == "pub" || is_public && matches!(&*token, "(" | ")" | "super" | "crate" | "in");
                // Declaring a child module is not a use.
                self.at += if token == "mod" { 2 } else { 1 };
                names.insert(token);
                continue;
            }
            is_public = false;
        }
        // A name that is only re-exported is not used here.
        named.extend(handed_on.into_iter().filter(|(name, _)| names.contains(name)).map(|(_, path)| path));
        (named, aliases)
    }

    fn token(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |(_, token)| token)
    }

    /// Whether a path that can lead to another file begins here.
    fn begins_path(&self) -> bool {
        let first = self.token(self.at);
        let is_child = || {
            let child: Vec<String> = self.module.iter().cloned().chain([first.to_owned()]).collect();
            self.modules.contains(&child)
        };
        let before = |count: usize| self.at.checked_sub(count).map_or("", |at| self.token(at));
        // As in `pub(in super::super)`.
        let is_visibility = before(1) == "(" && before(2) == "pub" || before(1) == "in" && before(2) == "(";
        let continues = before(1) == "::" || is_visibility;
        self.token(self.at + 1) == "::"
            && !continues
            && (matches!(first, "crate" | "super" | "self") || is_child())
    }

    /// Reads the segments of a path in code.
    fn path(&mut self) -> Vec<String> {
        let mut path = vec![self.token(self.at).to_owned()];
        self.at += 1;
        while self.token(self.at) == "::" && self.token(self.at + 1) != "<" && self.token(self.at + 1) != "{"
        {
            path.push(self.token(self.at + 1).to_owned());
            self.at += 2;
        }
        path
    }

    /// Reads the paths of a `use` tree to its end.
    fn tree(&mut self, prefix: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
        let (depth, mut line) = (prefix.len(), 0);
        loop {
            let token = self.token(self.at).to_owned();
            line = self.tokens.get(self.at).map_or(line, |(line, _)| *line);
            self.at += 1;
            match &*token {
                "::" => {}
                "{" => {
                    while self.token(self.at) != "}" {
                        self.tree(prefix, leaves);
                        if self.token(self.at) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                "as" => {
                    let name = self.token(self.at).to_owned();
                    self.at += 1;
                    leaves.push((line, prefix.clone(), name));
                    break;
                }
                _ => {
                    prefix.push(token);
                    if matches!(self.token(self.at), "," | "}" | ";" | "") {
                        let name = prefix.last().cloned().unwrap_or_default();
                        leaves.push((line, prefix.clone(), name));
                        break;
                    }
                }
            }
        }
        prefix.truncate(depth);
    }

    /// The segments from the root of the crate. `None` if the path leads out of the crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut base = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.to_vec(),
            child => {
                let found: Vec<String> = self.module.iter().cloned().chain([child.to_owned()]).collect();
                self.modules.contains(&found).then_some(())?;
                self.module.to_vec()
            }
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" | "*" => {}
                "super" => drop(base.pop()),
                _ => base.push(segment.clone()),
            }
        }
        Some(base)
    }
}
