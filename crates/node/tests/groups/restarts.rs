//! Groups after a restart of the edge.

use std::time::Duration;

use mez_core::broker::edge::EdgeConfig;
use mez_core::group::session::PlaceTold;
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_node::api::ApiServer;
use mez_node::client::{Address, EdgeClient};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError};
use mez_node::identity::name::Role;
use mez_node::persist::PersistOptions;

use crate::api_support::{Site, everything, frame, within};
use crate::support::{by_hand, done, every, first, joined, until};

struct Restarted {
    site: Site,
    store: bool,
    edge: Option<EdgeHandle>,
    server: Option<ApiServer>,
    listen: std::net::SocketAddr,
}

impl Restarted {
    async fn new(store: bool) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut this = Self { site: Site::new(), store, edge: None, server: None, listen };
        this.start().await;
        this
    }

    async fn start(&mut self) {
        let credentials = self.site.credentials(Role::Edge, "edge");
        let mut options = EdgeOptions::new(self.listen, credentials, EdgeConfig::default());
        options.state = Some(self.site.folder.path().join("edge-state"));
        let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
        options.persist =
            self.store.then(|| PersistOptions::new(self.site.folder.path().join("edge-log"), keys));
        let edge = within(async {
            loop {
                match EdgeBroker::start(options.clone()) {
                    Ok(edge) => return edge,
                    // The previous edge releases its port a moment later.
                    Err(EdgeStartError::Listen(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        self.listen.set_port(edge.link_address().port());
        let mut server = ApiServer::edge(edge.clone(), everything(), Default::default());
        server.listen_unix(&self.site.socket("edge.sock")).unwrap();
        (self.edge, self.server) = (Some(edge), Some(server));
    }

    async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        if let Some(edge) = self.edge.take() {
            edge.stop().await;
        }
    }

    async fn client(&self) -> EdgeClient {
        self.site.client(&Address::Unix(self.site.socket("edge.sock"))).await
    }
}

/// With a store, the group continues: finished records stay finished, given ones stay with their members, and the others are given again.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_store_a_group_goes_on_after_a_restart() {
    let mut rig = Restarted::new(true).await;
    let camera = rig.site.camera("dock/cam1", rig.edge.as_ref().unwrap()).await;
    let client = rig.client().await;
    let mut one = client.subscribe(every(by_hand(2))).await.unwrap();
    assert_eq!(joined(&mut one).await, (PlaceTold::Kept, true));
    let finished = first(&camera, &mut one).await;
    assert!(done(&one, &finished));
    let kept = first(&camera, &mut one).await;
    let mut other = client.subscribe(every(by_hand(1))).await.unwrap();
    joined(&mut other).await;
    let abandoned = first(&camera, &mut other).await;
    assert!(abandoned.meta.id != kept.meta.id);
    until(&client, |group| group.account.done == 1).await;
    // Only records on disk can be given again. The newest ones get there within a moment.
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(other);
    rig.stop().await;
    rig.start().await;
    assert_eq!(joined(&mut one).await, (PlaceTold::Restored, true));
    let again = loop {
        let again = frame(&mut one).await;
        assert!(again.meta.id != finished.meta.id && again.meta.id != kept.meta.id, "{again:?}");
        if again.meta.id == abandoned.meta.id {
            break again;
        }
        assert!(done(&one, &again));
    };
    assert_eq!(again.attempt, 2);
    assert!(done(&one, &kept) && done(&one, &again), "what it had is still its own");
    let client = rig.client().await;
    let group = until(&client, |group| group.account.done >= 2).await;
    assert_eq!((group.survives, group.degraded.clone(), group.asleep), (true, None, false), "{group:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_nobody_is_in_sleeps_and_is_forgotten_by_hand() {
    let mut rig = Restarted::new(true).await;
    let camera = rig.site.camera("dock/cam1", rig.edge.as_ref().unwrap()).await;
    let client = rig.client().await;
    let mut member = client.subscribe(every(by_hand(1))).await.unwrap();
    let record = first(&camera, &mut member).await;
    assert!(done(&member, &record));
    until(&client, |group| group.account.done == 1).await;
    member.control().leave(Duration::from_secs(10)).await.unwrap();
    drop(member);
    rig.stop().await;
    rig.start().await;
    let client = rig.client().await;
    let group = until(&client, |group| group.asleep).await;
    assert_eq!((group.name.as_str(), group.survives, group.members.len()), ("detect", true, 0));
    client.forget_group("detect", None).await.unwrap();
    assert_eq!(client.groups().await.unwrap(), []);
    rig.stop().await;
    rig.start().await;
    assert_eq!(rig.client().await.groups().await.unwrap(), []);
}

/// Without a store, a restart loses the group's place. Members are informed before and after.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_a_restart_loses_the_place_and_says_so() {
    let mut rig = Restarted::new(false).await;
    let camera = rig.site.camera("dock/cam1", rig.edge.as_ref().unwrap()).await;
    let client = rig.client().await;
    let mut member = client.subscribe(every(by_hand(1))).await.unwrap();
    assert_eq!(joined(&mut member).await, (PlaceTold::Kept, false));
    let record = first(&camera, &mut member).await;
    rig.stop().await;
    rig.start().await;
    assert_eq!(joined(&mut member).await, (PlaceTold::Lost, false));
    assert!(done(&member, &record), "it cannot know that this means nothing any more");
    let next = first(&camera, &mut member).await;
    assert!(next.meta.id > record.meta.id && next.attempt == 1);
}
