//! Encodes the header in front of every frame's payload.

use super::codec::{Reader, WireError, Write};
use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, RUNG_BYTES_MAX, Reference, Rung, Sequence,
    SkipRange, SkipReason,
};
use crate::trace::{CameraTrace, Stage};
use crate::units::{Instant, Timestamp};

/// The most ranges of skipped frames in one header. A camera with more ranges merges the oldest.
pub const SKIP_RANGES_MAX: usize = 32;
/// The most bytes of a header, with its length field.
pub const FRAME_HEADER_BYTES_MAX: usize = 1024;

/// The header of a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameHeader {
    /// The description of the frame.
    pub meta: FrameMeta,
    /// How many bytes of payload follow.
    pub payload_bytes: u32,
    /// When the frame's first byte was handed to the link, by the camera's monotonic clock.
    pub sent: Instant,
    /// The accuracy that the profile expects of this rung; `None` without a profile.
    pub expected_accuracy: Option<f64>,
    /// Whether the frame is below an accuracy floor, because no rung that keeps the floor would have been on
    /// time.
    pub infeasible: bool,
    /// Frames of this epoch that will not come, in order, since the last frame known to have arrived.
    pub skipped: Vec<SkipRange>,
    /// The number under which the frame answers a [`HistoryRequest`](super::HistoryRequest). 0: a live frame.
    pub history: u64,
    /// When the frame passed each stage at the camera, by the camera's monotonic clock. Sent in whole
    /// microseconds.
    pub trace: CameraTrace,
}

const FLAG_INFEASIBLE: u8 = 1;
/// The flag that the number of a request for the past follows the payload's size.
const FLAG_PAST: u8 = 2;
/// The flag that stage times follow, after the number of a request if there is one.
const FLAG_TRACE: u8 = 4;
/// The flag that the published width and height follow, after the stage times if
/// there are any. Without the flag, they are equal to the frame's width and height.
const FLAG_SCALED: u8 = 8;

impl FrameHeader {
    /// Appends the header to `out`, with its length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        let meta = &self.meta;
        out.u64(meta.id.epoch.0);
        out.u64(meta.id.sequence.0);
        out.u64(meta.captured.as_nanos());
        out.u8(meta.clock_source as u8);
        out.u8(meta.encoding as u8);
        out.u32(meta.width);
        out.u32(meta.height);
        out.u64(meta.chain.chain.0);
        out.u32(meta.chain.index);
        let (kind, sequence) = meta.chain.reference.code();
        out.u8(kind);
        out.u64(sequence.0);
        out.u64(self.sent.as_nanos());
        out.f64(self.expected_accuracy.unwrap_or(f64::NAN));
        let past = if self.history > 0 { FLAG_PAST } else { 0 };
        let trace = if self.trace.is_empty() { 0 } else { FLAG_TRACE };
        let scaled = if meta.published == (meta.width, meta.height) { 0 } else { FLAG_SCALED };
        out.u8(past | trace | scaled | if self.infeasible { FLAG_INFEASIBLE } else { 0 });
        out.text(meta.rung.as_str(), RUNG_BYTES_MAX);
        let skipped = &self.skipped[..self.skipped.len().min(SKIP_RANGES_MAX)];
        out.u8(skipped.len() as u8);
        for range in skipped {
            out.u64(range.first.0);
            out.u64(range.count);
            out.u8(range.reason as u8);
        }
        out.u32(self.payload_bytes);
        if self.history > 0 {
            out.u64(self.history);
        }
        if !self.trace.is_empty() {
            out.u8(self.trace.iter().count() as u8);
            for (stage, at) in self.trace.iter() {
                out.u8(stage as u8);
                out.i32(micros_between(self.sent, at));
            }
        }
        if scaled != 0 {
            out.u32(meta.published.0);
            out.u32(meta.published.1);
        }
        let length = u16::try_from(out.len() - start - 2).expect("a header is below FRAME_HEADER_BYTES_MAX");
        out[start..start + 2].copy_from_slice(&length.to_le_bytes());
    }

    /// How many bytes [`FrameHeader::encode`] appends.
    pub fn encoded_bytes(&self) -> u32 {
        let mut bytes = Vec::with_capacity(256);
        self.encode(&mut bytes);
        bytes.len() as u32
    }

    /// The size of a header with its length field, from its first two bytes.
    pub fn length(prefix: [u8; 2]) -> Result<usize, WireError> {
        let length = usize::from(u16::from_le_bytes(prefix)) + 2;
        if length > FRAME_HEADER_BYTES_MAX {
            return Err(WireError::TooLong {
                field: "frame header",
                length: length as u64,
                max: FRAME_HEADER_BYTES_MAX as u64,
            });
        }
        Ok(length)
    }

    /// Decodes a header with its length field. Fields that a later version adds at the end are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes);
        r.u16("length")?;
        let id = FrameId { epoch: Epoch(r.u64("epoch")?), sequence: Sequence(r.u64("sequence")?) };
        let captured = Timestamp::from_nanos(r.u64("captured")?);
        let code = r.u8("clock_source")?;
        let clock_source = ClockSource::from_code(code)
            .ok_or(WireError::Value { field: "clock_source", value: code.into() })?;
        let code = r.u8("encoding")?;
        let encoding =
            Encoding::from_code(code).ok_or(WireError::Value { field: "encoding", value: code.into() })?;
        let (width, height) = (r.u32("width")?, r.u32("height")?);
        let (chain, index) = (Sequence(r.u64("chain")?), r.u32("index in chain")?);
        let (kind, sequence) = (r.u8("reference kind")?, Sequence(r.u64("reference")?));
        let reference = Reference::from_code(kind, sequence)
            .ok_or(WireError::Value { field: "reference kind", value: kind.into() })?;
        let sent = Instant::from_nanos(r.u64("sent")?);
        let accuracy = r.f64("expected_accuracy")?;
        let expected_accuracy = (0.0..=1.0).contains(&accuracy).then_some(accuracy);
        let flags = r.u8("flags")?;
        let infeasible = flags & FLAG_INFEASIBLE != 0;
        let rung = Rung::new(r.text("rung", RUNG_BYTES_MAX)?).ok_or(WireError::Text { field: "rung" })?;
        let ranges = usize::from(r.u8("skipped ranges")?);
        if ranges > SKIP_RANGES_MAX {
            return Err(WireError::TooLong {
                field: "skipped ranges",
                length: ranges as u64,
                max: SKIP_RANGES_MAX as u64,
            });
        }
        let mut skipped = Vec::with_capacity(ranges);
        for _ in 0..ranges {
            let (first, count) = (Sequence(r.u64("skipped first")?), r.u64("skipped count")?);
            let code = r.u8("skip reason")?;
            // An unknown reason of a later version still says that the frames will not come.
            let reason = SkipReason::from_code(code).unwrap_or(SkipReason::LateOrLost);
            skipped.push(SkipRange { first, count, reason });
        }
        let payload_bytes = r.u32("payload_bytes")?;
        let history = if flags & FLAG_PAST != 0 { r.u64("history")? } else { 0 };
        let mut trace = CameraTrace::default();
        if flags & FLAG_TRACE != 0 {
            for _ in 0..r.u8("stamps")? {
                let (code, micros) = (r.u8("stage")?, r.i32("stamp")?);
                // A stage of a later version is ignored, and so is a time beyond the end of the clock.
                if let (Some(stage), Some(at)) = (Stage::from_code(code), micros_after(sent, micros)) {
                    trace.stamp(stage, at);
                }
            }
        }
        let published = match flags & FLAG_SCALED {
            0 => (width, height),
            _ => (r.u32("published width")?, r.u32("published height")?),
        };
        let chain = ChainLink { chain, index, reference };
        let meta = FrameMeta { id, captured, clock_source, width, height, published, encoding, rung, chain };
        Ok(Self { meta, payload_bytes, sent, expected_accuracy, infeasible, skipped, history, trace })
    }
}

/// Whole microseconds from `origin` to `at`, rounded down so that the order of instants stays. At most 35
/// minutes either way.
fn micros_between(origin: Instant, at: Instant) -> i32 {
    let micros = (i128::from(at.as_nanos()) - i128::from(origin.as_nanos())).div_euclid(1_000);
    micros.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// The instant `micros` after `origin`, limited to the clock's first instant. `None` if it is after the clock's last instant.
fn micros_after(origin: Instant, micros: i32) -> Option<Instant> {
    let nanos = u64::from(micros.unsigned_abs()) * 1_000;
    let origin = origin.as_nanos();
    let at = if micros < 0 { Some(origin.saturating_sub(nanos)) } else { origin.checked_add(nanos) };
    at.map(Instant::from_nanos)
}
