//! Finds policies by the names that users give in the configuration.

use std::fmt;
use std::str::FromStr;

use super::Policy;
use super::baselines::awstream::{AwStream, Constants};
use super::baselines::none::Unadapted;
use super::baselines::pi::{self, Pi};
use super::quantile::{self, Quantile};

/// The policy of a camera. Default [`PolicyName::Quantile`]; the others exist for comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyName {
    /// Mez's own policy.
    #[default]
    Quantile,
    /// The controller of the Mez paper, with its published gains.
    Pi,
    /// The controller of AWStream, with its newest constants.
    AwStream,
    /// No adaptation: every frame is sent at the best rung.
    Unadapted,
}

impl PolicyName {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Quantile, Self::Pi, Self::AwStream, Self::Unadapted];

    /// The name that users see. Equals [`Policy::name`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quantile => "quantile",
            Self::Pi => "pi",
            Self::AwStream => "awstream",
            Self::Unadapted => "none",
        }
    }

    /// A policy of this name that knows nothing about its link yet.
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Quantile => Box::new(Quantile::new(quantile::Config::default())),
            Self::Pi => Box::new(Pi::new(pi::Config::default())),
            Self::AwStream => Box::new(AwStream::new(Constants::NEWEST)),
            Self::Unadapted => Box::new(Unadapted),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {0:?}; use quantile, pi, awstream or none")]
pub struct UnknownPolicy(String);

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| UnknownPolicy(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_found_by_the_name_that_it_has() {
        for name in PolicyName::ALL {
            assert_eq!(name.policy().name(), name.name());
            assert_eq!(name.name().parse(), Ok(name));
            assert!(UnknownPolicy("x".into()).to_string().contains(name.name()));
        }
        assert!("oracle".parse::<PolicyName>().is_err());
    }
}
