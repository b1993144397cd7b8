//! Keeps frames of the past that were fetched from their cameras, so that each crosses the link once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::PastQuery;
use crate::frame::{FrameId, Rung};
use crate::log::{RECORD_OVERHEAD_BYTES, Record};
use crate::name::CameraName;

/// The camera, the frame, and the name of the frame's rung.
type Key = (CameraName, FrameId, Arc<str>);

/// Fetched frames by camera, identity and rung. They are kept apart from the replica logs, which hold live
/// frames in the order of their arrival. Live subscriptions never see them.
#[derive(Debug)]
pub struct FetchedFrames {
    bytes_max: u64,
    bytes: u64,
    frames: BTreeMap<Key, Record>,
    /// The keys in the order of arrival. The earliest is evicted first.
    arrivals: VecDeque<Key>,
}

impl FetchedFrames {
    /// An empty store for at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, frames: BTreeMap::new(), arrivals: VecDeque::new() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps a frame. A frame that is already kept stays. A frame larger than the budget is not kept.
    pub fn insert(&mut self, camera: &CameraName, record: Record) {
        let cost = cost_of(&record);
        let meta = &record.frame.meta;
        let key = (camera.clone(), meta.id, meta.rung.as_str().into());
        if cost > self.bytes_max || self.frames.contains_key(&key) {
            return;
        }
        while self.bytes + cost > self.bytes_max {
            let oldest = self.arrivals.pop_front().expect("bytes are held only by frames that arrived");
            if let Some(record) = self.frames.remove(&oldest) {
                self.bytes -= cost_of(&record);
            }
        }
        self.bytes += cost;
        self.arrivals.push_back(key.clone());
        self.frames.insert(key, record);
    }

    /// Drops all frames of a camera.
    pub fn forget(&mut self, camera: &CameraName) {
        self.arrivals.retain(|(of, ..)| of != camera);
        let gone = self.frames.extract_if(.., |(of, ..), _| of == camera);
        self.bytes -= gone.map(|(_, record)| cost_of(&record)).sum::<u64>();
    }

    /// The frame at this rung, if it is kept.
    pub fn get(&self, camera: &CameraName, id: FrameId, rung: &Rung) -> Option<&Record> {
        self.frames.get(&(camera.clone(), id, rung.as_str().into()))
    }

    /// The oldest fetched frame of the camera that answers the query, as the original or at the
    /// query's rung. Earlier frames may exist elsewhere; the caller compares identities to find out.
    pub fn find(&self, camera: &CameraName, query: &PastQuery) -> Option<&Record> {
        let from = (camera.clone(), query.after.unwrap_or_default(), Arc::from(""));
        let frames = self
            .frames
            .range(from..)
            .take_while(|((of, id, _), _)| of == camera && query.before.is_none_or(|before| *id < before));
        frames.map(|(_, record)| record).find(|record| query.is_answered_by(&record.frame.meta))
    }
}

fn cost_of(record: &Record) -> u64 {
    record.frame.payload.len() as u64 + RECORD_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::frame::{Epoch, Frame, Sequence};
    use crate::history::Tier;
    use crate::sample;
    use crate::units::Timestamp;

    fn record(sequence: u64, bytes: usize) -> Record {
        let meta = sample::meta(
            FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            Timestamp::from_nanos(sequence),
        );
        let frame = Frame { meta, payload: Bytes::from(vec![0; bytes]) };
        sample::record(frame)
    }

    #[test]
    fn what_came_first_makes_room_and_cameras_are_kept_apart() {
        let (a, b): (CameraName, CameraName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let mut fetched = FetchedFrames::new(3 * (744 + RECORD_OVERHEAD_BYTES));
        for sequence in [5, 1, 3, 2] {
            fetched.insert(&a, record(sequence, 744));
            assert!(fetched.bytes() <= 3000);
        }
        fetched.insert(&b, record(9, 4000));
        let mut query = PastQuery {
            after: None,
            before: None,
            begin: Timestamp::MIN,
            end: Timestamp::MAX,
            newest: false,
            tier_max: Tier::Camera,
            quality: None,
        };
        let mut held = Vec::new();
        while let Some(record) = fetched.find(&a, &query) {
            held.push(record.frame.meta.id.sequence.0);
            query.after = Some(record.frame.meta.id);
        }
        assert_eq!(held, [1, 2, 3], "5 came first");
        query.after = None;
        assert!(fetched.find(&b, &query).is_none(), "larger than the whole store");
        query.begin = Timestamp::from_nanos(3);
        assert_eq!(fetched.find(&a, &query).unwrap().frame.meta.id.sequence.0, 3);
    }
}
