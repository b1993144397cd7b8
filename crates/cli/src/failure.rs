//! The error of a command: prints what went wrong, and gives the exit status.

use std::error::Error;
use std::fmt;

/// Why a command failed: a sentence for people that says what to do.
#[derive(Debug)]
pub(crate) struct Failure(String);

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
        Self(text)
    }

    /// From a sentence.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Tells the user and gives the exit status.
    pub(crate) fn report(&self) -> u8 {
        eprintln!("mez: {self}");
        1
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
