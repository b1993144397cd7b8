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
mod types;

use self::chains::ChainPlace;
use self::feed::Feed;
pub use self::holes::{Missing, NotHeld, NotHeldReason, merged};
pub use self::spec::SubscriptionSpec;
pub use self::tally::skipped_between;
pub use self::types::{Deliver, Delivery, LastFrame, Next, Span, SpanError};
use crate::frame::ChainKinds;
use crate::history::{PastAnswer, PastQuery, PastWish, Reach};
use crate::log::LogReader;
use crate::name::CameraName;
use crate::units::Timestamp;

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
mod tests;
