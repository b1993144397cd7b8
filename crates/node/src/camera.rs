//! A camera broker at work: the core's state machine between a publisher's thread and the link.
//!
//! [`CameraBroker::start`] gives a [`CameraHandle`]; the loop in `Driver::run` is all there is in between.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{
    CameraBroker as Broker, CameraConfig, CameraOutput, HISTORY_SHARE, Transform, Transformed,
};
use mez_core::broker::{Intake, IntakeConfig, LinkId, PublishError, Published};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{FRAME_BYTES_MAX, FrameId, Rung};
use mez_core::history::PastAnswer;
use mez_core::log::{LogConfig, LogReader, LogWriter, log};
use mez_core::name::CameraName;
use mez_core::profile::{ProfileHash, SizedProfile};
use mez_core::store::StoreStatus;
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{ClockAnchor, Instant};
use mez_core::wire::{DiskStatus, FrameHeader};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use crate::clock::{anchor, monotonic_now, sleep_until};
pub use crate::codec::H264Library;
use crate::codec::{Codec, Made};
use crate::identity::Credentials;
use crate::identity::tls::TlsConfigError;
pub use crate::link::Transport;
use crate::link::{CameraEvent, Command, CommandSender, Dialler, EVENTS_MAX};
use crate::persist::{LogFiles, LogKeeper, OpenLog, PersistError, PersistOptions, RECOVERY_TIME_MAX};
use crate::ports::EdgeAddress;
use crate::profile::NamedProfile;
use crate::reading::{LocalPast, PastPlaces};
use crate::state::{self, CameraState, StateError};

/// Replies that wait for the publisher; beyond that the oldest is dropped.
const REPLIES_MAX: usize = 64;

/// How a camera broker is set up.
#[derive(Clone, Debug)]
pub struct CameraOptions {
    /// The camera's name.
    pub camera: CameraName,
    /// The edges, in order of preference: the camera is connected to one at a time, moves to the next when that one is gone, and
    /// returns when a better one is back. At least one, at most [`EDGES_MAX`]; all of one site.
    pub edges: Vec<EdgeAddress>,
    /// Who the camera host is.
    pub credentials: Credentials,
    /// What carries the link. Default [`Transport::Auto`].
    pub transport: Transport,
    /// What chooses the rungs of live frames. Default [`PolicyName::Quantile`].
    pub policy: PolicyName,
    /// What makes H.264 of live frames. Default openh264; a build with the feature `x264` has that as well.
    pub h264: H264Library,
    /// The log's budget. Default 256 MiB.
    pub log: LogConfig,
    /// The largest payload that is taken, in bytes. Default 32 MiB.
    pub frame_bytes_max: u32,
    /// The folder for state. Default as in [`crate::state`].
    pub state: Option<PathBuf>,
    /// How the log is kept on disk as well. Default: not at all.
    pub persist: Option<PersistOptions>,
    /// The part of the time for which frames of the past may use the link beside live ones, 0.01 to 1. Default a quarter.
    pub history_share: f64,
}

impl CameraOptions {
    /// The defaults, for these edges, in order of preference.
    pub fn new(camera: CameraName, edges: Vec<EdgeAddress>, credentials: Credentials) -> Self {
        Self {
            camera,
            edges,
            credentials,
            transport: Transport::default(),
            policy: PolicyName::default(),
            h264: H264Library::default(),
            log: LogConfig::default(),
            frame_bytes_max: FRAME_BYTES_MAX,
            state: None,
            persist: None,
            history_share: HISTORY_SHARE,
        }
    }
}

/// The most edges that a camera may choose from.
pub const EDGES_MAX: usize = 8;

/// Why a camera broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No edge, or too many.
    #[error("a camera broker needs one to {EDGES_MAX} edges, not {0}")]
    Edges(usize),
    /// The identity may not publish this camera.
    #[error(
        "the identity {identity} may not publish camera {camera}; enrol one that may: mez keys token camera/{camera}"
    )]
    NotPermitted {
        /// Who the camera host is.
        identity: String,
        /// The camera.
        camera: CameraName,
    },
    /// The epoch could not be had.
    #[error(transparent)]
    State(#[from] StateError),
    /// The certificate cannot dial.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The log on disk.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The log on disk ends with an epoch that is not one of this camera's.
    #[error("the log of {camera} in {} is not of this camera: {source}; move it away, and `mez log` still reads it there", folder.display())]
    LogEpoch {
        /// The camera.
        camera: CameraName,
        /// The folder of logs.
        folder: PathBuf,
        /// What is wrong with the epoch.
        source: StateError,
    },
}

/// An application's result for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The frame.
    pub frame: FrameId,
    /// The application.
    pub application: String,
    /// The result, opaque to Mez.
    pub payload: Bytes,
}

/// Starts camera brokers.
pub struct CameraBroker;

impl CameraBroker {
    /// Starts a broker on the current tokio runtime. It stops when the last handle is dropped.
    pub fn start(options: CameraOptions) -> Result<CameraHandle, StartError> {
        let CameraOptions { camera, edges, credentials, .. } = &options;
        if !(1..=EDGES_MAX).contains(&edges.len()) {
            return Err(StartError::Edges(edges.len()));
        }
        if !credentials.identity().permits_camera(camera) {
            return Err(StartError::NotPermitted {
                identity: credentials.identity().to_string(),
                camera: camera.clone(),
            });
        }
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let dialler = Dialler::new(options.transport, credentials, events)?;
        let folder = state::folder(options.state.as_deref())?;
        let mut state = CameraState::open(&folder, camera)?;

        let anchor = anchor();
        let (mut writer, reader) = log(options.log);
        let keeper = match &options.persist {
            Some(persist) => {
                let place = (state::camera_folder(&folder, camera), options.log.bytes_max);
                Some(take_up_log(persist, camera, place, &mut state, &mut writer, anchor)?)
            }
            None => None,
        };
        let epoch = state.epoch();
        let intake = Intake::new(
            writer,
            IntakeConfig { frame_bytes_max: options.frame_bytes_max, ..IntakeConfig::new(epoch, anchor) },
        );
        let software = concat!("mez ", env!("CARGO_PKG_VERSION")).into();
        let config = CameraConfig {
            camera: camera.clone(),
            epoch,
            anchor,
            software,
            policy: options.policy,
            edges: edges.len(),
        };
        let places = options.persist.clone().map(|persist| {
            let state = folder.clone();
            let state_of = move |camera: &CameraName| state::camera_folder(&state, camera);
            PastPlaces::new(Some((persist, Box::new(state_of))), None)
        });
        let shared = Arc::new(Shared {
            camera: camera.clone(),
            frame_bytes_max: options.frame_bytes_max,
            intake: Mutex::new(intake),
            reader: reader.clone(),
            appended: watch::Sender::new(0),
            edge: watch::Sender::new(None),
            replies: Mutex::default(),
            replied: Notify::new(),
            keeper,
            places,
        });
        let (stop, stopped) = watch::channel(());
        let mut broker = Broker::new(config, &reader, monotonic_now());
        broker.set_history_share(options.history_share);
        let driver = Driver {
            broker,
            shared: Arc::clone(&shared),
            h264: options.h264,
            state,
            anchor,
            dialler,
            edges: options.edges.into(),
            links: HashMap::new(),
            next_link: 0,
            last_failure: String::new(),
            past: None,
            reads: JoinSet::new(),
            profiles: JoinSet::new(),
            trace: CameraTrace::default(),
            codec: None,
            past_codec: None,
            past_ticket: 0,
        };
        tokio::spawn(driver.run(receiver, shared.appended.subscribe(), stopped));
        Ok(CameraHandle { shared, _stop: Arc::new(stop) })
    }
}

struct Shared {
    camera: CameraName,
    frame_bytes_max: u32,
    intake: Mutex<Intake>,
    reader: LogReader,
    /// Counts appended frames.
    appended: watch::Sender<u64>,
    /// The edge that has the camera connected.
    edge: watch::Sender<Option<EdgeAddress>>,
    replies: Mutex<VecDeque<Reply>>,
    replied: Notify,
    /// Writes the log to disk, if it is to be.
    keeper: Option<LogKeeper<LogFiles>>,
    /// Where frames of the past are.
    places: Option<Arc<PastPlaces>>,
}

/// Brings back to memory what the log on disk holds of earlier starts, and begins to write it.
fn take_up_log(
    options: &PersistOptions,
    camera: &CameraName,
    (folder, bytes_max): (PathBuf, u64),
    state: &mut CameraState,
    writer: &mut LogWriter,
    anchor: ClockAnchor,
) -> Result<LogKeeper<LogFiles>, StartError> {
    let (log, recovery) = OpenLog::open(options, camera, &folder, (bytes_max, RECOVERY_TIME_MAX))?;
    if let Some(newest) = recovery.resume.newest_epoch.filter(|newest| *newest >= state.epoch()) {
        let epoch = state.raise_above(newest).map_err(|source| match source {
            StateError::TooFar { .. } => {
                StartError::LogEpoch { camera: camera.clone(), folder: options.folder.clone(), source }
            }
            other => other.into(),
        })?;
        warn!(%camera, epoch = epoch.0, "the log on disk knows a later start of this camera");
    }
    for record in recovery.records {
        if let Err(error) = writer.append(record.frame, record.skipped, record.arrived) {
            warn!(%camera, "a frame of the log on disk stays there: {error}");
        }
    }
    let (camera, mut store) = log.writer(writer.reader().cursor_at_end());
    store.set_start(state.epoch(), anchor);
    let keeper = LogKeeper::start().map_err(PersistError::Thread)?;
    keeper.keep(camera, store);
    tokio::spawn(keeper.clone().watch());
    Ok(keeper)
}

/// A camera broker that runs. Cheap to clone; the broker stops with the last clone.
#[derive(Clone)]
pub struct CameraHandle {
    shared: Arc<Shared>,
    _stop: Arc<watch::Sender<()>>,
}

impl CameraHandle {
    /// The camera's name.
    pub fn name(&self) -> &CameraName {
        &self.shared.camera
    }

    /// The largest payload that is taken.
    pub fn frame_bytes_max(&self) -> u32 {
        self.shared.frame_bytes_max
    }

    /// Stamps a frame and puts it into the log. For any thread; waits for nothing but another publisher's copy
    /// of a few words.
    pub fn publish(&self, frame: Published) -> Result<FrameId, PublishError> {
        self.publish_at(monotonic_now(), frame)
    }

    /// Like [`CameraHandle::publish`], for a frame that another process of this machine stamped when it had it, so
    /// that the way here counts in the frame's age. A stamp of the future, or of more than a minute ago, is taken
    /// for the present.
    pub fn publish_at(&self, captured: Instant, frame: Published) -> Result<FrameId, PublishError> {
        let now = monotonic_now();
        let plausible = captured <= now && now.saturating_since(captured) < Duration::from_secs(60);
        let id = lock(&self.shared.intake).publish(if plausible { captured } else { now }, frame)?;
        self.shared.appended.send_modify(|count| *count += 1);
        if let Some(keeper) = &self.shared.keeper {
            keeper.wake();
        }
        Ok(id)
    }

    /// The camera's log.
    pub fn log(&self) -> LogReader {
        self.shared.reader.clone()
    }

    /// Where frames of the past are, besides the log in memory.
    pub(crate) fn past(&self) -> Option<Arc<PastPlaces>> {
        self.shared.places.clone()
    }

    /// Counts appended frames, for waiting.
    pub fn appended(&self) -> watch::Receiver<u64> {
        self.shared.appended.subscribe()
    }

    /// Whether an edge has the camera connected.
    pub fn is_up(&self) -> bool {
        self.shared.edge.borrow().is_some()
    }

    /// The edge that has the camera connected, and when it comes and goes.
    pub fn edge(&self) -> watch::Receiver<Option<EdgeAddress>> {
        self.shared.edge.subscribe()
    }

    /// Frames refused so far.
    pub fn refused(&self) -> u64 {
        lock(&self.shared.intake).refused()
    }

    /// Bytes in the log and in the hands of its readers.
    pub fn log_bytes(&self) -> u64 {
        lock(&self.shared.intake).log_bytes()
    }

    /// How the log on disk is doing; `None` if there is none.
    pub fn log_on_disk(&self) -> Option<StoreStatus> {
        self.shared.keeper.as_ref()?.status(&self.shared.camera)
    }

    /// Writes what is in the log to disk, and writes no more after that: for the end of the process. Blocks for at most two
    /// seconds.
    pub fn finish_log(&self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.stop();
        }
    }

    /// The next reply of an application. Replies that nobody takes are dropped, oldest first, beyond 64.
    pub async fn next_reply(&self) -> Reply {
        loop {
            let replied = self.shared.replied.notified();
            if let Some(reply) = lock(&self.shared.replies).pop_front() {
                return reply;
            }
            replied.await;
        }
    }
}

/// Reads a profile that came over the link.
fn read_profile(camera: &CameraName, hash: ProfileHash, bytes: &[u8]) -> Option<SizedProfile> {
    match NamedProfile::read(bytes) {
        Ok(read) if read.sha256 == hash => {
            info!(%camera, app = read.app, "frames are made by the profile of this application");
            Some(SizedProfile { size: read.camera_size, profile: read.profile })
        }
        Ok(_) => {
            warn!(%camera, "the edge sent another profile than it was asked for");
            None
        }
        Err(error) => {
            warn!(%camera, "a profile cannot be used: {error}");
            None
        }
    }
}

struct Driver {
    broker: Broker,
    shared: Arc<Shared>,
    h264: H264Library,
    state: CameraState,
    anchor: ClockAnchor,
    dialler: Dialler,
    /// In order of preference.
    edges: Box<[EdgeAddress]>,
    links: HashMap<LinkId, CommandSender>,
    next_link: u64,
    /// The last failure to connect, so that the same one is not logged four times a second.
    last_failure: String,
    /// Who looks for frames of the past, while nobody is looking.
    past: Option<LocalPast>,
    /// One at a time, unless the connection changed meanwhile.
    reads: JoinSet<(LocalPast, u64, PastAnswer)>,
    /// Profiles that are being read; one at a time, unless the contracts change meanwhile.
    profiles: JoinSet<(ProfileHash, Option<SizedProfile>)>,
    /// When the codec's frame was where: there is one at a time.
    trace: CameraTrace,
    /// Started with the first frame that is to be made of another.
    codec: Option<(Codec, mpsc::Receiver<Made>)>,
    /// The same for frames of the past, and which of them it is at work on.
    past_codec: Option<(Codec, mpsc::Receiver<Made>)>,
    past_ticket: u64,
}

impl Driver {
    /// The whole loop: do what the broker wants, wait for what happens, tell the broker.
    async fn run(
        mut self,
        mut events: mpsc::Receiver<CameraEvent>,
        mut appended: watch::Receiver<u64>,
        mut stopped: watch::Receiver<()>,
    ) {
        loop {
            while let Some(output) = self.broker.poll_output() {
                self.perform(output);
            }
            tokio::select! {
                biased;
                Err(_) = stopped.changed() => break,
                // Before events: a frame is judged by what was known when it was published.
                Ok(()) = appended.changed() => self.broker.handle_published(monotonic_now()),
                Some(event) = events.recv() => self.handle(event),
                Some(Ok((past, ticket, answer))) = self.reads.join_next() => {
                    self.past = Some(past);
                    self.broker.handle_history(monotonic_now(), ticket, answer);
                }
                Some(Ok((hash, profile))) = self.profiles.join_next() => {
                    self.broker.handle_profile(monotonic_now(), hash, profile);
                }
                Some((frame, transformed, [begun, done])) = made(&mut self.codec) => {
                    self.trace.stamp(Stage::Encoding, begun);
                    self.trace.stamp(Stage::Encoded, done);
                    self.broker.handle_transformed(monotonic_now(), frame, transformed);
                }
                Some((_, transformed, _)) = made(&mut self.past_codec) => {
                    self.broker.handle_past_transformed(monotonic_now(), self.past_ticket, transformed);
                }
                () = sleep_until(self.broker.poll_timeout()) => self.handle_timeout(),
            }
        }
        debug!(camera = %self.shared.camera, "the camera broker stopped");
    }

    fn handle(&mut self, event: CameraEvent) {
        let now = monotonic_now();
        match event {
            CameraEvent::Dialled(link, edge, commands) => {
                self.links.insert(link, commands);
                self.broker.handle_dialled(now, link, edge);
            }
            CameraEvent::DialFailed(edge, reason) => {
                if reason != self.last_failure {
                    warn!(camera = %self.shared.camera, "{reason}; trying again every 250 ms");
                    self.last_failure = reason;
                } else {
                    debug!(camera = %self.shared.camera, "another attempt failed: {reason}");
                }
                self.broker.handle_dial_failed(now, edge);
            }
            CameraEvent::Message(link, message) => self.broker.handle_message(now, link, message),
            CameraEvent::Window(link, window) => self.broker.handle_window(link, window),
            CameraEvent::Sent(link, frame) => self.broker.handle_sent(now, link, frame),
            CameraEvent::Unsent(link, frame, bytes) => self.broker.handle_unsent(now, link, frame, bytes),
            CameraEvent::HistorySent(link, request) => self.broker.handle_history_sent(now, link, request),
            CameraEvent::Closed(link, reason) => {
                debug!(camera = %self.shared.camera, ?link, reason, "a connection ended");
                // One that worked is told of when it no longer does. Of others nobody would hear.
                if !self.broker.is_up() && self.links.contains_key(&link) && reason != self.last_failure {
                    warn!(camera = %self.shared.camera, "the edge did not take the camera in: {reason}; trying again every 250 ms");
                    self.last_failure = reason;
                }
                self.links.remove(&link);
                self.broker.handle_closed(now, link);
            }
        }
    }

    fn handle_timeout(&mut self) {
        let (refused, log_bytes) = {
            let intake = lock(&self.shared.intake);
            (intake.refused(), intake.log_bytes())
        };
        self.broker.handle_intake(refused, log_bytes);
        let disk = self.shared.keeper.as_ref().and_then(|keeper| keeper.status(&self.shared.camera));
        self.broker.handle_disk(disk.map(|status| DiskStatus {
            bytes: status.disk_bytes,
            lost: status.lost,
            degraded: status.degraded.map(|why| why.to_string()).unwrap_or_default(),
        }));
        self.broker.handle_timeout(monotonic_now());
    }

    fn perform(&mut self, output: CameraOutput) {
        match output {
            CameraOutput::Dial { edge } => {
                self.next_link += 1;
                self.dialler.dial(LinkId(self.next_link), edge, self.edges[edge.0].clone());
            }
            CameraOutput::Send { link, message } => self.command(link, Command::Send(message)),
            CameraOutput::Transform(transform) => {
                let frame = transform.frame.meta.id;
                self.trace = CameraTrace::default();
                self.trace.stamp(Stage::Chosen, monotonic_now());
                if !begin(&self.shared.camera, self.h264, &mut self.codec, transform) {
                    self.broker.handle_transformed(monotonic_now(), frame, Transformed::Failed);
                }
            }
            CameraOutput::TransformPast { ticket, transform } => {
                self.past_ticket = ticket;
                if !begin(&self.shared.camera, self.h264, &mut self.past_codec, transform) {
                    self.broker.handle_past_transformed(monotonic_now(), ticket, Transformed::Failed);
                }
            }
            CameraOutput::SendFrame { link, mut header, payload } => {
                if header.history == 0 {
                    self.add_stamps(&mut header);
                }
                self.command(link, Command::SendFrame(header, payload));
            }
            CameraOutput::ReadProfile { hash, bytes } => {
                let camera = self.shared.camera.clone();
                self.profiles.spawn_blocking(move || (hash, read_profile(&camera, hash, &bytes)));
            }
            CameraOutput::ReadHistory { ticket, query } => {
                let past = self.past.take().unwrap_or_else(|| {
                    LocalPast::new(
                        &self.shared.camera,
                        self.shared.reader.clone(),
                        self.shared.places.as_deref(),
                    )
                });
                self.reads.spawn(past.read(ticket, query));
            }
            CameraOutput::Reset { link, frame } => self.command(link, Command::Reset(frame)),
            CameraOutput::Close { link } => {
                self.command(link, Command::Close);
                self.links.remove(&link);
            }
            CameraOutput::RaiseEpoch { above } => match self.state.raise_above(above) {
                Ok(epoch) => {
                    info!(camera = %self.shared.camera, epoch = epoch.0, "the edge knows a later start of this camera");
                    if let Some(keeper) = &self.shared.keeper {
                        keeper.set_start(self.shared.camera.clone(), epoch, self.anchor);
                    }
                    lock(&self.shared.intake).raise_epoch(epoch);
                    self.broker.handle_epoch(monotonic_now(), epoch);
                }
                Err(error) => error!(camera = %self.shared.camera, %error, "cannot begin a later epoch"),
            },
            // Some refusals are tried again four times a second.
            CameraOutput::Refused { code, text } if text == self.last_failure => {
                debug!(camera = %self.shared.camera, ?code, "the edge refused the camera again: {text}");
            }
            CameraOutput::Refused { code, text } => {
                error!(camera = %self.shared.camera, ?code, "the edge refused the camera: {text}");
                self.last_failure = text;
            }
            CameraOutput::LinkChanged { up } => {
                self.last_failure.clear();
                let edge = self.broker.edge().filter(|_| up).map(|edge| self.edges[edge.0].clone());
                match &edge {
                    Some(edge) => info!(camera = %self.shared.camera, %edge, "connected to the edge"),
                    None => info!(camera = %self.shared.camera, "lost the edge"),
                }
                self.shared.edge.send_replace(edge);
            }
            CameraOutput::Reply { frame, application, payload } => {
                let mut replies = lock(&self.shared.replies);
                if replies.len() == REPLIES_MAX {
                    replies.pop_front();
                }
                replies.push_back(Reply { frame, application, payload });
                self.shared.replied.notify_one();
            }
        }
    }

    /// What the broker cannot know, which has no clock: when it was done with choosing, and what the codec took.
    fn add_stamps(&mut self, header: &mut FrameHeader) {
        let now = monotonic_now();
        if header.meta.rung.as_str() != Rung::ORIGINAL {
            self.trace.iter().for_each(|(stage, at)| header.trace.stamp(stage, at));
        } else if header.trace.get(Stage::Considered).is_some() {
            header.trace.stamp(Stage::Chosen, now);
        }
        header.trace.stamp(Stage::Queued, now);
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

/// Gives work to a codec, which is started if there is none.
fn begin(
    camera: &CameraName,
    h264: H264Library,
    codec: &mut Option<(Codec, mpsc::Receiver<Made>)>,
    transform: Box<Transform>,
) -> bool {
    if codec.is_none() {
        match Codec::start(camera.as_str(), h264) {
            Ok(started) => *codec = Some(started),
            Err(error) => error!(%camera, %error, "no thread for the codec"),
        }
    }
    codec.as_ref().is_some_and(|(codec, _)| codec.make(transform).is_ok())
}

/// What the codec has made next; never, if there is none.
async fn made(codec: &mut Option<(Codec, mpsc::Receiver<Made>)>) -> Option<Made> {
    match codec {
        Some((_, made)) => made.recv().await,
        None => std::future::pending().await,
    }
}

/// A publisher that panicked has left the intake as it was before or after its frame.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
