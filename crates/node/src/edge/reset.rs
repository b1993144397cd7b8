//! The outcome of a reset. A reset makes the edge forget a camera's epochs and put its log aside.
//!
//! An operator resets a camera after its keys were stolen and used, once the theft is over.

use std::path::PathBuf;

use mez_core::broker::edge::Forgotten;

use super::failure::Stopped;
use crate::persist::aside::PutAsideError;

/// What a reset did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetReport {
    /// What the edge knew of the camera. `None`: nothing; its next start is accepted in any case.
    pub forgotten: Option<Forgotten>,
    /// The folder of logs that now holds the camera's log. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

/// Why a camera was not reset, or not in full.
#[derive(Debug, thiserror::Error)]
pub enum ResetFailure {
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The camera's log could not be put aside.
    #[error(transparent)]
    PutAside(#[from] PutAsideError),
    /// The camera was reset, but the reset could not be recorded.
    #[error(
        "the camera was reset, but the reset could not be recorded: {0}; make the folder for state writable"
    )]
    Record(#[source] std::io::Error),
}
