//! Certificates with lifetimes of seconds, while frames continue.

mod link_support;

use std::path::Path;
use std::time::{Duration, SystemTime};

use link_support::members::{BEFORE, Members, frames_flow, grpc};
use link_support::{TIME_MAX, both_ways, connected, image, loopback, number, until};
use mez_core::broker::edge::EdgeConfig;
use mez_core::subscription::Deliver;
use mez_node::camera::Transport;
use mez_node::client::{Address, ClientOptions, EdgeClient, Event, SubscribeOptions};
use mez_node::identity::renew::SignerServer;
use mez_node::identity::{Credentials, KeyFolder, Role, SiteAuthority};

/// The lifetime of certificates here. They are renewed 4 s before their end, so that a busy host does not miss it.
const LIFETIME: Duration = Duration::from_secs(12);

/// The serial number in the file of an identity.
fn serial_on_disk(keys: &KeyFolder, credentials: &Credentials) -> String {
    let keys = KeyFolder::open(keys.path()).unwrap();
    let file = credentials.file().map(Path::to_path_buf);
    let found = keys.identity_files().unwrap().into_iter().find(|found| Some(&found.path) == file.as_ref());
    found.unwrap().content.unwrap().facts().serial.clone()
}

/// Frames flow from a camera to a program, both on other hosts, while every certificate is renewed several times. No frame is
/// lost, and no connection ends. Then the edge restarts when all first certificates have expired, and all members come back.
async fn frames_go_on_while_certificates_are_renewed(transport: Transport) {
    let site = Members::new();
    let edge = site.edge(loopback(), loopback()).await;
    let (link, calls) = (edge.edge().link_address(), edge.grpc_address().unwrap());
    let camera_keys = site.enrolled("camera/dock", LIFETIME).await;
    let app_keys = site.enrolled("app/counter", LIFETIME).await;
    let of_camera = camera_keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let of_app = app_keys.credentials(Role::App, None).unwrap();
    let (first_camera, first_app) = (of_camera.facts().serial.clone(), of_app.facts().serial.clone());
    let first_key = of_app.key_pem();

    let camera = site.camera(of_camera.clone(), link, transport);
    connected(&camera).await;
    let lost = camera.edge();
    let client =
        EdgeClient::connect(vec![grpc(calls)], Some(&of_app), ClientOptions::default()).await.unwrap();
    let options = SubscribeOptions {
        deliver: Some(Deliver::Every),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    };
    let mut frames = client.subscribe(options).await.unwrap();

    frames_flow(&camera, &mut frames).await;
    let (renewed_camera, renewed_app) = (of_camera.renewals(), of_app.renewals());
    let mut sent = 0;
    let mut received = Vec::new();
    let reading = async {
        while *renewed_camera.borrow() < 2 || *renewed_app.borrow() < 2 {
            camera.publish(image(sent, 5_000)).unwrap();
            sent += 1;
            loop {
                match frames.next().await.expect("the subscription goes on") {
                    // A frame from before counting began.
                    Event::Frame(frame) if number(&frame.payload) == BEFORE => {}
                    Event::Frame(frame) => {
                        received.push(number(&frame.payload));
                        break;
                    }
                    Event::Disconnected { .. } | Event::Reconnected => {
                        panic!("the program's connection was lost")
                    }
                    Event::Failed { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(3 * TIME_MAX, reading).await.expect("certificates are renewed");
    assert_eq!(received, (0..sent).collect::<Vec<_>>(), "frames were lost");
    assert!(!lost.has_changed().unwrap(), "the camera's connection was lost");
    assert_ne!(of_camera.facts().serial, first_camera);
    assert_ne!(of_app.facts().serial, first_app);
    assert_ne!(of_app.key_pem(), first_key, "the key is another one each time");
    assert_eq!(serial_on_disk(&camera_keys, &of_camera), of_camera.facts().serial);

    // The edge restarts. A member with its first certificate would be refused.
    edge.stop().await;
    let edge = site.edge(link, calls).await;
    let mut back = camera.edge();
    tokio::time::timeout(TIME_MAX, back.wait_for(Option::is_some))
        .await
        .expect("the camera comes back")
        .unwrap();
    // The program comes back too.
    frames_flow(&camera, &mut frames).await;
    edge.stop().await;
}
both_ways! { frames_go_on_while_certificates_are_renewed; }

/// The authority is replaced while everything runs. Members that know the old
/// one, and members that know only the new one, connect in both directions.
async fn an_authority_is_replaced_while_frames_go_on(transport: Transport) {
    let site = Members::new();
    let edge = site.edge(loopback(), loopback()).await;
    let (link, calls) = (edge.edge().link_address(), edge.grpc_address().unwrap());
    let camera_keys = site.enrolled("camera/dock", LIFETIME).await;
    let of_camera = camera_keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let camera = site.camera(of_camera.clone(), link, transport);
    connected(&camera).await;
    let lost = camera.edge();

    let hour = Duration::from_secs(3600);
    let new = SiteAuthority::rotate(site.keys.keys().path(), hour, SystemTime::now(), false).unwrap();
    // Enrolled now, so it knows the new authority, but connects to an edge with a certificate of the old one.
    let app_keys = site.enrolled("app/counter", LIFETIME).await;
    assert_eq!(app_keys.authority(), new.certificate());
    let of_app = app_keys.credentials(Role::App, None).unwrap();
    let client =
        EdgeClient::connect(vec![grpc(calls)], Some(&of_app), ClientOptions::default()).await.unwrap();
    let mut frames = client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap();
    frames_flow(&camera, &mut frames).await;

    // The camera follows at its renewal, over its existing connection.
    until("the camera follows", || of_camera.authority() == *new.certificate()).await;
    assert!(!lost.has_changed().unwrap(), "the camera's connection was lost");
    assert_eq!(KeyFolder::open(camera_keys.path()).unwrap().authority(), new.certificate());

    // An edge with a certificate of the new authority, and a camera that knows only the old one.
    edge.stop().await;
    let edge = site.edge(link, calls).await;
    tokio::time::timeout(TIME_MAX, camera.edge().wait_for(Option::is_some))
        .await
        .expect("it comes back")
        .unwrap();
    edge.stop().await;
}
both_ways! { an_authority_is_replaced_while_frames_go_on; }

/// The old authority is trusted for another hour, and certificates last minutes. Members follow the new authority before their renewal is due.
#[tokio::test(flavor = "multi_thread")]
async fn members_hear_of_a_new_authority_before_they_renew_anyway() {
    let site = Members::new();
    let edge = site.edge(loopback(), loopback()).await;
    let (link, calls) = (edge.edge().link_address(), edge.grpc_address().unwrap());
    // Due after 92 s at the earliest, longer than this test. Members check every few seconds.
    let lifetime = Duration::from_secs(150);
    let camera_keys = site.enrolled("camera/dock", lifetime).await;
    let app_keys = site.enrolled("app/counter", lifetime).await;
    let of_camera = camera_keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let of_app = app_keys.credentials(Role::App, None).unwrap();
    let camera = site.camera(of_camera.clone(), link, Transport::Quic);
    connected(&camera).await;
    let _client =
        EdgeClient::connect(vec![grpc(calls)], Some(&of_app), ClientOptions::default()).await.unwrap();

    let hour = Duration::from_secs(3600);
    let new = SiteAuthority::rotate(site.keys.keys().path(), hour, SystemTime::now(), false).unwrap();
    for (who, credentials) in [("camera", &of_camera), ("program", &of_app)] {
        until(&format!("the {who} follows"), || credentials.authority() == *new.certificate()).await;
        assert_eq!(*credentials.renewals().borrow(), 1, "the {who} renewed more than once");
    }
    edge.stop().await;
}

/// The authority's key is in another process, which serves a Unix socket. The edge has only its own identity.
/// All certificates are still renewed, including its own. While the other process is away, nobody is cut off.
async fn an_edge_without_the_key_has_certificates_renewed(transport: Transport) {
    let site = Members::new();
    let socket = site.path("signer.sock");
    let signer = SignerServer::start(site.keys.keys(), &socket).unwrap();
    let edge_keys = site.enrolled("edge/main", LIFETIME).await.without_authority_key();
    assert!(!edge_keys.path().join("authority.key").exists());
    let of_edge = edge_keys.edge_credentials(None, &[]).unwrap();
    let address = Some(Address::Unix(socket.clone()));
    let edge = site.edge_of(&edge_keys, &of_edge, (loopback(), loopback()), address).await;
    let keys = site.enrolled("camera/dock", LIFETIME).await;
    let of_camera = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let camera = site.camera(of_camera.clone(), edge.edge().link_address(), transport);
    connected(&camera).await;
    let lost = camera.edge();
    let renewed = |credentials: &Credentials| *credentials.renewals().borrow();
    until("both are renewed", || renewed(&of_camera) > 0 && renewed(&of_edge) > 0).await;

    drop(signer);
    let (camera_had, edge_had) = (renewed(&of_camera), renewed(&of_edge));
    // Away until both renewals were due.
    let due = of_camera.validity().due().max(of_edge.validity().due());
    until("both are due", || SystemTime::now() > due).await;
    let _signer = SignerServer::start(site.keys.keys(), &socket).unwrap();
    until("both go on", || renewed(&of_camera) > camera_had && renewed(&of_edge) > edge_had).await;
    assert!(!lost.has_changed().unwrap(), "the camera's connection was lost");
    edge.stop().await;
}
both_ways! { an_edge_without_the_key_has_certificates_renewed; }

/// An edge on another host forwards requests to the one with the key. Two edges that name each other do not forward in circles.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_passes_requests_on_to_the_one_with_the_key() {
    let site = Members::new();
    let first = site.edge(loopback(), loopback()).await;
    let hour = Duration::from_secs(3600);
    let keys = site.enrolled("edge/yard", hour).await;
    let of_edge = keys.edge_credentials(None, &[]).unwrap();
    let key = Some(grpc(first.grpc_address().unwrap()));
    let second = site.edge_of(&keys, &of_edge, (loopback(), loopback()), key).await;
    let camera_keys = site.enrolled("camera/dock", LIFETIME).await;
    let of_camera = camera_keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let camera = site.camera(of_camera.clone(), second.edge().link_address(), Transport::Quic);
    connected(&camera).await;
    until("it is renewed", || *of_camera.renewals().borrow() > 0).await;

    // A third edge asks the second, which itself only forwards.
    let keys = site.enrolled("edge/gate", hour).await;
    let of_edge = keys.edge_credentials(None, &[]).unwrap();
    let relay = Some(grpc(second.grpc_address().unwrap()));
    let third = site.edge_of(&keys, &of_edge, (loopback(), loopback()), relay).await;
    let app_keys = site.enrolled("app/counter", LIFETIME).await;
    let of_app = app_keys.credentials(Role::App, None).unwrap();
    let calls = vec![grpc(third.grpc_address().unwrap())];
    let _client = EdgeClient::connect(calls, Some(&of_app), ClientOptions::default()).await.unwrap();
    let due = of_app.validity().due();
    until("it is due", || SystemTime::now() > due).await;
    assert_eq!(*of_app.renewals().borrow(), 0, "it was passed on twice");
    third.stop().await;
    second.stop().await;
    first.stop().await;
}

/// A camera that was enrolled before knows only the old authority, and connects to an edge of the new one.
async fn a_member_that_knows_the_old_authority_alone_gets_in(transport: Transport) {
    let site = Members::new();
    let keys = site.enrolled("camera/dock", Duration::from_secs(3600)).await;
    SiteAuthority::rotate(site.keys.keys().path(), Duration::from_secs(60), SystemTime::now(), false)
        .unwrap();
    // The new authority's own folder, as the edge finds it at its start.
    let renewed = KeyFolder::open(site.keys.keys().path()).unwrap();
    let credentials = renewed.edge_credentials(None, &[]).unwrap();
    assert_eq!(credentials.chain().len(), 2);
    let options = mez_node::edge::EdgeOptions::new(loopback(), credentials, EdgeConfig::default());
    let edge = mez_node::edge::EdgeBroker::start(options).unwrap();
    let of_camera = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let camera = site.camera(of_camera, edge.link_address(), transport);
    connected(&camera).await;
    edge.stop().await;
}
both_ways! { a_member_that_knows_the_old_authority_alone_gets_in; }

/// The edge is away until certificates have expired. Programs report when, by which clock, and what to do. The old
/// files are useless, but a new token works, even with a new authority: a running camera comes back by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_is_away_for_too_long_costs_a_token() {
    let site = Members::new();
    let edge = site.edge(loopback(), loopback()).await;
    let calls = edge.grpc_address().unwrap();
    let link = edge.edge().link_address();
    let life = Duration::from_secs(2);
    let app_keys = site.enrolled("app/counter", life).await;
    let of_app = app_keys.credentials(Role::App, None).unwrap();
    let camera_keys = site.enrolled("camera/dock", life).await;
    let of_camera = camera_keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let camera = site.camera(of_camera.clone(), link, Transport::Quic);
    connected(&camera).await;
    edge.stop().await;
    let second = Duration::from_secs(1);
    for credentials in [&of_app, &of_camera] {
        until("it expires", || SystemTime::now() > credentials.validity().not_after + second).await;
    }

    let edge = site.edge(link, calls).await;
    let options = || ClientOptions { patience: second, ..ClientOptions::default() };
    let refused =
        EdgeClient::connect(vec![grpc(calls)], Some(&of_app), options()).await.err().unwrap().to_string();
    assert!(refused.contains("expired") && refused.contains("`mez keys enrol`"), "{refused}");
    let opened = KeyFolder::open(app_keys.path()).unwrap();
    let refused = opened.credentials(Role::App, None).unwrap_err().to_string();
    assert!(
        refused.contains("this host's clock says") && refused.contains("mez keys token app/counter"),
        "{refused}"
    );
    assert!(camera.edge().borrow().is_none(), "an expired certificate opened the link");

    SiteAuthority::rotate(site.keys.keys().path(), Duration::from_secs(3600), SystemTime::now(), false)
        .unwrap();
    let keys = site.enrolled("app/counter", LIFETIME).await;
    let of_app = keys.credentials(Role::App, None).unwrap();
    EdgeClient::connect(vec![grpc(calls)], Some(&of_app), options()).await.unwrap();
    site.enrolled("camera/dock", LIFETIME).await;
    connected(&camera).await;
    edge.stop().await;
}
