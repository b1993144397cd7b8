//! Checks what a camera sends of its past, and when.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::HISTORY_SHARE;
use mez_core::frame::{Epoch, FrameId, FrameMeta};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::Checks;
use crate::time::Moment;

/// Clocks of hosts differ by up to 50 ppm, and stamps are rounded.
const ROUNDING: Duration = Duration::from_micros(100);

impl Checks {
    /// Checks a frame of the past that a camera begins to send. `live` and `past` count live frames and frames of the past with unsent bytes.
    pub(crate) fn sends_past(
        &mut self,
        camera: &CameraName,
        run: u64,
        meta: &FrameMeta,
        payload: &Bytes,
        (live, past): (usize, usize),
    ) {
        let (id, now) = (meta.id, self.now);
        let runs = self.matching_runs(camera, meta, payload, "a camera sends of the past");
        let given_up = runs.contains(&run) && self.has_given_up(camera, run, id.epoch);
        self.expect(!given_up, "bytes", || {
            format!("camera {camera} sends {id} of the past, of an epoch that it knows another start had")
        });
        self.expect(live == 0, "past last", || {
            format!("camera {camera} begins {id} of the past while {live} live frames are unsent")
        });
        self.expect(past == 0, "past last", || {
            format!("camera {camera} begins {id} of the past while {past} others of the past are unsent")
        });
        let known = self.past.entry((camera.clone(), run)).or_default();
        known.begun = Some(now);
        let rests_until = known.rests_until.take();
        self.expect(rests_until.is_none_or(|until| until <= now + ROUNDING), "past last", || {
            format!("camera {camera} begins {id} of the past before its share of the link allows it: {rests_until:?}")
        });
    }

    /// Notes that the last byte of a frame of the past has left. `wanted`: live frames are wanted too.
    pub(crate) fn past_left(&mut self, camera: &CameraName, run: u64, wanted: bool) {
        let now = self.now;
        let known = self.past.entry((camera.clone(), run)).or_default();
        if let Some(begun) = known.begun.take().filter(|_| wanted) {
            known.rests_until = Some(now + now.since(begun).mul_f64(1.0 / HISTORY_SHARE - 1.0));
        }
    }

    /// The capture time of the last frame of an epoch that a camera published.
    pub(crate) fn last_published(&self, camera: &CameraName, epoch: Epoch) -> Option<Timestamp> {
        let runs = self.published.get(&(camera.clone(), epoch)).into_iter().flatten();
        runs.filter_map(|run| run.frames.last()).map(|frame| frame.captured).max()
    }

    /// Whether a camera has published frames of earlier epochs.
    pub(super) fn has_published_before(&self, camera: &CameraName, epoch: Epoch) -> bool {
        let key = |epoch: Epoch| (camera.clone(), epoch);
        self.published.range(key(Epoch(0))..key(epoch)).next().is_some()
    }

    /// When a camera published a frame. If a lost counter gave its id twice, the last time.
    pub(crate) fn published_at(&self, camera: &CameraName, id: FrameId) -> Option<Moment> {
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        runs.filter_map(|run| run.frames.get(id.sequence.0 as usize)).map(|frame| frame.at).max()
    }
}
