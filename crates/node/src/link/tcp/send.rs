//! Sends messages and frames over TCP: those of a camera, and the answers of an edge.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::trace::Stage;
use mez_core::wire::{FrameHeader, RECORD_BYTES_MAX, RecordKind};
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Side, Stop, put_head, put_records};
use crate::clock::monotonic_now;
use crate::link::{CLOSE_TIME_MAX, Command, LinkEvent, UNSENT_INTERVAL};

/// The most records in one system call while the connection takes them without waiting.
const RECORDS_AT_ONCE_MAX: usize = 4;
/// The size of TLS records in bytes while little is written, which the controller takes as a packet. A record can be read only when
/// its last byte has arrived. A small frame in one record would arrive all at once, and its times would say nothing about the link.
const PACKET_BYTES: usize = 1_200;
/// A larger write has several records in any case, and these measure the link.
const LITTLE_BYTES_MAX: usize = RECORD_BYTES_MAX + 256;
/// The most commands that wait for a write to finish. Further commands wait in their channel.
const WAITING_MAX: usize = 64;

/// A frame that is not completely written.
struct Outgoing {
    /// Set when the frame begins: streams are numbered in the order in which they begin.
    stream: u32,
    frame: FrameId,
    /// The question that a frame of the past answers; 0 for other frames.
    history: u64,
    /// The header, until it is written.
    header: Option<Box<FrameHeader>>,
    rest: Bytes,
}

/// Why nothing more is sent.
pub(super) enum Over {
    /// The broker ends the connection, or is gone; or the reading side has ended.
    Asked(String),
    /// The connection takes no more.
    Write(io::Error),
}

/// Writes one side of a connection.
pub(super) struct Sender<'a, E, S> {
    link: LinkId,
    side: Side,
    events: &'a mpsc::Sender<E>,
    pub(super) writer: WriteHalf<S>,
    /// Records to write next.
    out: Vec<u8>,
    /// Frames in progress: one of the past first, then live frames, oldest first. The last is written next.
    /// The broker sends no frame before the previous one is written or given up, so there are few.
    frames: Vec<Outgoing>,
    /// The number of streams so far.
    streams: u32,
    records_at_once: usize,
    /// When the unsent bytes of a frame were last reported.
    told: Instant,
}

impl<'a, E: LinkEvent, S: AsyncWrite> Sender<'a, E, S> {
    /// Writes what a broker sends, and reports to the broker.
    pub(super) fn new(link: LinkId, side: Side, events: &'a mpsc::Sender<E>, writer: WriteHalf<S>) -> Self {
        Self {
            link,
            side,
            events,
            writer,
            out: Vec::with_capacity(RECORDS_AT_ONCE_MAX * (RECORD_BYTES_MAX + 8)),
            frames: Vec::new(),
            streams: 0,
            records_at_once: 1,
            told: Instant::now(),
        }
    }

    /// Carries out commands until the connection is to end, or until `stops` is closed because the reading side has ended.
    pub(super) async fn run(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        mut stops: mpsc::Receiver<Stop>,
    ) -> Over {
        // Commands that came during a write that had to wait.
        let mut waiting = VecDeque::new();
        loop {
            while let Some(command) = waiting.pop_front() {
                if let Some(what) = self.take(command).await {
                    return self.over(what);
                }
            }
            while let Ok(stop) = stops.try_recv() {
                self.take_stop(stop).await;
            }
            if self.frames.is_empty() && self.out.is_empty() {
                tokio::select! {
                    biased;
                    command = commands.recv() => match command {
                        Some(command) => waiting.push_back(command),
                        None => return self.over("has stopped"),
                    },
                    stop = stops.recv() => match stop {
                        Some(stop) => self.take_stop(stop).await,
                        None => return Over::Asked("nothing more is read".into()),
                    },
                }
                continue;
            }
            let closes_at_once = self.side == Side::Camera;
            let over = self.over("closed the connection");
            let write = self.write_some();
            tokio::pin!(write);
            loop {
                tokio::select! {
                    biased;
                    // A write that has begun must be completed: half a record makes no sense to the other side.
                    written = &mut write => match written {
                        Ok(()) => break,
                        Err(error) => return Over::Write(error),
                    },
                    command = commands.recv(), if waiting.len() < WAITING_MAX => match command {
                        // An edge's earlier messages, such as a reason, are written first.
                        Some(Command::Close) if closes_at_once => return over,
                        Some(command) => waiting.push_back(command),
                        None => return over,
                    },
                }
            }
            waiting.extend(commands.try_recv());
        }
    }

    /// Ends the connection because of what the broker did.
    fn over(&self, what: &str) -> Over {
        Over::Asked(format!("{} {what}", self.side.broker()))
    }

    /// Stops a stream.
    async fn take_stop(&mut self, stop: Stop) {
        let stream = match stop {
            Stop::Ours(stream) => stream,
            Stop::Theirs(stream) => return put_head(&mut self.out, RecordKind::Stop, stream, 0),
        };
        let of_the_past = self.frames.iter().find(|frame| frame.stream == stream && frame.history > 0);
        let ended = of_the_past.map(|frame| E::sent(self.link, frame.frame, frame.history));
        self.forget(|frame| frame.stream == stream);
        if let Some(ended) = ended {
            let _ = self.events.send(ended).await;
        }
    }

    /// Carries out a command. If the connection must end, returns what the broker did.
    async fn take(&mut self, command: Command) -> Option<&'static str> {
        match command {
            Command::Send(message) => {
                let mut bytes = Vec::with_capacity(64);
                message.encode(&mut bytes);
                put_records(&mut self.out, RecordKind::Control, 0, &bytes);
            }
            Command::SendFrame(header, payload) => {
                let (frame, history) = (header.meta.id, header.history);
                let frame = Outgoing { stream: 0, frame, history, header: Some(header), rest: payload };
                // The last frame is written next, so a frame of the past goes to the front, behind all live frames in time.
                let place = if history > 0 { 0 } else { self.frames.len() };
                self.frames.insert(place, frame);
            }
            Command::Reset(frame) => self.forget(|known| known.frame == frame && known.history == 0),
            Command::Farewell if self.side == Side::Camera => {
                let _ = self.write_out().await;
                let _ = self.writer.shutdown().await;
                // The edge closes when it has read everything, and the reading side notices. If this side closed
                // first, the edge's next messages would make the edge's kernel discard unread bytes.
                tokio::time::sleep(CLOSE_TIME_MAX).await;
                return Some("has stopped");
            }
            Command::Close | Command::Farewell => {
                let _ = self.write_out().await;
                return Some("closed the connection");
            }
        }
        None
    }

    /// Gives up frames. Tells the other side if it has begun to receive a frame.
    fn forget(&mut self, which: impl Fn(&Outgoing) -> bool) {
        for frame in self.frames.extract_if(.., |frame| which(frame)) {
            if frame.header.is_none() {
                put_head(&mut self.out, RecordKind::Reset, frame.stream, 0);
            }
        }
    }

    /// Writes the waiting records and a little of the newest frame, and waits until the kernel has taken them. Not cancel-safe.
    async fn write_some(&mut self) -> io::Result<()> {
        let (mut written, mut unsent) = (None, None);
        if let Some(newest) = self.frames.last_mut() {
            if let Some(mut header) = newest.header.take() {
                self.streams += 1;
                newest.stream = self.streams;
                // A frame that leaves within the first interval is not reported.
                self.told = Instant::now();
                if header.history == 0 {
                    header.trace.stamp(Stage::Sent, monotonic_now());
                }
                let mut bytes = Vec::with_capacity(256);
                header.encode(&mut bytes);
                put_records(&mut self.out, RecordKind::Data, newest.stream, &bytes);
            }
            let bytes = newest.rest.len().min(self.records_at_once * RECORD_BYTES_MAX);
            let piece = newest.rest.split_to(bytes);
            put_records(&mut self.out, RecordKind::Data, newest.stream, &piece);
            unsent = (newest.history == 0).then_some((newest.frame, newest.rest.len() as u64));
            if newest.rest.is_empty() {
                put_head(&mut self.out, RecordKind::End, newest.stream, 0);
                written = self.frames.pop().map(|frame| (frame.frame, frame.history));
            }
        }
        let waited = self.write_out().await?;
        self.records_at_once = if waited { 1 } else { RECORDS_AT_ONCE_MAX };
        if let Some((frame, history)) = written {
            let _ = self.events.send(E::sent(self.link, frame, history)).await;
        } else if let Some((frame, bytes)) = unsent
            && self.told.elapsed() >= UNSENT_INTERVAL
        {
            self.told = Instant::now();
            let _ = self.events.send(E::unsent(self.link, frame, bytes)).await;
        }
        Ok(())
    }

    /// Writes all waiting records into the kernel, each of the [`pieces`] as its own TLS record. Returns true if it had to wait for room.
    async fn write_out(&mut self) -> io::Result<bool> {
        for piece in pieces(&self.out) {
            self.writer.write_all(piece).await?;
        }
        self.out.clear();
        let mut waited = false;
        poll_fn(|context| {
            let polled = Pin::new(&mut self.writer).poll_flush(context);
            waited |= polled.is_pending();
            polled
        })
        .await?;
        Ok(waited)
    }
}

/// Cuts the bytes of one write into pieces, each of which becomes a TLS record.
fn pieces(out: &[u8]) -> std::slice::Chunks<'_, u8> {
    out.chunks(if out.len() <= LITTLE_BYTES_MAX { PACKET_BYTES } else { out.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_cut_into_packets_and_much_is_not() {
        assert_eq!(pieces(&[]).count(), 0);
        assert_eq!(pieces(&[7; 3_000]).map(<[u8]>::len).collect::<Vec<_>>(), [1_200, 1_200, 600]);
        assert_eq!(pieces(&[7; 4 * RECORD_BYTES_MAX]).count(), 1);
    }
}
