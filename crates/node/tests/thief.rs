//! A thief with a camera's valid keys, over real sockets: refusals, distinction of starts, and the effect of a reset.

mod api_support;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::broker::{EPOCH_BASE, EPOCH_JUMP_MAX, NUMBER_MAX};
use mez_core::frame::{ChainLink, ClockSource, Epoch, Frame, FrameId, FrameMeta, Rung, Sequence};
use mez_core::log::{LogConfig, log};
use mez_core::name::CameraName;
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Hello, Message, MessageBuffer, VERSION};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions};
use mez_node::client::{ClientError, Event, SubscribeOptions};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions};
use mez_node::identity::EDGE_SERVER_NAME;
use mez_node::identity::name::Role;
use mez_node::identity::tls::link_client_config;
use mez_node::persist::aside::put_aside_in;
use mez_node::persist::{LogKeeper, OpenLog, PersistOptions, cameras_in};
use mez_node::ports::EdgeAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use self::api_support::{Site, frame, image, number, within};

const HIGHEST: u64 = EPOCH_BASE.0 + EPOCH_JUMP_MAX;

fn dock() -> CameraName {
    "dock/cam1".parse().unwrap()
}

fn options(site: &Site, edge: &EdgeHandle, state: &str) -> CameraOptions {
    let place = EdgeAddress { host: "127.0.0.1".into(), port: edge.link_address().port() };
    let mut options = CameraOptions::new(dock(), vec![place], site.credentials(Role::Camera, "dock/cam1"));
    options.state = Some(site.folder.path().join(state));
    options
}

fn edge_options(site: &Site) -> EdgeOptions {
    let credentials = site.credentials(Role::Edge, "edge");
    let mut options = EdgeOptions::new("127.0.0.1:0".parse().unwrap(), credentials, EdgeConfig::default());
    options.state = Some(site.folder.path().join("edge-state"));
    options
}

/// Sends a hello over a real connection with a camera's keys, and returns the edge's answer.
async fn claim(site: &Site, edge: &EdgeHandle, epoch: u64) -> Message {
    let credentials = site.credentials(Role::Camera, "dock/cam1");
    let connector = TlsConnector::from(Arc::new(link_client_config(&credentials).unwrap()));
    let socket = TcpStream::connect(edge.link_address()).await.unwrap();
    let mut stream = connector.connect(EDGE_SERVER_NAME.try_into().unwrap(), socket).await.unwrap();
    let anchor = ClockAnchor { wall: wall_now(), monotonic: monotonic_now() };
    let software = "a thief".into();
    let hello = Hello { version: VERSION, camera: dock(), epoch: Epoch(epoch), attempt: 1, anchor, software };
    let mut message = Vec::new();
    Message::Hello(hello).encode(&mut message);
    // A record of type `Control`.
    let mut record = vec![1, 0];
    record.extend_from_slice(&(message.len() as u16).to_le_bytes());
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&message);
    stream.write_all(&record).await.unwrap();
    let mut messages = MessageBuffer::default();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).await.unwrap();
        let mut bytes = vec![0; usize::from(u16::from_le_bytes([head[2], head[3]]))];
        stream.read_exact(&mut bytes).await.unwrap();
        messages.push(&bytes);
        if let Some(message) = messages.next().unwrap() {
            return message;
        }
    }
}

/// Publishes until a frame of this epoch arrives, and returns its number.
async fn flows(camera: &CameraHandle, subscription: &mut mez_node::client::Subscription, epoch: u64) -> u32 {
    within(async {
        for value in 0.. {
            camera.publish(image(value, 100)).unwrap();
            let got = tokio::time::timeout(Duration::from_millis(100), frame(subscription)).await;
            if let Ok(got) = got
                && got.meta.id.epoch.0 == epoch
            {
                return number(&got.payload);
            }
        }
        unreachable!("it goes on for ever")
    })
    .await
}

/// A thief claims the last epochs, and then the highest that is believed. The camera comes back by itself, and the record distinguishes the two.
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_comes_back_after_a_thief_by_itself() {
    let site = Site::new();
    let edge = EdgeBroker::start(edge_options(&site)).unwrap();
    let camera = CameraBroker::start(options(&site, &edge, "state")).unwrap();
    let (_server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&unix).await;
    let mut subscription = client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap();
    flows(&camera, &mut subscription, 1).await;

    match within(claim(&site, &edge, NUMBER_MAX - 1)).await {
        Message::Refuse { text, .. } => {
            assert!(text.contains(&(NUMBER_MAX - 1).to_string()), "{text}");
            assert!(text.contains("mez cameras reset dock/cam1"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(camera.is_up());
    flows(&camera, &mut subscription, 1).await;

    // The real program, with its own epoch counter.
    let counter = site.folder.path().join("thief/cameras/dock/cam1");
    fs::create_dir_all(&counter).unwrap();
    fs::write(counter.join("epoch"), (HIGHEST - 1).to_string()).unwrap();
    let thief = CameraBroker::start(options(&site, &edge, "thief")).unwrap();
    flows(&thief, &mut subscription, HIGHEST).await;
    drop(thief);
    flows(&camera, &mut subscription, HIGHEST + 1).await;

    // Clients can query which starts belong to which certificate, also over TLS.
    let record = site.client(&tls).await.camera_starts(&dock()).await.unwrap();
    let epochs: Vec<u64> = record.starts.iter().map(|start| start.epoch.0).collect();
    assert_eq!(epochs, [1, HIGHEST, HIGHEST + 1]);
    let own = record.starts.iter().find(|start| start.epoch.0 == 1).unwrap();
    assert_eq!(
        (own.identity.as_str(), own.address.as_str()),
        ("spiffe://test/camera/dock/cam1", "127.0.0.1")
    );
    assert!(
        own.fingerprint.len() == 64 && !own.serial.is_empty() && own.first > Timestamp::from_nanos(1 << 60)
    );
    // The record survives a restart of the broker.
    edge.stop().await;
    let again = EdgeBroker::start(edge_options(&site)).unwrap();
    assert_eq!(again.record(&dock()).await.starts.len(), 3);
}

fn persist(folder: &Path) -> PersistOptions {
    let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
    PersistOptions::new(folder.join("edge-log"), keys)
}

/// Makes the log that an edge without bounds kept of a thief. It ends near the last epoch.
fn keep_absurd_log(site: &Site, epoch: u64) {
    let folder = site.folder.path();
    let state = folder.join("edge-state/edge/dock/cam1");
    let (opened, _) = OpenLog::open(&persist(folder), &dock(), &state, (0, Duration::ZERO)).unwrap();
    let (mut writer, reader) = log(LogConfig::default());
    let (name, store) = opened.writer(reader.cursor_at_end());
    let keeper = LogKeeper::start().unwrap();
    keeper.keep(name, store);
    let meta = FrameMeta {
        id: FrameId { epoch: Epoch(epoch), sequence: Sequence(0) },
        captured: Timestamp::from_nanos(1 << 62),
        clock_source: ClockSource::Broker,
        width: 100,
        height: 1,
        published: (100, 1),
        encoding: mez_core::frame::Encoding::Gray8,
        rung: Rung::original(),
        chain: ChainLink::still(Sequence(0)),
    };
    writer.append(Frame { meta, payload: vec![9; 100].into() }, Arc::new([]), Instant::ZERO).unwrap();
    keeper.wake();
    keeper.stop();
}

/// A state from before there were bounds: the camera is refused, with the remedy. A reset
/// on the edge's host, and only there, solves this. The thief's frames can still be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_with_an_absurd_epoch_is_cured_by_a_reset() {
    let site = Site::new();
    keep_absurd_log(&site, NUMBER_MAX - 1);
    let mut with_log = edge_options(&site);
    with_log.persist = Some(persist(site.folder.path()));
    let edge = EdgeBroker::start(with_log.clone()).unwrap();
    let (server, unix, tls) = site.serve_edge(&edge).await;
    match within(claim(&site, &edge, 3)).await {
        Message::Refuse { text, .. } => assert!(text.contains("mez cameras reset dock/cam1"), "{text}"),
        other => panic!("{other:?}"),
    }
    let client = site.client(&unix).await;
    let mut subscription = client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap();

    let refused = site.client(&tls).await.reset_camera(&dock()).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(error) if error.reason == "ONLY_ON_HOST"), "{refused}");
    assert!(refused.to_string().contains("mez cameras reset dock/cam1"), "{refused}");
    let done = client.reset_camera(&dock()).await.unwrap();
    assert_eq!((done.epoch, done.connected), (Some(Epoch(NUMBER_MAX - 1)), false));

    // The open subscription reconnects automatically, and gets the camera's own numbers.
    let camera = CameraBroker::start(options(&site, &edge, "state")).unwrap();
    flows(&camera, &mut subscription, 1).await;
    // Another reset, of a connected camera: it only costs a reconnection.
    let again = client.reset_camera(&dock()).await.unwrap();
    assert_eq!((again.epoch, again.connected), (Some(Epoch(1)), true));
    flows(&camera, &mut subscription, 1).await;

    let aside = done.put_aside.expect("there was a log");
    let logs = site.folder.path().join("edge-log");
    assert_eq!(put_aside_in(&logs).unwrap().first(), Some(&aside));
    assert_eq!(cameras_in(&logs).unwrap(), [dock()], "the new log alone");
    let read = PersistOptions { folder: aside, ..persist(site.folder.path()) };
    let (_, recovery) =
        OpenLog::open(&read, &dock(), &site.folder.path().join("reader"), (1 << 20, Duration::from_secs(9)))
            .unwrap();
    let kept: Vec<u64> = recovery.records.iter().map(|record| record.frame.meta.id.epoch.0).collect();
    assert_eq!(kept, [NUMBER_MAX - 1]);

    let resets = client.camera_starts(&dock()).await.unwrap().resets;
    let forgotten: Vec<Option<Epoch>> = resets.iter().map(|reset| reset.epoch).collect();
    assert_eq!(forgotten, [Some(Epoch(NUMBER_MAX - 1)), Some(Epoch(1))]);
    assert!(resets.iter().all(|reset| reset.uid == rustix::process::geteuid().as_raw()));

    // The edge's next start opens the new log.
    server.stop().await;
    edge.stop().await;
    let edge = EdgeBroker::start(with_log).unwrap();
    let known = edge.cameras().await.unwrap();
    assert_eq!(known.iter().map(|info| info.newest.map(|(id, _)| id.epoch.0)).collect::<Vec<_>>(), [Some(1)]);
}

/// An application without reconnection learns why its subscription ended.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_reconnect_is_told_of_the_reset() {
    let served = api_support::Served::new().await;
    let client = served.client().await;
    let options = SubscribeOptions { reconnect: false, ..SubscribeOptions::new("dock/*".parse().unwrap()) };
    let mut subscription = client.subscribe(options).await.unwrap();
    api_support::warm_up(&served.camera, &mut subscription).await;
    client.reset_camera(&dock()).await.unwrap();
    let told = within(async {
        loop {
            match subscription.next().await {
                Some(Event::Failed { reason }) => return reason.to_string(),
                Some(_) => {}
                None => return "it ended without a word".into(),
            }
        }
    });
    let told = told.await;
    assert!(told.contains("dock/cam1 was reset") && told.contains("subscribe again"), "{told}");
}
