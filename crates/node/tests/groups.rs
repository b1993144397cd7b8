//! Groups of readers against real brokers: who gets what, what becomes of records whose member fails, is lost or leaves, what a restart of the
//! edge leaves, and whose a group is. Most cases run over the local protocol and over gRPC with TLS.

mod api_support;

use std::time::Duration;

use api_support::{Served, Site, everything, frame, image, number, within};
use mez_core::broker::edge::EdgeConfig;
use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::group::session::PlaceTold;
use mez_core::group::{Acknowledged, MemberId};
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Grant, Rights, Stance};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::subscription::Deliver;
use mez_node::api::ApiServer;
use mez_node::camera::CameraHandle;
use mez_node::client::{
    Address, ClientError, ClientOptions, EdgeClient, Event, GroupSummary, Membership, ReceivedFrame,
    SubscribeOptions, Subscription,
};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError, Settlements};
use mez_node::identity::name::Role;
use mez_node::persist::PersistOptions;
use mez_node::rights::LiveRights;

fn dock() -> CameraName {
    "dock/cam1".parse().unwrap()
}

fn detect() -> Membership {
    Membership::new("detect".parse().unwrap())
}

fn every(group: Membership) -> SubscribeOptions {
    SubscribeOptions {
        deliver: Some(Deliver::Every),
        group: Some(group),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// Settles by hand, with so many at once.
fn by_hand(at_once: u32) -> Membership {
    Membership { at_once, settles_itself: false, ..detect() }
}

/// The place of the group, as a member is told when it joins.
async fn joined(subscription: &mut Subscription) -> (PlaceTold, bool) {
    within(async {
        loop {
            match subscription.next().await.expect("the subscription has not ended") {
                Event::Joined { place, survives } => return (place, survives),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await
}

/// Publishes one small image after the other until a member gets one. Returns its record.
async fn first(camera: &CameraHandle, member: &mut Subscription) -> Box<ReceivedFrame> {
    for value in 0..600 {
        camera.publish(image(value, 100)).unwrap();
        if let Ok(record) = tokio::time::timeout(Duration::from_millis(100), frame(member)).await {
            return record;
        }
    }
    panic!("nothing was given");
}

fn done(member: &Subscription, record: &ReceivedFrame) -> bool {
    member.control().settle(&record.camera, record.meta.id, None)
}

fn failed(member: &Subscription, record: &ReceivedFrame, why: &str) -> bool {
    member.control().settle(&record.camera, record.meta.id, Some(why.into()))
}

/// The group, once it stands as is expected.
async fn until(client: &EdgeClient, stands: impl Fn(&GroupSummary) -> bool) -> GroupSummary {
    within(async {
        loop {
            if let Some(group) = client.groups().await.unwrap().into_iter().find(|group| stands(group)) {
                return group;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
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
    every_record_is_done_once_by_one_of_several: shared;
    the_newest_record_goes_to_whoever_is_free: newest;
    a_record_that_fails_comes_again_and_becomes_a_dead_letter: dead_letters;
    a_record_whose_member_is_lost_comes_again: lost;
    a_member_that_leaves_gives_its_records_back: leaves;
    a_record_whose_member_says_nothing_comes_again_and_late_work_counts: silent;
    order_is_kept_and_nobody_else_waits: ordered;
    what_is_not_settled_is_bounded_and_told: held_back;
}

async fn shared(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(client.subscribe(every(detect())).await.unwrap());
    }
    let begun = first(&rig.camera, &mut members[0]).await;
    let last = number(&begun.payload) + 1000;
    let mut done = Vec::new();
    let (sender, mut records) = tokio::sync::mpsc::channel(1000);
    for mut member in members {
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Some(event) = member.next().await {
                if let Event::Frame(record) = event
                    && sender.send(record).await.is_err()
                {
                    return;
                }
            }
        });
    }
    for value in last - 100..=last {
        rig.camera.publish(image(value, 5_000)).unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while done.last().is_none_or(|(value, _)| *value != last) {
        let record = within(records.recv()).await.expect("members go on");
        assert_eq!(record.attempt, 1);
        done.push((number(&record.payload), record.meta.id));
    }
    // The last may have come before one that another member had.
    let account = until(&client, |group| group.account.done + 3 >= group.account.given).await;
    assert_eq!((account.members.len(), account.account.given_again, account.account.dead), (3, 0, 0));
    assert!(account.members.iter().all(|member| member.given > 0), "{account:?}");
    while let Ok(record) = records.try_recv() {
        done.push((number(&record.payload), record.meta.id));
    }
    let mut ids: Vec<FrameId> = done.iter().map(|(_, id)| *id).collect();
    ids.sort();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "each was given to one");
}

async fn newest(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let options = SubscribeOptions { deliver: Some(Deliver::Newest), ..every(detect()) };
    let mut one = client.subscribe(options.clone()).await.unwrap();
    assert_eq!(joined(&mut one).await, (PlaceTold::Kept, false));
    let held = first(&rig.camera, &mut one).await;
    let mut other = client.subscribe(options).await.unwrap();
    let mut last = held.meta.id;
    for value in 10_000..10_020 {
        let id = rig.camera.publish(image(value, 1_000)).unwrap();
        let record = frame(&mut other).await;
        assert!(record.meta.id > last && record.attempt == 1, "one works, so that the other gets all");
        last = record.meta.id;
        if last == id {
            assert_eq!(number(&record.payload), value);
        }
    }
    let group = until(&client, |group| group.members.len() == 2).await;
    assert_eq!((group.deliver, group.account.open), (Deliver::Newest, 2));
    assert_eq!(group.account.given, group.account.done + 2);
}

async fn dead_letters(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let options = every(Membership { tries: Some(3), ..detect() });
    let mut member = client.subscribe(options).await.unwrap();
    let record = first(&rig.camera, &mut member).await;
    for attempt in 1..=3 {
        let tried = if attempt == 1 { record.clone() } else { frame(&mut member).await };
        assert_eq!((tried.meta.id, tried.attempt), (record.meta.id, attempt), "it comes at once");
        assert!(failed(&member, &tried, "no such model"));
        assert!(!failed(&member, &tried, "said twice"));
    }
    let group = until(&client, |group| group.account.dead == 1).await;
    let letter = &group.dead_letters[0];
    assert_eq!((letter.frame, letter.tries, letter.last.as_str()), (record.meta.id, 3, "no such model"));
    assert_eq!((group.account.failed, group.account.given_again), (3, 2));
    // The next one comes.
    let next = first(&rig.camera, &mut member).await;
    assert!(next.meta.id > record.meta.id && next.attempt == 1);
}

async fn lost(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut one = client.subscribe(every(detect())).await.unwrap();
    let record = first(&rig.camera, &mut one).await;
    let mut other = client.subscribe(every(detect())).await.unwrap();
    joined(&mut other).await;
    // As if its program were killed.
    drop(one);
    loop {
        let again = frame(&mut other).await;
        if again.meta.id == record.meta.id {
            assert_eq!((again.attempt, &again.payload), (2, &record.payload));
            break;
        }
    }
    let group = until(&client, |group| group.account.left == 1).await;
    assert_eq!(group.members.len(), 1);
}

async fn leaves(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut one = client.subscribe(every(by_hand(2))).await.unwrap();
    let first_record = first(&rig.camera, &mut one).await;
    rig.camera.publish(image(9_000, 100)).unwrap();
    let second = frame(&mut one).await;
    assert!(done(&one, &first_record));
    one.control().leave(Duration::from_secs(10)).await.unwrap();
    drop(one);
    let mut other = client.subscribe(every(detect())).await.unwrap();
    let again = frame(&mut other).await;
    assert_eq!((again.meta.id, again.attempt), (second.meta.id, 2), "what was done does not come again");
    let group = until(&client, |group| group.account.left == 1).await;
    assert_eq!(group.account.done, 1);
}

async fn silent(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let options = || every(Membership { again_after: Some(Duration::from_millis(300)), ..by_hand(1) });
    let mut one = client.subscribe(options()).await.unwrap();
    let record = first(&rig.camera, &mut one).await;
    let mut other = client.subscribe(options()).await.unwrap();
    let again = frame(&mut other).await;
    assert_eq!((again.meta.id, again.attempt), (record.meta.id, 2));
    assert!(done(&one, &record), "late work is work");
    until(&client, |group| group.account.done == 1).await;
    assert!(done(&other, &again));
    let group = until(&client, |group| group.account.again == 1).await;
    assert_eq!((group.account.silent, group.account.done, group.account.open), (1, 1, 0));
}

async fn ordered(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let options = || every(Membership { ordered: true, ..by_hand(8) });
    let mut one = client.subscribe(options()).await.unwrap();
    let record = first(&rig.camera, &mut one).await;
    let mut other = client.subscribe(options()).await.unwrap();
    joined(&mut other).await;
    for value in 0..10 {
        rig.camera.publish(image(value, 100)).unwrap();
    }
    let nobody = async {
        tokio::select! {
            record = frame(&mut one) => record,
            record = frame(&mut other) => record,
        }
    };
    let early = tokio::time::timeout(Duration::from_millis(300), nobody).await;
    assert!(early.is_err(), "{early:?}");
    assert!(done(&one, &record));
    let next = tokio::select! {
        record = frame(&mut one) => record,
        record = frame(&mut other) => record,
    };
    assert!(next.meta.id > record.meta.id);
}

async fn held_back(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut member = client.subscribe(every(Membership { open_max: Some(1), ..by_hand(2) })).await.unwrap();
    joined(&mut member).await;
    // The record may come before or behind the news that it is the last for now.
    let (mut record, mut told) = (None, None);
    for value in 0..600 {
        rig.camera.publish(image(value, 100)).unwrap();
        let pause = Duration::from_millis(100);
        while let Ok(event) = tokio::time::timeout(pause, member.next()).await {
            match event.unwrap() {
                Event::Frame(frame) => record = Some(frame),
                Event::Held { open } => told = Some(open),
                _ => {}
            }
        }
        if record.is_some() && told.is_some() {
            break;
        }
    }
    let record = record.expect("nothing was given");
    assert_eq!(told, Some(Some(1)));
    assert!(done(&member, &record));
    let told = within(async {
        loop {
            if let Event::Held { open } = member.next().await.unwrap() {
                return open;
            }
        }
    });
    assert_eq!(told.await, None);
}

// ---- whose a group is -------------------------------------------------------------------------------------

fn reason<T: std::fmt::Debug>(refused: Result<T, ClientError>) -> String {
    match refused.unwrap_err() {
        ClientError::Refused(error) => error.reason,
        other => panic!("{other}"),
    }
}

async fn as_app(site: &Site, address: &Address, name: &str) -> EdgeClient {
    let credentials = site.credentials(Role::App, name);
    EdgeClient::connect(vec![address.clone()], Some(&credentials), ClientOptions::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_principal_has_a_group_of_its_own_and_settles_nothing_of_this_one() {
    let rig = Served::new().await;
    let (counter, other) =
        (as_app(&rig.site, &rig.tls, "counter").await, as_app(&rig.site, &rig.tls, "other").await);
    let mut ours = counter.subscribe(every(by_hand(1))).await.unwrap();
    let mut theirs = other.subscribe(every(by_hand(1))).await.unwrap();
    joined(&mut theirs).await;
    let record = first(&rig.camera, &mut ours).await;
    // Many of another principal's members, in groups of every name, take nothing of this group.
    let mut flood = Vec::new();
    for name in 0..30 {
        let flooding = Membership { name: format!("g{name}").parse().unwrap(), ..detect() };
        match other.subscribe(every(flooding)).await {
            Ok(member) => flood.push(member),
            Err(ClientError::Refused(error)) => assert_eq!(error.reason, "TOO_MANY_GROUPS", "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(flood.len(), 15, "16 groups of one principal");
    let copy = frame(&mut theirs).await;
    assert!(done(&theirs, &copy));
    let settled = until(&other, |group| group.account.done == 1).await;
    assert_eq!((settled.name.as_str(), settled.owner.as_str()), ("detect", "app/other"));
    let group = &counter.groups().await.unwrap()[..];
    assert_eq!((group.len(), group[0].account.done, group[0].account.open), (1, 0, 1));
    assert_eq!(reason(other.forget_group("detect", Some("app/counter")).await), "PERMISSION_DENIED");
    assert!(done(&ours, &record));
    until(&counter, |group| group.account.done == 1).await;
    assert_eq!(rig.client().await.groups().await.unwrap().len(), 17, "the edge's own user sees all");
}

/// Settlements of a member that was not given the record, of records that nobody was given, twice, and too late.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_settles_what_it_was_not_given() {
    let rig = Served::new().await;
    let client = as_app(&rig.site, &rig.tls, "counter").await;
    let mut member = client.subscribe(every(by_hand(1))).await.unwrap();
    let record = first(&rig.camera, &mut member).await;
    let key = GroupKey { owner: Bearer::App("counter".parse().unwrap()), name: "detect".parse().unwrap() };
    let id = record.meta.id;
    let say = async |member: u128, frame: FrameId| {
        let records = vec![(dock(), frame, None)];
        let settlements = Settlements { member: MemberId(member), records, ready: 0 };
        let settled = rig.edge.settle(&key, settlements).await.expect("the group is known");
        settled.results[0].clone().map_err(|error| error.to_string())
    };
    let of_others = say(4_711, id).await.unwrap_err();
    assert!(of_others.contains("was not given to this member"), "{of_others}");
    assert!(say(4_711, id.next()).await.is_err());
    assert!(done(&member, &record));
    let group = until(&client, |group| group.account.done == 1).await;
    let own = group.members[0].member;
    assert_eq!(say(own, id).await, Ok(Acknowledged::Again));
    let unknown = GroupKey { name: "nobody".parse().unwrap(), ..key.clone() };
    let settlements = Settlements { member: MemberId(1), records: Vec::new(), ready: 0 };
    assert_eq!(rig.edge.settle(&unknown, settlements).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_group_cannot_give_is_refused() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let mut member = client.subscribe(every(detect())).await.unwrap();
    joined(&mut member).await;
    let ordered = every(Membership { ordered: true, ..detect() });
    assert_eq!(reason(client.subscribe(ordered).await.map(drop)), "GROUP_DIFFERS");
    let past = SubscribeOptions { begin: Some(mez_node::clock::wall_now()), ..every(detect()) };
    assert_eq!(reason(client.subscribe(past).await.map(drop)), "SPAN_IN_GROUP");
    let never = every(Membership { tries: Some(0), ..detect() });
    assert_eq!(reason(client.subscribe(never).await.map(drop)), "INVALID_GROUP_OPTION");
    assert_eq!(reason(member.update(&Default::default(), None).await), "CONTRACT_OF_GROUP");
    assert_eq!(reason(client.forget_group("detect", None).await), "GROUP_IN_USE");
    assert_eq!(reason(client.forget_group("other", None).await), "UNKNOWN_GROUP");
    member.control().leave(Duration::from_secs(10)).await.unwrap();
    drop(member);
    until(&client, |group| group.members.is_empty()).await;
    within(async {
        while client.forget_group("detect", None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(client.groups().await.unwrap(), []);
}

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

/// Every record needs the right to read the past. A camera that is taken away ends for all members, and what was open of it is lost and told; the
/// others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_has_what_its_principal_was_granted() {
    let site = Site::new();
    let edge = site.edge();
    let (one, two) = (site.camera("dock/cam1", &edge).await, site.camera("dock/cam2", &edge).await);
    let (rights, followed) = LiveRights::changing(strict(&["app/counter watch dock/*"]));
    let (_server, _, tls) = site.serve_edge_with(&edge, followed).await;
    let client = as_app(&site, &tls, "counter").await;
    let refused = client.subscribe(every(by_hand(2))).await.map(drop);
    assert_eq!(reason(refused), "PERMISSION_DENIED");
    rights.send_replace(strict(&["app/counter watch dock/*", "app/counter read dock/*"]).into());
    let mut member = client.subscribe(every(by_hand(2))).await.unwrap();
    let mut other = client.subscribe(every(by_hand(1))).await.unwrap();
    joined(&mut other).await;
    let taken = loop {
        let record = first(&two, &mut member).await;
        if record.camera.as_str() == "dock/cam2" {
            break record;
        }
    };
    rights.send_replace(strict(&["app/counter watch dock/cam1", "app/counter read dock/cam1"]).into());
    let record = loop {
        let record = first(&one, &mut other).await;
        if record.camera == dock() {
            break record;
        }
        // It had come before.
        assert!(done(&other, &record));
    };
    assert!(done(&other, &record));
    // The member that has the record says nothing: its time passes for nobody.
    member.control().settle(&taken.camera, taken.meta.id, Some("not now".into()));
    let group = until(&client, |group| group.account.lost[4] == 1).await;
    assert_eq!(group.members.len(), 2, "{group:?}");
    drop(edge);
}

// ---- restarts of the edge ---------------------------------------------------------------------------------

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
                    // The one before lets go of its port a moment later.
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

/// With a log on disk the group goes on where it was: what is done stays done, what a member has stays with it, what nobody has comes again.
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
    // What is on disk can be given again: the newest frames get there within a moment.
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

/// Without a log on disk the place is gone with the edge, and that is said before and after.
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
