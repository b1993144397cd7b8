//! Encodes one stream of pictures of one size with openh264.

use mez_core::setting::Quantiser;

use super::H264Error;
use super::anchors::Anchors;
use super::bits::units;
use super::coder::{Coder, H264Frame, Wanted};
use super::native::NativeEncoder;
use super::rate::{ATTEMPTS_MAX, Model, QUANTISER_MAX};
use super::receiver::Receiver;
use super::slice::{self, Kind, Mark, Place, SLOTS};
use crate::image::Yuv420View;

/// Maximum bytes by which Mez's slice header is longer than openh264's.
const HEADER_BYTES_MORE: usize = 4;

/// A picture from which openh264 may predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Picture {
    /// openh264's number of the picture.
    frame_num: u32,
    /// The frame as which it was sent; `None` if it was thrown away or lost.
    sent: Option<u64>,
    acknowledged: bool,
}

/// Tracks which pictures openh264 holds, by the headers that it writes.
#[derive(Debug, Default)]
struct Mirror {
    idr: u32,
    /// The picture coded last.
    last: Option<Picture>,
    /// openh264's long-term references, by place.
    long: [Option<Picture>; 2],
    /// The long-term reference for which openh264 awaits an acknowledgement.
    pending: Option<Picture>,
    /// Whether the picture that openh264 marks next, an anchor or the one after it, becomes the reference of the next anchor.
    marks_reference: bool,
    /// Whether `pending` becomes the reference of the next anchor.
    pending_is_reference: bool,
}

impl Mirror {
    fn each(&mut self, mut change: impl FnMut(&mut Picture)) {
        let all = self.long.iter_mut().chain([&mut self.last, &mut self.pending]);
        all.flatten().for_each(&mut change);
    }
}

/// Encodes the pictures of one stream.
pub(super) struct Encoder {
    native: NativeEncoder,
    frame_num_bits: u32,
    mirror: Mirror,
    receiver: Receiver,
    independent: Model,
    predicted: Model,
    anchors: Anchors,
    stream: Vec<u8>,
    /// All output of openh264, sent or not.
    #[cfg(test)]
    pub(super) written: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}

/// What to predict a picture from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Independent,
    /// From the picture coded last.
    Continue,
    /// From the newest long-term reference.
    Recover,
}

/// A picture that openh264 encoded.
struct Coded {
    /// `None` for an independent picture.
    header: Option<slice::Predicted>,
    /// The picture that a predicted one refers to.
    refers: Option<Picture>,
}

impl Encoder {
    pub(super) fn new(width: u32, height: u32) -> Result<Self, H264Error> {
        Ok(Self {
            native: NativeEncoder::new(width, height, 32)?,
            frame_num_bits: 0,
            mirror: Mirror::default(),
            receiver: Receiver::default(),
            independent: Model::independent(),
            predicted: Model::predicted(),
            anchors: Anchors::default(),
            stream: Vec::new(),
            #[cfg(test)]
            written: Vec::new(),
        })
    }
}

#[cfg(test)]
impl Encoder {
    /// The same encoder with as many anchors as possible.
    pub(super) fn with_many_anchors(self) -> Self {
        Self { anchors: Anchors::with(2, 1), ..self }
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
        let mut mode = self.mode(wanted);
        self.anchors.expect(self.predicted.bytes(finest.get()));
        let may_leap = mode == Mode::Continue && wanted == Wanted::Previous && self.can_recover();
        if may_leap && self.anchors.is_due() {
            mode = Mode::Recover;
        }
        let mut quantiser = self.model(mode).choose(finest.get(), most);
        let mut before: Option<(Option<Picture>, u8, usize)> = None;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let coded = self.code(picture, mode, quantiser)?;
            if !self.may_be_sent(&coded, wanted) {
                // The picture refers to one that the receiver may not hold.
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
            quantiser = model.again(quantiser, bytes, most, attempt);
            mode = if independent { Mode::Independent } else { Mode::Recover };
        }
    }

    fn acknowledge(&mut self, number: u64) {
        self.mirror.each(|picture| picture.acknowledged |= picture.sent == Some(number));
    }

    fn lost(&mut self, number: u64) {
        self.mirror.each(|picture| {
            if picture.sent == Some(number) {
                (picture.sent, picture.acknowledged) = (None, false);
            }
        });
        self.receiver.lost(number);
        self.anchors.lost();
    }

    fn set_anchor_bytes_max(&mut self, bytes: usize) {
        self.anchors.set_bytes_max(bytes);
    }

    fn can_recover(&self) -> bool {
        self.mirror.long.iter().flatten().any(|picture| picture.acknowledged && self.slot(*picture).is_some())
    }
}

impl Encoder {
    fn mode(&self, wanted: Wanted) -> Mode {
        let continues = self.receiver.last().is_some()
            && self.mirror.last.is_some_and(|last| last.sent == self.receiver.last());
        match wanted {
            Wanted::Independent => Mode::Independent,
            _ if !self.receiver.started() => Mode::Independent,
            Wanted::Previous if continues => Mode::Continue,
            Wanted::Acknowledged(number) if continues && self.receiver.last() == Some(number) => {
                Mode::Continue
            }
            _ if self.can_recover() => Mode::Recover,
            _ => Mode::Independent,
        }
    }

    fn model(&self, mode: Mode) -> &Model {
        if mode == Mode::Independent { &self.independent } else { &self.predicted }
    }

    /// Encodes the picture with openh264, and tracks the change of openh264's references.
    fn code(&mut self, picture: &Yuv420View<'_>, mode: Mode, quantiser: u8) -> Result<Coded, H264Error> {
        self.native.set_quantiser(quantiser)?;
        let mut told = None;
        match mode {
            Mode::Independent => self.native.force_independent()?,
            Mode::Continue | Mode::Recover => {
                told = self.feedback(mode)?;
                if mode == Mode::Recover {
                    self.mirror.marks_reference = true;
                    self.native.recover(self.mirror.idr)?;
                }
            }
        }
        if !self.native.encode(picture, &mut self.stream)? {
            // openh264 had no picture to predict from.
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
                            return Err(damaged("openh264 allows fewer reference frames than requested"));
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
                self.mirror =
                    Mirror { idr, last: Some(picture), long: [Some(picture), None], ..Mirror::default() };
                Ok(Coded { header: None, refers: None })
            }
            (Some(header), None) => {
                let refers = self.follow(&header, told);
                Ok(Coded { refers, header: Some(header) })
            }
            _ => Err(damaged("openh264 wrote something other than one picture")),
        }
    }

    /// Tells openh264 whether a long-term reference arrived: the pending one, if that is known. If none is pending, the
    /// picture coded last, if it was acknowledged; then returns its `frame_num`. While the reference of anchors is kept,
    /// no other picture is reported as arrived, and when an anchor is coded, another pending picture is reported as lost.
    fn feedback(&mut self, mode: Mode) -> Result<Option<u32>, H264Error> {
        let idr = self.mirror.idr;
        if let Some(pending) = self.mirror.pending {
            let is_unwanted = self.anchors.keep_reference() && !self.mirror.pending_is_reference;
            let arrived = pending.acknowledged && !is_unwanted;
            // openh264 marks no other picture until it gets this report, and should mark the anchor that is coded now.
            if pending.sent.is_none() || arrived || is_unwanted && mode == Mode::Recover {
                self.native.feedback(idr, pending.frame_num, arrived)?;
                self.mirror.pending = None;
                if !arrived {
                    let gone = |place: &&mut Option<Picture>| {
                        place.is_some_and(|picture| picture.frame_num == pending.frame_num)
                    };
                    self.mirror.long.iter_mut().filter(gone).for_each(|place| *place = None);
                }
            }
            return Ok(None);
        }
        match self.mirror.last {
            Some(last)
                if last.acknowledged && (self.mirror.marks_reference || !self.anchors.keep_reference()) =>
            {
                self.native.feedback(idr, last.frame_num, true)?;
                Ok(Some(last.frame_num))
            }
            _ => Ok(None),
        }
    }

    /// Tracks which references a predicted picture's header changes, and returns the picture that it refers to.
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
                // This is always the picture before.
                Mark::Back { slot, .. } => (self.mirror.last, slot),
                Mark::Own(place) => (Some(own), place),
                Mark::Slots(_) | Mark::Other => continue,
            };
            if let Some(place) = self.mirror.long.get_mut(place as usize) {
                *place = picture;
            }
            self.mirror.pending = picture.filter(|picture| told != Some(picture.frame_num));
            self.mirror.pending_is_reference = std::mem::take(&mut self.mirror.marks_reference);
        }
        self.mirror.last = Some(own);
        refers
    }

    /// Whether a picture may be sent: as far as known, the receiver holds its reference.
    fn may_be_sent(&self, coded: &Coded, wanted: Wanted) -> bool {
        if coded.header.is_none() {
            return true;
        }
        coded.refers.is_some_and(|picture| {
            let follows = wanted == Wanted::Previous && picture.sent == self.receiver.last();
            self.slot(picture).is_some() && (follows || picture.acknowledged)
        })
    }

    /// The slot in which the receiver holds a picture.
    fn slot(&self, picture: Picture) -> Option<usize> {
        self.receiver.place_of(picture.sent?)
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
        let refers = coded.refers.and_then(|picture| picture.sent);
        let leaps = refers.is_none() || refers != self.receiver.last();
        match &coded.header {
            None => {
                payload.extend_from_slice(&self.stream);
                self.receiver.begin(number);
            }
            Some(header) => {
                let keeps = |number: u64| {
                    self.receiver.last() == Some(number)
                        || self.mirror.long.iter().flatten().any(|picture| picture.sent == Some(number))
                };
                let slots = self.receiver.slots();
                let free = slots.iter().position(|slot| slot.is_none_or(|number| !keeps(number)));
                let from = refers.and_then(|number| Some((number, self.receiver.place_of(number)?)));
                let (Some(own), Some((refers, place))) = (free, from) else {
                    return Err(H264Error::Damaged { detail: "no reference slot is free for the picture" });
                };
                let frame_num = self.receiver.next_frame_num(self.frame_num_bits);
                let place = Place { frame_num, refers: place as u32, own: own as u32 };
                let written = header.rewrite(place, self.frame_num_bits, &mut payload);
                written.ok_or(H264Error::Damaged { detail: "openh264 wrote an empty slice" })?;
                self.receiver.follow(number, refers, place);
            }
        }
        let frame_num = self.mirror.last.map(|last| last.frame_num);
        let independent = coded.header.is_none();
        self.mirror.each(|picture| {
            if Some(picture.frame_num) == frame_num {
                picture.sent = Some(number);
            }
        });
        let is_anchor = leaps && !independent && attempts == 1;
        if !is_anchor {
            // An anchor's size says nothing about the pictures after it.
            let model = if independent { &mut self.independent } else { &mut self.predicted };
            model.learn(quantiser, payload.len());
        }
        self.anchors.sent(leaps, attempts);
        Ok(H264Frame {
            fits: payload.len() <= most,
            payload: payload.into(),
            quantiser: Quantiser::clamped(quantiser),
            refers,
            attempts,
        })
    }
}
