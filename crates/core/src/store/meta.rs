//! Encodes and decodes a record's description of its frame, in plain form. It is encrypted before it is
//! stored.

use std::sync::Arc;

use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, RUNG_BYTES_MAX, Reference, Rung, Sequence,
    SkipRange, SkipReason,
};
use crate::units::Timestamp;
use crate::wire::codec::{Reader, WireError, Write};

/// The most ranges of skipped frames in a record. If there are more, the last ones are
/// merged into one. This limit bounds the description, whose length is a field of 16 bits.
pub const STORED_SKIP_RANGES_MAX: usize = 256;
/// The most bytes of a description. One range takes 17 bytes: first, count and reason.
pub(super) const BYTES_MAX: usize = BYTES_FIXED + RUNG_BYTES_MAX + STORED_SKIP_RANGES_MAX * 17;
/// Bytes of the description of a chained and scaled frame, without its rung and its skipped ranges.
const BYTES_FIXED: usize = 8 + 8 + 1 + 1 + 4 + 4 + 1 + (8 + 4 + 1 + 8) + (4 + 4) + 2 + 2;
/// Bytes of a usual description, without skipped frames. The writer reserves this much.
pub(super) const BYTES_TYPICAL: usize = 96;

const FLAG_CHAINED: u8 = 1;
const FLAG_SCALED: u8 = 2;

/// Appends the description. The epoch is in the segment's header. The frame's arrival time is not stored, because its clock ends with the broker.
pub(super) fn encode(meta: &FrameMeta, skipped: &[SkipRange], out: &mut Vec<u8>) {
    out.u64(meta.id.sequence.0);
    out.u64(meta.captured.as_nanos());
    out.u8(meta.clock_source as u8);
    out.u8(meta.encoding as u8);
    out.u32(meta.width);
    out.u32(meta.height);
    let chained = meta.chain != ChainLink::still(meta.id.sequence);
    let scaled = meta.published != (meta.width, meta.height);
    out.u8(if chained { FLAG_CHAINED } else { 0 } | if scaled { FLAG_SCALED } else { 0 });
    if chained {
        out.u64(meta.chain.chain.0);
        out.u32(meta.chain.index);
        let (kind, sequence) = meta.chain.reference.code();
        out.u8(kind);
        out.u64(sequence.0);
    }
    if scaled {
        out.u32(meta.published.0);
        out.u32(meta.published.1);
    }
    out.text(meta.rung.as_str(), RUNG_BYTES_MAX);
    let kept = skipped.len().min(STORED_SKIP_RANGES_MAX);
    out.u16(kept as u16);
    for (place, range) in skipped[..kept].iter().enumerate() {
        let last = place + 1 == STORED_SKIP_RANGES_MAX;
        let end = if last { skipped[skipped.len() - 1].end() } else { range.end() };
        out.u64(range.first.0);
        out.u64(end.0.saturating_sub(range.first.0));
        out.u8(range.reason as u8);
    }
}

/// Decodes a description.
pub(super) fn decode(epoch: Epoch, bytes: &[u8]) -> Result<(FrameMeta, Arc<[SkipRange]>), WireError> {
    let mut r = Reader::new(bytes);
    let id = FrameId { epoch, sequence: Sequence(r.u64("sequence")?) };
    let captured = Timestamp::from_nanos(r.u64("captured")?);
    let code = r.u8("clock source")?;
    let clock_source =
        ClockSource::from_code(code).ok_or(WireError::Value { field: "clock source", value: code.into() })?;
    let code = r.u8("encoding")?;
    let encoding =
        Encoding::from_code(code).ok_or(WireError::Value { field: "encoding", value: code.into() })?;
    let (width, height) = (r.u32("width")?, r.u32("height")?);
    let flags = r.u8("flags")?;
    if flags & !(FLAG_CHAINED | FLAG_SCALED) != 0 {
        return Err(WireError::Value { field: "flags", value: flags.into() });
    }
    let chain = match flags & FLAG_CHAINED {
        0 => ChainLink::still(id.sequence),
        _ => {
            let (chain, index) = (Sequence(r.u64("chain")?), r.u32("index in chain")?);
            let (kind, sequence) = (r.u8("reference kind")?, Sequence(r.u64("reference")?));
            let reference = Reference::from_code(kind, sequence)
                .ok_or(WireError::Value { field: "reference kind", value: kind.into() })?;
            ChainLink { chain, index, reference }
        }
    };
    let published = match flags & FLAG_SCALED {
        0 => (width, height),
        _ => (r.u32("published width")?, r.u32("published height")?),
    };
    let rung = Rung::new(r.text("rung", RUNG_BYTES_MAX)?).ok_or(WireError::Text { field: "rung" })?;
    let ranges = usize::from(r.u16("skipped ranges")?);
    if ranges > STORED_SKIP_RANGES_MAX {
        let (length, max) = (ranges as u64, STORED_SKIP_RANGES_MAX as u64);
        return Err(WireError::TooLong { field: "skipped ranges", length, max });
    }
    let mut skipped = Vec::with_capacity(ranges);
    for _ in 0..ranges {
        let (first, count) = (Sequence(r.u64("skipped first")?), r.u64("skipped count")?);
        let code = r.u8("skip reason")?;
        let reason = SkipReason::from_code(code)
            .ok_or(WireError::Value { field: "skip reason", value: code.into() })?;
        skipped.push(SkipRange { first, count, reason });
    }
    r.finish()?;
    let meta = FrameMeta { id, captured, clock_source, width, height, published, encoding, rung, chain };
    Ok((meta, skipped.into()))
}
