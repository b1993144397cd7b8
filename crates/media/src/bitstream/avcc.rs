//! NAL units in containers: each after its length, with the parameter sets stored separately (ISO/IEC 14496-15, 5.3.3).

use memchr::memmem;

use super::error::{BitstreamError, damaged};

/// How a packet contains its NAL units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Each after a start code (ITU-T H.264, annex B).
    AnnexB,
    /// Each after its length, which has this many bytes: 1, 2 or 4.
    Lengths(usize),
}

/// A container's description of its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Configuration<'a> {
    pub(super) framing: Framing,
    /// Sequence and picture parameter sets.
    pub(super) sets: Vec<&'a [u8]>,
}

impl<'a> Configuration<'a> {
    /// Reads an `AVCDecoderConfigurationRecord` (5.3.3.1.2). Ignores its end, which some writers omit.
    pub(super) fn read(record: &'a [u8]) -> Result<Self, BitstreamError> {
        let cut_off = || damaged("the container's codec description is cut off");
        let &[version, _, _, _, length, sequences, ref rest @ ..] = record else { return Err(cut_off()) };
        if version != 1 {
            return Err(damaged("the container's codec description has an unknown version"));
        }
        let framing = match length & 3 {
            0 => Framing::Lengths(1),
            1 => Framing::Lengths(2),
            3 => Framing::Lengths(4),
            _ => return Err(damaged("the container states a length of three bytes, which is reserved")),
        };
        let mut rest = rest;
        let mut sets = Vec::new();
        take_sets(&mut rest, sequences & 0x1F, &mut sets).ok_or_else(cut_off)?;
        let (&pictures, after) = rest.split_first().ok_or_else(cut_off)?;
        rest = after;
        take_sets(&mut rest, pictures, &mut sets).ok_or_else(cut_off)?;
        let sets = sets.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { framing, sets })
    }
}

fn take_sets<'a>(rest: &mut &'a [u8], count: u8, sets: &mut Vec<&'a [u8]>) -> Option<()> {
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        *rest = after;
        sets.push(set);
    }
    Some(())
}

/// Takes the next unit from the front of a packet. `None` at the packet's end.
pub(super) fn next_unit<'a>(
    rest: &mut &'a [u8],
    length_bytes: usize,
) -> Option<Result<&'a [u8], BitstreamError>> {
    if rest.is_empty() {
        return None;
    }
    let unit = rest.split_at_checked(length_bytes).and_then(|(length, after)| {
        let length = length.iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
        let (unit, after) = after.split_at_checked(length)?;
        *rest = after;
        Some(unit)
    });
    Some(match unit {
        Some(unit) => checked(unit),
        None => {
            *rest = &[];
            Err(damaged("a unit is longer than the packet that holds it"))
        }
    })
}

/// Checks that a unit stays one unit after a start code: removes zeros at its end, and refuses a start code in it (ITU-T H.264, 7.4.1 forbids both).
fn checked(unit: &[u8]) -> Result<&[u8], BitstreamError> {
    let len = unit.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let unit = &unit[..len];
    let is_start = |at: usize| unit.get(at + 2).is_some_and(|&byte| byte <= 1);
    if memmem::find_iter(unit, &[0, 0]).any(is_start) {
        return Err(damaged("a unit has a start code in it"));
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(mut packet: &[u8], length_bytes: usize) -> Vec<Result<&[u8], BitstreamError>> {
        std::iter::from_fn(|| next_unit(&mut packet, length_bytes)).collect()
    }

    #[test]
    fn lengths_lead_from_unit_to_unit() {
        assert_eq!(units(b"\0\0\0\x02ab\0\0\0\x01c", 4), [Ok(&b"ab"[..]), Ok(b"c")]);
        assert_eq!(units(b"\0\x02ab\0\0\0\x01c", 2), [Ok(&b"ab"[..]), Ok(b""), Ok(b"c")]);
        assert_eq!(units(b"\x02ab\x01c", 1), [Ok(&b"ab"[..]), Ok(b"c")]);
        for cut in [&b"\x02a"[..], b"\xFF", b"\x01a\x02b"] {
            assert!(units(cut, 1).last().unwrap().is_err(), "{cut:?}");
        }
        assert!(units(b"\0\0", 4)[0].is_err());
        assert!(units(b"\xFF\xFF\xFF\xFFa", 4)[0].is_err());
    }

    /// After start codes, it would become two units.
    #[test]
    fn a_unit_with_a_start_code_in_it_is_refused() {
        for unit in [&b"\x05a\0\0\x01b"[..], b"\x05a\0\0\0b", b"\x05\0\0\0\x01b"] {
            assert!(units(unit, 1)[0].is_err(), "{unit:?}");
        }
        assert_eq!(units(b"\x04a\0\0\x03", 1), [Ok(&b"a\0\0\x03"[..])]);
        assert_eq!(units(b"\x04a\x02\0\0\x01b", 1), [Ok(&b"a\x02"[..]), Ok(b"b")]);
    }

    #[test]
    fn a_description_gives_the_sets_and_the_length_of_lengths() {
        let record = b"\x01\x42\xC0\x1E\xFF\xE1\0\x03\x67ab\x02\0\x02\x68c\0\x01\x68rest";
        let read = Configuration::read(record).unwrap();
        assert_eq!(read.framing, Framing::Lengths(4));
        assert_eq!(read.sets, [&b"\x67ab"[..], b"\x68c", b"\x68"]);
        for len in 0..18 {
            assert!(Configuration::read(&record[..len]).is_err(), "{len} bytes");
        }
        let mut reserved = *record;
        reserved[4] = 0xFE;
        assert!(Configuration::read(&reserved).is_err());
        reserved[0] = 2;
        assert!(Configuration::read(&reserved).is_err());
    }
}
