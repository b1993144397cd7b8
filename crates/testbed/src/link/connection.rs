//! One connection: what each end still has to send, and in which order.

use std::collections::VecDeque;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;

use super::Side;
use super::direction::{Chunk, Kind};
use crate::time::Moment;

pub(super) struct Connection {
    pub(super) id: LinkId,
    /// The process that dialled.
    pub(super) owner: u64,
    ends: [End; 2],
    /// Nothing passes before this moment: the link is cut, or the sender waits before it tries again.
    pub(super) resumes: Option<Moment>,
    /// When the link was cut.
    pub(super) silent_since: Moment,
}

impl Connection {
    pub(super) fn new(id: LinkId, owner: u64, now: Moment) -> Self {
        Self {
            id,
            owner,
            ends: [End::new(true, now), End::new(false, now)],
            resumes: None,
            silent_since: now,
        }
    }

    pub(super) fn end(&self, side: Side) -> &End {
        &self.ends[side as usize]
    }

    pub(super) fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Whether nobody will ever use it again.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| !end.open && end.is_idle())
    }
}

/// One end of a connection.
pub(super) struct End {
    /// Whether somebody here knows the connection.
    pub(super) open: bool,
    pub(super) heard: Moment,
    /// What was sent and lost, to be sent again first.
    resend: VecDeque<Chunk>,
    resend_bytes: u64,
    /// Messages, and other things that go before frames.
    control: VecDeque<Kind>,
    /// Frames with bytes unsent; the one that was begun last goes first.
    frames: Vec<OutFrame>,
}

pub(super) struct OutFrame {
    pub(super) frame: FrameId,
    pub(super) header: Option<Bytes>,
    pub(super) payload: Bytes,
    pub(super) sent: u32,
}

/// What left an end.
pub(super) struct Taken {
    pub(super) kind: Kind,
    /// The frame of which this was the last byte.
    pub(super) finished: Option<FrameId>,
}

impl End {
    fn new(open: bool, heard: Moment) -> Self {
        Self {
            open,
            heard,
            resend: VecDeque::new(),
            resend_bytes: 0,
            control: VecDeque::new(),
            frames: Vec::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.resend.is_empty() && self.control.is_empty() && self.frames.is_empty()
    }

    pub(super) fn unsent_frames(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn resend_bytes(&self) -> u64 {
        self.resend_bytes
    }

    pub(super) fn say(&mut self, kind: Kind) {
        self.control.push_back(kind);
    }

    pub(super) fn send_frame(&mut self, frame: OutFrame) {
        self.frames.push(frame);
    }

    /// Drops what has not left of a frame.
    pub(super) fn drop_frame(&mut self, frame: FrameId) {
        self.frames.retain(|out| out.frame != frame);
        self.resend.retain(|chunk| !chunk.is_of(frame));
        self.resend_bytes = self.resend.iter().map(Chunk::bytes).sum();
    }

    /// Drops everything that has not left.
    pub(super) fn drop_all(&mut self) {
        self.drop_frames();
        self.control.clear();
    }

    /// Drops everything that has not left, but for messages.
    pub(super) fn drop_frames(&mut self) {
        self.frames.clear();
        self.resend.clear();
        self.resend_bytes = 0;
    }

    /// What was on its way is lost and will be sent again, before anything that was lost later.
    pub(super) fn lost(&mut self, chunks: Vec<Chunk>) {
        for chunk in chunks.into_iter().rev() {
            self.resend_bytes += chunk.bytes();
            self.resend.push_front(chunk);
        }
    }

    /// Sent into a link that carries nothing: lost as well, after what was lost before.
    pub(super) fn lost_at_once(&mut self, chunk: Chunk) {
        self.resend_bytes += chunk.bytes();
        self.resend.push_back(chunk);
    }

    pub(super) fn take_lost(&mut self) -> Option<Kind> {
        let chunk = self.resend.pop_front()?;
        self.resend_bytes -= chunk.bytes();
        Some(chunk.kind)
    }

    /// The next thing that has not been sent yet; of a frame at most `piece_bytes`.
    pub(super) fn take(&mut self, piece_bytes: u32) -> Option<Taken> {
        if let Some(kind) = self.control.pop_front() {
            return Some(Taken { kind, finished: None });
        }
        let out = self.frames.last_mut()?;
        let bytes = piece_bytes.min(out.payload.len() as u32 - out.sent);
        out.sent += bytes;
        let kind = Kind::Frame {
            frame: out.frame,
            header: out.header.take(),
            bytes,
            end: out.sent,
            payload: out.payload.clone(),
        };
        let finished = (out.sent as usize == out.payload.len()).then_some(out.frame);
        if finished.is_some() {
            self.frames.pop();
        }
        Some(Taken { kind, finished })
    }
}
