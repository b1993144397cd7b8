//! Fuzzes the stream decoder with frames of every encoding and every chain link.

use std::sync::Arc;
use std::time::Duration;

use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_media::Yuv420;
use mez_media::h264::OutsideDecoder;
use mez_media::nut::{NutEvent, read_whole};
use mez_media::platform::PlatformDecoders;
use mez_media::stream::StreamDecoder;

use crate::script::{Reader, pick};

/// Maximum number of pixels that are decoded. It is small, so that many headers claim more.
const PIXELS_MAX: u64 = 1 << 14;
/// Maximum number of frames of an input that are decoded. More take longer and find nothing more.
const FRAMES_MAX: usize = 16;
const ENCODINGS: [Encoding; 8] = [
    Encoding::H264,
    Encoding::Tiles,
    Encoding::Jpeg,
    Encoding::Png,
    Encoding::Bgr8,
    Encoding::Gray8,
    Encoding::H265,
    Encoding::Av1,
];

/// Replaces the platform's decoders of H.265 and AV1. Shows a grey picture of the parsed size for each packet given.
#[derive(Debug)]
struct Grey;

struct GreyDecoder {
    size: (u32, u32),
    owed: usize,
}

impl PlatformDecoders for Grey {
    fn open(&self, _: Encoding, size: (u32, u32)) -> Result<Box<dyn OutsideDecoder>, String> {
        Ok(Box::new(GreyDecoder { size, owed: 0 }))
    }

    fn failed(&self, encoding: Encoding, reason: &str) {
        panic!("{} failed: {reason}", encoding.name());
    }
}

impl OutsideDecoder for GreyDecoder {
    fn give(&mut self, _: &[u8]) -> Result<(), String> {
        self.owed += 1;
        Ok(())
    }

    fn take(&mut self, _: Duration, planes: &mut Yuv420) -> Result<bool, String> {
        assert!(self.owed > 0, "nothing is owed");
        self.owed -= 1;
        planes.resize(self.size.0, self.size.1).fill(128);
        Ok(true)
    }
}

/// Feeds frames one after another to one decoder. A refusal must give a reason. A decoded frame must be a
/// picture of an allowed size. If it needs no other frame, a fresh decoder must decode it to the same pixels.
pub fn stream(bytes: &[u8]) {
    taken(bytes);
}

/// Runs an input and returns how many frames are decoded, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut decoder = StreamDecoder::new(PIXELS_MAX).with_platform(Arc::new(Grey));
    let mut taken = 0;
    for _ in 0..FRAMES_MAX {
        let Some((frame, payload)) = frame(&mut reader) else { break };
        let (encoding, sequence, link, size) = frame;
        match decoder.decode(encoding, sequence, &link, size, payload) {
            Ok(image) => {
                let pixels = u64::from(image.width()) * u64::from(image.height());
                assert!((1..=PIXELS_MAX).contains(&pixels), "{pixels} pixels");
                assert_eq!(image.data().len() as u64, 3 * pixels);
                taken += 1;
                // Key frames of sources may need earlier parameter sets. The camera adds them.
                if link.reference == Reference::Independent && !encoding.is_foreign() {
                    let held = image.data().to_vec();
                    let mut fresh = StreamDecoder::new(PIXELS_MAX);
                    let again = fresh.decode(encoding, sequence, &link, size, payload);
                    let again = again.expect("an independent frame needs no other");
                    assert_eq!(again.data(), held);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    taken
}

type Frame = (Encoding, Sequence, ChainLink, (u32, u32));

/// Reads a frame: encoding, sequence, chain, index, reference, width and height, one byte each; then the payload after its length.
fn frame<'a>(reader: &mut Reader<'a>) -> Option<(Frame, &'a [u8])> {
    let encoding = pick(&ENCODINGS, reader.byte()?);
    let [sequence, chain] = [reader.byte()?, reader.byte()?].map(|number| Sequence(number.into()));
    let index = reader.byte()?.into();
    let reference = match reader.byte()? {
        0 => Reference::Independent,
        1 => Reference::Previous,
        number => Reference::Acknowledged(Sequence(u64::from(number - 2))),
    };
    let size = (reader.byte()?.into(), reader.byte()?.into());
    Some(((encoding, sequence, ChainLink { chain, index, reference }, size), reader.block()?))
}

/// The first frames of a recording, as an input. Only the first of them is a key frame.
pub fn of_source(file: &[u8], encoding: u8) -> Vec<u8> {
    let packets = read_whole(file, file.len(), 1 << 20).0.into_iter().filter_map(|event| match event {
        NutEvent::Packet(packet) => Some(packet.payload),
        NutEvent::Stream(_) => None,
    });
    packets.take(4).zip(1..).fold(Vec::new(), |mut out, (payload, number): (_, u8)| {
        out.extend([encoding, number, 1, number - 1, u8::from(number > 1), 64, 48]);
        out.extend((payload.len() as u16).to_le_bytes());
        out.extend_from_slice(&payload);
        out
    })
}
