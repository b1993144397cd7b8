//! A subscription's session: what one application is given and told, from its request to its end.
//!
//! A session holds the application's place in the logs ([`Subscription`]) and, where it reads the present at an edge, the watch of its
//! contract ([`ContractWatch`]). Whoever serves the application drives it, without input or output, like a broker:
//!
//! 1. It tells the session what happens: [`Session::handle_attach`] and [`Session::handle_chains`] for each log that is to be read,
//!    [`Session::handle_view_changed`], [`Session::handle_past`] for each answer; and what the application asks meanwhile:
//!    [`Session::handle_update`], [`Session::handle_accuracy`], [`Session::handle_chain_lost`].
//! 2. When a log has grown, something was told, or [`Session::poll_timeout`] has passed, it asks [`Session::poll`] until there is nothing.
//! 3. After that it asks [`Session::poll_past`] until there is nothing, and finds the answers.
//!
//! A frame is chosen when the application can take one, so that it is the newest of that moment. Between two frames, changes of the
//! contract's state are told.

use std::sync::Arc;
use std::time::Duration;

use crate::broker::edge::{CameraView, CaptureClock, EdgeBroker, SubscriptionId};
use crate::contract::Contract;
use crate::contract::watch::{Change, ContractWatch, FrameVerdict, Judged, LOOK_INTERVAL};
use crate::frame::{ChainKinds, SkipCounts};
use crate::history::{PastAnswer, PastQuery};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::profile::SizedProfile;
use crate::subscription::{Delivery, Next, NotHeld, NotHeldReason, Span, Subscription, SubscriptionSpec};
use crate::trace::Trace;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// What is known of cameras where a session is served.
pub trait KnownCameras {
    /// When a frame was captured, and where it was since.
    fn times(&self, camera: &CameraName, record: &Record) -> FrameTimes;
    /// What bears on contracts.
    fn view(&self, camera: &CameraName) -> Arc<CameraView>;
}

/// When a frame was where, by the clock of whoever serves the session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameTimes {
    /// When it was captured, and the most by which that is wrong; nothing where the clocks have not been compared.
    pub captured: Option<(Instant, Duration)>,
    /// How long after that it was at each stage of its way, as far as that is known.
    pub trace: Option<Box<Trace>>,
}

impl FrameTimes {
    /// By what an edge knows of the clock of the frame's camera.
    pub fn by_clock(clock: &CaptureClock, record: &Record) -> Self {
        let (id, captured) = (record.frame.meta.id, record.frame.meta.captured);
        let trace = record.trace.as_deref().and_then(|stamps| clock.trace(id, captured, stamps));
        Self { captured: clock.captured_at(id, captured), trace: trace.map(Box::new) }
    }
}

/// What an edge broker knows at a moment, for whoever drives it and its sessions in one thread.
pub struct AtEdge<'a> {
    /// The broker.
    pub broker: &'a EdgeBroker,
    /// The moment, by its clock.
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

/// What is left to account for of one camera: what was skipped since its last delivery, and what is not held.
pub type CameraRest = (CameraName, SkipCounts, Option<NotHeld>);

/// What a session has for its application.
#[derive(Clone, Debug)]
pub enum SessionOutput {
    /// A frame.
    Frame {
        /// The frame, and what was skipped before it.
        delivery: Box<Delivery>,
        /// When it was where.
        times: FrameTimes,
        /// What it is for the contract, and how that stands; nothing in a session without one.
        verdict: Option<FrameVerdict>,
    },
    /// The contract stands otherwise than before on a camera. If that ends the session, there is nothing after it.
    Contract(Change),
    /// There is nothing more: the end that was asked for has passed.
    Ended {
        /// What is left to account for.
        rest: Vec<CameraRest>,
    },
}

/// A subscription's session.
pub struct Session {
    subscription: Subscription,
    /// Whether what it asks is kept.
    watch: Option<ContractWatch>,
    /// What time it is for its beginning and end.
    clock: ClockAnchor,
    /// The one camera that it asks for the past of, if it is one and may come later.
    named: Option<CameraName>,
    /// A frame was given: what it means for the contract is told before the next.
    contract_due: bool,
    over: bool,
}

impl Session {
    /// A session of which nothing is watched, as of a camera's own log. `clock` is the wall clock and the monotonic clock of this moment.
    pub fn new(clock: ClockAnchor, spec: &SubscriptionSpec) -> Self {
        let subscription = Subscription::wishing(spec.span, spec.past).resuming_after(spec.after.clone());
        Self { subscription, watch: None, clock, named: None, contract_due: false, over: false }
    }

    /// A session at an edge. Its contract is watched, unless it reads the past, which is late by its nature. `profile` is the one that the
    /// contract names, if it is there.
    pub fn at_edge(
        clock: ClockAnchor,
        spec: &SubscriptionSpec,
        id: SubscriptionId,
        profile: Option<Arc<SizedProfile>>,
    ) -> Self {
        let watch = spec.is_of_present().then(|| ContractWatch::new(id, spec.contract.clone(), profile));
        let named = spec.cameras.as_camera().filter(|_| spec.span.begin.is_some());
        Self { watch, named, ..Self::new(clock, spec) }
    }

    // ---- what is known ------------------------------------------------------------------------------------

    /// Which part of time is read, and which frames of it.
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

    /// How often the application was too slow for a chain that it was in, and went on with stills.
    pub fn chains_lost(&self) -> u64 {
        self.subscription.chains_lost()
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// Cameras may come that nobody knows yet: it does not end before this time.
    pub fn expect_cameras_until(&mut self, patience: Instant) {
        self.subscription.expect_cameras_until(self.clock.wall_at(patience));
    }

    /// A camera's log is to be read. `present` is the end of the log at the moment when the session began to want the camera.
    pub fn handle_attach(&mut self, now: Instant, camera: CameraName, log: LogReader, present: u64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_attach(now, camera.clone());
        }
        self.subscription.attach_from(camera, log, present);
    }

    /// Frames of a camera that is read are to be given as they came, where they are of these kinds.
    pub fn handle_chains(&mut self, camera: &CameraName, log: LogReader, kinds: ChainKinds) {
        self.subscription.take_chains(camera, log, kinds);
    }

    /// Something besides frames has changed that bears on the contract.
    pub fn handle_view_changed(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.handle_view_changed();
        }
    }

    /// The application demands something else from now on. Whether the broker is to be told: a session whose contract is not watched stays
    /// as it is.
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

    /// The application says how accurate its own result on one of a camera's frames was, from 0 to 1. A camera that is not read is passed
    /// over.
    pub fn handle_accuracy(&mut self, now: Instant, camera: &CameraName, accuracy: f64) {
        if let Some(watch) = &mut self.watch {
            watch.handle_accuracy(now, camera, accuracy);
        }
    }

    /// The application cannot decode what it gets of a camera's chain any further: it gets stills until another chain begins. Whether the
    /// broker is to ask the camera for one: a camera that is not read is passed over.
    pub fn handle_chain_lost(&mut self, camera: &CameraName) -> bool {
        self.subscription.leave_chain(camera);
        self.cameras().any(|read| read == camera)
    }

    /// The answer to a question of [`Session::poll_past`].
    pub fn handle_past(&mut self, camera: &CameraName, answer: PastAnswer) {
        self.subscription.handle_past(camera, answer);
    }

    // ---- what is wanted -----------------------------------------------------------------------------------

    /// What there is for the application at this moment. `ready`: it can take a frame; otherwise it is told of its contract alone.
    pub fn poll(&mut self, now: Instant, ready: bool, known: &impl KnownCameras) -> Option<SessionOutput> {
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
            match self.subscription.next(self.clock.wall_at(now)) {
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

    /// A question for the past that has not been put yet. One for each camera at most is open.
    pub fn poll_past(&mut self) -> Option<(CameraName, PastQuery)> {
        self.subscription.poll_past()
    }

    /// When to look again after [`Session::poll`] had nothing at `looked`, if nothing happens before: a contract can be broken by frames that
    /// do not come, and the end of what was asked for passes by itself.
    pub fn poll_timeout(&self, looked: Instant) -> Option<Instant> {
        let watches = self.contract().is_some_and(|contract| !contract.asks_nothing());
        let ends = [
            self.subscription.span().ends_at(&self.clock),
            self.subscription.patience().map(|patience| self.clock.instant_at(patience)),
        ];
        let ends = ends.into_iter().flatten().filter(|end| *end > looked);
        ends.chain(watches.then(|| looked + LOOK_INTERVAL)).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// What the contract makes of a frame; nothing if it does not want it.
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

    /// What is left to tell at the end: of each camera what the logs tell, and what the contract did not want.
    fn rest(&mut self, mut rest: Vec<CameraRest>) -> Vec<CameraRest> {
        for (camera, skipped, not_held) in &mut rest {
            if let Some(watch) = &mut self.watch {
                watch.rest(camera).tell(skipped, not_held);
            }
        }
        // One that never came has no log that could tell.
        if let (true, Some(camera)) = (rest.is_empty(), self.named.take()) {
            let Span { begin, end, .. } = self.span();
            let (begin, end) = (begin.unwrap_or(Timestamp::MIN), end.unwrap_or(Timestamp::MAX));
            let absent = NotHeld { begin, end, reason: NotHeldReason::CameraAbsent };
            rest.push((camera, SkipCounts::default(), Some(absent)));
        }
        rest
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
