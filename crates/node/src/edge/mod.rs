//! Runs an edge broker: drives the state machine of `mez-core` between the link and the applications.
//!
//! [`EdgeBroker::start`] returns an [`EdgeHandle`]. The loop in `Driver::run` serves the link. Each application reads the replica logs on a
//! task of its own, through an [`EdgeSubscription`], so no application delays another.

mod accounts;
mod certificates;
mod derived;
mod driver;
mod failure;
mod forget;
mod groups;
mod handle;
mod look;
pub(crate) mod renewals;
mod replies;
pub(crate) mod request;
mod reset;
mod revoked;
mod sources;
mod standing;
mod starts;
mod subscribers;
mod subscription;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mez_core::broker::edge::{EdgeBroker as Broker, EdgeConfig};
use mez_core::name::CameraName;
use tokio::sync::{mpsc, watch};

use self::accounts::Accounts;
pub(crate) use self::accounts::{AGE_BOUNDS, AccountNow, AgesSeen, GivenNow, Totals};
pub use self::derived::{DeriveFailure, DerivedFailure, DerivedPublisher};
use self::driver::Driver;
pub use self::failure::{AnswerFailure, ReplyFailure, Stopped};
pub use self::forget::{ForgetFailure, ForgetReport};
pub(crate) use self::groups::MemberReports;
use self::groups::{EdgeGroups, Journals, Tools};
pub use self::groups::{
    ForgetGroupFailure, GroupMember, GroupReport, GroupStanding, JoinFailure, Joining, SettledRecords,
    Settlement, Settlements,
};
pub use self::handle::EdgeHandle;
pub(crate) use self::look::{CameraLook, NewestFrame};
use self::renewals::Renewals;
use self::replies::LastReplies;
pub(crate) use self::replies::LastReply;
use self::request::Cameras;
pub use self::reset::{ResetFailure, ResetReport};
pub use self::standing::Standing;
use self::starts::Starts;
pub use self::starts::{CameraRecord, CameraReset, CameraStart, RESETS_MAX, STARTS_MAX};
pub use self::subscription::{EdgeSubscription, Served};
use crate::audit::Audit;
use crate::clock::monotonic_now;
use crate::decoders::Decoders;
pub use crate::derived::BeginError;
use crate::derived::DerivedStates;
use crate::identity::Credentials;
pub use crate::link::ListenError;
use crate::link::{EVENTS_MAX, Listener, listen};
use crate::persist::replicas::Replicas;
use crate::persist::{PersistError, PersistOptions};
use crate::pictures::PictureService;
use crate::profiles::ProfileStore;
use crate::reading::PastSources;
use crate::revocation::LiveRevocations;
use crate::state::{self, StateError, edge_folder};
use crate::stills::Helpers;

/// The length of the queue of requests to the loop. Senders wait if it is full, which is never for long.
const REQUESTS_MAX: usize = 64;

/// How an edge broker is set up.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// The UDP address for camera brokers. Default `[::]` with port [`crate::ports::LINK`].
    pub listen: SocketAddr,
    /// The identity of the edge, with its keys.
    pub credentials: Credentials,
    /// The broker's own settings.
    pub config: EdgeConfig,
    /// The folder for state. Default as in [`crate::state`] for logs on disk and profiles; the starts of cameras are then remembered in memory only.
    pub state: Option<PathBuf>,
    /// How replica logs are also kept on disk. Default: in memory only.
    pub persist: Option<PersistOptions>,
    /// The folder of profiles that applications name. Default: `profiles` in the folder for state.
    pub profiles: Option<PathBuf>,
    /// The deny list. Default: empty until a camera brings a list.
    pub revoked: Option<LiveRevocations>,
    /// The audit log: who joined, was refused, read the past and so on. Default: none.
    pub audit: Audit,
    /// What decodes H.264 for stills. Default: the library.
    pub decoders: Decoders,
    /// What decodes for programs on this host that share pictures. Default: this process.
    pub pictures: PictureService,
}

impl EdgeOptions {
    /// The defaults: logs in memory only.
    pub fn new(listen: SocketAddr, credentials: Credentials, config: EdgeConfig) -> Self {
        Self {
            listen,
            credentials,
            config,
            state: None,
            persist: None,
            profiles: None,
            revoked: None,
            audit: Audit::off(),
            decoders: Decoders::software(),
            pictures: PictureService::off(),
        }
    }
}

/// Why an edge broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeStartError {
    /// The link's port could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The folder for state is not known.
    #[error(transparent)]
    State(#[from] StateError),
    /// The logs on disk could not be opened.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The places of groups of readers could not be read.
    #[error("cannot read the positions of groups in the folder of logs: {0}")]
    Groups(#[source] std::io::Error),
    /// The thread that records starts of cameras could not be started.
    #[error("cannot start the thread that records starts of cameras: {0}")]
    Thread(#[source] std::io::Error),
}

/// Starts edge brokers.
pub struct EdgeBroker;

impl EdgeBroker {
    /// Opens the link's port and starts a broker on the current tokio runtime. The broker stops with
    /// [`EdgeHandle::stop`], or when the last handle is dropped.
    pub fn start(options: EdgeOptions) -> Result<EdgeHandle, EdgeStartError> {
        let (events, event_receiver) = mpsc::channel(EVENTS_MAX);
        let derived = DerivedStates::new(state_of_streams(&options)?);
        let revoked = options.revoked.unwrap_or_else(|| LiveRevocations::in_memory(&options.credentials));
        let audit = options.audit;
        let listener = listen(options.listen, &options.credentials, (&revoked, audit.clone()), events)?;
        let address = address_of(&listener, options.listen)?;
        let (requests, request_receiver) = mpsc::channel(REQUESTS_MAX);
        let frame_bytes_max = options.config.frame_bytes_max;
        let mut broker = Broker::new(options.config);
        let starts = Starts::begin(options.state.clone()).map_err(EdgeStartError::Thread)?;
        broker.handle_started(monotonic_now());
        let asks = requests.downgrade();
        let logs = options.persist.as_ref().map(|persist| persist.folder.clone());
        let clips =
            options.persist.is_some().then(|| folder_of_clips(options.state.as_deref())).transpose()?;
        let (replicas, places) = match options.persist {
            Some(persist) => {
                let state = state::folder(options.state.as_deref())?;
                let replicas = Replicas::take_up(persist.clone(), state.clone(), &mut broker)?;
                let state_of = move |camera: &CameraName| edge_folder(&state, camera);
                (Some(replicas), PastSources::new(Some((persist, Box::new(state_of))), Some(Cameras(asks))))
            }
            None => (None, PastSources::new(None, Some(Cameras(asks)))),
        };
        // From here on this process is the only writer in the folder of logs.
        let journals = logs.map(|logs| Journals::start(&logs)).transpose().map_err(EdgeStartError::Groups)?;
        let (journals, on_disk) =
            journals.map_or_else(Default::default, |(journals, on_disk)| (Some(journals), on_disk));
        let profiles = options.profiles.unwrap_or_else(|| profiles_in(options.state.as_deref()));
        let keeper = replicas.as_ref().map(Replicas::keeper);
        let notes = replicas.as_ref().and_then(Replicas::notes);
        let renewals = Renewals::new(audit.clone());
        let driver = Driver::new(
            broker,
            (replicas, notes.clone()),
            requests.downgrade(),
            (starts.clone(), derived.clone(), audit.clone()),
            (revoked.clone(), renewals.clone()),
            Helpers { decoders: options.decoders, pictures: options.pictures },
        );
        let (stop, stopped) = watch::channel(false);
        let (next_subscription, standings, accounts) = (Arc::default(), Arc::default(), Accounts::default());
        let tools = Tools {
            requests: requests.downgrade(),
            next_subscription: Arc::clone(&next_subscription),
            places: Arc::clone(&places),
            standings: Arc::clone(&standings),
            accounts: accounts.clone(),
            journals,
            stop: stopped.clone(),
        };
        tokio::spawn(driver.run(listener, event_receiver, request_receiver, stopped));
        Ok(EdgeHandle {
            requests,
            address,
            site: options.credentials.identity().site.clone(),
            frame_bytes_max,
            next_subscription,
            next_publisher: Arc::default(),
            clips,
            derived,
            stop: Arc::new(stop),
            keeper,
            notes,
            starts,
            revoked,
            renewals,
            places,
            profiles: Arc::new(ProfileStore::new(profiles)),
            standings,
            accounts,
            replies: LastReplies::default(),
            audit,
            groups: EdgeGroups::new(tools, on_disk),
        })
    }
}

fn address_of(listener: &Listener, listen: SocketAddr) -> Result<SocketAddr, ListenError> {
    listener.address().map_err(|source| ListenError::Bind { protocol: "UDP", address: listen, source })
}

/// The folder in which clips are made, in the edge's state.
fn folder_of_clips(state: Option<&Path>) -> Result<PathBuf, StateError> {
    Ok(clips_in(&state::folder(state)?))
}

/// The folder that remembers the epochs of derived streams. `None`: in memory only.
fn state_of_streams(options: &EdgeOptions) -> Result<Option<PathBuf>, StateError> {
    match (&options.state, &options.persist) {
        (Some(state), _) => Ok(Some(state.clone())),
        // An epoch of a log on disk must not come twice.
        (None, Some(_)) => state::folder(None).map(Some),
        (None, None) => Ok(None),
    }
}

/// The folder in which clips are made. Removes what a killed edge has left there, because clips are not encrypted.
fn clips_in(state: &Path) -> PathBuf {
    // No camera name contains an `@`.
    let folder = state.join("edge").join("@clips");
    if let Err(error) = std::fs::remove_dir_all(&folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(
            "{} cannot be emptied, and may hold frames of clips; remove this folder: {error}",
            folder.display()
        );
    }
    folder
}

/// The folder of profiles in the folder for state. Without a home folder there is none, and no profile name is known.
fn profiles_in(state: Option<&Path>) -> PathBuf {
    state::folder(state).map_or_else(|_| PathBuf::new(), |state| state.join("profiles"))
}

/// Locks a mutex even if another thread panicked: each statement leaves the protected value consistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_removes_the_clips_of_an_edge_that_was_killed() {
        let state = tempfile::tempdir().unwrap();
        let clips = clips_in(state.path());
        std::fs::create_dir_all(clips.join("clip-1")).unwrap();
        std::fs::write(clips.join("clip-1/clip.mp4"), "frames").unwrap();
        assert_eq!(clips_in(state.path()), clips);
        assert!(!clips.exists());
    }
}
