//! Looks for links on which a policy locks itself out: each frame is cancelled, and the next one is chosen as if nothing had been learned.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::units::Instant;

use super::entrants::Entrant;
use super::reference::{ACCURACY_BYTES, SIZE_NOISE, ladder};
use super::run::run;
use super::setting::{CameraSetting, Queueing, Setting, Sizes, Slots};
use crate::channel::capacity::Capacity;
use crate::random::Random;

const INTERVAL: Duration = Duration::from_nanos(66_666_667);
const BOUND: Duration = Duration::from_millis(100);
const SECONDS: u64 = 60;
/// How long the link keeps its rate.
const PHASE_MS: u64 = 2_000;
/// The first frames of a phase may be lost, because no policy can know of the change.
const SETTLED: Duration = Duration::from_millis(500);
/// The fewest frames of a phase that is judged. A phase cut by the end of the run has fewer.
const FRAMES_MIN: u32 = 15;

/// How many slow phases of a minute delivered less than a tenth of their frames in time. The link carries 50 and 5 Mbit/s in turn, each for two
/// seconds. The seed determines when it begins, and how sizes vary.
pub fn locked_phases(seed: u64) -> usize {
    let offset = Random::seeded(seed).within(0..=2 * PHASE_MS - 1);
    let phase_of = |ms: u64| (ms + offset) / PHASE_MS;
    let bytes_per_ms = |ms: u64| if phase_of(ms) % 2 == 0 { 6_250.0 } else { 625.0 };
    let setting = Setting {
        capacity: Capacity::new((0..SECONDS * 1_000 + 5_000).map(bytes_per_ms)),
        delay: Duration::from_millis(3),
        interval: INTERVAL,
        cameras: vec![CameraSetting {
            ladder: ladder(ACCURACY_BYTES),
            phase: Duration::ZERO,
            latency_bound: BOUND,
            accuracy_floor: None,
        }],
        window_bytes: 65_536.0,
        duration: Duration::from_secs(SECONDS),
        sizes: Sizes::Drawn { noise: SIZE_NOISE, seed },
        queueing: Queueing::NewestWins,
        share: None,
    };
    let slots = Slots::new(&setting);
    let results = run(&setting, &slots, &mut [Entrant::Quantile.policy(&setting)]).remove(0);
    let ms_of = |at: Instant| at.as_nanos() / 1_000_000;
    let bound_ms = BOUND.as_secs_f64() * 1e3;
    let mut phases: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    for (frame, slot) in results.iter().enumerate() {
        let captured = slots.captured(0, frame);
        let phase = phase_of(ms_of(captured));
        let is_settled = captured > Instant::ZERO + SETTLED && phase_of(ms_of(captured - SETTLED)) == phase;
        if phase % 2 == 1 && is_settled {
            let (frames, in_time) = phases.entry(phase).or_default();
            *frames += 1;
            *in_time += u32::from(slot.latency_ms.is_some_and(|latency| latency <= bound_ms));
        }
    }
    phases.values().filter(|(frames, in_time)| *frames >= FRAMES_MIN && in_time * 10 < *frames).count()
}
