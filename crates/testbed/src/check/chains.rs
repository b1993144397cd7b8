//! Checks frames of chains: which frame each refers to, and whether that frame was available.

use std::time::Duration;

use mez_core::ancestors::parent;
use mez_core::broker::LinkId;
use mez_core::frame::{FrameId, FrameMeta, Rung};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::wire::FrameHeader;

use super::Checks;
use super::known::Entry;
use crate::time::ms;

/// A camera that is asked for a keyframe sends no frame of the old chain after this time. Its broker
/// ends the chain within a second, with the next frame.
const ENTRY_MAX: Duration = ms(1_500);

impl Checks {
    /// Checks the reference of a frame that a camera sends on a connection.
    pub(super) fn check_references(
        &mut self,
        camera: &CameraName,
        run: u64,
        link: LinkId,
        header: &FrameHeader,
    ) {
        let id = header.meta.id;
        // A frame of the source's own video states its reference. For an encoded frame, the codec stated it.
        let refers = match header.meta.rung == Rung::original() && header.meta.encoding.is_chained() {
            true => parent(&header.meta).map(|parent| parent.sequence),
            false => self.published_frame(camera, run, id).and_then(|frame| frame.refers),
        };
        let Some(refers) = refers else { return };
        let referred = FrameId { sequence: refers, ..id };
        let Some(known) = self.published_frame(camera, run, referred) else {
            return self
                .fail("references", format!("{id} of {camera} refers to {referred}, which there is not"));
        };
        let (lost, carrier, chain) = (known.given_up.is_some(), known.carrier, known.chain);
        self.expect(!lost && carrier == Some(link), "references", || {
            format!(
                "{id} of {camera} goes over {link:?} and refers to {referred}, which went over {carrier:?}, lost: {lost}"
            )
        });
        let goes_in = header.meta.chain.chain;
        self.expect(chain == Some(goes_in), "references", || {
            format!("{id} of {camera} goes in the chain of {goes_in:?} and refers to {referred}, which went in {chain:?}")
        });
    }

    /// A camera was asked for a keyframe, to replace the chain of this frame.
    pub(crate) fn asks_for_entry(&mut self, run: u64, link: LinkId, frame: FrameId) {
        let now = self.now;
        if let Some(entry) = self.entries.get_mut(&(run, link)).filter(|entry| entry.chain <= frame.sequence)
        {
            entry.asked.get_or_insert(now);
        }
    }

    /// Checks that a chain ends soon after the camera was asked to end it.
    pub(super) fn check_entry(&mut self, run: u64, link: LinkId, header: &FrameHeader) {
        let (now, meta) = (self.now, &header.meta);
        let entry = self.entries.entry((run, link)).or_insert(Entry { chain: meta.chain.chain, asked: None });
        if entry.chain != meta.chain.chain || !meta.encoding.is_chained() {
            *entry = Entry { chain: meta.chain.chain, asked: None };
        }
        let late = entry.asked.filter(|asked| now.since(*asked) > ENTRY_MAX);
        self.expect(late.is_none(), "entry", || {
            format!("{} goes on with its chain, which was to end since {late:?}", meta.id)
        });
    }

    /// Notes that an edge has a complete frame, which it reports to the camera.
    pub(crate) fn whole(&mut self, edge_run: u64, camera: &CameraName, id: FrameId) {
        self.note_whole(camera, id);
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        let mut frames = runs.filter_map(|run| run.frames.get(id.sequence.0 as usize));
        if !frames.any(|frame| frame.encoding.is_chained()) {
            return;
        }
        self.whole.entry((edge_run, camera.clone())).or_default().insert(id);
    }

    /// Checks that a decoder could decode a frame that it reports as decoded.
    pub(crate) fn decoded(&mut self, edge_run: u64, (camera, decoder): (&CameraName, usize), id: FrameId) {
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        // If the camera lost its counter, either process may have published the frame.
        let made: Vec<_> = runs.filter_map(|run| run.frames.get(id.sequence.0 as usize)).collect();
        let held = self.decoded.entry((edge_run, camera.clone(), decoder)).or_default();
        let decodable = made.iter().any(|frame| match frame.refers {
            Some(refers) => held.contains(&FrameId { sequence: refers, ..id }),
            None => frame.encoding.is_chained(),
        });
        held.insert(id);
        self.shown.entry((edge_run, camera.clone())).or_default().insert(id);
        self.expect(decodable, "decodable", || {
            format!("{id} of {camera} was decoded at the edge, but what it refers to was not")
        });
    }

    /// Notes that a decoder has lost its frames.
    pub(crate) fn decoder_failed(&mut self, edge_run: u64, camera: &CameraName, decoder: usize) {
        self.decoded.remove(&(edge_run, camera.clone(), decoder));
    }

    /// Checks a frame that a replica log took: the frame's reference is or was there.
    pub(super) fn check_decodable(&mut self, edge_run: u64, camera: &CameraName, run: u64, record: &Record) {
        let meta = &record.frame.meta;
        if !meta.encoding.is_chained() {
            return;
        }
        let refers = self.published_frame(camera, run, meta.id).and_then(|frame| frame.refers);
        let Some(refers) = refers.map(|sequence| FrameId { sequence, ..meta.id }) else { return };
        let known = self.appended.get(&(edge_run, camera.clone()));
        let has = known.is_some_and(|known| known.binary_search(&refers).is_ok());
        self.expect(has, "decodable", || {
            format!("the replica of {camera} has {}, and not {refers}, to which it refers", meta.id)
        });
    }

    /// Checks a still of a frame of a chain that an application got: a decoder must have decoded the frame.
    pub(super) fn check_still(&mut self, edge_run: u64, camera: &CameraName, run: u64, meta: &FrameMeta) {
        let made = self.published_frame(camera, run, meta.id);
        let is_of_chain = made.is_some_and(|frame| {
            frame.encoding.is_chained() && frame.made.as_ref().is_some_and(|(rung, _)| *rung == meta.rung)
        });
        let shown = self.shown.get(&(edge_run, camera.clone()));
        let has = !is_of_chain || shown.is_some_and(|shown| shown.contains(&meta.id));
        self.expect(has, "decodable", || {
            format!("an application got {} of {camera} as a still, and nobody decoded it", meta.id)
        });
    }
}
