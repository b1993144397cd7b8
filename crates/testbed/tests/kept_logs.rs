//! Brokers that keep their logs on disk, as stories on a virtual clock. Also bugs of such logs, which the rules detect.

use mez_core::contract::Contract;
use mez_core::frame::SkipReason;
use mez_core::store::Durability;
use mez_testbed::disk::{DiskBug, Faults};
use mez_testbed::{
    Action, ApplicationSpec, CameraId, CameraSpec, Counter, DiskSpec, EdgeId, EdgeSpec, Failure, Host,
    HostClock, World, mbps, ms, noticed, secs,
};

/// Times of the past are the same for camera and edge.
const SAME_CLOCK: Option<HostClock> =
    Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });

fn world(seed: u64, disk: Option<DiskSpec>) -> World {
    World::seeded_with(seed, EdgeSpec { clock: SAME_CLOCK, disk, ..EdgeSpec::default() })
}

/// A camera with twenty small frames a second, kept on disk.
fn keeper(world: &mut World, disk: DiskSpec) -> CameraId {
    let spec = CameraSpec { clock: SAME_CLOCK, disk: Some(disk), ..CameraSpec::frames(20, 10_000) };
    world.camera("dock/cam1", spec)
}

/// How many frames from `since` seconds ago up to one second ago the camera still holds.
fn held(world: &mut World, since: u64) -> usize {
    let reader = world.application(ApplicationSpec::read("dock/*", secs(since), secs(1)));
    world.run(secs(20));
    assert!(world.has_ended(reader));
    world.deliveries(reader).len()
}

/// A killed camera broker loses only what it had not handed over in the last 200 ms.
#[test]
fn a_camera_that_was_killed_remembers() {
    let mut world = world(70, None);
    let dock = keeper(&mut world, DiskSpec::default());
    world.run(secs(6)).restart_camera(dock, Counter::Kept).run(secs(3));
    // Nine seconds without the last one, and without up to four frames.
    let held = held(&mut world, 10);
    assert!((155..=161).contains(&held), "{held} frames");
    assert_eq!(world.epoch(dock), Some(5));
}

/// A power cut costs at most the time between two syncs, and a counter lost with it is restored from the log.
#[test]
fn a_power_cut_costs_no_more_than_a_sync_interval() {
    let mut world = world(71, None);
    let dock = keeper(&mut world, DiskSpec::default());
    world.run(secs(6)).act(Action::CutPower(Host::Camera(dock))).run(ms(100));
    world.act(Action::StartCamera(dock, Counter::Lost)).run(secs(3));
    let held = held(&mut world, 10);
    assert!((132..=161).contains(&held), "{held} frames");
    assert_eq!(world.epoch(dock), Some(5), "the log knows the fourth");
}

/// A disk that is full, fails, or never answers delays no frame.
#[test]
fn a_broken_disk_holds_up_nothing() {
    let fine = Faults::default();
    for faults in [
        Faults { full: true, ..fine },
        Faults { stuck: true, ..fine },
        Faults { failing_writes: true, ..fine },
    ] {
        let mut world = world(72, Some(DiskSpec::default()));
        let dock = keeper(&mut world, DiskSpec::default());
        let live = world.application(ApplicationSpec::every("dock/*"));
        world.run(secs(2));
        world.act(Action::Disk(Host::Camera(dock), faults));
        world.act(Action::Disk(Host::Edge(EdgeId::default()), faults));
        let from = world.now();
        world.run(secs(5));
        assert!(world.deliveries_since(live, from).len() >= 98, "{faults:?}");
    }
}

/// A killed edge has its replicas again, even while the camera is away.
#[test]
fn an_edge_that_was_killed_has_its_replicas_again() {
    let mut world = world(73, Some(DiskSpec::default()));
    let dock = world.camera("dock/cam1", CameraSpec { clock: SAME_CLOCK, ..CameraSpec::frames(20, 10_000) });
    let live = world.application(ApplicationSpec::every("dock/*"));
    world.run(secs(6)).cut(dock);
    let crossed = world.deliveries(live).len();
    world.restart_edge(EdgeId::default()).run(secs(1));
    let reader = world.application(ApplicationSpec::since("dock/*", secs(10)));
    world.run(secs(2));
    let back = world.deliveries(reader).len();
    assert!(back + 6 >= crossed && back <= crossed, "{back} of {crossed} frames");
}

/// An edge that loses power has encoded video again, up to the last sync. A reader gets a picture of
/// each frame, and the camera continues with another chain.
#[test]
fn an_edge_whose_power_was_cut_has_video_again() {
    for seed in 75..81 {
        let mut world = world(seed, Some(DiskSpec { disk_bytes_max: 256 << 20, ..DiskSpec::default() }));
        // A decoder that fails ends its chain for stills. This is told with the next frame, which does not come while the camera is away.
        world.codecs_fail(false);
        let spec = CameraSpec { clock: SAME_CLOCK, ..CameraSpec::frames(20, 200_000).at_rate(mbps(2)) };
        let dock = world.camera("dock/cam1", spec);
        let contract =
            Contract { latency_bound: Some(ms(100)), accuracy_floor: Some(0.9), ..Contract::default() };
        let live = world.application(ApplicationSpec { contract, ..ApplicationSpec::every("dock/*") });
        world.run(secs(6)).cut(dock);
        let crossed = world.deliveries(live).len();
        world.act(Action::CutPower(Host::Edge(EdgeId::default()))).run(ms(100));
        world.act(Action::StartEdge(EdgeId::default())).run(secs(1));
        let reader = world.application(ApplicationSpec::since("dock/*", secs(10)));
        // A decoder takes some milliseconds for each picture, and decodes each frame once.
        world.run(secs(2));
        let got = world.deliveries(reader);
        let video = got.iter().filter(|got| got.rung.as_str().starts_with("h264/")).count();
        assert!(crossed > 80 && video + 5 > got.len(), "{video} of {crossed} frames are of video");
        assert!(got.iter().all(|got| got.skipped.of(SkipReason::NotDecoded) == 0), "all can be decoded");
        // The last second was not synced, and a few frames were being written.
        let back = got.len();
        assert!(back + 26 >= crossed && back <= crossed, "{back} of {crossed} frames");
        let from = world.now();
        world.restore(dock).run(secs(4));
        assert!(world.deliveries_since(reader, from).len() > 40, "nothing follows");
    }
}

/// Expired frames of a small disk do not come back after power cuts.
#[test]
fn what_expired_stays_away() {
    let mut world = world(74, None);
    let disk = DiskSpec { disk_bytes_max: 400 << 10, segment_bytes: 64 << 10, ..DiskSpec::default() };
    let dock = keeper(&mut world, disk);
    for _ in 0..4 {
        world.run(secs(5)).act(Action::CutPower(Host::Camera(dock))).run(ms(300));
        world.act(Action::StartCamera(dock, Counter::Kept));
    }
    world.run(secs(3));
    let held = held(&mut world, 30);
    // 400 KiB are two seconds of frames, and memory has the frames since the last start.
    assert!((40..=110).contains(&held), "{held} frames");
}

/// A camera on a disk, with power cuts and kills.
fn rough(bug: Option<DiskBug>, seed: u64) -> Result<(), Box<Failure>> {
    let small =
        DiskSpec { durability: Durability::Group, disk_bytes_max: 400 << 10, segment_bytes: 64 << 10 };
    let mut world = World::seeded(seed);
    if let Some(bug) = bug {
        world.plant_on_disk(bug);
    }
    let dock = world.camera("dock/cam1", CameraSpec { disk: Some(small), ..CameraSpec::frames(20, 10_000) });
    world.application(ApplicationSpec::newest("**"));
    for _ in 0..4 {
        world.try_run(ms(3_700))?;
        world.act_or_fail(Action::CutPower(Host::Camera(dock)))?;
        world.try_run(ms(300))?;
        world.act_or_fail(Action::StartCamera(dock, Counter::Kept))?;
        world.try_run(secs(2))?;
        world.act_or_fail(Action::KillCamera(dock))?;
        world.act_or_fail(Action::StartCamera(dock, Counter::Kept))?;
    }
    world.try_run(secs(3))
}

fn assert_noticed(bug: DiskBug, rule: &str) {
    noticed(bug, (80..90).find_map(|seed| rough(Some(bug), seed).err()), rule);
}

#[test]
fn nothing_is_noticed_on_disks_where_nothing_is_planted() {
    for seed in 80..84 {
        rough(None, seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_sync_that_is_skipped_is_noticed() {
    assert_noticed(DiskBug::SkippedSync, "recovery");
}

#[test]
fn pixels_in_the_clear_are_noticed() {
    assert_noticed(DiskBug::Plaintext, "sealed");
}

#[test]
fn a_salt_that_is_used_again_is_noticed() {
    assert_noticed(DiskBug::SameSalt, "sealed");
}

#[test]
fn an_index_that_is_off_by_one_is_noticed() {
    assert_noticed(DiskBug::IndexOffByOne, "recovery");
}

#[test]
fn a_wrong_nonce_is_noticed() {
    assert_noticed(DiskBug::WrongNonce, "recovery");
}
