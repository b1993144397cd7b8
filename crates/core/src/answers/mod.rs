//! Brings answers of applications to a camera's frames back to the camera's publisher, the newest first. An answer is a picture made of a frame, or an
//! overlay or boxes to draw over it
//! (`docs/decisions/0062-answers.md`).
//!
//! Each part is a state machine without clock or socket, like the broker that owns it.
//!
//! | part | where | what it decides |
//! | --- | --- | --- |
//! | [`Outlet`] | at the edge, one for each camera | which answer is sent next, which one is given up, and how each is counted |
//! | [`Inlet`] | at the camera | which answer may arrive, and what is reported to the edge |
//! | [`AnswerBox`] | at the camera | which answer the publisher gets, and what is reported of the others |
//!
//! Every answer ends in exactly one way: the publisher gets it, or it is counted under an [`AnswerSkip`](crate::wire::AnswerSkip).

mod answer_box;
mod downlink;
mod inlet;
mod outlet;
mod types;

pub use self::answer_box::AnswerBox;
pub use self::inlet::{ACCOUNTS_MAX, ARRIVING_ANSWERS_MAX, AnswerRefused, Inlet, SMALLER_MAX};
pub use self::outlet::{Outlet, UNCONFIRMED_ANSWERS_MAX};
pub use self::types::{ANSWER_BYTES_MAX, AnswerKind, AnswerTimes, Answered, MadeAnswer, OutletStep, Room};

#[cfg(test)]
mod tests;
