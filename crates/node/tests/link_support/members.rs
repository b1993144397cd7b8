//! A site of edge processes and enrolled members, each with a key folder of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mez_core::audit::Rotation;
use mez_core::broker::edge::EdgeConfig;
use mez_core::rights::Rights;
use mez_node::api::ApiLimits;
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::client::{Address, Event, Subscription};
use mez_node::identity::{
    Credentials, EnrolmentServer, Identity, KeyFolder, TemporarySite, TokenStore, enrol,
};
use mez_node::ports::EdgeAddress;
use mez_node::process::{EdgeProcess, EdgeProcessOptions};
use tokio::net::TcpListener;

use super::{TIME_MAX, image, loopback};

/// The keys of a site, and a folder for its members' keys.
pub struct Members {
    pub keys: TemporarySite,
    folder: tempfile::TempDir,
}

impl Members {
    pub fn new() -> Self {
        let keys = TemporarySite::create(&"test".parse().unwrap()).unwrap();
        Self { keys, folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, of: &str) -> PathBuf {
        self.folder.path().join(of)
    }

    /// The edge of the host where the site was made.
    pub async fn edge(&self, listen: SocketAddr, grpc: SocketAddr) -> EdgeProcess {
        let keys = self.keys.keys();
        let credentials = keys.edge_credentials(None, &[]).unwrap();
        self.edge_of(keys, &credentials, (listen, grpc), None).await
    }

    /// An edge with other keys, and optionally with a signer elsewhere.
    pub async fn edge_of(
        &self,
        keys: &KeyFolder,
        credentials: &Credentials,
        (listen, grpc): (SocketAddr, SocketAddr),
        signer: Option<Address>,
    ) -> EdgeProcess {
        let options = || EdgeProcessOptions {
            decoders: mez_node::decoders::Decoders::software(),
            pictures: mez_node::pictures::PictureService::off(),
            keys: keys.clone(),
            credentials: credentials.clone(),
            listen,
            grpc: Some(grpc),
            enrol: None,
            socket: None,
            web: None,
            announce: None,
            config: EdgeConfig::default(),
            state: Some(self.path(&format!("state-{}", credentials.identity().short().replace('/', "-")))),
            persist: None,
            profiles: None,
            signer: signer.clone(),
            rights: Some(Rights::open()),
            audit: Rotation::default(),
            limits: ApiLimits::default(),
        };
        // An edge that was just stopped releases its ports a moment later.
        let started = async {
            loop {
                match EdgeProcess::start(options()).await {
                    Ok(edge) => return edge,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(TIME_MAX, started).await.expect("the edge starts")
    }

    /// Enrols a device with a certificate of this lifetime. Returns its key folder.
    pub async fn enrolled(&self, short: &str, lifetime: Duration) -> KeyFolder {
        let keys = self.keys.keys();
        let identity = Identity::parse_within(keys.site(), short).unwrap();
        let hour = Duration::from_secs(3600);
        let token = TokenStore::create_for(keys, &identity, &[], (hour, lifetime)).unwrap();
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving =
            tokio::spawn(EnrolmentServer::new(keys).unwrap().serve(listener, std::future::pending()));
        let folder = self.path(&short.replace('/', "-"));
        enrol(&token, &address.to_string(), &folder).await.unwrap();
        serving.abort();
        KeyFolder::open(&folder).unwrap()
    }

    /// The camera `dock/cam1` with a single edge.
    pub fn camera(&self, credentials: Credentials, edge: SocketAddr, transport: Transport) -> CameraHandle {
        let edges = vec![EdgeAddress { host: edge.ip().to_string(), port: edge.port() }];
        let mut options = CameraOptions::new("dock/cam1".parse().unwrap(), edges, credentials);
        options.state = Some(self.path("camera"));
        options.transport = transport;
        CameraBroker::start(options).unwrap()
    }
}

pub fn grpc(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

/// The number of frames that are not counted.
pub const BEFORE: u32 = u32::MAX;

/// Publishes frames until one comes, since a subscription takes a moment to reach the camera.
pub async fn frames_flow(camera: &CameraHandle, frames: &mut Subscription) {
    let flow = async {
        loop {
            camera.publish(image(BEFORE, 5_000)).unwrap();
            let event = tokio::time::timeout(Duration::from_millis(50), frames.next()).await;
            if let Ok(event) = event
                && let Event::Frame(_) = event.expect("the subscription goes on")
            {
                return;
            }
        }
    };
    tokio::time::timeout(TIME_MAX, flow).await.expect("frames flow");
}
