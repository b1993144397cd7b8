//! Video in the form of MP4 files. For H.264, units follow their lengths, and the parameter sets
//! of the first picture are separate (ISO/IEC 14496-15). For H.265 and AV1, ffmpeg does this.

use bytes::Bytes;
use mez_core::frame::Encoding;
use mez_media::bitstream::{UnitSplitter, av1_sequence_header};

use super::matroska::Pictures;

/// The type of units with sequence parameter sets (ITU-T H.264, table 7-1).
const SEQUENCE: u8 = 7;
/// The type of units with picture parameter sets.
const PICTURE: u8 = 8;

/// Types of units with parameter sets of H.265 (ITU-T H.265, table 7-1).
const H265_SETS: std::ops::RangeInclusive<u8> = 32..=34;

/// A picture in the form of the file, and the description of a stream that begins with it.
pub(super) fn packet(encoding: Encoding, payload: &Bytes) -> (Pictures, Bytes) {
    match encoding {
        Encoding::H265 => (Pictures::H265(h265_sets(payload)), payload.clone()),
        Encoding::Av1 => {
            let sequence = av1_sequence_header(payload).unwrap_or_default();
            (Pictures::Av1(sequence.to_vec()), payload.clone())
        }
        _ => (Pictures::H264(description(payload).unwrap_or_default()), with_lengths(payload)),
    }
}

/// The parameter sets in an H.265 picture, after start codes.
fn h265_sets(payload: &Bytes) -> Vec<u8> {
    let is_set = |unit: &Bytes| unit.first().is_some_and(|head| H265_SETS.contains(&(head >> 1)));
    let units = units(payload);
    units
        .iter()
        .filter(|unit| is_set(unit))
        .flat_map(|unit| [&[0, 0, 0, 1][..], &unit[..]].concat())
        .collect()
}

/// The units of a picture.
fn units(payload: &Bytes) -> Vec<Bytes> {
    let mut splitter = UnitSplitter::new(payload.len());
    splitter.push(payload);
    splitter.finish();
    let mut units = Vec::new();
    while let Some(unit) = splitter.next_unit() {
        units.push(Bytes::copy_from_slice(unit));
    }
    units
}

/// The decoder configuration of a stream that begins with this picture. `None` if it has no parameter sets.
fn description(key_frame: &Bytes) -> Option<Vec<u8>> {
    let units = units(key_frame);
    let set = |kind: u8| {
        units
            .iter()
            .find(|unit| unit.first().is_some_and(|head| head & 0x1f == kind))
            .filter(|unit| unit.len() > 3)
    };
    let (sequence, picture) = (set(SEQUENCE)?, set(PICTURE)?);
    let length = |unit: &Bytes| u16::try_from(unit.len()).ok().map(u16::to_be_bytes);
    // Version 1; profile and level of the sequence parameter set; lengths of four bytes; one set of each kind.
    let mut out = vec![1, sequence[1], sequence[2], sequence[3], 0xff, 0xe1];
    out.extend(length(sequence)?);
    out.extend_from_slice(sequence);
    out.push(1);
    out.extend(length(picture)?);
    out.extend_from_slice(picture);
    Some(out)
}

/// A picture with lengths instead of start codes. Its units are unchanged.
pub(super) fn with_lengths(payload: &Bytes) -> Bytes {
    let mut out = Vec::with_capacity(payload.len() + 16);
    for unit in units(payload) {
        // No frame has 4 GiB.
        out.extend(u32::try_from(unit.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(&unit);
    }
    out.into()
}
