//! The fast path for programs on the broker's own host: the interface of [`crate::api`] over the broker's Unix socket, without HTTP/2.
//!
//! Large payloads of frames are in memory that both sides map. All other payloads follow their message.
//! The measurements behind this are in `docs/decisions/0001-delivery-path.md` and `0008-shared-memory.md`.
//!
//! The protocol is private to Mez. A client and a broker of different versions may be incompatible,
//! which gives an error that says so. Clients in other languages use gRPC, on the same socket.
//!
//! # On the wire
//!
//! The client begins with [`MAGIC`], which distinguishes it from a gRPC client. After that, both sides send packets:
//!
//! ```text
//! byte  0       kind: see [`Kind`]
//!       1       0: the payload follows; 1: it lies in shared memory
//!       2       the number of the memory, or 0
//!       3       the slot in it, or 0
//!       4..8    m: bytes of the message, little-endian, at most 1 MiB + 64 KiB
//!       8..12   p: bytes of the payload, little-endian, at most 32 MiB
//!      12..     m bytes: the protobuf message of the interface, its field `payload` empty
//!      ..       p bytes: the content of this field, unless it lies in shared memory
//! ```
//!
//! | the client sends | the broker answers |
//! | --- | --- |
//! | before `Subscribe`: `Connect`, `GetCameraInfo`, `Reply`, `Answer` and all other calls | the same kind, or `Error`; one answer to each, in order |
//! | `Subscribe` | `SubscribeEvent` … until the end; `Error` after a failure. Then the connection is closed |
//! | `Publish` … | `PublishEvent` …; `Error` after a failure of the stream. Then the connection is closed |
//! | `TakeAnswers` | `TakeAnswers` …; `Error` after a failure. Then the connection is closed |
//! | `Mapped`, with the number of a memory | nothing: from then on it may use that memory for `SubscribeEvent` |
//! | `TakesPictures`, after `Subscribe` | nothing: from then on a `Picture` may come before a frame of a chain |
//! | `SettleRecords`, after `Subscribe`, from a member of a group | `SettleRecords` with the number of reports so far: before the next event, or after a second. With the payload 1: at once |
//!
//! `Memory`, with a descriptor, may come between any two events of a subscription or of a stream of frames. A subscriber that maps the memory
//! answers `Mapped`. A publisher may use it without an answer. The payload is the memory's number, its number of slots, two zeros, and the
//! bytes of a slot, little-endian. Memories for payloads of frames have numbers up to 127. Their file has a head of 64 KiB and then three
//! slots. The first three words of the head are the states of the slots (0: free, 1: taken). The next three words are the numbers of filled
//! bytes. The writer takes a free slot, and may send the packet with its address before the bytes are there. The reader waits for the bytes,
//! and frees the slot. It gives up if no more bytes come for five seconds. A client that ignores a memory gets and sends payloads inline.
//!
//! `Picture` means that the edge has decoded the frame in the next packet, for several programs on its host. Its payload is the
//! picture, inline or in a memory with a number above 128. Without a form there is no picture, because a later frame will have one
//! (`pictures.rs`). The client decodes a frame of a chain without a `Picture` itself. Memories of pictures are read-only slots
//! without a head, the same for all programs. Each camera has one at a time. `Memory` without a descriptor, with no slots of no
//! bytes, means that the memory with this number is no longer used. The memory with the number 128 is only a head of 64 KiB:
//! `Picture` names one of its first three words, which is then 1, and the client sets it to 0 when it has finished with the picture.
//!
//! A subscription, a stream of frames and a stream of answers have separate connections, and closing the connection ends them. Nothing but
//! `SettleRecords` is acknowledged. A side that cannot write waits. The broker then holds at most one frame for that reader, within its
//! share of memory (`docs/limits.md`). If the reader loses its share in the middle of that frame, the broker closes
//! the connection. The kernel's default buffers limit the bytes in the socket, so their sizes are not changed.

mod client;
mod packet;
pub(crate) mod pictures;
pub(crate) mod reports;
pub(crate) mod server;
pub(crate) mod shared;

pub use client::LocalConnection;
pub use packet::{Kind, Packet, PacketError, PacketReader, PacketWriter};
pub use shared::{DescriptorReader, Place};

/// The first bytes of a client of the local protocol. gRPC clients begin with `PRI * HTTP/2.0`. The digit is the protocol's version.
pub const MAGIC: &[u8; 8] = b"MEZLOCL6";
