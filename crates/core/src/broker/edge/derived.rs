//! Holds the state of a derived stream: its owner, its sources, and the numbering of its records.

use super::replica::Replica;
use super::types::Deriving;
use crate::broker::intake::describe;
use crate::broker::{IntakeConfig, PublishError, Published};
use crate::frame::{ChainLink, Epoch, Frame, FrameMeta, Quality, Sequence};
use crate::log::Record;
use crate::units::{ClockAnchor, Instant};
use crate::wire::Status;

/// A derived stream.
pub(super) struct Derived {
    /// The present or last owner, and the sources.
    pub(super) deriving: Deriving,
    /// The epoch and the anchor of this run of the edge. `None`: the stream was not published in this run.
    start: Option<(Epoch, ClockAnchor)>,
    next: Sequence,
    /// How many publishers the stream has.
    pub(super) publishers: usize,
    /// Counts the records of this epoch. The frame rate and the size of the log are measured elsewhere.
    status: Status,
}

impl Derived {
    /// A stream that was not published yet in this run of the edge.
    pub(super) fn new(deriving: Deriving) -> Self {
        Self { deriving, start: None, next: Sequence(0), publishers: 0, status: Status::default() }
    }

    /// Whether the stream has an epoch of this run of the edge.
    pub(super) fn is_begun(&self) -> bool {
        self.start.is_some()
    }

    /// The stream's epoch begins.
    pub(super) fn begin(&mut self, start: (Epoch, ClockAnchor)) {
        debug_assert!(self.start.is_none(), "an epoch begins twice in one run of the edge");
        self.start = Some(start);
    }

    /// The counts of this epoch, with the frame rate that is measured elsewhere.
    pub(super) fn status(&self, frames_per_second: f64) -> Status {
        Status { frames_per_second, ..self.status }
    }

    /// Numbers a record and appends it to its log.
    pub(super) fn publish(
        &mut self,
        (now, captured): (Instant, Instant),
        replica: &mut Replica,
        frame: Published,
        bytes_max: u32,
    ) -> Result<FrameMeta, PublishError> {
        let published = self.append((now, captured), replica, frame, bytes_max);
        match &published {
            Ok((meta, bytes)) => {
                debug_assert_eq!(meta.id.sequence, self.next, "records are numbered without holes");
                self.next.0 += 1;
                self.status.published += 1;
                self.status.published_bytes += bytes;
                (self.status.width, self.status.height) = (meta.width, meta.height);
            }
            Err(_) => self.status.refused += 1,
        }
        published.map(|(meta, _)| meta)
    }

    fn append(
        &self,
        (now, captured): (Instant, Instant),
        replica: &mut Replica,
        frame: Published,
        bytes_max: u32,
    ) -> Result<(FrameMeta, u64), PublishError> {
        let (epoch, anchor) =
            self.start.expect("whoever publishes was let in, and with the first of them the epoch began");
        let config = IntakeConfig { frame_bytes_max: bytes_max, ..IntakeConfig::new(epoch, anchor) };
        let place = (self.next, ChainLink::still(self.next));
        let meta = describe(&config, place, replica.newest(), captured, &frame)?;
        let bytes = frame.payload.len() as u64;
        let record = Record {
            frame: Frame { meta: meta.clone(), payload: frame.payload },
            skipped: [].into(),
            quality: Quality::default(),
            trace: None,
            link_bytes: None,
            arrived: now,
        };
        replica.publish(record)?;
        Ok((meta, bytes))
    }
}
