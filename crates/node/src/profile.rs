//! Reads profiles from JSON (`docs/profile-format.md`). [`mez_core::profile`] interprets them.
//!
//! A broker identifies a profile by the SHA-256 of its bytes. It reads only the fields that
//! brokers need. `mez.profile.document` in Python writes profiles and reads all fields.

use std::time::Duration;

use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, ProfileError, RungProfile};
use serde::Deserialize;
use thiserror::Error;

/// The value of the field `format` that marks a file as a profile.
pub const FORMAT: &str = "mez-profile";
/// The supported version of the format.
pub const VERSION: u32 = 1;
/// The largest size of a profile, in bytes. A subscription may contain no larger one.
pub const BYTES_MAX: usize = 1 << 20;

/// Why bytes are not a usable profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadProfileError {
    /// More bytes than [`BYTES_MAX`].
    #[error("the profile has {bytes} bytes, more than {BYTES_MAX}; profile fewer rungs")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not JSON, or a field is missing or of another type.
    #[error("this is not a profile: {0}; make a profile with: mez profile run")]
    Json(#[from] serde_json::Error),
    /// Another kind of file.
    #[error("\"format\" is {found:?}, not {FORMAT:?}; make a profile with: mez profile run")]
    Format {
        /// The value of `format`.
        found: String,
    },
    /// An unsupported version.
    #[error(
        "the profile has version {found}, but this version of Mez reads version {VERSION}; make the profile again with: mez profile run"
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// A rung has an invalid name.
    #[error("{name:?} is not a valid rung name; make the profile again")]
    Name {
        /// The invalid name.
        name: String,
    },
    /// The profile is inconsistent.
    #[error(transparent)]
    Rungs(#[from] ProfileError),
}

/// A profile with the application and the camera size that it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedProfile {
    /// The SHA-256 of the file.
    pub sha256: [u8; 32],
    /// The application for which it was made.
    pub app: String,
    /// Width and height, in pixels, of the frames with which it was made.
    pub camera_size: (u32, u32),
    /// The time between two frames of the video with which it was made. `None` if the file does not contain it.
    pub interval: Option<Duration>,
    /// The bytes and the accuracy of each rung.
    pub profile: Profile,
}

impl NamedProfile {
    /// Parses the bytes of a profile.
    ///
    /// # Errors
    /// See [`ReadProfileError`].
    pub fn read(bytes: &[u8]) -> Result<Self, ReadProfileError> {
        if bytes.len() > BYTES_MAX {
            return Err(ReadProfileError::TooLarge { bytes: bytes.len() });
        }
        // The kind of file is checked first, since another version may have other fields.
        let Head { format, version } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(ReadProfileError::Format { found: shortened(format) });
        }
        if version != VERSION {
            return Err(ReadProfileError::Version { found: version });
        }
        let raw: RawProfile = serde_json::from_slice(bytes)?;
        let rungs = raw.rungs.into_iter().map(RawRung::read).collect::<Result<_, _>>()?;
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        let profile = Profile::new(rungs)?;
        let profile = if raw.source_video { profile } else { profile.without_source_video() };
        let interval = raw.frames_per_second.and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok());
        let interval = interval.filter(|interval| !interval.is_zero());
        Ok(Self { sha256, app: raw.app, camera_size: (raw.width, raw.height), interval, profile })
    }
}

#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

#[derive(Deserialize)]
struct RawProfile {
    app: String,
    width: u32,
    height: u32,
    frames_per_second: Option<f64>,
    #[serde(default = "yes")]
    source_video: bool,
    rungs: Vec<RawRung>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct RawRung {
    rung: String,
    bytes: RawSizes,
    accuracy_normalised: RawScore,
    camera_ms_mean: Option<f64>,
    detector_ms_mean: Option<f64>,
}

#[derive(Deserialize)]
struct RawSizes {
    mean: f64,
    p05: f64,
    p50: f64,
    p95: f64,
}

#[derive(Deserialize)]
struct RawScore {
    value: f64,
}

impl RawRung {
    fn read(self) -> Result<RungProfile, ReadProfileError> {
        let Some(rung) = Rung::new(&self.rung) else {
            return Err(ReadProfileError::Name { name: shortened(self.rung) });
        };
        let RawSizes { mean, p05, p50, p95 } = self.bytes;
        Ok(RungProfile {
            rung,
            bytes: ByteSizes { mean, p05, p50, p95 },
            accuracy: self.accuracy_normalised.value,
            camera_time: self.camera_ms_mean.map_or(Duration::ZERO, milliseconds),
            detector_time: self.detector_ms_mean.map(milliseconds),
        })
    }
}

/// Invalid times become zero: times only break ties.
fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default()
}

/// The part of an untrusted text that an error may repeat.
fn shortened(text: String) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation, so that documentation and code cannot diverge.
    fn document_example() -> &'static str {
        let text = include_str!("../../../docs/profile-format.md");
        let (_, rest) = text.split_once("```json\n").expect("the document has an example");
        rest.split_once("```").expect("the example ends").0
    }

    #[test]
    fn the_example_of_the_document_is_a_profile() {
        let read = NamedProfile::read(document_example().as_bytes()).expect("sound");
        assert_eq!((read.app.as_str(), read.camera_size), ("pedestrian-hog", (768, 576)));
        assert_eq!(read.interval, Some(Duration::from_millis(100)));
        assert!(read.profile.takes_source_video(), "by default");
        let rung = &read.profile.rungs()[0];
        assert_eq!(rung.rung.as_str(), "h264/w384/q34");
        assert!(rung.rung.setting().is_ok(), "a rung that this version can make");
        assert!(rung.camera_time > Duration::ZERO && rung.detector_time.is_some());
    }

    /// An invalid frame rate counts as unknown, and is no error.
    #[test]
    fn a_rate_without_sense_is_not_known() {
        for rate in ["null", "0.0", "-5", "1e-300", "1e300"] {
            let text = document_example()
                .replace("\"frames_per_second\": 10.0", &format!("\"frames_per_second\": {rate}"));
            assert_eq!(
                NamedProfile::read(text.as_bytes()).expect("sound but for this").interval,
                None,
                "{rate}"
            );
        }
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        let good = document_example();
        let cases = [
            ("{}", "missing field `format`"),
            ("[", "not a profile"),
            (&good.replace("mez-profile", "other"), "\"format\" is \"other\""),
            (&good.replace("\"version\": 1", "\"version\": 2"), "has version 2"),
            (&good.replace("\"rung\": \"h264/w384/q34\"", "\"rung\": \"\""), "not a valid rung name"),
            (&good.replace("\"mean\": 712.4", "\"mean\": -1"), "must be positive"),
            (&" ".repeat(BYTES_MAX + 1), "more than 1048576"),
        ];
        for (bytes, reason) in cases {
            let error = NamedProfile::read(bytes.as_bytes()).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.len() < 400, "{error}");
        }
    }
}
