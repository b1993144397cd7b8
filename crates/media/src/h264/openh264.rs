//! The encoder of one stream of pictures of one size.

use bytes::Bytes;
use mez_core::setting::{Quantiser, h264_takes};

use super::H264Error;
use super::bits::units;
use super::native::NativeEncoder;
use super::rate::{Model, QUANTISER_MAX};
use super::slice::{self, Kind, Mark, Place, SLOTS};
use crate::image::Yuv420View;

/// How often a picture is coded to fit its budget; the last time at the coarsest quantiser.
const ATTEMPTS_MAX: u32 = 5;
/// A header of ours may be longer than openh264's by this.
const HEADER_BYTES_MORE: usize = 4;

/// What a picture is to be predicted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Independent,
    /// The frame sent before, or what comes nearest to it.
    Previous,
    /// A frame that has been acknowledged; this one or any other.
    Acknowledged(u64),
}

/// A coded picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H264Frame {
    /// The bytes to send (annex B).
    pub payload: Bytes,
    /// The quantiser that it was coded with.
    pub quantiser: Quantiser,
    /// The frame that it is predicted from: the one sent before it, or one that has been acknowledged. `None`: it begins a chain.
    pub refers: Option<u64>,
    /// Whether it is within its budget. If not, nothing smaller can be had at this size.
    pub fits: bool,
    /// How often it was coded.
    pub attempts: u32,
}

/// A picture that openh264 may predict from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Picture {
    /// openh264's own number.
    frame_num: u32,
    /// The frame that it was sent as; `None` if it was thrown away or lost.
    sent: Option<u64>,
    acknowledged: bool,
}

/// What openh264 holds, followed by its headers.
#[derive(Debug, Default)]
struct Mirror {
    idr: u32,
    /// The picture coded last.
    last: Option<Picture>,
    /// Its long-term references by place.
    long: [Option<Picture>; 2],
    /// The one that it waits to hear about.
    pending: Option<Picture>,
}

impl Mirror {
    fn each(&mut self, mut change: impl FnMut(&mut Picture)) {
        let all = self.long.iter_mut().chain([&mut self.last, &mut self.pending]);
        all.flatten().for_each(&mut change);
    }
}

/// What the receiver holds, by the frames that were sent.
#[derive(Debug, Default)]
struct Receiver {
    slots: [Option<u64>; SLOTS],
    /// The frame sent last, unless it is known to be lost.
    last: Option<u64>,
    /// The first of the frames that each need the one before, up to the last: losses before it do not matter any more.
    unbroken_from: u64,
    /// The frame_num of the frame sent last.
    frame_num: u32,
    /// Whether it was sent an independent frame.
    started: bool,
}

/// Encodes the pictures of one stream.
pub struct H264Encoder {
    native: NativeEncoder,
    size: (u32, u32),
    frame_num_bits: u32,
    mirror: Mirror,
    receiver: Receiver,
    independent: Model,
    predicted: Model,
    stream: Vec<u8>,
    /// Everything that openh264 wrote, sent or not.
    #[cfg(test)]
    pub(super) written: Vec<Vec<u8>>,
}

impl std::fmt::Debug for H264Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H264Encoder").field("size", &self.size).finish_non_exhaustive()
    }
}

/// How a picture is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Independent,
    /// From the picture coded last.
    Continue,
    /// From the newest long-term reference.
    Recover,
}

/// What openh264 made.
struct Coded {
    /// `None` for an independent picture.
    header: Option<slice::Predicted>,
    /// What a predicted one refers to.
    refers: Option<Picture>,
}

impl H264Encoder {
    /// An encoder of pictures of this size.
    ///
    /// # Errors
    /// [`H264Error::Size`], or [`H264Error::Codec`] without memory.
    pub fn new(width: u32, height: u32) -> Result<Self, H264Error> {
        let even = width.is_multiple_of(2) && height.is_multiple_of(2);
        if !even || !h264_takes((width, height)) {
            return Err(H264Error::Size { width, height });
        }
        Ok(Self {
            native: NativeEncoder::new(width, height, 32)?,
            size: (width, height),
            frame_num_bits: 0,
            mirror: Mirror::default(),
            receiver: Receiver::default(),
            independent: Model::independent(),
            predicted: Model::predicted(),
            stream: Vec::new(),
            #[cfg(test)]
            written: Vec::new(),
        })
    }

    /// Width and height of its pictures.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Codes the next picture as frame `number`, with `finest` or, if `bytes_max` demands it, a coarser quantiser. It counts as
    /// sent until [`H264Encoder::lost`] says otherwise; a picture that does not fit should be given up by that.
    ///
    /// # Errors
    /// [`H264Error::Size`] for a picture of another size, [`H264Error::Codec`]; the encoder should then be replaced.
    pub fn encode(
        &mut self,
        picture: &Yuv420View<'_>,
        number: u64,
        wanted: Wanted,
        finest: Quantiser,
        bytes_max: Option<usize>,
    ) -> Result<H264Frame, H264Error> {
        if (picture.width(), picture.height()) != self.size {
            return Err(H264Error::Size { width: picture.width(), height: picture.height() });
        }
        let most = bytes_max.unwrap_or(usize::MAX);
        let mut mode = self.mode(wanted);
        let mut quantiser = self.model(mode).choose(finest.get(), most);
        let mut before: Option<(Option<Picture>, u8, usize)> = None;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let coded = self.code(picture, mode, quantiser)?;
            if !self.may_be_sent(&coded, wanted) {
                // What came out refers to a picture that the receiver may not hold.
                mode = Mode::Independent;
                quantiser = self.independent.choose(finest.get(), most).max(quantiser);
                before = None;
                continue;
            }
            let bytes = self.stream.len() + HEADER_BYTES_MORE;
            if let Some((same, q, earlier)) = before
                && same == coded.refers
            {
                let model = if coded.refers.is_none() { &mut self.independent } else { &mut self.predicted };
                model.learn_slope((q, earlier), (quantiser, bytes));
            }
            let fits = bytes <= most;
            if fits || quantiser >= QUANTISER_MAX || attempt > ATTEMPTS_MAX {
                return self.send(coded, number, quantiser, most, attempt);
            }
            before = Some((coded.refers, quantiser, bytes));
            let independent = coded.header.is_none();
            let model = if independent { &self.independent } else { &self.predicted };
            quantiser = match attempt {
                ATTEMPTS_MAX => QUANTISER_MAX,
                _ => model.again(quantiser, bytes, most, attempt),
            };
            mode = if independent { Mode::Independent } else { Mode::Recover };
        }
    }

    /// Frame `number` has arrived and was decoded.
    pub fn acknowledge(&mut self, number: u64) {
        self.mirror.each(|picture| picture.acknowledged |= picture.sent == Some(number));
    }

    /// Frame `number` was not sent, was cancelled, or did not arrive.
    pub fn lost(&mut self, number: u64) {
        self.mirror.each(|picture| {
            if picture.sent == Some(number) {
                (picture.sent, picture.acknowledged) = (None, false);
            }
        });
        self.receiver.slots.iter_mut().filter(|slot| **slot == Some(number)).for_each(|slot| *slot = None);
        // Whatever was sent after it needs it, unless it recovered already.
        if number >= self.receiver.unbroken_from {
            self.receiver.last = None;
        }
    }

    /// Whether a picture can be predicted from one that has been acknowledged.
    #[must_use]
    pub fn can_recover(&self) -> bool {
        self.mirror.long.iter().flatten().any(|picture| picture.acknowledged && self.slot(*picture).is_some())
    }

    fn mode(&self, wanted: Wanted) -> Mode {
        let continues = self.receiver.last.is_some()
            && self.mirror.last.is_some_and(|last| last.sent == self.receiver.last);
        match wanted {
            Wanted::Independent => Mode::Independent,
            _ if !self.receiver.started => Mode::Independent,
            Wanted::Previous if continues => Mode::Continue,
            Wanted::Acknowledged(number) if continues && self.receiver.last == Some(number) => Mode::Continue,
            _ if self.can_recover() => Mode::Recover,
            _ => Mode::Independent,
        }
    }

    fn model(&self, mode: Mode) -> &Model {
        if mode == Mode::Independent { &self.independent } else { &self.predicted }
    }

    /// Has openh264 code the picture, and follows what that does to its references.
    fn code(&mut self, picture: &Yuv420View<'_>, mode: Mode, quantiser: u8) -> Result<Coded, H264Error> {
        self.native.set_quantiser(quantiser)?;
        let mut told = None;
        match mode {
            Mode::Independent => self.native.force_independent()?,
            Mode::Continue | Mode::Recover => {
                told = self.feedback()?;
                if mode == Mode::Recover {
                    self.native.recover(self.mirror.idr)?;
                }
            }
        }
        if !self.native.encode(picture, &mut self.stream)? {
            // It had nothing to predict from.
            self.native.force_independent()?;
            self.native.encode(picture, &mut self.stream)?;
        }
        #[cfg(test)]
        self.written.push(self.stream.clone());
        let damaged = |detail| H264Error::Damaged { detail };
        let mut header = None;
        let mut idr = None;
        for unit in units(&self.stream) {
            match slice::kind(unit) {
                Kind::Parameters => {
                    if let Some(sequence) = slice::sequence(unit) {
                        self.frame_num_bits = sequence.frame_num_bits;
                        if (sequence.reference_frames as usize) < SLOTS {
                            return Err(damaged("openh264 allows fewer reference frames than asked for"));
                        }
                    }
                }
                Kind::Idr => idr = slice::idr_pic_id(unit, self.frame_num_bits),
                Kind::Predicted => header = slice::predicted(unit, self.frame_num_bits),
                Kind::Other => return Err(damaged("openh264 wrote a unit of an unknown kind")),
            }
        }
        match (header, idr) {
            (None, Some(idr)) => {
                let picture = Picture { frame_num: 0, sent: None, acknowledged: false };
                self.mirror = Mirror { idr, last: Some(picture), long: [Some(picture), None], pending: None };
                Ok(Coded { header: None, refers: None })
            }
            (Some(header), None) => {
                let refers = self.follow(&header, told);
                Ok(Coded { refers, header: Some(header) })
            }
            _ => Err(damaged("openh264 wrote something other than one picture")),
        }
    }

    /// Tells openh264 what became of a long-term reference. Of the one that it waits for, if that is known; otherwise of the
    /// picture before, which it is about to make one. Gives what it was told to have arrived.
    fn feedback(&mut self) -> Result<Option<u32>, H264Error> {
        let idr = self.mirror.idr;
        if let Some(pending) = self.mirror.pending {
            if pending.sent.is_none() || pending.acknowledged {
                self.native.feedback(idr, pending.frame_num, pending.acknowledged)?;
                self.mirror.pending = None;
                if !pending.acknowledged {
                    let gone = |place: &&mut Option<Picture>| {
                        place.is_some_and(|picture| picture.frame_num == pending.frame_num)
                    };
                    self.mirror.long.iter_mut().filter(gone).for_each(|place| *place = None);
                }
            }
            return Ok(None);
        }
        match self.mirror.last {
            Some(last) if last.acknowledged => {
                self.native.feedback(idr, last.frame_num, true)?;
                Ok(Some(last.frame_num))
            }
            _ => Ok(None),
        }
    }

    /// Follows a predicted picture's header; gives the picture that it refers to.
    fn follow(&mut self, header: &slice::Predicted, told: Option<u32>) -> Option<Picture> {
        let refers = match header.refers {
            slice::Refers::Last => self.mirror.last,
            slice::Refers::Back(by) => {
                let mask = (1u32 << self.frame_num_bits) - 1;
                let frame_num = header.frame_num.wrapping_sub(by) & mask;
                self.mirror.last.filter(|last| last.frame_num == frame_num)
            }
            slice::Refers::Slot(place) => self.mirror.long.get(place as usize).copied().flatten(),
        };
        let own = Picture { frame_num: header.frame_num, sent: None, acknowledged: false };
        for mark in &header.marks {
            let (picture, place) = match *mark {
                // Only ever the picture before.
                Mark::Back { slot, .. } => (self.mirror.last, slot),
                Mark::Own(place) => (Some(own), place),
                Mark::Slots(_) | Mark::Other => continue,
            };
            if let Some(place) = self.mirror.long.get_mut(place as usize) {
                *place = picture;
            }
            self.mirror.pending = picture.filter(|picture| told != Some(picture.frame_num));
        }
        self.mirror.last = Some(own);
        refers
    }

    /// Whether a picture may be sent: the receiver holds what it is predicted from, as far as that can be known.
    fn may_be_sent(&self, coded: &Coded, wanted: Wanted) -> bool {
        if coded.header.is_none() {
            return true;
        }
        coded.refers.is_some_and(|picture| {
            let follows = wanted == Wanted::Previous && picture.sent == self.receiver.last;
            self.slot(picture).is_some() && (follows || picture.acknowledged)
        })
    }

    /// The place at which the receiver holds a picture.
    fn slot(&self, picture: Picture) -> Option<usize> {
        let number = picture.sent?;
        self.receiver.slots.iter().position(|slot| *slot == Some(number))
    }

    fn send(
        &mut self,
        coded: Coded,
        number: u64,
        quantiser: u8,
        most: usize,
        attempts: u32,
    ) -> Result<H264Frame, H264Error> {
        let mut payload = Vec::with_capacity(self.stream.len() + 16);
        let own = match &coded.header {
            None => {
                payload.extend_from_slice(&self.stream);
                self.receiver = Receiver { started: true, ..Receiver::default() };
                0
            }
            Some(header) => {
                let keeps = |number: u64| {
                    self.receiver.last == Some(number)
                        || self.mirror.long.iter().flatten().any(|picture| picture.sent == Some(number))
                };
                let free =
                    self.receiver.slots.iter().position(|slot| slot.is_none_or(|number| !keeps(number)));
                let place = coded.refers.and_then(|picture| self.slot(picture));
                let (Some(own), Some(place)) = (free, place) else {
                    return Err(H264Error::Damaged { detail: "no place is left for the picture" });
                };
                self.receiver.frame_num = (self.receiver.frame_num + 1) & ((1 << self.frame_num_bits) - 1);
                let place =
                    Place { frame_num: self.receiver.frame_num, refers: place as u32, own: own as u32 };
                let written = header.rewrite(place, self.frame_num_bits, &mut payload);
                written.ok_or(H264Error::Damaged { detail: "openh264 wrote an empty slice" })?;
                own
            }
        };
        let refers = coded.refers.and_then(|picture| picture.sent);
        if refers.is_none() || refers != self.receiver.last {
            self.receiver.unbroken_from = number;
        }
        self.receiver.slots[own] = Some(number);
        self.receiver.last = Some(number);
        let frame_num = self.mirror.last.map(|last| last.frame_num);
        let independent = coded.header.is_none();
        self.mirror.each(|picture| {
            if Some(picture.frame_num) == frame_num {
                picture.sent = Some(number);
            }
        });
        let model = if independent { &mut self.independent } else { &mut self.predicted };
        model.learn(quantiser, payload.len());
        Ok(H264Frame {
            fits: payload.len() <= most,
            payload: payload.into(),
            quantiser: Quantiser::clamped(quantiser),
            refers,
            attempts,
        })
    }
}
