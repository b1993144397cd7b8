//! The camera's side of a link over TCP.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};

use bytes::Bytes;
use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::FrameId;
use mez_core::trace::Stage;
use mez_core::wire::{FrameHeader, MessageBuffer, RECORD_BYTES_MAX, RecordKind};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::{ReadRecordError, put_head, put_records, read_head};
use crate::clock::monotonic_now;
use crate::link::dial::EdgeRevoked;
use crate::link::{CLOSE_TIME_MAX, CameraEvent, Command, CommandSender, UNSENT_INTERVAL, sent_event};

/// Records written with one system call while the connection takes them without waiting.
const RECORDS_AT_ONCE_MAX: usize = 4;
/// The most bytes of a TLS record while little is written: what the controller takes for a packet. A record can be read when its last byte is there. In one
/// record, a small frame would be there all at once, and its times would say nothing about the link.
const PACKET_BYTES: usize = 1_200;
/// More than this in one piece has several records in any case, and is measured by them.
const LITTLE_BYTES_MAX: usize = RECORD_BYTES_MAX + 256;
/// Commands that may wait for a write to finish. Beyond that they wait in their channel.
const WAITING_MAX: usize = 64;
/// Streams that the edge has stopped and that are not dropped yet.
const STOPPED_MAX: usize = 64;

/// Serves a connection until it ends.
pub(in crate::link) async fn serve(
    (link, edge): (LinkId, EdgeIndex),
    stream: TlsStream<TcpStream>,
    (events, revoked): (mpsc::Sender<CameraEvent>, EdgeRevoked),
) {
    let (commands, receiver) = CommandSender::channel();
    if events.send(CameraEvent::Dialled(link, edge, commands)).await.is_err() {
        return;
    }
    let (reader, writer) = split(stream);
    let (stop, stopped) = mpsc::channel(STOPPED_MAX);
    let mut sender = Sender {
        link,
        events: &events,
        writer,
        out: Vec::with_capacity(RECORDS_AT_ONCE_MAX * (RECORD_BYTES_MAX + 8)),
        frames: Vec::new(),
        streams: 0,
        records_at_once: 1,
        told: Instant::now(),
    };
    let mut reading = pin!(read(link, reader, stop, &events));
    let reason = tokio::select! {
        // An edge that has ended the connection has said why, and that may not have been read yet.
        failed = sender.run(receiver, stopped) => match failed {
            Over::Write(error) => {
                tokio::time::timeout(CLOSE_TIME_MAX, reading).await.unwrap_or_else(|_| error.to_string())
            }
            Over::Asked(reason) => reason.into(),
        },
        reason = &mut reading => reason,
        reason = revoked.reason() => reason,
    };
    let _ = tokio::time::timeout(CLOSE_TIME_MAX, sender.writer.shutdown()).await;
    let _ = events.send(CameraEvent::Closed(link, reason)).await;
}

async fn read(
    link: LinkId,
    mut stream: ReadHalf<TlsStream<TcpStream>>,
    stop: mpsc::Sender<u32>,
    events: &mpsc::Sender<CameraEvent>,
) -> String {
    let mut messages = MessageBuffer::default();
    let mut content = vec![0; RECORD_BYTES_MAX];
    loop {
        let head = match read_head(&mut stream).await {
            Ok(head) => head,
            Err(error) => return error.to_string(),
        };
        match head.kind {
            RecordKind::Control => {
                let content = &mut content[..head.bytes.into()];
                if let Err(error) = stream.read_exact(content).await {
                    return ReadRecordError::from(error).to_string();
                }
                messages.push(content);
                loop {
                    match messages.next() {
                        Ok(Some(message)) => {
                            if events.send(CameraEvent::Message(link, message)).await.is_err() {
                                return "the camera broker has stopped".into();
                            }
                        }
                        Ok(None) => break,
                        Err(error) => return format!("the control stream made no sense: {error}"),
                    }
                }
            }
            RecordKind::Stop => {
                // Fails where nothing is written any more. What the edge says after it still counts.
                let _ = stop.send(head.stream).await;
            }
            RecordKind::Data | RecordKind::End | RecordKind::Reset => {
                return "an edge broker sends no frames".into();
            }
        }
    }
}

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
enum Over {
    /// The broker wants it so, or is gone.
    Asked(&'static str),
    /// The connection takes no more.
    Write(io::Error),
}

struct Sender<'a> {
    link: LinkId,
    events: &'a mpsc::Sender<CameraEvent>,
    writer: WriteHalf<TlsStream<TcpStream>>,
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

impl Sender<'_> {
    /// Carries out commands until there is nothing more to do.
    async fn run(&mut self, mut commands: mpsc::Receiver<Command>, mut stopped: mpsc::Receiver<u32>) -> Over {
        // Commands that came while a write had to wait.
        let mut waiting = VecDeque::new();
        loop {
            while let Some(command) = waiting.pop_front() {
                if let Some(reason) = self.take(command).await {
                    return Over::Asked(reason);
                }
            }
            while let Ok(stream) = stopped.try_recv() {
                let of_the_past =
                    self.frames.iter().find(|frame| frame.stream == stream && frame.history > 0);
                let ended = of_the_past.map(|frame| sent_event(self.link, frame.frame, frame.history));
                self.forget(|frame| frame.stream == stream);
                if let Some(ended) = ended {
                    let _ = self.events.send(ended).await;
                }
            }
            if self.frames.is_empty() && self.out.is_empty() {
                tokio::select! {
                    command = commands.recv() => match command {
                        Some(command) => waiting.push_back(command),
                        None => return Over::Asked("the camera broker has stopped"),
                    },
                    Some(_) = stopped.recv() => {}
                }
                continue;
            }
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
                        Some(Command::Close) => return Over::Asked("the camera broker closed the connection"),
                        Some(command) => waiting.push_back(command),
                        None => return Over::Asked("the camera broker has stopped"),
                    },
                }
            }
            waiting.extend(commands.try_recv());
        }
    }

    /// Carries out a command. Returns the reason if the connection must end.
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
            Command::Farewell => {
                let _ = self.write_out().await;
                let _ = self.writer.shutdown().await;
                // The edge closes when it has read everything, and `read` notices. If this side closed first, what the edge is
                // about to say would make the kernel throw away what it has not read.
                tokio::time::sleep(CLOSE_TIME_MAX).await;
                return Some("the camera broker has stopped");
            }
            Command::Close => {
                let _ = self.write_out().await;
                return Some("the camera broker closed the connection");
            }
        }
        None
    }

    /// Gives up frames. If the edge has begun to receive one, it is told.
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
            let _ = self.events.send(sent_event(self.link, frame, history)).await;
        } else if let Some((frame, bytes)) = unsent
            && self.told.elapsed() >= UNSENT_INTERVAL
        {
            self.told = Instant::now();
            let _ = self.events.send(CameraEvent::Unsent(self.link, frame, bytes)).await;
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
