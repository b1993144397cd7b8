//! What an edge and its applications learn about a source: that it is lost, stalls, ends, or is live again.

use std::time::Duration;

use mez_core::contract::{Contract, ContractState};
use mez_core::name::CameraName;
use mez_core::source::{SourceStanding, SourceState};
use mez_node::camera::CameraHandle;
use mez_node::client::{Event, PublisherEvent, SubscribeOptions, Subscription};
use mez_node::edge::EdgeHandle;
use mez_node::feed::feed;
use mez_node::source::{Source, SourceOptions, SourceSpec};

use crate::api_support::{Served, Site, image, within};
use crate::rtsp::RtspServer;
use crate::support::{Video, at};

fn dock() -> CameraName {
    "dock/cam1".parse().unwrap()
}

/// Accepts every frame within ten seconds.
fn patient() -> SubscribeOptions {
    let contract = Contract { latency_bound: Some(Duration::from_secs(10)), ..Contract::default() };
    SubscribeOptions { contract, ..SubscribeOptions::new("dock/*".parse().unwrap()) }
}

async fn subscribe(served: &Served, options: SubscribeOptions) -> Subscription {
    served.client().await.subscribe(options).await.unwrap()
}

/// The events until the source is in this state, and its standing then.
async fn until_source(subscription: &mut Subscription, state: SourceState) -> (Vec<Event>, SourceStanding) {
    within(async {
        let mut before = Vec::new();
        loop {
            match subscription.next().await.expect("the subscription goes on") {
                Event::Source { source, .. } if source.state == state => return (before, source),
                event => before.push(event),
            }
        }
    })
    .await
}

/// The events before the next frame, and its number.
async fn until_frame(subscription: &mut Subscription) -> (Vec<Event>, u64) {
    within(async {
        let mut before = Vec::new();
        loop {
            match subscription.next().await.expect("the subscription goes on") {
                Event::Frame(frame) => return (before, frame.meta.id.sequence.0),
                event => before.push(event),
            }
        }
    })
    .await
}

/// The next contract state that is one of `wanted`.
async fn until_contract(
    subscription: &mut Subscription,
    wanted: &[ContractState],
) -> (ContractState, String) {
    within(async {
        loop {
            match subscription.next().await.expect("the subscription goes on") {
                Event::Contract { state, reason, .. } if wanted.contains(&state) => return (state, reason),
                _ => {}
            }
        }
    })
    .await
}

async fn known(edge: &EdgeHandle) -> (bool, Option<SourceStanding>) {
    let info = edge.cameras().await.unwrap().remove(0);
    (info.connected, info.source)
}

/// Publishes the frames of a source, like `mez camera`.
fn feeding(camera: &CameraHandle, mut source: Source) -> tokio::task::JoinHandle<()> {
    let camera = camera.clone();
    tokio::spawn(async move {
        let fed = feed(&camera, &mut source, || {}).await;
        camera.leave().await;
        fed.unwrap();
    })
}

/// A network camera loses its power and gets it back. The application learns the reason at once, and gets
/// no report of missed latency. The edge knows since when the source is lost, and when the next attempt is.
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_without_power_is_told_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RtspServer::start(folder.path()).await;
    let served = Served::new().await;
    let spec = SourceSpec::parse(&server.url()).unwrap();
    let source = Source::spawn(spec, SourceOptions::default()).await.unwrap();
    let feeding = feeding(&served.camera, source);
    let mut subscription = subscribe(&served, patient()).await;
    until_frame(&mut subscription).await;
    let (connected, source) = known(&served.edge).await;
    assert!(connected && source.is_none_or(|source| source.state == SourceState::Live));

    server.switch_off().await;
    let (before, lost) = until_source(&mut subscription, SourceState::Lost).await;
    assert!(!lost.reason.is_empty() && !lost.reason.contains("secret"), "{lost:?}");
    let missed = |event: &Event| matches!(event, Event::Contract { state: ContractState::LatencyMiss, .. });
    assert!(!before.iter().any(missed), "{before:?}");
    let (_, reason) = until_contract(&mut subscription, &[ContractState::SourceLost]).await;
    assert!(reason.starts_with("the camera's source is lost: "), "{reason}");
    // A new application is informed first of all.
    let mut late = subscribe(&served, patient()).await;
    let (before, _) = until_source(&mut late, SourceState::Lost).await;
    assert!(!before.iter().any(|event| matches!(event, Event::Frame(_))), "{before:?}");
    drop(late);
    within(async {
        while known(&served.edge).await.1.and_then(|source| source.retry).is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let (connected, source) = known(&served.edge).await;
    assert!(connected && source.unwrap().since.is_some());

    server.switch_on(folder.path()).await;
    until_source(&mut subscription, SourceState::Live).await;
    let (before, _) = until_frame(&mut subscription).await;
    assert!(!before.iter().any(missed), "nobody missed a frame that was never captured: {before:?}");
    feeding.abort();
}

/// A recording has ended: this is no fault, and stays known after the camera broker has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_ends_is_told() {
    let video = Video::new("short.avi", "64x48", 20, &["-c:v", "mjpeg", "-q:v", "3"]);
    let served = Served::new().await;
    let mut subscription = subscribe(&served, SubscribeOptions::new("dock/*".parse().unwrap())).await;
    let source = Source::spawn(video.spec(), at(20.0)).await.unwrap();
    let feeding = feeding(&served.camera, source);
    until_source(&mut subscription, SourceState::Ended).await;
    feeding.await.unwrap();
    let reason = within(async {
        loop {
            if let Some(Event::Camera { up: false, reason, .. }) = subscription.next().await {
                return reason;
            }
        }
    });
    assert_eq!(reason.await.as_deref(), Some("the camera's source has ended"));
    let (connected, source) = known(&served.edge).await;
    assert_eq!((connected, source.map(|source| source.state)), (false, Some(SourceState::Ended)));
    // No event would end this state when the camera returns, so a new application only learns that no camera is connected.
    let mut late = subscribe(&served, patient()).await;
    let told = within(async {
        loop {
            match late.next().await.expect("the subscription goes on") {
                Event::Waiting { .. } => return None,
                Event::Source { source, .. } => return Some(source),
                _ => {}
            }
        }
    });
    assert_eq!(told.await, None);
}

/// A program publishes through the broker's socket: it stalls, continues, and closes regularly. Another one just disappears.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_stalls_and_closes_is_told() {
    let served = Served::new().await;
    let (_server, address) = served.site.serve_camera(&served.camera);
    let mut subscription = subscribe(&served, SubscribeOptions::new("dock/*".parse().unwrap())).await;
    let publisher = served.site.publisher(&address).await;
    for number in 0..10 {
        publisher.send(image(number, 100)).unwrap();
        publisher.flush().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (_, stalled) = until_source(&mut subscription, SourceState::Stalled).await;
    assert!(stalled.reason.contains("per second"), "{stalled:?}");
    publisher.send(image(10, 100)).unwrap();
    until_source(&mut subscription, SourceState::Live).await;
    publisher.finish().await;
    drop(publisher);
    until_source(&mut subscription, SourceState::Ended).await;

    let publisher = served.site.publisher(&address).await;
    publisher.send(image(11, 100)).unwrap();
    until_source(&mut subscription, SourceState::Live).await;
    drop(publisher);
    let (_, lost) = until_source(&mut subscription, SourceState::Lost).await;
    assert!(lost.reason.contains("without closing its stream"), "{lost:?}");
    assert_eq!(lost.retry, None);
}

/// A finished program keeps its publisher for a while: the source has ended, and does not become lost later.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_is_kept_after_its_end_stays_ended() {
    let served = Served::new().await;
    let (_server, address) = served.site.serve_camera(&served.camera);
    let mut subscription = subscribe(&served, SubscribeOptions::new("dock/*".parse().unwrap())).await;
    let publisher = served.site.publisher(&address).await;
    publisher.send(image(0, 100)).unwrap();
    publisher.finish().await;
    until_source(&mut subscription, SourceState::Ended).await;
    within(async {
        while let Some(event) = publisher.next_event().await {
            let goes_on = matches!(event, PublisherEvent::Disconnected { .. } | PublisherEvent::Reconnected);
            assert!(!goes_on, "{event:?}");
        }
    })
    .await;
    drop(publisher);
    let (_, source) = known(&served.edge).await;
    assert_eq!(source.map(|source| source.state), Some(SourceState::Ended));
}

/// A program reports that its camera was unplugged. A frame revokes this; the end of the program does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_says_that_its_source_is_lost_is_believed() {
    let served = Served::new().await;
    let (_server, address) = served.site.serve_camera(&served.camera);
    let mut subscription = subscribe(&served, SubscribeOptions::new("dock/*".parse().unwrap())).await;
    let publisher = served.site.publisher(&address).await;
    publisher.send(image(0, 100)).unwrap();
    publisher.tell_lost("the cable is out");
    let (_, lost) = until_source(&mut subscription, SourceState::Lost).await;
    assert_eq!((lost.reason.as_str(), lost.is_final()), ("the cable is out", true));
    publisher.send(image(1, 100)).unwrap();
    until_source(&mut subscription, SourceState::Live).await;
    publisher.tell_lost("out again");
    publisher.finish().await;
    let (_, lost) = until_source(&mut subscription, SourceState::Lost).await;
    assert_eq!(lost.reason, "out again");
    within(async { while publisher.next_event().await.is_some() {} }).await;
    let (_, source) = known(&served.edge).await;
    let known = source.map(|source| (source.state, source.reason));
    assert_eq!(known, Some((SourceState::Lost, "out again".into())));
    // Nothing of the report was counted as a frame.
    let counts = publisher.counts();
    assert_eq!((counts.accepted, counts.refused, counts.lost), (2, 0, 0), "{counts:?}");
}

/// The broker restarts while the camera is unplugged: the new broker is informed too.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_comes_back_hears_that_the_source_is_lost() {
    let served = Served::new().await;
    let (server, address) = served.site.serve_camera(&served.camera);
    let mut subscription = subscribe(&served, SubscribeOptions::new("dock/*".parse().unwrap())).await;
    let publisher = served.site.publisher(&address).await;
    publisher.send(image(0, 100)).unwrap();
    publisher.tell_lost("the cable is out");
    until_source(&mut subscription, SourceState::Lost).await;
    drop(server);
    within(async {
        while publisher.is_connected() {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    })
    .await;
    served.camera.publish(image(1, 100)).unwrap();
    until_source(&mut subscription, SourceState::Live).await;
    let (_server, _) = served.site.serve_camera(&served.camera);
    let (_, lost) = until_source(&mut subscription, SourceState::Lost).await;
    assert_eq!(lost.reason, "the cable is out");
}

/// A program publishes over gRPC or in the broker's own process, and ends. Also over TCP.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_leaves_says_so_over_either_transport() {
    use mez_node::camera::{SourceNews, Transport};
    for transport in [Transport::Quic, Transport::Tcp] {
        let site = Site::new();
        let edge = site.edge();
        let served = Served::with(site, edge, |options| options.transport = transport).await;
        let mut subscription =
            subscribe(&served, SubscribeOptions::new(dock().as_str().parse().unwrap())).await;
        for number in 0..3 {
            served.camera.publish(image(number, 100)).unwrap();
        }
        served.camera.tell_source(SourceNews::Ended);
        within(served.camera.leave()).await;
        until_source(&mut subscription, SourceState::Ended).await;
    }
}
