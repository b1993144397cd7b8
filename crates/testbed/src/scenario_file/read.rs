//! What a file may say, and how it becomes a scenario. Whatever makes no sense is an error that names the field.

use std::str::FromStr;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::controller::share::{Channels, DeclaredChannel};
use mez_core::name::{CameraName, CameraPattern};
use serde::Deserialize;

use super::{Change, Expectation, Happening, Scenario, Sharing};
use crate::channel::links::Kind;
use crate::disk::Faults;
use crate::footage::Footage;
use crate::link::LinkSpec;
use crate::world::{ApplicationSpec, CameraSpec, Counter, DiskSpec};

/// The longest scenario: an hour of virtual time.
const SECONDS_MAX: f64 = 3_600.0;
/// The most cameras, subscriptions, changes and expectations each.
const ENTRIES_MAX: usize = 1_000;
/// The fastest camera, in frames per second, and the largest frame, in bytes.
const FRAMES_PER_SECOND_MAX: f64 = 1_000.0;
const FRAME_BYTES_MAX: f64 = crate::PAYLOAD_BYTES_MAX as f64;
/// The fastest link.
const MEGABITS_MAX: f64 = 100_000.0;

/// Why a file is no scenario.
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

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    megabits_per_second: Option<f64>,
    channel: Option<String>,
    shared: Option<String>,
    one_way_delay_ms: Option<f64>,
    queue_kilobytes: Option<f64>,
    lost_once_in: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCamera {
    name: String,
    footage: Option<String>,
    frames_per_second: Option<f64>,
    jitter_ms: Option<f64>,
    frame_kilobytes: Option<[f64; 2]>,
    log_megabytes: Option<f64>,
    disk_megabytes: Option<f64>,
    #[serde(default)]
    link: RawLink,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSubscription {
    name: String,
    cameras: String,
    deliver: Option<RawDeliver>,
    consumes_ms: Option<f64>,
    latency_ms: Option<f64>,
    accuracy: Option<f64>,
    profile: Option<String>,
    priority: Option<i32>,
    #[serde(default)]
    replies: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawDeliver {
    Newest,
    Every,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum RawFault {
    Cut,
    Restore,
    Break,
    KillCamera,
    StartCamera,
    StartCameraWithoutItsLastWrite,
    StartCameraWithoutCounter,
    FreezeCamera,
    ThawCamera,
    CutPowerOfCamera,
    FillDiskOfCamera,
    BreakDiskOfCamera,
    MendDiskOfCamera,
    CutPowerOfEdge,
    Silence,
    Publish,
    KillEdge,
    StartEdge,
    FreezeEdge,
    ThawEdge,
    Stall,
    Resume,
    Subscribe,
    Unsubscribe,
    Heal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChange {
    at_s: f64,
    camera: Option<String>,
    subscription: Option<String>,
    megabits_per_second: Option<f64>,
    step_wall_clock_s: Option<i64>,
    fault: Option<RawFault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpectation {
    subscription: String,
    camera: Option<String>,
    from_s: Option<f64>,
    until_s: Option<f64>,
    frames_min: Option<u64>,
    frames_max: Option<u64>,
    age_ms_p50_max: Option<f64>,
    age_ms_p95_max: Option<f64>,
    gap_ms_max: Option<f64>,
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
            scenario.subscriptions.push((subscription.name.clone(), subscription.spec(&field)?));
            scenario.profiles.push(subscription.profile(&field)?);
        }
        for (index, change) in raw.change.iter().enumerate() {
            let changes = change.happenings(&format!("change[{index}]"), &scenario)?;
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

/// What the edge is told of channels.
fn channels(raw: &[String]) -> Result<Channels, ScenarioError> {
    let channels = raw.iter().map(|text| text.parse()).collect::<Result<Vec<DeclaredChannel>, _>>();
    channels.and_then(Channels::new).or_else(|error| wrong("edge_channels", error.to_string()))
}

/// A log on disk of so many megabytes.
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

impl RawLink {
    /// A link as it says, and where it does not, as `others` says.
    fn spec(&self, field: &str, others: &Self) -> Result<LinkSpec, ScenarioError> {
        let mut spec = LinkSpec::default();
        if let Some(rate) = self.megabits_per_second.or(others.megabits_per_second) {
            let rate = within(&format!("{field}.megabits_per_second"), rate, 0.01, MEGABITS_MAX)?;
            spec.bits_per_second = (rate * 1e6) as u64;
        }
        if let Some(delay) = self.one_way_delay_ms.or(others.one_way_delay_ms) {
            let delay = milliseconds(&format!("{field}.one_way_delay_ms"), delay)?;
            (spec.delay_up, spec.delay_down) = (delay, delay);
        }
        if let Some(queue) = self.queue_kilobytes.or(others.queue_kilobytes) {
            let queue = within(&format!("{field}.queue_kilobytes"), queue, 2.0, 1e6)?;
            spec.queue_bytes_max = (queue * 1e3) as u64;
        }
        if let Some(once_in) = self.lost_once_in.or(others.lost_once_in) {
            if once_in == 1 {
                return wrong(format!("{field}.lost_once_in"), "1 loses everything; 0 loses nothing");
            }
            spec.lost_once_in = once_in;
        }
        Ok(spec)
    }

    /// What it shares with the links of other cameras. A link with a channel of its own shares nothing.
    fn sharing(&self, field: &str, others: &Self) -> Result<Option<Sharing>, ScenarioError> {
        if self.shared.is_some() && self.channel.is_some()
            || others.shared.is_some() && others.channel.is_some()
        {
            return wrong(format!("{field}.shared"), "give either a channel of its own or something shared");
        }
        let others = others.shared.as_ref().filter(|_| self.channel.is_none());
        let Some(name) = self.shared.as_ref().or(others) else { return Ok(None) };
        let known: Vec<&str> = Sharing::ALL.iter().map(|(name, _)| *name).collect();
        match Sharing::ALL.iter().find(|(known, _)| known == name) {
            Some((_, sharing)) => Ok(Some(*sharing)),
            None => wrong(
                format!("{field}.shared"),
                format!("there is no {name}; there are {}", known.join(", ")),
            ),
        }
    }

    /// What it carries, if that is drawn. A rate of its own keeps a camera from the channel of the others.
    fn channel(&self, field: &str, others: &Self) -> Result<Option<Kind>, ScenarioError> {
        if self.megabits_per_second.is_some() && self.channel.is_some() {
            return wrong(format!("{field}.channel"), "give either a channel or megabits_per_second");
        }
        let own = self.megabits_per_second.is_some() || self.shared.is_some();
        let others = others.channel.as_ref().filter(|_| !own);
        let Some(name) = self.channel.as_ref().or(others) else { return Ok(None) };
        let known: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
        match Kind::named(name) {
            Some(kind) => Ok(Some(kind)),
            None => wrong(
                format!("{field}.channel"),
                format!("there is no {name}; there are {}", known.join(", ")),
            ),
        }
    }
}

impl RawCamera {
    fn spec(&self, field: &str, link: &RawLink) -> Result<CameraSpec, ScenarioError> {
        if let Err(error) = self.name.parse::<CameraName>() {
            return wrong(format!("{field}.name"), error.to_string());
        }
        let filmed = match &self.footage {
            Some(name) => CameraSpec::filming(footage(&format!("{field}.footage"), name)?),
            None => CameraSpec::default(),
        };
        let mut spec = CameraSpec { link: self.link.spec(&format!("{field}.link"), link)?, ..filmed };
        if let Some(rate) = self.frames_per_second {
            let rate = within(&format!("{field}.frames_per_second"), rate, 0.01, FRAMES_PER_SECOND_MAX)?;
            spec.interval = Duration::from_secs_f64(1.0 / rate);
        }
        if let Some(jitter) = self.jitter_ms {
            spec.jitter = milliseconds(&format!("{field}.jitter_ms"), jitter)?;
        }
        if let Some([least, most]) = self.frame_kilobytes {
            let field = format!("{field}.frame_kilobytes");
            within(&field, least, 0.1, FRAME_BYTES_MAX / 1e3)?;
            within(&field, most, least, FRAME_BYTES_MAX / 1e3)?;
            spec.frame_bytes = (least * 1e3) as u32..=(most * 1e3) as u32;
        }
        if let Some(log) = self.log_megabytes {
            let log = within(&format!("{field}.log_megabytes"), log, 1.0, 1e5)?;
            spec.log_bytes_max = (log * 1e6) as u64;
        }
        spec.disk = disk(&format!("{field}.disk_megabytes"), self.disk_megabytes)?;
        Ok(spec)
    }
}

impl RawSubscription {
    /// The footage whose profile it names.
    fn profile(&self, field: &str) -> Result<Option<Footage>, ScenarioError> {
        let field = format!("{field}.profile");
        let Some(name) = &self.profile else { return Ok(None) };
        let footage = footage(&field, name)?;
        match footage.profile() {
            Some(_) => Ok(Some(footage)),
            None => wrong(field, format!("the accuracies of {name} were not measured, so it has no profile")),
        }
    }

    fn spec(&self, field: &str) -> Result<ApplicationSpec, ScenarioError> {
        if let Err(error) = self.cameras.parse::<CameraPattern>() {
            return wrong(format!("{field}.cameras"), error.to_string());
        }
        let mut spec = match self.deliver.unwrap_or(RawDeliver::Newest) {
            RawDeliver::Newest => ApplicationSpec::newest(&self.cameras),
            RawDeliver::Every => ApplicationSpec::every(&self.cameras),
        };
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
            return wrong(field, error.to_string());
        }
        spec.replies = self.replies;
        Ok(spec)
    }
}

/// The cameras that a pattern names.
fn cameras(field: &str, pattern: &str, scenario: &Scenario) -> Result<Vec<usize>, ScenarioError> {
    let field = format!("{field}.camera");
    let parsed: CameraPattern = match pattern.parse() {
        Ok(parsed) => parsed,
        Err(error) => return wrong(field, format!("{error}")),
    };
    let named: Vec<usize> = (0..scenario.cameras.len())
        .filter(|index| scenario.cameras[*index].0.parse().is_ok_and(|name| parsed.matches(&name)))
        .collect();
    if named.is_empty() {
        return wrong(field, format!("{pattern:?} names no camera of this scenario"));
    }
    Ok(named)
}

fn subscription(field: &str, name: &str, scenario: &Scenario) -> Result<usize, ScenarioError> {
    let position = scenario.subscriptions.iter().position(|(other, _)| other == name);
    let field = format!("{field}.subscription");
    position.map_or_else(|| wrong(field, format!("{name:?} is no subscription of this scenario")), Ok)
}

impl RawChange {
    fn happenings(&self, field: &str, scenario: &Scenario) -> Result<Vec<Change>, ScenarioError> {
        let at_s = within(&format!("{field}.at_s"), self.at_s, 0.0, scenario.length.as_secs_f64())?;
        let at = Duration::from_secs_f64(at_s);
        let asked =
            [self.fault.is_some(), self.megabits_per_second.is_some(), self.step_wall_clock_s.is_some()];
        if asked.iter().filter(|asked| **asked).count() != 1 {
            return wrong(field, "give exactly one of fault, megabits_per_second, step_wall_clock_s");
        }
        let of_cameras = |what: &dyn Fn(usize) -> Happening| {
            let Some(pattern) = &self.camera else {
                return wrong(field, "this change needs a `camera`: a name, or a pattern such as \"dock/*\"");
            };
            let named = cameras(field, pattern, scenario)?;
            Ok(named.into_iter().map(|camera| Change { at, what: what(camera) }).collect())
        };
        if let Some(rate) = self.megabits_per_second {
            let rate = within(&format!("{field}.megabits_per_second"), rate, 0.01, MEGABITS_MAX)?;
            return of_cameras(&|camera| Happening::Rate(camera, (rate * 1e6) as u64));
        }
        if let Some(seconds) = self.step_wall_clock_s {
            if seconds.abs() > 1_000_000 {
                return wrong(format!("{field}.step_wall_clock_s"), "more than a million seconds");
            }
            return of_cameras(&|camera| Happening::StepWallOfCamera(camera, seconds));
        }
        let Some(fault) = self.fault else { return Ok(Vec::new()) };
        let of_subscription = |what: fn(usize) -> Happening| {
            let Some(name) = &self.subscription else {
                return wrong(field, "this change needs a `subscription`");
            };
            Ok(vec![Change { at, what: what(subscription(field, name, scenario)?) }])
        };
        let of_all = |what: Happening| Ok(vec![Change { at, what }]);
        match fault {
            RawFault::Cut => of_cameras(&Happening::Cut),
            RawFault::Restore => of_cameras(&Happening::Restore),
            RawFault::Break => of_cameras(&Happening::Break),
            RawFault::KillCamera => of_cameras(&Happening::KillCamera),
            RawFault::StartCamera => of_cameras(&|camera| Happening::StartCamera(camera, Counter::Kept)),
            RawFault::StartCameraWithoutItsLastWrite => {
                of_cameras(&|camera| Happening::StartCamera(camera, Counter::LastWriteLost))
            }
            RawFault::StartCameraWithoutCounter => {
                of_cameras(&|camera| Happening::StartCamera(camera, Counter::Lost))
            }
            RawFault::FreezeCamera => of_cameras(&Happening::FreezeCamera),
            RawFault::ThawCamera => of_cameras(&Happening::ThawCamera),
            RawFault::CutPowerOfCamera => of_cameras(&Happening::CutPowerOfCamera),
            RawFault::FillDiskOfCamera => of_cameras(&|camera| {
                Happening::DiskOfCamera(camera, Faults { full: true, ..Faults::default() })
            }),
            RawFault::BreakDiskOfCamera => of_cameras(&|camera| {
                Happening::DiskOfCamera(camera, Faults { stuck: true, ..Faults::default() })
            }),
            RawFault::MendDiskOfCamera => {
                of_cameras(&|camera| Happening::DiskOfCamera(camera, Faults::default()))
            }
            RawFault::CutPowerOfEdge => of_all(Happening::CutPowerOfEdge),
            RawFault::Silence => of_cameras(&Happening::SilenceCamera),
            RawFault::Publish => of_cameras(&Happening::PublishCamera),
            RawFault::KillEdge => of_all(Happening::KillEdge),
            RawFault::StartEdge => of_all(Happening::StartEdge),
            RawFault::FreezeEdge => of_all(Happening::FreezeEdge),
            RawFault::ThawEdge => of_all(Happening::ThawEdge),
            RawFault::Heal => of_all(Happening::Heal),
            RawFault::Stall => of_subscription(Happening::Stall),
            RawFault::Resume => of_subscription(Happening::Resume),
            RawFault::Subscribe => of_subscription(Happening::Subscribe),
            RawFault::Unsubscribe => of_subscription(Happening::Unsubscribe),
        }
    }
}

impl RawExpectation {
    fn expectation(&self, field: &str, scenario: &Scenario) -> Result<Expectation, ScenarioError> {
        let length_s = scenario.length.as_secs_f64();
        let from_s = within(&format!("{field}.from_s"), self.from_s.unwrap_or(0.0), 0.0, length_s)?;
        let until_s =
            within(&format!("{field}.until_s"), self.until_s.unwrap_or(length_s), from_s, length_s)?;
        if let Some(camera) = &self.camera
            && !scenario.cameras.iter().any(|(name, _)| name == camera)
        {
            return wrong(format!("{field}.camera"), format!("{camera:?} is no camera of this scenario"));
        }
        let duration = |name: &str, value: Option<f64>| match value {
            Some(value) => milliseconds(&format!("{field}.{name}"), value).map(Some),
            None => Ok(None),
        };
        let expectation = Expectation {
            subscription: subscription(field, &self.subscription, scenario)?,
            camera: self.camera.clone(),
            from: Duration::from_secs_f64(from_s),
            until: Duration::from_secs_f64(until_s),
            frames_min: self.frames_min,
            frames_max: self.frames_max,
            age_p50_max: duration("age_ms_p50_max", self.age_ms_p50_max)?,
            age_p95_max: duration("age_ms_p95_max", self.age_ms_p95_max)?,
            gap_max: duration("gap_ms_max", self.gap_ms_max)?,
        };
        let Expectation { frames_min, frames_max, age_p50_max, age_p95_max, gap_max, .. } = &expectation;
        if frames_min.or(*frames_max).is_none() && age_p50_max.or(*age_p95_max).or(*gap_max).is_none() {
            return wrong(
                field,
                "nothing is expected; give frames_min, frames_max, age_ms_p50_max, age_ms_p95_max or gap_ms_max",
            );
        }
        Ok(expectation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "name = \"x\"\nseconds = 5\n[[camera]]\nname = \"dock/cam1\"\n[[subscription]]\nname = \"s\"\ncameras = \"**\"\n";

    fn error(more: &str) -> String {
        format!("{SOUND}{more}").parse::<Scenario>().expect_err("it makes no sense").to_string()
    }

    #[test]
    fn what_makes_no_sense_is_named_by_its_field() {
        SOUND.parse::<Scenario>().expect("this does");
        let told = format!("edge_channels = [\"hall:fair=**\"]\n{SOUND}").parse::<Scenario>();
        let told = told.expect_err("there is no such goal").to_string();
        assert!(
            told.starts_with("edge_channels: the channel hall has the goal \"fair\"; there are"),
            "{told}"
        );
        for (more, part) in [
            ("[[camera]]\nname = \"dock/cam1\"\n", "camera[1].name: \"dock/cam1\" is there twice"),
            ("[[camera]]\nname = \"a b\"\n", "camera[1].name"),
            (
                "[[camera]]\nname = \"c\"\nframe_kilobytes = [9, 3]\n",
                "camera[1].frame_kilobytes: 3 is not between 9",
            ),
            ("[[camera]]\nname = \"c\"\nlink = { channel = \"tin_cans\" }\n", "camera[1].link.channel"),
            (
                "[[camera]]\nname = \"c\"\nlink = { megabits_per_second = 0 }\n",
                "camera[1].link.megabits_per_second",
            ),
            ("[[camera]]\nname = \"c\"\nfps = 3\n", "unknown field `fps`"),
            (
                "[[camera]]\nname = \"c\"\nfootage = \"cats\"\n",
                "camera[1].footage: there is no cats; there are pedestrians",
            ),
            (
                "[[camera]]\nname = \"c\"\nlink = { shared = \"string\" }\n",
                "camera[1].link.shared: there is no string; there are queue",
            ),
            (
                "[[camera]]\nname = \"c\"\nlink = { shared = \"wifi\", channel = \"calm\" }\n",
                "camera[1].link.shared: give either a channel",
            ),
            (
                "[[camera]]\nname = \"c\"\nlink = { shared = \"wifi\" }\n[[camera]]\nname = \"d\"\nlink = { shared = \"queue\" }\n",
                "camera[2].link.shared: a scenario has one shared medium",
            ),
            (
                "[[subscription]]\nname = \"t\"\ncameras = \"**\"\nprofile = \"panning_720p\"\n",
                "subscription[1].profile: the accuracies of panning_720p were not measured",
            ),
            (
                "[[change]]\nat_s = 9\nfault = \"cut\"\ncamera = \"**\"\n",
                "change[0].at_s: 9 is not between 0 and 5",
            ),
            ("[[change]]\nat_s = 1\nfault = \"cut\"\n", "change[0]: this change needs a `camera`"),
            (
                "[[change]]\nat_s = 1\nfault = \"cut\"\ncamera = \"yard/*\"\n",
                "change[0].camera: \"yard/*\" names no camera",
            ),
            ("[[change]]\nat_s = 1\ncamera = \"**\"\n", "change[0]: give exactly one of"),
            ("[[change]]\nat_s = 1\nfault = \"explode\"\n", "unknown variant `explode`"),
            (
                "[[expect]]\nsubscription = \"t\"\nframes_min = 1\n",
                "expect[0].subscription: \"t\" is no subscription",
            ),
            ("[[expect]]\nsubscription = \"s\"\n", "expect[0]: nothing is expected"),
            (
                "[[expect]]\nsubscription = \"s\"\nfrom_s = 3\nuntil_s = 2\nframes_min = 1\n",
                "expect[0].until_s",
            ),
        ] {
            let error = error(more);
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
        let error = "name = \"x\"\nseconds = 5\n".parse::<Scenario>().expect_err("no camera").to_string();
        assert!(error.contains("at least one [[camera]]"), "{error}");
        let error =
            "name = \"x\"\nseconds = \"long\"\n".parse::<Scenario>().expect_err("no number").to_string();
        assert!(error.contains("line 2") && error.contains("seconds"), "{error}");
    }
}
