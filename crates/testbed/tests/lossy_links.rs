//! Chains on lossy links, applications that come and go there, and brokers that were frozen: findings of random worlds, as stories.

use std::time::Duration;

use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::SkipReason;
use mez_testbed::{Action, ApplicationSpec, CameraSpec, Footage, Host, Moment, World, mbps, ms, secs};

fn floor() -> Contract {
    Contract { accuracy_floor: Some(0.9), ..Contract::default() }
}

/// Frames of one packet each, sixty a second, over a long distance with one packet in thirty lost. So
/// every half second, frames overtake the frame that they refer to.
#[test]
fn a_lost_packet_costs_a_round_trip_and_no_chain() {
    let (mut longest, mut undecoded) = (Duration::ZERO, 0);
    for seed in 0..4 {
        let mut world = World::seeded(seed);
        let mut spec = CameraSpec::frames(60, 30_000).at_distance(ms(70)).at_rate(mbps(100));
        spec.link.lost_once_in = 30;
        world.camera("dock/cam1", spec);
        let application =
            world.application(ApplicationSpec { contract: floor(), ..ApplicationSpec::newest("**") });
        world.run(secs(22));
        let got = world.deliveries_since(application, Moment::START + secs(2));
        longest = got.windows(2).map(|pair| pair[1].at.since(pair[0].at)).fold(longest, Duration::max);
        undecoded += got.iter().map(|got| got.skipped.of(SkipReason::NotDecoded)).sum::<u64>();
    }
    // Decoders fail too, once in a few hundred frames.
    assert!(longest < secs(1), "nothing was shown for {longest:?}");
    assert!(undecoded < 320, "{undecoded} frames of 4,800 could not be decoded");
}

/// An application that decodes chains gets nearly all video as encoded, over the same distance. A loss, or joining in the middle, costs it no more
/// than readers of stills. (After its codec has failed twice, the camera sends stills for a while.)
#[test]
fn chains_are_handed_on_over_losses_to_those_who_decode_them() {
    let (mut chained, mut video, mut frames, mut stills) = (0, 0, 0, 0);
    for seed in 0..4 {
        let mut world = World::seeded(seed);
        let mut spec = CameraSpec::frames(60, 30_000).at_distance(ms(70)).at_rate(mbps(100));
        spec.link.lost_once_in = 30;
        world.camera("dock/cam1", spec);
        let newest = ApplicationSpec { contract: floor(), ..ApplicationSpec::newest("**") };
        let shown = world.application(newest.clone());
        world.run(secs(1));
        let decoding = world.application(ApplicationSpec { chains: true, ..newest });
        world.run(secs(21));
        let from = Moment::START + secs(3);
        let got = world.deliveries_since(decoding, from);
        chained += got.iter().filter(|got| got.encoding.is_chained()).count();
        video += got.iter().filter(|got| got.rung.as_str().starts_with("h264/")).count();
        frames += got.len();
        stills += world.deliveries_since(shown, from).len();
    }
    assert!(
        video > 1_000 && chained * 10 > video * 9,
        "{chained} of {video} frames of video came as they were"
    );
    assert!(frames * 10 > stills * 9, "{frames} frames came, and {stills} as stills");
}

/// A camera without a contract that publishes more than its link carries. Each frame that begins is finished, with its lost parts, so nearly
/// everything that crosses belongs to frames that arrive. Each frame is nearly new: it has waited for one other, and crossed.
#[test]
fn a_full_link_carries_frames_that_arrive() {
    for (lost_once_in, goodput_min) in [(0, 0.9), (1_000, 0.9), (50, 0.85)] {
        let mut world = World::seeded(7);
        let mut spec = CameraSpec::frames(16, 921_600).at_rate(mbps(100));
        spec.link.lost_once_in = lost_once_in;
        world.camera("dock/cam1", spec);
        let application = world.application(ApplicationSpec::newest("**"));
        world.run(secs(22));
        let got = world.deliveries_since(application, Moment::START + secs(2));
        let goodput = got.len() as f64 * 921_600.0 * 8.0 / 20.0 / 100e6;
        assert!(goodput > goodput_min, "{goodput:.3} of the link, one packet in {lost_once_in} lost");
        let oldest = got.iter().map(|got| got.age()).max().expect("frames came");
        assert!(oldest < ms(300), "a frame was {oldest:?} old");
    }
}

/// A camera on a slow link whose host freezes for two seconds, also in the middle of a frame. When the host continues, news arrives piece by piece.
#[test]
fn a_broker_that_was_at_rest_cancels_nothing_by_what_it_knew_before() {
    for seed in 5..9 {
        let mut world = World::seeded(seed);
        let mut spec = CameraSpec::filming(Footage::PEDESTRIANS).at_rate(600_000);
        spec.link.queue_bytes_max = 4_000;
        let camera = world.camera("dock/cam1", spec);
        let profile = Footage::PEDESTRIANS.profile().map(|profile| world.profile(profile));
        let contract = Contract { profile, ..floor() };
        world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
        let host = Host::Camera(camera);
        for time in 1..6 {
            let from = Moment::START + secs(4 * time) + ms(130 * seed);
            world.at(from, Action::Freeze(host)).at(from + secs(2), Action::Thaw(host));
        }
        world.run(secs(26));
    }
}

/// An application that leaves and returns before the camera hears of either. If the packet of the first
/// message was lost, both messages arrive at once.
#[test]
fn news_of_leaving_and_coming_back_may_arrive_together() {
    for seed in 0..10 {
        let mut world = World::seeded(seed);
        let mut spec = CameraSpec::frames(20, 40_000).at_rate(mbps(3));
        spec.link.lost_once_in = 5;
        world.camera("dock/cam1", spec);
        let application = world.application(ApplicationSpec::newest("**"));
        for time in 0..40 {
            let from = Moment::START + secs(2) + ms(150) * time;
            world.at(from, Action::Unsubscribe(application));
            world.at(from + ms(20), Action::Subscribe(application));
        }
        world.run(secs(10));
    }
}

/// Two cameras, one of them too far away for a contract with `skip`. States of the other camera, which
/// goes and comes back, do not appear as states of the far one.
#[test]
fn what_is_told_of_one_camera_says_nothing_of_another() {
    let mut world = World::seeded(3);
    let near = world.camera("dock/cam1", CameraSpec::frames(15, 20_000));
    world.camera("yard/cam1", CameraSpec::frames(15, 20_000).at_distance(ms(75)));
    let contract = Contract { latency_bound: Some(ms(60)), on_infeasible: OnInfeasible::Skip, ..floor() };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    world.run(secs(4)).cut(near).run(secs(2)).restore(near).run(secs(9));
    let told = |camera: &str| {
        let changes = world.contract_changes(application).iter().map(|told| &told.change);
        changes
            .filter(|change| change.camera.as_str() == camera)
            .map(|change| change.state)
            .collect::<Vec<_>>()
    };
    // The far path is reported once it is measured well, after two seconds.
    assert_eq!(told("yard/cam1"), [ContractState::LatencyMiss, ContractState::Infeasible]);
    assert_eq!(told("dock/cam1").last(), Some(&ContractState::Unverified));
}
