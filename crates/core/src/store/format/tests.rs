use proptest::prelude::*;

use super::*;
use crate::frame::{ChainLink, ClockSource, Encoding, FrameId, Reference, Rung, Sequence, SkipReason};
use crate::sample;
use crate::store::key::{KEY_BYTES, SALT_BYTES};

fn keys() -> KeyRing {
    KeyRing::new(vec![MasterKey::new([1; KEY_BYTES]), MasterKey::new([2; KEY_BYTES])]).unwrap()
}

fn header() -> SegmentHeader {
    SegmentHeader {
        key: keys().newest().id(),
        salt: [7; SALT_BYTES],
        epoch: Epoch(3),
        segment: SegmentNumber(12),
        first_index: 4_000,
        opened: Timestamp::from_nanos(1_700_000_000_000_000_000),
        anchor: ClockAnchor { wall: Timestamp::from_nanos(5), monotonic: Instant::from_nanos(6) },
        camera: "dock/cam1".parse().unwrap(),
    }
}

fn skip_ranges() -> impl Strategy<Value = Vec<SkipRange>> {
    let range = (any::<u64>(), any::<u32>(), 1u8..=9).prop_map(|(first, count, reason)| SkipRange {
        first: Sequence(first >> 1),
        count: count.into(),
        reason: SkipReason::from_code(reason).unwrap(),
    });
    proptest::collection::vec(range, 0..6)
}

prop_compose! {
    fn record()(
        sequence in 0..u64::MAX / 2,
        captured in any::<u64>(),
        (publisher, encoding) in (any::<bool>(), 1u8..=4),
        ((width, height), scaled) in any::<((u32, u32), Option<(u32, u32)>)>(),
        (chained, chain, index, acknowledged) in any::<(bool, u64, u32, Option<u64>)>(),
        rung in "[a-z0-9/]{1,64}",
        skipped in skip_ranges(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) -> Record {
        let sequence = Sequence(sequence);
        let reference = acknowledged.map_or(Reference::Previous, |of| Reference::Acknowledged(Sequence(of)));
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(3), sequence },
            captured: Timestamp::from_nanos(captured),
            clock_source: if publisher { ClockSource::Publisher } else { ClockSource::Broker },
            width,
            height,
            published: scaled.unwrap_or((width, height)),
            encoding: Encoding::from_code(encoding).unwrap(),
            rung: Rung::new(&rung).unwrap(),
            chain: if chained {
                ChainLink { chain: Sequence(chain), index, reference }
            } else {
                ChainLink::still(sequence)
            },
        };
        Record { skipped: skipped.into(), ..sample::record(Frame { meta, payload: payload.into() }) }
    }
}

proptest! {
    #[test]
    fn a_record_opens_as_what_was_sealed(record in record(), index in any::<u64>()) {
        let sealer = header().encode(keys().newest(), &mut Vec::new());
        let mut stored = vec![9; 5];
        sealer.seal(index, &record, &mut stored);
        let opened = sealer.open(index, &stored[5..], Instant::ZERO).unwrap();
        prop_assert_eq!(&opened.frame, &record.frame);
        prop_assert_eq!(&opened.skipped, &record.skipped);
        let long_enough = record.frame.payload.len() > 8;
        let readable = stored.windows(record.frame.payload.len().max(1)).any(|at| at == &record.frame.payload[..]);
        prop_assert!(!(long_enough && readable), "the payload stands there in the clear");
    }

    #[test]
    fn no_bytes_from_a_disk_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(SegmentHeader::decode(&bytes, &keys()).is_err());
        let sealer = header().encode(keys().newest(), &mut Vec::new());
        prop_assert!(sealer.open(0, &bytes, Instant::ZERO).is_err());
    }
}

#[test]
fn a_header_is_read_as_what_was_written_by_any_key_of_the_ring() {
    for key in [1, 2] {
        let master = MasterKey::new([key; KEY_BYTES]);
        let written = SegmentHeader { key: master.id(), ..header() };
        let mut bytes = Vec::new();
        written.encode(&master, &mut bytes);
        assert!(bytes.len() <= SEGMENT_HEADER_BYTES_MAX);
        let (read, _, length) = SegmentHeader::decode(&bytes, &keys()).unwrap();
        assert_eq!((read, length), (written, bytes.len()));
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_noticed() {
    let mut bytes = Vec::new();
    header().encode(keys().newest(), &mut bytes);
    for place in 0..bytes.len() * 8 {
        bytes[place / 8] ^= 1 << (place % 8);
        assert!(SegmentHeader::decode(&bytes, &keys()).is_err(), "bit {place}");
        bytes[place / 8] ^= 1 << (place % 8);
    }
    for length in 0..bytes.len() {
        assert!(SegmentHeader::decode(&bytes[..length], &keys()).is_err(), "cut to {length} bytes");
    }
}

/// An attacker who changes a header can recompute its checksum, but not its tag.
#[test]
fn a_header_whose_checksum_was_mended_is_not_genuine() {
    let mut bytes = Vec::new();
    header().encode(keys().newest(), &mut bytes);
    let body = bytes.len() - TAG_BYTES - 4;
    // Version and length decide how the rest is read. The key's name decides which key is used.
    for place in 20..body {
        let mut forged = bytes.clone();
        forged[place] ^= 1;
        let end = forged.len() - 4;
        let sum = crc32c::crc32c(&forged[..end]).to_le_bytes();
        forged[end..].copy_from_slice(&sum);
        let refused = SegmentHeader::decode(&forged, &keys()).unwrap_err();
        assert_eq!(refused, HeaderError::Forged, "byte {place}");
    }
}

#[test]
fn what_is_strange_about_a_segment_is_said() {
    let mut bytes = Vec::new();
    header().encode(keys().newest(), &mut bytes);
    let others = KeyRing::new(vec![MasterKey::new([3; KEY_BYTES])]).unwrap();
    assert_eq!(SegmentHeader::decode(&bytes, &others).unwrap_err(), HeaderError::Key(header().key));
    assert_eq!(SegmentHeader::decode(&[0; 500], &keys()).unwrap_err(), HeaderError::Torn);
    assert_eq!(SegmentHeader::decode(&[b'x'; 500], &keys()).unwrap_err(), HeaderError::Foreign);
    let mut later = bytes.clone();
    later[8] = 2;
    assert_eq!(SegmentHeader::decode(&later, &keys()).unwrap_err(), HeaderError::Version(2));
    let camera = |name: &str| name.parse().unwrap();
    assert!(header().check_place(&camera("dock/cam1"), SegmentNumber(12)).is_ok());
    let foreign = header().check_place(&camera("dock/cam2"), SegmentNumber(12));
    assert_eq!(foreign, Err(HeaderError::Camera(camera("dock/cam1"))));
    let copied = header().check_place(&camera("dock/cam1"), SegmentNumber(13));
    assert_eq!(copied, Err(HeaderError::Number(SegmentNumber(12))));
}

#[test]
fn skipped_frames_beyond_the_limit_are_stored_as_one_range() {
    let ranges: Vec<SkipRange> = (0..300)
        .map(|n| SkipRange { first: Sequence(2 * n), count: 1, reason: SkipReason::LinkBusy })
        .collect();
    let mut bytes = Vec::new();
    let meta = sample::meta(FrameId { epoch: Epoch(3), sequence: Sequence(600) }, Timestamp::MIN);
    meta::encode(&meta, &ranges, &mut bytes);
    let (read, skipped) = meta::decode(Epoch(3), &bytes).unwrap();
    assert_eq!(read, meta);
    assert_eq!(skipped.len(), meta::STORED_SKIP_RANGES_MAX);
    assert_eq!(skipped[..255], ranges[..255]);
    assert_eq!(skipped.last().unwrap().end(), ranges.last().unwrap().end());
}
