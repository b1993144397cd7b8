//! Owners of groups, and their rights.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::group::{Acknowledged, MemberId};
use mez_core::rights::{Bearer, Grant, Rights, Stance};
use mez_node::client::{Address, ClientError, ClientOptions, EdgeClient, Membership, SubscribeOptions};
use mez_node::edge::Settlements;
use mez_node::identity::name::Role;
use mez_node::rights::LiveRights;

use crate::api_support::{Served, Site, frame, within};
use crate::support::{by_hand, detect, dock, done, every, first, joined, until};

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
    // Many members of another principal, in groups of many names, take nothing from this group.
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

/// Settlements by a member that did not get the record, of records that nobody got, repeated, and too late.
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

/// Every record needs the right to read the past. If a camera's right is removed, it ends
/// for all members, and its open records are lost and reported. The other cameras continue.
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
        // This record was given before the right was removed.
        assert!(done(&other, &record));
    };
    assert!(done(&other, &record));
    // The member that has the record says nothing: its time passes for nobody.
    member.control().settle(&taken.camera, taken.meta.id, Some("not now".into()));
    let group = until(&client, |group| group.account.lost[4] == 1).await;
    assert_eq!(group.members.len(), 2, "{group:?}");
    drop(edge);
}
