//! Streams between a client and its broker, over a Unix socket or gRPC: events, frames and their answers.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use mez_media::stream::OwnedPicture;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tonic::Streaming;

use super::address::Address;
use super::error::ClientError;
use crate::api::pb;
use crate::api::pb::publish_event::Event as PublishEvent;
use crate::api::pb::reply::Content as ReplyContent;
use crate::api::pb::subscribe_event::Event as SubscribeEvent;
use crate::local::pictures::PictureHead;
use crate::local::reports::{CONFIRM, Confirmed};
use crate::local::shared::{
    self, Filler, Layout, NotThere, PictureTaker, Reserved, SHARED_BYTES_MIN, Taker, is_for_pictures,
};
use crate::local::{DescriptorReader, Kind, Packet, PacketError, PacketReader, PacketWriter};
use crate::memory::pooled;

/// The events of a subscription.
pub(super) struct EventStream {
    address: Address,
    from: EventSource,
    /// What came beside the last frame.
    beside: Shared,
}

/// What came beside a frame of a chain, from an edge on this host that decodes for several programs.
#[derive(Debug, Default)]
pub(super) enum Shared {
    /// Nothing: the frame is decoded here.
    #[default]
    Nothing,
    /// No picture, because a later frame has one.
    Passed,
    /// The frame's picture.
    Picture(OwnedPicture),
}

pub(super) enum EventSource {
    Local {
        reader: PacketReader<DescriptorReader>,
        upstream: Arc<Upstream>,
        /// The shared memory into which the broker writes frames.
        memory: Option<Taker>,
        /// The shared memory for pictures.
        pictures: PictureTaker,
    },
    Grpc(Streaming<pb::SubscribeEvent>),
}

/// Sends packets to the broker on the connection of a stream. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct Upstream {
    writer: tokio::sync::Mutex<PacketWriter<OwnedWriteHalf>>,
    /// How many reports of a member of a group were sent.
    reports: AtomicU64,
    /// How many of them the edge has confirmed.
    confirmed: watch::Sender<u64>,
}

impl Upstream {
    pub(super) fn new(writer: PacketWriter<OwnedWriteHalf>) -> Self {
        let writer = tokio::sync::Mutex::new(writer);
        Self { writer, reports: AtomicU64::new(0), confirmed: watch::Sender::new(0) }
    }

    async fn write(&self, kind: Kind, message: &impl prost::Message, payload: Bytes) -> io::Result<()> {
        self.writer.lock().await.write(kind, message, payload).await
    }
}

/// The way of a member's reports on the connection of its stream. It does not keep the stream open.
#[derive(Clone, Debug)]
pub(super) struct ReportLine {
    upstream: Weak<Upstream>,
    /// The number of the last report that the edge has confirmed, with all before it.
    pub(super) confirmed: watch::Receiver<u64>,
}

impl ReportLine {
    /// A line whose stream has ended.
    #[cfg(test)]
    pub(super) fn without_stream(confirmed: watch::Receiver<u64>) -> Self {
        Self { upstream: Weak::new(), confirmed }
    }

    /// Sends a report, and returns its number. `confirm`: the edge is to confirm it at once, and not with the next record.
    pub(super) async fn report(&self, request: &pb::SettleRecordsRequest, confirm: bool) -> io::Result<u64> {
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the stream has ended");
        let upstream = self.upstream.upgrade().ok_or_else(ended)?;
        let payload = if confirm { Bytes::from_static(CONFIRM) } else { Bytes::new() };
        let mut writer = upstream.writer.lock().await;
        writer.write(Kind::SettleRecords, request, payload).await?;
        Ok(upstream.reports.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl EventStream {
    pub(super) fn new(address: &Address, from: EventSource) -> Self {
        Self { address: address.clone(), from, beside: Shared::Nothing }
    }

    /// What came beside the last frame that [`EventStream::next`] returned.
    pub(super) fn take_beside(&mut self) -> Shared {
        std::mem::take(&mut self.beside)
    }

    /// The way of reports on this connection. `None` over gRPC, where reports are calls.
    pub(super) fn report_line(&self) -> Option<ReportLine> {
        match &self.from {
            EventSource::Local { upstream, .. } => {
                let confirmed = upstream.confirmed.subscribe();
                Some(ReportLine { upstream: Arc::downgrade(upstream), confirmed })
            }
            EventSource::Grpc(_) => None,
        }
    }

    /// The next event, and `None` after the last. Must not be cancelled.
    pub(super) async fn next(&mut self) -> Result<Option<SubscribeEvent>, ClientError> {
        let address = &self.address;
        let event = match &mut self.from {
            EventSource::Local { reader, upstream, memory, pictures } => {
                let fault = |error| ClientError::from_packet(error, address);
                let packet = loop {
                    let (layout, file) = match read(reader, address).await? {
                        None => return Ok(None),
                        Some(Came::Packet(packet)) if packet.kind == Kind::Picture => {
                            self.beside = beside(packet, pictures).map_err(fault)?;
                            continue;
                        }
                        Some(Came::Packet(packet)) if packet.kind == Kind::SettleRecords => {
                            let Confirmed { reports } = packet.decode(Kind::SettleRecords).map_err(fault)?;
                            upstream.confirmed.send_replace(reports);
                            continue;
                        }
                        Some(Came::Packet(packet)) => break packet,
                        Some(Came::Memory(layout, file)) => (layout, file),
                    };
                    let Some(file) = file else {
                        pictures.forget(layout.number);
                        continue;
                    };
                    let mapped = match is_for_pictures(layout.number) {
                        true => pictures.map(layout, file),
                        false => Taker::map(file, layout).map(|mapped| *memory = Some(mapped)),
                    };
                    match mapped {
                        Ok(()) => {
                            let said = upstream.write(Kind::Mapped, &(), vec![layout.number].into()).await;
                            said.map_err(|error| ClientError::from_io(&error, address))?;
                        }
                        // The broker continues through the socket.
                        Err(error) => shared::cannot(&error),
                    }
                };
                let mut message: pb::SubscribeEvent = packet.decode(Kind::SubscribeEvent).map_err(fault)?;
                if let Some(SubscribeEvent::Frame(frame)) = &mut message.event {
                    frame.payload = match packet.shared {
                        Some(place) => {
                            let taken = match memory {
                                Some(memory) => memory.take(place).await,
                                None => Err(NotThere::NoPlace),
                            };
                            taken.map_err(|not_there| fault(not_there.into()))?
                        }
                        None => packet.payload,
                    };
                }
                message.event
            }
            EventSource::Grpc(events) => match message(events, address).await? {
                Some(message) => message.event,
                None => return Ok(None),
            },
        };
        // An empty event is from a later version.
        event.map(Some).ok_or_else(|| unknown(address, "an event of an unknown kind"))
    }
}

/// Reads the picture for the next frame from a packet. If the program keeps
/// many pictures, it gets copies, so that the next picture always has a place.
fn beside(packet: Packet, pictures: &PictureTaker) -> Result<Shared, PacketError> {
    let PictureHead { form, width, height, lease } = packet.decode(Kind::Picture)?;
    if form == 0 {
        return Ok(Shared::Passed);
    }
    let data = match packet.shared {
        Some(place) => {
            let data = pictures.take(place, lease)?;
            if pictures.is_full() { pooled(&data) } else { data }
        }
        None => packet.payload,
    };
    let form = u8::try_from(form).unwrap_or_default();
    let picture = OwnedPicture::from_parts(form, (width, height), data);
    picture
        .map(Shared::Picture)
        .ok_or(PacketError::Malformed { what: "a picture whose size differs from its header" })
}

/// Takes frames for a camera broker.
pub(super) enum FrameSink {
    Local {
        writer: PacketWriter<OwnedWriteHalf>,
        /// The shared memory from which the broker reads frames.
        memory: SharedFiller,
    },
    Grpc(mpsc::Sender<pb::PublishRequest>),
}

/// The connection takes no more frames.
pub(super) struct SinkLost(Option<io::Error>);

impl SinkLost {
    pub(super) fn explain(&self, address: &Address) -> ClientError {
        match &self.0 {
            Some(error) => ClientError::from_io(error, address),
            None => ClientError::Unreachable {
                address: address.clone(),
                reason: "the broker closed the connection".into(),
            },
        }
    }
}

impl FrameSink {
    /// Whether a payload of `bytes` can be sent without waiting.
    pub(super) fn is_at_once(&self, bytes: usize) -> bool {
        match self {
            Self::Local { memory, .. } => {
                bytes >= SHARED_BYTES_MIN && memory.lock().unwrap_or_else(PoisonError::into_inner).is_some()
            }
            Self::Grpc(_) => false,
        }
    }

    /// Sends a frame through shared memory on the calling thread. Returns false if this is not possible now. The frame is then unchanged.
    pub(super) fn send_at_once(&mut self, request: &mut pb::PublishRequest) -> bool {
        let Self::Local { writer, memory } = self else { return false };
        let Some(reserved) = reserve(memory, request.payload.len()) else { return false };
        let payload = std::mem::take(&mut request.payload);
        // The broker wakes up while the payload is being copied.
        if writer.try_write_shared(Kind::Publish, request, reserved.place()) {
            reserved.fill(&payload);
            return true;
        }
        request.payload = payload;
        reserved.give_back();
        false
    }

    /// Sends a frame. Must not be cancelled.
    pub(super) async fn send(&mut self, mut request: pb::PublishRequest) -> Result<(), SinkLost> {
        match self {
            Self::Local { writer, memory } => {
                let payload = std::mem::take(&mut request.payload);
                let sent = match reserve(memory, payload.len()) {
                    Some(reserved) => {
                        let told = writer.write_shared(Kind::Publish, &request, reserved.place()).await;
                        reserved.fill(&payload);
                        told
                    }
                    None => writer.write(Kind::Publish, &request, payload).await,
                };
                sent.map_err(|error| SinkLost(Some(error)))
            }
            Self::Grpc(frames) => frames.send(request).await.map_err(|_| SinkLost(None)),
        }
    }
}

/// The answers of a camera broker to frames.
pub(super) struct AnswerStream {
    pub(super) address: Address,
    pub(super) from: AnswerSource,
}

/// The shared memory that a broker has granted.
pub(super) type SharedFiller = Arc<Mutex<Option<Filler>>>;

/// Reserves shared memory for a payload of `bytes`. `None`: the payload must go through the socket.
fn reserve(memory: &SharedFiller, bytes: usize) -> Option<Reserved> {
    if bytes < SHARED_BYTES_MIN {
        return None;
    }
    memory.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.reserve(bytes)
}

pub(super) enum AnswerSource {
    Local { reader: PacketReader<DescriptorReader>, memory: SharedFiller },
    Grpc(Streaming<pb::PublishEvent>),
}

impl AnswerStream {
    /// The next answer, and `None` after the last. Must not be cancelled.
    pub(super) async fn next(&mut self) -> Result<Option<PublishEvent>, ClientError> {
        let address = &self.address;
        let event = match &mut self.from {
            AnswerSource::Local { reader, memory } => {
                let packet = loop {
                    let (layout, file) = match read(reader, address).await? {
                        None => return Ok(None),
                        Some(Came::Packet(packet)) => break packet,
                        Some(Came::Memory(layout, file)) => (layout, file),
                    };
                    let Some(file) = file else { continue };
                    match Filler::map(file, layout, None) {
                        Ok(mapped) => *memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(mapped),
                        Err(error) => shared::cannot(&error),
                    }
                };
                let decoded = packet.decode(Kind::PublishEvent);
                let mut message: pb::PublishEvent =
                    decoded.map_err(|error| ClientError::from_packet(error, address))?;
                if let Some(PublishEvent::Reply(pb::Reply { content, .. })) = &mut message.event
                    && let Some(ReplyContent::Payload(payload)) = content
                {
                    *payload = packet.payload;
                }
                message.event
            }
            AnswerSource::Grpc(events) => match message(events, address).await? {
                Some(message) => message.event,
                None => return Ok(None),
            },
        };
        event.map(Some).ok_or_else(|| unknown(address, "an answer of an unknown kind"))
    }
}

/// The answers that applications made of a camera's frames.
pub(super) struct TakenAnswers {
    pub(super) address: Address,
    pub(super) from: TakenSource,
}

pub(super) enum TakenSource {
    Local {
        reader: PacketReader<DescriptorReader>,
        /// Closing it would end the stream.
        _writer: PacketWriter<OwnedWriteHalf>,
    },
    Grpc(Streaming<pb::TakeAnswersResponse>),
}

impl TakenAnswers {
    /// The next response, and `None` after the last. Must not be cancelled.
    pub(super) async fn next(&mut self) -> Result<Option<pb::TakeAnswersResponse>, ClientError> {
        let address = &self.address;
        let reader = match &mut self.from {
            TakenSource::Local { reader, .. } => reader,
            TakenSource::Grpc(answers) => return message(answers, address).await,
        };
        let fault = |error| ClientError::from_packet(error, address);
        let Some(packet) = reader.read().await.map_err(fault)? else { return Ok(None) };
        let mut response: pb::TakeAnswersResponse = packet.decode(Kind::TakeAnswers).map_err(fault)?;
        if let Some(answer) = &mut response.answer {
            answer.payload = packet.payload;
        }
        Ok(Some(response))
    }
}

/// What a local socket delivers.
enum Came {
    Packet(Packet),
    /// Memory that the broker offers for payloads. Without a descriptor, the memory is no longer used.
    Memory(Layout, Option<OwnedFd>),
}

/// Reads the next packet or offer of memory. `None` after the last.
async fn read(
    reader: &mut PacketReader<DescriptorReader>,
    address: &Address,
) -> Result<Option<Came>, ClientError> {
    let fault = |error| ClientError::from_packet(error, address);
    match reader.read().await.map_err(fault)? {
        Some(packet) if packet.kind == Kind::Memory => {
            let (layout, file) = reader.memory(&packet).map_err(fault)?;
            Ok(Some(Came::Memory(layout, file)))
        }
        packet => Ok(packet.map(Came::Packet)),
    }
}

/// The next message over gRPC, and `None` after the last.
async fn message<M>(messages: &mut Streaming<M>, address: &Address) -> Result<Option<M>, ClientError> {
    messages.message().await.map_err(|status| ClientError::from_status(&status, address))
}

fn unknown(address: &Address, what: &str) -> ClientError {
    ClientError::Protocol { address: address.clone(), what: what.into() }
}
