//! Reads the logs of the cameras that one application subscribed to.
//!
//! A subscription pulls. The part that serves the application asks for the [`next`](Subscription::next) delivery
//! when the application can take one, and the newest frame at that moment wins. The subscription holds one position
//! per camera. It accounts for every frame between two deliveries: delivered + skipped = published, from the first
//! delivered frame on. Where counts are not enough, it reports a stretch of time with a reason (`holes.rs`).
//!
//! Frames of the past come from memory or, if memory does not hold them, from elsewhere. [`Subscription::poll_past`]
//! returns the questions, and [`Subscription::handle_past`] takes the answers ([`crate::history`]). An application
//! that decodes chains gets their frames as they came. For other applications, [`Subscription::poll_still`] asks for
//! the still of a frame ([`crate::stills`]). `feed/` combines past and present, and `tally.rs` keeps the account.

mod chains;
mod feed;
mod holes;
mod needs;
mod originals;
mod spec;
mod tally;
mod types;

use self::chains::ChainPlace;
use self::feed::Feed;
pub use self::holes::{Missing, NotHeld, NotHeldReason, merged};
pub use self::spec::SubscriptionSpec;
pub use self::tally::skipped_between;
pub use self::types::{Deliver, Delivery, LastFrame, Next, Span, SpanError};
use crate::frame::{ChainKinds, FrameId};
use crate::history::{PastAnswer, PastOptions, PastQuery, Tier};
use crate::log::LogReader;
use crate::name::CameraName;
use crate::stills::{StillAnswer, StillQuery};
use crate::units::Timestamp;

/// One application's place in the logs that it reads.
pub struct Subscription {
    span: Span,
    past: PastOptions,
    /// The kinds of chains that its application decodes itself.
    kinds: ChainKinds,
    feeds: Vec<Feed>,
    /// The feed to look at first, so that every camera gets its turn.
    turn: usize,
    /// Whether the beginning and the end lay in the past when the first frame was asked for.
    passed: Option<(bool, bool)>,
    /// The last frame of each camera that the application already has.
    resumes_after: Vec<(CameraName, LastFrame)>,
    /// The subscription does not end before this time, because cameras that are not known yet may come.
    patience: Option<Timestamp>,
    /// The accounts of cameras that are no longer read, as far as they were not reported yet.
    left: Vec<(CameraName, Missing)>,
}

impl Subscription {
    /// A subscription that reads nothing yet.
    pub fn new(span: Span) -> Self {
        Self::with_tier_max(span, Tier::Memory)
    }

    /// A subscription that asks others for frames that memory does not hold ([`Subscription::poll_past`]).
    pub fn with_tier_max(span: Span, tier_max: Tier) -> Self {
        Self::with_past(span, PastOptions { tier_max, ..PastOptions::default() })
    }

    /// A subscription that asks others for frames of the past, as `past` says.
    pub fn with_past(span: Span, past: PastOptions) -> Self {
        let deliver = if past.fill { Deliver::Every } else { span.deliver };
        let span = Span { deliver, ..span };
        let resumes_after = Vec::new();
        let (feeds, left) = (Vec::new(), Vec::new());
        let kinds = ChainKinds::NONE;
        Self { span, past, kinds, feeds, turn: 0, passed: None, resumes_after, patience: None, left }
    }

    /// Makes the subscription deliver frames of these kinds of chains as they came. The application gets all frames of a chain from its
    /// beginning on, in order. Outside chains, or if it falls too far behind, it gets stills. Must be called before a camera is attached.
    #[must_use]
    pub fn taking_chains(mut self, kinds: ChainKinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// Makes the account of these cameras continue after frames that the application already has. Must be called before a camera
    /// is attached. If the subscription fills, it asks for every frame published since; otherwise it counts these frames.
    #[must_use]
    pub fn resuming_after(mut self, last: Vec<(CameraName, LastFrame)>) -> Self {
        self.resumes_after = last;
        self
    }

    /// Keeps the subscription from ending before this time, because cameras that are not known yet may come until then.
    pub fn expect_cameras_until(&mut self, patience: Timestamp) {
        self.patience = Some(patience);
    }

    /// The time before which the subscription does not end, even if it has read everything.
    pub fn patience(&self) -> Option<Timestamp> {
        self.patience
    }

    /// Starts to read a camera, from now on or as far back as was asked for. Does nothing if the camera is attached already.
    pub fn attach(&mut self, camera: CameraName, reader: LogReader) {
        let present = reader.held().end;
        self.attach_from(camera, reader, present);
    }

    /// Starts to read a camera later than the subscription first wanted it. `present` is the
    /// end of the log at that earlier moment. Records that were appended since are not missed.
    pub fn attach_from(&mut self, camera: CameraName, reader: LogReader, present: u64) {
        if self.feeds.iter().all(|feed| feed.camera != camera) {
            let after = self.resumes_after.iter().find(|(of, _)| *of == camera).map(|(_, after)| *after);
            self.feeds.push(Feed::new(camera, reader, present, (self.span, self.past, self.kinds), after));
        }
    }

    /// Stops reading a camera. Its unreported account, merged with `owed`, is reported
    /// with its next frame if it is attached again, and otherwise at the end.
    pub fn detach(&mut self, camera: &CameraName, owed: Missing) {
        let Some(place) = self.feeds.iter().position(|feed| feed.camera == *camera) else { return };
        let feed = self.feeds.remove(place);
        if let Some(last) = feed.last() {
            self.resumes_after.retain(|(of, _)| of != camera);
            self.resumes_after.push((camera.clone(), last));
        }
        let (camera, skipped, not_held) = feed.abandon(self.span);
        let mut missing = Missing { skipped, not_held };
        missing.merge(&owed.skipped, owed.not_held);
        match self.left.iter_mut().find(|(of, _)| *of == camera) {
            Some((_, left)) => left.merge(&missing.skipped, missing.not_held),
            None if missing == Missing::default() => {}
            None => self.left.push((camera, missing)),
        }
    }

    /// Continues with a camera's stills until another chain begins, because the application's decoder has lost its state.
    pub fn leave_chain(&mut self, camera: &CameraName) {
        let feed = self.feeds.iter_mut().find(|feed| feed.camera == *camera);
        if let Some(chains) = feed.and_then(|feed| feed.chains.as_mut()) {
            chains.leave();
        }
    }

    /// The one camera that has an unread frame of the present for the application, with its log, among those for which `wants` is true. `None`
    /// if no camera has one, if several have, or if a frame was chosen already. Only for cameras whose newest frame is given as a still.
    pub fn only_unread(&self, wants: impl Fn(&CameraName) -> bool) -> Option<(&CameraName, &LogReader)> {
        let mut wanted = self.feeds.iter().filter(|feed| wants(&feed.camera) && !feed.has_nothing());
        let only = wanted.next().filter(|_| wanted.next().is_none())?;
        Some((&only.camera, only.unread(self.span)?))
    }

    /// The logs of the cameras for which `wants` is true.
    pub fn logs(
        &self,
        wants: impl Fn(&CameraName) -> bool,
    ) -> impl Iterator<Item = (&CameraName, &LogReader)> {
        self.feeds.iter().filter(move |feed| wants(&feed.camera)).map(|feed| (&feed.camera, feed.log()))
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

    /// A frame of a camera's log of which the application needs a still. The answer goes to
    /// [`Subscription::handle_still`]. Call this until it returns nothing, after every [`Subscription::next`]. At most one
    /// such question per camera is open.
    pub fn poll_still(&mut self) -> Option<(CameraName, StillQuery)> {
        self.feeds.iter_mut().find_map(|feed| Some((feed.camera.clone(), feed.poll_still()?)))
    }

    /// Takes in the still of a frame, or that there is none.
    pub fn handle_still(&mut self, camera: &CameraName, frame: FrameId, answer: StillAnswer) {
        if let Some(feed) = self.feeds.iter_mut().find(|feed| feed.camera == *camera) {
            feed.handle_still(self.span, frame, answer);
        }
    }

    /// The next delivery. `now` is the edge broker's wall clock: an anchor plus the monotonic clock. It only
    /// decides whether the beginning and the end have passed.
    pub fn next(&mut self, now: Timestamp) -> Next {
        self.next_of(now, |_| true)
    }

    /// The next delivery of a camera for which `wants` is true. The subscription does not end while `wants` is false for a camera.
    pub fn next_of(&mut self, now: Timestamp, wants: impl Fn(&CameraName) -> bool) -> Next {
        let Span { begin, end, .. } = self.span;
        let passed = (begin.is_none_or(|begin| begin <= now), end.is_some_and(|end| end < now));
        let (begun, ended) = *self.passed.get_or_insert(passed);
        let feeds = self.feeds.len();
        for offset in 0..feeds {
            let index = (self.turn + offset) % feeds;
            if !wants(&self.feeds[index].camera) {
                continue;
            }
            if let Some(mut delivery) = self.feeds[index].next(self.span, begun, now) {
                for (_, left) in self.left.extract_if(.., |(camera, _)| *camera == delivery.camera) {
                    left.tell(&mut delivery.skipped, &mut delivery.not_held);
                }
                self.turn = (index + 1) % feeds;
                return Next::Frame(Box::new(delivery));
            }
        }
        let waits = self.feeds.iter().any(|feed| feed.waits_for_past() || !wants(&feed.camera));
        let over = !waits
            && end.is_some_and(|end| {
                // Every feed was just found to have nothing more.
                let all_beyond = ended || self.feeds.iter().all(|feed| feed.beyond(end));
                // A frame that was captured after the end but comes before the end has a wrong time, so others may follow.
                !self.span.is_live(now) || (!self.feeds.is_empty() && all_beyond && end <= now)
            });
        let span = self.span;
        if !over
            || self.patience.is_some_and(|patience| now < patience)
            || self.feeds.iter_mut().map(|feed| feed.ask_for_rest(span)).filter(|asked| *asked).count() > 0
        {
            return Next::Pending;
        }
        let mut rest: Vec<_> = self.feeds.drain(..).map(|feed| feed.rest(span)).collect();
        for (camera, left) in self.left.drain(..) {
            match rest.iter_mut().find(|(known, ..)| *known == camera) {
                Some((_, skipped, not_held)) => left.tell(skipped, not_held),
                None => rest.push((camera, left.skipped, left.not_held)),
            }
        }
        Next::Ended { rest }
    }
}

#[cfg(test)]
mod tests;
