//! Carries messages and frames between a camera broker and an edge broker. It decides nothing; the brokers decide.
//!
//! `quic.rs` holds what both sides share: settings, the control stream, sending and receiving of frames.
//! `dial.rs` is the camera's side, `accept.rs` the edge's; `probe.rs` only asks. What happens on a connection reaches the broker's
//! driver as a [`CameraEvent`] or an [`EdgeEvent`]; what the broker wants reaches the connection as a [`Command`].

mod accept;
mod datagrams;
mod dial;
pub(crate) mod probe;
mod quic;
mod sent;
mod tcp;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
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

/// How a frame that was received ends.
fn received(link: LinkId, frame: FrameId, history: u64, payload: Option<Bytes>) -> EdgeEvent {
    match (payload, history) {
        (Some(payload), 0) => EdgeEvent::FrameComplete(link, frame, payload),
        (None, 0) => EdgeEvent::FrameCancelled(link, frame),
        (Some(payload), _) => EdgeEvent::HistoryComplete(link, history, payload),
        (None, _) => EdgeEvent::HistoryCancelled(link, history),
    }
}

/// How the sending of a frame ends.
fn sent_event(link: LinkId, frame: FrameId, history: u64) -> CameraEvent {
    if history > 0 { CameraEvent::HistorySent(link, history) } else { CameraEvent::Sent(link, frame) }
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
    /// A message arrived.
    Message(LinkId, Message),
    /// The last byte of a frame has left.
    Sent(LinkId, FrameId),
    /// Of a frame's payload, so many bytes have not left.
    Unsent(LinkId, FrameId, u64),
    /// The last byte of a frame of the past has left, which answers this question.
    HistorySent(LinkId, u64),
    /// The connection is gone.
    Closed(LinkId, String),
}

/// Who connected, and which certificate said so.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    /// Who it is, and which cameras it may be.
    pub(crate) peer: Peer,
    /// Its certificate.
    pub(crate) certificate: Certificate,
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
    /// The connection is gone.
    Closed(LinkId, String),
}

#[cfg(test)]
mod tests;
