//! Fuzzes the reader of the container from ffmpeg's pipe.

use mez_media::nut::{NutError, NutEvent, read_whole};

/// Small, so that packets reach the limit.
const PACKET_BYTES_MAX: usize = 2000;
/// Maximum bytes that elided headers add to a packet.
const ELIDED_BYTES_MAX: usize = 1024;

/// The first byte gives the length of the pieces in which the rest arrives.
pub fn nut(bytes: &[u8]) {
    taken(bytes);
}

/// Runs an input and returns the number of packets, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> usize {
    let Some((&piece, file)) = bytes.split_first() else { return 0 };
    let found = read(file, usize::from(piece) + 1);
    assert!(found == read(file, file.len().max(1)), "pieces change what is found");
    let (events, error) = found;
    if let Some(error) = error {
        assert!(!error.to_string().is_empty());
    }
    let packets = events.iter().filter_map(|event| match event {
        NutEvent::Packet(packet) => Some(packet),
        NutEvent::Stream(_) => None,
    });
    packets.inspect(|packet| assert!(packet.payload.len() <= PACKET_BYTES_MAX + ELIDED_BYTES_MAX)).count()
}

fn read(file: &[u8], piece: usize) -> (Vec<NutEvent>, Option<NutError>) {
    read_whole(file, piece, PACKET_BYTES_MAX)
}

/// A recording of ffmpeg (`crates/media/tests/streams/README.md`): whole, in small pieces, and cut off.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let file: &[u8] = include_bytes!("../../crates/media/tests/streams/slices.nut");
    let in_pieces = |piece: u8, file: &[u8]| [&[piece], file].concat();
    vec![
        ("whole", in_pieces(255, file)),
        ("small-pieces", in_pieces(6, file)),
        ("cut-off", in_pieces(99, &file[..file.len() - 100])),
    ]
}
