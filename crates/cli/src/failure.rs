//! The error of a command: prints what went wrong, and gives the exit status.

use std::error::Error;
use std::fmt;

/// Why a command failed: a sentence for people that says what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    status: u8,
    /// Each line says where it belongs.
    is_list: bool,
}

impl Failure {
    /// From an error, with what caused it where its own text does not say so.
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

    /// From a sentence.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1, is_list: false }
    }

    /// From a sentence about arguments or settings that make no sense.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { status: 2, ..Self::text(text) }
    }

    /// From lines that begin with a file and a line of it, as editors read them.
    pub(crate) fn lines(text: String) -> Self {
        Self { is_list: true, ..Self::text(text) }
    }

    /// Tells the user and gives the exit status.
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
