//! Notes the states of cameras' sources, so that a reader of the past learns why there are no frames.

use std::collections::BTreeSet;

use mez_core::name::CameraName;
use mez_core::source::{SourceStanding, SourceState};
use mez_core::units::{Instant, Timestamp};

use crate::notes::{NoteContent, NotedSource, Notes};

/// The noted states of cameras' sources, on an edge that keeps notes.
#[derive(Default)]
pub(super) struct NotedSources {
    /// Cameras whose source gives no frames, according to the last note.
    dark: BTreeSet<CameraName>,
}

impl NotedSources {
    /// Notes how a camera's source stands, at this moment of both clocks.
    pub(super) fn changed(
        &mut self,
        (now, wall): (Instant, Timestamp),
        (notes, camera): (&Notes, &CameraName),
        source: &SourceStanding,
    ) {
        if source.state == SourceState::Live {
            self.dark.remove(camera);
        } else {
            self.dark.insert(camera.clone());
        }
        let since = source.lasts(now).map(|lasts| wall - lasts);
        let (state, reason) = (source.state, source.reason.clone());
        notes.note(camera, NoteContent::Source(NotedSource { state, reason, since }));
    }

    /// Whether the last note on a camera's source says that it gives no frames.
    pub(super) fn is_dark(&self, camera: &CameraName) -> bool {
        self.dark.contains(camera)
    }

    /// Removes a camera that is no longer known.
    pub(super) fn forget(&mut self, camera: &CameraName) {
        self.dark.remove(camera);
    }
}
