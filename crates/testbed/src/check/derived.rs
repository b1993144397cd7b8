//! Checks derived streams, which applications publish at an edge.
//!
//! Published records of a stream are remembered like published frames of a camera, with the edge's run as their run. So the rules about bytes, order,
//! gaps and reasons also hold for their readers. In a world, one edge has derived streams.

use bytes::Bytes;
use mez_core::broker::edge::{PublisherId, PublisherRefused};
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{Encoding, Epoch, FrameId, FrameMeta, Sequence};
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Verb};
use mez_core::subscription::NotHeld;
use mez_core::units::Timestamp;

use super::Checks;

/// A record whose publisher was told that it was accepted.
pub(crate) struct AcceptedSeen<'a> {
    pub(crate) publisher: PublisherId,
    /// The run of the edge.
    pub(crate) run: u64,
    pub(crate) frame: FrameId,
    pub(crate) captured: Timestamp,
    pub(crate) payload: &'a Bytes,
    /// The origin that the publisher stated.
    pub(crate) of: &'a Origin,
    /// Whether the record is the newest of the stream's log.
    pub(crate) is_held: bool,
}

/// What lies before a record of a derived stream that an application got.
pub(crate) struct StreamPassage {
    pub(crate) application: usize,
    /// The previous record, of this subscription or of an earlier one that it resumes.
    pub(crate) last: FrameId,
    pub(crate) next: FrameId,
    /// How many skipped records came with the next record.
    pub(crate) counted: u64,
    pub(crate) not_held: Option<NotHeld>,
}

impl Checks {
    /// Checks a publisher that was admitted to a stream.
    pub(crate) fn publisher_opened(
        &mut self,
        edge: usize,
        stream: &CameraName,
        (publisher, who): (PublisherId, &Bearer),
        (epoch, run): (Epoch, u64),
    ) {
        let may = self.may((edge, who), &[Verb::Publish], stream);
        let known = self.streams.entry(stream.clone()).or_default();
        let other = known.publishers.values().find(|other| *other != who).cloned();
        let before = known.begun.replace((epoch, run));
        known.publishers.insert(publisher, who.clone());
        self.expect(may, "granted", || {
            format!("{who} begins to publish {stream}, and no grant gives it that")
        });
        self.expect(other.is_none(), "owner", || {
            format!("{who} begins to publish {stream}, while {other:?} publishes it")
        });
        let is_next = before.is_none_or(|(last, in_run)| match in_run == run {
            true => epoch == last,
            false => epoch > last,
        });
        self.expect(is_next, "epochs", || {
            format!("{stream} has the epoch {} in run {run} of its edge, and had {before:?} before", epoch.0)
        });
    }

    /// Checks that a publisher was refused for a true reason. `is_camera`: whether a camera has the name.
    pub(crate) fn publisher_refused(
        &mut self,
        stream: &CameraName,
        who: &Bearer,
        (refused, is_camera): (&PublisherRefused, bool),
    ) {
        let known = self.streams.get(stream);
        let of_another =
            known.is_some_and(|known| known.publishers.values().any(|publisher| publisher != who));
        let is_so = match refused {
            PublisherRefused::IsCamera { .. } => is_camera,
            PublisherRefused::OfAnother { .. } => of_another,
            // Other reasons do not occur in worlds: they have few streams, and an edge knows each stream's next epoch.
            _ => false,
        };
        self.expect(is_so, "refusals", || format!("{who} may not publish {stream}: {refused}"));
    }

    /// A publisher has gone, or has lost its edge.
    pub(crate) fn publisher_gone(&mut self, stream: &CameraName, publisher: PublisherId) {
        if let Some(known) = self.streams.get_mut(stream) {
            known.publishers.remove(&publisher);
        }
    }

    /// Checks a record whose publisher was told that it was accepted.
    pub(crate) fn accepted(&mut self, edge: usize, stream: &CameraName, seen: &AcceptedSeen<'_>) {
        let AcceptedSeen { publisher, run, frame, captured, payload, of, is_held } = *seen;
        let known = self.streams.entry(stream.clone()).or_default();
        let who = known.publishers.get(&publisher).cloned();
        let before = known.newest.replace((frame, captured));
        known.made_of.insert(frame, of.clone());
        let may = who.as_ref().is_some_and(|who| self.may((edge, who), &[Verb::Publish], stream));
        self.expect(may, "granted", || {
            format!("{who:?} has published {frame} in {stream}, and no grant gives it that")
        });
        self.expect(is_held, "accepted", || {
            format!("{frame} of {stream} was accepted, and is not in the stream")
        });
        let in_order =
            before.is_none_or(|(last, at)| last < frame && (last.epoch < frame.epoch || at < captured));
        self.expect(in_order, "order", || {
            format!("{frame} of {stream}, of {captured}, was accepted after {before:?}")
        });
        let runs = self.published.get(&(of.camera.clone(), of.frame.epoch)).into_iter().flatten();
        let mut sources = runs.filter_map(|run| run.frames.get(of.frame.sequence.0 as usize));
        let is_known = sources.any(|source| source.captured == of.captured);
        self.expect(is_known, "origin", || {
            format!("{frame} of {stream} was made of {of:?}, which nobody published so")
        });
        self.published(stream, run, frame, (payload.clone(), (0, 0)), captured);
        let now = self.now;
        let runs = self.published.get_mut(&(stream.clone(), frame.epoch)).into_iter().flatten();
        let record = runs.filter(|known| known.run == run).filter_map(|known| known.frames.last_mut()).next();
        // A record has no link to cross: it is published where it is read.
        record.into_iter().for_each(|record| record.sent = Some(now));
    }

    /// Reports a record that was refused, because all records in worlds are sound.
    pub(crate) fn record_refused(&mut self, stream: &CameraName, why: &str) {
        self.fail("accepted", format!("a sound record of {stream} was refused: {why}"));
    }

    /// Checks that readers of the streams of an edge's run are woken for every record.
    pub(crate) fn watch_streams(&mut self, run: u64) {
        let mut untold = None;
        for (stream, known) in &self.streams {
            let Some((newest, _)) = known.newest.filter(|_| known.begun.is_some_and(|(_, of)| of == run))
            else {
                continue;
            };
            let told = self.appended.get(&(run, stream.clone())).and_then(|ids| ids.last().copied());
            let is_of_run = known.begun.is_some_and(|(epoch, _)| epoch == newest.epoch);
            if is_of_run && told != Some(newest) {
                untold = Some(format!("{newest} of {stream} was accepted, and its readers know of {told:?}"));
            }
        }
        self.expect(untold.is_none(), "accepted", || untold.unwrap_or_default());
    }

    /// Checks that a record of a derived stream states the origin that its publisher gave.
    pub(crate) fn check_origin(&mut self, stream: &CameraName, meta: &FrameMeta, payload: &Bytes) {
        if meta.encoding != Encoding::Data {
            return;
        }
        let Some(made_of) = self.streams.get(stream).and_then(|known| known.made_of.get(&meta.id)) else {
            return;
        };
        let said = DataRecord::decode(payload).ok().and_then(|record| record.of);
        let is_so = said.as_ref() == Some(made_of);
        let text =
            format!("{} of {stream} says that it was made of {said:?}, and it was of {made_of:?}", meta.id);
        self.expect(is_so, "origin", || text);
    }

    /// Checks that every record between two that an application got is counted, or that the application was told of a hole.
    pub(crate) fn watch_stream(&mut self, stream: &CameraName, seen: &StreamPassage) {
        let StreamPassage { application, last, next, counted, not_held } = seen;
        let Some(known) = self.streams.get(stream) else { return };
        let after = FrameId { sequence: Sequence(last.sequence.0 + 1), ..*last };
        if after > *next {
            return;
        }
        let passed = known.made_of.range(after..*next).count() as u64;
        self.expect(not_held.is_some() || *counted == passed, "untold", || {
            format!(
                "application {application} got {next} of {stream} after {last}, and was told of {counted} records \
                 of the {passed} between"
            )
        });
    }
}
