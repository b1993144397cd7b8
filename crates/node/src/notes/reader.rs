//! Reads the notes of a camera from disk, oldest first. Works while an edge writes them.

use std::path::{Path, PathBuf};

use mez_core::history::PastQuery;
use mez_core::name::CameraName;
use mez_core::store::{KeyRing, StorageError, StorageErrorKind, StoreReader};
use mez_core::subscription::skipped_between;
use mez_core::units::Timestamp;
use tracing::warn;

use super::{Note, NoteId};
use crate::persist::{LogFiles, LogKind};

/// Reads the notes of a camera.
pub struct NoteReader {
    files: LogFiles,
    reader: StoreReader,
    query: PastQuery,
    /// Records since the last note that this version cannot decode.
    strange: u64,
}

impl NoteReader {
    /// Reads the notes below the store folder `root` that were made within `begin..=end` and follow the note `after`.
    /// `keys` are the keys of the frames. `remembered` is the file found by [`crate::persist::find_remembered`].
    pub fn open(
        root: &Path,
        camera: &CameraName,
        keys: &KeyRing,
        remembered: Option<PathBuf>,
        (begin, end, after): (Timestamp, Timestamp, Option<NoteId>),
    ) -> Self {
        Self {
            files: LogFiles::reader_of(root, camera, LogKind::Notes, remembered),
            reader: StoreReader::new(camera.clone(), LogKind::Notes.keys(keys)),
            query: PastQuery { begin, end, after, ..PastQuery::EVERY },
            strange: 0,
        }
    }

    /// The next note. `None` after the last one, or if there is no log of notes.
    pub fn read(&mut self) -> Result<Option<Note>, StorageError> {
        loop {
            let answer = match self.reader.find(&mut self.files, &self.query) {
                Err(error) if error.kind == StorageErrorKind::Missing => return Ok(None),
                answer => answer?,
            };
            let Some(record) = answer.record else { return Ok(None) };
            let id = record.frame.meta.id;
            let mut missing = skipped_between(self.query.after, &record, (0, answer.broken));
            if self.query.after.is_none() {
                record.skipped.iter().for_each(|range| missing.add(range.reason, range.count));
            }
            self.query.after = Some(id);
            match Note::of_record(record.frame, &missing) {
                Ok(mut note) => {
                    note.missing += std::mem::take(&mut self.strange);
                    return Ok(Some(note));
                }
                Err(error) => {
                    warn!(camera = %self.reader.camera(), "note {id}: {error}");
                    self.strange += 1 + missing.total();
                }
            }
        }
    }

    /// How many records were unreadable so far.
    pub fn damaged(&self) -> u64 {
        self.reader.damaged()
    }
}
