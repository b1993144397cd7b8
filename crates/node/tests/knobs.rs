//! Data records degraded by knobs, between real brokers: on a slow link, with a failing function, and in the past.

mod api_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use api_support::{Served, Site, slow_link, within};
use bytes::Bytes;
use mez_core::broker::Published;
use mez_core::contract::Contract;
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, Rung, SkipCounts, SkipReason};
use mez_core::history::PastOptions;
use mez_core::setting::KnobValue;
use mez_core::subscription::{Deliver, Span, SubscriptionSpec};
use mez_core::units::Timestamp;
use mez_node::camera::Transport;
use mez_node::client::{Event, Profile, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::clock::wall_now;
use mez_node::degrade::{Degrade, Knob, Operator, OperatorKind, StreamKnobs};
use mez_node::edge::Served as FromEdge;
use mez_node::ports::EdgeAddress;

/// The rows of a record of 100 kB.
const ROWS: usize = 5_000;

/// Ranked pages as JSON, most frequent first.
fn ranking(number: usize) -> Bytes {
    let rows =
        (0..ROWS).map(|row| format!(r#"["/page{row:05}",{}]"#, 10_000 + (ROWS - row) * 7 + number % 7));
    format!("[{}]", rows.collect::<Vec<_>>().join(",")).into()
}

fn record(body: Bytes) -> Published {
    Published::data(&DataRecord { content_type: "application/json".parse().unwrap(), of: None, body }, None)
}

fn values(numbers: &[f64]) -> Vec<KnobValue> {
    numbers.iter().map(|number| KnobValue::from_f64(*number).unwrap()).collect()
}

/// Knobs that keep the first rows by an operator.
fn head() -> StreamKnobs {
    let operator = Some(Operator { kind: OperatorKind::Head, key: None });
    let knob = Knob { name: "top".into(), values: values(&[20.0, 200.0, 1_000.0]), operator };
    StreamKnobs::new(vec![knob], vec![], None).unwrap()
}

/// The expected result of [`head`].
fn first(body: &Bytes, rows: usize) -> Vec<serde_json::Value> {
    let mut all: Vec<serde_json::Value> = serde_json::from_slice(body).unwrap();
    all.truncate(rows);
    all
}

fn contracted(rungs: &[(&str, u32, f64)]) -> SubscribeOptions {
    let rung = |&(name, bytes, accuracy): &(&str, u32, f64)| {
        format!(
            r#"{{"rung":"{name}","bytes":{{"mean":{bytes},"p05":{},"p50":{bytes},"p95":{}}},"accuracy_normalised":{{"value":{accuracy}}}}}"#,
            bytes - bytes / 10,
            bytes + bytes / 10,
        )
    };
    let rungs = rungs.iter().map(rung).collect::<Vec<_>>().join(",");
    let profile = format!(
        r#"{{"format":"mez-profile","version":1,"app":"top","width":0,"height":0,"rungs":[{rungs}]}}"#
    );
    SubscribeOptions {
        contract: Contract {
            latency_bound: Some(Duration::from_secs(1)),
            accuracy_floor: Some(0.5),
            ..Contract::default()
        },
        profile: Some(Profile::Inline(profile.into())),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// Publishes `count` records, ten per second, and returns the records received meanwhile.
async fn publish(rig: &Served, count: usize, subscription: &mut Subscription) -> Vec<ReceivedFrame> {
    let mut got = Vec::new();
    for number in 0..count {
        rig.camera.publish(record(ranking(number))).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        while let Some(event) = subscription.try_next() {
            match event {
                Event::Frame(frame) => got.push(*frame),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    }
    got
}

/// Asserts that the records between two received ones are counted.
fn assert_counted(got: &[ReceivedFrame]) {
    for pair in got.windows(2) {
        let between = pair[1].meta.id.sequence.0 - pair[0].meta.id.sequence.0 - 1;
        assert_eq!(pair[1].skipped.total(), between, "before {}", pair[1].meta.id);
    }
}

/// An original record takes two seconds on this link, but the contract allows one. Received records have a rung, and are
/// the operator's result for it. Whether they were on time depends on the load of the host, and is not checked here.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_slow_link_records_come_by_their_knob() {
    let site = Site::new();
    let edge = site.edge();
    let relay = slow_link(SocketAddr::from(([127, 0, 0, 1], edge.link_address().port())), 400_000).await;
    let rig = Served::with(site, edge, |options| {
        options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: relay.port() }];
        options.transport = Transport::Tcp;
        options.knobs = Some(Arc::new(head()));
    })
    .await;
    let rungs = [
        ("data/top=20", 440, 0.7),
        ("data/top=200", 4_040, 0.9),
        ("data/top=1000", 20_040, 0.97),
        ("original", 100_040, 1.0),
    ];
    let mut subscription = rig.client().await.subscribe(contracted(&rungs)).await.unwrap();
    let got = within(publish(&rig, 150, &mut subscription)).await;
    assert_counted(&got);
    let steady = &got[got.len() / 2..];
    assert!(steady.len() > 20, "{} records in 7 s", steady.len());
    for frame in steady {
        let rung = frame.meta.rung.as_str();
        let rows = rung
            .strip_prefix("data/top=")
            .unwrap_or_else(|| panic!("{rung} came on a link that is too slow"));
        assert_eq!((frame.meta.encoding, frame.meta.published), (Encoding::Data, (0, 0)));
        let rows: usize = rows.parse().unwrap();
        let number = usize::try_from(frame.meta.id.sequence.0).unwrap();
        let made: Vec<serde_json::Value> = serde_json::from_slice(&frame.payload).unwrap();
        assert_eq!(made, first(&ranking(number), rows), "{}", frame.meta.id);
        let expected = rungs.iter().find(|(name, ..)| *name == rung).map(|(.., accuracy)| *accuracy);
        assert_eq!(frame.accuracy_expected, expected);
    }
}

/// Behaves as it is told: halves, fails, panics, hangs or grows.
struct Moody(AtomicU8);

impl Degrade for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn degrade(&self, record: &DataRecord, _: &[(&str, KnobValue)]) -> Result<Bytes, String> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(record.body.slice(..record.body.len() / 2)),
            1 => Err("planned".into()),
            2 => panic!("planned"),
            3 => {
                thread::sleep(Duration::from_secs(3));
                Ok(record.body.clone())
            }
            _ => Ok([&record.body[..], b" "].concat().into()),
        }
    }
}

/// Whatever the function does, a record that is not degraded comes as published, or is counted
/// as not made. Nothing else is lost, and when the function works again, it is used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_fails_costs_its_records_and_no_more() {
    let moody = Arc::new(Moody(AtomicU8::new(0)));
    let knob = Knob { name: "half".into(), values: values(&[1.0]), operator: None };
    let function = Arc::clone(&moody) as Arc<dyn Degrade>;
    let knobs = StreamKnobs::new(vec![knob], vec![], Some(function)).unwrap();
    let site = Site::new();
    let edge = site.edge();
    let rig = Served::with(site, edge, |options| options.knobs = Some(Arc::new(knobs))).await;
    let options = contracted(&[("data/half=1", 50_000, 0.9)]);
    let mut subscription = rig.client().await.subscribe(options).await.unwrap();
    let mut all = Vec::new();
    within(async {
        while !all.iter().any(|frame: &ReceivedFrame| frame.meta.rung.as_str() == "data/half=1") {
            all.extend(publish(&rig, 2, &mut subscription).await);
        }
    })
    .await;
    for mood in 1..=4 {
        moody.0.store(mood, Ordering::Relaxed);
        let before = all.len();
        within(async {
            // Until the function is disabled for a while, and only originals come.
            loop {
                all.extend(publish(&rig, 4, &mut subscription).await);
                let newest = all[before..].iter().rev().take(3);
                if newest.clone().count() == 3
                    && newest.clone().all(|frame| frame.meta.rung == Rung::original())
                {
                    break;
                }
            }
        })
        .await;
        moody.0.store(0, Ordering::Relaxed);
        within(async {
            while all.last().is_none_or(|frame| frame.meta.rung.as_str() != "data/half=1") {
                all.extend(publish(&rig, 4, &mut subscription).await);
            }
        })
        .await;
    }
    assert_counted(&all);
    for frame in &all {
        let number = frame.meta.id.sequence.0;
        match frame.meta.rung.as_str() {
            "data/half=1" => {
                assert_eq!((frame.payload.len(), frame.accuracy_expected), (ranking(0).len() / 2, Some(0.9)))
            }
            "original" => assert_eq!(frame.payload.len(), ranking(0).len()),
            other => panic!("{number} came at {other}"),
        }
    }
    let not_made: u64 = all.iter().map(|frame| frame.skipped.of(SkipReason::NotMade)).sum();
    let others: u64 = all.iter().map(|frame| frame.skipped.total()).sum::<u64>() - not_made;
    assert!(
        others <= all.len() as u64 / 5,
        "{others} records are missing for other reasons than the function"
    );
}

/// Reads the past at a rung. Returns bodies, rungs and skip counts.
async fn read(rig: &Served, rung: &str) -> (Vec<(String, Bytes)>, SkipCounts) {
    let span = Span { begin: Some(Timestamp::from_nanos(1)), end: Some(wall_now()), deliver: Deliver::Every };
    let past = PastOptions { quality: Some(rung.parse().unwrap()), ..PastOptions::ALL };
    let spec = SubscriptionSpec { past, ..SubscriptionSpec::new("dock/cam1".parse().unwrap(), span) };
    let mut subscription = rig.edge.subscribe_as(spec, None).await.unwrap();
    let (mut all, mut skipped) = (Vec::new(), SkipCounts::default());
    within(async {
        loop {
            match subscription.next().await {
                FromEdge::Frame { delivery, .. } => {
                    skipped.merge(&delivery.skipped);
                    let frame = delivery.record.frame;
                    let body = match frame.meta.encoding {
                        Encoding::Data => DataRecord::decode(&frame.payload).unwrap().body,
                        _ => frame.payload,
                    };
                    all.push((frame.meta.rung.as_str().to_owned(), body));
                }
                FromEdge::Ended { rest } => {
                    rest.iter().for_each(|(_, counts, _)| skipped.merge(counts));
                    return;
                }
                FromEdge::Stopped => panic!("the edge stopped"),
                _ => {}
            }
        }
    })
    .await;
    (all, skipped)
}

/// A record that the operator cannot handle is counted. A picture comes as published.
#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_degraded_as_is_asked() {
    let site = Site::new();
    let edge = site.edge();
    let rig = Served::with(site, edge, |options| options.knobs = Some(Arc::new(head()))).await;
    rig.camera.publish(record(ranking(0))).unwrap();
    rig.camera.publish(record(Bytes::from_static(b"{\"no\":\"list\"}"))).unwrap();
    rig.camera.publish(api_support::image(1, 16)).unwrap();
    rig.camera.publish(record(ranking(3))).unwrap();
    let (got, skipped) = read(&rig, "data/top=20").await;
    let rungs: Vec<&str> = got.iter().map(|(rung, _)| rung.as_str()).collect();
    assert_eq!(rungs, ["data/top=20", "original", "data/top=20"]);
    for (place, number) in [(0, 0), (2, 3)] {
        let made: Vec<serde_json::Value> = serde_json::from_slice(&got[place].1).unwrap();
        assert_eq!(made, first(&ranking(number), 20));
    }
    assert_eq!((skipped.total(), skipped.of(SkipReason::NotMade)), (1, 1));
    // At a rung of pictures, records come as published.
    let (got, _) = read(&rig, "original").await;
    assert_eq!(got.len(), 4);
    assert_eq!(got[0].1, ranking(0));
}
