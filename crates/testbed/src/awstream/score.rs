//! Scores a run by what the application got.

use super::data::Measurements;
use super::replay::{DEADLINE, END_S, INTERVAL, Replay, SHAPED_S};

/// Goodput above this, in Mbit/s, counts as recovered. The best configuration has 11.65 Mbit/s in the profile.
pub const RECOVERED_MBPS: f64 = 11.0;

/// The quantiles of the latency that the authors reported.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// The figures of a run, in the shaped window unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Mean F1 of all slots of 33 ms. A slot without a timely frame is scored with the last timely result.
    pub f1_deadline_aware: f64,
    /// Mean F1 of all slots, over the whole experiment.
    pub f1_deadline_aware_all: f64,
    /// Mean F1 of the frames that arrived in the window, however late. Each frame is scored as if fresh.
    pub f1_delivered: f64,
    /// The share of the frames sent in the window that arrived within the deadline.
    pub timely_share: f64,
    /// 5th, 25th, 50th, 75th and 95th percentiles of the mean latency per second, in milliseconds. The authors logged the latency in this way.
    pub latency_ms: [f64; 5],
    /// The same percentiles of the latency of single frames, in milliseconds.
    pub frame_latency_ms: [f64; 5],
    /// From the end of the window to the end of the first second with more than [`RECOVERED_MBPS`], in seconds.
    pub recover_s: Option<f64>,
    /// The figures of each second of the experiment.
    pub seconds: Vec<Second>,
}

/// The figures of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Goodput in Mbit/s: frames that arrived completely.
    pub megabits: f64,
    /// Mean latency of these frames, in milliseconds; `None` if there was none.
    pub latency_ms: Option<f64>,
    /// Mean F1 of its slots, where late frames do not count.
    pub f1: f64,
}

/// Scores a run.
pub fn score(measurements: &Measurements, replay: &Replay) -> Score {
    let interval_s = INTERVAL.as_secs_f64();
    let slots = f1_of_slots(measurements, replay);
    let second_of = |frame: usize| (frame as f64 * interval_s) as usize;
    let within = |at_s: f64| at_s >= SHAPED_S.0 && at_s < SHAPED_S.1;
    let shaped: Vec<f64> = slots
        .iter()
        .enumerate()
        .filter(|(frame, _)| within(*frame as f64 * interval_s))
        .map(|(_, f1)| *f1)
        .collect();
    let seconds_all = END_S as usize;
    let mut arrived: Vec<(f64, f64, u32)> = vec![(0.0, 0.0, 0); seconds_all];
    let (mut latencies, mut fresh, mut sent, mut timely) = (Vec::new(), Vec::new(), 0.0, 0.0);
    // Bytes of each half second. Goodput is measured over one second, every half second.
    let mut halves = vec![0.0; 2 * seconds_all];
    for (frame, slot) in replay.results.iter().enumerate() {
        let Some(rung) = slot.rung.filter(|_| slot.bytes > 0) else { continue };
        let captured_s = frame as f64 * interval_s;
        if within(captured_s) {
            sent += 1.0;
            timely += f64::from(u8::from(is_timely(slot.latency_ms)));
        }
        let Some(latency_ms) = slot.latency_ms else { continue };
        let at_s = captured_s + latency_ms / 1e3;
        if let Some(second) = arrived.get_mut(at_s as usize) {
            *second = (second.0 + f64::from(slot.bytes), second.1 + latency_ms, second.2 + 1);
            halves[(at_s * 2.0) as usize] += f64::from(slot.bytes);
        }
        if within(at_s) {
            latencies.push(latency_ms);
            let series = &measurements.series[replay.rows[usize::from(rung)]];
            fresh.push(series.f1[(replay.begin + frame) % measurements.frames]);
        }
    }
    let mut seconds = vec![Second::default(); seconds_all];
    for (second, (bytes, latency_ms, frames)) in seconds.iter_mut().zip(&arrived) {
        second.megabits = bytes * 8.0 / 1e6;
        second.latency_ms = (*frames > 0).then(|| latency_ms / f64::from(*frames));
    }
    let mut counts = vec![0.0; seconds_all];
    for (frame, f1) in slots.iter().enumerate() {
        if let Some(second) = seconds.get_mut(second_of(frame)) {
            second.f1 += f1;
            counts[second_of(frame)] += 1.0;
        }
    }
    for (second, count) in seconds.iter_mut().zip(counts) {
        second.f1 /= f64::max(count, 1.0);
    }
    let window = SHAPED_S.0 as usize..SHAPED_S.1 as usize;
    let per_second: Vec<f64> = seconds[window].iter().filter_map(|second| second.latency_ms).collect();
    let released = 2 * SHAPED_S.1 as usize;
    let recovered =
        halves[released..].windows(2).position(|two| (two[0] + two[1]) * 8.0 / 1e6 > RECOVERED_MBPS);
    Score {
        f1_deadline_aware: mean(&shaped),
        f1_deadline_aware_all: mean(&slots),
        f1_delivered: mean(&fresh),
        timely_share: timely / f64::max(sent, 1.0),
        latency_ms: percentiles(per_second),
        frame_latency_ms: percentiles(latencies),
        recover_s: recovered.map(|half| half as f64 / 2.0 + 1.0),
        seconds,
    }
}

fn is_timely(latency_ms: Option<f64>) -> bool {
    latency_ms.is_some_and(|latency| latency <= DEADLINE.as_secs_f64() * 1e3)
}

/// F1 of each slot: of its own frame, if the frame is timely. Otherwise of the last timely frame, reduced for its age.
///
/// For ages that the configuration itself produces by frame skip, the score of an old result was measured. For other ages, the score is estimated
/// from the mean loss at that age.
fn f1_of_slots(measurements: &Measurements, replay: &Replay) -> Vec<f64> {
    let mut last: Option<(usize, usize)> = None;
    let slots = replay.results.iter().enumerate().map(|(frame, slot)| {
        if let Some(rung) = slot.rung
            && slot.bytes > 0
            && is_timely(slot.latency_ms)
        {
            last = Some((frame, replay.rows[usize::from(rung)]));
        }
        let Some((sent, row)) = last else { return 0.0 };
        let (age, series) = (frame - sent, &measurements.series[row]);
        let number = |frame: usize| (replay.begin + frame) % measurements.frames;
        if age < measurements.profile[row].config.every() as usize {
            series.f1[number(frame)]
        } else {
            series.f1[number(sent)] * measurements.kept(age)
        }
    });
    slots.collect()
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn percentiles(mut values: Vec<f64>) -> [f64; 5] {
    values.sort_by(f64::total_cmp);
    SHARES.map(|share| {
        let place = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1));
        values.get(place - 1).copied().unwrap_or(f64::NAN)
    })
}
