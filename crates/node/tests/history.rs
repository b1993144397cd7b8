//! Reading the past over real sockets and files.

mod link_support;

use std::net::SocketAddr;
use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{FrameId, SkipCounts};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::subscription::{Deliver, NotHeld, Span};
use mez_core::units::Timestamp;
use mez_node::camera::{CameraBroker, CameraHandle, Transport};
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};
use mez_node::persist::{LogFiles, PersistOptions};

use self::link_support::{Site, TIME_MAX, both_ways, connected, image, loopback, number, until};

const CAMERA: &str = "dock/cam1";
const FRAME_BYTES: usize = 100_000;
/// Room for about ten frames.
const MEMORY_BYTES: u64 = 1 << 20;

/// Brokers with little memory, and optionally with stores.
struct Small(Site);

impl Small {
    fn new(transport: Transport) -> Self {
        Self(Site::new(transport))
    }

    fn persist(&self, of: &str) -> PersistOptions {
        let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
        PersistOptions::new(self.0.path(of).join("log"), keys)
    }

    async fn edge(&self, on_disk: bool) -> EdgeHandle {
        self.edge_at(loopback(), on_disk).await
    }

    async fn edge_at(&self, listen: SocketAddr, on_disk: bool) -> EdgeHandle {
        let config = EdgeConfig { log_bytes_max: MEMORY_BYTES, ..EdgeConfig::default() };
        let mut options = self.0.edge_options(listen, config);
        options.persist = on_disk.then(|| self.persist("edge"));
        self.0.edge(options).await
    }

    fn camera(&self, edge: &EdgeHandle, on_disk: bool) -> CameraHandle {
        let mut options = self.0.camera_options(CAMERA, edge.link_address());
        options.log.bytes_max = MEMORY_BYTES;
        options.log.segment_bytes = MEMORY_BYTES / 8;
        options.persist = on_disk.then(|| self.persist("camera"));
        CameraBroker::start(options).unwrap()
    }
}

/// The result of one reading.
#[derive(Debug, Default)]
struct Got {
    numbers: Vec<u32>,
    ids: Vec<FrameId>,
    skipped: SkipCounts,
    not_held: Option<NotHeld>,
}

/// Reads until the end of the span.
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
    tokio::time::timeout(TIME_MAX, reading).await.expect("the reading ends")
}

fn past(from: Timestamp) -> Span {
    Span { begin: Some(from), end: Some(mez_node::clock::wall_now()), deliver: Deliver::Every }
}

async fn live(edge: &EdgeHandle) -> EdgeSubscription {
    edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap()
}

/// The number of the next live frame.
async fn next_live(subscription: &mut EdgeSubscription) -> u32 {
    let frame = async {
        loop {
            if let Served::Frame { delivery, .. } = subscription.next().await {
                return number(&delivery.record.frame.payload);
            }
        }
    };
    tokio::time::timeout(TIME_MAX, frame).await.expect("a frame arrives")
}

/// Publishes frames, each after its predecessor has arrived.
async fn cross(camera: &CameraHandle, subscription: &mut EdgeSubscription, frames: std::ops::Range<u32>) {
    for frame in frames {
        loop {
            camera.publish(image(frame, FRAME_BYTES)).unwrap();
            // Until the demand has reached the camera, frames do not cross.
            let arrived = tokio::time::timeout(Duration::from_millis(100), next_live(subscription)).await;
            if arrived.is_ok_and(|arrived| arrived == frame) {
                break;
            }
        }
    }
}

/// Waits until the edge has written `frames` to its disk.
async fn written(edge: &EdgeHandle, frames: u64) {
    let camera = CAMERA.parse().unwrap();
    let is_so = || edge.log_on_disk(&camera).is_some_and(|status| status.records >= frames);
    until("the edge's disk does not take the frames", is_so).await;
}

/// Memory holds ten of thirty frames. The disk has the others, also for the edge's next start. A reading continues from disk to memory.
#[tokio::test(flavor = "multi_thread")]
async fn what_left_memory_is_read_from_disk_and_after_a_restart() {
    let site = Small::new(Transport::Quic);
    let edge = site.edge(true).await;
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

    let edge = site.edge(true).await;
    assert_eq!(read(&edge, past(Timestamp::from_nanos(1))).await.numbers, all);
    let newest = Span { deliver: Deliver::Newest, ..past(Timestamp::from_nanos(1)) };
    assert_eq!(read(&edge, newest).await.numbers, [29]);
}

/// A stream continues from the disk through memory into the present.
#[tokio::test(flavor = "multi_thread")]
async fn a_reading_goes_from_the_past_into_the_present() {
    let site = Small::new(Transport::Tcp);
    let edge = site.edge(true).await;
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

/// A camera is forgotten, its log is put aside, and it returns. A reading that
/// was open all the time reads the new log, and nothing more of the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_reading_that_outlives_its_camera_reads_the_new_log() {
    let site = Small::new(Transport::Tcp);
    let edge = site.edge(true).await;
    let camera = site.camera(&edge, false);
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    for frame in 0..30 {
        cross(&camera, &mut subscription, frame..frame + 1).await;
        written(&edge, u64::from(frame) + 1).await;
    }
    let span = Span { begin: Some(Timestamp::from_nanos(1)), end: None, deliver: Deliver::Every };
    let mut reading = edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), span).await.unwrap();
    // The reading is in the middle of the frames that left memory.
    for expected in 0..5 {
        assert_eq!(next_live(&mut reading).await, expected);
    }
    drop(camera);
    let forgetting = async {
        while edge.forget(CAMERA.parse().unwrap()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIME_MAX, forgetting).await.expect("the camera goes and is forgotten");

    let camera = site.camera(&edge, false);
    connected(&camera).await;
    for frame in 30..60 {
        cross(&camera, &mut subscription, frame..frame + 1).await;
        written(&edge, u64::from(frame) - 29).await;
    }
    let mut got = Vec::new();
    while got.last() != Some(&59) {
        got.push(next_live(&mut reading).await);
    }
    assert_eq!(got, (30..60).collect::<Vec<u32>>());
}

both_ways! {
    what_never_crossed_is_fetched_from_the_camera;
    a_camera_that_was_cut_off_serves_what_it_kept;
    live_frames_arrive_while_the_past_is_fetched;
}

/// Waits until the camera has written `frames` to its disk.
async fn kept(camera: &CameraHandle, frames: u64) {
    let is_so = || camera.log_on_disk().is_some_and(|status| status.records >= frames);
    until("the camera's disk does not take the frames", is_so).await;
}

/// Publishes frames slowly enough for the camera's disk to keep all of them.
async fn keep(camera: &CameraHandle, frames: std::ops::Range<u32>, before: u64) {
    for (number, frame) in frames.enumerate() {
        camera.publish(image(frame, FRAME_BYTES)).unwrap();
        if number % 4 == 3 {
            kept(camera, before + number as u64 + 1).await;
        }
    }
}

/// Without a subscription no frame crossed. A reading fetches all frames from
/// the camera's disk and memory. So do a second reading, and one of a span.
async fn what_never_crossed_is_fetched_from_the_camera(transport: Transport) {
    let site = Small::new(transport);
    let edge = site.edge(true).await;
    let camera = site.camera(&edge, true);
    connected(&camera).await;
    keep(&camera, 0..16, 0).await;
    let all: Vec<u32> = (0..16).collect();
    for _ in 0..2 {
        let got = read(&edge, past(Timestamp::from_nanos(1))).await;
        assert_eq!(got.numbers, all);
        assert_eq!(got.skipped.total(), 0);
    }
    // Fetched frames are not part of the replica, so live subscriptions never get them.
    let info = edge.cameras().await.unwrap();
    assert_eq!((info[0].newest, info[0].counters.received), (None, 0));
    let newest = Span { deliver: Deliver::Newest, ..past(Timestamp::from_nanos(1)) };
    assert_eq!(read(&edge, newest).await.numbers, [15]);
}

/// Without an edge, the camera kept its frames. Some frames crossed before, and some cross after. The reading gets each frame once, in order.
async fn a_camera_that_was_cut_off_serves_what_it_kept(transport: Transport) {
    let site = Small::new(transport);
    let edge = site.edge(true).await;
    let camera = site.camera(&edge, true);
    connected(&camera).await;
    let mut subscription = live(&edge).await;
    let published =
        |camera: &CameraHandle| camera.log().newest().map_or(0, |r| r.frame.meta.id.sequence.0 + 1);
    cross(&camera, &mut subscription, 0..3).await;
    drop(subscription);
    let address = edge.link_address();
    edge.stop().await;
    let mut connected_to = camera.edge();
    tokio::time::timeout(TIME_MAX, connected_to.wait_for(Option::is_none)).await.unwrap().unwrap();
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

/// Live frames go before past ones, and both arrive.
async fn live_frames_arrive_while_the_past_is_fetched(transport: Transport) {
    let site = Small::new(transport);
    let edge = site.edge(false).await;
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

/// Another program holds the camera's log at first. Afterwards the edge opens the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_could_not_be_opened_is_tried_again() {
    let site = Small::new(Transport::Quic);
    let name = CAMERA.parse().unwrap();
    let edge = site.edge(true).await;
    let held = LogFiles::open(&site.persist("edge").folder, &name, site.0.path("other/log")).unwrap();
    let camera = site.camera(&edge, false);
    connected(&camera).await;
    let is_told = || edge.log_on_disk(&name).is_some_and(|status| status.degraded.is_some());
    until("the refusal is not told", is_told).await;
    drop(held);
    let mut subscription = live(&edge).await;
    cross(&camera, &mut subscription, 0..1).await;
    written(&edge, 1).await;
}
