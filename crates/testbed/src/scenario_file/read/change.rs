//! Reads `[[change]]`.

use std::time::Duration;

use mez_core::name::CameraPattern;
use serde::Deserialize;

use super::link::MEGABITS_MAX;
use super::{ScenarioError, place_of, within, wrong};
use crate::disk::Faults;
use crate::scenario_file::{Change, Happening, Scenario};
use crate::world::Counter;

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
    camera: Option<String>,
    subscription: Option<String>,
    megabits_per_second: Option<f64>,
    step_wall_clock_s: Option<i64>,
    fault: Option<RawFault>,
}

/// The cameras that a pattern names.
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

impl RawChange {
    pub(super) fn happenings(&self, entry: usize, scenario: &Scenario) -> Result<Vec<Change>, ScenarioError> {
        let field = &*format!("change[{entry}]");
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
            let named = cameras(&format!("{field}.camera"), pattern, scenario)?;
            Ok(named.into_iter().map(|camera| Change { entry, at, what: what(camera) }).collect())
        };
        if let Some(rate) = self.megabits_per_second {
            // At 0 nothing passes, and what waits in the network's queue stays there.
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
            Ok(vec![Change { entry, at, what: what(place_of(field, name, scenario)?) }])
        };
        let of_all = |what: Happening| Ok(vec![Change { entry, at, what }]);
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
