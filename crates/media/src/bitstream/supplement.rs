//! Supplemental enhancement information (ITU-T H.264, 7.3.2.3 and annex D). Only the recovery point matters here.

use super::bits::Bits;

/// `payloadType` of a recovery point (D.1).
const RECOVERY_POINT: u32 = 6;
/// Maximum number of messages in one unit that are read.
const MESSAGES_MAX: usize = 32;

/// `recovery_frame_cnt` of the recovery point in a unit; `None` if there is none. A
/// decoder that begins here shows complete pictures after this many frames (D.2.8).
pub(super) fn recovery_point(unit: &[u8]) -> Option<u32> {
    let mut bits = Bits::of_unit(unit);
    for _ in 0..MESSAGES_MAX {
        if !bits.has_more() {
            return None;
        }
        let kind = number(&mut bits)?;
        let size = number(&mut bits)?;
        if kind == RECOVERY_POINT {
            return bits.unsigned_up_to(65_535);
        }
        bits.skip(size.checked_mul(8)?)?;
    }
    None
}

/// Reads a number that is coded as the sum of bytes. All bytes but the last are 255.
fn number(bits: &mut Bits<'_>) -> Option<u32> {
    let mut sum = 0u32;
    loop {
        let byte = bits.byte()?;
        sum = sum.checked_add(byte.into())?;
        if byte != 255 {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_point_is_found_behind_other_messages() {
        // A message of 300 bytes, then a recovery point: ue(0), exact_match_flag, broken_link_flag, changing_slice_group_idc.
        let mut unit = vec![0x06, 5, 255, 45];
        unit.extend_from_slice(&[9; 300]);
        let before = unit.clone();
        unit.extend_from_slice(&[6, 1, 0b1100_0100, 0x80]);
        assert_eq!(recovery_point(&unit), Some(0));
        assert_eq!(recovery_point(&[0x06, 6, 1, 0b0010_1100, 0x80]), Some(4));
        for other in [&before[..], &before[..100], &[0x06], &[0x06, 6], &[0x06, 255, 255], &[]] {
            assert_eq!(recovery_point(other), None);
        }
    }
}
