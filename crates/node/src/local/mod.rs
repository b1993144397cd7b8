//! The fast path for programs on the broker's own host: the interface of [`crate::api`] over the broker's Unix socket, without HTTP/2.
//!
//! Large payloads of frames lie in memory that both sides map; all others follow their message. The figures behind this are in
//! `docs/decisions/0001-delivery-path.md` and `0008-shared-memory.md`.
//!
//! It is private to Mez: a client and a broker of different versions may fail to speak it, with an error that says so.
//! Clients in other languages use gRPC, on the same socket.
//!
//! # On the wire
//!
//! The client begins with [`MAGIC`], by which the broker tells it from a gRPC client. From then on both sides send
//! packets:
//!
//! ```text
//! byte  0       kind: see [`Kind`]
//!       1       0: the payload follows; 1: it lies in shared memory
//!       2       the number of the memory, or 0
//!       3       the slot in it, or 0
//!       4..8    m: bytes of the message, little-endian, at most 1 MiB + 64 KiB
//!       8..12   p: bytes of the payload, little-endian, at most 32 MiB
//!      12..     m bytes: the protobuf message of the interface, its field `payload` empty
//!      ..       p bytes: what belongs in that field, unless it lies in shared memory
//! ```
//!
//! | the client sends | the broker answers |
//! | --- | --- |
//! | `Connect`, `GetCameraInfo`, `Unsubscribe`, `UpdateContract`, `ReportAccuracy`, `RestartChain`, `Reply`, `Answer` | the same kind, or `Error`; one answer to each, in order |
//! | `Subscribe` | `SubscribeEvent` … until it is over; `Error` where it failed. Then the connection is closed |
//! | `Publish` … | `PublishEvent` …; `Error` where the stream failed. Then the connection is closed |
//! | `Mapped`, with the number of a memory | nothing: from then on it may use that memory for `SubscribeEvent` |
//! | `TakesPictures`, behind `Subscribe` | nothing: from then on a `Picture` may come in front of a frame of a chain |
//!
//! `Memory`, with a descriptor beside it, may come between any two events of a subscription or of a stream of frames. A subscriber that
//! maps it answers `Mapped`; a publisher may use it. Its payload is the memory's number, its number of slots, two zeros, and the bytes of a
//! slot, little-endian. For payloads of frames, whose memories have numbers up to 127, the file has a head of 64 KiB and then three slots.
//! The head's first three words say of each slot whether it is taken (0: free, 1: taken). The next three say how many of its bytes are
//! filled. The writer takes a free slot, and may send the packet that names it before the bytes are there. The reader waits for them,
//! and frees the slot; it gives up if no more bytes come for five seconds. A client that ignores a memory gets and sends payloads inline.
//!
//! `Picture` says that the edge has had the frame in the next packet decoded, for several programs of its host. Its payload is the picture,
//! inline or in a memory whose number is above 128. Without a form there is no picture, because a later frame will have one
//! (`pictures.rs`). A frame of a chain without a `Picture` is for the client to decode. Memories of pictures are read-only slots without a
//! head, the same for all programs, and each camera has one at a time. `Memory` without a descriptor, with no slots of no bytes, says that
//! nothing comes through that number any more. The memory with the number 128 is a head of 64 KiB alone: `Picture` names one of its first
//! three words, which is then 1, and the client sets it to 0 once it is done with the picture.
//!
//! A subscription and a stream of frames have a connection of their own, and closing it ends them. Nothing needs to be
//! acknowledged. A side that cannot write waits. The broker then holds at most one frame for that reader, within its share of memory
//! (`docs/limits.md`). If the reader loses its share in the middle of that frame, the broker closes the connection. The kernel's default
//! buffers bound what lies in the socket, so they are left as they are.

mod client;
mod packet;
pub(crate) mod pictures;
pub(crate) mod server;
pub(crate) mod shared;

pub use client::LocalConnection;
pub use packet::{Kind, Packet, PacketError, PacketReader, PacketWriter};
pub use shared::{DescriptorReader, Place};

/// The first bytes of a client of the local protocol. gRPC clients begin with `PRI * HTTP/2.0`. The digit is the protocol's version.
pub const MAGIC: &[u8; 8] = b"MEZLOCL5";
