//! The broker's side of shared memory: memory for frames that it sends, and memory that it grants to publishers.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use tracing::warn;

use super::SHARED_BYTES_MAX_OF_SLOT;
use super::SHARED_BYTES_MIN;
use super::budget::{Meter, Share};
use super::pictures::is_for_pictures;
use super::place::Place;
use super::slots::{Filler, Layout, NotThere, Reserved, SLOTS, Taker};

/// The number that means no memory. Memories are numbered from 1.
const NONE: u8 = 0;

/// The memory of a subscriber's connection that its client has mapped. Written by the task that reads from the client.
#[derive(Debug, Default)]
pub(crate) struct MappedByClient(AtomicU8);

impl MappedByClient {
    /// Records that the client has mapped this memory.
    pub(crate) fn set(&self, number: u8) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// The memory for a subscriber's frames.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    mapped: &'a MappedByClient,
    filler: Option<Filler>,
    meter: Meter,
}

impl<'a> Outgoing<'a> {
    pub(crate) fn new(mapped: &'a MappedByClient) -> Self {
        Self { mapped, filler: None, meter: Meter::frames() }
    }

    /// Reserves a slot for a payload of `bytes` that the client can read. `None`: the payload must go through the socket.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        if bytes < SHARED_BYTES_MIN {
            return None;
        }
        let filler = self.filler.as_mut()?;
        if self.mapped.0.load(Ordering::Relaxed) != filler.layout().number {
            return None;
        }
        filler.reserve(bytes)
    }

    /// After a payload of `bytes` went through the socket: makes a memory for the
    /// next payloads, to be offered to the client. `None` if this would not help.
    pub(crate) fn offer(&mut self, bytes: usize) -> Option<(Layout, OwnedFd)> {
        let (before, number) = match &self.filler {
            // The client cannot map the current memory, or has not done so yet.
            Some(filler) if self.mapped.0.load(Ordering::Relaxed) != filler.layout().number => return None,
            Some(filler) => (Some(filler.layout()), filler.layout().number),
            None => (None, NONE),
        };
        if bytes < SHARED_BYTES_MIN {
            return None;
        }
        let layout = next_layout(before, number, bytes)?;
        let meter = Some(self.meter.clone());
        let made = layout.create().and_then(|file| Ok((Filler::map(&file, layout, meter)?, file)));
        let (filler, file) = made.map_err(|error| cannot(&error)).ok()?;
        self.filler = Some(filler);
        Some((layout, file))
    }
}

/// The memory for a publisher's frames. The publisher can change it at any time, so payloads are copied before they are read.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    current: Option<Granted>,
    /// The memory that the client may still use until it knows `current`.
    previous: Option<Granted>,
}

#[derive(Debug)]
struct Granted {
    taker: Taker,
    used: bool,
    _share: Vec<Share>,
}

impl Incoming {
    /// A copy of a payload, when it is complete. Must not be cancelled: its slot would never be freed.
    pub(crate) async fn copy(&mut self, place: Place) -> Result<Bytes, NotThere> {
        if let Some(current) = self.current.as_mut().filter(|granted| granted.is(place)) {
            current.used = true;
            self.previous = None;
        }
        let granted = [&self.current, &self.previous].into_iter().flatten().find(|granted| granted.is(place));
        granted.ok_or(NotThere::NoPlace)?.taker.copy(place).await
    }

    /// After a payload of `bytes` came through the socket: makes a memory for the
    /// next payloads, to be offered to the client. `None` if this would not help.
    pub(crate) fn offer(&mut self, bytes: usize) -> Option<(Layout, OwnedFd)> {
        let (before, number) = match &self.current {
            // A client that does not use its memory cannot use another one.
            Some(granted) if !granted.used => return None,
            Some(granted) => (Some(granted.taker.layout()), granted.taker.layout().number),
            None => (None, NONE),
        };
        if bytes < SHARED_BYTES_MIN {
            return None;
        }
        let layout = next_layout(before, number, bytes)?;
        let share = Meter::frames().take(u64::from(layout.slot_bytes) * u64::from(SLOTS))?;
        let made = layout.create().and_then(|file| Ok((Taker::map(&file, layout)?, file)));
        let (taker, file) = made.map_err(|error| cannot(&error)).ok()?;
        self.previous = self.current.replace(Granted { taker, used: false, _share: share });
        Some((layout, file))
    }
}

impl Granted {
    fn is(&self, place: Place) -> bool {
        self.taker.layout().number == place.memory
    }
}

/// The layout for payloads of `bytes`, if the previous one is too small for them.
fn next_layout(before: Option<Layout>, number: u8, bytes: usize) -> Option<Layout> {
    if bytes > SHARED_BYTES_MAX_OF_SLOT || before.is_some_and(|layout| layout.fits(bytes)) {
        return None;
    }
    let number = number.checked_add(1).filter(|number| !is_for_pictures(*number))?;
    Some(Layout::for_payload(number, bytes))
}

/// Logs once why payloads go through sockets.
pub(crate) fn cannot(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        warn!(%error, "cannot share memory with programs on this host; frames go through the socket, which is slower");
    });
}
