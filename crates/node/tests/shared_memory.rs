//! Frames in memory that a broker shares with programs of its host, with programs that hold on, lie, refuse and die.

mod api_support;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use api_support::{Served, Site, frame, image, number, warm_up, within};
use bytes::Bytes;
use mez_core::subscription::Deliver;
use mez_node::api::pb;
use mez_node::api::pb::subscribe_event::Event;
use mez_node::camera::CameraHandle;
use mez_node::client::{Address, SubscribeOptions, Subscription};
use mez_node::local::{Kind, LocalConnection, Packet, PacketError, Place};
use tokio::sync::Mutex;

/// Tests that count resources of this process must not run at the same time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Large enough for shared memory.
const LARGE: u32 = 200_000;

/// The address ranges of shared memory.
fn shared_ranges() -> Vec<std::ops::Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:mez-frames"));
    let range = |line: &str| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(begin, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    };
    shared.map(|line| range(line).expect("a range of addresses")).collect()
}

fn is_shared(payload: &Bytes) -> bool {
    shared_ranges().iter().any(|range| range.contains(&(payload.as_ptr() as usize)))
}

/// The number of open descriptors of shared memory.
fn descriptors() -> usize {
    let open =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    open.filter(|file| file.to_string_lossy().contains("mez-frames")).count()
}

async fn subscribe(site: &Site, socket: &Address) -> Subscription {
    let client = site.client(socket).await;
    let every =
        SubscribeOptions { deliver: Some(Deliver::Every), ..SubscribeOptions::new("**".parse().unwrap()) };
    client.subscribe(every).await.unwrap()
}

/// Publishes until a frame comes through shared memory. Returns its number.
async fn until_shared(
    camera: &CameraHandle,
    subscription: &mut Subscription,
    first: u32,
    pixels: u32,
) -> u32 {
    for value in first..first + 100 {
        camera.publish(image(value, pixels)).unwrap();
        let frame = frame(subscription).await;
        assert_eq!(number(&frame.payload), value);
        if is_shared(&frame.payload) {
            return value;
        }
    }
    panic!("no frame came through shared memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_holds_frames_gets_the_next_ones_through_the_socket() {
    let _alone = ALONE.lock().await;
    let rig = Served::new().await;
    let mut subscription = subscribe(&rig.site, &rig.unix).await;
    warm_up(&rig.camera, &mut subscription).await;
    let mut next = until_shared(&rig.camera, &mut subscription, 1000, LARGE).await + 1;
    for round in 0..3 {
        let mut held = Vec::new();
        for value in next..next + 10 {
            rig.camera.publish(image(value, LARGE + value)).unwrap();
            held.push((value, frame(&mut subscription).await));
        }
        next += 10;
        let shared = held.iter().filter(|(_, frame)| is_shared(&frame.payload)).count();
        assert!((1..held.len()).contains(&shared), "round {round}: {shared} of {} shared", held.len());
        // No held frame was overwritten.
        for (value, frame) in &held {
            assert_eq!(number(&frame.payload), *value);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_grow_get_larger_memory_and_the_largest_go_through_the_socket() {
    let _alone = ALONE.lock().await;
    let rig = Served::new().await;
    let mut subscription = subscribe(&rig.site, &rig.unix).await;
    warm_up(&rig.camera, &mut subscription).await;
    let mut next = 1000;
    for pixels in [100_000, 300_000, 1_000_000] {
        next = until_shared(&rig.camera, &mut subscription, next, pixels).await + 1;
    }
    for pixels in [9_000_000, 500, 60_000] {
        for value in next..next + 3 {
            rig.camera.publish(image(value, pixels)).unwrap();
            let frame = frame(&mut subscription).await;
            assert_eq!(number(&frame.payload), value);
            assert!(!is_shared(&frame.payload), "{pixels} bytes");
        }
        next += 3;
    }
}

/// A frame's bytes stay while the program holds them, whatever happens to the broker.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_outlives_its_broker_and_nothing_is_left_behind() {
    let _alone = ALONE.lock().await;
    let before = (descriptors(), shared_ranges().len());
    let mut held = Vec::new();
    {
        let rig = Served::new().await;
        for round in 0..5 {
            let mut subscription = subscribe(&rig.site, &rig.unix).await;
            warm_up(&rig.camera, &mut subscription).await;
            let value = until_shared(&rig.camera, &mut subscription, 1000 * (round + 1), LARGE).await + 1;
            rig.camera.publish(image(value, LARGE)).unwrap();
            held.push((value, frame(&mut subscription).await.payload));
        }
        rig.server.stop().await;
        rig.edge.stop().await;
    }
    for (value, payload) in held.drain(..) {
        assert_eq!(number(&payload), value);
    }
    // Tasks end a moment after their owners.
    within(async {
        while shared_ranges().len() > before.1 || descriptors() > before.0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publishers_frames_come_whole_and_in_order() {
    let _alone = ALONE.lock().await;
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, socket) = site.serve_camera(&camera);
    let publisher = site.publisher(&socket).await;
    let maps = shared_ranges().len();
    for value in 0..60 {
        // Sizes on both sides of every limit.
        let pixels = [LARGE, 1000, 2 * LARGE, 65_536, 65_535, 3 * LARGE][value as usize % 6];
        publisher.send(image(value, pixels)).unwrap();
        if value % 3 == 0 {
            within(publisher.flush()).await;
        }
    }
    within(publisher.flush()).await;
    assert!(shared_ranges().len() > maps, "memory is shared");
    let counts = publisher.counts();
    assert_eq!((counts.refused, counts.lost, counts.accepted + counts.dropped), (0, 0, 60));
    let log = camera.log();
    let in_log: Vec<u32> = log.held().map(|index| number(&log.get(index).unwrap().frame.payload)).collect();
    assert_eq!(in_log.len() as u64, counts.accepted);
    assert!(in_log.is_sorted(), "{in_log:?}");
}

/// Reads until a packet of this kind comes.
async fn next(connection: &mut LocalConnection, kind: Kind) -> Packet {
    loop {
        let packet = within(connection.reader.read()).await.unwrap().expect("the connection stands");
        if packet.kind == kind {
            return packet;
        }
    }
}

/// Publishes until the broker offers memory. Returns the number of frames.
async fn until_offered(connection: &mut LocalConnection) -> u32 {
    let pixels = LARGE;
    let request = |number| pb::PublishRequest {
        number,
        encoding: 2,
        width: pixels,
        height: 1,
        ..pb::PublishRequest::default()
    };
    let payload = image(7, pixels).payload;
    connection.writer.write(Kind::Publish, &request(0), payload).await.unwrap();
    next(connection, Kind::Memory).await;
    1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_lies_about_places_is_refused_and_harms_nobody() {
    let _alone = ALONE.lock().await;
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, socket) = site.serve_camera(&camera);
    let path: &Path = socket.as_unix().unwrap();
    let place = |memory, slot, bytes| Place { memory, slot, bytes };
    let lies = [
        (false, place(1, 0, 1000), "before any was granted"),
        (true, place(2, 0, 1000), "memory that there is not"),
        (true, place(0, 0, 1000), "no memory"),
        (true, place(1, 200, 1000), "a slot that there is not"),
        (true, place(1, 0, 30_000_000), "more than a slot holds"),
    ];
    for (granted, place, what) in lies {
        let mut connection = LocalConnection::open(path).await.unwrap();
        if granted {
            until_offered(&mut connection).await;
        }
        let request = pb::PublishRequest { encoding: 2, width: 1000, height: 1, ..Default::default() };
        connection.writer.write_shared(Kind::Publish, &request, place).await.unwrap();
        let error = next(&mut connection, Kind::Error).await;
        match error.decode::<pb::PublishEvent>(Kind::PublishEvent) {
            Err(PacketError::Refused(error)) => assert_eq!(error.reason, "MALFORMED", "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    // A call has no payload in shared memory either.
    let mut connection = LocalConnection::open(path).await.unwrap();
    connection
        .writer
        .write_shared(Kind::Connect, &pb::ConnectRequest::default(), place(1, 0, 9))
        .await
        .unwrap();
    next(&mut connection, Kind::Error).await;
    let publisher = site.publisher(&socket).await;
    publisher.send(image(9, LARGE)).unwrap();
    within(publisher.flush()).await;
    assert_eq!(publisher.counts().accepted, 1);
}

/// A process that cannot map memory, or does not say that it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_maps_nothing_gets_everything_through_the_socket() {
    let _alone = ALONE.lock().await;
    let rig = Served::new().await;
    let mut other = subscribe(&rig.site, &rig.unix).await;
    for said in [None, Some(&[9u8][..]), Some(&[0])] {
        let mut connection = LocalConnection::open(rig.unix.as_unix().unwrap()).await.unwrap();
        let request = pb::SubscribeRequest { pattern: "**".into(), ..Default::default() };
        connection.writer.write(Kind::Subscribe, &request, Bytes::new()).await.unwrap();
        next(&mut connection, Kind::SubscribeEvent).await;
        warm_up(&rig.camera, &mut other).await;
        if let Some(number) = said {
            connection.writer.write(Kind::Mapped, &(), Bytes::copy_from_slice(number)).await.unwrap();
        }
        let (mut frames, mut kinds) = (0, HashSet::new());
        for value in 1000..1010 {
            rig.camera.publish(image(value, LARGE)).unwrap();
            let packet = loop {
                let packet = within(connection.reader.read()).await.unwrap().unwrap();
                kinds.insert(packet.kind as u8);
                if packet.kind == Kind::SubscribeEvent && packet.payload.len() == LARGE as usize {
                    break packet;
                }
                assert!(packet.shared.is_none());
            };
            let event: pb::SubscribeEvent = packet.decode(Kind::SubscribeEvent).unwrap();
            assert!(matches!(event.event, Some(Event::Frame(_))));
            assert_eq!((packet.shared, number(&packet.payload)), (None, value));
            frames += 1;
        }
        assert!(frames == 10 && kinds.contains(&(Kind::Memory as u8)), "it was offered memory");
    }
    // A client that says something else is disconnected.
    let mut connection = LocalConnection::open(rig.unix.as_unix().unwrap()).await.unwrap();
    let request = pb::SubscribeRequest { pattern: "**".into(), ..Default::default() };
    connection.writer.write(Kind::Subscribe, &request, Bytes::new()).await.unwrap();
    next(&mut connection, Kind::SubscribeEvent).await;
    connection.writer.write(Kind::Mapped, &(), Bytes::from_static(&[1, 2])).await.unwrap();
    next(&mut connection, Kind::Error).await;
}
