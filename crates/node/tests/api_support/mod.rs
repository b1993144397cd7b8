//! A site with an edge and a camera that serve applications, for tests of the API.
#![allow(dead_code, reason = "every test uses another part")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::frame::Encoding;
use mez_node::api::{ApiLimits, ApiServer};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, StartError};
use mez_node::client::{
    Address, ClientOptions, EdgeClient, Event, PublisherClient, PublisherOptions, ReceivedFrame, Subscription,
};
use mez_node::decoders::Decoders;
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions};
use mez_node::identity::Credentials;
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::{Role, SiteName};
use mez_node::ports::EdgeAddress;
use mez_node::rights::LiveRights;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Rights for tests about other things: those of a site from before grants.
pub fn everything() -> LiveRights {
    LiveRights::fixed(mez_core::rights::Rights::open())
}

pub struct Site {
    pub keys: TemporarySite,
    pub folder: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Self {
        let site: SiteName = "test".parse().unwrap();
        Self { keys: TemporarySite::create(&site).unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    pub fn credentials(&self, role: Role, name: &str) -> Credentials {
        self.keys.keys().credentials(role, Some(&name.parse().unwrap())).unwrap()
    }

    pub fn edge(&self) -> EdgeHandle {
        self.edge_with(EdgeConfig::default())
    }

    pub fn edge_with(&self, config: EdgeConfig) -> EdgeHandle {
        let (listen, credentials) = ("127.0.0.1:0".parse().unwrap(), self.credentials(Role::Edge, "edge"));
        let options = EdgeOptions::new(listen, credentials, config);
        EdgeBroker::start(options).unwrap()
    }

    /// An edge with these decoders.
    pub fn edge_decoding(&self, decoders: Decoders) -> EdgeHandle {
        let (listen, credentials) = ("127.0.0.1:0".parse().unwrap(), self.credentials(Role::Edge, "edge"));
        let options = EdgeOptions::new(listen, credentials, EdgeConfig::default());
        EdgeBroker::start(EdgeOptions { decoders, ..options }).unwrap()
    }

    pub async fn camera(&self, name: &str, edge: &EdgeHandle) -> CameraHandle {
        self.camera_with(name, edge, |_| {}).await
    }

    pub async fn camera_with(
        &self,
        name: &str,
        edge: &EdgeHandle,
        change: impl FnOnce(&mut CameraOptions),
    ) -> CameraHandle {
        let credentials = self.credentials(Role::Camera, name);
        let port = edge.link_address().port();
        let mut options = CameraOptions::new(
            name.parse().unwrap(),
            vec![EdgeAddress { host: "127.0.0.1".into(), port }],
            credentials,
        );
        options.state = Some(self.folder.path().join("state"));
        change(&mut options);
        let camera = loop {
            match CameraBroker::start(options.clone()) {
                Ok(camera) => break camera,
                // A broker that was just dropped releases its state a moment later.
                Err(StartError::State(_)) => within(tokio::time::sleep(Duration::from_millis(10))).await,
                Err(error) => panic!("{error}"),
            }
        };
        within(camera.edge().wait_for(Option::is_some)).await.unwrap();
        camera
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Serves an edge on a Unix socket and over TLS.
    pub async fn serve_edge(&self, edge: &EdgeHandle) -> (ApiServer, Address, Address) {
        self.serve_edge_with(edge, everything()).await
    }

    /// Serves an edge with other rights.
    pub async fn serve_edge_with(
        &self,
        edge: &EdgeHandle,
        rights: LiveRights,
    ) -> (ApiServer, Address, Address) {
        let mut server = ApiServer::edge(edge.clone(), rights, ApiLimits::default());
        let path = self.socket("edge.sock");
        server.listen_unix(&path).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let credentials = self.credentials(Role::Edge, "edge");
        let address = server.listen_tls(any, &credentials, &[Role::App, Role::Edge]).await.unwrap();
        (server, Address::Unix(path), tcp(address))
    }

    /// Serves a camera on a Unix socket.
    pub fn serve_camera(&self, camera: &CameraHandle) -> (ApiServer, Address) {
        let mut server = ApiServer::camera(camera.clone(), ApiLimits::default());
        let path = self.socket("camera.sock");
        server.listen_unix(&path).unwrap();
        (server, Address::Unix(path))
    }

    pub async fn client(&self, address: &Address) -> EdgeClient {
        let credentials = self.credentials(Role::App, "viewer");
        let options = ClientOptions { application: "viewer".into(), ..ClientOptions::default() };
        EdgeClient::connect(vec![address.clone()], Some(&credentials), options).await.unwrap()
    }

    pub async fn publisher(&self, address: &Address) -> PublisherClient {
        let credentials = self.credentials(Role::App, "publisher");
        let options = PublisherOptions::default();
        PublisherClient::connect(address.clone(), Some(&credentials), None, options).await.unwrap()
    }
}

/// An edge with one camera, `dock/cam1`, served to applications on a Unix socket and over TLS.
pub struct Served {
    pub server: ApiServer,
    pub camera: CameraHandle,
    pub edge: EdgeHandle,
    pub unix: Address,
    pub tls: Address,
    pub site: Site,
}

impl Served {
    pub async fn new() -> Self {
        let site = Site::new();
        let edge = site.edge();
        Self::with(site, edge, |_| {}).await
    }

    /// Like `new`, with an existing edge, and with changed options of the camera.
    pub async fn with(site: Site, edge: EdgeHandle, change: impl FnOnce(&mut CameraOptions)) -> Self {
        let camera = site.camera_with("dock/cam1", &edge, change).await;
        let (server, unix, tls) = site.serve_edge(&edge).await;
        Self { server, camera, edge, unix, tls, site }
    }

    /// A client on the Unix socket.
    pub async fn client(&self) -> EdgeClient {
        self.client_by(0).await
    }

    /// A client on the Unix socket (0) or over TLS (1).
    pub async fn client_by(&self, way: usize) -> EdgeClient {
        self.site.client([&self.unix, &self.tls][way]).await
    }
}

pub fn tcp(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

/// Fails if the work hangs.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("something hangs")
}

/// A grey image of `pixels` bytes. It begins with its number, and is filled with the number's low byte.
pub fn image(number: u32, pixels: u32) -> Published {
    let mut payload = vec![number as u8; pixels as usize];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    Published { payload: payload.into(), encoding: Encoding::Gray8, width: pixels, height: 1, captured: None }
}

/// The number of an image, after checking all its bytes.
pub fn number(payload: &[u8]) -> u32 {
    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
    assert!(payload[4..].iter().all(|byte| *byte == number as u8), "the payload was altered");
    number
}

/// The next frame. Other events are skipped.
pub async fn frame(subscription: &mut Subscription) -> Box<ReceivedFrame> {
    within(async {
        loop {
            match subscription.next().await.expect("the subscription has not ended") {
                Event::Frame(frame) => return frame,
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await
}

/// Publishes small images until one is delivered, since a subscription takes a moment to reach the camera. Returns its number.
pub async fn warm_up(camera: &CameraHandle, subscription: &mut Subscription) -> u32 {
    for value in 0..600 {
        camera.publish(image(value, 100)).unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(100), frame(subscription));
        if let Ok(frame) = wait.await {
            return number(&frame.payload);
        }
    }
    panic!("nothing was delivered");
}

/// A slow link between camera and edge, with a rate per direction.
pub async fn slow_link(edge: SocketAddr, bits_per_second: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((camera, _)) = listener.accept().await {
            let edge = TcpStream::connect(edge).await.unwrap();
            // Without this, the kernel delays small pieces, and then delivers several at once.
            for end in [&camera, &edge] {
                end.set_nodelay(true).unwrap();
            }
            let ((from_camera, to_camera), (from_edge, to_edge)) = (camera.into_split(), edge.into_split());
            tokio::spawn(carry(from_camera, to_edge, bits_per_second));
            tokio::spawn(carry(from_edge, to_camera, bits_per_second));
        }
    });
    address
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    bits_per_second: u64,
) {
    let mut piece = vec![0; 2_000];
    while let Ok(bytes @ 1..) = from.read(&mut piece).await {
        tokio::time::sleep(Duration::from_nanos(bytes as u64 * 8_000_000_000 / bits_per_second)).await;
        if to.write_all(&piece[..bytes]).await.is_err() {
            return;
        }
    }
}
