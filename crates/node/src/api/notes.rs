//! Answers requests for notes.

use mez_core::rights::Verb;
use mez_core::units::Timestamp;
use tonic::Code;

use super::edge::EdgeApi;
use super::principal::Principal;
use super::request::parse_camera;
use super::{ApiError, pb};
use crate::notes::Note;
use crate::notes::message::note_id;

impl EdgeApi {
    /// What was said of a camera's frames. Whoever may read its past may read this.
    pub async fn notes(
        &self,
        principal: &Principal,
        request: pb::GetNotesRequest,
    ) -> Result<pb::GetNotesResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        self.access.check(principal, Verb::Read, &camera)?;
        let Some(notes) = self.edge.notes() else {
            let message = "this edge keeps no notes; start it with --store, and without --no-notes";
            return Err(ApiError::new(Code::FailedPrecondition, "NO_NOTES", message));
        };
        if !self.edge.cameras().await?.iter().any(|info| info.camera == camera) {
            let message = format!("no camera {camera} is known; see `mez cameras`");
            return Err(ApiError::new(Code::NotFound, "UNKNOWN_CAMERA", message).at("camera"));
        }
        let begin = request.begin_utc_ns.map_or(Timestamp::MIN, Timestamp::from_nanos);
        let end = request.end_utc_ns.map_or(Timestamp::MAX, Timestamp::from_nanos);
        if begin > end {
            let message = "the end lies before the beginning; swap begin_utc_ns and end_utc_ns";
            return Err(ApiError::invalid("end_utc_ns", "INVALID_SPAN", message));
        }
        self.access.gives_notes(principal, &camera);
        let read = notes.read(&camera, begin, end, request.after.map(note_id)).await;
        let (notes, more) = read.map_err(|error| {
            let message = format!("the notes of {camera} cannot be read: {error}");
            ApiError::new(Code::Internal, "NOTES_UNREADABLE", message)
        })?;
        // Disks may take long, and the right may be gone meanwhile.
        self.access.check(principal, Verb::Read, &camera)?;
        Ok(pb::GetNotesResponse { notes: notes.into_iter().map(Note::into_message).collect(), more })
    }
}
