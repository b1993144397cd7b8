//! Gives a [`Pass`] to every connection at a port, and takes it back if the client takes too long or there are too many.
//!
//! [`Admission`] decides. This module tells the tasks that serve the connections. Each port has its own door.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mez_core::admission::{Address, Admission, Dropped, Limits, Ticket};
use mez_core::units::Instant;
use tokio::sync::oneshot;

use super::refusals::Refusals;
use crate::clock::{monotonic_now, sleep_until};
use crate::descriptors;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Door(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rooms: Mutex<Rooms>,
    refusals: Arc<Refusals>,
}

#[derive(Debug)]
struct Rooms {
    admission: Admission,
    /// By which the task of a connection is told to close it. The number of places bounds it.
    passes: HashMap<Ticket, oneshot::Sender<Dropped>>,
}

impl Door {
    /// A door with the usual limits, as far as this process may open files. `refusals` keeps count of who is sent away.
    pub(crate) fn new(refusals: Arc<Refusals>) -> Self {
        Self::with(Limits::default().within(descriptors::max()), refusals)
    }

    /// A door with other limits.
    pub(crate) fn with(limits: Limits, refusals: Arc<Refusals>) -> Self {
        let rooms = Rooms { admission: Admission::new(limits), passes: HashMap::new() };
        Self(Arc::new(Shared { rooms: Mutex::new(rooms), refusals }))
    }

    /// A connection came.
    pub(crate) fn enter(&self, peer: IpAddr) -> Pass {
        let (sender, dropped) = oneshot::channel();
        let mut rooms = self.rooms();
        let ticket = rooms.admission.handle_arrived(monotonic_now(), peer.into());
        rooms.passes.insert(ticket, sender);
        self.tell(&mut rooms);
        Pass { door: self.clone(), peer, ticket, dropped }
    }

    /// Closes a waiting connection because the process can open no more files. False if nobody waits here.
    pub(crate) fn make_room(&self) -> bool {
        let mut rooms = self.rooms();
        let made = rooms.admission.handle_no_descriptor();
        self.tell(&mut rooms);
        made
    }

    /// Connections that have not proved who they are.
    pub(crate) fn strangers(&self) -> usize {
        self.rooms().admission.strangers()
    }

    /// Notes why a client is refused.
    pub(crate) fn refused(&self, peer: IpAddr, why: &str) {
        self.0.refusals.log(monotonic_now(), &peer.to_canonical().to_string(), why);
    }

    /// Logs, now and then, that connections cannot be accepted.
    pub(super) fn cannot_accept(&self, error: &io::Error) {
        if self.0.refusals.note(monotonic_now(), "", &error.to_string()).is_some() {
            tracing::warn!(%error, "cannot accept a connection; trying again");
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, rooms: &mut Rooms) {
        while let Some(dropped) = rooms.admission.poll_output() {
            self.0.refusals.log(monotonic_now(), &dropped.address.to_string(), &dropped.to_string());
            if let Some(pass) = rooms.passes.remove(&dropped.ticket) {
                let _ = pass.send(dropped);
            }
        }
    }
}

/// A connection's place at the port. Dropping it frees the place: the client is admitted or gone.
#[derive(Debug)]
pub(crate) struct Pass {
    door: Door,
    peer: IpAddr,
    ticket: Ticket,
    dropped: oneshot::Receiver<Dropped>,
}

impl Pass {
    /// What the connection counts as.
    pub(crate) fn address(&self) -> Address {
        self.peer.into()
    }

    /// The first byte came.
    pub(crate) fn heard(&self) {
        self.door.rooms().admission.handle_heard(self.ticket);
    }

    /// The client has proved who it is.
    pub(crate) fn authenticated(&self) {
        let mut rooms = self.door.rooms();
        rooms.admission.handle_authenticated(monotonic_now(), self.ticket);
        self.door.tell(&mut rooms);
    }

    /// Notes why the client is refused.
    pub(crate) fn refused(&self, why: &str) {
        self.door.refused(self.peer, why);
    }

    /// Ready when the connection is to be closed.
    pub(crate) async fn dropped(&mut self) -> Dropped {
        loop {
            let due = self.due();
            tokio::select! {
                biased;
                dropped = &mut self.dropped => match dropped {
                    Ok(dropped) => return dropped,
                    // Whoever asks again after it was told.
                    Err(_) => pending().await,
                },
                () = sleep_until(due.unwrap_or_default()), if due.is_some() => {
                    let mut rooms = self.door.rooms();
                    rooms.admission.handle_timeout(monotonic_now());
                    self.door.tell(&mut rooms);
                }
            }
        }
    }

    /// `work`, unless the connection is to be closed before it is done.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Dropped> {
        tokio::select! {
            biased;
            dropped = self.dropped() => Err(dropped),
            done = work => Ok(done),
        }
    }

    /// For whoever reads the connection: it tells when the first whole message is there. The future is ready when the connection is to
    /// be closed before.
    pub(crate) fn until_said(mut self) -> (Said, impl Future<Output = Dropped> + Send + 'static) {
        let (said, heard) = oneshot::channel();
        let dropped = async move {
            tokio::select! {
                biased;
                dropped = self.dropped() => return dropped,
                _ = heard => {}
            }
            drop(self);
            pending().await
        };
        (Said(Some(said)), dropped)
    }

    fn due(&self) -> Option<Instant> {
        self.door.rooms().admission.due(self.ticket)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut rooms = self.door.rooms();
        rooms.admission.handle_left(self.ticket);
        rooms.passes.remove(&self.ticket);
    }
}

/// Tells that the first whole message of a connection is there, or, at the web port, that somebody known has asked.
#[derive(Debug, Default)]
pub(crate) struct Said(Option<oneshot::Sender<()>>);

impl Said {
    /// It is.
    pub(crate) fn tell(&mut self) {
        if let Some(said) = self.0.take() {
            let _ = said.send(());
        }
    }
}
