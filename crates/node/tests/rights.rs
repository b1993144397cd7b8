//! Streams that lose their right while they run, and edges whose rights files change, are invalid, or differ.

mod api_support;

use std::sync::Arc;
use std::time::Duration;

use api_support::{Site, frame, image, warm_up, within};
use mez_core::rights::{Grant, Rights, Stance};
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_node::camera::CameraHandle;
use mez_node::client::{
    Address, ClientError, ClientOptions, EdgeClient, Event, SubscribeOptions, Subscription,
};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::identity::name::Role;
use mez_node::rights::LiveRights;

fn strict(grants: &[&str]) -> Rights {
    let grant = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        Grant {
            grantee: words[0].parse().unwrap(),
            verb: words[1].parse().unwrap(),
            cameras: words[2].parse().unwrap(),
        }
    };
    Rights::new(Stance::Deny, grants.iter().map(grant))
}

async fn client(site: &Site, address: &Address, role: Role, name: &str) -> Result<EdgeClient, ClientError> {
    let credentials = site.credentials(role, name);
    EdgeClient::connect(vec![address.clone()], Some(&credentials), ClientOptions::default()).await
}

fn live(pattern: &str) -> SubscribeOptions {
    SubscribeOptions::new(pattern.parse().unwrap())
}

/// A reading of the last ten seconds, as the edge holds them.
fn past(pattern: &str) -> SubscribeOptions {
    let now = wall_now();
    let begin = Some(Timestamp::from_nanos(now.as_nanos() - 10_000_000_000));
    SubscribeOptions { begin, end: Some(now), held_only: true, ..live(pattern) }
}

/// The reason code of a refusal, after checking its sentence.
fn refusal<T>(answer: Result<T, ClientError>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(ClientError::Refused(error)) => {
            if error.reason == "PERMISSION_DENIED" {
                assert!(
                    error.message.contains(" may not ") && error.message.contains("`mez keys grant "),
                    "{error}"
                );
            }
            Some(error.reason)
        }
        Err(error) => panic!("{error}"),
    }
}

/// An edge with two cameras, and an application that may watch one of them.
struct Running {
    site: Site,
    _server: mez_node::api::ApiServer,
    edge: mez_node::edge::EdgeHandle,
    dock: CameraHandle,
    yard: CameraHandle,
    rights: tokio::sync::watch::Sender<Arc<Rights>>,
    tls: Address,
}

impl Running {
    async fn with(grants: &[&str]) -> Self {
        let site = Site::new();
        let edge = site.edge();
        let dock = site.camera("dock/cam1", &edge).await;
        let yard = site.camera("yard/cam1", &edge).await;
        let (rights, followed) = LiveRights::changing(strict(grants));
        let (_server, _, tls) = site.serve_edge_with(&edge, followed).await;
        Self { site, _server, edge, dock, yard, rights, tls }
    }

    async fn counter(&self) -> EdgeClient {
        client(&self.site, &self.tls, Role::App, "counter").await.unwrap()
    }
}

/// The end of a subscription.
async fn failed(subscription: &mut Subscription) -> String {
    within(async {
        loop {
            match subscription.next().await {
                Some(Event::Failed { reason }) => return reason.to_string(),
                Some(_) => {}
                None => panic!("it ended without a reason"),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_gives_granted_cameras_only_and_asks_nothing_of_others() {
    let site = Running::with(&["app/counter watch dock/*", "app/counter observe dock/*"]).await;
    let client = site.counter().await;
    let mut frames = client.subscribe(live("**")).await.unwrap();
    let known: Vec<&str> = frames.cameras().iter().map(|camera| camera.as_str()).collect();
    assert_eq!(known, ["dock/cam1"]);
    warm_up(&site.dock, &mut frames).await;
    for value in 0..20 {
        site.yard.publish(image(value, 100)).unwrap();
        site.dock.publish(image(value, 100)).unwrap();
        assert_eq!(frame(&mut frames).await.camera.as_str(), "dock/cam1");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The other camera is not requested, so its frames do not cross the link.
    let cameras = site.edge.cameras().await.unwrap();
    let wanted = |name: &str| cameras.iter().find(|info| info.camera.as_str() == name).unwrap().subscriptions;
    assert_eq!((wanted("dock/cam1"), wanted("yard/cam1")), (1, 0));
    let seen: Vec<String> =
        client.cameras(None).await.unwrap().iter().map(|camera| camera.camera.to_string()).collect();
    assert_eq!(seen, ["dock/cam1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_loses_its_right_ends_with_the_reason() {
    let site = Running::with(&["app/counter watch dock/*"]).await;
    let mut frames = site.counter().await.subscribe(live("dock/cam1")).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
    let taken = monotonic_now();
    site.rights.send_replace(Arc::new(strict(&["app/counter watch yard/*"])));
    let reason = failed(&mut frames).await;
    println!("told after {:?}: {reason}", monotonic_now().saturating_since(taken));
    assert!(
        reason.contains("app/counter may not watch dock/cam1: its grants of watch are for yard/*"),
        "{reason}"
    );
    assert!(reason.contains("`mez keys grant app/counter watch dock/cam1`"), "{reason}");
    // The subscription does not come back by itself either.
    assert!(refusal(site.counter().await.subscribe(live("dock/cam1")).await).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_of_the_past_that_loses_its_right_ends_too() {
    let site =
        Running::with(&["app/counter watch **", "app/counter read **", "app/counter originals **"]).await;
    let mut frames = site.counter().await.subscribe(live("dock/cam1")).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
    // The reading continues into the future, so it is still open when the right is removed.
    let mut reading = site
        .counter()
        .await
        .subscribe(SubscribeOptions { end: None, held_only: false, ..past("dock/cam1") })
        .await
        .unwrap();
    frame(&mut reading).await;
    site.rights.send_replace(Arc::new(strict(&["app/counter watch **"])));
    let reason = failed(&mut reading).await;
    assert!(reason.contains("app/counter may not read past frames of dock/cam1"), "{reason}");
    // The live stream has the right that it needs, and continues.
    warm_up(&site.dock, &mut frames).await;
}

/// A stream whose pattern gains cameras is connected again, and gets them. A
/// subscription to every frame would also read what it missed, but may only watch.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_follows_grants_that_change() {
    follows_grants_that_change(Deliver::Newest).await;
    follows_grants_that_change(Deliver::Every).await;
}

async fn follows_grants_that_change(deliver: Deliver) {
    let site = Running::with(&["app/counter watch dock/*"]).await;
    let options = SubscribeOptions { deliver: Some(deliver), ..live("**") };
    let mut frames = site.counter().await.subscribe(options).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
    site.rights.send_replace(Arc::new(strict(&["app/counter watch yard/*"])));
    let reason = within(async {
        loop {
            match frames.next().await.expect("it goes on") {
                Event::Disconnected { reason } => return reason.to_string(),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await;
    let told = "app/counter may no longer watch dock/*: its grants of watch are now for yard/*";
    assert!(
        reason.contains(told) && reason.contains("`mez keys grant app/counter watch 'dock/*'`"),
        "{reason}"
    );
    // It is also told which of its cameras are gone.
    let gone = within(async {
        loop {
            match frames.next().await.expect("it goes on") {
                Event::Camera { camera, up: false, reason } => return (camera.to_string(), reason),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(gone, ("dock/cam1".into(), Some(reason)));
    site.dock.publish(image(1, 100)).unwrap();
    warm_up(&site.yard, &mut frames).await;
    for value in 0..10 {
        site.dock.publish(image(value, 100)).unwrap();
        site.yard.publish(image(value, 100)).unwrap();
        assert_eq!(frame(&mut frames).await.camera.as_str(), "yard/cam1");
    }
}

/// A grant for something else must not disturb a stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_for_others_does_not_touch_a_stream() {
    let site = Running::with(&["app/counter watch dock/*"]).await;
    let mut frames = site.counter().await.subscribe(live("dock/*")).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
    for grants in [&["app/counter watch dock/*", "app/other watch **"][..], &["app/counter watch dock/*"]] {
        site.rights.send_replace(Arc::new(strict(grants)));
        for value in 0..10 {
            site.dock.publish(image(value, 100)).unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    while let Some(event) = frames.try_next() {
        assert!(!matches!(event, Event::Disconnected { .. } | Event::Failed { .. }), "it was interrupted");
    }
}

// ---- bad input ---------------------------------------------------------------------------------------------

/// A grant may name an application or a camera that does not exist yet. It takes effect when both exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_for_names_that_do_not_exist_yet_waits_for_them() {
    let site = Running::with(&["app/counter watch lane/cam7", "app/late watch dock/*"]).await;
    let mut frames = site.counter().await.subscribe(live("lane/*")).await.unwrap();
    assert!(frames.cameras().is_empty());
    let lane = site.site.camera("lane/cam7", &site.edge).await;
    warm_up(&lane, &mut frames).await;
    let _other = site.site.camera("lane/cam8", &site.edge).await;
    assert_eq!(frame_after(&lane, &mut frames).await, "lane/cam7");
    let late = client(&site.site, &site.tls, Role::App, "late").await.unwrap();
    let mut frames = late.subscribe(live("dock/*")).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
}

/// The camera of the next frame, after one is published.
async fn frame_after(camera: &CameraHandle, frames: &mut Subscription) -> String {
    camera.publish(image(1, 100)).unwrap();
    frame(frames).await.camera.to_string()
}

/// Applications send requests all the time while rights change. Each answer is correct, and nothing of a camera comes that was never granted.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_while_rights_change_gets_what_is_granted_or_the_reason() {
    let site = Running::with(&[]).await;
    let all = ["app/counter watch dock/*", "app/counter observe dock/*", "app/counter reply dock/*"];
    let clients = [site.counter().await, site.counter().await];
    let (mut let_in, mut refused) = (0, 0);
    for round in 0..150 {
        let given = if round % 2 == 0 { &all[..] } else { &all[..0] };
        let changes = async {
            tokio::task::yield_now().await;
            site.rights.send_replace(Arc::new(strict(given)));
        };
        let asks = async {
            for client in &clients {
                site.dock.publish(image(round, 100)).unwrap();
                site.yard.publish(image(round, 100)).unwrap();
                match client.subscribe(live("**")).await {
                    Ok(mut frames) => {
                        let names = frames.cameras().iter().all(|camera| camera.as_str() == "dock/cam1");
                        assert!(names, "it was told of {:?}", frames.cameras());
                        while let Some(event) = frames.try_next() {
                            assert!(
                                !matches!(&event, Event::Frame(got) if got.camera.as_str() != "dock/cam1")
                            );
                        }
                        let_in += 1;
                    }
                    Err(ClientError::Refused(error)) => {
                        assert!(
                            ["PERMISSION_DENIED", "RIGHTS_CHANGED"].contains(&error.reason.as_str()),
                            "{error}"
                        );
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
                if let Ok(listed) = client.cameras(None).await {
                    assert!(listed.iter().all(|camera| camera.camera.as_str() == "dock/cam1"));
                }
            }
        };
        within(async { tokio::join!(changes, asks) }).await;
    }
    println!("let in {let_in} times, refused {refused} times");
    assert!(let_in > 10 && refused > 10, "this shows nothing: {let_in} let in, {refused} refused");
}

/// Each edge has its own file. A program that knows both gets in only where it may.
#[tokio::test(flavor = "multi_thread")]
async fn two_edges_with_different_rights_each_keep_their_own() {
    let site = Site::new();
    let (first, second) = (site.edge(), site.edge());
    let dock = site.camera("dock/cam1", &second).await;
    let serve = async |edge: &mez_node::edge::EdgeHandle, grants: &[&str]| {
        let mut server = mez_node::api::ApiServer::edge(
            edge.clone(),
            LiveRights::fixed(strict(grants)),
            mez_node::api::ApiLimits::default(),
        );
        let credentials = site.credentials(Role::Edge, "edge");
        let any = "127.0.0.1:0".parse().unwrap();
        let at = server.listen_tls(any, &credentials, &[Role::App, Role::Edge]).await.unwrap();
        (server, api_support::tcp(at))
    };
    let (_closed, closed) = serve(&first, &[]).await;
    let (_open, open) = serve(&second, &["app/counter watch dock/*"]).await;
    assert_eq!(
        refusal(client(&site, &closed, Role::App, "counter").await.unwrap().subscribe(live("dock/*")).await),
        Some("PERMISSION_DENIED".into())
    );
    let credentials = site.credentials(Role::App, "counter");
    for edges in [vec![open.clone(), closed.clone()], vec![closed, open]] {
        let both = EdgeClient::connect(edges, Some(&credentials), ClientOptions::default()).await.unwrap();
        let mut frames = both.subscribe(live("dock/*")).await.expect("one of the two lets it in");
        warm_up(&dock, &mut frames).await;
    }
}
