use super::*;

const LOAD: Load = Load { bytes: 1e6, frames_per_second: 5.0, size_noise: 0.05, on_off_ms: None };
const SECONDS: usize = 10;

fn scene(cameras: usize) -> Scene {
    Scene::new(&Constants::CALIBRATED, &vec![LOAD; cameras])
}

/// The rate that the first camera can have, in Mbit/s.
fn mbps(scene: &Scene) -> f64 {
    let carried: f64 = (0..3).map(|seed| capacity(scene, SECONDS * 1_000, seed).total()).sum();
    carried * 8.0 / 1e6 / (3 * SECONDS) as f64
}

#[test]
fn every_frame_arrives_and_the_same_seed_gives_the_same_latencies() {
    let run = |seed| latencies_ms(&Constants::CALIBRATED, &[LOAD; 3], 20, seed);
    assert!(run(1).iter().all(|latencies| latencies.len() == 20));
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn one_station_gets_most_of_its_rate_and_five_get_less_than_a_fifth_each() {
    let mean = |stations: usize| {
        let latencies = latencies_ms(&Constants::CALIBRATED, &vec![LOAD; stations], 40, 3);
        latencies.iter().flatten().sum::<f64>() / (40 * stations) as f64
    };
    let (one, five) = (mean(1), mean(5));
    let alone_mbps = LOAD.bytes * 8.0 / one / 1e3;
    assert!((100.0..325.0).contains(&alone_mbps), "{alone_mbps} Mbit/s");
    assert!(five > 3.0 * one, "{one} and {five} ms");
}

#[test]
fn who_does_not_sense_the_other_runs_into_it() {
    let seen = mbps(&scene(2));
    let mut hidden = scene(2);
    hidden.hidden = vec![(0, 1)];
    let collided = mbps(&hidden);
    assert!(collided < 0.3 * seen, "{collided} instead of {seen} Mbit/s");
    // Stations that do not hear the RTS hear the CTS.
    hidden.constants.request_after_failures = 1;
    let asked = mbps(&hidden);
    assert!(asked > 2.0 * collided && asked < seen, "{asked} Mbit/s, {collided} without");
}

#[test]
fn an_interferer_takes_its_time_and_what_is_on_the_air_beside_it() {
    let alone = mbps(&scene(1));
    let mut disturbed = scene(1);
    disturbed.interferers = vec![Interferer::oven(f64::INFINITY, 0.0)];
    let unseen = mbps(&disturbed);
    disturbed.interferers[0].is_sensed = true;
    let sensed = mbps(&disturbed);
    // At most half of the time is left.
    assert!(sensed < 0.55 * alone && sensed > 0.35 * alone, "{sensed} of {alone} Mbit/s");
    assert!(unseen < 0.9 * sensed, "{unseen} instead of {sensed} Mbit/s");
}

#[test]
fn a_slow_station_takes_the_time_of_fast_ones() {
    let fast = mbps(&scene(2));
    let mut uneven = scene(2);
    uneven.cameras[1].0.phy_mbps = 30.0;
    // Stations have equally many turns, not equal times (M. Heusse et al., "Performance anomaly of 802.11b", 2003).
    let beside_slow = mbps(&uneven);
    assert!(beside_slow < 0.75 * fast, "{beside_slow} instead of {fast} Mbit/s");
}

#[test]
fn what_changes_does_so_when_it_is_said_to() {
    let mut scene = scene(1);
    let slow = Station { phy_mbps: 50.0, ..scene.constants.station() };
    scene.changes = vec![Change { at_ms: 5_000.0, what: What::Station { station: 0, to: slow } }];
    let carried = capacity(&scene, 10_000, 1);
    let half = carried.passed(mez_core::units::Instant::from_nanos(5_000_000_000));
    assert!(carried.total() - half < 0.25 * half, "{half} of {} bytes in the first half", carried.total());

    scene.changes.clear();
    scene.interferers = vec![Interferer::oven(0.0, f64::INFINITY)];
    let quiet = capacity(&scene, 10_000, 1);
    scene.changes = vec![Change { at_ms: 5_000.0, what: What::Interferer { interferer: 0, is_on: true } }];
    let disturbed = capacity(&scene, 10_000, 1);
    assert!(disturbed.total() < 0.85 * quiet.total());
    scene.changes[0].what = What::Load { camera: 0, to: None };
    assert_eq!(capacity(&scene, 1_000, 1), {
        scene.changes.clear();
        capacity(&scene, 1_000, 1)
    });
}

#[test]
fn a_short_queue_holds_less() {
    let mut scene = scene(1);
    scene.cameras[0].0.queue_packets_max = 4;
    let carried = mbps(&scene);
    assert!(carried < 0.6 * mbps(&self::scene(1)), "aggregates of four packets: {carried} Mbit/s");
}
