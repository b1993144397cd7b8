//! Knows the state of the source of the camera's frames, and reports it to the edge.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::{CameraOutput, SourceNews};
use crate::broker::LinkId;
use crate::source::SourceState;
use crate::units::Instant;
use crate::wire::{Message, SourceReport};

/// A source has stalled after this many times the longest of its last intervals without a frame.
const STALLED_INTERVALS: u32 = 5;
/// A source has stalled only after at least this time without a frame.
const STALLED_MIN: Duration = Duration::from_millis(300);
/// How many of the last intervals between frames give a source's own rate.
const INTERVALS_MAX: usize = 8;
/// The fewest intervals that make a rate. A source that has given fewer frames never stalls.
const INTERVALS_MIN: usize = 4;
/// The shortest time between two reports on one connection. Of more changes, the last is reported.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// What is known of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    state: SourceState,
    reason: String,
    /// When a lost source is tried again.
    retry: Option<Instant>,
}

impl Known {
    const fn live() -> Self {
        Self { state: SourceState::Live, reason: String::new(), retry: None }
    }
}

/// The camera's source.
pub(super) struct SourceWatch {
    known: Known,
    /// Since when the source is in its present state.
    since: Instant,
    /// When the source gave its last frame.
    last: Option<Instant>,
    /// The last intervals between frames, without pauses that have a known reason.
    intervals: VecDeque<Duration>,
    /// What the edge knows of the source.
    told: Known,
    /// When the edge was told last.
    told_at: Option<Instant>,
}

impl SourceWatch {
    /// A source that has given no frame yet, and is expected to.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            known: Known::live(),
            since: now,
            last: None,
            intervals: VecDeque::new(),
            told: Known::live(),
            told_at: None,
        }
    }

    /// The state.
    pub(super) fn state(&self) -> SourceState {
        self.known.state
    }

    /// When a source that gives frames counts as stalled, unless another frame comes.
    fn stalled_at(&self) -> Option<Instant> {
        let is_known = self.known.state == SourceState::Live && self.intervals.len() >= INTERVALS_MIN;
        let usual = self.intervals.iter().max().filter(|_| is_known)?;
        Some(self.last? + (*usual * STALLED_INTERVALS).max(STALLED_MIN))
    }

    /// When [`SourceWatch::handle_timeout`] is due, or, if there is an edge to be told, [`SourceWatch::tell`].
    pub(super) fn due(&self, has_edge: bool) -> Option<Instant> {
        let tell = (has_edge && self.told != self.known).then(|| self.may_tell_at());
        tell.into_iter().chain(self.stalled_at()).min()
    }

    fn may_tell_at(&self) -> Instant {
        self.told_at.map_or(Instant::ZERO, |at| at + TELL_INTERVAL)
    }

    /// The camera broker ends: a report that waits is due at once.
    pub(super) fn handle_leaving(&mut self) {
        self.told_at = None;
    }

    /// A frame was published.
    pub(super) fn handle_published(&mut self, now: Instant) {
        let is_live = self.known.state == SourceState::Live;
        if let Some(last) = self.last.filter(|_| is_live) {
            if self.intervals.len() == INTERVALS_MAX {
                self.intervals.pop_front();
            }
            self.intervals.push_back(now.saturating_since(last));
        }
        self.last = Some(now);
        if !is_live {
            self.become_known(now, Known::live());
        }
    }

    /// There is news about the source.
    pub(super) fn handle_news(&mut self, now: Instant, news: SourceNews) {
        let known = match news {
            SourceNews::Lost { reason, retry } => {
                Known { state: SourceState::Lost, reason, retry: retry.map(|retry| now + retry) }
            }
            SourceNews::Ended => Known { state: SourceState::Ended, reason: String::new(), retry: None },
        };
        self.become_known(now, known);
    }

    /// Notes if the source has given no frame for too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.stalled_at().is_none_or(|due| now < due) {
            return;
        }
        let (mean, count) = (self.intervals.iter().sum::<Duration>(), self.intervals.len() as f64);
        let rate = count / mean.as_secs_f64().max(1e-3);
        let reason = format!("no frames any more; before, it gave {rate:.1} per second");
        let since = self.last.unwrap_or(now);
        self.become_known(since, Known { state: SourceState::Stalled, reason, retry: None });
    }

    /// An edge has welcomed the camera. It assumes a live source until it is told otherwise.
    pub(super) fn handle_welcomed(&mut self) {
        (self.told, self.told_at) = (Known::live(), None);
    }

    /// Reports the source to the edge at the other end of a connection, if the edge knows something else and the last report is not too recent.
    pub(super) fn tell(&mut self, now: Instant, link: LinkId) -> Option<CameraOutput> {
        if self.told == self.known || now < self.may_tell_at() {
            return None;
        }
        (self.told, self.told_at) = (self.known.clone(), Some(now));
        let Known { state, reason, retry } = self.known.clone();
        let lasts = now.saturating_since(self.since);
        let retry = retry.map(|retry| retry.saturating_since(now));
        let message = Message::SourceReport(SourceReport { state, reason, lasts, retry });
        Some(CameraOutput::Send { link, message })
    }

    fn become_known(&mut self, since: Instant, known: Known) {
        if self.known.state != known.state {
            self.since = since;
        }
        self.known = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A source that gave a frame every `interval_ms`, the last of `frames` at the returned time.
    fn running(frames: u64, interval_ms: u64) -> (SourceWatch, u64) {
        let mut watch = SourceWatch::new(at(0));
        (0..frames).for_each(|frame| watch.handle_published(at(frame * interval_ms)));
        (watch, (frames - 1) * interval_ms)
    }

    fn lost(reason: &str, retry_ms: Option<u64>) -> SourceNews {
        SourceNews::Lost { reason: reason.into(), retry: retry_ms.map(Duration::from_millis) }
    }

    fn told(watch: &mut SourceWatch, ms: u64) -> Option<SourceReport> {
        match watch.tell(at(ms), LinkId(1))? {
            CameraOutput::Send { message: Message::SourceReport(report), .. } => Some(report),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_source_stalls_by_its_own_rate() {
        // 15 and 50 frames a second, and one frame in two seconds.
        for (interval_ms, stalls_after_ms) in [(66, 330), (20, 300), (2_000, 10_000)] {
            let (mut watch, last) = running(9, interval_ms);
            assert_eq!(watch.due(true), Some(at(last + stalls_after_ms)), "every {interval_ms} ms");
            watch.handle_timeout(at(last + stalls_after_ms - 1));
            assert_eq!(watch.state(), SourceState::Live);
            watch.handle_timeout(at(last + stalls_after_ms));
            assert_eq!(watch.state(), SourceState::Stalled);
            assert_eq!(watch.due(false), None, "it stays so until something happens");
            let report = told(&mut watch, last + stalls_after_ms).expect("it is news");
            assert_eq!(report.lasts, Duration::from_millis(stalls_after_ms), "since its last frame");
            watch.handle_published(at(last + 60_000));
            assert_eq!(watch.state(), SourceState::Live);
            // The pause does not count as an interval.
            assert_eq!(watch.due(false), Some(at(last + 60_000 + stalls_after_ms)));
        }
    }

    /// A program that sends rarely sends once more and closes. The edge hears of the end even right after another report.
    #[test]
    fn who_leaves_tells_the_end_at_once() {
        let (mut watch, last) = running(9, 66);
        watch.handle_timeout(at(last + 330));
        told(&mut watch, last + 330).expect("it has stalled");
        watch.handle_published(at(last + 1_000));
        told(&mut watch, last + 1_000).expect("it gives frames again");
        watch.handle_news(at(last + 1_020), SourceNews::Ended);
        assert_eq!(told(&mut watch, last + 1_020), None, "it was told something just now");
        watch.handle_leaving();
        assert_eq!(told(&mut watch, last + 1_020).map(|report| report.state), Some(SourceState::Ended));
    }

    #[test]
    fn a_few_frames_make_no_rate() {
        let (watch, _) = running(4, 66);
        assert_eq!(watch.due(true), None);
    }

    /// Each attempt to reopen is reported, with the time since the loss. A frame makes the source live again.
    #[test]
    fn a_lost_source_is_lost_until_a_frame_comes() {
        let (mut watch, last) = running(9, 66);
        watch.handle_news(at(last + 100), lost("the server closed", Some(250)));
        let report = told(&mut watch, last + 100).expect("it is news");
        assert_eq!((report.state, report.retry), (SourceState::Lost, Some(Duration::from_millis(250))));
        assert_eq!(report.reason, "the server closed");
        watch.handle_timeout(at(last + 5_000));
        assert_eq!(watch.state(), SourceState::Lost, "what is lost has not stalled");
        watch.handle_news(at(last + 400), lost("connection refused", Some(500)));
        let report = told(&mut watch, last + 400).expect("another reason is news");
        assert_eq!(report.lasts, Duration::from_millis(300));
        watch.handle_published(at(last + 1_000));
        let report = told(&mut watch, last + 1_000).expect("it is news");
        assert_eq!((report.state, report.reason.as_str(), report.retry), (SourceState::Live, "", None));
        assert_eq!(told(&mut watch, last + 2_000), None);
    }

    /// A source that comes and goes all the time does not flood the edge, and the edge learns the last state.
    #[test]
    fn the_edge_is_told_seldom_and_in_the_end() {
        let (mut watch, last) = running(9, 66);
        let mut reports = Vec::new();
        for ms in 0..1_000 {
            let now = at(last + ms);
            if ms % 2 == 0 {
                watch.handle_news(now, lost("it flaps", None))
            } else {
                watch.handle_published(now)
            }
            reports.extend(told(&mut watch, last + ms));
        }
        assert!((5..=10).contains(&reports.len()), "{} reports in a second", reports.len());
        let due = watch.due(true).expect("the stall at least");
        reports.extend(watch.tell(due, LinkId(1)).and(None::<SourceReport>));
        assert_eq!((watch.state(), &watch.told), (SourceState::Live, &Known::live()));
    }

    /// An edge that welcomes the camera assumes a live source. It is told only if the source is not live.
    #[test]
    fn a_new_edge_is_told_what_it_does_not_expect() {
        let (mut watch, last) = running(9, 66);
        watch.handle_welcomed();
        assert_eq!(told(&mut watch, last), None);
        watch.handle_news(at(last), SourceNews::Ended);
        assert!(told(&mut watch, last).is_some());
        watch.handle_welcomed();
        let report = told(&mut watch, last + 50).expect("the other edge does not know it");
        assert_eq!((report.state, report.lasts), (SourceState::Ended, Duration::from_millis(50)));
    }
}
