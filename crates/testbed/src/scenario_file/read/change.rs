//! Reads `[[change]]`.

use std::time::Duration;

use mez_core::name::CameraPattern;
use serde::Deserialize;

use super::fields::{ScenarioError, place_of, within, wrong};
use super::link::MEGABITS_MAX;
use crate::disk::Faults;
use crate::scenario_file::{Change, Happening, Scenario};
use crate::world::Counter;

/// A gradual change changes the rate at this interval, in seconds. A repeated change has at least this interval.
const STEP_S: f64 = 0.5;

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
pub(super) struct RawChange {
    at_s: f64,
    every_s: Option<f64>,
    camera: Option<String>,
    subscription: Option<String>,
    megabits_per_second: Option<f64>,
    over_s: Option<f64>,
    step_wall_clock_s: Option<i64>,
    fault: Option<RawFault>,
}

/// The cameras of a pattern, by index.
pub(super) fn cameras(field: &str, pattern: &str, scenario: &Scenario) -> Result<Vec<usize>, ScenarioError> {
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

/// The steps of a gradual change of links' rates: at most [`STEP_S`] apart, each by the same factor.
fn ramp(
    field: &str,
    (entry, at_s, over_s): (usize, f64, f64),
    happens: &[Happening],
    scenario: &Scenario,
) -> Result<Vec<Change>, ScenarioError> {
    let mut changes = Vec::new();
    let begin = Duration::from_secs_f64(at_s);
    for what in happens {
        let Happening::Rate(camera, to) = *what else {
            return wrong(format!("{field}.over_s"), "only megabits_per_second can change gradually");
        };
        let rates = scenario.changes.iter().filter(|change| change.at <= begin);
        let before = rates.filter_map(|change| match change.what {
            Happening::Rate(of, rate) if of == camera => Some((change.at, rate)),
            _ => None,
        });
        let from = before
            .max_by_key(|(at, _)| *at)
            .map_or(scenario.cameras[camera].1.link.bits_per_second, |(_, rate)| rate);
        if from == 0 || to == 0 {
            return wrong(
                format!("{field}.over_s"),
                "a link that carries nothing has no factor to change by; give a rate above 0",
            );
        }
        let steps = (over_s / STEP_S).ceil();
        let factor = (to as f64 / from as f64).powf(1.0 / steps);
        changes.extend((1..=steps as u64).map(|step| {
            let rate =
                if step as f64 == steps { to } else { (from as f64 * factor.powf(step as f64)) as u64 };
            let at = begin + Duration::from_secs_f64(over_s * step as f64 / steps);
            Change { entry, at, what: Happening::Rate(camera, rate) }
        }));
    }
    Ok(changes)
}

impl RawChange {
    pub(super) fn happenings(&self, entry: usize, scenario: &Scenario) -> Result<Vec<Change>, ScenarioError> {
        let field = &*format!("change[{entry}]");
        let length_s = scenario.length.as_secs_f64();
        let at_s = within(&format!("{field}.at_s"), self.at_s, 0.0, length_s)?;
        let asked =
            [self.fault.is_some(), self.megabits_per_second.is_some(), self.step_wall_clock_s.is_some()];
        if asked.iter().filter(|asked| **asked).count() != 1 {
            return wrong(field, "give exactly one of fault, megabits_per_second, step_wall_clock_s");
        }
        let happens = self.happens(field, scenario)?;
        let at_s = match (self.every_s, self.over_s) {
            (None, None) => vec![at_s],
            (Some(every), None) => {
                let every_s = within(&format!("{field}.every_s"), every, STEP_S, length_s)?;
                let times = ((length_s - at_s) / every_s) as u64;
                (0..=times).map(|time| at_s + every_s * time as f64).collect()
            }
            (None, Some(over)) => {
                let over_s = within(&format!("{field}.over_s"), over, STEP_S, length_s - at_s)?;
                return ramp(field, (entry, at_s, over_s), &happens, scenario);
            }
            (Some(_), Some(_)) => return wrong(field, "give either every_s or over_s"),
        };
        let happens = &happens;
        let all = at_s.into_iter().flat_map(|at_s| {
            let at = Duration::from_secs_f64(at_s);
            happens.iter().map(move |what| Change { entry, at, what: *what })
        });
        Ok(all.collect())
    }

    /// The happenings of one occurrence of the change.
    fn happens(&self, field: &str, scenario: &Scenario) -> Result<Vec<Happening>, ScenarioError> {
        let of_cameras = |what: &dyn Fn(usize) -> Happening| {
            let Some(pattern) = &self.camera else {
                return wrong(field, "this change needs a `camera`: a name, or a pattern such as \"dock/*\"");
            };
            let named = cameras(&format!("{field}.camera"), pattern, scenario)?;
            Ok(named.into_iter().map(what).collect())
        };
        if let Some(rate) = self.megabits_per_second {
            // At rate 0 nothing passes, and bytes in the network's queue stay there.
            let least = if rate == 0.0 { 0.0 } else { 0.01 };
            let rate = within(&format!("{field}.megabits_per_second"), rate, least, MEGABITS_MAX)?;
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
            Ok(vec![what(place_of(field, name, scenario)?)])
        };
        let of_all = |what: Happening| Ok(vec![what]);
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
