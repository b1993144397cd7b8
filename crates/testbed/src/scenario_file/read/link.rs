//! Reads `[link]`, and `link` of a camera.

use serde::Deserialize;

use super::fields::{ScenarioError, milliseconds, within, wrong};
use crate::channel::links::Kind;
use crate::link::LinkSpec;
use crate::scenario_file::Sharing;

/// The highest rate of a link, in Mbit/s.
pub(super) const MEGABITS_MAX: f64 = 100_000.0;

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLink {
    megabits_per_second: Option<f64>,
    channel: Option<String>,
    shared: Option<String>,
    one_way_delay_ms: Option<f64>,
    queue_kilobytes: Option<f64>,
    lost_once_in: Option<u64>,
}

impl RawLink {
    /// Makes a link of the fields. A missing field is taken from `others`.
    pub(super) fn spec(&self, field: &str, others: &Self) -> Result<LinkSpec, ScenarioError> {
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

    /// The medium that the link shares with other cameras' links. A link with its own channel shares none.
    pub(super) fn sharing(&self, field: &str, others: &Self) -> Result<Option<Sharing>, ScenarioError> {
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

    /// The kind of link, if its rates are drawn. A camera with its own rate does not take the channel of the others.
    pub(super) fn channel(&self, field: &str, others: &Self) -> Result<Option<Kind>, ScenarioError> {
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
