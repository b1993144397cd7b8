//! Tests of readings of the past over memory and disk, against the published frames.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use crate::frame::{ChainLink, Encoding, Epoch, Frame, FrameId, FrameMeta, Reference, Sequence, SkipReason};
use crate::log::{LogConfig, LogWriter, log};
use crate::sample;
use crate::store::{
    Bounds, KEY_BYTES, KeyRing, MasterKey, RecordStanding, Resume, Scanned, SegmentNumber, SegmentScan,
    Storage, StorageError, StorageErrorKind, StoreConfig, StoreReader, StoreWriter,
};
use crate::units::{ClockAnchor, Instant};

/// Segments in memory: appended bytes are there at once, and nothing fails.
#[derive(Clone, Default)]
pub(super) struct Shelf {
    segments: BTreeMap<SegmentNumber, Vec<u8>>,
    bounds: Option<Bounds>,
    synced: bool,
}

impl Storage for Shelf {
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError> {
        Ok(self.segments.iter().map(|(number, bytes)| (*number, bytes.len() as u64)).collect())
    }

    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.segments.insert(segment, Vec::new());
        Ok(())
    }

    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError> {
        self.segments.get_mut(&segment).expect("it was made").extend_from_slice(bytes);
        Ok(())
    }

    fn start_sync(&mut self, _: SegmentNumber) -> Result<(), StorageError> {
        self.synced = true;
        Ok(())
    }

    fn finish_sync(&mut self) -> Option<Result<(), StorageError>> {
        std::mem::take(&mut self.synced).then_some(Ok(()))
    }

    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError> {
        let missing = StorageError { kind: StorageErrorKind::Missing, text: "no such segment".into() };
        let bytes = self.segments.get(&segment).ok_or(missing)?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.segments.remove(&segment);
        Ok(())
    }

    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError> {
        Ok(self.bounds)
    }

    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError> {
        self.bounds = Some(bounds);
        Ok(())
    }

    fn read_progress(&mut self) -> Result<Option<crate::store::Progress>, StorageError> {
        Ok(None)
    }

    fn write_progress(&mut self, _: crate::store::Progress) -> Result<(), StorageError> {
        Ok(())
    }
}

/// The readers of the past here decode chains, and get all frames as they are held.
const CHAINS: ChainKinds = ChainKinds::among(&[Encoding::H264, Encoding::Tiles]);

pub(super) fn camera() -> CameraName {
    "dock/cam1".parse().unwrap()
}

pub(super) fn keys() -> KeyRing {
    KeyRing::new(vec![MasterKey::new([3; KEY_BYTES])]).unwrap()
}

/// A camera's log in a little memory and on a little disk.
pub(super) struct Rig {
    writer: LogWriter,
    pub(super) store: StoreWriter<Shelf>,
    now: Instant,
    salt: u8,
    pub(super) published: Vec<FrameMeta>,
    pub(super) next: FrameId,
    /// The chain that the next frame continues.
    chain: ChainLink,
}

const MS: Duration = Duration::from_millis(1);

impl Rig {
    /// Flips one bit of a segment on disk.
    pub(super) fn rot(&mut self, segment: usize, offset: usize) {
        let segments = &mut self.store.storage().segments;
        let count = segments.len().max(1);
        let bytes = segments.values_mut().nth(segment % count).filter(|bytes| !bytes.is_empty());
        if let Some(bytes) = bytes {
            let place = offset % bytes.len();
            bytes[place] ^= 1;
        }
    }

    pub(super) fn new(memory_bytes: u64, disk_bytes: u64, segment_bytes: u64) -> Self {
        let (writer, reader) = log(LogConfig { bytes_max: memory_bytes, segment_bytes: memory_bytes / 4 });
        let config = StoreConfig { segment_bytes, ..StoreConfig::new(camera(), keys(), disk_bytes) };
        let store = StoreWriter::new(
            Shelf::default(),
            config,
            Resume::default(),
            reader.cursor_at_end(),
            Instant::ZERO,
            Timestamp::MIN,
        );
        let next = FrameId { epoch: Epoch(1), sequence: Sequence(0) };
        Self {
            writer,
            store,
            now: Instant::from_nanos(1),
            salt: 0,
            published: Vec::new(),
            next,
            chain: ChainLink::still(Sequence(0)),
        }
    }

    pub(super) fn publish(&mut self, bytes: usize, chained: bool) {
        self.now += 10 * MS;
        let id = self.next;
        let goes_on =
            self.published.last().is_some_and(|last| last.encoding.is_chained() && last.id.next() == id);
        self.chain = if chained && goes_on {
            ChainLink { index: self.chain.index + 1, reference: Reference::Previous, ..self.chain }
        } else {
            ChainLink::still(id.sequence)
        };
        let meta = FrameMeta {
            encoding: if chained { Encoding::H264 } else { Encoding::Jpeg },
            chain: self.chain,
            ..sample::meta(id, Timestamp::from_nanos(self.now.as_nanos()))
        };
        let payload = Bytes::from(vec![id.sequence.0 as u8; bytes]);
        self.writer.append(Frame { meta: meta.clone(), payload }, [].into(), self.now).unwrap();
        self.published.push(meta);
        self.next = id.next();
    }

    pub(super) fn write(&mut self) {
        for _ in 0..100 {
            let salt = &mut self.salt;
            let mut draw = || {
                *salt = salt.wrapping_add(1);
                [*salt; 32]
            };
            self.store.step(self.now, Timestamp::from_nanos(self.now.as_nanos()), &mut draw);
            self.now += 5 * MS;
        }
    }

    /// The identities of all frames that are held somewhere.
    fn held(&mut self) -> Vec<FrameId> {
        let mut reader = StoreReader::new(camera(), keys());
        let mut query = every();
        let mut held = Vec::new();
        while let Some(record) = reader.find(self.store.storage(), &query).unwrap().record {
            query.after = Some(record.frame.meta.id);
            held.push(record.frame.meta.id);
        }
        let log = self.writer.reader();
        held.extend(log.held().filter_map(|index| log.get(index)).map(|record| record.frame.meta.id));
        held.sort_unstable();
        held.dedup();
        held
    }
}

pub(super) fn every() -> PastQuery {
    PastQuery {
        after: None,
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Disk,
        quality: None,
    }
}

/// A publisher that has moved here asks about a record that it published at another edge, whose epochs may be higher. It gets an answer at once.
#[test]
fn a_record_of_another_edge_is_not_on_disk_here() {
    let mut rig = Rig::new(6_000, 1 << 20, 1 << 20);
    rig.store.set_start(Epoch(1), ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO });
    rig.publish(600, false);
    rig.write();
    let standing =
        |epoch, sequence| rig.store.standing(FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) });
    assert_eq!(standing(1, 0), RecordStanding::Certain);
    assert_eq!(standing(1, 1), RecordStanding::Waiting);
    assert_eq!((standing(0, 0), standing(2, 0)), (RecordStanding::Missing, RecordStanding::Missing));
}

/// Memory has only the rest of a long chain, and the disk does not have its newest frames yet.
#[test]
fn who_has_the_beginning_of_a_chain_from_disk_reads_on_in_memory() {
    let mut rig = Rig::new(6_000, 1 << 20, 1 << 20);
    for _ in 0..16 {
        rig.publish(600, true);
        rig.write();
    }
    (0..2).for_each(|_| rig.publish(600, true));
    let log = rig.writer.reader();
    assert!(log.held().start > 0 && log.entry() == 18, "nobody enters in memory");
    let span = Span { begin: Some(Timestamp::MIN), end: None, deliver: Deliver::Every };
    let mut reading = Subscription::with_tier_max(span, Tier::Disk).taking_chains(CHAINS);
    reading.attach(camera(), log);
    let mut disk = StoreReader::new(camera(), keys());
    let mut read = |rig: &mut Rig| {
        let mut got = Vec::new();
        loop {
            match reading.next(Timestamp::MAX) {
                Next::Frame(delivery) => {
                    assert_eq!(delivery.skipped.total(), 0);
                    got.push(delivery.record.frame.meta.id.sequence.0);
                }
                Next::Pending => {
                    let Some((camera, query)) = reading.poll_past() else { return got };
                    reading.handle_past(&camera, disk.find(rig.store.storage(), &query).unwrap());
                }
                Next::Ended { .. } => panic!("it has no end"),
            }
        }
    };
    assert_eq!(read(&mut rig), (0..18).collect::<Vec<_>>());
    rig.publish(600, true);
    assert_eq!(read(&mut rig), [18], "and so in the present");
}

#[derive(Clone, Debug)]
enum Event {
    Publish {
        frames: usize,
        bytes: usize,
        chained: bool,
    },
    Write,
    NewEpoch,
    Read(usize),
    /// Somebody changes a byte of a segment.
    Rot(usize, usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1usize..12, 1usize..900, any::<bool>())
            .prop_map(|(frames, bytes, chained)| Event::Publish { frames, bytes, chained }),
        4 => Just(Event::Write),
        1 => Just(Event::NewEpoch),
        4 => (1usize..12).prop_map(Event::Read),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(segment, offset)| Event::Rot(segment, offset)),
    ]
}

/// Whether a reading has got all that can be decoded, up to the newest frame that needs no other.
///
/// Nobody can decode the rest of a chain without its beginning. If memory has nothing else, those frames are counted. Frames
/// that reached the disk after it was asked in vain are not asked for again, so that no reader waits for a slow disk.
fn has_reached_the_end(rig: &mut Rig, last: Option<FrameId>, begin: Timestamp) -> bool {
    let log = rig.writer.reader();
    let has_entry = log.held().is_empty() || log.entry() < log.held().end;
    let held = rig.held();
    let is_wanted = |meta: &&FrameMeta| meta.chain.index == 0 && held.contains(&meta.id);
    let newest = rig.published.iter().rev().find(is_wanted).filter(|newest| newest.captured >= begin);
    newest.is_none_or(|newest| !has_entry || last >= Some(newest.id))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Records may be evicted, removed, damaged or written during a reading of the past. Even so, its frames come in strictly increasing
    /// order and equal the published ones. Frames and stated gaps add up within each epoch. The last frame is the newest that is held.
    #[test]
    fn a_reading_of_the_past_states_what_it_lacks(
        before in prop::collection::vec(any_event(), 1..20),
        during in prop::collection::vec(any_event(), 0..30),
        begin in 0u64..400,
    ) {
        let mut rig = Rig::new(6_000, 30_000, 4_000);
        let begin = Timestamp::from_nanos(begin * 1_000_000);
        let span = Span { begin: Some(begin), end: None, deliver: Deliver::Every };
        let mut reading: Option<(Subscription, StoreReader)> = None;
        let mut got: Vec<FrameId> = Vec::new();
        let mut newest_before = None;
        let still = Event::Publish { frames: 1, bytes: 9, chained: false };
        let last = [&Event::Read(10_000), &still, &Event::Read(10_000)];
        for (place, event) in before.iter().chain(&during).chain(last).enumerate() {
            if std::ptr::eq(event, &still) {
                prop_assert!(has_reached_the_end(&mut rig, got.last().copied(), begin), "up to {:?}", got.last());
            }
            if place >= before.len() && reading.is_none() {
                newest_before = rig.published.last().map(|meta| meta.id);
                let mut subscription = Subscription::with_tier_max(span, Tier::Disk).taking_chains(CHAINS);
                subscription.attach(camera(), rig.writer.reader());
                reading = Some((subscription, StoreReader::new(camera(), keys())));
            }
            match event {
                Event::Publish { frames, bytes, chained } => {
                    for _ in 0..*frames { rig.publish(*bytes, *chained); }
                }
                Event::Write => rig.write(),
                Event::NewEpoch => rig.next = FrameId { epoch: Epoch(rig.next.epoch.0 + 1), sequence: Sequence(0) },
                Event::Rot(segment, offset) => rig.rot(*segment, *offset),
                Event::Read(count) => {
                    let Some((subscription, disk)) = &mut reading else { continue };
                    for _ in 0..*count {
                        match subscription.next(Timestamp::MAX) {
                            Next::Frame(delivery) => {
                                let meta = &delivery.record.frame.meta;
                                let last = got.last().copied();
                                prop_assert!(last < Some(meta.id), "{} after {:?}", meta.id, last);
                                prop_assert!(rig.published.contains(meta));
                                // A chain that reaches into the span is read from its first frame on.
                                let needs_it = |later: &FrameMeta| {
                                    (later.id.epoch, later.chain.chain) == (meta.id.epoch, meta.chain.chain)
                                        && later.captured >= begin
                                };
                                let is_wanted = Some(meta.id) > newest_before || rig.published.iter().any(needs_it);
                                prop_assert!(is_wanted, "{} lies before {begin:?}", meta.id);
                                prop_assert_eq!(delivery.record.frame.payload.first(), Some(&(meta.id.sequence.0 as u8)));
                                if let Some(last) = last
                                    && last.epoch == meta.id.epoch
                                {
                                    prop_assert_eq!(delivery.skipped.total(), meta.id.sequence.0 - last.sequence.0 - 1);
                                }
                                if last.is_none() {
                                    let lacks = delivery.not_held;
                                    prop_assert!(lacks.is_none_or(|lacks| lacks.end <= meta.captured || meta.chain.index == 0));
                                }
                                got.push(meta.id);
                            }
                            Next::Pending => if let Some((camera, query)) = subscription.poll_past() {
                                let answer = disk.find(rig.store.storage(), &query).unwrap();
                                subscription.handle_past(&camera, answer);
                            } else if let Some((camera, StillQuery { frame, .. })) = subscription.poll_still() {
                                // The frames that this one needs are gone.
                                subscription.handle_still(&camera, frame, StillAnswer::NotDecoded);
                            } else {
                                break;
                            },
                            Next::Ended { .. } => prop_assert!(false, "it has no end"),
                        }
                    }
                }
            }
        }
        // Whatever is missing, the reading continues with the next frame that needs no other.
        let newest = rig.published.last().filter(|newest| newest.captured >= begin);
        prop_assert!(newest.is_none_or(|newest| got.last() == Some(&newest.id)), "up to {:?}", got.last());
    }

    /// If nothing is lost meanwhile, a reading gives exactly the frames that are held from the beginning on.
    #[test]
    fn all_that_is_held_is_read(events in prop::collection::vec(any_event(), 1..40), begin in 0u64..400) {
        let mut rig = Rig::new(6_000, 30_000, 4_000);
        for event in events {
            match event {
                Event::Publish { frames, bytes, .. } => for _ in 0..frames { rig.publish(bytes, false); },
                Event::Write => rig.write(),
                Event::NewEpoch => rig.next = FrameId { epoch: Epoch(rig.next.epoch.0 + 1), sequence: Sequence(0) },
                Event::Read(_) | Event::Rot(..) => {}
            }
        }
        let begin = Timestamp::from_nanos(begin * 1_000_000);
        let captured: BTreeMap<FrameId, Timestamp> =
            rig.published.iter().map(|meta| (meta.id, meta.captured)).collect();
        let held = rig.held();
        let span = Span { begin: Some(begin), end: Some(Timestamp::from_nanos(u64::MAX / 2)), deliver: Deliver::Every };
        let mut subscription = Subscription::with_tier_max(span, Tier::Disk).taking_chains(CHAINS);
        subscription.attach(camera(), rig.writer.reader());
        let mut disk = StoreReader::new(camera(), keys());
        let mut got = Vec::new();
        let mut not_held = None;
        loop {
            match subscription.next(Timestamp::MAX) {
                Next::Frame(delivery) => {
                    not_held = not_held.or(delivery.not_held.filter(|lacks| lacks.reason == NotHeldReason::Gone));
                    got.push(delivery.record.frame.meta.id);
                }
                Next::Pending => {
                    let (camera, query) = subscription.poll_past().expect("it waits for an answer, or ends");
                    subscription.handle_past(&camera, disk.find(rig.store.storage(), &query).unwrap());
                }
                Next::Ended { rest } => {
                    not_held = not_held.or(rest.into_iter().find_map(|(.., not_held)| not_held));
                    break;
                }
            }
        }
        let expected: Vec<FrameId> = held.iter().copied().filter(|id| captured[id] >= begin).collect();
        prop_assert_eq!(&got, &expected);
        let lacks = held.first().is_none_or(|oldest| captured[oldest] > begin);
        prop_assert_eq!(not_held.is_some(), lacks, "{:?}", not_held);
        // A point query finds the same frame as the list.
        let wanted = PastQuery { end: begin, newest: true, ..every() };
        let found = disk.find(rig.store.storage(), &wanted).unwrap().record;
        let found = [found, wanted.find_in(&rig.writer.reader())];
        let found = found.into_iter().flatten().map(|record| record.frame.meta.id).max();
        prop_assert_eq!(found, held.iter().copied().rfind(|id| captured[id] <= begin));
    }
}

/// An application that reads every frame, but slower than frames come, continues from disk where memory has lost them.
#[test]
fn a_slow_reader_of_every_frame_loses_none_that_the_disk_has() {
    let mut rig = Rig::new(6_000, 1 << 20, 4_000);
    let mut subscription =
        Subscription::with_tier_max(Span { deliver: Deliver::Every, ..Span::LIVE }, Tier::Disk);
    rig.publish(700, false);
    subscription.attach(camera(), rig.writer.reader());
    let mut disk = StoreReader::new(camera(), keys());
    let mut got = Vec::new();
    for round in 0..20 {
        for _ in 0..10 {
            rig.publish(700, false);
            rig.write();
        }
        for _ in 0..if round == 19 { 1000 } else { 3 } {
            match subscription.next(Timestamp::MAX) {
                Next::Frame(delivery) => {
                    assert_eq!(delivery.skipped.total(), 0, "before {}", delivery.record.frame.meta.id);
                    got.push(delivery.record.frame.meta.id.sequence.0);
                }
                _ => match subscription.poll_past() {
                    Some((camera, query)) => {
                        let answer = disk.find(rig.store.storage(), &query).unwrap();
                        subscription.handle_past(&camera, answer);
                    }
                    None => break,
                },
            }
        }
    }
    assert_eq!(got, (1..201).collect::<Vec<_>>());
}

/// Records that were removed from disk between two steps of a reading are stated, and the reading continues.
#[test]
fn what_is_removed_while_it_is_read_is_stated() {
    let mut rig = Rig::new(6_000, 1 << 20, 4_000);
    for _ in 0..60 {
        rig.publish(700, false);
        rig.write();
    }
    let span = Span { begin: Some(Timestamp::MIN), end: None, deliver: Deliver::Every };
    let mut subscription = Subscription::with_tier_max(span, Tier::Disk).taking_chains(CHAINS);
    subscription.attach(camera(), rig.writer.reader());
    let mut disk = StoreReader::new(camera(), keys());
    let mut deliveries: Vec<(u64, Vec<(SkipReason, u64)>)> = Vec::new();
    loop {
        match subscription.next(Timestamp::MAX) {
            Next::Frame(delivery) => {
                let sequence = delivery.record.frame.meta.id.sequence.0;
                deliveries.push((sequence, delivery.skipped.iter().collect()));
                if sequence == 2 {
                    let segments = &mut rig.store.storage().segments;
                    let oldest: Vec<SegmentNumber> = segments.keys().copied().take(4).collect();
                    oldest.iter().for_each(|number| drop(segments.remove(number)));
                }
            }
            _ => match subscription.poll_past() {
                Some((camera, query)) => {
                    let answer = disk.find(rig.store.storage(), &query).unwrap();
                    subscription.handle_past(&camera, answer);
                }
                None => break,
            },
        }
    }
    let gaps: Vec<_> = deliveries.windows(2).filter(|pair| !pair[1].1.is_empty()).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let (before, after) = (&gaps[0][0], &gaps[0][1]);
    assert_eq!(after.1[..], [(SkipReason::NotHeld, after.0 - before.0 - 1)]);
    assert_eq!(deliveries.last().unwrap().0, 59);
}

/// Segments on disk are removed whole. They begin where chains begin, unless a chain is longer than a segment.
#[test]
fn segments_of_the_disk_begin_where_chains_begin() {
    let mut rig = Rig::new(1 << 20, 1 << 20, 4_000);
    for sequence in 0..200 {
        // Chains of 21 frames, and at the end one that is longer than any segment.
        rig.publish(100, sequence % 21 != 0 || sequence > 100);
        rig.write();
    }
    let storage = rig.store.storage();
    let sizes: Vec<(SegmentNumber, u64)> = storage.list().unwrap();
    let mut firsts = Vec::new();
    for (number, bytes) in sizes {
        let mut scan = SegmentScan::open(storage, &camera(), &keys(), number, bytes).unwrap();
        if let Some(Scanned::Record(first)) = scan.next(storage, false) {
            firsts.push((first.meta.id.sequence.0, first.meta.chain.index, bytes));
        }
    }
    assert!(firsts.len() > 4, "{firsts:?}");
    assert!(firsts.iter().all(|(sequence, index, _)| *index == 0 || *sequence > 100), "{firsts:?}");
    assert!(firsts.iter().all(|(.., bytes)| *bytes < 3 * 4_000), "{firsts:?}");
}

/// Somebody asks for the newest frame of the past, and the same frame crosses before the answer is there.
#[test]
fn a_frame_that_crosses_while_it_is_looked_for_comes_once() {
    let mut rig = Rig::new(1 << 20, 8 << 20, 1 << 20);
    let span = Span { begin: Some(Timestamp::MIN), end: None, deliver: Deliver::Newest };
    let mut reading = Subscription::with_tier_max(span, Tier::Camera);
    reading.attach(camera(), rig.writer.reader());
    assert!(matches!(reading.next(Timestamp::from_nanos(1)), Next::Pending));
    let (camera, _) = reading.poll_past().expect("memory holds nothing");
    rig.publish(100, false);
    let record = rig.writer.reader().newest();
    reading.handle_past(&camera, PastAnswer { record, ..PastAnswer::default() });
    let Next::Frame(first) = reading.next(Timestamp::from_nanos(2)) else { panic!("it was found") };
    assert_eq!((first.record.frame.meta.id.sequence, first.skipped.total()), (Sequence(0), 0));
    assert!(matches!(reading.next(Timestamp::from_nanos(3)), Next::Pending), "it came twice");
}
