//! Questions to cameras that are not connected, and may be soon.
//!
//! After a start of the edge, or of a camera, applications are back before the camera is. To answer them that there is nothing would be
//! wrong, and to answer that nobody knows would be of little use a second before the camera is there.

use std::time::Duration;

use super::{EdgeBroker, HISTORY_QUESTIONS_MAX};
use crate::history::{PastAnswer, PastQuery, Unanswered};
use crate::name::CameraName;
use crate::units::Instant;

/// How long a question waits for a camera: from when the edge started, or the camera was last heard of, whichever is later, so that
/// nobody waits for one that has been gone for long. A camera that lost its edge is back within two seconds of the edge's start. One
/// that was refused dials again after five. A camera broker that was killed has started and read its log within a few.
pub const CAMERA_RETURN_MAX: Duration = Duration::from_secs(6);

/// A question to a camera that is not connected.
pub(in super::super) struct Waiting {
    camera: CameraName,
    query: PastQuery,
}

impl EdgeBroker {
    /// Until when a camera that is not connected is waited for.
    pub(super) fn expected_until(&self, camera: &CameraName) -> Instant {
        let known = self.cameras.get(camera);
        // One that is silent has a connection that nothing was heard of.
        let silent = known.and_then(|known| self.links.get(&known.link?)).map(|link| link.heard);
        let gone = known.and_then(|known| known.gone);
        let since = self.started.max(gone).max(silent);
        since.map_or(Instant::ZERO, |since| since + CAMERA_RETURN_MAX)
    }

    /// Keeps a question until its camera is connected.
    pub(super) fn wait_for_camera(&mut self, question: u64, camera: &CameraName, query: PastQuery) {
        let of_camera = self.waiting.values().filter(|waiting| waiting.camera == *camera).count();
        if of_camera >= HISTORY_QUESTIONS_MAX {
            return self.answer_question(question, PastAnswer::unanswered(Unanswered::Busy));
        }
        self.waiting.insert(question, Waiting { camera: camera.clone(), query });
    }

    /// Puts questions whose cameras are connected, and answers those that have waited for long enough.
    pub(in super::super) fn put_waiting(&mut self, now: Instant) {
        let is_here = |camera: &CameraName| {
            self.cameras.get(camera).is_some_and(|known| known.link.is_some() && !known.silent)
        };
        let due = self
            .waiting
            .iter()
            .filter(|(_, waiting)| is_here(&waiting.camera) || now >= self.expected_until(&waiting.camera));
        let due: Vec<u64> = due.map(|(question, _)| *question).collect();
        for question in due {
            if let Some(Waiting { camera, query }) = self.waiting.remove(&question) {
                self.begin_fetch(now, question, &camera, query);
            }
        }
    }

    /// When a question has waited for long enough.
    pub(in super::super) fn waiting_due(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| self.expected_until(&waiting.camera)).min()
    }
}
