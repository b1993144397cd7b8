//! Computes the order in which pictures are shown, and detects missing pictures (ITU-T H.264, 8.2.1 and 7.4.3).

use super::sets::{OrderCoding, Sequence};
use super::slice::SliceHeader;

/// State of the pictures before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// The high part of the previous reference picture's order.
    high: i64,
    /// The low part of the previous reference picture's order.
    low: i64,
    /// The previous picture's frame number.
    frame_num: u32,
    /// The previous picture's `FrameNumOffset`: the sum of all wraparounds of the frame number.
    frame_num_offset: i64,
    /// The previous reference picture's frame number.
    reference_frame_num: u32,
    /// The highest order since decoding began.
    newest: Option<i64>,
}

/// A picture's place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// `PicOrderCnt` (8-1).
    pub(super) order: i64,
    /// Whether an earlier decoded picture is shown after this one.
    pub(super) is_reordered: bool,
    /// Number of missing reference pictures before this one.
    pub(super) missing: u32,
}

impl Order {
    /// Computes the place of a picture from the header of its first slice. If it
    /// `begins`, decoding can begin with it, and earlier pictures do not matter.
    pub(super) fn take(&mut self, slice: &SliceHeader, sequence: &Sequence, begins: bool) -> Place {
        let missing = if begins { 0 } else { self.missing(slice, sequence) };
        let offset = self.frame_num_offset(slice, sequence);
        let (top, bottom, high) = match &sequence.order {
            OrderCoding::Bits(count) => self.orders_of_bits(slice, 1 << count),
            OrderCoding::Cycle { non_reference, top_to_bottom, offsets, .. } => {
                let expected = expected(slice, offset, offsets, *non_reference);
                let top = expected.saturating_add(slice.order_deltas[0]);
                let bottom = top.saturating_add(*top_to_bottom).saturating_add(slice.order_deltas[1]);
                (top, bottom, 0)
            }
            // (8-11) to (8-13).
            OrderCoding::Decoding => {
                let twice = offset.saturating_add(slice.frame_num.into()).saturating_mul(2);
                let order = if slice.idr.is_some() || slice.is_reference { twice } else { twice - 1 };
                (order, order, 0)
            }
        };
        let order = top.min(bottom);
        // After an IDR picture, and after one that forgets all references, no earlier picture is shown (C.4.4).
        let begins = begins || slice.forgets_all;
        let is_reordered = !begins && self.newest.is_some_and(|newest| order <= newest);
        self.newest = if begins { None } else { self.newest };
        // After a picture that forgets all references, its order and its number count as 0 (8.2.1, 7.4.3).
        let shown = if slice.forgets_all { 0 } else { order };
        self.newest = Some(self.newest.map_or(shown, |newest| newest.max(shown)));
        if slice.is_reference {
            (self.high, self.low) = (high, slice.order_bits.into());
            self.reference_frame_num = slice.frame_num;
        }
        (self.frame_num, self.frame_num_offset) = (slice.frame_num, offset);
        if slice.forgets_all {
            (self.high, self.low) = (0, top.saturating_sub(order));
            (self.frame_num, self.frame_num_offset, self.reference_frame_num) = (0, 0, 0);
        }
        Place { order, is_reordered, missing }
    }

    /// Number of missing reference pictures, judged by the frame numbers (7.4.3).
    fn missing(&self, slice: &SliceHeader, sequence: &Sequence) -> u32 {
        if slice.idr.is_some() || sequence.gaps_allowed {
            return 0;
        }
        let numbers = 1u32 << sequence.frame_num_bits;
        let expected = (self.reference_frame_num + 1) % numbers;
        (slice.frame_num + numbers - expected) % numbers
    }

    /// `FrameNumOffset` (8-6 and 8-11).
    fn frame_num_offset(&self, slice: &SliceHeader, sequence: &Sequence) -> i64 {
        if slice.idr.is_some() {
            0
        } else if self.frame_num > slice.frame_num {
            self.frame_num_offset.saturating_add(1 << sequence.frame_num_bits)
        } else {
            self.frame_num_offset
        }
    }

    /// Order type 0 (8.2.1.1): the orders of both fields, and the high part.
    fn orders_of_bits(&self, slice: &SliceHeader, range: i64) -> (i64, i64, i64) {
        let (before, low_before) = if slice.idr.is_some() { (0, 0) } else { (self.high, self.low) };
        let low = i64::from(slice.order_bits);
        // (8-3).
        let high = if low < low_before && low_before - low >= range / 2 {
            before.saturating_add(range)
        } else if low > low_before && low - low_before > range / 2 {
            before.saturating_sub(range)
        } else {
            before
        };
        let top = high.saturating_add(low);
        (top, top.saturating_add(slice.order_deltas[0]), high)
    }
}

/// `expectedPicOrderCnt` (8-7 to 8-9).
fn expected(slice: &SliceHeader, offset: i64, offsets: &[i64], non_reference: i64) -> i64 {
    let mut number = if offsets.is_empty() { 0 } else { offset.saturating_add(slice.frame_num.into()) };
    if !slice.is_reference && number > 0 {
        number -= 1;
    }
    let mut order = 0i64;
    if number > 0 {
        let length = offsets.len() as i64;
        let cycle = offsets.iter().fold(0i64, |sum, offset| sum.saturating_add(*offset));
        let within = ((number - 1) % length) as usize;
        order = cycle.saturating_mul((number - 1) / length);
        order = offsets[..=within].iter().fold(order, |sum, offset| sum.saturating_add(*offset));
    }
    if slice.is_reference { order } else { order.saturating_add(non_reference) }
}
