//! Encodes one stream of pictures of one size with x264.
//!
//! x264 keeps its last 5 to 16 pictures in the order in which they were coded. It predicts each picture from the
//! newest one that it was not told to forget, and a forgotten picture never comes back. So there is one way to throw a
//! picture away and to recover from a loss: forget every picture that is newer than the wanted reference. The receiver
//! keeps other pictures: it has four slots, and the headers say which picture goes into which slot (`slice`).
//!
//! Mez sets one quantiser for the whole picture (`rate`), because the quantiser is part of a rung's name. x264's own rate control also
//! keeps to a budget, but it changes the quantiser from row to row, and its steps are 125 bytes.

mod headers;
mod native;

use std::collections::VecDeque;

use bytes::Bytes;
use mez_core::setting::Quantiser;

use self::native::Native;
use super::H264Error;
use super::bits::units;
use super::coder::{Coder, H264Frame, Wanted};
use super::rate::{ATTEMPTS_MAX, Model, QUANTISER_MAX};
use super::receiver::Receiver;
use super::slice::{self, Kind, Place, Refers};
use crate::image::Yuv420View;

/// Maximum pictures that x264 keeps, the limit of the standard. With 16, acknowledgements may come seven
/// pictures late and no loss costs an independent picture. With 8, they may come three pictures late.
const PICTURES_MAX: u32 = 16;
/// Pictures that x264 keeps at the largest size: as many as level 5.1 allows (ITU-T H.264, table A-1).
const PICTURES_MIN: u32 = 5;
/// Maximum macroblocks (16×16 pixels) of all kept pictures together, to limit memory: x264 takes
/// about a kilobyte per macroblock. This is eight pictures of 1080p. [`PICTURES_MIN`] has precedence.
const BLOCKS_MAX: u32 = 65_536;

/// A picture that x264 keeps.
#[derive(Debug, Clone, Copy)]
struct Picture {
    /// Mez's number of the picture in calls of x264.
    number: i64,
    /// x264's number of the picture.
    frame_num: u32,
    /// The frame as which it was sent; `None` if it was thrown away or lost.
    sent: Option<u64>,
    acknowledged: bool,
    /// Whether x264 was told to forget it.
    forgotten: bool,
}

/// Encodes the pictures of one stream.
#[derive(Debug)]
pub(super) struct Encoder {
    native: Native,
    size: (u32, u32),
    frame_num_bits: u32,
    /// The pictures that x264 keeps, oldest first; at most `pictures_max`.
    pictures: VecDeque<Picture>,
    pictures_max: usize,
    /// The number of the next picture.
    next: i64,
    receiver: Receiver,
    independent: Model,
    predicted: Model,
    /// The last output of x264.
    stream: Vec<u8>,
    /// The last output of x264, rewritten for sending.
    payload: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(width: u32, height: u32) -> Result<Self, H264Error> {
        let blocks = width.div_ceil(16) * height.div_ceil(16);
        Self::keeping(width, height, (BLOCKS_MAX / blocks).clamp(PICTURES_MIN, PICTURES_MAX) as usize)
    }

    /// An encoder that keeps `pictures_max` pictures.
    pub(super) fn keeping(width: u32, height: u32, pictures_max: usize) -> Result<Self, H264Error> {
        Ok(Self {
            native: Native::new(width, height, pictures_max)?,
            size: (width, height),
            frame_num_bits: 0,
            pictures: VecDeque::with_capacity(pictures_max),
            pictures_max,
            next: 0,
            receiver: Receiver::default(),
            independent: Model::independent(),
            predicted: Model::predicted(),
            stream: Vec::new(),
            payload: Vec::new(),
        })
    }
}

impl Coder for Encoder {
    fn encode(
        &mut self,
        picture: &Yuv420View<'_>,
        number: u64,
        wanted: Wanted,
        finest: Quantiser,
        bytes_max: Option<usize>,
    ) -> Result<H264Frame, H264Error> {
        let most = bytes_max.unwrap_or(usize::MAX);
        let mut from = self.reference(wanted);
        let model = if from.is_some() { &self.predicted } else { &self.independent };
        let mut quantiser = model.choose(finest.get(), most);
        let mut before = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            if from.is_some_and(|(refers, _)| self.held(refers).is_none()) {
                // Pictures that were thrown away have pushed it out of x264's memory.
                (from, before) = (None, None);
                quantiser = self.independent.choose(finest.get(), most).max(quantiser);
            }
            let place = self.code(picture, from, quantiser)?;
            let bytes = self.payload.len();
            let model = if from.is_some() { &mut self.predicted } else { &mut self.independent };
            if let Some(before) = before.replace((quantiser, bytes)) {
                model.learn_slope(before, (quantiser, bytes));
            }
            if bytes > most && quantiser < QUANTISER_MAX && attempts <= ATTEMPTS_MAX {
                quantiser = model.again(quantiser, bytes, most, attempts);
                continue;
            }
            model.learn(quantiser, bytes);
            match (from, place) {
                (Some((refers, _)), Some(place)) => self.receiver.follow(number, refers, place),
                _ => self.receiver.begin(number),
            }
            if let Some(last) = self.pictures.back_mut() {
                last.sent = Some(number);
            }
            return Ok(H264Frame {
                fits: bytes <= most,
                payload: Bytes::copy_from_slice(&self.payload),
                quantiser: Quantiser::clamped(quantiser),
                refers: from.map(|(refers, _)| refers),
                attempts,
            });
        }
    }

    fn acknowledge(&mut self, number: u64) {
        let sent = self.pictures.iter_mut().filter(|picture| picture.sent == Some(number));
        sent.for_each(|picture| picture.acknowledged = true);
    }

    fn lost(&mut self, number: u64) {
        for picture in self.pictures.iter_mut().filter(|picture| picture.sent == Some(number)) {
            (picture.sent, picture.acknowledged) = (None, false);
        }
        self.receiver.lost(number);
    }

    fn can_recover(&self) -> bool {
        self.newest_acknowledged().is_some()
    }
}

impl Encoder {
    /// The frame to predict the next picture from, and x264's picture of it; `None`: predict from nothing.
    fn reference(&self, wanted: Wanted) -> Option<(u64, Picture)> {
        let last = self.receiver.last().and_then(|number| self.held(number));
        match (wanted, last) {
            (Wanted::Independent, _) => None,
            (Wanted::Previous, Some(_)) => last,
            (Wanted::Acknowledged(number), Some((last_number, _))) if last_number == number => last,
            _ => self.newest_acknowledged(),
        }
    }

    /// A frame from which x264 can still predict and that, as far as known, the receiver holds.
    fn held(&self, number: u64) -> Option<(u64, Picture)> {
        self.receiver.place_of(number)?;
        let kept = self.pictures.iter().find(|picture| picture.sent == Some(number) && !picture.forgotten);
        kept.map(|picture| (number, *picture))
    }

    fn newest_acknowledged(&self) -> Option<(u64, Picture)> {
        let acknowledged = self.pictures.iter().rev().filter(|picture| picture.acknowledged);
        acknowledged.filter_map(|picture| picture.sent).find_map(|number| self.held(number))
    }

    /// The slot to overwrite at the receiver. It holds neither the reference of the next picture nor the newest acknowledged frame.
    fn free_place(&self, refers: u64) -> usize {
        let newest = self.newest_acknowledged().map(|(number, _)| number);
        let worth = |number: u64| match self.held(number) {
            _ if number == refers || Some(number) == newest => (3, number),
            None => (0, number),
            Some((_, picture)) if picture.acknowledged => (1, number),
            // Of frames that await an acknowledgement, the newest is overwritten first: acknowledgements of older ones come earlier.
            Some(_) => (2, u64::MAX - number),
        };
        let places = self.receiver.slots().iter().enumerate();
        let least = places.min_by_key(|(_, slot)| slot.map_or((0, 0), worth));
        least.map_or(0, |(place, _)| place)
    }

    /// Encodes the picture with x264, and writes the frame to send to `payload`. Returns the slots of a predicted picture.
    fn code(
        &mut self,
        picture: &Yuv420View<'_>,
        from: Option<(u64, Picture)>,
        quantiser: u8,
    ) -> Result<Option<Place>, H264Error> {
        let damaged = |detail| H264Error::Damaged { detail };
        if let Some((_, from)) = from {
            self.forget_newer_than(from.number)?;
        }
        let number = self.next;
        self.next += 1;
        self.native.encode(picture, number, from.is_none(), quantiser, &mut self.stream)?;
        let stream = std::mem::take(&mut self.stream);
        let coded = self.rewrite(&stream, from);
        self.stream = stream;
        let (frame_num, place) = coded?;
        if from.is_none() {
            self.pictures.clear();
        } else if place.is_none() {
            return Err(damaged("x264 wrote an independent picture that was not requested"));
        }
        if self.pictures.len() == self.pictures_max {
            self.pictures.pop_front();
        }
        let (sent, acknowledged, forgotten) = (None, false, false);
        self.pictures.push_back(Picture { number, frame_num, sent, acknowledged, forgotten });
        Ok(place)
    }

    fn forget_newer_than(&mut self, number: i64) -> Result<(), H264Error> {
        let newer = |picture: &&mut Picture| picture.number > number && !picture.forgotten;
        let mut forgets = false;
        for picture in self.pictures.iter_mut().filter(newer) {
            (picture.forgotten, forgets) = (true, true);
        }
        if forgets { self.native.forget(number + 1) } else { Ok(()) }
    }

    /// Writes x264's units to `payload`, with Mez's headers. Returns x264's number of the picture, and the slots of a predicted one.
    fn rewrite(
        &mut self,
        stream: &[u8],
        from: Option<(u64, Picture)>,
    ) -> Result<(u32, Option<Place>), H264Error> {
        let damaged = |detail| H264Error::Damaged { detail };
        let foreign = || damaged("x264 wrote a header that this software does not know");
        self.payload.clear();
        let mut coded = None;
        for unit in units(stream) {
            let own = match slice::kind(unit) {
                Kind::Parameters => {
                    self.parameters(unit).ok_or_else(foreign)?;
                    continue;
                }
                Kind::Idr => {
                    let written = headers::independent(unit, self.frame_num_bits, &mut self.payload);
                    written.ok_or_else(foreign)?;
                    (0, None)
                }
                Kind::Predicted => {
                    let header = slice::predicted(unit, self.frame_num_bits).ok_or_else(foreign)?;
                    let place = self.place(&header, from)?;
                    let written = header.rewrite(place, self.frame_num_bits, &mut self.payload);
                    written.ok_or_else(foreign)?;
                    (header.frame_num, Some(place))
                }
                // x264's description of itself (SEI).
                Kind::Other => continue,
            };
            if coded.replace(own).is_some() {
                return Err(damaged("x264 wrote more than one slice"));
            }
        }
        coded.ok_or(damaged("x264 wrote no slice"))
    }

    fn parameters(&mut self, unit: &[u8]) -> Option<()> {
        if unit[0] & 0x1F == 8 {
            return headers::pictures(unit, &mut self.payload);
        }
        let sequence = slice::sequence(unit)?;
        if sequence.reference_frames as usize != self.pictures_max {
            return None;
        }
        self.frame_num_bits = sequence.frame_num_bits;
        headers::sequence(unit, self.size, self.frame_num_bits, &mut self.payload)
    }

    /// The slots of a predicted picture at the receiver. Checks that x264 predicted it from the intended picture.
    fn place(&self, header: &slice::Predicted, from: Option<(u64, Picture)>) -> Result<Place, H264Error> {
        let mask = (1u32 << self.frame_num_bits) - 1;
        let referred = match header.refers {
            Refers::Last => self.pictures.back().map(|last| last.frame_num),
            Refers::Back(by) => Some(header.frame_num.wrapping_sub(by) & mask),
            Refers::Slot(_) => None,
        };
        let meant = from.filter(|(_, picture)| Some(picture.frame_num) == referred);
        let places = meant.and_then(|(number, _)| Some((number, self.receiver.place_of(number)?)));
        let (number, refers) = places
            .ok_or(H264Error::Damaged { detail: "x264 predicted a picture from the wrong reference" })?;
        Ok(Place {
            frame_num: self.receiver.next_frame_num(self.frame_num_bits),
            refers: refers as u32,
            own: self.free_place(number) as u32,
        })
    }
}

#[cfg(test)]
impl Encoder {
    /// The picture coded last, from which x264 predicts.
    pub(super) fn shown(&self) -> crate::yuv::Yuv420 {
        self.native.shown()
    }
}
