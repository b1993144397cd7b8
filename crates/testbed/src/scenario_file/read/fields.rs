//! Reads single fields, and makes the errors about them.

use std::time::Duration;

use crate::footage::Footage;
use crate::scenario_file::Scenario;
use crate::world::DiskSpec;

/// The longest scenario: an hour of virtual time.
pub(super) const SECONDS_MAX: f64 = 3_600.0;

/// Why a file is not a scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not TOML, lacks a field, or has one that is unknown or of another type. The message names line and field.
    #[error("{0}")]
    Syntax(String),
    /// A field has a value that makes no sense.
    #[error("{field}: {problem}")]
    Field {
        /// The path of the field, such as `camera[0].link.megabits_per_second`.
        field: String,
        /// The problem, and what would be right.
        problem: String,
    },
}

pub(super) fn wrong<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError::Field { field: field.into(), problem: problem.into() })
}

/// `value`, if it lies between two bounds.
pub(super) fn within(field: &str, value: f64, least: f64, most: f64) -> Result<f64, ScenarioError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    wrong(field, format!("{value} is not between {least} and {most}"))
}

pub(super) fn milliseconds(field: &str, value: f64) -> Result<Duration, ScenarioError> {
    Ok(Duration::from_secs_f64(within(field, value, 0.0, SECONDS_MAX * 1e3)? / 1e3))
}

/// A log on disk of this many megabytes.
pub(super) fn disk(field: &str, megabytes: Option<f64>) -> Result<Option<DiskSpec>, ScenarioError> {
    let Some(megabytes) = megabytes else { return Ok(None) };
    let disk_bytes_max = (within(field, megabytes, 0.1, 1e3)? * 1e6) as u64;
    Ok(Some(DiskSpec { disk_bytes_max, segment_bytes: disk_bytes_max / 16, ..DiskSpec::default() }))
}

/// Built-in footage by its name.
pub(super) fn footage(field: &str, name: &str) -> Result<Footage, ScenarioError> {
    let known: Vec<&str> = Footage::known().map(|footage| footage.name).collect();
    Footage::named(name)
        .map_or_else(|| wrong(field, format!("there is no {name}; there are {}", known.join(", "))), Ok)
}

/// The index of a subscription by its name.
pub(super) fn place_of(field: &str, name: &str, scenario: &Scenario) -> Result<usize, ScenarioError> {
    let position = scenario.subscriptions.iter().position(|(other, _)| other == name);
    let field = format!("{field}.subscription");
    position.map_or_else(|| wrong(field, format!("{name:?} is no subscription of this scenario")), Ok)
}
