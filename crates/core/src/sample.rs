//! Frames and records for tests.

use crate::frame::{ChainLink, ClockSource, Encoding, Frame, FrameId, FrameMeta, Quality, Rung};
use crate::log::Record;
use crate::units::{Instant, Timestamp};

/// A still of 4×4 pixels that goes as it was published.
pub(crate) fn meta(id: FrameId, captured: Timestamp) -> FrameMeta {
    FrameMeta {
        id,
        captured,
        clock_source: ClockSource::Broker,
        width: 4,
        height: 4,
        published: (4, 4),
        encoding: Encoding::Jpeg,
        rung: Rung::original(),
        chain: ChainLink::still(id.sequence),
    }
}

/// A record without gaps and trace, which an earlier start of the broker appended.
pub(crate) fn record(frame: Frame) -> Record {
    Record {
        frame,
        skipped: [].into(),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    }
}
