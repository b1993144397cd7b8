//! Reads `[[camera]]`.

use std::time::Duration;

use mez_core::name::CameraName;
use serde::Deserialize;

use super::fields::{ScenarioError, disk, footage, milliseconds, within, wrong};
use super::link::RawLink;
use crate::world::{CameraSpec, SourceVideo};

/// The highest frame rate, in frames per second, and the largest frame, in bytes.
const FRAMES_PER_SECOND_MAX: f64 = 1_000.0;
const FRAME_BYTES_MAX: f64 = crate::PAYLOAD_BYTES_MAX as f64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCamera {
    pub(super) name: String,
    footage: Option<String>,
    frames_per_second: Option<f64>,
    jitter_ms: Option<f64>,
    frame_kilobytes: Option<[f64; 2]>,
    video: Option<String>,
    key_frame_every: Option<u64>,
    log_megabytes: Option<f64>,
    disk_megabytes: Option<f64>,
    #[serde(default)]
    pub(super) link: RawLink,
}

impl RawCamera {
    pub(super) fn spec(&self, field: &str, link: &RawLink) -> Result<CameraSpec, ScenarioError> {
        if let Err(error) = self.name.parse::<CameraName>() {
            return wrong(format!("{field}.name"), error.to_string());
        }
        let filmed = match &self.footage {
            Some(name) => CameraSpec::filming(footage(&format!("{field}.footage"), name)?),
            None => CameraSpec::default(),
        };
        let mut spec = CameraSpec { link: self.link.spec(&format!("{field}.link"), link)?, ..filmed };
        if let Some(rate) = self.frames_per_second {
            let rate = within(&format!("{field}.frames_per_second"), rate, 0.01, FRAMES_PER_SECOND_MAX)?;
            spec.interval = Duration::from_secs_f64(1.0 / rate);
        }
        if let Some(jitter) = self.jitter_ms {
            spec.jitter = milliseconds(&format!("{field}.jitter_ms"), jitter)?;
        }
        if let Some([least, most]) = self.frame_kilobytes {
            let field = format!("{field}.frame_kilobytes");
            within(&field, least, 0.1, FRAME_BYTES_MAX / 1e3)?;
            within(&field, most, least, FRAME_BYTES_MAX / 1e3)?;
            spec.frame_bytes = (least * 1e3) as u32..=(most * 1e3) as u32;
        }
        spec.video = self.video(field)?;
        if let Some(log) = self.log_megabytes {
            let log = within(&format!("{field}.log_megabytes"), log, 1.0, 1e5)?;
            spec.log_bytes_max = (log * 1e6) as u64;
        }
        spec.disk = disk(&format!("{field}.disk_megabytes"), self.disk_megabytes)?;
        Ok(spec)
    }

    /// The source's own video.
    fn video(&self, field: &str) -> Result<Option<SourceVideo>, ScenarioError> {
        let video = match self.video.as_deref() {
            Some("x264") => SourceVideo::X264,
            Some("openh264") => SourceVideo::OPENH264,
            Some(other) => {
                return wrong(
                    format!("{field}.video"),
                    format!("there is no {other}; there are x264, openh264"),
                );
            }
            None if self.key_frame_every.is_some() => {
                return wrong(
                    format!("{field}.key_frame_every"),
                    "only sources with `video` have key frames",
                );
            }
            None => return Ok(None),
        };
        let key_every = self.key_frame_every.unwrap_or(video.key_every);
        if key_every == 0 {
            return wrong(format!("{field}.key_frame_every"), "0 is not at least 1");
        }
        Ok(Some(SourceVideo { key_every, ..video }))
    }
}
