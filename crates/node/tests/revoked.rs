//! Revoked members: their streams and links end with the reason, new ones are
//! refused, the list reaches other edges, and a stolen camera hinders nothing.

mod api_support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api_support::{Site, frame, image, warm_up, within};
use mez_core::broker::edge::EdgeConfig;
use mez_core::broker::{EPOCH_BASE, EPOCH_JUMP_MAX};
use mez_core::revocation::{Entry, Revocations, Subject};
use mez_core::rights::Rights;
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_node::api::ApiServer;
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::client::{
    Address, ClientError, ClientOptions, EdgeClient, Event, SubscribeOptions, Subscription,
};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions};
use mez_node::identity::Credentials;
use mez_node::identity::name::Role;
use mez_node::ports::EdgeAddress;
use mez_node::revocation::{LiveRevocations, RevokedFile, SignedList, Taken, follow, seconds, shown};
use mez_node::rights::LiveRights;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn live(pattern: &str) -> SubscribeOptions {
    SubscribeOptions::new(pattern.parse().unwrap())
}

fn serial(credentials: &Credentials) -> Subject {
    Subject::Serial(shown(&credentials.chain()[0], credentials.identity()).unwrap().serial)
}

/// The site's list with this version and these revocations.
fn list(site: &Site, version: u64, revoked: &[Subject]) -> SignedList {
    let entry = Entry { since: seconds(SystemTime::now()), until: Timestamp::MAX, because: "stolen".into() };
    let mut list = Revocations::none(site.keys.keys().site().as_str());
    for subject in revoked {
        list = list.with(Timestamp::MIN, subject.clone(), entry.clone()).unwrap();
    }
    // Changes without effect, to raise the version.
    while list.version() < version {
        let other: Subject = "app/nobody".parse().unwrap();
        list = list.with(Timestamp::MIN, other.clone(), entry.clone()).unwrap();
        list = if list.version() < version { list.without(&other).unwrap() } else { list };
    }
    SignedList::sign(&site.keys.keys().load_authority().unwrap(), list).unwrap()
}

fn revoke(site: &Site, edge: &EdgeHandle, version: u64, revoked: &[Subject]) {
    let list = list(site, version, revoked);
    assert_eq!(edge.revoked().take(list.bytes, "a test"), Ok(Taken::News));
}

async fn client(credentials: &Credentials, address: &Address) -> Result<EdgeClient, ClientError> {
    EdgeClient::connect(vec![address.clone()], Some(credentials), ClientOptions::default()).await
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

/// Publishes until a frame of the camera arrives.
async fn flows(camera: &CameraHandle, subscription: &mut Subscription) {
    within(async {
        for value in 0.. {
            let _ = camera.publish(image(value, 100));
            let name = camera.name().clone();
            let got = tokio::time::timeout(Duration::from_millis(50), frame(subscription)).await;
            if got.is_ok_and(|got| got.camera == name) {
                return;
            }
        }
    })
    .await;
}

async fn is_down(camera: &CameraHandle) {
    within(camera.edge().wait_for(Option::is_none)).await.unwrap();
}

/// Live streams and readings of an application, and links over QUIC and TCP, end with the reason. Other members continue.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_revoked_one_has_open_ends_and_nothing_new_is_opened() {
    let site = Site::new();
    let edge = site.edge();
    let mut cameras = Vec::new();
    let mut revoked = Vec::new();
    for (name, transport) in [("dock/quic", Transport::Quic), ("dock/tcp", Transport::Tcp)] {
        let credentials = site.credentials(Role::Camera, name);
        revoked.push(serial(&credentials));
        let own = credentials.clone();
        let change =
            |options: &mut CameraOptions| (options.transport, options.credentials) = (transport, own);
        cameras.push(site.camera_with(name, &edge, change).await);
    }
    let other = site.camera("dock/other", &edge).await;
    let (_server, _, tls) = site.serve_edge(&edge).await;
    let app = site.credentials(Role::App, "counter");
    revoked.push(serial(&app));
    let thief = client(&app, &tls).await.unwrap();
    let honest = client(&site.credentials(Role::App, "honest"), &tls).await.unwrap();

    let mut watching = thief.subscribe(live("dock/other")).await.unwrap();
    warm_up(&other, &mut watching).await;
    let begin = Some(Timestamp::from_nanos(wall_now().as_nanos() - 10_000_000_000));
    let reading = SubscribeOptions { begin, ..live("dock/other") };
    let mut reading = thief.subscribe(reading).await.unwrap();
    frame(&mut reading).await;
    let mut frames = honest.subscribe(live("dock/*")).await.unwrap();
    for camera in [&cameras[0], &cameras[1], &other] {
        flows(camera, &mut frames).await;
    }

    revoke(&site, &edge, 3, &revoked);
    for stream in [&mut watching, &mut reading] {
        let reason = failed(stream).await;
        assert!(
            reason.contains("app/counter with the serial") && reason.contains("revoked (stolen)"),
            "{reason}"
        );
    }
    let mut reasons = Vec::new();
    within(async {
        while reasons.len() < 2 {
            if let Some(Event::Camera { up: false, reason, .. }) = frames.next().await {
                reasons.extend(reason);
            }
        }
    })
    .await;
    assert!(reasons.iter().all(|reason| reason.contains("was revoked (stolen)")), "{reasons:?}");
    for camera in &cameras {
        is_down(camera).await;
    }
    // Nothing new is possible, neither on the open connection nor on another one.
    for client in [Ok(thief), client(&app, &tls).await] {
        let refused = match client {
            Ok(client) => client.cameras(None).await.unwrap_err(),
            Err(refused) => refused,
        };
        assert!(matches!(&refused, ClientError::Refused(error) if error.reason == "REVOKED"), "{refused:?}");
    }
    // Members that were not revoked have lost nothing, and another certificate of the same name is accepted.
    flows(&other, &mut frames).await;
    let again = client(&site.credentials(Role::App, "counter"), &tls).await.unwrap();
    assert!(!again.cameras(None).await.unwrap().is_empty());
    assert!(cameras.iter().all(|camera| !camera.is_up()));
}

/// A stalled program cannot be informed, so its connection is closed: one program
/// that takes no more frames, and one behind a network that takes no more bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stands_still_is_cut_off() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, _, tls) = site.serve_edge(&edge).await;
    let app = site.credentials(Role::App, "counter");
    let dam = Dam::before(&tls).await;
    let mut streams = Vec::new();
    for address in [&tls, &dam.address] {
        let every = SubscribeOptions { deliver: Some(Deliver::Every), ..live("dock/cam1") };
        let mut stream = client(&app, address).await.unwrap().subscribe(every).await.unwrap();
        warm_up(&camera, &mut stream).await;
        streams.push(stream);
    }
    dam.closed.send_replace(true);
    // More than programs, sockets and windows can hold.
    for value in 0..48 {
        camera.publish(image(value, 1 << 20)).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(subscriptions(&edge).await, 2);
    revoke(&site, &edge, 1, &[serial(&app)]);
    let begun = monotonic_now();
    within(async {
        while subscriptions(&edge).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    println!("both were cut off after {:?}", monotonic_now().saturating_since(begun));
    // The program that continues gets what it had been sent, and then the reason.
    let reason = failed(&mut streams[0]).await;
    assert!(reason.contains("revoked"), "{reason}");
}

/// The number of subscriptions at an edge.
async fn subscriptions(edge: &EdgeHandle) -> usize {
    edge.cameras().await.unwrap().iter().map(|camera| camera.subscriptions).sum()
}

/// A path to a broker that takes no more of its bytes once it is closed, but does not end.
struct Dam {
    address: Address,
    closed: watch::Sender<bool>,
}

impl Dam {
    async fn before(address: &Address) -> Self {
        let Address::Tcp { host, port } = address else { unreachable!("it is one of TCP") };
        let behind = (host.clone(), *port);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = api_support::tcp(listener.local_addr().unwrap());
        let (closed, state) = watch::channel(false);
        // Ends with the test's runtime.
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect((behind.0.as_str(), behind.1)).await.unwrap();
                tokio::spawn(carry(near, far, state.clone()));
            }
        });
        Self { address, closed }
    }
}

/// Carries bytes in both directions until the dam is closed. Then it only holds both ends.
async fn carry(mut near: TcpStream, mut far: TcpStream, mut closed: watch::Receiver<bool>) {
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
        _ = closed.wait_for(|closed| *closed) => {}
    }
    std::future::pending::<()>().await;
    drop((near, far));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_revoked_with_all_that_it_was_given_until_then() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, _, tls) = site.serve_edge(&edge).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let client = client(&site.credentials(Role::App, "counter"), &tls).await.unwrap();
        let mut stream = client.subscribe(live("dock/*")).await.unwrap();
        warm_up(&camera, &mut stream).await;
        streams.push(stream);
    }
    revoke(&site, &edge, 1, &["app/counter".parse().unwrap()]);
    for stream in &mut streams {
        let reason = failed(stream).await;
        assert!(reason.contains("was revoked"), "{reason}");
    }
    // Certificates have whole seconds, so a certificate of the next second is newer than the revocation.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let again = client(&site.credentials(Role::App, "counter"), &tls).await.unwrap();
    assert!(again.subscribe(live("dock/*")).await.is_ok());
}

fn edge_options(site: &Site, name: &str) -> EdgeOptions {
    let credentials = site.credentials(Role::Edge, name);
    EdgeOptions::new("127.0.0.1:0".parse().unwrap(), credentials, EdgeConfig::default())
}

fn place(edge: &EdgeHandle) -> EdgeAddress {
    EdgeAddress { host: "127.0.0.1".into(), port: edge.link_address().port() }
}

async fn until_version(edge: &EdgeHandle, version: u64) {
    let mut revoked = edge.revoked().clone();
    within(async {
        while revoked.notice().list.version() < version {
            revoked.changed().await;
        }
    })
    .await;
}

/// The first edge receives the list. A camera carries it to the second one, which keeps it over a restart. Older lists have no effect after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_carries_the_list_to_other_edges() {
    let site = Site::new();
    let (first, credentials) = (site.edge(), site.credentials(Role::Edge, "second"));
    let folder = site.folder.path().join("second-keys");
    fs::create_dir_all(&folder).unwrap();
    let keys = site.keys.keys();
    let file = RevokedFile::of(&folder, keys.trust());
    let mut options = edge_options(&site, "second");
    options.revoked = Some(follow(file.clone(), &credentials).unwrap());
    let second = EdgeBroker::start(options).unwrap();
    let camera = site.camera_with("dock/cam1", &first, |options| options.edges.push(place(&second))).await;
    let app = site.credentials(Role::App, "counter");
    let one = list(&site, 1, &[]);
    revoke(&site, &first, 2, &[serial(&app)]);
    // The camera has the list on its disk.
    let kept = site.folder.path().join("state/cameras/dock/cam1/revoked.list");
    within(async {
        while !kept.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    first.stop().await;
    until_version(&second, 2).await;
    assert!(camera.edge().borrow().is_some());
    let mut server = ApiServer::edge(second.clone(), LiveRights::fixed(Rights::open()), Default::default());
    let address =
        server.listen_tls("127.0.0.1:0".parse().unwrap(), &credentials, &[Role::App]).await.unwrap();
    let refused = client(&app, &api_support::tcp(address)).await.err().expect("refused");
    assert!(matches!(&refused, ClientError::Refused(error) if error.reason == "REVOKED"), "{refused:?}");

    // An older list cannot remove a revocation.
    assert!(matches!(second.revoked().take(one.bytes, "a test"), Ok(Taken::Refused(_))));
    within(async {
        while !file.path().exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let restarted = follow(file, &credentials).unwrap();
    assert_eq!(restarted.now().list.version(), 2);
}

/// A stolen edge gets no more cameras.
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_turns_away_from_an_edge_that_was_revoked() {
    let site = Site::new();
    let stolen = EdgeBroker::start(edge_options(&site, "stolen")).unwrap();
    let good = site.edge();
    let camera = site.camera_with("dock/cam1", &good, |options| options.edges.push(place(&stolen))).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let later = site.credentials(Role::Edge, "good");
    let list = list(&site, 1, &["edge/stolen".parse().unwrap()]);
    assert_eq!(good.revoked().take(list.bytes, "a test"), Ok(Taken::News));
    let kept = site.folder.path().join("state/cameras/dock/cam1/revoked.list");
    within(async {
        while !kept.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    good.stop().await;
    is_down(&camera).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(camera.edge().borrow().is_none(), "it went to the stolen edge");
    assert!(LiveRevocations::in_memory(&later).now().list.is_empty());
}

/// A thief uses a camera's keys and raises its epoch. After its serial number
/// was revoked, the camera enrols again under the same name, and publishes.
#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_camera_that_was_revoked_hinders_nothing() {
    let site = Site::new();
    let edge = site.edge();
    let stolen = site.credentials(Role::Camera, "dock/cam1");
    let start = |credentials: &Credentials, state: &str| {
        let name = "dock/cam1".parse().unwrap();
        let mut options = CameraOptions::new(name, vec![place(&edge)], credentials.clone());
        options.state = Some(site.folder.path().join(state));
        CameraBroker::start(options).unwrap()
    };
    let (_server, unix, _) = site.serve_edge(&edge).await;
    let mut frames = site.client(&unix).await.subscribe(live("dock/*")).await.unwrap();
    let camera = start(&stolen, "own");
    flows(&camera, &mut frames).await;

    let counter = site.folder.path().join("thief/cameras/dock/cam1");
    fs::create_dir_all(&counter).unwrap();
    let highest = EPOCH_BASE.0 + EPOCH_JUMP_MAX;
    fs::write(counter.join("epoch"), (highest - 1).to_string()).unwrap();
    let thief = start(&stolen, "thief");
    within(async {
        loop {
            let _ = thief.publish(image(1, 100));
            let got = tokio::time::timeout(Duration::from_millis(50), frame(&mut frames)).await;
            if got.is_ok_and(|got| got.meta.id.epoch.0 == highest) {
                break;
            }
        }
    })
    .await;
    drop(camera);
    revoke(&site, &edge, 1, &[serial(&stolen)]);
    is_down(&thief).await;

    // The thief still tries again and again.
    let anew = start(&site.credentials(Role::Camera, "dock/cam1"), "anew");
    within(anew.edge().wait_for(Option::is_some)).await.unwrap();
    let next = within(async {
        loop {
            let _ = anew.publish(image(2, 100));
            let got = tokio::time::timeout(Duration::from_millis(50), frame(&mut frames)).await;
            if let Ok(got) = got
                && got.meta.id.epoch.0 > highest
            {
                return got;
            }
        }
    })
    .await;
    assert_eq!(next.meta.id.epoch.0, highest + 1, "the camera's own start, above the thief's");
    assert!(!thief.is_up() && anew.is_up());
    let _ = Arc::new(thief);
}
