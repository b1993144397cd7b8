//! Checks frames from the publisher to the replica: what was published, sent and appended.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::{Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Rung, Sequence, SkipReason};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use mez_core::wire::{FrameHeader, SKIP_RANGES_MAX};

use super::Checks;
use super::known::{PublishedFrame, Run};

impl Checks {
    /// Notes what a camera's codec made of a frame.
    pub(crate) fn made(
        &mut self,
        camera: &CameraName,
        run: u64,
        id: FrameId,
        (rung, payload): (&Rung, Bytes),
        (encoding, refers): (Encoding, Option<Sequence>),
    ) {
        let runs = self.published.get_mut(&(camera.clone(), id.epoch));
        let known = runs.and_then(|runs| runs.iter_mut().find(|known| known.run == run));
        match known.and_then(|known| known.frames.get_mut(id.sequence.0 as usize)) {
            Some(frame) => {
                let again = frame.made.replace((rung.clone(), payload)).is_some();
                (frame.encoding, frame.refers) = (encoding, refers);
                self.expect(!again, "one crossing", || format!("camera {camera} has {id} made twice"));
            }
            None => self.fail("bytes", format!("camera {camera} has {id} made, which it never published")),
        }
    }

    /// Notes a frame that a camera published.
    pub(crate) fn published(
        &mut self,
        camera: &CameraName,
        run: u64,
        id: FrameId,
        (payload, pixels): (Bytes, (u32, u32)),
        captured: Timestamp,
    ) {
        let at = self.now;
        let runs = self.published.entry((camera.clone(), id.epoch)).or_default();
        let position = runs.iter().position(|known| known.run == run).unwrap_or_else(|| {
            runs.push(Run { run, frames: Vec::new(), given_up: false, ledger_full: false });
            runs.len() - 1
        });
        let frames = &mut runs[position].frames;
        let expected = frames.len() as u64;
        let quality = Quality::default();
        frames.push(PublishedFrame {
            payload,
            pixels,
            made: None,
            encoding: Encoding::Jpeg,
            is_video: false,
            refers: None,
            chain: None,
            carrier: None,
            captured,
            at,
            sent: None,
            quality,
            given_up: None,
        });
        self.expect(id.sequence.0 == expected, "order", || {
            format!("camera {camera} numbered a frame {id}, not {expected}")
        });
    }

    /// Notes that a published frame is a picture of its source's own video, and the frame that it refers to.
    pub(crate) fn published_video(
        &mut self,
        camera: &CameraName,
        run: u64,
        id: FrameId,
        refers: Option<Sequence>,
    ) {
        let runs = self.published.get_mut(&(camera.clone(), id.epoch));
        let known = runs.and_then(|runs| runs.iter_mut().find(|known| known.run == run));
        if let Some(frame) = known.and_then(|known| known.frames.get_mut(id.sequence.0 as usize)) {
            (frame.encoding, frame.refers, frame.is_video) = (Encoding::H264, refers, true);
        }
    }

    /// Checks a frame that a camera begins to send on a connection, on which `unsent` other frames have unsent bytes.
    pub(crate) fn sends(
        &mut self,
        camera: &CameraName,
        run: u64,
        link: LinkId,
        header: &FrameHeader,
        unsent: usize,
    ) {
        let (id, now) = (header.meta.id, self.now);
        self.check_references(camera, run, link, header);
        self.check_entry(run, link, header);
        self.expect(unsent == 0, "one in flight", || {
            format!("camera {camera} sends {id} while {unsent} frames of the connection are unsent")
        });
        let mut end = 0;
        for range in &header.skipped {
            let ok = range.first.0 >= end && range.count > 0 && range.end() <= id.sequence;
            end = range.end().0;
            self.expect(ok, "replica", || {
                format!("the header of {id} states skipped frames out of order: {:?}", header.skipped)
            });
        }
        let known = self
            .published
            .get_mut(&(camera.clone(), id.epoch))
            .and_then(|runs| runs.iter_mut().find(|known| known.run == run));
        let Some(known) = known else {
            return self.fail("bytes", format!("camera {camera} sends {id}, which it never published"));
        };
        known.ledger_full |= header.skipped.len() == SKIP_RANGES_MAX;
        let again = match known.frames.get_mut(id.sequence.0 as usize) {
            Some(frame) => {
                let FrameHeader { expected_accuracy, infeasible, .. } = *header;
                frame.quality = Quality { expected_accuracy, infeasible };
                frame.carrier = Some(link);
                frame.chain = header.meta.encoding.is_chained().then_some(header.meta.chain.chain);
                frame.sent.replace(now).is_some()
            }
            None => {
                return self.fail("bytes", format!("camera {camera} sends {id}, which it never published"));
            }
        };
        self.expect(!again, "one crossing", || format!("camera {camera} sends {id} again"));
    }

    /// Begins a replica log with the frames that a disk gave back.
    pub(crate) fn restored(&mut self, edge_run: u64, camera: &CameraName, records: &[Record]) {
        for record in records {
            let Frame { meta, payload } = &record.frame;
            self.appended.entry((edge_run, camera.clone())).or_default().push(meta.id);
            let runs = self.matching_runs(camera, meta, payload, "a replica begins with");
            self.is_of_one_start(edge_run, camera, meta.id, &runs);
            if let Some(run) = runs.first() {
                self.check_decodable(edge_run, camera, *run, record);
            }
        }
    }

    /// Checks that a replica never has frames of two starts with the same epoch.
    fn is_of_one_start(&mut self, edge_run: u64, camera: &CameraName, id: FrameId, runs: &[u64]) {
        let Some(first) = runs.first() else { return };
        let start = *self.starts.entry((edge_run, camera.clone(), id.epoch)).or_insert(*first);
        self.expect(runs.contains(&start), "replica", || {
            format!("the replica of {camera} has {id}, which is of another start than the frames of its epoch before")
        });
    }

    /// Whether a camera's process learned that another start had its epoch.
    pub(crate) fn has_given_up(&self, camera: &CameraName, run: u64, epoch: Epoch) -> bool {
        let mut runs = self.published.get(&(camera.clone(), epoch)).into_iter().flatten();
        runs.any(|known| known.run == run && known.given_up)
    }

    /// Notes that a camera's process learned that another start had its epoch, and begins a later epoch.
    pub(crate) fn gives_up_epoch(&mut self, camera: &CameraName, run: u64, epoch: Epoch) {
        let runs = self.published.get_mut(&(camera.clone(), epoch)).into_iter().flatten();
        runs.filter(|known| known.run == run).for_each(|known| known.given_up = true);
    }

    /// Begins another replica log after one was put aside.
    pub(crate) fn put_aside(&mut self, edge_run: u64, camera: &CameraName) {
        self.appended.remove(&(edge_run, camera.clone()));
        self.overtaken.remove(&(edge_run, camera.clone()));
        self.starts.retain(|(of, known, _), _| *of != edge_run || known != camera);
    }

    /// Checks a frame that a replica log took.
    pub(crate) fn appended(&mut self, edge_run: u64, camera: &CameraName, record: &Record) {
        let id = record.frame.meta.id;
        self.watch_burst(camera, id);
        let ids = self.appended.entry((edge_run, camera.clone())).or_default();
        let before = ids.last().copied();
        ids.push(id);
        if record.is_overtaken() {
            self.overtaken.entry((edge_run, camera.clone())).or_default().insert(id);
        }
        self.expect(before.is_none_or(|before| before < id), "order", || {
            format!("the replica of {camera} has {id} after {before:?}")
        });
        let runs = self.published.get(&(camera.clone(), id.epoch)).into_iter().flatten();
        let crossed =
            runs.filter_map(|run| run.frames.get(id.sequence.0 as usize)).any(|frame| frame.sent.is_some());
        self.expect(crossed, "replica", || {
            format!("the replica of {camera} has {id}, which never crossed live")
        });
        let mut from = match before {
            Some(before) if before.epoch == id.epoch => before.sequence.0 + 1,
            _ => 0,
        };
        for range in record.skipped.iter() {
            let ok = range.first.0 >= from && range.count > 0 && range.end() <= id.sequence;
            from = range.end().0;
            self.expect(ok, "replica", || {
                format!("{id} after {before:?} states {:?} as skipped before it", record.skipped)
            });
        }
        let runs = self.matching_runs(camera, &record.frame.meta, &record.frame.payload, "the replica has");
        self.is_of_one_start(edge_run, camera, id, &runs);
        if let Some(run) = runs.first() {
            self.check_decodable(edge_run, camera, *run, record);
        }
    }

    /// The runs that published exactly this frame. It is a breach if there is none.
    pub(crate) fn matching_runs(
        &mut self,
        camera: &CameraName,
        meta: &FrameMeta,
        payload: &Bytes,
        who: &str,
    ) -> Vec<u64> {
        let id = meta.id;
        let matching: Vec<u64> = self
            .published
            .get(&(camera.clone(), id.epoch))
            .into_iter()
            .flatten()
            .filter(|run| run.frames.get(id.sequence.0 as usize).is_some_and(|frame| frame.is(meta, payload)))
            .map(|run| run.run)
            .collect();
        self.expect(!matching.is_empty(), "bytes", || {
            format!("{who} {id} of {camera}, captured {}, which nobody published so", meta.captured)
        });
        matching
    }

    pub(super) fn published_frame(
        &self,
        camera: &CameraName,
        run: u64,
        id: FrameId,
    ) -> Option<&PublishedFrame> {
        self.run(camera, run, id)?.frames.get(id.sequence.0 as usize)
    }

    pub(super) fn run(&self, camera: &CameraName, run: u64, id: FrameId) -> Option<&Run> {
        self.published.get(&(camera.clone(), id.epoch))?.iter().find(|known| known.run == run)
    }

    /// Notes that a camera moves to another edge.
    pub(crate) fn moves(&mut self, camera: &CameraName) {
        self.moves.entry(camera.clone()).or_default().push(self.now);
    }

    /// Whether a camera has moved to another edge between two frames of a run. The other edge was told the fate of frames in between.
    pub(super) fn has_moved_between(
        &self,
        camera: &CameraName,
        run: &Run,
        last: FrameId,
        to: FrameId,
    ) -> bool {
        let at = |id: FrameId| run.frames.get(id.sequence.0 as usize).map(|frame| frame.at);
        let (Some(from), Some(until)) = (at(last), at(to)) else { return false };
        self.moves.get(camera).is_some_and(|moves| moves.iter().any(|moved| (from..=until).contains(moved)))
    }

    /// Notes that a camera gives up a sent frame, or learns that its connection has ended.
    pub(crate) fn gives_up(&mut self, camera: &CameraName, run: u64, id: FrameId) {
        let now = self.now;
        let runs = self.published.get_mut(&(camera.clone(), id.epoch));
        let known = runs.and_then(|runs| runs.iter_mut().find(|known| known.run == run));
        if let Some(frame) = known.and_then(|known| known.frames.get_mut(id.sequence.0 as usize)) {
            frame.given_up.get_or_insert(now);
        }
    }

    /// For the frames of one epoch from `from` to before `to`: how many a replica took, and how many may count as late or lost. A frame may if it was
    /// sent, did not arrive, and was not given up before the next arriving frame was sent. Only then could the header of the latter not report it.
    pub(super) fn arrived_and_lost(
        &self,
        run: &Run,
        edge_run: u64,
        camera: &CameraName,
        from: FrameId,
        to: FrameId,
    ) -> (u64, u64) {
        let arrived = self.appended_between(edge_run, camera, from, to);
        let mut next = arrived.iter().chain([&to]).peekable();
        let whole = self.whole.get(&(edge_run, camera.clone()));
        let mut lost = 0;
        for sequence in from.sequence.0..to.sequence.0 {
            if next.peek().is_some_and(|id| id.sequence.0 == sequence) {
                next.next();
                continue;
            }
            // A frame that arrived but was not decoded is acknowledged too, so later headers do not repeat what came before it.
            let after = FrameId { sequence: Sequence(sequence), ..from };
            let unshown = whole.and_then(|whole| whole.range(after..).next());
            let told = next.peek().copied().into_iter().chain(unshown).min();
            let told_at = told.and_then(|id| run.frames.get(id.sequence.0 as usize)?.sent);
            let Some(frame) = run.frames.get(sequence as usize) else { continue };
            let known_before =
                frame.given_up.zip(told_at).is_some_and(|(given_up, told_at)| given_up < told_at);
            lost += u64::from(frame.sent.is_some() && !known_before);
        }
        (arrived.len() as u64, lost)
    }

    /// How many frames from `from` to before `to` came after a silence, immediately followed by a newer one.
    pub(super) fn overtaken_between(
        &self,
        edge_run: u64,
        camera: &CameraName,
        from: FrameId,
        to: FrameId,
    ) -> u64 {
        let overtaken = self.overtaken.get(&(edge_run, camera.clone()));
        overtaken.map_or(0, |overtaken| overtaken.range(from..to).count() as u64)
    }

    /// The frames that a replica took from `from` to before `to`.
    pub(super) fn appended_between(
        &self,
        edge_run: u64,
        camera: &CameraName,
        from: FrameId,
        to: FrameId,
    ) -> &[FrameId] {
        let Some(ids) = self.appended.get(&(edge_run, camera.clone())) else { return &[] };
        let (first, last) = (ids.partition_point(|id| *id < from), ids.partition_point(|id| *id < to));
        &ids[first..last.max(first)]
    }
}

/// Reasons that a live subscription can never be told.
pub(super) const NEVER_LIVE: [SkipReason; 1] = [SkipReason::NotHeld];
