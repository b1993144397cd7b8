//! Reading the past, wherever it is held.

use mez_testbed::{ApplicationSpec, CameraSpec, EdgeSpec, HostClock, World, mbps, ms, secs};

/// Times of the past are the same for camera and edge.
const SAME_CLOCK: Option<HostClock> =
    Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });

fn world_of_one_time(seed: u64) -> World {
    World::seeded_with(seed, EdgeSpec { clock: SAME_CLOCK, ..EdgeSpec::default() })
}

/// Frames that a camera published while it was cut off can all be read afterwards, while other applications read live.
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

/// A camera with a small log no longer holds its oldest frames. This is stated, and all others come.
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

/// Over a long path, frames of the past do not wait a round trip each: they come nearly as fast as the link carries them.
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
