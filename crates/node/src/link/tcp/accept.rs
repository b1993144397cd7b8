//! The edge's side of a link over TCP.

use std::collections::BTreeMap;
use std::pin::pin;

use mez_core::broker::LinkId;
use mez_core::broker::edge::ARRIVING_FRAMES_MAX;
use mez_core::buffer::Buffer;
use mez_core::frame::FrameId;
use mez_core::units::Instant;
use mez_core::wire::{FRAME_HEADER_BYTES_MAX, FrameHeader, MessageBuffer, RECORD_BYTES_MAX, RecordKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, WriteHalf, split};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::{ReadRecordError, put_head, put_records, read_head};
use crate::clock::monotonic_now;
use crate::identity::door::{Pass, Said};
use crate::link::accept::report_progress;
use crate::link::{CLOSE_TIME_MAX, Command, CommandSender, EdgeEvent, Shown, received};
use crate::memory::buffer;

/// Serves a connection until it ends.
pub(in crate::link) async fn serve(
    link: LinkId,
    stream: TlsStream<TcpStream>,
    shown: Shown,
    events: mpsc::Sender<EdgeEvent>,
    pass: Pass,
) {
    let (commands, receiver) = CommandSender::channel();
    // A connection that is gone already has no address any more.
    let Ok(from) = stream.get_ref().0.peer_addr() else { return };
    if events.send(EdgeEvent::Connected(link, shown, from.ip(), commands)).await.is_err() {
        return;
    }
    let (reader, mut writer) = split(stream);
    let (stop, stopped) = mpsc::channel(ARRIVING_FRAMES_MAX);
    let (said, dropped) = pass.until_said();
    let mut receiver_of_frames = Receiver {
        link,
        events: &events,
        stop,
        reader,
        messages: MessageBuffer::default(),
        said,
        frames: BTreeMap::new(),
        newest_stream: 0,
    };
    let (reading_ends, over) = oneshot::channel();
    let reason = {
        let mut writing = pin!(write(receiver, (stopped, over), &mut writer));
        let reason = tokio::select! {
            reason = &mut writing => Ok(reason),
            dropped = dropped => Err(dropped.to_string()),
            reason = receiver_of_frames.run() => Err(reason),
        };
        drop(reading_ends);
        // The broker may have said why it wants no more.
        match reason {
            Ok(reason) => reason,
            Err(reason) => {
                let _ = tokio::time::timeout(CLOSE_TIME_MAX, writing).await;
                reason
            }
        }
    };
    debug!(?link, reason, "a connection ended");
    // A socket that is closed with unread bytes takes back what was said last.
    let farewell = async {
        writer.shutdown().await?;
        tokio::io::copy(&mut receiver_of_frames.reader, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(CLOSE_TIME_MAX, farewell).await;
    let _ = events.send(EdgeEvent::Closed(link, reason)).await;
}

/// Writes what the broker says, until it closes the connection or nothing is read any more.
async fn write(
    mut commands: mpsc::Receiver<Command>,
    (mut stopped, mut over): (mpsc::Receiver<u32>, oneshot::Receiver<()>),
    writer: &mut WriteHalf<TlsStream<TcpStream>>,
) -> String {
    let mut out = Vec::new();
    loop {
        out.clear();
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(Command::Send(message)) => {
                    let mut bytes = Vec::with_capacity(64);
                    message.encode(&mut bytes);
                    put_records(&mut out, RecordKind::Control, 0, &bytes);
                }
                // What was said before has been written; the end of the connection follows it.
                Some(Command::Close | Command::Farewell) => {
                    return "the edge broker closed the connection".into();
                }
                // An edge sends no frames.
                Some(Command::SendFrame(..) | Command::Reset(_)) => {}
                None => return "the edge broker has stopped".into(),
            },
            Some(stream) = stopped.recv() => put_head(&mut out, RecordKind::Stop, stream, 0),
            _ = &mut over => return "nothing more is read".into(),
        }
        let written = async {
            writer.write_all(&out).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return error.to_string();
        }
    }
}

/// A frame's stream.
enum Arriving {
    Payload {
        frame: FrameId,
        /// The question that it answers, if it is of the past.
        history: u64,
        bytes: usize,
        payload: Buffer,
        reported: Instant,
    },
    /// It was refused. The rest of it is ignored until the camera notices.
    Refused,
}

struct Receiver<'a, R> {
    link: LinkId,
    events: &'a mpsc::Sender<EdgeEvent>,
    stop: mpsc::Sender<u32>,
    reader: R,
    messages: MessageBuffer,
    /// To be told of the first message.
    said: Said,
    frames: BTreeMap<u32, Arriving>,
    newest_stream: u32,
}

/// The connection is over, for this reason.
struct Over(String);

impl<E: Into<ReadRecordError>> From<E> for Over {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

impl<R: AsyncRead + Unpin> Receiver<'_, R> {
    async fn run(&mut self) -> String {
        loop {
            if let Err(Over(reason)) = self.take().await {
                return reason;
            }
        }
    }

    async fn take(&mut self) -> Result<(), Over> {
        let head = read_head(&mut self.reader).await?;
        let bytes = usize::from(head.bytes);
        match head.kind {
            RecordKind::Control => self.control(bytes).await,
            RecordKind::Data if self.frames.contains_key(&head.stream) => {
                self.payload(head.stream, bytes).await
            }
            RecordKind::Data if head.stream > self.newest_stream => self.header(head.stream, bytes).await,
            RecordKind::End | RecordKind::Reset => {
                let complete = head.kind == RecordKind::End;
                match self.frames.remove(&head.stream) {
                    Some(Arriving::Payload { frame, history, bytes, payload, .. }) => {
                        let payload = (complete && payload.len() == bytes).then(|| payload.freeze());
                        self.tell(received(self.link, frame, history, payload)).await
                    }
                    Some(Arriving::Refused) => Ok(()),
                    None => Err(Over("a stream ended that had not begun".into())),
                }
            }
            RecordKind::Data => Err(Over("a stream went on that had ended".into())),
            RecordKind::Stop => Err(Over("a camera broker does not refuse frames".into())),
        }
    }

    async fn control(&mut self, bytes: usize) -> Result<(), Over> {
        let mut content = [0; RECORD_BYTES_MAX];
        let content = &mut content[..bytes];
        self.reader.read_exact(content).await?;
        self.messages.push(content);
        loop {
            match self.messages.next() {
                Ok(Some(message)) => {
                    self.said.tell();
                    self.tell(EdgeEvent::Message(self.link, message)).await?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.tell(EdgeEvent::ProtocolError(self.link, error.to_string())).await?;
                    // The broker answers with a refusal and closes.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// The first record of a stream is the frame's header. Nothing is allocated for the payload before the broker has agreed
    /// to its size.
    async fn header(&mut self, stream: u32, bytes: usize) -> Result<(), Over> {
        if bytes > FRAME_HEADER_BYTES_MAX {
            return Err(Over(format!("a frame's header of {bytes} bytes")));
        }
        if self.frames.len() >= ARRIVING_FRAMES_MAX {
            return Err(Over(format!("more than {ARRIVING_FRAMES_MAX} frames at once")));
        }
        self.newest_stream = stream;
        let mut content = [0; FRAME_HEADER_BYTES_MAX];
        let content = &mut content[..bytes];
        self.reader.read_exact(content).await?;
        let header = FrameHeader::decode(content)?;
        let (frame, history, bytes) = (header.meta.id, header.history, header.payload_bytes as usize);
        let (answer, agreed) = oneshot::channel();
        self.tell(EdgeEvent::FrameHeader(self.link, Box::new(header), answer)).await?;
        match agreed.await {
            Ok(Ok(())) => {
                let (payload, reported) = (buffer(bytes), monotonic_now());
                self.frames.insert(stream, Arriving::Payload { frame, history, bytes, payload, reported });
                Ok(())
            }
            Ok(Err(refused)) => {
                debug!(link = ?self.link, %frame, %refused, "refused a frame");
                self.refuse(stream).await
            }
            Err(_) => Err(Over("the edge broker has stopped".into())),
        }
    }

    async fn payload(&mut self, stream: u32, bytes: usize) -> Result<(), Over> {
        match self.frames.get_mut(&stream) {
            Some(Arriving::Payload { frame, history, bytes: whole, payload, reported })
                if payload.len() + bytes <= *whole =>
            {
                let end = payload.len() + bytes;
                while payload.len() < end {
                    let missing = (end - payload.len()) as u64;
                    if (&mut self.reader).take(missing).read_buf(&mut **payload).await? == 0 {
                        return Err(ReadRecordError::Ended.into());
                    }
                    if *history == 0 {
                        report_progress(self.link, *frame, payload.len(), reported, self.events).await;
                    }
                }
                Ok(())
            }
            refused => {
                let cancelled = match refused {
                    Some(Arriving::Payload { frame, history, .. }) => Some((*frame, *history)),
                    _ => None,
                };
                let mut rest = [0; RECORD_BYTES_MAX];
                self.reader.read_exact(&mut rest[..bytes]).await?;
                match cancelled {
                    // More than its header said.
                    Some((frame, history)) => {
                        self.tell(received(self.link, frame, history, None)).await?;
                        self.refuse(stream).await
                    }
                    None => Ok(()),
                }
            }
        }
    }

    async fn refuse(&mut self, stream: u32) -> Result<(), Over> {
        self.frames.insert(stream, Arriving::Refused);
        self.stop.send(stream).await.map_err(|_| Over("the edge broker has stopped".into()))
    }

    async fn tell(&self, event: EdgeEvent) -> Result<(), Over> {
        self.events.send(event).await.map_err(|_| Over("the edge broker has stopped".into()))
    }
}
