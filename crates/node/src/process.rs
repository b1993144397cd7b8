//! Runs a whole broker with all its ports, as `mez edge` and `mez camera` do.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mez_core::audit::{Event, Kind, Rotation};
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::Channels;
use mez_core::rights::Rights;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::api::ApiLimits;
use crate::api::serve::{ApiServer, ServeError};
use crate::audit::folder::audit_folder;
use crate::audit::{Audit, AuditOptions, changes, denials};
use crate::camera::{CameraBroker, CameraHandle, CameraOptions, StartError};
use crate::client::{Address, ClientError, OtherEdge, signer_at};
use crate::clock::wall_now;
use crate::decoders::Decoders;
use crate::descriptors;
use crate::discovery::{Advert, Announcer, Network};
use crate::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError, Stopped};
use crate::identity::authority::AuthorityError;
use crate::identity::folder::AUTHORITY_KEY;
use crate::identity::renew::{keep, stay_accepted};
use crate::identity::{Credentials, EnrolmentServer, KeyFolder, Role, Signer};
use crate::persist::PersistOptions;
use crate::pictures::PictureService;
use crate::ports::bind_remedy;
use crate::revocation::{self, RevokedError, RevokedFile};
use crate::rights::{LiveRights, RightsError, RightsFile, follow};
use crate::web::{WebError, WebOptions, WebServer};

/// How an edge broker's process is set up.
#[derive(Clone, Debug)]
pub struct EdgeProcessOptions {
    /// The key folder. Enrolment is served if it contains the authority's key.
    pub keys: KeyFolder,
    /// The edge's identity, with its keys.
    pub credentials: Credentials,
    /// The address for camera brokers, UDP and TCP.
    pub listen: SocketAddr,
    /// The TCP address for applications on other hosts, if any.
    pub grpc: Option<SocketAddr>,
    /// The TCP address for enrolment, if any.
    pub enrol: Option<SocketAddr>,
    /// The Unix socket for applications on this host, if any.
    pub socket: Option<PathBuf>,
    /// The port for the page, health and metrics, if any.
    pub web: Option<WebOptions>,
    /// Where the edge is announced. Default: nowhere.
    pub announce: Option<Network>,
    /// The broker's own settings.
    pub config: EdgeConfig,
    /// The state folder. Default as in [`crate::state`].
    pub state: Option<PathBuf>,
    /// How to keep replica logs on disk. Default: in memory only.
    pub persist: Option<PersistOptions>,
    /// The folder of profiles that applications name. Default: `profiles` in the state folder.
    pub profiles: Option<PathBuf>,
    /// The edge that signs certificates. Default: this process, if the authority's key is in the key folder.
    pub signer: Option<Address>,
    /// The rights of applications and users. Default: those in the rights file of the key folder.
    pub rights: Option<Rights>,
    /// Limits of the audit log, which is in the state folder.
    pub audit: Rotation,
    /// Limits for applications.
    pub limits: ApiLimits,
    /// The decoders for stills.
    pub decoders: Decoders,
    /// The process that decodes for programs on this host.
    pub pictures: PictureService,
}

/// The settings of an edge that can change while it runs.
#[derive(Clone, Debug)]
pub struct EdgeChanges {
    /// Limits for applications. See [`ApiServer::set_limits`].
    pub limits: ApiLimits,
    /// The time after which an absent camera may be forgotten. `None`: never.
    pub forget_after: Option<Duration>,
    /// The channels that cameras share.
    pub channels: Channels,
    /// Whether shared pictures are made in a process beside the edge, if a command for it is configured.
    pub pictures_beside: bool,
}

/// Why an edge broker's process did not start.
#[derive(Debug, thiserror::Error)]
pub enum EdgeProcessError {
    /// The broker did not start, because of the link's port or the logs on disk.
    #[error(transparent)]
    Start(#[from] EdgeStartError),
    /// The port or socket for applications failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The rights could not be read.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The deny list could not be read.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
    /// The authority's key could not be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The thread that writes the audit log could not be started.
    #[error("cannot start the thread that writes the audit log: {0}")]
    AuditThread(#[source] std::io::Error),
    /// The port for the page, health and metrics failed.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The address of the signer is invalid.
    #[error(transparent)]
    Signer(#[from] ClientError),
    /// The enrolment port could not be opened.
    #[error(
        "cannot listen on {address} for enrolment: {source}; {}, or --enrol off",
        bind_remedy(source, "--enrol")
    )]
    Enrol {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// An edge broker with its listeners.
pub struct EdgeProcess {
    edge: EdgeHandle,
    pictures: PictureService,
    api: ApiServer,
    enrolment: Option<(SocketAddr, oneshot::Sender<()>, JoinHandle<()>)>,
    web: Option<WebServer>,
    announcer: Option<Announcer>,
    /// Tasks that renew the edge's certificate and exchange deny lists, until this is dropped.
    _keeping: JoinSet<()>,
}

impl EdgeProcess {
    /// Starts everything on the current tokio runtime.
    pub async fn start(options: EdgeProcessOptions) -> Result<Self, EdgeProcessError> {
        let EdgeProcessOptions {
            keys,
            credentials,
            listen,
            grpc,
            enrol,
            socket,
            web,
            announce,
            config,
            state,
            persist,
            profiles,
            signer,
            rights,
            audit,
            limits,
            decoders,
            pictures,
        } = options;
        descriptors::raise();
        let rights = match rights {
            Some(rights) => LiveRights::fixed(rights),
            None => follow(RightsFile::of(keys.path()))?,
        };
        let revoked = RevokedFile::of(keys.path(), &credentials);
        let revoked = revocation::follow(revoked, &credentials)?;
        // Without a home folder there is no state folder. Then facts about cameras are kept in memory only.
        let state = state.or_else(|| crate::state::folder(None).ok());
        let audit = open_audit(state.as_deref(), audit)?;
        let started = Event::new(wall_now(), Kind::Started, credentials.identity().short());
        audit.note(started.what(crate::api::SOFTWARE).why(changes::summary(&rights.now())));
        let edge = EdgeBroker::start(EdgeOptions {
            listen,
            credentials: credentials.clone(),
            config,
            state,
            persist,
            profiles,
            revoked: Some(revoked.clone()),
            audit: audit.clone(),
            decoders,
            pictures: pictures.clone(),
        })?;
        let keeping = keeping(&edge, &keys, &credentials, signer.as_ref())?;
        tokio::spawn(changes::follow(rights.clone(), audit.clone(), edge.stopping()));
        tokio::spawn(denials::follow(revoked, audit.clone(), edge.stopping()));
        info!(address = %edge.link_address(), edge = %credentials.identity(), "cameras may connect");
        let mut api = ApiServer::edge(edge.clone(), rights, limits);
        if let Some(path) = &socket {
            api.listen_unix(path)?;
        }
        if let Some(address) = grpc {
            api.listen_tls(address, &credentials, &[Role::App, Role::Edge]).await?;
        }
        let enrolment = match enrol {
            Some(address) if keys.holds_authority_key() => Some(enrolment(&keys, address, audit).await?),
            _ => None,
        };
        let web = match web {
            Some(web) => Some(WebServer::start(&api, &credentials, web).await?),
            None => None,
        };
        let announcer = announce.and_then(|network| {
            let enrol = enrolment.as_ref().map(|(address, ..)| *address);
            let ports = [api.listens().tls, enrol, web.as_ref().map(WebServer::address)];
            announce_at(network, &Advert::of(credentials.identity(), network, edge.link_address(), ports))
        });
        Ok(Self { edge, pictures, api, enrolment, web, announcer, _keeping: keeping })
    }

    /// The broker.
    pub fn edge(&self) -> &EdgeHandle {
        &self.edge
    }

    /// The address of the page, health and metrics.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().map(WebServer::address)
    }

    /// The address for applications on other hosts.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.api.listens().tls
    }

    /// Applies changed settings. Connections and streams continue.
    ///
    /// # Errors
    /// The broker has stopped.
    pub async fn change(&self, changes: EdgeChanges) -> Result<(), Stopped> {
        self.api.set_limits(changes.limits);
        self.pictures.set_on(changes.pictures_beside);
        self.edge.change(changes.forget_after, changes.channels).await
    }

    /// Stops the broker, and notifies applications and cameras.
    pub async fn stop(self) {
        // First, so that no new client comes.
        if let Some(announcer) = self.announcer {
            announcer.stop().await;
        }
        if let Some((_, stop, serving)) = self.enrolment {
            let _ = stop.send(());
            serving.abort();
        }
        self.api.stop().await;
        if let Some(web) = self.web {
            web.stop().await;
        }
        self.edge.stop().await;
    }
}

impl fmt::Display for EdgeProcess {
    /// `link=[::]:7650 grpc=[::]:7651 enrol=[::]:7652 web=127.0.0.1:7653 socket=/run/mez/edge.sock`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link={}", self.edge.link_address())?;
        if let Some(address) = self.grpc_address() {
            write!(f, " grpc={address}")?;
        }
        if let Some((address, ..)) = &self.enrolment {
            write!(f, " enrol={address}")?;
        }
        if let Some(web) = &self.web {
            write!(f, " web={}", web.address())?;
        }
        if let Some(path) = &self.api.listens().socket {
            write!(f, " socket={}", path.display())?;
        }
        Ok(())
    }
}

/// Announces an edge. Without announcement, the edge serves clients that know its address.
fn announce_at(network: Network, advert: &Advert) -> Option<Announcer> {
    Announcer::start(network, advert).inspect_err(|error| warn!("{error}")).ok()
}

/// Tasks that renew the edge's certificate, and that exchange deny lists with the edge of the signer.
fn keeping(
    edge: &EdgeHandle,
    keys: &KeyFolder,
    credentials: &Credentials,
    elsewhere: Option<&Address>,
) -> Result<JoinSet<()>, EdgeProcessError> {
    let (mut tasks, revoked) = (JoinSet::new(), edge.revoked());
    if let Some(address) = elsewhere
        && let Some(other) = OtherEdge::at(address, credentials)?
    {
        tasks.spawn(other.exchange(revoked.clone()));
    }
    let signer = signer_of(keys, elsewhere, credentials)?;
    if let Some(signer) = &signer {
        edge.set_signer(signer.clone());
        tasks.spawn(keep(credentials.clone(), signer.clone()));
    }
    // If another process signs, this process must not use the key.
    let keys = if elsewhere.is_some() { keys.clone().without_authority_key() } else { keys.clone() };
    tasks.spawn(stay_accepted(keys, credentials.clone(), revoked.clone(), signer));
    Ok(tasks)
}

/// The signer of renewed certificates, if there is one.
fn signer_of(
    keys: &KeyFolder,
    elsewhere: Option<&Address>,
    credentials: &Credentials,
) -> Result<Option<Signer>, EdgeProcessError> {
    let Some(address) = elsewhere else {
        return Ok(if keys.holds_authority_key() { Some(Signer::of(keys)?) } else { None });
    };
    let key = keys.path().join(AUTHORITY_KEY);
    if key.exists() {
        warn!(
            key = %key.display(),
            "the authority's key is in this edge's folder of keys, although another process signs: an attacker who breaks into the edge could read \
             it; give the edge its own folder of keys"
        );
    }
    Ok(Some(signer_at(address, credentials)?))
}

/// The audit log in the state folder. Off if there is no state folder.
fn open_audit(state: Option<&Path>, rotation: Rotation) -> Result<Audit, EdgeProcessError> {
    let Some(state) = state else {
        warn!(
            "there is no folder for state, so no audit log is kept: give a folder with --state or MEZ_STATE"
        );
        return Ok(Audit::off());
    };
    Audit::start(AuditOptions { folder: audit_folder(state), rotation })
        .map_err(EdgeProcessError::AuditThread)
}

async fn enrolment(
    keys: &KeyFolder,
    address: SocketAddr,
    audit: Audit,
) -> Result<(SocketAddr, oneshot::Sender<()>, JoinHandle<()>), EdgeProcessError> {
    let server = EnrolmentServer::new(keys)?.recorded(audit);
    let bind = |source| EdgeProcessError::Enrol { address, source };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    info!(%address, "devices with a token may enrol");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(listener, async {
        let _ = stopped.await;
    }));
    Ok((address, stop, serving))
}

/// How a camera broker's process is set up.
#[derive(Clone, Debug)]
pub struct CameraProcessOptions {
    /// The settings of the broker.
    pub camera: CameraOptions,
    /// The Unix socket for publishers on this host, if any.
    pub socket: Option<PathBuf>,
    /// Limits for programs on this host.
    pub limits: ApiLimits,
}

/// Why a camera broker's process did not start.
#[derive(Debug, thiserror::Error)]
pub enum CameraProcessError {
    /// The broker did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The socket for publishers failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// A camera broker with its listeners.
pub struct CameraProcess {
    camera: CameraHandle,
    api: ApiServer,
}

impl CameraProcess {
    /// Starts everything on the current tokio runtime.
    pub async fn start(options: CameraProcessOptions) -> Result<Self, CameraProcessError> {
        let camera = CameraBroker::start(options.camera)?;
        let mut api = ApiServer::camera(camera.clone(), options.limits);
        if let Some(path) = &options.socket {
            api.listen_unix(path)?;
        }
        Ok(Self { camera, api })
    }

    /// The broker.
    pub fn camera(&self) -> &CameraHandle {
        &self.camera
    }

    /// Applies changed settings: limits ([`ApiServer::set_limits`]), and the share
    /// of the link's time for frames of the past. Connections and streams continue.
    pub fn change(&self, limits: ApiLimits, history_share: f64) {
        self.api.set_limits(limits);
        self.camera.set_history_share(history_share);
    }

    /// Stops the broker, notifies publishers and the edge, and completes the log on disk.
    pub async fn stop(self) {
        self.api.stop().await;
        let camera = self.camera;
        let _ = tokio::task::spawn_blocking(move || camera.finish_log()).await;
    }
}

impl fmt::Display for CameraProcess {
    /// `camera=dock/cam1 socket=/run/mez/camera.sock`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "camera={}", self.camera.name())?;
        if let Some(path) = &self.api.listens().socket {
            write!(f, " socket={}", path.display())?;
        }
        Ok(())
    }
}
