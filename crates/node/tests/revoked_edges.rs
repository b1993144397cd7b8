//! How edges exchange deny lists, and what happens to an edge that was revoked itself.

mod link_support;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use link_support::members::{Members, frames_flow, grpc};
use link_support::{TIME_MAX, connected, loopback, until};
use mez_core::revocation::{Entry, Revocations, Subject};
use mez_core::units::Timestamp;
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{ClientOptions, EdgeClient, Event, SubscribeOptions, Subscription};
use mez_node::identity::{Credentials, Role};
use mez_node::ports::EdgeAddress;
use mez_node::process::EdgeProcess;
use mez_node::revocation::{RevokedFile, SignedList, Taken, seconds};

/// The lifetime of certificates here: long enough that none is renewed because of its age.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A site whose deny list changes.
struct Site(Members);

impl Site {
    fn new() -> Self {
        Self(Members::new())
    }

    /// The edge of the host where the site was made.
    async fn first(&self) -> (EdgeProcess, Credentials) {
        let keys = self.0.keys.keys();
        let credentials = keys.edge_credentials(None, &[]).unwrap();
        (self.0.edge_of(keys, &credentials, (loopback(), loopback()), None).await, credentials)
    }

    /// An edge on another host, whose signer is the first edge.
    async fn second(&self, first: &EdgeProcess) -> (EdgeProcess, Credentials) {
        let keys = self.0.enrolled("edge/second", LIFETIME).await;
        let credentials = keys.edge_credentials(None, &[]).unwrap();
        let signer = grpc(first.grpc_address().unwrap());
        (self.0.edge_of(&keys, &credentials, (loopback(), loopback()), Some(signer)).await, credentials)
    }

    async fn app(&self, short: &str) -> Credentials {
        self.0.enrolled(short, LIFETIME).await.credentials(Role::App, None).unwrap()
    }

    /// A camera with a single edge.
    async fn camera(&self, edge: &EdgeProcess) -> CameraHandle {
        let keys = self.0.enrolled("camera/dock/cam1", LIFETIME).await;
        let credentials = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
        let camera = self.0.camera(credentials, edge.edge().link_address(), Transport::Quic);
        connected(&camera).await;
        camera
    }

    /// Changes the list where the site was made, like `mez keys revoke` and `unrevoke`.
    async fn change(&self, change: impl FnOnce(Revocations) -> Revocations) -> SignedList {
        let keys = self.0.keys.keys();
        let file = RevokedFile::of(keys.path(), keys.trust());
        let changed = file.edit(&keys.load_authority().unwrap(), |list| Ok(change(list))).unwrap();
        // Certificates have whole seconds: a certificate made in this second would count as older than the change.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        tokio::time::sleep(Duration::from_secs(1) - Duration::from_nanos(since.into())).await;
        changed
    }

    async fn revoke(&self, who: &str) -> SignedList {
        self.change(|list| list.with(Timestamp::MIN, subject(who), entry()).unwrap()).await
    }

    async fn unrevoke(&self, who: &str) -> SignedList {
        self.change(|list| list.without(&subject(who)).unwrap()).await
    }
}

fn subject(who: &str) -> Subject {
    who.parse().unwrap()
}

fn entry() -> Entry {
    Entry { since: seconds(SystemTime::now()), until: Timestamp::MAX, because: "stolen".into() }
}

fn version(edge: &EdgeProcess) -> u64 {
    edge.edge().revoked().now().list.version()
}

async fn subscribed(edge: &EdgeProcess, app: &Credentials) -> Subscription {
    let address = grpc(edge.grpc_address().unwrap());
    let client = EdgeClient::connect(vec![address], Some(app), ClientOptions::default()).await.unwrap();
    client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap()
}

/// Waits until a camera's link was lost again since the last check of `lost`.
async fn was_down(lost: &mut tokio::sync::watch::Receiver<Option<EdgeAddress>>) {
    tokio::time::timeout(TIME_MAX, lost.changed()).await.expect("the link ends").unwrap();
}

/// Two edges without a camera that would carry the list between them. The second gets
/// it from the edge with the signer, and gives it lists that come from elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn edges_hear_of_a_revocation_from_the_edge_with_the_signer() {
    let site = Site::new();
    let (first, _) = site.first().await;
    let (second, _) = site.second(&first).await;
    let camera = site.camera(&second).await;
    let app = site.app("app/laptop").await;
    let mut frames = subscribed(&second, &app).await;
    frames_flow(&camera, &mut frames).await;

    site.revoke("app/laptop").await;
    let ended = async {
        loop {
            match frames.next().await {
                Some(Event::Failed { reason }) => return reason.to_string(),
                Some(_) => {}
                None => panic!("it ended without a reason"),
            }
        }
    };
    let reason = tokio::time::timeout(TIME_MAX, ended).await.expect("the stream ends");
    assert!(reason.contains("app/laptop") && reason.contains("was revoked (stolen)"), "{reason}");
    let kept = site.0.path("edge-second").join("revoked.list");
    until("the second edge keeps the list", || kept.exists()).await;
    assert!(camera.is_up(), "the camera was not revoked");

    // The other direction: a list that came to the second edge first.
    let held = first.edge().revoked().now();
    let newer = held.list.clone().with(Timestamp::MIN, subject("app/other"), entry()).unwrap();
    let newer = SignedList::sign(&site.0.keys.keys().load_authority().unwrap(), newer).unwrap();
    assert_eq!(second.edge().revoked().take(newer.bytes, "a test"), Ok(Taken::News));
    until("the first edge has it as well", || version(&first) == 2).await;
    second.stop().await;
    first.stop().await;
}

/// The edge with the authority's key cannot be locked out. Its cameras come back to it automatically.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_with_the_authoritys_key_that_was_revoked_goes_on_with_another_certificate() {
    let site = Site::new();
    let (edge, own) = site.first().await;
    let camera = site.camera(&edge).await;
    let app = site.app("app/counter").await;
    let mut frames = subscribed(&edge, &app).await;
    frames_flow(&camera, &mut frames).await;
    let (before, mut link) = (own.facts().serial.clone(), camera.edge());
    link.mark_unchanged();

    let name = own.identity().short();
    site.revoke(&name).await;
    // The old certificate is refused. The edge has a new one.
    was_down(&mut link).await;
    until("the edge has another certificate", || own.facts().serial != before).await;
    frames_flow(&camera, &mut frames).await;
    assert!(camera.is_up());

    let renewed = own.facts().serial.clone();
    site.unrevoke(&name).await;
    until("the edge takes the list in", || version(&edge) == 2).await;
    frames_flow(&camera, &mut frames).await;
    assert_eq!(own.facts().serial, renewed, "nothing was wrong with it");
    edge.stop().await;
}

/// An edge without this key loses its cameras. When it is accepted again, its certificate is
/// renewed at once. Cameras that still have the old list come back, and get the newer list from it.
#[tokio::test(flavor = "multi_thread")]
async fn cameras_come_back_to_an_edge_that_is_accepted_again() {
    let site = Site::new();
    let (first, _) = site.first().await;
    let (second, own) = site.second(&first).await;
    let camera = site.camera(&second).await;
    let (before, mut link) = (own.facts().serial.clone(), camera.edge());
    link.mark_unchanged();

    site.revoke("edge/second").await;
    was_down(&mut link).await;
    // Nothing should happen, so there is nothing to wait for. In this time the camera dials several times, and the edge checks the list twice.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!camera.is_up() && own.facts().serial == before, "it may have no certificate");

    site.unrevoke("edge/second").await;
    until("the second edge hears that it is accepted again", || version(&second) == 2).await;
    until("it has another certificate", || own.facts().serial != before).await;
    connected(&camera).await;
    second.stop().await;
    first.stop().await;
}
