//! Packets come out of the container as they went in.

use proptest::prelude::*;

use super::*;
use crate::bitstream::{AccessUnits, UnitSplitter};

/// `slices.h264`, out of an MP4 file: ffmpeg 5.1, `-c copy -flush_packets 1 -f nut`.
const SLICES: &[u8] = include_bytes!("../../tests/streams/slices.nut");

#[test]
fn packets_come_with_their_ends_and_times() {
    let (events, error) = read_whole(SLICES, 1000, 1 << 20);
    assert_eq!(error, None);
    let [NutEvent::Stream(stream), packets @ ..] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&stream.codec[..], stream.width, stream.height, stream.delay), (&b"avc1"[..], 64, 48, 0));
    assert_eq!(packets.len(), 10);
    let mut parser = AccessUnits::default();
    parser.configure(&stream.description).unwrap();
    let mut direct = AccessUnits::default();
    let mut expected = Vec::new();
    let mut splitter = UnitSplitter::new(1 << 20);
    splitter.push(include_bytes!("../../tests/streams/slices.h264"));
    splitter.finish();
    while let Some(unit) = splitter.next_unit() {
        expected.extend(direct.unit(unit).unwrap());
    }
    expected.extend(direct.finish().unwrap());
    for (at, (event, expected)) in packets.iter().zip(&expected).enumerate() {
        let NutEvent::Packet(packet) = event else { panic!("{event:?}") };
        assert_eq!((packet.is_key, packet.time_nanos), (at == 0, at as i64 * 100_000_000));
        assert_eq!(&parser.packet(&packet.payload).unwrap().unwrap(), expected);
    }
}

/// A packet is returned as soon as its last byte has arrived.
#[test]
fn no_packet_waits_for_the_next_one() {
    let whole = read_whole(SLICES, SLICES.len(), 1 << 20);
    for piece in [1, 2, 3, 7, 50, 333] {
        assert_eq!(read_whole(SLICES, piece, 1 << 20), whole, "pieces of {piece}");
    }
    let mut reader = NutReader::new(1 << 20);
    reader.push(SLICES);
    while reader.next_event().unwrap().is_some() {}
    assert!(!reader.is_inside(), "the last packet ends with the file");
}

#[test]
fn what_is_no_container_is_refused() {
    for bytes in [&b"nut/multimedia contraption\0"[..], b"RIFF", b"nut/multimedia container\0\x07"] {
        assert!(read_whole(bytes, 100, 100).1.is_some(), "{bytes:?}");
    }
    let (events, error) = read_whole(SLICES, 100, 1000);
    assert!(error.unwrap().to_string().contains("larger"), "{events:?}");
}

proptest! {
    #[test]
    fn damage_ends_it_or_not_and_no_piece_changes_that(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        piece in 1usize..400,
    ) {
        let mut file = SLICES.to_vec();
        for (at, value) in changes {
            let at = at.index(file.len());
            file[at] = value;
        }
        let whole = read_whole(&file, file.len(), 2000);
        for event in &whole.0 {
            if let NutEvent::Packet(packet) = event {
                prop_assert!(packet.payload.len() <= 2000 + 1024);
            }
        }
        prop_assert_eq!(read_whole(&file, piece, 2000), whole);
    }
}
