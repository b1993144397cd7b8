//! Makes payloads cheaply: each is a window of one block of random bytes. Also defines what the world and its rules must agree on: frames of the
//! past, degraded data records, replies, and encoded messages.

use std::sync::OnceLock;

use bytes::Bytes;
use mez_core::data::DataRecord;
use mez_core::frame::FrameId;
use mez_core::setting::{DataKnobs, DeclaredKnobs, KnobValue};
use mez_core::wire::{Message, ReplyResult};

use crate::random::Random;

/// The size of the block and of the largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 4 << 20;
/// The distance between the windows of successive payloads, in bytes. It is odd, so that windows repeat late.
const STEP_BYTES: u64 = 65_537;

/// The payload of the `number`th frame of a world. Two frames of one length differ if their numbers are less than four million apart.
pub fn payload(number: u64, bytes: u32) -> Bytes {
    let places = u64::from(PAYLOAD_BYTES_MAX - bytes) + 1;
    let start = (number.wrapping_mul(STEP_BYTES) % places) as usize;
    block().slice(start..start + bytes as usize)
}

/// Copies bytes, as if another host had received them. The sender's log can then evict its own.
pub fn received(payload: &Bytes) -> Bytes {
    let (block, begin) = (block(), payload.as_ptr() as usize);
    let within =
        begin >= block.as_ptr() as usize && begin + payload.len() <= block.as_ptr() as usize + block.len();
    // A payload from a disk lies outside the block.
    if within { block.slice_ref(payload) } else { Bytes::copy_from_slice(payload) }
}

/// The rung at which applications ask for frames of the past, unless they ask for originals.
pub const PAST_RUNG: &str = "jpeg/w32/q50/420";

/// Makes the smaller payload that a frame of the past has at any rung but the original.
pub fn reduced(payload: &Bytes) -> Bytes {
    payload.slice(..payload.len().div_ceil(3))
}

/// The values of the knob of data records: the percentage of a record that is kept, and the accuracy of this value.
pub const KEPT: [(u32, f64); 4] = [(10, 0.7), (25, 0.85), (50, 0.93), (75, 0.97)];

/// The knobs of cameras that declare knobs. One record in two may be left out.
pub fn knobs() -> DeclaredKnobs {
    let values = KEPT.map(|(percent, _)| KnobValue::from_f64(percent.into()).expect("a small number"));
    DeclaredKnobs::new(vec![("keep".into(), values.to_vec())], vec![1]).expect("a name, and few values")
}

/// A data record as encoded at a rung. `None`: the payload is not a data record, or the rung has no knob.
pub fn degraded(payload: &Bytes, knobs: &DataKnobs) -> Option<Bytes> {
    let record = DataRecord::decode(payload).ok()?;
    let (_, percent) = knobs.iter().next()?;
    let bytes = (record.body.len() * percent.whole()? as usize).div_ceil(100).clamp(1, record.body.len());
    Some(DataRecord { body: record.body.slice(..bytes), ..record }.encode())
}

/// An application's reply to a frame: typed and opaque in turn. No broker interprets replies.
pub fn reply_to(frame: FrameId) -> ReplyResult {
    let bytes = frame.to_string().into();
    match frame.sequence.0 % 2 {
        0 => ReplyResult::Detections(bytes),
        _ => ReplyResult::Opaque(bytes),
    }
}

/// A message as encoded on a link.
pub fn encoded(message: &Message) -> Bytes {
    let mut bytes = Vec::with_capacity(64);
    message.encode(&mut bytes);
    bytes.into()
}

fn block() -> &'static Bytes {
    static BLOCK: OnceLock<Bytes> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut random = Random::seeded(0x006d_657a);
        (0..PAYLOAD_BYTES_MAX / 4).flat_map(|_| (random.next_u64() as u32).to_le_bytes()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_and_numbers_repeat_nothing_soon() {
        let first: Vec<Bytes> = (0..100).map(|number| payload(number, 1000)).collect();
        for (index, one) in first.iter().enumerate() {
            assert!(first[index + 1..].iter().all(|other| one != other));
        }
        assert_eq!(payload(7, 1000), first[7]);
    }
}
