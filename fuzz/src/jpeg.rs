//! Fuzzes the JPEG decoder and the splitter of JPEG streams.

use mez_media::Image;
use mez_media::jpeg::{DecodeError, Decoder, Splitter, check, probe};

/// Maximum number of pixels that are decoded. It is small, so that many headers claim more.
const PIXELS_MAX: u64 = 1 << 14;
/// Maximum bytes of an image in a stream. It is small, so that inputs reach the splitter's limit.
const FRAME_BYTES_MAX: usize = 4 << 10;

/// The input is an image, or a stream of images. Its first byte gives the length of the pieces in which the stream arrives.
pub fn jpeg(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    image(bytes);
    stream(bytes, usize::from(cut) + 1);
}

fn image(bytes: &[u8]) {
    let (seen, whole) = (probe(bytes), check(bytes));
    if let Ok(whole) = &whole {
        assert_eq!(seen.as_ref(), Ok(whole), "the header changed while the image was read");
    }
    let mut image = Image::empty();
    let decoded = Decoder::new(PIXELS_MAX).decode_bgr(bytes, &mut image);
    match &decoded {
        Ok(info) => {
            assert!(info.pixels() <= PIXELS_MAX);
            assert_eq!((image.width(), image.height()), (info.width, info.height));
            assert_eq!(image.data().len() as u64, 3 * info.pixels());
            assert_eq!(whole.as_ref(), Ok(info), "an image that is not whole was decoded");
            // No state carries over, neither from this image nor from the memory into which it is decoded.
            let mut again = Image::empty();
            assert_eq!(Decoder::new(PIXELS_MAX).decode_bgr(bytes, &mut again).as_ref(), Ok(info));
            assert!(image.data() == again.data(), "the same image was decoded to other pixels");
        }
        Err(DecodeError::TooManyPixels { .. }) => {
            assert!(seen.is_ok_and(|info| info.pixels() > PIXELS_MAX));
            assert!(image.data().is_empty(), "memory was taken for a forbidden image");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn stream(bytes: &[u8], piece_bytes: usize) {
    let mut splitter = Splitter::new(FRAME_BYTES_MAX);
    let (mut frames, mut frames_bytes) = (0, 0);
    for mut piece in bytes.chunks(piece_bytes) {
        while let Some(frame) = splitter.next_frame(&mut piece) {
            assert!(frame.jpeg.len() <= FRAME_BYTES_MAX);
            assert_eq!(check(&frame.jpeg), Ok(frame.info), "a frame was cut that is not whole");
            frames += 1;
            frames_bytes += frame.jpeg.len();
        }
        assert!(piece.is_empty());
    }
    splitter.finish();
    assert!(!splitter.is_inside_frame());
    assert!(frames_bytes <= bytes.len());
    if let Ok(info) = check(bytes)
        && bytes.len() <= FRAME_BYTES_MAX
    {
        assert!(frames >= 1, "an image of {}x{} was lost", info.width, info.height);
    }
}
