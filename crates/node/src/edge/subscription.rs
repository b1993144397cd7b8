//! One application's subscription at an edge. It reads the replica logs itself, and hears of everything else from the loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::Contract;
use mez_core::frame::SkipCounts;
use mez_core::keeping::{Change, Judged, Keeping, LOOK_INTERVAL, Verdict};
use mez_core::name::CameraName;
use mez_core::subscription::{Delivery, Next, NotHeld, NotHeldReason, Span};
use mez_core::trace::Trace;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use tokio::sync::mpsc;
use tracing::debug;

use super::request::Request;
use super::standing::{Standing, Standings};
use super::subscribers::{Attached, Mailbox, SharedCamera};
use super::{Stopped, lock};
use crate::clock::monotonic_now;
use crate::profiles::HeldProfile;
use crate::reading::Reading;

/// What an edge broker serves to an application.
#[derive(Debug)]
pub enum Served {
    /// A frame.
    Frame {
        /// The frame, and what was skipped before it.
        delivery: Box<Delivery>,
        /// When it was captured, by this machine's monotonic clock, and the largest error of that.
        captured: Option<(Instant, Duration)>,
        /// The trace of the frame: when it was at which stage after capture, as far as known.
        trace: Option<Box<Trace>>,
        /// Its verdict under the contract, and the contract's state. `None` for frames of the past.
        verdict: Option<Verdict>,
    },
    /// The state of the contract changed on a camera.
    Contract(Change),
    /// A camera that matches came or went.
    Camera {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why, if it went.
        reason: Option<String>,
    },
    /// No camera that matches is connected; frames come as soon as one is. Told once, at the start.
    Waiting {
        /// How many cameras match, connected or not.
        matching: usize,
    },
    /// The end of the subscription's span has passed.
    Ended {
        /// The skipped frames since each camera's last frame, and what is not held.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
    /// A camera was reset, which ends the subscription: later frames may have lower epochs than frames that it has delivered.
    Reset {
        /// The camera.
        camera: CameraName,
    },
    /// The broker stops.
    Stopped,
}

/// An application's subscription at the edge. Dropping it unsubscribes.
pub struct EdgeSubscription {
    pub(super) id: SubscriptionId,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) reading: Reading,
    /// The one camera that a subscription to the past names, if it names one.
    pub(super) named: Option<CameraName>,
    /// The clocks when the subscription began, by which its beginning and end are judged.
    pub(super) clock: ClockAnchor,
    pub(super) cameras: HashMap<CameraName, Arc<SharedCamera>>,
    /// The contract watch. `None` for a subscription to the past.
    pub(super) keeping: Option<Keeping>,
    pub(super) application: String,
    pub(super) standings: Arc<Mutex<Standings>>,
    pub(super) waiting: Option<usize>,
    /// How often the application was too slow for a chain.
    pub(super) chains_lost: u64,
    pub(super) requests: mpsc::Sender<Request>,
}
impl EdgeSubscription {
    /// The subscription's identity at this broker.
    pub fn id(&self) -> SubscriptionId {
        self.id
    }

    /// What comes next. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Served {
        loop {
            let looked = monotonic_now();
            if let Some(served) = self.try_next() {
                return served;
            }
            let mailbox = Arc::clone(&self.mailbox);
            let watched = self.keeping.as_ref().is_some_and(|keeping| !keeping.contract().asks_nothing());
            let end = self.reading.end_passes(&self.clock, looked);
            tokio::select! {
                // A contract can be broken by frames that do not come.
                () = tokio::time::sleep(LOOK_INTERVAL), if watched => {}
                () = mailbox.changed.notified() => {}
                () = self.reading.answered() => {}
                () = end => {}
            }
        }
    }

    /// Asks for something else from now on, with the profile that the contract names. Readings of the past are left alone.
    pub async fn update(
        &mut self,
        contract: Contract,
        profile: Option<Arc<HeldProfile>>,
    ) -> Result<(), Stopped> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        let sized = profile.as_ref().map(|held| Arc::clone(&held.profile));
        keeping.update(monotonic_now(), contract.clone(), sized);
        let request = Request::Update(self.id, Box::new(contract), profile);
        self.requests.send(request).await.map_err(|_| Stopped)
    }

    /// Takes the accuracies that the application measured on frames, from 0 to 1. Cameras that it does not read are ignored.
    pub fn handle_accuracies(&mut self, measured: impl IntoIterator<Item = (CameraName, f64)>) {
        let Some(keeping) = &mut self.keeping else { return };
        let now = monotonic_now();
        measured.into_iter().for_each(|(camera, accuracy)| keeping.handle_accuracy(now, &camera, accuracy));
    }

    /// Restarts a camera's chain that the application can no longer decode. The application gets stills until then. The camera is asked at
    /// most once in two seconds, for all applications together.
    pub fn restart_chain(&mut self, camera: CameraName) {
        self.reading.leave_chain(&camera);
        // Where the broker has too much to do, the chain ends by itself after a while.
        let _ = self.requests.try_send(Request::ChainLost(camera));
    }

    /// What is there now, if anything.
    pub fn try_next(&mut self) -> Option<Served> {
        let now = monotonic_now();
        {
            let mut letters = lock(&self.mailbox.letters);
            for Attached { camera, log, present, shared } in letters.attached.drain(..) {
                self.cameras.insert(camera.clone(), shared);
                if let Some(keeping) = &mut self.keeping {
                    keeping.attach(now, camera.clone());
                }
                self.reading.attach_from(camera, log, present);
            }
            for (camera, log, kinds) in letters.chains.drain(..) {
                self.reading.take_chains(&camera, log, kinds);
            }
            if std::mem::take(&mut letters.view_changed)
                && let Some(keeping) = &mut self.keeping
            {
                keeping.look_again();
            }
            if let Some((camera, up, reason)) = letters.changes.pop_front() {
                return Some(Served::Camera { camera, up, reason });
            }
            if let Some(camera) = letters.reset.take() {
                return Some(Served::Reset { camera });
            }
            if letters.stopped {
                return Some(Served::Stopped);
            }
        }
        if self.waiting.take().is_some() {
            return Some(Served::Waiting { matching: self.reading.cameras() });
        }
        if let Some(change) = self.contract_change(now) {
            return Some(Served::Contract(change));
        }
        loop {
            let next = self.reading.next(self.clock.wall_at(now));
            let lost = std::mem::replace(&mut self.chains_lost, self.reading.chains_lost());
            if self.chains_lost > lost {
                debug!(subscription = self.id.0, application = self.application, "too slow for a chain");
            }
            match next {
                Next::Frame(delivery) => {
                    if let Some(served) = self.judge(now, delivery) {
                        return Some(served);
                    }
                }
                Next::Ended { mut rest } => {
                    for (camera, skipped, not_held) in &mut rest {
                        if let Some(keeping) = &mut self.keeping {
                            keeping.rest(camera).tell(skipped, not_held);
                        }
                    }
                    // One that never came has no log that could tell.
                    if let (true, Some(camera)) = (rest.is_empty(), self.named.take()) {
                        let Span { begin, end, .. } = self.reading.span();
                        let (begin, end) = (begin.unwrap_or(Timestamp::MIN), end.unwrap_or(Timestamp::MAX));
                        let reason = NotHeldReason::CameraAbsent;
                        rest.push((camera, SkipCounts::default(), Some(NotHeld { begin, end, reason })));
                    }
                    return Some(Served::Ended { rest });
                }
                Next::Pending => {
                    self.keeping.as_mut()?.handle_waiting(now);
                    return self.contract_change(now).map(Served::Contract);
                }
            }
        }
    }

    /// What the contract makes of a frame; nothing if it does not want it.
    fn judge(&mut self, now: Instant, delivery: Box<Delivery>) -> Option<Served> {
        let meta = &delivery.record.frame.meta;
        let shared = self.cameras.get(&delivery.camera);
        let clock = shared.and_then(|shared| *lock(&shared.clock));
        let captured = clock.and_then(|clock| clock.captured_at(meta.id, meta.captured));
        let trace = clock
            .zip(delivery.record.trace.as_deref())
            .and_then(|(clock, stamps)| clock.trace(meta.id, meta.captured, stamps))
            .map(Box::new);
        let Some(keeping) = &mut self.keeping else {
            return Some(Served::Frame { delivery, captured, trace, verdict: None });
        };
        let chained = meta.encoding.is_chained().then(|| delivery.camera.clone());
        let view = shared.map(|shared| Arc::clone(&lock(&shared.view))).unwrap_or_default();
        match keeping.judge(now, delivery, captured.map(|(at, _)| at), &view) {
            Judged::Deliver(delivery, verdict) => {
                Some(Served::Frame { delivery, captured, trace, verdict: Some(verdict) })
            }
            Judged::Withheld => {
                // The rest of its chain needs it.
                if let Some(camera) = chained {
                    self.reading.leave_chain(&camera);
                }
                None
            }
        }
    }

    fn contract_change(&mut self, now: Instant) -> Option<Change> {
        let cameras = &self.cameras;
        let change = self.keeping.as_mut()?.poll(now, |camera| {
            cameras.get(camera).map(|shared| Arc::clone(&lock(&shared.view))).unwrap_or_default()
        })?;
        let Change { camera, state, reason, .. } = change.clone();
        let standing = Standing { application: self.application.clone(), state, reason };
        lock(&self.standings).entry(camera).or_default().insert(self.id, standing);
        Some(change)
    }
}

impl Drop for EdgeSubscription {
    fn drop(&mut self) {
        let (id, requests) = (self.id, self.requests.clone());
        {
            let mut standings = lock(&self.standings);
            for camera in self.cameras.keys() {
                if let Some(known) = standings.get_mut(camera) {
                    known.remove(&id);
                }
            }
            standings.retain(|_, known| !known.is_empty());
        }
        if let Err(mpsc::error::TrySendError::Full(request)) = requests.try_send(Request::Unsubscribe(id))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { requests.send(request).await });
        }
    }
}
