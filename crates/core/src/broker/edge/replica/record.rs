//! Builds the records that enter a replica log.

use std::sync::Arc;

use bytes::Bytes;

use crate::frame::{Frame, FrameId, Quality, Sequence, SkipRange};
use crate::log::Record;
use crate::trace::FrameTrace;
use crate::units::Instant;
use crate::wire::FrameHeader;

/// The times of a frame's arrival.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// When its header arrived.
    pub(super) arriving: Instant,
    /// When it had arrived completely.
    pub(super) arrived: Instant,
}

/// A record of a frame, with the known skips between the newest frame of the log and this
/// one. The record is appended at `logged`; `overtaken`: a newer frame came right behind it.
pub(super) fn record(
    header: FrameHeader,
    payload: Bytes,
    times: Times,
    (logged, overtaken): (Instant, bool),
    (newest, skipped): (Option<FrameId>, &[SkipRange]),
) -> Record {
    let FrameHeader { meta, payload_bytes, expected_accuracy, infeasible, trace: camera, .. } = header;
    let Times { arriving, arrived } = times;
    // A clock that goes back would log a frame before its arrival.
    debug_assert!(arriving <= arrived && arrived <= logged, "a frame is logged before it arrived");
    Record {
        skipped: skipped_since(newest, meta.id, skipped),
        frame: Frame { meta, payload },
        quality: Quality { expected_accuracy, infeasible },
        trace: Some(Arc::new(FrameTrace { camera, arriving, arrived, decoded: None, logged, overtaken })),
        link_bytes: Some(payload_bytes),
        arrived,
    }
}

/// The known skips between the newest frame of the log and the next one.
fn skipped_since(newest: Option<FrameId>, frame: FrameId, skipped: &[SkipRange]) -> Arc<[SkipRange]> {
    let from = match newest {
        Some(newest) if newest.epoch == frame.epoch => newest.sequence.next(),
        _ => Sequence(0),
    };
    skipped.iter().filter_map(|range| range.clipped(from, frame.sequence)).collect()
}
