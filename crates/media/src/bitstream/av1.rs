//! Parses the AV1 streams of cameras and files: where decoding can begin.
//!
//! Clauses are those of the AV1 Bitstream & Decoding Process Specification (version 1.0.0 with errata 1). One packet is one temporal
//! unit, in the low-overhead format (5.2), as from ffmpeg. A temporal unit shows one picture. Temporal units come in the order in which
//! they are shown (7.5), whatever is reordered inside them. References are not followed: every picture counts as needed by the next.

use bytes::Bytes;

use super::access::AccessUnitLimits;
use super::error::{BitstreamError, Unfit, damaged};
use super::h265::CodedPicture;

const SEQUENCE: u8 = 1;
const DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;
/// Maximum bytes of a sequence header that is kept.
const SEQUENCE_BYTES_MAX: usize = 4096;

/// The relevant part of a sequence header (5.5).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sequence {
    /// Whether the stream is one still picture. Its frame headers then have no type.
    is_still: bool,
    width: u32,
    height: u32,
    /// The unit, unchanged.
    unit: Vec<u8>,
}

/// Parses an AV1 stream, one temporal unit at a time. Accepts any bytes.
#[derive(Debug, Default)]
pub struct Av1Pictures {
    limits: AccessUnitLimits,
    sequence: Option<Sequence>,
    is_unbroken: bool,
}

impl Av1Pictures {
    /// A parser that has seen no packet.
    #[must_use]
    pub fn new(limits: AccessUnitLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Reads a container's description of the stream: units, or the `av1C` record of ISO files, which has four bytes before its units.
    pub fn describe(&mut self, description: &[u8]) {
        let is_record = description.first() == Some(&0x81);
        let units = description.get(if is_record { 4 } else { 0 }..).unwrap_or_default();
        // A defect shows when a picture needs the sequence header.
        let _ = self.read(units);
    }

    /// The picture of a temporal unit; `None` if it contains none.
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
        let (mut rest, mut after_delimiter) = (packet, 0);
        let (mut key, mut brings_sequence): (Option<bool>, bool) = (None, false);
        while !rest.is_empty() {
            let unit = Unit::cut(&mut rest).ok_or(damaged("a unit is cut off"))?;
            match unit.kind {
                DELIMITER if unit.whole.as_ptr() == packet.as_ptr() => after_delimiter = unit.whole.len(),
                DELIMITER => return Err(damaged("a packet has several temporal units")),
                SEQUENCE => {
                    self.sequence = Some(self.sequence(&unit)?);
                    brings_sequence = true;
                }
                FRAME | FRAME_HEADER if key.is_none() => {
                    let sequence =
                        self.sequence.as_ref().ok_or(damaged("a picture has no sequence header"))?;
                    let header = *unit.payload.first().ok_or(damaged("a frame header is cut off"))?;
                    // show_existing_frame, frame_type (0: a key frame), show_frame.
                    key = Some(sequence.is_still || header & 0b1111_0000 == 0b0001_0000);
                }
                _ => {}
            }
        }
        let (Some(is_key), Some(sequence)) = (key, &self.sequence) else { return Ok(None) };
        self.is_unbroken |= is_key;
        let payload = if is_key && !brings_sequence {
            let (delimiter, pictures) = packet.split_at(after_delimiter);
            Bytes::from([delimiter, &sequence.unit, pictures].concat())
        } else {
            Bytes::copy_from_slice(packet)
        };
        if payload.len() > self.limits.bytes_max {
            return Err(BitstreamError::TooLarge { bytes_max: self.limits.bytes_max });
        }
        let (width, height, is_unbroken) = (sequence.width, sequence.height, self.is_unbroken);
        Ok(Some(CodedPicture { payload, width, height, is_key, is_needed: true, is_unbroken }))
    }

    fn sequence(&self, unit: &Unit<'_>) -> Result<Sequence, BitstreamError> {
        let unreadable = damaged("a sequence header cannot be read");
        if unit.whole.len() > SEQUENCE_BYTES_MAX {
            return Err(unreadable);
        }
        let found = Found::read(&mut Bits { bytes: unit.payload, at: 0 }).ok_or(unreadable)?;
        let Found { is_still, width, height, bits, chroma } = found;
        let pixels_max = self.limits.pixels_max;
        if u64::from(width) * u64::from(height) > pixels_max {
            return Err(Unfit::TooManyPixels { width, height, pixels_max }.into());
        }
        if (bits, chroma) != (8, 1) {
            return Err(Unfit::Samples { bits, chroma }.into());
        }
        Ok(Sequence { is_still, width, height, unit: unit.whole.to_vec() })
    }
}

/// The sequence header unit in a temporal unit, as files store it in their description.
#[must_use]
pub fn av1_sequence_header(packet: &[u8]) -> Option<&[u8]> {
    let mut rest = packet;
    std::iter::from_fn(|| Unit::cut(&mut rest)).find(|unit| unit.kind == SEQUENCE).map(|unit| unit.whole)
}

/// The content of a sequence header.
struct Found {
    is_still: bool,
    width: u32,
    height: u32,
    bits: u32,
    /// Like `chroma_format_idc` of H.264.
    chroma: u32,
}

impl Found {
    /// Reads `sequence_header_obu` (5.5.1).
    fn read(bits: &mut Bits<'_>) -> Option<Self> {
        let profile = bits.take(3)?;
        bits.take(1)?;
        let is_still = bits.flag()?;
        if is_still {
            bits.take(5)?;
        } else {
            operating_points(bits)?;
        }
        let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
        let (width, height) =
            (bits.take(width_bits)?.checked_add(1)?, bits.take(height_bits)?.checked_add(1)?);
        if !is_still && bits.flag()? {
            bits.take(7)?;
        }
        // use_128x128_superblock, enable_filter_intra, enable_intra_edge_filter.
        bits.take(3)?;
        if !is_still {
            tools(bits)?;
        }
        // enable_superres, enable_cdef, enable_restoration.
        bits.take(3)?;
        let (depth, chroma) = colours(bits, profile)?;
        Some(Self { is_still, width, height, bits: depth, chroma })
    }
}

/// Skips timing and operating points.
fn operating_points(bits: &mut Bits<'_>) -> Option<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        // timing_info (5.5.3).
        bits.take(32)?;
        bits.take(32)?;
        if bits.flag()? {
            bits.variable()?;
        }
        if bits.flag()? {
            // decoder_model_info (5.5.4).
            delay_bits = Some(bits.take(5)? + 1);
            bits.take(32)?;
            bits.take(10)?;
        }
    }
    let has_delays = bits.flag()?;
    for _ in 0..=bits.take(5)? {
        bits.take(12)?;
        if bits.take(5)? > 7 {
            bits.take(1)?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.take(delay_bits)?;
            bits.take(delay_bits)?;
            bits.take(1)?;
        }
        if has_delays && bits.flag()? {
            bits.take(4)?;
        }
    }
    Some(())
}

/// Skips the coding tools that pictures may use.
fn tools(bits: &mut Bits<'_>) -> Option<()> {
    // enable_interintra_compound, enable_masked_compound, enable_warped_motion, enable_dual_filter.
    bits.take(4)?;
    let has_order = bits.flag()?;
    if has_order {
        bits.take(2)?;
    }
    let screen = if bits.flag()? { 2 } else { bits.take(1)? };
    if screen > 0 && !bits.flag()? {
        bits.take(1)?;
    }
    if has_order {
        bits.take(3)?;
    }
    Some(())
}

/// Reads `color_config` (5.5.2): bits per sample, and the chroma format.
fn colours(bits: &mut Bits<'_>, profile: u32) -> Option<(u32, u32)> {
    let is_high = bits.flag()?;
    let depth = match (profile, is_high) {
        (2, true) if bits.flag()? => 12,
        (_, true) => 10,
        (_, false) => 8,
    };
    if profile != 1 && bits.flag()? {
        return Some((depth, 0));
    }
    let described = if bits.flag()? { [bits.take(8)?, bits.take(8)?, bits.take(8)?] } else { [2; 3] };
    // sRGB exists only as 4:4:4.
    if described == [1, 13, 0] {
        return Some((depth, 3));
    }
    bits.take(1)?;
    let chroma = match (profile, depth) {
        (0, _) => 1,
        (1, _) => 3,
        (_, 12) if !bits.flag()? => 3,
        (_, 12) if bits.flag()? => 1,
        _ => 2,
    };
    Some((depth, chroma))
}

/// A unit (5.3).
struct Unit<'a> {
    kind: u8,
    payload: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Unit<'a> {
    /// Cuts off the first unit. `None` if it is incomplete.
    fn cut(rest: &mut &'a [u8]) -> Option<Self> {
        let stream = *rest;
        let header = *stream.first().filter(|header| **header & 0x80 == 0)?;
        let mut at = if header & 4 == 0 { 1 } else { 2 };
        let mut size = stream.len().checked_sub(at)?;
        if header & 2 != 0 {
            // leb128 (4.10.5).
            let mut value = 0u64;
            for place in 0..8 {
                let byte = *stream.get(at)?;
                at += 1;
                value |= u64::from(byte & 0x7F) << (7 * place);
                if byte & 0x80 == 0 {
                    break;
                }
            }
            size = usize::try_from(value).ok()?;
        }
        let payload = stream.get(at..)?.get(..size)?;
        let (whole, after) = stream.split_at(at + size);
        *rest = after;
        Some(Self { kind: header >> 3 & 15, payload, whole })
    }
}

/// Reads bits, most significant first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn flag(&mut self) -> Option<bool> {
        let byte = *self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }

    /// f(n), for n up to 32.
    fn take(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0u32, |value, _| Some(value << 1 | u32::from(self.flag()?)))
    }

    /// uvlc (4.10.3).
    fn variable(&mut self) -> Option<()> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        if zeros < 32 {
            self.take(zeros)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nut::{NutEvent, read_whole};

    const SHORT: &[u8] = include_bytes!("../../tests/streams/av1.nut");
    const HIDDEN: &[u8] = include_bytes!("../../tests/streams/av1_hidden.nut");

    fn packets(file: &[u8]) -> Vec<Bytes> {
        let (events, error) = read_whole(file, 1000, 1 << 20);
        assert!(error.is_none(), "{error:?}");
        let packet = |event| match event {
            NutEvent::Packet(packet) => Some(packet.payload),
            NutEvent::Stream(_) => None,
        };
        events.into_iter().filter_map(packet).collect()
    }

    fn read(packets: &[Bytes]) -> Vec<CodedPicture> {
        let mut parser = Av1Pictures::default();
        packets.iter().map(|packet| parser.packet(packet).unwrap().unwrap()).collect()
    }

    #[test]
    fn pictures_and_where_decoding_may_begin_are_known() {
        for (file, keys) in [(SHORT, vec![0, 4, 8]), (HIDDEN, vec![0])] {
            let pictures = read(&packets(file));
            let found: Vec<usize> = (0..pictures.len()).filter(|at| pictures[*at].is_key).collect();
            assert_eq!((pictures.len(), found), (10, keys));
            assert!(pictures.iter().all(|picture| (picture.width, picture.height) == (64, 48)));
            assert!(pictures.iter().all(|picture| picture.is_unbroken && picture.is_needed));
        }
    }

    /// The source need not repeat the sequence header.
    #[test]
    fn a_key_picture_has_a_sequence_header() {
        let mut packets = packets(SHORT);
        let whole = read(&packets);
        let key = packets[4].clone();
        let mut rest = &key[..];
        assert_eq!(Unit::cut(&mut rest).unwrap().kind, SEQUENCE);
        packets[4] = Bytes::copy_from_slice(rest);
        assert_eq!(read(&packets), whole);
        // After the delimiter, if there is one.
        let delimiter = [DELIMITER << 3 | 2, 0];
        packets[4] = [&delimiter, rest].concat().into();
        let shown = &read(&packets)[4];
        assert!(shown.is_key && shown.payload == [&delimiter[..], &whole[4].payload].concat());
    }

    #[test]
    fn what_needs_what_did_not_come_is_broken_and_other_samples_are_refused() {
        let packets = packets(SHORT);
        let mut parser = Av1Pictures::default();
        assert!(parser.packet(&packets[1]).is_err(), "nothing is known of the stream");
        parser.describe(&packets[0]);
        let mut parsed = Av1Pictures::default();
        let _ = parsed.packet(&packets[0]);
        assert!(parsed.packet(&packets[1][..9]).is_err());
        assert!(!parsed.packet(&packets[2]).unwrap().unwrap().is_unbroken);
        assert!(parsed.packet(&packets[4]).unwrap().unwrap().is_unbroken);
        let deep = self::packets(include_bytes!("../../tests/streams/av1_deep.nut"));
        let refused = Av1Pictures::default().packet(&deep[0]);
        assert_eq!(refused, Err(BitstreamError::Unfit(Unfit::Samples { bits: 10, chroma: 1 })));
    }

    proptest! {
        #[test]
        fn no_damage_does_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut parser = Av1Pictures::default();
            for packet in packets(HIDDEN) {
                let mut packet = packet.to_vec();
                for (at, value) in &changes {
                    let at = at.index(packet.len());
                    packet[at] = *value;
                }
                parser.describe(&packet);
                let _ = parser.packet(&packet);
            }
        }
    }
}
