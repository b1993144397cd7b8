//! What is examined: this host's part in a site, its keys, the edges that it uses, its folders.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::Verb;
use mez_node::api::socket::{self, default_path};
use mez_node::client::{Address, Which};
use mez_node::identity::folder::{CredentialsError, KeyFolderError};
use mez_node::identity::{Credentials, KeyFolder, Name, Role};
use mez_node::ports::{self, EdgeAddress};

use crate::edge::{Port, every_address};
use crate::failure::Failure;

/// What this host is in its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Side {
    /// An edge broker runs here
    Edge,
    /// A camera broker or a publisher runs here
    Camera,
    /// An application runs here
    App,
}

/// What this host is for, as the other commands are told it.
#[derive(Debug, Args)]
pub(super) struct SubjectArgs {
    /// What this host is; may be repeated [default: what its keys are for; with --camera a camera's host, with --watch and the like an application's]
    #[arg(long = "as", value_name = "SIDE", value_enum)]
    sides: Vec<Side>,
    /// The edge: a host name, an address, or unix:///PATH; several as in the other commands [default: the Unix socket of the edge on this host]
    #[arg(long, value_name = "EDGE", env = "MEZ_EDGE", value_delimiter = ',')]
    edge: Vec<String>,
    /// Folder with the keys of this host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// The camera that this host publishes [default: an identity of this host]
    #[arg(long, value_name = "NAME")]
    camera: Option<CameraName>,
    /// The source of frames, as in `mez camera --source`
    #[arg(long, value_name = "SOURCE", env = "MEZ_SOURCE", hide_env_values = true)]
    source: Option<String>,
    /// Cameras that the application watches, such as 'dock/*'
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    watch: Vec<CameraPattern>,
    /// Cameras whose past it reads
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    read: Vec<CameraPattern>,
    /// Cameras whose originals it has fetched
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    originals: Vec<CameraPattern>,
    /// Cameras that it sends results back to
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    reply: Vec<CameraPattern>,
    /// Cameras that it lists
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    observe: Vec<CameraPattern>,
    /// Address and port of the link, as in `mez edge --listen`
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = every_address(ports::LINK), env = "MEZ_EDGE_LISTEN")]
    listen: SocketAddr,
    /// Address and port of gRPC, as in `mez edge --grpc`
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::GRPC)), env = "MEZ_EDGE_GRPC")]
    grpc: Port,
    /// Address and port of enrolment, as in `mez edge --enrol`
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::ENROL)), env = "MEZ_EDGE_ENROL")]
    enrol: Port,
    /// Unix socket of the edge on this host, as in `mez edge --socket`
    #[arg(long, value_name = "PATH", default_value_os_t = default_path(Which::Edge), env = "MEZ_EDGE_SOCKET")]
    socket: PathBuf,
    /// Folder of a store, as in `mez edge --store` and `mez camera --store`
    #[arg(long, value_name = "DIR", env = "MEZ_STORE")]
    store: Option<PathBuf>,
    /// File with the store's keys [default: as in `mez edge`]
    #[arg(long, value_name = "FILE", requires = "store")]
    store_key: Option<PathBuf>,
    /// Folder for state [default: $MEZ_STATE, /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Ports that the edge of this host opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) listen: SocketAddr,
    pub(super) grpc: Option<SocketAddr>,
    pub(super) enrol: Option<SocketAddr>,
}

/// What is examined. It is settled before the first check, so that all look at the same.
pub(super) struct Subject {
    pub(super) now: SystemTime,
    pub(super) sides: BTreeSet<Side>,
    pub(super) keys: Result<KeyFolder, KeyFolderError>,
    /// The credentials of each role that this host needs, or why there are none.
    pub(super) credentials: Vec<(Role, Result<Credentials, CredentialsError>)>,
    /// The camera that it publishes.
    pub(super) camera: Option<CameraName>,
    pub(super) source: Option<String>,
    /// What its applications would do.
    pub(super) wanted: Vec<(Verb, CameraPattern)>,
    /// Where its cameras dial.
    pub(super) links: Vec<EdgeAddress>,
    /// Where its applications dial.
    pub(super) edges: Vec<Address>,
    pub(super) ports: Ports,
    /// The socket of this host's edge.
    pub(super) socket: PathBuf,
    pub(super) store: Option<PathBuf>,
    pub(super) store_key: Option<PathBuf>,
    pub(super) state: Option<PathBuf>,
    /// The folder of keys that was given.
    pub(super) keys_given: Option<PathBuf>,
}

impl Subject {
    pub(super) fn of(args: SubjectArgs) -> Result<Self, Failure> {
        let keys = KeyFolder::find(args.keys.as_deref());
        let wanted = args.wanted();
        let sides = args.sides(keys.as_ref().ok(), !wanted.is_empty());
        let camera = args.camera.clone().or_else(|| first_camera(keys.as_ref().ok()?));
        let (links, edges) = args.addresses(&sides)?;
        let mut subject = Self {
            now: SystemTime::now(),
            sides,
            keys,
            credentials: Vec::new(),
            camera,
            source: args.source,
            wanted,
            links,
            edges,
            ports: Ports { listen: args.listen, grpc: args.grpc.address(), enrol: args.enrol.address() },
            socket: args.socket,
            store: args.store,
            store_key: args.store_key,
            state: args.state,
            keys_given: args.keys,
        };
        subject.credentials = subject.find_credentials();
        Ok(subject)
    }

    pub(super) fn is(&self, side: Side) -> bool {
        self.sides.contains(&side)
    }

    /// The credentials of a role, if there are any that can be used.
    pub(super) fn usable(&self, role: Role) -> Option<&Credentials> {
        self.credentials.iter().find(|(known, _)| *known == role)?.1.as_ref().ok()
    }

    /// Whether anything here has to prove who it is.
    pub(super) fn needs_keys(&self) -> bool {
        let is_remote = self.edges.iter().any(|edge| edge.as_unix().is_none());
        self.is(Side::Edge) || self.is(Side::Camera) || is_remote
    }

    fn find_credentials(&self) -> Vec<(Role, Result<Credentials, CredentialsError>)> {
        let Ok(keys) = &self.keys else { return Vec::new() };
        let is_remote = self.edges.iter().any(|edge| edge.as_unix().is_none());
        let mut found = Vec::new();
        if self.is(Side::Edge) {
            found.push((Role::Edge, keys.credentials(Role::Edge, None)));
        }
        if self.is(Side::Camera) {
            let name = self.camera.clone().map(Name::from);
            found.push((Role::Camera, keys.credentials(Role::Camera, name.as_ref())));
        }
        if self.is(Side::App) && is_remote {
            found.push((Role::App, keys.credentials(Role::App, None)));
        }
        found
    }
}

impl SubjectArgs {
    fn wanted(&self) -> Vec<(Verb, CameraPattern)> {
        let of = |verb, patterns: &[CameraPattern]| {
            patterns.iter().map(|pattern| (verb, pattern.clone())).collect::<Vec<_>>()
        };
        [
            of(Verb::Watch, &self.watch),
            of(Verb::Read, &self.read),
            of(Verb::Originals, &self.originals),
            of(Verb::Reply, &self.reply),
            of(Verb::Observe, &self.observe),
        ]
        .concat()
    }

    /// What this host is: as it was told, as its other arguments say, as its keys say.
    fn sides(&self, keys: Option<&KeyFolder>, wants: bool) -> BTreeSet<Side> {
        let mut sides: BTreeSet<Side> = self.sides.iter().copied().collect();
        if !sides.is_empty() {
            return sides;
        }
        sides.extend(self.camera.is_some().then_some(Side::Camera));
        sides.extend(wants.then_some(Side::App));
        if !sides.is_empty() {
            return sides;
        }
        if keys.is_some_and(KeyFolder::holds_authority_key) {
            return BTreeSet::from([Side::Edge]);
        }
        let files = keys.and_then(|keys| keys.identity_files().ok()).unwrap_or_default();
        sides.extend(files.iter().filter_map(|file| file.identity.as_ref()).map(
            |identity| match identity.role {
                Role::Edge => Side::Edge,
                Role::Camera => Side::Camera,
                Role::App => Side::App,
            },
        ));
        // Somebody without keys wants to get in.
        if sides.is_empty() { BTreeSet::from([Side::App]) } else { sides }
    }

    /// Where cameras of this host dial, and where its applications do.
    fn addresses(&self, sides: &BTreeSet<Side>) -> Result<(Vec<EdgeAddress>, Vec<Address>), Failure> {
        let (camera, app) = (sides.contains(&Side::Camera), sides.contains(&Side::App));
        let (mut links, mut edges) = (Vec::new(), Vec::new());
        for text in &self.edge {
            let address = Address::parse(text, Which::Edge)?;
            if let (true, Address::Tcp { host, port }) = (camera, &address) {
                let link =
                    EdgeAddress::parse(text).ok_or_else(|| Failure::text("write HOST or HOST:PORT"))?;
                if app && link.port == *port {
                    return Err(Failure::text(format!(
                        "{text} is the edge's port either for cameras or for applications: say which with --as camera or --as app, \
                         or give {host} alone"
                    )));
                }
                links.push(link);
            }
            if app {
                edges.push(address);
            }
        }
        if sides.contains(&Side::Edge) {
            edges.push(Address::Unix(self.socket.clone()));
        } else if app && edges.is_empty() {
            edges.push(Address::Unix(socket::find(Which::Edge)));
        }
        Ok((links, edges))
    }
}

/// The camera that an identity of this host is made out for.
fn first_camera(keys: &KeyFolder) -> Option<CameraName> {
    let files = keys.identity_files().ok()?;
    let cameras = files.into_iter().filter_map(|file| file.identity);
    cameras
        .filter(|identity| identity.role == Role::Camera)
        .map(|identity| identity.name.as_camera().clone())
        .next()
}
