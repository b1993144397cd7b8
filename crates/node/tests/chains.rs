//! Video between real brokers over a link that is too slow for independent pictures, loses packets and fails.
//! Every frame that an application gets is a still, and shows the picture that was published under its number.

mod chain_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chain_support::{INTERVAL, jpeg_shows, picture, slow_network};
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{ChainLink, Encoding, FrameId};
use mez_core::subscription::{Delivery, Span};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, H264Library, Transport};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeSubscription, Served};
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::Role;
use mez_node::ports::EdgeAddress;

/// Checks a frame like an application: it is a still of the stated size, and shows the picture of its number.
fn check(delivery: &Delivery) {
    let frame = &delivery.record.frame;
    let (id, rung) = (frame.meta.id, &frame.meta.rung);
    assert_eq!(frame.meta.encoding, Encoding::Jpeg, "{id} of {rung:?}");
    assert_eq!(frame.meta.chain, ChainLink::still(id.sequence), "{id} of {rung:?}");
    let size = (frame.meta.width, frame.meta.height);
    jpeg_shows(&frame.payload, size, id.sequence.0, &format!("{id} of {rung:?}"));
}

struct Site {
    keys: TemporarySite,
    state: tempfile::TempDir,
}

impl Site {
    fn edge(&self, listen: SocketAddr) -> EdgeHandle {
        let credentials = self.keys.keys().credentials(Role::Edge, None).unwrap();
        let options = EdgeOptions::new(listen, credentials, EdgeConfig::default());
        // An edge that was just stopped releases its socket a moment later.
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
        // x264, if it is in this build.
        options.h264 = *H264Library::ALL.last().expect("there is one");
        // A broker that was just dropped releases its folder a moment later.
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

/// Publishes a picture with the number that it will have.
fn publish(camera: &CameraHandle) {
    let next = camera.log().newest().map_or(0, |newest| newest.frame.meta.id.sequence.0 + 1);
    camera.publish(picture(next)).unwrap();
}

/// Publishes in real time until `count` chained frames after `from` have come. Returns the last.
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

    // Frames in flight are reset.
    cut.store(true, Ordering::Relaxed);
    for _ in 0..12 {
        publish(&camera);
        tokio::time::sleep(INTERVAL).await;
    }
    cut.store(false, Ordering::Relaxed);
    let last = watch(&camera, &mut subscription, Some(last), 15).await;

    // A reader joins in the middle of a chain.
    let mut late = subscribe(&edge).await;
    let last = watch(&camera, &mut late, Some(last), 5).await;
    drop((late, subscription));

    // Another decoder at the same address.
    edge.stop().await;
    let edge = site.edge(listen);
    let mut subscription = subscribe(&edge).await;
    let last = watch(&camera, &mut subscription, Some(last), 10).await;

    // Another encoder with a new epoch.
    drop(camera);
    let camera = site.camera(network);
    camera.edge().wait_for(Option::is_some).await.unwrap();
    let after = watch(&camera, &mut subscription, Some(last), 10).await;
    assert!(after.epoch > last.epoch);
}
