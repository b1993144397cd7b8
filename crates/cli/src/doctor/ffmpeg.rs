//! Checks whether ffmpeg is installed and new enough for sources.

use mez_node::probe::probe_ffmpeg;
use mez_node::runtime::block_on;
use mez_node::source::{SourceError, SourceSpec};

use super::finding::{Check, Finding};
use super::subject::{Side, Subject};

const INSTALL: &str = "install ffmpeg (on Debian and Ubuntu: `apt-get install ffmpeg`), or publish from a program with mez.publisher";

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    if !subject.is(Side::Camera) && subject.source.is_none() {
        return Vec::new();
    }
    let source = subject.source.as_deref().map(SourceSpec::parse);
    let found = match block_on(probe_ffmpeg()) {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return vec![missing(&error, source.is_some())],
        Err(error) => {
            return vec![Finding::skipped(Check::Ffmpeg, format!("ffmpeg could not be checked: {error}"))];
        }
    };
    if let Some(Err(error)) = &source {
        return vec![Finding::fault_of(Check::Ffmpeg, error, "see `mez camera --help`")];
    }
    let hides =
        source.as_ref().and_then(|source| source.as_ref().ok()).is_none_or(|source| !source.is_network());
    if !found.hides_passwords && !hides {
        return vec![Finding::warning(
            Check::Ffmpeg,
            format!(
                "ffmpeg {} cannot hide a network camera's password from other users of this host",
                found.version
            ),
            "update ffmpeg to 5.0 or newer if the camera asks for a password",
        )];
    }
    vec![Finding::ok(Check::Ffmpeg, format!("ffmpeg {}", found.version))]
}

/// ffmpeg is missing. Only sources need it.
fn missing(error: &SourceError, is_needed: bool) -> Finding {
    let text = error.to_string();
    let found = text.split(": install").next().unwrap_or(&text).to_owned();
    if is_needed {
        Finding::fault(Check::Ffmpeg, found, INSTALL)
    } else {
        Finding::warning(Check::Ffmpeg, format!("{found}; `mez camera --source` needs it"), INSTALL)
    }
}
