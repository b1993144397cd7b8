//! Says why an edge broker did not do what it was asked.

use mez_core::broker::edge::{AnswerError, ReplyError};

/// The edge broker has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the edge broker has stopped")]
pub struct Stopped;

/// Why a picture was not accepted as an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFailure {
    /// The broker refused the picture.
    #[error(transparent)]
    Refused(#[from] AnswerError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a reply was not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFailure {
    /// The broker refused the reply.
    #[error(transparent)]
    Refused(#[from] ReplyError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}
