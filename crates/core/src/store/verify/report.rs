//! What a look at a whole log has found.

use std::fmt;

use crate::frame::Epoch;
use crate::store::SegmentNumber;
use crate::store::format::{DamageKind, HeaderError};
use crate::units::Timestamp;

/// The most findings that a report names; it counts all of them, and what they cost.
pub const FINDINGS_MAX: usize = 1_000;

/// What is wrong at one place of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The segment cannot be opened.
    Header(HeaderError),
    /// A byte of the segment's header is damaged. Nothing is lost: the checksum tells what it was.
    Mended {
        /// Which byte.
        place: usize,
    },
    /// Bytes of the segment are not what was written there.
    Damaged(DamageKind),
    /// The segment ends before the next one begins, or before what had been written.
    Short,
    /// Segments are not there, or stand under another number.
    Missing {
        /// The last of them.
        to: SegmentNumber,
    },
    /// The segment is of a later epoch than the one after it: an older copy of the log stands in place of what came after.
    OlderCopy {
        /// Its epoch.
        epoch: Epoch,
        /// That of the segment after it.
        next: Epoch,
    },
}

/// Something that is wrong with a log, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The segment, or the first of several.
    pub segment: SegmentNumber,
    /// What is wrong.
    pub kind: FindingKind,
    /// Where in the segment.
    pub offset: u64,
    /// Bytes there that cannot be used.
    pub bytes: u64,
    /// The index of the first record that is lost.
    pub index: Option<u64>,
    /// How many records are lost; `None` if nobody knows.
    pub records: Option<u64>,
    /// The capture time of the last whole record before.
    pub after: Option<Timestamp>,
    /// The capture time of the first whole record behind.
    pub before: Option<Timestamp>,
}

impl fmt::Display for Finding {
    /// `segment 0000000000000007, 3000 bytes at 81920: torn or rotten: … (1 frame lost, captured between … and …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, kind, offset, bytes, index, records, after, before } = self;
        match kind {
            FindingKind::Header(why) => write!(f, "segment {segment}, {bytes} bytes: {why}")?,
            FindingKind::Mended { place } => {
                write!(
                    f,
                    "segment {segment}: byte {place} of its header is damaged, and was put right in reading it"
                )?;
            }
            FindingKind::Damaged(why) => write!(f, "segment {segment}, {bytes} bytes at {offset}: {why}")?,
            FindingKind::Short => write!(f, "segment {segment} ends too early, at {offset}: it was cut off")?,
            FindingKind::Missing { to } if to == segment => write!(f, "segment {segment} is not there")?,
            FindingKind::Missing { to } => write!(f, "segments {segment} to {to} are not there")?,
            FindingKind::OlderCopy { epoch, next } => write!(
                f,
                "segment {segment}, {bytes} bytes: it is of epoch {}, and the next one of epoch {}: an older copy of the log was put in its \
                 place, and nothing up to here is read",
                epoch.0, next.0
            )?,
        }
        match records {
            Some(0) => return Ok(()),
            Some(1) => write!(f, "; 1 frame is lost")?,
            Some(records) => write!(f, "; {records} frames are lost")?,
            None => write!(f, "; nobody knows how many frames are lost")?,
        }
        match index {
            Some(index) => write!(f, " (from record {index} on")?,
            None => write!(f, " (")?,
        }
        let comma = if index.is_some() { ", " } else { "" };
        match (after, before) {
            (Some(after), Some(before)) => write!(f, "{comma}captured between {after} and {before})"),
            (Some(after), None) => write!(f, "{comma}captured after {after})"),
            (None, Some(before)) => write!(f, "{comma}captured before {before})"),
            (None, None) => write!(f, "{comma}nobody knows when captured)"),
        }
    }
}

/// What is in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub number: SegmentNumber,
    /// Its size.
    pub bytes: u64,
    /// Whole records that readers get.
    pub records: u64,
    /// Records that are lost, as far as is known.
    pub records_lost: u64,
    /// Bytes that are neither whole records nor superseded.
    pub bytes_unreadable: u64,
    /// The capture times of its first and its last whole record.
    pub captured: Option<(Timestamp, Timestamp)>,
}

/// What a look at a whole log has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Its segments, the oldest first, strange ones among them. Those that have expired are left out.
    pub segments: Vec<SegmentReport>,
    /// What is wrong, in the order of the log: the first [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How much is wrong in all.
    pub wrong: u64,
    /// Records that are lost, as far as is known.
    pub records_lost: u64,
    /// Nobody knows how many records some of the findings cost.
    pub more_may_be_lost: bool,
    /// Bytes at the end that were being written when the broker was killed or the power went, or are being written now. Nothing that
    /// anybody was told to be there.
    pub torn_bytes: u64,
    /// Bytes that the next segment holds again, since what was written there had not become durable.
    pub superseded_bytes: u64,
    /// Whether it is known which segments there should be.
    pub bounds_known: bool,
    /// Whether it is known how far the log had been written.
    pub progress_known: bool,
}

impl LogReport {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.wrong == 0
    }

    /// Whole records that readers get.
    pub fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records).sum()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes that are neither whole records nor superseded.
    pub fn bytes_unreadable(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes_unreadable).sum()
    }

    /// The capture times of the first and the last whole record.
    pub fn captured(&self) -> Option<(Timestamp, Timestamp)> {
        let mut spans = self.segments.iter().filter_map(|segment| segment.captured);
        let first = spans.next()?;
        Some((first.0, spans.next_back().unwrap_or(first).1))
    }
}
