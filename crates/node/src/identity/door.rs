//! Gives each connection at a port a [`Pass`], and revokes the pass if the client is too slow or there are too many connections.
//!
//! [`Admission`] decides. This module informs the tasks that serve the connections. Each port has its own door.

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

/// Admits connections at one port. See the [module](self).
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
    /// Tells the task of a connection to close it. The number of entries is limited by the number of places.
    passes: HashMap<Ticket, oneshot::Sender<Dropped>>,
}

impl Door {
    /// A door with the default limits, reduced to the file descriptors of this process. `refusals` counts the refused clients.
    pub(crate) fn new(refusals: Arc<Refusals>) -> Self {
        Self::with(Limits::default().within(descriptors::max()), refusals)
    }

    /// A door with other limits.
    pub(crate) fn with(limits: Limits, refusals: Arc<Refusals>) -> Self {
        let rooms = Rooms { admission: Admission::new(limits), passes: HashMap::new() };
        Self(Arc::new(Shared { rooms: Mutex::new(rooms), refusals }))
    }

    /// Registers a new connection.
    pub(crate) fn enter(&self, peer: IpAddr) -> Pass {
        let (sender, dropped) = oneshot::channel();
        let mut rooms = self.rooms();
        let ticket = rooms.admission.handle_arrived(monotonic_now(), peer.into());
        rooms.passes.insert(ticket, sender);
        self.tell(&mut rooms);
        Pass { door: self.clone(), peer, ticket, dropped }
    }

    /// Closes a waiting connection, because the process can open no more files. Returns false if no connection waits here.
    pub(crate) fn make_room(&self) -> bool {
        let mut rooms = self.rooms();
        let made = rooms.admission.handle_no_descriptor();
        self.tell(&mut rooms);
        made
    }

    /// The number of connections that are not authenticated yet.
    pub(crate) fn strangers(&self) -> usize {
        self.rooms().admission.strangers()
    }

    /// Notes why a client was refused.
    pub(crate) fn refused(&self, peer: IpAddr, why: &str) {
        self.0.refusals.log(monotonic_now(), &peer.to_canonical().to_string(), why);
    }

    /// Logs, with a limit, that connections cannot be accepted.
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

/// A connection's place at the door. Dropping it frees the place: the client was admitted or is gone.
#[derive(Debug)]
pub(crate) struct Pass {
    door: Door,
    peer: IpAddr,
    ticket: Ticket,
    dropped: oneshot::Receiver<Dropped>,
}

impl Pass {
    /// The address that the connection counts for.
    pub(crate) fn address(&self) -> Address {
        self.peer.into()
    }

    /// Notes that the first byte arrived.
    pub(crate) fn heard(&self) {
        self.door.rooms().admission.handle_heard(self.ticket);
    }

    /// Notes that the client is authenticated.
    pub(crate) fn authenticated(&self) {
        let mut rooms = self.door.rooms();
        rooms.admission.handle_authenticated(monotonic_now(), self.ticket);
        self.door.tell(&mut rooms);
    }

    /// Notes why the client was refused.
    pub(crate) fn refused(&self, why: &str) {
        self.door.refused(self.peer, why);
    }

    /// Completes when the connection must be closed.
    pub(crate) async fn dropped(&mut self) -> Dropped {
        loop {
            let due = self.due();
            tokio::select! {
                biased;
                dropped = &mut self.dropped => match dropped {
                    Ok(dropped) => return dropped,
                    // A second call, after the result was returned.
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

    /// Runs `work`. Fails if the connection must be closed before `work` is done.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Dropped> {
        tokio::select! {
            biased;
            dropped = self.dropped() => Err(dropped),
            done = work => Ok(done),
        }
    }

    /// Splits the pass. The reader of the connection calls [`Said::tell`] when the first whole message is
    /// there, which frees the place. The future completes if the connection must be closed before that.
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

/// Reports that the first whole message of a connection is there, or, at the web port, that a known client has sent a request.
#[derive(Debug, Default)]
pub(crate) struct Said(Option<oneshot::Sender<()>>);

impl Said {
    /// Reports it. Only the first call has an effect.
    pub(crate) fn tell(&mut self) {
        if let Some(said) = self.0.take() {
            let _ = said.send(());
        }
    }
}
