//! Keeps the audit log of an edge: connections, refusals, reads of the past, exports, changes of rights, revocations and operations.
//!
//! [`Audit::note`] records an event and never blocks. It counts repeats ([`mez_core::audit::Repeats`]) and
//! puts other events into a bounded queue. A thread of its own writes them. A log that cannot be written
//! stops nothing: lost events are counted, and the next record that can be written contains the count.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`keeper`] | the thread, and what it does while the disk fails |
//! | `trouble` | when the ordinary log reports that the audit log fails, and that it works again |
//! | [`folder`] | the files, their head, and the removal of old files |
//! | [`reader`] | reads, follows and verifies a log |
//! | [`told`] | events reported by commands of this host, such as exports from disk |
//! | `changes` | records changes of the rights |
//! | `denials` | records changes of the deny list |

pub(crate) mod changes;
pub(crate) mod denials;
mod files;
pub mod folder;
mod keeper;
pub mod reader;
pub mod told;
mod trouble;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mez_core::audit::{Event, Kind, Repeats, Rotation};
use tokio::sync::watch;

pub use self::folder::AuditError;
use self::keeper::{Keeper, Order};
pub use self::reader::AuditLog;
use crate::clock::{monotonic_now, wall_now};

/// Capacity of the queue to the thread. Events that do not fit are counted.
const WAITING_MAX: usize = 1_024;
/// The longest time that a stopping edge waits for the thread.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// Where an edge keeps its audit log, and the log's limits.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The folder of the log.
    pub folder: PathBuf,
    /// Its limits.
    pub rotation: Rotation,
}

/// Whether the log is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditState {
    /// This edge keeps no audit log.
    #[default]
    Off,
    /// The log is written.
    Written,
    /// The log cannot be written. Events are only counted.
    Failing {
        /// The reason, and what to do.
        why: String,
    },
}

/// The audit log of an edge that runs. Cheap to clone.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Handle>>);

struct Handle {
    queue: SyncSender<Order>,
    shared: Arc<Shared>,
    state: watch::Receiver<AuditState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that callers and the thread share.
#[derive(Default)]
struct Shared {
    repeats: Mutex<Repeats>,
    /// The number of events that did not fit into the queue, and that no record contains yet.
    unqueued: Mutex<u64>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.state()).finish()
    }
}

impl Audit {
    /// No audit log: nothing is recorded.
    pub fn off() -> Self {
        Self(None)
    }

    /// Opens the log and starts the thread. If the log cannot be opened, this is reported, and the thread tries again.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(options: AuditOptions) -> std::io::Result<Self> {
        let (queue, orders) = sync_channel(WAITING_MAX);
        let (tell, state) = watch::channel(AuditState::Written);
        let shared = Arc::new(Shared::default());
        let keeper = Keeper::new(options, Arc::clone(&shared), tell);
        let thread = thread::Builder::new().name("mez-audit".into()).spawn(move || keeper.run(&orders))?;
        Ok(Self(Some(Arc::new(Handle { queue, shared, state, thread: Mutex::new(Some(thread)) }))))
    }

    /// Records an event. Never blocks on a disk.
    pub fn note(&self, event: Event) {
        let Some(handle) = &self.0 else { return };
        if let Some(event) = lock(&handle.shared.repeats).handle(monotonic_now(), event) {
            let count = event.count;
            if let Err(TrySendError::Full(_)) = handle.queue.try_send(Order::Record(event)) {
                *lock(&handle.shared.unqueued) += count;
            }
        }
    }

    /// Records the connection of an authenticated client.
    pub fn connected(&self, who: impl Into<String>, by: &str, from: impl Into<String>) {
        if self.0.is_some() {
            self.note(Event::new(wall_now(), Kind::Connected, who).what(by).from(from));
        }
    }

    /// Records that a member got a new certificate in exchange for its old one.
    pub fn renewed(&self, who: impl Into<String>, serial: &str, from: impl Into<String>) {
        if self.0.is_some() {
            self.note(Event::new(wall_now(), Kind::Renewed, who).what(serial).from(from));
        }
    }

    /// The state of the log.
    pub fn state(&self) -> AuditState {
        self.0.as_ref().map(|handle| handle.state.borrow().clone()).unwrap_or_default()
    }

    /// The state of the log, and its changes. `None` if there is no log.
    pub fn states(&self) -> Option<watch::Receiver<AuditState>> {
        self.0.as_ref().map(|handle| handle.state.clone())
    }

    /// Writes the remaining records, and a record that the edge stops. Blocks for at most two seconds.
    pub(crate) fn stop(&self) {
        let Some(handle) = &self.0 else { return };
        let Some(thread) = lock(&handle.thread).take() else { return };
        let deadline = monotonic_now() + STOP_TIME_MAX;
        let mut order = Order::Stop;
        while let Err(TrySendError::Full(back)) = handle.queue.try_send(order) {
            if monotonic_now() >= deadline {
                return;
            }
            order = back;
            thread::sleep(Duration::from_millis(2));
        }
        // A thread that hangs in a system call ends with the process.
        while !thread.is_finished() && monotonic_now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Locks a mutex even if another thread panicked: what it protects is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
