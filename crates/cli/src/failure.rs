//! The error of a command: its message, and its exit status.

use std::error::Error;
use std::fmt;

/// Why a command failed, as a sentence that contains the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    status: u8,
    /// Whether each line begins with its own place, such as a file.
    is_list: bool,
}

impl Failure {
    /// From an error, with its causes unless its own text contains them.
    pub(crate) fn new(error: impl Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        Self::text(text)
    }

    /// From a message.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1, is_list: false }
    }

    /// From a message about invalid arguments or settings.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { status: 2, ..Self::text(text) }
    }

    /// From lines that begin with a file name and a line number, in the form that editors read.
    pub(crate) fn lines(text: String) -> Self {
        Self { is_list: true, ..Self::text(text) }
    }

    /// Prints the message, and returns the exit status.
    pub(crate) fn report(&self) -> u8 {
        match self.is_list {
            true => eprintln!("{self}"),
            false => eprintln!("mez: {self}"),
        }
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
