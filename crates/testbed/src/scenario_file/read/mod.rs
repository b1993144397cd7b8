//! Parses a scenario file into a scenario. A value that makes no sense is an error that names the field.

mod camera;
mod change;
mod expectation;
mod fields;
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
pub use self::fields::ScenarioError;
use self::fields::{SECONDS_MAX, disk, within, wrong};
use self::link::RawLink;
use self::subscription::RawSubscription;
use super::{Scenario, Sharing};

/// The most entries of each kind: cameras, subscriptions, changes and expectations.
const ENTRIES_MAX: usize = 1_000;

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
    /// Notes that a camera's link shares a medium.
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

/// The channels declared to the edge.
fn channels(raw: &[String]) -> Result<Channels, ScenarioError> {
    let channels = raw.iter().map(|text| text.parse()).collect::<Result<Vec<DeclaredChannel>, _>>();
    channels.and_then(Channels::new).or_else(|error| wrong("edge_channels", error.to_string()))
}
