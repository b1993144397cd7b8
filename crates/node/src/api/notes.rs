//! Handles requests for notes.

use mez_core::name::CameraName;
use mez_core::rights::Verb;
use mez_core::units::Timestamp;
use tonic::Code;

use super::edge::EdgeApi;
use super::principal::Principal;
use super::request::parse_camera;
use super::{ApiError, pb};
use crate::notes::message::note_id;
use crate::notes::{Note, NoteId};

impl EdgeApi {
    /// The notes of a camera. Needs the right to read the camera's past.
    pub async fn notes(
        &self,
        principal: &Principal,
        request: pb::GetNotesRequest,
    ) -> Result<pb::GetNotesResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        let begin = request.begin_utc_ns.map_or(Timestamp::MIN, Timestamp::from_nanos);
        let end = request.end_utc_ns.map_or(Timestamp::MAX, Timestamp::from_nanos);
        let span = (begin, end, request.after.map(note_id));
        let (notes, more) = self.noted(principal, &camera, span).await?;
        Ok(pb::GetNotesResponse { notes: notes.into_iter().map(Note::into_message).collect(), more })
    }

    /// The notes within `begin..=end` after the note `after`, and whether there are more.
    pub(crate) async fn noted(
        &self,
        principal: &Principal,
        camera: &CameraName,
        (begin, end, after): (Timestamp, Timestamp, Option<NoteId>),
    ) -> Result<(Vec<Note>, bool), ApiError> {
        self.access.check(principal, Verb::Read, camera)?;
        let Some(notes) = self.edge.notes() else {
            let message = "this edge keeps no notes; start it with --store, and without --no-notes";
            return Err(ApiError::new(Code::FailedPrecondition, "NO_NOTES", message));
        };
        if !self.edge.cameras().await?.iter().any(|info| info.camera == *camera) {
            let message = format!("no camera {camera} is known; see `mez cameras`");
            return Err(ApiError::new(Code::NotFound, "UNKNOWN_CAMERA", message).at("camera"));
        }
        if begin > end {
            let message = "the end is before the beginning; swap begin_utc_ns and end_utc_ns";
            return Err(ApiError::invalid("end_utc_ns", "INVALID_SPAN", message));
        }
        self.access.gives_notes(principal, camera);
        let read = notes.read(camera, begin, end, after).await;
        let (notes, more) = read.map_err(|error| {
            let message = format!("the notes of {camera} cannot be read: {error}");
            ApiError::new(Code::Internal, "NOTES_UNREADABLE", message)
        })?;
        // Checked again, because reading a disk may take long and the right may be lost meanwhile.
        self.access.check(principal, Verb::Read, camera)?;
        Ok((notes, more))
    }
}
