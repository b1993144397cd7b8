//! Gives one application its frames and tells it the state of its contract, from its request to the end of
//! its subscription.
//!
//! A session holds the application's place in the logs ([`Subscription`]). If it reads the present at an
//! edge, it also holds the watch of the contract ([`ContractWatch`]). It has no input or output of its own.
//! The part that serves the application drives it like a broker:
//!
//! 1. It reports what happens: [`Session::handle_attach`] for each log that is to be read,
//!    [`Session::handle_view_changed`], [`Session::handle_past`] and [`Session::handle_still`] for each answer. It also
//!    passes on what the application asks and says: [`Session::handle_update`],
//!    [`Session::handle_accuracy`], [`Session::handle_taken`] and [`Session::handle_chain_lost`].
//! 2. When a log has grown, something was reported, or [`Session::poll_timeout`] has passed, it calls
//!    [`Session::poll`] until that returns nothing.
//! 3. It then calls [`Session::poll_past`] and [`Session::poll_still`] until they return nothing, and finds the answers.
//!    It passes what [`Session::poll_way`] returns on to the broker.
//!
//! A frame is chosen only when the application can take one, so it is the newest of that moment. Changes of
//! the contract's state are told between frames.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::edge::{CameraView, CaptureClock, EdgeBroker, SubscriptionId};
use crate::contract::Contract;
use crate::contract::monitor::TakenReport;
use crate::contract::watch::{Change, ContractWatch, FrameVerdict, Judged, LOOK_INTERVAL};
use crate::frame::{FrameId, SkipCounts};
use crate::history::{PastAnswer, PastQuery};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::profile::SizedProfile;
use crate::stills::{StillAnswer, StillQuery};
use crate::subscription::{Delivery, Next, NotHeld, NotHeldReason, Span, Subscription, SubscriptionSpec};
use crate::trace::Trace;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// What is known about cameras at the broker that serves a session.
pub trait KnownCameras {
    /// When a frame was captured, and when it passed each stage.
    fn times(&self, camera: &CameraName, record: &Record) -> FrameTimes;
    /// What affects the contracts on a camera.
    fn view(&self, camera: &CameraName) -> Arc<CameraView>;
}

/// When a frame was captured and passed each stage, by the clock of the broker that serves the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameTimes {
    /// The capture time, and its largest error. `None` if the clocks have not been compared.
    pub captured: Option<(Instant, Duration)>,
    /// How long after its capture the frame passed each stage, as far as that is known.
    pub trace: Option<Box<Trace>>,
}

impl FrameTimes {
    /// The times of a frame, by what an edge knows of its camera's clock.
    pub fn by_clock(clock: &CaptureClock, record: &Record) -> Self {
        let (id, captured) = (record.frame.meta.id, record.frame.meta.captured);
        let trace = record.trace.as_deref().and_then(|stamps| clock.trace(id, captured, stamps));
        Self { captured: clock.captured_at(id, captured), trace: trace.map(Box::new) }
    }
}

/// What an edge broker knows at a moment. It serves drivers that run the broker and its sessions in one
/// thread.
pub struct AtEdge<'a> {
    /// The broker.
    pub broker: &'a EdgeBroker,
    /// The present, by the broker's clock.
    pub now: Instant,
}

impl KnownCameras for AtEdge<'_> {
    fn times(&self, camera: &CameraName, record: &Record) -> FrameTimes {
        let clock = self.broker.capture_clock(self.now, camera);
        clock.map(|clock| FrameTimes::by_clock(&clock, record)).unwrap_or_default()
    }

    fn view(&self, camera: &CameraName) -> Arc<CameraView> {
        Arc::new(self.broker.view(self.now, camera))
    }
}

/// The rest of one camera's account: frames skipped since its last delivery, and the stretch that is not
/// held.
pub type CameraRest = (CameraName, SkipCounts, Option<NotHeld>);

/// What a session has for its application.
#[derive(Clone, Debug)]
pub enum SessionOutput {
    /// A frame.
    Frame {
        /// The frame, and what was skipped before it.
        delivery: Box<Delivery>,
        /// When it was captured and passed each stage.
        times: FrameTimes,
        /// What it means for the contract, and the state of the contract. `None` in a session without a
        /// watch.
        verdict: Option<FrameVerdict>,
    },
    /// The state of the contract on a camera has changed. If that ends the session, nothing follows.
    Contract(Change),
    /// Nothing more comes: the requested end has passed.
    Ended {
        /// The rest of each camera's account.
        rest: Vec<CameraRest>,
    },
}

/// A subscription's session.
pub struct Session {
    subscription: Subscription,
    /// The watch of the contract, if it is watched.
    watch: Option<ContractWatch>,
    /// Converts the present to wall-clock time, by which the session begins and ends.
    clock: ClockAnchor,
    /// The one camera whose past is requested, if exactly one is named. It may come later.
    named: Option<CameraName>,
    /// Whether a frame was given and its meaning for the contract is still to be told. It is told before the
    /// next frame.
    contract_due: bool,
    over: bool,
}

impl Session {
    /// A session whose contract is not watched, such as one on a camera's own log. `clock` relates the wall
    /// clock to the monotonic clock.
    pub fn new(clock: ClockAnchor, spec: &SubscriptionSpec) -> Self {
        let subscription = Subscription::with_past(spec.span, spec.past)
            .resuming_after(spec.after.clone())
            .taking_chains(spec.present_chains());
        Self { subscription, watch: None, clock, named: None, contract_due: false, over: false }
    }

    /// A session at an edge. Its contract is watched unless it reads the past, whose frames are always late.
    /// `profile` is the one that the contract names, if the edge has it.
    pub fn at_edge(
        clock: ClockAnchor,
        spec: &SubscriptionSpec,
        id: SubscriptionId,
        profile: Option<Arc<SizedProfile>>,
    ) -> Self {
        let watch = spec.is_of_present().then(|| ContractWatch::new(id, spec.contract.clone(), profile));
        let watch = if spec.wants_originals() { watch.map(ContractWatch::of_originals) } else { watch };
        let named = spec.cameras.as_camera().filter(|_| spec.span.begin.is_some());
        Self { watch, named, ..Self::new(clock, spec) }
    }

    // ---- what is known ------------------------------------------------------------------------------------

    /// The span of time that is read, and which of its frames.
    pub fn span(&self) -> Span {
        self.subscription.span()
    }

    /// The cameras that are read.
    pub fn cameras(&self) -> impl Iterator<Item = &CameraName> {
        self.subscription.cameras()
    }

    /// The contract that is watched.
    pub fn contract(&self) -> Option<&Contract> {
        self.watch.as_ref().map(ContractWatch::contract)
    }

    /// Whether [`Session::poll`] may have something when no frame comes, after some time.
    pub fn tells_between_frames(&self) -> bool {
        self.watch.as_ref().is_some_and(ContractWatch::tells)
    }

    /// How often the application was too slow for its chain and continued with stills.
    pub fn chains_lost(&self) -> u64 {
        self.subscription.chains_lost()
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// Does not end before `patience`, because cameras that nobody knows yet may come until then.
    pub fn expect_cameras_until(&mut self, patience: Instant) {
        self.subscription.expect_cameras_until(self.clock.wall_at(patience));
    }

    /// Starts to read a camera's log. `present` is the end of the log at the moment when the session first
    /// wanted the camera.
    pub fn handle_attach(&mut self, now: Instant, camera: CameraName, log: LogReader, present: u64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_attach(now, camera.clone());
        }
        self.subscription.attach_from(camera, log, present);
    }

    /// Stops reading a camera that the broker has forgotten. If the camera comes again, its account goes on
    /// behind its last frame.
    pub fn handle_forgotten(&mut self, camera: &CameraName) {
        let withheld = self.watch.as_mut().map(|watch| watch.handle_forgotten(camera));
        self.subscription.detach(camera, withheld.unwrap_or_default());
    }

    /// Notes that something besides frames has changed that affects the contract.
    pub fn handle_view_changed(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.handle_view_changed();
        }
    }

    /// Replaces the application's contract. Returns whether the broker must be told: a session whose contract
    /// is not watched does not change.
    pub fn handle_update(
        &mut self,
        now: Instant,
        contract: Contract,
        profile: Option<Arc<SizedProfile>>,
    ) -> bool {
        if let Some(watch) = &mut self.watch {
            watch.handle_update(now, contract, profile);
        }
        self.watch.is_some()
    }

    /// Takes in the accuracy, from 0 to 1, that the application measured on one of a camera's frames. Ignored
    /// for a camera that is not read.
    pub fn handle_accuracy(&mut self, now: Instant, camera: &CameraName, accuracy: f64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_accuracy(now, camera, accuracy);
        }
    }

    /// Takes in when the application had one of a camera's frames, by its client library. Ignored for frames
    /// that it was not given.
    pub fn handle_taken(&mut self, now: Instant, camera: &CameraName, report: &TakenReport) {
        if let Some(watch) = &mut self.watch {
            watch.handle_taken(now, camera, report);
        }
    }

    /// Gives stills until another chain begins, because the application lost the chain that it was decoding.
    /// Returns whether the broker must ask the camera for a keyframe: not for a camera that is not read.
    pub fn handle_chain_lost(&mut self, camera: &CameraName) -> bool {
        self.subscription.leave_chain(camera);
        self.cameras().any(|read| read == camera)
    }

    /// Takes in the answer to a question from [`Session::poll_past`].
    pub fn handle_past(&mut self, camera: &CameraName, answer: PastAnswer) {
        self.subscription.handle_past(camera, answer);
    }

    /// Takes in the still of a frame from [`Session::poll_still`], or that there is none.
    pub fn handle_still(&mut self, camera: &CameraName, frame: FrameId, answer: StillAnswer) {
        self.subscription.handle_still(camera, frame, answer);
    }

    // ---- what is wanted -----------------------------------------------------------------------------------

    /// What there is for the application now. With `ready` unset it cannot take a frame, and hears only about
    /// its contract.
    pub fn poll(&mut self, now: Instant, ready: bool, known: &impl KnownCameras) -> Option<SessionOutput> {
        self.poll_of(now, ready, known, |_| true)
    }

    /// The same, with frames of those cameras only that are wanted now.
    pub fn poll_of(
        &mut self,
        now: Instant,
        ready: bool,
        known: &impl KnownCameras,
        wants: impl Fn(&CameraName) -> bool,
    ) -> Option<SessionOutput> {
        if self.over {
            return None;
        }
        if !ready || self.contract_due {
            if let Some(change) = self.poll_contract(now, known) {
                return Some(change);
            }
            self.contract_due = false;
        }
        if !ready {
            return None;
        }
        loop {
            match self.subscription.next_of(self.clock.wall_at(now), &wants) {
                Next::Frame(delivery) => {
                    if let Some(frame) = self.judge(now, delivery, known) {
                        self.contract_due = true;
                        return Some(frame);
                    }
                }
                Next::Ended { rest } => {
                    self.over = true;
                    return Some(SessionOutput::Ended { rest: self.rest(rest) });
                }
                Next::Pending => {
                    self.watch.as_mut()?.handle_waiting(now);
                    return self.poll_contract(now, known);
                }
            }
        }
    }

    /// A question about the past that was not asked yet. At most one per camera is open.
    pub fn poll_past(&mut self) -> Option<(CameraName, PastQuery)> {
        self.subscription.poll_past()
    }

    /// A frame of a camera's log of which the application needs a still. At most one per camera is open.
    pub fn poll_still(&mut self) -> Option<(CameraName, StillQuery)> {
        self.subscription.poll_still()
    }

    /// How long frames take from here to the application, if that has changed: the broker must be told
    /// ([`EdgeBroker::handle_way`]), because cameras work with what is left of the latency bound.
    pub fn poll_way(&mut self, now: Instant) -> Option<Duration> {
        self.watch.as_mut()?.poll_way(now)
    }

    /// When to call [`Session::poll`] again at the latest, if it had nothing at `looked` and nothing happens
    /// before. Frames that do not come can break a contract, and the requested end can pass.
    pub fn poll_timeout(&self, looked: Instant) -> Option<Instant> {
        let watches = self.tells_between_frames();
        let ends = [
            self.subscription.span().ends_at(&self.clock),
            self.subscription.patience().map(|patience| self.clock.instant_at(patience)),
        ];
        let ends = ends.into_iter().flatten().filter(|end| *end > looked);
        ends.chain(watches.then(|| looked + LOOK_INTERVAL)).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Judges a frame by the contract. `None` if the contract does not want it.
    fn judge(
        &mut self,
        now: Instant,
        delivery: Box<Delivery>,
        known: &impl KnownCameras,
    ) -> Option<SessionOutput> {
        let times = known.times(&delivery.camera, &delivery.record);
        let Some(watch) = &mut self.watch else {
            return Some(SessionOutput::Frame { delivery, times, verdict: None });
        };
        let chained = delivery.record.frame.meta.encoding.is_chained().then(|| delivery.camera.clone());
        let view = known.view(&delivery.camera);
        match watch.judge(now, delivery, times.captured.map(|(at, _)| at), &view) {
            Judged::Deliver(delivery, verdict) => {
                Some(SessionOutput::Frame { delivery, times, verdict: Some(verdict) })
            }
            Judged::Withheld => {
                // The rest of its chain needs it.
                if let Some(camera) = chained {
                    self.subscription.leave_chain(&camera);
                }
                None
            }
        }
    }

    fn poll_contract(&mut self, now: Instant, known: &impl KnownCameras) -> Option<SessionOutput> {
        let change = self.watch.as_mut()?.poll(now, |camera| known.view(camera))?;
        self.over = change.ends;
        Some(SessionOutput::Contract(change))
    }

    /// The rest of each camera's account, from the logs and from the frames that the contract withheld.
    fn rest(&mut self, mut rest: Vec<CameraRest>) -> Vec<CameraRest> {
        for (camera, skipped, not_held) in &mut rest {
            if let Some(watch) = &mut self.watch {
                watch.rest(camera).tell(skipped, not_held);
            }
        }
        // A camera that never came has no log that could tell.
        if let (true, Some(camera)) = (rest.is_empty(), self.named.take()) {
            let Span { begin, end, .. } = self.span();
            let (begin, end) = (begin.unwrap_or(Timestamp::MIN), end.unwrap_or(Timestamp::MAX));
            let absent = NotHeld { begin, end, reason: NotHeldReason::CameraAbsent };
            rest.push((camera, SkipCounts::default(), Some(absent)));
        }
        rest
    }
}

#[cfg(test)]
mod tests;
