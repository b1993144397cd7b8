//! Reads `[[expect]]`.

use std::time::Duration;

use serde::Deserialize;

use super::fields::{ScenarioError, milliseconds, place_of, within, wrong};
use crate::scenario_file::{Expectation, Scenario};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExpectation {
    subscription: String,
    camera: Option<String>,
    from_s: Option<f64>,
    until_s: Option<f64>,
    frames_min: Option<u64>,
    frames_max: Option<u64>,
    on_time_min: Option<u64>,
    first_age_ms_max: Option<f64>,
    age_ms_p50_max: Option<f64>,
    age_ms_p95_max: Option<f64>,
    gap_ms_max: Option<f64>,
    infeasible_share_max: Option<f64>,
    unmeasured_share_max: Option<f64>,
    below_floor_share_max: Option<f64>,
    ok_below_floor_share_max: Option<f64>,
}

impl RawExpectation {
    pub(super) fn expectation(&self, field: &str, scenario: &Scenario) -> Result<Expectation, ScenarioError> {
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
        let share = |name: &str, value: Option<f64>| match value {
            Some(share) => within(&format!("{field}.{name}"), share, 0.0, 1.0).map(Some),
            None => Ok(None),
        };
        let infeasible_share_max = share("infeasible_share_max", self.infeasible_share_max)?;
        let unmeasured_share_max = share("unmeasured_share_max", self.unmeasured_share_max)?;
        let below_floor_share_max = share("below_floor_share_max", self.below_floor_share_max)?;
        let ok_below_floor_share_max = share("ok_below_floor_share_max", self.ok_below_floor_share_max)?;
        let expectation = Expectation {
            subscription: place_of(field, &self.subscription, scenario)?,
            camera: self.camera.clone(),
            from: Duration::from_secs_f64(from_s),
            until: Duration::from_secs_f64(until_s),
            frames_min: self.frames_min,
            frames_max: self.frames_max,
            on_time_min: self.on_time_min,
            first_age_max: duration("first_age_ms_max", self.first_age_ms_max)?,
            age_p50_max: duration("age_ms_p50_max", self.age_ms_p50_max)?,
            age_p95_max: duration("age_ms_p95_max", self.age_ms_p95_max)?,
            gap_max: duration("gap_ms_max", self.gap_ms_max)?,
            infeasible_share_max,
            unmeasured_share_max,
            below_floor_share_max,
            ok_below_floor_share_max,
        };
        let Expectation { frames_min, frames_max, on_time_min, .. } = &expectation;
        let Expectation { first_age_max, age_p50_max, age_p95_max, gap_max, .. } = &expectation;
        let counts = frames_min.or(*frames_max).or(*on_time_min);
        let times = first_age_max.or(*age_p50_max).or(*age_p95_max).or(*gap_max);
        let below_floor = below_floor_share_max.or(ok_below_floor_share_max);
        let shares = infeasible_share_max.or(unmeasured_share_max).or(below_floor);
        if counts.is_none() && times.is_none() && shares.is_none() {
            return wrong(
                field,
                "nothing is expected; give frames_min, frames_max, on_time_min, first_age_ms_max, age_ms_p50_max, \
                 age_ms_p95_max, gap_ms_max, infeasible_share_max, unmeasured_share_max, below_floor_share_max or \
                 ok_below_floor_share_max",
            );
        }
        let floor = scenario.subscriptions[expectation.subscription].1.contract.accuracy_floor;
        if below_floor.is_some() && floor.is_none() {
            let name = if below_floor_share_max.is_some() { "below" } else { "ok_below" };
            return wrong(
                format!("{field}.{name}_floor_share_max"),
                "this subscription gives no accuracy to be below",
            );
        }
        let bounded = |place: usize| scenario.subscriptions[place].1.contract.latency_bound.is_some();
        if on_time_min.is_some() && !bounded(expectation.subscription) {
            return wrong(
                format!("{field}.on_time_min"),
                "this subscription gives no latency_ms to be in time by",
            );
        }
        Ok(expectation)
    }
}
