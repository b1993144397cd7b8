//! The broker's side of the local protocol.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use bytes::Bytes;
use mez_core::units::Instant;
use prost::Message;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tonic::Code;
use tracing::debug;

use super::MAGIC;
use super::packet::{Kind, Packet, PacketError, PacketReader, PacketWriter, too_slow};
use super::pictures::{Pictures, Said};
use super::reports::Reports;
use super::shared::{Incoming, Layout, Outgoing};
use crate::api::camera::{PublishAnswers, PublishRequests};
use crate::api::edge::EdgeApi;
use crate::api::feed::{Feed, Told};
use crate::api::lent::Payload;
use crate::api::pb::publish_event::Event as PublishEvent;
use crate::api::pb::subscribe_event::Event as SubscribeEvent;
use crate::api::pb::{answer_request, reply, reply_request};
use crate::api::principal::Principal;
use crate::api::{ApiError, Broker, pb};
use crate::clock::monotonic_now;

/// How long a refused client may take to send the first bytes of its protocol. Without them, it cannot get the reason.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

type Reader = PacketReader<OwnedReadHalf>;
type Writer = PacketWriter<OwnedWriteHalf>;

/// Offers of shared memory that may wait to be sent to a publisher. A publisher without an offer sends payloads inline.
const OFFERS_MAX: usize = 1;

/// Serves one connection from its first bytes to its end. An error ends the connection. The client gets the error if it still listens.
pub(crate) async fn serve(stream: UnixStream, broker: Broker, principal: Principal) {
    let (read, write) = stream.into_split();
    let mut writer = PacketWriter::new(write);
    if let Err(error) = converse(read, &mut writer, &broker, &principal).await {
        debug!(%principal, %error, "a local connection failed");
        let told = match error {
            // The client is gone.
            PacketError::Io(_) | PacketError::Cut => return,
            PacketError::Refused(error) => error,
            PacketError::Malformed { .. } => {
                ApiError::new(Code::InvalidArgument, "MALFORMED", error.to_string())
            }
            PacketError::TooLarge { bytes, bytes_max, .. } => {
                ApiError::too_large(Some(bytes as usize), bytes_max)
            }
        };
        let _ = writer.write_error(told).await;
    }
}

/// Sends the reason of a refusal to a client of the local protocol. A gRPC client is only disconnected.
pub(crate) async fn refuse(stream: UnixStream, refused: ApiError) {
    let (mut read, write) = stream.into_split();
    let mut magic = [0; MAGIC.len()];
    let came = tokio::time::timeout(REFUSED_TIMEOUT, read.read_exact(&mut magic)).await;
    if magic == *MAGIC && matches!(came, Ok(Ok(_))) {
        // The socket has room: nothing was written before.
        let _ = PacketWriter::new(write).write_error(refused).await;
    }
}

async fn converse(
    mut read: OwnedReadHalf,
    writer: &mut Writer,
    broker: &Broker,
    principal: &Principal,
) -> Result<(), PacketError> {
    let mut magic = [0; MAGIC.len()];
    read.read_exact(&mut magic).await?;
    if magic != *MAGIC {
        return Err(PacketError::Malformed { what: "another version of the protocol" });
    }
    let mut reader = PacketReader::new(read, broker.payload_bytes_max());
    let mut stopping = broker.stopping();
    loop {
        let packet = tokio::select! {
            packet = reader.read() => packet?,
            _ = stopping.wait_for(|stop| *stop) => return Err(ApiError::stopping().into()),
        };
        let Some(packet) = packet else { return Ok(()) };
        match packet.kind {
            Kind::Subscribe => return subscribe(reader, writer, broker, principal, &packet).await,
            Kind::Publish => return publish(reader, writer, broker, principal, packet).await,
            Kind::TakeAnswers => return send_answers(reader, writer, broker, principal, &packet).await,
            _ => call(writer, broker, principal, packet, monotonic_now()).await?,
        }
    }
}

/// Handles a call: one packet, one answer.
async fn call(
    writer: &mut Writer,
    broker: &Broker,
    principal: &Principal,
    packet: Packet,
    received: Instant,
) -> Result<(), PacketError> {
    use Broker::{Camera, Edge};
    let kind = packet.kind;
    match (kind, broker) {
        (Kind::Connect, Edge(api)) => {
            answer(writer, kind, api.connect(&packet.decode(kind)?, received)).await
        }
        (Kind::Connect, Camera(api)) => {
            answer(writer, kind, api.connect(&packet.decode(kind)?, received)).await
        }
        (Kind::Unsubscribe, Edge(api)) => {
            answer(writer, kind, api.unsubscribe(principal, &packet.decode(kind)?)).await
        }
        (Kind::Unsubscribe, Camera(api)) => {
            answer(writer, kind, api.unsubscribe(principal, &packet.decode(kind)?)).await
        }
        (Kind::UpdateContract, Edge(api)) => {
            answer(writer, kind, api.update_contract(principal, packet.decode(kind)?).await).await
        }
        (Kind::ReportAccuracy, Edge(api)) => {
            answer(writer, kind, api.report_accuracy(principal, &packet.decode(kind)?)).await
        }
        (Kind::ReportTaken, Edge(api)) => {
            answer(writer, kind, api.report_taken(principal, &packet.decode(kind)?)).await
        }
        (Kind::RestartChain, Edge(api)) => {
            answer(writer, kind, api.restart_chain(principal, &packet.decode(kind)?)).await
        }
        (Kind::GetCameraInfo, Edge(api)) => {
            answer(writer, kind, api.camera_info(principal, packet.decode(kind)?).await).await
        }
        (Kind::GetNotes, Edge(api)) => {
            answer(writer, kind, api.notes(principal, packet.decode(kind)?).await).await
        }
        (Kind::GetCameraStarts, Edge(api)) => {
            answer(writer, kind, api.camera_starts(principal, packet.decode(kind)?).await).await
        }
        (Kind::ResetCamera, Edge(api)) => {
            answer(writer, kind, api.reset_camera(principal, packet.decode(kind)?).await).await
        }
        (Kind::ForgetCamera, Edge(api)) => {
            answer(writer, kind, api.forget_camera(principal, packet.decode(kind)?).await).await
        }
        (Kind::SettleRecords | Kind::GetGroups | Kind::ForgetGroup, Edge(api)) => {
            call_groups(writer, api, principal, &packet).await
        }
        (Kind::CheckRights, Edge(api)) => {
            answer(writer, kind, api.check_rights(principal, packet.decode(kind)?)).await
        }
        (Kind::OpenPage, Edge(api)) => {
            answer(writer, kind, api.open_page(principal, &packet.decode(kind)?)).await
        }
        (Kind::Reply, Edge(api)) => {
            let mut request: pb::ReplyRequest = packet.decode(kind)?;
            if let Some(reply_request::Content::Payload(payload)) = &mut request.content {
                *payload = packet.payload.clone();
            }
            answer(writer, kind, api.reply(principal, request).await).await
        }
        (Kind::Answer, Edge(api)) => {
            let mut request: pb::AnswerRequest = packet.decode(kind)?;
            if !matches!(request.content, Some(answer_request::Content::Detections(_))) {
                // Earlier clients say nothing of the content, because they answered with pictures only.
                request.content = Some(answer_request::Content::Payload(packet.payload.clone()));
            }
            answer(writer, kind, api.answer(principal, request).await).await
        }
        (_, Camera(_)) => match not_of_a_camera(kind) {
            Some(why) => Ok(writer.write_error(not_here(why)).await?),
            None => Err(not_of_a_client()),
        },
        _ => Err(not_of_a_client()),
    }
}

/// Handles the calls about groups.
async fn call_groups(
    writer: &mut Writer,
    api: &EdgeApi,
    principal: &Principal,
    packet: &Packet,
) -> Result<(), PacketError> {
    match packet.kind {
        kind @ Kind::SettleRecords => {
            answer(writer, kind, api.settle_records(principal, packet.decode(kind)?).await).await
        }
        kind @ Kind::GetGroups => answer(writer, kind, api.groups(principal).await).await,
        kind => answer(writer, kind, api.forget_group(principal, &packet.decode(kind)?).await).await,
    }
}

/// Why a camera broker does not support a call of an edge broker.
fn not_of_a_camera(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::UpdateContract | Kind::ReportAccuracy | Kind::ReportTaken => {
            Some("a camera broker keeps no contracts")
        }
        Kind::RestartChain => Some("a camera broker sends frames only as they were published"),
        Kind::GetCameraInfo => Some("a camera broker knows no other cameras"),
        Kind::GetCameraStarts | Kind::ResetCamera | Kind::ForgetCamera => {
            Some("a camera broker does not accept cameras")
        }
        Kind::Reply | Kind::Answer => Some("a camera broker does not take replies"),
        Kind::GetNotes => Some("a camera broker keeps no notes"),
        Kind::SettleRecords | Kind::GetGroups | Kind::ForgetGroup => Some("a camera broker has no groups"),
        Kind::CheckRights => Some("a camera broker keeps no rights"),
        Kind::OpenPage => Some("a camera broker has no page"),
        _ => None,
    }
}

fn not_of_a_client() -> PacketError {
    PacketError::Malformed { what: "a client does not send this" }
}

/// Serves a subscription, which uses the rest of the connection.
async fn subscribe(
    reader: Reader,
    writer: &mut Writer,
    broker: &Broker,
    principal: &Principal,
    packet: &Packet,
) -> Result<(), PacketError> {
    let request = packet.decode(Kind::Subscribe)?;
    let feed = match broker {
        Broker::Edge(api) => api.subscribe(principal, request).await?,
        Broker::Camera(api) => api.subscribe(principal, request)?,
    };
    send_events(reader, writer, feed, (broker, principal)).await
}

fn not_here(why: &str) -> ApiError {
    ApiError::new(Code::Unimplemented, "NOT_HERE", format!("{why}; connect to the edge broker"))
}

async fn answer(
    writer: &mut Writer,
    kind: Kind,
    response: Result<impl Message, ApiError>,
) -> Result<(), PacketError> {
    match response {
        Ok(response) => writer.write(kind, &response, Bytes::new()).await?,
        Err(error) => writer.write_error(error).await?,
    }
    Ok(())
}

/// Sends the events of a subscription until it or the connection ends.
async fn send_events(
    mut reader: Reader,
    writer: &mut Writer,
    mut feed: Feed,
    (broker, principal): (&Broker, &Principal),
) -> Result<(), PacketError> {
    let (said, reports) = (Said::default(), Reports::new(feed.member_reports()));
    let whose = match broker {
        Broker::Edge(api) => Some((&**api, principal)),
        Broker::Camera(_) => None,
    };
    let send = async {
        let (mut memory, mut pictures) = (Outgoing::new(&said.frames), Pictures::new(&said, principal));
        let mut is_over = false;
        while !(is_over && pictures.are_empty()) {
            let (told, beside) = tokio::select! {
                biased;
                came = pictures.ready() => came.checked(&mut feed)?,
                () = reports.must_confirm() => {
                    reports.confirm(writer).await?;
                    continue;
                }
                event = feed.next(), if !is_over && !pictures.are_full() => {
                    is_over = event.is_none();
                    if matches!(event, Some(Err(_))) {
                        // Otherwise the member would repeat what has been carried out.
                        reports.queue(writer)?;
                    }
                    match event.transpose()?.and_then(|told| pictures.take(told, &mut feed)) {
                        Some(ready) => ready,
                        None => continue,
                    }
                }
            };
            let Told { event, mut payload } = told;
            let shared = feed.memory_of(&event, &beside);
            reports.queue(writer)?;
            pictures.queue(&beside, (&event, payload.as_mut()), shared, writer).await?;
            send_event(event, payload, &mut memory, writer).await?;
        }
        Ok(())
    };
    let listen = async {
        while let Some(packet) = reader.read().await? {
            match (packet.kind, &packet.payload[..]) {
                (Kind::Mapped, [number]) => said.mapped(*number),
                (Kind::TakesPictures, []) => said.takes_pictures(),
                (Kind::SettleRecords, _) => reports.take_in(whose, &packet).await,
                _ => return Err(PacketError::Malformed { what: "a subscriber does not send this" }),
            }
        }
        Ok(())
    };
    tokio::select! {
        biased;
        // First, as `Reports::must_confirm` asks. A client that leaves while no frame comes would otherwise stay subscribed.
        left = listen => left,
        sent = send => sent,
    }
}

/// Sends an event. The payload of a frame goes through shared memory if possible.
async fn send_event(
    event: SubscribeEvent,
    payload: Option<Payload>,
    memory: &mut Outgoing<'_>,
    writer: &mut Writer,
) -> Result<(), PacketError> {
    let event = pb::SubscribeEvent { event: Some(event) };
    let Some(mut payload) = payload else {
        return Ok(writer.write(Kind::SubscribeEvent, &event, Bytes::new()).await?);
    };
    if let Some(reserved) = memory.reserve(payload.len()) {
        // The client wakes up while the payload is being copied.
        if !writer.try_write_shared(Kind::SubscribeEvent, &event, reserved.place()) {
            payload.wait();
            writer.write_shared(Kind::SubscribeEvent, &event, reserved.place()).await?;
        }
        reserved.fill(&payload.bytes().ok_or_else(too_slow)?);
        return Ok(());
    }
    let bytes = payload.len();
    writer.write_lent(Kind::SubscribeEvent, &event, payload).await?;
    if let Some((layout, file)) = memory.offer(bytes) {
        writer.write_memory(layout, file.as_fd()).await?;
    }
    Ok(())
}

/// Sends the answers of a camera until the connection ends. The next answer is chosen when the socket has taken the previous one.
async fn send_answers(
    mut reader: Reader,
    writer: &mut Writer,
    broker: &Broker,
    principal: &Principal,
    packet: &Packet,
) -> Result<(), PacketError> {
    let request = packet.decode(Kind::TakeAnswers)?;
    let mut answers = match broker {
        Broker::Camera(api) => api.take_answers(principal, &request)?,
        Broker::Edge(_) => {
            let message = "an edge broker sends answers to cameras; connect to the camera broker";
            return Err(ApiError::new(Code::Unimplemented, "NOT_HERE", message).into());
        }
    };
    let send = async {
        while let Some(next) = answers.next().await {
            let (response, payload) = next?;
            writer.write(Kind::TakeAnswers, &response, payload.unwrap_or_default()).await?;
        }
        Ok(())
    };
    tokio::select! {
        sent = send => sent,
        // Otherwise, a program that has gone would keep others from the answers until the next one comes.
        () = reader.ended() => Ok(()),
    }
}

/// Takes in frames until the connection ends.
async fn publish(
    reader: Reader,
    writer: &mut Writer,
    broker: &Broker,
    principal: &Principal,
    first: Packet,
) -> Result<(), PacketError> {
    let answers = PublishAnswers::default();
    let (offer, mut offered) = mpsc::channel(OFFERS_MAX);
    let write = async {
        loop {
            let answer = tokio::select! {
                biased;
                Some((layout, file)) = offered.recv() => {
                    writer.write_memory(layout, OwnedFd::as_fd(&file)).await?;
                    continue;
                }
                answer = answers.next() => answer,
            };
            let Some(answer) = answer else { break };
            // Lets the task that forwards the frame run first. The publisher does not wait for this answer.
            tokio::task::yield_now().await;
            let mut event = answer?;
            let payload = match &mut event {
                PublishEvent::Reply(pb::Reply {
                    content: Some(reply::Content::Payload(payload)), ..
                }) => std::mem::take(payload),
                _ => Bytes::new(),
            };
            writer.write(Kind::PublishEvent, &pb::PublishEvent { event: Some(event) }, payload).await?;
        }
        Ok(())
    };
    let requests =
        LocalRequests { reader, first: Some(first), memory: Incoming::default(), offer, has_ended: false };
    let take_in = async {
        match broker {
            Broker::Edge(api) => api.publish(principal, requests, &answers).await,
            Broker::Camera(api) => api.publish(requests, &answers).await,
        }
    };
    let (_, written) = tokio::join!(take_in, write);
    written
}

struct LocalRequests {
    reader: Reader,
    first: Option<Packet>,
    memory: Incoming,
    /// Memory to offer to the client.
    offer: mpsc::Sender<(Layout, OwnedFd)>,
    /// Whether the publisher has said that nothing follows.
    has_ended: bool,
}

impl LocalRequests {
    async fn request(&mut self, packet: Packet) -> Result<pb::PublishRequest, PacketError> {
        let mut request: pb::PublishRequest = packet.decode(Kind::Publish)?;
        request.payload = match packet.shared {
            Some(place) => self.memory.copy(place).await?,
            None => {
                if let Some(offer) = self.memory.offer(packet.payload.len()) {
                    // If the last offer still waits, nobody reads the answers, and the client gets no memory.
                    let _ = self.offer.try_send(offer);
                }
                packet.payload
            }
        };
        Ok(request)
    }
}

impl PublishRequests for LocalRequests {
    async fn next(&mut self) -> Option<Result<pb::PublishRequest, ApiError>> {
        let packet = match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.reader.read().await,
        };
        let request = match packet {
            Ok(Some(packet)) => self.request(packet).await,
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        match request {
            Ok(request) => {
                self.has_ended = request.last;
                Some(Ok(request))
            }
            // The publisher is gone. Its complete frames are in the log.
            Err(PacketError::Io(_) | PacketError::Cut) => None,
            Err(PacketError::Refused(error)) => Some(Err(error)),
            Err(PacketError::TooLarge { bytes, bytes_max, .. }) => {
                Some(Err(ApiError::too_large(Some(bytes as usize), bytes_max)))
            }
            Err(error) => Some(Err(ApiError::new(Code::InvalidArgument, "MALFORMED", error.to_string()))),
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
