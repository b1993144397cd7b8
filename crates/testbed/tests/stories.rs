//! What the brokers promise, as stories on a virtual clock. While they run, every rule of `mez_testbed::check` is
//! looked at with every event; the stories ask for what is particular to them.

mod story;

use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::frame::{SkipCounts, SkipReason};
use mez_testbed::{
    Action, ApplicationSpec, CameraSpec, Counter, EdgeId, EdgeSpec, Host, HostClock, World, mbps, ms, secs,
};

use self::story::{ages_max, reasons, resumed_after, sequences, skipped};

// ---- failures ---------------------------------------------------------------------------------------------

/// `kill -9` of the camera broker: the next start has a later epoch, and frames come within two seconds.
#[test]
fn a_killed_camera_broker_is_back_within_two_seconds() {
    let mut world = World::seeded(1);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::KillCamera(dock)).run(secs(1));
    let start = world.now();
    world.act(Action::StartCamera(dock, Counter::Kept)).run(secs(5));
    assert!(resumed_after(&world, application, start) < ms(200));
    let epochs: Vec<u64> = world.deliveries(application).iter().map(|got| got.frame.epoch.0).collect();
    assert_eq!((epochs[0] + 1, epochs.is_sorted()), (*epochs.last().unwrap(), true));
}

/// `kill -9` of the edge broker, with everything that it held.
#[test]
fn a_killed_edge_broker_is_back_within_two_seconds() {
    let mut world = World::seeded(2);
    let edge = EdgeId::default();
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    for down in [ms(100), secs(1), secs(20)] {
        world.run(secs(5)).act(Action::KillEdge(edge)).run(down);
        let start = world.now();
        world.act(Action::StartEdge(edge)).run(secs(5));
        let took = resumed_after(&world, application, start);
        assert!(took < secs(2), "after {down:?} it took {took:?}");
    }
}

/// A cut of five seconds that no end is told of: frames come within two seconds, everything that was published
/// meanwhile is accounted for, and the reasons are those of a dead link.
#[test]
fn a_cut_of_five_seconds_is_over_within_two_and_accounted_for() {
    let mut world = World::seeded(3);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).cut(dock).run(secs(5));
    let end = world.now();
    world.restore(dock).run(secs(5));
    let took = resumed_after(&world, application, end);
    assert!(took < secs(2), "it took {took:?}");

    let first = world.deliveries_since(application, end)[0].clone();
    let lost = first.skipped;
    assert!(lost.total() >= 95, "only {lost:?} for five seconds");
    assert!(lost.of(SkipReason::LinkDown) >= 80, "{lost:?}");
    let by_link = [SkipReason::LinkDown, SkipReason::Stalled, SkipReason::LinkBusy, SkipReason::LateOrLost];
    assert_eq!(by_link.map(|reason| lost.of(reason)).iter().sum::<u64>(), lost.total(), "{lost:?}");
    assert_eq!(world.epoch(dock), Some(first.frame.epoch.0), "the epoch is that of the start");
}

/// A cut that is shorter than the camera's patience costs no connection.
#[test]
fn a_short_cut_keeps_the_connection() {
    let mut world = World::seeded(4);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).cut(dock).run(ms(300)).restore(dock);
    let end = world.now();
    world.run(secs(3));
    assert_eq!(world.camera_counts(dock).greetings, 1);
    assert!(resumed_after(&world, application, end) < secs(1));
}

/// Dials that were under way while the path was dead all succeed when it is back; one of them is enough.
#[test]
fn one_connection_is_taken_of_many_that_succeed_together() {
    for seed in 0..20 {
        let mut world = World::seeded(seed);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000).at_distance(ms(30)));
        world.application(ApplicationSpec::newest("dock/*"));
        world.run(secs(3)).cut(dock).run(secs(4)).restore(dock).run(secs(4));
        let counts = world.camera_counts(dock);
        assert!(counts.dials > 8, "{counts:?}");
        assert!(counts.greetings <= 3, "seed {seed}: {counts:?}");
    }
}

/// A connection that both sides know to be gone is made anew at once.
#[test]
fn a_broken_connection_is_replaced_at_once() {
    let mut world = World::seeded(5);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5));
    let broken = world.now();
    world.act(Action::Break(dock)).run(secs(3));
    assert!(resumed_after(&world, application, broken) < ms(400));
}

/// A camera of few frames under a tight bound: after an outage each frame has its time to arrive.
#[test]
fn a_camera_of_few_frames_gets_over_an_outage() {
    let mut world = World::seeded(6);
    let spec = CameraSpec { interval: secs(7), ..CameraSpec::frames(1, 30_000) };
    let dock = world.camera("dock/cam1", spec);
    let contract = Contract { latency_bound: Some(ms(50)), ..Contract::default() };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    world.run(secs(20));
    // The next frame goes into the dead link; the connection outlives it.
    let next = world.deliveries(application).last().unwrap().published + secs(7) - ms(20);
    world.at(next, Action::Cut(dock)).at(next + ms(600), Action::Restore(dock)).run(secs(70));
    assert!(world.deliveries_since(application, next).len() >= 9);
}

/// A bound that the link cannot keep at all: frames come late, but they come.
#[test]
fn a_bound_out_of_reach_does_not_silence_a_slow_and_lossy_link() {
    let mut world = World::seeded(7);
    let mut spec = CameraSpec::frames(20, 150_000).at_rate(mbps(1));
    spec.link.lost_once_in = 30;
    world.camera("dock/cam1", spec);
    let contract = Contract { latency_bound: Some(ms(20)), ..Contract::default() };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    world.run(secs(60));
    let got = world.deliveries(application).len();
    assert!(got >= 20, "{got} frames of 1.2 s each came in a minute");
}

// ---- slow links and slow applications ---------------------------------------------------------------------

/// The link carries one frame in 320 ms, and 20 are published in a second. Newest wins: no queue builds up, and a
/// frame is never older than the one being sent when it was published, and itself, need.
#[test]
fn a_slow_link_carries_the_newest_frames() {
    let mut world = World::seeded(8);
    let slow = CameraSpec::frames(20, 40_000).at_rate(mbps(1));
    let dock = world.camera("dock/cam1", CameraSpec { frame_bytes: 38_000..=40_000, ..slow });
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(60));
    let got = world.deliveries(application);
    assert!(got.len() > 160, "{} frames", got.len());
    // Two service times, 5 % of headers, what waits in the link's queue, and the way there.
    let queue = ms(262);
    let bound = ms(320) * 2 * 21 / 20 + queue + ms(20);
    assert!(ages_max(got) < bound, "{:?}", ages_max(got));
    let skipped = skipped(got);
    assert_eq!(skipped.of(SkipReason::LinkBusy), skipped.total(), "{skipped:?}");
    assert!(world.camera_counts(dock).published - world.camera_counts(dock).sent > 900);
}

/// When a link slows down and recovers, nothing of the slow time is left in the way.
#[test]
fn a_fade_leaves_no_backlog() {
    let mut world = World::seeded(9);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 40_000).at_rate(mbps(20)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).rate(dock, mbps(1)).run(secs(10)).rate(dock, mbps(20)).run(ms(500));
    let after = world.now();
    world.run(secs(5));
    let got = world.deliveries_since(application, after);
    assert!(got.len() >= 98 && ages_max(got) < ms(60), "{} frames, {:?}", got.len(), ages_max(got));
}

/// Frames leave one after the other without waiting for acknowledgements: 140 ms there and back do not cost rate.
#[test]
fn distance_does_not_cost_frame_rate() {
    let mut world = World::seeded(10);
    world.camera("dock/cam1", CameraSpec::frames(30, 20_000).at_distance(ms(70)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    // The first wait for the connection, and then for its window, which doubles with every round trip.
    world.run(secs(1));
    let grown = world.now();
    world.run(secs(9));
    let (began, got) = (world.deliveries(application).len(), world.deliveries_since(application, grown));
    assert!(began - got.len() >= 8, "{began} frames, {} after the first second", got.len());
    assert!(got.len() >= 267, "{} frames", got.len());
    assert!(ages_max(got) < ms(100), "{:?}", ages_max(got));
}

/// A slow application gets the newest frame each time, or every frame in order, as it asked; the rest is counted.
#[test]
fn a_slow_application_gets_newest_or_every_frame() {
    let mut world = World::seeded(11);
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let newest = world.application(ApplicationSpec::newest("dock/*").consuming(ms(220)));
    let every = world.application(ApplicationSpec::every("dock/*").consuming(ms(220)));
    world.run(secs(20));
    let (newest, every) = (world.deliveries(newest), world.deliveries(every));
    assert!(ages_max(newest) < ms(80), "{:?}", ages_max(newest));
    let busy = skipped(newest);
    assert!(busy.of(SkipReason::ApplicationBusy) == busy.total() && busy.total() > 280, "{busy:?}");
    assert!(ages_max(every) > secs(10));
    assert_eq!(skipped(every).total(), 0);
    assert!(sequences(every).windows(2).all(|pair| pair[1] == pair[0] + 1));
}

/// I8: what one application gets, and when, does not depend on another that has stopped taking frames.
#[test]
fn a_stalled_application_changes_nothing_for_others() {
    let run = |stalls: bool| {
        let mut world = World::seeded(12);
        world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let brisk = world.application(ApplicationSpec::newest("dock/*"));
        let other = world.application(ApplicationSpec::every("dock/*"));
        world.run(secs(2));
        if stalls {
            world.act(Action::Stall(other));
        }
        world.run(secs(20));
        world.deliveries(brisk).iter().map(|got| (got.at, got.frame)).collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}

// ---- on demand --------------------------------------------------------------------------------------------

/// However many applications subscribe, each frame crosses once.
#[test]
fn thirty_two_subscribers_cost_one_crossing() {
    let mut world = World::seeded(13);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let applications: Vec<_> =
        (0..32).map(|_| world.application(ApplicationSpec::newest("dock/*"))).collect();
    world.run(secs(10));
    let sent = world.camera_counts(dock).sent;
    assert!((195..=205).contains(&sent), "{sent} frames crossed");
    for application in applications {
        assert!(world.deliveries(application).len() as u64 >= sent - 3);
    }
    let bytes = world.camera_info(dock).unwrap().counters.bytes;
    assert!(bytes <= sent * 30_000, "{bytes} bytes crossed");
}

/// Before anybody subscribes, and after the last one has left, nothing crosses.
#[test]
fn nothing_crosses_that_nobody_wants() {
    let mut world = World::seeded(14);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.run(secs(5));
    assert!(world.is_up(dock));
    assert_eq!(world.camera_counts(dock).sent, 0);

    let first = world.application(ApplicationSpec::newest("dock/*"));
    let second = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::Unsubscribe(first)).run(secs(5));
    assert!(world.deliveries(second).len() > 190);
    world.act(Action::Unsubscribe(second)).run(ms(200));
    let sent = world.camera_counts(dock).sent;
    world.run(secs(5));
    assert_eq!(world.camera_counts(dock).sent, sent);
}

/// A frame that takes seconds is cancelled when the last subscriber leaves.
#[test]
fn the_rest_of_a_frame_does_not_cross_for_nobody() {
    let mut world = World::seeded(15);
    let dock = world.camera("dock/cam1", CameraSpec::frames(1, 2_000_000).at_rate(mbps(2)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(4)).act(Action::Unsubscribe(application)).run(secs(20));
    let counters = world.camera_info(dock).unwrap().counters;
    assert_eq!((counters.received, counters.cancelled, counters.bytes), (0, 1, 0), "{counters:?}");
}

/// A late subscriber gets what is published from then on, and nothing is called skipped that it never asked for.
#[test]
fn a_late_subscriber_starts_with_the_present() {
    let mut world = World::seeded(16);
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5));
    let joined = world.now();
    let late = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(2));
    let first = &world.deliveries(late)[0];
    assert!(first.published + ms(30) >= joined, "{first:?}");
    assert_eq!(first.skipped, SkipCounts::default());
}

/// The past that the edge holds, and then the present, without a seam; what is not held is said.
#[test]
fn the_past_flows_into_the_present() {
    let clock = |origin| Some(HostClock::right(origin));
    let mut world = World::seeded_with(17, EdgeSpec { clock: clock(secs(50)), ..EdgeSpec::default() });
    world.camera("dock/cam1", CameraSpec { clock: clock(secs(9_000)), ..CameraSpec::frames(20, 30_000) });
    world.run(secs(3));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(4));
    let since = world.application(ApplicationSpec::since("dock/*", secs(2)));
    let before_all = world.application(ApplicationSpec::since("dock/*", secs(100)));
    world.run(secs(3));
    for (application, frames) in [(since, 98..=102), (before_all, 135..=145)] {
        let got = world.deliveries(application);
        assert!(frames.contains(&got.len()), "{} frames", got.len());
        assert!(sequences(got).windows(2).all(|pair| pair[1] == pair[0] + 1), "{:?}", reasons(got));
        assert!(got[1..].iter().all(|got| got.not_held.is_none()));
    }
    assert_eq!(world.deliveries(since)[0].not_held, None);
    assert!(world.deliveries(before_all)[0].not_held.is_some());
}

/// A span that has an end delivers up to it, and then no more is asked of the camera.
#[test]
fn a_subscription_ends_by_itself_and_takes_its_demand_along() {
    let mut world = World::seeded(18);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let spec = ApplicationSpec { end_after_ms: Some(3_000), ..ApplicationSpec::every("dock/*") };
    let application = world.application(spec);
    world.run(secs(10));
    assert!(world.has_ended(application));
    let sent = world.camera_counts(dock).sent;
    world.run(secs(5));
    assert_eq!(world.camera_counts(dock).sent, sent);
}

// ---- who is which camera ----------------------------------------------------------------------------------

/// A later start of the same camera, on another host say, replaces the one that is connected; the old one stays out.
#[test]
fn a_later_start_takes_over_at_once() {
    let mut world = World::seeded(19);
    let old = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3));
    let newer = world.rival(old, None);
    world.set_persisted_epoch(newer, world.persisted_epoch(old) + 10);
    let start = world.now();
    world.act(Action::StartCamera(newer, Counter::Kept)).run(ms(500));
    assert!(resumed_after(&world, application, start + ms(100)) < ms(200));
    world.run(secs(20));
    assert!(world.is_up(newer) && !world.is_up(old));
    let last = world.deliveries(application).last().unwrap();
    assert_eq!(Some(last.frame.epoch.0), world.epoch(newer));
    assert!(last.published + ms(200) > world.now());
}

/// An old start that still runs somewhere, and dials, disturbs nobody.
#[test]
fn an_old_start_disturbs_nobody() {
    let run = |old_start: bool| {
        let mut world = World::seeded(20);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let application = world.application(ApplicationSpec::newest("dock/*"));
        let old = world.rival(dock, None);
        world.run(secs(3));
        if old_start {
            world.act(Action::StartCamera(old, Counter::Kept));
        }
        world.run(secs(20));
        assert!(world.is_up(dock) && !world.is_up(old));
        (sequences(world.deliveries(application)), world.camera_counts(old).greetings)
    };
    let ((with, greetings), (without, _)) = (run(true), run(false));
    assert!((2..=6).contains(&greetings), "{greetings} greetings in 20 s");
    assert_eq!(with, without);
}

/// Another identity, though its certificate is for the name, is refused while the camera holds the name.
#[test]
fn another_identity_does_not_get_a_held_name() {
    let mut world = World::seeded(21);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    let other = world.rival(dock, Some("spiffe://world/camera/other"));
    world.set_persisted_epoch(other, 1_000);
    world.run(secs(3)).act(Action::StartCamera(other, Counter::Kept)).run(secs(20));
    assert!(world.is_up(dock) && !world.is_up(other));
    assert_eq!(world.camera_counts(other).sent, 0);
    assert!(world.deliveries(application).len() > 450);
    assert_eq!(world.camera_info(dock).unwrap().identity, "spiffe://world/camera/dock/cam1");
}

/// A start that has lost the last write of its counter comes with an epoch that was used; it takes another, and its
/// frames are never taken for those of the start before, not even while that one's connection still counts as alive.
#[test]
fn a_used_epoch_is_not_used_again() {
    for seed in [22, 23] {
        let mut world = World::seeded(seed);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let application = world.application(ApplicationSpec::newest("dock/*"));
        world.run(secs(3));
        let before = world.epoch(dock).unwrap();
        let killed = world.now();
        world.restart_camera(dock, Counter::LastWriteLost).run(secs(4));
        assert!(resumed_after(&world, application, killed + ms(50)) < secs(2));
        assert_eq!((world.epoch(dock), world.persisted_epoch(dock)), (Some(before + 1), before + 1));
    }
}

/// Nor by a start that was cut off for so long that it has come further than the one before: to it the edge's newest frame looks like its own.
#[test]
fn a_used_epoch_is_not_used_again_by_who_has_come_further() {
    let mut world = World::seeded(25);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 10_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(1)).act(Action::KillCamera(dock)).cut(dock);
    world.act(Action::StartCamera(dock, Counter::LastWriteLost)).run(secs(3));
    let restored = world.now();
    world.restore(dock).run(secs(6));
    assert_eq!(world.epoch(dock), Some(5));
    assert!(resumed_after(&world, application, restored) < secs(3));
    let of_fourth = world.deliveries(application).iter().filter(|got| got.frame.epoch.0 == 4);
    assert!(of_fourth.map(|got| got.frame.sequence.0).max() < Some(21), "frames of two starts");
}

/// A counter that is lost altogether: the edge knows better once the old connection is given up.
#[test]
fn a_lost_counter_is_mended_by_the_edge() {
    let mut world = World::seeded(24);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3));
    let before = world.epoch(dock).unwrap();
    world.restart_camera(dock, Counter::Lost).run(secs(20));
    assert_eq!(world.epoch(dock), Some(before + 1));
    assert!(world.deliveries(application).last().unwrap().published + ms(200) > world.now());
}

// ---- clocks and times -------------------------------------------------------------------------------------

/// Wall clocks that are set by an hour, each way and on both hosts, leave deliveries, ages and order as they were.
#[test]
fn a_wall_clock_that_is_set_changes_nothing() {
    let mut world = World::seeded(25);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    for host in [Host::Camera(dock), Host::Edge(EdgeId::default())] {
        for seconds in [3600, -7200, 3600] {
            world.run(secs(2)).act(Action::StepWall(host, seconds));
        }
    }
    world.run(secs(3));
    let got = world.deliveries(application);
    assert!(got.len() > 290 && ages_max(got) < ms(40), "{} frames, {:?}", got.len(), ages_max(got));
    assert_eq!(skipped(got).total(), 0);
}

/// A camera whose wall clock is an hour behind loses no live frame of a subscription that began a little while ago.
#[test]
fn a_camera_an_hour_behind_is_delivered_all_the_same() {
    let mut world = World::seeded(26);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::since("dock/*", secs(1)));
    world.run(secs(3)).act(Action::StepWall(Host::Camera(dock), -3600));
    world.restart_camera(dock, Counter::Kept);
    let start = world.now();
    world.run(secs(3));
    assert!(resumed_after(&world, application, start) < ms(300));
}

/// Capture times that a publisher gives out of order are refused, counted, and take no number.
#[test]
fn capture_times_out_of_order_are_refused() {
    let mut world = World::seeded(27);
    let capture_times = mez_testbed::CaptureTimes::Publisher { wrong_once_in: 5 };
    let dock = world.camera("dock/cam1", CameraSpec { capture_times, ..CameraSpec::frames(20, 30_000) });
    let application = world.application(ApplicationSpec::every("dock/*"));
    world.run(secs(10));
    let counts = world.camera_counts(dock);
    assert!(counts.refused > 20 && counts.published > 100, "{counts:?}");
    let got = world.deliveries(application);
    assert_eq!(skipped(got).total(), 0);
    assert!(sequences(got).windows(2).all(|pair| pair[1] == pair[0] + 1));
    // The camera tells the edge once a second.
    let told = world.camera_info(dock).unwrap().status.refused;
    assert!((counts.refused - 12..=counts.refused).contains(&told), "{told} of {counts:?}");
}

/// A camera host without a processor for three seconds goes on where it was; what was under way is accounted for.
#[test]
fn a_frozen_camera_host_goes_on() {
    let mut world = World::seeded(30);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).act(Action::Freeze(Host::Camera(dock))).run(secs(3));
    let end = world.now();
    assert_eq!(world.camera_info(dock).map(|info| info.connected), Some(false));
    world.act(Action::Thaw(Host::Camera(dock))).run(secs(3));
    assert!(resumed_after(&world, application, end) < ms(500));
    assert_eq!(world.epoch(dock), world.deliveries(application).first().map(|got| got.frame.epoch.0));
}

/// Two edges know nothing of each other, though their cameras may share a name.
#[test]
fn edges_are_worlds_of_their_own() {
    let mut world = World::seeded(31);
    let other = world.edge(EdgeSpec::default());
    let here = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let there = world.camera("dock/cam1", CameraSpec { edge: other, ..CameraSpec::frames(10, 20_000) });
    let application = world.application(ApplicationSpec { edge: other, ..ApplicationSpec::every("dock/*") });
    world.run(secs(5));
    assert_eq!(world.camera_counts(here).sent, 0);
    let got = world.deliveries(application);
    assert!(got.len() as u64 + 2 >= world.camera_counts(there).published && got.len() < 55);
}

/// What applications say of frames comes back to the camera, once each.
#[test]
fn replies_come_back() {
    let mut world = World::seeded(32);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    for _ in 0..2 {
        world.application(ApplicationSpec { replies: true, ..ApplicationSpec::every("dock/*") });
    }
    world.run(secs(10));
    let counts = world.camera_counts(dock);
    assert!(
        counts.replies <= 2 * counts.published && counts.replies + 4 >= 2 * counts.published,
        "{counts:?}"
    );
}

// ---- what is too large ------------------------------------------------------------------------------------

/// Frames that the edge does not take are skipped by name; those that it takes are not held up by them.
#[test]
fn frames_that_are_too_large_hold_up_nothing() {
    let mut world = World::seeded_with(28, EdgeSpec { frame_bytes_max: 35_000, ..EdgeSpec::default() });
    world.camera("dock/cam1", CameraSpec { frame_bytes: 30_000..=40_000, ..CameraSpec::frames(20, 0) });
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(20));
    let got = world.deliveries(application);
    let skipped = skipped(got);
    assert!(got.len() > 80, "{} frames", got.len());
    assert!(
        skipped.of(SkipReason::Refused) > 80 && skipped.of(SkipReason::Refused) == skipped.total(),
        "{skipped:?}"
    );
}

/// The replica logs keep to their budget also while more cameras come than it was cut for.
#[test]
fn replica_logs_share_their_budget() {
    let mut world = World::seeded_with(29, EdgeSpec { log_bytes_max: 8 << 20, ..EdgeSpec::default() });
    let every = world.application(ApplicationSpec::every("**").consuming(Duration::from_millis(3)));
    for number in 0..8 {
        world.camera(&format!("dock/cam{number}"), CameraSpec::frames(20, 60_000));
        world.run(secs(2));
    }
    world.run(secs(5));
    for number in 0..8 {
        let camera = format!("dock/cam{number}");
        let frames = world.deliveries(every).iter().filter(|got| got.camera.as_str() == camera).count();
        assert!(frames > 80, "{camera} came to {frames} frames");
    }
}

// ---- the past ---------------------------------------------------------------------------------------------

/// Times of the past are the same for camera and edge.
const SAME_CLOCK: Option<HostClock> =
    Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });

fn world_of_one_time(seed: u64) -> World {
    World::seeded_with(seed, EdgeSpec { clock: SAME_CLOCK, ..EdgeSpec::default() })
}

/// What a camera published while it was cut off can be had afterwards, every frame of it, while others look at live ones.
#[test]
fn a_camera_that_was_cut_off_serves_its_frames_afterwards() {
    let mut world = world_of_one_time(40);
    let dock = world.camera("dock/cam1", CameraSpec { clock: SAME_CLOCK, ..CameraSpec::frames(20, 30_000) });
    let live = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).cut(dock).run(secs(10)).restore(dock).run(secs(10));
    let before = world.now();
    let reader = world.application(ApplicationSpec::read("dock/*", secs(24), secs(2)));
    world.run(secs(60));
    assert!(world.has_ended(reader));
    let read = world.deliveries(reader);
    assert!(read.len() > 430, "{} of 22 s at 20 a second", read.len());
    assert_eq!(read.iter().map(|got| got.skipped.total()).sum::<u64>(), 0);
    let watched = world.deliveries_since(live, before);
    assert!(watched.len() as f64 > 59.0 * 20.0, "{} live frames beside it", watched.len());
}

/// A camera that was started again has lost what was only in its memory: that is said, and all else comes.
#[test]
fn what_nobody_holds_any_more_is_stated() {
    let mut world = world_of_one_time(41);
    let spec = CameraSpec { clock: SAME_CLOCK, log_bytes_max: 2 << 20, ..CameraSpec::frames(20, 30_000) };
    world.camera("dock/cam1", spec);
    world.run(secs(10));
    let reader = world.application(ApplicationSpec::read("dock/*", secs(9), secs(1)));
    world.run(secs(30));
    assert!(world.has_ended(reader));
    let read = world.deliveries(reader);
    let not_held = read[0].not_held.expect("two megabytes are some three seconds of it");
    assert!(read.len() > 30 && read.len() < 80, "{}", read.len());
    assert!(not_held.begin < not_held.end);
}

/// Over a long path frames of the past do not wait a round trip each: they come nearly as fast as the link carries them.
#[test]
fn the_past_comes_at_the_rate_of_the_link_over_a_long_path() {
    let mut world = world_of_one_time(42);
    let spec = CameraSpec::frames(10, 100_000).at_rate(mbps(20)).at_distance(ms(70));
    world.camera("dock/cam1", CameraSpec { clock: SAME_CLOCK, ..spec });
    world.run(secs(30));
    let begun = world.now();
    let reader = world.application(ApplicationSpec::read("dock/*", secs(28), secs(4)));
    world.run(secs(30));
    let read = world.deliveries(reader);
    assert!(world.has_ended(reader) && read.len() > 235, "{}", read.len());
    let took = read.last().unwrap().at.since(begun).as_secs_f64();
    let share = read.len() as f64 * 100_000.0 * 8.0 / 20e6 / took;
    assert!(share > 0.85, "{share:.2} of the link's rate: {} frames in {took:.2} s", read.len());
    println!("{share:.3} of the link's rate: {} frames in {took:.2} s", read.len());
}
