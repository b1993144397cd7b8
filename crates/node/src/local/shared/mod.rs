//! Passes large payloads through memory that a broker and a client both map. Their addresses go through the socket.
//!
//! `docs/decisions/0008-shared-memory.md` explains the reasons and the permissions.

mod broker;
mod budget;
mod descriptor;
mod memory;
mod pictures;
mod place;
mod progress;
mod slots;

pub(crate) use broker::{Incoming, MappedByClient, Outgoing, cannot};
pub(crate) use budget::{Meter, Share};
pub use descriptor::DescriptorReader;
pub(crate) use descriptor::send;
pub(crate) use pictures::{
    LEASES, LEASES_NUMBER, Leases, PICTURE_SLOTS, PictureFile, PictureTaker, PictureWriter, is_for_pictures,
};
pub use place::Place;
pub(crate) use slots::{Filler, Layout, NotThere, Reserved, Taker};

/// Smaller payloads go through the socket, because the kernel copies them about as fast.
pub(crate) const SHARED_BYTES_MIN: usize = 64 << 10;
/// Larger payloads go through the socket. They are rare, and three slots of this size would take much memory.
pub(crate) const SHARED_BYTES_MAX_OF_SLOT: usize = 8 << 20;
