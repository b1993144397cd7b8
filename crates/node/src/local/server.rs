//! A broker's side of the local protocol.

use bytes::Bytes;
use prost::Message;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tonic::Code;
use tracing::debug;

use super::MAGIC;
use super::packet::{Kind, Packet, PacketError, PacketReader, PacketWriter};
use crate::api::camera::{CameraApi, PublishAnswers, PublishRequests};
use crate::api::feed::Feed;
use crate::api::pb::publish_event::Event as PublishEvent;
use crate::api::pb::subscribe_event::Event;
use crate::api::principal::Principal;
use crate::api::{ApiError, Broker, pb};
use crate::clock::monotonic_now;

type Reader = PacketReader<OwnedReadHalf>;
type Writer = PacketWriter<OwnedWriteHalf>;

/// Serves one connection, from the magic to its end. Errors end the connection, and are told to the client where it still listens.
pub(crate) async fn serve(stream: UnixStream, broker: Broker, principal: Principal) {
    let (read, write) = stream.into_split();
    let mut writer = PacketWriter::new(write);
    if let Err(error) = converse(read, &mut writer, &broker, &principal).await {
        debug!(%principal, %error, "a local connection failed");
        let told = match error {
            // Nobody listens any more.
            PacketError::Io(_) | PacketError::Cut => return,
            PacketError::Refused(error) => error,
            PacketError::Malformed { .. } => {
                ApiError::new(Code::InvalidArgument, "MALFORMED", error.to_string())
            }
            PacketError::TooLarge { .. } => {
                ApiError::new(Code::InvalidArgument, "MESSAGE_TOO_LARGE", error.to_string())
            }
        };
        let _ = writer.write_error(told).await;
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
        return Err(PacketError::Malformed { what: "another version of it" });
    }
    let mut reader = PacketReader::new(read, broker.frame_bytes_max());
    let mut stopping = broker.stopping();
    loop {
        let packet = tokio::select! {
            packet = reader.read() => packet?,
            _ = stopping.wait_for(|stop| *stop) => return Err(ApiError::stopping().into()),
        };
        let Some(packet) = packet else { return Ok(()) };
        let received = monotonic_now();
        match packet.kind {
            Kind::Connect => {
                let request = packet.decode(Kind::Connect)?;
                let response = match broker {
                    Broker::Edge(api) => api.connect(&request, received),
                    Broker::Camera(api) => api.connect(&request, received),
                };
                answer(writer, Kind::Connect, response).await?;
            }
            Kind::Unsubscribe => {
                let request = packet.decode(Kind::Unsubscribe)?;
                let response = match broker {
                    Broker::Edge(api) => api.unsubscribe(principal, &request),
                    Broker::Camera(api) => api.unsubscribe(principal, &request),
                };
                answer(writer, Kind::Unsubscribe, response).await?;
            }
            Kind::GetCameraInfo => {
                let response = match broker {
                    Broker::Edge(api) => api.camera_info(packet.decode(Kind::GetCameraInfo)?).await,
                    Broker::Camera(_) => Err(not_here("a camera broker knows no other cameras")),
                };
                answer(writer, Kind::GetCameraInfo, response).await?;
            }
            Kind::Reply => {
                let mut request: pb::ReplyRequest = packet.decode(Kind::Reply)?;
                request.payload = packet.payload;
                let response = match broker {
                    Broker::Edge(api) => api.reply(principal, request).await,
                    Broker::Camera(_) => Err(not_here("a camera broker takes no replies")),
                };
                answer(writer, Kind::Reply, response).await?;
            }
            Kind::Subscribe => {
                let request = packet.decode(Kind::Subscribe)?;
                let feed = match broker {
                    Broker::Edge(api) => api.subscribe(principal, request).await?,
                    Broker::Camera(api) => api.subscribe(principal, request)?,
                };
                return send_events(reader, writer, feed).await;
            }
            Kind::Publish => {
                return match broker {
                    Broker::Edge(_) => {
                        Err(not_here("an edge broker takes frames only from camera brokers").into())
                    }
                    Broker::Camera(api) => take_frames(reader, writer, api, packet).await,
                };
            }
            Kind::SubscribeEvent | Kind::PublishEvent | Kind::Error => {
                return Err(PacketError::Malformed { what: "a client does not send this" });
            }
        }
    }
}

fn not_here(why: &str) -> ApiError {
    ApiError::new(Code::Unimplemented, "NOT_HERE", format!("{why}; connect to the other broker"))
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
async fn send_events(mut reader: Reader, writer: &mut Writer, mut feed: Feed) -> Result<(), PacketError> {
    let send = async {
        while let Some(event) = feed.next().await {
            let mut event = event?;
            let payload = match &mut event {
                Event::Frame(frame) => std::mem::take(&mut frame.payload),
                _ => Bytes::new(),
            };
            writer.write(Kind::SubscribeEvent, &pb::SubscribeEvent { event: Some(event) }, payload).await?;
        }
        Ok(())
    };
    tokio::select! {
        sent = send => sent,
        // Without this, a client that leaves while no frame comes would stay subscribed.
        () = reader.ended() => Ok(()),
    }
}

/// Takes in frames until the connection ends.
async fn take_frames(
    reader: Reader,
    writer: &mut Writer,
    api: &CameraApi,
    first: Packet,
) -> Result<(), PacketError> {
    let answers = PublishAnswers::default();
    let write = async {
        while let Some(answer) = answers.next().await {
            let mut event = answer?;
            let payload = match &mut event {
                PublishEvent::Reply(reply) => std::mem::take(&mut reply.payload),
                _ => Bytes::new(),
            };
            writer.write(Kind::PublishEvent, &pb::PublishEvent { event: Some(event) }, payload).await?;
        }
        Ok(())
    };
    let requests = LocalRequests { reader, first: Some(first) };
    let (_, written) = tokio::join!(api.publish(requests, &answers), write);
    written
}

struct LocalRequests {
    reader: Reader,
    first: Option<Packet>,
}

impl PublishRequests for LocalRequests {
    async fn next(&mut self) -> Option<Result<pb::PublishRequest, ApiError>> {
        let packet = match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.reader.read().await,
        };
        let request = packet.and_then(|packet| match packet {
            None => Ok(None),
            Some(packet) => {
                let mut request: pb::PublishRequest = packet.decode(Kind::Publish)?;
                request.payload = packet.payload;
                Ok(Some(request))
            }
        });
        match request {
            Ok(request) => request.map(Ok),
            // The publisher is gone; what it had sent whole is in the log.
            Err(PacketError::Io(_) | PacketError::Cut) => None,
            Err(PacketError::Refused(error)) => Some(Err(error)),
            Err(error) => Some(Err(ApiError::new(Code::InvalidArgument, "MALFORMED", error.to_string()))),
        }
    }
}
