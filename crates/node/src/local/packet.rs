//! Reads and writes packets of the local protocol: a header, a message, a payload.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mez_core::frame::FRAME_BYTES_CEILING;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::shared::{self, DescriptorReader, Layout, NotThere, Place};
use crate::api::lent::Payload;
use crate::api::{ApiError, MESSAGE_BYTES_MAX, pb};
use crate::memory::buffer;

const HEADER_BYTES: usize = 12;
/// Bytes that are read at once between payloads.
pub(crate) const READ_BYTES: usize = 4 << 10;
/// The payload follows the message.
const INLINE: u8 = 0;
/// The payload lies in shared memory.
const SHARED: u8 = 1;

/// The kind of a packet, and its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`pb::ConnectRequest`], [`pb::ConnectResponse`].
    Connect = 1,
    /// [`pb::GetCameraInfoRequest`], [`pb::GetCameraInfoResponse`].
    GetCameraInfo = 2,
    /// [`pb::SubscribeRequest`].
    Subscribe = 3,
    /// [`pb::SubscribeEvent`].
    SubscribeEvent = 4,
    /// [`pb::UnsubscribeRequest`], [`pb::UnsubscribeResponse`].
    Unsubscribe = 5,
    /// [`pb::ReplyRequest`], [`pb::ReplyResponse`].
    Reply = 6,
    /// [`pb::PublishRequest`].
    Publish = 7,
    /// [`pb::PublishEvent`].
    PublishEvent = 8,
    /// [`pb::Error`].
    Error = 9,
    /// The broker offers a memory for payloads: its layout, with its descriptor.
    Memory = 10,
    /// The client has mapped a memory: its number.
    Mapped = 11,
    /// [`pb::UpdateContractRequest`], [`pb::UpdateContractResponse`].
    UpdateContract = 12,
    /// [`pb::ReportAccuracyRequest`], [`pb::ReportAccuracyResponse`].
    ReportAccuracy = 13,
    /// [`pb::RestartChainRequest`], [`pb::RestartChainResponse`].
    RestartChain = 14,
    /// [`pb::GetCameraStartsRequest`], [`pb::GetCameraStartsResponse`].
    GetCameraStarts = 15,
    /// [`pb::ResetCameraRequest`], [`pb::ResetCameraResponse`].
    ResetCamera = 16,
    /// [`pb::ReportTakenRequest`], [`pb::ReportTakenResponse`].
    ReportTaken = 17,
    /// [`pb::GetNotesRequest`], [`pb::GetNotesResponse`].
    GetNotes = 18,
    /// [`pb::ForgetCameraRequest`], [`pb::ForgetCameraResponse`].
    ForgetCamera = 19,
    /// [`pb::SettleRecordsRequest`], [`pb::SettleRecordsResponse`]. On the connection of a member's
    /// stream the edge answers with [`Confirmed`](super::reports::Confirmed) instead.
    SettleRecords = 30,
    /// [`pb::GetGroupsRequest`], [`pb::GetGroupsResponse`].
    GetGroups = 31,
    /// [`pb::ForgetGroupRequest`], [`pb::ForgetGroupResponse`].
    ForgetGroup = 32,
    /// [`pb::CheckRightsRequest`], [`pb::CheckRightsResponse`].
    CheckRights = 40,
    /// [`pb::AnswerRequest`], [`pb::AnswerResponse`].
    Answer = 41,
    /// [`pb::OpenPageRequest`], [`pb::OpenPageResponse`].
    OpenPage = 42,
    /// [`pb::TakeAnswersRequest`], [`pb::TakeAnswersResponse`].
    TakeAnswers = 43,
    /// The picture of the frame in the next packet: [`PictureHead`](super::pictures::PictureHead).
    Picture = 50,
    /// The client accepts pictures beside frames. No message.
    TakesPictures = 51,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        use Kind::*;
        let all = [
            Connect,
            GetCameraInfo,
            Subscribe,
            SubscribeEvent,
            Unsubscribe,
            Reply,
            Publish,
            PublishEvent,
            Error,
            Memory,
            Mapped,
            UpdateContract,
            ReportAccuracy,
            RestartChain,
            GetCameraStarts,
            ResetCamera,
            ReportTaken,
            GetNotes,
            ForgetCamera,
            SettleRecords,
            GetGroups,
            ForgetGroup,
            CheckRights,
            Answer,
            OpenPage,
            TakeAnswers,
            Picture,
            TakesPictures,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Why a packet could not be read. The connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The connection ended inside a packet.
    #[error("the other side ended the connection in the middle of a message")]
    Cut,
    /// The received bytes are not a packet.
    #[error(
        "the other side does not speak this version of Mez's local protocol ({what}); use the same version of Mez on both sides"
    )]
    Malformed {
        /// What is wrong with the bytes.
        what: &'static str,
    },
    /// A length exceeds the limit.
    #[error("the other side announced a {what} of {bytes} bytes, but the limit is {bytes_max}")]
    TooLarge {
        /// `message` or `payload`.
        what: &'static str,
        /// The announced length.
        bytes: u32,
        /// The limit.
        bytes_max: usize,
    },
    /// The other side sent an error.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl From<NotThere> for PacketError {
    fn from(not_there: NotThere) -> Self {
        match not_there {
            NotThere::NoPlace => Self::Malformed { what: "a place in shared memory that was not granted" },
            NotThere::Unfinished => Self::Cut,
        }
    }
}

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The kind.
    pub kind: Kind,
    /// The encoded message.
    pub message: Bytes,
    /// The payload, if it came with the packet.
    pub payload: Bytes,
    /// The address of the payload, if it is in shared memory.
    pub shared: Option<Place>,
}

impl Packet {
    /// Decodes the message, if the packet is of `kind`. An error packet becomes the error that it contains.
    pub fn decode<M: Message + Default>(&self, kind: Kind) -> Result<M, PacketError> {
        if self.kind == Kind::Error && kind != Kind::Error {
            return Err(ApiError::from(self.decode::<pb::Error>(Kind::Error)?).into());
        }
        if self.kind != kind {
            return Err(PacketError::Malformed { what: "an unexpected kind of message" });
        }
        if self.shared.is_some() && !matches!(kind, Kind::Publish | Kind::SubscribeEvent | Kind::Picture) {
            return Err(PacketError::Malformed {
                what: "a payload in shared memory where only frames may be",
            });
        }
        M::decode(self.message.clone())
            .map_err(|_| PacketError::Malformed { what: "a message that cannot be decoded" })
    }
}

/// Reads packets.
#[derive(Debug)]
pub struct PacketReader<R> {
    inner: BufReader<R>,
    payload_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    /// Reads packets with payloads of up to `payload_bytes_max` bytes.
    pub fn new(inner: R, payload_bytes_max: u32) -> Self {
        Self {
            inner: BufReader::with_capacity(READ_BYTES, inner),
            payload_bytes_max: payload_bytes_max as usize,
        }
    }

    /// The next packet. `None` if the other side has ended the connection between two packets. Must not be cancelled: a partly read packet is lost.
    pub async fn read(&mut self) -> Result<Option<Packet>, PacketError> {
        let mut header = [0; HEADER_BYTES];
        if self.inner.read(&mut header[..1]).await? == 0 {
            return Ok(None);
        }
        self.inner.read_exact(&mut header[1..]).await.map_err(cut)?;
        let kind = Kind::from_code(header[0]).ok_or(PacketError::Malformed { what: "an unknown kind" })?;
        let mut lengths = &header[4..];
        let message_bytes = checked("message", lengths.get_u32_le(), MESSAGE_BYTES_MAX)?;
        let payload_bytes = checked("payload", lengths.get_u32_le(), self.payload_bytes_max)?;
        let shared = match header[1..4] {
            [INLINE, 0, 0] => None,
            [SHARED, memory, slot] => Some(Place { memory, slot, bytes: payload_bytes as u32 }),
            _ => return Err(PacketError::Malformed { what: "a header with unknown marks" }),
        };
        let message = self.read_bytes(message_bytes).await?;
        let payload = match shared {
            None => self.read_bytes(payload_bytes).await?,
            Some(_) => Bytes::new(),
        };
        Ok(Some(Packet { kind, message, payload, shared }))
    }

    /// Waits until the other side ends the connection, or sends anything, which is not allowed.
    pub async fn ended(&mut self) {
        let mut byte = [0];
        // An end, an error or a byte: the connection cannot continue in any case.
        let _ = self.inner.read(&mut byte).await;
    }

    async fn read_bytes(&mut self, bytes: usize) -> Result<Bytes, PacketError> {
        let mut buffer = buffer(bytes);
        while buffer.len() < bytes {
            let missing = bytes - buffer.len();
            // Reads larger than its own buffer go directly into this one.
            if self.inner.read_buf(&mut (&mut *buffer).limit(missing)).await? == 0 {
                return Err(PacketError::Cut);
            }
        }
        Ok(buffer.freeze())
    }
}

fn checked(what: &'static str, bytes: u32, bytes_max: usize) -> Result<usize, PacketError> {
    match bytes as usize {
        fits if fits <= bytes_max => Ok(fits),
        _ => Err(PacketError::TooLarge { what, bytes, bytes_max }),
    }
}

fn cut(error: io::Error) -> PacketError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => PacketError::Cut,
        _ => error.into(),
    }
}

/// Writes packets.
#[derive(Debug)]
pub struct PacketWriter<W> {
    inner: W,
    /// A packet that is sent together with the next one.
    queued: BytesMut,
}

impl<W: AsyncWrite + Unpin> PacketWriter<W> {
    /// Writes packets.
    pub fn new(inner: W) -> Self {
        Self { inner, queued: BytesMut::new() }
    }

    /// Queues a packet that is sent before the next one, in the same system call. `place`: the address of its payload, if it has one.
    pub(crate) fn queue(
        &mut self,
        kind: Kind,
        message: &impl Message,
        place: Option<Place>,
    ) -> io::Result<()> {
        let (marks, bytes) = match place {
            Some(Place { memory, slot, bytes }) => ([SHARED, memory, slot], bytes as usize),
            None => ([INLINE, 0, 0], 0),
        };
        self.queued = self.head(kind, message, bytes, marks)?;
        Ok(())
    }

    /// A packet without its payload, after the queued packet.
    fn head(
        &mut self,
        kind: Kind,
        message: &impl Message,
        payload_bytes: usize,
        place: [u8; 3],
    ) -> io::Result<BytesMut> {
        let head = head(kind, message, payload_bytes, place)?;
        if self.queued.is_empty() {
            return Ok(head);
        }
        let mut both = std::mem::take(&mut self.queued);
        both.extend_from_slice(&head);
        Ok(both)
    }

    /// Writes raw bytes: the magic.
    pub async fn write_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_all(bytes).await
    }

    /// Writes a packet. Must not be cancelled: a partly written packet cannot be withdrawn.
    pub async fn write(&mut self, kind: Kind, message: &impl Message, payload: Bytes) -> io::Result<()> {
        let head = self.head(kind, message, payload.len(), [INLINE, 0, 0])?;
        // One system call for all parts, if the socket takes them.
        self.inner.write_all_buf(&mut head.chain(payload)).await?;
        self.inner.flush().await
    }

    /// Writes a packet whose payload is in shared memory, or will be. Must not be cancelled.
    pub async fn write_shared(&mut self, kind: Kind, message: &impl Message, place: Place) -> io::Result<()> {
        let Place { memory, slot, bytes } = place;
        let mut head = self.head(kind, message, bytes as usize, [SHARED, memory, slot])?;
        self.inner.write_all_buf(&mut head).await?;
        self.inner.flush().await
    }

    /// Writes an error.
    pub async fn write_error(&mut self, error: ApiError) -> io::Result<()> {
        self.write(Kind::Error, &pb::Error::from(error), Bytes::new()).await
    }
}

/// A packet without its payload.
fn head(kind: Kind, message: &impl Message, payload_bytes: usize, place: [u8; 3]) -> io::Result<BytesMut> {
    let message_bytes = message.encoded_len();
    let too_large =
        || io::Error::new(io::ErrorKind::InvalidInput, "a message larger than the local protocol allows");
    if message_bytes > MESSAGE_BYTES_MAX || payload_bytes > FRAME_BYTES_CEILING as usize {
        return Err(too_large());
    }
    let mut head = BytesMut::with_capacity(HEADER_BYTES + message_bytes);
    head.put_u8(kind as u8);
    head.put_slice(&place);
    head.put_u32_le(message_bytes as u32);
    head.put_u32_le(payload_bytes as u32);
    message.encode(&mut head).map_err(|_| too_large())?;
    Ok(head)
}

impl PacketReader<DescriptorReader> {
    /// Reads from a broker's socket.
    pub(crate) fn from_broker(half: OwnedReadHalf) -> Self {
        Self::new(DescriptorReader::new(half, READ_BYTES), FRAME_BYTES_CEILING)
    }

    /// The content of a packet of [`Kind::Memory`], with its descriptor. No descriptor means that the memory is no longer used.
    pub(crate) fn memory(&mut self, packet: &Packet) -> Result<(Layout, Option<OwnedFd>), PacketError> {
        let missing = PacketError::Malformed { what: "a memory without a layout or a descriptor" };
        let Ok(layout) = <[u8; Layout::BYTES]>::try_from(&packet.payload[..]).map(Layout::decode) else {
            return Err(missing);
        };
        if layout.is_none() {
            return Ok((layout, None));
        }
        match self.inner.get_mut().take() {
            Some(file) => Ok((layout, Some(file))),
            None => Err(missing),
        }
    }
}

/// The program stopped reading in the middle of a frame, and the rest of the frame is no longer available.
pub(crate) fn too_slow() -> PacketError {
    io::Error::new(io::ErrorKind::TimedOut, ApiError::too_slow().message).into()
}

impl PacketWriter<OwnedWriteHalf> {
    /// Writes a packet whose payload is not held for a stalled program. Must not be cancelled.
    pub(crate) async fn write_lent(
        &mut self,
        kind: Kind,
        message: &impl Message,
        mut payload: Payload,
    ) -> Result<(), PacketError> {
        let mut head = self.head(kind, message, payload.len(), [INLINE, 0, 0])?;
        let mut sent = 0;
        while head.has_remaining() || sent < payload.len() {
            let written = {
                let bytes = payload.bytes().ok_or_else(too_slow)?;
                // One system call for both, if the socket takes them.
                self.inner.try_write_vectored(&[IoSlice::new(&head), IoSlice::new(&bytes[sent..])])
            };
            match written {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(written) => {
                    let of_head = written.min(head.remaining());
                    head.advance(of_head);
                    sent += written - of_head;
                    payload.progressed();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    payload.wait();
                    self.inner.writable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Like [`PacketWriter::write_shared`], if the socket takes the packet now. Otherwise returns false, and writes nothing.
    pub(crate) fn try_write_shared(&mut self, kind: Kind, message: &impl Message, place: Place) -> bool {
        let Place { memory, slot, bytes } = place;
        let queued = self.queued.clone();
        let Ok(head) = self.head(kind, message, bytes as usize, [SHARED, memory, slot]) else { return false };
        match self.inner.try_write(&head) {
            Ok(written) if written == head.len() => true,
            Ok(_) => {
                // Unix sockets take so few bytes either completely or not at all. After a partial write, the stream would be invalid.
                let _ = rustix::net::shutdown(self.inner.as_ref(), rustix::net::Shutdown::Both);
                true
            }
            Err(_) => {
                self.queued = queued;
                false
            }
        }
    }

    /// Writes a packet of [`Kind::Memory`], with the descriptor.
    pub(crate) async fn write_memory(&mut self, layout: Layout, file: BorrowedFd<'_>) -> io::Result<()> {
        let layout = layout.encode();
        let mut packet = self.head(Kind::Memory, &(), layout.len(), [INLINE, 0, 0])?;
        packet.put_slice(&layout);
        let sent = shared::send(self.inner.as_ref(), &packet, file).await?;
        self.inner.write_all(&packet[sent..]).await
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::FRAME_BYTES_MAX;
    use proptest::prelude::*;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    async fn read_all(bytes: &[u8]) -> Result<Vec<Packet>, PacketError> {
        let mut reader = PacketReader::new(bytes, FRAME_BYTES_MAX);
        let mut packets = Vec::new();
        while let Some(packet) = reader.read().await? {
            packets.push(packet);
        }
        Ok(packets)
    }

    proptest! {
        /// Every written packet is read, whatever comes before and after it.
        #[test]
        fn packets_come_as_they_were_sent(
            packets in proptest::collection::vec((0usize..3, 0usize..20_000, any::<u64>()), 0..6),
        ) {
            let sent: Vec<_> = packets
                .iter()
                .map(|(kind, bytes, id)| {
                    let kind = [Kind::Publish, Kind::Unsubscribe, Kind::SubscribeEvent][*kind];
                    (kind, pb::UnsubscribeRequest { subscription_id: *id }, Bytes::from(vec![*id as u8; *bytes]))
                })
                .collect();
            let received = run(async {
                let mut bytes = Vec::new();
                let mut writer = PacketWriter::new(&mut bytes);
                for (kind, message, payload) in &sent {
                    writer.write(*kind, message, payload.clone()).await.unwrap();
                }
                read_all(&bytes).await.unwrap()
            });
            prop_assert_eq!(received.len(), sent.len());
            for (packet, (kind, message, payload)) in received.into_iter().zip(sent) {
                prop_assert_eq!(packet.kind, kind);
                prop_assert_eq!(packet.decode::<pb::UnsubscribeRequest>(kind).unwrap(), message);
                prop_assert_eq!(packet.payload, payload);
            }
        }

        /// Bytes from a stranger become packets or an error, never a panic. A cut is detected.
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 1usize..12) {
            run(async {
                let _ = read_all(&bytes).await;
                let mut whole = Vec::new();
                let message = pb::UnsubscribeRequest { subscription_id: 9 };
                PacketWriter::new(&mut whole).write(Kind::Reply, &message, bytes.into()).await.unwrap();
                whole.truncate(whole.len() - cut.min(whole.len() - 1));
                assert!(matches!(read_all(&whole).await, Err(PacketError::Cut)));
            });
        }
    }

    #[test]
    fn lengths_are_checked_before_memory_is_taken() {
        let header = |message: u32, payload: u32| {
            let mut bytes = vec![Kind::Publish as u8, 0, 0, 0];
            bytes.extend(message.to_le_bytes());
            bytes.extend(payload.to_le_bytes());
            bytes
        };
        for bytes in [header(u32::MAX, 0), header(0, FRAME_BYTES_MAX + 1)] {
            assert!(matches!(run(read_all(&bytes)), Err(PacketError::TooLarge { .. })));
        }
        let mut marked = header(0, 0);
        marked[2] = 1;
        assert!(matches!(run(read_all(&marked)), Err(PacketError::Malformed { .. })));
    }

    #[test]
    fn an_error_packet_becomes_its_error() {
        let error = ApiError::invalid("pattern", "INVALID_PATTERN", "no");
        let packets = run(async {
            let mut bytes = Vec::new();
            PacketWriter::new(&mut bytes).write_error(error.clone()).await.unwrap();
            read_all(&bytes).await.unwrap()
        });
        match packets[0].decode::<pb::ConnectResponse>(Kind::Connect) {
            Err(PacketError::Refused(refused)) => assert_eq!(refused, error),
            other => panic!("{other:?}"),
        }
    }
}
