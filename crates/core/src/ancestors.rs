//! Finds the frames in a log that must be decoded before a given frame.

use crate::frame::{Frame, FrameId, FrameMeta, Reference, Sequence};
use crate::log::LogReader;

/// The most frames that are decoded for one frame, including the frame itself:
/// ten seconds at 400 frames per second. A frame that needs more is not decoded.
pub const ANCESTORS_MAX: usize = 4096;

/// The parent of a frame: the frame that must be decoded immediately before it. `None` if the frame stands alone.
/// [`Reference::Previous`] is read as the previous sequence, which is right only in a log without holes, such as a camera's.
pub const fn parent(meta: &FrameMeta) -> Option<FrameId> {
    let sequence = match meta.chain.reference {
        Reference::Independent => return None,
        Reference::Previous => Sequence(meta.id.sequence.0.saturating_sub(1)),
        Reference::Acknowledged(sequence) => sequence,
    };
    Some(FrameId { epoch: meta.id.epoch, sequence })
}

/// The frames that a decoder must decode for `frame`, in order and ending with `frame`, if the decoder already `holds` some
/// frames. `None` if the log lacks a needed frame, if more than [`ANCESTORS_MAX`] are needed, or if a reference is invalid.
pub fn with_ancestors(log: &LogReader, frame: &Frame, holds: impl Fn(FrameId) -> bool) -> Option<Vec<Frame>> {
    let mut frames = vec![frame.clone()];
    let mut next = parent(&frame.meta);
    while let Some(id) = next.filter(|id| !holds(*id)) {
        // A reference must point to an earlier frame; otherwise this loop might not end.
        if frames.last().is_some_and(|last| id >= last.meta.id) || frames.len() == ANCESTORS_MAX {
            return None;
        }
        let found = log.get_frame(id)?.frame;
        if found.meta.chain.chain != frame.meta.chain.chain || found.meta.encoding != frame.meta.encoding {
            return None;
        }
        next = parent(&found.meta);
        frames.push(found);
    }
    frames.reverse();
    Some(frames)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::broker::{Intake, IntakeConfig, Published, StreamPart};
    use crate::frame::{Encoding, Epoch};
    use crate::log::{LogConfig, log};
    use crate::units::{ClockAnchor, Instant, Timestamp};

    /// The sequences that must be decoded for the last frame of a stream of these `parts`, from a log of `log_bytes` bytes.
    fn needed(parts: &str, log_bytes: u64, held: Option<u64>) -> Option<Vec<u64>> {
        let (writer, reader) = log(LogConfig::with_bytes_max(log_bytes));
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(5_000), monotonic: Instant::from_nanos(100) };
        let mut intake = Intake::new(writer, IntakeConfig::new(Epoch(3), anchor));
        for part in parts.chars() {
            let payload = Bytes::from(vec![0; 1000]);
            let frame = Published { payload, encoding: Encoding::H264, width: 4, height: 4, captured: None };
            let part = match part {
                'k' => StreamPart::Key,
                part => StreamPart::Following { is_needed: part == 'n' },
            };
            intake.publish_part(Instant::from_nanos(200), frame, part).unwrap();
        }
        let newest = reader.newest().unwrap().frame;
        let holds = |id: FrameId| Some(id.sequence.0) == held;
        let frames = with_ancestors(&reader, &newest, holds)?;
        Some(frames.iter().map(|frame| frame.meta.id.sequence.0).collect())
    }

    #[test]
    fn a_frame_needs_those_that_others_need_up_to_the_key_frame() {
        let large = 1 << 20;
        assert_eq!(needed("knnk", large, None), Some(vec![3]));
        assert_eq!(needed("knsnssn", large, None), Some(vec![0, 1, 3, 6]));
        assert_eq!(needed("knsns", large, None), Some(vec![0, 1, 3, 4]));
        assert_eq!(needed("knsnssn", large, Some(1)), Some(vec![3, 6]));
        assert_eq!(needed("knsnssn", large, Some(2)), Some(vec![0, 1, 3, 6]), "nobody needs that one");
    }

    #[test]
    fn what_the_log_has_dropped_cannot_be_decoded() {
        let chain = format!("k{}", "n".repeat(40));
        assert_eq!(needed(&chain, 1 << 20, None).map(|frames| frames.len()), Some(41));
        assert_eq!(needed(&chain, 24 << 10, None), None);
        assert_eq!(needed(&chain, 24 << 10, Some(39)), Some(vec![40]));
    }
}
