//! Encodes the question whether an edge would accept a camera, and the answer.

use super::codec::{Reader, TEXT_BYTES_MAX, WireError, Write};
use super::session::RefuseCode;
use crate::name::CameraName;
use crate::units::Timestamp;

/// The most bytes of a camera's name.
const NAME_BYTES_MAX: usize = 1024;
/// The code that stands for no refusal.
const NO_REFUSAL: u16 = 0;

/// A camera host asks whether the edge would accept a camera. Unlike a [`super::Hello`], the inquiry changes nothing at the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The camera's name.
    pub camera: CameraName,
    /// The software and its version, for people.
    pub software: String,
}

/// The edge's answer to an [`Inquiry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The version of the wire format that the edge speaks.
    pub version: u16,
    /// The edge's wall clock when it answered.
    pub wall: Timestamp,
    /// Whether the camera is connected to the edge, under the same identity.
    pub is_connected: bool,
    /// Why the edge would refuse the camera, whatever its epoch; `None` if it would accept the camera.
    pub refusal: Option<(RefuseCode, String)>,
    /// The software and its version, for people.
    pub software: String,
}

impl Inquiry {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.text(self.camera.as_str(), NAME_BYTES_MAX);
        out.text(&self.software, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            camera: r
                .text("camera", NAME_BYTES_MAX)?
                .parse()
                .map_err(|_| WireError::Text { field: "camera" })?,
            software: r.text("software", TEXT_BYTES_MAX)?.into(),
        })
    }
}

impl Standing {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.version);
        out.u64(self.wall.as_nanos());
        out.u8(u8::from(self.is_connected));
        let (code, text) = match &self.refusal {
            Some((code, text)) => (*code as u16, text.as_str()),
            None => (NO_REFUSAL, ""),
        };
        out.u16(code);
        out.text(text, TEXT_BYTES_MAX);
        out.text(&self.software, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let version = r.u16("version")?;
        let wall = Timestamp::from_nanos(r.u64("wall clock")?);
        let is_connected = r.u8("connected")? != 0;
        let code = r.u16("code")?;
        let text = r.text("text", TEXT_BYTES_MAX)?.to_owned();
        let refusal = match RefuseCode::from_code(code) {
            Some(code) => Some((code, text)),
            None if code == NO_REFUSAL => None,
            None => return Err(WireError::Value { field: "code", value: code.into() }),
        };
        let software = r.text("software", TEXT_BYTES_MAX)?.into();
        Ok(Self { version, wall, is_connected, refusal, software })
    }
}
