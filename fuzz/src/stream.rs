//! Frames of a stream from outside: every encoding, every link between frames.

use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_media::stream::StreamDecoder;

use crate::script::{Reader, pick};

/// Small, so that a header which claims more is common.
const PIXELS_MAX: u64 = 1 << 14;
/// Frames of an input that are decoded. More find nothing more and take longer.
const FRAMES_MAX: usize = 16;
const ENCODINGS: [Encoding; 6] =
    [Encoding::H264, Encoding::Tiles, Encoding::Jpeg, Encoding::Png, Encoding::Bgr8, Encoding::Gray8];

/// Frames one after another through one decoder. A frame that is refused says why; one that is not is a picture of the allowed
/// size, and a decoder that forgets everything decodes it alike where it stands for itself.
pub fn stream(bytes: &[u8]) {
    taken(bytes);
}

/// How many frames are decoded, for the test of the committed inputs.
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

/// `encoding, sequence, chain, index, reference, width, height`, a byte each, and the payload behind its length.
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
