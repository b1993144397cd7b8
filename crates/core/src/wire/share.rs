//! Encodes which rungs a camera on a shared channel could send, and how much it may send.

use std::time::Duration;

use super::codec::{Reader, WireError, Write};
use crate::controller::share::{CAP_LIFETIME, Step};
use crate::profile::LADDER_RUNGS_MAX;

/// The most rungs of a share request: as many as a ladder has.
pub const SHARE_REQUEST_RUNGS_MAX: usize = LADDER_RUNGS_MAX;
/// The longest lifetime of a cap. A longer one from an edge is shortened to this.
pub const SHARE_LIFETIME_MAX: Duration = Duration::from_millis(1000);
/// The upper limit of a rung's bytes. No frame is that large, and sums stay bounded.
const STEP_BYTES_MAX: f64 = u32::MAX as f64;
/// Accuracies are sent in millionths.
const ACCURACY_PARTS: f64 = 1e6;

/// How much a camera may send on a channel that it shares with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Frames of any size: at present the camera shares no channel.
    #[default]
    Free,
    /// Frames up to a mean size.
    Cap {
        /// The largest mean size of the camera's frames, in bytes.
        frame_bytes_max: u32,
        /// How long the cap is valid after its arrival, in whole milliseconds.
        lifetime: Duration,
    },
    /// The channel has no room for frames that keep the camera's accuracy floor.
    Shed {
        /// How long this state is valid after its arrival, in whole milliseconds.
        lifetime: Duration,
    },
}

impl Share {
    /// A cap with the usual lifetime.
    pub fn cap(frame_bytes_max: f64) -> Self {
        let frame_bytes_max = frame_bytes_max.ceil().clamp(0.0, STEP_BYTES_MAX) as u32;
        Self::Cap { frame_bytes_max, lifetime: CAP_LIFETIME }
    }

    /// The shed state with the usual lifetime.
    pub const SHED: Self = Self::Shed { lifetime: CAP_LIFETIME };

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (code, frame_bytes_max, lifetime) = match *self {
            Self::Free => (0, 0, Duration::ZERO),
            Self::Cap { frame_bytes_max, lifetime } => (1, frame_bytes_max, lifetime),
            Self::Shed { lifetime } => (2, 0, lifetime),
        };
        out.u8(code);
        out.u32(frame_bytes_max);
        out.u16(u16::try_from(lifetime.as_millis()).unwrap_or(u16::MAX));
    }

    /// Shortens a lifetime that exceeds the longest one.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let code = r.u8("share")?;
        let frame_bytes_max = r.u32("frame_bytes_max")?;
        let lifetime = Duration::from_millis(r.u16("lifetime")?.into()).min(SHARE_LIFETIME_MAX);
        match code {
            0 => Ok(Self::Free),
            1 => Ok(Self::Cap { frame_bytes_max, lifetime }),
            2 => Ok(Self::Shed { lifetime }),
            code => Err(WireError::Value { field: "share", value: code.into() }),
        }
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn parts(accuracy: f64) -> u32 {
    (accuracy.clamp(0.0, 1.0) * ACCURACY_PARTS).round() as u32
}

/// The rungs that a camera could send on its channel, with their sizes for its present frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShareRequest {
    /// The time between the camera's frames, in whole microseconds.
    pub interval: Duration,
    /// The longest time from capture to the application that the camera works for, in whole microseconds.
    pub latency_bound: Duration,
    /// The index of the cheapest rung that keeps the floor.
    pub floor: usize,
    /// The rungs, ascending in bytes and accuracy. Bytes are whole, accuracies in millionths. Empty: the camera sends nothing.
    pub steps: Vec<Step>,
}

impl ShareRequest {
    /// A request with values as they are sent: rounded as the fields say, bytes rounded up, and each step
    /// larger than the one before. A size above the upper limit is lowered to it; rungs after it are dropped.
    pub(crate) fn new(
        interval: Duration,
        latency_bound: Duration,
        floor: usize,
        mut steps: Vec<Step>,
    ) -> Self {
        let whole = |duration: Duration| Duration::from_micros(micros(duration).max(1).into());
        let mut least = 1.0;
        for step in &mut steps {
            step.bytes = step.bytes.ceil().clamp(least, STEP_BYTES_MAX.max(least));
            step.accuracy = f64::from(parts(step.accuracy)) / ACCURACY_PARTS;
            least = step.bytes + 1.0;
        }
        steps.truncate(steps.partition_point(|step| step.bytes <= STEP_BYTES_MAX));
        let floor = floor.min(steps.len().saturating_sub(1));
        Self { interval: whole(interval), latency_bound: whole(latency_bound), floor, steps }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(micros(self.interval));
        out.u32(micros(self.latency_bound));
        let steps = &self.steps[..self.steps.len().min(SHARE_REQUEST_RUNGS_MAX)];
        out.u8(steps.len() as u8);
        out.u8(self.floor.min(SHARE_REQUEST_RUNGS_MAX) as u8);
        for step in steps {
            // Rounded up, so that a cap of this size allows the rung.
            out.u32(step.bytes.ceil().clamp(1.0, STEP_BYTES_MAX) as u32);
            out.u32(parts(step.accuracy));
        }
    }

    /// Decodes a request. An invalid request becomes an empty one: rungs that do not
    /// ascend, a floor that is none of them, or an interval or latency bound of 0.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let interval = Duration::from_micros(r.u32("interval")?.into());
        let latency_bound = Duration::from_micros(r.u32("latency_bound")?.into());
        let count = usize::from(r.u8("rungs")?);
        if count > SHARE_REQUEST_RUNGS_MAX {
            let (length, max) = (count as u64, SHARE_REQUEST_RUNGS_MAX as u64);
            return Err(WireError::TooLong { field: "rungs", length, max });
        }
        let floor = usize::from(r.u8("floor")?);
        let mut steps: Vec<Step> = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes = f64::from(r.u32("bytes")?);
            let accuracy = (f64::from(r.u32("accuracy")?) / ACCURACY_PARTS).min(1.0);
            steps.push(Step { bytes, accuracy });
        }
        let ascends = steps
            .windows(2)
            .all(|pair| pair[0].bytes < pair[1].bytes && pair[0].accuracy <= pair[1].accuracy);
        let sound = ascends
            && steps.first().is_none_or(|step| step.bytes > 0.0)
            && (floor < steps.len() || steps.is_empty())
            && !interval.is_zero()
            && !latency_bound.is_zero();
        if !sound {
            return Ok(Self::default());
        }
        Ok(Self { interval, latency_bound, floor, steps })
    }
}
