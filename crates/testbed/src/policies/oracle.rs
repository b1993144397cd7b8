//! Finds the best plan of a planner that knows the whole future: the capacity and all sizes.
//!
//! Frames pass the link one after the other in the order of their capture. A plan gives each frame a rung or none. The plan's value is the sum of the
//! accuracies of the frames that arrive in time. A frame that would be late is better left out. After each frame only two numbers matter: when the
//! link is free again, and the value so far. If one of two plans is free no later and has no less value, the other can be dropped, because it can
//! never do better. The remaining plans form a short frontier. So the search is exact for one camera, and with equal weights for several cameras that
//! share a queue.

use super::score::{Score, score};
use super::setting::{Setting, SlotResult, Slots};

/// One way to have used the link so far.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes that the link could have carried when it is free again.
    free: f64,
    gained: f64,
    /// The index of the previous plan in the arena, and the rung that was added.
    before: u32,
    rung: u8,
}

/// With several cameras, a plan is kept only if its value is greater by this than that of plans that are free earlier. Otherwise there would be
/// thousands. For each frame, the plan found is worse than the best by at most this.
const COARSE_STEP: f64 = 2e-3;
/// How much the logarithm of a camera's weight changes for an accuracy of 1 in the first round. It changes less in later rounds.
const WEIGHT_STEP: f64 = 8.0;
/// Stands for no rung.
const SKIPPED: u8 = u8::MAX;

/// A plan: the rung of each frame of each camera.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// For each camera and frame the rung, if the frame is sent.
    pub rungs: Vec<Vec<Option<u8>>>,
    /// For each camera and frame the latency in milliseconds, if the frame is sent.
    pub latency_ms: Vec<Vec<Option<f64>>>,
    /// The most plans that were kept at once.
    pub frontier_max: usize,
}

impl Oracle {
    /// Scores one camera of the plan.
    pub fn score(&self, setting: &Setting, camera: usize) -> Score {
        let planned = self.rungs[camera].iter().zip(&self.latency_ms[camera]);
        let results: Vec<SlotResult> = planned
            .map(|(rung, latency_ms)| SlotResult {
                rung: *rung,
                latency_ms: *latency_ms,
                ..SlotResult::default()
            })
            .collect();
        score(setting, camera, &results)
    }
}

/// Finds the plan with the greatest sum of accuracies over all cameras.
pub fn plan(setting: &Setting, slots: &Slots) -> Oracle {
    weighted(setting, slots, &vec![1.0; setting.cameras.len()])
}

/// Computes an upper bound of the worst camera's mean accuracy over all slots: in any plan, at least one camera does not exceed it.
///
/// With weights that add up to 1, no plan's worst camera exceeds the weighted mean. No plan's weighted mean exceeds that of the plan that is best for
/// these weights. So each such plan bounds the worst camera from above. Weights then move from cameras with a high accuracy to cameras with a low
/// one, and the least bound counts (Lagrange's dual of max–min, by exponentiated subgradients).
pub fn most_for_worst(setting: &Setting, slots: &Slots, rounds: u32) -> f64 {
    let cameras = setting.cameras.len();
    let mut weights = vec![1.0; cameras];
    let mut least = f64::INFINITY;
    for round in 0..rounds {
        let plan = weighted(setting, slots, &weights);
        let reached: Vec<f64> = (0..cameras).map(|camera| plan.score(setting, camera).utility).collect();
        let mean = weights.iter().zip(&reached).map(|(weight, reached)| weight * reached).sum::<f64>();
        least = least.min(mean / cameras as f64);
        let step = WEIGHT_STEP / f64::from(round + 1).sqrt();
        for (weight, reached) in weights.iter_mut().zip(&reached) {
            *weight *= (-step * reached).exp();
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight *= cameras as f64 / sum);
    }
    // The search itself may have missed this much.
    least + if cameras == 1 { 0.0 } else { COARSE_STEP }
}

/// Finds the plan with the greatest sum of accuracies, each times its camera's weight. Weights have the mean 1.
fn weighted(setting: &Setting, slots: &Slots, weights: &[f64]) -> Oracle {
    let capacity = &setting.capacity;
    let mut order: Vec<(usize, usize)> = (0..setting.cameras.len())
        .flat_map(|camera| (0..slots.frames).map(move |frame| (camera, frame)))
        .collect();
    order.sort_by_key(|(camera, frame)| slots.captured(*camera, *frame));
    let step = if setting.cameras.len() == 1 { 1e-12 } else { COARSE_STEP };
    let mut arena: Vec<Plan> = vec![Plan { free: 0.0, gained: 0.0, before: 0, rung: SKIPPED }];
    let mut frontier: Vec<u32> = vec![0];
    let mut next: Vec<Plan> = Vec::new();
    let mut frontier_max = 1;
    for (camera, frame) in &order {
        let spec = &setting.cameras[*camera];
        let captured = slots.captured(*camera, *frame);
        let begin = capacity.passed(captured);
        // Bytes that can have passed by the latest instant at which the frame may leave the link.
        let due = capacity.passed(captured + spec.latency_bound - setting.delay);
        next.clear();
        for index in &frontier {
            let plan = arena[*index as usize];
            // A link that is free before the capture is no better than one that is free at the capture.
            let free = plan.free.max(begin);
            next.push(Plan { free, gained: plan.gained, before: *index, rung: SKIPPED });
            for (rung, profile) in spec.ladder.rungs().iter().enumerate() {
                let free = free + slots.bytes(*camera, *frame, &spec.ladder, rung);
                if free > due {
                    break;
                }
                next.push(Plan {
                    free,
                    gained: plan.gained + weights[*camera] * profile.accuracy,
                    before: *index,
                    rung: rung as u8,
                });
            }
        }
        next.sort_by(|a, b| a.free.total_cmp(&b.free).then(b.gained.total_cmp(&a.gained)));
        frontier.clear();
        let mut gained = f64::NEG_INFINITY;
        for plan in &next {
            if plan.gained > gained + step {
                gained = plan.gained;
                frontier.push(arena.len() as u32);
                arena.push(*plan);
            }
        }
        frontier_max = frontier_max.max(frontier.len());
    }
    let mut oracle = Oracle {
        rungs: vec![vec![None; slots.frames]; setting.cameras.len()],
        latency_ms: vec![vec![None; slots.frames]; setting.cameras.len()],
        frontier_max,
    };
    let mut at = *frontier.last().expect("there is always a plan") as usize;
    for (camera, frame) in order.iter().rev() {
        let plan = arena[at];
        if plan.rung != SKIPPED {
            oracle.rungs[*camera][*frame] = Some(plan.rung);
            let end = capacity.when(plan.free).expect("it ends before it is due");
            let there = (end + setting.delay).saturating_since(slots.captured(*camera, *frame));
            oracle.latency_ms[*camera][*frame] = Some(there.as_secs_f64() * 1e3);
        }
        at = plan.before as usize;
    }
    oracle
}
