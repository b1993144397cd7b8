//! The client library with real brokers. The same cases run over the local protocol and over gRPC with TLS.

mod api_support;

use std::net::SocketAddr;
use std::time::Duration;

use api_support::{Served, Site, everything, frame, image, number, tcp, warm_up, within};
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::SkipReason;
use mez_core::subscription::Deliver;
use mez_node::api::{ApiLimits, ApiServer};
use mez_node::client::{
    Address, ClientError, ClientOptions, EdgeClient, Event, Profile, PublisherEvent, SendError,
    SubscribeOptions,
};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::identity::name::Role;
use mez_node::ports::EdgeAddress;
use mez_node::reply::{Detection, Detections, ReplyContent};
use tonic::Code;

fn all() -> SubscribeOptions {
    SubscribeOptions::new("**".parse().unwrap())
}

fn demanding(contract: Contract) -> SubscribeOptions {
    SubscribeOptions { contract, ..all() }
}

/// Runs a case over the local protocol and over TLS.
macro_rules! both_ways {
    ($($name:ident: $case:ident;)*) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn over_the_unix_socket() {
                super::$case(0).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn over_tls() {
                super::$case(1).await;
            }
        }
    )* };
}

both_ways! {
    frames_arrive_whole_and_in_order: whole_and_in_order;
    the_newest_wins_for_a_slow_application: newest_wins;
    every_frame_is_delivered_on_request: every_frame;
    the_past_is_read_and_ends: the_past;
    frames_may_be_larger_than_by_default: large_frames;
    a_stalled_reader_holds_up_nobody: stalled_reader;
    what_is_refused_says_which_field: refusals;
    cameras_are_listed: cameras;
    replies_reach_the_publisher: replies;
    a_camera_that_comes_later_is_waited_for: waiting;
    a_subscription_survives_a_restart_of_the_server: restart;
    stopping_is_told: stopping;
    a_publisher_elsewhere_is_accepted_refused_and_replied_to: publisher;
}

async fn whole_and_in_order(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    let mut last = warm_up(&rig.camera, &mut subscription).await;
    for value in 10_000..10_030 {
        let published = monotonic_now();
        let id = rig.camera.publish(image(value, 1_000_000)).unwrap();
        let frame = frame(&mut subscription).await;
        let got = number(&frame.payload);
        assert!(got > last, "{got} after {last}");
        last = got;
        if got == value {
            assert_eq!((frame.meta.id, frame.meta.width), (id, 1_000_000));
            let (captured, error) = frame.captured_at.expect("the clocks have been compared");
            assert!(captured + error >= published && captured <= frame.received_at + error);
        }
    }
    assert_eq!(last, 10_029);
}

async fn newest_wins(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    let mut last = warm_up(&rig.camera, &mut subscription).await;
    // Another subscription shows when the last frame has arrived.
    let mut witness = client.subscribe(all()).await.unwrap();
    let first_missed = rig.camera.log().newest().unwrap().frame.meta.id.sequence.0 + 1;
    for value in 1000..1100 {
        last = last.max(value);
        rig.camera.publish(image(value, 2000)).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while number(&frame(&mut witness).await.payload) != last {}
    let mut taken = frame(&mut subscription).await;
    let mut skipped = taken.skipped.total();
    let mut frames = 1;
    // The witness may receive a frame slightly earlier.
    while number(&taken.payload) != last {
        taken = frame(&mut subscription).await;
        skipped += taken.skipped.total();
        frames += 1;
    }
    let published = taken.meta.id.sequence.0 + 1 - first_missed;
    assert_eq!(frames + skipped, published, "delivered + skipped = published");
    assert!(frames < 50, "{frames} of {published} frames were handed to a busy application");
}

async fn every_frame(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let options = SubscribeOptions { deliver: Some(Deliver::Every), waiting_frames_max: 2, ..all() };
    let mut subscription = client.subscribe(options).await.unwrap();
    assert_eq!(subscription.deliver(), Deliver::Every);
    let before = warm_up(&rig.camera, &mut subscription).await;
    // Each frame crosses the link before the next is published, so that all of them cross.
    let mut witness = client.subscribe(all()).await.unwrap();
    for value in 1000..1040 {
        rig.camera.publish(image(value, 20_000)).unwrap();
        while number(&frame(&mut witness).await.payload) != value {}
    }
    let mut next = 1000;
    while next < 1040 {
        let got = number(&frame(&mut subscription).await.payload);
        if got > before && got >= 1000 {
            assert_eq!(got, next);
            next += 1;
        }
    }
}

async fn the_past(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut live = client.subscribe(all()).await.unwrap();
    let begin = wall_now();
    warm_up(&rig.camera, &mut live).await;
    for value in 1000..1010 {
        rig.camera.publish(image(value, 500)).unwrap();
        while number(&frame(&mut live).await.payload) != value {}
    }
    let options =
        SubscribeOptions { begin: Some(begin - Duration::from_secs(3600)), end: Some(wall_now()), ..all() };
    let mut past = client.subscribe(options).await.unwrap();
    assert_eq!(past.deliver(), Deliver::Every);
    let (mut numbers, mut not_held) = (Vec::new(), None);
    loop {
        match within(past.next()).await {
            Some(Event::Frame(frame)) => {
                numbers.push(number(&frame.payload));
                not_held = not_held.or(frame.not_held);
            }
            Some(Event::Ended { .. }) => break,
            Some(Event::Failed { reason }) => panic!("{reason}"),
            Some(_) => {}
            None => panic!("the end was not told"),
        }
    }
    assert_eq!(numbers[numbers.len() - 10..], (1000..1010).collect::<Vec<_>>());
    assert!(not_held.is_some(), "an hour ago nothing was held, and that has to be said");
    assert_eq!(within(past.next()).await, None);
}

/// Frames above the default limit are delivered if the brokers allow it. A frame
/// above the brokers' limit is refused with this limit before any byte is sent.
async fn large_frames(way: usize) {
    const LIMIT: u32 = 48 << 20;
    let site = Site::new();
    let edge = site.edge_with(EdgeConfig { frame_bytes_max: LIMIT, ..EdgeConfig::default() });
    let camera = site.camera_with("dock/cam1", &edge, |options| options.frame_bytes_max = LIMIT).await;
    let (_edge_server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&[unix, tls][way]).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    warm_up(&camera, &mut subscription).await;
    let (_camera_server, address) = site.serve_camera(&camera);
    let publisher = site.publisher(&address).await;
    let refused = publisher.send(image(7, LIMIT + 1)).unwrap_err();
    assert_eq!(refused, SendError::TooLarge { bytes: LIMIT as usize + 1, bytes_max: LIMIT });
    // On a busy host, a frame of this size may be cancelled as stalled.
    within(async {
        loop {
            publisher.send(image(2000, 40 << 20)).unwrap();
            let arrived = async { while number(&frame(&mut subscription).await.payload) != 2000 {} };
            if tokio::time::timeout(Duration::from_secs(5), arrived).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

async fn stalled_reader(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    // With a limit of one frame, the client stops reading, and the broker cannot write.
    let stalled = SubscribeOptions { deliver: Some(Deliver::Every), waiting_frames_max: 1, ..all() };
    let mut stalled = client.subscribe(stalled).await.unwrap();
    let mut quick = client.subscribe(all()).await.unwrap();
    warm_up(&rig.camera, &mut quick).await;
    for value in 1000..1060 {
        rig.camera.publish(image(value, 500_000)).unwrap();
        while number(&frame(&mut quick).await.payload) != value {}
    }
    // It gets the frames that the log still holds, in order.
    let mut last = 0;
    while last != 1059 {
        let got = number(&frame(&mut stalled).await.payload);
        assert!(got >= last);
        last = got;
    }
}

async fn refusals(way: usize) {
    let site = Site::new();
    let edge = site.edge();
    let (_server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&[unix, tls][way]).await;
    for (options, field) in [
        (demanding(Contract { accuracy_floor: Some(1.5), ..Contract::default() }), "accuracy_floor"),
        (
            demanding(Contract { latency_bound: Some(Duration::ZERO), ..Contract::default() }),
            "latency_bound_ns",
        ),
        (SubscribeOptions { profile: Some(Profile::Name("people".into())), ..all() }, "profile_name"),
        (SubscribeOptions { profile: Some(Profile::Inline("{}".into())), ..all() }, "profile_inline"),
        (SubscribeOptions { begin: Some(wall_now()), end: Some(Default::default()), ..all() }, "end_utc_ns"),
    ] {
        match client.subscribe(options).await {
            Err(ClientError::Refused(error)) => {
                assert_eq!((error.code, error.field.as_deref()), (Code::InvalidArgument, Some(field)));
                assert!(!error.reason.is_empty() && !error.message.is_empty());
            }
            other => panic!("{field}: {:?}", other.map(|_| "accepted")),
        }
    }
}

async fn cameras(way: usize) {
    let site = Site::new();
    let edge = site.edge();
    let _cameras = [site.camera("dock/cam1", &edge).await, site.camera("yard/cam1", &edge).await];
    let (_server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&[unix, tls][way]).await;
    let names = |cameras: Vec<mez_node::client::CameraSummary>| {
        cameras.into_iter().map(|camera| camera.camera.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(client.cameras(None).await.unwrap()), ["dock/cam1", "yard/cam1"]);
    let some = client.cameras(Some(&"yard/*".parse().unwrap())).await.unwrap();
    assert_eq!(some[0].identity, "spiffe://test/camera/yard/cam1");
    assert!(some[0].connected);
    assert_eq!(names(some), ["yard/cam1"]);
}

async fn replies(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    warm_up(&rig.camera, &mut subscription).await;
    let id = rig.camera.log().newest().unwrap().frame.meta.id;
    client.reply(rig.camera.name(), id, "two people".into()).unwrap();
    let reply = within(rig.camera.next_reply()).await;
    assert_eq!((reply.frame, reply.application.as_str()), (id, "viewer"));
    assert_eq!(reply.content, ReplyContent::Opaque("two people".into()));

    // Detections in a picture of half the size arrive in published pixels.
    let found = |xyxy, size| Detections::new(size, vec![Detection { xyxy, ..Detection::default() }]).unwrap();
    client
        .reply_detections(rig.camera.name(), id, (400, 300), found([1.0, 2.0, 3.0, 4.0], (200, 150)))
        .unwrap();
    let reply = within(rig.camera.next_reply()).await;
    assert_eq!(reply.content, ReplyContent::Detections(found([2.0, 4.0, 6.0, 8.0], (400, 300))));

    client.reply(&"no/such".parse().unwrap(), id, "lost".into()).unwrap();
    within(client.flush_replies()).await;
    let counts = client.reply_counts();
    assert_eq!((counts.queued, counts.sent, counts.failed, counts.dropped), (3, 2, 1, 0));
    assert!(client.reply(rig.camera.name(), id, vec![0; 65 << 10].into()).is_err());
}

async fn waiting(way: usize) {
    let site = Site::new();
    let edge = site.edge();
    let (_server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&[unix, tls][way]).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    assert!(subscription.cameras().is_empty());
    assert_eq!(within(subscription.next()).await, Some(Event::Waiting { matching: 0 }));
    let camera = site.camera("dock/cam1", &edge).await;
    match within(subscription.next()).await {
        Some(Event::Camera { camera, up: true, .. }) => assert_eq!(camera.as_str(), "dock/cam1"),
        other => panic!("{other:?}"),
    }
    warm_up(&camera, &mut subscription).await;
}

async fn restart(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    warm_up(&rig.camera, &mut subscription).await;
    let before = frame_after(&mut subscription, &rig.camera, 1000).await;
    rig.server.stop().await;
    loop {
        match within(subscription.next()).await {
            Some(Event::Disconnected { .. }) => break,
            Some(Event::Frame(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(client.cameras(None).await.is_err());
    for value in 2000..2005 {
        rig.camera.publish(image(value, 100)).unwrap();
    }
    let mut server = mez_node::api::ApiServer::edge(rig.edge.clone(), everything(), Default::default());
    match (way, &rig.tls) {
        (0, _) => server.listen_unix(rig.unix.as_unix().unwrap()).unwrap(),
        (_, Address::Tcp { port, .. }) => {
            let address = format!("127.0.0.1:{port}").parse().unwrap();
            let credentials = rig.site.credentials(Role::Edge, "edge");
            server.listen_tls(address, &credentials, &[Role::App]).await.unwrap();
        }
        _ => unreachable!("TLS has a port"),
    }
    assert_eq!(within(subscription.next()).await, Some(Event::Reconnected));
    let after = frame_after(&mut subscription, &rig.camera, 3000).await;
    assert!(after.meta.id > before.meta.id);
    let passed = after.meta.id.sequence.0 - before.meta.id.sequence.0 - 1;
    // The client resumes after its last frame. Each missed frame is counted with a reason.
    assert_eq!(after.skipped.total(), passed, "{:?}", after.skipped);
    // Until the camera learns that there is no subscriber, newer frames replace those that wait for the link.
    let gone = [SkipReason::NotWanted, SkipReason::LinkDown, SkipReason::LinkBusy];
    let gone: u64 = gone.into_iter().map(|reason| after.skipped.of(reason)).sum();
    assert!(gone >= 5, "nobody subscribed, or the link was down or busy: {:?}", after.skipped);
    assert_eq!(client.cameras(None).await.unwrap().len(), 1);
}

/// Publishes images with numbers from `from` on, until one of them arrives.
async fn frame_after(
    subscription: &mut mez_node::client::Subscription,
    camera: &mez_node::camera::CameraHandle,
    from: u32,
) -> Box<mez_node::client::ReceivedFrame> {
    let mut skipped = mez_core::frame::SkipCounts::default();
    for value in from..from + 600 {
        camera.publish(image(value, 100)).unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(100), frame(subscription));
        if let Ok(mut frame) = wait.await {
            skipped.merge(&frame.skipped);
            if number(&frame.payload) >= from {
                frame.skipped = skipped;
                return frame;
            }
        }
    }
    panic!("nothing was delivered");
}

async fn stopping(way: usize) {
    let site = Site::new();
    let edge = site.edge();
    let (server, unix, tls) = site.serve_edge(&edge).await;
    let client = site.client(&[unix, tls][way]).await;
    let options = SubscribeOptions { reconnect: false, ..all() };
    let mut subscription = client.subscribe(options).await.unwrap();
    assert!(matches!(within(subscription.next()).await, Some(Event::Waiting { .. })));
    server.stop().await;
    match within(subscription.next()).await {
        Some(Event::Failed { reason: ClientError::Refused(error) }) => assert_eq!(error.reason, "STOPPING"),
        other => panic!("{other:?}"),
    }
    assert_eq!(within(subscription.next()).await, None);
}

async fn publisher(way: usize) {
    let rig = Served::new().await;
    let (mut camera_server, camera_socket) = rig.site.serve_camera(&rig.camera);
    // Over TLS only an edge may serve, so an edge's identity stands in for a camera broker's.
    let any = "127.0.0.1:0".parse().unwrap();
    let credentials = rig.site.credentials(Role::Edge, "edge");
    let tls = camera_server.listen_tls(any, &credentials, &[Role::App]).await.unwrap();
    let address = [camera_socket, tcp(tls)][way].clone();
    let publisher = rig.site.publisher(&address).await;
    assert_eq!(publisher.camera().as_str(), "dock/cam1");
    let client = rig.client().await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    warm_up(&rig.camera, &mut subscription).await;

    let sent_at = monotonic_now();
    let sent = publisher.send(image(5000, 1_000_000)).unwrap();
    let received = loop {
        let frame = frame(&mut subscription).await;
        if number(&frame.payload) == 5000 {
            break frame;
        }
    };
    let accepted = within(publisher.next_event()).await.unwrap();
    assert_eq!(accepted, PublisherEvent::Accepted { number: sent, frame: received.meta.id });
    // The publisher's time stamp counts, not the arrival at the broker.
    let (captured, error) = received.captured_at.unwrap();
    assert!(captured + error >= sent_at);

    client.reply(rig.camera.name(), received.meta.id, "seen".into()).unwrap();
    match within(publisher.next_event()).await.unwrap() {
        PublisherEvent::Reply { frame, application, content } => {
            assert_eq!((frame, application.as_str()), (received.meta.id, "viewer"));
            assert_eq!(content, ReplyContent::Opaque("seen".into()));
        }
        other => panic!("{other:?}"),
    }
    let nothing = Detections::new((10, 10), Vec::new()).unwrap();
    let published = received.meta.published;
    client.reply_detections(rig.camera.name(), received.meta.id, published, nothing.clone()).unwrap();
    match within(publisher.next_event()).await.unwrap() {
        PublisherEvent::Reply { content, .. } => {
            assert_eq!(content, ReplyContent::Detections(nothing.scaled_to(published)));
        }
        other => panic!("{other:?}"),
    }

    // One byte less than its size needs: the broker refuses it, and the stream continues.
    let mut wrong = image(5001, 1000);
    wrong.width = 1001;
    let number = publisher.send(wrong).unwrap();
    match within(publisher.next_event()).await.unwrap() {
        PublisherEvent::Refused { number: refused, error } => {
            assert_eq!((refused, error.reason.as_str()), (number, "WRONG_SIZE"));
        }
        other => panic!("{other:?}"),
    }
    publisher.send(image(5002, 1000)).unwrap();
    within(publisher.flush()).await;
    let counts = publisher.counts();
    assert_eq!((counts.sent, counts.accepted, counts.refused), (3, 2, 1));
    assert!(publisher.send(image(0, 33 << 20)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_survives_a_restart_of_its_broker() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (server, socket) = site.serve_camera(&camera);
    let publisher = site.publisher(&socket).await;
    publisher.send(image(1, 100)).unwrap();
    assert!(matches!(within(publisher.next_event()).await, Some(PublisherEvent::Accepted { .. })));
    server.stop().await;
    assert!(matches!(within(publisher.next_event()).await, Some(PublisherEvent::Disconnected { .. })));
    publisher.send(image(2, 100)).unwrap();
    assert_eq!(publisher.counts().dropped, 1);
    let (_server, _) = site.serve_camera(&camera);
    assert!(matches!(within(publisher.next_event()).await, Some(PublisherEvent::Reconnected)));
    publisher.send(image(3, 100)).unwrap();
    assert!(matches!(within(publisher.next_event()).await, Some(PublisherEvent::Accepted { .. })));
    assert_eq!(number(&camera.log().newest().unwrap().frame.payload), 3);
}

/// Frames continue when the camera changes its edge: because the edge is gone, or because the camera left a running edge.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_follows_its_camera_to_another_edge() {
    let site = Site::new();
    let (first, second) = (site.edge(), site.edge());
    let (first_server, _, first_tls) = site.serve_edge(&first).await;
    let mut second_server = ApiServer::edge(second.clone(), everything(), ApiLimits::default());
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listening = second_server.listen_tls(any, &site.credentials(Role::Edge, "edge"), &[Role::App]).await;
    let addresses = vec![first_tls.clone(), tcp(listening.unwrap())];
    let credentials = site.credentials(Role::App, "viewer");
    let connecting = EdgeClient::connect(addresses.clone(), Some(&credentials), ClientOptions::default());
    let client = connecting.await.unwrap();
    assert_eq!(*client.address(), addresses[0], "the first that answers is the first of the order");

    let camera = site.camera("dock/cam1", &first).await;
    let mut subscription = client.subscribe(all()).await.unwrap();
    warm_up(&camera, &mut subscription).await;
    drop(camera);
    let both = [&first, &second].map(|edge| edge.link_address());
    let both = both.map(|place| EdgeAddress { host: "127.0.0.1".into(), port: place.port() });
    let camera = site.camera_with("dock/cam1", &second, |_| {}).await;
    warm_up(&camera, &mut subscription).await;
    assert_eq!(*client.address(), addresses[1]);

    drop(camera);
    let camera = site.camera_with("dock/cam1", &first, |options| options.edges = both.into()).await;
    warm_up(&camera, &mut subscription).await;
    assert_eq!(*client.address(), addresses[0]);
    first_server.stop().await;
    first.stop().await;
    warm_up(&camera, &mut subscription).await;
    assert_eq!(*client.address(), addresses[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_is_named_with_what_to_do() {
    let site = Site::new();
    let impatient = || ClientOptions { patience: Duration::ZERO, ..ClientOptions::default() };
    let missing = Address::Unix(site.socket("none.sock"));
    let error = EdgeClient::connect(vec![missing], None, impatient()).await.err().unwrap();
    assert!(
        error.to_string().contains("none.sock") && error.to_string().contains("is the broker running?"),
        "{error}"
    );

    let nobody = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
    let error = EdgeClient::connect(vec![nobody.clone()], None, impatient()).await.err().unwrap();
    assert!(
        matches!(error, ClientError::NoCredentials { .. }) && error.to_string().contains("mez keys enrol")
    );
    let credentials = site.credentials(Role::App, "viewer");
    let error = EdgeClient::connect(vec![nobody], Some(&credentials), impatient()).await.err().unwrap();
    assert!(error.to_string().contains("nothing listens there"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_cameras_are_not_served_over_tls() {
    let site = Site::new();
    let edge = site.edge();
    let (_server, _, tls) = site.serve_edge(&edge).await;
    let stranger = Site::new().credentials(Role::App, "viewer");
    let camera = site.credentials(Role::Camera, "dock/cam1");
    for (credentials, says) in [(stranger, "does not know"), (camera, "does not accept our identity there")] {
        let connected =
            EdgeClient::connect(vec![tls.clone()], Some(&credentials), ClientOptions::default()).await;
        let error = connected.err().unwrap();
        assert!(matches!(error, ClientError::Untrusted { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_dropped_lets_go_of_everything() {
    let site = Site::new();
    let edge = site.edge();
    let (server, unix, tls) = site.serve_edge(&edge).await;
    let mut ended = Vec::new();
    for address in [&unix, &tls] {
        let client = site.client(address).await;
        let options = SubscribeOptions { reconnect: false, ..all() };
        let mut subscription = client.subscribe(options).await.unwrap();
        assert!(matches!(within(subscription.next()).await, Some(Event::Waiting { .. })));
        ended.push(subscription);
    }
    drop(server);
    for mut subscription in ended {
        assert!(matches!(within(subscription.next()).await, Some(Event::Failed { .. })));
    }
    within(async {
        while unix.as_unix().unwrap().exists() {
            tokio::task::yield_now().await
        }
    })
    .await;
    // The same addresses can be used again at once.
    let mut server = mez_node::api::ApiServer::edge(edge, everything(), Default::default());
    server.listen_unix(unix.as_unix().unwrap()).unwrap();
    let client = site.client(&unix).await;
    assert!(client.cameras(None).await.unwrap().is_empty());
}
