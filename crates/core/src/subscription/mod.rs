//! How one application reads the logs of the cameras that it subscribed to.
//!
//! A subscription pulls: whoever serves the application asks for the [`next`](Subscription::next) delivery when
//! the application can take one, and the newest frame at that moment wins. It holds one position per camera and
//! accounts for every frame between two deliveries: delivered + skipped = published, from the first frame delivered
//! on. What counts cannot tell is a stretch of time with a reason (`holes.rs`).
//!
//! Frames of the past come from memory or, where that does not reach, from elsewhere: [`Subscription::poll_past`] says what
//! is lacking, and [`Subscription::handle_past`] takes the answer ([`crate::history`]). `feed/` puts the two together, `tally.rs` keeps the count.

mod chains;
mod feed;
mod holes;
mod spec;
mod tally;

use std::time::Duration;

use self::chains::ChainPlace;
use self::feed::Feed;
pub use self::holes::{Missing, NotHeld, NotHeldReason, merged};
pub use self::spec::SubscriptionSpec;
pub use self::tally::skipped_between;
use crate::frame::{ChainKinds, FrameId, SkipCounts};
use crate::history::{PastAnswer, PastQuery, PastWish, Reach};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// How long after an end that lay in the future a subscription still waits for frames on their way. One whose end had passed when it
/// began waits for none: it is over once everybody who holds frames has said that there are no more.
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
    /// Every frame that crossed the link, in order, for as long as a log holds them; of the past also those that are fetched
    /// from the camera.
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
    /// A stretch before this frame that is not held, or not known to be, where counts do not tell it.
    pub not_held: Option<NotHeld>,
    /// The log that it was read from; nothing for a frame that was found elsewhere, whose memory is in no log's budget.
    pub log: Option<LogReader>,
}

/// The last frame of a camera that an application has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFrame {
    /// Which.
    pub id: FrameId,
    /// Its capture time, if that is known.
    pub captured: Option<Timestamp>,
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
    past: PastWish,
    feeds: Vec<Feed>,
    /// The feed to look at first, so that every camera gets its turn.
    turn: usize,
    /// Whether the beginning, and the end, lay in the past when the first frame was asked for.
    passed: Option<(bool, bool)>,
    /// What the application had of each camera before.
    resumes_after: Vec<(CameraName, LastFrame)>,
    /// Until then cameras may come that nobody knows yet.
    patience: Option<Timestamp>,
}

impl Subscription {
    /// A subscription that reads nothing yet.
    pub fn new(span: Span) -> Self {
        Self::reaching(span, Reach::Memory)
    }

    /// A subscription that asks others for what memory does not hold: see [`Subscription::poll_past`].
    pub fn reaching(span: Span, reach: Reach) -> Self {
        Self::wishing(span, PastWish { reach, ..PastWish::default() })
    }

    /// The same for one that also says as what it wants frames of the past.
    pub fn wishing(span: Span, past: PastWish) -> Self {
        let deliver = if past.fill { Deliver::Every } else { span.deliver };
        let span = Span { deliver, ..span };
        let resumes_after = Vec::new();
        Self { span, past, feeds: Vec::new(), turn: 0, passed: None, resumes_after, patience: None }
    }

    /// The application has these frames already, and the account of their cameras goes on behind them: to be called before a camera is
    /// attached. A wish that fills asks for all that was published since; any other one counts it.
    #[must_use]
    pub fn resuming_after(mut self, last: Vec<(CameraName, LastFrame)>) -> Self {
        self.resumes_after = last;
        self
    }

    /// It does not end before this time while cameras may still come that nobody knows yet.
    pub fn expect_cameras_until(&mut self, patience: Timestamp) {
        self.patience = Some(patience);
    }

    /// Until when it does not end, although what it reads is over.
    pub fn patience(&self) -> Option<Timestamp> {
        self.patience
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
            let after = self.resumes_after.iter().find(|(of, _)| *of == camera).map(|(_, after)| *after);
            self.feeds.push(Feed::new(camera, reader, present, (self.span, self.past), after));
        }
    }

    /// Takes frames of a camera that is attached as they came, for an application that decodes chains of these kinds itself: all frames of a
    /// chain from its beginning on, in order. Outside of chains, and where it falls behind by more than `log` holds, it gets stills as
    /// others do. Nothing for a subscription that reads the past.
    pub fn take_chains(&mut self, camera: &CameraName, log: LogReader, kinds: ChainKinds) {
        let feed = self.feeds.iter_mut().find(|feed| feed.camera == *camera && feed.takes_chains());
        if let Some(feed) = feed.filter(|feed| feed.chains.is_none()) {
            feed.chains = Some(ChainPlace::new(log, kinds));
        }
    }

    /// Goes on with stills of a camera until another chain begins: whoever decodes has lost what it held.
    pub fn leave_chain(&mut self, camera: &CameraName) {
        let feed = self.feeds.iter_mut().find(|feed| feed.camera == *camera);
        if let Some(chains) = feed.and_then(|feed| feed.chains.as_mut()) {
            chains.leave();
        }
    }

    /// How often the application was too slow for a chain that it was in, and went on with stills.
    pub fn chains_lost(&self) -> u64 {
        self.feeds.iter().filter_map(|feed| feed.chains.as_ref()).map(ChainPlace::lost).sum()
    }

    /// The cameras that are read.
    pub fn cameras(&self) -> impl Iterator<Item = &CameraName> {
        self.feeds.iter().map(|feed| &feed.camera)
    }

    /// What was asked for.
    pub fn span(&self) -> Span {
        self.span
    }

    /// A question for the past that has not been put yet; each waits for its answer in [`Subscription::handle_past`]. Ask
    /// for these until there is none, after every [`Subscription::next`]. One for each camera at most is open.
    pub fn poll_past(&mut self) -> Option<(CameraName, PastQuery)> {
        self.feeds.iter_mut().find_map(|feed| Some((feed.camera.clone(), feed.poll_past()?)))
    }

    /// The answer to a question.
    pub fn handle_past(&mut self, camera: &CameraName, answer: PastAnswer) {
        let span = self.span;
        if let Some(feed) = self.feeds.iter_mut().find(|feed| feed.camera == *camera) {
            feed.handle_past(span, answer);
        }
    }

    /// The next delivery. `now` is the edge broker's wall clock, an anchor plus the monotonic clock; it only decides
    /// whether the beginning and the end have passed.
    pub fn next(&mut self, now: Timestamp) -> Next {
        let Span { begin, end, .. } = self.span;
        let passed = (begin.is_none_or(|begin| begin <= now), end.is_some_and(|end| end < now));
        let (begun, ended) = *self.passed.get_or_insert(passed);
        let feeds = self.feeds.len();
        for offset in 0..feeds {
            let index = (self.turn + offset) % feeds;
            if let Some(delivery) = self.feeds[index].next(self.span, begun) {
                self.turn = (index + 1) % feeds;
                return Next::Frame(Box::new(delivery));
            }
        }
        let waits = self.feeds.iter().any(Feed::waits_for_past);
        let over = !waits
            && end.is_some_and(|end| {
                // Every feed was just found to have nothing more.
                let all_beyond = ended || self.feeds.iter().all(|feed| feed.beyond(end));
                // Before the end has come, a frame from after it has a wrong time: others may follow.
                !self.span.is_live(now) || (!self.feeds.is_empty() && all_beyond && end <= now)
            });
        let span = self.span;
        if !over
            || self.patience.is_some_and(|patience| now < patience)
            || self.feeds.iter_mut().map(|feed| feed.ask_for_rest(span)).filter(|asked| *asked).count() > 0
        {
            return Next::Pending;
        }
        let rest = self.feeds.drain(..).map(|feed| feed.rest(span)).collect();
        Next::Ended { rest }
    }
}

#[cfg(all(test, not(loom)))]
mod chains_tests;
#[cfg(all(test, not(loom)))]
mod holes_tests;
#[cfg(all(test, not(loom)))]
mod past_tests;
#[cfg(all(test, not(loom)))]
mod quality_tests;
#[cfg(all(test, not(loom)))]
mod tests;
