//! Carries messages and frames between a camera broker and an edge broker. It decides nothing; the brokers decide.
//!
//! `quic.rs` holds what both sides share: settings, the control stream, sending and receiving of frames.
//! `dial.rs` is the camera's side, `accept.rs` the edge's; `probe.rs` only asks. Both sides send and receive alike (`send.rs`, `receive.rs`): a
//! camera sends frames, an edge answers, which are pictures that applications made of frames. What happens on a connection reaches the broker's
//! driver as a [`CameraEvent`] or an [`EdgeEvent`]; what the broker wants reaches the connection as a [`Command`].

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

/// Commands that may wait for a connection. Reports come at most every 10 ms for each frame, so a connection with this many waiting commands
/// has been dead for seconds.
const COMMANDS_MAX: usize = 1024;
/// The least time between two events that report how much of a frame is unsent.
const UNSENT_INTERVAL: Duration = Duration::from_millis(4);
/// How long closing a connection in order may take.
const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);
/// Events that may wait for a broker's driver. Senders wait beyond that, which slows their streams down.
pub(crate) const EVENTS_MAX: usize = 256;

/// What a broker wants of a connection.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a message on the control stream.
    Send(Message),
    /// Send a frame on a stream of its own.
    SendFrame(Box<FrameHeader>, Bytes),
    /// Cancel a frame's stream.
    Reset(FrameId),
    /// Close once everything before has left.
    Close,
    /// The same for a broker that stops: what it said last is to reach the other side.
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

    /// Hands over a command. False if the connection is gone or so far behind that it must be given up.
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

/// What both sides of a link report alike of what they send and receive.
pub(crate) trait LinkEvent: Send + Sized + 'static {
    /// Why something is not taken.
    type Refused: std::fmt::Display + Send;

    /// A message arrived.
    fn message(link: LinkId, message: Message) -> Self;
    /// The control stream made no sense. `None`: nobody is told, and the connection ends.
    fn protocol_error(link: LinkId, error: String) -> Option<Self>;
    /// A header arrived; its payload is read once the answer is `Ok`.
    fn header(
        link: LinkId,
        header: Box<FrameHeader>,
        answer: oneshot::Sender<Result<(), Self::Refused>>,
    ) -> Self;
    /// Part of a payload is here. `None`: nobody wants to know.
    fn progress(link: LinkId, frame: FrameId, bytes: u32) -> Option<Self>;
    /// All of a payload is here; or the rest of it will not come.
    fn received(link: LinkId, frame: FrameId, history: u64, payload: Option<Bytes>) -> Self;
    /// The last byte of a payload has left.
    fn sent(link: LinkId, frame: FrameId, history: u64) -> Self;
    /// Of a payload, so many bytes have not left.
    fn unsent(link: LinkId, frame: FrameId, bytes: u64) -> Self;
}

/// What happened on a camera's connection.
#[derive(Debug)]
pub(crate) enum CameraEvent {
    /// A connection to an edge was made.
    Dialled(LinkId, EdgeIndex, CommandSender),
    /// A connection to an edge could not be made.
    DialFailed(EdgeIndex, String),
    /// How many bytes may be in flight at most, while the path was never full. `None` once it was, because then nobody knows.
    Window(LinkId, Option<u64>),
    /// A packet of the connection carries so many bytes of a stream, where that is known.
    PacketBytes(LinkId, Option<u32>),
    /// A message arrived.
    Message(LinkId, Message),
    /// The last byte of a frame has left.
    Sent(LinkId, FrameId),
    /// Of a frame's payload, so many bytes have not left.
    Unsent(LinkId, FrameId, u64),
    /// The last byte of a frame of the past has left, which answers this question.
    HistorySent(LinkId, u64),
    /// The header of an answer arrived; its payload is read once it is agreed to.
    AnswerHeader(LinkId, Box<FrameHeader>, oneshot::Sender<Result<(), AnswerRefused>>),
    /// All of the answer to a frame is here.
    AnswerComplete(LinkId, FrameId, Bytes),
    /// The rest of the answer to a frame will not come.
    AnswerCancelled(LinkId, FrameId),
    /// The connection is gone.
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

/// Who connected, and which certificate said so.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// Who it is, and which cameras it may be.
    pub(crate) peer: Peer,
    /// Its certificate.
    pub(crate) certificate: Certificate,
    /// When that ends.
    pub(crate) ends: SystemTime,
    /// SHA-256 over the certificate.
    pub(crate) fingerprint: Fingerprint,
}

/// What happened on one of an edge's connections.
#[derive(Debug)]
pub(crate) enum EdgeEvent {
    /// A camera host connected from this address and proved who it is.
    Connected(LinkId, Shown, IpAddr, CommandSender),
    /// A message arrived.
    Message(LinkId, Message),
    /// The control stream made no sense.
    ProtocolError(LinkId, String),
    /// A frame's header arrived; its payload is read once the answer is `Ok`.
    FrameHeader(LinkId, Box<FrameHeader>, oneshot::Sender<Result<(), FrameRefused>>),
    /// Part of a frame's payload is here.
    FrameProgress(LinkId, FrameId, u32),
    /// All of a frame's payload is here.
    FrameComplete(LinkId, FrameId, Bytes),
    /// The rest of a frame will not come.
    FrameCancelled(LinkId, FrameId),
    /// All of the payload of a frame of the past is here, which answers this question.
    HistoryComplete(LinkId, u64, Bytes),
    /// The rest of a frame of the past will not come.
    HistoryCancelled(LinkId, u64),
    /// The last byte of the answer to a frame has left.
    AnswerSent(LinkId, FrameId),
    /// Of the answer to a frame, so many bytes have not left.
    AnswerUnsent(LinkId, FrameId, u64),
    /// The connection is gone.
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
