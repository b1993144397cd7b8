//! A subscription as a stream of events, whichever broker and whichever way.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::Contract;
use mez_core::frame::{ClockSource, Encoding, Frame, SkipCounts, SkipReason};
use mez_core::keeping::{Change, Verdict};
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, Delivery, Missing, Next, NotHeld};
use mez_core::trace::Trace;
use mez_core::units::{ClockAnchor, Instant};
use mez_media::stream::{TranscodeError, jpeg_of};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tonic::Code;
use tracing::warn;

use super::lent::{Lending, Payload, Share};
use super::pb::subscribe_event::Event;
use super::principal::Principal;
use super::request::Subscribe;
use super::{ApiError, ApiLimits, Limit, convert, pb};
use crate::clock::{anchor, monotonic_now};
use crate::edge::{EdgeSubscription, Served, Stopped};
use crate::profiles::HeldProfile;
use crate::reading::{PastSources, Reading};

/// How long a frame may take to be made into a JPEG. A 4K frame takes a tenth of a second.
const CONVERTING_TIME_MAX: Duration = Duration::from_secs(1);

/// What is assumed of the size of a frame that is in no log before it is there.
const OWN_BYTES_ASSUMED: usize = 1 << 20;

/// The open subscriptions of a broker.
pub struct Subscriptions {
    open: Mutex<Open>,
    limits: ApiLimits,
    lending: Arc<Lending>,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    by_id: HashMap<u64, (Principal, Arc<Calls>)>,
}

/// What others ask of a subscription from outside its stream.
#[derive(Debug, Default)]
struct Calls {
    unsubscribed: Notify,
    /// Something else is asked, or said.
    updated: Notify,
    /// What its contract is to be; of several changes the last.
    update: Mutex<Option<Update>>,
    /// How accurate the application's results were that the subscription has not taken note of.
    measured: Mutex<VecDeque<(CameraName, f64)>>,
    /// Cameras whose chain the application cannot decode any further.
    undecodable: Mutex<Vec<CameraName>>,
}

/// Such cameras that wait; of more, the last are passed over, and asked for again.
const UNDECODABLE_MAX: usize = 256;

/// Accuracies that wait; of more, the oldest are forgotten.
const MEASURED_MAX: usize = 256;

/// A contract, with the profile that it names.
pub(super) type Update = (Contract, Option<Arc<HeldProfile>>);

impl Subscriptions {
    /// None yet, and never more than `limits` allow.
    pub fn new(limits: ApiLimits) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), limits, lending: Lending::new(limits.unread) })
    }

    /// A place for one more.
    pub fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Place, ApiError> {
        let mut open = self.lock();
        let ApiLimits { subscriptions_max, subscriptions_per_principal_max, .. } = self.limits;
        let own = open.by_id.values().filter(|(owner, _)| owner == principal).count();
        if own >= subscriptions_per_principal_max {
            return Err(ApiError::exhausted(
                "TOO_MANY_SUBSCRIPTIONS",
                Limit::of_principal(
                    "subscriptions_per_principal_max",
                    subscriptions_per_principal_max,
                    principal,
                ),
                format!(
                    "{principal} has {own} subscriptions, as many as one principal may have at a broker; end some, or let \
                     one subscription follow several cameras with a pattern such as dock/*"
                ),
            ));
        }
        if open.by_id.len() >= subscriptions_max {
            return Err(ApiError::exhausted(
                "TOO_MANY_SUBSCRIPTIONS",
                Limit::of_broker("subscriptions_max", subscriptions_max),
                format!("this broker has {} subscriptions, as many as it may; end some", open.by_id.len()),
            ));
        }
        open.last_id += 1;
        let (id, calls) = (open.last_id, Arc::<Calls>::default());
        open.by_id.insert(id, (principal.clone(), Arc::clone(&calls)));
        Ok(Place { id, calls, principal: principal.clone(), all: Arc::clone(self) })
    }

    /// Ends a subscription of `principal`.
    pub fn unsubscribe(&self, principal: &Principal, id: u64) -> Result<(), ApiError> {
        self.calls_of(principal, id)?.unsubscribed.notify_one();
        Ok(())
    }

    /// Changes the contract of a subscription of `principal`.
    pub(super) fn update(&self, principal: &Principal, id: u64, update: Update) -> Result<(), ApiError> {
        let calls = self.calls_of(principal, id)?;
        *calls.update.lock().unwrap_or_else(PoisonError::into_inner) = Some(update);
        calls.updated.notify_one();
        Ok(())
    }

    /// Takes in how accurate a result of a subscription of `principal` was.
    pub(super) fn measured(
        &self,
        principal: &Principal,
        id: u64,
        measured: (CameraName, f64),
    ) -> Result<(), ApiError> {
        let calls = self.calls_of(principal, id)?;
        let mut waiting = calls.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == MEASURED_MAX {
            waiting.pop_front();
        }
        waiting.push_back(measured);
        calls.updated.notify_one();
        Ok(())
    }

    /// Ends the chain of a camera for a subscription of `principal`.
    pub(super) fn restart_chain(
        &self,
        principal: &Principal,
        id: u64,
        camera: CameraName,
    ) -> Result<(), ApiError> {
        let calls = self.calls_of(principal, id)?;
        let mut waiting = calls.undecodable.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < UNDECODABLE_MAX && !waiting.contains(&camera) {
            waiting.push(camera);
        }
        calls.updated.notify_one();
        Ok(())
    }

    /// A subscription of `principal`. Another's is not found: who has which is nobody else's business.
    fn calls_of(&self, principal: &Principal, id: u64) -> Result<Arc<Calls>, ApiError> {
        let open = self.lock();
        let entry = open.by_id.get(&id).filter(|(owner, _)| owner == principal);
        entry.map(|(_, calls)| Arc::clone(calls)).ok_or_else(|| {
            ApiError::new(
                Code::NotFound,
                "UNKNOWN_SUBSCRIPTION",
                format!("{principal} has no subscription {id}; it may have ended already"),
            )
            .at("subscription_id")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Every statement leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription's entry among the open ones. Leaves with it.
pub struct Place {
    id: u64,
    calls: Arc<Calls>,
    principal: Principal,
    all: Arc<Subscriptions>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} of {})", self.id, self.principal)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().by_id.remove(&self.id);
    }
}

/// Where a feed's frames come from.
pub(super) enum Source {
    /// The replica logs of an edge broker.
    Edge(Box<EdgeSubscription>),
    /// The log of the camera broker in this process.
    Camera(Box<CameraLog>),
}

/// An event for an application.
pub struct Told {
    /// The event; a frame without its payload.
    pub event: Event,
    /// A frame's payload.
    pub(crate) payload: Option<Payload>,
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        Self { event, payload: None }
    }
}

/// The events of one subscription. Dropping it unsubscribes.
pub struct Feed {
    source: Source,
    place: Place,
    accepts: Vec<Encoding>,
    stopping: watch::Receiver<bool>,
    /// The first event.
    started: Option<pb::Started>,
    /// A frame that is being made into a JPEG.
    converting: Option<Converting>,
    /// Frames that could not be, with what was skipped before them: of each camera, until its next frame.
    owed: HashMap<CameraName, Missing>,
    /// What comes may be in no log, as with the past, and with what is fetched to fill: there has to be room for it.
    needs_room: bool,
    room: Option<Share>,
    /// What comes next was made into a JPEG here.
    made: bool,
    over: bool,
}

/// A frame in an encoding that the application does not take, on its way to one that it does.
struct Converting {
    task: JoinHandle<Result<Bytes, TranscodeError>>,
    delivery: Box<Delivery>,
    captured: Option<(Instant, Duration)>,
    trace: Option<Box<Trace>>,
    verdict: Option<Verdict>,
    room: Share,
}

impl Feed {
    pub(super) fn new(
        source: Source,
        place: Place,
        subscribe: &Subscribe,
        cameras: Vec<String>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let deliver = match subscribe.span.deliver {
            Deliver::Newest => pb::Deliver::Newest,
            Deliver::Every => pb::Deliver::Every,
        };
        let resume = if subscribe.past.fill { pb::Resume::Fill } else { pb::Resume::Newest } as i32;
        let started = pb::Started { subscription_id: place.id, cameras, deliver: deliver as i32, resume };
        Self {
            source,
            place,
            accepts: subscribe.accepts.clone(),
            stopping,
            started: Some(started),
            converting: None,
            owed: HashMap::new(),
            needs_room: subscribe.span.begin.is_some() || subscribe.past.fill,
            room: None,
            made: false,
            over: false,
        }
    }

    /// The next event: chosen now, so that a frame is the newest of this moment. Nothing after the last, which is either
    /// [`Event::Ended`] or an error. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Result<Told, ApiError>> {
        if self.over {
            return None;
        }
        if let Some(started) = self.started.take() {
            return Some(Ok(Event::Started(started).into()));
        }
        loop {
            let served = match self.converted().await {
                Some(served) => served,
                None => self.served().await,
            };
            let event = self.event(served);
            self.over = match &event {
                Some(Ok(told)) => matches!(told.event, Event::Ended(_)),
                Some(Err(_)) => true,
                None => false,
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// What the source has next.
    async fn served(&mut self) -> Served {
        let calls = Arc::clone(&self.place.calls);
        let (lending, principal) = (Arc::clone(&self.place.all.lending), self.place.principal.clone());
        loop {
            let lacks_room = self.needs_room && self.room.is_none();
            let served = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => Some(Served::Stopped),
                () = calls.unsubscribed.notified() => Some(Served::Ended { rest: Vec::new() }),
                () = calls.updated.notified() => None,
                room = lending.room(&principal, OWN_BYTES_ASSUMED), if lacks_room => {
                    self.room = Some(room);
                    continue;
                }
                served = self.source.next(), if !lacks_room => Some(served),
            };
            if let Some(served) = served {
                return served;
            }
            let measured =
                std::mem::take(&mut *calls.measured.lock().unwrap_or_else(PoisonError::into_inner));
            let undecodable =
                std::mem::take(&mut *calls.undecodable.lock().unwrap_or_else(PoisonError::into_inner));
            if let Source::Edge(subscription) = &mut self.source {
                subscription.handle_accuracies(measured);
                undecodable.into_iter().for_each(|camera| subscription.restart_chain(camera));
            }
            let update = calls.update.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(update) = update
                && self.source.update(update).await.is_err()
            {
                return Served::Stopped;
            }
        }
    }

    /// The frame that was being made into a JPEG, if there is one and that went well.
    async fn converted(&mut self) -> Option<Served> {
        let converting = self.converting.as_mut()?;
        // Given up after a while: native code may hang. Cancelling this leaves the task where it is.
        let jpeg = tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stop| *stop) => return Some(Served::Stopped),
            jpeg = timeout(CONVERTING_TIME_MAX, &mut converting.task) => jpeg,
        };
        let Converting { mut delivery, captured, trace, verdict, room, .. } = self.converting.take()?;
        let failure = match jpeg {
            Ok(Ok(Ok(jpeg))) => {
                let frame = &mut delivery.record.frame;
                (frame.payload, frame.meta.encoding) = (jpeg, Encoding::Jpeg);
                (delivery.log, self.room, self.made) = (None, Some(room), true);
                return Some(Served::Frame { delivery, captured, trace, verdict });
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        warn!(camera = %delivery.camera, frame = %delivery.record.frame.meta.id, "a frame was not made into a JPEG: {failure}");
        let owed = self.owed.entry(delivery.camera).or_default();
        owed.merge(&delivery.skipped, delivery.not_held);
        owed.add(SkipReason::NotDecoded);
        None
    }

    /// `None`: a frame has to be made into a JPEG first.
    fn event(&mut self, served: Served) -> Option<Result<Told, ApiError>> {
        let event = match served {
            Served::Frame { delivery, captured, trace, verdict } => {
                return self.frame(delivery, captured, trace, verdict);
            }
            Served::Contract(change) if change.ends => return Some(Err(infeasible(&change))),
            Served::Contract(Change { camera, state, reason, .. }) => {
                Event::ContractChange(pb::ContractChange {
                    camera: camera.as_str().into(),
                    state: state as i32,
                    reason,
                })
            }
            Served::Camera { camera, up, reason } => Event::CameraChange(pb::CameraChange {
                camera: camera.as_str().into(),
                up,
                reason: reason.unwrap_or_default(),
            }),
            Served::Waiting { matching } => {
                Event::Waiting(pb::Waiting { matching: u32::try_from(matching).unwrap_or(u32::MAX) })
            }
            Served::Ended { rest } => self.ended(rest),
            Served::Reset { camera } => return Some(Err(reset(&camera))),
            Served::Stopped => return Some(Err(ApiError::stopping())),
        };
        Some(Ok(event.into()))
    }

    fn frame(
        &mut self,
        mut delivery: Box<Delivery>,
        captured: Option<(Instant, Duration)>,
        trace: Option<Box<Trace>>,
        verdict: Option<Verdict>,
    ) -> Option<Result<Told, ApiError>> {
        let (lending, principal) = (&self.place.all.lending, &self.place.principal);
        let encoding = delivery.record.frame.meta.encoding;
        if self.accepts.is_empty() || self.accepts.contains(&encoding) {
            if let Some(owed) = self.owed.remove(&delivery.camera) {
                owed.tell(&mut delivery.skipped, &mut delivery.not_held);
            }
            let (log, id) = (delivery.log.take(), delivery.record.frame.meta.id);
            let mut frame = convert::frame(*delivery, captured, trace.as_deref(), verdict, monotonic_now());
            let bytes = std::mem::take(&mut frame.payload);
            let room = self.room.take();
            // What was made into a JPEG got its room when that was begun.
            self.needs_room = log.is_none() && !std::mem::take(&mut self.made);
            let payload = match log {
                Some(log) => Payload::of_log(bytes, (log, id), lending, principal),
                None => Payload::own(bytes, room, lending, principal),
            };
            return Some(Ok(Told { event: Event::Frame(Box::new(frame)), payload: Some(payload) }));
        }
        if !self.accepts.contains(&Encoding::Jpeg) {
            return Some(Err(not_accepted(&delivery.camera, encoding)));
        }
        let Frame { meta, payload } = delivery.record.frame.clone();
        let Some(room) = self.room.take().or_else(|| lending.try_room(principal, payload.len())) else {
            // Too many applications stand still with what was made for them: this one skips a frame.
            let owed = self.owed.entry(delivery.camera).or_default();
            owed.merge(&delivery.skipped, delivery.not_held);
            owed.add(SkipReason::ApplicationBusy);
            self.needs_room = true;
            return None;
        };
        let task = spawn_blocking(move || jpeg_of(encoding, &payload, (meta.width, meta.height)));
        self.converting = Some(Converting { task, delivery, captured, trace, verdict, room });
        None
    }

    fn ended(&mut self, mut rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>) -> Event {
        for (camera, owed) in std::mem::take(&mut self.owed) {
            match rest.iter_mut().find(|(name, ..)| *name == camera) {
                Some((_, skipped, not_held)) => owed.tell(skipped, not_held),
                None => rest.push((camera, owed.skipped, owed.not_held)),
            }
        }
        let told = rest.into_iter().map(|(camera, skipped, not_held)| pb::CameraRest {
            camera: camera.as_str().into(),
            skipped: convert::skips(&skipped),
            not_held: not_held.map(convert::not_held),
        });
        Event::Ended(pb::Ended { rest: told.collect() })
    }
}

/// Why a subscription ends with the reset of a camera. The same request succeeds.
fn reset(camera: &CameraName) -> ApiError {
    ApiError::new(
        Code::Aborted,
        "CAMERA_RESET",
        format!(
            "camera {camera} was reset at the edge, so that its next frames may come before those that were delivered; subscribe again"
        ),
    )
}

/// The end of a subscription that asked to stop.
fn infeasible(change: &Change) -> ApiError {
    ApiError::new(
        Code::FailedPrecondition,
        "INFEASIBLE",
        format!(
            "camera {}: {}; this ends the subscription, which asked to stop (on_infeasible); ask for less, or to degrade",
            change.camera, change.reason
        ),
    )
}

fn not_accepted(camera: &CameraName, encoding: Encoding) -> ApiError {
    let name = encoding.name();
    ApiError::new(
        Code::FailedPrecondition,
        "ENCODING_NOT_ACCEPTED",
        format!(
            "camera {camera} sends {name}, which accept_encodings does not name; add {name}, or accept all by leaving \
             the list empty"
        ),
    )
    .at("accept_encodings")
}

impl Source {
    /// The camera's own log knows of no contracts.
    async fn update(&mut self, (contract, profile): Update) -> Result<(), Stopped> {
        match self {
            Self::Edge(subscription) => subscription.update(contract, profile).await,
            Self::Camera(_) => Ok(()),
        }
    }

    async fn next(&mut self) -> Served {
        match self {
            Self::Edge(subscription) => subscription.next().await,
            Self::Camera(log) => log.next().await,
        }
    }
}

/// A subscription to the log of a camera in this process.
pub(super) struct CameraLog {
    reading: Reading,
    /// Taken when the subscription began: what time it is for its beginning and end.
    clock: ClockAnchor,
    appended: watch::Receiver<u64>,
    /// To be told once, at the start.
    waiting: bool,
}

impl CameraLog {
    /// Reads `log`, if there is one: if the camera of this process is one that was asked for.
    pub(super) fn new(
        subscribe: &Subscribe,
        log: Option<(CameraName, LogReader)>,
        places: Option<Arc<PastSources>>,
        appended: watch::Receiver<u64>,
    ) -> Self {
        let mut reading = Reading::new(subscribe.span, (subscribe.past, subscribe.after.clone()), places);
        let waiting = log.is_none();
        if let Some((camera, log)) = log {
            let present = log.held().end;
            reading.attach_from(camera, log, present);
        }
        Self { reading, clock: anchor(), appended, waiting }
    }

    async fn next(&mut self) -> Served {
        loop {
            if std::mem::take(&mut self.waiting) {
                return Served::Waiting { matching: 0 };
            }
            let looked = monotonic_now();
            match self.reading.next(self.clock.wall_at(looked)) {
                Next::Frame(delivery) => {
                    let captured = captured_at(&delivery.record);
                    return Served::Frame { delivery, captured, trace: None, verdict: None };
                }
                Next::Ended { rest } => return Served::Ended { rest },
                Next::Pending => {}
            }
            let end = self.reading.end_passes(&self.clock, looked);
            let changed = tokio::select! {
                changed = self.appended.changed() => changed,
                () = self.reading.answered() => Ok(()),
                () = end => Ok(()),
            };
            if changed.is_err() {
                return Served::Stopped;
            }
        }
    }
}

/// When a frame of our own log was captured, by our own clock: the broker stamps the two times at once. Not known of frames
/// that an earlier start left on disk.
fn captured_at(record: &mez_core::log::Record) -> Option<(Instant, Duration)> {
    let stamped_here =
        record.frame.meta.clock_source == ClockSource::Broker && record.arrived > Instant::ZERO;
    stamped_here.then_some((record.arrived, Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_ends_the_subscription_of_another() {
        let all = Subscriptions::new(ApiLimits { subscriptions_max: 8, ..ApiLimits::default() });
        let (mine, another) = (Principal::User { uid: 1000 }, Principal::User { uid: 1001 });
        let place = all.enter(&mine).unwrap();
        let refused = all.unsubscribe(&another, place.id).unwrap_err();
        let unknown = all.unsubscribe(&another, place.id + 1).unwrap_err();
        // The two answers must not tell which numbers exist.
        assert_eq!((refused.code, &refused.reason), (unknown.code, &unknown.reason));
        assert_eq!(all.unsubscribe(&mine, place.id), Ok(()));
    }

    /// The answer names the limit, whose it is, and another principal still gets its place.
    #[test]
    fn one_principal_gets_a_part_of_all_places() {
        let limits =
            ApiLimits { subscriptions_max: 4, subscriptions_per_principal_max: 3, ..ApiLimits::default() };
        let all = Subscriptions::new(limits);
        let (greedy, other) = (Principal::User { uid: 1000 }, Principal::User { uid: 1001 });
        let mut places: Vec<_> = (0..3).map(|_| all.enter(&greedy).unwrap()).collect();
        let refused = all.enter(&greedy).unwrap_err();
        let limit = refused.limit.expect("the limit is named");
        assert_eq!((limit.name.as_str(), limit.value), ("subscriptions_per_principal_max", 3));
        assert_eq!((refused.code, limit.subject), (Code::ResourceExhausted, greedy.to_string()));
        places.push(all.enter(&other).unwrap());
        let refused = all.enter(&other).unwrap_err();
        assert_eq!(refused.limit.expect("the limit is named").name, "subscriptions_max");
    }

    #[test]
    fn a_place_is_free_again_when_its_subscription_ends() {
        let all = Subscriptions::new(ApiLimits { subscriptions_max: 1, ..ApiLimits::default() });
        let principal = Principal::User { uid: 0 };
        let place = all.enter(&principal).unwrap();
        assert_eq!(all.enter(&principal).unwrap_err().code, Code::ResourceExhausted);
        let first = place.id;
        drop(place);
        assert!(all.enter(&principal).unwrap().id > first, "numbers are never used twice");
    }
}
