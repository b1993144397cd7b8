//! Encodes the state of a camera's source.

use std::time::Duration;

use super::codec::{Reader, TEXT_BYTES_MAX, WireError, Write};
use crate::source::SourceState;

/// The state of a camera's source, as the camera reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// The state.
    pub state: SourceState,
    /// Why, for people. May be empty.
    pub reason: String,
    /// How long the source has had this state.
    pub lasts: Duration,
    /// The time until a lost source is tried again. `None`: it is not tried again, or the time is unknown.
    pub retry: Option<Duration>,
}

/// Stands for an unknown time.
const UNKNOWN: u64 = u64::MAX;

impl SourceReport {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.state as u8);
        out.u64(nanos(self.lasts));
        out.u64(self.retry.map_or(UNKNOWN, nanos));
        out.text(&self.reason, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let code = r.u8("state")?;
        let unknown = WireError::Value { field: "state", value: code.into() };
        let state = SourceState::from_code(code).ok_or(unknown)?;
        let lasts = Duration::from_nanos(r.u64("lasts_ns")?);
        let retry = Some(r.u64("retry_ns")?).filter(|nanos| *nanos != UNKNOWN).map(Duration::from_nanos);
        Ok(Self { state, lasts, retry, reason: r.text("reason", TEXT_BYTES_MAX)?.into() })
    }
}

/// A time in nanoseconds, below [`UNKNOWN`].
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(UNKNOWN).min(UNKNOWN - 1)
}
