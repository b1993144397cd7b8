//! Decides between conflicting interests: which contracts the camera serves, what it uses of a shared
//! channel, and what it reports to the edge about both.

mod contracts;
mod feasibility;
mod share;

pub(super) use self::contracts::Negotiation;
pub(super) use self::feasibility::Feasibility;
pub(super) use self::share::{Frames, Sharing};
