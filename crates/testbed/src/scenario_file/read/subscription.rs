//! Reads `[[subscription]]`.

use mez_core::contract::{Contract, ContractError};
use mez_core::name::CameraPattern;
use serde::Deserialize;

use super::fields::{ScenarioError, footage, milliseconds, wrong};
use crate::footage::Footage;
use crate::world::ApplicationSpec;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSubscription {
    pub(super) name: String,
    cameras: String,
    deliver: Option<RawDeliver>,
    consumes_ms: Option<f64>,
    latency_ms: Option<f64>,
    accuracy: Option<f64>,
    profile: Option<String>,
    priority: Option<i32>,
    quality: Option<RawQuality>,
    #[serde(default)]
    replies: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawDeliver {
    Newest,
    Every,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawQuality {
    Original,
}

impl RawSubscription {
    /// The footage whose profile the subscription names.
    pub(super) fn profile(&self, field: &str) -> Result<Option<Footage>, ScenarioError> {
        let field = format!("{field}.profile");
        let Some(name) = &self.profile else { return Ok(None) };
        let footage = footage(&field, name)?;
        match footage.profile() {
            Some(_) => Ok(Some(footage)),
            None => wrong(field, format!("the accuracies of {name} were not measured, so it has no profile")),
        }
    }

    pub(super) fn spec(&self, field: &str) -> Result<ApplicationSpec, ScenarioError> {
        if let Err(error) = self.cameras.parse::<CameraPattern>() {
            return wrong(format!("{field}.cameras"), error.to_string());
        }
        let mut spec = match self.deliver.unwrap_or(RawDeliver::Newest) {
            RawDeliver::Newest => ApplicationSpec::newest(&self.cameras),
            RawDeliver::Every => ApplicationSpec::every(&self.cameras),
        };
        if let Some(RawQuality::Original) = self.quality {
            if self.accuracy.is_some() || matches!(self.deliver, Some(RawDeliver::Every)) {
                let text =
                    "originals come as they are, the newest: leave out accuracy and deliver = \"every\"";
                return wrong(format!("{field}.quality"), text);
            }
            spec = ApplicationSpec::originals(&self.cameras);
        }
        if let Some(consumes) = self.consumes_ms {
            spec.consumes = milliseconds(&format!("{field}.consumes_ms"), consumes)?;
        }
        let latency_bound = match self.latency_ms {
            Some(latency) => Some(milliseconds(&format!("{field}.latency_ms"), latency)?),
            None => None,
        };
        let (accuracy_floor, priority) = (self.accuracy, self.priority.unwrap_or(0));
        spec.contract = Contract { latency_bound, accuracy_floor, priority, ..Contract::default() };
        if let Err(error) = spec.contract.validate() {
            let named = match error {
                ContractError::LatencyBound => "latency_ms",
                ContractError::AccuracyFloor { .. } => "accuracy",
                ContractError::OnTimeShare { .. } | ContractError::MinFps { .. } => "contract",
            };
            return wrong(format!("{field}.{named}"), error.to_string());
        }
        spec.replies = self.replies;
        Ok(spec)
    }
}
