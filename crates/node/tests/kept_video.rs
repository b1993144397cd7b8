//! Video in an edge's log is stored as it crossed the link, in memory and on disk. Applications that decode no video get stills of it.

mod api_support;
mod chain_support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api_support::{Site, within};
use bytes::Bytes;
use chain_support::{INTERVAL, jpeg_shows, picture, slow_network};
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{ChainKinds, Encoding};
use mez_core::history::{PastQuery, Tier};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey, StoreReader};
use mez_core::subscription::{Deliver, Span, SubscriptionSpec};
use mez_node::camera::Transport;
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, Served};
use mez_node::identity::name::Role;
use mez_node::persist::{LogFiles, PersistOptions};
use mez_node::ports::EdgeAddress;

const CAMERA: &str = "dock/cam1";
/// Number of recorded frames.
const FRAMES: usize = 60;
/// Room for a few frames, so that the past is on disk.
const MEMORY_BYTES: u64 = 64 << 10;

fn keys() -> KeyRing {
    KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap()
}

fn edge(site: &Site, memory_bytes: u64) -> EdgeHandle {
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = EdgeConfig { log_bytes_max: memory_bytes, ..EdgeConfig::default() };
    let mut options = EdgeOptions::new(listen, site.credentials(Role::Edge, "edge"), config);
    options.persist = Some(PersistOptions::new(site.folder.path().join("log"), keys()));
    options.state = Some(site.folder.path().join("edge-state"));
    EdgeBroker::start(options).unwrap()
}

/// Records video, and returns the payloads that crossed the link, by number.
async fn record(site: &Site) -> BTreeMap<u64, Bytes> {
    let edge = edge(site, EdgeConfig::default().log_bytes_max);
    let network = slow_network(edge.link_address(), Arc::new(AtomicBool::new(false))).await;
    let camera = site.camera_with(CAMERA, &edge, |options| {
        options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
        options.transport = Transport::Quic;
    });
    let camera = camera.await;
    let bound = Some(Duration::from_millis(150));
    let contract = Contract { accuracy_floor: Some(0.9), latency_bound: bound, ..Contract::default() };
    let chains = ChainKinds::among(&[Encoding::H264]);
    let span = Span { deliver: Deliver::Every, ..Span::LIVE };
    let spec =
        SubscriptionSpec { contract, chains, span, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
    let mut subscription = edge.subscribe_as(spec, None).await.unwrap();
    let publishing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0.. {
            ticks.tick().await;
            camera.publish(picture(number)).unwrap();
        }
    });
    let mut came = BTreeMap::new();
    while came.len() < FRAMES {
        let Served::Frame { delivery, .. } = within(subscription.next()).await else { continue };
        let record = delivery.record;
        if record.frame.meta.encoding == Encoding::H264 {
            assert_eq!(record.link_bytes, Some(record.frame.payload.len() as u32), "nothing was made of it");
            came.insert(record.frame.meta.id.sequence.0, record.frame.payload);
        }
    }
    publishing.abort();
    edge.stop().await;
    came
}

#[tokio::test(flavor = "multi_thread")]
async fn video_stands_on_disk_as_it_crossed_and_is_read_as_stills() {
    let site = Site::new();
    let came = record(&site).await;

    // Byte for byte.
    let camera = CAMERA.parse().unwrap();
    let mut files = LogFiles::read_only(&site.folder.path().join("log"), &camera);
    let mut reader = StoreReader::new(camera.clone(), keys());
    let mut query = PastQuery { tier_max: Tier::Disk, ..PastQuery::EVERY };
    let (mut kept, mut times) = (BTreeMap::new(), Vec::new());
    while let Some(record) = reader.find(&mut files, &query).unwrap().record {
        let meta = &record.frame.meta;
        query.after = Some(meta.id);
        times.push((meta.captured, meta.id.sequence.0));
        if meta.encoding == Encoding::H264 {
            kept.insert(meta.id.sequence.0, record.frame.payload.clone());
        }
    }
    for (number, payload) in &came {
        assert_eq!(kept.get(number), Some(payload), "frame {number}");
    }

    // From the middle of a chain on, by a broker with only a few frames in memory.
    let edge = edge(&site, MEMORY_BYTES);
    let (begin, first) = times[times.len() / 2];
    let end = Some(mez_node::clock::wall_now());
    let span = Span { begin: Some(begin), end, deliver: Deliver::Every };
    let mut reading = edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), span).await.unwrap();
    let mut numbers = Vec::new();
    loop {
        match within(reading.next()).await {
            Served::Frame { delivery, .. } => {
                let meta = &delivery.record.frame.meta;
                assert_eq!(meta.encoding, Encoding::Jpeg);
                let number = meta.id.sequence.0;
                let what = format!("{} of {}", meta.id, meta.rung.as_str());
                jpeg_shows(&delivery.record.frame.payload, (meta.width, meta.height), number, &what);
                numbers.push(number);
            }
            Served::Ended { .. } => break,
            _ => {}
        }
    }
    let expected: Vec<u64> =
        times.iter().map(|(_, number)| *number).filter(|number| *number >= first).collect();
    assert_eq!(numbers, expected);
    edge.stop().await;
}
