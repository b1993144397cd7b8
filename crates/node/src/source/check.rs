//! Reports which ffmpeg this host has, and whether a source can be read, for a checkup.

use std::path::Path;
use std::time::Duration;

use super::error::SourceError;
use super::input::FfmpegVersion;
use super::probe::first_line;
use super::run::PreparedSource;
use super::spec::SourceSpec;
use super::types::{SourceInfo, SourceOptions};

/// How long a program may take to print its version.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The ffmpeg of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FfmpegFound {
    /// The version that ffmpeg prints.
    pub version: String,
    /// Whether a network camera's password can be passed to it hidden from other users: from version 5.0 on.
    pub hides_passwords: bool,
}

/// Probes a file or a device as [`PreparedSource::prepare`] does, and returns what it found. `None` for a URL, which is not probed.
///
/// # Errors
/// The source cannot be read.
pub async fn probe_source(spec: SourceSpec) -> Result<Option<SourceInfo>, SourceError> {
    Ok(PreparedSource::prepare(spec, SourceOptions::default()).await?.info())
}

/// Looks for `ffmpeg` and `ffprobe` in `PATH`, and asks both for their versions.
///
/// # Errors
/// One of them is missing, is another program, or does not answer.
pub async fn probe_ffmpeg() -> Result<FfmpegFound, SourceError> {
    let asked = async {
        let ffmpeg = first_line(Path::new("ffmpeg")).await?;
        first_line(Path::new("ffprobe")).await?;
        Ok::<String, SourceError>(ffmpeg)
    };
    let timed_out = |_| SourceError::Spawn {
        program: "ffmpeg".into(),
        detail: format!("it did not say its version within {TIME_MAX:?}"),
    };
    let line = tokio::time::timeout(TIME_MAX, asked).await.map_err(timed_out)??;
    let version = line.strip_prefix("ffmpeg version ").unwrap_or(&line);
    let version = version.split_whitespace().next().unwrap_or_default().to_owned();
    Ok(FfmpegFound { version, hides_passwords: FfmpegVersion::parse(&line).has_concat_options() })
}
