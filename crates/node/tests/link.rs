//! Camera broker, QUIC link, edge broker and subscriptions over real sockets on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{Encoding, SkipReason};
use mez_core::subscription::{Deliver, Delivery, Span};
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::edge::{
    EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError, EdgeSubscription, ListenError, Served,
};
use mez_node::identity::folder::TemporarySite;
use mez_node::identity::name::{Role, SiteName};
use mez_node::ports::EdgeAddress;

/// Runs a case over QUIC and over TCP.
macro_rules! both_ways {
    ($($case:ident;)*) => { $(
        mod $case {
            use super::Transport;

            #[tokio::test(flavor = "multi_thread")]
            async fn over_quic() {
                super::$case(Transport::Quic).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn over_tcp() {
                super::$case(Transport::Tcp).await;
            }
        }
    )* };
}

both_ways! {
    frames_cross_whole_in_order_and_with_their_age;
    a_frame_that_the_edge_refuses_is_over;
    nothing_crosses_without_a_subscriber;
    an_edge_that_restarts_gets_its_cameras_back;
    while_an_edge_is_gone_the_next_one_has_its_cameras;
    a_camera_that_restarts_begins_a_new_epoch;
    replies_reach_the_publisher;
    with_a_floor_frames_are_made_to_fit;
    an_image_that_no_codec_can_read_costs_itself;
}

/// A site with an edge, and what it takes to start cameras.
struct Site {
    transport: Transport,
    keys: TemporarySite,
    state: tempfile::TempDir,
}

impl Site {
    fn new(transport: Transport) -> Self {
        let site: SiteName = "test".parse().unwrap();
        Self { transport, keys: TemporarySite::create(&site).unwrap(), state: tempfile::tempdir().unwrap() }
    }

    fn edge(&self, listen: SocketAddr) -> EdgeHandle {
        self.edge_with(listen, EdgeConfig::default())
    }

    fn edge_with(&self, listen: SocketAddr, config: EdgeConfig) -> EdgeHandle {
        let credentials = self.keys.keys().credentials(Role::Edge, None).unwrap();
        let options = EdgeOptions::new(listen, credentials, config);
        for _ in 0..1000 {
            match EdgeBroker::start(options.clone()) {
                Ok(edge) => return edge,
                // An edge that was just stopped lets go of its socket a moment later.
                Err(EdgeStartError::Listen(ListenError::Bind { .. })) => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{listen} stays in use")
    }

    fn camera(&self, name: &str, edge: SocketAddr) -> CameraHandle {
        self.camera_of(name, &[edge])
    }

    fn camera_of(&self, name: &str, edges: &[SocketAddr]) -> CameraHandle {
        let credentials = self.keys.keys().credentials(Role::Camera, Some(&name.parse().unwrap())).unwrap();
        let edges =
            edges.iter().map(|edge| EdgeAddress { host: edge.ip().to_string(), port: edge.port() }).collect();
        let mut options = CameraOptions::new(name.parse().unwrap(), edges, credentials);
        options.state = Some(self.state.path().into());
        options.transport = self.transport;
        CameraBroker::start(options).unwrap()
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn image(number: u32, bytes: usize) -> Published {
    let mut payload = vec![number as u8; bytes];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    Published { payload: payload.into(), encoding: Encoding::Jpeg, width: 64, height: 48, captured: None }
}

fn number(payload: &Bytes) -> u32 {
    let number = u32::from_le_bytes(payload[..4].try_into().unwrap());
    assert!(payload[4..].iter().all(|byte| *byte == number as u8), "the payload was altered");
    number
}

async fn frame(subscription: &mut EdgeSubscription) -> (u64, u32, Option<Duration>) {
    loop {
        match subscription.next().await {
            Served::Frame { delivery, captured, .. } => {
                let frame = &delivery.record.frame;
                let age =
                    captured.map(|(captured, _)| mez_node::clock::monotonic_now().saturating_since(captured));
                return (frame.meta.id.epoch.0, number(&frame.payload), age);
            }
            Served::Camera { .. } | Served::Contract(_) | Served::Waiting { .. } => {}
            other => panic!("no frame: {other:?}"),
        }
    }
}

async fn connected(camera: &CameraHandle) {
    camera.edge().wait_for(Option::is_some).await.unwrap();
}

/// Publishes until something arrives: a subscription takes a moment to reach the camera.
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
    let edge = site.edge(loopback());
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

/// A second camera halves the first one's share of the edge's memory, and the first has been told a larger limit. Its next
/// frame is refused, whether it is still being sent then or is there already, and the one after that goes at once.
async fn a_frame_that_the_edge_refuses_is_over(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge_with(loopback(), EdgeConfig { log_bytes_max: 1 << 20, ..EdgeConfig::default() });
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription =
        edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    publish_until_delivered(&camera, &mut subscription, 0).await;
    let second = site.camera("dock/cam2", edge.link_address());
    connected(&second).await;
    for value in [1000, 2000, 3000] {
        camera.publish(image(value, 900_000)).unwrap();
        // Time for all of it to be there, or not: both happen.
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
    let edge = site.edge(loopback());
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

/// The camera moves by itself, and subscribers of the next edge get what is published from then on.
async fn while_an_edge_is_gone_the_next_one_has_its_cameras(transport: Transport) {
    let site = Site::new(transport);
    let (first, second) = (site.edge(loopback()), site.edge(loopback()));
    let places = [first.link_address(), second.link_address()];
    let camera = site.camera_of("dock/cam1", &places);
    connected(&camera).await;
    assert_eq!(camera.edge().borrow().as_ref().map(|edge| edge.port), Some(places[0].port()));
    let mut subscription =
        second.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    first.stop().await;
    let is_second =
        |edge: &Option<EdgeAddress>| edge.as_ref().is_some_and(|edge| edge.port == places[1].port());
    camera.edge().wait_for(is_second).await.unwrap();
    publish_until_delivered(&camera, &mut subscription, 1).await;
}

async fn an_edge_that_restarts_gets_its_cameras_back(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(loopback());
    let address = edge.link_address();
    let camera = site.camera("dock/cam1", address);
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    publish_until_delivered(&camera, &mut subscription, 0).await;
    edge.stop().await;
    while !matches!(subscription.next().await, Served::Stopped) {}
    drop(subscription);

    let edge = site.edge(address);
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    let got = publish_until_delivered(&camera, &mut subscription, 500).await;
    assert!(got >= 500);
}

async fn a_camera_that_restarts_begins_a_new_epoch(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(loopback());
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription =
        edge.subscribe("**".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    publish_until_delivered(&camera, &mut subscription, 0).await;
    drop(camera);
    // The lock goes with the driver, which stops as soon as it runs.
    let camera = loop {
        let credentials =
            site.keys.keys().credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
        let mut options = CameraOptions::new(
            "dock/cam1".parse().unwrap(),
            vec![EdgeAddress { host: "127.0.0.1".into(), port: edge.link_address().port() }],
            credentials,
        );
        options.state = Some(site.state.path().into());
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
    let edge = site.edge(loopback());
    let camera = site.camera("dock/cam1", edge.link_address());
    connected(&camera).await;
    let id = camera.publish(image(1, 100)).unwrap();
    let name: mez_core::name::CameraName = "dock/cam1".parse().unwrap();
    edge.reply(name.clone(), id, "people".into(), Bytes::from_static(b"{}")).await.unwrap();
    let reply = camera.next_reply().await;
    assert_eq!((reply.frame, &*reply.application, &*reply.payload), (id, "people", &b"{}"[..]));
    let large = edge.reply(name, id, "people".into(), vec![0; 70_000].into()).await;
    assert!(large.is_err());
    let unknown = edge.reply("dock/cam9".parse().unwrap(), id, "people".into(), Bytes::new()).await;
    assert!(unknown.unwrap_err().to_string().contains("dock/cam9"));
}

/// A network that lets TCP through to an edge and swallows UDP. Gives the address under which the edge is reached.
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
    let edge = site.edge(loopback());
    let camera = site.camera("dock/cam1", without_udp(edge.link_address()).await);
    let mut subscription =
        edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    publish_until_delivered(&camera, &mut subscription, 0).await;
    camera.publish(image(1000, 2_000_000)).unwrap();
    while frame(&mut subscription).await.1 != 1000 {}
}

/// A picture with some structure, as a camera publishes it.
fn picture(number: u8) -> Published {
    let (width, height) = (640, 480);
    let pixel = |at: u32| (at % width / 8 * 5 + at / width / 8 * 3) as u8 ^ number;
    let pixels: Vec<u8> = (0..width * height).map(pixel).collect();
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
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

/// The first frames over an unknown link are the smallest; then, over a fast one, they grow until they have all pixels.
/// Whatever their size, they are pictures of the size that they state.
async fn with_a_floor_frames_are_made_to_fit(transport: Transport) {
    let site = Site::new(transport);
    let edge = site.edge(loopback());
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
    let edge = site.edge(loopback());
    let camera = site.camera("dock/cam1", edge.link_address());
    let mut subscription = edge.subscribe("dock/*".parse().unwrap(), floor(), Span::LIVE).await.unwrap();
    connected(&camera).await;
    for number in 0..20 {
        // Programs in other processes cannot publish what is no image; this one can.
        for junk in 0..3 {
            // Too large to go as it is, as little as is known of the link.
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
