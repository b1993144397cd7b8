//! The file beside a video with the notes about its frames: one JSON object per line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tempfile::NamedTempFile;

use super::said::{Due, Said};
use super::{ExportError, part_file, write_error};
use crate::notes::{NotedContract, NotedReply, NotedSource};

/// The path of the file beside a video: `cam1.mp4.jsonl`.
pub(super) fn beside(video: &Path) -> PathBuf {
    let mut name = OsString::from(video);
    name.push(".jsonl");
    name.into()
}

/// A side file in progress.
pub(super) struct SideFile {
    output: PathBuf,
    part: NamedTempFile,
    lines: BufWriter<File>,
}

impl SideFile {
    pub(super) fn start(video: &Path) -> Result<Self, ExportError> {
        let output = beside(video);
        let part = part_file(&output)?;
        let lines = part.reopen().map_err(|source| write_error(&output, source))?;
        Ok(Self { output, part, lines: BufWriter::new(lines) })
    }

    /// Adds the notes before a frame, and the replies to this frame with its time in the video.
    pub(super) fn add(
        &mut self,
        due: &Due,
        frame: Option<(Duration, &[Said<NotedReply>])>,
    ) -> Result<(), ExportError> {
        let earlier = due.replies.iter().map(Said::<NotedReply>::to_json);
        let contracts = due.contracts.iter().map(Said::<NotedContract>::to_json);
        let sources = due.sources.iter().map(Said::<NotedSource>::to_json);
        let of_frame = frame.into_iter().flat_map(|(at, replies)| {
            replies.iter().map(move |reply| {
                let mut value = reply.to_json();
                value["video_seconds"] = at.as_secs_f64().into();
                value
            })
        });
        let mut values = earlier.chain(contracts).chain(sources).chain(of_frame);
        let lines = &mut self.lines;
        let written = values.try_for_each(|value: Value| writeln!(lines, "{value}"));
        written.map_err(|source| write_error(&self.output, source))
    }

    pub(super) fn finish(mut self) -> Result<NamedTempFile, ExportError> {
        self.lines.flush().map_err(|source| write_error(&self.output, source))?;
        Ok(self.part)
    }
}
