//! Reports the findings of a check of a whole log, in words that `mez store verify` prints.

use std::fmt;

use crate::frame::Epoch;
use crate::store::SegmentNumber;
use crate::store::format::{DamageKind, HeaderError};
use crate::units::Timestamp;

/// The most findings that a report lists, to bound the memory of a check. Counts and losses include the rest.
pub const FINDINGS_MAX: usize = 1_000;

/// The kind of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The segment cannot be opened.
    Header(HeaderError),
    /// One byte of the segment's header is damaged. Nothing is lost: the checksum tells the original byte.
    Mended {
        /// The offset of the byte.
        place: usize,
    },
    /// Bytes of the segment are damaged.
    Damaged(DamageKind),
    /// The segment ends before the next one begins, or before the last record that was written.
    Short,
    /// Segments are missing, or have another number.
    Missing {
        /// The last missing segment.
        to: SegmentNumber,
    },
    /// The segment has a later epoch than the one after it: an older copy of the log was put in place of the
    /// segments after it.
    OlderCopy {
        /// The epoch of the segment.
        epoch: Epoch,
        /// The epoch of the segment after it.
        next: Epoch,
    },
}

/// One fault of a log, and its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The segment, or the first of several.
    pub segment: SegmentNumber,
    /// What is wrong.
    pub kind: FindingKind,
    /// The offset in the segment.
    pub offset: u64,
    /// Bytes there that cannot be used.
    pub bytes: u64,
    /// The index of the first lost record.
    pub index: Option<u64>,
    /// How many records are lost; `None` if unknown.
    pub records: Option<u64>,
    /// The capture time of the last complete record before the finding.
    pub after: Option<Timestamp>,
    /// The capture time of the first complete record behind the finding.
    pub before: Option<Timestamp>,
}

/// The words for the records of a log and for their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordWords {
    /// One record: `frame`.
    pub one: &'static str,
    /// What happened at a record's time: `captured`.
    pub timed: &'static str,
}

impl RecordWords {
    /// The words for a log of frames.
    pub const FRAMES: Self = Self { one: "frame", timed: "captured" };
    /// The words for a log of notes.
    pub const NOTES: Self = Self { one: "note", timed: "noted" };
}

impl fmt::Display for Finding {
    /// `segment 0000000000000007, 3000 bytes at 81920: torn or rotten: … (1 frame lost, captured between … and …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, RecordWords::FRAMES)
    }
}

impl Finding {
    /// The finding, with the words for this log's records.
    pub fn of(&self, words: RecordWords) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| self.write(f, words))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, words: RecordWords) -> fmt::Result {
        let Self { segment, kind, offset, bytes, index, records, after, before } = self;
        let RecordWords { one, timed } = words;
        match kind {
            FindingKind::Header(why) => write!(f, "segment {segment}, {bytes} bytes: {why}")?,
            FindingKind::Mended { place } => {
                write!(
                    f,
                    "segment {segment}: byte {place} of its header is damaged; it is corrected while reading"
                )?;
            }
            FindingKind::Damaged(why) => write!(f, "segment {segment}, {bytes} bytes at {offset}: {why}")?,
            FindingKind::Short => {
                write!(f, "segment {segment} ends too early, at byte {offset}: it was cut off")?
            }
            FindingKind::Missing { to } if to == segment => write!(f, "segment {segment} is missing")?,
            FindingKind::Missing { to } => write!(f, "segments {segment} to {to} are missing")?,
            FindingKind::OlderCopy { epoch, next } => write!(
                f,
                "segment {segment}, {bytes} bytes: this segment has epoch {}, but the next segment has epoch {}: an older copy of the log was \
                 restored; records up to here are not read",
                epoch.0, next.0
            )?,
        }
        match records {
            Some(0) => return Ok(()),
            Some(1) => write!(f, "; 1 {one} is lost")?,
            Some(records) => write!(f, "; {records} {one}s are lost")?,
            None => write!(f, "; the number of lost {one}s is unknown")?,
        }
        match index {
            Some(index) => write!(f, " (from record {index} on")?,
            None => write!(f, " (")?,
        }
        let comma = if index.is_some() { ", " } else { "" };
        match (after, before) {
            (Some(after), Some(before)) => write!(f, "{comma}{timed} between {after} and {before})"),
            (Some(after), None) => write!(f, "{comma}{timed} after {after})"),
            (None, Some(before)) => write!(f, "{comma}{timed} before {before})"),
            (None, None) => write!(f, "{comma}{timed} at an unknown time)"),
        }
    }
}

/// The contents of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its number.
    pub number: SegmentNumber,
    /// Its size.
    pub bytes: u64,
    /// Complete records, which readers get.
    pub records: u64,
    /// Lost records, as far as is known.
    pub records_lost: u64,
    /// Bytes that belong to no complete record and are not superseded.
    pub bytes_unreadable: u64,
    /// The capture times of its first and its last complete record.
    pub captured: Option<(Timestamp, Timestamp)>,
}

/// The result of a check of a whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The segments, oldest first, including unreadable ones. Expired segments are left out.
    pub segments: Vec<SegmentReport>,
    /// The first [`FINDINGS_MAX`] findings, in the order of the log.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub wrong: u64,
    /// Lost records, as far as is known.
    pub records_lost: u64,
    /// Whether some findings cost an unknown number of records.
    pub more_may_be_lost: bool,
    /// Bytes at the end that are being written now, or were when the broker was killed or the power was cut.
    /// Nobody was told that they are on disk.
    pub torn_bytes: u64,
    /// Bytes that the next segment holds again, because they were not durable.
    pub superseded_bytes: u64,
    /// Whether it is known which segments should exist.
    pub bounds_known: bool,
    /// Whether it is known how far the log was written.
    pub progress_known: bool,
}

impl LogReport {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.wrong == 0
    }

    /// Complete records of all segments, which readers get.
    pub fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records).sum()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of all segments that belong to no complete record and are not superseded.
    pub fn bytes_unreadable(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes_unreadable).sum()
    }

    /// The capture times of the first and the last complete record.
    pub fn captured(&self) -> Option<(Timestamp, Timestamp)> {
        let mut spans = self.segments.iter().filter_map(|segment| segment.captured);
        let first = spans.next()?;
        Some((first.0, spans.next_back().unwrap_or(first).1))
    }
}
