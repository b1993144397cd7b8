//! Rewrites the parameter sets of x264 for Mez's decoder.
//!
//! The sets must allow as many reference frames as `slice` has slots, not as many as x264 keeps.

use crate::h264::bits::{BitReader, BitWriter, escape, unescape};
use crate::h264::slice::SLOTS;

/// Appends Mez's sequence parameter set, with the profile and level of x264's.
pub(super) fn sequence(
    unit: &[u8],
    (width, height): (u32, u32),
    frame_num_bits: u32,
    out: &mut Vec<u8>,
) -> Option<()> {
    let payload = unescape(unit);
    let mut writer = BitWriter::default();
    // profile_idc, constraint flags, level_idc.
    payload.get(..3)?.iter().for_each(|&byte| writer.bits(byte.into(), 8));
    // seq_parameter_set_id; pictures are shown in the order of the stream (pic_order_cnt_type 2).
    writer.unsigned(0);
    writer.unsigned(frame_num_bits.checked_sub(4)?);
    writer.unsigned(2);
    writer.unsigned(SLOTS as u32);
    // gaps_in_frame_num_value_allowed_flag: a receiver that lost a frame sees a gap.
    writer.bits(1, 1);
    let blocks = [width.div_ceil(16), height.div_ceil(16)];
    blocks.iter().for_each(|blocks| writer.unsigned(blocks - 1));
    // frame_mbs_only_flag, direct_8x8_inference_flag.
    writer.bits(0b11, 2);
    let [right, bottom] = [(blocks[0] * 16 - width) / 2, (blocks[1] * 16 - height) / 2];
    let crop = right > 0 || bottom > 0;
    writer.bits(crop.into(), 1);
    if crop {
        [0, right, 0, bottom].iter().for_each(|&by| writer.unsigned(by));
    }
    usability(&mut writer);
    // The stop bit.
    escape(unit[0], &writer.rest(&[0x80], 0)?, out);
    Some(())
}

/// Writes the VUI parameters: the meaning of samples, and that no picture is reordered (annex E).
fn usability(writer: &mut BitWriter) {
    writer.bits(1, 1);
    // No aspect ratio, no overscan.
    writer.bits(0, 2);
    // Full range, BT.601 with the primaries and the transfer curve of sRGB, as in JPEG.
    writer.bits(1, 1);
    writer.bits(5, 3);
    writer.bits(0b11, 2);
    [1, 13, 6].iter().for_each(|&code| writer.bits(code, 8));
    // No chroma location, timing, HRD parameters of either kind, or picture structure.
    writer.bits(0, 5);
    // bitstream_restriction: vectors may point outside, no limits of sizes, longest vectors, no reordering.
    writer.bits(0b11, 2);
    [0, 0, 16, 16, 0, SLOTS as u32].iter().for_each(|&value| writer.unsigned(value));
}

/// Appends an independent slice, changed so that its picture goes to slot 0. x264 does not make it a long-term reference.
pub(super) fn independent(unit: &[u8], frame_num_bits: u32, out: &mut Vec<u8>) -> Option<()> {
    let mut payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    // first_mb_in_slice, slice_type, pic_parameter_set_id.
    for _ in 0..3 {
        reader.unsigned()?;
    }
    reader.bits(frame_num_bits)?;
    // idr_pic_id; no_output_of_prior_pics_flag, long_term_reference_flag.
    reader.unsigned()?;
    reader.flag()?;
    let at = reader.at;
    if reader.flag()? {
        return None;
    }
    payload[at / 8] |= 0x80 >> (at % 8);
    escape(unit[0], &payload, out);
    Some(())
}

/// Appends a picture parameter set unchanged. `None` if slices of x264 with this set cannot be rewritten.
pub(super) fn pictures(unit: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let payload = unescape(unit);
    let mut reader = BitReader::new(&payload);
    // pic_parameter_set_id, seq_parameter_set_id.
    let sets = [reader.unsigned()?, reader.unsigned()?];
    // Another header shifts the data by some bits. Arithmetic-coded data must stay aligned to bytes.
    let arithmetic = reader.flag()?;
    // bottom_field_pic_order_in_frame_present_flag, num_slice_groups_minus1.
    let plain = !reader.flag()? && reader.unsigned()? == 0;
    // num_ref_idx_l0_default_active_minus1, num_ref_idx_l1_default_active_minus1.
    let one_reference = reader.unsigned()? == 0;
    reader.unsigned()?;
    let weighted = reader.bits(3)? != 0;
    // pic_init_qp_minus26, pic_init_qs_minus26, chroma_qp_index_offset.
    for _ in 0..3 {
        reader.unsigned()?;
    }
    // deblocking_filter_control_present_flag, constrained_intra_pred_flag.
    reader.bits(2)?;
    let redundant = reader.flag()?;
    if sets != [0, 0] || arithmetic || !plain || !one_reference || weighted || redundant {
        return None;
    }
    out.extend_from_slice(&[0, 0, 0, 1]);
    out.extend_from_slice(unit);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h264::slice;

    /// The reader that decides what a decoder gets reads the set as it was written.
    #[test]
    fn sequences_are_read_as_they_are_written() {
        for (size, coded) in [((768, 576), (768, 576)), ((16, 16), (16, 16)), ((50, 38), (64, 48))] {
            let mut out = Vec::new();
            sequence(&[0x67, 66, 0xC0, 31], size, 5, &mut out).unwrap();
            let read = slice::sequence(&out[4..]).unwrap();
            assert_eq!((read.width, read.height), coded);
            assert_eq!((read.frame_num_bits, read.reference_frames), (5, SLOTS as u32));
        }
    }
}
