//! Reads logs of chains as stills, with a decoder without pixels. Checks which frames are shown, which frames are returned as held and count as not
//! decoded, and which frames a replica takes at a start.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use mez_core::ancestors::parent;
use mez_core::broker::edge::{EdgeBroker, EdgeConfig};
use mez_core::frame::{Encoding, Epoch, FrameId, FrameMeta};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::stills::{PastDecoded, PastFrames, PastStills, PastTask};
use mez_core::store::{KeyRing, StoreReader};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::SimulatedDisk;

/// The frame that each published frame refers to.
#[derive(Debug, Default)]
pub(super) struct Chains {
    needs: BTreeMap<FrameId, Option<FrameId>>,
}

/// A log on disk, for a reader that takes stills.
struct Shelf<'a> {
    disk: &'a mut SimulatedDisk,
    reader: StoreReader,
    again: StoreReader,
    /// The frames that the decoder holds.
    held: BTreeSet<FrameId>,
    /// A frame that the decoder was given and could not decode.
    undecodable: Option<FrameId>,
}

impl PastFrames for Shelf<'_> {
    type Error = Infallible;

    fn find(&mut self, query: &PastQuery) -> Result<PastAnswer, Infallible> {
        Ok(self.reader.find(self.disk, query).expect("the disk answers"))
    }

    fn find_again(&mut self, query: &PastQuery) -> Result<PastAnswer, Infallible> {
        Ok(self.again.find(self.disk, query).expect("the disk answers"))
    }

    fn decode(&mut self, record: &Record, task: PastTask) -> PastDecoded {
        let (meta, needs) = (&record.frame.meta, parent(&record.frame.meta));
        if task.afresh || needs.is_none() {
            self.held.clear();
        }
        if needs.is_some_and(|needs| !self.held.contains(&needs)) {
            self.undecodable.get_or_insert(meta.id);
            return PastDecoded::Failed;
        }
        self.held.insert(meta.id);
        let mut still = record.clone();
        still.frame.meta.encoding = Encoding::Jpeg;
        if task.wanted { PastDecoded::Still(Box::new(still)) } else { PastDecoded::Passed }
    }
}

impl Chains {
    /// A frame was published.
    pub(super) fn published(&mut self, meta: &FrameMeta) {
        let needs = parent(meta).filter(|_| meta.encoding.is_chained());
        self.needs.insert(meta.id, needs);
    }

    /// Whether a frame can be decoded with the frames in `there`.
    fn decodes(&self, frame: FrameId, there: &BTreeSet<FrameId>) -> bool {
        let mut next = Some(frame);
        while let Some(id) = next {
            if !there.contains(&id) {
                return false;
            }
            next = self.needs.get(&id).copied().flatten();
        }
        true
    }

    /// Checks what a log on disk shows to a reader of stills: all frames that can be decoded with the readable ones, in order from the oldest frame,
    /// and after some `places`. Other readable frames are returned as held, so that they are counted. Returns their number.
    pub(super) fn check_stills(
        &self,
        disk: &mut SimulatedDisk,
        (camera, keys): (&CameraName, &KeyRing),
        places: &[FrameId],
    ) -> Result<u64, String> {
        let reader = || StoreReader::new(camera.clone(), keys.clone());
        let mut there = BTreeSet::new();
        let (mut all, mut query) = (reader(), PastQuery::EVERY);
        while let Some(record) = all.find(disk, &query).map_err(|error| error.to_string())?.record {
            there.insert(record.frame.meta.id);
            query.after = Some(record.frame.meta.id);
        }
        let (again, held) = (reader(), BTreeSet::new());
        let mut shelf = Shelf { disk, reader: reader(), again, held, undecodable: None };
        let mut stills = PastStills::default();
        let (mut query, mut given, mut lost) = (PastQuery::EVERY, BTreeSet::new(), 0);
        while let Some(id) = self.look(&mut shelf, &mut stills, &query, &there)? {
            given.insert(id);
            lost += u64::from(!self.decodes(id, &there));
            query.after = Some(id);
        }
        if given != there {
            return Err(format!("a reader of stills is given {} of {} frames", given.len(), there.len()));
        }
        for place in places {
            self.look(&mut shelf, &mut stills, &PastQuery { after: Some(*place), ..query }, &there)?;
        }
        Ok(lost)
    }

    /// Checks one answer. Returns the frame of the answer.
    fn look(
        &self,
        shelf: &mut Shelf<'_>,
        stills: &mut PastStills,
        query: &PastQuery,
        there: &BTreeSet<FrameId>,
    ) -> Result<Option<FrameId>, String> {
        let Ok(answer) = stills.find(shelf, query);
        if let Some(frame) = shelf.undecodable {
            return Err(format!("a decoder was given {frame}, and does not hold what it needs"));
        }
        let Some(meta) = answer.record.map(|record| record.frame.meta) else { return Ok(None) };
        let (is_shown, decodes) = (!meta.encoding.is_chained(), self.decodes(meta.id, there));
        if is_shown != decodes {
            return Err(format!(
                "{}: shown {is_shown}, can be decoded {decodes}, behind {:?}",
                meta.id, query.after
            ));
        }
        Ok(Some(meta.id))
    }

    /// Checks what a replica takes of recovered frames at a start: exactly those that can be decoded. The
    /// others are counted as skipped before the next frame.
    pub(super) fn check_restored(&self, camera: &CameraName, records: &[Record]) -> Result<(), String> {
        let Some(last) = records.last() else { return Ok(()) };
        let anchor = ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO };
        let mut broker = EdgeBroker::new(EdgeConfig::default());
        let start = (Epoch(last.frame.meta.id.epoch.0), anchor);
        broker.restore(vec![(camera.clone(), start, records.to_vec())]);
        let Some((log, ..)) = broker.log(camera) else { return Err("a replica is gone".into()) };
        let there: BTreeSet<FrameId> = records.iter().map(|record| record.frame.meta.id).collect();
        let mut before: Option<FrameId> = None;
        let mut taken = BTreeSet::new();
        for record in log.held().filter_map(|index| log.get(index)) {
            let id = record.frame.meta.id;
            let lacks =
                |id: &FrameId| before.is_some_and(|before| before < *id) && *id < record.frame.meta.id;
            let lost =
                there.iter().filter(|id| lacks(id)).filter(|lost| lost.epoch == id.epoch).count() as u64;
            let told: u64 = record.skipped.iter().map(|range| range.count).sum();
            let follows = before.is_some_and(|before| before.epoch == id.epoch);
            if follows && told < lost {
                return Err(format!("{lost} frames before {id} need lost ones, and {told} are told"));
            }
            taken.insert(id);
            before = Some(id);
        }
        let decodable: BTreeSet<FrameId> =
            there.iter().copied().filter(|id| self.decodes(*id, &there)).collect();
        if taken == decodable {
            Ok(())
        } else {
            Err(format!(
                "a replica begins with {} frames, and {} can be decoded",
                taken.len(),
                decodable.len()
            ))
        }
    }
}
