//! Defines the constants of the policy, and the mechanisms that an experiment can switch off.

use std::time::Duration;

/// A frame of a stream with this interval (15 frames per second) counts for one step of learning. A frame
/// of a slower stream counts for more, so that all streams learn equally fast. Contracts are judged by
/// time, so a stream of four records per second must not need a minute to learn the cost of a late frame.
pub(super) const LEARNING_INTERVAL: Duration = Duration::from_millis(67);

/// A mechanism that an experiment can switch off to measure its worth (`mez bench ablation`). These mechanisms have
/// no constant that switches them off. The testbed also lists the mechanisms that a neutral constant switches off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Own bytes on their way delay the frame that is chosen.
    Backlog,
    /// The remembered errors vary the prediction. Without them, the link may be as fast as estimated, or half
    /// as fast.
    Errors,
    /// Waits behind other stations vary the prediction, in addition to the errors.
    Waits,
    /// After the first error of a step, further errors count only until the estimate has come down.
    OneSurprise,
    /// A frame of a single packet bounds the rate from below.
    SinglePackets,
    /// A frame in service bounds the rate before it is over.
    InService,
    /// A frame far below the worst remembered error replaces the estimate.
    AnotherLink,
    /// Frames vary in size.
    SizeSpread,
    /// Later frames that are skipped because this one occupies the link add to its price.
    Displaced,
    /// A frame that will be late is cancelled for a newer one.
    Cancelling,
    /// A frame waits for own bytes on their way.
    Waiting,
    /// After a fall, a better rung that needs a new chain waits.
    Steadiness,
    /// A frame of a chain that would be late waits for bytes on their way, or for the next frame.
    HoldingBack,
    /// A late frame that continues a chain is sent all the same if it does not make the next one late.
    SparingNext,
    /// While nothing can be measured, or while the window limits, a frame is sent one rung higher from time to time.
    Probing,
    /// While nothing can be measured, or while the window limits, a video frame is made larger from time to
    /// time by a finer quantiser.
    Stretching,
}

/// Constants of the policy. They were set on a few seeds of the reference set. They are not sensitive:
/// halving or doubling most of them changes the share of the oracle by less than 0.005
/// (`docs/controller-mechanisms.md`).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// α, the weight of a sample of the rate. Default 0.3.
    pub gain: f64,
    /// The weight of a short sample: a few bursts decide how long it takes. Default 0.18.
    pub gain_short: f64,
    /// A sample that took less time counts as short, in milliseconds. Default 10.
    pub short_ms: f64,
    /// The weight of a sample after an outage, and after two errors in a row of the same sign that both
    /// exceed a standard deviation. Default 0.6.
    pub gain_renewed: f64,
    /// How many samples have that weight after an outage. Default 5.
    pub renewed_samples: u32,
    /// An error towards a slower link of more standard deviations than this begins a step. Further errors of
    /// the same sign count as part of that step until the estimate converges. Default 3.
    pub surprise: f64,
    /// The weight of the sample from a cancelled frame, and from a frame that showed a far slower link.
    /// Default 1: it replaces the estimate.
    pub gain_another: f64,
    /// A sample of fewer bytes can only raise the estimate, unless it took long. Default 12,000: ten packets.
    pub sample_bytes_min: f64,
    /// A sample that took less time can only raise the estimate, in milliseconds. Default 2.
    pub sample_ms_min: f64,
    /// A frame in service counts once it has taken longer than this, in milliseconds. Default 10.
    pub censor_ms_min: f64,
    /// The lowest λ where frames refer to others: the frames after a late one wait for it. Default 0.2.
    pub late_chain_cost: f64,
    /// The rise of λ for each late frame while too many are late, in units of accuracy. Default 0.05.
    pub late_cost_step: f64,
    /// The largest rise of λ. Default 2.
    pub late_cost_rise_max: f64,
    /// The time kept free before the deadline for the stages after the network, in milliseconds. Default 0.5:
    /// the edge takes 0.4 at p95.
    pub guard_ms: f64,
    /// A frame is at most this many times as large as the largest recent frame. Default 2.
    pub ramp: f64,
    /// The weight of one frame in the ratio of actual sizes to sizes of the profile. Default 0.1.
    pub size_gain: f64,
    /// How far ahead the worth of a rung of a chain is counted. A change of rung begins with a keyframe, and
    /// pays off later. Default 5 s, half of the longest chain.
    pub chain_horizon: Duration,
    /// How often a frame is sent one rung higher while the congestion window limits. Default 1.5 s.
    pub probe_interval: Duration,
    /// The mechanism that an experiment has switched off. Default none.
    pub off: Option<Mechanism>,
}

impl Config {
    /// Whether a mechanism is on.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.off != Some(mechanism)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gain: 0.3,
            gain_short: 0.18,
            short_ms: 10.0,
            gain_renewed: 0.6,
            renewed_samples: 5,
            surprise: 3.0,
            gain_another: 1.0,
            sample_bytes_min: 12e3,
            sample_ms_min: 2.0,
            censor_ms_min: 10.0,
            late_chain_cost: 0.2,
            late_cost_step: 0.05,
            late_cost_rise_max: 2.0,
            guard_ms: 0.5,
            ramp: 2.0,
            size_gain: 0.1,
            chain_horizon: Duration::from_secs(5),
            probe_interval: Duration::from_millis(1500),
            off: None,
        }
    }
}
