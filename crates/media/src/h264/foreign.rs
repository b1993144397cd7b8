//! Encodes video like the cameras of other makers, without Mez's changes to H.264. For tests and experiments.

use bytes::Bytes;

use super::H264Error;
use super::native::NativeEncoder;
use crate::image::Yuv420View;

/// Settings of such a camera.
#[derive(Clone, Copy, Debug)]
pub struct ForeignOptions {
    /// Pixels in a row, even.
    pub width: u32,
    /// Rows, even.
    pub height: u32,
    /// The quantiser, 0 to 51. Larger is coarser.
    pub quantiser: u8,
    /// Pictures from one key frame to the next; 0: only the first picture is a key frame.
    pub key_frame_interval: u32,
    /// 1, or 2: every second picture is not needed by any other.
    pub temporal_layers: u32,
    /// Slices per picture, at least 1.
    pub slices: u32,
}

/// openh264 without changes to its output.
pub struct ForeignEncoder {
    native: NativeEncoder,
    coded: Vec<u8>,
}

impl std::fmt::Debug for ForeignEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignEncoder").finish_non_exhaustive()
    }
}

impl ForeignEncoder {
    /// An encoder with these options, for pictures of one size.
    ///
    /// # Errors
    /// [`H264Error::Codec`]: the library refuses the options.
    pub fn new(options: &ForeignOptions) -> Result<Self, H264Error> {
        Ok(Self { native: NativeEncoder::of_a_camera(options)?, coded: Vec::new() })
    }

    /// Encodes the next picture to NAL units with start codes (annex B). Key frames contain their parameter sets.
    ///
    /// # Errors
    /// [`H264Error::Codec`].
    pub fn encode(&mut self, picture: &Yuv420View<'_>) -> Result<Bytes, H264Error> {
        self.native.encode(picture, &mut self.coded)?;
        Ok(Bytes::copy_from_slice(&self.coded))
    }
}

#[cfg(test)]
mod tests {
    use super::super::H264Decoder;
    use super::*;
    use crate::bitstream::{AccessUnits, Entry};
    use crate::image::{ImageView, PixelFormat};
    use crate::yuv::Yuv420;

    const SIDE: u32 = 160;

    #[test]
    fn its_streams_are_those_that_were_asked_for() {
        // The library makes no slice of less than 48 macroblocks.
        for (temporal_layers, slices) in [(1, 1), (2, 1), (1, 2)] {
            let options = ForeignOptions {
                width: SIDE,
                height: SIDE,
                quantiser: 28,
                key_frame_interval: 8,
                temporal_layers,
                slices,
            };
            let mut encoder = ForeignEncoder::new(&options).unwrap();
            let (mut parser, mut decoder) = (AccessUnits::default(), H264Decoder::new(1 << 16));
            let (mut planes, mut needed) = (Yuv420::empty(), None);
            for number in 0..20u64 {
                let pixels: Vec<u8> =
                    (0..u64::from(SIDE * SIDE)).map(|at| ((at / 3 + number * 5) % 251) as u8).collect();
                planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Gray8).unwrap());
                let payload = encoder.encode(&planes.view().unwrap()).unwrap();
                let unit = parser.packet(&payload).unwrap().unwrap();
                assert!(unit.is_unbroken);
                assert_eq!(unit.entry == Some(Entry::Key), number % 8 == 0, "{number}");
                let starts = payload.windows(4).filter(|bytes| bytes[..3] == [0, 0, 1]);
                let is_slice = |bytes: &&[u8]| matches!(bytes[3] & 0x1F, 1 | 5);
                assert_eq!(starts.filter(is_slice).count() as u32, slices);
                let refers = if number % 8 == 0 { None } else { needed };
                decoder.decode(&payload, number, refers).unwrap();
                assert!(unit.is_needed || temporal_layers == 2);
                needed = if unit.is_needed { Some(number) } else { needed };
            }
        }
    }
}
