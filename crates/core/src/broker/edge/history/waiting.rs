//! Keeps questions to cameras that are not connected yet.
//!
//! After a restart of the edge or of a camera, applications return before the camera does. The answer that there is
//! no frame would be wrong. The answer that nobody knows would be of little use a second before the camera returns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::broker::edge::roster::Roster;
use crate::history::PastQuery;
use crate::name::CameraName;
use crate::units::Instant;

/// How long a question waits for a camera. The time counts from the edge's start or from when the camera was last heard, whichever is later,
/// so no question waits for a camera that has been gone for long. A camera that lost its edge returns within two seconds of the edge's start.
/// A camera that was refused dials again after five seconds. A camera broker that was killed starts and reads its log within a few seconds.
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

    /// Until when cameras of an earlier run of the edge are expected to connect.
    pub(super) fn any_expected_until(&self) -> Option<Instant> {
        self.started.map(|started| started + CAMERA_RETURN_MAX)
    }

    /// Until when a camera that is not connected is waited for.
    pub(super) fn expected_until(&self, camera: &CameraName, roster: &Roster) -> Instant {
        let since = self.started.max(roster.last_heard(camera));
        since.map_or(Instant::ZERO, |since| since + CAMERA_RETURN_MAX)
    }

    /// How many questions wait for a camera.
    pub(super) fn of_camera(&self, camera: &CameraName) -> usize {
        self.questions.values().filter(|question| question.camera == *camera).count()
    }

    /// Adds a question under its number.
    pub(super) fn insert(&mut self, number: u64, camera: &CameraName, query: PastQuery) {
        let before = self.questions.insert(number, Question { camera: camera.clone(), query });
        // Each question has its own number, and waits in one place only.
        debug_assert!(before.is_none(), "question {number} waits twice");
    }

    /// No reader waits for the answer any more.
    pub(super) fn remove(&mut self, number: u64) {
        self.questions.remove(&number);
    }

    /// Takes out the questions whose cameras are connected, or that have waited long enough.
    pub(super) fn take_due(&mut self, now: Instant, roster: &Roster) -> Vec<(u64, Question)> {
        let is_due = |question: &Question| {
            let camera = &question.camera;
            roster.reached(camera).is_some() || now >= self.expected_until(camera, roster)
        };
        let due = self.questions.iter().filter(|(_, question)| is_due(question));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().filter_map(|number| self.questions.remove_entry(&number)).collect()
    }

    /// When the next question has waited long enough.
    pub(super) fn due(&self, roster: &Roster) -> Option<Instant> {
        self.questions.values().map(|question| self.expected_until(&question.camera, roster)).min()
    }
}
