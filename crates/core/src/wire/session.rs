//! Encodes how a connection begins, and how it ends if the edge refuses the camera.

use super::codec::{Reader, TEXT_BYTES_MAX, WireError, Write};
use crate::frame::{Epoch, FrameId};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Timestamp};

/// The most bytes of a camera's name.
const NAME_BYTES_MAX: usize = 1024;

/// The first message of a camera broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// The version of the wire format that the camera speaks.
    pub version: u16,
    /// The camera's name; its certificate must allow it.
    pub camera: CameraName,
    /// The epoch of the camera broker's current start.
    pub epoch: Epoch,
    /// The number of this connection within the current start. The highest number is the current connection.
    pub attempt: u64,
    /// Relates the camera's capture times to its monotonic clock.
    pub anchor: ClockAnchor,
    /// The software and its version, for people.
    pub software: String,
}

/// The edge's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// The version of the wire format that the edge speaks.
    pub version: u16,
    /// The newest frame of this camera that the edge holds, if any.
    pub newest: Option<FrameId>,
    /// The largest payload that the edge accepts, in bytes.
    pub frame_bytes_max: u32,
    /// The software, for people.
    pub software: String,
}

/// Why a camera was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RefuseCode {
    /// The edge does not speak this version of the wire format.
    Version = 1,
    /// The certificate does not allow the name.
    NotPermitted = 2,
    /// Another identity holds the name, or used it with an epoch that no other can follow.
    NameHeld = 3,
    /// A newer connection or a newer start of the same camera has replaced this one.
    Replaced = 4,
    /// A message is invalid, or claims an epoch that the edge does not believe.
    Protocol = 5,
    /// The edge has as many cameras as it may.
    Full = 6,
    /// The edge is stopping.
    Stopping = 7,
    /// The certificate was revoked.
    Revoked = 8,
}

impl Hello {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.version);
        out.text(self.camera.as_str(), NAME_BYTES_MAX);
        out.u64(self.epoch.0);
        out.u64(self.attempt);
        out.u64(self.anchor.wall.as_nanos());
        out.instant(self.anchor.monotonic);
        out.text(&self.software, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            version: r.u16("version")?,
            camera: r
                .text("camera", NAME_BYTES_MAX)?
                .parse()
                .map_err(|_| WireError::Text { field: "camera" })?,
            epoch: Epoch(r.u64("epoch")?),
            attempt: r.u64("attempt")?,
            anchor: ClockAnchor {
                wall: Timestamp::from_nanos(r.u64("anchor wall")?),
                monotonic: r.instant("anchor monotonic")?,
            },
            software: r.text("software", TEXT_BYTES_MAX)?.into(),
        })
    }
}

impl Welcome {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.version);
        out.u8(u8::from(self.newest.is_some()));
        out.frame_id(self.newest.unwrap_or_default());
        out.u32(self.frame_bytes_max);
        out.text(&self.software, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            version: r.u16("version")?,
            newest: {
                let known = r.u8("newest known")? != 0;
                let id = r.frame_id()?;
                known.then_some(id)
            },
            frame_bytes_max: r.u32("frame_bytes_max")?,
            software: r.text("software", TEXT_BYTES_MAX)?.into(),
        })
    }
}

impl RefuseCode {
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let code = r.u16("code")?;
        Self::from_code(code).ok_or(WireError::Value { field: "code", value: code.into() })
    }

    pub(super) fn from_code(code: u16) -> Option<Self> {
        match code {
            1 => Some(Self::Version),
            2 => Some(Self::NotPermitted),
            3 => Some(Self::NameHeld),
            4 => Some(Self::Replaced),
            5 => Some(Self::Protocol),
            6 => Some(Self::Full),
            7 => Some(Self::Stopping),
            8 => Some(Self::Revoked),
            _ => None,
        }
    }

    /// Whether dialling again soon is useless.
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::Version | Self::NotPermitted | Self::NameHeld | Self::Full | Self::Revoked)
    }
}
