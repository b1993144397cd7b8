//! Camera broker, QUIC link, edge broker and subscriptions over real sockets on loopback.

mod link_support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::SkipReason;
use mez_core::subscription::{Deliver, Delivery, Span};
use mez_node::camera::{CameraBroker, CameraHandle, Transport};
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};
use mez_node::reply::{Detection, Detections, ReplyContent};

use self::link_support::{Site, both_ways, connected, image, loopback, number, picture};

both_ways! {
    frames_cross_whole_in_order_and_with_their_age;
    a_frame_that_the_edge_refuses_is_over;
    nothing_crosses_without_a_subscriber;
    an_edge_that_restarts_gets_its_cameras_back;
    a_camera_that_restarts_begins_a_new_epoch;
    replies_reach_the_publisher;
    with_a_floor_frames_are_made_to_fit;
    an_image_that_no_codec_can_read_costs_itself;
}

async fn edge_at(site: &Site, listen: SocketAddr) -> EdgeHandle {
    site.edge(site.edge_options(listen, EdgeConfig::default())).await
}

async fn frame(subscription: &mut EdgeSubscription) -> (u64, u32, Option<Duration>) {
    loop {
        match subscription.next().await {
            Served::Frame { delivery, times, .. } => {
                let frame = &delivery.record.frame;
                let age = times
                    .captured
                    .map(|(captured, _)| mez_node::clock::monotonic_now().saturating_since(captured));
                return (frame.meta.id.epoch.0, number(&frame.payload), age);
            }
            Served::Camera { .. } | Served::Contract(_) | Served::Waiting { .. } => {}
            other => panic!("no frame: {other:?}"),
        }
    }
}

/// Publishes until a frame arrives, since a subscription takes a moment to reach the camera.
async fn publish_until_delivered(
    camera: &CameraHandle,
    subscription: &mut EdgeSubscription,
    from: u32,
) -> u32 {
    for value in from.. {
        camera.publish(image(value, 1000)).unwrap();
        if let Ok((_, got, _)) = tokio::time::timeout(Duration::from_millis(100), frame(subscription)).await {
            return got;
        }
        assert!(value < from + 100, "nothing was delivered");
    }
    unreachable!("the loop ends by returning")
}

async fn frames_cross_whole_in_order_and_with_their_age(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let span = Span { deliver: Deliver::Every, ..Span::LIVE };
    let mut subscription =
        edge.subscribe("dock/*".parse().unwrap(), Contract::default(), span).await.unwrap();
    connected(&camera).await;
    let mut last = publish_until_delivered(&camera, &mut subscription, 0).await;
    for value in 1000..1060 {
        camera.publish(image(value, 1_000_000)).unwrap();
        let (_, got, age) = frame(&mut subscription).await;
        assert!(got > last, "{got} after {last}");
        last = got;
        let age = age.expect("the clocks have been compared by now");
        assert!(age < Duration::from_secs(5), "a frame of {age:?}");
    }
    assert_eq!(last, 1059);
}

/// A second camera halves the first one's share of the edge's memory, after the first was told a larger limit.
/// Its next frame is refused, while it is being sent or after it was sent. The following frame is sent at once.
async fn a_frame_that_the_edge_refuses_is_over(transport: Transport) {
    let site = Site::new(transport);
    let edge = site
        .edge(site.edge_options(loopback(), EdgeConfig { log_bytes_max: 1 << 20, ..EdgeConfig::default() }))
        .await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription =
        edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    publish_until_delivered(&camera, &mut subscription, 0).await;
    let second = site.camera("dock/cam2", edge.link_address());
    connected(&second).await;
    for value in [1000, 2000, 3000] {
        camera.publish(image(value, 900_000)).unwrap();
        // In this time the frame is sent completely, or not: both cases occur.
        tokio::time::sleep(Duration::from_millis(u64::from(value) / 50)).await;
        camera.publish(image(value + 1, 1000)).unwrap();
        loop {
            let Served::Frame { delivery, .. } = subscription.next().await else { continue };
            let refused = delivery.skipped.of(SkipReason::Refused);
            assert_eq!(
                (number(&delivery.record.frame.payload), refused),
                (value + 1, 1),
                "{:?}",
                delivery.skipped
            );
            break;
        }
    }
}

async fn nothing_crosses_without_a_subscriber(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    connected(&camera).await;
    for value in 0..20 {
        camera.publish(image(value, 5000)).unwrap();
    }
    let pattern: mez_core::name::CameraPattern = "dock/cam1".parse().unwrap();
    let mut subscription = edge.subscribe(pattern.clone(), Contract::default(), Span::LIVE).await.unwrap();
    assert_eq!(edge.cameras().await.unwrap()[0].counters.received, 0);
    let got = publish_until_delivered(&camera, &mut subscription, 100).await;
    assert!(got >= 100, "frame {got} was captured before anybody subscribed");
}

async fn an_edge_that_restarts_gets_its_cameras_back(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let address = edge.link_address();
    let camera = site.camera("dock/cam1", address);
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    publish_until_delivered(&camera, &mut subscription, 0).await;
    edge.stop().await;
    while !matches!(subscription.next().await, Served::Stopped) {}
    drop(subscription);

    let edge = edge_at(&site, address).await;
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    let got = publish_until_delivered(&camera, &mut subscription, 500).await;
    assert!(got >= 500);
}

async fn a_camera_that_restarts_begins_a_new_epoch(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    publish_until_delivered(&camera, &mut subscription, 0).await;
    drop(camera);
    // The driver releases the lock when it stops.
    let camera = loop {
        let options = site.camera_options("dock/cam1", edge.link_address());
        match CameraBroker::start(options) {
            Ok(camera) => break camera,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    connected(&camera).await;
    camera.publish(image(7, 100)).unwrap();
    publish_until_delivered(&camera, &mut subscription, 8).await;
    camera.publish(image(200, 100)).unwrap();
    loop {
        let (epoch, got, _) = frame(&mut subscription).await;
        assert_eq!(epoch, 2);
        if got == 200 {
            break;
        }
    }
}

async fn replies_reach_the_publisher(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    connected(&camera).await;
    let id = camera.publish(image(1, 100)).unwrap();
    let name: mez_core::name::CameraName = "dock/cam1".parse().unwrap();
    let item = Detection { xyxy: [1.0, 2.0, 3.0, 4.0], class_name: "person".into(), ..Detection::default() };
    let found = Detections::new((100, 100), vec![item]).unwrap();
    for content in [ReplyContent::Opaque("{}".into()), ReplyContent::Detections(found)] {
        edge.reply(name.clone(), id, "people".into(), content.clone()).await.unwrap();
        let reply = camera.next_reply().await;
        assert_eq!((reply.frame, &*reply.application, reply.content), (id, "people", content));
    }
    let opaque = |bytes| ReplyContent::Opaque(vec![0; bytes].into());
    let large = edge.reply(name, id, "people".into(), opaque(70_000)).await;
    assert!(large.is_err());
    let unknown = edge.reply("dock/cam9".parse().unwrap(), id, "people".into(), opaque(0)).await;
    assert!(unknown.unwrap_err().to_string().contains("dock/cam9"));
}

/// A network that passes TCP to an edge, and drops UDP. Returns the edge's address behind it.
async fn without_udp(edge: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    // Holds the port, and reads nothing.
    let udp = tokio::net::UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let _udp = udp;
        while let Ok((mut camera, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut edge = tokio::net::TcpStream::connect(edge).await?;
                tokio::io::copy_bidirectional(&mut camera, &mut edge).await
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn where_udp_does_not_get_through_the_link_uses_tcp() {
    let site = Site::new(Transport::Auto);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", without_udp(edge.link_address()).await);
    let mut subscription =
        edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    publish_until_delivered(&camera, &mut subscription, 0).await;
    camera.publish(image(1000, 2_000_000)).unwrap();
    while frame(&mut subscription).await.1 != 1000 {}
}

/// An edge that is starting: before it accepts TCP, UDP packets to it are lost, and so are
/// all later ones from the same socket. Returns its address, and a count of later UDP bytes.
async fn that_starts(edge: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let front = Arc::new(tokio::net::UdpSocket::bind(address).await.unwrap());
    let (runs, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (started, counted) = (Arc::clone(&runs), Arc::clone(&bytes));
    tokio::spawn(async move {
        while let Ok((mut camera, _)) = listener.accept().await {
            started.store(true, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut edge = tokio::net::TcpStream::connect(edge).await?;
                tokio::io::copy_bidirectional(&mut camera, &mut edge).await
            });
        }
    });
    tokio::spawn(async move {
        let mut onward: HashMap<SocketAddr, Option<Arc<tokio::net::UdpSocket>>> = HashMap::new();
        let mut datagram = vec![0; 1 << 16];
        while let Ok((length, camera)) = front.recv_from(&mut datagram).await {
            let known = match onward.get(&camera) {
                Some(known) => known.clone(),
                None if !runs.load(Ordering::SeqCst) => None,
                None => {
                    let socket = Arc::new(tokio::net::UdpSocket::bind(loopback()).await.unwrap());
                    socket.connect(edge).await.unwrap();
                    let (back, front) = (Arc::clone(&socket), Arc::clone(&front));
                    tokio::spawn(async move {
                        let mut datagram = vec![0; 1 << 16];
                        while let Ok(length) = back.recv(&mut datagram).await {
                            let _ = front.send_to(&datagram[..length], camera).await;
                        }
                    });
                    Some(socket)
                }
            };
            onward.insert(camera, known.clone());
            if let Some(socket) = known {
                counted.fetch_add(length as u64, Ordering::SeqCst);
                let _ = socket.send(&datagram[..length]).await;
            }
        }
    });
    (address, bytes)
}

/// A camera that dialled before the edge was running must not stay on TCP because its first packets were lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_has_just_started_is_reached_over_quic() {
    let site = Site::new(Transport::Auto);
    let edge = edge_at(&site, loopback()).await;
    let (address, over_udp) = that_starts(edge.link_address()).await;
    let camera = site.camera("dock/cam1", address);
    let mut subscription =
        edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    publish_until_delivered(&camera, &mut subscription, 0).await;
    camera.publish(image(1000, 2_000_000)).unwrap();
    while frame(&mut subscription).await.1 != 1000 {}
    assert!(over_udp.load(Ordering::SeqCst) > 2_000_000, "the frame came over TCP");
}

async fn next_frame(subscription: &mut EdgeSubscription) -> Delivery {
    loop {
        match subscription.next().await {
            Served::Frame { delivery, .. } => return *delivery,
            Served::Camera { .. } | Served::Contract(_) | Served::Waiting { .. } => {}
            other => panic!("no frame: {other:?}"),
        }
    }
}

fn floor() -> Contract {
    Contract { accuracy_floor: Some(0.9), latency_bound: Some(Duration::from_secs(1)), ..Contract::default() }
}

/// Over an unknown link, the first frames are the smallest. Over a fast link they grow to full size. Each is a picture of the stated size.
async fn with_a_floor_frames_are_made_to_fit(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription = edge.subscribe("dock/*".parse().unwrap(), floor(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    let mut rungs = Vec::new();
    for number in 0.. {
        camera.publish(picture(number as u8)).unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(150), next_frame(&mut subscription)).await;
        if let Ok(delivery) = waits {
            let frame = &delivery.record.frame;
            let seen = mez_media::jpeg::probe(&frame.payload).unwrap();
            assert_eq!((seen.width, seen.height), (frame.meta.width, frame.meta.height));
            assert_eq!(frame.meta.published, (640, 480), "a frame says how large it was published");
            rungs.push((frame.meta.rung.clone(), seen.width));
            if seen.width == 640 {
                break;
            }
        }
        assert!(number < 400, "they never grew: {rungs:?}");
    }
    assert!(rungs[0].1 < 640, "the first frame was not a small one: {rungs:?}");
}

async fn an_image_that_no_codec_can_read_costs_itself(transport: Transport) {
    let site = Site::new(transport);
    let edge = edge_at(&site, loopback()).await;
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription = edge.subscribe("dock/*".parse().unwrap(), floor(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    for number in 0..20 {
        // Unlike programs in other processes, this one can publish invalid images.
        for junk in 0..3 {
            // Too large to be sent unchanged over a barely known link.
            camera.publish(image(junk, 200_000)).unwrap();
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
        camera.publish(picture(number)).unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(500), next_frame(&mut subscription)).await;
        if let Ok(delivery) = waits
            && delivery.skipped.of(SkipReason::NotMade) > 0
        {
            assert!(mez_media::jpeg::probe(&delivery.record.frame.payload).is_ok());
            return;
        }
    }
    panic!("nobody was told that frames were not made");
}
