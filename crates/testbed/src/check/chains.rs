//! Checks frames that need others: what they refer to, and whether it was there.

use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::wire::FrameHeader;

use super::Checks;

impl Checks {
    /// Checks what a frame refers to that a camera gives to a connection.
    pub(super) fn check_references(
        &mut self,
        camera: &CameraName,
        run: u64,
        link: LinkId,
        header: &FrameHeader,
    ) {
        let id = header.meta.id;
        let Some(refers) = self.published_frame(camera, run, id).and_then(|frame| frame.refers) else {
            return;
        };
        let referred = FrameId { sequence: refers, ..id };
        let Some(known) = self.published_frame(camera, run, referred) else {
            return self
                .fail("references", format!("{id} of {camera} refers to {referred}, which there is not"));
        };
        let (lost, carrier) = (known.given_up.is_some(), known.carrier);
        self.expect(!lost && carrier == Some(link), "references", || {
            format!(
                "{id} of {camera} goes over {link:?} and refers to {referred}, which went over {carrier:?}, lost: {lost}"
            )
        });
    }

    /// Notes that an edge has all of a frame, and says so to the camera.
    pub(crate) fn whole(&mut self, edge_run: u64, camera: &CameraName, id: FrameId) {
        self.note_whole(camera, id);
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        let mut frames = runs.filter_map(|run| run.frames.get(id.sequence.0 as usize));
        if !frames.any(|frame| frame.encoding.is_chained()) {
            return;
        }
        self.whole.entry((edge_run, camera.clone())).or_default().insert(id);
    }

    /// Checks that a decoder could decode the frame that it says it has decoded.
    pub(crate) fn decoded(&mut self, edge_run: u64, camera: &CameraName, (link, id): (LinkId, FrameId)) {
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        // If the camera lost its counter, either process may have made it.
        let made: Vec<_> = runs.filter_map(|run| run.frames.get(id.sequence.0 as usize)).collect();
        let held = self.decoded.entry((edge_run, camera.clone())).or_default();
        let decodable = made.iter().any(|frame| match frame.refers {
            Some(refers) => held.contains(&(FrameId { sequence: refers, ..id }, link)),
            None => frame.encoding.is_chained(),
        });
        held.insert((id, link));
        self.shown.entry((edge_run, camera.clone())).or_default().insert(id);
        self.expect(decodable, "decodable", || {
            format!("{id} of {camera} was decoded at the edge, but what it refers to was not")
        });
    }

    /// Notes that a decoder has lost what it held.
    pub(crate) fn decoder_failed(&mut self, edge_run: u64, camera: &CameraName) {
        self.decoded.remove(&(edge_run, camera.clone()));
    }

    /// A replica log took a frame.
    pub(super) fn check_decodable(&mut self, edge_run: u64, camera: &CameraName, run: u64, record: &Record) {
        let meta = &record.frame.meta;
        let made = self.published_frame(camera, run, meta.id);
        let chained = made.is_some_and(|frame| {
            frame.encoding.is_chained() && frame.made.as_ref().is_some_and(|(rung, _)| *rung == meta.rung)
        });
        self.expect(!meta.encoding.is_chained(), "decodable", || {
            format!("the replica of {camera} has {} as {}", meta.id, meta.encoding.name())
        });
        // It may have waited for a newer one after a silence, and the decoder has failed on that meanwhile.
        let decoded =
            self.shown.get(&(edge_run, camera.clone())).is_some_and(|shown| shown.contains(&meta.id));
        self.expect(!chained || decoded, "decodable", || {
            format!("the replica of {camera} has {}, which was never decoded", meta.id)
        });
    }
}
