//! Parameter sets: the parameters of a whole stream, and of many of its pictures (ITU-T H.264, 7.3.2.1, 7.3.2.2 and E.1).

use super::bits::Bits;
use super::error::{BitstreamError, Unfit, damaged};
use crate::yuv::Colour;

/// Maximum bytes of a parameter set. A set with scaling lists and all other options has some hundred.
const SET_BYTES_MAX: usize = 4096;
/// The highest `seq_parameter_set_id` (7.4.2.1.1).
const SEQUENCE_ID_MAX: u32 = 31;
/// The highest `pic_parameter_set_id` (7.4.2.2).
const PICTURE_ID_MAX: u32 = 255;
/// Profiles whose sequence parameter sets contain a chroma format and scaling lists (7.3.2.1.1).
const HIGH_PROFILES: [u8; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// How the order of pictures is coded (8.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OrderCoding {
    /// Each slice contains this many of the order's lowest bits.
    Bits(u32),
    /// The order follows from frame numbers, with differences.
    Cycle {
        /// Whether slices contain no differences.
        without_deltas: bool,
        non_reference: i64,
        top_to_bottom: i64,
        offsets: Vec<i64>,
    },
    /// The order is that of decoding.
    Decoding,
}

/// The relevant part of a sequence parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) id: u32,
    /// `profile_idc`, the constraint flags and `level_idc`.
    pub(super) profile: [u8; 3],
    /// `chroma_format_idc`.
    pub(super) chroma: u32,
    pub(super) separate_planes: bool,
    pub(super) sample_bits: u32,
    pub(super) frame_num_bits: u32,
    pub(super) order: OrderCoding,
    pub(super) gaps_allowed: bool,
    pub(super) frames_only: bool,
    /// Number of macroblocks of a frame.
    pub(super) macroblocks: u64,
    /// Width of the shown picture, in pixels.
    pub(super) width: u32,
    /// Height of the shown picture, in pixels.
    pub(super) height: u32,
    /// Maximum number of pictures that are decoded before another picture and shown after it; `None` if it is not stated.
    pub(super) reordered: Option<u32>,
    /// The meaning of the samples.
    pub(super) colour: Colour,
}

impl Sequence {
    pub(super) fn read(unit: &[u8]) -> Option<Self> {
        let mut bits = Bits::of_unit(unit);
        let profile = [bits.byte()?, bits.byte()?, bits.byte()?];
        let id = bits.unsigned_up_to(SEQUENCE_ID_MAX)?;
        let (mut chroma, mut separate_planes, mut sample_bits) = (1, false, 8);
        if HIGH_PROFILES.contains(&profile[0]) {
            chroma = bits.unsigned_up_to(3)?;
            separate_planes = chroma == 3 && bits.flag()?;
            let luma = bits.unsigned_up_to(6)?;
            sample_bits = 8 + luma.max(bits.unsigned_up_to(6)?);
            bits.flag()?;
            if bits.flag()? {
                scaling_lists(&mut bits, if chroma == 3 { 12 } else { 8 })?;
            }
        }
        let frame_num_bits = 4 + bits.unsigned_up_to(12)?;
        let order = order_coding(&mut bits)?;
        bits.unsigned_up_to(16)?;
        let gaps_allowed = bits.flag()?;
        let columns = bits.unsigned_up_to(4095)? + 1;
        let rows = bits.unsigned_up_to(4095)? + 1;
        let frames_only = bits.flag()?;
        let fields = if frames_only { 1 } else { 2 };
        if !frames_only {
            bits.flag()?;
        }
        bits.flag()?;
        let (mut width, mut height) = (columns * 16, rows * 16 * fields);
        if bits.flag()? {
            // Crop units: (7-19) to (7-22). Without chroma, or with separate colour planes, a unit is one sample.
            let (wide, high) = match (chroma, separate_planes) {
                (1, _) => (2, 2 * fields),
                (2, _) => (2, fields),
                _ => (1, fields),
            };
            let mut crop = |unit: u32| {
                let (before, after) = (bits.unsigned()?, bits.unsigned()?);
                before.checked_add(after)?.checked_mul(unit)
            };
            let (across, down) = (crop(wide)?, crop(high)?);
            width = width.checked_sub(across).filter(|width| *width > 0)?;
            height = height.checked_sub(down).filter(|height| *height > 0)?;
        }
        let mut colour = Colour::default();
        let reordered = if bits.flag()? { usability(&mut bits, &mut colour) } else { None };
        Some(Self {
            id,
            profile,
            chroma,
            separate_planes,
            sample_bits,
            frame_num_bits,
            order,
            gaps_allowed,
            frames_only,
            macroblocks: u64::from(columns) * u64::from(rows) * u64::from(fields),
            width,
            height,
            reordered,
            colour,
        })
    }

    /// Why pictures of this sequence are not passed on unchanged.
    pub(super) fn check(&self, pixels_max: u64) -> Result<(), Unfit> {
        let &Self { width, height, chroma, sample_bits: bits, .. } = self;
        // A decoder allocates memory for the coded size. Encoders pad each side by at most 15 pixels.
        let (shown, coded) = (u64::from(width) * u64::from(height), self.macroblocks * 256);
        let is_padded = coded <= (u64::from(width) + 15) * (u64::from(height) + 15);
        if shown > pixels_max || (coded > pixels_max && !is_padded) {
            return Err(Unfit::TooManyPixels { width, height, pixels_max });
        }
        if chroma != 1 || bits != 8 {
            return Err(Unfit::Samples { bits, chroma });
        }
        if self.frames_only { Ok(()) } else { Err(Unfit::Interlaced) }
    }

    /// `ChromaArrayType` (7.4.2.1.1).
    pub(super) fn chroma_arrays(&self) -> u32 {
        if self.separate_planes { 0 } else { self.chroma }
    }
}

/// Skips scaling lists (7.3.2.1.1.1).
fn scaling_lists(bits: &mut Bits<'_>, count: usize) -> Option<()> {
    for list in 0..count {
        if !bits.flag()? {
            continue;
        }
        let (mut last, mut next) = (8i64, 8i64);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = (last + bits.signed()?).rem_euclid(256);
            }
            if next != 0 {
                last = next;
            }
        }
    }
    Some(())
}

fn order_coding(bits: &mut Bits<'_>) -> Option<OrderCoding> {
    Some(match bits.unsigned_up_to(2)? {
        0 => OrderCoding::Bits(4 + bits.unsigned_up_to(12)?),
        1 => {
            let without_deltas = bits.flag()?;
            let (non_reference, top_to_bottom) = (bits.signed()?, bits.signed()?);
            let count = bits.unsigned_up_to(255)?;
            let offsets = (0..count).map(|_| bits.signed()).collect::<Option<_>>()?;
            OrderCoding::Cycle { without_deltas, non_reference, top_to_bottom, offsets }
        }
        _ => OrderCoding::Decoding,
    })
}

/// Reads the VUI parameters (E.1.1): the meaning of samples, and at the end `max_num_reorder_frames`. `None` if that value is absent or unreadable.
fn usability(bits: &mut Bits<'_>, colour: &mut Colour) -> Option<u32> {
    const EXTENDED_ASPECT: u32 = 255;
    /// `matrix_coefficients` of BT.709 (table E-5).
    const BT709: u32 = 1;
    if bits.flag()? && bits.bits(8)? == EXTENDED_ASPECT {
        bits.skip(32)?;
    }
    if bits.flag()? {
        bits.flag()?;
    }
    if bits.flag()? {
        bits.skip(3)?;
        colour.is_full = bits.flag()?;
        if bits.flag()? {
            bits.skip(16)?;
            colour.is_bt709 = bits.bits(8)? == BT709;
        }
    }
    if bits.flag()? {
        bits.unsigned()?;
        bits.unsigned()?;
    }
    if bits.flag()? {
        bits.skip(65)?;
    }
    let hypothetical = [hypothetical_decoder(bits)?, hypothetical_decoder(bits)?];
    if hypothetical.contains(&true) {
        bits.flag()?;
    }
    bits.flag()?;
    if !bits.flag()? {
        return None;
    }
    bits.flag()?;
    for _ in 0..4 {
        bits.unsigned()?;
    }
    bits.unsigned_up_to(16)
}

/// Skips the parameters of a hypothetical reference decoder (E.1.2). Returns whether they are present.
fn hypothetical_decoder(bits: &mut Bits<'_>) -> Option<bool> {
    if !bits.flag()? {
        return Some(false);
    }
    let count = bits.unsigned_up_to(31)? + 1;
    bits.skip(8)?;
    for _ in 0..count {
        bits.unsigned()?;
        bits.unsigned()?;
        bits.flag()?;
    }
    bits.skip(20)?;
    Some(true)
}

/// The relevant part of a picture parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) id: u32,
    pub(super) sequence: u32,
    /// Whether slices have two differences of order (`bottom_field_pic_order_in_frame_present_flag`).
    pub(super) two_deltas: bool,
    pub(super) slice_groups: bool,
    /// Default lengths of the two reference lists. A slice may override them.
    pub(super) list_lengths: [u32; 2],
    /// Whether P slices have weights for their references.
    pub(super) weighted: bool,
    /// Whether B slices have explicit weights (`weighted_bipred_idc` is 1).
    pub(super) weighted_both: bool,
    pub(super) redundant_pictures: bool,
}

impl Picture {
    pub(super) fn read(unit: &[u8]) -> Option<Self> {
        let mut bits = Bits::of_unit(unit);
        let id = bits.unsigned_up_to(PICTURE_ID_MAX)?;
        let sequence = bits.unsigned_up_to(SEQUENCE_ID_MAX)?;
        bits.flag()?;
        let two_deltas = bits.flag()?;
        let mut picture = Self {
            id,
            sequence,
            two_deltas,
            slice_groups: bits.unsigned()? > 0,
            list_lengths: [1, 1],
            weighted: false,
            weighted_both: false,
            redundant_pictures: false,
        };
        if picture.slice_groups {
            // Such pictures are refused, so the rest is not read.
            return Some(picture);
        }
        picture.list_lengths = [bits.unsigned_up_to(31)? + 1, bits.unsigned_up_to(31)? + 1];
        picture.weighted = bits.flag()?;
        picture.weighted_both = bits.bits(2)? == 1;
        for _ in 0..3 {
            bits.signed()?;
        }
        bits.skip(2)?;
        picture.redundant_pictures = bits.flag()?;
        Some(picture)
    }
}

/// A parameter set with its bytes.
#[derive(Debug, Clone)]
struct Held<T> {
    set: T,
    bytes: Box<[u8]>,
}

/// The parameter sets of a stream: at most 32 sequence and 256 picture parameter sets, of at most 4 KiB each.
#[derive(Debug, Default)]
pub(super) struct ParameterSets {
    sequences: Vec<Held<Sequence>>,
    pictures: Vec<Held<Picture>>,
}

impl ParameterSets {
    /// Keeps a set, replacing the one with the same number. True if it is new, or differs from the replaced one.
    pub(super) fn keep(&mut self, unit: &[u8], is_sequence: bool) -> Result<bool, BitstreamError> {
        if unit.len() > SET_BYTES_MAX {
            return Err(damaged("a parameter set has more than 4 KiB"));
        }
        if is_sequence {
            let set = Sequence::read(unit).ok_or(damaged("a sequence parameter set cannot be read"))?;
            Ok(replace(&mut self.sequences, set, unit, |set| set.id))
        } else {
            let set = Picture::read(unit).ok_or(damaged("a picture parameter set cannot be read"))?;
            Ok(replace(&mut self.pictures, set, unit, |set| set.id))
        }
    }

    /// The parameter sets of a slice that names this picture parameter set.
    pub(super) fn of(&self, picture: u32) -> Option<(&Sequence, &Picture)> {
        let picture = &self.pictures.iter().find(|held| held.set.id == picture)?.set;
        let sequence = &self.sequences.iter().find(|held| held.set.id == picture.sequence)?.set;
        Some((sequence, picture))
    }

    /// The bytes of a sequence parameter set and of all picture parameter sets that refer to it, in the order in which a decoder needs them.
    pub(super) fn bytes_of(&self, sequence: u32) -> impl Iterator<Item = &[u8]> {
        let sequences = self.sequences.iter().filter(move |held| held.set.id == sequence);
        let pictures = self.pictures.iter().filter(move |held| held.set.sequence == sequence);
        sequences.map(|held| &held.bytes[..]).chain(pictures.map(|held| &held.bytes[..]))
    }
}

fn replace<T>(held: &mut Vec<Held<T>>, set: T, unit: &[u8], id: impl Fn(&T) -> u32) -> bool {
    match held.iter_mut().find(|held| id(&held.set) == id(&set)) {
        Some(held) if held.bytes[..] == *unit => false,
        Some(held) => {
            *held = Held { set, bytes: unit.into() };
            true
        }
        None => {
            held.push(Held { set, bytes: unit.into() });
            true
        }
    }
}
