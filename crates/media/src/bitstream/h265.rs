//! Parses the H.265 streams of cameras and files: where decoding can begin, the order of pictures, and which pictures others need.
//!
//! Clauses are those of ITU-T H.265 (08/2021). One packet is one picture, with start codes, as from ffmpeg
//! (`hevc_mp4toannexb`). Only the headers are read. References are not followed: each picture counts as needed by all
//! later ones. Exceptions are pictures of the highest temporal layer whose type says that no other needs them (table 7-1).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::access::AccessUnitLimits;
use super::annex_b::START_CODE;
use super::bits::Bits;
use super::error::{BitstreamError, Unfit, damaged};
use crate::h264::bits::units as units_of;

const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;
/// Maximum bytes of a parameter set.
const SET_BYTES_MAX: usize = 4096;

/// A coded picture of a stream whose references are not followed one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodedPicture {
    /// The packet. At a key picture, the parameter sets come first, even if the source does not repeat them.
    pub payload: Bytes,
    /// Width of the shown picture, in pixels.
    pub width: u32,
    /// Height of the shown picture, in pixels.
    pub height: u32,
    /// Whether decoding can begin here. No later picture then needs an earlier one.
    pub is_key: bool,
    /// Whether later pictures may need this one.
    pub is_needed: bool,
    /// Whether all pictures from the last key picture on came whole.
    pub is_unbroken: bool,
}

/// The relevant part of a sequence parameter set (7.3.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sequence {
    layers: u32,
    separate_planes: bool,
    width: u32,
    height: u32,
    order_bits: u32,
}

/// The relevant part of a picture parameter set (7.3.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Picture {
    sequence: u32,
    has_output_flag: bool,
    extra_bits: u32,
}

/// The relevant part of the header of a picture's first slice.
#[derive(Debug, Clone, Copy)]
struct Slice {
    kind: u8,
    layer: u32,
    sequence: u32,
    /// The lowest bits of the picture's order (8.3.1).
    order_bits: u32,
}

/// Parses an H.265 stream, one packet at a time. Accepts any bytes; a defect in a picture makes the result for this picture an error.
#[derive(Debug, Default)]
pub struct H265Pictures {
    limits: AccessUnitLimits,
    /// Parameter sets, unchanged, by kind and number.
    sets: BTreeMap<(u8, u32), Vec<u8>>,
    sequences: BTreeMap<u32, Sequence>,
    pictures: BTreeMap<u32, Picture>,
    /// Order of the previous picture of the lowest temporal layer that others need (8.3.1).
    order_before: i64,
    /// The highest order since the key picture.
    newest: Option<i64>,
    is_unbroken: bool,
}

impl H265Pictures {
    /// A parser that has seen no packet.
    #[must_use]
    pub fn new(limits: AccessUnitLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Reads a container's description of the stream: parameter sets (annex B).
    pub fn describe(&mut self, description: &[u8]) {
        for unit in units_of(description) {
            // A defect shows when a picture needs the set.
            let _ = self.keep(unit);
        }
    }

    /// The picture of a packet; `None` if it contains none.
    ///
    /// # Errors
    /// [`BitstreamError`]. After an error, pictures are not `is_unbroken` until the next key picture.
    pub fn packet(&mut self, packet: &[u8]) -> Result<Option<CodedPicture>, BitstreamError> {
        let picture = self.read(packet);
        if picture.is_err() {
            self.is_unbroken = false;
        }
        picture
    }

    fn read(&mut self, packet: &[u8]) -> Result<Option<CodedPicture>, BitstreamError> {
        if packet.len() > self.limits.bytes_max {
            return Err(BitstreamError::TooLarge { bytes_max: self.limits.bytes_max });
        }
        let (mut slice, mut brings_sets): (Option<Slice>, bool) = (None, false);
        for unit in units_of(packet) {
            let kind = kind(unit).ok_or(damaged("a unit has no header"))?;
            match kind {
                VPS..=PPS => {
                    self.keep(unit)?;
                    brings_sets = true;
                }
                0..=31 if is_base(unit) && slice.is_none() => slice = Some(self.slice(unit)?),
                // This bit marks the first slice of a picture (7.4.7.1).
                0..=31 if is_base(unit) && unit.get(2).is_some_and(|byte| byte & 0x80 != 0) => {
                    return Err(damaged("a packet has several pictures"));
                }
                _ => {}
            }
        }
        let Some(slice) = slice else { return Ok(None) };
        let sequence = self.sequences.get(&slice.sequence).ok_or(damaged("a picture has no parameters"))?;
        let (width, height, layers) = (sequence.width, sequence.height, sequence.layers);
        let is_key = (16..=21).contains(&slice.kind);
        self.follow(slice, 1 << sequence.order_bits, is_key)?;
        self.is_unbroken |= is_key;
        // Pictures of even types below 16 are not needed in their own layer (table 7-1).
        let is_spare = slice.kind < 16 && slice.kind.is_multiple_of(2) && slice.layer + 1 == layers;
        let payload = if is_key { self.with_sets(packet) } else { Bytes::copy_from_slice(packet) };
        if payload.len() > self.limits.bytes_max {
            return Err(BitstreamError::TooLarge { bytes_max: self.limits.bytes_max });
        }
        let (is_needed, is_unbroken) = (!is_spare || brings_sets, self.is_unbroken);
        Ok(Some(CodedPicture { payload, width, height, is_key, is_needed, is_unbroken }))
    }

    /// Reads and keeps a parameter set.
    fn keep(&mut self, unit: &[u8]) -> Result<(), BitstreamError> {
        let kind = kind(unit).ok_or(damaged("a unit has no header"))?;
        if !matches!(kind, VPS..=PPS) || !is_base(unit) {
            return Ok(());
        }
        let unreadable = damaged("a parameter set cannot be read");
        if unit.len() > SET_BYTES_MAX {
            return Err(unreadable);
        }
        let mut bits = Bits::of_unit(&unit[1..]);
        let number = match kind {
            VPS => bits.bits(4).ok_or(unreadable)?,
            SPS => {
                let (number, sequence) = self.sequence(&mut bits)?;
                self.sequences.insert(number, sequence);
                number
            }
            _ => {
                let (number, picture) = picture(&mut bits).ok_or(unreadable)?;
                self.pictures.insert(number, picture);
                number
            }
        };
        self.sets.insert((kind, number), unit.to_vec());
        Ok(())
    }

    fn sequence(&self, bits: &mut Bits<'_>) -> Result<(u32, Sequence), BitstreamError> {
        let unreadable = damaged("a sequence parameter set cannot be read");
        let read = |bits: &mut Bits<'_>| {
            bits.skip(4)?;
            let layers = bits.bits(3)? + 1;
            bits.skip(1)?;
            profile(bits, layers - 1)?;
            let number = bits.unsigned_up_to(15)?;
            let chroma = bits.unsigned_up_to(3)?;
            let separate_planes = chroma == 3 && bits.flag()?;
            let (mut width, mut height) = (u64::from(bits.unsigned()?), u64::from(bits.unsigned()?));
            if bits.flag()? {
                let [left, right, top, bottom] =
                    [bits.unsigned()?, bits.unsigned()?, bits.unsigned()?, bits.unsigned()?].map(u64::from);
                // Offsets are in chroma samples of 4:2:0. Other formats are refused below.
                width = width.checked_sub(2 * (left + right))?;
                height = height.checked_sub(2 * (top + bottom))?;
            }
            let sample_bits = bits.unsigned_up_to(8)?.max(bits.unsigned_up_to(8)?) + 8;
            let order_bits = bits.unsigned_up_to(12)? + 4;
            let reordered = reordered(bits, layers)?;
            let sequence = Sequence { layers, separate_planes, width: 0, height: 0, order_bits };
            Some((number, (chroma, sample_bits), (width, height), reordered, sequence))
        };
        let (number, (chroma, sample_bits), (width, height), reordered, sequence) =
            read(bits).ok_or(unreadable.clone())?;
        let side = |side: u64| u32::try_from(side).ok().filter(|side| *side > 0);
        let (Some(width), Some(height)) = (side(width), side(height)) else { return Err(unreadable) };
        let pixels_max = self.limits.pixels_max;
        if u64::from(width) * u64::from(height) > pixels_max {
            return Err(Unfit::TooManyPixels { width, height, pixels_max }.into());
        }
        if chroma != 1 || sample_bits != 8 {
            return Err(Unfit::Samples { bits: sample_bits, chroma }.into());
        }
        // A decoder delays its output by this many pictures, even if none is reordered.
        if reordered > 0 {
            return Err(Unfit::Reordered.into());
        }
        Ok((number, Sequence { width, height, ..sequence }))
    }

    /// Reads the header of a picture's first slice (7.3.6.1).
    fn slice(&self, unit: &[u8]) -> Result<Slice, BitstreamError> {
        let kind = kind(unit).ok_or(damaged("a slice has no header"))?;
        let cut_off = damaged("a slice header is cut off");
        let layer = u32::from(unit.get(1).ok_or(cut_off.clone())? & 7).saturating_sub(1);
        let mut bits = Bits::of_unit(&unit[1..]);
        if !bits.flag().ok_or(cut_off.clone())? {
            return Err(damaged("the first slice of a picture is missing"));
        }
        if (16..=23).contains(&kind) {
            bits.skip(1).ok_or(cut_off.clone())?;
        }
        let number = bits.unsigned_up_to(63).ok_or(cut_off.clone())?;
        let picture = self.pictures.get(&number).ok_or(damaged("a picture has no parameters"))?;
        let sequence = self.sequences.get(&picture.sequence).ok_or(damaged("a picture has no parameters"))?;
        let mut order_bits = || {
            bits.skip(picture.extra_bits)?;
            bits.unsigned_up_to(2)?;
            bits.skip(picture.has_output_flag.into())?;
            bits.skip(if sequence.separate_planes { 2 } else { 0 })?;
            if matches!(kind, 19 | 20) { Some(0) } else { bits.bits(sequence.order_bits) }
        };
        let order_bits = order_bits().ok_or(cut_off)?;
        Ok(Slice { kind, layer, sequence: picture.sequence, order_bits })
    }

    /// Computes the order of a picture (8.3.1). Refuses a picture that is shown before an earlier decoded one.
    fn follow(&mut self, slice: Slice, range: i64, is_key: bool) -> Result<(), BitstreamError> {
        // RADL and RASL pictures are shown before their key picture.
        if (6..=9).contains(&slice.kind) {
            return Err(Unfit::Reordered.into());
        }
        let low = i64::from(slice.order_bits);
        let (high_before, low_before) =
            (self.order_before - self.order_before.rem_euclid(range), self.order_before.rem_euclid(range));
        let high = if is_key {
            0
        } else if low < low_before && low_before - low >= range / 2 {
            high_before + range
        } else if low > low_before && low - low_before > range / 2 {
            high_before - range
        } else {
            high_before
        };
        let order = high.saturating_add(low);
        if !is_key && self.newest.is_some_and(|newest| order <= newest) {
            return Err(Unfit::Reordered.into());
        }
        self.newest = Some(order);
        let is_spare = slice.kind < 16 && slice.kind.is_multiple_of(2);
        if slice.layer == 0 && !is_spare {
            self.order_before = order;
        }
        Ok(())
    }

    /// The packet of a key picture, after all parameter sets that it does not contain.
    fn with_sets(&self, packet: &[u8]) -> Bytes {
        let mut payload = Vec::with_capacity(packet.len() + 256);
        for set in self.sets.values().filter(|set| !units_of(packet).any(|unit| unit == set.as_slice())) {
            payload.extend_from_slice(START_CODE);
            payload.extend_from_slice(set);
        }
        payload.extend_from_slice(packet);
        payload.into()
    }
}

/// `nal_unit_type` (7.3.1.2). `None` if the unit has no header, or the forbidden bit is set.
fn kind(unit: &[u8]) -> Option<u8> {
    let header = unit.first().filter(|header| **header & 0x80 == 0 && unit.len() >= 2)?;
    Some(header >> 1)
}

/// Whether a unit belongs to the base layer (`nuh_layer_id` 0).
fn is_base(unit: &[u8]) -> bool {
    unit[0] & 1 == 0 && unit.get(1).is_some_and(|byte| byte >> 3 == 0)
}

/// Skips `profile_tier_level` (7.3.3) with `layers` layers below the highest.
fn profile(bits: &mut Bits<'_>, layers: u32) -> Option<()> {
    bits.skip(96)?;
    let mut present = Vec::new();
    for _ in 0..layers {
        present.push((bits.flag()?, bits.flag()?));
    }
    if layers > 0 {
        bits.skip(2 * (8 - layers))?;
    }
    for (has_profile, has_level) in present {
        bits.skip(if has_profile { 88 } else { 0 } + if has_level { 8 } else { 0 })?;
    }
    Some(())
}

/// `sps_max_num_reorder_pics` of the highest layer.
fn reordered(bits: &mut Bits<'_>, layers: u32) -> Option<u32> {
    let stated = if bits.flag()? { layers } else { 1 };
    let mut reordered = 0;
    for _ in 0..stated {
        bits.unsigned()?;
        reordered = bits.unsigned()?;
        bits.unsigned()?;
    }
    Some(reordered)
}

fn picture(bits: &mut Bits<'_>) -> Option<(u32, Picture)> {
    let number = bits.unsigned_up_to(63)?;
    let sequence = bits.unsigned_up_to(15)?;
    bits.skip(1)?;
    let has_output_flag = bits.flag()?;
    let extra_bits = bits.bits(3)?;
    Some((number, Picture { sequence, has_output_flag, extra_bits }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nut::{NutEvent, read_whole};

    /// The result for each packet of a file.
    fn read(file: &[u8]) -> Vec<Result<CodedPicture, BitstreamError>> {
        let mut parser = H265Pictures::default();
        let (events, error) = read_whole(file, 1000, 1 << 20);
        assert!(error.is_none(), "{error:?}");
        let mut pictures = Vec::new();
        for event in events {
            match event {
                NutEvent::Stream(stream) => parser.describe(&stream.description),
                NutEvent::Packet(packet) => pictures.extend(parser.packet(&packet.payload).transpose()),
            }
        }
        pictures
    }

    fn keys(pictures: &[Result<CodedPicture, BitstreamError>]) -> Vec<usize> {
        let is_key = |at: &usize| pictures[*at].as_ref().unwrap().is_key;
        (0..pictures.len()).filter(is_key).collect()
    }

    const CLOSED: &[u8] = include_bytes!("../../tests/streams/h265.nut");
    const OPEN: &[u8] = include_bytes!("../../tests/streams/h265_open.nut");

    #[test]
    fn pictures_and_where_decoding_may_begin_are_known() {
        for (file, size) in [(CLOSED, (64, 48)), (OPEN, (60, 44))] {
            let pictures = read(file);
            assert_eq!((pictures.len(), keys(&pictures)), (10, vec![0, 4, 8]));
            for picture in pictures {
                let picture = picture.unwrap();
                assert_eq!((picture.width, picture.height), size);
                assert!(picture.is_unbroken && picture.is_needed);
            }
        }
    }

    /// The source may repeat its parameter sets, or state them once at the start.
    #[test]
    fn a_key_picture_brings_all_that_decoding_needs_once() {
        let (events, _) = read_whole(CLOSED, 1000, 1 << 20);
        let (mut repeated, mut once) = (H265Pictures::default(), H265Pictures::default());
        let mut keys = 0;
        for event in events {
            let packet = match event {
                NutEvent::Stream(stream) => {
                    once.describe(&stream.description);
                    continue;
                }
                NutEvent::Packet(packet) => packet.payload,
            };
            let mut bare = Vec::new();
            for unit in units_of(&packet).filter(|unit| !matches!(kind(unit), Some(VPS..=PPS))) {
                bare.extend_from_slice(START_CODE);
                bare.extend_from_slice(unit);
            }
            for (parser, packet) in [(&mut repeated, &packet[..]), (&mut once, &bare[..])] {
                let picture = parser.packet(packet).unwrap().unwrap();
                let count =
                    |wanted| units_of(&picture.payload).filter(|unit| kind(unit) == Some(wanted)).count();
                assert_eq!([VPS, SPS, PPS].map(count), [usize::from(picture.is_key); 3]);
                keys += u32::from(picture.is_key);
            }
        }
        assert_eq!(keys, 6);
    }

    #[test]
    fn b_frames_and_other_samples_are_refused_with_what_to_do() {
        let pictures = read(include_bytes!("../../tests/streams/h265_b_frames.nut"));
        let refused = pictures.iter().find_map(|picture| picture.as_ref().err());
        assert_eq!(refused, Some(&BitstreamError::Unfit(Unfit::Reordered)));
        let deep = read(include_bytes!("../../tests/streams/h265_deep.nut"));
        assert_eq!(deep[0], Err(BitstreamError::Unfit(Unfit::Samples { bits: 10, chroma: 1 })));
    }

    #[test]
    fn what_comes_before_a_key_picture_or_behind_damage_is_broken() {
        let (events, _) = read_whole(CLOSED, 1000, 1 << 20);
        let mut parser = H265Pictures::default();
        let mut unbroken = Vec::new();
        for (number, event) in
            events.into_iter().filter(|event| matches!(event, NutEvent::Packet(_))).enumerate()
        {
            let NutEvent::Packet(packet) = event else { continue };
            let mut payload = packet.payload.to_vec();
            if number == 6 {
                // Sets the forbidden bit of the first slice's header byte.
                payload[4] |= 0x80;
            }
            if let Ok(Some(picture)) = parser.packet(&payload) {
                unbroken.push((number, picture.is_unbroken));
            }
        }
        let lost: Vec<usize> = unbroken.iter().filter(|(_, is)| !is).map(|(number, _)| *number).collect();
        assert_eq!((unbroken.len(), lost), (9, vec![7]));
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(mut packet in prop::collection::vec(any::<u8>(), 0..80), kind in any::<u8>()) {
            let mut bytes = vec![0, 0, 0, 1, kind << 1, 1];
            bytes.append(&mut packet);
            let mut parser = H265Pictures::default();
            let _ = parser.packet(CLOSED);
            let _ = parser.packet(&bytes);
            let _ = parser.packet(&bytes);
        }

        #[test]
        fn no_damage_does_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let (events, _) = read_whole(OPEN, 1000, 1 << 20);
            let mut parser = H265Pictures::default();
            for event in events {
                let NutEvent::Packet(packet) = event else { continue };
                let mut payload = packet.payload.to_vec();
                for (at, value) in &changes {
                    let at = at.index(payload.len());
                    payload[at] = *value;
                }
                let _ = parser.packet(&payload);
            }
        }
    }
}
