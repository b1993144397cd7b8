//! Makes stills of frames of the past for one reading, while a log on disk is read record by record.
//!
//! Records come in order, from the beginning of a chain, so the reading's own decoder moves along. If a reading jumps into a chain, the
//! chain is first read from its beginning. Of the frames before the wanted one, only those that the wanted frame needs are decoded.

use crate::chain::{ChainFollower, ChainId, needed_before};
use crate::frame::{Epoch, FrameId, FrameMeta, Sequence};
use crate::history::{PastAnswer, PastQuery, Tier};
use crate::log::Record;

/// The most bytes of frames that are kept until it is known which of them are needed. Beyond this, all of them are decoded.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A decoder's task for a frame of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastTask {
    /// Whether the decoder must first forget what it holds.
    pub afresh: bool,
    /// Whether a still is wanted. If not, the frame is decoded only for later frames.
    pub wanted: bool,
}

/// The outcome of a frame of the past.
#[derive(Clone, Debug)]
pub enum PastDecoded {
    /// The still of the frame.
    Still(Box<Record>),
    /// The frame was decoded, and no still was wanted.
    Passed,
    /// The frame could not be decoded. The decoder holds nothing now.
    Failed,
}

/// The log of the past and the decoder of one reading.
pub trait PastFrames {
    /// Why the log cannot be read.
    type Error;

    /// Finds the next frame for the reading.
    fn find(&mut self, query: &PastQuery) -> Result<PastAnswer, Self::Error>;
    /// Finds a frame that the reading has passed, without moving the reading.
    fn find_again(&mut self, query: &PastQuery) -> Result<PastAnswer, Self::Error>;
    /// Decodes a frame.
    fn decode(&mut self, record: &Record, task: PastTask) -> PastDecoded;
}

/// The place of a reading's decoder in its chain, and the frames kept for it.
#[derive(Debug, Default)]
pub struct PastStills {
    follower: ChainFollower,
    /// Frames of one chain after the last decoded one, in order. It is not known yet whether they are needed.
    kept: Vec<Record>,
    kept_bytes: usize,
    /// The chain of which no frame is passed over any more.
    takes_all: Option<ChainId>,
    /// Whether the decoder holds frames that the follower does not know of.
    is_dirty: bool,
    /// A chain that could not be decoded, and from which frame on.
    lost: Option<(ChainId, FrameId)>,
    /// The chain on which the decoder failed, until it is tried once more.
    failed: Option<ChainId>,
    /// The last chain that had its second try.
    tried_again: Option<ChainId>,
}

impl PastStills {
    /// The answer to a query, with a still in place of a frame that needs others. Frames before the query's beginning are
    /// decoded only if later frames need them. If no still can be made, the frame comes as it is held, and the reader counts
    /// it as skipped. But if the query may go to the camera, the frame counts as not held here, so that the camera sends it.
    pub fn find<P: PastFrames>(&mut self, frames: &mut P, query: &PastQuery) -> Result<PastAnswer, P::Error> {
        let (mut asked, mut broken) = (*query, false);
        loop {
            let answer = frames.find(&asked)?;
            broken |= answer.broken;
            let Some(record) = &answer.record else {
                self.take_kept();
                return Ok(PastAnswer { broken, ..answer });
            };
            let meta = record.frame.meta.clone();
            if !meta.encoding.is_chained() {
                return Ok(PastAnswer { broken, ..answer });
            }
            asked.after = Some(meta.id);
            if meta.captured < query.begin {
                self.keep(frames, record);
                continue;
            }
            match self.decode(frames, record)? {
                PastDecoded::Still(still) => {
                    return Ok(PastAnswer { broken, record: Some(*still), ..answer });
                }
                _ if query.tier_max < Tier::Camera => return Ok(PastAnswer { broken, ..answer }),
                PastDecoded::Passed | PastDecoded::Failed => {}
            }
        }
    }

    /// Keeps a frame that later frames may need.
    fn keep<P: PastFrames>(&mut self, frames: &mut P, record: &Record) {
        let chain = |record: &Record| ChainId::of(&record.frame.meta);
        if self.kept.last().is_some_and(|last| chain(last) != chain(record)) {
            self.take_kept();
        }
        self.kept_bytes += record.frame.payload.len();
        self.kept.push(record.clone());
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.take_all(frames);
        }
    }

    fn take_kept(&mut self) -> Vec<Record> {
        self.kept_bytes = 0;
        std::mem::take(&mut self.kept)
    }

    /// Decodes all kept frames that can be decoded.
    fn take_all<P: PastFrames>(&mut self, frames: &mut P) {
        for record in self.take_kept() {
            if self.follower.allows(&record.frame.meta) {
                self.step(frames, &record, false);
            }
        }
    }

    /// Decodes the kept frames that `meta` needs. Returns false if they do not lead to it.
    fn lead_to<P: PastFrames>(&mut self, frames: &mut P, meta: &FrameMeta) -> bool {
        if self.takes_all.is_some() && self.takes_all == ChainId::of(meta) {
            self.take_all(frames);
            return self.follower.allows(meta);
        }
        let kept = self.take_kept();
        let behind = kept.iter().rev().filter(|record| record.frame.meta.id < meta.id);
        let needed = needed_before(&self.follower, meta, behind, |record| &record.frame.meta);
        let Some(needed) = needed else { return false };
        needed.iter().all(|record| !matches!(self.step(frames, record, false), PastDecoded::Failed))
    }

    fn decode<P: PastFrames>(&mut self, frames: &mut P, record: &Record) -> Result<PastDecoded, P::Error> {
        let meta = &record.frame.meta;
        let Some(chain) = ChainId::of(meta) else { return Ok(PastDecoded::Failed) };
        if self.lost.is_some_and(|(of, from)| of == chain && from <= meta.id) && !self.tries_again(chain) {
            return Ok(PastDecoded::Failed);
        }
        loop {
            if !self.lead_to(frames, meta) && self.failed.is_none() {
                self.go_to(frames, chain, meta.id)?;
                self.lead_to(frames, meta);
            }
            let decoded = self.step(frames, record, true);
            if !matches!(decoded, PastDecoded::Failed) || !self.tries_again(chain) {
                return Ok(decoded);
            }
        }
    }

    /// Whether a chain that could not be decoded is decoded once more. A decoder may fail on a sound frame, because it hung.
    fn tries_again(&mut self, chain: ChainId) -> bool {
        let again = self.failed.take() == Some(chain) && self.tried_again != Some(chain);
        if again {
            (self.tried_again, self.lost) = (Some(chain), None);
        }
        again
    }

    /// Reads a chain from its beginning up to the frame before `to`.
    fn go_to<P: PastFrames>(&mut self, frames: &mut P, chain: ChainId, to: FrameId) -> Result<(), P::Error> {
        if self.follower.chain() == Some(chain) {
            // Frames that were passed over are needed now, and may be needed again.
            self.takes_all = Some(chain);
        }
        self.forget();
        let first = chain.first_frame();
        let mut after = before(first);
        let mut begins = true;
        while let Some(record) =
            frames.find_again(&PastQuery { after, before: Some(to), ..PastQuery::EVERY })?.record
        {
            let meta = &record.frame.meta;
            if std::mem::take(&mut begins) && meta.id != first {
                // The first frame is gone.
                return Ok(());
            }
            after = Some(meta.id);
            if ChainId::of(meta) == Some(chain) {
                self.keep(frames, &record);
            }
        }
        Ok(())
    }

    /// Decodes a frame, if the decoder holds the frame's parent.
    fn step<P: PastFrames>(&mut self, frames: &mut P, record: &Record, wanted: bool) -> PastDecoded {
        let meta = &record.frame.meta;
        if !self.follower.allows(meta) {
            self.fail(meta);
            return PastDecoded::Failed;
        }
        // A decoder goes forwards only.
        let goes_back = |last: FrameId| last.epoch != meta.id.epoch || last >= meta.id;
        let afresh = self.is_dirty || self.follower.last().is_some_and(goes_back);
        let decoded = frames.decode(record, PastTask { afresh, wanted });
        self.is_dirty = false;
        match &decoded {
            PastDecoded::Still(_) | PastDecoded::Passed => self.follower.note(meta),
            PastDecoded::Failed => {
                self.failed = ChainId::of(meta);
                self.fail(meta);
            }
        }
        decoded
    }

    fn fail(&mut self, meta: &FrameMeta) {
        let chain = ChainId::of(meta);
        if !self.lost.is_some_and(|(of, from)| Some(of) == chain && from <= meta.id) {
            self.lost = chain.map(|chain| (chain, meta.id));
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.follower.forget();
        self.is_dirty = true;
    }
}

/// The last identity before `id`. Earlier epochs lie before the first frame of an epoch.
fn before(id: FrameId) -> Option<FrameId> {
    match id.sequence.0.checked_sub(1) {
        Some(sequence) => Some(FrameId { sequence: Sequence(sequence), ..id }),
        None => Some(FrameId { epoch: Epoch(id.epoch.0.checked_sub(1)?), sequence: Sequence(u64::MAX) }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;
    use crate::frame::Reference;
    use crate::stills::tests::{anchored, id, record};
    use crate::units::Timestamp;

    /// Records in order, and a decoder that fails on some frames.
    struct Shelf {
        records: Vec<Record>,
        damaged: Vec<u64>,
        /// Frames on which the decoder fails once.
        unlucky: Vec<u64>,
        decoded: Vec<u64>,
        stills: Vec<u64>,
        held: BTreeSet<u64>,
    }

    impl PastFrames for Shelf {
        type Error = Infallible;

        fn find(&mut self, query: &PastQuery) -> Result<PastAnswer, Infallible> {
            let mut spanned = self.records.iter().filter(|record| query.spans(record.frame.meta.id));
            let first = spanned.clone().find(|record| record.frame.meta.captured >= query.begin);
            let first = first.map_or(u64::MAX, |record| record.frame.meta.chain.chain.0);
            // A reading begins where a chain begins, and continues after a frame.
            let record = match query.after {
                Some(_) => spanned.next(),
                None => spanned.find(|record| record.frame.meta.id.sequence.0 >= first),
            };
            Ok(PastAnswer { record: record.cloned(), ..PastAnswer::default() })
        }

        fn find_again(&mut self, query: &PastQuery) -> Result<PastAnswer, Infallible> {
            self.find(query)
        }

        fn decode(&mut self, record: &Record, task: PastTask) -> PastDecoded {
            let sequence = record.frame.meta.id.sequence.0;
            let refers = match record.frame.meta.chain.reference {
                Reference::Independent => None,
                Reference::Previous => Some(sequence - 1),
                Reference::Acknowledged(refers) => Some(refers.0),
            };
            if task.afresh || refers.is_none() {
                self.held.clear();
            }
            let is_next = self.held.last().is_none_or(|last| *last < sequence);
            let is_held = refers.is_none_or(|refers| self.held.contains(&refers));
            assert!(is_next && is_held, "{sequence} behind {:?}", self.held);
            self.decoded.push(sequence);
            let is_unlucky = self.unlucky.extract_if(.., |frame| *frame == sequence).count() > 0;
            if is_unlucky || self.damaged.contains(&sequence) {
                self.held.clear();
                return PastDecoded::Failed;
            }
            self.held.insert(sequence);
            if !task.wanted {
                return PastDecoded::Passed;
            }
            self.stills.push(sequence);
            PastDecoded::Still(Box::new(super::super::tests::record(sequence, None, 5)))
        }
    }

    fn shelf(count: u64, chain: u64) -> Shelf {
        let records = (0..count).map(|sequence| {
            let first = sequence / chain * chain;
            record(sequence, Some((first, (sequence - first) as u32)), 10)
        });
        let (records, damaged, unlucky) = (records.collect(), vec![], vec![]);
        Shelf { records, damaged, unlucky, decoded: vec![], stills: vec![], held: BTreeSet::new() }
    }

    /// Reads everything from a time on. A frame that comes as it is held has a negative number.
    fn read(shelf: &mut Shelf, begin: u64) -> Vec<i64> {
        let mut stills = PastStills::default();
        let mut query = PastQuery { begin: Timestamp::from_nanos(begin + 1), ..PastQuery::EVERY };
        let mut got = Vec::new();
        while let Ok(PastAnswer { record: Some(record), .. }) = stills.find(shelf, &query) {
            let meta = &record.frame.meta;
            let sequence = meta.id.sequence.0 as i64;
            got.push(if meta.encoding.is_chained() { -sequence } else { sequence });
            query.after = Some(meta.id);
        }
        got
    }

    #[test]
    fn a_reading_in_order_decodes_each_frame_once() {
        let mut shelf = shelf(20, 8);
        assert_eq!(read(&mut shelf, 11), (11..20).collect::<Vec<_>>());
        assert_eq!(shelf.decoded, (8..20).collect::<Vec<_>>(), "from where the chain begins");
        assert_eq!(shelf.stills, (11..20).collect::<Vec<_>>());
    }

    #[test]
    fn who_jumps_into_a_chain_pays_for_its_beginning() {
        let (mut shelf, mut stills) = (shelf(20, 8), PastStills::default());
        let mut ask = |shelf: &mut Shelf, after: u64| {
            let query = PastQuery { after: Some(id(after)), ..PastQuery::EVERY };
            let Ok(answer) = stills.find(shelf, &query);
            std::mem::take(&mut shelf.decoded).len() as u64
                + 100 * answer.record.unwrap().frame.meta.id.sequence.0
        };
        assert_eq!([ask(&mut shelf, 11), ask(&mut shelf, 12), ask(&mut shelf, 2)], [1205, 1301, 304]);
        assert_eq!(shelf.stills, [12, 13, 3]);
    }

    #[test]
    fn what_the_first_frame_does_not_need_is_passed_over() {
        let mut shelf = shelf(100, 100);
        shelf.records = shelf.records.into_iter().map(|record| anchored(record, Some(10))).collect();
        assert_eq!(read(&mut shelf, 73), (73..100).collect::<Vec<_>>());
        let expected: Vec<u64> = [0, 10, 20, 30, 40, 50, 60].into_iter().chain(70..100).collect();
        assert_eq!(shelf.decoded, expected);
        // The same for a reading that jumps into the chain.
        shelf.decoded.clear();
        let (mut stills, after) = (PastStills::default(), Some(id(32)));
        let Ok(answer) = stills.find(&mut shelf, &PastQuery { after, ..PastQuery::EVERY });
        assert_eq!(answer.record.map(|found| found.frame.meta.id), Some(id(33)));
        assert_eq!(shelf.decoded, [0, 10, 20, 30, 31, 32, 33]);
        shelf.damaged.push(65);
        assert_eq!(read(&mut shelf, 73), (73..100).collect::<Vec<_>>(), "nobody needs that one here");
    }

    /// A later frame may need frames that were passed over. The chain is then decoded again, but only once.
    #[test]
    fn who_passed_over_too_much_goes_back_once() {
        let mut shelf = shelf(60, 60);
        for record in shelf.records.iter_mut().skip(3) {
            let meta = &mut record.frame.meta;
            meta.chain.reference = Reference::Acknowledged(Sequence(meta.id.sequence.0 - 3));
        }
        assert_eq!(read(&mut shelf, 40), (40..60).collect::<Vec<_>>());
        assert_eq!(shelf.decoded[..15], [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40]);
        assert_eq!(shelf.decoded[15..], (0..41).chain(41..60).collect::<Vec<_>>());
    }

    /// Frames are kept up to a number of bytes until it is known which are needed. Beyond it, a chain is decoded frame by frame.
    #[test]
    fn a_chain_of_large_frames_is_not_kept_whole() {
        let mut shelf = shelf(8, 100);
        shelf.records =
            (0..8).map(|at| anchored(record(at, Some((0, at as u32)), 5 << 20), Some(2))).collect();
        assert_eq!(read(&mut shelf, 7), [7]);
        assert_eq!(shelf.decoded, [0, 1, 2, 3, 4, 6, 7], "the first four in order, then what is needed");
    }

    /// If the camera is asked too, frames that cannot be decoded here are left to it.
    #[test]
    fn the_camera_is_asked_for_what_cannot_be_decoded() {
        let (mut shelf, mut stills) = (shelf(20, 8), PastStills::default());
        shelf.damaged.push(10);
        let query = PastQuery { after: Some(id(9)), tier_max: Tier::Camera, ..PastQuery::EVERY };
        let Ok(answer) = stills.find(&mut shelf, &query);
        assert_eq!(answer.record.as_ref().map(|found| found.frame.meta.id), Some(id(16)));
        assert_eq!(answer.left_to_ask(&query), Some(PastQuery { before: Some(id(16)), ..query }));
    }

    /// A decoder that hung once does not lose the rest of the chain.
    #[test]
    fn a_chain_has_a_second_try() {
        let mut shelf = shelf(20, 8);
        shelf.unlucky.push(10);
        assert_eq!(read(&mut shelf, 0), (0..20).collect::<Vec<_>>());
        assert_eq!(shelf.decoded.len(), 20 + 3, "from the beginning of the chain to the frame again");
        // Each chain has one more try.
        shelf.unlucky.extend([11, 13]);
        let expected: Vec<i64> = (0..13).chain([-13, -14, -15]).chain(16..20).collect();
        assert_eq!(read(&mut shelf, 0), expected);
    }

    #[test]
    fn a_damaged_frame_costs_its_chain_from_there_on() {
        let mut shelf = shelf(20, 8);
        shelf.damaged.push(10);
        let expected: Vec<i64> = (0..10).chain((10..16).map(|lost| -lost)).chain(16..20).collect();
        assert_eq!(read(&mut shelf, 0), expected);
        let tries = |frame: u64| shelf.decoded.iter().filter(|decoded| **decoded == frame).count();
        assert_eq!(
            (tries(9), tries(10), tries(11)),
            (2, 2, 0),
            "the chain has one more try, and nobody tries what is behind"
        );
        let mut cut = self::shelf(20, 8);
        cut.records.retain(|record| ![8, 13].contains(&record.frame.meta.id.sequence.0));
        let expected: Vec<i64> = (0..8).chain([-9, -10, -11, -12, -14, -15]).chain(16..20).collect();
        assert_eq!(read(&mut cut, 0), expected);
    }
}
