//! Scores a run.

use std::time::Duration;

use mez_core::units::Instant;

use super::setting::{Setting, SlotResult, Slots};
use crate::channel::links::Mark;

/// The number of groups of predictions by their on-time probability.
pub const BINS: usize = 10;

/// The score of one camera's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// The mean accuracy over all slots. A slot without a frame on time counts 0.
    pub utility: f64,
    /// The share of slots with a frame on time.
    pub on_time_share: f64,
    /// The share of slots in which a frame was sent.
    pub sent_share: f64,
    /// Latency of the frames that arrived, in milliseconds: 50 %, 95 % and 99 % quantiles, and the maximum.
    pub latency_ms: [f64; 4],
    /// The number of frames with a prediction, the expected number of late frames, and the actual number.
    pub predicted: (u64, f64, f64),
    /// By group of on-time probability: frames, sum of probabilities, frames on time.
    pub bins: [(u64, f64, u64); BINS],
}

/// How long a policy took to recover after an event of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reaction {
    /// The link became slower.
    Slower {
        /// From the change until the last late frame of the next two seconds arrived, in milliseconds. A
        /// cancelled frame counts as late until it was due.
        settle_ms: f64,
        /// From the change until all bytes in flight had passed, in milliseconds. No policy can recover before that.
        drain_ms: f64,
    },
    /// An outage ended.
    Recovered {
        /// From the end of the outage to the arrival of the first frame on time, in milliseconds.
        recover_ms: f64,
    },
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
    sorted.get(place - 1).copied().unwrap_or(f64::NAN)
}

/// Scores one camera of a run.
pub fn score(setting: &Setting, camera: usize, results: &[SlotResult]) -> Score {
    let spec = &setting.cameras[camera];
    let bound_ms = spec.latency_bound.as_secs_f64() * 1e3;
    let is_on_time = |slot: &SlotResult| slot.latency_ms.is_some_and(|latency| latency <= bound_ms);
    let mut score = Score::default();
    let mut latencies: Vec<f64> = results.iter().filter_map(|slot| slot.latency_ms).collect();
    latencies.sort_by(f64::total_cmp);
    let slots = results.len() as f64;
    for slot in results {
        let on_time = is_on_time(slot);
        if let Some(rung) = slot.rung {
            score.sent_share += 1.0 / slots;
            if on_time {
                score.utility += spec.ladder.rungs()[usize::from(rung)].accuracy / slots;
                score.on_time_share += 1.0 / slots;
            }
        }
        if let Some(probability) = slot.on_time_probability {
            let late = f64::from(u8::from(!on_time));
            let (frames, expected, actual) = score.predicted;
            score.predicted = (frames + 1, expected + 1.0 - probability, actual + late);
            let bin = &mut score.bins[((probability * BINS as f64) as usize).min(BINS - 1)];
            *bin = (bin.0 + 1, bin.1 + probability, bin.2 + u64::from(on_time));
        }
    }
    score.latency_ms = [0.5, 0.95, 0.99, 1.0].map(|share| percentile(&latencies, share));
    score
}

/// Measures how long a policy took to recover after each mark, for a setting with one camera.
pub fn reactions(setting: &Setting, slots: &Slots, marks: &[Mark], results: &[SlotResult]) -> Vec<Reaction> {
    let bound = setting.cameras[0].latency_bound;
    let end = Instant::ZERO + setting.duration;
    let frames: Vec<(Instant, &SlotResult)> =
        results.iter().enumerate().map(|(frame, slot)| (slots.captured(0, frame), slot)).collect();
    let arrived = |captured: Instant, slot: &SlotResult| {
        slot.latency_ms.map(|latency| captured + Duration::from_secs_f64(latency / 1e3))
    };
    let since = |mark: Instant, at: Instant| at.saturating_since(mark).as_secs_f64() * 1e3;
    let horizon = Duration::from_secs(2);
    let whole = marks.iter().filter(|mark| match mark {
        Mark::Slower(at) | Mark::Back(at) => *at + horizon < end,
    });
    let reaction = |mark: &Mark| match *mark {
        Mark::Slower(at) => {
            let near =
                frames.iter().filter(|(captured, _)| *captured + bound >= at && *captured < at + horizon);
            // A frame that was sent and then cancelled was late at the time when it was due.
            let late = near.filter(|(_, slot)| slot.rung.is_some()).filter_map(|(captured, slot)| {
                let there = arrived(*captured, slot);
                let late = there.is_none_or(|there| there > *captured + bound);
                late.then(|| there.unwrap_or(*captured + bound))
            });
            let on_way = frames
                .iter()
                .filter(|(captured, slot)| slot.sent_after.is_some_and(|after| *captured + after <= at));
            let through = on_way.filter_map(|(captured, slot)| arrived(*captured, slot));
            Reaction::Slower {
                settle_ms: late.map(|there| since(at, there)).fold(0.0, f64::max),
                drain_ms: through.map(|there| since(at, there)).fold(0.0, f64::max),
            }
        }
        Mark::Back(at) => {
            let timely = frames.iter().filter_map(|(captured, slot)| {
                arrived(*captured, slot).filter(|there| *there <= *captured + bound && *there >= at)
            });
            Reaction::Recovered {
                recover_ms: timely.map(|there| since(at, there)).fold(f64::INFINITY, f64::min),
            }
        }
    };
    whole.map(reaction).collect()
}
