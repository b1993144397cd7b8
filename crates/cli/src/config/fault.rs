//! Origins and faults of settings.

use std::fmt;
use std::path::PathBuf;

/// The origin of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The default.
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

/// A fault of a setting or of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The place of the fault.
    pub(crate) origin: Origin,
    /// The setting. Empty for a fault of the whole file.
    pub(crate) field: String,
    /// The value as text. `None` if there is none, or if it is secret.
    pub(crate) value: Option<String>,
    /// The problem and the remedy.
    pub(crate) what: String,
}

/// The most characters of a value that are shown.
const SHOWN_MAX: usize = 60;

impl Fault {
    /// A fault of a whole file (`line` 0), or of a line.
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

/// A value on one line, shortened if needed.
fn shown(value: &str) -> String {
    let line: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= SHOWN_MAX {
        return line;
    }
    line.chars().take(SHOWN_MAX).chain(['…']).collect()
}

/// Several faults, one per line.
pub(crate) fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
