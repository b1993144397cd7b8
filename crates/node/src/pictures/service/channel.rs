//! The messages between the edge and the decoding process: one question, one answer, over one socket per decoder.
//!
//! Both ends have the same version, since the edge starts its own program again.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use mez_core::frame::FRAME_BYTES_CEILING;
use prost::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The largest message in bytes: a frame or a picture outside of a shared memory, and some numbers.
const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_CEILING as usize + (4 << 10);

/// A question to a decoder.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Question {
    #[prost(oneof = "Ask", tags = "1, 2, 3")]
    pub(super) ask: Option<Ask>,
}

/// The kinds of questions.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Ask {
    /// Write pictures into the memory whose descriptor accompanies this message, and no longer into the previous memory.
    #[prost(message, tag = "1")]
    Map(Map),
    /// Decode a frame.
    #[prost(message, tag = "2")]
    Decode(Decode),
    /// Make a picture or a still of the frame that was decoded last.
    #[prost(message, tag = "3")]
    Show(Show),
}

/// A memory.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Map {
    /// Its layout, encoded as in the local protocol.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) layout: Vec<u8>,
}

/// A frame of a chain. The codes are those of the wire format.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Decode {
    #[prost(uint32, tag = "1")]
    pub(super) encoding: u32,
    #[prost(uint64, tag = "2")]
    pub(super) sequence: u64,
    #[prost(uint64, tag = "3")]
    pub(super) chain: u64,
    #[prost(uint32, tag = "4")]
    pub(super) index: u32,
    #[prost(uint32, tag = "5")]
    pub(super) reference: u32,
    #[prost(uint64, tag = "6")]
    pub(super) reference_sequence: u64,
    /// Whether to reset the decoder first.
    #[prost(bool, tag = "7")]
    pub(super) afresh: bool,
    /// What to make of the frame, if anything.
    #[prost(message, optional, tag = "8")]
    pub(super) wanted: Option<Wanted>,
    #[prost(bytes = "bytes", tag = "9")]
    pub(super) payload: Bytes,
}

/// A request for the frame that was decoded last, which must have this sequence.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Show {
    #[prost(uint64, tag = "1")]
    pub(super) sequence: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) wanted: Option<Wanted>,
}

/// What to make of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Wanted {
    /// A picture instead of a still.
    #[prost(bool, tag = "1")]
    pub(super) picture: bool,
    /// The slot for the picture. Without it, the picture goes into the answer.
    #[prost(uint32, optional, tag = "2")]
    pub(super) slot: Option<u32>,
}

/// A decoder's answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Answer {
    #[prost(oneof = "Made", tags = "1, 2, 3, 4, 5")]
    pub(super) made: Option<Made>,
}

/// The result of a question.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Made {
    /// Success, and nothing was wanted.
    #[prost(bool, tag = "1")]
    Nothing(bool),
    #[prost(message, tag = "2")]
    Still(Samples),
    #[prost(message, tag = "3")]
    Picture(Samples),
    /// The frame needs others that the decoder does not hold. Contains the reason.
    #[prost(string, tag = "4")]
    NotHeld(String),
    /// Decoding failed. Contains the reason.
    #[prost(string, tag = "5")]
    Failed(String),
}

/// A still or a picture.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Samples {
    /// The code of the picture's form.
    #[prost(uint32, tag = "1")]
    pub(super) form: u32,
    #[prost(uint32, tag = "2")]
    pub(super) width: u32,
    #[prost(uint32, tag = "3")]
    pub(super) height: u32,
    /// The number of bytes in the slot. If absent, the samples are in `data`.
    #[prost(uint32, optional, tag = "4")]
    pub(super) in_slot: Option<u32>,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) data: Bytes,
}

/// One end of a decoder's socket.
#[derive(Debug)]
pub(super) struct Channel(pub(super) UnixStream);

impl Channel {
    /// Sends a message, optionally with a file descriptor.
    pub(super) fn send(&mut self, message: &impl Message, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.encoded_len();
        let mut packet = Vec::with_capacity(4 + bytes);
        packet.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
        message.encode(&mut packet).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let sent = match file {
            Some(file) => send_with(&self.0, &packet, file)?,
            None => 0,
        };
        self.0.write_all(&packet[sent..])
    }

    /// The next message, and the descriptor sent with it. `None` at the end of the stream.
    pub(super) fn receive<M: Message + Default>(&mut self) -> io::Result<Option<(M, Option<OwnedFd>)>> {
        let mut length = [0; 4];
        let (received, file) = receive_with(&self.0, &mut length)?;
        if received == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut length[received..])?;
        let length = u32::from_le_bytes(length) as usize;
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        if length > MESSAGE_BYTES_MAX {
            return Err(wrong("a message that is too large"));
        }
        let mut message = vec![0; length];
        self.0.read_exact(&mut message)?;
        let message =
            M::decode(Bytes::from(message)).map_err(|_| wrong("a message that cannot be decoded"))?;
        Ok(Some((message, file)))
    }
}

/// Sends bytes with a descriptor. Returns the number of sent bytes.
pub(super) fn send_with(stream: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    control.push(SendAncillaryMessage::ScmRights(&files));
    Ok(sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives some bytes, and a descriptor if one was sent with them.
pub(super) fn receive_with(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(bytes)];
    let received = loop {
        match recvmsg(stream.as_fd(), &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((received.bytes, files.flatten().next()))
}
