//! Video over a link that is too slow for pictures of their own, loses packets and fails, between real brokers: every frame that an application
//! gets is a picture that decodes by itself, and the one that was published under its number.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{ChainLink, Encoding, FrameId};
use mez_core::subscription::{Delivery, Span};
use mez_media::jpeg::{Decoder, Encoder, Sampling};
use mez_media::{Image, ImageView, PixelFormat};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeSubscription, Served};
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::Role;
use mez_node::ports::EdgeAddress;
use tokio::net::UdpSocket;
use tokio::time::Instant;

const SIZE: (u32, u32) = (320, 240);
/// Blocks that spell a picture's number, in a row at the top.
const BITS: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(30);
const LINK_BITS_PER_SECOND: u64 = 2_000_000;
/// Longer queues drop what comes.
const QUEUE_MAX: Duration = Duration::from_millis(300);
const LOST_ONCE_IN: u64 = 150;

/// A network of little capacity before an edge. Gives its address; nothing passes while `cut` is set.
async fn slow_network(edge: SocketAddr, cut: Arc<AtomicBool>) -> SocketAddr {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let outside = Arc::new(UdpSocket::bind(loopback).await.unwrap());
    let address = outside.local_addr().unwrap();
    tokio::spawn(async move {
        let mut cameras = std::collections::HashMap::<SocketAddr, Arc<UdpSocket>>::new();
        let (mut free, mut random) = (Instant::now(), 1u64);
        let mut packet = vec![0; 65_536];
        loop {
            let Ok((bytes, camera)) = outside.recv_from(&mut packet).await else { continue };
            let inside = match cameras.get(&camera) {
                Some(inside) => Arc::clone(inside),
                None => {
                    let inside = way_back(edge, (Arc::clone(&outside), camera), Arc::clone(&cut)).await;
                    cameras.insert(camera, Arc::clone(&inside));
                    inside
                }
            };
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let now = Instant::now();
            let lost = (random >> 33).is_multiple_of(LOST_ONCE_IN) || cut.load(Ordering::Relaxed);
            if lost || free.saturating_duration_since(now) > QUEUE_MAX {
                continue;
            }
            free = free.max(now) + Duration::from_nanos(bytes as u64 * 8_000_000_000 / LINK_BITS_PER_SECOND);
            let (packet, at) = (packet[..bytes].to_vec(), free);
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                let _ = inside.send(&packet).await;
            });
        }
    });
    address
}

/// A socket towards the edge for one camera; what comes back on it goes to the camera.
async fn way_back(
    edge: SocketAddr,
    (outside, camera): (Arc<UdpSocket>, SocketAddr),
    cut: Arc<AtomicBool>,
) -> Arc<UdpSocket> {
    let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    inside.connect(edge).await.unwrap();
    let back = Arc::clone(&inside);
    tokio::spawn(async move {
        let mut packet = vec![0; 65_536];
        loop {
            match back.recv(&mut packet).await {
                Ok(bytes) if !cut.load(Ordering::Relaxed) => {
                    let _ = outside.send_to(&packet[..bytes], camera).await;
                }
                Ok(_) => {}
                // The edge is not there for a while.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    });
    inside
}

/// Brightness of a picture: a slope with some texture, a square that moves, and the number in blocks.
fn pixels(number: u64) -> Vec<u8> {
    let (width, height) = SIZE;
    let block = width / BITS;
    let pixel = |at: u32| {
        let (x, y) = (at % width, at / width);
        let square = (number as u32 * 3) % (width - 40);
        match (x, y) {
            (x, 0..32) => 40 + 170 * (number >> (x / block) & 1) as u8,
            (x, 120..160) if (square..square + 40).contains(&x) => 230,
            _ => (60 + (x + y) / 5 + ((x ^ y) & 7) * 2) as u8,
        }
    };
    (0..width * height).map(pixel).collect()
}

fn picture(number: u64) -> Published {
    let (width, height) = SIZE;
    let pixels = pixels(number);
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
}

/// Looks at a frame as an application does: it decodes by itself, to the size that it states, and is the picture of its number.
fn check(delivery: &Delivery) {
    let frame = &delivery.record.frame;
    let (id, rung) = (frame.meta.id, &frame.meta.rung);
    assert_eq!(frame.meta.encoding, Encoding::Jpeg, "{id} of {rung:?}");
    assert_eq!(frame.meta.chain, ChainLink::still(id.sequence), "{id} of {rung:?}");
    let mut image = Image::empty();
    Decoder::new(1 << 20).decode_bgr(&frame.payload, &mut image).unwrap();
    let (width, height) = (image.width(), image.height());
    assert_eq!((width, height), (frame.meta.width, frame.meta.height), "{id} of {rung:?}");
    let shown = |x: u32, y: u32| f64::from(image.data()[((y * width + x) * 3 + 1) as usize]);
    // The middle of each block, whatever the size.
    let bit = |bit: u32| shown((2 * bit + 1) * width / (2 * BITS), 16 * height / SIZE.1) > 125.0;
    let number = (0..BITS).filter(|at| bit(*at)).fold(0u64, |number, at| number | 1 << at);
    assert_eq!(number, id.sequence.0, "{id} of {rung:?} shows another picture");
    let published = pixels(number);
    let mut squares = 0.0;
    for y in 0..height {
        for x in 0..width {
            // The pixel at the middle of where this one comes from.
            let source = |at: u32, from: u32, to: u32| (2 * at + 1) * to / (2 * from);
            let (from_x, from_y) = (source(x, width, SIZE.0), source(y, height, SIZE.1));
            let was = f64::from(published[(from_y * SIZE.0 + from_x) as usize]);
            squares += (shown(x, y) - was).powi(2);
        }
    }
    let psnr = 10.0 * (255.0f64.powi(2) * f64::from(width * height) / squares.max(1.0)).log10();
    assert!(psnr > 20.0, "{id} of {rung:?} has {psnr:.1} dB");
}

struct Site {
    keys: TemporarySite,
    state: tempfile::TempDir,
}

impl Site {
    fn edge(&self, listen: SocketAddr) -> EdgeHandle {
        let credentials = self.keys.keys().credentials(Role::Edge, None).unwrap();
        let options = EdgeOptions::new(listen, credentials, EdgeConfig::default());
        // An edge that was just stopped lets go of its socket a moment later.
        for _ in 0..1000 {
            match EdgeBroker::start(options.clone()) {
                Ok(edge) => return edge,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("{listen} stays in use")
    }

    fn camera(&self, edge: SocketAddr) -> CameraHandle {
        let name = "dock/cam1";
        let credentials = self.keys.keys().credentials(Role::Camera, Some(&name.parse().unwrap())).unwrap();
        let mut options = CameraOptions::new(
            name.parse().unwrap(),
            vec![EdgeAddress { host: "127.0.0.1".into(), port: edge.port() }],
            credentials,
        );
        options.state = Some(self.state.path().into());
        options.transport = Transport::Quic;
        // One that was just dropped lets go of its folder a moment later.
        for _ in 0..1000 {
            match CameraBroker::start(options.clone()) {
                Ok(camera) => return camera,
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("the camera's folder stays in use")
    }
}

async fn subscribe(edge: &EdgeHandle) -> EdgeSubscription {
    let bound = Some(Duration::from_millis(150));
    let contract = Contract { accuracy_floor: Some(0.9), latency_bound: bound, ..Contract::default() };
    edge.subscribe("dock/*".parse().unwrap(), contract, Span::LIVE).await.unwrap()
}

/// Publishes a picture of the number that it will have.
fn publish(camera: &CameraHandle) {
    let next = camera.log().newest().map_or(0, |newest| newest.frame.meta.id.sequence.0 + 1);
    camera.publish(picture(next)).unwrap();
}

/// Publishes in real time until so many frames of chains have come that lie after `from`; gives the last.
async fn watch(
    camera: &CameraHandle,
    subscription: &mut EdgeSubscription,
    from: Option<FrameId>,
    frames: u32,
) -> FrameId {
    let (mut published, mut last, mut seen) = (tokio::time::interval(INTERVAL), None::<FrameId>, 0);
    published.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for _ in 0..4_000 {
        tokio::select! {
            _ = published.tick() => {
                publish(camera);
            }
            served = subscription.next() => {
                let Served::Frame { delivery, .. } = served else { continue };
                check(&delivery);
                let meta = &delivery.record.frame.meta;
                if let Some(last) = last.replace(meta.id).filter(|last| last.epoch == meta.id.epoch) {
                    let missing = meta.id.sequence.0 - last.sequence.0 - 1;
                    assert_eq!(delivery.skipped.total(), missing, "between {last} and {}", meta.id);
                }
                seen += u32::from(meta.rung.as_str().starts_with("h264/") && from.is_none_or(|from| meta.id > from));
                if seen >= frames {
                    return meta.id;
                }
            }
        }
    }
    panic!("only {seen} frames of chains came, the last of all was {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_of_a_chain_is_shown_whole_or_not_at_all() {
    let site = Site {
        keys: TemporarySite::create(&"test".parse().unwrap()).unwrap(),
        state: tempfile::tempdir().unwrap(),
    };
    let cut = Arc::new(AtomicBool::new(false));
    let edge = site.edge("127.0.0.1:0".parse().unwrap());
    let listen = edge.link_address();
    let network = slow_network(listen, Arc::clone(&cut)).await;
    let camera = site.camera(network);
    let mut subscription = subscribe(&edge).await;
    let last = watch(&camera, &mut subscription, None, 30).await;

    // What is on its way is reset.
    cut.store(true, Ordering::Relaxed);
    for _ in 0..12 {
        publish(&camera);
        tokio::time::sleep(INTERVAL).await;
    }
    cut.store(false, Ordering::Relaxed);
    let last = watch(&camera, &mut subscription, Some(last), 15).await;

    // Somebody joins in the middle of a chain.
    let mut late = subscribe(&edge).await;
    let last = watch(&camera, &mut late, Some(last), 5).await;
    drop((late, subscription));

    // Another decoder is behind the same address.
    edge.stop().await;
    let edge = site.edge(listen);
    let mut subscription = subscribe(&edge).await;
    let last = watch(&camera, &mut subscription, Some(last), 10).await;

    // Another encoder, and another epoch.
    drop(camera);
    let camera = site.camera(network);
    camera.edge().wait_for(Option::is_some).await.unwrap();
    let after = watch(&camera, &mut subscription, Some(last), 10).await;
    assert!(after.epoch > last.epoch);
}
