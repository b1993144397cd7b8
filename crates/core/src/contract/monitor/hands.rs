//! Tracks frames from the edge into the application's hands.
//!
//! An application gets a frame through a client library, which keeps the newest until the application takes
//! it. The library reports when it had received a frame and when the application took it
//! ([`TakenReport`]). Until a report comes, a frame counts as it was handed over.

use std::collections::VecDeque;
use std::time::Duration;

use super::outcome::{FrameOutcome, WINDOW};
use crate::frame::FrameId;
use crate::units::Instant;

/// The most frames of a camera that wait for their report. Beyond that, the oldest counts as it was handed
/// over.
const WAITING_MAX: usize = 256;

/// A client library's report of a frame. Its times are limited by what the edge saw itself:
/// the frame was received after it was handed over, and taken before the report came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenReport {
    /// The frame.
    pub frame: FrameId,
    /// The time from its capture until the client library had all of it. `None`: not known, because the
    /// library itself was waiting for the application.
    pub received: Option<Duration>,
    /// The time from its capture until the application took it. `None`: it never did, because a newer frame
    /// took its place.
    pub taken: Option<Duration>,
    /// The largest error of both times.
    pub error: Duration,
}

/// How a frame was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The frame.
    pub frame: FrameId,
    /// When it was captured, by the edge's clock. `None`: not known, so a report of the frame says nothing.
    pub captured: Option<Instant>,
    /// How long it had waited at the edge because the application was not ready for it.
    pub waited: Duration,
}

/// The last known step of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// The frame did not come, or is not tracked.
    None,
    /// The frame was handed over, and no report has come.
    Handed(Took),
    /// The application took the frame, by its client library's report.
    Taken(Took),
    /// A newer frame replaced the frame before the application was ready.
    Replaced,
}

/// How the application got a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Took {
    pub(super) frame: FrameId,
    pub(super) at: Instant,
    /// Whether the application had it within the bound.
    pub(super) in_time: bool,
    /// How long the frame had waited for the application.
    pub(super) waited: Duration,
    /// The largest error of the clocks.
    pub(super) error: Duration,
}

/// How the application took the frames of the last second.
#[derive(Clone, Copy, Default)]
pub(super) struct Takes {
    /// Whether the client library reports. If not, frames count as taken when they were handed over.
    pub(super) reported: bool,
    /// The mean time between two frames that the application took.
    pub(super) every: Option<Duration>,
    /// The mean time that a frame waited for the application.
    pub(super) waited: Duration,
    /// The largest error of the times.
    pub(super) error: Duration,
}

impl Takes {
    pub(super) fn of(took: &[Took], reported: bool, gap: Option<Duration>) -> Self {
        let count = took.len() as u32;
        let times = || took.iter().map(|took| took.at);
        let span = times().min().zip(times().max()).map(|(first, last)| last.saturating_since(first));
        let waited: Duration = took.iter().map(|took| took.waited).sum();
        Self {
            reported,
            every: if count > 1 { span.map(|span| span / (count - 1)) } else { gap },
            waited: waited.checked_div(count).unwrap_or_default(),
            error: took.iter().map(|took| took.error).max().unwrap_or_default(),
        }
    }
}

/// A frame of the last second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) outcome: FrameOutcome,
    pub(super) step: Step,
}

impl Seen {
    /// Whether the application had the frame within the bound, as far as is known.
    pub(super) fn is_in_hand(&self) -> bool {
        match self.step {
            Step::None => self.outcome.on_time,
            Step::Handed(took) | Step::Taken(took) => took.in_time,
            Step::Replaced => false,
        }
    }
}

/// A frame whose report is still to come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    handed: Handed,
    at: Instant,
    outcome: FrameOutcome,
}

/// The frames of one camera that were handed over, and how the application takes them.
#[derive(Debug, Default)]
pub(super) struct Hands {
    waiting: VecDeque<Waiting>,
    /// Whether the client library reports at all.
    reports: bool,
    /// When the application last took a frame, and the time since the one before.
    last: Option<(Instant, Option<Duration>)>,
    /// Since when there have been frames that the application has not taken.
    untaken_since: Option<Instant>,
}

/// The result of a report on a frame.
pub(super) struct Reported {
    pub(super) seen: Seen,
    /// How long the frame took from the edge into the client library, if that is known.
    pub(super) way: Option<Duration>,
}

impl Hands {
    /// A frame was handed over. Returns its last known step.
    pub(super) fn handle_handed(
        &mut self,
        now: Instant,
        (handed, outcome): (Handed, FrameOutcome),
        bound: Option<Duration>,
    ) -> Step {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Waiting { handed, at: now, outcome });
        self.untaken_since.get_or_insert(now);
        let in_time = match (handed.captured, bound) {
            (Some(captured), Some(bound)) => now.saturating_since(captured) <= bound,
            _ => true,
        };
        let (frame, waited) = (handed.frame, handed.waited);
        Step::Handed(Took { frame, at: now, in_time, waited, error: Duration::ZERO })
    }

    /// A client library reports. `None` for a frame that was not handed over, or was reported before.
    pub(super) fn handle_report(
        &mut self,
        now: Instant,
        report: &TakenReport,
        bound: Option<Duration>,
    ) -> Option<Reported> {
        // Reports of a camera come in order, so older frames will not be reported any more.
        while self.waiting.front().is_some_and(|waiting| waiting.handed.frame < report.frame) {
            self.waiting.pop_front();
        }
        self.waiting.front().filter(|waiting| waiting.handed.frame == report.frame)?;
        let Waiting { handed, at, mut outcome } = self.waiting.pop_front()?;
        let captured = handed.captured?;
        self.reports = true;
        let (handed_age, age) = (at.saturating_since(captured), now.saturating_since(captured));
        let received = report.received.unwrap_or_default().clamp(handed_age, age.max(handed_age));
        let way = report.received.map(|_| received - handed_age);
        let in_time = |age: Duration| bound.is_none_or(|bound| age <= bound);
        outcome.on_time = in_time(received.saturating_sub(handed.waited));
        let step = match report.taken {
            None => Step::Replaced,
            Some(taken) => {
                let taken = taken.clamp(received, age.max(received));
                let (took_at, waited) = (captured + taken, handed.waited + (taken - received));
                let gap = self.last.map(|(last, _)| took_at.saturating_since(last));
                self.last = Some((took_at, gap));
                self.untaken_since = self.waiting.front().map(|waiting| waiting.at);
                let Handed { frame, .. } = handed;
                Step::Taken(Took { frame, at: took_at, in_time: in_time(taken), waited, error: report.error })
            }
        };
        Some(Reported { seen: Seen { at, outcome, step }, way })
    }

    /// How long the application has taken no frame although there were some. `None`: not longer than usual, or the library does not report.
    pub(super) fn idle(&self, now: Instant) -> Option<Duration> {
        let untaken = self.untaken_since.filter(|_| self.reports)?;
        let since = self.last.map_or(untaken, |(last, _)| untaken.max(last));
        let idle = now.saturating_since(since);
        let patience = self.gap().map_or(WINDOW, |gap| WINDOW.max(gap * 2));
        (idle >= patience).then_some(idle)
    }

    /// The time between the last two frames that the application took.
    pub(super) fn gap(&self) -> Option<Duration> {
        self.last.and_then(|(_, gap)| gap)
    }
}
