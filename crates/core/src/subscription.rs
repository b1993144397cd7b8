//! How one application reads the logs of the cameras that it subscribed to.
//!
//! A subscription pulls: whoever serves the application asks for the [`next`](Subscription::next) delivery when
//! the application can take one, and the newest frame at that moment wins. It holds one position per camera and
//! accounts for every frame between two deliveries: delivered + skipped = published, from the first frame delivered
//! on. Only of the end of an epoch it knows no more than the log: frames that the camera published after the last that
//! arrived, before it was started again, are known to nobody here.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::frame::{FrameId, Sequence, SkipCounts, SkipReason};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// How long after its end a subscription still waits for frames on their way.
const END_GRACE: Duration = Duration::from_secs(2);

/// Which part of time, and which frames of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first capture time wanted. `None`: what is published from now on. Once it lies in the past, everything that
    /// comes is wanted, whatever it says of its capture time: a camera whose clock is behind loses nothing.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. `None`: no end.
    pub end: Option<Timestamp>,
    /// Newest or every.
    pub deliver: Deliver,
}

impl Span {
    /// From now on, newest wins.
    pub const LIVE: Self = Self { begin: None, end: None, deliver: Deliver::Newest };

    /// Refuses an end before the beginning.
    pub fn validate(&self) -> Result<(), SpanError> {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) if end < begin => Err(SpanError { begin, end }),
            _ => Ok(()),
        }
    }

    /// Whether frames published from `now` on can still be wanted.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| end + END_GRACE > now)
    }

    /// The instant from which on no frame can be wanted any more.
    pub fn ends_at(&self, clock: &ClockAnchor) -> Option<Instant> {
        self.end.map(|end| clock.instant_at(end + END_GRACE))
    }
}

/// The end of a span lies before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end {end} lies before the beginning {begin}; swap them")]
pub struct SpanError {
    /// The beginning that was asked for.
    pub begin: Timestamp,
    /// The end that was asked for.
    pub end: Timestamp,
}

/// Which frames an application gets when it is slower than the camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// The newest at the moment when it is ready; older ones are skipped and counted.
    Newest,
    /// Every frame that crossed the link, in order, for as long as the log holds them.
    Every,
}

/// A frame for the application.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The camera.
    pub camera: CameraName,
    /// The frame.
    pub record: Record,
    /// Frames of this camera since the delivery before that were not delivered.
    pub skipped: SkipCounts,
    /// A part of the past that was asked for and is not held; only with the first delivery of a camera.
    pub not_held: Option<NotHeld>,
}

/// A stretch of the past that was asked for and is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHeld {
    /// The first capture time that was asked for.
    pub begin: Timestamp,
    /// Frames captured before this time are not held.
    pub end: Timestamp,
}

/// What a subscription has for its application.
#[derive(Clone, Debug)]
pub enum Next {
    /// A frame.
    Frame(Box<Delivery>),
    /// Nothing now. Ask again when a camera is attached or a log grows, or when the end has passed.
    Pending,
    /// Nothing any more: the end has passed.
    Ended {
        /// What was skipped since each camera's last delivery, and what is not held of it.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
}

/// One application's place in the logs that it reads.
pub struct Subscription {
    span: Span,
    feeds: Vec<Feed>,
    /// The feed to look at first, so that every camera gets its turn.
    turn: usize,
    /// Whether the beginning lay in the past when the first frame was asked for.
    begun: Option<bool>,
}

impl Subscription {
    /// A subscription that reads nothing yet.
    pub fn new(span: Span) -> Self {
        Self { span, feeds: Vec::new(), turn: 0, begun: None }
    }

    /// Begins to read a camera, from now on or as far back as was asked for. A camera that is attached already stays
    /// as it is.
    pub fn attach(&mut self, camera: CameraName, reader: LogReader) {
        let present = reader.held().end;
        self.attach_from(camera, reader, present);
    }

    /// Like [`Subscription::attach`] where some time has passed since the subscription began to want the camera:
    /// `present` is the end of the log at that moment, and what has been appended since is not missed.
    pub fn attach_from(&mut self, camera: CameraName, reader: LogReader, present: u64) {
        if self.feeds.iter().all(|feed| feed.camera != camera) {
            self.feeds.push(Feed::new(camera, reader, present, self.span));
        }
    }

    /// The cameras that are read.
    pub fn cameras(&self) -> impl Iterator<Item = &CameraName> {
        self.feeds.iter().map(|feed| &feed.camera)
    }

    /// What was asked for.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The next delivery. `now` is the edge broker's wall clock, an anchor plus the monotonic clock; it only decides
    /// whether the beginning and the end have passed.
    pub fn next(&mut self, now: Timestamp) -> Next {
        let begun = *self.begun.get_or_insert(self.span.begin.is_none_or(|begin| begin <= now));
        let feeds = self.feeds.len();
        for offset in 0..feeds {
            let index = (self.turn + offset) % feeds;
            if let Some(delivery) = self.feeds[index].next(self.span, begun) {
                self.turn = (index + 1) % feeds;
                return Next::Frame(Box::new(delivery));
            }
        }
        let over = self.span.end.is_some_and(|end| {
            !self.span.is_live(now)
                || (!self.feeds.is_empty() && self.feeds.iter().all(|feed| feed.beyond(end)))
        });
        if !over {
            return Next::Pending;
        }
        let rest = self.feeds.drain(..).map(|feed| (feed.camera, feed.skipped, feed.not_held)).collect();
        Next::Ended { rest }
    }
}

/// A subscription's place in one log.
struct Feed {
    camera: CameraName,
    reader: LogReader,
    /// Indices of the past still to be read, in order.
    past: VecDeque<Range<u64>>,
    /// The next index of the present.
    live: u64,
    /// The present is being read.
    is_live: bool,
    /// A frame captured at or after the beginning was seen.
    begun: bool,
    /// The last frame that was delivered or skipped.
    last: Option<FrameId>,
    /// A frame captured after the end was seen.
    saw_end: bool,
    /// Records that were evicted before they were read, since `last`.
    evicted: u64,
    skipped: SkipCounts,
    not_held: Option<NotHeld>,
}

impl Feed {
    fn new(camera: CameraName, reader: LogReader, present: u64, span: Span) -> Self {
        let mut feed = Self {
            camera,
            past: VecDeque::new(),
            live: present,
            is_live: false,
            begun: false,
            last: None,
            saw_end: false,
            evicted: 0,
            skipped: SkipCounts::default(),
            not_held: None,
            reader,
        };
        if let Some(begin) = span.begin {
            let end = span.end.unwrap_or(Timestamp::MAX);
            // What lies beyond is read as the present.
            let past =
                feed.reader.between(begin, end).into_iter().map(|range| range.start..range.end.min(present));
            feed.past = past.filter(|range| !range.is_empty()).collect();
            let oldest = feed.reader.get(feed.reader.held().start).map(|record| record.frame.meta.captured);
            let held_from = oldest.unwrap_or(end).min(end);
            feed.not_held = (begin < held_from).then_some(NotHeld { begin, end: held_from });
        }
        feed
    }

    fn next(&mut self, span: Span, begun: bool) -> Option<Delivery> {
        self.begun |= begun;
        let mut newest: Option<Record> = None;
        while let Some(record) = self.step(span) {
            if let Some(skipped) = newest.replace(record) {
                self.skipped.add(SkipReason::ApplicationBusy, 1);
                self.last = Some(skipped.frame.meta.id);
            }
            let record = newest.as_ref().expect("just put there");
            self.account_before(record);
            if span.deliver == Deliver::Every {
                break;
            }
        }
        let record = newest?;
        self.last = Some(record.frame.meta.id);
        Some(Delivery {
            camera: self.camera.clone(),
            record,
            skipped: std::mem::take(&mut self.skipped),
            not_held: self.not_held.take(),
        })
    }

    /// The next record of the past or the present that lies within the span.
    fn step(&mut self, span: Span) -> Option<Record> {
        while let Some(range) = self.past.front_mut() {
            if range.is_empty() {
                self.past.pop_front();
                if let Some(next) = self.past.front() {
                    self.pass_over(next.start);
                }
                continue;
            }
            let index = range.start;
            range.start += 1;
            match self.reader.get(index) {
                Some(record) => return Some(record),
                None => self.evicted += 1,
            }
        }
        if !self.is_live {
            self.is_live = true;
            self.pass_over(self.live);
        }
        while !self.saw_end {
            let held = self.reader.held();
            if self.live < held.start {
                self.evicted += held.start - self.live;
                self.live = held.start;
            }
            if self.live >= held.end {
                return None;
            }
            let Some(record) = self.reader.get(self.live) else { continue };
            self.live += 1;
            let captured = record.frame.meta.captured;
            if span.end.is_some_and(|end| captured > end) {
                self.saw_end = true;
            } else if self.begun || span.begin.is_none_or(|begin| captured >= begin) {
                self.begun = true;
                return Some(record);
            }
        }
        None
    }

    /// Reading goes on at `index`. What the log holds before it lies outside of the span, so it is not skipped.
    fn pass_over(&mut self, index: u64) {
        let before = index.checked_sub(1).and_then(|before| self.reader.get(before));
        if let (Some(last), Some(before)) = (self.last, before) {
            self.last = Some(last.max(before.frame.meta.id));
        }
    }

    /// Accounts for the frames between the last one and `record`, which is delivered or skipped next.
    fn account_before(&mut self, record: &Record) {
        let id = record.frame.meta.id;
        let evicted = std::mem::take(&mut self.evicted);
        let Some(last) = self.last else { return };
        let from = if last.epoch == id.epoch { Sequence(last.sequence.0 + 1) } else { Sequence(0) };
        let mut unexplained = id.sequence.0.saturating_sub(from.0);
        for range in record.skipped.iter().filter_map(|range| range.clipped(from, id.sequence)) {
            let count = range.count.min(unexplained);
            unexplained -= count;
            self.skipped.add(range.reason, count);
        }
        if unexplained > 0 {
            let reason = if evicted > 0 { SkipReason::Evicted } else { SkipReason::LateOrLost };
            self.skipped.add(reason, unexplained);
        }
        if last.epoch != id.epoch {
            // Evicted records of this epoch are among the unexplained; the others ended the one before.
            self.skipped.add(SkipReason::Evicted, evicted.saturating_sub(unexplained));
        }
    }

    fn beyond(&self, end: Timestamp) -> bool {
        self.saw_end
            || self.reader.newest().is_some_and(|record| record.frame.meta.captured >= end)
                && self.past.is_empty()
                && self.live >= self.reader.held().end
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
