//! Frames on their way in: which are taken, and what becomes of them.

use std::time::Duration;

use bytes::Bytes;

use super::sessions::Link;
use super::shares::Whole;
use super::{EdgeBroker, FrameRefused};
use crate::broker::{CAPTURED_MAX, LinkId, NUMBER_MAX};
use crate::frame::{ChainLink, FrameId, Reference, Sequence, SkipReason};
use crate::units::Instant;
use crate::wire::{FrameHeader, Message, Report};

/// Frames that may be arriving on one connection at once. A camera has at most one that is being sent and 32 that are
/// sent and not acknowledged; those that it has cancelled may still be announced until the news is here.
pub const ARRIVING_FRAMES_MAX: usize = 64;
/// Bytes that the frames arriving on one connection at once may have together, unless there is only one.
pub const ARRIVING_BYTES_MAX: u64 = 64 << 20;
/// The least time between two progress reports of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);
/// A frame of a chain that is here waits this long for the one that it refers to, and for room at the decoder. Packets are lost, and what
/// was in them comes a round trip or two later: by then the wait has cost less than a frame that stands alone, which would have taken as long.
pub const HELD_MAX: Duration = Duration::from_millis(500);

/// A frame of which the header is here and the payload not yet all; or all of it, and it waits for its turn.
pub(super) struct Arriving {
    header: FrameHeader,
    first: Instant,
    reported: Instant,
    /// The payload, and when the last of it came.
    whole: Option<(Bytes, Instant)>,
}

/// How far a connection's frames of chains have been taken.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) chain: Sequence,
    index: u32,
}

/// When it is a frame's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// When something else has arrived or been decoded; or at this instant, if that does not happen.
    Later(Option<Instant>),
    /// Never: one that was sent later and does not need it has been taken.
    Gone,
}

impl EdgeBroker {
    /// A frame's header arrived. After `Ok`, its payload may be received, and the frame ends with either
    /// [`EdgeBroker::handle_frame_complete`] or [`EdgeBroker::handle_frame_cancelled`]; if the header names a question for
    /// the past, with [`EdgeBroker::handle_history_complete`] or [`EdgeBroker::handle_history_cancelled`].
    pub fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> Result<(), FrameRefused> {
        let bytes_max = self.frame_bytes_max();
        let Some(link) = self.links.get_mut(&id) else { return Err(FrameRefused::NotWelcome) };
        let Some(session) = &link.session else { return Err(FrameRefused::NotWelcome) };
        link.heard = now;
        if header.history > 0 {
            return self.history_header(now, id, header);
        }
        let frame = header.meta.id;
        let arriving_bytes: u64 = link.arriving.iter().map(|f| u64::from(f.header.payload_bytes)).sum();
        let refused = if frame.epoch != session.epoch {
            Some(FrameRefused::Epoch { frame: frame.epoch, connection: session.epoch })
        } else if header.payload_bytes > bytes_max {
            Some(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max })
        } else if header.payload_bytes == 0 || header.meta.width == 0 || header.meta.height == 0 {
            Some(FrameRefused::Empty)
        } else if frame.sequence.0 >= NUMBER_MAX {
            Some(FrameRefused::Number { frame })
        } else if header.meta.captured > CAPTURED_MAX {
            Some(FrameRefused::Captured { frame, captured: header.meta.captured })
        } else if link.arriving.len() >= ARRIVING_FRAMES_MAX
            || !link.arriving.is_empty()
                && arriving_bytes + u64::from(header.payload_bytes) > ARRIVING_BYTES_MAX
        {
            Some(FrameRefused::TooMany)
        } else if link.arriving.iter().any(|arriving| arriving.header.meta.id == frame) {
            Some(FrameRefused::Twice { frame })
        } else {
            None
        };
        if let Some(refused) = refused {
            if let Some(camera) = self.camera_of(id) {
                camera.counters.refused += 1;
            }
            self.send(id, Message::Report(Report::Refused { frame }));
            return Err(refused);
        }
        link.arriving.push(Arriving { header, first: now, reported: now, whole: None });
        Ok(())
    }

    /// Part of a frame's payload is here: `bytes` of it in all.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let is_it = |arriving: &&mut Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(arriving) = link.arriving.iter_mut().find(is_it) else { return };
        if now.saturating_since(arriving.reported) >= PROGRESS_INTERVAL {
            arriving.reported = now;
            let report = Report::Progress { frame, bytes, first: arriving.first, now };
            self.send(id, Message::Report(report));
        }
    }

    /// All of a frame's payload is here.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_it = |arriving: &Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(position) = link.arriving.iter().position(is_it) else { return };
        link.heard = now;
        let (first, announced, whole) = {
            let Arriving { header, first, .. } = &link.arriving[position];
            let bytes = header.payload_bytes;
            let whole = Whole { first: *first, last: now, bytes };
            (*first, bytes, whole)
        };
        let bytes = payload.len() as u32;
        if bytes == announced {
            link.arriving[position].whole = Some((payload, now));
            self.note_whole(id, &whole);
        } else {
            link.arriving.swap_remove(position);
        }
        self.send(id, Message::Report(Report::Complete { frame, bytes, first, last: now }));
        if let Some(camera) = self.camera_of(id) {
            camera.counters.bytes += u64::from(bytes);
            camera.counters.refused += u64::from(bytes != announced);
        }
        self.take_ready(now, id);
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let is_it = |arriving: &Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(position) = link.arriving.iter().position(is_it) else { return };
        link.arriving.swap_remove(position);
        if let Some(camera) = self.camera_of(id) {
            camera.counters.cancelled += 1;
        }
        self.take_ready(now, id);
    }

    /// A connection is over: takes what is whole, since the camera was told that it is here, and gives the number of frames of which the
    /// rest will not come.
    pub(super) fn take_last(&mut self, id: LinkId) -> u64 {
        let Some(link) = self.links.get_mut(&id) else { return 0 };
        link.over = true;
        let (heard, arriving) = (link.heard, link.arriving.len());
        link.arriving.retain(|arriving| arriving.whole.is_some());
        let cancelled = arriving - link.arriving.len();
        self.take_ready(heard, id);
        cancelled as u64
    }

    /// Takes frames that are whole and waited until now.
    pub(super) fn take_held(&mut self, now: Instant) {
        let due = |link: &Link| link.held_until.is_some_and(|until| now >= until);
        let links: Vec<LinkId> = self.links.iter().filter(|(_, link)| due(link)).map(|(id, _)| *id).collect();
        links.into_iter().for_each(|id| self.take_ready(now, id));
    }

    /// Takes the frames that are whole and whose turn it is, oldest first.
    pub(super) fn take_ready(&mut self, now: Instant, id: LinkId) {
        while let Some((position, turn)) = self.next_turn(now, id) {
            let Some(link) = self.links.get_mut(&id) else { return };
            let Arriving { header, first, whole, .. } = link.arriving.swap_remove(position);
            let chain = header.meta.chain;
            if turn == Turn::Now && header.meta.encoding.is_chained() {
                link.taken = Some(Taken { chain: chain.chain, index: chain.index });
            }
            // What those that it overtakes say of others was said for the last time: the camera knows that they are here.
            let is_overtaken =
                |known: &&Arriving| known.whole.is_some() && known.header.meta.id < header.meta.id;
            let overtaken = link.arriving.iter().filter(is_overtaken);
            let told: Vec<FrameHeader> = overtaken.map(|known| known.header.clone()).collect();
            // One that has been replaced meanwhile has no say any more.
            let (Some((payload, _)), Some(camera)) = (whole, self.camera_of(id)) else { continue };
            if turn == Turn::Gone {
                camera.not_taken(&header, SkipReason::NotDecoded);
                camera.counters.not_decoded += 1;
                continue;
            }
            told.iter().for_each(|overtaken| camera.note(overtaken));
            self.take_whole(now, id, header, payload, first);
        }
    }

    /// The place of the oldest frame that waits no longer; if there is none, takes note of when the next one will not.
    fn next_turn(&mut self, now: Instant, id: LinkId) -> Option<(usize, Turn)> {
        let link = self.links.get(&id)?;
        let decoding = link.session.as_ref().and_then(|session| self.cameras.get(&session.camera));
        let has_room = |bytes| decoding.is_none_or(|camera| camera.decoding.has_room_for(bytes));
        let turns: Vec<(usize, Turn)> =
            link.arriving.iter().map(|known| link.turn(now, known, has_room)).enumerate().collect();
        let next = turns.iter().filter(|(_, turn)| !matches!(turn, Turn::Later(_)));
        let next = next.min_by_key(|(place, _)| link.arriving[*place].header.meta.id).copied();
        let until = turns.iter().filter_map(|(_, turn)| match turn {
            Turn::Later(until) => *until,
            _ => None,
        });
        let until = until.min().filter(|_| next.is_none());
        self.links.get_mut(&id)?.held_until = until;
        next
    }
}

impl Link {
    /// When it is the turn of a frame. Frames of a chain are taken in the order of their references: while one that is needed is on its way, to
    /// go on without it would cost the whole chain.
    fn turn(&self, now: Instant, known: &Arriving, has_room: impl Fn(u32) -> bool) -> Turn {
        let Some((payload, since)) = &known.whole else { return Turn::Later(None) };
        let meta = &known.header.meta;
        if !meta.encoding.is_chained() {
            return Turn::Now;
        }
        let ChainLink { chain, index, reference } = meta.chain;
        let taken = self.taken.map(|taken| (taken.chain, taken.index));
        if taken.is_some_and(|taken| (chain, index) <= taken) {
            return Turn::Gone;
        }
        let older =
            |other: &&Arriving| other.header.meta.chain.chain == chain && other.header.meta.id < meta.id;
        if self.arriving.iter().filter(older).any(|other| other.whole.is_none()) {
            return Turn::Later(None);
        }
        let decodes = match reference {
            Reference::Independent => true,
            Reference::Previous => {
                taken.is_some_and(|(of, last)| of == chain && last.checked_add(1) == Some(index))
            }
            Reference::Acknowledged(refers) => {
                let waits = |other: &Arriving| other.header.meta.id.sequence <= refers;
                taken.is_some_and(|(of, _)| of == chain) && !self.arriving.iter().filter(older).any(waits)
            }
        };
        let until = *since + HELD_MAX;
        if self.over || now >= until || decodes && has_room(payload.len() as u32) {
            return Turn::Now;
        }
        Turn::Later(Some(until))
    }
}
