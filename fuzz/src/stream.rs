//! Fuzzes the stream decoder with frames of every encoding and every chain link.

use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_media::stream::StreamDecoder;

use crate::script::{Reader, pick};

/// The most pixels that are decoded. It is small, so that many headers claim more.
const PIXELS_MAX: u64 = 1 << 14;
/// The most frames of an input that are decoded. More take longer and find nothing more.
const FRAMES_MAX: usize = 16;
const ENCODINGS: [Encoding; 6] =
    [Encoding::H264, Encoding::Tiles, Encoding::Jpeg, Encoding::Png, Encoding::Bgr8, Encoding::Gray8];

/// Feeds frames one after another to one decoder. A refusal must say why. A decoded frame must be a picture
/// of the allowed size, and a fresh decoder must decode it alike if it needs no other frame.
pub fn stream(bytes: &[u8]) {
    taken(bytes);
}

/// Runs an input and returns how many frames are decoded, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut decoder = StreamDecoder::new(PIXELS_MAX);
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
                if link.reference == Reference::Independent {
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

/// Reads a frame: encoding, sequence, chain, index, reference, width and height, a byte each; then the
/// payload behind its length.
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
