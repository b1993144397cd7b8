//! Keeps questions to cameras that are not connected yet.
//!
//! After a restart of the edge or of a camera, applications return before the camera does. To answer that
//! there is nothing would be wrong. To answer that nobody knows would help little a second before the camera
//! returns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::broker::edge::roster::Roster;
use crate::history::PastQuery;
use crate::name::CameraName;
use crate::units::Instant;

/// How long a question waits for a camera. The time counts from the edge's start or from when the camera was
/// last heard, whichever is later, so nobody waits for a camera that has been gone for long. A camera that
/// lost its edge returns within two seconds of the edge's start. One that was refused dials again after five.
/// A camera broker that was killed starts and reads its log within a few seconds.
pub const CAMERA_RETURN_MAX: Duration = Duration::from_secs(6);

/// A question to a camera that is not connected.
pub(super) struct Question {
    pub(super) camera: CameraName,
    pub(super) query: PastQuery,
}

/// Questions that wait for their cameras.
#[derive(Default)]
pub(super) struct Waiting {
    questions: BTreeMap<u64, Question>,
    /// When the edge began to listen to cameras.
    started: Option<Instant>,
}

impl Waiting {
    /// The edge listens to cameras from now on.
    pub(super) fn handle_started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// Until when any camera may come that was here before the edge started.
    pub(super) fn any_expected_until(&self) -> Option<Instant> {
        self.started.map(|started| started + CAMERA_RETURN_MAX)
    }

    /// Until when a camera that is not connected is waited for.
    pub(super) fn expected_until(&self, camera: &CameraName, roster: &Roster) -> Instant {
        let since = self.started.max(roster.last_heard(camera));
        since.map_or(Instant::ZERO, |since| since + CAMERA_RETURN_MAX)
    }

    /// How many wait for a camera.
    pub(super) fn of_camera(&self, camera: &CameraName) -> usize {
        self.questions.values().filter(|question| question.camera == *camera).count()
    }

    /// One more waits, under this number.
    pub(super) fn insert(&mut self, number: u64, camera: &CameraName, query: PastQuery) {
        let before = self.questions.insert(number, Question { camera: camera.clone(), query });
        // Questions are numbered once, and each waits in one place.
        debug_assert!(before.is_none(), "question {number} waits twice");
    }

    /// Nobody waits for the answer any more.
    pub(super) fn remove(&mut self, number: u64) {
        self.questions.remove(&number);
    }

    /// Takes out those whose cameras are connected, or that have waited for long enough.
    pub(super) fn take_due(&mut self, now: Instant, roster: &Roster) -> Vec<(u64, Question)> {
        let is_due = |question: &Question| {
            let camera = &question.camera;
            roster.reached(camera).is_some() || now >= self.expected_until(camera, roster)
        };
        let due = self.questions.iter().filter(|(_, question)| is_due(question));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().filter_map(|number| self.questions.remove_entry(&number)).collect()
    }

    /// When one has waited for long enough.
    pub(super) fn due(&self, roster: &Roster) -> Option<Instant> {
        self.questions.values().map(|question| self.expected_until(&question.camera, roster)).min()
    }
}
