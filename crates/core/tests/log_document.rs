//! Checks that `docs/log-format.md` agrees with the code: writes its worked examples, and compares its tables of numbers.

mod document;

use std::collections::BTreeMap;

use bytes::Bytes;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Reference, Rung, Sequence,
    SkipRange, SkipReason,
};
use mez_core::log::Record;
use mez_core::store::{
    FORMAT_VERSION, KEY_BYTES, KEYS_MAX, KeyRing, MAGIC, MasterKey, RECORD_HEAD_BYTES, SALT_BYTES,
    SEGMENT_HEADER_BYTES_MAX, STORED_SKIP_RANGES_MAX, Sealer, SegmentHeader, SegmentNumber, TAG_BYTES,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use self::document::{blocks, hex};

const DOCUMENT: &str = include_str!("../../../docs/log-format.md");

fn master() -> MasterKey {
    MasterKey::new(std::array::from_fn(|place| place as u8))
}

fn header() -> SegmentHeader {
    SegmentHeader {
        key: master().id(),
        salt: std::array::from_fn(|place| 0xa0 + place as u8),
        epoch: Epoch(3),
        segment: SegmentNumber(12),
        first_index: 4_000,
        opened: Timestamp::from_nanos(1_700_000_000_100_000_000),
        anchor: ClockAnchor {
            wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
            monotonic: Instant::from_nanos(5_000_000_000),
        },
        camera: "dock/cam1".parse().unwrap(),
    }
}

fn still() -> Record {
    let meta = FrameMeta {
        id: FrameId { epoch: Epoch(3), sequence: Sequence(42) },
        captured: Timestamp::from_nanos(1_700_000_002_000_000_000),
        clock_source: ClockSource::Broker,
        width: 1920,
        height: 1080,
        published: (1920, 1080),
        encoding: Encoding::Jpeg,
        rung: Rung::original(),
        chain: ChainLink::still(Sequence(42)),
    };
    let skipped = [SkipRange { first: Sequence(41), count: 1, reason: SkipReason::LinkBusy }];
    let payload = Bytes::from_static(b"not a real JPEG");
    Record {
        frame: Frame { meta, payload },
        skipped: skipped.into(),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    }
}

fn chained() -> Record {
    let mut record = still();
    record.frame.meta.id.sequence = Sequence(45);
    (record.frame.meta.width, record.frame.meta.height) = (1280, 720);
    record.frame.meta.chain =
        ChainLink { chain: Sequence(42), index: 3, reference: Reference::Acknowledged(Sequence(43)) };
    record.skipped = [].into();
    record
}

fn sealer() -> Sealer {
    header().encode(&master(), &mut Vec::new())
}

fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let mut front = Vec::new();
    let sealer = header().encode(&master(), &mut front);
    let sealed = |index, record: &Record| {
        let mut bytes = Vec::new();
        sealer.seal(index, record, &mut bytes);
        bytes
    };
    vec![
        ("header", front),
        ("record", sealed(4_000, &still())),
        ("record-chained", sealed(4_001, &chained())),
    ]
}

#[test]
fn the_worked_examples_are_what_the_code_writes() {
    let documented = blocks(DOCUMENT);
    for (name, bytes) in examples() {
        let block = documented.get(name);
        let block = block.unwrap_or_else(|| panic!("docs/log-format.md lacks {name}:\n{}", hex(&bytes)));
        assert_eq!(hex(block), hex(&bytes), "the example {name} in docs/log-format.md is out of date");
    }
    assert_eq!(documented.len(), examples().len(), "an example that nothing checks");
}

#[test]
fn the_worked_examples_are_read_as_what_they_are_said_to_be() {
    let documented = blocks(DOCUMENT);
    let keys = KeyRing::new(vec![master()]).unwrap();
    let (read, _, length) = SegmentHeader::decode(&documented["header"], &keys).unwrap();
    assert_eq!((read, length), (header(), documented["header"].len()));
    for (name, index, record) in [("record", 4_000, still()), ("record-chained", 4_001, chained())] {
        let opened = sealer().open(index, &documented[name], Instant::ZERO).unwrap();
        assert_eq!((opened.frame, opened.skipped), (record.frame, record.skipped), "{name}");
    }
}

#[test]
fn limits_are_those_of_the_code() {
    let section = DOCUMENT.split("\n## Limits\n").nth(1).expect("docs/log-format.md has limits");
    let said: BTreeMap<&str, String> = section
        .lines()
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(|cell| cell.trim().trim_matches('`'));
            Some((cells.next()?, cells.next()?.replace(',', "")))
        })
        .collect();
    for (name, value) in [
        ("FORMAT_VERSION", usize::from(FORMAT_VERSION)),
        ("SEGMENT_HEADER_BYTES_MAX", SEGMENT_HEADER_BYTES_MAX),
        ("RECORD_HEAD_BYTES", RECORD_HEAD_BYTES),
        ("STORED_SKIP_RANGES_MAX", STORED_SKIP_RANGES_MAX),
        ("KEY_BYTES", KEY_BYTES),
        ("SALT_BYTES", SALT_BYTES),
        ("TAG_BYTES", TAG_BYTES),
        ("KEYS_MAX", KEYS_MAX),
    ] {
        assert_eq!(said.get(name), Some(&value.to_string()), "{name}");
    }
    assert!(DOCUMENT.contains(&format!("`{}`", hex(&MAGIC).trim())), "the magic is another");
}
