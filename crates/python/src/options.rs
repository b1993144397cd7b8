//! Converts the options of a subscription or publisher from Python's numbers and words to types. Errors name the argument.

use std::time::Duration;

use mez_core::contract::{Contract, ContractError, OnInfeasible};
use mez_core::frame::{Epoch, FrameId, Rung, Sequence};
use mez_core::group::members::GroupNameError;
use mez_core::history;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::LastFrame;
use mez_core::units::Timestamp;
use mez_node::camera::Transport;
use mez_node::client::{Membership, Profile};
use pyo3::prelude::*;

use crate::error;

/// The last frame that a program has of a camera: its name, epoch, sequence and capture time.
pub(crate) fn last_frame(
    py: Python<'_>,
    (camera, epoch, sequence, captured_ns): (String, u64, u64, Option<u64>),
) -> PyResult<(CameraName, LastFrame)> {
    let camera = camera.parse().map_err(|failure| error::argument(py, "after", failure))?;
    let id = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
    Ok((camera, LastFrame { id, captured: captured_ns.map(Timestamp::from_nanos) }))
}

/// Options of a group, in this order: `name`, `at_once`, `settles_itself`, `ordered`, `fresh`, `again_after` in seconds, `tries`, `open_max`.
/// [`Membership`] explains them.
pub(crate) type GroupArguments = (String, u32, bool, bool, bool, Option<f64>, Option<u32>, Option<u32>);

/// Converts the options of a group.
pub(crate) fn membership(py: Python<'_>, group: GroupArguments) -> PyResult<Membership> {
    let (name, at_once, settles_itself, ordered, fresh, again_after, tries, open_max) = group;
    let name = name.parse().map_err(|failure: GroupNameError| error::argument(py, "group", failure))?;
    let again_after = again_after.map(|seconds| {
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            let message =
                format!("again_after is {seconds}; give seconds above 0, longer than the work takes");
            error::argument(py, "again_after", message)
        })
    });
    let again_after = again_after.transpose()?;
    Ok(Membership { name, ordered, fresh, again_after, tries, open_max, at_once, settles_itself })
}

/// A subscription's contract as Python gives it.
pub(crate) struct ContractArguments<'a> {
    pub(crate) latency_ms: Option<f64>,
    pub(crate) accuracy: Option<f64>,
    pub(crate) on_time_share: f64,
    pub(crate) profile: Option<Vec<u8>>,
    pub(crate) profile_name: Option<String>,
    pub(crate) min_fps: f64,
    pub(crate) on_infeasible: &'a str,
    pub(crate) priority: i32,
}

impl ContractArguments<'_> {
    /// Returns the contract and its profile. Invalid values are refused here, even without a broker.
    pub(crate) fn parse(self, py: Python<'_>) -> PyResult<(Contract, Option<Profile>)> {
        let contract = Contract {
            latency_bound: latency_bound(py, self.latency_ms)?,
            accuracy_floor: self.accuracy,
            on_time_share: self.on_time_share,
            profile: None,
            min_fps: self.min_fps,
            on_infeasible: match self.on_infeasible {
                "degrade" => OnInfeasible::Degrade,
                "skip" => OnInfeasible::Skip,
                "stop" => OnInfeasible::Stop,
                other => return Err(choice(py, "on_infeasible", other, r#""degrade", "skip" or "stop""#)),
            },
            priority: self.priority,
        };
        contract.validate().map_err(|failure| {
            let field = match failure {
                ContractError::LatencyBound => "latency_ms",
                ContractError::AccuracyFloor { .. } => "accuracy",
                ContractError::OnTimeShare { .. } => "on_time_share",
                ContractError::MinFps { .. } => "min_fps",
            };
            error::argument(py, field, failure)
        })?;
        let profile = match (self.profile, self.profile_name) {
            (Some(content), _) => Some(Profile::Inline(content.into())),
            (None, name) => name.map(Profile::Name),
        };
        Ok((contract, profile))
    }
}

/// A wait without end: 100 years. It can be added to the current time without overflow.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

pub(crate) fn pattern(py: Python<'_>, text: &str) -> PyResult<CameraPattern> {
    text.parse().map_err(|failure: mez_core::name::NameError| error::argument(py, "pattern", failure))
}

pub(crate) fn quality(py: Python<'_>, rung: &str) -> PyResult<Rung> {
    let setting = history::quality(rung).map_err(|failure| error::argument(py, "quality", failure))?;
    Ok(setting.rung())
}

pub(crate) fn choice(py: Python<'_>, field: &str, given: &str, choices: &str) -> PyErr {
    error::argument(py, field, format!("{field} is {given:?}; give {choices}"))
}

/// A time limit in seconds; `None`: no limit.
pub(crate) fn seconds(py: Python<'_>, field: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = given else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        let message = format!("{field} is {seconds}; give seconds, 0 or more, or None to wait for ever");
        return Err(error::argument(py, field, message));
    }
    Ok(Some(Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER).min(FOR_EVER)))
}

pub(crate) fn latency_bound(py: Python<'_>, latency_ms: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(ms) = latency_ms else { return Ok(None) };
    // The contract's own check refuses zero.
    Duration::try_from_secs_f64(ms / 1e3).map(Some).map_err(|_| {
        let message =
            format!("latency_ms is {ms}; give milliseconds above 0, or None for as soon as possible");
        error::argument(py, "latency_ms", message)
    })
}

/// How a camera broker connects to edges.
pub(crate) fn transport(py: Python<'_>, link: &str) -> PyResult<Transport> {
    match link {
        "auto" => Ok(Transport::Auto),
        "quic" => Ok(Transport::Quic),
        "tcp" => Ok(Transport::Tcp),
        other => {
            let message = format!("link is {other:?}; write \"auto\", \"quic\" or \"tcp\"");
            Err(error::argument(py, "link", message))
        }
    }
}
