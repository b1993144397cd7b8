//! Describes a frame: its identity, its rung, the frames that it needs to be decoded, and the frames skipped
//! before it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::units::Timestamp;

/// The default limit on one frame's payload. It leaves room for a raw 4K BGR frame, which has 24.9 MB.
pub const FRAME_BYTES_MAX: u32 = 32 << 20;
/// The highest limit that an operator can give a broker. It leaves room for a raw 8K BGR frame, which has
/// 99.5 MB.
pub const FRAME_BYTES_CEILING: u32 = 256 << 20;
/// The most bytes in the name of a rung. The longest name of a setting has as many.
pub const RUNG_BYTES_MAX: usize = 64;

/// Counts the starts of one camera broker. It is kept on disk and grows by one at every start, so that
/// `(epoch, sequence)` orders frames whatever the wall clock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A frame's number within its epoch, from 0, without holes at the camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The number after this one. The highest number is its own successor.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Identifies a frame of one camera. Frames are ordered by their identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    /// The camera broker's start.
    pub epoch: Epoch,
    /// The frame's number since that start.
    pub sequence: Sequence,
}

impl FrameId {
    /// The next identity of the same epoch. No other identity lies between the two.
    pub const fn next(self) -> Self {
        Self { epoch: self.epoch, sequence: Sequence(self.sequence.0.saturating_add(1)) }
    }
}

impl fmt::Display for FrameId {
    /// `3/1042`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch.0, self.sequence.0)
    }
}

/// How a payload's pixels are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// A JPEG image.
    Jpeg = 1,
    /// A PNG image.
    Png = 2,
    /// Rows of 8-bit blue, green, red without padding.
    Bgr8 = 3,
    /// Rows of 8-bit grey without padding.
    Gray8 = 4,
    /// One picture of an H.264 stream (Annex B), part of a chain.
    H264 = 5,
    /// JPEG of the tiles that changed (`docs/tiles.md`), part of a chain.
    Tiles = 6,
    /// No picture: a [data record](crate::data), without width and height.
    Data = 7,
    /// One picture of a source's own H.265 stream (Annex B), part of a chain.
    H265 = 8,
    /// One picture of a source's own AV1 stream (a temporal unit in the low-overhead format), part of a chain.
    Av1 = 9,
}

impl Encoding {
    /// All encodings, in the order of their wire codes.
    pub const ALL: [Self; 9] = [
        Self::Jpeg,
        Self::Png,
        Self::Bgr8,
        Self::Gray8,
        Self::H264,
        Self::Tiles,
        Self::Data,
        Self::H265,
        Self::Av1,
    ];

    /// The encoding with this wire code, if this version knows it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| *encoding as u8 == code)
    }

    /// The encoding with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.name() == name)
    }

    /// Whether a frame of this encoding may need other frames to be decoded.
    pub const fn is_chained(self) -> bool {
        matches!(self, Self::H264 | Self::Tiles) || self.is_foreign()
    }

    /// Whether this is video of sources that Mez neither encodes nor decodes itself. Decoding needs the platform's decoder.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Self::H265 | Self::Av1)
    }

    /// Whether the payload is a picture. If not, it is a [data record](crate::data).
    pub const fn is_picture(self) -> bool {
        !matches!(self, Self::Data)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Bgr8 => "bgr8",
            Self::Gray8 => "gray8",
            Self::H264 => "h264",
            Self::Tiles => "tiles",
            Self::Data => "data",
            Self::H265 => "h265",
            Self::Av1 => "av1",
        }
    }
}

/// Where a capture time came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClockSource {
    /// The camera broker stamped the frame when it was published.
    Broker = 1,
    /// The publisher gave the time.
    Publisher = 2,
}

impl ClockSource {
    /// The source with this code on the wire and on disk, if this version knows it.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Broker),
            2 => Some(Self::Publisher),
            _ => None,
        }
    }
}

/// The canonical name of one setting of all knobs, such as `original` or `jpeg/w1920/q80/420`. Cheap to clone.
/// [`crate::setting`] has the grammar and the parsed form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rung(Arc<str>);

impl Rung {
    /// The frame as it was published.
    pub const ORIGINAL: &'static str = "original";

    /// A rung by its name; `None` if the name is empty, too long or not printable ASCII.
    pub fn new(name: &str) -> Option<Self> {
        let ok =
            !name.is_empty() && name.len() <= RUNG_BYTES_MAX && name.bytes().all(|b| b.is_ascii_graphic());
        ok.then(|| Self(name.into()))
    }

    /// The rung of unmodified frames.
    pub fn original() -> Self {
        Self(Self::ORIGINAL.into())
    }

    /// The canonical name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A frame's place among the frames that it needs in order to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// The sequence of the chain's first frame, which names the chain.
    pub chain: Sequence,
    /// The frame's place in the chain. 0 is the keyframe. A still is a chain of one.
    pub index: u32,
    /// The frame that the decoder must hold.
    pub reference: Reference,
}

impl ChainLink {
    /// A chain of one: a frame that decodes by itself.
    pub const fn still(sequence: Sequence) -> Self {
        Self { chain: sequence, index: 0, reference: Reference::Independent }
    }
}

/// The chained encodings that a receiver decodes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainKinds {
    /// One bit for each encoding, by wire code.
    codes: u16,
}

impl ChainKinds {
    /// No chained encoding.
    pub const NONE: Self = Self { codes: 0 };

    /// The chained encodings among `encodings`.
    pub const fn among(encodings: &[Encoding]) -> Self {
        let (mut codes, mut rest) = (0, encodings);
        while let [first, others @ ..] = rest {
            if first.is_chained() {
                codes |= 1 << *first as u8;
            }
            rest = others;
        }
        Self { codes }
    }

    /// Whether the receiver decodes no chained encoding.
    pub const fn is_none(self) -> bool {
        self.codes == 0
    }

    /// Whether the receiver takes frames of this encoding. It always takes stills.
    pub const fn takes(self, encoding: Encoding) -> bool {
        !encoding.is_chained() || self.codes & (1 << encoding as u8) != 0
    }
}

/// The frame that must be decoded before this one can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// No frame: the frame stands alone.
    Independent,
    /// The previous frame of the chain, whose index is one less. If no frame refers further back, the decoder needs all earlier frames of the chain.
    Previous,
    /// The frame with this sequence, which the receiver has acknowledged.
    Acknowledged(Sequence),
}

impl Reference {
    /// The code on the wire and on disk, and the sequence that belongs to it (0 if none does).
    pub const fn code(self) -> (u8, Sequence) {
        match self {
            Self::Independent => (0, Sequence(0)),
            Self::Previous => (1, Sequence(0)),
            Self::Acknowledged(sequence) => (2, sequence),
        }
    }

    /// The reference with this code and sequence, if this version knows it.
    pub const fn from_code(code: u8, sequence: Sequence) -> Option<Self> {
        match code {
            0 => Some(Self::Independent),
            1 => Some(Self::Previous),
            2 => Some(Self::Acknowledged(sequence)),
            _ => None,
        }
    }
}

/// The description of a frame: everything but its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameMeta {
    /// Identity and order.
    pub id: FrameId,
    /// When the frame was captured; strictly increasing within an epoch.
    pub captured: Timestamp,
    /// Where the capture time came from.
    pub clock_source: ClockSource,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Width and height, in pixels, of the frame as it was published. They differ from `width` and `height` if
    /// the rung scales. Results of applications are in these pixels.
    pub published: (u32, u32),
    /// How the payload is coded.
    pub encoding: Encoding,
    /// What was done to the published frame.
    pub rung: Rung,
    /// What the payload needs to be decoded.
    pub chain: ChainLink,
}

/// How good a live frame is, as the camera states it. It holds for the contracts at the moment of sending.
/// Logs do not store it on disk, because a later reader has another contract; the rung tells what was done to
/// the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quality {
    /// The accuracy in 0..=1 that the profile of the served contracts predicts for the rung. `None`: there is
    /// no profile, or it lacks the rung.
    pub expected_accuracy: Option<f64>,
    /// No rung at or above the accuracy floor of the served contracts would have been on time often enough.
    pub infeasible: bool,
}

/// A frame. Cheap to clone: its payload is reference-counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The description of the frame.
    pub meta: FrameMeta,
    /// The coded pixels.
    pub payload: Bytes,
}

/// Why a frame was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SkipReason {
    /// A newer frame was published while the link was still busy with an older one. For
    /// readers of originals: contracts and earlier originals left no room for this frame.
    LinkBusy = 1,
    /// The camera cancelled the transfer: it made no progress, or the frame would have been too late while a newer frame waited.
    Stalled = 2,
    /// The frame was published while there was no link.
    LinkDown = 3,
    /// No application was subscribed when the frame was published.
    NotWanted = 4,
    /// The frame was sent, but did not arrive before a newer frame.
    LateOrLost = 5,
    /// The application was still busy when a newer frame arrived.
    ApplicationBusy = 6,
    /// The log evicted the frame, to stay within its budget, before it was read.
    Evicted = 7,
    /// A frame of the past that neither the edge nor the camera holds.
    NotHeld = 8,
    /// The camera refused the frame: too large, not an image, or out of order.
    Refused = 9,
    /// The camera could not encode the frame at its rung: a codec failed or took too long.
    NotMade = 10,
    /// The frame needs frames that the edge lacks, or the edge could not decode it in time.
    NotDecoded = 11,
    /// A newer frame arrived while the edge was still decoding this frame or an earlier one.
    EdgeBusy = 12,
    /// No rung at or above the accuracy floor would have been on time, and the contract refuses lower rungs
    /// (`on_infeasible` is `skip`).
    Infeasible = 13,
    /// The rung of the previous frame leaves this frame out ([`crate::setting::Setting::skip`]).
    LeftOut = 14,
    /// The frame was on disk, and its bytes there are damaged or missing.
    Damaged = 15,
}

impl SkipReason {
    /// All reasons, in the order of their wire codes.
    pub const ALL: [Self; 15] = [
        Self::LinkBusy,
        Self::Stalled,
        Self::LinkDown,
        Self::NotWanted,
        Self::LateOrLost,
        Self::ApplicationBusy,
        Self::Evicted,
        Self::NotHeld,
        Self::Refused,
        Self::NotMade,
        Self::NotDecoded,
        Self::EdgeBusy,
        Self::Infeasible,
        Self::LeftOut,
        Self::Damaged,
    ];

    /// The reason with this wire code, if this version knows it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LinkBusy => "link_busy",
            Self::Stalled => "stalled",
            Self::LinkDown => "link_down",
            Self::NotWanted => "not_wanted",
            Self::LateOrLost => "late_or_lost",
            Self::ApplicationBusy => "application_busy",
            Self::Evicted => "evicted",
            Self::NotHeld => "not_held",
            Self::Refused => "refused",
            Self::NotMade => "not_made",
            Self::NotDecoded => "not_decoded",
            Self::EdgeBusy => "edge_busy",
            Self::Infeasible => "infeasible",
            Self::LeftOut => "left_out",
            Self::Damaged => "damaged",
        }
    }
}

/// A run of consecutive frames of one epoch that were skipped for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipRange {
    /// The first skipped frame.
    pub first: Sequence,
    /// How many frames, at least one.
    pub count: u64,
    /// Why the frames were skipped.
    pub reason: SkipReason,
}

impl SkipRange {
    /// The sequence after the last skipped frame.
    pub const fn end(&self) -> Sequence {
        Sequence(self.first.0.saturating_add(self.count))
    }

    /// The part of this range within `from..to`, if any.
    pub fn clipped(&self, from: Sequence, to: Sequence) -> Option<Self> {
        let (first, end) = (self.first.max(from), self.end().min(to));
        (first < end).then(|| Self { first, count: end.0 - first.0, reason: self.reason })
    }
}

/// How many frames were skipped, by reason. The order of the skips is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts([u64; SkipReason::ALL.len()]);

impl SkipCounts {
    /// Adds `count` frames skipped for `reason`.
    pub fn add(&mut self, reason: SkipReason, count: u64) {
        let slot = &mut self.0[reason as usize - 1];
        *slot = slot.saturating_add(count);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// Frames skipped for `reason`.
    pub fn of(&self, reason: SkipReason) -> u64 {
        self.0[reason as usize - 1]
    }

    /// These counts, with the frames of reason `from` counted under `to`.
    #[must_use]
    pub fn relabelled(mut self, from: SkipReason, to: SkipReason) -> Self {
        let count = std::mem::take(&mut self.0[from as usize - 1]);
        self.add(to, count);
        self
    }

    /// Frames skipped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (SkipReason, u64)> + '_ {
        SkipReason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_dense_codes() {
        for (index, reason) in SkipReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index + 1);
            assert_eq!(SkipReason::from_code(reason as u8), Some(reason));
        }
        assert_eq!(SkipReason::from_code(0), None);
    }

    #[test]
    fn a_range_is_clipped_to_what_matters() {
        let range = SkipRange { first: Sequence(5), count: 4, reason: SkipReason::LinkBusy };
        assert_eq!(range.clipped(Sequence(0), Sequence(5)), None);
        assert_eq!(range.clipped(Sequence(9), Sequence(20)), None);
        let middle = range.clipped(Sequence(6), Sequence(8)).unwrap();
        assert_eq!((middle.first, middle.count), (Sequence(6), 2));
    }
}
