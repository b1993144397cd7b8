//! Reading the past over real sockets and files.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{Encoding, FrameId, SkipCounts};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::subscription::{Deliver, NotHeld, Span};
use mez_core::units::Timestamp;
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError, EdgeSubscription, Served};
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::{Role, SiteName};
use mez_node::persist::{LogFiles, PersistOptions};
use mez_node::ports::EdgeAddress;

const CAMERA: &str = "dock/cam1";
const FRAME_BYTES: usize = 100_000;
/// Room for ten frames or so.
const MEMORY_BYTES: u64 = 1 << 20;

struct Site {
    transport: Transport,
    keys: TemporarySite,
    folder: tempfile::TempDir,
}

impl Site {
    fn new(transport: Transport) -> Self {
        let site: SiteName = "test".parse().unwrap();
        Self { transport, keys: TemporarySite::create(&site).unwrap(), folder: tempfile::tempdir().unwrap() }
    }

    fn persist(&self, of: &str) -> PersistOptions {
        let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
        PersistOptions::new(self.path(of).join("log"), keys)
    }

    fn path(&self, of: &str) -> std::path::PathBuf {
        Path::new(self.folder.path()).join(of)
    }

    fn edge(&self, on_disk: bool) -> EdgeHandle {
        EdgeBroker::start(self.edge_options("127.0.0.1:0".parse().unwrap(), on_disk)).unwrap()
    }

    /// An edge in the place of one that was just stopped, which lets go of its socket a moment later.
    async fn edge_at(&self, listen: SocketAddr, on_disk: bool) -> EdgeHandle {
        for _ in 0..1000 {
            match EdgeBroker::start(self.edge_options(listen, on_disk)) {
                Ok(edge) => return edge,
                Err(EdgeStartError::Listen(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{listen} stays in use")
    }

    fn edge_options(&self, listen: SocketAddr, on_disk: bool) -> EdgeOptions {
        let credentials = self.keys.keys().credentials(Role::Edge, None).unwrap();
        let config = EdgeConfig { log_bytes_max: MEMORY_BYTES, ..EdgeConfig::default() };
        let mut options = EdgeOptions::new(listen, credentials, config);
        options.state = Some(self.path("edge/state"));
        options.persist = on_disk.then(|| self.persist("edge"));
        options
    }

    fn camera(&self, edge: &EdgeHandle, on_disk: bool) -> CameraHandle {
        let name = CAMERA.parse().unwrap();
        let credentials = self.keys.keys().credentials(Role::Camera, Some(&name)).unwrap();
        let port = edge.link_address().port();
        let mut options = CameraOptions::new(
            CAMERA.parse().unwrap(),
            vec![EdgeAddress { host: "127.0.0.1".into(), port }],
            credentials,
        );
        options.state = Some(self.path("camera/state"));
        options.transport = self.transport;
        options.log.bytes_max = MEMORY_BYTES;
        options.log.segment_bytes = MEMORY_BYTES / 8;
        options.persist = on_disk.then(|| self.persist("camera"));
        CameraBroker::start(options).unwrap()
    }
}

fn image(number: u32) -> Published {
    let mut payload = vec![number as u8; FRAME_BYTES];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    Published { payload: payload.into(), encoding: Encoding::Jpeg, width: 64, height: 48, captured: None }
}

fn number(payload: &Bytes) -> u32 {
    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
    assert!(payload[4..].iter().all(|byte| *byte == number as u8), "the payload was altered");
    number
}

/// What one reading gave.
#[derive(Debug, Default)]
struct Got {
    numbers: Vec<u32>,
    ids: Vec<FrameId>,
    skipped: SkipCounts,
    not_held: Option<NotHeld>,
}

/// Reads until the end that was asked for.
async fn read(edge: &EdgeHandle, span: Span) -> Got {
    let pattern = CAMERA.parse().unwrap();
    let mut subscription = edge.subscribe(pattern, Contract::default(), span).await.unwrap();
    let reading = async {
        let mut got = Got::default();
        loop {
            match subscription.next().await {
                Served::Frame { delivery, .. } => {
                    let frame = &delivery.record.frame;
                    assert!(got.ids.last() < Some(&frame.meta.id));
                    got.ids.push(frame.meta.id);
                    got.numbers.push(number(&frame.payload));
                    got.skipped.merge(&delivery.skipped);
                    got.not_held = got.not_held.or(delivery.not_held);
                }
                Served::Ended { rest } => {
                    for (_, skipped, not_held) in rest {
                        got.skipped.merge(&skipped);
                        got.not_held = got.not_held.or(not_held);
                    }
                    return got;
                }
                Served::Stopped => panic!("the edge stopped"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the reading ends")
}

fn past(from: Timestamp) -> Span {
    Span { begin: Some(from), end: Some(mez_node::clock::wall_now()), deliver: Deliver::Every }
}

async fn connected(camera: &CameraHandle) {
    let mut edge = camera.edge();
    tokio::time::timeout(Duration::from_secs(10), edge.wait_for(Option::is_some)).await.unwrap().unwrap();
}

async fn live(edge: &EdgeHandle) -> EdgeSubscription {
    edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap()
}

/// The next frame that arrives live.
async fn next_live(subscription: &mut EdgeSubscription) -> u32 {
    let frame = async {
        loop {
            if let Served::Frame { delivery, .. } = subscription.next().await {
                return number(&delivery.record.frame.payload);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), frame).await.expect("a frame arrives")
}

/// Publishes frames from `first` on, each as soon as the one before has arrived.
async fn cross(camera: &CameraHandle, subscription: &mut EdgeSubscription, frames: std::ops::Range<u32>) {
    for frame in frames {
        loop {
            camera.publish(image(frame)).unwrap();
            // Before the demand has reached the camera, frames do not cross.
            let arrived = tokio::time::timeout(Duration::from_millis(100), next_live(subscription)).await;
            if arrived.is_ok_and(|arrived| arrived == frame) {
                break;
            }
        }
    }
}

/// Waits until the edge has written so many frames to its disk.
async fn written(edge: &EdgeHandle, frames: u64) {
    let camera = CAMERA.parse().unwrap();
    let settled = async {
        while edge.log_on_disk(&camera).is_none_or(|status| status.records < frames) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled).await.expect("the disk takes the frames");
}

/// Memory holds ten of thirty frames. The disk has the others, also for the edge's next start, and a reading goes from the one to
/// the other.
#[tokio::test(flavor = "multi_thread")]
async fn what_left_memory_is_read_from_disk_and_after_a_restart() {
    let site = Site::new(Transport::Quic);
    let edge = site.edge(true);
    let camera = site.camera(&edge, false);
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    for frame in 0..30 {
        cross(&camera, &mut subscription, frame..frame + 1).await;
        written(&edge, u64::from(frame) + 1).await;
    }
    let all: Vec<u32> = (0..30).collect();
    let got = read(&edge, past(Timestamp::from_nanos(1))).await;
    assert_eq!(got.numbers, all);
    assert!(got.not_held.is_some(), "the years before 1970 and now are not held");
    drop((subscription, camera));
    edge.stop().await;

    let edge = site.edge(true);
    assert_eq!(read(&edge, past(Timestamp::from_nanos(1))).await.numbers, all);
    let newest = Span { deliver: Deliver::Newest, ..past(Timestamp::from_nanos(1)) };
    assert_eq!(read(&edge, newest).await.numbers, [29]);
}

/// One stream goes from the disk through memory into the present.
#[tokio::test(flavor = "multi_thread")]
async fn a_reading_goes_from_the_past_into_the_present() {
    let site = Site::new(Transport::Tcp);
    let edge = site.edge(true);
    let camera = site.camera(&edge, false);
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    for frame in 0..30 {
        cross(&camera, &mut subscription, frame..frame + 1).await;
        written(&edge, u64::from(frame) + 1).await;
    }
    let span = Span { begin: Some(Timestamp::from_nanos(1)), end: None, deliver: Deliver::Every };
    let mut reading = edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), span).await.unwrap();
    for expected in 0..30 {
        assert_eq!(next_live(&mut reading).await, expected);
    }
    cross(&camera, &mut subscription, 30..35).await;
    for expected in 30..35 {
        assert_eq!(next_live(&mut reading).await, expected);
    }
}

macro_rules! both_ways {
    ($($case:ident;)*) => { $(
        mod $case {
            use super::Transport;

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

both_ways! {
    what_never_crossed_is_fetched_from_the_camera;
    a_camera_that_was_cut_off_serves_what_it_kept;
    live_frames_arrive_while_the_past_is_fetched;
}

/// Waits until the camera has written so many frames to its disk.
async fn kept(camera: &CameraHandle, frames: u64) {
    let settled = async {
        while camera.log_on_disk().is_none_or(|status| status.records < frames) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), settled).await.expect("the disk takes the frames");
}

/// Publishes frames slowly enough for the camera's disk to take them all.
async fn keep(camera: &CameraHandle, frames: std::ops::Range<u32>, before: u64) {
    for (number, frame) in frames.enumerate() {
        camera.publish(image(frame)).unwrap();
        if number % 4 == 3 {
            kept(camera, before + number as u64 + 1).await;
        }
    }
}

/// Nobody was subscribed, so nothing crossed. A reading fetches all of it, from the camera's disk and from its memory; a second
/// reading, and one that is bounded, do too.
async fn what_never_crossed_is_fetched_from_the_camera(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(true);
    let camera = site.camera(&edge, true);
    connected(&camera).await;
    keep(&camera, 0..16, 0).await;
    let all: Vec<u32> = (0..16).collect();
    for _ in 0..2 {
        let got = read(&edge, past(Timestamp::from_nanos(1))).await;
        assert_eq!(got.numbers, all);
        assert_eq!(got.skipped.total(), 0);
    }
    // What was fetched is no part of the replica: live subscriptions never see it.
    let info = edge.cameras().await.unwrap();
    assert_eq!((info[0].newest, info[0].counters.received), (None, 0));
    let newest = Span { deliver: Deliver::Newest, ..past(Timestamp::from_nanos(1)) };
    assert_eq!(read(&edge, newest).await.numbers, [15]);
}

/// While there was no edge the camera kept its frames. Some had crossed before, and some cross after; the reading has all of
/// them, in order, once.
async fn a_camera_that_was_cut_off_serves_what_it_kept(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(true);
    let camera = site.camera(&edge, true);
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    let published =
        |camera: &CameraHandle| camera.log().newest().map_or(0, |r| r.frame.meta.id.sequence.0 + 1);
    cross(&camera, &mut subscription, 0..3).await;
    drop(subscription);
    let address = edge.link_address();
    edge.stop().await;
    let mut up = camera.edge();
    tokio::time::timeout(Duration::from_secs(10), up.wait_for(Option::is_none)).await.unwrap().unwrap();
    kept(&camera, published(&camera)).await;
    let before = published(&camera);
    keep(&camera, 100..112, before).await;

    let edge = site.edge_at(address, true).await;
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    cross(&camera, &mut subscription, 200..203).await;
    let got = read(&edge, past(Timestamp::from_nanos(1))).await;
    let numbers: std::collections::BTreeSet<u32> = got.numbers.iter().copied().collect();
    assert!((0..3).chain(100..112).chain(200..203).all(|number| numbers.contains(&number)), "{numbers:?}");
    assert_eq!(got.skipped.total(), 0, "nothing is lacking");
    assert_eq!(got.ids.len() as u64, published(&camera));
}

/// Live frames go before those of the past, and both arrive.
async fn live_frames_arrive_while_the_past_is_fetched(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(false);
    let camera = site.camera(&edge, true);
    connected(&camera).await;
    keep(&camera, 0..16, 0).await;
    let mut subscription = live(&edge).await;
    let reading = tokio::spawn({
        let edge = edge.clone();
        async move { read(&edge, past(Timestamp::from_nanos(1))).await }
    });
    cross(&camera, &mut subscription, 100..104).await;
    let got = reading.await.unwrap();
    assert_eq!(got.numbers[..16], (0..16).collect::<Vec<_>>());
}

/// Another program held the folder of the camera's log when it came. The log is kept as soon as that has let go.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_could_not_be_opened_is_tried_again() {
    let site = Site::new(Transport::Quic);
    let name = CAMERA.parse().unwrap();
    let edge = site.edge(true);
    let held = LogFiles::open(&site.persist("edge").folder, &name, site.path("other/log")).unwrap();
    let camera = site.camera(&edge, false);
    connected(&camera).await;
    let degraded = async {
        while edge.log_on_disk(&name).is_none_or(|status| status.degraded.is_none()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), degraded).await.expect("the refusal is told");
    drop(held);
    let mut subscription = live(&edge).await;
    cross(&camera, &mut subscription, 0..1).await;
    written(&edge, 1).await;
}
