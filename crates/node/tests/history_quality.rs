//! Past frames at other rungs than the original, and readings that fetch nothing from the camera, over real sockets and codecs.

mod link_support;

use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{SkipCounts, SkipReason};
use mez_core::history::{PastOptions, Tier};
use mez_core::subscription::{Deliver, NotHeld, Span, SubscriptionSpec};
use mez_core::units::Timestamp;
use mez_node::camera::{CameraHandle, Transport};
use mez_node::clock::wall_now;
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};

use self::link_support::{Site, TIME_MAX, both_ways, connected, image, loopback, picture};

both_ways! {
    frames_of_the_past_come_at_the_quality_asked_for;
    what_crossed_smaller_is_fetched_as_it_was_published;
    a_frame_that_cannot_be_made_is_counted;
    a_reading_that_leaves_the_camera_alone_says_what_it_lacks;
}

async fn edge_and_camera(transport: Transport) -> (Site, EdgeHandle, CameraHandle) {
    let site = Site::new(transport);
    let edge = site.edge(site.edge_options(loopback(), EdgeConfig::default())).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    connected(&camera).await;
    (site, edge, camera)
}

/// One frame of a reading.
#[derive(Debug, PartialEq)]
struct Got {
    sequence: u64,
    rung: String,
    payload: bytes::Bytes,
}

/// Reads the whole past.
async fn read(edge: &EdgeHandle, past: PastOptions) -> (Vec<Got>, SkipCounts, Option<NotHeld>) {
    let span = Span { begin: Some(Timestamp::from_nanos(1)), end: Some(wall_now()), deliver: Deliver::Every };
    let pattern = "dock/cam1".parse().unwrap();
    let subscription =
        edge.subscribe_as(SubscriptionSpec { past, ..SubscriptionSpec::new(pattern, span) }, None);
    let mut subscription = subscription.await.unwrap();
    let (mut all, mut skipped, mut lacks) = (Vec::new(), SkipCounts::default(), None);
    let reading = async {
        loop {
            match subscription.next().await {
                Served::Frame { delivery, .. } => {
                    let frame = delivery.record.frame;
                    skipped.merge(&delivery.skipped);
                    lacks = lacks.or(delivery.not_held);
                    if let Ok(seen) = mez_media::jpeg::probe(&frame.payload) {
                        assert_eq!((seen.width, seen.height), (frame.meta.width, frame.meta.height));
                    }
                    let (sequence, rung) = (frame.meta.id.sequence.0, frame.meta.rung.as_str().to_owned());
                    all.push(Got { sequence, rung, payload: frame.payload });
                }
                Served::Ended { rest } => {
                    for (_, counts, not_held) in rest {
                        skipped.merge(&counts);
                        lacks = lacks.or(not_held);
                    }
                    return;
                }
                Served::Stopped => panic!("the edge stopped"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(TIME_MAX, reading).await.expect("the reading ends");
    (all, skipped, lacks)
}

fn at(rung: &str) -> PastOptions {
    PastOptions { quality: Some(rung.parse().unwrap()), ..PastOptions::ALL }
}

/// Publishes pictures that nobody requests, and returns them.
fn publish(camera: &CameraHandle, pictures: std::ops::Range<u8>) -> Vec<bytes::Bytes> {
    let publish = |number| {
        let published = picture(number);
        let payload = published.payload.clone();
        camera.publish(published).unwrap();
        payload
    };
    pictures.map(publish).collect()
}

/// Small stills first, by two families of rungs. A later reader of originals gets originals.
async fn frames_of_the_past_come_at_the_quality_asked_for(transport: Transport) {
    let (_site, edge, camera) = edge_and_camera(transport).await;
    let published = publish(&camera, 0..8);
    for (rung, width) in [("jpeg/w320/q50/420", 320), ("knobs/s50/gray/q60", 320), ("jpeg/q30/gray", 640)] {
        let (all, skipped, _) = read(&edge, at(rung)).await;
        assert_eq!(all.iter().map(|got| got.sequence).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(skipped.total(), 0);
        for (got, published) in all.iter().zip(&published) {
            assert_eq!(got.rung, rung);
            assert_eq!(mez_media::jpeg::probe(&got.payload).unwrap().width, width);
            assert!(got.payload.len() < published.len());
        }
    }
    for wish in [PastOptions::ALL, at("original")] {
        let (all, ..) = read(&edge, wish).await;
        assert!(all.iter().all(|got| got.rung == "original"));
        assert_eq!(all.into_iter().map(|got| got.payload).collect::<Vec<_>>(), published);
    }
    // The originals are at the edge now, and serve all readers.
    let crossed = edge.cameras().await.unwrap()[0].counters.bytes;
    let (all, ..) = read(&edge, at("jpeg/w64/q10/420")).await;
    assert!(all.iter().all(|got| got.rung == "original" || got.rung == "jpeg/w64/q10/420"));
    assert!(edge.cameras().await.unwrap()[0].counters.bytes - crossed < 100_000, "fetched again");
}

async fn next_frame(subscription: &mut EdgeSubscription) -> String {
    loop {
        if let Served::Frame { delivery, .. } = subscription.next().await {
            return delivery.record.frame.meta.rung.as_str().to_owned();
        }
    }
}

/// Applications with a floor had small frames made. Later, a reader wants the originals.
async fn what_crossed_smaller_is_fetched_as_it_was_published(transport: Transport) {
    let (_site, edge, camera) = edge_and_camera(transport).await;
    let contract = Contract {
        accuracy_floor: Some(0.9),
        latency_bound: Some(Duration::from_secs(1)),
        ..Contract::default()
    };
    let mut live = edge.subscribe("dock/*".parse().unwrap(), contract, Span::LIVE).await.unwrap();
    let mut published = Vec::new();
    let mut smaller = 0;
    while smaller < 3 {
        published.extend(publish(&camera, published.len() as u8..published.len() as u8 + 1));
        let rung = tokio::time::timeout(Duration::from_millis(150), next_frame(&mut live)).await;
        smaller += usize::from(rung.is_ok_and(|rung| rung != "original"));
        assert!(published.len() < 200, "no frame came smaller");
    }
    drop(live);
    let (as_held, ..) = read(&edge, PastOptions::ALL).await;
    assert!(as_held.iter().filter(|got| got.rung != "original").count() >= 3, "{as_held:?}");
    let (all, skipped, _) = read(&edge, at("original")).await;
    assert_eq!(skipped.total(), 0);
    assert!(all.iter().all(|got| got.rung == "original"));
    assert_eq!(all.into_iter().map(|got| got.payload).collect::<Vec<_>>(), published);
    // The camera is gone: readers get the frames that are held, with their rungs.
    drop(camera);
    let gone = async {
        while edge.cameras().await.unwrap()[0].connected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIME_MAX, gone).await.unwrap();
    let (all, ..) = read(&edge, at("jpeg/w16/q1/gray")).await;
    assert!(!all.is_empty() && all.iter().all(|got| got.rung != "jpeg/w16/q1/gray"));
}

/// A picture that no codec can read is between others.
async fn a_frame_that_cannot_be_made_is_counted(transport: Transport) {
    let (_site, edge, camera) = edge_and_camera(transport).await;
    publish(&camera, 0..2);
    camera.publish(image(7, 5_000)).unwrap();
    publish(&camera, 3..5);
    let (all, skipped, _) = read(&edge, at("jpeg/w320/q50/420")).await;
    assert_eq!(all.iter().map(|got| got.sequence).collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [(SkipReason::NotMade, 1)]);
}

/// Some frames crossed, others did not. A reader of only held frames gets the first, and an account of the others. The camera sends nothing for it.
async fn a_reading_that_leaves_the_camera_alone_says_what_it_lacks(transport: Transport) {
    let (_site, edge, camera) = edge_and_camera(transport).await;
    publish(&camera, 0..3);
    let mut live = edge.subscribe("dock/*".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    let mut crossed = 0;
    for number in 3.. {
        publish(&camera, number..number + 1);
        let came = tokio::time::timeout(Duration::from_millis(100), next_frame(&mut live)).await;
        crossed += u64::from(came.is_ok());
        if crossed == 2 {
            break;
        }
    }
    drop(live);
    let before = edge.cameras().await.unwrap()[0].counters;
    let (all, _, lacks) = read(&edge, PastOptions { tier_max: Tier::Disk, ..PastOptions::ALL }).await;
    assert!(all.len() as u64 >= crossed && all[0].sequence >= 3, "{:?}", all.len());
    assert!(lacks.is_some(), "the years before are not held");
    assert_eq!(edge.cameras().await.unwrap()[0].counters.bytes, before.bytes, "the camera was asked");
    let (everything, skipped, _) = read(&edge, PastOptions::ALL).await;
    assert_eq!((everything[0].sequence, skipped.total()), (0, 0));
    assert!(everything.len() as u64 >= all.len() as u64 + 3);
    assert!(everything.iter().all(|got| got.rung == "original"));
}
