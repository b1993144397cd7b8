//! Reads and rewrites slice headers: which picture a picture refers to, and where it is kept.
//!
//! openh264 itself decides which pictures a decoder keeps. It marks them in frames that may never be sent. Mez therefore writes
//! its own header for every predicted picture. With these headers, the decoder keeps [`SLOTS`] pictures in numbered slots
//! (long-term references). Each picture names the slot that it is predicted from and the slot in which it is kept. So the
//! pictures that a decoder holds depend only on the frames that it received, whatever was coded and thrown away in between.

use super::bits::{BitReader, BitWriter, escape, unescape};

/// Slots in which a decoder keeps pictures: two to which the encoder may return, the previous
/// picture, and the current one. The stream's parameters allow as many reference frames.
pub(super) const SLOTS: usize = 4;

const IDR: u8 = 5;
const NON_IDR: u8 = 1;
const SPS: u8 = 7;

/// The kind of a NAL unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Idr,
    Predicted,
    Parameters,
    Other,
}

pub(super) fn kind(unit: &[u8]) -> Kind {
    match unit[0] & 0x1F {
        IDR => Kind::Idr,
        NON_IDR => Kind::Predicted,
        SPS | 8 => Kind::Parameters,
        _ => Kind::Other,
    }
}

/// The relevant part of a sequence parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) frame_num_bits: u32,
    pub(super) reference_frames: u32,
    /// Width of the coded picture before cropping, in pixels.
    pub(super) width: u32,
    /// Height of the coded picture before cropping, in pixels.
    pub(super) height: u32,
}

/// Reads a sequence parameter set of the baseline or main profile with picture order type 2, as openh264 writes it.
pub(super) fn sequence(unit: &[u8]) -> Option<Sequence> {
    if unit[0] & 0x1F != SPS {
        return None;
    }
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    let profile = reader.bits(8)?;
    reader.bits(16)?;
    reader.unsigned()?;
    if !matches!(profile, 66 | 77) {
        return None;
    }
    let frame_num_bits = reader.unsigned()?.checked_add(4)?;
    let order_type = reader.unsigned()?;
    let reference_frames = reader.unsigned()?;
    reader.flag()?;
    let width = reader.unsigned()?.checked_add(1)?.checked_mul(16)?;
    let height = reader.unsigned()?.checked_add(1)?.checked_mul(16)?;
    let frames_only = reader.flag()?;
    (order_type == 2 && frames_only && frame_num_bits <= 16).then_some(Sequence {
        frame_num_bits,
        reference_frames,
        width,
        height,
    })
}

/// The picture that a predicted picture refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refers {
    /// The picture decoded before.
    Last,
    /// The picture whose frame_num is this much lower.
    Back(u32),
    /// The picture in this slot.
    Slot(u32),
}

/// A change of the pictures that the decoder keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// The picture whose frame_num is this much lower goes to this slot.
    Back { by: u32, slot: u32 },
    /// This picture goes to this slot.
    Own(u32),
    /// There are this many slots.
    Slots(u32),
    /// Another command. openh264 only marks short-term references as unused.
    Other,
}

/// The header of a predicted slice up to the quantiser. The rest of the slice does not change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Predicted {
    pub(super) frame_num: u32,
    pub(super) refers: Refers,
    pub(super) marks: Vec<Mark>,
    first_block: u32,
    slice_type: u32,
    parameters: u32,
    header: u8,
    payload: Vec<u8>,
    /// Index of the first bit after the header.
    rest: usize,
}

/// Reads the header of a predicted slice. `None` if neither openh264 nor [`Predicted::rewrite`] writes such a header.
pub(super) fn predicted(unit: &[u8], frame_num_bits: u32) -> Option<Predicted> {
    // The picture must be a reference. Only then the header has marks.
    if kind(unit) != Kind::Predicted || unit[0] & 0x60 == 0 {
        return None;
    }
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    let first_block = reader.unsigned()?;
    let slice_type = reader.unsigned()?;
    let parameters = reader.unsigned()?;
    if !matches!(slice_type, 0 | 5) {
        return None;
    }
    let frame_num = reader.bits(frame_num_bits)?;
    if reader.flag()? && reader.unsigned()? != 0 {
        return None;
    }
    let refers = refers(&mut reader)?;
    let marks = if reader.flag()? { marks(&mut reader)? } else { Vec::new() };
    let rest = reader.at;
    let header = unit[0];
    Some(Predicted { frame_num, refers, marks, first_block, slice_type, parameters, header, payload, rest })
}

fn refers(reader: &mut BitReader<'_>) -> Option<Refers> {
    if !reader.flag()? {
        return Some(Refers::Last);
    }
    let mut first = None;
    loop {
        let refers = match reader.unsigned()? {
            0 => Refers::Back(reader.unsigned()?.checked_add(1)?),
            2 => Refers::Slot(reader.unsigned()?),
            3 => return first,
            _ => return None,
        };
        // Pictures refer to one other picture; a second entry would be ignored.
        if first.replace(refers).is_some() {
            return None;
        }
    }
}

fn marks(reader: &mut BitReader<'_>) -> Option<Vec<Mark>> {
    let mut marks = Vec::new();
    while marks.len() < 8 {
        marks.push(match reader.unsigned()? {
            0 => return Some(marks),
            1 => {
                reader.unsigned()?;
                Mark::Other
            }
            3 => Mark::Back { by: reader.unsigned()?.checked_add(1)?, slot: reader.unsigned()? },
            4 => Mark::Slots(reader.unsigned()?),
            6 => Mark::Own(reader.unsigned()?),
            _ => return None,
        });
    }
    None
}

impl Predicted {
    /// Appends the slice with Mez's header.
    pub(super) fn rewrite(&self, place: Place, frame_num_bits: u32, out: &mut Vec<u8>) -> Option<()> {
        let mut writer = BitWriter::default();
        writer.unsigned(self.first_block);
        writer.unsigned(self.slice_type);
        writer.unsigned(self.parameters);
        writer.bits(place.frame_num, frame_num_bits);
        // One reference: num_ref_idx_active_override_flag, num_ref_idx_l0_active_minus1.
        writer.bits(1, 1);
        writer.unsigned(0);
        // ref_pic_list_modification: only the picture in that slot.
        writer.bits(1, 1);
        writer.unsigned(2);
        writer.unsigned(place.refers);
        writer.unsigned(3);
        // dec_ref_pic_marking: the number of slots, and the slot of this picture.
        writer.bits(1, 1);
        writer.unsigned(4);
        writer.unsigned(SLOTS as u32);
        writer.unsigned(6);
        writer.unsigned(place.own);
        writer.unsigned(0);
        escape(self.header, &writer.rest(&self.payload, self.rest)?, out);
        Some(())
    }

    /// The slots of a slice that has Mez's header; `None` for another header.
    pub(super) fn place(&self) -> Option<Place> {
        match (self.refers, &self.marks[..]) {
            (Refers::Slot(refers), &[Mark::Slots(slots), Mark::Own(own)])
                if slots as usize == SLOTS && (refers as usize) < SLOTS && (own as usize) < SLOTS =>
            {
                Some(Place { frame_num: self.frame_num, refers, own })
            }
            _ => None,
        }
    }
}

/// The number and slots of a picture at the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// One more than the number of the frame sent before, modulo 2^`frame_num_bits`.
    pub(super) frame_num: u32,
    /// The slot of the picture that it is predicted from.
    pub(super) refers: u32,
    /// The slot in which it is kept.
    pub(super) own: u32,
}

/// The idr_pic_id of an independent slice.
pub(super) fn idr_pic_id(unit: &[u8], frame_num_bits: u32) -> Option<u32> {
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    // first_mb_in_slice, slice_type, pic_parameter_set_id.
    for _ in 0..3 {
        reader.unsigned()?;
    }
    reader.bits(frame_num_bits)?;
    reader.unsigned()
}
