//! Which member gets which record, and what happens if a member fails, is lost or leaves. Over the local protocol, and over gRPC with TLS.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::group::session::PlaceTold;
use mez_core::subscription::Deliver;
use mez_node::client::{Event, Membership, SubscribeOptions};

use crate::api_support::{Served, frame, image, number, within};
use crate::support::{by_hand, detect, done, every, failed, first, joined, until};

/// Longer than a test runs.
const NEVER: Duration = Duration::from_secs(3_600);

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
    a_member_that_leaves_need_not_take_what_waits: leaves_with_records_waiting;
    a_record_whose_member_says_nothing_comes_again_and_late_work_counts: silent;
    order_is_kept_and_nobody_else_waits: ordered;
    what_is_not_settled_is_bounded_and_told: held_back;
}

/// More requests than the group handles at once.
#[tokio::test]
async fn of_many_who_ask_at_once_nobody_is_passed_over() {
    let rig = Served::new().await;
    let client = rig.client_by(1).await;
    let mut member = client.subscribe(every(detect())).await.unwrap();
    joined(&mut member).await;
    let asked = (0..150).map(|_| client.groups());
    for groups in futures_util::future::join_all(asked).await {
        let groups = groups.unwrap();
        assert_eq!(groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [1]);
    }
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
    // The last one may precede a record of another member.
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
    // The next record comes.
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
    // A handle does not keep the subscription open. To the edge this is as if its program was killed.
    let _control = one.control();
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
    within(one.control().leave(NEVER)).await.unwrap();
    drop(one);
    let mut other = client.subscribe(every(detect())).await.unwrap();
    let again = frame(&mut other).await;
    assert_eq!((again.meta.id, again.attempt), (second.meta.id, 2), "what was done does not come again");
    let group = until(&client, |group| group.account.left == 1).await;
    assert_eq!(group.account.done, 1);
}

/// The confirmation of its report comes behind records that it does not take.
async fn leaves_with_records_waiting(way: usize) {
    let rig = Served::new().await;
    let client = rig.client_by(way).await;
    let mut one = client.subscribe(every(by_hand(40))).await.unwrap();
    let first_record = first(&rig.camera, &mut one).await;
    let camera = rig.camera.clone();
    let publishing = tokio::spawn(async move {
        for value in 9_000.. {
            camera.publish(image(value, 100)).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    until(&client, |group| group.account.open == 40).await;
    publishing.abort();
    assert!(done(&one, &first_record));
    within(one.control().leave(NEVER)).await.unwrap();
    let group = until(&client, |group| group.members.is_empty()).await;
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
    let (mut record, mut told) = (None, None);
    let publishing = async {
        for value in (0..200).cycle() {
            rig.camera.publish(image(value, 100)).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Events come before waiting records, so this event may come before its record.
    let hearing = within(async {
        while record.is_none() || told.is_none() {
            match member.next().await.unwrap() {
                Event::Frame(frame) => record = Some(frame),
                Event::Held { open } => told = Some(open),
                _ => {}
            }
        }
    });
    tokio::select! { () = publishing => {}, () = hearing => {} }
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
