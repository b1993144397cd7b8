//! Who gets what: every verb through every interface, and streams that lose their right while they run.

mod api_support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use api_support::{Site, frame, image, warm_up, within};
use mez_core::frame::Rung;
use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_node::api::contract::Profile;
use mez_node::camera::CameraHandle;
use mez_node::client::{
    Address, ClientError, ClientOptions, EdgeClient, Event, SubscribeOptions, Subscription,
};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::identity::name::Role;
use mez_node::rights::LiveRights;

/// What each verb that some interface asks for may do, by camera.
const ASKED: [Verb; 7] =
    [Verb::Watch, Verb::Read, Verb::Originals, Verb::Reply, Verb::Observe, Verb::Profile, Verb::Operate];

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

/// The last ten seconds, as the edge holds them.
fn past(pattern: &str) -> SubscribeOptions {
    let now = wall_now();
    let begin = Some(Timestamp::from_nanos(now.as_nanos() - 10_000_000_000));
    SubscribeOptions { begin, end: Some(now), held_only: true, ..live(pattern) }
}

/// The reason for which something was refused, after a look at its sentence.
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

/// What becomes of `verb` on `camera`.
async fn outcome(client: &EdgeClient, verb: Verb, camera: &str) -> &'static str {
    let name = camera.parse().unwrap();
    let refused = match verb {
        Verb::Watch => refusal(client.subscribe(live(camera)).await),
        Verb::Read => refusal(client.subscribe(past(camera)).await),
        Verb::Originals => {
            let options =
                SubscribeOptions { held_only: false, quality: Some(Rung::original()), ..past(camera) };
            refusal(client.subscribe(options).await)
        }
        Verb::Profile => {
            let profile = Some(Profile::Inline(b"{}".as_slice().into()));
            refusal(client.subscribe(SubscribeOptions { profile, ..live(camera) }).await)
        }
        Verb::Observe => refusal(client.cameras(Some(&camera.parse().unwrap())).await),
        Verb::Operate => refusal(client.reset_camera(&name).await),
        Verb::Reply => {
            let failed = client.reply_counts().failed;
            let frame = mez_core::frame::FrameId {
                epoch: mez_core::frame::Epoch(1),
                sequence: mez_core::frame::Sequence(1),
            };
            client.reply(&name, frame, b"result".as_slice().into()).unwrap();
            client.flush_replies().await;
            (client.reply_counts().failed > failed).then(|| "PERMISSION_DENIED".into())
        }
        _ => unreachable!("nothing asks for it"),
    };
    match refused.as_deref() {
        Some("PERMISSION_DENIED") => "no",
        Some("ONLY_ON_HOST") => "host",
        // The request came past the rights: `{}` is no profile.
        None | Some("INVALID_PROFILE") => "yes",
        Some(other) => panic!("{verb} {camera}: {other}"),
    }
}

/// Prints who may do what through which interface, and compares it with what was granted:
/// `cargo test -p mez-node --test rights -- --nocapture matrix`.
#[tokio::test(flavor = "multi_thread")]
async fn the_matrix_of_roles_verbs_cameras_and_interfaces() {
    let (site, all) = (Site::new(), "watch read originals reply observe profile operate");
    let grants: Vec<String> = all
        .split(' ')
        .flat_map(|verb| [format!("app/counter {verb} dock/*"), format!("edge/other {verb} dock/*")])
        .chain(["app/looker watch dock/cam1".into()])
        .collect();
    let rights = LiveRights::fixed(strict(&grants.iter().map(String::as_str).collect::<Vec<_>>()));
    let edge = site.edge();
    // A camera publishes its own name over the link; another name is refused before it dials, and by the edge.
    let _granted = site.camera("dock/cam1", &edge).await;
    let _foreign = site.camera("yard/cam1", &edge).await;
    let (_server, unix, tls) = site.serve_edge_with(&edge, rights).await;

    let rows: [(&str, Role, &str, &Address, &str, &str); 5] = [
        (
            "app, granted",
            Role::App,
            "counter",
            &tls,
            "yes yes yes yes yes yes host",
            "no no no no no no host",
        ),
        ("app, watch only", Role::App, "looker", &tls, "yes no no no no no host", "no no no no no no host"),
        ("app, nothing", Role::App, "stranger", &tls, "no no no no no no host", "no no no no no no host"),
        (
            "edge, granted",
            Role::Edge,
            "other",
            &tls,
            "yes yes yes yes yes yes host",
            "no no no no no no host",
        ),
        (
            "the edge's user",
            Role::App,
            "stranger",
            &unix,
            "yes yes yes yes yes yes yes",
            "yes yes yes yes yes yes yes",
        ),
    ];
    let verbs: Vec<String> = ASKED.iter().map(|verb| format!("{verb:>10}")).collect();
    let mut table = format!("{:16} {:6} {:10}{}\n", "who", "by", "camera", verbs.concat());
    let mut wrong = Vec::new();
    for (who, role, name, address, granted, foreign) in rows {
        let client = client(&site, address, role, name).await.unwrap();
        let by = if address.as_unix().is_some() { "socket" } else { "gRPC" };
        for (camera, expected) in [("dock/cam1", granted), ("yard/cam1", foreign)] {
            let mut found = Vec::new();
            for verb in ASKED {
                found.push(within(outcome(&client, verb, camera)).await);
            }
            let cells: Vec<String> = found.iter().map(|cell| format!("{cell:>10}")).collect();
            writeln!(table, "{who:16} {by:6} {camera:10}{}", cells.concat()).unwrap();
            if found.join(" ") != expected {
                wrong.push(format!("{who} {camera}: {} instead of {expected}", found.join(" ")));
            }
        }
    }
    // A camera's certificate opens no door for applications.
    let camera = client(&site, &tls, Role::Camera, "dock/cam1").await.err().expect("refused").to_string();
    writeln!(table, "{:16} {:6} {:10} {camera}", "camera", "gRPC", "any").unwrap();
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
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
    // Nobody wants the other camera, so that its frames do not even cross the link.
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
    // It does not come back by itself either.
    assert!(refusal(site.counter().await.subscribe(live("dock/cam1")).await).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_of_the_past_that_loses_its_right_ends_too() {
    let site =
        Running::with(&["app/counter watch **", "app/counter read **", "app/counter originals **"]).await;
    let mut frames = site.counter().await.subscribe(live("dock/cam1")).await.unwrap();
    warm_up(&site.dock, &mut frames).await;
    // It goes on into the future, so that it is still there when the right goes.
    let mut reading = site
        .counter()
        .await
        .subscribe(SubscribeOptions { end: None, held_only: false, ..past("dock/cam1") })
        .await
        .unwrap();
    frame(&mut reading).await;
    site.rights.send_replace(Arc::new(strict(&["app/counter watch **"])));
    let reason = failed(&mut reading).await;
    assert!(reason.contains("app/counter may not read the past of dock/cam1"), "{reason}");
    // The live one has what it needs, and goes on.
    warm_up(&site.dock, &mut frames).await;
}

/// Whoever may have other cameras of its pattern from now on is connected again, and gets those. Who wants every frame
/// would read what it missed, but may only watch.
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
    assert!(reason.contains("the rights of app/counter for ** have changed"), "{reason}");
    site.dock.publish(image(1, 100)).unwrap();
    warm_up(&site.yard, &mut frames).await;
    for value in 0..10 {
        site.dock.publish(image(value, 100)).unwrap();
        site.yard.publish(image(value, 100)).unwrap();
        assert_eq!(frame(&mut frames).await.camera.as_str(), "yard/cam1");
    }
}

/// A grant for something else must not disturb anybody.
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
