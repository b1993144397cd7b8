//! Checks whether a camera's source can be read. Files and devices are opened; of network cameras, only the address is checked.

use std::io;

use mez_node::probe::{probe_source, takes_key_frame_requests};
use mez_node::runtime::block_on;
use mez_node::source::{SourceError, SourceInfo, SourceSpec};

use super::finding::{Check, Finding};
use super::subject::Subject;

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    // The check of ffmpeg reports an invalid text.
    let Some(Ok(source)) = subject.source.as_deref().map(SourceSpec::parse) else { return Vec::new() };
    if source.is_network() {
        return vec![Finding::skipped(
            Check::Source,
            format!("{source} was not checked: many network cameras serve only one reader"),
        )];
    }
    let name = source.to_string();
    let device = match &source {
        SourceSpec::Device(path) => Some(path.clone()),
        _ => None,
    };
    match block_on(probe_source(source)) {
        Ok(Ok(info)) => {
            let is_video = info.as_ref().is_some_and(|info| info.passthrough && info.codec != "mjpeg");
            let device = device.filter(|_| is_video);
            let asked = device.map(|path| of_key_frames(takes_key_frame_requests(&path)));
            vec![Finding::ok(Check::Source, gives(&name, info) + asked.as_deref().unwrap_or_default())]
        }
        // The check of ffmpeg reports this.
        Ok(Err(SourceError::NoFfmpeg { .. } | SourceError::NotFfmpeg { .. })) => {
            vec![Finding::skipped(Check::Source, format!("{name} cannot be checked without ffmpeg"))]
        }
        Ok(Err(error @ SourceError::Busy { .. })) => {
            vec![Finding::skipped(
                Check::Source,
                format!("{error}; if that program is mez camera, nothing is wrong"),
            )]
        }
        Ok(Err(error)) => {
            let text = error.to_string();
            // In these errors, the text after the colon is the message of ffmpeg or the system. In all others it is the remedy.
            let says_why = matches!(
                error,
                SourceError::Unreadable { .. } | SourceError::NoFrames { .. } | SourceError::Spawn { .. }
            );
            vec![match text.split_once(": ").filter(|_| !says_why) {
                Some((found, remedy)) => Finding::fault(Check::Source, found, remedy),
                None => {
                    let otherwise = "run `ffprobe` on the source to see why, or give another source";
                    Finding::fault_of(Check::Source, text, otherwise)
                }
            }]
        }
        Err(error) => {
            vec![Finding::skipped(Check::Source, format!("the source could not be checked: {error}"))]
        }
    }
}

fn gives(name: &str, info: Option<SourceInfo>) -> String {
    let Some(info) = info else { return name.to_owned() };
    let rate = info.frames_per_second.map(|rate| format!(", {rate:.1} fps")).unwrap_or_default();
    format!("{name}: {}, {}x{}{rate}", info.codec, info.width, info.height)
}

/// Whether a device with its own video makes key frames on request.
fn of_key_frames(takes: io::Result<bool>) -> String {
    match takes {
        Ok(true) => ", makes keyframes on request".into(),
        Ok(false) => ", makes no keyframes on request: set its keyframe interval to 1 to 4 s".into(),
        Err(error) => format!(", its controls could not be read ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn whether_a_device_can_be_asked_for_key_frames_is_told() {
        assert_eq!(of_key_frames(Ok(true)), ", makes keyframes on request");
        assert!(of_key_frames(Ok(false)).contains("set its keyframe interval"));
        let no_device = of_key_frames(takes_key_frame_requests(Path::new("/dev/null")));
        assert!(
            no_device.starts_with(", its controls could not be read (Inappropriate ioctl"),
            "{no_device}"
        );
    }
}
