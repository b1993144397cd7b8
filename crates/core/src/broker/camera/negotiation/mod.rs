//! Decides between those who want different things: whose contracts frames are made for, what the camera takes of a channel that it
//! shares, and what the edge is told of both.

mod contracts;
mod feasibility;
mod share;

pub(super) use self::contracts::Negotiation;
pub(super) use self::feasibility::Feasibility;
pub(super) use self::share::{Frames, Sharing};
