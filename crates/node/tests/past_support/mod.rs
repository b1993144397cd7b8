//! An edge with a page, and a camera whose frames were captured minutes ago, for tests of the past on the page.

#![allow(dead_code, reason = "every test uses another part")]

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::frame::{Encoding, FrameId};
use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::units::Timestamp;
use mez_media::image::{ImageView, PixelFormat};
use mez_media::jpeg::{Encoder, Sampling};
use mez_node::api::ApiServer;
use mez_node::camera::CameraHandle;
use mez_node::clock::wall_now;
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeSubscription, Served};
use mez_node::identity::Role;
use mez_node::persist::PersistOptions;
use mez_node::rights::LiveRights;
use mez_node::web::{WebOptions, WebServer};
use serde_json::Value;

use super::api_support::{Site, within};
use super::web_support::{Browser, Got};

pub const CAMERA: &str = "dock/cam1";
/// Room for a few frames, so that older ones are only on disk.
const MEMORY_BYTES: u64 = 1 << 20;

/// An edge with a store, and the beginning of its timeline, ten minutes ago.
pub struct World {
    pub web: WebServer,
    pub edge: EdgeHandle,
    _server: ApiServer,
    pub site: Site,
    pub begin_ms: u64,
}

impl World {
    pub async fn new(stored: bool) -> Self {
        let site = Site::new();
        let config = EdgeConfig { log_bytes_max: MEMORY_BYTES, ..EdgeConfig::default() };
        let credentials = site.credentials(Role::Edge, "edge");
        let mut options = EdgeOptions::new("127.0.0.1:0".parse().unwrap(), credentials.clone(), config);
        let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
        options.persist = stored.then(|| PersistOptions::new(site.folder.path().join("store"), keys));
        options.state = Some(site.folder.path().join("edge"));
        let edge = EdgeBroker::start(options).unwrap();
        let grants = [
            ("app/reader", Verb::Read),
            ("app/exporter", Verb::Read),
            ("app/exporter", Verb::Export),
            ("app/viewer", Verb::Watch),
            ("app/viewer", Verb::Observe),
        ];
        let grants = grants.map(|(grantee, verb)| Grant {
            grantee: grantee.parse().unwrap(),
            verb,
            cameras: "dock/*".parse().unwrap(),
        });
        let rights = LiveRights::fixed(Rights::new(Stance::Deny, grants));
        let (server, ..) = site.serve_edge_with(&edge, rights).await;
        let options = WebOptions::new("127.0.0.1:0".parse().unwrap());
        let web = WebServer::start(&server, &credentials, options).await.unwrap();
        let begin_ms = wall_now().as_nanos() / 1_000_000 - 600_000;
        Self { web, edge, _server: server, site, begin_ms }
    }

    pub fn member(&self, name: &str) -> Browser {
        Browser::member(self.web.address(), &self.site.credentials(Role::App, name))
    }

    /// Publishes a frame that was captured `behind_ms` after the beginning.
    pub fn publish(&self, camera: &CameraHandle, jpeg: &Bytes, behind_ms: u64) -> FrameId {
        let captured = Timestamp::from_nanos((self.begin_ms + behind_ms) * 1_000_000);
        let (width, height, payload) = (1280, 720, jpeg.clone());
        let published =
            Published { payload, encoding: Encoding::Jpeg, width, height, captured: Some(captured) };
        camera.publish(published).unwrap()
    }

    /// Publishes frames, 2 ms apart, until one has arrived, since none crosses before the demand has reached the camera.
    pub async fn begin(
        &self,
        camera: &CameraHandle,
        jpeg: &Bytes,
        behind_ms: u64,
        live: &mut EdgeSubscription,
    ) {
        for number in 0..400 {
            self.publish(camera, jpeg, behind_ms + 2 * number);
            let arrived = tokio::time::timeout(Duration::from_millis(150), arrives(live)).await;
            if arrived.is_ok() {
                return;
            }
        }
        panic!("no frame arrives");
    }

    /// The path of a request about a span, in milliseconds after the beginning.
    pub fn path(&self, what: &str, (from, to): (u64, u64)) -> String {
        let (since, until) = (self.begin_ms + from, self.begin_ms + to);
        format!("/api/v1/cameras/{CAMERA}/{what}?since_utc_ms={since}&until_utc_ms={until}")
    }

    pub fn instant(&self, behind_ms: u64) -> String {
        format!("/api/v1/cameras/{CAMERA}/instant?at_utc_ms={}", self.begin_ms + behind_ms)
    }
}

pub fn jpeg() -> Bytes {
    // Noise in 1/8 of it, so that a frame has about 100 kB.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let pixels: Vec<u8> = noise.take(1280 * 90).chain(std::iter::repeat_n(90, 1280 * 630)).collect();
    let view = ImageView::packed(&pixels, 1280, 720, PixelFormat::Gray8).unwrap();
    Encoder::new(50, Sampling::Grey).unwrap().encode(&view).unwrap()
}

/// Waits until a subscription gets a frame.
pub async fn arrives(subscription: &mut EdgeSubscription) {
    within(async { while !matches!(subscription.next().await, Served::Frame { .. }) {} }).await;
}

/// Repeats a request until its answer is as wanted, since a log is written 0.2 s later.
pub async fn until(browser: &Browser, path: &str, wanted: impl Fn(&Got) -> bool) -> Got {
    within(async {
        loop {
            let got = browser.get(path).await;
            // The page knows a camera only after a second.
            if got.status == StatusCode::OK && wanted(&got) {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

/// (from, to) in milliseconds after the beginning, with the field `what`.
pub fn stretches(world: &World, list: &Value, what: &str) -> Vec<(u64, u64, Value)> {
    let ms = |stretch: &Value, end: &str| stretch[end].as_u64().unwrap() - world.begin_ms;
    let list = list.as_array().unwrap().iter();
    list.map(|one| (ms(one, "from_utc_ms"), ms(one, "to_utc_ms"), one[what].clone())).collect()
}
