//! What edges tell each other of the deny list, and what becomes of an edge that is on it itself.

mod link_support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use link_support::{TIME_MAX, connected, image, loopback, until};
use mez_core::audit::Rotation;
use mez_core::broker::edge::EdgeConfig;
use mez_core::revocation::{Entry, Revocations, Subject};
use mez_core::rights::Rights;
use mez_core::units::Timestamp;
use mez_node::api::ApiLimits;
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions};
use mez_node::client::{Address, ClientOptions, EdgeClient, Event, SubscribeOptions, Subscription};
use mez_node::identity::{Credentials, Identity, KeyFolder, Role, TemporarySite, TokenStore, enrol};
use mez_node::ports::EdgeAddress;
use mez_node::process::{EdgeProcess, EdgeProcessOptions};
use mez_node::revocation::{RevokedFile, SignedList, Taken, seconds};

/// A site; every member but the first edge has a folder of keys of its own.
struct Site {
    keys: TemporarySite,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let keys = TemporarySite::create(&"test".parse().unwrap()).unwrap();
        Self { keys, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, of: &str) -> PathBuf {
        self.folder.path().join(of)
    }

    /// The edge where the site was made.
    async fn first(&self) -> (EdgeProcess, Credentials) {
        let credentials = self.keys.keys().edge_credentials(None, &[]).unwrap();
        (self.edge(self.keys.keys(), &credentials, None).await, credentials)
    }

    /// An edge on another host, whose signer is the first one.
    async fn second(&self, first: &EdgeProcess) -> (EdgeProcess, Credentials) {
        let keys = self.enrolled(first, "edge/second").await;
        let credentials = keys.edge_credentials(None, &[]).unwrap();
        let signer = grpc(first.grpc_address().unwrap());
        (self.edge(&keys, &credentials, Some(signer)).await, credentials)
    }

    async fn edge(&self, keys: &KeyFolder, own: &Credentials, signer: Option<Address>) -> EdgeProcess {
        EdgeProcess::start(EdgeProcessOptions {
            keys: keys.clone(),
            credentials: own.clone(),
            listen: loopback(),
            grpc: Some(loopback()),
            enrol: Some(loopback()),
            socket: None,
            config: EdgeConfig::default(),
            state: Some(self.path(&format!("state-{}", own.identity().name))),
            persist: None,
            profiles: None,
            signer,
            rights: Some(Rights::open()),
            audit: Rotation::default(),
            limits: ApiLimits::default(),
        })
        .await
        .unwrap()
    }

    /// Enrols a host at the first edge.
    async fn enrolled(&self, first: &EdgeProcess, short: &str) -> KeyFolder {
        let keys = self.keys.keys();
        let identity = Identity::parse_within(keys.site(), short).unwrap();
        let token = TokenStore::create(keys, &identity, &[], Duration::from_secs(3600)).unwrap();
        let folder = self.path(&short.replace('/', "-"));
        let shown = first.to_string();
        let address = shown.split(' ').find_map(|field| field.strip_prefix("enrol=")).unwrap();
        enrol(&token, address, &folder).await.unwrap();
        KeyFolder::open(&folder).unwrap()
    }

    /// A camera that knows one edge alone, and keeps to it.
    async fn camera(&self, first: &EdgeProcess, edge: &EdgeProcess) -> CameraHandle {
        let keys = self.enrolled(first, "camera/dock/cam1").await;
        let credentials = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
        let link = edge.edge().link_address();
        let edges = vec![EdgeAddress { host: link.ip().to_string(), port: link.port() }];
        let mut options = CameraOptions::new("dock/cam1".parse().unwrap(), edges, credentials);
        options.state = Some(self.path("camera"));
        let camera = CameraBroker::start(options).unwrap();
        connected(&camera).await;
        camera
    }

    /// Changes the list where the site was made, as `mez keys revoke` and `unrevoke` do.
    async fn change(&self, change: impl FnOnce(Revocations) -> Revocations) -> SignedList {
        let keys = self.keys.keys();
        let file = RevokedFile::of(keys.path(), keys.trust());
        let changed = file.edit(&keys.load_authority().unwrap(), |list| Ok(change(list))).unwrap();
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

fn grpc(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

fn version(edge: &EdgeProcess) -> u64 {
    edge.edge().revoked().now().list.version()
}

async fn subscribed(edge: &EdgeProcess, app: &Credentials) -> Subscription {
    let address = grpc(edge.grpc_address().unwrap());
    let client = EdgeClient::connect(vec![address], Some(app), ClientOptions::default()).await.unwrap();
    client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap()
}

/// Publishes until a frame arrives, over whatever link is up.
async fn flows(camera: &CameraHandle, frames: &mut Subscription) {
    let flowing = async {
        for value in 0.. {
            camera.publish(image(value, 100)).unwrap();
            let next = tokio::time::timeout(Duration::from_millis(50), frames.next()).await;
            if matches!(next, Ok(Some(Event::Frame(_)))) {
                return;
            }
        }
    };
    tokio::time::timeout(TIME_MAX, flowing).await.expect("frames flow");
}

/// Whether the link of a camera went since `lost` was last looked at.
async fn was_down(lost: &mut tokio::sync::watch::Receiver<Option<EdgeAddress>>) {
    tokio::time::timeout(TIME_MAX, lost.changed()).await.expect("the link ends").unwrap();
}

/// Two edges, and no camera that would carry the list from one to the other. The second hears of it from the one that has the signer, and
/// tells it what it hears elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn edges_hear_of_a_revocation_from_the_edge_with_the_signer() {
    let site = Site::new();
    let (first, _) = site.first().await;
    let (second, _) = site.second(&first).await;
    let camera = site.camera(&first, &second).await;
    let app = site.enrolled(&first, "app/laptop").await.credentials(Role::App, None).unwrap();
    let mut frames = subscribed(&second, &app).await;
    flows(&camera, &mut frames).await;

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
    let kept = site.path("edge-second").join("revoked.list");
    until("the second edge keeps the list", || kept.exists()).await;
    assert!(camera.is_up(), "the camera was not revoked");

    // The other way round: a list that has come to the second edge first.
    let held = first.edge().revoked().now();
    let newer = held.list.clone().with(Timestamp::MIN, subject("app/other"), entry()).unwrap();
    let newer = SignedList::sign(&site.keys.keys().load_authority().unwrap(), newer).unwrap();
    assert_eq!(second.edge().revoked().take(newer.bytes, "a test"), Ok(Taken::News));
    until("the first edge has it as well", || version(&first) == 2).await;
    second.stop().await;
    first.stop().await;
}

/// The edge that has the authority's key cannot be locked out, and its cameras come back to it without anybody doing anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_with_the_authoritys_key_that_was_revoked_goes_on_with_another_certificate() {
    let site = Site::new();
    let (edge, own) = site.first().await;
    let camera = site.camera(&edge, &edge).await;
    let app = site.enrolled(&edge, "app/counter").await.credentials(Role::App, None).unwrap();
    let mut frames = subscribed(&edge, &app).await;
    flows(&camera, &mut frames).await;
    let (before, mut link) = (own.facts().serial.clone(), camera.edge());
    link.mark_unchanged();

    let name = own.identity().short();
    site.revoke(&name).await;
    // The old certificate is worth nothing any more; the new one is another.
    was_down(&mut link).await;
    until("the edge has another certificate", || own.facts().serial != before).await;
    flows(&camera, &mut frames).await;
    assert!(camera.is_up());

    let renewed = own.facts().serial.clone();
    site.unrevoke(&name).await;
    until("the edge takes the list in", || version(&edge) == 2).await;
    flows(&camera, &mut frames).await;
    assert_eq!(own.facts().serial, renewed, "nothing was wrong with it");
    edge.stop().await;
}

/// An edge without that key is left by its cameras. Once it is accepted again, it has its certificate renewed at once: cameras that still hold
/// the list on which it stands come back, and hear of the newer one from it.
#[tokio::test(flavor = "multi_thread")]
async fn cameras_come_back_to_an_edge_that_is_accepted_again() {
    let site = Site::new();
    let (first, _) = site.first().await;
    let (second, own) = site.second(&first).await;
    let camera = site.camera(&first, &second).await;
    let (before, mut link) = (own.facts().serial.clone(), camera.edge());
    link.mark_unchanged();

    site.revoke("edge/second").await;
    was_down(&mut link).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!camera.is_up() && own.facts().serial == before, "it may have no certificate");

    site.unrevoke("edge/second").await;
    until("the second edge hears that it is accepted again", || version(&second) == 2).await;
    until("it has another certificate", || own.facts().serial != before).await;
    connected(&camera).await;
    second.stop().await;
    first.stop().await;
}
