//! Decodes the H.264 pictures of one stream, from Mez's encoder or from a source.

use std::borrow::Cow;
use std::sync::Arc;

use super::H264Error;
use super::bits::units;
use super::pair::{OutsideDecoders, Pair, PairError};
use super::slice::{self, Place, SLOTS};
use crate::bitstream::{BitstreamError, Unfit, look};
use crate::image::Image;
use crate::yuv::{Colour, Planes, Yuv420, to_bgr, to_ours};

/// Decodes the frames of one stream, and refuses a frame whose reference it does not hold.
///
/// Frames of Mez's encoder name the slot in which they are kept, and the slot from which they are predicted.
/// Frames of a source's own stream do not: such a frame needs every earlier frame that others need, in order.
pub struct H264Decoder {
    pair: Pair,
    pixels_max: u64,
    /// Bits of `frame_num`, if the parameter sets may be those of Mez's encoder.
    frame_num_bits: Option<u32>,
    /// The held frames of Mez's encoder, by slot.
    slots: [Option<u64>; SLOTS],
    /// The newest frame that others may need.
    newest: Option<u64>,
    /// The meaning of the stream's samples.
    colour: Colour,
    /// Samples in this crate's format, before their conversion to BGR.
    converted: Yuv420,
    /// `frame_num` of the frame decoded last, as another decoder gets it.
    frame_num: u32,
    image: Image,
    planes: Yuv420,
}

impl std::fmt::Debug for H264Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("H264Decoder");
        shown.field("slots", &self.slots).field("newest", &self.newest).finish_non_exhaustive()
    }
}

impl H264Decoder {
    /// A decoder of pictures of at most `pixels_max` pixels. It holds no frame, and takes memory with the first one.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        Self {
            pair: Pair::default(),
            pixels_max,
            frame_num_bits: None,
            slots: [None; SLOTS],
            newest: None,
            colour: Colour::OURS,
            converted: Yuv420::empty(),
            frame_num: 0,
            image: Image::empty(),
            planes: Yuv420::empty(),
        }
    }

    /// Adds other decoders beside the library. Their pictures are used if they equal the library's.
    #[must_use]
    pub fn with_outside(mut self, outside: Arc<dyn OutsideDecoders>) -> Self {
        self.pair = Pair::with_outside(outside);
        self
    }

    /// Decodes frame `number`, which is predicted from frame `refers` (`None`: it is a key frame),
    /// to BGR. In a source's stream, `refers` is the newest earlier frame that others need.
    ///
    /// # Errors
    /// [`H264Error::NotHeld`] changes nothing. After any other error, the next frame must be independent.
    pub fn decode(&mut self, payload: &[u8], number: u64, refers: Option<u64>) -> Result<&Image, H264Error> {
        let (mut image, mut converted) =
            (std::mem::take(&mut self.image), std::mem::take(&mut self.converted));
        let decoded = self.show(payload, number, refers, |planes, (width, height), colour| {
            if colour == Colour::OURS {
                return to_bgr(planes, width, height, &mut image);
            }
            to_ours(planes, (width, height), colour, &mut converted);
            converted.to_bgr(&mut image);
        });
        (self.image, self.converted) = (image, converted);
        decoded?;
        Ok(&self.image)
    }

    /// Like [`H264Decoder::decode`], to planes.
    ///
    /// # Errors
    /// Those of [`H264Decoder::decode`].
    pub fn decode_planes(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
    ) -> Result<&Yuv420, H264Error> {
        self.copy_planes(payload, number, refers, None)
    }

    /// Decodes a frame only because later frames need it.
    ///
    /// # Errors
    /// Those of [`H264Decoder::decode`].
    pub fn pass(&mut self, payload: &[u8], number: u64, refers: Option<u64>) -> Result<(), H264Error> {
        self.show(payload, number, refers, |_, _, _| {})
    }

    /// Like [`H264Decoder::decode_planes`], without conversion of the samples.
    #[cfg(test)]
    pub(crate) fn decode_as_coded(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
    ) -> Result<&Yuv420, H264Error> {
        self.copy_planes(payload, number, refers, Some(Colour::OURS))
    }

    /// Decodes a frame and copies its planes. `meaning` overrides the meaning of samples that the stream states.
    fn copy_planes(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
        meaning: Option<Colour>,
    ) -> Result<&Yuv420, H264Error> {
        let mut copy = std::mem::take(&mut self.planes);
        let decoded = self.show(payload, number, refers, |planes, size, colour| {
            to_ours(planes, size, meaning.unwrap_or(colour), &mut copy);
        });
        self.planes = copy;
        decoded?;
        Ok(&self.planes)
    }

    /// Decodes a frame and passes its planes, unconverted, to `show`, with their size and the meaning of the samples.
    fn show(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
        show: impl FnOnce(&Planes<'_>, (u32, u32), Colour),
    ) -> Result<(), H264Error> {
        let kept = match self.admit(payload, refers) {
            Ok(kept) => kept,
            Err(error @ H264Error::NotHeld { .. }) => return Err(error),
            Err(error) => {
                self.forget();
                return Err(error);
            }
        };
        let (picture, is_key) = (self.without_gap(payload, &kept), matches!(kept, Kept::Key));
        let colour = self.colour;
        let shown = self.pair.decode(&picture, is_key, |planes, width, height| {
            show(planes, (width, height), colour);
        });
        if let Err(error) = shown {
            self.forget();
            return Err(match error {
                PairError::Codec(error) => error,
                PairError::ChainGone => H264Error::NotHeld { refers: refers.unwrap_or(number), held: None },
            });
        }
        match kept {
            Kept::Key => {
                (self.slots, self.newest) = ([None; SLOTS], Some(number));
                self.slots[0] = Some(number);
            }
            Kept::Slot(place) => {
                self.slots[place.own as usize] = Some(number);
                self.newest = Some(number);
            }
            Kept::Newest { is_needed } => {
                self.slots = [None; SLOTS];
                self.newest = if is_needed { Some(number) } else { self.newest };
            }
        }
        Ok(())
    }

    /// The planes of the picture that [`H264Decoder::decode_planes`] decoded last.
    #[must_use]
    pub fn planes(&self) -> &Yuv420 {
        &self.planes
    }

    /// The newest frame that others may need. All frames that it needs were decoded.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Forgets all frames, and frees the memory of the codec.
    pub fn forget(&mut self) {
        self.pair.forget();
        self.restart();
    }

    /// Forgets all frames, and keeps the memory of the codec for the next key frame. New memory would come from the system page by page.
    pub fn restart(&mut self) {
        self.pair.restart();
        self.slots = [None; SLOTS];
        self.newest = None;
    }

    /// Renumbers a frame of Mez's encoder for other decoders. If frames before it were lost, they would invent pictures
    /// for the missing numbers. The frame's slots contain all that decoding needs, so it gets the next number.
    fn without_gap<'a>(&mut self, payload: &'a [u8], kept: &Kept) -> Cow<'a, [u8]> {
        let (Kept::Slot(place), Some(bits), true) = (kept, self.frame_num_bits, self.pair.has_outside())
        else {
            self.frame_num = 0;
            return Cow::Borrowed(payload);
        };
        self.frame_num = (self.frame_num + 1) & ((1 << bits) - 1);
        if place.frame_num == self.frame_num {
            return Cow::Borrowed(payload);
        }
        let mut numbered = Vec::with_capacity(payload.len() + 16);
        let place = Place { frame_num: self.frame_num, ..*place };
        let header = units(payload).next().and_then(|unit| slice::predicted(unit, bits));
        match header.and_then(|header| header.rewrite(place, bits, &mut numbered)) {
            Some(()) => Cow::Owned(numbered),
            None => Cow::Borrowed(payload),
        }
    }

    /// Checks a frame without decoding it, and returns where it is kept.
    fn admit(&mut self, payload: &[u8], refers: Option<u64>) -> Result<Kept, H264Error> {
        let look = look(payload, self.pixels_max)?;
        if look.is_key != refers.is_none() {
            return Err(H264Error::Damaged { detail: "its units do not match the stated kind of frame" });
        }
        let colour = look.colour.unwrap_or(self.colour);
        let Some(refers) = refers else {
            self.colour = colour;
            self.frame_num_bits = units(payload).find_map(slice::sequence).map(|set| set.frame_num_bits);
            return Ok(Kept::Key);
        };
        let (held, kept) = match self.place(payload) {
            Some(place) => (self.slots[place.refers as usize], Kept::Slot(place)),
            None => (self.newest, Kept::Newest { is_needed: look.is_needed }),
        };
        if held != Some(refers) {
            return Err(H264Error::NotHeld { refers, held });
        }
        self.colour = colour;
        Ok(kept)
    }

    /// The slots that a frame of Mez's encoder names. `None`: the frame is from a source's stream.
    fn place(&self, payload: &[u8]) -> Option<Place> {
        let mut units = units(payload);
        // With several slices, the checked slice might not be the decoded one.
        let (unit, None) = (units.next()?, units.next()) else { return None };
        slice::predicted(unit, self.frame_num_bits?)?.place()
    }
}

/// Where a decoded frame is kept.
enum Kept {
    /// In slot 0; all other frames are forgotten.
    Key,
    /// In a slot: the frame is from Mez's encoder.
    Slot(Place),
    /// As the newest, if others may need it: the frame is from a source.
    Newest { is_needed: bool },
}

impl From<BitstreamError> for H264Error {
    fn from(error: BitstreamError) -> Self {
        match error {
            BitstreamError::Damaged { detail } => Self::Damaged { detail },
            BitstreamError::TooLarge { .. } => Self::Damaged { detail: "it is too large" },
            BitstreamError::Unfit(Unfit::TooManyPixels { width, height, pixels_max }) => {
                Self::TooManyPixels { width, height, pixels_max }
            }
            BitstreamError::Unfit(_) => {
                Self::Damaged { detail: "it uses features of H.264 that are not supported" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_once::shown_at_once;
    use super::super::foreign::ForeignOptions;
    use super::super::native::{NativeDecoder, NativeEncoder};
    use super::*;
    use crate::bitstream::{AccessUnit, AccessUnits, Entry};
    use crate::image::{ImageView, PixelFormat};

    const SIDE: u32 = 64;

    /// A square that moves over a colour gradient.
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

    /// The pictures of a camera. No other picture needs every second one.
    fn stream(length: u32) -> Vec<AccessUnit> {
        let options = ForeignOptions {
            width: SIDE,
            height: SIDE,
            quantiser: 26,
            key_frame_interval: 8,
            temporal_layers: 2,
            slices: 1,
        };
        let mut encoder = NativeEncoder::of_a_camera(&options).unwrap();
        let mut parser = AccessUnits::default();
        let mut coded = Vec::new();
        (0..length)
            .map(|at| {
                encoder.encode(&picture(at).view().unwrap(), &mut coded).unwrap();
                parser.packet(&coded).unwrap().unwrap()
            })
            .collect()
    }

    /// The frame that each picture needs directly, as in a camera's log.
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

    fn decode(decoder: &mut H264Decoder, stream: &[AccessUnit], number: usize) -> Result<Image, H264Error> {
        let refers = references(stream)[number];
        decoder.decode(&stream[number].payload, number as u64, refers).cloned()
    }

    #[test]
    fn pictures_that_none_needs_may_be_left_out_and_the_others_are_the_same() {
        let stream = stream(20);
        assert!(stream.iter().all(|unit| unit.is_unbroken && unit.missing == 0));
        let spare: Vec<usize> = (0..20).filter(|&number| !stream[number].is_needed).collect();
        assert!(spare.len() >= 8, "{spare:?}");
        let mut whole = H264Decoder::new(1 << 16);
        let mut sparing = H264Decoder::new(1 << 16);
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
        let mut decoder = H264Decoder::new(1 << 16);
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
        let mut decoder = H264Decoder::new(1 << 16);
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let second = &stream[1].payload;
        assert!(matches!(decoder.decode(second, 1, None), Err(H264Error::Damaged { .. })));
        assert!(
            matches!(decoder.decode(second, 1, Some(0)), Err(H264Error::NotHeld { .. })),
            "it was forgotten"
        );
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let cut = &second[..second.len() / 2];
        // The codec may accept or refuse the damaged frame. It does not panic, and decodes the next key frame.
        let _ = decoder.decode(cut, 1, Some(0));
        decoder.decode(&stream[0].payload, 0, None).unwrap();
        let large = H264Decoder::new(100).decode(&stream[0].payload, 0, None).cloned();
        assert!(matches!(
            large,
            Err(H264Error::TooManyPixels { width: SIDE, height: SIDE, pixels_max: 100 })
        ));
    }

    /// The stream does not state the meaning of its samples: black is 16.
    #[test]
    fn samples_of_video_become_those_of_pictures() {
        let stream: &[u8] = include_bytes!("../../tests/streams/baseline.h264");
        let mut parser = AccessUnits::default();
        let picture = units(stream).find_map(|unit| parser.unit(unit).unwrap()).unwrap();
        let (mut coded, mut decoder) = (Yuv420::empty(), H264Decoder::new(1 << 16));
        let copy = |planes: &Planes<'_>, width, height| coded.copy_from(planes, width, height);
        NativeDecoder::new().unwrap().decode(&shown_at_once(&picture.payload), copy).unwrap();
        let shown = decoder.decode_planes(&picture.payload, 0, None).unwrap();
        let luma = (shown.width() * shown.height()) as usize;
        for (shown, coded) in shown.data()[..luma].iter().zip(coded.data()) {
            let whole = (f64::from(*coded) - 16.0) * 255.0 / 219.0;
            assert!((whole.clamp(0.0, 255.0) - f64::from(*shown)).abs() < 1.0, "{coded} became {shown}");
        }
    }

    /// The encoder says that decoding can begin at a recovery point, but the codec needs a key frame.
    #[test]
    fn the_codec_does_not_begin_at_a_recovery_point() {
        let mut parser = AccessUnits::default();
        let stream: &[u8] = include_bytes!("../../tests/streams/open_gop.h264");
        let starts: Vec<usize> = memchr::memmem::find_iter(stream, &[0, 0, 0, 1, 0x67]).collect();
        let joined = &stream[starts[1]..starts[2]];
        let mut native = NativeDecoder::new().unwrap();
        let mut shown = Vec::new();
        for unit in units(joined) {
            if let Some(picture) = parser.unit(unit).unwrap() {
                assert!(picture.is_unbroken);
                shown.push(native.decode(&picture.payload, |_, _, _| ()));
            }
        }
        assert_eq!(shown.len(), 3);
        assert!(shown.iter().all(Result::is_err), "{shown:?}");
    }
}
