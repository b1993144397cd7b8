//! Decodes the H.264 pictures of one stream.

use super::H264Error;
use super::bits::units;
use super::native::NativeDecoder;
use super::slice::{self, Kind, SLOTS};
use crate::image::Image;
use crate::yuv::{Planes, Yuv420, to_bgr};

/// Decodes the frames of one stream, and refuses one whose reference it does not hold.
pub struct H264Decoder {
    native: Option<NativeDecoder>,
    pixels_max: u64,
    frame_num_bits: u32,
    slots: [Option<u64>; SLOTS],
    image: Image,
    planes: Yuv420,
}

impl std::fmt::Debug for H264Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H264Decoder").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl H264Decoder {
    /// A decoder that holds nothing, of pictures of at most `pixels_max` pixels. Memory is taken with the first frame.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        Self {
            native: None,
            pixels_max,
            frame_num_bits: 0,
            slots: [None; SLOTS],
            image: Image::empty(),
            planes: Yuv420::empty(),
        }
    }

    /// Decodes frame `number`, which is said to be predicted from frame `refers` (`None`: from none), to BGR.
    ///
    /// # Errors
    /// [`H264Error::NotHeld`] changes nothing. After any other error the next frame has to be independent.
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
    /// As for [`H264Decoder::decode`].
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

    fn show(
        &mut self,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<(), H264Error> {
        let own = match self.admit(payload, refers) {
            Ok(own) => own,
            Err(error @ H264Error::NotHeld { .. }) => return Err(error),
            Err(error) => {
                self.forget();
                return Err(error);
            }
        };
        let native = match &mut self.native {
            Some(native) => native,
            none => none.insert(NativeDecoder::new()?),
        };
        if let Err(error) = native.decode(payload, show) {
            self.forget();
            return Err(error);
        }
        if refers.is_none() {
            self.slots = [None; SLOTS];
        }
        self.slots[own] = Some(number);
        Ok(())
    }

    /// Forgets all frames, and frees the codec's memory.
    pub fn forget(&mut self) {
        self.native = None;
        self.slots = [None; SLOTS];
    }

    /// Checks a frame without decoding it, and returns the slot in which it is kept.
    fn admit(&mut self, payload: &[u8], refers: Option<u64>) -> Result<usize, H264Error> {
        let damaged = |detail| H264Error::Damaged { detail };
        let mut own = None;
        for unit in units(payload) {
            let place = match (slice::kind(unit), refers) {
                (Kind::Parameters, None) => {
                    self.parameters(unit)?;
                    continue;
                }
                (Kind::Idr, None) => 0,
                (Kind::Predicted, Some(refers)) => self.reference(unit, refers)?,
                _ => return Err(damaged("its units are not those of the frame that it says it is")),
            };
            // Of several slices, the first could be checked and another one decoded.
            if own.replace(place).is_some() {
                return Err(damaged("it has more than one slice"));
            }
        }
        own.ok_or(damaged("there is no slice in it"))
    }

    fn parameters(&mut self, unit: &[u8]) -> Result<(), H264Error> {
        if unit[0] & 0x1F != 7 {
            return Ok(());
        }
        let sequence = slice::sequence(unit)
            .ok_or(H264Error::Damaged { detail: "its parameters are not those that this software writes" })?;
        let (width, height) = (sequence.width, sequence.height);
        // Cropping takes off at most 15 pixels of either side.
        if u64::from(width - 15) * u64::from(height - 15) > self.pixels_max {
            return Err(H264Error::TooManyPixels { width, height, pixels_max: self.pixels_max });
        }
        self.frame_num_bits = sequence.frame_num_bits;
        Ok(())
    }

    fn reference(&self, unit: &[u8], refers: u64) -> Result<usize, H264Error> {
        if self.native.is_none() {
            return Err(H264Error::NotHeld { refers, held: None });
        }
        let place = slice::predicted(unit, self.frame_num_bits).and_then(|header| header.place());
        let place =
            place.ok_or(H264Error::Damaged { detail: "its header is not one that this software writes" })?;
        let held = self.slots[place.refers as usize];
        if held == Some(refers) { Ok(place.own as usize) } else { Err(H264Error::NotHeld { refers, held }) }
    }
}
