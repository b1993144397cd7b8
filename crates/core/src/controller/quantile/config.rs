//! The constants of the policy, and which of its mechanisms an experiment has switched off.

use std::time::Duration;

/// A mechanism that no constant can switch off, so that an experiment can measure what it is worth
/// (`mez bench ablation`). The testbed lists these beside those that a neutral constant switches off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Own bytes on their way count before the frame that is chosen.
    Backlog,
    /// The remembered errors. Without them the link may be as fast as estimated, or half as fast.
    Errors,
    /// Waits behind other stations, beside the errors.
    Waits,
    /// The errors that follow the first one of a step count only until the estimate has come down.
    OneSurprise,
    /// A frame in service bounds the rate before it is over.
    InService,
    /// A frame far below the worst remembered error replaces the estimate.
    AnotherLink,
    /// Frames vary in size.
    SizeSpread,
    /// Later frames that are skipped because this one occupies the link have a price.
    Displaced,
    /// A frame that will be late is cancelled for a newer one.
    Cancelling,
    /// A frame waits for own bytes on their way.
    Waiting,
    /// After a fall, a better rung that needs a new chain waits.
    Steadiness,
    /// A frame of a chain that would be late waits for what is on its way, or for the next frame.
    HoldingBack,
    /// A late frame that goes on is sent all the same if it does not make the next one late.
    SparingNext,
    /// While nothing can be measured, or while the window limits, a frame goes a rung up from time to time.
    Probing,
    /// The same for video: a frame is made larger by a finer quantiser.
    Stretching,
}

/// Constants of the policy. They were set on a few seeds of the reference set and are not sensitive: halving or doubling most of
/// them changes the share of the oracle by less than 0.005 (`docs/controller-mechanisms.md`).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// α, the weight of a sample of the rate. Default 0.3.
    pub gain: f64,
    /// The weight of a short sample: a few bursts decide how long it takes. Default 0.18.
    pub gain_short: f64,
    /// What counts as short, in milliseconds. Default 10.
    pub short_ms: f64,
    /// The weight of a sample after an outage, and after two same-sign errors in a row of more than a standard deviation each. Default 0.6.
    pub gain_renewed: f64,
    /// How many samples have that weight after an outage. Default 5.
    pub renewed_samples: u32,
    /// An error towards slower of more standard deviations than this begins a step. Same-sign errors after it count as that one step
    /// until the estimate converges. Default 3.
    pub surprise: f64,
    /// The weight of what a cancelled frame showed, and of a frame that showed a far slower link. Default 1: it replaces the estimate.
    pub gain_another: f64,
    /// A sample of fewer bytes can only raise the estimate, unless it took long. Default 12,000: ten packets.
    pub sample_bytes_min: f64,
    /// A sample that took less, in milliseconds, can only raise the estimate. Default 2.
    pub sample_ms_min: f64,
    /// A frame in service counts once it has taken longer than this, in milliseconds. Default 10.
    pub censor_ms_min: f64,
    /// The least of λ where frames refer to others: those that follow a late one wait for it. Default 0.2.
    pub late_chain_cost: f64,
    /// By how much λ, in units of accuracy, rises with a late frame while too many are late. Default 0.05.
    pub late_cost_step: f64,
    /// The highest rise of λ. Default 2.
    pub late_cost_rise_max: f64,
    /// Kept free before the deadline for what comes after the network, in milliseconds. Default 0.5: the edge takes 0.4 at p95.
    pub guard_ms: f64,
    /// A frame is at most this many times as large as the largest of the last frames. Default 2.
    pub ramp: f64,
    /// The weight of a frame in the ratio between the sizes of frames and those of the profile. Default 0.1.
    pub size_gain: f64,
    /// How far ahead the worth of a rung of a chain is counted: a change of rung begins with a keyframe, and pays off later. Default 5 s,
    /// half of the longest chain.
    pub chain_horizon: Duration,
    /// While the congestion window limits, how often one frame goes a rung up. Default 1.5 s.
    pub probe_interval: Duration,
    /// What an experiment has switched off. Default nothing.
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
