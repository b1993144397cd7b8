//! Publishes frames: checks, stamps and appends them to the camera's log, on the publisher's thread.

use std::sync::Arc;

use bytes::Bytes;

use super::NUMBER_MAX;
use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FRAME_BYTES_MAX, Frame, FrameId, FrameMeta, Rung, Sequence,
};
use crate::log::{AppendError, LogWriter};
use crate::units::{ClockAnchor, Instant, Timestamp};

/// The last capture time that a publisher may give, in the year 2262. Frames are at least a nanosecond apart,
/// so no frame could follow a time at the end of the range. A wrong unit would then stop the camera for good.
pub const CAPTURED_MAX: Timestamp = Timestamp::from_nanos(NUMBER_MAX);

/// The settings of an [`Intake`].
#[derive(Clone, Copy, Debug)]
pub struct IntakeConfig {
    /// The epoch of the camera broker's present start.
    pub epoch: Epoch,
    /// Relates the monotonic clock to the wall clock.
    pub anchor: ClockAnchor,
    /// The largest payload that is accepted, in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u32,
}

impl IntakeConfig {
    /// The defaults.
    pub const fn new(epoch: Epoch, anchor: ClockAnchor) -> Self {
        Self { epoch, anchor, frame_bytes_max: FRAME_BYTES_MAX }
    }
}

/// A frame on its way into the camera's log.
#[derive(Clone, Debug)]
pub struct Published {
    /// The coded pixels.
    pub payload: Bytes,
    /// How they are coded.
    pub encoding: Encoding,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// When the frame was captured, if the publisher knows better than the time of publishing.
    pub captured: Option<Timestamp>,
}

/// Why a frame was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// No pixels, or no bytes.
    #[error(
        "the frame is empty ({width}x{height} pixels, {bytes} bytes); publish frames of at least one pixel"
    )]
    Empty {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The payload's size.
        bytes: usize,
    },
    /// The payload exceeds the limit.
    #[error(
        "the frame has {bytes} bytes, more than the limit of {bytes_max}; raise frame_bytes_max or encode it smaller"
    )]
    TooLarge {
        /// The payload's size.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// The capture time is after [`CAPTURED_MAX`].
    #[error(
        "the capture time {captured} lies beyond {CAPTURED_MAX}, so that no frame could follow; give nanoseconds since 1970, or no time"
    )]
    TooFarAhead {
        /// What was given.
        captured: Timestamp,
    },
    /// The log refused it.
    #[error(transparent)]
    Log(#[from] AppendError),
}

/// The way into a camera's log.
pub struct Intake {
    writer: LogWriter,
    config: IntakeConfig,
    next: Sequence,
    refused: u64,
}

impl Intake {
    /// An intake that is the only writer of a log.
    pub fn new(writer: LogWriter, config: IntakeConfig) -> Self {
        Self { writer, config, next: Sequence(0), refused: 0 }
    }

    /// Stamps a frame and appends it to the log. A refused frame takes no sequence number.
    pub fn publish(&mut self, now: Instant, frame: Published) -> Result<FrameId, PublishError> {
        let result = self.try_publish(now, frame);
        match result {
            Ok(_) => self.next.0 += 1,
            Err(_) => self.refused += 1,
        }
        result
    }

    /// The epoch that new frames belong to.
    pub fn epoch(&self) -> Epoch {
        self.config.epoch
    }

    /// How many frames were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes in the log, with evicted frames that its readers still hold.
    pub fn log_bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Begins a later epoch, because the edge holds frames of this one from another run of this camera.
    pub fn raise_epoch(&mut self, epoch: Epoch) {
        if epoch > self.config.epoch {
            self.config.epoch = epoch;
            self.next = Sequence(0);
        }
    }

    fn try_publish(&mut self, now: Instant, frame: Published) -> Result<FrameId, PublishError> {
        let Published { payload, encoding, width, height, captured } = frame;
        if width == 0 || height == 0 || payload.is_empty() {
            return Err(PublishError::Empty { width, height, bytes: payload.len() });
        }
        if payload.len() > self.config.frame_bytes_max as usize {
            return Err(PublishError::TooLarge {
                bytes: payload.len(),
                bytes_max: self.config.frame_bytes_max,
            });
        }
        if let Some(captured) = captured.filter(|captured| *captured > CAPTURED_MAX) {
            return Err(PublishError::TooFarAhead { captured });
        }
        let id = FrameId { epoch: self.config.epoch, sequence: self.next };
        let (captured, clock_source) = match captured {
            Some(captured) => (captured, ClockSource::Publisher),
            None => (self.stamp(now), ClockSource::Broker),
        };
        let meta = FrameMeta {
            id,
            captured,
            clock_source,
            width,
            height,
            published: (width, height),
            encoding,
            rung: Rung::original(),
            chain: ChainLink::still(id.sequence),
        };
        self.writer.append(Frame { meta, payload }, Arc::new([]), now)?;
        Ok(id)
    }

    /// The wall-clock time of `now`, moved on if the previous frame has the same time.
    fn stamp(&self, now: Instant) -> Timestamp {
        let wall = self.config.anchor.wall_at(now);
        match self.writer.last() {
            Some((last, captured)) if last.epoch == self.config.epoch => {
                wall.max(Timestamp::from_nanos(captured.as_nanos().saturating_add(1)))
            }
            _ => wall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogConfig, log};

    fn intake() -> (Intake, crate::log::LogReader) {
        let (writer, reader) = log(LogConfig::default());
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(5_000), monotonic: Instant::from_nanos(100) };
        (
            Intake::new(writer, IntakeConfig { frame_bytes_max: 64, ..IntakeConfig::new(Epoch(3), anchor) }),
            reader,
        )
    }

    fn image(bytes: usize) -> Published {
        Published {
            payload: vec![1; bytes].into(),
            encoding: Encoding::Jpeg,
            width: 2,
            height: 2,
            captured: None,
        }
    }

    #[test]
    fn frames_are_numbered_and_stamped_by_the_anchored_clock() {
        let (mut intake, reader) = intake();
        for expected in 0..3 {
            // The clock stands still, but the stamps move on.
            let id = intake.publish(Instant::from_nanos(150), image(4)).unwrap();
            assert_eq!(id, FrameId { epoch: Epoch(3), sequence: Sequence(expected) });
        }
        let stamps: Vec<u64> =
            (0..3).map(|index| reader.get(index).unwrap().frame.meta.captured.as_nanos()).collect();
        assert_eq!(stamps, [5_050, 5_051, 5_052]);
    }

    #[test]
    fn refused_frames_are_counted_and_take_no_number() {
        let (mut intake, reader) = intake();
        let now = Instant::from_nanos(200);
        assert!(matches!(intake.publish(now, image(65)), Err(PublishError::TooLarge { .. })));
        assert!(matches!(intake.publish(now, image(0)), Err(PublishError::Empty { .. })));
        assert!(matches!(
            intake.publish(now, Published { width: 0, ..image(4) }),
            Err(PublishError::Empty { .. })
        ));
        intake.publish(now, Published { captured: Some(Timestamp::from_nanos(9)), ..image(4) }).unwrap();
        let again = intake.publish(now, Published { captured: Some(Timestamp::from_nanos(9)), ..image(4) });
        assert!(matches!(again, Err(PublishError::Log(AppendError::CaptureTime { .. }))));
        assert_eq!((intake.refused(), reader.held()), (4, 0..1));
    }

    /// Such a time once stopped the camera until its broker was started again.
    #[test]
    fn no_capture_time_keeps_frames_from_following() {
        let (mut intake, reader) = intake();
        let now = Instant::from_nanos(200);
        let at = |captured| Published { captured: Some(captured), ..image(4) };
        let refused = intake.publish(now, at(Timestamp::MAX)).unwrap_err();
        assert_eq!(refused, PublishError::TooFarAhead { captured: Timestamp::MAX });
        intake.publish(now, at(CAPTURED_MAX)).unwrap();
        intake.publish(now, image(4)).unwrap();
        let again = intake.publish(now, at(CAPTURED_MAX));
        assert!(matches!(again, Err(PublishError::Log(AppendError::CaptureTime { .. }))));
        assert_eq!(reader.held(), 0..2);
    }
}
