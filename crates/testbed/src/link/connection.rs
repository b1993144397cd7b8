//! Models one connection: what each end still has to send, and in which order.

use std::collections::VecDeque;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, FrameId};
use mez_core::units::Instant;
use mez_core::window::{Bound, PACKETS_AT_FIRST};

use super::direction::{Chunk, Kind, PACKET_BYTES, PACKET_OVERHEAD_BYTES};
use super::incoming::Incoming;
use super::{LinkOutput, Side};
use crate::time::Moment;

/// Bytes of a full packet on the wire.
const MTU: u64 = PACKET_BYTES + PACKET_OVERHEAD_BYTES;

pub(super) struct Connection {
    pub(super) id: LinkId,
    /// The process that dialled.
    pub(super) owner: u64,
    ends: [End; 2],
    /// Nothing passes before this moment: the link is cut, or the sender waits for its next probe.
    pub(super) resumes: Option<Moment>,
    /// When the link was cut while the connection worked.
    pub(super) silent_since: Moment,
}

impl Connection {
    pub(super) fn new(id: LinkId, owner: u64, now: Moment, bounded: bool) -> Self {
        Self {
            id,
            owner,
            ends: [End::new(true, now, bounded), End::new(false, now, bounded)],
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

    /// Whether both ends are closed and have nothing left to send.
    pub(super) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| !end.open && end.is_idle() && end.missing.is_empty())
    }
}

/// One end of a connection.
pub(super) struct End {
    /// Whether this end's host knows the connection.
    pub(super) open: bool,
    /// Whether this end's host has ever known the connection.
    pub(super) was_open: bool,
    pub(super) heard: Moment,
    /// Lost pieces. They are sent again before everything else.
    resend: VecDeque<Chunk>,
    resend_bytes: u64,
    /// Pieces that were lost on the way, each with the moment when the loss is noticed.
    missing: VecDeque<(Moment, Chunk)>,
    /// The bound of the bytes in flight, as on real connections. `None`: no bound.
    bound: Option<Bound>,
    /// Bytes that have left and are neither acknowledged nor declared lost.
    in_flight: u64,
    acknowledged: VecDeque<Acknowledged>,
    /// How many numbered messages this end has queued.
    said: u64,
    pub(super) incoming: Incoming,
    /// Messages and signals, which go before frames. A number gives a message its place in the order.
    control: VecDeque<(Option<u64>, Kind)>,
    /// Frames with unsent bytes. The last one goes first.
    frames: Vec<OutFrame>,
}

/// A piece that has arrived and whose acknowledgement is on its way to the sender.
struct Acknowledged {
    heard: Moment,
    left: Moment,
    bytes: u64,
}

/// The world's time as an [`Instant`] of the connection's bound, which needs no host clock.
const fn instant(at: Moment) -> Instant {
    Instant::from_nanos(at.as_nanos())
}

pub(super) struct OutFrame {
    pub(super) frame: FrameId,
    pub(super) header: Option<Bytes>,
    pub(super) payload: Bytes,
    pub(super) sent: u32,
}

impl OutFrame {
    fn is_past(&self) -> bool {
        self.frame.epoch == Epoch(u64::MAX)
    }
}

/// What left an end: a message, a signal, or a piece of a frame.
pub(super) struct Taken {
    pub(super) number: Option<u64>,
    pub(super) kind: Kind,
    /// For a piece of a frame: the frame, and how many bytes of its payload are still unsent.
    pub(super) of: Option<(FrameId, u64)>,
}

impl Taken {
    /// What the sender is told about the frame's unsent bytes.
    pub(super) fn told(&self, from: Side, connection: LinkId) -> Option<LinkOutput> {
        let (frame, unsent) = self.of?;
        Some(match unsent {
            0 => LinkOutput::FrameSent { from, connection, frame },
            _ => LinkOutput::FrameLeft { from, connection, frame, unsent },
        })
    }
}

impl End {
    fn new(open: bool, heard: Moment, bounded: bool) -> Self {
        Self {
            open,
            was_open: open,
            heard,
            resend: VecDeque::new(),
            resend_bytes: 0,
            missing: VecDeque::new(),
            bound: bounded.then(Bound::new),
            in_flight: 0,
            acknowledged: VecDeque::new(),
            said: 0,
            incoming: Incoming::default(),
            control: VecDeque::new(),
            frames: Vec::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.resend.is_empty() && self.control.is_empty() && self.frames.is_empty()
    }

    /// Whether lost pieces wait to be sent again.
    pub(super) fn is_repairing(&self) -> bool {
        !self.missing.is_empty() || !self.resend.is_empty()
    }

    pub(super) fn unsent_frames(&self) -> usize {
        self.frames.iter().filter(|out| !out.is_past()).count()
    }

    pub(super) fn unsent_bytes(&self, frame: FrameId) -> u64 {
        let out = self.frames.iter().find(|out| out.frame == frame);
        out.map_or(0, |out| out.payload.len() as u64 - u64::from(out.sent))
    }

    pub(super) fn unsent_past(&self) -> usize {
        self.frames.iter().filter(|out| out.is_past()).count()
    }

    fn window(&self) -> u64 {
        self.bound.as_ref().map_or(u64::MAX, |bound| bound.bytes_max(MTU).unwrap_or(PACKETS_AT_FIRST * MTU))
    }

    /// The congestion window, as long as the path was never full. `None` afterwards.
    pub(super) fn opening(&self) -> Option<u64> {
        self.bound.as_ref().and_then(|bound| bound.opening(MTU))
    }

    /// Whether this end has something to send that its window allows. A close is sent regardless of the window.
    pub(super) fn is_ready(&self) -> bool {
        let closes = matches!(self.control.front(), Some((_, Kind::Close)));
        !self.is_idle() && (closes || self.in_flight == 0 || self.in_flight + MTU <= self.window())
    }

    /// Whether this end would still send into a cut link.
    pub(super) fn has_window(&self, queue_bytes_max: u64) -> bool {
        self.resend_bytes < self.window().min(queue_bytes_max)
    }

    /// Counts a piece that has left.
    pub(super) fn left(&mut self, chunk: &Chunk) {
        self.in_flight += chunk.bytes();
        if let Some(bound) = &mut self.bound {
            bound.on_sent(instant(chunk.left), chunk.bytes());
        }
    }

    /// Notes that a piece of this end has arrived. This end gets the acknowledgement at `heard`.
    pub(super) fn arrived(&mut self, heard: Moment, left: Moment, bytes: u64) {
        self.acknowledged.push_back(Acknowledged { heard, left, bytes });
    }

    /// Processes the acknowledgements that are due. True if there was any.
    pub(super) fn hear(&mut self, now: Moment) -> bool {
        let mut heard = false;
        while let Some(Acknowledged { left, bytes, .. }) =
            self.acknowledged.pop_front_if(|acknowledged| acknowledged.heard <= now)
        {
            self.in_flight = self.in_flight.saturating_sub(bytes);
            if let Some(bound) = &mut self.bound {
                bound.on_ack(instant(now), instant(left), bytes);
            }
            heard = true;
        }
        heard
    }

    /// When the next acknowledgement comes.
    pub(super) fn hear_due(&self) -> Option<Moment> {
        self.acknowledged.front().map(|acknowledged| acknowledged.heard)
    }

    /// Declares this many bytes in flight lost.
    fn take_for_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        if let Some(bound) = &mut self.bound {
            bound.on_lost(bytes);
        }
    }

    /// Queues a message behind all earlier ones.
    pub(super) fn say(&mut self, kind: Kind) {
        self.control.push_back((Some(self.said), kind));
        self.said += 1;
    }

    /// Queues a signal that may overtake messages.
    pub(super) fn call(&mut self, kind: Kind) {
        self.control.push_back((None, kind));
    }

    pub(super) fn send_frame(&mut self, frame: OutFrame) {
        // A frame of the past goes behind all others.
        let place = if frame.is_past() { 0 } else { self.frames.len() };
        self.frames.insert(place, frame);
    }

    /// Drops the unsent and the lost bytes of a frame.
    pub(super) fn drop_frame(&mut self, frame: FrameId) {
        self.frames.retain(|out| out.frame != frame);
        let missing = self.missing.iter().filter(|(_, chunk)| chunk.is_of(frame));
        let missing_bytes = missing.map(|(_, chunk)| chunk.bytes()).sum();
        self.take_for_lost(missing_bytes);
        self.missing.retain(|(_, chunk)| !chunk.is_of(frame));
        self.resend.retain(|chunk| !chunk.is_of(frame));
        self.resend_bytes = self.resend.iter().map(Chunk::bytes).sum();
    }

    /// Drops the frames that have unsent bytes.
    pub(super) fn drop_frames(&mut self) {
        self.frames.clear();
    }

    /// Drops everything that has not left, and the lost pieces.
    pub(super) fn drop_all(&mut self) {
        self.frames.clear();
        self.resend.clear();
        self.resend_bytes = 0;
        self.missing.clear();
        self.control.clear();
    }

    /// Notes that a piece is lost on the way, as this end will learn at `noticed`.
    pub(super) fn lose(&mut self, noticed: Moment, chunk: Chunk) {
        self.missing.push_back((noticed, chunk));
    }

    /// When this end learns of its next loss.
    pub(super) fn loss_due(&self) -> Option<Moment> {
        self.missing.front().map(|(noticed, _)| *noticed)
    }

    /// Moves lost pieces whose loss is noticed by now to those that are sent again. True if there was any.
    pub(super) fn notice_losses(&mut self, now: Moment) -> bool {
        let mut noticed = false;
        while let Some((_, chunk)) = self.missing.pop_front_if(|(due, _)| *due <= now) {
            self.take_for_lost(chunk.bytes());
            self.lost_at_once(chunk);
            noticed = true;
        }
        noticed
    }

    /// Declares everything in flight lost. The lost pieces and `chunks` are sent again first.
    pub(super) fn lost(&mut self, chunks: Vec<Chunk>) {
        self.take_for_lost(self.in_flight);
        self.acknowledged.clear();
        let missing: Vec<Chunk> = self.missing.drain(..).map(|(_, chunk)| chunk).collect();
        let chunks: Vec<Chunk> = missing.into_iter().chain(chunks).collect();
        for chunk in chunks.into_iter().rev() {
            self.resend_bytes += chunk.bytes();
            self.resend.push_front(chunk);
        }
    }

    /// Queues a lost piece to be sent again after all other lost pieces.
    pub(super) fn lost_at_once(&mut self, chunk: Chunk) {
        self.resend_bytes += chunk.bytes();
        self.resend.push_back(chunk);
    }

    pub(super) fn take_lost(&mut self) -> Option<Chunk> {
        let chunk = self.resend.pop_front()?;
        self.resend_bytes -= chunk.bytes();
        Some(chunk)
    }

    /// Takes the next message, signal or piece that was never sent. A piece of a frame has at most
    /// `piece_bytes`, and at most as many as the window allows.
    pub(super) fn take(&mut self, piece_bytes: u32) -> Option<Taken> {
        let packets = (self.window().saturating_sub(self.in_flight) / MTU).max(1);
        let piece_bytes = piece_bytes.min((packets * PACKET_BYTES).min(u64::from(u32::MAX)) as u32);
        if let Some((number, kind)) = self.control.pop_front() {
            return Some(Taken { number, kind, of: None });
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
        let of = (out.frame, u64::from(out.payload.len() as u32 - out.sent));
        if of.1 == 0 {
            self.frames.pop();
        }
        Some(Taken { number: None, kind, of: Some(of) })
    }
}
