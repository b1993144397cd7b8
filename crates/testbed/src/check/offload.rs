//! Holds what the rules about answers remember.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, FrameId};
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant};
use mez_core::wire::{AnswerAccount, AnswerSkips};

use crate::time::Moment;

/// An answer that an edge has accepted.
pub(crate) struct MadeSeen {
    pub(crate) frame: FrameId,
    pub(crate) payload: Bytes,
    /// Width and height in pixels.
    pub(crate) size: (u32, u32),
    /// When the frame was captured, as the edge reads its clock. Rule `clock` checks such readings.
    pub(crate) captured: Option<Instant>,
    /// How many answers the application itself replaced before this one.
    pub(crate) replaced: u32,
}

/// What the rules know of answers.
#[derive(Default)]
pub(super) struct Offload {
    pub(super) accounts: Vec<Account>,
    /// The present account of each camera at each run of an edge.
    pub(super) current: BTreeMap<(u64, CameraName), usize>,
    pub(super) of_connection: BTreeMap<LinkId, usize>,
    /// Answers whose sending has begun.
    pub(super) sent: BTreeMap<(LinkId, FrameId), Sent>,
    /// The publisher of each run of a camera.
    pub(super) publishers: BTreeMap<u64, Publisher>,
}

pub(super) struct Account {
    pub(super) edge: usize,
    pub(super) start: (Epoch, ClockAnchor),
    /// How many answers the edge has accepted, and how many it had accepted at each moment.
    pub(super) accepted: u64,
    pub(super) history: VecDeque<(Moment, u64)>,
    /// How many answers the edge knows to have arrived, when it learned of the last one, and how many it knew before that moment.
    pub(super) confirmed: u64,
    pub(super) confirmed_at: Moment,
    pub(super) confirmed_before: u64,
    pub(super) made: BTreeMap<FrameId, Vec<MadeSeen>>,
    /// Since when the camera has the account, on the present connection.
    pub(super) asked: Option<Moment>,
    /// How old an answer may be. `None`: the publisher takes none.
    pub(super) bound: Option<Duration>,
    pub(super) bound_max: Duration,
    /// The last account that the camera has.
    pub(super) heard: Option<AnswerAccount>,
}

impl Account {
    pub(super) fn new(edge: usize, start: (Epoch, ClockAnchor)) -> Self {
        Self {
            edge,
            start,
            accepted: 0,
            history: VecDeque::new(),
            confirmed: 0,
            confirmed_at: Moment::START,
            confirmed_before: 0,
            made: BTreeMap::new(),
            asked: None,
            bound: None,
            bound_max: Duration::ZERO,
            heard: None,
        }
    }

    /// How many answers the edge had accepted by `moment`.
    pub(super) fn accepted_by(&self, moment: Moment) -> u64 {
        self.history.iter().rev().find(|(at, _)| *at <= moment).map_or(0, |(_, count)| *count)
    }

    /// How many answers the edge knew to have arrived before `now`.
    pub(super) fn confirmed_before(&self, now: Moment) -> u64 {
        if self.confirmed_at == now { self.confirmed_before } else { self.confirmed }
    }
}

pub(super) struct Sent {
    pub(super) payload: Bytes,
    pub(super) size: (u32, u32),
    /// From when on the bound counts, by the edge's clock.
    pub(super) from: Instant,
    /// Whether the edge's host was frozen meanwhile, so that nothing could be cancelled.
    pub(super) is_excused: bool,
    pub(super) has_arrived: bool,
    pub(super) is_confirmed: bool,
}

#[derive(Default)]
pub(super) struct Publisher {
    /// How many answers arrived, and how many of them the publisher has taken.
    pub(super) arrived: u64,
    pub(super) given: u64,
    /// Whether an answer waits for the publisher.
    pub(super) waits: bool,
    pub(super) newest: Option<FrameId>,
    /// The skipped answers that were reported, and the most that were known at a report.
    pub(super) told: AnswerSkips,
    pub(super) known: AnswerSkips,
    /// The accounts that the camera has, by number.
    pub(super) accounts: BTreeMap<u64, usize>,
}
