//! Passes answers between the applications, edges and cameras of a world.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::wire::AnswerSkips;

use super::World;
use super::events::MadeAnswer;
use super::spec::{ApplicationId, CameraId, TakeSpec};
use super::stage::stage;
use crate::link::Side;

impl World {
    /// How many answers a camera's publishers got so far, and how many the present one did not get, by reason.
    pub fn answers(&self, camera: CameraId) -> (u64, AnswerSkips) {
        let host = &self.cameras[camera.0];
        let skipped = host.process.as_ref().map(|process| process.publisher.skipped());
        (host.answers_given, skipped.unwrap_or_default())
    }

    /// How many answers of an application its edge has accepted.
    pub fn answers_accepted(&self, application: ApplicationId) -> u64 {
        self.applications[application.0].answers_accepted()
    }

    /// All cameras' hosts, in the order of their creation.
    pub(crate) fn camera_ids(&self) -> Vec<CameraId> {
        (0..self.cameras.len()).map(CameraId).collect()
    }

    pub(super) fn set_answers(&mut self, camera: usize, takes: Option<TakeSpec>) {
        self.with_camera(camera, |camera, stage| {
            camera.set_answers(takes, stage);
            true
        });
    }

    /// An answer of an application is made.
    pub(super) fn answer_made(&mut self, application: usize, made: MadeAnswer) {
        self.with_application(application, |application, edge, stage| {
            application.handle_answer_made(made, edge, stage);
        });
    }

    /// The header of an answer has arrived at a camera.
    pub(super) fn answer_opened(&mut self, camera: usize, connection: LinkId, header: &Bytes) {
        let mut refused = None;
        self.with_camera(camera, |camera, stage| {
            refused = camera.handle_answer_opened(connection, header, stage);
            true
        });
        if let Some(frame) = refused {
            let (now, link) = (self.now, self.cameras[camera].link);
            self.network.change(link, &mut stage!(self), |link| {
                link.stop(now, (Side::Camera, connection), frame);
            });
        }
    }

    /// A camera's publisher is ready for an answer.
    pub(super) fn take_answer(&mut self, camera: usize, run: u64) {
        self.with_camera(camera, |camera, stage| {
            camera.take_answer(run, stage);
            false
        });
    }
}
