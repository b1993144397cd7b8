//! Serves one subscription: gives the application its frames and reports the state of its contract, from the request to the end.
//!
//! A session holds the subscription's position in the logs ([`Subscription`]). If it reads the present at an edge, it also
//! holds the contract watch ([`ContractWatch`]). A session has no input or output of its own. A driver calls it like a broker:
//!
//! 1. The driver reports events: [`Session::handle_attach`] for each log that is to be read, [`Session::handle_view_changed`],
//!    [`Session::handle_past`] and [`Session::handle_still`] for each answer. It also passes on the application's requests and reports:
//!    [`Session::handle_update`], [`Session::handle_accuracy`], [`Session::handle_taken`] and [`Session::handle_chain_lost`].
//! 2. When a log has grown, an event was reported, or [`Session::poll_timeout`] has passed, the driver calls [`Session::poll`] until that
//!    returns `None`.
//! 3. The driver then calls [`Session::poll_past`] and [`Session::poll_still`] until they return `None`, and finds the answers. It passes the
//!    result of [`Session::poll_way`] on to the broker.
//!
//! A frame is chosen only when the application can take one, so it is the newest
//! at that moment. Changes of the contract's state are reported between frames.
//! A session that prefers fresh frames may first wait for the next one (`fresh.rs`).

mod fresh;

use std::sync::Arc;
use std::time::Duration;

use self::fresh::Fresh;
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

/// What the broker that serves a session knows about its cameras.
pub trait KnownCameras {
    /// When a frame was captured, and when it passed each stage.
    fn times(&self, camera: &CameraName, record: &Record) -> FrameTimes;
    /// The state of a camera that affects its contracts.
    fn view(&self, camera: &CameraName) -> Arc<CameraView>;
}

/// When a frame was captured and passed each stage, by the clock of the broker that serves the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameTimes {
    /// The capture time, and its largest error. `None` if the clocks have not been compared.
    pub captured: Option<(Instant, Duration)>,
    /// How long after its capture the frame passed each stage, as far as known.
    pub trace: Option<Box<Trace>>,
}

impl FrameTimes {
    /// The times of a frame, by the edge's estimate of the camera's clock.
    pub fn by_clock(clock: &CaptureClock, record: &Record) -> Self {
        let (id, captured) = (record.frame.meta.id, record.frame.meta.captured);
        let trace = record.trace.as_deref().and_then(|stamps| clock.trace(id, captured, stamps));
        Self { captured: clock.captured_at(id, captured), trace: trace.map(Box::new) }
    }
}

/// An edge broker at one moment, for drivers that run the broker and its sessions in one thread.
pub struct AtEdge<'a> {
    /// The broker.
    pub broker: &'a EdgeBroker,
    /// The current time, by the broker's clock.
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

/// The rest of one camera's account: frames skipped since its last delivery, and the time span that is not held.
pub type CameraRest = (CameraName, SkipCounts, Option<NotHeld>);

/// An output of a session for its application.
#[derive(Clone, Debug)]
pub enum SessionOutput {
    /// A frame.
    Frame {
        /// The frame, and the frames skipped before it.
        delivery: Box<Delivery>,
        /// When the frame was captured and passed each stage.
        times: FrameTimes,
        /// What the frame means for the contract, and the contract's state. `None` in a session without a contract watch.
        verdict: Option<FrameVerdict>,
    },
    /// The state of the contract on a camera has changed. If the change ends the session, no output follows.
    Contract(Change),
    /// The session is over: the requested end has passed. No output follows.
    Ended {
        /// The rest of each camera's account.
        rest: Vec<CameraRest>,
    },
}

/// A subscription's session.
pub struct Session {
    subscription: Subscription,
    /// The contract watch, if the contract is watched.
    watch: Option<ContractWatch>,
    /// Converts instants to wall-clock time, in which the session's span is given.
    clock: ClockAnchor,
    /// The camera whose past is requested, if the subscription names exactly one. It may connect later.
    named: Option<CameraName>,
    /// Whether a frame was given and its effect on the contract is still to be reported, before the next frame.
    contract_due: bool,
    /// The wait for fresh frames, if the application prefers them.
    fresh: Option<Fresh>,
    over: bool,
}

impl Session {
    /// A session whose contract is not watched, such as one on a camera's own log. `clock` relates the wall
    /// clock to the monotonic clock.
    pub fn new(clock: ClockAnchor, spec: &SubscriptionSpec) -> Self {
        let subscription = Subscription::with_past(spec.span, spec.past)
            .resuming_after(spec.after.clone())
            .taking_chains(spec.present_chains());
        Self { subscription, watch: None, clock, named: None, contract_due: false, fresh: None, over: false }
    }

    /// A session at an edge. Its contract is watched unless it reads the past, whose
    /// frames are always late. `profile` is the contract's profile, if the edge has it.
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

    /// Makes the application wait for the next frame if it comes sooner than the newest one is old. Only frames of the present that
    /// are given as stills are waited for, and only if no other camera has a frame for the application, or is due to have one first.
    #[must_use]
    pub fn preferring_fresh(self) -> Self {
        Self { fresh: Some(Fresh::default()), ..self }
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

    /// The contract, if it is watched.
    pub fn contract(&self) -> Option<&Contract> {
        self.watch.as_ref().map(ContractWatch::contract)
    }

    /// Whether [`Session::poll`] may have an output although no frame came.
    pub fn tells_between_frames(&self) -> bool {
        self.watch.as_ref().is_some_and(ContractWatch::tells)
    }

    /// How often the application was too slow for its chain and continued with stills.
    pub fn chains_lost(&self) -> u64 {
        self.subscription.chains_lost()
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// Keeps the session open until `patience`, because cameras that are unknown now may connect until then.
    pub fn expect_cameras_until(&mut self, patience: Instant) {
        self.subscription.expect_cameras_until(self.clock.wall_at(patience));
    }

    /// Starts to read a camera's log. `present` is the end of the log when the session first wanted the camera.
    pub fn handle_attach(&mut self, now: Instant, camera: CameraName, log: LogReader, present: u64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_attach(now, camera.clone());
        }
        self.subscription.attach_from(camera, log, present);
    }

    /// Stops reading a camera that the broker has forgotten. If the camera returns, its account continues after its last frame.
    pub fn handle_forgotten(&mut self, camera: &CameraName) {
        let withheld = self.watch.as_mut().map(|watch| watch.handle_forgotten(camera));
        self.subscription.detach(camera, withheld.unwrap_or_default());
    }

    /// Notes a change, other than a frame, that affects the contract.
    pub fn handle_view_changed(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.handle_view_changed();
        }
    }

    /// Replaces the application's contract. Returns whether the broker must be told. A session whose contract is not watched does not change.
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

    /// Handles the accuracy, from 0 to 1, that the application measured on a frame of a camera. Ignored for a camera that is not read.
    pub fn handle_accuracy(&mut self, now: Instant, camera: &CameraName, accuracy: f64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_accuracy(now, camera, accuracy);
        }
    }

    /// Handles the report of the client library when the application took a frame of a camera. Ignored for frames that were not delivered.
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

    /// Handles the answer to a query from [`Session::poll_past`].
    pub fn handle_past(&mut self, camera: &CameraName, answer: PastAnswer) {
        self.subscription.handle_past(camera, answer);
    }

    /// Handles the answer to a query from [`Session::poll_still`]: the still of the frame, or why there is none.
    pub fn handle_still(&mut self, camera: &CameraName, frame: FrameId, answer: StillAnswer) {
        self.subscription.handle_still(camera, frame, answer);
    }

    // ---- what is wanted -----------------------------------------------------------------------------------

    /// The next output for the application. If `ready` is false, the application cannot take a frame, and gets only changes of its contract.
    pub fn poll(&mut self, now: Instant, ready: bool, known: &impl KnownCameras) -> Option<SessionOutput> {
        self.poll_of(now, ready, known, |_| true)
    }

    /// Like [`Session::poll`], with frames only of cameras that `wants` selects.
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
            if self.waits_for_fresh(now, known, &wants) {
                return self.poll_contract(now, known);
            }
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

    /// The next query about the past. At most one query per camera is open.
    pub fn poll_past(&mut self) -> Option<(CameraName, PastQuery)> {
        self.subscription.poll_past()
    }

    /// The next query for the still of a frame in a camera's log. At most one query per camera is open.
    pub fn poll_still(&mut self) -> Option<(CameraName, StillQuery)> {
        self.subscription.poll_still()
    }

    /// The time that frames take from here to the application, if it has changed. The driver must pass
    /// it on ([`EdgeBroker::handle_way`]), because cameras work with the latency bound minus this time.
    pub fn poll_way(&mut self, now: Instant) -> Option<Duration> {
        self.watch.as_mut()?.poll_way(now)
    }

    /// When to call [`Session::poll`] again at the latest, if it had no output at `looked` and
    /// nothing happens before. Missing frames can break a contract, and the requested end can pass.
    pub fn poll_timeout(&self, looked: Instant) -> Option<Instant> {
        let watches = self.tells_between_frames();
        let ends = [
            self.subscription.span().ends_at(&self.clock),
            self.subscription.patience().map(|patience| self.clock.instant_at(patience)),
            self.fresh.as_ref().and_then(Fresh::until),
        ];
        let ends = ends.into_iter().flatten().filter(|end| *end > looked);
        ends.chain(watches.then(|| looked + LOOK_INTERVAL)).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Whether the application is to wait for a fresher frame than the one that is there.
    fn waits_for_fresh(
        &mut self,
        now: Instant,
        known: &impl KnownCameras,
        wants: impl Fn(&CameraName) -> bool,
    ) -> bool {
        let Some(fresh) = &mut self.fresh else { return false };
        let unread = self.subscription.only_unread(&wants);
        let newest = unread.and_then(|(camera, log)| Some((camera, log, log.newest()?)));
        let Some((camera, log, newest)) = newest else { return false };
        let others = self.subscription.logs(&wants).filter(|(other, _)| *other != camera).map(|(_, log)| log);
        let captured = known.times(camera, &newest).captured;
        let late_at = self.watch.as_ref().zip(captured).and_then(|(watch, (at, _))| watch.hand_over_by(at));
        fresh.look(now, (camera, newest.frame.meta.id), log, others, late_at).is_some()
    }

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
                // Later frames of the chain need this one.
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
        // A camera that never connected has no log to report what is missing.
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
