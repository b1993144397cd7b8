//! Decides which frames may arrive on a connection, and in which order complete frames are taken.
//!
//! Frames of a chain are taken in the order of their references ([decision
//! 11](../../../../../docs/decisions/0011-frames-wait-for-what-they-need.md)).

use std::time::Duration;

use bytes::Bytes;

use crate::broker::{CAPTURED_MAX, NUMBER_MAX};
use crate::frame::{ChainLink, Epoch, FrameId, FrameMeta, Reference, Sequence};
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, Report};

/// The most frames that may be arriving on one connection at once. A camera sends one frame at a time, and has at
/// most 32 that are sent and not acknowledged. A cancelled frame still counts here until the cancellation arrives.
pub const ARRIVING_FRAMES_MAX: usize = 64;
/// Payload bytes that are reported this soon after a frame's header came with it.
const FIRST_TIME_MAX: Duration = Duration::from_millis(2);
/// The most bytes of the frames arriving on one connection at once, unless there is only one frame.
pub const ARRIVING_BYTES_MAX: u64 = 64 << 20;
/// The shortest time between two progress reports of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);
/// How long a complete frame of a chain waits for the frame that it refers to. Lost packets are retransmitted
/// one or two round trips later. A keyframe would have taken as long, and would have cost more.
pub const HELD_MAX: Duration = Duration::from_millis(500);

/// Why an announced frame is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameRefused {
    /// The connection was not accepted as a camera, or has been replaced.
    #[error("the connection has not been taken in")]
    NotWelcome,
    /// The frame is of another epoch than the connection.
    #[error("a frame of epoch {} on a connection of epoch {}", .frame.0, .connection.0)]
    Epoch {
        /// The frame's epoch.
        frame: Epoch,
        /// The connection's epoch.
        connection: Epoch,
    },
    /// The payload is larger than the limit.
    #[error("a frame of {bytes} bytes; the limit is {bytes_max}")]
    TooLarge {
        /// The announced size in bytes.
        bytes: u32,
        /// The limit in bytes.
        bytes_max: u32,
    },
    /// The frame is empty.
    #[error("a frame without pixels or bytes")]
    Empty,
    /// More frames or bytes at once than a camera has reason to send.
    #[error("more than {ARRIVING_FRAMES_MAX} frames or {ARRIVING_BYTES_MAX} bytes at once")]
    TooMany,
    /// The sequence is not below [`NUMBER_MAX`].
    #[error("the number of frame {frame} is above the limit, {NUMBER_MAX}")]
    Number {
        /// The frame.
        frame: FrameId,
    },
    /// The capture time is after [`CAPTURED_MAX`].
    #[error("the capture time {captured} of frame {frame} is later than {CAPTURED_MAX}")]
    Captured {
        /// The frame.
        frame: FrameId,
        /// Its capture time.
        captured: Timestamp,
    },
    /// The frame is of the past, and was not asked for, or not in this form.
    #[error("frame {frame} is a frame of the past that was not requested")]
    NotAsked {
        /// The frame.
        frame: FrameId,
    },
    /// The frame is arriving or has arrived already.
    #[error("frame {frame} arrived twice")]
    Twice {
        /// The frame.
        frame: FrameId,
    },
}

/// A frame that has arrived completely.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    /// When its header arrived.
    pub(super) first: Instant,
    /// When its last byte arrived.
    pub(super) last: Instant,
    pub(super) bytes: u32,
    /// The size of its header.
    pub(super) header_bytes: u32,
    /// How many bytes of the payload came with the header, if reported.
    pub(super) first_bytes: Option<u32>,
}

/// The result of the end of a frame's payload.
pub(super) struct Completed {
    /// The report to the camera.
    pub(super) report: Report,
    /// The size of the payload in bytes.
    pub(super) bytes: u32,
    /// The frame, if it has as many bytes as its header said.
    pub(super) whole: Option<Whole>,
}

/// A frame whose turn it is.
pub(super) struct Ready {
    pub(super) header: FrameHeader,
    pub(super) payload: Bytes,
    /// When its header arrived.
    pub(super) first: Instant,
    /// The frame comes too late: a frame that was sent later and does not need it has been taken.
    pub(super) is_overtaken: bool,
    /// The headers of older frames that are complete and still wait.
    pub(super) overtakes: Vec<FrameHeader>,
}

/// A frame whose header has arrived. Its payload is still arriving, or is whole and waits for its turn.
struct Arriving {
    header: FrameHeader,
    first: Instant,
    /// Bytes of the payload that came with the header, if reported.
    first_bytes: Option<u32>,
    reported: Instant,
    /// The payload, and when its last byte arrived.
    whole: Option<(Bytes, Instant)>,
}

/// The last frame of a chain that was taken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Taken {
    chain: Sequence,
    index: u32,
}

/// When a frame is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// Later: when something else has arrived, and at the latest at this instant.
    Later(Option<Instant>),
    /// Never: a frame that was sent later and does not need this one has been taken.
    Gone,
}

/// The frames that are arriving on one connection.
#[derive(Default)]
pub(super) struct Arrivals {
    arriving: Vec<Arriving>,
    taken: Option<Taken>,
    /// When a complete frame has waited long enough.
    held_until: Option<Instant>,
    /// The connection is over: nothing more arrives.
    over: bool,
}

impl Arrivals {
    /// When a complete frame has waited long enough.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// Whether no frame is partly here.
    pub(super) fn is_empty(&self) -> bool {
        self.arriving.iter().all(|arriving| arriving.whole.is_some())
    }

    /// The first frame of the chain that is being taken.
    pub(super) fn chain(&self) -> Option<Sequence> {
        self.taken.map(|taken| taken.chain)
    }

    /// Whether the connection is over, so that complete frames are taken at once.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// A header has arrived, on a connection of `epoch`.
    pub(super) fn handle_header(
        &mut self,
        now: Instant,
        header: FrameHeader,
        epoch: Epoch,
        bytes_max: u32,
    ) -> Result<(), FrameRefused> {
        self.admit(&header, epoch, bytes_max)?;
        self.arriving.push(Arriving { header, first: now, first_bytes: None, reported: now, whole: None });
        Ok(())
    }

    fn admit(&self, header: &FrameHeader, epoch: Epoch, bytes_max: u32) -> Result<(), FrameRefused> {
        let (frame, bytes) = (header.meta.id, header.payload_bytes);
        if frame.epoch != epoch {
            return Err(FrameRefused::Epoch { frame: frame.epoch, connection: epoch });
        }
        admit_size(header, bytes_max)?;
        if frame.sequence.0 >= NUMBER_MAX {
            return Err(FrameRefused::Number { frame });
        }
        if header.meta.captured > CAPTURED_MAX {
            return Err(FrameRefused::Captured { frame, captured: header.meta.captured });
        }
        let arriving: u64 = self.arriving.iter().map(|other| u64::from(other.header.payload_bytes)).sum();
        let too_many_bytes = !self.arriving.is_empty() && arriving + u64::from(bytes) > ARRIVING_BYTES_MAX;
        if self.arriving.len() >= ARRIVING_FRAMES_MAX || too_many_bytes {
            return Err(FrameRefused::TooMany);
        }
        if self.arriving.iter().any(|arriving| arriving.header.meta.id == frame) {
            return Err(FrameRefused::Twice { frame });
        }
        Ok(())
    }

    /// In total, `bytes` of a frame's payload have arrived. Returns the report, if one is due.
    pub(super) fn handle_progress(&mut self, now: Instant, frame: FrameId, bytes: u32) -> Option<Report> {
        let place = self.incomplete(frame)?;
        let arriving = &mut self.arriving[place];
        if now.saturating_since(arriving.first) < FIRST_TIME_MAX {
            arriving.first_bytes.get_or_insert(bytes);
        }
        if now.saturating_since(arriving.reported) < PROGRESS_INTERVAL {
            return None;
        }
        arriving.reported = now;
        Some(Report::Progress { frame, bytes, first: arriving.first, now })
    }

    /// A frame's payload has arrived completely.
    pub(super) fn handle_complete(
        &mut self,
        now: Instant,
        frame: FrameId,
        payload: Bytes,
    ) -> Option<Completed> {
        let place = self.incomplete(frame)?;
        let Arriving { header, first, first_bytes, .. } = &self.arriving[place];
        let (first, first_bytes, bytes) = (*first, *first_bytes, payload.len() as u32);
        let report = Report::Complete { frame, bytes, first, last: now };
        if bytes != header.payload_bytes {
            self.arriving.swap_remove(place);
            return Some(Completed { report, bytes, whole: None });
        }
        let header_bytes = header.encoded_bytes();
        let whole = Whole { first, last: now, bytes, header_bytes, first_bytes };
        self.arriving[place].whole = Some((payload, now));
        Some(Completed { report, bytes, whole: Some(whole) })
    }

    /// The rest of a frame's payload will not come. Returns whether the frame was arriving.
    pub(super) fn handle_cancelled(&mut self, frame: FrameId) -> bool {
        let place = self.incomplete(frame);
        place.map(|place| self.arriving.swap_remove(place)).is_some()
    }

    /// The connection is over. Complete frames are taken without further waiting, because the
    /// camera was told that they arrived. Returns the number of frames that will never be complete.
    pub(super) fn handle_over(&mut self) -> u64 {
        self.over = true;
        let arriving = self.arriving.len();
        self.arriving.retain(|arriving| arriving.whole.is_some());
        (arriving - self.arriving.len()) as u64
    }

    /// Returns the oldest frame whose turn it is. Call this until it returns nothing.
    pub(super) fn next(&mut self, now: Instant) -> Option<Ready> {
        let (place, turn) = self.next_turn(now)?;
        let Arriving { header, first, whole, .. } = self.arriving.swap_remove(place);
        // An incomplete frame has its turn later.
        debug_assert!(whole.is_some(), "it is the turn of a frame that is not whole");
        let (payload, _) = whole?;
        let meta = &header.meta;
        if turn == Turn::Now && meta.encoding.is_chained() {
            let taken = Taken { chain: meta.chain.chain, index: meta.chain.index };
            // The turn of a frame that is not later than the last one is `Gone`.
            debug_assert!(
                self.taken < Some(taken),
                "a chain is taken backwards: {:?}, {taken:?}",
                self.taken
            );
            self.taken = Some(taken);
        }
        let waits = |known: &&Arriving| known.whole.is_some() && known.header.meta.id < meta.id;
        let overtakes = self.arriving.iter().filter(waits).map(|known| known.header.clone()).collect();
        Some(Ready { header, payload, first, is_overtaken: turn == Turn::Gone, overtakes })
    }

    /// The index of the oldest frame that need not wait, and its turn. If there is none, notes when the next frame will be due.
    fn next_turn(&mut self, now: Instant) -> Option<(usize, Turn)> {
        let turns: Vec<(usize, Turn)> =
            self.arriving.iter().map(|known| self.turn(now, known)).enumerate().collect();
        let next = turns.iter().filter(|(_, turn)| !matches!(turn, Turn::Later(_)));
        let next = next.min_by_key(|(place, _)| self.arriving[*place].header.meta.id).copied();
        let until = turns.iter().filter_map(|(_, turn)| match turn {
            Turn::Later(until) => *until,
            _ => None,
        });
        self.held_until = until.min().filter(|_| next.is_none());
        next
    }

    /// When a frame is taken. It waits while a frame that it needs may still arrive: to skip that frame would cost the whole chain.
    fn turn(&self, now: Instant, known: &Arriving) -> Turn {
        let Some((_, since)) = &known.whole else { return Turn::Later(None) };
        let meta = &known.header.meta;
        if !meta.encoding.is_chained() {
            return Turn::Now;
        }
        let ChainLink { chain, index, reference } = meta.chain;
        if self.taken.is_some_and(|taken| Taken { chain, index } <= taken) {
            return Turn::Gone;
        }
        let older =
            |other: &&Arriving| other.header.meta.chain.chain == chain && other.header.meta.id < meta.id;
        if self.arriving.iter().filter(older).any(|other| other.whole.is_none()) {
            return Turn::Later(None);
        }
        let last = self.taken.filter(|taken| taken.chain == chain).map(|taken| taken.index);
        let decodes = match reference {
            Reference::Independent => true,
            Reference::Previous => last.is_some_and(|last| last.checked_add(1) == Some(index)),
            Reference::Acknowledged(refers) => {
                let waits = |other: &Arriving| other.header.meta.id.sequence <= refers;
                last.is_some() && !self.arriving.iter().filter(older).any(waits)
            }
        };
        let until = *since + HELD_MAX;
        if self.over || now >= until || decodes {
            return Turn::Now;
        }
        Turn::Later(Some(until))
    }

    /// The index of a frame that is not complete.
    fn incomplete(&self, frame: FrameId) -> Option<usize> {
        self.arriving.iter().position(|known| known.whole.is_none() && known.header.meta.id == frame)
    }
}

/// Refuses a payload that is empty or too large, and a frame without a size.
pub(super) fn admit_size(header: &FrameHeader, bytes_max: u32) -> Result<(), FrameRefused> {
    if header.payload_bytes > bytes_max {
        return Err(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max });
    }
    let FrameMeta { width, height, published, encoding, .. } = header.meta;
    let sizes = [width, height, published.0, published.1];
    // A data record has no pixels.
    let is_sized = if encoding.is_picture() { !sizes.contains(&0) } else { sizes == [0; 4] };
    if header.payload_bytes == 0 || !is_sized {
        return Err(FrameRefused::Empty);
    }
    Ok(())
}
