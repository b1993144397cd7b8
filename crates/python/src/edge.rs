//! An edge broker inside this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Mutex;

use mez_core::audit::Rotation;
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::{Channels, DeclaredChannel};
use mez_core::name::NameError;
use mez_core::rights::{Grant, GranteeError, Rights, Stance, UnknownVerb};
use mez_node::identity::{KeyFolder, Name, TemporarySite};
use mez_node::process::{EdgeProcess, EdgeProcessError, EdgeProcessOptions};
use mez_node::web::WebOptions;
use pyo3::prelude::*;

use crate::options::seconds;
use crate::persist::{self, LogOnDisk};
use crate::runtime::{Deadline, Owned, background, finish, lock, wait};
use crate::{error, keys};

/// Seconds that closing waits for the broker to inform applications and cameras.
const STOP_TIMEOUT_S: f64 = 2.0;

/// An edge broker inside this process.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Edge {
    running: Owned<Mutex<Option<Running>>>,
    link: String,
    grpc: Option<String>,
    web: Option<String>,
    socket: PathBuf,
    keys: PathBuf,
}

struct Running {
    process: EdgeProcess,
    /// The certificate authority, which exists as long as the broker, if no keys were given.
    _site: Option<TemporarySite>,
}

#[pymethods]
impl Edge {
    /// Starts an edge broker. Without `keys` it makes an authority that exists as long as the broker does.
    #[new]
    #[pyo3(signature = (*, keys, name, listen, grpc, web, socket, memory_bytes, cameras_max, forget_after, frame_bytes_max, state, store, profiles, channels, rights))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        keys: Option<PathBuf>,
        name: Option<&str>,
        listen: &str,
        grpc: Option<&str>,
        web: Option<&str>,
        socket: PathBuf,
        memory_bytes: u64,
        cameras_max: usize,
        forget_after: Option<f64>,
        frame_bytes_max: u32,
        state: Option<PathBuf>,
        store: Option<LogOnDisk>,
        profiles: Option<PathBuf>,
        channels: Vec<(String, Vec<String>)>,
        rights: Option<Vec<(String, String, String)>>,
    ) -> PyResult<Self> {
        let listen = address(py, "listen", listen)?;
        let grpc = grpc.map(|grpc| address(py, "grpc", grpc)).transpose()?;
        let web = web.map(|web| address(py, "web", web)).transpose()?;
        let name: Option<Name> = name
            .map(str::parse)
            .transpose()
            .map_err(|failure: <Name as std::str::FromStr>::Err| error::argument(py, "name", failure))?;
        let channels = declared(py, &channels)?;
        let rights = rights.map(|rights| granted(py, &rights)).transpose()?;
        // All keys of a temporary site are given out by this process, so they have all rights.
        let rights = rights.or_else(|| keys.is_none().then(Rights::open));
        let unusable = |failure: &dyn std::fmt::Display| error::raise(py, "KeysError", failure);
        let (site, folder) = keys_or_temporary(py, keys)?;
        let credentials =
            folder.edge_credentials(name.as_ref(), &[]).map_err(|failure| unusable(&failure))?;
        let keys = folder.path().to_owned();
        let persist = persist::options(py, store, Some(&keys))?;
        let options = EdgeProcessOptions {
            limits: mez_node::api::ApiLimits::default(),
            decoders: mez_node::decoders::Decoders::software(),
            // The picture service would start this process, the user's program, a second time.
            pictures: mez_node::pictures::PictureService::off(),
            keys: folder,
            credentials,
            listen,
            grpc,
            enrol: None,
            socket: Some(socket.clone()),
            web: web.map(|web| WebOptions { assets: mez_cli::page(), ..WebOptions::new(web) }),
            announce: None,
            config: EdgeConfig {
                log_bytes_max: memory_bytes,
                cameras_max,
                frame_bytes_max,
                channels,
                forget_after: seconds(py, "forget_after", forget_after)?,
                ..EdgeConfig::default()
            },
            state,
            persist,
            profiles,
            signer: None,
            rights,
            audit: Rotation::default(),
        };
        let background = background(py)?;
        let started = finish(py, background, || EdgeProcess::start(options))?;
        let process = started.map_err(|failure| match failure {
            EdgeProcessError::Authority(failure) => unusable(&failure),
            EdgeProcessError::Rights(failure) => unusable(&failure),
            failure => error::raise(py, "ListenError", failure),
        })?;
        Ok(Self {
            link: process.edge().link_address().to_string(),
            grpc: process.grpc_address().map(|address| address.to_string()),
            web: process.web_address().map(|address| address.to_string()),
            running: Owned::new(background, "edge", Mutex::new(Some(Running { process, _site: site }))),
            socket,
            keys,
        })
    }

    /// Where cameras connect: HOST:PORT.
    #[getter]
    fn link(&self) -> &str {
        &self.link
    }

    /// Where applications on other hosts connect: HOST:PORT.
    #[getter]
    fn grpc(&self) -> Option<&str> {
        self.grpc.as_deref()
    }

    /// Where the page is: HOST:PORT.
    #[getter]
    fn web(&self) -> Option<&str> {
        self.web.as_deref()
    }

    /// Where applications on this host connect.
    #[getter]
    fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// The folder of keys.
    #[getter]
    fn keys(&self) -> PathBuf {
        self.keys.clone()
    }

    /// Stops the broker: applications are told, and cameras go on by themselves. Closing twice does
    /// nothing, and neither does closing what a parent process started.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.running.is_ours() {
            return Ok(());
        }
        let (running, background) = self.running.get(py)?;
        let Some(Running { process, _site }) = lock(running).take() else { return Ok(()) };
        let deadline = Deadline::after(py, Some(STOP_TIMEOUT_S))?;
        wait(py, background, deadline, None, pin!(process.stop())).map(|_| ())
    }
}

fn address(py: Python<'_>, field: &str, text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        let message = format!(
            "{field} is {text:?}; give an address of this host and a port, such as \"127.0.0.1:0\" (0: any free \
             port) or \"[::]:7650\""
        );
        error::argument(py, field, message)
    })
}

/// Reads grants: who, verb and cameras of each. Everything that no grant allows is refused.
fn granted(py: Python<'_>, grants: &[(String, String, String)]) -> PyResult<Rights> {
    let wrong = |failure: &dyn std::fmt::Display| error::argument(py, "rights", format!("rights: {failure}"));
    let grants = grants.iter().map(|(who, verb, cameras)| {
        let grantee = who.parse().map_err(|failure: GranteeError| wrong(&failure))?;
        let verb = verb.parse().map_err(|failure: UnknownVerb| wrong(&failure))?;
        let cameras = cameras.parse().map_err(|failure: NameError| wrong(&failure))?;
        Ok(Grant { grantee, verb, cameras })
    });
    Ok(Rights::new(Stance::Deny, grants.collect::<PyResult<Vec<_>>>()?))
}

/// Reads channels: the name of each, with the patterns of its cameras.
fn declared(py: Python<'_>, channels: &[(String, Vec<String>)]) -> PyResult<Channels> {
    let declared = channels
        .iter()
        .map(|(name, patterns)| DeclaredChannel::of(name, patterns.iter().map(String::as_str)))
        .collect::<Result<Vec<_>, _>>();
    declared
        .and_then(Channels::new)
        .map_err(|failure| error::argument(py, "channels", format!("channels: {failure}")))
}

/// The given folder of keys, or that of a new site that ends with this process.
fn keys_or_temporary(py: Python<'_>, keys: Option<PathBuf>) -> PyResult<(Option<TemporarySite>, KeyFolder)> {
    if let Some(path) = keys {
        return Ok((None, keys::folder(py, Some(&path))?));
    }
    let name = "temporary".parse().expect("the name of a site");
    let site = TemporarySite::create(&name).map_err(|failure| error::raise(py, "KeysError", &failure))?;
    let folder = site.keys().clone();
    Ok((Some(site), folder))
}
