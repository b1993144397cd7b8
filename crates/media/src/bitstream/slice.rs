//! Slice headers: which picture a slice belongs to, and whether later pictures need it (ITU-T H.264, 7.3.3).

use super::bits::Bits;
use super::error::{BitstreamError, Unfit, damaged};
use super::sets::{OrderCoding, ParameterSets, Picture, Sequence};
use super::units;

/// Maximum number of changes to a reference list, and of reference marks, in one header. It exceeds the number of references.
const COMMANDS_MAX: u32 = 66;

/// How the macroblocks of a slice are predicted (table 7-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SliceKind {
    /// From one reference list: P and SP.
    Predicted,
    /// From two reference lists: B.
    Both,
    /// From no other picture: I and SI.
    Intra,
}

/// The part of a slice header that identifies the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SliceHeader {
    pub(super) first_macroblock: u32,
    pub(super) kind: SliceKind,
    pub(super) picture_set: u32,
    pub(super) sequence_set: u32,
    pub(super) colour_plane: u32,
    pub(super) frame_num: u32,
    /// The number of an IDR picture, which differs from that of the previous IDR picture.
    pub(super) idr: Option<u32>,
    pub(super) is_reference: bool,
    /// The lowest bits of the order, if they are coded.
    pub(super) order_bits: u32,
    /// Differences of order of the two fields.
    pub(super) order_deltas: [i64; 2],
    /// Whether the slice belongs to a redundant picture, which is decoded only if the primary one is lost.
    pub(super) is_redundant: bool,
    /// Whether this picture forgets all references and restarts the numbering (`memory_management_control_operation` 5).
    pub(super) forgets_all: bool,
}

impl SliceHeader {
    /// Reads the header of a slice, with the parameter sets that it names.
    pub(super) fn read(unit: &[u8], is_idr: bool, sets: &ParameterSets) -> Result<Self, BitstreamError> {
        let mut bits = Bits::of_unit(unit);
        let ids = start(&mut bits).ok_or(damaged("a slice ends within its header"))?;
        let (sequence, picture) =
            sets.of(ids.2).ok_or(damaged("a slice refers to parameter sets that are missing"))?;
        if !sequence.frames_only {
            return Err(Unfit::Interlaced.into());
        }
        if picture.slice_groups {
            return Err(Unfit::Scattered.into());
        }
        let is_reference = units::is_reference(unit);
        if is_idr && !is_reference {
            return Err(damaged("an IDR picture is marked as not used for reference"));
        }
        rest(&mut bits, ids, (is_idr, is_reference), sequence, picture)
            .ok_or(damaged("a slice has an invalid header"))
    }

    /// Whether this is the first slice of a new picture, after a slice `other` (7.4.1.2.4).
    pub(super) fn begins_after(&self, other: &Self) -> bool {
        self.frame_num != other.frame_num
            || self.picture_set != other.picture_set
            || self.sequence_set != other.sequence_set
            || self.is_reference != other.is_reference
            || self.order_bits != other.order_bits
            || self.order_deltas != other.order_deltas
            || self.idr != other.idr
    }
}

/// Reads `first_mb_in_slice`, the kind, and the number of the picture parameter set.
fn start(bits: &mut Bits<'_>) -> Option<(u32, SliceKind, u32)> {
    let first = bits.unsigned()?;
    let kind = match bits.unsigned_up_to(9)? % 5 {
        0 | 3 => SliceKind::Predicted,
        1 => SliceKind::Both,
        _ => SliceKind::Intra,
    };
    Some((first, kind, bits.unsigned()?))
}

fn rest(
    bits: &mut Bits<'_>,
    (first_macroblock, kind, picture_set): (u32, SliceKind, u32),
    (is_idr, is_reference): (bool, bool),
    sequence: &Sequence,
    picture: &Picture,
) -> Option<SliceHeader> {
    if u64::from(first_macroblock) >= sequence.macroblocks {
        return None;
    }
    let colour_plane = if sequence.separate_planes { bits.bits(2)? } else { 0 };
    let frame_num = bits.bits(sequence.frame_num_bits)?;
    let idr = if is_idr { Some(bits.unsigned_up_to(65_535)?) } else { None };
    let (mut order_bits, mut order_deltas) = (0, [0; 2]);
    match &sequence.order {
        OrderCoding::Bits(count) => {
            order_bits = bits.bits(*count)?;
            if picture.two_deltas {
                order_deltas[0] = bits.signed()?;
            }
        }
        OrderCoding::Cycle { without_deltas: false, .. } => {
            order_deltas[0] = bits.signed()?;
            if picture.two_deltas {
                order_deltas[1] = bits.signed()?;
            }
        }
        OrderCoding::Cycle { .. } | OrderCoding::Decoding => {}
    }
    let is_redundant = picture.redundant_pictures && bits.unsigned_up_to(127)? > 0;
    if kind == SliceKind::Both {
        bits.flag()?;
    }
    let lists = lists(bits, kind, picture)?;
    let is_weighted = match kind {
        SliceKind::Predicted => picture.weighted,
        SliceKind::Both => picture.weighted_both,
        SliceKind::Intra => false,
    };
    if is_weighted {
        weights(bits, lists, sequence.chroma_arrays())?;
    }
    let forgets_all = is_reference && marks(bits, is_idr)?;
    Some(SliceHeader {
        first_macroblock,
        kind,
        picture_set,
        sequence_set: sequence.id,
        colour_plane,
        frame_num,
        idr,
        is_reference,
        order_bits,
        order_deltas,
        is_redundant,
        forgets_all,
    })
}

/// The lengths of the reference lists. Skips the changes to them (7.3.3.1).
fn lists(bits: &mut Bits<'_>, kind: SliceKind, picture: &Picture) -> Option<[u32; 2]> {
    let count = match kind {
        SliceKind::Intra => return Some([0; 2]),
        SliceKind::Predicted => 1,
        SliceKind::Both => 2,
    };
    let mut lengths = picture.list_lengths;
    let is_overridden = bits.flag()?;
    for length in &mut lengths[..count] {
        if is_overridden {
            *length = bits.unsigned_up_to(31)? + 1;
        }
    }
    lengths[count..].fill(0);
    for _ in 0..count {
        if !bits.flag()? {
            continue;
        }
        let mut commands = 0;
        while bits.unsigned_up_to(3)? != 3 {
            bits.unsigned()?;
            commands += 1;
            if commands > COMMANDS_MAX {
                return None;
            }
        }
    }
    Some(lengths)
}

/// Skips weights (7.3.3.2).
fn weights(bits: &mut Bits<'_>, lengths: [u32; 2], chroma_arrays: u32) -> Option<()> {
    let has_chroma = chroma_arrays != 0;
    bits.unsigned_up_to(7)?;
    if has_chroma {
        bits.unsigned_up_to(7)?;
    }
    for _ in 0..lengths[0] + lengths[1] {
        if bits.flag()? {
            bits.signed()?;
            bits.signed()?;
        }
        if has_chroma && bits.flag()? {
            for _ in 0..4 {
                bits.signed()?;
            }
        }
    }
    Some(())
}

/// Whether all references are forgotten (7.3.3.3).
fn marks(bits: &mut Bits<'_>, is_idr: bool) -> Option<bool> {
    if is_idr {
        bits.skip(2)?;
        return Some(false);
    }
    if !bits.flag()? {
        return Some(false);
    }
    let mut forgets_all = false;
    for _ in 0..COMMANDS_MAX {
        let numbers = match bits.unsigned_up_to(6)? {
            0 => return Some(forgets_all),
            5 => {
                forgets_all = true;
                0
            }
            3 => 2,
            _ => 1,
        };
        for _ in 0..numbers {
            bits.unsigned()?;
        }
    }
    None
}
