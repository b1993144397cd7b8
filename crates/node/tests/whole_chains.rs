//! Whole chains for applications that decode them, between real brokers over a link that is too slow for
//! independent pictures: over the local protocol, over gRPC with TLS, and within the edge's process.

mod api_support;
mod chain_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api_support::{Site, within};
use chain_support::{INTERVAL, jpeg_shows, picture, shows, slow_network};
use mez_core::contract::Contract;
use mez_core::frame::{ChainKinds, Encoding, FrameMeta, Reference};
use mez_core::subscription::{Deliver, Delivery, SubscriptionSpec};
use mez_media::{ImageViewMut, PixelFormat};
use mez_node::api::ApiServer;
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{Address, ClientError, Event, ReceivedFrame, SubscribeOptions};
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};
use mez_node::ports::EdgeAddress;
use tokio::task::JoinHandle;
use tonic::Code;

const BOUND: Duration = Duration::from_millis(150);
const FLOOR: f64 = 0.9;

/// An edge behind a slow network, with a camera that publishes pictures while this lives.
struct Running {
    edge: EdgeHandle,
    site: Site,
    publishing: JoinHandle<()>,
    _camera: CameraHandle,
    _server: ApiServer,
    ways: [Address; 2],
}

impl Drop for Running {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

async fn running() -> Running {
    let site = Site::new();
    let edge = site.edge();
    let network = slow_network(edge.link_address(), Arc::new(AtomicBool::new(false))).await;
    let camera = site.camera_with("dock/cam1", &edge, |options| {
        options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
        options.transport = Transport::Quic;
    });
    let camera = camera.await;
    let (server, unix, tls) = site.serve_edge(&edge).await;
    let publisher = camera.clone();
    let publishing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0.. {
            ticks.tick().await;
            publisher.publish(picture(number)).unwrap();
        }
    });
    Running { edge, site, publishing, _camera: camera, _server: server, ways: [unix, tls] }
}

fn options(accept: &[Encoding]) -> SubscribeOptions {
    SubscribeOptions {
        accept_encodings: accept.to_vec(),
        contract: Contract { accuracy_floor: Some(FLOOR), latency_bound: Some(BOUND), ..Contract::default() },
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// A program's view of a subscription. Checks that every picture is that of its number, and that every frame is accounted for.
#[derive(Default)]
struct Seen {
    last: Option<u64>,
    pictures: u64,
    stills: u64,
}

impl Seen {
    fn look(&mut self, frame: &ReceivedFrame) {
        let FrameMeta { id, width, height, encoding, rung, .. } = &frame.meta;
        let (number, what) = (id.sequence.0, format!("{id} of {}", rung.as_str()));
        match encoding {
            Encoding::H264 => {
                assert!(rung.as_str().starts_with("h264/"), "{what}");
                let mut pixels = vec![0; (width * height * 3) as usize];
                let view = ImageViewMut::packed(&mut pixels, *width, *height, PixelFormat::Bgr8);
                frame.show(&mut view.unwrap()).unwrap();
                shows(&pixels, (*width, *height), number, &what);
                self.pictures += 1;
            }
            Encoding::Jpeg => {
                jpeg_shows(&frame.payload, (*width, *height), number, &what);
                self.stills += 1;
            }
            other => panic!("{what} came as {other:?}"),
        }
        if let Some(last) = self.last.replace(number) {
            assert!(number > last, "{number} after {last}");
            assert_eq!(frame.skipped.total(), number - last - 1, "between {last} and {number}");
        }
    }
}

async fn next(subscription: &mut mez_node::client::Subscription) -> Box<ReceivedFrame> {
    api_support::frame(subscription).await
}

/// One program gets pictures of whole chains, another one gets stills of the same frames.
async fn pictures_of_chains(way: usize) {
    let running = running().await;
    let client = running.site.client(&running.ways[way]).await;
    let mut stills = client.subscribe(options(&[])).await.unwrap();
    let mut seen_as_stills = Seen::default();
    while seen_as_stills.stills < 20 {
        seen_as_stills.look(&*next(&mut stills).await);
    }
    // A chain is in progress. A joining reader must not wait for its end, which takes ten seconds.
    let mut chains = client.subscribe(options(&[Encoding::H264, Encoding::Jpeg])).await.unwrap();
    let every =
        SubscribeOptions { deliver: Some(Deliver::Every), ..options(&[Encoding::H264, Encoding::Jpeg]) };
    let mut every = client.subscribe(every).await.unwrap();
    let (mut seen, mut seen_every) = (Seen::default(), Seen::default());
    while seen.pictures < 40 || seen_every.pictures < 40 {
        tokio::select! {
            frame = next(&mut chains) => seen.look(&frame),
            frame = next(&mut every) => seen_every.look(&frame),
            frame = next(&mut stills) => seen_as_stills.look(&frame),
        }
    }
    assert_eq!(seen_as_stills.pictures, 0, "chains come to those who take them");
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_chains_over_the_unix_socket() {
    pictures_of_chains(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_chains_over_tls() {
    pictures_of_chains(1).await;
}

/// Reads within the edge's process, like a decoder.
struct Decoding {
    subscription: EdgeSubscription,
    last: Option<u64>,
    /// The received frames of each chain, with the index of the last.
    held: BTreeMap<u64, (u32, BTreeSet<u64>)>,
}

impl Decoding {
    /// The next frame. Checks that it can be decoded, and that the frames before it are accounted for.
    async fn next(&mut self) -> Box<Delivery> {
        let delivery = within(async {
            loop {
                if let Served::Frame { delivery, .. } = self.subscription.next().await {
                    return delivery;
                }
            }
        })
        .await;
        let meta = &delivery.record.frame.meta;
        let sequence = meta.id.sequence.0;
        if let Some(last) = self.last.replace(sequence) {
            assert_eq!(delivery.skipped.total(), sequence - last - 1, "between {last} and {sequence}");
        }
        if meta.encoding.is_chained() {
            let held = self.held.get(&meta.chain.chain.0);
            let decodes = match meta.chain.reference {
                Reference::Independent => true,
                Reference::Previous => held.is_some_and(|(last, _)| last + 1 == meta.chain.index),
                Reference::Acknowledged(refers) => held.is_some_and(|(_, held)| held.contains(&refers.0)),
            };
            assert!(decodes, "{} refers to what did not come: {:?}", meta.id, meta.chain);
            let (last, frames) = self.held.entry(meta.chain.chain.0).or_default();
            *last = meta.chain.index;
            frames.insert(sequence);
        }
        delivery
    }

    /// Reads until `frames` of a chain have come in a row. Returns the chain.
    async fn chain(&mut self, frames: u32) -> u64 {
        let mut in_a_row = (0, 0);
        for _ in 0..2_000 {
            let meta = self.next().await.record.frame.meta;
            let chain = meta.chain.chain.0;
            in_a_row = match in_a_row {
                _ if !meta.encoding.is_chained() => (0, 0),
                (of, frames) if of == chain => (chain, frames + 1),
                _ => (chain, 1),
            };
            if in_a_row.1 >= frames {
                return chain;
            }
        }
        panic!("there was no chain of {frames} frames");
    }
}

/// A reader that pauses for longer than chained frames are held continues with the newest frame.
/// A reader whose decoder has failed continues with stills. Both soon join another chain.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_is_lost_is_followed_by_another() {
    let running = running().await;
    let contract =
        Contract { accuracy_floor: Some(FLOOR), latency_bound: Some(BOUND), ..Contract::default() };
    let chains = ChainKinds::among(&[Encoding::H264]);
    let cameras = "dock/*".parse().unwrap();
    let spec = SubscriptionSpec { contract, chains, ..SubscriptionSpec::live(cameras) };
    let subscription = running.edge.subscribe_as(spec, None).await.unwrap();
    let mut decoding = Decoding { subscription, last: None, held: BTreeMap::new() };
    let first = decoding.chain(15).await;
    tokio::time::sleep(INTERVAL * 80).await;
    let after = decoding.next().await;
    assert!(after.skipped.total() > 20, "{:?}", after.skipped);
    decoding.subscription.restart_chain("dock/cam1".parse().unwrap());
    let second = decoding.chain(15).await;
    assert!(second > first);
    decoding.subscription.restart_chain("dock/cam1".parse().unwrap());
    let after = decoding.next().await;
    assert!(after.record.frame.meta.chain.chain.0 > second, "its decoder holds nothing");
    assert!(decoding.chain(15).await > second);
}

/// With only chains in its list, a program would get no frames where there are no chains.
#[tokio::test(flavor = "multi_thread")]
async fn chains_alone_are_refused_with_the_remedy() {
    let site = Site::new();
    let edge = site.edge();
    let (_server, unix, tls) = site.serve_edge(&edge).await;
    for address in [unix, tls] {
        let client = site.client(&address).await;
        let refused = client.subscribe(options(&[Encoding::H264, Encoding::Tiles])).await.unwrap_err();
        let ClientError::Refused(error) = &refused else { panic!("{refused}") };
        assert_eq!((error.code, error.reason.as_str()), (Code::InvalidArgument, "CHAINS_NEED_STILLS"));
        assert_eq!(error.field.as_deref(), Some("accept_encodings"));
        assert!(refused.to_string().contains("accept jpeg as well"), "{refused}");
    }
}

/// If a camera sends only stills, a program that accepts chains gets stills.
#[tokio::test(flavor = "multi_thread")]
async fn stills_come_where_there_are_no_chains() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, unix, _) = site.serve_edge(&edge).await;
    let client = site.client(&unix).await;
    let accept = vec![Encoding::H264, Encoding::Jpeg];
    // Without a floor, frames are sent unchanged.
    let asked = SubscribeOptions { accept_encodings: accept, ..SubscribeOptions::new("**".parse().unwrap()) };
    let mut subscription = client.subscribe(asked).await.unwrap();
    let mut seen = Seen::default();
    let publisher = camera.clone();
    let publishing = tokio::spawn(async move {
        for number in 0.. {
            publisher.publish(picture(number)).unwrap();
            tokio::time::sleep(INTERVAL).await;
        }
    });
    while seen.stills < 10 {
        match within(subscription.next()).await {
            Some(Event::Frame(frame)) => seen.look(&frame),
            Some(Event::Failed { reason }) => panic!("{reason}"),
            _ => {}
        }
    }
    publishing.abort();
    assert_eq!(seen.pictures, 0);
}
