//! Decides at the camera which answer may arrive, and what is reported to the edge.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::outlet::UNCONFIRMED_ANSWERS_MAX;
use super::types::{ANSWER_BYTES_MAX, AnswerKind, AnswerTimes, Answered};
use crate::clock::ClockEstimate;
use crate::frame::{Encoding, Epoch, FrameId, FrameMeta};
use crate::trace::{CameraTrace, Stage};
use crate::units::{ClockAnchor, Instant};
use crate::wire::{AnswerAccount, AnswerSkips, FrameHeader, Report};

/// The most answers that may arrive at once on all connections: as many as an edge sends at once.
pub const ARRIVING_ANSWERS_MAX: usize = UNCONFIRMED_ANSWERS_MAX + 1;
/// The most accounts of edges that are remembered. A camera has one edge at a time; an edge that it returns to continues its account.
pub const ACCOUNTS_MAX: usize = 8;

/// By how much the sides of a picture are divided at most, if it is made smaller for the way to the camera.
pub const SMALLER_MAX: u32 = 8;

/// Why an answer is refused when its header comes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRefused {
    /// The publisher takes no answers.
    #[error("the publisher does not take answers")]
    NotWanted,
    /// The answer is not to a frame of this start of the camera.
    #[error("an answer to frame {frame} of another start of the camera")]
    Epoch {
        /// The frame.
        frame: FrameId,
    },
    /// The publisher already has this answer, or a newer one.
    #[error("an answer to frame {frame} after one to frame {newest}")]
    Old {
        /// The frame.
        frame: FrameId,
        /// The newest frame whose answer is here.
        newest: FrameId,
    },
    /// The answer is empty, larger than the limit, or of an encoding that no answer has.
    #[error("an answer of {bytes} bytes and {width}x{height} pixels as {}; it has to be a JPEG, a PNG or boxes, of at most {ANSWER_BYTES_MAX} bytes", .encoding.name())]
    Form {
        /// The answer's size in bytes.
        bytes: u32,
        /// The answer's width.
        width: u32,
        /// The answer's height.
        height: u32,
        /// The answer's encoding.
        encoding: Encoding,
    },
    /// More answers at once than an edge sends.
    #[error("more than {ARRIVING_ANSWERS_MAX} answers arrive at once")]
    TooMany,
}

/// The answers that arrive at a camera.
#[derive(Debug, Default)]
pub struct Inlet {
    /// The header of each answer, its kind and when it came, by connection and frame.
    arriving: BTreeMap<(u64, FrameId), (Box<FrameHeader>, AnswerKind, Instant)>,
    /// The newest frame whose answer has arrived.
    newest: Option<FrameId>,
    /// The accounts of edges, the last one received last.
    accounts: Vec<AnswerAccount>,
    /// The counts of accounts that are no longer remembered.
    forgotten: AnswerSkips,
}

impl Inlet {
    /// The header of an answer came on connection number `link`, to a camera in this `epoch`. After `Ok`,
    /// the payload may be received, until [`Inlet::handle_complete`] or [`Inlet::handle_cancelled`].
    pub fn handle_header(
        &mut self,
        now: Instant,
        (link, epoch): (u64, Epoch),
        header: Box<FrameHeader>,
    ) -> Result<(), AnswerRefused> {
        let (meta, bytes) = (&header.meta, header.payload_bytes);
        let (frame, width, height, encoding) = (meta.id, meta.width, meta.height, meta.encoding);
        if frame.epoch != epoch {
            return Err(AnswerRefused::Epoch { frame });
        }
        let is_sound =
            bytes > 0 && bytes <= ANSWER_BYTES_MAX && width > 0 && height > 0 && header.history == 0;
        let Some(kind) = AnswerKind::of(encoding).filter(|_| is_sound) else {
            return Err(AnswerRefused::Form { bytes, width, height, encoding });
        };
        if let Some(newest) = self.newest.filter(|newest| *newest >= frame) {
            return Err(AnswerRefused::Old { frame, newest });
        }
        if self.arriving.len() >= ARRIVING_ANSWERS_MAX || self.arriving.contains_key(&(link, frame)) {
            return Err(AnswerRefused::TooMany);
        }
        self.arriving.insert((link, frame), (header, kind, now));
        Ok(())
    }

    /// A whole answer has arrived. Returns the report to the edge, and the answer unless a newer one has arrived before.
    pub fn handle_complete(
        &mut self,
        now: Instant,
        (link, frame): (u64, FrameId),
        payload: Bytes,
        (anchor, clock): (ClockAnchor, Option<ClockEstimate>),
    ) -> Option<(Report, Option<Answered>)> {
        let (header, kind, first) = self.arriving.remove(&(link, frame))?;
        if self.newest.is_some_and(|newest| newest >= frame) {
            return Some((Report::Refused { frame }, None));
        }
        self.newest = Some(frame);
        let report = Report::Complete { frame, bytes: payload.len() as u32, first, last: now };
        let meta = &header.meta;
        let times = times(anchor.instant_at(meta.captured), &header.trace, clock, (first, now));
        let answered = Answered {
            frame,
            captured: meta.captured,
            kind,
            width: meta.width,
            height: meta.height,
            shown: shown(kind, meta),
            payload,
            times,
        };
        Some((report, Some(answered)))
    }

    /// The rest of an answer will not come.
    pub fn handle_cancelled(&mut self, link: u64, frame: FrameId) {
        self.arriving.remove(&(link, frame));
    }

    /// A connection has ended.
    pub fn handle_closed(&mut self, link: u64) {
        self.arriving.retain(|(of, _), _| *of != link);
    }

    /// An edge sends its account. Returns how many answers were not delivered, by all accounts.
    pub fn handle_account(&mut self, account: AnswerAccount) -> AnswerSkips {
        self.accounts.retain(|known| known.since != account.since);
        if self.accounts.len() == ACCOUNTS_MAX {
            self.forgotten.add_all(&self.accounts.remove(0).skipped);
        }
        self.accounts.push(account);
        let mut all = self.forgotten;
        self.accounts.iter().for_each(|account| all.add_all(&account.skipped));
        all
    }
}

/// The size in which an answer is shown. An edge that claims an absurd one is not believed.
fn shown(kind: AnswerKind, FrameMeta { width, height, published, .. }: &FrameMeta) -> (u32, u32) {
    let is_sound = |coded: u32, shown: u32| (coded..=coded.saturating_mul(SMALLER_MAX)).contains(&shown);
    let is_believed =
        kind == AnswerKind::Picture && is_sound(*width, published.0) && is_sound(*height, published.1);
    if is_believed { *published } else { (*width, *height) }
}

/// Reads the stages of an answer. The edge stamped them as a sender: `Published` is when it had the frame, `Encoded` when it had the answer.
fn times(
    captured: Instant,
    trace: &CameraTrace,
    clock: Option<ClockEstimate>,
    (arriving, arrived): (Instant, Instant),
) -> AnswerTimes {
    let captured = captured.min(arriving);
    let mut earliest = captured;
    let mut stage = |stage| {
        let at = clock?.to_ours(trace.get(stage)?).clamp(earliest, arriving);
        earliest = at;
        Some(at)
    };
    let (up, made, sent) = (stage(Stage::Published), stage(Stage::Encoded), stage(Stage::Sent));
    AnswerTimes { captured, up, made, sent, arriving, arrived }
}
