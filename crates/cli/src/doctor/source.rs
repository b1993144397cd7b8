//! Whether the source of a camera can be read: a file or a device as it will be, a network camera by its address alone.

use mez_node::probe::probe_source;
use mez_node::runtime::block_on;
use mez_node::source::{SourceError, SourceInfo, SourceSpec};

use super::finding::{Check, Finding};
use super::subject::Subject;

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    // What is wrong with the text of it, the check of ffmpeg says.
    let Some(Ok(source)) = subject.source.as_deref().map(SourceSpec::parse) else { return Vec::new() };
    if source.is_network() {
        return vec![Finding::skipped(
            Check::Source,
            format!("{source} is not asked: many network cameras serve one reader only"),
        )];
    }
    let name = source.to_string();
    match block_on(probe_source(source)) {
        Ok(Ok(info)) => vec![Finding::ok(Check::Source, gives(&name, info))],
        // That is told already.
        Ok(Err(SourceError::NoFfmpeg { .. } | SourceError::NotFfmpeg { .. })) => {
            vec![Finding::skipped(Check::Source, format!("{name} cannot be looked at without ffmpeg"))]
        }
        Ok(Err(error @ SourceError::Busy { .. })) => {
            vec![Finding::skipped(Check::Source, format!("{error}; if that is mez camera, all is well"))]
        }
        Ok(Err(error)) => {
            let text = error.to_string();
            // Of these, what ffmpeg or the system said follows the colon. Of all others it is what to do.
            let says_why = matches!(
                error,
                SourceError::Unreadable { .. } | SourceError::NoFrames { .. } | SourceError::Spawn { .. }
            );
            vec![match text.split_once(": ").filter(|_| !says_why) {
                Some((found, remedy)) => Finding::fault(Check::Source, found, remedy),
                None => {
                    let otherwise = "see what `ffprobe` says of it, or give another source";
                    Finding::fault_of(Check::Source, text, otherwise)
                }
            }]
        }
        Err(error) => vec![Finding::skipped(Check::Source, format!("it could not be asked: {error}"))],
    }
}

fn gives(name: &str, info: Option<SourceInfo>) -> String {
    let Some(info) = info else { return name.to_owned() };
    let rate = info.frames_per_second.map(|rate| format!(", {rate:.1} fps")).unwrap_or_default();
    format!("{name}: {}, {}x{}{rate}", info.codec, info.width, info.height)
}
