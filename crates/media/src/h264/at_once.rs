//! Makes openh264 show each picture of a source's stream as soon as it is decoded.

use std::borrow::Cow;

use super::bits::{BitReader, BitWriter, escape, unescape, units};

/// `profile_idc` of scalable baseline. Its sequence parameter sets have the syntax of the high profile.
const SCALABLE_BASELINE: u8 = 83;
/// Profiles whose pictures openh264 shows immediately: baseline, and scalable baseline.
const SHOWN_AT_ONCE: [u8; 2] = [66, SCALABLE_BASELINE];
/// Profiles whose sequence parameter sets do not describe the samples: main and extended.
const WITHOUT_SAMPLES: [u8; 2] = [77, 88];

/// Returns the picture as part of a stream of which openh264 delays no picture.
///
/// Pictures of the main and high profiles may be reordered, so openh264 shows each of them only after the next has come (`ReorderPicturesInDisplay`).
/// Mez accepts only streams without reordering ([`crate::bitstream`]). The library decides by the profile alone, so its copy of the stream gets
/// another profile. Decoding is the same. (A flush after every picture would show it too, but leak the memory of one picture each time.)
pub(super) fn shown_at_once(payload: &[u8]) -> Cow<'_, [u8]> {
    let keeps_back = |unit: &[u8]| {
        unit[0] & 0x1F == 7 && unit.get(1).is_some_and(|profile| !SHOWN_AT_ONCE.contains(profile))
    };
    if !units(payload).any(keeps_back) {
        return Cow::Borrowed(payload);
    }
    let mut renamed = Vec::with_capacity(payload.len() + 32);
    for unit in units(payload) {
        // A set that cannot be read is passed unchanged: the codec refuses it.
        if !keeps_back(unit) || rename(unit, &mut renamed).is_none() {
            renamed.extend_from_slice(&[0, 0, 0, 1]);
            renamed.extend_from_slice(unit);
        }
    }
    Cow::Owned(renamed)
}

/// Appends a sequence parameter set (ITU-T H.264, 7.3.2.1.1) as one of [`SCALABLE_BASELINE`].
fn rename(unit: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    let profile = u8::try_from(reader.bits(8)?).ok()?;
    let (flags_and_level, id) = (reader.bits(16)?, reader.unsigned()?);
    let mut writer = BitWriter::default();
    writer.bits(SCALABLE_BASELINE.into(), 8);
    writer.bits(flags_and_level, 16);
    writer.unsigned(id);
    if WITHOUT_SAMPLES.contains(&profile) {
        // chroma_format_idc 1, 8 bits for luma and chroma, no transform bypass, no scaling matrix.
        writer.unsigned(1);
        writer.unsigned(0);
        writer.unsigned(0);
        writer.bits(0, 2);
    }
    escape(unit[0], &writer.rest(&payload, reader.at)?, out);
    Some(())
}
