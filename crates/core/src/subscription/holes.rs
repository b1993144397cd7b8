//! Reports frames that a reader asked for and did not get, where counts are not enough: stretches of time, each with its reason.
//!
//! Within an epoch, sequence numbers say how many frames are missing, and [`SkipCounts`] say why. In three
//! places they are not enough, so a stretch is reported too:
//!
//! | where | from | to |
//! | --- | --- | --- |
//! | before the first frame of the past | the requested beginning | that frame, or the time from which on all frames are held |
//! | the camera was restarted | the last frame | the first frame of the new start |
//! | the camera should have been asked and gave no answer | the last frame | the next one, or the requested end |
//!
//! Nobody knows how many frames a camera published between the last one and its restart.

use crate::frame::{FrameId, FrameMeta, SkipCounts, SkipReason};
use crate::history::Unanswered;
use crate::units::Timestamp;

/// Why a stretch of time is not held. If there are several reasons, the last one of this list is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NotHeldReason {
    /// Nobody holds frames of that time any more, or nobody ever did.
    Gone = 1,
    /// The camera was restarted. Frames that it had neither sent nor written are lost; nobody knows how many.
    CameraRestarted = 2,
    /// Frames that were once held cannot be read, because they were removed or damaged.
    Unreadable = 3,
    /// Too many questions about the past were open. Ask again.
    Busy = 4,
    /// The camera did not answer in time, or cannot answer at all. It may hold frames.
    NotAnswered = 5,
    /// The camera was not connected. It may hold frames: ask again when it is connected.
    CameraAbsent = 6,
}

impl NotHeldReason {
    /// All reasons, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::Gone,
        Self::CameraRestarted,
        Self::Unreadable,
        Self::Busy,
        Self::NotAnswered,
        Self::CameraAbsent,
    ];

    /// The reason that a code stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }

    /// The name that applications see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::CameraRestarted => "camera_restarted",
            Self::Unreadable => "unreadable",
            Self::Busy => "busy",
            Self::NotAnswered => "not_answered",
            Self::CameraAbsent => "camera_absent",
        }
    }
}

impl From<Unanswered> for NotHeldReason {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::CameraAbsent => Self::CameraAbsent,
            Unanswered::TimedOut | Unanswered::Unable => Self::NotAnswered,
            Unanswered::Busy => Self::Busy,
        }
    }
}

/// A stretch of time that was asked for and is not held, or not known to be held. The counts of skipped
/// frames say how many frames it had, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHeld {
    /// The capture time of the frame before it, or the first one that was asked for.
    pub begin: Timestamp,
    /// Frames captured before this time are not held.
    pub end: Timestamp,
    /// Why the stretch is not held.
    pub reason: NotHeldReason,
}

impl NotHeld {
    /// One stretch that covers two stretches of the same camera, if nothing was delivered between them.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            begin: self.begin.min(other.begin),
            end: self.end.max(other.end),
            reason: self.reason.max(other.reason),
        }
    }
}

/// The account of one camera that is still to be reported, with its next frame or at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Frames that were not delivered, by reason.
    pub skipped: SkipCounts,
    /// A stretch that is not held.
    pub not_held: Option<NotHeld>,
}

impl Missing {
    /// Adds the account of a frame that is not delivered.
    pub fn merge(&mut self, skipped: &SkipCounts, not_held: Option<NotHeld>) {
        self.skipped.merge(skipped);
        self.not_held = merged(self.not_held, not_held);
    }

    /// Adds one frame that was not delivered.
    pub fn add(&mut self, reason: SkipReason) {
        self.skipped.add(reason, 1);
    }

    /// Moves the account to a frame that is delivered.
    pub fn tell(self, skipped: &mut SkipCounts, not_held: &mut Option<NotHeld>) {
        skipped.merge(&self.skipped);
        *not_held = merged(*not_held, self.not_held);
    }
}

/// One stretch that covers both stretches, if there are two.
pub fn merged(one: Option<NotHeld>, other: Option<NotHeld>) -> Option<NotHeld> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.merged(other)),
        (one, other) => one.or(other),
    }
}

/// The missing stretches of one feed that are not reported yet.
#[derive(Debug)]
pub(super) struct Holes {
    /// The first capture time that was asked for.
    begin: Option<Timestamp>,
    /// Before the first frame: the time from which on somebody holds frames, if it is later than the
    /// requested beginning.
    held_from: Option<Timestamp>,
    /// The time from which on the camera holds its frames, once it has said so.
    camera_from: Option<Timestamp>,
    /// Why the stretch after the last frame could not be asked for in full. `None`: it could.
    unanswered: Option<Unanswered>,
    /// Where the stretch of `unanswered` begins, if frames outside the span were passed over behind the last frame.
    unanswered_from: Option<Timestamp>,
    /// The stretch to report with the next delivery.
    untold: Option<NotHeld>,
}

impl Holes {
    /// No holes yet. `held_from` is the time from which on memory holds frames, if nobody else is known to
    /// hold earlier ones. An answer may say otherwise.
    pub(super) fn new(begin: Option<Timestamp>, held_from: Option<Timestamp>) -> Self {
        let held_from = held_from.filter(|from| begin.is_some_and(|begin| begin < *from));
        Self { begin, held_from, camera_from: None, unanswered: None, unanswered_from: None, untold: None }
    }

    /// Takes in an answer. `covers`: the question was about everything after the last frame.
    pub(super) fn handle_answer(
        &mut self,
        held_from: Option<Timestamp>,
        camera_from: Option<Timestamp>,
        unanswered: Option<Unanswered>,
        covers: bool,
    ) {
        self.held_from = self.held_from.map(|held| held_from.map_or(held, |from| held.min(from)));
        self.camera_from = camera_from.or(self.camera_from);
        // Frames before those that were passed over are not asked for again.
        let replaces = covers && self.unanswered_from.is_none();
        self.unanswered = if replaces { unanswered } else { self.unanswered.max(unanswered) };
    }

    /// Whether the camera has said from which time on it holds its frames, or could not be asked.
    pub(super) fn knows_camera(&self) -> bool {
        self.camera_from.is_some() || self.unanswered.is_some()
    }

    /// Drops the request for everything before now.
    pub(super) fn begin_now(&mut self) {
        (self.begin, self.held_from) = (None, None);
        (self.unanswered, self.unanswered_from) = (None, None);
    }

    /// Notes that frames outside the span are passed over behind the last frame, which
    /// was captured `at`. A stretch that could not be asked for still begins there.
    pub(super) fn pass_over(&mut self, at: Option<Timestamp>) {
        if self.unanswered.is_some() && self.unanswered_from.is_none() {
            self.unanswered_from = at.or(self.begin).or(Some(Timestamp::MIN));
        }
    }

    /// Adds a stretch that nothing else reports.
    pub(super) fn add(&mut self, not_held: NotHeld) {
        debug_assert!(not_held.begin <= not_held.end, "a stretch ends before it begins: {not_held:?}");
        self.untold = merged(self.untold, Some(not_held));
    }

    /// Notes that the next frame after `last` is delivered or skipped. `follows`: before the first frame,
    /// whether it is known that nothing was published between the beginning and this frame.
    pub(super) fn before(
        &mut self,
        last: Option<(FrameId, Option<Timestamp>)>,
        meta: &FrameMeta,
        broken: bool,
        follows: bool,
    ) {
        let (id, captured) = (meta.id, meta.captured);
        let unanswered = self.unanswered.take().map(NotHeldReason::from);
        let (unanswered_from, held_from) = (self.unanswered_from.take(), self.held_from.take());
        if let Some((last, at)) = last {
            if last.next() == id && unanswered_from.is_none() {
                return;
            }
            let restarted = (last.epoch != id.epoch).then_some(NotHeldReason::CameraRestarted);
            if let Some(reason) = unanswered.max(restarted) {
                // The application may have named the last frame without its capture time.
                let begin = at.or(self.begin).unwrap_or(Timestamp::MIN);
                let begin = unanswered_from.map_or(begin, |from| from.min(begin));
                self.add(NotHeld { begin, end: captured.max(begin), reason });
            }
            return;
        }
        let Some(begin) = self.begin.filter(|begin| *begin < captured && !follows) else { return };
        let broken = broken.then_some(NotHeldReason::Unreadable);
        // This is the first frame of a restart, so the start before it may have gone on until then.
        let is_first = id.sequence.0 == 0 && id.epoch.0 > 1;
        let restarted = (self.camera_from.is_some() && is_first).then_some(NotHeldReason::CameraRestarted);
        if let Some(reason) = unanswered.max(broken).max(restarted) {
            return self.add(NotHeld { begin, end: captured, reason });
        }
        let from = match self.camera_from {
            Some(from) => Some(from.min(captured)),
            None => held_from,
        };
        if let Some(end) = from.filter(|from| begin < *from) {
            self.add(NotHeld { begin, end, reason: NotHeldReason::Gone });
        }
    }

    /// The stretch to report with a delivery.
    pub(super) fn take(&mut self) -> Option<NotHeld> {
        self.untold.take()
    }

    /// The stretch to report at the requested end, if there is one, after `last`.
    pub(super) fn rest(
        &mut self,
        last: Option<(FrameId, Option<Timestamp>)>,
        end: Option<Timestamp>,
    ) -> Option<NotHeld> {
        let begin = last.map_or(self.begin, |(_, at)| at.or(self.begin));
        let (begin, end) = (begin.unwrap_or(Timestamp::MIN), end.unwrap_or(Timestamp::MAX));
        let begin = self.unanswered_from.take().map_or(begin, |from| from.min(begin));
        if let Some(why) = self.unanswered.take() {
            self.add(NotHeld { begin, end: end.max(begin), reason: why.into() });
        } else if last.is_none() {
            let from = self.camera_from.map(|from| from.min(end)).or(self.held_from);
            if let Some(end) = from.filter(|from| self.begin.is_some() && begin < *from) {
                self.add(NotHeld { begin, end, reason: NotHeldReason::Gone });
            }
        }
        self.take()
    }
}
