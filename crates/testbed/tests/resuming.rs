//! Applications that come back: after their own end, the edge's, and the camera's. They are told of every frame that they do not get, and those that
//! fill get every frame that the camera still has.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::subscription::{Deliver, NotHeldReason};
use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, Bug, CameraId, CameraSpec, Counter, DiskSpec, EdgeId, EdgeSpec,
    Failure, Host, HostClock, Moment, Resumes, World, mbps, ms, secs,
};

const EDGE: EdgeId = EdgeId::FIRST;

const SAME_CLOCK: Option<HostClock> =
    Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });

/// A camera and an edge that keep their logs on disk.
fn kept(seed: u64, camera: CameraSpec) -> (World, CameraId) {
    // Room for all published frames.
    let disk = Some(DiskSpec { disk_bytes_max: 64 << 20, ..DiskSpec::default() });
    let mut world =
        World::seeded_with(seed, EdgeSpec { disk: disk.clone(), clock: SAME_CLOCK, ..EdgeSpec::default() });
    let dock =
        world.camera("dock/cam1", CameraSpec { disk, clock: SAME_CLOCK, log_bytes_max: 64 << 20, ..camera });
    (world, dock)
}

fn ids(world: &World, application: ApplicationId) -> Vec<FrameId> {
    world.deliveries(application).iter().map(|got| got.frame).collect()
}

/// Whether frames of one epoch are contiguous.
fn is_whole(frames: &[FrameId]) -> bool {
    frames.windows(2).all(|pair| pair[0].epoch != pair[1].epoch || pair[0].next() == pair[1])
}

/// The edge is back before the camera, and the past is requested in between. The answer waits for the camera, and lacks nothing.
#[test]
fn a_question_right_after_an_edge_restart_waits_for_the_camera() {
    let (mut world, dock) = kept(41, CameraSpec::frames(20, 20_000));
    let live = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::KillEdge(EDGE)).run(secs(1)).cut(dock).act(Action::StartEdge(EDGE));
    let last = ids(&world, live).last().copied().unwrap();
    let resumed = world.application(ApplicationSpec {
        tier_max: mez_core::history::Tier::Camera,
        ..ApplicationSpec::since("dock/*", secs(3))
    });
    world.run(secs(2));
    let before = ids(&world, resumed);
    assert!(before.last() <= Some(&last), "nothing but the edge's disk is there: {before:?} after {last}");
    world.restore(dock).run(secs(6));
    let got = ids(&world, resumed);
    assert!(got.last().unwrap().sequence.0 > last.sequence.0 + 80, "{got:?}");
    let (missing, told) = (got.windows(2).any(|pair| pair[0].next() < pair[1]), world.deliveries(resumed));
    let counted = told.iter().skip(1).all(|got| got.not_held.is_none());
    let at = got.partition_point(|id| *id <= last);
    assert!(is_whole(&got[..at + 15]) && counted, "missing: {missing}, {got:?}");
}

/// A camera that does not come back in time is named. Live frames behind the hole are not delayed, and the camera is asked again once it is back.
#[test]
fn a_camera_that_stays_away_is_named() {
    let (mut world, dock) = kept(42, CameraSpec::frames(20, 20_000));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::KillEdge(EDGE)).run(secs(2)).cut(dock).act(Action::StartEdge(EDGE));
    let past = world.application(ApplicationSpec::read("dock/*", ms(1_500), ms(500)));
    let resumed = world.application(ApplicationSpec {
        tier_max: mez_core::history::Tier::Camera,
        ..ApplicationSpec::since("dock/*", ms(1_500))
    });
    world.run(secs(5));
    assert!(!world.has_ended(past), "the camera may be on its way");
    world.run(secs(5));
    let told = world.rest(past)[0].2.expect("a second is missing");
    assert_eq!((world.deliveries(past).len(), told.reason), (0, NotHeldReason::CameraAbsent));
    assert_eq!(told.end.as_nanos() - told.begin.as_nanos(), 1_000_000_000);
    world.restore(dock).run(secs(5));
    let (got, first) = (ids(&world, resumed), &world.deliveries(resumed)[0]);
    assert!(got.len() > 100 && is_whole(&got[..100]) && first.not_held.is_none(), "{} {first:?}", got.len());
}

/// Either broker is killed while frames cross a link that carries only a part of them. All frames in the camera's log come, in order, once.
#[test]
fn who_fills_gets_every_frame_that_the_camera_holds() {
    for seed in 50..56 {
        let (mut world, dock) = kept(seed, CameraSpec::frames(20, 40_000).at_rate(mbps(4)));
        let filling = world.application(ApplicationSpec::filling("dock/*"));
        let second = |s| Moment::START + secs(s);
        for kill in 0..4 {
            let at = second(3 + 6 * kill) + ms(170) * kill as u32;
            let back = at + ms(400);
            if kill % 2 == 0 {
                world.at(at, Action::KillCamera(dock)).at(back, Action::StartCamera(dock, Counter::Kept));
            } else {
                world.at(at, Action::KillEdge(EDGE)).at(back, Action::StartEdge(EDGE));
            }
        }
        world.run(secs(30)).act(Action::Silence(dock)).run(secs(60));
        let got = ids(&world, filling);
        let holes = got.windows(2).position(|pair| !is_whole(pair));
        let hole = holes.map(|at| world.deliveries(filling)[at + 1].clone());
        assert!(hole.is_none(), "seed {seed}: {hole:?}");
        assert!(got.len() > 400, "seed {seed}: only {} frames", got.len());
        let restarts = world.deliveries(filling).iter().filter(|got| got.not_held.is_some()).count();
        assert_eq!(restarts, 2, "seed {seed}: each start of the camera is told once");
        assert!(got.is_sorted_by(|one, next| one < next));
    }
}

/// The edge has lost its memory, and the camera two starts. The camera captured its frames of the third start an hour earlier, because its clock was
/// set back. This does not count as holding everything since then.
#[test]
fn a_lost_start_is_told_though_the_clock_was_set_back() {
    let mut world = World::seeded_with(61, EdgeSpec { clock: SAME_CLOCK, ..EdgeSpec::default() });
    let dock = world.camera("dock/cam1", CameraSpec { clock: SAME_CLOCK, ..CameraSpec::frames(20, 20_000) });
    let live = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(2)).act(Action::Unsubscribe(live)).restart_edge(EDGE);
    // The edge does not see the beginning of the second start.
    world.restart_camera(dock, Counter::Kept).run(secs(2)).subscribe_again(live).run(secs(2));
    world.act(Action::KillCamera(dock)).act(Action::StepWall(Host::Camera(dock), -3600));
    world.act(Action::StartCamera(dock, Counter::Kept)).run(secs(3));
    let reader = world.application(ApplicationSpec {
        tier_max: mez_core::history::Tier::Camera,
        ..ApplicationSpec::since("dock/*", secs(60))
    });
    world.run(secs(3));
    let first = &world.deliveries(reader)[0];
    let told = first.not_held.expect("the frames before the first are lost");
    assert_eq!((told.end, told.reason), (first.captured, NotHeldReason::Gone));
}

/// An application that was away continues after its last frame, and is told how many it missed.
#[test]
fn who_does_not_fill_is_told_how_many_passed() {
    let (mut world, _) = kept(60, CameraSpec::frames(20, 20_000));
    let spec = ApplicationSpec { resumes: Resumes::Behind, ..ApplicationSpec::newest("dock/*") };
    let reader = world.application(spec);
    world
        .run(secs(3))
        .act(Action::Unsubscribe(reader))
        .run(secs(2))
        .act(Action::Subscribe(reader))
        .run(secs(2));
    let got = world.deliveries(reader);
    let sum: u64 = got.iter().skip(1).map(|got| got.skipped.total() + 1).sum();
    let (first, last) = (got[0].frame.sequence.0, got.last().unwrap().frame.sequence.0);
    assert_eq!(first + sum, last);
    assert!(got.iter().any(|got| got.skipped.total() > 30), "two seconds passed");
}

/// Readers that resume, through restarts of both brokers.
fn restarted(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let (mut world, dock) = kept(44, CameraSpec::frames(20, 20_000));
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let every = ApplicationSpec { deliver: Deliver::Every, ..ApplicationSpec::newest("dock/*") };
    world.application(ApplicationSpec { resumes: Resumes::Behind, ..every });
    world.application(ApplicationSpec::filling("dock/*"));
    let since = ApplicationSpec::since("dock/*", secs(2));
    world.application(ApplicationSpec { tier_max: mez_core::history::Tier::Camera, ..since });
    let at = |s: u64, ms: u64| Moment::START + secs(s) + Duration::from_millis(ms);
    world.at(at(4, 30), Action::KillCamera(dock)).at(at(4, 700), Action::StartCamera(dock, Counter::Kept));
    world.at(at(8, 0), Action::KillEdge(EDGE)).at(at(10, 0), Action::Cut(dock));
    world.at(at(10, 1), Action::StartEdge(EDGE)).at(at(18, 0), Action::Restore(dock));
    // The time in which the edge was down.
    let past = world.application(ApplicationSpec::read("dock/*", secs(3), ms(1_100)));
    world.at(at(11, 0), Action::Subscribe(past));
    world.try_run(secs(25))
}

#[test]
fn nothing_is_noticed_among_restarts_where_nothing_is_planted() {
    if let Err(failure) = restarted(None) {
        panic!("{failure}");
    }
}

#[test]
fn an_absent_camera_that_is_taken_for_an_empty_one_is_noticed() {
    let failure = restarted(Some(Bug::AbsenceTakenForNothing)).expect_err("it went unnoticed");
    assert!(["untold", "filled"].contains(&failure.violation.rule), "{failure}");
}

#[test]
fn a_start_that_is_not_told_is_noticed() {
    let failure = restarted(Some(Bug::HolesUntold)).expect_err("it went unnoticed");
    assert_eq!(failure.violation.rule, "untold", "{failure}");
}
