//! Cameras that an edge forgets, over real sockets: on command, by age, and the effect on their readers.

mod api_support;

use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::{Contract, ContractState};
use mez_core::name::CameraName;
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_node::client::{ClientError, Event, SubscribeOptions};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions};
use mez_node::identity::name::Role;
use mez_node::persist::{PersistOptions, cameras_in};

use self::api_support::{Served, Site, frame, image, warm_up, within};

fn dock() -> CameraName {
    "dock/cam1".parse().unwrap()
}

async fn names(edge: &EdgeHandle) -> Vec<String> {
    edge.cameras().await.unwrap().iter().map(|info| info.camera.to_string()).collect()
}

async fn until_absent(edge: &EdgeHandle) {
    within(async {
        while edge.cameras().await.unwrap().iter().any(|info| info.connected) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn everywhere() -> SubscribeOptions {
    let contract = Contract { latency_bound: Some(Duration::from_secs(5)), ..Contract::default() };
    SubscribeOptions { contract, ..SubscribeOptions::new("**".parse().unwrap()) }
}

fn refused(result: Result<impl std::fmt::Debug, ClientError>) -> (String, String) {
    match result.unwrap_err() {
        ClientError::Refused(error) => (error.reason.clone(), error.message.clone()),
        other => panic!("{other}"),
    }
}

/// A ghost is forgotten on the edge's host. A contract on all cameras loses its warning about the ghost.
/// Its subscription continues, and gets the camera again when it returns, with all frames accounted for.
#[tokio::test(flavor = "multi_thread")]
async fn a_ghost_is_forgotten() {
    let Served { server: _server, camera, edge, unix, tls, site } = Served::new().await;
    let client = site.client(&unix).await;
    let mut subscription = client.subscribe(everywhere()).await.unwrap();
    warm_up(&camera, &mut subscription).await;

    let (reason, said) = refused(client.forget_camera(&dock()).await);
    assert_eq!(reason, "CAMERA_CONNECTED");
    assert!(said.contains("dock/cam1 is connected") && said.contains("stop"), "{said}");
    let (reason, said) = refused(site.client(&tls).await.forget_camera(&dock()).await);
    assert_eq!(reason, "ONLY_ON_HOST");
    assert!(said.contains("mez cameras forget dock/cam1"), "{said}");
    let (reason, _) = refused(client.forget_camera(&"dock/typo".parse().unwrap()).await);
    assert_eq!(reason, "UNKNOWN_CAMERA");

    drop(camera);
    until_absent(&edge).await;
    let warned = within(async {
        loop {
            match subscription.next().await.expect("it goes on") {
                Event::Contract { state: ContractState::Absent, .. } => return,
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    });
    warned.await;
    assert_eq!(edge.standings(&dock()).len(), 1);
    let forgotten = client.forget_camera(&dock()).await.unwrap();
    assert_eq!((forgotten.epoch.0, forgotten.put_aside), (1, None));
    assert_eq!(names(&edge).await, [""; 0]);
    within(async {
        while !edge.standings(&dock()).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    let camera = site.camera("dock/cam1", &edge).await;
    for number in 0.. {
        camera.publish(image(number, 100)).unwrap();
        if let Ok(got) = tokio::time::timeout(Duration::from_millis(100), frame(&mut subscription)).await {
            assert_eq!(got.meta.id.epoch.0, 2);
            assert!(got.skipped.total() <= u64::from(number), "{:?}", got.skipped);
            break;
        }
    }
    assert_eq!(names(&edge).await, ["dock/cam1"]);
}

/// A log that cannot be opened may contain frames, so its camera is not forgotten. An empty log does not keep its camera.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_opened_keeps_its_camera() {
    for is_broken in [false, true] {
        let site = Site::new();
        let edge = edge_with(&site, true, Duration::from_millis(300));
        if is_broken {
            // At the path of the camera's folder.
            std::fs::create_dir_all(site.folder.path().join("edge-log")).unwrap();
            std::fs::write(site.folder.path().join("edge-log/dock"), "no folder").unwrap();
        }
        let camera = site.camera("dock/cam1", &edge).await;
        within(async {
            while edge.log_on_disk(&dock()).is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        let status = edge.log_on_disk(&dock()).unwrap();
        assert_eq!((status.disk_bytes, status.degraded.is_some()), (0, is_broken), "{status:?}");
        drop(camera);
        until_absent(&edge).await;
        if is_broken {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            assert_eq!(names(&edge).await, ["dock/cam1"], "nobody knows what its log holds");
        } else {
            within(async {
                while !names(&edge).await.is_empty() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
            .await;
        }
    }
}

fn edge_with(site: &Site, persist: bool, forget_after: Duration) -> EdgeHandle {
    let config = EdgeConfig { forget_after: Some(forget_after), ..EdgeConfig::default() };
    let credentials = site.credentials(Role::Edge, "edge");
    let mut options = EdgeOptions::new("127.0.0.1:0".parse().unwrap(), credentials, config);
    options.state = Some(site.folder.path().join("edge-state"));
    let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
    options.persist = persist.then(|| PersistOptions::new(site.folder.path().join("edge-log"), keys));
    EdgeBroker::start(options).unwrap()
}

/// An edge automatically forgets cameras that were absent for long, unless a log on disk has their frames.
#[tokio::test(flavor = "multi_thread")]
async fn absent_cameras_are_forgotten_with_time() {
    for persist in [false, true] {
        let site = Site::new();
        let edge = edge_with(&site, persist, Duration::from_millis(300));
        let Served { server: _server, camera, edge, unix, site, .. } = Served::with(site, edge, |_| {}).await;
        let client = site.client(&unix).await;
        let mut subscription = client.subscribe(everywhere()).await.unwrap();
        warm_up(&camera, &mut subscription).await;
        // A connected camera is kept, however old it is.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(names(&edge).await, ["dock/cam1"]);
        drop(camera);
        until_absent(&edge).await;
        if persist {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            assert_eq!(names(&edge).await, ["dock/cam1"], "its frames on disk can be read");
            let folder = client.forget_camera(&dock()).await.unwrap().put_aside.expect("there was a log");
            assert_eq!(cameras_in(&folder).unwrap(), [dock()]);
            assert_eq!(cameras_in(&site.folder.path().join("edge-log")).unwrap(), []);
        } else {
            within(async {
                while !names(&edge).await.is_empty() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
            .await;
        }
    }
}
