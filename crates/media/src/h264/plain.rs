//! Decodes the pictures of an encoder that knows nothing of Mez.

use std::borrow::Cow;

use super::H264Error;
use super::bits::{BitReader, BitWriter, escape, unescape, units};
use super::native::NativeDecoder;
use crate::bitstream::{BitstreamError, Unfit, look};
use crate::image::Image;
use crate::yuv::{Planes, Yuv420, to_bgr};

/// Decodes the frames of a source's own stream, and refuses one that does not follow the frame that it holds.
///
/// A decoder of such a stream needs every frame that a later one may need, in order. [`H264Decoder`](super::H264Decoder) is for the streams that this
/// software encodes, whose frames say where they are kept.
pub struct SourceDecoder {
    native: Option<NativeDecoder>,
    pixels_max: u64,
    /// The newest frame that others may need.
    held: Option<u64>,
    image: Image,
    planes: Yuv420,
}

impl std::fmt::Debug for SourceDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceDecoder").field("held", &self.held).finish_non_exhaustive()
    }
}

impl SourceDecoder {
    /// A decoder that holds nothing, of pictures of at most `pixels_max` pixels. Memory is taken with the first frame.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        Self { native: None, pixels_max, held: None, image: Image::empty(), planes: Yuv420::empty() }
    }

    /// Decodes frame `number` to BGR. `refers` is the newest frame before it that others need (`None`: it is a key frame).
    ///
    /// # Errors
    /// [`H264Error::NotHeld`] changes nothing. After any other error the next frame has to be a key frame.
    pub fn decode(&mut self, payload: &[u8], number: u64, refers: Option<u64>) -> Result<&Image, H264Error> {
        let mut image = std::mem::take(&mut self.image);
        let decoded = self.show(payload, number, refers, |planes, width, height| {
            to_bgr(planes, width, height, &mut image);
        });
        self.image = image;
        decoded?;
        Ok(&self.image)
    }

    /// The same to planes, as they are in the stream.
    ///
    /// # Errors
    /// As for [`SourceDecoder::decode`].
    pub fn decode_planes(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
    ) -> Result<&Yuv420, H264Error> {
        let mut copy = std::mem::take(&mut self.planes);
        let decoded = self.show(payload, number, refers, |planes, width, height| {
            copy.copy_from(planes, width, height);
        });
        self.planes = copy;
        decoded?;
        Ok(&self.planes)
    }

    /// Forgets all frames, and frees the codec's memory.
    pub fn forget(&mut self) {
        self.native = None;
        self.held = None;
    }

    fn show(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<(), H264Error> {
        if let Some(refers) = refers
            && self.held != Some(refers)
        {
            return Err(H264Error::NotHeld { refers, held: self.held });
        }
        let decoded = self.try_show(payload, refers.is_none(), show);
        match decoded {
            Ok(true) => self.held = Some(number),
            Ok(false) => {}
            Err(_) => self.forget(),
        }
        decoded.map(drop)
    }

    /// Decodes a frame, and says whether others may need it.
    fn try_show(
        &mut self,
        payload: &[u8],
        is_key: bool,
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<bool, H264Error> {
        let look = look(payload, self.pixels_max).map_err(H264Error::from)?;
        if look.is_key != is_key {
            return Err(H264Error::Damaged {
                detail: "its units are not those of the frame that it says it is",
            });
        }
        let native = match &mut self.native {
            Some(native) => native,
            none => none.insert(NativeDecoder::new()?),
        };
        native.decode(&shown_at_once(payload), show)?;
        Ok(look.is_needed)
    }
}

/// `profile_idc` of scalable baseline. Its sequence parameter sets are written as those of the profile high.
const SCALABLE_BASELINE: u8 = 83;
/// Profiles whose pictures openh264 shows at once: baseline, and scalable baseline.
const SHOWN_AT_ONCE: [u8; 2] = [66, SCALABLE_BASELINE];
/// Profiles whose sequence parameter sets say nothing of samples: main and extended.
const WITHOUT_SAMPLES: [u8; 2] = [77, 88];

/// The same picture as a stream of which openh264 keeps none back.
///
/// Pictures of main and high may be reordered, so openh264 shows each of them only once the next has come (`ReorderPicturesInDisplay`). Ours are not
/// reordered ([`crate::bitstream`]). What the library asks for is the name of the profile, so its copy of the stream gets another name. All else is decoded as before. (To say after every
/// picture that no more comes would show it too, and lose the memory of one picture each time.)
fn shown_at_once(payload: &[u8]) -> Cow<'_, [u8]> {
    let keeps_back = |unit: &[u8]| {
        unit[0] & 0x1F == 7 && unit.get(1).is_some_and(|profile| !SHOWN_AT_ONCE.contains(profile))
    };
    if !units(payload).any(keeps_back) {
        return Cow::Borrowed(payload);
    }
    let mut renamed = Vec::with_capacity(payload.len() + 32);
    for unit in units(payload) {
        // A set that cannot be read is left to the codec, which refuses it.
        if !keeps_back(unit) || rename(unit, &mut renamed).is_none() {
            renamed.extend_from_slice(&[0, 0, 0, 1]);
            renamed.extend_from_slice(unit);
        }
    }
    Cow::Owned(renamed)
}

/// Appends a sequence parameter set (ITU-T H.264, 7.3.2.1.1) as one of [`SCALABLE_BASELINE`].
fn rename(unit: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    let profile = u8::try_from(reader.bits(8)?).ok()?;
    let (flags_and_level, id) = (reader.bits(16)?, reader.unsigned()?);
    let mut writer = BitWriter::default();
    writer.bits(SCALABLE_BASELINE.into(), 8);
    writer.bits(flags_and_level, 16);
    writer.unsigned(id);
    if WITHOUT_SAMPLES.contains(&profile) {
        // chroma_format_idc 1, 8 bits of both, no bypass of the transform, no scaling matrix.
        writer.unsigned(1);
        writer.unsigned(0);
        writer.unsigned(0);
        writer.bits(0, 2);
    }
    escape(unit[0], &writer.rest(&payload, reader.at)?, out);
    Some(())
}

impl From<BitstreamError> for H264Error {
    fn from(error: BitstreamError) -> Self {
        match error {
            BitstreamError::Damaged { detail } => Self::Damaged { detail },
            BitstreamError::TooLarge { .. } => Self::Damaged { detail: "it is too large" },
            BitstreamError::Unfit(Unfit::TooManyPixels { width, height, pixels_max }) => {
                Self::TooManyPixels { width, height, pixels_max }
            }
            BitstreamError::Unfit(_) => Self::Damaged { detail: "it is of a kind that is not decoded here" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::native::NativeEncoder;
    use super::*;
    use crate::bitstream::{AccessUnit, AccessUnits, Entry};
    use crate::image::{ImageView, PixelFormat};

    const SIDE: u32 = 64;

    /// A square that moves over stripes.
    fn picture(at: u32) -> Yuv420 {
        let mut pixels = Vec::new();
        for y in 0..SIDE {
            for x in 0..SIDE {
                let inside = (x + SIDE - at * 3 % SIDE) % SIDE < 16 && y % 48 < 16;
                pixels.extend([if inside { 220 } else { (x * 2) as u8 }, 90, (y * 3) as u8]);
            }
        }
        let mut planes = Yuv420::empty();
        planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Bgr8).unwrap());
        planes
    }

    /// The pictures of a camera, every second of which no other needs.
    fn stream(length: u32) -> Vec<AccessUnit> {
        let mut encoder = NativeEncoder::of_two_layers(SIDE, SIDE, 26).unwrap();
        let mut parser = AccessUnits::default();
        let mut coded = Vec::new();
        (0..length)
            .map(|at| {
                encoder.encode(&picture(at).view().unwrap(), &mut coded).unwrap();
                parser.packet(&coded).unwrap().unwrap()
            })
            .collect()
    }

    /// Which frame each one needs right before it, as a camera's log says it.
    fn references(stream: &[AccessUnit]) -> Vec<Option<u64>> {
        let mut needed = None;
        let mut number = 0;
        let refer = |unit: &AccessUnit| {
            let refers = if unit.entry == Some(Entry::Key) { None } else { needed };
            needed = if unit.is_needed { Some(number) } else { needed };
            number += 1;
            refers
        };
        stream.iter().map(refer).collect()
    }

    fn decode(decoder: &mut SourceDecoder, stream: &[AccessUnit], number: usize) -> Result<Image, H264Error> {
        let refers = references(stream)[number];
        decoder.decode(&stream[number].payload, number as u64, refers).cloned()
    }

    #[test]
    fn pictures_that_none_needs_may_be_left_out_and_the_others_are_the_same() {
        let stream = stream(20);
        assert!(stream.iter().all(|unit| unit.is_unbroken && unit.missing == 0));
        let spare: Vec<usize> = (0..20).filter(|&number| !stream[number].is_needed).collect();
        assert!(spare.len() >= 8, "{spare:?}");
        let mut whole = SourceDecoder::new(1 << 16);
        let mut sparing = SourceDecoder::new(1 << 16);
        for number in 0..20 {
            let image = decode(&mut whole, &stream, number).unwrap();
            if stream[number].is_needed {
                assert!(decode(&mut sparing, &stream, number).unwrap() == image, "frame {number}");
            }
        }
    }

    #[test]
    fn a_frame_after_a_lost_one_is_refused_until_the_next_key_frame() {
        let stream = stream(20);
        let keys: Vec<usize> = (0..20).filter(|&number| stream[number].entry.is_some()).collect();
        assert!(keys.len() >= 2, "{keys:?}");
        let mut decoder = SourceDecoder::new(1 << 16);
        let late = decode(&mut decoder, &stream, 1);
        assert!(matches!(late, Err(H264Error::NotHeld { refers: 0, held: None })), "{late:?}");
        decode(&mut decoder, &stream, 0).unwrap();
        let lost = (1..20).find(|&number| stream[number].is_needed).unwrap();
        for number in lost + 1..keys[1] {
            assert!(matches!(decode(&mut decoder, &stream, number), Err(H264Error::NotHeld { .. })));
        }
        for number in keys[1]..20 {
            decode(&mut decoder, &stream, number).unwrap();
        }
    }

    #[test]
    fn a_frame_that_is_not_what_it_is_said_to_be_costs_the_chain() {
        let stream = stream(4);
        let mut decoder = SourceDecoder::new(1 << 16);
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let second = &stream[1].payload;
        assert!(matches!(decoder.decode(second, 1, None), Err(H264Error::Damaged { .. })));
        assert!(
            matches!(decoder.decode(second, 1, Some(0)), Err(H264Error::NotHeld { .. })),
            "it was forgotten"
        );
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let cut = &second[..second.len() / 2];
        // Whatever the codec makes of it, nothing panics, and a key frame mends it.
        let _ = decoder.decode(cut, 1, Some(0));
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let large = SourceDecoder::new(100).decode(&stream[0].payload, 0, None).cloned();
        assert!(matches!(
            large,
            Err(H264Error::TooManyPixels { width: SIDE, height: SIDE, pixels_max: 100 })
        ));
    }
    /// A recovery point is a place to begin by the word of the encoder. The codec wants a key frame.
    #[test]
    fn the_codec_does_not_begin_at_a_recovery_point() {
        let mut parser = AccessUnits::default();
        let stream: &[u8] = include_bytes!("../../tests/streams/open_gop.h264");
        let starts: Vec<usize> = memchr::memmem::find_iter(stream, &[0, 0, 0, 1, 0x67]).collect();
        let joined = &stream[starts[1]..starts[2]];
        let mut native = NativeDecoder::new().unwrap();
        let mut shown = Vec::new();
        for unit in crate::h264::bits::units(joined) {
            if let Some(picture) = parser.unit(unit).unwrap() {
                assert!(picture.is_unbroken);
                shown.push(native.decode(&picture.payload, |_, _, _| ()));
            }
        }
        assert_eq!(shown.len(), 3);
        assert!(shown.iter().all(Result::is_err), "{shown:?}");
    }
}
