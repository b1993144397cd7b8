//! Reads what a file says, and makes a scenario of it. Anything that makes no sense is an error that names the field.

mod camera;
mod change;
mod expectation;
mod link;
mod subscription;
#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::time::Duration;

use mez_core::controller::share::{Channels, DeclaredChannel};
use serde::Deserialize;

use self::camera::RawCamera;
use self::change::RawChange;
use self::expectation::RawExpectation;
use self::link::RawLink;
use self::subscription::RawSubscription;
use super::{Scenario, Sharing};
use crate::footage::Footage;
use crate::world::DiskSpec;

/// The longest scenario: an hour of virtual time.
const SECONDS_MAX: f64 = 3_600.0;
/// The most cameras, subscriptions, changes and expectations each.
const ENTRIES_MAX: usize = 1_000;

/// Why a file is not a scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// It is no TOML, lacks a field, or has one that is not known or of another type. The message names line and field.
    #[error("{0}")]
    Syntax(String),
    /// A field has a value that makes no sense.
    #[error("{field}: {problem}")]
    Field {
        /// Where, as `camera[0].link.megabits_per_second`.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

fn wrong<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, ScenarioError> {
    Err(ScenarioError::Field { field: field.into(), problem: problem.into() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    seed: u64,
    seconds: f64,
    edge_disk_megabytes: Option<f64>,
    #[serde(default)]
    codecs_fail: bool,
    #[serde(default)]
    edge_channels: Vec<String>,
    #[serde(default)]
    link: RawLink,
    #[serde(default)]
    camera: Vec<RawCamera>,
    #[serde(default)]
    subscription: Vec<RawSubscription>,
    #[serde(default)]
    change: Vec<RawChange>,
    #[serde(default)]
    expect: Vec<RawExpectation>,
}

/// `value`, if it lies between two bounds.
fn within(field: &str, value: f64, least: f64, most: f64) -> Result<f64, ScenarioError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    wrong(field, format!("{value} is not between {least} and {most}"))
}

fn milliseconds(field: &str, value: f64) -> Result<Duration, ScenarioError> {
    Ok(Duration::from_secs_f64(within(field, value, 0.0, SECONDS_MAX * 1e3)? / 1e3))
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let raw: RawScenario =
            toml::from_str(text).map_err(|error| ScenarioError::Syntax(error.to_string()))?;
        let length = Duration::from_secs_f64(within("seconds", raw.seconds, 0.1, SECONDS_MAX)?);
        for (field, entries) in [
            ("camera", raw.camera.len()),
            ("subscription", raw.subscription.len()),
            ("change", raw.change.len()),
            ("expect", raw.expect.len()),
        ] {
            if entries > ENTRIES_MAX {
                return wrong(field, format!("{entries} entries; {ENTRIES_MAX} are the most"));
            }
        }
        if raw.camera.is_empty() {
            return wrong("camera", "a scenario needs at least one [[camera]]");
        }
        let mut scenario = Self {
            name: raw.name,
            about: raw.about,
            seed: raw.seed,
            length,
            edge_disk: disk("edge_disk_megabytes", raw.edge_disk_megabytes)?,
            codecs_fail: raw.codecs_fail,
            declared: channels(&raw.edge_channels)?,
            cameras: Vec::new(),
            channels: Vec::new(),
            shared: None,
            subscriptions: Vec::new(),
            profiles: Vec::new(),
            changes: Vec::new(),
            expectations: Vec::new(),
        };
        for (index, camera) in raw.camera.iter().enumerate() {
            let field = format!("camera[{index}]");
            if scenario.cameras.iter().any(|(name, _)| *name == camera.name) {
                return wrong(format!("{field}.name"), format!("{:?} is there twice", camera.name));
            }
            scenario.cameras.push((camera.name.clone(), camera.spec(&field, &raw.link)?));
            let field = format!("{field}.link");
            scenario.channels.push(camera.link.channel(&field, &raw.link)?);
            scenario.share(camera.link.sharing(&field, &raw.link)?, &field, index)?;
        }
        for (index, subscription) in raw.subscription.iter().enumerate() {
            let field = format!("subscription[{index}]");
            if scenario.subscriptions.iter().any(|(name, _)| *name == subscription.name) {
                return wrong(format!("{field}.name"), format!("{:?} is there twice", subscription.name));
            }
            let spec = subscription.spec(&field)?;
            change::cameras(&format!("{field}.cameras"), &spec.cameras, &scenario)?;
            scenario.subscriptions.push((subscription.name.clone(), spec));
            scenario.profiles.push(subscription.profile(&field)?);
        }
        for (entry, change) in raw.change.iter().enumerate() {
            let changes = change.happenings(entry, &scenario)?;
            scenario.changes.extend(changes);
        }
        for (index, expectation) in raw.expect.iter().enumerate() {
            let expectation = expectation.expectation(&format!("expect[{index}]"), &scenario)?;
            scenario.expectations.push(expectation);
        }
        Ok(scenario)
    }
}

impl Scenario {
    /// A camera's link is one of those that share something.
    fn share(&mut self, sharing: Option<Sharing>, field: &str, camera: usize) -> Result<(), ScenarioError> {
        let Some(sharing) = sharing else { return Ok(()) };
        let (known, cameras) = self.shared.get_or_insert_with(|| (sharing, Vec::new()));
        if *known != sharing {
            return wrong(
                format!("{field}.shared"),
                "a scenario has one shared medium; another camera shares another",
            );
        }
        let first = cameras.first().map_or(camera, |first| *first);
        if sharing == Sharing::Queue
            && self.cameras[first].1.link.bits_per_second != self.cameras[camera].1.link.bits_per_second
        {
            return wrong(
                format!("{field}.megabits_per_second"),
                "cameras that share a queue have one rate together; give it in [link]",
            );
        }
        cameras.push(camera);
        Ok(())
    }
}

/// The channels that are declared to the edge.
fn channels(raw: &[String]) -> Result<Channels, ScenarioError> {
    let channels = raw.iter().map(|text| text.parse()).collect::<Result<Vec<DeclaredChannel>, _>>();
    channels.and_then(Channels::new).or_else(|error| wrong("edge_channels", error.to_string()))
}

/// A log on disk of this many megabytes.
fn disk(field: &str, megabytes: Option<f64>) -> Result<Option<DiskSpec>, ScenarioError> {
    let Some(megabytes) = megabytes else { return Ok(None) };
    let disk_bytes_max = (within(field, megabytes, 0.1, 1e3)? * 1e6) as u64;
    Ok(Some(DiskSpec { disk_bytes_max, segment_bytes: disk_bytes_max / 16, ..DiskSpec::default() }))
}

/// Built-in footage by its name.
fn footage(field: &str, name: &str) -> Result<Footage, ScenarioError> {
    let known: Vec<&str> = Footage::ALL.iter().map(|footage| footage.name).collect();
    Footage::named(name)
        .map_or_else(|| wrong(field, format!("there is no {name}; there are {}", known.join(", "))), Ok)
}

/// The place of a subscription by its name.
fn place_of(field: &str, name: &str, scenario: &Scenario) -> Result<usize, ScenarioError> {
    let position = scenario.subscriptions.iter().position(|(other, _)| other == name);
    let field = format!("{field}.subscription");
    position.map_or_else(|| wrong(field, format!("{name:?} is no subscription of this scenario")), Ok)
}
