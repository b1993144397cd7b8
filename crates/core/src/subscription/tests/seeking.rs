//! Tests of binary search in large segments, against a reader that reads them from the front.

use proptest::prelude::*;

use super::past::{Rig, camera, every, keys};
use crate::chain::begins_chain;
use crate::frame::{Epoch, FrameId, FrameMeta, Sequence};
use crate::history::PastQuery;
use crate::store::StoreReader;
use crate::units::Timestamp;

/// A log of two epochs in few segments.
fn recorded(sizes: &[usize], chain: usize) -> Rig {
    let mut rig = Rig::new(1 << 20, 64 << 20, 512 << 10);
    for (at, bytes) in sizes.iter().enumerate() {
        if at == sizes.len() / 3 {
            rig.write();
            rig.next = FrameId { epoch: Epoch(2), sequence: Sequence(0) };
        }
        rig.publish(*bytes, at % chain != 0);
        if at % 16 == 0 {
            rig.write();
        }
    }
    rig.write();
    rig
}

/// All frames that a reader finds, from the front on.
fn all(mut reader: StoreReader, rig: &mut Rig) -> Vec<FrameMeta> {
    let (mut query, mut found) = (every(), Vec::new());
    while let Some(record) = reader.find(rig.store.storage(), &query).unwrap().record {
        query.after = Some(record.frame.meta.id);
        found.push(record.frame.meta);
    }
    found
}

/// The first frame for a reading that begins at a time. A reader that wants stills gets the chain from its beginning on.
fn first_since(described: &[FrameMeta], readable: &[FrameMeta], begin: Timestamp) -> Option<FrameId> {
    let first = described.iter().find(|meta| meta.captured >= begin)?;
    let start = FrameId { sequence: first.chain.chain, ..first.id };
    let start = described.iter().find(|meta| meta.id == start && begins_chain(meta));
    let from = start.filter(|_| first.encoding.is_chained()).map_or(first.id, |start| start.id);
    readable.iter().map(|meta| meta.id).find(|id| *id >= from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn halving_finds_what_reading_from_the_front_finds(
        sizes in proptest::collection::vec(prop_oneof![9 => 50_usize..3_000, 1 => 10_000_usize..60_000], 200..400),
        chain in 1_usize..90,
        rot in proptest::collection::vec((0_usize..8, 200_usize..600_000), 0..6),
        places in proptest::collection::vec(0_usize..400, 1..30),
    ) {
        let mut rig = recorded(&sizes, chain);
        rot.iter().for_each(|(segment, offset)| rig.rot(*segment, *offset));
        // A reader of descriptions alone does not notice damaged payloads.
        let described = all(StoreReader::skimming(camera(), keys()), &mut rig);
        let readable = all(StoreReader::new(camera(), keys()), &mut rig);
        let ids: Vec<FrameId> = readable.iter().map(|meta| meta.id).collect();
        let mut reader = StoreReader::new(camera(), keys());
        let published = rig.published.clone();
        for meta in places.iter().filter_map(|place| published.get(*place)) {
            let mut ask = |query: PastQuery| {
                let answer = reader.find(rig.store.storage(), &query).unwrap();
                answer.record.map(|record| record.frame.meta.id)
            };
            let begin = Timestamp::from_nanos(meta.captured.as_nanos() - 1);
            let since = ask(PastQuery { begin, ..every() });
            prop_assert_eq!(since, first_since(&described, &readable, begin), "since {}", meta.id);
            let after = ask(PastQuery { after: Some(meta.id), ..every() });
            prop_assert_eq!(after, ids.iter().copied().find(|id| *id > meta.id), "after {}", meta.id);
            let newest = ask(PastQuery { end: meta.captured, newest: true, ..every() });
            prop_assert_eq!(newest, ids.iter().copied().rfind(|id| *id <= meta.id), "up to {}", meta.id);
            let before = ask(PastQuery { before: Some(meta.id), newest: true, ..every() });
            prop_assert_eq!(before, ids.iter().copied().rfind(|id| *id < meta.id), "before {}", meta.id);
        }
    }
}
