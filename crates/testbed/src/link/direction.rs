//! Models one direction of a link: a bounded queue, a transmitter with a rate, and a delay to the other side.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;

use super::transmitter::Transmitter;
use crate::time::Moment;

/// Bytes of one packet besides its payload: headers of UDP, IP and QUIC, and the cipher's tag.
pub(super) const PACKET_OVERHEAD_BYTES: u64 = 60;
/// Payload bytes of a full packet.
pub(super) const PACKET_BYTES: u64 = 1200;

/// A piece: some packets that travel together.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) connection: LinkId,
    /// The piece's place in the order of its sender's messages, if it has one.
    pub(super) number: Option<u64>,
    pub(super) kind: Kind,
    /// When the sender sent the piece.
    pub(super) left: Moment,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// The end of the handshake: from now on the edge knows the connection.
    Open,
    /// One message of the control stream.
    Message(Bytes),
    /// A piece of a frame's stream, which ends at byte `end` of the payload.
    Frame { frame: FrameId, header: Option<Bytes>, bytes: u32, end: u32, payload: Bytes },
    /// The sender has cancelled a frame.
    Reset(FrameId),
    /// The receiver does not want a frame.
    Stop(FrameId),
    /// The connection is over.
    Close,
}

impl Chunk {
    /// Bytes on the wire, with packet overhead.
    pub(super) fn bytes(&self) -> u64 {
        let payload = match &self.kind {
            Kind::Open => PACKET_BYTES,
            Kind::Message(bytes) => bytes.len() as u64,
            Kind::Frame { header, bytes, .. } => {
                header.as_ref().map_or(0, |header| header.len() as u64) + u64::from(*bytes)
            }
            Kind::Reset(_) | Kind::Stop(_) | Kind::Close => 16,
        };
        payload + PACKET_OVERHEAD_BYTES * payload.div_ceil(PACKET_BYTES)
    }

    /// Whether the piece is of the stream of `frame`.
    pub(super) fn is_of(&self, frame: FrameId) -> bool {
        matches!(&self.kind, Kind::Frame { frame: of, .. } if *of == frame)
    }
}

/// What a shared medium needs to know about a queue.
#[derive(Default)]
struct Shared {
    /// Bytes of each queued piece that the medium has not been told of.
    untold: VecDeque<u64>,
    /// Bytes of each piece that this queue dropped but the medium still transmits.
    void: VecDeque<u64>,
}

pub(super) struct Direction {
    /// Transmits the first piece of the queue.
    transmitter: Transmitter,
    pub(super) delay: Duration,
    queue_bytes_max: u64,
    queue: VecDeque<Chunk>,
    queued_bytes: u64,
    /// Present on a shared medium, which says when the first piece of the queue has been transmitted.
    shared: Option<Shared>,
    /// Transmitted pieces with their moments of arrival. They no longer occupy the queue.
    travelling: VecDeque<(Moment, Chunk)>,
}

impl Direction {
    pub(super) fn new(bits_per_second: u64, delay: Duration, queue_bytes_max: u64) -> Self {
        Self {
            transmitter: Transmitter::new(bits_per_second),
            delay,
            queue_bytes_max,
            queue: VecDeque::new(),
            queued_bytes: 0,
            shared: None,
            travelling: VecDeque::new(),
        }
    }

    /// Lets a shared medium transmit the pieces. Call this before anything is sent.
    pub(super) fn share(&mut self) {
        self.shared = Some(Shared::default());
    }

    /// Whether one more piece may enter the queue. The last piece may exceed the bound.
    pub(super) fn has_room(&self) -> bool {
        let void = self.shared.as_ref().map_or(0, |shared| shared.void.iter().sum());
        self.queued_bytes + void < self.queue_bytes_max
    }

    /// Bytes of the next piece that has entered the queue and that the shared medium has not been told of.
    pub(super) fn take_untold(&mut self) -> Option<u64> {
        self.shared.as_mut()?.untold.pop_front()
    }

    /// The shared medium has transmitted the first piece. `None`: this queue had dropped the piece.
    pub(super) fn transmitted(&mut self) -> Option<Chunk> {
        let shared = self.shared.as_mut()?;
        if shared.void.pop_front().is_some() {
            return None;
        }
        let chunk = self.queue.pop_front()?;
        self.queued_bytes -= chunk.bytes();
        Some(chunk)
    }

    /// Whether nothing is queued or being transmitted.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// How long the transmission of all queued pieces will take.
    pub(super) fn queue_time(&self) -> Duration {
        self.transmitter.time_for(self.queued_bytes * 8)
    }

    pub(super) fn push(&mut self, now: Moment, chunk: Chunk) {
        self.queued_bytes += chunk.bytes();
        if let Some(shared) = &mut self.shared {
            shared.untold.push_back(chunk.bytes());
        }
        self.queue.push_back(chunk);
        self.serve(now);
    }

    pub(super) fn set_rate(&mut self, now: Moment, bits_per_second: u64) {
        self.transmitter.set_rate(now, bits_per_second);
    }

    /// When the next transmission or arrival is due.
    pub(super) fn due(&self) -> Moment {
        let arrived = self.travelling.front().map(|(arrives, _)| *arrives);
        self.transmitter.due().into_iter().chain(arrived).min().unwrap_or(Moment::NEVER)
    }

    /// Takes the piece whose transmission has ended by now. The queue then has room for another.
    pub(super) fn transmit(&mut self, now: Moment) -> Option<Chunk> {
        if !self.transmitter.take_done(now) {
            return None;
        }
        let chunk = self.queue.pop_front().expect("what is being transmitted is the first of the queue");
        self.queued_bytes -= chunk.bytes();
        self.serve(now);
        Some(chunk)
    }

    /// Sends a transmitted piece on its way to the other side.
    pub(super) fn travel(&mut self, now: Moment, chunk: Chunk) {
        self.travelling.push_back((now + self.delay, chunk));
    }

    /// Takes the next piece that has arrived by now.
    pub(super) fn arrive(&mut self, now: Moment) -> Option<Chunk> {
        let (_, chunk) = self.travelling.pop_front_if(|(arrives, _)| *arrives <= now)?;
        Some(chunk)
    }

    /// Removes all queued and travelling pieces, in the order in which they were sent.
    pub(super) fn lose_all(&mut self) -> Vec<Chunk> {
        self.transmitter.stop();
        self.queued_bytes = 0;
        if let Some(shared) = &mut self.shared {
            // The medium still transmits these pieces.
            shared.void.extend(self.queue.iter().map(Chunk::bytes));
        }
        self.travelling.drain(..).map(|(_, chunk)| chunk).chain(self.queue.drain(..)).collect()
    }

    fn serve(&mut self, now: Moment) {
        if let Some(first) =
            self.queue.front().filter(|_| !self.transmitter.is_busy() && self.shared.is_none())
        {
            self.transmitter.begin(now, first.bytes() * 8);
        }
    }
}
