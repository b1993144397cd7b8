use std::sync::Mutex;

use super::*;
use crate::bitstream::Unfit;
use crate::nut::{NutEvent, read_whole};

const H265: &[u8] = include_bytes!("../../tests/streams/h265.nut");
const AV1: &[u8] = include_bytes!("../../tests/streams/av1.nut");
const SIZE: (u32, u32) = (64, 48);
const TIMES: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

/// Decoders that fill each picture with the number of pictures before it.
#[derive(Debug, Default)]
struct Counting {
    /// Pictures that are kept back until another frame is given.
    keeps_back: usize,
    /// Whether pictures have another size than asked for.
    is_wrong: bool,
    opened: Mutex<Vec<(Encoding, (u32, u32))>>,
    failed: Mutex<Vec<String>>,
}

struct Counter {
    keeps_back: usize,
    size: (u32, u32),
    given: u8,
    taken: u8,
}

impl PlatformDecoders for Counting {
    fn open(&self, encoding: Encoding, size: (u32, u32)) -> Result<Box<dyn OutsideDecoder>, String> {
        self.opened.lock().unwrap().push((encoding, size));
        let size = if self.is_wrong { (size.0 / 2, size.1) } else { size };
        Ok(Box::new(Counter { keeps_back: self.keeps_back, size, given: 0, taken: 0 }))
    }

    fn failed(&self, encoding: Encoding, reason: &str) {
        self.failed.lock().unwrap().push(format!("{}: {reason}", encoding.name()));
    }
}

impl OutsideDecoder for Counter {
    fn give(&mut self, _: &[u8]) -> Result<(), String> {
        self.given += 1;
        Ok(())
    }

    fn take(&mut self, _: Duration, planes: &mut Yuv420) -> Result<bool, String> {
        if usize::from(self.given - self.taken) <= self.keeps_back {
            return Ok(false);
        }
        planes.resize(self.size.0, self.size.1).fill(self.taken);
        self.taken += 1;
        Ok(true)
    }
}

fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let packet = |event| match event {
        NutEvent::Packet(packet) => Some(packet.payload.to_vec()),
        NutEvent::Stream(_) => None,
    };
    read_whole(file, 1000, 1 << 20).0.into_iter().filter_map(packet).collect()
}

/// Key frames are numbers 0, 4 and 8.
fn refers(number: usize) -> Option<u64> {
    (!number.is_multiple_of(4)).then(|| number as u64 - 1)
}

fn decoder(counting: &Arc<Counting>) -> PlatformDecoder {
    PlatformDecoder::new(1 << 16, Some(Arc::clone(counting) as Arc<dyn PlatformDecoders>))
}

#[test]
fn every_frame_shows_its_own_picture_by_one_decoder() {
    for (encoding, file) in [(Encoding::H265, H265), (Encoding::Av1, AV1)] {
        let counting = Arc::new(Counting::default());
        let mut decoder = decoder(&counting);
        for (number, packet) in packets(file).iter().enumerate() {
            let planes = decoder.decode(encoding, packet, number as u64, refers(number), TIMES).unwrap();
            assert_eq!((planes.width(), planes.height()), SIZE);
            assert_eq!(usize::from(planes.data()[0]), number);
        }
        assert_eq!(*counting.opened.lock().unwrap(), [(encoding, SIZE)]);
    }
}

/// A caller in a hurry gives all frames and takes the pictures that are ready.
#[test]
fn pictures_that_are_owed_are_taken_later_and_in_order() {
    let counting = Arc::new(Counting { keeps_back: 3, ..Counting::default() });
    let mut decoder = decoder(&counting);
    let packets = packets(H265);
    for (number, packet) in packets.iter().enumerate().take(4) {
        decoder.give(Encoding::H265, packet, number as u64, refers(number)).unwrap();
    }
    assert_eq!(decoder.take(2, Duration::ZERO), Ok(false));
    assert!(decoder.has(2) && decoder.has(0), "the first has come");
    for (number, packet) in packets.iter().enumerate().take(6).skip(4) {
        decoder.give(Encoding::H265, packet, number as u64, refers(number)).unwrap();
    }
    assert_eq!(decoder.take(2, Duration::ZERO), Ok(true));
    assert_eq!(decoder.planes().data()[0], 2);
    assert_eq!(decoder.newest(), Some(5));
    assert!(decoder.take(1, Duration::ZERO).is_err(), "it was passed");
    // Owed pictures are not taken for frames of another stream.
    decoder.forget();
    assert!(!decoder.has(5));
    decoder.give(Encoding::H265, &packets[0], 5, None).unwrap();
    assert_eq!(counting.opened.lock().unwrap().len(), 2);
}

#[test]
fn a_frame_that_needs_a_lost_one_is_refused_until_the_next_key_frame() {
    let counting = Arc::new(Counting::default());
    let mut decoder = decoder(&counting);
    let packets = packets(H265);
    let mut decode = |number: usize, refers: Option<u64>| {
        decoder.decode(Encoding::H265, &packets[number], number as u64, refers, TIMES).map(drop)
    };
    assert_eq!(decode(1, Some(0)), Err(PlatformError::NotHeld { refers: 0 }));
    assert_eq!(decode(0, None), Ok(()));
    assert_eq!(decode(2, Some(1)), Err(PlatformError::NotHeld { refers: 1 }));
    assert_eq!(decode(1, Some(0)), Ok(()), "that changes nothing");
    // The frame is said to be independent, but it is not.
    assert_eq!(decode(2, None), Err(PlatformError::Mislabelled));
    assert_eq!(decode(3, Some(2)), Err(PlatformError::NotHeld { refers: 2 }));
    assert_eq!(decode(4, None), Ok(()));
    let counted = counting.opened.lock().unwrap().len();
    assert_eq!(counted, 1, "the decoder goes on with the key frame");
}

#[test]
fn what_fails_is_told_and_the_next_key_frame_gets_another_decoder() {
    for (counting, says) in [
        (Counting { keeps_back: 1, ..Counting::default() }, "within 0 ms"),
        (Counting { is_wrong: true, ..Counting::default() }, "(32, 48)"),
    ] {
        let counting = Arc::new(counting);
        let mut decoder = decoder(&counting);
        let packets = packets(H265);
        for _ in 0..2 {
            let failed = decoder.decode(Encoding::H265, &packets[0], 0, None, TIMES).unwrap_err();
            assert!(failed.to_string().contains(says), "{failed}");
        }
        assert_eq!((counting.opened.lock().unwrap().len(), counting.failed.lock().unwrap().len()), (2, 2));
    }
    let none = PlatformDecoder::new(1 << 16, None).give(Encoding::H265, &packets(H265)[0], 0, None);
    let none = none.unwrap_err().to_string();
    assert!(none.contains("no decoder of h265") && none.contains("--decode"), "{none}");
}

/// Such pictures are refused before a decoder takes memory for them.
#[test]
fn pictures_beyond_the_limit_and_other_encodings_are_refused() {
    let counting = Arc::new(Counting::default());
    let decoders = Arc::clone(&counting) as Arc<dyn PlatformDecoders>;
    let mut small = PlatformDecoder::new(64 * 48 - 1, Some(decoders));
    let unfit = small.give(Encoding::H265, &packets(H265)[0], 0, None).unwrap_err();
    assert!(matches!(unfit, PlatformError::Bitstream(BitstreamError::Unfit(Unfit::TooManyPixels { .. }))));
    for other in [Encoding::H264, Encoding::Jpeg, Encoding::Av1] {
        assert!(decoder(&counting).give(other, &packets(H265)[0], 0, None).is_err(), "{}", other.name());
    }
    assert!(counting.opened.lock().unwrap().is_empty());
}
