//! Payloads through memory that a broker and one of its clients both map, beside the socket that says where they lie.
//!
//! `docs/decisions/0008-shared-memory.md` says why, and who may do what.

mod broker;
mod budget;
mod descriptor;
mod memory;
mod place;
mod progress;
mod slots;

pub(crate) use broker::{Incoming, MappedByClient, Outgoing, cannot};
pub use descriptor::DescriptorReader;
pub(crate) use descriptor::send;
pub use place::Place;
pub(crate) use slots::{Filler, Layout, NotThere, Reserved, Taker};

/// Payloads smaller than this go through the socket: the kernel copies them about as fast.
pub(crate) const SHARED_BYTES_MIN: usize = 64 << 10;
/// Payloads larger than this go through the socket: they are rare, and three slots of them are much memory.
pub(crate) const SHARED_BYTES_MAX_OF_SLOT: usize = 8 << 20;
