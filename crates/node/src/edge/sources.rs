//! Notes how the sources of cameras stand: who reads the past is to know why there are no frames.

use std::collections::BTreeSet;

use mez_core::name::CameraName;
use mez_core::source::{SourceStanding, SourceState};
use mez_core::units::{Instant, Timestamp};

use crate::notes::{NoteContent, NotedSource, Notes};

/// What is noted of the sources of cameras, on an edge that keeps notes.
#[derive(Default)]
pub(super) struct NotedSources {
    /// Cameras whose source gives no frames, as far as is noted.
    dark: BTreeSet<CameraName>,
}

impl NotedSources {
    /// A camera says how its source stands, at this moment of both clocks.
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

    /// Whether the last that is noted of a camera's source is that it gives no frames.
    pub(super) fn is_dark(&self, camera: &CameraName) -> bool {
        self.dark.contains(camera)
    }

    /// A camera is not known any more.
    pub(super) fn forget(&mut self, camera: &CameraName) {
        self.dark.remove(camera);
    }
}
