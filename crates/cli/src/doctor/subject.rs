//! What `mez doctor` examines: this host's role in a site, its keys, its edges, its folders.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::rights::Verb;
use mez_node::api::socket::{self, default_path};
use mez_node::client::{Address, Which};
use mez_node::identity::folder::{CredentialsError, KeyFolderError};
use mez_node::identity::{Credentials, KeyFolder, Name, Role};
use mez_node::ports::{self, EdgeAddress};

use super::settings::Settings;
use crate::config::Role as SettingsRole;
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

impl Side {
    pub(super) const ALL: [Self; 3] = [Self::Edge, Self::Camera, Self::App];

    /// The role whose settings this side uses.
    pub(super) fn role(self) -> SettingsRole {
        match self {
            Self::Edge => SettingsRole::Edge,
            Self::Camera => SettingsRole::Camera,
            Self::App => SettingsRole::App,
        }
    }
}

/// What this host is for, as the other commands are told it.
#[derive(Debug, Args)]
pub(super) struct SubjectArgs {
    /// The role of this host; may be repeated [default: the roles of its keys and files of settings; with --camera, camera; with --watch, --read and so on, app]
    #[arg(long = "as", value_name = "SIDE", value_enum)]
    sides: Vec<Side>,
    /// File of settings of a broker or of applications, or `off` for none [default: edge.toml, camera.toml and app.toml in ~/.config/mez, else in /etc/mez]
    #[arg(long, value_name = "FILE|off")]
    pub(super) config: Option<PathBuf>,
    /// The edge: a host name, an address, or unix:///PATH; several edges as in other commands [default: as in other commands]
    #[arg(long, value_name = "EDGE", env = "MEZ_EDGE", value_delimiter = ',')]
    edge: Vec<String>,
    /// Folder with the keys of this host [default: as in the other commands]
    #[arg(long, value_name = "DIR", env = "MEZ_KEYS")]
    keys: Option<PathBuf>,
    /// The camera that this host publishes [default: as in `mez camera`, else the identity of this host]
    #[arg(long, value_name = "NAME", env = "MEZ_CAMERA")]
    camera: Option<CameraName>,
    /// The source of frames, as in `mez camera --source`
    #[arg(long, value_name = "SOURCE", env = "MEZ_SOURCE", hide_env_values = true)]
    source: Option<String>,
    /// Check that the application may watch these cameras, such as 'dock/*'
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    watch: Vec<CameraPattern>,
    /// Check that it may read the past of these cameras
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    read: Vec<CameraPattern>,
    /// Check that it may get originals of these cameras
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    originals: Vec<CameraPattern>,
    /// Check that it may send results to these cameras
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    reply: Vec<CameraPattern>,
    /// Check that it may list these cameras
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    observe: Vec<CameraPattern>,
    /// Check that it may write frames of these cameras into files
    #[arg(long, value_name = "CAMERA", value_delimiter = ',')]
    export: Vec<CameraPattern>,
    /// Address and port of the link [default: as in `mez edge`]
    #[arg(long, value_name = "ADDRESS:PORT", env = "MEZ_EDGE_LISTEN")]
    listen: Option<SocketAddr>,
    /// Address and port of gRPC [default: as in `mez edge`]
    #[arg(long, value_name = "ADDRESS:PORT|off", env = "MEZ_EDGE_GRPC")]
    grpc: Option<Port>,
    /// Address and port of enrolment [default: as in `mez edge`]
    #[arg(long, value_name = "ADDRESS:PORT|off", env = "MEZ_EDGE_ENROL")]
    enrol: Option<Port>,
    /// Unix socket of the edge on this host [default: as in `mez edge`]
    #[arg(long, value_name = "PATH", env = "MEZ_EDGE_SOCKET")]
    socket: Option<PathBuf>,
    /// Folder of a store [default: as in `mez edge` and `mez camera`]
    #[arg(long, value_name = "DIR", env = "MEZ_STORE")]
    store: Option<PathBuf>,
    /// File with the store's keys [default: as in `mez edge` and `mez camera`]
    #[arg(long, value_name = "FILE", env = "MEZ_STORE_KEY_FILE")]
    store_key: Option<PathBuf>,
    /// Folder for state [default: as in `mez edge` and `mez camera`]
    #[arg(long, value_name = "DIR", env = "MEZ_STATE")]
    state: Option<PathBuf>,
}

/// A store of a broker on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) folder: PathBuf,
    /// The key file, if it is set.
    pub(super) key: Option<PathBuf>,
}

/// Ports of this host's edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) listen: SocketAddr,
    pub(super) grpc: Option<SocketAddr>,
    pub(super) enrol: Option<SocketAddr>,
}

/// What is examined. Determined before the first check, so that all checks agree.
pub(super) struct Subject {
    pub(super) now: SystemTime,
    pub(super) sides: BTreeSet<Side>,
    pub(super) settings: Settings,
    pub(super) keys: Result<KeyFolder, KeyFolderError>,
    /// The credentials of each role that this host needs, or the error.
    pub(super) credentials: Vec<(Role, Result<Credentials, CredentialsError>)>,
    /// The camera that this host publishes.
    pub(super) camera: Option<CameraName>,
    pub(super) source: Option<String>,
    /// What applications of this host need.
    pub(super) wanted: Vec<(Verb, CameraPattern)>,
    /// The edges of this host's cameras.
    pub(super) links: Vec<EdgeAddress>,
    /// The edges of this host's applications.
    pub(super) edges: Vec<Address>,
    pub(super) ports: Ports,
    /// The socket of this host's edge.
    pub(super) socket: PathBuf,
    pub(super) stores: Vec<Store>,
    /// The key folder that is set, here or in the settings.
    pub(super) keys_given: Option<PathBuf>,
}

impl Subject {
    pub(super) fn of(args: SubjectArgs) -> Result<Self, Failure> {
        let settings = Settings::of(&args);
        let told = if args.sides.is_empty() { &Side::ALL[..] } else { &args.sides };
        let keys_given = told.iter().find_map(|side| settings.path(*side, "keys"));
        let keys = KeyFolder::find(keys_given.as_deref());
        let wanted = args.wanted();
        let sides = args.sides(keys.as_ref().ok(), !wanted.is_empty(), &settings);
        let camera = settings.value(Side::Camera, "camera").or_else(|| first_camera(keys.as_ref().ok()?));
        let socket = settings.path(Side::Edge, "socket").unwrap_or_else(|| default_path(Which::Edge));
        let (links, edges) = addresses(&sides, &settings, &socket)?;
        let mut subject = Self {
            now: SystemTime::now(),
            keys,
            credentials: Vec::new(),
            camera,
            source: settings.value(Side::Camera, "source"),
            wanted,
            links,
            edges,
            ports: Ports::of(&settings),
            socket,
            stores: args.stores(&sides, &settings),
            keys_given,
            sides,
            settings,
        };
        subject.credentials = subject.find_credentials();
        Ok(subject)
    }

    /// The state folder that is set for the broker of a side.
    pub(super) fn state(&self, side: Side) -> Option<PathBuf> {
        self.settings.path(side, "state")
    }

    pub(super) fn is(&self, side: Side) -> bool {
        self.sides.contains(&side)
    }

    /// The valid credentials of a role.
    pub(super) fn usable(&self, role: Role) -> Option<&Credentials> {
        self.credentials.iter().find(|(known, _)| *known == role)?.1.as_ref().ok()
    }

    /// Whether anything on this host needs an identity.
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

impl Ports {
    fn of(settings: &Settings) -> Self {
        let port = |key, default| {
            let port = settings.value(Side::Edge, key).unwrap_or(Port::On(every_address(default)));
            port.address()
        };
        Self {
            listen: settings.value(Side::Edge, "listen").unwrap_or_else(|| every_address(ports::LINK)),
            grpc: port("grpc", ports::GRPC),
            enrol: port("enrol", ports::ENROL),
        }
    }
}

impl SubjectArgs {
    /// The options of this command, by the names of the role's own arguments.
    pub(super) fn given(&self, role: SettingsRole) -> Vec<(&'static str, Vec<OsString>)> {
        let path = |path: &Option<PathBuf>| path.iter().map(OsString::from).collect::<Vec<_>>();
        let text = |text: Option<String>| text.into_iter().map(OsString::from).collect::<Vec<_>>();
        let shown = |port: Option<Port>| text(port.map(|port| port.to_string()));
        let edges = |is_wanted: fn(&str) -> bool| {
            let edges = self.edge.iter().filter(|edge| is_wanted(edge));
            edges.map(OsString::from).collect::<Vec<_>>()
        };
        let mut given = vec![("keys", path(&self.keys))];
        if role != SettingsRole::App {
            let folders = [("state", &self.state), ("store", &self.store), ("store_key", &self.store_key)];
            given.extend(folders.map(|(key, folder)| (key, path(folder))));
        }
        given.extend(match role {
            SettingsRole::Edge => vec![
                ("listen", text(self.listen.map(|address| address.to_string()))),
                ("grpc", shown(self.grpc)),
                ("enrol", shown(self.enrol)),
                ("socket", path(&self.socket)),
            ],
            SettingsRole::Camera => vec![
                ("camera", text(self.camera.as_ref().map(ToString::to_string))),
                // A camera does not use sockets.
                ("edge", edges(|edge| !edge.starts_with("unix:"))),
                ("source", text(self.source.clone())),
            ],
            SettingsRole::App => vec![("edge", edges(|_| true))],
        });
        given
    }

    /// The stores of this host's brokers. Without a broker, the store that is named here.
    fn stores(&self, sides: &BTreeSet<Side>, settings: &Settings) -> Vec<Store> {
        let brokers = [Side::Edge, Side::Camera].into_iter().filter(|side| sides.contains(side));
        let of = |side| {
            let key = settings.path(side, "store_key");
            settings.path(side, "store").map(|folder| Store { folder, key })
        };
        let mut stores: Vec<Store> = brokers.filter_map(of).collect();
        if stores.is_empty() {
            stores.extend(self.store.clone().map(|folder| Store { folder, key: self.store_key.clone() }));
        }
        stores.dedup();
        stores
    }

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
            of(Verb::Export, &self.export),
        ]
        .concat()
    }

    /// The sides of this host: as given, or else by the other arguments, or else by its keys and settings files.
    fn sides(&self, keys: Option<&KeyFolder>, wants: bool, settings: &Settings) -> BTreeSet<Side> {
        let mut sides: BTreeSet<Side> = self.sides.iter().copied().collect();
        if !sides.is_empty() {
            return sides;
        }
        sides.extend(self.camera.is_some().then_some(Side::Camera));
        sides.extend(wants.then_some(Side::App));
        if !sides.is_empty() {
            return sides;
        }
        sides.extend(Side::ALL.into_iter().filter(|side| settings.file(*side).is_some()));
        if keys.is_some_and(KeyFolder::holds_authority_key) {
            sides.insert(Side::Edge);
            return sides;
        }
        let files = keys.and_then(|keys| keys.identity_files().ok()).unwrap_or_default();
        sides.extend(files.iter().filter_map(|file| file.identity.as_ref()).map(
            |identity| match identity.role {
                Role::Edge => Side::Edge,
                Role::Camera => Side::Camera,
                Role::App => Side::App,
            },
        ));
        // A host without keys probably wants to join as an application.
        if sides.is_empty() { BTreeSet::from([Side::App]) } else { sides }
    }
}

/// The addresses that cameras and applications of this host use.
fn addresses(
    sides: &BTreeSet<Side>,
    settings: &Settings,
    own_socket: &Path,
) -> Result<(Vec<EdgeAddress>, Vec<Address>), Failure> {
    let named = |side| if sides.contains(&side) { settings.all(side, "edge") } else { Vec::new() };
    let (of_camera, of_app) = (named(Side::Camera), named(Side::App));
    let (mut links, mut edges) = (Vec::new(), Vec::new());
    for text in &of_camera {
        let link = EdgeAddress::parse(text).ok_or_else(|| {
            Failure::text(format!("{text:?} is not an edge's address; write HOST or HOST:PORT"))
        })?;
        if let (true, Ok(Address::Tcp { host, port })) =
            (of_app.contains(text), Address::parse(text, Which::Edge))
            && link.port == port
        {
            return Err(Failure::text(format!(
                "{text} can be the edge's port for cameras or for applications: choose with --as camera or --as app, \
                 or give {host} alone"
            )));
        }
        links.push(link);
    }
    for text in &of_app {
        edges.push(Address::parse(text, Which::Edge)?);
    }
    if sides.contains(&Side::Edge) {
        edges.push(Address::Unix(own_socket.to_owned()));
    } else if sides.contains(&Side::App) && edges.is_empty() {
        let socket = settings.path(Side::Edge, "socket").unwrap_or_else(|| socket::find(Which::Edge));
        edges.push(Address::Unix(socket));
    }
    Ok((links, edges))
}

/// A camera for which this host has an identity.
fn first_camera(keys: &KeyFolder) -> Option<CameraName> {
    let files = keys.identity_files().ok()?;
    let cameras = files.into_iter().filter_map(|file| file.identity);
    cameras
        .filter(|identity| identity.role == Role::Camera)
        .map(|identity| identity.name.as_camera().clone())
        .next()
}
