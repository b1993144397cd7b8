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

/// Records written with one system call while the connection takes them without waiting.
const RECORDS_AT_ONCE_MAX: usize = 4;
/// The most bytes of a TLS record while little is written: what the controller takes for a packet. A record can be read when its last byte is there. In one
/// record, a small frame would be there all at once, and its times would say nothing about the link.
const PACKET_BYTES: usize = 1_200;
/// More than this in one piece has several records in any case, and is measured by them.
const LITTLE_BYTES_MAX: usize = RECORD_BYTES_MAX + 256;
/// Commands that may wait for a write to finish. Beyond that they wait in their channel.
const WAITING_MAX: usize = 64;

/// A frame that is not completely written.
struct Outgoing {
    /// Given when it begins: streams are numbered in the order in which they are begun.
    stream: u32,
    frame: FrameId,
    /// The question that it answers, if it is of the past.
    history: u64,
    /// The header, until it is written.
    header: Option<Box<FrameHeader>>,
    rest: Bytes,
}

/// Why nothing more is sent.
pub(super) enum Over {
    /// The broker wants it so, or is gone; or nothing more is read.
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
    /// Records to be written next.
    out: Vec<u8>,
    /// Oldest first, a frame of the past before all others. The broker sends no frame before the previous one is written or given up, so
    /// there are few.
    frames: Vec<Outgoing>,
    /// Streams begun so far.
    streams: u32,
    records_at_once: usize,
    /// When its unsent bytes were last reported.
    told: Instant,
}

impl<'a, E: LinkEvent, S: AsyncWrite> Sender<'a, E, S> {
    /// Writes what a broker wants, and reports to it.
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

    /// Carries out commands until there is nothing more to do, or until nothing more is read: then nobody sends `stops`.
    pub(super) async fn run(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        mut stops: mpsc::Receiver<Stop>,
    ) -> Over {
        // Commands that came while a write had to wait.
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
                    // A write that was begun has to be ended: half a record makes no sense to anybody.
                    written = &mut write => match written {
                        Ok(()) => break,
                        Err(error) => return Over::Write(error),
                    },
                    command = commands.recv(), if waiting.len() < WAITING_MAX => match command {
                        // What an edge said before, such as why, is written first.
                        Some(Command::Close) if closes_at_once => return over,
                        Some(command) => waiting.push_back(command),
                        None => return over,
                    },
                }
            }
            waiting.extend(commands.try_recv());
        }
    }

    /// The broker has done something that ends the connection.
    fn over(&self, what: &str) -> Over {
        Over::Asked(format!("{} {what}", self.side.broker()))
    }

    /// A stream is to be stopped.
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

    /// Carries out a command. Returns what the broker has done if the connection must end.
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
                // What is written next is the last; the past comes behind every live frame.
                let place = if history > 0 { 0 } else { self.frames.len() };
                self.frames.insert(place, frame);
            }
            Command::Reset(frame) => self.forget(|known| known.frame == frame && known.history == 0),
            Command::Farewell if self.side == Side::Camera => {
                let _ = self.write_out().await;
                let _ = self.writer.shutdown().await;
                // The edge closes when it has read everything, and `read` notices. If this side closed first, what the edge is
                // about to say would make the kernel throw away what it has not read.
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

    /// Gives up frames. If the other side has begun to receive one, it is told.
    fn forget(&mut self, which: impl Fn(&Outgoing) -> bool) {
        for frame in self.frames.extract_if(.., |frame| which(frame)) {
            if frame.header.is_none() {
                put_head(&mut self.out, RecordKind::Reset, frame.stream, 0);
            }
        }
    }

    /// Writes what waits and a little of the newest frame, and waits until the kernel has taken it. Not to be
    /// cancelled.
    async fn write_some(&mut self) -> io::Result<()> {
        let (mut written, mut unsent) = (None, None);
        if let Some(newest) = self.frames.last_mut() {
            if let Some(mut header) = newest.header.take() {
                self.streams += 1;
                newest.stream = self.streams;
                // A frame that leaves within the first interval is not worth a word.
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

    /// Writes all records that wait into the kernel, each of the [`pieces`] as a TLS record of its own. True if it had to wait for room.
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

/// What becomes a TLS record each, of what is written at once.
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
