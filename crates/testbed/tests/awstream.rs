//! AWStream's experiment on invented measurements in the published layout: the replay follows its link, and the contenders behave as known. (The
//! published measurements are not part of the project.)

use std::fmt::Write;
use std::time::Duration;

use mez_core::controller::baselines::awstream::Constants;
use mez_testbed::awstream::{Contender, Measurements, Score, replay, score};
use mez_testbed::policies::setting::Queueing;

const FRAMES: u32 = 60;
/// Invented measurements of a configuration that sends every third frame.
struct Row {
    kilobits_per_second: f64,
    /// Width and quantiser.
    config: (u32, u32),
    accuracy: f64,
    bytes: u32,
    /// Bytes of a keyframe.
    alone: u32,
    /// F1 of a fresh result.
    fresh: f64,
}

const fn row(
    kilobits_per_second: f64,
    config: (u32, u32),
    accuracy: f64,
    bytes: u32,
    alone: u32,
    fresh: f64,
) -> Row {
    Row { kilobits_per_second, config, accuracy, bytes, alone, fresh }
}

const ROWS: [Row; 4] = [
    row(400.0, (640, 40), 0.70, 4_950, 20_000, 0.72),
    row(1_200.0, (640, 30), 0.80, 14_850, 50_000, 0.82),
    row(3_000.0, (1280, 30), 0.86, 37_000, 90_000, 0.88),
    row(12_000.0, (1280, 20), 0.92, 148_000, 290_000, 0.95),
];

fn measurements() -> Measurements {
    let (mut profile, mut source, mut stat) = (String::new(), String::new(), String::new());
    for row in ROWS {
        let config = format!("{},2,{}", row.config.0, row.config.1);
        writeln!(profile, "{},{config},{}", row.kilobits_per_second, row.accuracy).unwrap();
        for frame in 1..=FRAMES {
            let bytes = if frame == 3 { row.alone } else { row.bytes + 200 * (frame % 7) };
            writeln!(source, "{config},{frame},{}", if frame % 3 == 0 { bytes } else { 0 }).unwrap();
        }
        for frame in 0..FRAMES {
            let hits = (1_000.0 * (row.fresh - 0.03 * f64::from(frame % 3))).round() as u32;
            writeln!(stat, "{frame},{config},{hits},{},{}", 1_000 - hits, 1_000 - hits).unwrap();
        }
    }
    Measurements::parse(&profile, &source, &stat).expect("the published layout")
}

fn run(measurements: &Measurements, contender: Contender, rtt_ms: u64) -> Score {
    score(measurements, &replay(measurements, contender, Duration::from_millis(rtt_ms), 0))
}

/// Over TCP, excess frames pile up. The wait at the end of each second follows from the link's rate.
#[test]
fn an_unadapted_sender_is_as_late_as_the_link_makes_it() {
    let measurements = measurements();
    let score = run(&measurements, Contender::Fixed(3, Queueing::Every), 20);
    let series = &measurements.series[3];
    let rate = series.bytes.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() / f64::from(FRAMES) / 33e-3;
    let link = 7.5e6 / 8.0 * 1448.0 / 1514.0;
    // Half of the window is over after two minutes.
    let expected_ms = 120e3 * (1.0 - link / rate);
    let seen = score.latency_ms[2];
    assert!((seen / expected_ms - 1.0).abs() < 0.03, "{seen} ms, and the link says {expected_ms}");
    assert!(score.f1_delivered > 0.9, "what arrives is good, if late: {score:?}");
    assert!(score.f1_deadline_aware < 0.2, "and of no use: {}", score.f1_deadline_aware);
}

#[test]
fn the_own_policy_is_at_least_as_good_as_the_best_of_all_others_in_hindsight() {
    let measurements = measurements();
    for rtt_ms in [20, 140] {
        let own = run(&measurements, Contender::Quantile, rtt_ms);
        let best = (0..ROWS.len())
            .map(|row| run(&measurements, Contender::Fixed(row, Queueing::NewestWins), rtt_ms))
            .map(|score| (score.f1_deadline_aware, score.f1_deadline_aware_all));
        let (shaped, all) = best.fold((0.0, 0.0), |best, score| (score.0.max(best.0), score.1.max(best.1)));
        assert!(own.f1_deadline_aware > 0.995 * shaped, "{} against {shaped}", own.f1_deadline_aware);
        assert!(own.f1_deadline_aware_all > 1.02 * all, "{} against {all}", own.f1_deadline_aware_all);
        assert!(own.recover_s.is_some_and(|recover| recover < 5.0), "{:?}", own.recover_s);
        assert!(own.latency_ms[4] < 229.0, "{:?}", own.latency_ms);
    }
}

#[test]
fn awstream_adapts_and_takes_its_time_to_recover() {
    let measurements = measurements();
    let own = run(&measurements, Contender::Quantile, 70);
    for constants in [Constants::NEWEST, Constants::EARLIER] {
        let score = run(&measurements, Contender::AwStream(constants), 70);
        assert!(score.f1_deadline_aware > 0.6, "{}: {}", constants.name, score.f1_deadline_aware);
        assert!(score.latency_ms[2] < 229.0, "{}: {:?}", constants.name, score.latency_ms);
        let faster = score.recover_s.is_none_or(|recover| own.recover_s.is_some_and(|own| own < recover));
        assert!(faster, "{}: {:?} against {:?}", constants.name, score.recover_s, own.recover_s);
    }
}

#[test]
fn the_same_replay_twice_is_the_same() {
    let measurements = measurements();
    let twice = [0, 1].map(|_| replay(&measurements, Contender::Quantile, Duration::from_millis(50), 30));
    assert_eq!(twice[0].results, twice[1].results);
}
