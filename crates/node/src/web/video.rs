//! H.264 for browsers: frames in their original encoding, in pieces that the client requests one after the other.
//!
//! A piece is a few frames of one chain. Each frame follows four bytes: its length, big-endian, with the highest bit set if decoding may begin with
//! the frame. A client asks for the frames after the last frame that it has. A slow client gets larger pieces, up to [`BYTES_MAX`], and skips to a
//! newer chain. The edge keeps no state for a client: the frames are in the replica log.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use mez_core::frame::{Encoding, FrameId};
use mez_core::log::{LogReader, Record};

use super::fill::utc_ms;
use super::places::Place;
use super::views::Picture;
use super::watcher::{Look, Looked};

/// The most bytes of a piece with more than one frame. Further frames come with the next piece. At half
/// a megabit per second such a piece takes four seconds; the page waits for five.
const BYTES_MAX: usize = 256 << 10;
/// The most pieces that are being sent. Each is a copy of its frames until its connection has taken it.
pub(super) const PIECES_MAX: usize = 256;
/// The most pieces of one principal that are being sent.
pub(super) const PIECES_OF_PRINCIPAL_MAX: usize = 64;
/// The bit in a frame's length that says that decoding may begin with the frame.
const KEY: u32 = 1 << 31;

/// Consecutive frames of a chain.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// The last frame, without its bytes.
    pub(super) last: Arc<Picture>,
}

impl Piece {
    /// The bytes, which free their place when they are dropped.
    pub(super) fn held(self, place: Place<String>) -> Bytes {
        Bytes::from_owner(Held { bytes: self.bytes, _place: place })
    }
}

/// Bytes and their place.
struct Held {
    bytes: Bytes,
    _place: Place<String>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The newest frame of a camera in the edge's memory, without its bytes. `None`: there is none, or it is not H.264.
pub(super) fn newest(look: &Look, looked: &Looked) -> Option<Picture> {
    let record = looked.camera.log.as_ref()?.newest().filter(is_h264)?;
    let meta = record.frame.meta;
    // The age is extrapolated from the last look, which is at most a second old.
    let captured = looked.camera.newest.as_ref().and_then(|seen| {
        let since = meta.captured.as_nanos().checked_sub(seen.meta.captured.as_nanos())?;
        let is_one_start = seen.meta.id.epoch == meta.id.epoch;
        is_one_start.then_some(look.at - seen.age? + Duration::from_nanos(since))
    });
    Some(Picture {
        jpeg: Bytes::new(),
        epoch: meta.id.epoch.0,
        sequence: meta.id.sequence.0,
        captured_utc_ms: utc_ms(meta.captured),
        captured,
        rung: meta.rung.as_str().to_owned(),
        published: meta.published,
    })
}

/// The frames of the newest chain after `after`, up to `newest`; or the chain from its start. `None`:
/// the log holds no such frames, or the chain's start is needed and evicted.
pub(super) fn piece(log: &LogReader, after: Option<FrameId>, newest: Arc<Picture>) -> Option<Piece> {
    let end = log.index_of(newest.id()) + 1;
    let newest_held = log.get_frame(newest.id()).filter(is_h264)?;
    let beginning = log.beginning_of(&newest_held.frame.meta);
    // A client that has a frame of the same chain continues after it.
    let held = after.filter(|after| *after < newest.id()).and_then(|after| log.get_frame(after));
    let goes_on = held.map(|held| log.index_of(held.frame.meta.id) + 1);
    let begin = match (beginning, goes_on) {
        (Some(beginning), Some(goes_on)) => beginning.max(goes_on),
        (begin, goes_on) => begin.or(goes_on)?,
    };
    let (mut bytes, mut last) = (BytesMut::new(), None);
    for index in begin..end {
        let Some(record) = log.get(index).filter(is_h264) else { continue };
        let payload = &record.frame.payload;
        if last.is_some() && bytes.len() + payload.len() > BYTES_MAX {
            break;
        }
        let key = if record.frame.meta.chain.index == 0 { KEY } else { 0 };
        bytes.put_u32(u32::try_from(payload.len()).ok().filter(|length| *length < KEY)? | key);
        bytes.extend_from_slice(payload);
        last = Some(record.frame.meta);
    }
    let last = last?;
    let last = if last.id == newest.id() { newest } else { Arc::new(newest.as_of(&last)) };
    Some(Piece { bytes: bytes.freeze(), last })
}

fn is_h264(record: &Record) -> bool {
    record.frame.meta.encoding == Encoding::H264
}

#[cfg(test)]
mod tests {
    use mez_core::chain::ChainId;
    use mez_core::frame::{
        ChainLink, ClockSource, Epoch, Frame, FrameMeta, Quality, Reference, Rung, Sequence,
    };
    use mez_core::log::{LogConfig, LogWriter, log};
    use mez_core::units::{Instant, Timestamp};

    use super::*;
    use crate::api::pb;
    use crate::web::views::picture;

    fn id(sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    /// Appends a frame of the chain that began with `first`, or a still.
    fn append(log: &mut LogWriter, first: Option<u64>, sequence: u64, payload: &[u8]) {
        let index = first.map_or(0, |first| (sequence - first) as u32);
        let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
        let meta = FrameMeta {
            id: id(sequence),
            captured: Timestamp::from_nanos(sequence * 1_000_000),
            clock_source: ClockSource::Broker,
            width: 4,
            height: 4,
            published: (4, 4),
            encoding: if first.is_some() { Encoding::H264 } else { Encoding::Jpeg },
            rung: Rung::original(),
            chain: ChainLink { chain: Sequence(first.unwrap_or(sequence)), index, reference },
        };
        assert_eq!(ChainId::of(&meta).is_some(), first.is_some());
        let frame = Frame { meta, payload: payload.to_vec().into() };
        let record = Record {
            frame,
            skipped: [].into(),
            quality: Quality::default(),
            trace: None,
            link_bytes: None,
            arrived: Instant::ZERO,
        };
        log.append_record(record).unwrap();
    }

    /// Whether decoding may begin with the frame, and its bytes.
    type Given = (bool, Vec<u8>);

    /// The frames of a piece, and the number of the last frame.
    fn asked(log: &LogReader, after: Option<u64>, newest: u64) -> Option<(Vec<Given>, u64)> {
        let shown = picture(pb::Frame { epoch: 1, sequence: newest, ..pb::Frame::default() }, Bytes::new());
        let piece = piece(log, after.map(id), Arc::new(shown))?;
        let mut frames = Vec::new();
        let mut rest = &piece.bytes[..];
        while let Some((told, behind)) = rest.split_first_chunk() {
            let told = u32::from_be_bytes(*told);
            let (frame, behind) = behind.split_at((told & !KEY) as usize);
            frames.push((told & KEY != 0, frame.to_vec()));
            rest = behind;
        }
        Some((frames, piece.last.sequence))
    }

    #[test]
    fn a_piece_is_what_is_missing_of_the_newest_chain() {
        let (mut writer, reader) = log(LogConfig::default());
        for sequence in 0..3 {
            append(&mut writer, Some(0), sequence, &[sequence as u8]);
        }
        let frame = |sequence: u8| (sequence == 0 || sequence == 4, vec![sequence]);
        assert_eq!(asked(&reader, None, 2), Some((vec![frame(0), frame(1), frame(2)], 2)));
        assert_eq!(asked(&reader, Some(1), 2), Some((vec![frame(2)], 2)));
        // A still between the frames belongs to no chain. A newer chain replaces the rest of this chain.
        append(&mut writer, None, 3, &[3]);
        assert_eq!(asked(&reader, Some(1), 3), None);
        append(&mut writer, Some(4), 4, &[4]);
        append(&mut writer, Some(4), 5, &[5]);
        for after in [None, Some(1), Some(77)] {
            assert_eq!(asked(&reader, after, 5), Some((vec![frame(4), frame(5)], 5)), "{after:?}");
        }
        assert_eq!(asked(&reader, Some(4), 5), Some((vec![frame(5)], 5)));
    }

    #[test]
    fn a_long_piece_is_given_in_two() {
        let (mut writer, reader) = log(LogConfig::default());
        for sequence in 0..3 {
            append(&mut writer, Some(0), sequence, &vec![0; BYTES_MAX / 2]);
        }
        let counts = |after| asked(&reader, after, 2).map(|(frames, last)| (frames.len(), last));
        assert_eq!(counts(None), Some((1, 0)));
        assert_eq!(counts(Some(0)), Some((1, 1)));
        assert_eq!(counts(Some(1)), Some((1, 2)));
    }

    #[test]
    fn without_its_beginning_a_chain_is_of_use_only_to_those_who_have_it() {
        let (mut writer, reader) = log(LogConfig::default());
        for sequence in 2..5 {
            append(&mut writer, Some(0), sequence, &[sequence as u8]);
        }
        assert_eq!(asked(&reader, None, 4), None);
        assert_eq!(asked(&reader, Some(3), 4), Some((vec![(false, vec![4])], 4)));
    }
}
