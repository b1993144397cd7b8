//! Encodes the status of a camera.

use super::codec::{Reader, TEXT_BYTES_MAX, WireError, Write};

/// The state of a camera's log on its own disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStatus {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Frames that were evicted from memory before they were written to disk, since the camera broker's start.
    pub lost: u64,
    /// Why durability is suspended, for people. Empty if it is not.
    pub degraded: String,
}

/// The status of a camera.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Frames published in this epoch.
    pub published: u64,
    /// Frames refused in this epoch.
    pub refused: u64,
    /// Pixels in a row of the newest frame, 0 if there is none.
    pub width: u32,
    /// Rows of the newest frame.
    pub height: u32,
    /// Frames per second over the last few seconds.
    pub frames_per_second: f64,
    /// Bytes in the camera's log.
    pub log_bytes: u64,
    /// Payload bytes of the frames published in this epoch.
    pub published_bytes: u64,
}

impl DiskStatus {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.bytes);
        out.u64(self.lost);
        out.text(&self.degraded, TEXT_BYTES_MAX);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            bytes: r.u64("bytes")?,
            lost: r.u64("lost")?,
            degraded: r.text("degraded", TEXT_BYTES_MAX)?.into(),
        })
    }
}

impl Status {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.published);
        out.u64(self.refused);
        out.u32(self.width);
        out.u32(self.height);
        out.f64(self.frames_per_second);
        out.u64(self.log_bytes);
        out.u64(self.published_bytes);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            published: r.u64("published")?,
            refused: r.u64("refused")?,
            width: r.u32("width")?,
            height: r.u32("height")?,
            frames_per_second: r.f64("frames_per_second")?,
            log_bytes: r.u64("log_bytes")?,
            published_bytes: r.u64("published_bytes")?,
        })
    }
}
