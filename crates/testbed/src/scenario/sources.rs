//! Draws what cameras get from their sources: video, data records, or nothing for a while. Each has its
//! own random numbers, so that nothing else of a seed changes.

use std::ops::RangeInclusive;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, ProfileHash, RungProfile, SizedProfile};

use crate::payload::KEPT;
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{Action, ApplicationSpec, CameraId, CameraSpec, SourceVideo, World};

/// Lets most cameras give their sources' own video. The shortest chain has one frame, the longest a thousand.
pub(super) fn film(specs: &mut [CameraSpec], seed: u64) {
    let mut random = Random::seeded(seed ^ 0x7669_6465_6f21_2121);
    for spec in specs {
        spec.video = (!random.one_in(6)).then(|| SourceVideo {
            key_every: *random.pick(&[1, 8, 25, 60, 250, 1000]),
            spare_once_in: *random.pick(&[0, 0, 2, 3]),
            answers: random.one_in(2),
            lost_once_in: *random.pick(&[0, 0, 100]),
            permille: *random.pick(&[(1000, 125), (400, 37), (270, 45), (300, 250)]),
        });
    }
}

/// Lets most cameras give data records.
pub(super) fn give_records(specs: &mut [CameraSpec], seed: u64) {
    let mut random = Random::seeded(seed ^ 0x7265_636f_7264_7321);
    for spec in specs {
        spec.record_once_in = *random.pick(&[0, 2, 3, 10, 40]);
    }
}

/// Lets cameras give data records with a knob. Most of them give nothing else.
pub(super) fn give_knobs(specs: &mut [CameraSpec], seed: u64) {
    let mut random = Random::seeded(seed ^ 0x6b6e_6f62_732e_2e2e);
    for spec in specs {
        spec.record_once_in = *random.pick(&[1, 1, 1, 2, 3]);
        // Some publishers declare no knobs, so their records are sent as published.
        spec.knobs = !random.one_in(5);
    }
}

/// A profile of the knob, for records of frames with at most so many bytes. Some rungs leave records out, and one rung fits no stream.
pub(super) fn of_knobs(frame_bytes_max: u64) -> SizedProfile {
    // A record has an eighth of a frame's bytes. Deviations are learned.
    let whole = frame_bytes_max as f64 / 8.0;
    let rung = |name: String, share: f64, accuracy: f64| RungProfile {
        rung: Rung::new(&name).expect("the name of a rung"),
        bytes: ByteSizes::around((whole * share).max(40.0), 0.15),
        accuracy,
        camera_time: ms(2),
        detector_time: None,
    };
    let mut rungs = vec![rung("original".into(), 1.0, 1.0), rung("data/other=1".into(), 0.01, 0.99)];
    for (percent, accuracy) in KEPT {
        let share = f64::from(percent) / 100.0;
        rungs.push(rung(format!("data/keep={percent}"), share, accuracy));
        rungs.push(rung(format!("data/keep={percent}/skip1"), share, accuracy - 0.1));
    }
    let profile = Profile::new(rungs).expect("sizes and accuracies of a profile");
    SizedProfile { size: (0, 0), interval: None, profile }
}

/// Lets some applications set a floor with a profile of knobs.
pub(super) fn turning_knobs(
    random: &mut Random,
    spec: ApplicationSpec,
    profile: Option<ProfileHash>,
) -> ApplicationSpec {
    if random.one_in(3) {
        return spec;
    }
    let accuracy_floor = Some(*random.pick(&[0.6, 0.8, 0.9, 0.95, 1.0]));
    ApplicationSpec { contract: Contract { accuracy_floor, profile, ..spec.contract }, ..spec }
}

/// Plans, within a time span, that cameras lose their sources and get them back.
pub(super) fn lose_sources(
    world: &mut World,
    seed: u64,
    cameras: &[CameraId],
    span: RangeInclusive<Duration>,
) {
    let mut random = Random::seeded(seed ^ 0x736f_7572_6365_7321);
    for _ in 0..random.within(1..=3) {
        let camera = *random.pick(cameras);
        let start = Moment::START + random.duration(span.clone());
        let back = start + random.duration(ms(5)..=secs(5));
        world.at(start, Action::LoseSource(camera)).at(back, Action::Publish(camera));
    }
}
