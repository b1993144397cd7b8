//! Where a setting comes from, and what is wrong with one.

use std::fmt;
use std::path::PathBuf;

/// Where a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of a file, from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// The command line.
    Flag(String),
}

impl fmt::Display for Origin {
    /// `edge.toml:7`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// What is wrong with a setting, or with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where it stands.
    pub(crate) origin: Origin,
    /// The setting. Empty: the file as a whole.
    pub(crate) field: String,
    /// The value as it was typed. `None`: it has none, or it is a secret.
    pub(crate) value: Option<String>,
    /// What is wrong, and what to do.
    pub(crate) what: String,
}

/// The most characters of a value that a fault shows.
const SHOWN_MAX: usize = 60;

impl Fault {
    /// Of a file as a whole, or of a line of it.
    pub(super) fn of_file(path: &std::path::Path, line: usize, what: impl Into<String>) -> Self {
        let origin = Origin::File(path.to_owned(), line);
        Self { origin, field: String::new(), value: None, what: what.into() }
    }
}

impl fmt::Display for Fault {
    /// `edge.toml:7: memory_bytes = "1GX": unknown unit …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, field, value, what } = self;
        let value = value.as_deref().map(shown);
        match (origin, value) {
            (Origin::File(path, 0), _) => write!(f, "{}: ", path.display())?,
            (Origin::File(..), _) if field.is_empty() => write!(f, "{origin}: ")?,
            (Origin::File(..), None) => write!(f, "{origin}: {field}: ")?,
            (Origin::File(..), Some(value)) => write!(f, "{origin}: {field} = {value}: ")?,
            (Origin::Variable(name), Some(value)) => write!(f, "{name}={value}: ")?,
            (Origin::Flag(flag), Some(value)) => write!(f, "{flag} {value}: ")?,
            (Origin::Variable(name) | Origin::Flag(name), None) => write!(f, "{name}: ")?,
            (Origin::Default, _) => write!(f, "{field}: ")?,
        }
        f.write_str(what)
    }
}

/// A value in one line.
fn shown(value: &str) -> String {
    let line: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= SHOWN_MAX {
        return line;
    }
    line.chars().take(SHOWN_MAX).chain(['…']).collect()
}

/// Several faults, each in a line.
pub(crate) fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
