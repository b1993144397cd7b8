//! Receives messages and frames over TCP: those of a camera, and the answers of an edge.

use std::collections::BTreeMap;

use mez_core::broker::LinkId;
use mez_core::broker::edge::ARRIVING_FRAMES_MAX;
use mez_core::buffer::Buffer;
use mez_core::frame::FrameId;
use mez_core::units::Instant;
use mez_core::wire::{FRAME_HEADER_BYTES_MAX, FrameHeader, MessageBuffer, RECORD_BYTES_MAX, RecordKind};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::{ReadRecordError, Side, Stop, read_head};
use crate::identity::door::Said;
use crate::link::LinkEvent;
use crate::link::receive::report_progress;
use crate::memory::buffer;

/// A stream that carries a frame.
enum Arriving {
    Payload {
        frame: FrameId,
        /// The question that a frame of the past answers; 0 for other frames.
        history: u64,
        bytes: usize,
        payload: Buffer,
        reported: Option<Instant>,
    },
    /// The frame was refused. The rest of the stream is ignored until the other side notices.
    Refused,
}

/// Reads one side of a connection.
pub(super) struct Receiver<'a, E, R> {
    link: LinkId,
    side: Side,
    events: &'a mpsc::Sender<E>,
    stops: mpsc::Sender<Stop>,
    reader: R,
    messages: MessageBuffer,
    /// Told of the first message.
    said: Option<Said>,
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

impl<'a, E: LinkEvent, R: AsyncRead + Unpin> Receiver<'a, E, R> {
    /// Reads what the other side sends, and reports it to a broker. Streams to be stopped go to `stops`. `said` is told of the first message.
    pub(super) fn new(
        link: LinkId,
        side: Side,
        events: &'a mpsc::Sender<E>,
        (stops, said): (mpsc::Sender<Stop>, Option<Said>),
        reader: R,
    ) -> Self {
        let messages = MessageBuffer::default();
        Self { link, side, events, stops, reader, messages, said, frames: BTreeMap::new(), newest_stream: 0 }
    }

    /// Returns the connection's reading half.
    pub(super) fn into_reader(self) -> R {
        self.reader
    }

    /// Reads until the connection is over, and returns why.
    pub(super) async fn run(&mut self) -> String {
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
                        self.tell(E::received(self.link, frame, history, payload)).await
                    }
                    Some(Arriving::Refused) => Ok(()),
                    None => Err(Over("the end of a stream came before its beginning".into())),
                }
            }
            RecordKind::Data => Err(Over("more data came after the end of a stream".into())),
            RecordKind::Stop => {
                // An error means that nothing is written any more. Later messages of the other side still count.
                let _ = self.stops.send(Stop::Ours(head.stream)).await;
                Ok(())
            }
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
                    if let Some(said) = &mut self.said {
                        said.tell();
                    }
                    self.tell(E::message(self.link, message)).await?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let Some(event) = E::protocol_error(self.link, error.to_string()) else {
                        return Err(Over(format!("the control stream cannot be parsed: {error}")));
                    };
                    self.tell(event).await?;
                    // The broker answers with a refusal and closes the connection.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Reads a stream's first record, the frame's header. Allocates nothing for the payload before the broker has accepted its size.
    async fn header(&mut self, stream: u32, bytes: usize) -> Result<(), Over> {
        if bytes > FRAME_HEADER_BYTES_MAX {
            return Err(Over(format!("a frame's header of {bytes} bytes")));
        }
        if self.frames.len() >= ARRIVING_FRAMES_MAX {
            return Err(Over(format!("more than {ARRIVING_FRAMES_MAX} frames arrive at once")));
        }
        self.newest_stream = stream;
        let mut content = [0; FRAME_HEADER_BYTES_MAX];
        let content = &mut content[..bytes];
        self.reader.read_exact(content).await?;
        let header = FrameHeader::decode(content)?;
        let (frame, history, bytes) = (header.meta.id, header.history, header.payload_bytes as usize);
        let (answer, agreed) = oneshot::channel();
        self.tell(E::header(self.link, Box::new(header), answer)).await?;
        match agreed.await {
            Ok(Ok(())) => {
                let (payload, reported) = (buffer(bytes), None);
                self.frames.insert(stream, Arriving::Payload { frame, history, bytes, payload, reported });
                Ok(())
            }
            Ok(Err(refused)) => {
                debug!(link = ?self.link, %frame, %refused, "refused a frame");
                self.refuse(stream).await
            }
            Err(_) => Err(self.stopped()),
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
                    // The payload is larger than the header says.
                    Some((frame, history)) => {
                        self.tell(E::received(self.link, frame, history, None)).await?;
                        self.refuse(stream).await
                    }
                    None => Ok(()),
                }
            }
        }
    }

    fn stopped(&self) -> Over {
        Over(format!("{} has stopped", self.side.broker()))
    }

    async fn refuse(&mut self, stream: u32) -> Result<(), Over> {
        self.frames.insert(stream, Arriving::Refused);
        let _ = self.stops.send(Stop::Theirs(stream)).await;
        Ok(())
    }

    async fn tell(&self, event: E) -> Result<(), Over> {
        self.events.send(event).await.map_err(|_| self.stopped())
    }
}
