//! Runs a camera broker: drives the state machine of `mez-core` with published frames, a link, codecs and a disk.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts a broker ([`CameraBroker::start`]) and recovers its log |
//! | `handle.rs` | what publishers call, on their own threads ([`CameraHandle`]) |
//! | `driver.rs` | the loop that owns the state machine |
//! | `renewals.rs` | asks the edge for the host's next certificate |
//! | `surveys.rs` | surveys the camera's own log for the edge |
//! | `shared.rs` | the only state that handle and loop share |

mod codecs;
mod driver;
mod failures;
mod handle;
mod renewals;
mod shared;
mod surveys;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

pub use mez_core::answers::{AnswerTimes, Answered};
pub use mez_core::broker::camera::SourceNews;
use mez_core::broker::camera::{CameraBroker as Broker, CameraConfig, HISTORY_SHARE};
use mez_core::broker::{Intake, IntakeConfig};
use mez_core::controller::named::PolicyName;
use mez_core::frame::FRAME_BYTES_MAX;
use mez_core::log::{LogConfig, LogWriter, log};
use mez_core::name::CameraName;
use mez_core::units::ClockAnchor;
pub use mez_core::wire::AnswerSkips;
use tokio::sync::{Notify, mpsc, watch};
use tracing::warn;

use self::driver::Driver;
pub use self::handle::CameraHandle;
use self::renewals::Link;
pub use self::shared::Reply;
use self::shared::Shared;
use crate::clock::{anchor, monotonic_now};
pub use crate::codec::H264Library;
use crate::decoders::Decoders;
use crate::degrade::StreamKnobs;
use crate::identity::Credentials;
use crate::identity::renew::keep;
use crate::identity::tls::TlsConfigError;
pub use crate::link::Transport;
use crate::link::{Dialler, EVENTS_MAX};
use crate::persist::{
    LogFiles, LogKeeper, LogKind, OpenLog, PersistError, PersistOptions, RECOVERY_TIME_MAX,
};
use crate::ports::EdgeAddress;
use crate::reading::PastSources;
use crate::revocation::{LiveRevocations, RevokedFile};
use crate::state::{self, CameraState, StateError};

/// The options of a camera broker.
#[derive(Clone, Debug)]
pub struct CameraOptions {
    /// The camera's name.
    pub camera: CameraName,
    /// The edges, in order of preference, all of one site. At least one, at most [`EDGES_MAX`]. The camera is connected to one
    /// at a time. If this edge is lost, the camera moves to the next; when a preferred edge is back, the camera returns to it.
    pub edges: Vec<EdgeAddress>,
    /// The identity of the camera host, with its keys.
    pub credentials: Credentials,
    /// The transport of the link. Default [`Transport::Auto`].
    pub transport: Transport,
    /// The policy that chooses the rungs of live frames. Default [`PolicyName::Quantile`].
    pub policy: PolicyName,
    /// The library that encodes H.264. Default openh264. A build with the feature `x264` also has x264.
    pub h264: H264Library,
    /// What decodes H.264. Default: the library.
    pub decoders: Decoders,
    /// The log's budget. Default 256 MiB.
    pub log: LogConfig,
    /// The largest payload that a publisher may send, in bytes. Default 32 MiB.
    pub frame_bytes_max: u32,
    /// The folder for state. Default as in [`crate::state`].
    pub state: Option<PathBuf>,
    /// How the log is also kept on disk. Default: in memory only.
    pub persist: Option<PersistOptions>,
    /// The share of the link's time that frames of the past may take beside live frames, 0.01 to 1. Default a quarter.
    pub history_share: f64,
    /// The knobs with which data records may be degraded, and what applies them. Default: none, so that records go as published.
    pub knobs: Option<Arc<StreamKnobs>>,
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
            decoders: Decoders::software(),
            log: LogConfig::default(),
            frame_bytes_max: FRAME_BYTES_MAX,
            state: None,
            persist: None,
            history_share: HISTORY_SHARE,
            knobs: None,
        }
    }
}

/// The most edges that a camera can have.
pub const EDGES_MAX: usize = 8;

/// Why a camera broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no edge, or too many.
    #[error("a camera broker needs 1 to {EDGES_MAX} edges, not {0}")]
    Edges(usize),
    /// The identity may not publish this camera.
    #[error(
        "the identity {identity} may not publish camera {camera}; make a token for an identity that may: mez keys token camera/{camera}"
    )]
    NotPermitted {
        /// The identity of the camera host.
        identity: String,
        /// The camera.
        camera: CameraName,
    },
    /// The camera's state, such as its epoch, cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The camera's certificate cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The log on disk cannot be opened.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The log on disk ends with an epoch that does not belong to this camera.
    #[error("the log of {camera} in {} does not belong to this camera: {source}; move the log away (`mez store` still reads it there)", folder.display())]
    LogEpoch {
        /// The camera.
        camera: CameraName,
        /// The folder of logs.
        folder: PathBuf,
        /// Why the epoch does not fit.
        source: StateError,
    },
}

/// Starts camera brokers. [`CameraHandle`] is a running one.
pub struct CameraBroker;

impl CameraBroker {
    /// Starts a broker on the current tokio runtime. It stops when the last handle is dropped.
    pub fn start(options: CameraOptions) -> Result<CameraHandle, StartError> {
        let CameraOptions { camera, edges, credentials, .. } = &options;
        check(camera, edges, credentials)?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let folder = state::folder(options.state.as_deref())?;
        let mut state = CameraState::open(&folder, camera)?;
        // A deny list that an edge brought is offered to other edges, also after a restart.
        let own_folder = state::camera_folder(&folder, camera);
        let revoked = RevokedFile::of(&own_folder, credentials);
        let revoked = LiveRevocations::kept(credentials, revoked);
        let dialler = Dialler::new(options.transport, credentials, revoked.clone(), events)?;

        let anchor = anchor();
        let (mut writer, reader) = log(options.log);
        let keeper = match &options.persist {
            Some(persist) => {
                let place = (state::camera_folder(&folder, camera), options.log.bytes_max);
                Some(recover_log(persist, camera, place, &mut state, &mut writer, anchor)?)
            }
            None => None,
        };
        let epoch = state.epoch();
        let intake = Intake::new(
            writer,
            IntakeConfig { frame_bytes_max: options.frame_bytes_max, ..IntakeConfig::new(epoch, anchor) },
        );
        let config = CameraConfig {
            camera: camera.clone(),
            epoch,
            anchor,
            software: concat!("mez ", env!("CARGO_PKG_VERSION")).into(),
            policy: options.policy,
            edges: edges.len(),
        };
        let mut broker = Broker::new(config, &reader, monotonic_now());
        broker.set_history_share(options.history_share);
        if let Some(knobs) = &options.knobs {
            broker.set_knobs(knobs.declared().clone());
        }
        let shared = Arc::new(Shared {
            camera: camera.clone(),
            frame_bytes_max: options.frame_bytes_max,
            intake: Mutex::new(intake),
            reader,
            decoders: options.decoders,
            appended: watch::Sender::new(0),
            source: watch::Sender::new(None),
            key_frames: watch::Sender::default(),
            history_share: watch::Sender::new(options.history_share),
            leaving: Notify::new(),
            over: watch::Sender::new(false),
            edge: watch::Sender::new(None),
            replies: Mutex::default(),
            replied: Notify::new(),
            answer_bound: watch::Sender::new(None),
            answers: Mutex::default(),
            answered: Notify::new(),
            accounted: watch::Sender::default(),
            keeper,
            places: options.persist.map(|persist| {
                let state_of = move |camera: &CameraName| state::camera_folder(&folder, camera);
                PastSources::new(Some((persist, Box::new(state_of))), None)
            }),
        });
        let (stop, stopped) = watch::channel(());
        let (link, asked) = Link::new(shared.edge.subscribe());
        tokio::spawn(keep(options.credentials, link));
        let driver = Driver::new(
            broker,
            Arc::clone(&shared),
            (options.h264, options.knobs),
            (state, anchor),
            (dialler, revoked),
            options.edges,
        );
        tokio::spawn(driver.run(receiver, shared.appended.subscribe(), asked, stopped));
        Ok(CameraHandle::new(shared, stop))
    }
}

/// Refuses options that no broker can run with.
fn check(camera: &CameraName, edges: &[EdgeAddress], credentials: &Credentials) -> Result<(), StartError> {
    if !(1..=EDGES_MAX).contains(&edges.len()) {
        return Err(StartError::Edges(edges.len()));
    }
    if !credentials.identity().permits_camera(camera) {
        return Err(StartError::NotPermitted {
            identity: credentials.identity().to_string(),
            camera: camera.clone(),
        });
    }
    Ok(())
}

/// Reads frames of earlier starts from the log on disk into memory, then starts to write the log.
fn recover_log(
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
        warn!(%camera, epoch = epoch.0, "the log on disk has a later start of this camera");
    }
    for record in recovery.records {
        if let Err(error) = writer.append(record.frame, record.skipped, record.arrived) {
            warn!(%camera, "a frame of the log on disk was not loaded into memory: {error}");
        }
    }
    let (camera, mut store) = log.writer(writer.reader().cursor_at_end());
    store.set_start(state.epoch(), anchor);
    let keeper = LogKeeper::start().map_err(PersistError::Thread)?;
    keeper.keep(camera, store);
    tokio::spawn(keeper.clone().watch(LogKind::Frames));
    Ok(keeper)
}
