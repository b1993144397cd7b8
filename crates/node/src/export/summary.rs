//! Counts the frames in the file of an export, and those that are missing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mez_core::frame::SkipCounts;
use mez_core::units::Timestamp;
use serde_json::{Value, json};

use super::frames::Still;
use super::said::Due;

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Frames in the file.
    pub frames: u64,
    /// Size of the file in bytes; 0 until it is finished.
    pub file_bytes: u64,
    /// The capture time of the first frame.
    pub from: Timestamp,
    /// The capture time of the last frame.
    pub to: Timestamp,
    /// Number of gaps between two frames of the file.
    pub gaps: u64,
    /// Frames missing in these gaps, by reason.
    pub missing: SkipCounts,
    /// Damaged records of the log.
    pub damaged: u64,
    /// Frames that were encoded again: raw pixels, and frames that refer to others.
    pub recoded: u64,
    /// Frames left out because frames that they refer to are missing in the log.
    pub undecodable: u64,
    /// Frames left out of a copied video because they have another encoding.
    pub not_copied: u64,
    /// Data records left out of a video.
    pub no_pictures: u64,
    /// Frames of a video that appear later than their capture time, because the clock had been set back.
    pub moved: u64,
    /// The number of frames of each width and height. A log has several sizes if some frames were scaled down for the link.
    pub sizes: BTreeMap<(u32, u32), u64>,
    /// The published width and height of the first frame. A video shows all frames at this size, unless its codec copies them.
    pub video_size: (u32, u32),
    /// Results of applications in the file, or in the file beside a video.
    pub replies: u64,
    /// Changes of contracts in the file, or in the file beside a video.
    pub contract_changes: u64,
    /// Changes of the source's state in the file, or in the file beside a video.
    pub source_changes: u64,
    /// Notes of the span that are missing in the log of notes.
    pub notes_missing: u64,
    /// The file beside a video, with the notes about its frames.
    pub side_file: Option<PathBuf>,
    /// Frames and records of other streams in the file, by stream name.
    pub with: BTreeMap<String, u64>,
}

impl ExportSummary {
    /// The summary as one line of JSON.
    pub fn to_json(&self) -> String {
        let missing: BTreeMap<_, _> = self.missing.iter().map(|(reason, n)| (reason.name(), n)).collect();
        let sizes: BTreeMap<String, u64> =
            self.sizes.iter().map(|((width, height), n)| (format!("{width}x{height}"), *n)).collect();
        json!({
            "frames": self.frames,
            "file_bytes": self.file_bytes,
            "from": self.from.to_string(),
            "to": self.to.to_string(),
            "gaps": self.gaps,
            "missing_frames": self.missing.total(),
            "missing_by_reason": missing,
            "damaged_records": self.damaged,
            "recoded_frames": self.recoded,
            "undecodable_frames": self.undecodable,
            "not_copied_frames": self.not_copied,
            "data_records_left_out": self.no_pictures,
            "moved_frames": self.moved,
            "frames_by_size": sizes,
            "replies": self.replies,
            "contract_changes": self.contract_changes,
            "source_changes": self.source_changes,
            "notes_missing": self.notes_missing,
            "side_file": self.side_file,
            "with": self.with,
        })
        .to_string()
    }

    /// The fields that are known before the file is finished, as texts.
    pub(super) fn fields(&self) -> BTreeMap<String, String> {
        let Ok(Value::Object(fields)) = serde_json::from_str(&self.to_json()) else { return BTreeMap::new() };
        let texts = fields.into_iter().filter(|(name, _)| name != "file_bytes" && name != "side_file").map(
            |(name, value)| match value {
                Value::String(text) => (name, text),
                other => (name, other.to_string()),
            },
        );
        texts.collect()
    }

    pub(super) fn note_said(&mut self, due: &Due, replies: usize) {
        self.replies += (replies + due.replies.len()) as u64;
        self.contract_changes += due.contracts.len() as u64;
        self.source_changes += due.sources.len() as u64;
    }

    pub(super) fn note(&mut self, still: &Still) {
        let first = self.frames == 0;
        self.frames += 1;
        self.recoded += u64::from(still.recoded);
        self.from = if first { still.meta.captured } else { self.from };
        self.to = still.meta.captured;
        if still.meta.encoding.is_picture() {
            *self.sizes.entry((still.meta.width, still.meta.height)).or_default() += 1;
        }
        if !first && still.missing.total() > 0 {
            self.gaps += 1;
            self.missing.merge(&still.missing);
        }
    }
}
