//! Carries the link over TLS over TCP, for networks that block UDP.
//!
//! Records of at most 16 KiB take the role of QUIC's streams (`docs/wire.md`). A control message may go between any two records, and a newer frame
//! before the rest of an older frame. Bytes stay in this process until the kernel has almost nothing unsent (`TCP_NOTSENT_LOWAT`), so a stale frame
//! can still be given up. Bytes that the kernel has taken cannot be cancelled; with QUIC they can.

mod accept;
mod ask;
mod dial;
mod receive;
mod send;

use std::io;

use mez_core::wire::{RECORD_BYTES_MAX, RECORD_HEAD_BYTES, RecordHead, RecordKind, WireError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::identity::explain::explain_io;

pub(super) use self::accept::serve as serve_edge;
pub(super) use self::ask::ask;
pub(super) use self::dial::serve as serve_camera;

/// The most unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`). Fewer would leave fast links idle; more could not be cancelled.
const UNSENT_BYTES_MAX: u32 = 16 << 10;

/// The most streams to be stopped that wait for the writing side of a connection.
const STOPS_MAX: usize = 64;

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Camera,
    Edge,
}

impl Side {
    /// The broker at this end, for messages.
    const fn broker(self) -> &'static str {
        match self {
            Self::Camera => "the camera broker",
            Self::Edge => "the edge broker",
        }
    }
}

/// A stream whose frame is refused.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The other side refuses what we send on it.
    Ours(u32),
    /// We refuse what the other side sends on it.
    Theirs(u32),
}

/// Sets a socket up for a link.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

/// Why a connection cannot be read any longer.
#[derive(Debug, thiserror::Error)]
enum ReadRecordError {
    /// The other side violated the protocol.
    #[error("the connection cannot be read: {0}")]
    Wire(#[from] WireError),
    /// The connection is lost.
    #[error("{}", explain_io(.0).unwrap_or_else(|| .0.to_string()))]
    Read(#[from] io::Error),
    /// The other side ended the connection.
    #[error("the other side ended the connection")]
    Ended,
}

/// Reads the next record's head. Not cancel-safe.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<RecordHead, ReadRecordError> {
    let mut head = [0; RECORD_HEAD_BYTES];
    match stream.read_exact(&mut head).await {
        Ok(_) => Ok(RecordHead::decode(head)?),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReadRecordError::Ended),
        Err(error) => Err(error.into()),
    }
}

/// Appends bytes as records of a stream.
fn put_records(out: &mut Vec<u8>, kind: RecordKind, stream: u32, content: &[u8]) {
    for piece in content.chunks(RECORD_BYTES_MAX) {
        put_head(out, kind, stream, piece.len());
        out.extend_from_slice(piece);
    }
}

/// Appends a record's head.
fn put_head(out: &mut Vec<u8>, kind: RecordKind, stream: u32, bytes: usize) {
    let bytes = u16::try_from(bytes).expect("no record is longer than its limit");
    out.extend_from_slice(&RecordHead { kind, bytes, stream }.encode());
}
