//! Cameras on declared channels, as the edge treats them.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::contract::Contract;
use crate::controller::share::{CAP_INTERVAL, CAP_LIFETIME, CAP_REFRESH_INTERVAL, Channels, Step};
use crate::subscription::SubscriptionSpec;
use crate::units::ClockAnchor;
use crate::wire::{Share, ShareRequest};

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(60);

/// An edge with cameras `dock/cam1`, `dock/cam2` and so on, on connections of these numbers. `declared` are the channels.
fn rig(declared: &[&str], cameras: u64) -> Rig {
    let mut rig = Rig::with(EdgeConfig { channels: channels(declared), ..EdgeConfig::default() });
    for link in 1..=cameras {
        rig.greet(link, &format!("dock/cam{link}"), 3);
    }
    rig.take();
    rig
}

fn subscribe(rig: &mut Rig, id: u64, cameras: &str, priority: i32) {
    let clock = ClockAnchor { wall: crate::units::Timestamp::from_nanos(1 << 60), monotonic: rig.now };
    let contract = Contract {
        accuracy_floor: Some(0.8),
        latency_bound: Some(100 * MS),
        priority,
        ..Contract::default()
    };
    let spec = SubscriptionSpec { contract, ..SubscriptionSpec::live(cameras.parse().expect("a pattern")) };
    rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
}

fn claim(floor: usize) -> ShareRequest {
    let steps = [(1e3, 0.6), (2e3, 0.8), (4e3, 0.9), (8e3, 0.95)];
    let steps = steps.map(|(bytes, accuracy)| Step { bytes, accuracy }).to_vec();
    ShareRequest { interval: INTERVAL, latency_bound: 100 * MS, floor, steps }
}

fn claims(rig: &mut Rig, link: u64, claim: ShareRequest) {
    rig.broker.handle_message(rig.now, LinkId(link), Message::ShareRequest(claim));
}

/// A frame of a camera arrives, on a channel of `bytes_per_ms`.
fn frame(rig: &mut Rig, link: u64, sequence: u64, bytes: u32, bytes_per_ms: u32) {
    let mut header = header(3, sequence, bytes, Vec::new());
    header.sent = rig.now - 5 * MS;
    let id = header.meta.id;
    rig.broker.handle_frame_header(rig.now, LinkId(link), header).expect("it is taken");
    rig.now += MS * ((bytes - 1_200) / bytes_per_ms);
    rig.broker.handle_frame_complete(rig.now, LinkId(link), id, vec![0; bytes as usize].into());
}

/// The shares that cameras were told since the last call, by connection.
fn told(rig: &mut Rig) -> Vec<(u64, Share)> {
    let told = rig.take().into_iter().filter_map(|output| match output {
        EdgeOutput::Send { link, message: Message::Share(share) } => Some((link.0, share)),
        _ => None,
    });
    told.collect()
}

/// Measures the channel with frames of all cameras. Returns the shares of the next division.
fn measured(rig: &mut Rig, cameras: u64, bytes_per_ms: u32) -> Vec<(u64, Share)> {
    for sequence in 0..40 {
        for link in 1..=cameras {
            frame(rig, link, sequence, 13_200, bytes_per_ms);
            rig.now += MS * 40;
        }
    }
    told(rig);
    rig.now += CAP_INTERVAL;
    // All cameras are still connected.
    for link in 1..=cameras {
        rig.broker.handle_message(rig.now, LinkId(link), Message::Ping { t1: rig.now });
    }
    rig.broker.handle_timeout(rig.now);
    told(rig)
}

fn bytes_max(share: Share) -> Option<u32> {
    match share {
        Share::Cap { frame_bytes_max, lifetime, .. } => {
            assert_eq!(lifetime, CAP_LIFETIME);
            Some(frame_bytes_max)
        }
        Share::Free => Some(u32::MAX),
        Share::Shed { .. } => None,
    }
}

#[test]
fn cameras_on_no_declared_channel_are_told_nothing() {
    for declared in [&[][..], &["yard=yard/**"][..]] {
        let mut rig = rig(declared, 2);
        subscribe(&mut rig, 1, "**", 0);
        claims(&mut rig, 1, claim(0));
        assert_eq!(measured(&mut rig, 2, 200), [], "{declared:?}");
        assert_eq!(rig.info().share, None);
    }
}

/// A camera learns with the demand that it is on a channel. It is free until the channel
/// was measured and another camera is on it as well. Then the two divide the rate.
#[test]
fn a_channel_is_divided_once_two_claim_it_and_it_was_measured() {
    let mut rig = rig(&["hall=dock/*"], 2);
    subscribe(&mut rig, 1, "dock/*", 0);
    assert_eq!(told(&mut rig), [(1, Share::Free), (2, Share::Free)]);
    claims(&mut rig, 1, claim(0));
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(told(&mut rig), [], "nobody knows what the channel carries");
    assert_eq!(measured(&mut rig, 2, 200), [], "one camera has all of it");
    claims(&mut rig, 2, claim(0));
    // The channel carries 14.4 kB in 60 ms: one camera may have 8 kB and the other 4.
    let shares: Vec<_> = measured(&mut rig, 2, 240).into_iter().map(|(_, share)| bytes_max(share)).collect();
    assert_eq!(shares, [Some(8_000), Some(4_000)]);
    let share = rig.info().share.expect("it is on a channel");
    assert_eq!(share.channel, "hall");
    assert!(share.carries.is_some_and(|rate| (rate.0 / 1.92e6 - 1.0).abs() < 0.08), "{share:?}");
    // The second camera is gone: the first is free at the next division.
    rig.broker.handle_closed(rig.now, LinkId(2));
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(told(&mut rig), [(1, Share::Free)]);
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(told(&mut rig), [], "it knows");
}

fn channels(declared: &[&str]) -> Channels {
    let channels = declared.iter().map(|text| text.parse().expect("a channel")).collect();
    Channels::new(channels).expect("different names")
}

/// Changed channels count at once, also for connected cameras. A camera that leaves a channel is
/// free, a camera that stays keeps its share, and the measured rate of a channel stays known.
#[test]
fn channels_change_while_cameras_are_connected() {
    let mut rig = rig(&["hall=dock/*"], 3);
    subscribe(&mut rig, 1, "dock/*", 0);
    for link in 1..=3 {
        claims(&mut rig, link, claim(0));
    }
    assert_eq!(measured(&mut rig, 3, 240).len(), 3);
    rig.broker.set_channels(channels(&["hall=dock/cam1,dock/cam2"]));
    assert_eq!(told(&mut rig), [(3, Share::Free)], "it is on no channel any more");
    let carries = rig.info().share.expect("it stays on the channel").carries;
    assert!(carries.is_some(), "what was measured stays");
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    let shares: Vec<_> = told(&mut rig).into_iter().map(|(link, share)| (link, bytes_max(share))).collect();
    assert_eq!(shares, [(1, Some(8_000))], "the two divide what three had; the second one has what it had");
    rig.now += CAP_REFRESH_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    let shares: Vec<_> = told(&mut rig).into_iter().map(|(link, share)| (link, bytes_max(share))).collect();
    assert_eq!(shares, [(1, Some(8_000)), (2, Some(4_000))], "before they expire, they are told again");
    // The third camera gets a channel of its own, and the others lose theirs.
    rig.broker.set_channels(channels(&["yard=dock/cam3"]));
    assert_eq!(told(&mut rig), [(1, Share::Free), (2, Share::Free), (3, Share::Free)]);
    rig.broker.set_channels(Channels::default());
    assert_eq!(told(&mut rig), [], "all of them know");
    assert_eq!(rig.info().share, None);
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(told(&mut rig), []);
}

/// If the floors do not fit, the camera of the lowest priority learns that
/// there is no room, and its applications learn why, until there is room again.
#[test]
fn who_is_shed_is_told_why() {
    let mut rig = rig(&["hall=dock/*"], 2);
    subscribe(&mut rig, 1, "dock/cam1", 0);
    subscribe(&mut rig, 2, "dock/cam2", 3);
    claims(&mut rig, 1, claim(3));
    claims(&mut rig, 2, claim(2));
    let shares: Vec<_> = measured(&mut rig, 2, 100).into_iter().map(|(_, share)| bytes_max(share)).collect();
    assert_eq!(shares, [None, Some(4_000)]);
    let shed = |rig: &Rig| rig.broker.view(rig.now, &"dock/cam1".parse().expect("a name")).shed;
    let (since, why) = shed(&rig).expect("there is no room");
    assert_eq!(
        (since, why.as_str()),
        (
            rig.now,
            "the channel hall carries 0.8 Mbit/s; cameras of higher priority leave no room for this camera"
        )
    );
    rig.now += CAP_INTERVAL;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(shed(&rig).map(|(since, _)| since), Some(since), "since then");
    assert!(measured(&mut rig, 2, 1_000).iter().all(|(_, share)| bytes_max(*share).is_some()));
    assert_eq!(shed(&rig), None);
}

proptest! {
    /// Whatever cameras claim: every camera is told a share, caps are claimed sizes not
    /// below the floor, and together they take no more of the channel's time than there is.
    #[test]
    fn no_channel_is_given_away_twice(
        floors in proptest::collection::vec((0usize..4, 10u64..200, -2i32..3), 2..8),
        bytes_per_ms in 20u32..2_000,
    ) {
        let cameras = floors.len() as u64;
        let mut rig = rig(&["hall=**"], cameras);
        for (link, (floor, interval, priority)) in (1..).zip(&floors) {
            subscribe(&mut rig, link, &format!("dock/cam{link}"), *priority);
            claims(&mut rig, link, ShareRequest { interval: MS * (*interval as u32), ..claim(*floor) });
        }
        let shares = measured(&mut rig, cameras, bytes_per_ms);
        prop_assert_eq!(shares.len(), floors.len());
        let rate = rig.info().share.and_then(|share| share.carries).expect("it was measured").0 / 8e3;
        let (mut airtime, mut sending) = (0.0, 0);
        for ((_, share), (floor, interval, _)) in shares.iter().zip(&floors) {
            let Some(bytes) = bytes_max(*share) else { continue };
            sending += 1;
            let steps = claim(*floor).steps;
            prop_assert!(steps[*floor..].iter().any(|step| step.bytes == f64::from(bytes)), "{bytes}");
            airtime += f64::from(bytes) / (rate * (*interval).min(100) as f64);
        }
        prop_assert!(sending >= 1 && (airtime <= 1.01 || sending == 1), "{airtime} for {sending}");
    }
}
