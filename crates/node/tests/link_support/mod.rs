//! A site whose brokers connect over real sockets on loopback, for tests of the link.
#![allow(dead_code, unused_macros, unused_imports, reason = "every test uses another part")]

pub mod members;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::frame::Encoding;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError, ListenError};
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::{Role, SiteName};
use mez_node::ports::EdgeAddress;

/// The longest time for something that is immediate on an idle host.
pub const TIME_MAX: Duration = Duration::from_secs(20);

/// Runs cases over QUIC and over TCP.
macro_rules! both_ways {
    ($($case:ident;)*) => { $(
        mod $case {
            use mez_node::camera::Transport;

            #[tokio::test(flavor = "multi_thread")]
            async fn over_quic() {
                super::$case(Transport::Quic).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn over_tcp() {
                super::$case(Transport::Tcp).await;
            }
        }
    )* };
}
pub(crate) use both_ways;

/// Keys, folders and options to start brokers.
pub struct Site {
    transport: Transport,
    keys: TemporarySite,
    folder: tempfile::TempDir,
}

impl Site {
    pub fn new(transport: Transport) -> Self {
        let site: SiteName = "test".parse().unwrap();
        Self { transport, keys: TemporarySite::create(&site).unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, of: &str) -> PathBuf {
        self.folder.path().join(of)
    }

    pub fn edge_options(&self, listen: SocketAddr, config: EdgeConfig) -> EdgeOptions {
        let credentials = self.keys.keys().credentials(Role::Edge, None).unwrap();
        let mut options = EdgeOptions::new(listen, credentials, config);
        options.state = Some(self.path("edge/state"));
        options
    }

    /// Starts an edge. An edge that was just stopped releases its socket a moment later.
    pub async fn edge(&self, options: EdgeOptions) -> EdgeHandle {
        let listen = options.listen;
        let started = async {
            loop {
                match EdgeBroker::start(options.clone()) {
                    Ok(edge) => return edge,
                    Err(EdgeStartError::Listen(ListenError::Bind { .. })) => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let started = tokio::time::timeout(TIME_MAX, started).await;
        started.unwrap_or_else(|_| panic!("{listen} stays in use"))
    }

    pub fn camera_options(&self, camera: &str, edge: SocketAddr) -> CameraOptions {
        let credentials = self.keys.keys().credentials(Role::Camera, Some(&camera.parse().unwrap())).unwrap();
        let edges = vec![EdgeAddress { host: edge.ip().to_string(), port: edge.port() }];
        let mut options = CameraOptions::new(camera.parse().unwrap(), edges, credentials);
        options.state = Some(self.path("camera/state"));
        options.transport = self.transport;
        options
    }

    pub fn camera(&self, camera: &str, edge: SocketAddr) -> CameraHandle {
        CameraBroker::start(self.camera_options(camera, edge)).unwrap()
    }
}

pub fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Waits until a camera is connected to the edge.
pub async fn connected(camera: &CameraHandle) {
    let mut edge = camera.edge();
    tokio::time::timeout(TIME_MAX, edge.wait_for(Option::is_some))
        .await
        .expect("the edge takes it in")
        .unwrap();
}

/// Waits until `is_so`, which is checked every few milliseconds. `what` describes the failure.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    let comes = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIME_MAX, comes).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Bytes that contain their number, and are not an image.
pub fn image(number: u32, bytes: usize) -> Published {
    let mut payload = vec![number as u8; bytes];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    Published { payload: payload.into(), encoding: Encoding::Jpeg, width: 64, height: 48, captured: None }
}

/// The number in such bytes, after checking them.
pub fn number(payload: &Bytes) -> u32 {
    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
    assert!(payload[4..].iter().all(|byte| *byte == number as u8), "the payload was altered");
    number
}

/// A picture with some structure: 640×480, JPEG of quality 95.
pub fn picture(number: u8) -> Published {
    let (width, height) = (640, 480);
    let pixel = |at: u32| (at % width / 8 * 5 + at / width / 8 * 3) as u8 ^ number;
    let pixels: Vec<u8> = (0..width * height).map(pixel).collect();
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
}
