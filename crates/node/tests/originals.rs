//! Originals beside a contract, between real brokers.

mod api_support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use api_support::{Served, Site, slow_link, within};
use bytes::Bytes;
use mez_core::broker::Published;
use mez_core::contract::{Contract, ContractState};
use mez_core::frame::{Encoding, Rung, SkipReason};
use mez_core::history::quality;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{ClientError, Event, Profile, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::ports::EdgeAddress;
use tonic::Code;

const SIZE: (u32, u32) = (640, 480);
const SMALL: &str = "jpeg/w320/q44/420";

/// A JPEG with enough detail that its quality matters.
fn picture(number: u8) -> Published {
    let (width, height) = SIZE;
    let pixel = |at: u32| (at % width / 8 * 5 + at / width / 8 * 3) as u8 ^ number;
    let pixels: Vec<u8> = (0..width * height).map(pixel).collect();
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
}

/// A contract whose profile has one rung, with small frames.
fn contracted() -> SubscribeOptions {
    let profile = format!(
        r#"{{"format":"mez-profile","version":1,"app":"people","width":{},"height":{},"rungs":[{{"rung":"{SMALL}","bytes":{{"mean":9000,"p05":4000,"p50":9000,"p95":18000}},"accuracy_normalised":{{"value":0.93}}}}]}}"#,
        SIZE.0, SIZE.1
    );
    SubscribeOptions {
        contract: Contract {
            latency_bound: Some(Duration::from_secs(1)),
            accuracy_floor: Some(0.9),
            ..Contract::default()
        },
        profile: Some(Profile::Inline(profile.into())),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

fn originals() -> SubscribeOptions {
    let original = quality(Rung::ORIGINAL).unwrap().rung();
    SubscribeOptions { quality: Some(original), ..SubscribeOptions::new("dock/*".parse().unwrap()) }
}

/// The result of a subscription.
#[derive(Default)]
struct Got {
    frames: Vec<ReceivedFrame>,
    told: Vec<(ContractState, String)>,
}

impl Got {
    fn take(&mut self, subscription: &mut Subscription) {
        while let Some(event) = subscription.try_next() {
            match event {
                Event::Frame(frame) => self.frames.push(*frame),
                Event::Contract { state, reason, .. } => self.told.push((state, reason)),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    }

    /// Asserts that the frames between two received ones are counted.
    fn assert_counted(&self) {
        for pair in self.frames.windows(2) {
            let between = pair[1].meta.id.sequence.0 - pair[0].meta.id.sequence.0 - 1;
            assert_eq!(pair[1].skipped.total(), between, "before {}", pair[1].meta.id);
        }
    }
}

/// Publishes `count` pictures, twenty per second, and returns them by number.
async fn publish(
    camera: &CameraHandle,
    count: u64,
    reading: &mut [(&mut Subscription, &mut Got)],
) -> BTreeMap<u64, Bytes> {
    let mut published = BTreeMap::new();
    for number in 0..count {
        let picture = picture(number as u8);
        let payload = picture.payload.clone();
        published.insert(camera.publish(picture).unwrap().sequence.0, payload);
        tokio::time::sleep(Duration::from_millis(50)).await;
        reading.iter_mut().for_each(|(subscription, got)| got.take(subscription));
    }
    published
}

/// A contract makes frames small, on a link with room for everything. Two applications still get
/// originals, byte for byte, over the Unix socket and over TLS. The contract's frames stay small.
#[tokio::test(flavor = "multi_thread")]
async fn originals_come_beside_a_contract_on_every_way() {
    let rig = Served::new().await;
    let (local, remote) = (rig.client_by(0).await, rig.client_by(1).await);
    let mut people = local.subscribe(contracted()).await.unwrap();
    let mut warm = Got::default();
    within(async {
        while !warm.frames.iter().any(|frame| frame.meta.rung.as_str() == SMALL) {
            publish(&rig.camera, 5, &mut [(&mut people, &mut warm)]).await;
        }
    })
    .await;
    let (mut here, mut there) =
        (local.subscribe(originals()).await.unwrap(), remote.subscribe(originals()).await.unwrap());
    let (mut kept, mut near, mut far) = (Got::default(), Got::default(), Got::default());
    let mut published = BTreeMap::new();
    within(async {
        while near.frames.len() < 20 || far.frames.len() < 20 {
            let mut reading = [(&mut people, &mut kept), (&mut here, &mut near), (&mut there, &mut far)];
            published.extend(publish(&rig.camera, 10, &mut reading).await);
        }
    })
    .await;
    for got in [&near, &far] {
        for frame in &got.frames {
            assert_eq!((frame.meta.rung.as_str(), frame.accuracy_expected), (Rung::ORIGINAL, Some(1.0)));
            if let Some(payload) = published.get(&frame.meta.id.sequence.0) {
                assert_eq!(frame.payload, *payload, "frame {}", frame.meta.id);
            }
        }
        got.assert_counted();
    }
    assert!(kept.frames.iter().all(|frame| frame.meta.rung.as_str() == SMALL), "the contract keeps its rung");
    kept.assert_counted();
}

/// Originals together with a floor are refused, both in a new subscription and in an update.
#[tokio::test(flavor = "multi_thread")]
async fn originals_go_without_a_floor() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let refused = |error: ClientError| match error {
        ClientError::Refused(refusal) => assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidArgument, Some("accuracy_floor")),
            "{refusal:?}"
        ),
        other => panic!("{other}"),
    };
    refused(
        client
            .subscribe(SubscribeOptions { quality: originals().quality, ..contracted() })
            .await
            .unwrap_err(),
    );
    let subscription = client.subscribe(originals()).await.unwrap();
    let floor = Contract { accuracy_floor: Some(0.9), ..Contract::default() };
    refused(subscription.update(&floor, None).await.unwrap_err());
    let bound = Contract { latency_bound: Some(Duration::from_secs(2)), ..Contract::default() };
    subscription.update(&bound, None).await.unwrap();
}

/// On a slow link, the application with the contract keeps its frames beside a reader of originals, except for those whose time the
/// originals take. The reader gets its share of the link. All its frames are originals, and missing ones are reported with reasons.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_slow_link_a_contract_keeps_its_frames_beside_originals() {
    let site = Site::new();
    let edge = site.edge();
    let relay = slow_link(SocketAddr::from(([127, 0, 0, 1], edge.link_address().port())), 1_500_000).await;
    let rig = Served::with(site, edge, |options| {
        options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: relay.port() }];
        options.transport = Transport::Tcp;
    })
    .await;
    let client = rig.client().await;
    let mut people = client.subscribe(contracted()).await.unwrap();
    let mut settled = Got::default();
    within(publish(&rig.camera, 60, &mut [(&mut people, &mut settled)])).await;
    let mut alone = Got::default();
    within(publish(&rig.camera, 80, &mut [(&mut people, &mut alone)])).await;
    let mut reader = client.subscribe(originals()).await.unwrap();
    let (mut beside, mut got) = (Got::default(), Got::default());
    let mut reading = [(&mut people, &mut beside), (&mut reader, &mut got)];
    within(publish(&rig.camera, 80, &mut reading)).await;
    let (count, count_alone) = (beside.frames.len(), alone.frames.len());
    // Originals take at most a quarter of the link's time (`HISTORY_SHARE`). Over TCP, no frame overtakes data that was written before.
    assert!(count * 10 >= count_alone * 7, "{count} frames beside the reader, {count_alone} alone");
    assert!(beside.frames.iter().all(|frame| frame.meta.rung.as_str() == SMALL));
    beside.assert_counted();
    assert!(!got.frames.is_empty() && got.frames.iter().all(|frame| frame.meta.rung == Rung::original()));
    got.assert_counted();
    let lacking: u64 = got.frames.iter().map(|frame| frame.skipped.of(SkipReason::LinkBusy)).sum();
    assert!(lacking > 0, "the link has no room for all");
    let why = "contracts come first, and originals get only their share of the link (--history-share)";
    assert!(got.told.iter().any(|(_, reason)| reason.contains(why)), "{:?}", got.told);
    let last = &got.frames[got.frames.len() - 1];
    assert_eq!(last.contract_state, ContractState::Ok, "{}", last.contract_reason);
    assert!(last.contract_reason.contains(why), "{}", last.contract_reason);
}
