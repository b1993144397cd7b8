//! Pictures that applications make of frames come back to the camera's publisher, over real sockets on loopback.

mod link_support;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{AnswerKind, Room};
use mez_core::broker::edge::{EdgeConfig, GivenAnswer};
use mez_core::contract::Contract;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::subscription::Span;
use mez_core::wire::{AnswerSkip, AnswerSkips};
use mez_node::camera::{Answered, CameraHandle, Transport};
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use self::link_support::{Site, TIME_MAX, both_ways, connected, image, loopback};

both_ways! {
    the_newest_answer_comes_back_with_its_times;
    every_answer_is_given_or_told;
    an_edge_that_restarts_goes_on_with_answers;
    nobody_is_sent_answers_who_takes_none;
}

const BOUND: Duration = Duration::from_secs(10);

fn camera_name() -> CameraName {
    "dock/cam1".parse().unwrap()
}

async fn edge_at(site: &Site, listen: SocketAddr) -> EdgeHandle {
    site.edge(site.edge_options(listen, EdgeConfig::default())).await
}

async fn frames_of(edge: &EdgeHandle) -> EdgeSubscription {
    edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap()
}

/// Publishes until a frame is at the edge, and returns its ID.
async fn frame(camera: &CameraHandle, subscription: &mut EdgeSubscription) -> FrameId {
    let flow = async {
        loop {
            camera.publish(image(7, 2_000)).unwrap();
            let next = async {
                loop {
                    if let Served::Frame { delivery, .. } = subscription.next().await {
                        return delivery.record.frame.meta.id;
                    }
                }
            };
            if let Ok(frame) = tokio::time::timeout(Duration::from_millis(50), next).await {
                return frame;
            }
        }
    };
    tokio::time::timeout(TIME_MAX, flow).await.expect("frames flow")
}

/// An application's answer. The edge does not decode it.
fn made(bytes: usize) -> GivenAnswer {
    GivenAnswer {
        kind: AnswerKind::Picture,
        payload: Bytes::from(vec![9; bytes]),
        size: (32, 24),
        shown: (64, 48),
        replaced: 0,
    }
}

async fn answer(edge: &EdgeHandle, frame: FrameId, bytes: usize) -> Room {
    edge.answer(camera_name(), frame, made(bytes)).await.unwrap()
}

/// Waits until an edge knows that answers are wanted, which the camera tells it after connecting.
async fn wanted(edge: &EdgeHandle, camera: &CameraHandle, frames: &mut EdgeSubscription) -> FrameId {
    wanted_after(edge, camera, frames).await.0
}

/// Like [`wanted`], with the number of answers that this took. Those that nobody wanted are told later, perhaps after the first one comes.
async fn wanted_after(
    edge: &EdgeHandle,
    camera: &CameraHandle,
    frames: &mut EdgeSubscription,
) -> (FrameId, u64) {
    let asked = async {
        for answered in 1.. {
            let frame = frame(camera, frames).await;
            if answer(edge, frame, 100).await.bound.is_some() {
                return (frame, answered);
            }
        }
        unreachable!("the range has no end")
    };
    tokio::time::timeout(TIME_MAX, asked).await.expect("answers are wanted")
}

async fn next(camera: &CameraHandle) -> (Answered, AnswerSkips) {
    tokio::time::timeout(TIME_MAX, camera.next_answer())
        .await
        .expect("an answer comes")
        .expect("answers are taken")
}

async fn the_newest_answer_comes_back_with_its_times(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    camera.set_answers(Some(BOUND));
    let mut frames = frames_of(&edge).await;
    connected(&camera).await;
    let first = wanted(&edge, &camera, &mut frames).await;
    assert_eq!(next(&camera).await.0.frame, first);

    // Much larger than a window.
    let large = frame(&camera, &mut frames).await;
    assert_eq!(answer(&edge, large, 3_000_000).await.bound, Some(BOUND));
    let (answered, _) = next(&camera).await;
    assert_eq!((answered.frame, answered.payload.len()), (large, 3_000_000));
    assert_eq!((answered.width, answered.height), (32, 24));
    let times = answered.times;
    let stages = [Some(times.captured), times.up, times.made, times.sent, Some(times.arriving)];
    assert!(stages.iter().all(Option::is_some) && stages.is_sorted(), "{times:?}");
    assert!(times.arriving <= times.arrived, "{times:?}");

    let unknown = edge.answer("dock/cam9".parse().unwrap(), large, made(100)).await;
    assert!(unknown.unwrap_err().to_string().contains("no camera dock/cam9"));
    let later = FrameId { sequence: mez_core::frame::Sequence(large.sequence.0 + 1_000), ..large };
    let unknown = edge.answer(camera_name(), later, made(100)).await;
    assert!(unknown.unwrap_err().to_string().contains("has published no frame"));
    let huge = edge.answer(camera_name(), large, made(9 << 20)).await;
    assert!(huge.unwrap_err().to_string().contains("9437184 bytes, more than the limit of 8388608"));
}

/// Waits until all `answered` answers are accounted for: received, or skipped with a reason.
async fn accounted(camera: &CameraHandle, given: u64, answered: u64) {
    let all = async {
        while given + camera.answers_skipped().total() < answered {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let known = tokio::time::timeout(TIME_MAX, all).await;
    let skipped = camera.answers_skipped();
    assert!(known.is_ok(), "{given} given, {skipped:?}, of {answered}");
    assert_eq!(given + skipped.total(), answered, "{skipped:?}");
}

async fn every_answer_is_given_or_told(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    camera.set_answers(Some(BOUND));
    let mut frames = frames_of(&edge).await;
    connected(&camera).await;
    let (first, before) = wanted_after(&edge, &camera, &mut frames).await;
    assert_eq!(next(&camera).await.0.frame, first);

    // An older frame than the last one, the last one again, and more at once than the reader takes.
    let (older, last) = (frame(&camera, &mut frames).await, frame(&camera, &mut frames).await);
    answer(&edge, last, 500).await;
    answer(&edge, last, 500).await;
    answer(&edge, older, 500).await;
    let mut newest = last;
    for _ in 0..20 {
        newest = frame(&camera, &mut frames).await;
        answer(&edge, newest, 200_000).await;
    }
    let (mut given, mut told, mut previous) = (1, 0, first);
    while previous < newest {
        let (answered, skipped) = next(&camera).await;
        assert!(answered.frame > previous, "{} after {previous}", answered.frame);
        (given, told, previous) = (given + 1, told + skipped.total(), answered.frame);
    }
    accounted(&camera, given, 23 + before).await;
    let skipped = camera.answers_skipped();
    assert_eq!((skipped.get(AnswerSkip::Repeated), skipped.get(AnswerSkip::Overtaken)), (1, 1));
    assert!(told <= skipped.total());
}

async fn an_edge_that_restarts_goes_on_with_answers(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let address = edge.link_address();
    let camera = site.camera("dock/cam1", address);
    camera.set_answers(Some(BOUND));
    let mut frames = frames_of(&edge).await;
    connected(&camera).await;
    let before = wanted(&edge, &camera, &mut frames).await;
    assert_eq!(next(&camera).await.0.frame, before);
    edge.stop().await;
    while !matches!(frames.next().await, Served::Stopped) {}

    let edge = edge_at(&site, address).await;
    let mut frames = frames_of(&edge).await;
    let after = wanted(&edge, &camera, &mut frames).await;
    assert!(after > before);
    assert_eq!(next(&camera).await.0.frame, after);
}

async fn nobody_is_sent_answers_who_takes_none(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut frames = frames_of(&edge).await;
    connected(&camera).await;
    let unwanted = frame(&camera, &mut frames).await;
    assert_eq!(answer(&edge, unwanted, 500).await, Room::default());
    camera.set_answers(Some(BOUND));
    let first = wanted(&edge, &camera, &mut frames).await;
    assert_eq!(next(&camera).await.0.frame, first);
    // Skipped answers are reported in a separate message, which may come after the answer.
    let told = async {
        while camera.answers_skipped().get(AnswerSkip::NotWanted) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIME_MAX, told).await.expect("the device hears that nobody wanted the first one");
    camera.set_answers(None);
    let ended = async {
        loop {
            let frame = frame(&camera, &mut frames).await;
            if answer(&edge, frame, 500).await == Room::default() {
                return;
            }
        }
    };
    tokio::time::timeout(TIME_MAX, ended).await.expect("the edge hears of it");
}

/// A network over TCP with `bytes_per_second` to the camera. Returns the edge's address behind it.
async fn slow_downlink(edge: SocketAddr, bytes_per_second: f64) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((camera, _)) = listener.accept().await {
            let edge = TcpStream::connect(edge).await.unwrap();
            // A large receive buffer would be a fast network with a large queue.
            socket2::SockRef::from(&edge).set_recv_buffer_size(8 << 10).unwrap();
            let ((mut up, mut down), (mut from_edge, mut to_edge)) = (camera.into_split(), edge.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut up, &mut to_edge).await });
            tokio::spawn(async move {
                let mut piece = [0; 1_400];
                while let Ok(bytes @ 1..) = from_edge.read(&mut piece).await {
                    tokio::time::sleep(Duration::from_secs_f64(bytes as f64 / bytes_per_second)).await;
                    if down.write_all(&piece[..bytes]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// 100 kB/s cannot carry thirty pictures of 40 kB. The newest ones are delivered, and each other one is reported with a reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_downlink_carries_the_newest() {
    let site = Site::new(Transport::Tcp);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", slow_downlink(edge.link_address(), 100e3).await);
    camera.set_answers(Some(Duration::from_millis(1_500)));
    let mut frames = frames_of(&edge).await;
    connected(&camera).await;
    let (first, before) = wanted_after(&edge, &camera, &mut frames).await;
    assert_eq!(next(&camera).await.0.frame, first);
    let (mut given, mut previous) = (1, first);
    let mut room = Room::default();
    for _ in 0..30 {
        let frame = frame(&camera, &mut frames).await;
        room = answer(&edge, frame, 40_000).await;
        let soon = tokio::time::timeout(Duration::from_millis(30), camera.next_answer()).await;
        if let Ok(Some((answered, _))) = soon {
            assert!(answered.frame > previous, "{} after {previous}", answered.frame);
            (given, previous) = (given + 1, answered.frame);
        }
    }
    // Pending answers are delivered, or become too old.
    let rest = async {
        while given + camera.answers_skipped().total() < 30 + before {
            if let Ok(Some((answered, _))) =
                tokio::time::timeout(Duration::from_millis(50), camera.next_answer()).await
            {
                assert!(answered.frame > previous, "{} after {previous}", answered.frame);
                (given, previous) = (given + 1, answered.frame);
            }
        }
    };
    tokio::time::timeout(TIME_MAX, rest).await.expect("every answer is given or told");
    let skipped = camera.answers_skipped();
    assert_eq!(given + skipped.total(), 30 + before, "{skipped:?}");
    assert!(given >= 2, "nothing came: {skipped:?}");
    let not_sent = skipped.get(AnswerSkip::Replaced) + skipped.get(AnswerSkip::Late);
    assert!(not_sent >= 10, "the downlink was not slow: {skipped:?}");
    assert!(room.bytes.is_some_and(|bytes| bytes < 1_000_000), "the way is known: {room:?}");
}
