//! Reads the logs of the cameras that one application subscribed to.
//!
//! A subscription pulls. The part that serves the application asks for the [`next`](Subscription::next)
//! delivery when the application can take one, and the newest frame at that moment wins. The subscription
//! holds one position per camera. It accounts for every frame between two deliveries: delivered + skipped =
//! published, from the first delivered frame on. What counts cannot tell is reported as a stretch of time
//! with a reason (`holes.rs`).
//!
//! Frames of the past come from memory or, if memory does not hold them, from elsewhere.
//! [`Subscription::poll_past`] returns the questions, and [`Subscription::handle_past`] takes the answers
//! ([`crate::history`]). `feed/` combines past and present, and `tally.rs` keeps the account.

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

/// How long a subscription still waits, after a requested end that lay in the future, for frames on their
/// way. If the end had passed at the beginning, it waits for none. It then ends once everybody who holds
/// frames has said that there are no more.
const END_GRACE: Duration = Duration::from_secs(2);

/// A span of capture times, and which frames of it are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first capture time wanted. `None`: frames published from now on. Once this time has passed, every
    /// present frame is wanted, whatever its capture time. So a camera whose clock is behind loses nothing.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. `None`: no end.
    pub end: Option<Timestamp>,
    /// Whether the newest frame or every frame is wanted.
    pub deliver: Deliver,
}

impl Span {
    /// From now on, the newest frame wins.
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

    /// The instant from which on no frame can be wanted.
    pub fn ends_at(&self, clock: &ClockAnchor) -> Option<Instant> {
        self.end.map(|end| clock.instant_at(end + END_GRACE))
    }
}

/// The end of a span is before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end {end} lies before the beginning {begin}; swap them")]
pub struct SpanError {
    /// The beginning that was asked for.
    pub begin: Timestamp,
    /// The end that was asked for.
    pub end: Timestamp,
}

/// Which frames an application gets if it is slower than the camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// The newest frame when the application is ready. Older ones are skipped and counted.
    Newest,
    /// Every frame that crossed the link, in order, as long as a log holds it. Of the past, also frames that
    /// are fetched from the camera.
    Every,
}

/// A frame for the application.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The camera.
    pub camera: CameraName,
    /// The frame.
    pub record: Record,
    /// Frames of this camera that were skipped since its previous delivery.
    pub skipped: SkipCounts,
    /// A stretch before this frame that is not held, or not known to be held, if counts cannot tell it.
    pub not_held: Option<NotHeld>,
    /// The log that it was read from. `None` for a frame from elsewhere, whose memory counts in no log's
    /// budget.
    pub log: Option<LogReader>,
}

/// The last frame of a camera that an application already has.
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
    /// Nothing now. Ask again when a camera is attached, a log grows, or the end has passed.
    Pending,
    /// Nothing more: the end has passed.
    Ended {
        /// The account of each camera since its last delivery.
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
    /// Whether the beginning and the end lay in the past when the first frame was asked for.
    passed: Option<(bool, bool)>,
    /// The last frame of each camera that the application already has.
    resumes_after: Vec<(CameraName, LastFrame)>,
    /// The time until which cameras may come that nobody knows yet.
    patience: Option<Timestamp>,
}

impl Subscription {
    /// A subscription that reads nothing yet.
    pub fn new(span: Span) -> Self {
        Self::reaching(span, Reach::Memory)
    }

    /// A subscription that asks others for frames that memory does not hold ([`Subscription::poll_past`]).
    pub fn reaching(span: Span, reach: Reach) -> Self {
        Self::wishing(span, PastWish { reach, ..PastWish::default() })
    }

    /// A subscription that asks others for frames of the past, as `past` says.
    pub fn wishing(span: Span, past: PastWish) -> Self {
        let deliver = if past.fill { Deliver::Every } else { span.deliver };
        let span = Span { deliver, ..span };
        let resumes_after = Vec::new();
        Self { span, past, feeds: Vec::new(), turn: 0, passed: None, resumes_after, patience: None }
    }

    /// Makes the account of these cameras continue after frames that the application already has. Must be
    /// called before a camera is attached. If the subscription fills, it asks for everything published since;
    /// otherwise it counts it.
    #[must_use]
    pub fn resuming_after(mut self, last: Vec<(CameraName, LastFrame)>) -> Self {
        self.resumes_after = last;
        self
    }

    /// Does not end before this time, because cameras that nobody knows yet may come until then.
    pub fn expect_cameras_until(&mut self, patience: Timestamp) {
        self.patience = Some(patience);
    }

    /// The time before which it does not end, even if all that it reads is over.
    pub fn patience(&self) -> Option<Timestamp> {
        self.patience
    }

    /// Starts to read a camera, from now on or as far back as was asked for. Ignored for a camera that is
    /// attached already.
    pub fn attach(&mut self, camera: CameraName, reader: LogReader) {
        let present = reader.held().end;
        self.attach_from(camera, reader, present);
    }

    /// Starts to read a camera later than the subscription first wanted it. `present` is the end of the log
    /// at that earlier moment; what was appended since is not missed.
    pub fn attach_from(&mut self, camera: CameraName, reader: LogReader, present: u64) {
        if self.feeds.iter().all(|feed| feed.camera != camera) {
            let after = self.resumes_after.iter().find(|(of, _)| *of == camera).map(|(_, after)| *after);
            self.feeds.push(Feed::new(camera, reader, present, (self.span, self.past), after));
        }
    }

    /// Delivers frames of an attached camera as they came, for an application that decodes chains of these
    /// kinds itself. It gets all frames of a chain from its beginning on, in order. Outside chains, or if it
    /// falls further behind than `log` reaches, it gets stills. Ignored if the subscription reads the past.
    pub fn take_chains(&mut self, camera: &CameraName, log: LogReader, kinds: ChainKinds) {
        let feed = self.feeds.iter_mut().find(|feed| feed.camera == *camera && feed.takes_chains());
        if let Some(feed) = feed.filter(|feed| feed.chains.is_none()) {
            feed.chains = Some(ChainPlace::new(log, kinds));
        }
    }

    /// Continues with a camera's stills until another chain begins, because the decoder has lost what it
    /// held.
    pub fn leave_chain(&mut self, camera: &CameraName) {
        let feed = self.feeds.iter_mut().find(|feed| feed.camera == *camera);
        if let Some(chains) = feed.and_then(|feed| feed.chains.as_mut()) {
            chains.leave();
        }
    }

    /// How often the application was too slow for its chain and continued with stills.
    pub fn chains_lost(&self) -> u64 {
        self.feeds.iter().filter_map(|feed| feed.chains.as_ref()).map(ChainPlace::lost).sum()
    }

    /// The cameras that are read.
    pub fn cameras(&self) -> impl Iterator<Item = &CameraName> {
        self.feeds.iter().map(|feed| &feed.camera)
    }

    /// The span that was asked for.
    pub fn span(&self) -> Span {
        self.span
    }

    /// A question about the past that was not asked yet. Its answer goes to [`Subscription::handle_past`].
    /// Call this until it returns nothing, after every [`Subscription::next`]. At most one question per
    /// camera is open.
    pub fn poll_past(&mut self) -> Option<(CameraName, PastQuery)> {
        self.feeds.iter_mut().find_map(|feed| Some((feed.camera.clone(), feed.poll_past()?)))
    }

    /// Takes in the answer to a question.
    pub fn handle_past(&mut self, camera: &CameraName, answer: PastAnswer) {
        let span = self.span;
        if let Some(feed) = self.feeds.iter_mut().find(|feed| feed.camera == *camera) {
            feed.handle_past(span, answer);
        }
    }

    /// The next delivery. `now` is the edge broker's wall clock: an anchor plus the monotonic clock. It only
    /// decides whether the beginning and the end have passed.
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
                // A frame from after the end that comes before the end has a wrong time, so others may
                // follow.
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
