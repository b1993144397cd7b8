//! Replays the experiment for one contender: the link, and the policy that sends over it.

use std::time::Duration;

use mez_core::controller::baselines::awstream::Constants;
use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Ladder, Profile, RungProfile};

use super::data::{Measurements, Series};
use crate::channel::capacity::Capacity;
use crate::policies::entrants::Entrant;
use crate::policies::run::run;
use crate::policies::setting::{CameraSetting, Coded, Queueing, Setting, Sizes, SlotResult, Slots};

/// The time between frames.
pub const INTERVAL: Duration = Duration::from_millis(33);
/// The rate of the link: each from a second on, in Mbit/s.
pub const RATES_MBPS: [(u64, f64); 4] = [(0, 25.0), (200, 7.5), (380, 5.0), (440, 25.0)];
/// The window in which the link is shaped, in seconds.
pub const SHAPED_S: (f64, f64) = (200.0, 440.0);
/// The end of the experiment, in seconds.
pub const END_S: u64 = 640;
/// The deadline of every frame, for all contenders: the 95th percentile of the latency that AWStream's authors published.
pub const DEADLINE: Duration = Duration::from_millis(229);
/// The share of payload in the link's rate: 1448 of the 1514 bytes that a shaper counts for an Ethernet frame with IPv4, TCP and timestamps. The
/// published log of the unadapted run confirms it: 7.1 to 7.2 of 7.5 Mbit/s.
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// How long the link continues after the end, in seconds, so that late frames still arrive.
const TAIL_S: u64 = 200;
/// The congestion window with newest-wins queueing, in bytes, as in the other comparisons of policies.
const WINDOW_BYTES: f64 = 65_536.0;
/// The bytes that a TCP socket buffers before AWStream's own queue begins. With a smaller buffer, AWStream takes the largest frames for congestion
/// and never returns to the top rate, unlike in the published logs. With 512 kB, its newest constants do worse.
const SOCKET_BYTES: f64 = 262_144.0;

/// A participant of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// Mez's own policy.
    Quantile,
    /// AWStream's policy, with one of its sets of constants.
    AwStream(Constants),
    /// A fixed row of the profile, counted from 0.
    Fixed(usize, Queueing),
}

impl Contender {
    /// All contenders, for a profile of `rows` rows. Each fixed row takes part twice: as over TCP, and with newest-wins queueing.
    pub fn all(rows: usize) -> Vec<Self> {
        let mut all = vec![Self::Quantile];
        all.extend([Constants::NEWEST, Constants::EARLIER].map(Self::AwStream));
        let ways = [Queueing::Every, Queueing::NewestWins];
        all.extend((0..rows).flat_map(|row| ways.map(|way| Self::Fixed(row, way))));
        all
    }

    /// The name in results.
    pub fn name(&self, measurements: &Measurements) -> String {
        match self {
            Self::Quantile => "quantile".into(),
            Self::AwStream(constants) => format!("awstream_{}", constants.name),
            Self::Fixed(row, queueing) => {
                let way = if *queueing == Queueing::Every { "tcp" } else { "newest" };
                format!("fixed_{way}@{}", measurements.profile[*row].config.name())
            }
        }
    }
}

/// A run of one contender.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The result of each frame.
    pub results: Vec<SlotResult>,
    /// For each rung of the contender's ladder, the row of the profile.
    pub rows: Vec<usize>,
    /// The first frame of the recording that was sent.
    pub begin: usize,
}

/// Lets a contender send the recording over the link, beginning at frame `begin`.
pub fn replay(
    measurements: &Measurements,
    contender: Contender,
    round_trip: Duration,
    begin: usize,
) -> Replay {
    let (ladder, rows) = match contender {
        Contender::Quantile => ladder(measurements, per_frame_sizes),
        // AWStream's levels are the rates of the published profile.
        _ => ladder(measurements, |measurements, row| {
            let bytes = measurements.profile[row].kilobits_per_second * 1e3 / 8.0 * INTERVAL.as_secs_f64();
            (ByteSizes::around(bytes, 0.0), 1)
        }),
    };
    let series: Vec<&Series> = rows.iter().map(|row| &measurements.series[*row]).collect();
    let frames = (0..measurements.frames).map(|frame| {
        let frame = (begin + frame) % measurements.frames;
        series.iter().map(|series| series.bytes[frame]).collect()
    });
    let every = rows.iter().map(|row| match contender {
        Contender::Quantile => measurements.profile[*row].config.every(),
        _ => 1,
    });
    let alone = series.iter().map(|series| ByteSizes::around(f64::from(series.alone_bytes()), 0.1));
    let coded =
        Coded { bytes: frames.collect(), alone: alone.collect(), every: every.collect(), widths: Vec::new() };
    let queueing = match contender {
        Contender::Quantile => Queueing::NewestWins,
        Contender::AwStream(_) => Queueing::Every,
        Contender::Fixed(_, queueing) => queueing,
    };
    let window_bytes = if queueing == Queueing::Every { SOCKET_BYTES } else { WINDOW_BYTES };
    let setting = Setting {
        capacity: link(),
        delay: round_trip / 2,
        interval: INTERVAL,
        cameras: vec![CameraSetting {
            ladder,
            phase: Duration::ZERO,
            latency_bound: DEADLINE,
            accuracy_floor: None,
        }],
        window_bytes,
        duration: Duration::from_secs(END_S),
        sizes: Sizes::Coded(coded),
        queueing,
        share: None,
    };
    let entrant = match contender {
        Contender::Quantile => Entrant::Quantile,
        Contender::AwStream(constants) => Entrant::AwStream(constants),
        Contender::Fixed(row, _) => Entrant::Fixed(row),
    };
    let policy = entrant.policy(&setting);
    let slots = Slots::new(&setting);
    let results = run(&setting, &slots, &mut [policy]).swap_remove(0);
    Replay { results, rows, begin }
}

/// The payload capacity of the link.
fn link() -> Capacity {
    let steps =
        RATES_MBPS.map(|(from_s, mbps)| (from_s as usize * 1_000, mbps * 1e6 / 8.0 / 1e3 * PAYLOAD_SHARE));
    Capacity::of_steps((END_S + TAIL_S) as usize * 1_000, &steps)
}

/// A ladder of the profile's rows, and the row of each rung. `sizes` gives the sizes of a row's frames, and `n` if one frame in `n` is sent.
fn ladder(
    measurements: &Measurements,
    sizes: impl Fn(&Measurements, usize) -> (ByteSizes, u32),
) -> (Ladder, Vec<usize>) {
    let rungs: Vec<RungProfile> = measurements
        .profile
        .iter()
        .enumerate()
        .map(|(index, row)| RungProfile {
            rung: Rung::new(&row.config.name()).expect("short and printable"),
            bytes: sizes(measurements, index).0,
            accuracy: row.accuracy,
            camera_time: Duration::ZERO,
            detector_time: None,
        })
        .collect();
    let ladder = Profile::new(rungs).expect("rows differ and ascend").ladder();
    let place = |rung: &RungProfile| {
        let row = measurements.profile.iter().position(|row| row.config.name() == rung.rung.as_str());
        row.expect("the ladder is made of these rows")
    };
    let rows = ladder.rungs().iter().map(place).collect();
    (ladder, rows)
}

/// The sizes of the sent frames, as profiling on the same kind of scene would measure them.
fn per_frame_sizes(measurements: &Measurements, row: usize) -> (ByteSizes, u32) {
    let mut sizes: Vec<f64> =
        measurements.series[row].bytes.iter().filter(|bytes| **bytes > 0).map(|b| f64::from(*b)).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |share: f64| sizes[((sizes.len() - 1) as f64 * share).round() as usize];
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let bytes = ByteSizes { mean, p05: at(0.05), p50: at(0.5), p95: at(0.95) };
    (bytes, measurements.profile[row].config.every())
}
