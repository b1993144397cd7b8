//! Names the policies that are compared, each with its best constants.

use mez_core::controller::Policy;
use mez_core::controller::baselines::awstream::{AwStream, Constants};
use mez_core::controller::baselines::pi::{self, Pi, Regression};
use mez_core::controller::named::PolicyName;

use super::rivals::ewma::Ewma;
use super::rivals::fixed::Fixed;
use super::setting::Setting;
use crate::channel::capacity::Capacity;

/// Safety factors of the moving average. The best is chosen in hindsight for each kind of link.
pub const SAFETY_FACTORS: [f64; 14] =
    [0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9];
/// Factors on the gains of the proportional-integral controller, in addition to the ratio of the link's
/// rate to the authors'. The best is chosen in hindsight.
pub const PI_GAINS: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
/// Targets of the proportional-integral controller, as shares of the latency bound. The best is chosen in hindsight.
pub const PI_TARGETS: [f64; 5] = [0.4, 0.5, 0.6, 0.75, 0.9];

/// A policy that takes part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entrant {
    /// Mez's own policy.
    Quantile,
    /// The controller of the Mez paper, with the published gains scaled to the link's rate, and the latency bound as its target.
    Pi,
    /// The controller of the Mez paper, with the published gains and regression.
    PiPublished,
    /// The controller of the Mez paper, with gains multiplied by the first value. Its target is the second value's share of the bound.
    PiTuned(f64, f64),
    /// AWStream's policy, with one of its sets of constants.
    AwStream(Constants),
    /// The moving average with a safety factor.
    Ewma(f64),
    /// The moving average with a safety factor, where the rate also counts a frame's wait for the link.
    EwmaCountingWaits(f64),
    /// Always one rung.
    Fixed(usize),
    /// Always the best rung.
    Unadapted,
}

impl Entrant {
    /// All entrants, for a ladder of ten rungs.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Quantile, Self::Pi, Self::PiPublished];
        all.extend([Constants::NEWEST, Constants::EARLIER].map(Self::AwStream));
        all.extend([2, 5].map(Self::Fixed));
        all.push(Self::Unadapted);
        all.extend(PI_GAINS.iter().flat_map(|gain| PI_TARGETS.map(|target| Self::PiTuned(*gain, target))));
        all.extend(SAFETY_FACTORS.map(Self::Ewma));
        all.extend(SAFETY_FACTORS.map(Self::EwmaCountingWaits));
        all
    }

    /// The name in results. The part before an `@` names a policy that is tuned in hindsight.
    pub fn name(&self) -> String {
        match self {
            Self::Quantile => "quantile".into(),
            Self::Pi => "pi".into(),
            Self::PiPublished => "pi_published".into(),
            Self::PiTuned(gain, target) => format!("pi_hindsight@{gain}x{target}"),
            Self::AwStream(constants) => format!("awstream_{}", constants.name),
            Self::Ewma(safety) => format!("ewma_hindsight@{safety}"),
            Self::EwmaCountingWaits(safety) => format!("ewma_hindsight@{safety}+waits"),
            Self::Fixed(rung) => format!("fixed_{rung}"),
            Self::Unadapted => "none".into(),
        }
    }

    /// The policy for one camera of a setting.
    pub fn policy(&self, setting: &Setting) -> Box<dyn Policy> {
        match self {
            Self::Quantile => PolicyName::Quantile.policy(),
            Self::Pi => Box::new(Pi::new(pi_config(setting, 1.0, 1.0))),
            Self::PiPublished => PolicyName::Pi.policy(),
            Self::PiTuned(gain, target) => Box::new(Pi::new(pi_config(setting, *gain, *target))),
            Self::AwStream(constants) => Box::new(AwStream::new(*constants)),
            Self::Ewma(safety) => Box::new(Ewma::new(*safety)),
            Self::EwmaCountingWaits(safety) => Box::new(Ewma::counting_waits(*safety)),
            Self::Fixed(rung) => Box::new(Fixed::new(*rung)),
            Self::Unadapted => PolicyName::Unadapted.policy(),
        }
    }
}

/// The regression that the authors measured beforehand: latency as a linear function of size. Here it follows from the link's true mean rate, which
/// is better than any real measurement. Gains are in bytes per millisecond, so they scale with the rate.
fn pi_config(setting: &Setting, gain: f64, target_share: f64) -> pi::Config {
    let rate = mean_rate(&setting.capacity) / setting.cameras.len() as f64;
    let base_ms = setting.delay.as_secs_f64() * 1e3;
    let regression = Regression { base_ms, ms_per_kilobyte: 1e3 / rate };
    let gain_factor = gain * Regression::PUBLISHED.ms_per_kilobyte / regression.ms_per_kilobyte;
    pi::Config { regression, gain_factor, target_share, ..pi::Config::default() }
}

fn mean_rate(capacity: &Capacity) -> f64 {
    capacity.total() / capacity.ms() as f64
}
