//! Hands decoded pictures to programs on the broker's host, beside the frames that they are of.
//!
//! A picture lies in a memory of the connection, as large payloads do. The program can alter only what it was given, and holds nothing
//! but the slots of its own memory. If it holds them all, it gets no picture until it lets one go.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use mez_core::frame::Encoding;
use mez_core::stills::Picture;
use tokio::net::unix::OwnedWriteHalf;

use super::packet::{Kind, PacketError, PacketWriter};
use super::shared::{MappedByClient, Meter, Outgoing, is_for_pictures};
use crate::api::feed::Feed;
use crate::api::pb;
use crate::api::principal::Principal;
use crate::pictures::Beside;

/// What a packet of [`Kind::Picture`] says of the picture.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct PictureHead {
    /// The form of its samples. 0: there is no picture, and the frame need not be decoded, because a later one has a picture.
    #[prost(uint32, tag = "1")]
    pub(crate) form: u32,
    /// Pixels in a row.
    #[prost(uint32, tag = "2")]
    pub(crate) width: u32,
    /// Rows.
    #[prost(uint32, tag = "3")]
    pub(crate) height: u32,
}

/// What a subscriber has said about shared memory: written by who reads from it.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) frames: MappedByClient,
    pictures: MappedByClient,
    takes_pictures: AtomicBool,
}

impl Said {
    /// The client has mapped a memory.
    pub(super) fn mapped(&self, number: u8) {
        if is_for_pictures(number) { self.pictures.set(number) } else { self.frames.set(number) }
    }

    /// The client takes pictures.
    pub(super) fn takes_pictures(&self) {
        self.takes_pictures.store(true, Ordering::Relaxed);
    }
}

/// The pictures of one subscription.
pub(super) struct Pictures<'a> {
    said: &'a Said,
    memory: Outgoing<'a>,
    /// A picture was larger than its frame says: no more are sent.
    is_off: bool,
}

impl<'a> Pictures<'a> {
    pub(super) fn new(said: &'a Said, principal: &Principal) -> Self {
        let (memory, is_off) = match principal {
            Principal::User { uid } => (Meter::pictures_of(*uid), false),
            Principal::Member(_) => (Meter::frames(), true),
        };
        Self { said, memory: Outgoing::of_pictures(&said.pictures, memory), is_off }
    }

    /// Queues what comes beside a frame, which is written next.
    pub(super) async fn queue_beside(
        &mut self,
        frame: &pb::Frame,
        feed: &mut Feed,
        writer: &mut PacketWriter<OwnedWriteHalf>,
    ) -> Result<(), PacketError> {
        let Some(bytes) = bytes_of(frame) else { return Ok(()) };
        if self.is_off || !self.said.takes_pictures.load(Ordering::Relaxed) {
            return Ok(());
        }
        match feed.beside(frame, self.memory.is_ready(bytes)).await {
            Beside::Nothing => {}
            Beside::Memory => {
                if let Some((layout, file)) = self.memory.offer(bytes) {
                    writer.write_memory(layout, file.as_fd()).await?;
                }
            }
            Beside::Passed => writer.queue(Kind::Picture, &PictureHead::default(), None)?,
            Beside::Picture(picture) if picture.data.len() > bytes => self.is_off = true,
            Beside::Picture(picture) => self.queue(&picture, writer)?,
        }
        Ok(())
    }

    fn queue(
        &mut self,
        picture: &Picture,
        writer: &mut PacketWriter<OwnedWriteHalf>,
    ) -> Result<(), PacketError> {
        let (width, height) = picture.size;
        // A program that holds all that it was given has passed this one over.
        match self.memory.reserve(picture.data.len()) {
            Some(reserved) => {
                let place = reserved.place();
                reserved.fill(&picture.data);
                let head = PictureHead { form: picture.form.into(), width, height };
                writer.queue(Kind::Picture, &head, Some(place))?;
            }
            None => writer.queue(Kind::Picture, &PictureHead::default(), None)?,
        }
        Ok(())
    }
}

/// The most bytes that the picture of a frame has. `None` for stills.
fn bytes_of(frame: &pb::Frame) -> Option<usize> {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let encoding = u8::try_from(frame.encoding).ok().and_then(Encoding::from_code)?;
    match encoding {
        Encoding::H264 => width.checked_mul(height)?.checked_add(2 * width.div_ceil(2) * height.div_ceil(2)),
        encoding if encoding.is_chained() => width.checked_mul(height)?.checked_mul(3),
        _ => None,
    }
}
