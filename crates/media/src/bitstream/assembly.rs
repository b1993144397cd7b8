//! Assembles a picture from its NAL units.

use std::ops::Range;

use bytes::Bytes;

use super::annex_b::START_CODE;
use super::error::{BitstreamError, Unfit, damaged};
use super::slice::{SliceHeader, SliceKind};
use super::supplement::recovery_point;
use super::units::Kind;

/// Maximum number of NAL units of one picture. A 4K picture with one slice per row of macroblocks has 135.
const UNITS_MAX: u32 = 2048;

/// The units of a picture so far.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    payload: Vec<u8>,
    units: u32,
    /// The header of the first slice.
    first: Option<SliceHeader>,
    /// `first_mb_in_slice` of the newest slice, and its colour plane.
    newest: (u32, u32),
    slices: u32,
    is_intra: bool,
    has_two_lists: bool,
    recovery: Option<u32>,
    /// Bytes of the delimiter at the start; 0 if there is none.
    delimiter_bytes: usize,
    /// Where the parameter sets are in `payload`.
    sets: Vec<Range<usize>>,
    /// The first defect of the picture.
    wrong: Option<BitstreamError>,
}

impl Assembly {
    /// The header of the first slice.
    pub(super) fn first(&self) -> Option<&SliceHeader> {
        self.first.as_ref()
    }

    /// The header of the first slice; `None` if there is no slice yet, an error if the picture has a defect.
    pub(super) fn whole(&self) -> Result<Option<&SliceHeader>, BitstreamError> {
        match &self.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(self.first.as_ref()),
        }
    }

    /// Records a defect. Only the first one is kept.
    pub(super) fn spoil(&mut self, wrong: BitstreamError) {
        self.wrong.get_or_insert(wrong);
    }

    /// Checks and records the header of a slice.
    pub(super) fn slice(&mut self, header: SliceHeader) -> Result<(), BitstreamError> {
        let Some(first) = &self.first else {
            if header.is_redundant {
                return Err(damaged("a picture begins with a redundant slice"));
            }
            if header.first_macroblock != 0 {
                return Err(damaged("the first slice of a picture is missing"));
            }
            self.slices = 1;
            self.is_intra = header.kind == SliceKind::Intra;
            self.has_two_lists = header.kind == SliceKind::Both;
            self.newest = (0, header.colour_plane);
            self.first = Some(header);
            return Ok(());
        };
        if header.is_redundant {
            return Ok(());
        }
        if header.begins_after(first) {
            return Err(damaged("a packet holds parts of two pictures"));
        }
        let (macroblock, plane) = self.newest;
        if plane == header.colour_plane && header.first_macroblock <= macroblock {
            // The same slice twice, or slices in arbitrary order.
            return Err(Unfit::Scattered.into());
        }
        self.newest = (header.first_macroblock, header.colour_plane);
        self.slices += 1;
        self.is_intra &= header.kind == SliceKind::Intra;
        self.has_two_lists |= header.kind == SliceKind::Both;
        Ok(())
    }

    /// Adds a unit, unchanged.
    pub(super) fn add(&mut self, kind: Kind, unit: &[u8], bytes_max: usize) -> Result<(), BitstreamError> {
        let start = self.payload.len() + START_CODE.len();
        let end = start + unit.len();
        if end > bytes_max {
            return Err(BitstreamError::TooLarge { bytes_max });
        }
        if self.units >= UNITS_MAX {
            return Err(damaged("a picture has more than 2048 units"));
        }
        match kind {
            Kind::Supplement => self.recovery = recovery_point(unit).or(self.recovery),
            Kind::Sequence | Kind::Picture => self.sets.push(start..end),
            Kind::Delimiter if self.units == 0 => self.delimiter_bytes = end,
            _ => {}
        }
        self.units += 1;
        append(&mut self.payload, unit);
        Ok(())
    }

    /// The units so far (annex B).
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Number of slices.
    pub(super) fn slices(&self) -> u32 {
        self.slices
    }

    /// Whether no slice is predicted from another picture.
    pub(super) fn is_intra(&self) -> bool {
        self.is_intra
    }

    /// Whether a slice is predicted from two lists of pictures.
    pub(super) fn has_two_lists(&self) -> bool {
        self.has_two_lists
    }

    /// Number of frames until pictures are complete, if a decoder can begin here.
    pub(super) fn recovery(&self) -> Option<u32> {
        self.recovery
    }

    /// Whether it contains parameter sets.
    pub(super) fn has_sets(&self) -> bool {
        !self.sets.is_empty()
    }

    /// These sets (annex B); empty if all of them are already in the picture.
    pub(super) fn sets_lacking<'a>(&self, sets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let (mut all, mut lacks) = (Vec::new(), false);
        for set in sets {
            lacks |= !self.sets.iter().any(|range| self.payload[range.clone()] == *set);
            append(&mut all, set);
        }
        if lacks { all } else { Vec::new() }
    }

    /// The whole picture, with `before` added ahead of its units. A delimiter stays first.
    pub(super) fn into_payload(mut self, before: &[u8]) -> Bytes {
        if !before.is_empty() {
            self.payload.splice(self.delimiter_bytes..self.delimiter_bytes, before.iter().copied());
        }
        // A kept picture must not also keep the unused capacity.
        self.payload.shrink_to_fit();
        self.payload.into()
    }
}

/// Appends a start code and a unit.
pub(super) fn append(payload: &mut Vec<u8>, unit: &[u8]) {
    payload.extend_from_slice(START_CODE);
    payload.extend_from_slice(unit);
}
