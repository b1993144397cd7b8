//! Checks what an application gets when a link carries again: the newest frame of the burst that then arrives.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::name::CameraName;

use super::Checks;
use super::flow::GotSeen;
use super::known::{Carries, Run};
use super::path::Path;
use crate::time::{Moment, ms, secs};

/// A link that carried nothing for this long was silent, because both sides send more often.
const SILENCE_MIN: Duration = ms(600);
/// After a longer silence, the connection may be another one.
const SILENCE_MAX: Duration = secs(5);
/// A link that carries less than one in this many bits of its created rate counts as carrying nothing.
const CARRIES_ONE_IN: u64 = 50;
/// A link that carries at least one in this many bits of its created rate carries again. A link whose rate returns slowly has no such moment.
const BACK_ONE_IN: u64 = 4;
/// A frame that reaches the edge within this time after a silence belongs to the burst. The edge waits as long as the silence lasted.
const BURST: Duration = SILENCE_MIN;

impl Checks {
    /// Notes the new rate of a camera's link. It is 0 if the link is cut.
    pub(crate) fn carries(&mut self, camera: &CameraName, bits_per_second: u64, made_for: u64) {
        let now = self.now;
        let link = self.links.entry(camera.clone()).or_default();
        if bits_per_second < made_for / CARRIES_ONE_IN {
            link.silent_since.get_or_insert(now);
        } else if let Some(since) = link.silent_since.take() {
            let counts = (SILENCE_MIN..SILENCE_MAX).contains(&now.since(since))
                && bits_per_second >= made_for / BACK_ONE_IN;
            *link = Carries { back: counts.then_some(now), ..Carries::default() };
        }
    }

    /// Notes that bytes of a camera's frames have reached an edge. A link with continuous arrivals is slow
    /// and not silent: it carries the newest frame that it can.
    pub(crate) fn bytes_came(&mut self, camera: &CameraName) {
        let now = self.now;
        if let Some(since) = self.links.get_mut(camera).and_then(|link| link.silent_since.as_mut()) {
            *since = now;
        }
    }

    /// Notes that a frame has reached an edge.
    pub(super) fn note_whole(&mut self, camera: &CameraName, frame: FrameId) {
        let now = self.now;
        self.bytes_came(camera);
        if let Some(link) = self.links.get_mut(camera)
            && link.back.is_some_and(|back| now.since(back) < BURST)
        {
            link.whole.insert(frame);
        }
    }

    /// Notes a frame that an application got soon after a silence, if newer ones had to be there when the link was back.
    pub(super) fn note_stale(&mut self, path: &Path, got: &GotSeen) {
        let now = self.now;
        // A camera whose source is lost has no newer frame.
        let Some(behind) = self.published_behind(&path.name, got.frame) else { return };
        let Some(link) = self.links.get_mut(&path.name) else { return };
        let Some(back) = link.back.filter(|back| now.since(*back) < BURST && path.disturbed <= *back) else {
            return;
        };
        if got.catching_up_until.is_some_and(|until| got.published <= until) {
            return;
        }
        // A frame that was being encoded when the link was back may go first.
        let being_made = path.interval + path.making_time_max * 2 + path.made.round_trip_time() * 2 + ms(300);
        // An application that was ready before has waited long enough for a newer frame.
        let is_of_burst = link.whole.contains(&got.frame);
        let is_ready = got.ready_since + path.interval + being_made < back;
        if is_of_burst && !got.takes_all && behind + being_made < back && is_ready {
            link.stale.push((got.application, got.frame));
        }
    }

    /// When the frame after another one was published, if there is one. If several starts of a camera have
    /// the same epoch, the last one that published the frame counts.
    fn published_behind(&self, camera: &CameraName, frame: FrameId) -> Option<Moment> {
        let runs = self.published.get(&(camera.clone(), frame.epoch))?;
        let place = usize::try_from(frame.sequence.0).ok()?;
        let published = |run: &&Run| run.frames.get(place).map(|frame| frame.at);
        let run = runs.iter().filter(|run| published(run).is_some()).max_by_key(published)?;
        run.frames.get(place + 1).map(|frame| frame.at)
    }

    /// Checks that no application was just given an older frame than this one, which has reached an edge.
    pub(super) fn watch_burst(&mut self, camera: &CameraName, frame: FrameId) {
        let now = self.now;
        let Some(link) = self.links.get(camera) else { return };
        let Some(back) = link.back.filter(|back| now.since(*back) < BURST) else { return };
        let stale = link.stale.iter().find(|(_, stale)| *stale < frame);
        let Some((application, stale)) = stale.copied() else { return };
        self.fail(
            "newest",
            format!(
                "application {application} got {stale} of {camera}, which is from before the link was back at {back}; \
                 {frame} came right behind it"
            ),
        );
    }
}
