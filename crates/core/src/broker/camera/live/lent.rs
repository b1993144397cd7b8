//! What the live part is lent for a call, and in which role a frame is considered.

use std::time::Duration;

use crate::broker::camera::adapt::{Adapter, Own, Profiles};
use crate::broker::camera::connection::EdgeLink;
use crate::broker::camera::negotiation::ServedContracts;
use crate::frame::Sequence;
use crate::setting::DeclaredKnobs;
use crate::units::Instant;

/// The other parts of the broker that the live part may use during a call.
pub(in crate::broker::camera) struct Lent<'a> {
    pub(in crate::broker::camera) present: Present<'a>,
    /// The active connection.
    pub(in crate::broker::camera) link: Option<&'a mut EdgeLink>,
    pub(in crate::broker::camera) adapter: &'a mut Adapter,
    pub(in crate::broker::camera) contracts: &'a mut ServedContracts,
}

/// The present circumstances, which are the same for all frames.
#[derive(Clone, Copy)]
pub(in crate::broker::camera) struct Present<'a> {
    pub(in crate::broker::camera) now: Instant,
    /// The usual time between frames.
    pub(in crate::broker::camera) interval: Duration,
    pub(in crate::broker::camera) profiles: &'a Profiles,
    /// The knobs of the stream's data records, if it declares any.
    pub(in crate::broker::camera) knobs: Option<&'a DeclaredKnobs>,
}

/// The role in which the policy considers the waiting frame.
#[derive(Clone, Copy)]
pub(super) enum Considered {
    /// As the next frame to send. With `Own`, it may go as its source coded it, with the frames that it needs.
    Next(Option<Own>),
    /// In place of the frame that is being sent, of which this many bytes have not left.
    InPlaceOf { frame: Sequence, unsent_bytes: u64 },
    /// As one of many such frames, each given to an idle link as soon as it is captured.
    OneOfMany,
}
