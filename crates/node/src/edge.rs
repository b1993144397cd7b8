//! An edge broker at work: the core's state machine between the link and the applications.
//!
//! [`EdgeBroker::start`] gives an [`EdgeHandle`]. The loop in `Driver::run` serves the link; every application
//! reads the replica logs on a task of its own, through an [`EdgeSubscription`], and so holds up nobody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::{
    CameraInfo, CameraView, CaptureClock, EdgeBroker as Broker, EdgeConfig, EdgeOutput, ReplyError,
    SubscriptionId,
};
use mez_core::contract::{Contract, ContractState};
use mez_core::frame::{FrameId, SkipCounts};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::keeping::{Change, Judged, Keeping, LOOK_INTERVAL, Verdict};
use mez_core::log::LogReader;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::store::StoreStatus;
use mez_core::subscription::{Delivery, Next, NotHeld, Span};
use mez_core::units::{ClockAnchor, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{debug, info};

use crate::clock::{anchor, monotonic_now, sleep_until};
use crate::identity::Credentials;
pub use crate::link::ListenError;
use crate::link::{Command, CommandSender, EVENTS_MAX, EdgeEvent, Listener, listen};
use crate::persist::replicas::Replicas;
use crate::persist::{LogFiles, LogKeeper, PersistError, PersistOptions};
use crate::profiles::{HeldProfile, ProfileStore};
use crate::reading::{PastPlaces, Reading};
use crate::state::{self, StateError, edge_folder};
use crate::transcode::{Answer, Decoders};

/// Requests of applications that may wait for the driver.
const REQUESTS_MAX: usize = 64;
/// Camera changes that an application has not looked at; beyond that the oldest is dropped.
const CHANGES_MAX: usize = 256;

/// How an edge broker is set up.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// The UDP address for camera brokers. Default `[::]` with port [`crate::ports::LINK`].
    pub listen: SocketAddr,
    /// Who the edge is.
    pub credentials: Credentials,
    /// The broker's own settings.
    pub config: EdgeConfig,
    /// The folder for state. Default as in [`crate::state`]; only used for logs on disk, and for profiles.
    pub state: Option<PathBuf>,
    /// How replica logs are kept on disk as well. Default: not at all.
    pub persist: Option<PersistOptions>,
    /// The folder of profiles that applications name. Default: `profiles` in the folder for state.
    pub profiles: Option<PathBuf>,
}

impl EdgeOptions {
    /// The defaults: logs in memory only.
    pub fn new(listen: SocketAddr, credentials: Credentials, config: EdgeConfig) -> Self {
        Self { listen, credentials, config, state: None, persist: None, profiles: None }
    }
}

/// Why an edge broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeStartError {
    /// The link's port.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The folder for state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The logs on disk.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

/// The edge broker has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the edge broker has stopped")]
pub struct Stopped;

/// Why a reply was not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyFailure {
    /// The broker refused it.
    #[error(transparent)]
    Refused(#[from] ReplyError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Starts edge brokers.
pub struct EdgeBroker;

impl EdgeBroker {
    /// Opens the link's port and starts a broker on the current tokio runtime. It stops with
    /// [`EdgeHandle::stop`], or when the last handle is dropped.
    pub fn start(options: EdgeOptions) -> Result<EdgeHandle, EdgeStartError> {
        let (events, event_receiver) = mpsc::channel(EVENTS_MAX);
        let listener = listen(options.listen, &options.credentials, events)?;
        let address = listener.address().map_err(|source| ListenError::Bind {
            protocol: "UDP",
            address: options.listen,
            source,
        })?;
        let (requests, request_receiver) = mpsc::channel(REQUESTS_MAX);
        let frame_bytes_max = options.config.frame_bytes_max;
        let mut broker = Broker::new(options.config);
        let asks = requests.downgrade();
        let (replicas, places) = match options.persist {
            Some(persist) => {
                let state = state::folder(options.state.as_deref())?;
                let replicas = Replicas::take_up(persist.clone(), state.clone(), &mut broker)?;
                let state_of = move |camera: &CameraName| edge_folder(&state, camera);
                (Some(replicas), PastPlaces::new(Some((persist, Box::new(state_of))), Some(Cameras(asks))))
            }
            None => (None, PastPlaces::new(None, Some(Cameras(asks)))),
        };
        let profiles = match options.profiles {
            Some(folder) => folder,
            // Without a home there is no folder; then no name is known.
            None => state::folder(options.state.as_deref())
                .map_or_else(|_| PathBuf::new(), |s| s.join("profiles")),
        };
        let keeper = replicas.as_ref().map(Replicas::keeper);
        let (decoders, decoded) = Decoders::new();
        let driver = Driver {
            broker,
            replicas,
            decoders,
            links: HashMap::new(),
            shared: HashMap::new(),
            subscribers: HashMap::new(),
            up: HashMap::new(),
            questions: HashMap::new(),
        };
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(driver.run(listener, (event_receiver, decoded), request_receiver, stopped));
        Ok(EdgeHandle {
            requests,
            address,
            frame_bytes_max,
            next_subscription: Arc::default(),
            stop: Arc::new(stop),
            keeper,
            places,
            profiles: Arc::new(ProfileStore::new(profiles)),
            standings: Arc::default(),
        })
    }
}

/// What an application asks for.
struct Asked {
    pattern: CameraPattern,
    contract: Contract,
    span: Span,
    clock: ClockAnchor,
    application: String,
    profile: Option<Arc<HeldProfile>>,
}

enum Request {
    Subscribe(SubscriptionId, Box<Asked>, Arc<Mailbox>, oneshot::Sender<usize>),
    Update(SubscriptionId, Box<Contract>, Option<Arc<HeldProfile>>),
    Unsubscribe(SubscriptionId),
    History(Box<(CameraName, PastQuery)>, oneshot::Sender<PastAnswer>),
    Cameras(oneshot::Sender<Vec<CameraInfo>>),
    Reply(Box<(CameraName, FrameId, String, Bytes)>, oneshot::Sender<Result<(), ReplyError>>),
}

/// Asks cameras for frames of the past. Keeps no broker alive.
pub(crate) struct Cameras(mpsc::WeakSender<Request>);

impl Cameras {
    /// What a camera has; nothing if the broker has stopped.
    pub(crate) async fn ask(&self, camera: &CameraName, query: PastQuery) -> PastAnswer {
        let Some(requests) = self.0.upgrade() else { return PastAnswer::default() };
        let (answer, answered) = oneshot::channel();
        let request = Request::History(Box::new((camera.clone(), query)), answer);
        if requests.send(request).await.is_err() {
            return PastAnswer::default();
        }
        drop(requests);
        answered.await.unwrap_or_default()
    }
}

/// An edge broker that runs. Cheap to clone.
#[derive(Clone)]
pub struct EdgeHandle {
    requests: mpsc::Sender<Request>,
    address: SocketAddr,
    frame_bytes_max: u32,
    next_subscription: Arc<AtomicU64>,
    stop: Arc<watch::Sender<bool>>,
    keeper: Option<LogKeeper<LogFiles>>,
    /// Where frames of the past are.
    places: Arc<PastPlaces>,
    profiles: Arc<ProfileStore>,
    standings: Arc<Mutex<Standings>>,
}

/// How contracts stand, by camera: as many entries as subscriptions have cameras.
type Standings = HashMap<CameraName, BTreeMap<SubscriptionId, Standing>>;

/// How one subscription's contract stands on a camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The application's name, for people; may be empty.
    pub application: String,
    /// The state.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
}

impl EdgeHandle {
    /// The address that camera brokers connect to.
    pub fn link_address(&self) -> SocketAddr {
        self.address
    }

    /// The largest payload that is taken from a camera.
    pub fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    /// Stops the broker: applications are told, and connections are closed. Waits until that is done.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        self.requests.closed().await;
        if let Some(keeper) = self.keeper.clone() {
            let _ = tokio::task::spawn_blocking(move || keeper.stop()).await;
        }
    }

    /// How a camera's log on this disk is doing; `None` if there is none.
    pub fn log_on_disk(&self, camera: &CameraName) -> Option<StoreStatus> {
        self.keeper.as_ref()?.status(camera)
    }

    /// Subscribes to all cameras that match, present and future.
    pub async fn subscribe(
        &self,
        pattern: CameraPattern,
        contract: Contract,
        span: Span,
    ) -> Result<EdgeSubscription, Stopped> {
        self.subscribe_as(pattern, contract, span, String::new(), None).await
    }

    /// The same for an application with a name, and with the profile that the contract names.
    pub async fn subscribe_as(
        &self,
        pattern: CameraPattern,
        contract: Contract,
        span: Span,
        application: String,
        profile: Option<Arc<HeldProfile>>,
    ) -> Result<EdgeSubscription, Stopped> {
        let id = SubscriptionId(self.next_subscription.fetch_add(1, Ordering::Relaxed));
        let (mailbox, clock) = (Arc::new(Mailbox::default()), anchor());
        let (answer, connected) = oneshot::channel();
        // A reading of the past is late by its nature.
        let live = span.begin.is_none();
        let sized = profile.as_ref().map(|held| Arc::clone(&held.profile));
        let keeping = live.then(|| Keeping::new(id, contract.clone(), sized));
        let asked = Asked { pattern, contract, span, clock, application: application.clone(), profile };
        let request = Request::Subscribe(id, Box::new(asked), Arc::clone(&mailbox), answer);
        self.requests.send(request).await.map_err(|_| Stopped)?;
        // From here on dropping the subscription takes it back.
        let mut subscription = EdgeSubscription {
            id,
            mailbox,
            reading: Reading::new(span, Some(Arc::clone(&self.places))),
            clock,
            cameras: HashMap::new(),
            keeping,
            application,
            standings: Arc::clone(&self.standings),
            waiting: None,
            requests: self.requests.clone(),
        };
        let connected = connected.await.map_err(|_| Stopped)?;
        subscription.waiting = (connected == 0 && span.is_live(clock.wall)).then_some(connected);
        Ok(subscription)
    }

    /// The profiles that applications name, or have sent.
    pub fn profiles(&self) -> &Arc<ProfileStore> {
        &self.profiles
    }

    /// How the contracts on a camera stand, as far as they ask anything.
    pub fn standings(&self, camera: &CameraName) -> Vec<(SubscriptionId, Standing)> {
        let standings = lock(&self.standings);
        standings.get(camera).into_iter().flatten().map(|(id, standing)| (*id, standing.clone())).collect()
    }

    /// What is known of every camera.
    pub async fn cameras(&self) -> Result<Vec<CameraInfo>, Stopped> {
        let (answer, cameras) = oneshot::channel();
        self.requests.send(Request::Cameras(answer)).await.map_err(|_| Stopped)?;
        cameras.await.map_err(|_| Stopped)
    }

    /// Passes an application's result for a frame on to the camera.
    pub async fn reply(
        &self,
        camera: CameraName,
        frame: FrameId,
        application: String,
        payload: Bytes,
    ) -> Result<(), ReplyFailure> {
        let (answer, done) = oneshot::channel();
        let request = Request::Reply(Box::new((camera, frame, application, payload)), answer);
        self.requests.send(request).await.map_err(|_| Stopped)?;
        Ok(done.await.map_err(|_| Stopped)??)
    }
}

/// What an edge broker serves to an application.
#[derive(Debug)]
pub enum Served {
    /// A frame.
    Frame {
        /// The frame, and what was skipped before it.
        delivery: Box<Delivery>,
        /// When it was captured by this machine's monotonic clock, and the most by which that is wrong.
        captured: Option<(Instant, Duration)>,
        /// What it is for the contract, and how that stands; nothing in a reading of the past.
        verdict: Option<Verdict>,
    },
    /// The contract stands otherwise than before on a camera.
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
        /// What was skipped since each camera's last frame, and what is not held.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
    /// The broker stops.
    Stopped,
}

/// An application's subscription at the edge. Dropping it unsubscribes.
pub struct EdgeSubscription {
    id: SubscriptionId,
    mailbox: Arc<Mailbox>,
    reading: Reading,
    /// Taken when the subscription began: what time it is for its beginning and end.
    clock: ClockAnchor,
    cameras: HashMap<CameraName, Arc<SharedCamera>>,
    /// Whether what it asked is kept, of a live reading.
    keeping: Option<Keeping>,
    application: String,
    standings: Arc<Mutex<Standings>>,
    waiting: Option<usize>,
    requests: mpsc::Sender<Request>,
}

/// What the driver knows of a camera and subscribers need: the one is updated with every frame, the other when something
/// changes that bears on contracts.
#[derive(Default)]
struct SharedCamera {
    clock: Mutex<Option<CaptureClock>>,
    view: Mutex<Arc<CameraView>>,
}

/// What the driver has for a subscription. All but the notification is bounded: by the number of cameras, and by
/// [`CHANGES_MAX`].
#[derive(Default)]
struct Mailbox {
    /// Something new is in one of the logs or here.
    changed: Notify,
    letters: Mutex<Letters>,
}

#[derive(Default)]
struct Letters {
    attached: Vec<Attached>,
    changes: VecDeque<(CameraName, bool, Option<String>)>,
    /// Something has changed that bears on the contract.
    view_changed: bool,
    stopped: bool,
}

/// A camera's log that a subscription is to read.
struct Attached {
    camera: CameraName,
    log: LogReader,
    /// The end of the log when the subscription began to want it, which is before the application looks.
    present: u64,
    shared: Arc<SharedCamera>,
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
            if std::mem::take(&mut letters.view_changed)
                && let Some(keeping) = &mut self.keeping
            {
                keeping.look_again();
            }
            if let Some((camera, up, reason)) = letters.changes.pop_front() {
                return Some(Served::Camera { camera, up, reason });
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
            match self.reading.next(self.clock.wall_at(now)) {
                Next::Frame(delivery) => {
                    if let Some(served) = self.judge(now, delivery) {
                        return Some(served);
                    }
                }
                Next::Ended { mut rest } => {
                    for (camera, skipped, _) in &mut rest {
                        if let Some(keeping) = &mut self.keeping {
                            skipped.merge(&keeping.rest(camera));
                        }
                    }
                    return Some(Served::Ended { rest });
                }
                Next::Pending => return None,
            }
        }
    }

    /// What the contract makes of a frame; nothing if it does not want it.
    fn judge(&mut self, now: Instant, delivery: Box<Delivery>) -> Option<Served> {
        let meta = &delivery.record.frame.meta;
        let shared = self.cameras.get(&delivery.camera);
        let clock = shared.and_then(|shared| *lock(&shared.clock));
        let captured = clock.and_then(|clock| clock.captured_at(meta.id, meta.captured));
        let Some(keeping) = &mut self.keeping else {
            return Some(Served::Frame { delivery, captured, verdict: None });
        };
        let view = shared.map(|shared| Arc::clone(&lock(&shared.view))).unwrap_or_default();
        match keeping.judge(now, delivery, captured.map(|(at, _)| at), &view) {
            Judged::Deliver(delivery, verdict) => {
                Some(Served::Frame { delivery, captured, verdict: Some(verdict) })
            }
            Judged::Withheld => None,
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

struct Subscriber {
    pattern: CameraPattern,
    mailbox: Arc<Mailbox>,
    /// Held for its cameras.
    profile: Option<Arc<HeldProfile>>,
}

struct Driver {
    broker: Broker,
    /// Logs on disk, if they are kept.
    replicas: Option<Replicas>,
    /// Of cameras whose frames need others.
    decoders: Decoders,
    links: HashMap<LinkId, CommandSender>,
    shared: HashMap<CameraName, Arc<SharedCamera>>,
    subscribers: HashMap<SubscriptionId, Subscriber>,
    /// Which cameras are connected.
    up: HashMap<CameraName, bool>,
    /// Who waits for frames of the past. At most as many as there are readings of cameras.
    questions: HashMap<u64, oneshot::Sender<PastAnswer>>,
}

impl Driver {
    /// The whole loop: do what the broker wants, wait for what happens, tell the broker.
    async fn run(
        mut self,
        listener: Listener,
        (mut events, mut decoded): (mpsc::Receiver<EdgeEvent>, mpsc::Receiver<Answer>),
        mut requests: mpsc::Receiver<Request>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            while let Some(output) = self.broker.poll_output() {
                self.perform(output);
            }
            let due = self.broker.poll_timeout();
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => break,
                Some(event) = events.recv() => self.handle(event),
                Some((camera, link, frame, decoded)) = decoded.recv() => {
                    self.broker.handle_decoded(monotonic_now(), &camera, link, frame, decoded);
                }
                request = requests.recv() => match request {
                    Some(request) => self.serve(request),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_default()), if due.is_some() => {
                    self.broker.handle_timeout(monotonic_now());
                }
            }
        }
        for subscriber in self.subscribers.values() {
            lock(&subscriber.mailbox.letters).stopped = true;
            subscriber.mailbox.changed.notify_one();
        }
        listener.close().await;
        debug!("the edge broker stopped");
    }

    fn handle(&mut self, event: EdgeEvent) {
        let now = monotonic_now();
        match event {
            EdgeEvent::Connected(link, peer, commands) => {
                self.links.insert(link, commands);
                self.broker.handle_connected(now, link, peer);
            }
            EdgeEvent::Message(link, message) => self.broker.handle_message(now, link, message),
            EdgeEvent::ProtocolError(link, error) => self.broker.handle_protocol_error(link, &error),
            EdgeEvent::FrameHeader(link, header, answer) => {
                let _ = answer.send(self.broker.handle_frame_header(now, link, *header));
            }
            EdgeEvent::FrameProgress(link, frame, bytes) => {
                self.broker.handle_frame_progress(now, link, frame, bytes);
            }
            EdgeEvent::FrameComplete(link, frame, payload) => {
                self.broker.handle_frame_complete(now, link, frame, payload);
            }
            EdgeEvent::FrameCancelled(link, frame) => self.broker.handle_frame_cancelled(now, link, frame),
            EdgeEvent::HistoryComplete(link, request, payload) => {
                self.broker.handle_history_complete(now, link, request, payload);
            }
            EdgeEvent::HistoryCancelled(link, request) => {
                self.broker.handle_history_cancelled(now, link, request)
            }
            EdgeEvent::Closed(link, reason) => {
                debug!(?link, reason, "a connection ended");
                self.links.remove(&link);
                self.broker.handle_closed(now, link);
            }
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Subscribe(id, asked, mailbox, answer) => {
                let Asked { pattern, contract, span, clock, application, profile } = *asked;
                let connected = self.up.iter().filter(|(camera, up)| **up && pattern.matches(camera)).count();
                if let Some(held) = &profile {
                    self.broker.add_profile(held.sha256, held.bytes.clone());
                }
                self.subscribers.insert(id, Subscriber { pattern: pattern.clone(), mailbox, profile });
                self.broker.handle_subscribe(clock, id, pattern, contract, span);
                self.broker.name_subscription(id, &application);
                // The logs that it reads are in the mailbox before the application looks.
                while let Some(output) = self.broker.poll_output() {
                    self.perform(output);
                }
                if answer.send(connected).is_err() {
                    self.unsubscribe(id);
                }
            }
            Request::Unsubscribe(id) => self.unsubscribe(id),
            Request::Update(id, contract, profile) => self.update(id, *contract, profile),
            Request::History(asked, answer) => {
                let (camera, query) = *asked;
                // Whoever no longer waits has closed the other end.
                let dropped = self.questions.extract_if(|_, answer| answer.is_closed());
                dropped.for_each(|(request, _)| self.broker.handle_history_dropped(request));
                let request = self.broker.handle_history_query(monotonic_now(), &camera, query);
                self.questions.insert(request, answer);
            }
            Request::Cameras(answer) => {
                let _ = answer.send(self.broker.cameras(monotonic_now()));
            }
            Request::Reply(reply, answer) => {
                let (camera, frame, application, payload) = *reply;
                let _ = answer.send(self.broker.handle_reply(&camera, frame, &application, payload));
            }
        }
    }

    fn unsubscribe(&mut self, id: SubscriptionId) {
        let gone = self.subscribers.remove(&id);
        self.broker.handle_unsubscribe(id);
        self.let_go(gone.and_then(|subscriber| subscriber.profile));
    }

    fn update(&mut self, id: SubscriptionId, contract: Contract, profile: Option<Arc<HeldProfile>>) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        if let Some(held) = &profile {
            self.broker.add_profile(held.sha256, held.bytes.clone());
        }
        let before = std::mem::replace(&mut subscriber.profile, profile);
        self.broker.handle_update(monotonic_now(), id, contract);
        self.let_go(before);
    }

    /// A subscription uses a profile no longer.
    fn let_go(&mut self, profile: Option<Arc<HeldProfile>>) {
        let Some(held) = profile else { return };
        let uses =
            |other: &Subscriber| other.profile.as_ref().is_some_and(|other| other.sha256 == held.sha256);
        if !self.subscribers.values().any(uses) {
            self.broker.remove_profile(held.sha256);
        }
    }

    fn perform(&mut self, output: EdgeOutput) {
        match output {
            EdgeOutput::Send { link, message } => self.command(link, Command::Send(message)),
            EdgeOutput::Close { link } => {
                self.command(link, Command::Close);
                self.links.remove(&link);
            }
            EdgeOutput::Attach { subscription, camera, log } => {
                let shared = Arc::clone(self.shared.entry(camera.clone()).or_default());
                *lock(&shared.view) = Arc::new(self.broker.view(monotonic_now(), &camera));
                if let Some(subscriber) = self.subscribers.get(&subscription) {
                    let attached = Attached { camera, present: log.held().end, log, shared };
                    lock(&subscriber.mailbox.letters).attached.push(attached);
                    subscriber.mailbox.changed.notify_one();
                }
            }
            EdgeOutput::Appended { camera } => {
                if let Some(clock) = self.broker.capture_clock(monotonic_now(), &camera) {
                    *lock(&self.shared.entry(camera.clone()).or_default().clock) = Some(clock);
                }
                self.subscribers_of(&camera).for_each(|subscriber| subscriber.mailbox.changed.notify_one());
            }
            EdgeOutput::Decode { camera, link, frame } => {
                if let Some((camera, link, frame, decoded)) = self.decoders.decode(camera, link, frame) {
                    self.broker.handle_decoded(monotonic_now(), &camera, link, frame, decoded);
                }
            }
            EdgeOutput::ViewChanged { camera } => {
                let view = Arc::new(self.broker.view(monotonic_now(), &camera));
                *lock(&self.shared.entry(camera.clone()).or_default().view) = view;
                for subscriber in self.subscribers_of(&camera) {
                    lock(&subscriber.mailbox.letters).view_changed = true;
                    subscriber.mailbox.changed.notify_one();
                }
            }
            EdgeOutput::History { request, answer } => {
                if let Some(waiting) = self.questions.remove(&request) {
                    let _ = waiting.send(answer);
                }
            }
            EdgeOutput::CameraChanged { camera, up, reason } => {
                match &reason {
                    Some(reason) => info!(%camera, up, "{reason}"),
                    None => info!(%camera, up, "the camera is connected"),
                }
                self.up.insert(camera.clone(), up);
                if let (true, Some(replicas)) = (up, &mut self.replicas) {
                    replicas.keep(&self.broker, &camera);
                }
                for subscriber in self.subscribers_of(&camera) {
                    let mut letters = lock(&subscriber.mailbox.letters);
                    if letters.changes.len() == CHANGES_MAX {
                        letters.changes.pop_front();
                    }
                    letters.changes.push_back((camera.clone(), up, reason.clone()));
                    subscriber.mailbox.changed.notify_one();
                }
            }
        }
    }

    fn subscribers_of<'a>(&'a self, camera: &'a CameraName) -> impl Iterator<Item = &'a Subscriber> {
        self.subscribers.values().filter(|subscriber| subscriber.pattern.matches(camera))
    }

    fn command(&mut self, link: LinkId, command: Command) {
        if let Some(commands) = self.links.get(&link)
            && !commands.send(command)
        {
            self.links.remove(&link);
            self.broker.handle_closed(monotonic_now(), link);
        }
    }
}

/// What the mutex protects is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
