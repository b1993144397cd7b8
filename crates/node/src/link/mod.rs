//! Carries messages and frames between a camera broker and an edge broker. The link makes no decisions; the brokers do.
//!
//! `quic.rs` holds what both sides share: settings, the control stream, and writing frames. `dial.rs` is the camera's side, `accept.rs` the edge's;
//! `probe.rs` only asks an edge. Both sides send and receive in the same way (`send.rs`, `receive.rs`): a camera sends frames; an edge sends answers,
//! which are pictures that applications made of frames. Events of a connection reach the broker's driver as a [`CameraEvent`] or an [`EdgeEvent`];
//! the broker controls the connection with a [`Command`].

mod accept;
mod datagrams;
mod dial;
pub(crate) mod probe;
mod quic;
mod receive;
mod send;
mod sent;
mod tcp;

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mez_core::answers::AnswerRefused;
use mez_core::broker::edge::{FrameRefused, Peer};
use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::FrameId;
use mez_core::revocation::Certificate;
use mez_core::wire::{FrameHeader, Message};
use tokio::sync::{mpsc, oneshot};

use crate::identity::Fingerprint;

pub use self::accept::ListenError;
pub(crate) use self::accept::{Listener, listen};
pub(crate) use self::dial::Dialler;
pub use self::dial::Transport;

/// The most commands that wait for a connection. Each frame's reports come at most every 10 ms, so a
/// connection with this many waiting commands has been dead for seconds.
const COMMANDS_MAX: usize = 1024;
/// The shortest time between two events that report the unsent bytes of a frame.
const UNSENT_INTERVAL: Duration = Duration::from_millis(4);
/// How long closing a connection in good order may take.
const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);
/// The most events that wait for a broker's driver. Beyond that, senders wait, which slows their streams down.
pub(crate) const EVENTS_MAX: usize = 256;

/// A command of a broker to a connection.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a message on the control stream.
    Send(Message),
    /// Send a frame on its own stream.
    SendFrame(Box<FrameHeader>, Bytes),
    /// Cancel a frame's stream.
    Reset(FrameId),
    /// Close after all earlier commands are carried out.
    Close,
    /// Close because the broker stops. Its last messages must reach the other side.
    Farewell,
}

/// The sending end of a connection's commands.
#[derive(Clone, Debug)]
pub(crate) struct CommandSender(mpsc::Sender<Command>);

impl CommandSender {
    fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel(COMMANDS_MAX);
        (Self(sender), receiver)
    }

    /// Gives the connection a command. False if the connection has ended, or is so far behind that it must be given up.
    pub(crate) fn send(&self, command: Command) -> bool {
        self.0.try_send(command).is_ok()
    }

    /// Whether the connection takes no more commands.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the connection takes no more commands: it has ended, or is about to.
    pub(crate) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// Events that both sides of a link report alike.
pub(crate) trait LinkEvent: Send + Sized + 'static {
    /// Why a frame or an answer is not accepted.
    type Refused: std::fmt::Display + Send;

    /// A message arrived.
    fn message(link: LinkId, message: Message) -> Self;
    /// The control stream is invalid. `None`: the connection ends without an event.
    fn protocol_error(link: LinkId, error: String) -> Option<Self>;
    /// A header arrived. Its payload is read once the answer is `Ok`.
    fn header(
        link: LinkId,
        header: Box<FrameHeader>,
        answer: oneshot::Sender<Result<(), Self::Refused>>,
    ) -> Self;
    /// Part of a payload has arrived. `None`: no event.
    fn progress(link: LinkId, frame: FrameId, bytes: u32) -> Option<Self>;
    /// A whole payload has arrived. `None`: the rest of it will not come.
    fn received(link: LinkId, frame: FrameId, history: u64, payload: Option<Bytes>) -> Self;
    /// The last byte of a payload has left.
    fn sent(link: LinkId, frame: FrameId, history: u64) -> Self;
    /// This many bytes of a payload have not left.
    fn unsent(link: LinkId, frame: FrameId, bytes: u64) -> Self;
}

/// What happened on a camera's connection.
#[derive(Debug)]
pub(crate) enum CameraEvent {
    /// A connection to an edge was made.
    Dialled(LinkId, EdgeIndex, CommandSender),
    /// A connection to an edge could not be made.
    DialFailed(EdgeIndex, String),
    /// The most bytes that may be in flight, as long as the path was never full. `None` once it was, because the number is then unknown.
    Window(LinkId, Option<u64>),
    /// The number of stream bytes in a packet of the connection, if known.
    PacketBytes(LinkId, Option<u32>),
    /// A message arrived.
    Message(LinkId, Message),
    /// The last byte of a frame has left.
    Sent(LinkId, FrameId),
    /// This many bytes of a frame's payload have not left.
    Unsent(LinkId, FrameId, u64),
    /// The last byte of a frame of the past has left. The number is the question that the frame answers.
    HistorySent(LinkId, u64),
    /// The header of an answer arrived. Its payload is read once the answer is accepted.
    AnswerHeader(LinkId, Box<FrameHeader>, oneshot::Sender<Result<(), AnswerRefused>>),
    /// The whole answer to a frame has arrived.
    AnswerComplete(LinkId, FrameId, Bytes),
    /// The rest of the answer to a frame will not come.
    AnswerCancelled(LinkId, FrameId),
    /// The connection has ended, for this reason.
    Closed(LinkId, String),
}

impl LinkEvent for CameraEvent {
    type Refused = AnswerRefused;

    fn message(link: LinkId, message: Message) -> Self {
        Self::Message(link, message)
    }

    fn protocol_error(_link: LinkId, _error: String) -> Option<Self> {
        None
    }

    fn header(
        link: LinkId,
        header: Box<FrameHeader>,
        answer: oneshot::Sender<Result<(), AnswerRefused>>,
    ) -> Self {
        Self::AnswerHeader(link, header, answer)
    }

    fn progress(_link: LinkId, _frame: FrameId, _bytes: u32) -> Option<Self> {
        None
    }

    fn received(link: LinkId, frame: FrameId, _history: u64, payload: Option<Bytes>) -> Self {
        match payload {
            Some(payload) => Self::AnswerComplete(link, frame, payload),
            None => Self::AnswerCancelled(link, frame),
        }
    }

    fn sent(link: LinkId, frame: FrameId, history: u64) -> Self {
        if history > 0 { Self::HistorySent(link, history) } else { Self::Sent(link, frame) }
    }

    fn unsent(link: LinkId, frame: FrameId, bytes: u64) -> Self {
        Self::Unsent(link, frame, bytes)
    }
}

/// A connected member, and its certificate.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// The identity, and the cameras that it may publish.
    pub(crate) peer: Peer,
    /// The certificate.
    pub(crate) certificate: Certificate,
    /// When the certificate expires.
    pub(crate) ends: SystemTime,
    /// SHA-256 over the certificate.
    pub(crate) fingerprint: Fingerprint,
}

/// What happened on one of an edge's connections.
#[derive(Debug)]
pub(crate) enum EdgeEvent {
    /// A camera host connected from this address and proved its identity.
    Connected(LinkId, Shown, IpAddr, CommandSender),
    /// A message arrived.
    Message(LinkId, Message),
    /// The control stream is invalid.
    ProtocolError(LinkId, String),
    /// A frame's header arrived. Its payload is read once the answer is `Ok`.
    FrameHeader(LinkId, Box<FrameHeader>, oneshot::Sender<Result<(), FrameRefused>>),
    /// Part of a frame's payload has arrived: the number of bytes so far.
    FrameProgress(LinkId, FrameId, u32),
    /// A frame's whole payload has arrived.
    FrameComplete(LinkId, FrameId, Bytes),
    /// The rest of a frame will not come.
    FrameCancelled(LinkId, FrameId),
    /// The whole payload of a frame of the past has arrived. The number is the question that the frame answers.
    HistoryComplete(LinkId, u64, Bytes),
    /// The rest of a frame of the past will not come.
    HistoryCancelled(LinkId, u64),
    /// The last byte of the answer to a frame has left.
    AnswerSent(LinkId, FrameId),
    /// This many bytes of the answer to a frame have not left.
    AnswerUnsent(LinkId, FrameId, u64),
    /// The connection has ended, for this reason.
    Closed(LinkId, String),
}

impl LinkEvent for EdgeEvent {
    type Refused = FrameRefused;

    fn message(link: LinkId, message: Message) -> Self {
        Self::Message(link, message)
    }

    fn protocol_error(link: LinkId, error: String) -> Option<Self> {
        Some(Self::ProtocolError(link, error))
    }

    fn header(
        link: LinkId,
        header: Box<FrameHeader>,
        answer: oneshot::Sender<Result<(), FrameRefused>>,
    ) -> Self {
        Self::FrameHeader(link, header, answer)
    }

    fn progress(link: LinkId, frame: FrameId, bytes: u32) -> Option<Self> {
        Some(Self::FrameProgress(link, frame, bytes))
    }

    fn received(link: LinkId, frame: FrameId, history: u64, payload: Option<Bytes>) -> Self {
        match (payload, history) {
            (Some(payload), 0) => Self::FrameComplete(link, frame, payload),
            (None, 0) => Self::FrameCancelled(link, frame),
            (Some(payload), _) => Self::HistoryComplete(link, history, payload),
            (None, _) => Self::HistoryCancelled(link, history),
        }
    }

    fn sent(link: LinkId, frame: FrameId, _history: u64) -> Self {
        Self::AnswerSent(link, frame)
    }

    fn unsent(link: LinkId, frame: FrameId, bytes: u64) -> Self {
        Self::AnswerUnsent(link, frame, bytes)
    }
}

#[cfg(test)]
mod tests;
