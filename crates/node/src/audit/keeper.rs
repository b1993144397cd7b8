//! The thread that writes the log.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use mez_core::audit::{Event, Kind};
use mez_core::units::{Instant, Timestamp};
use tokio::sync::watch;
use tracing::{error, info};

use super::folder::{AuditError, Folder};
use super::trouble::Trouble;
use super::{AuditOptions, AuditState, Shared, lock, told};
use crate::clock::{monotonic_now, wall_now};

/// How often the thread checks for repeats that are due, and for events reported by commands.
const TICK: Duration = Duration::from_secs(1);
/// The most records in one batch.
const BATCH_MAX: usize = 256;
/// Time until the thread tries again to write the log after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

pub(super) enum Order {
    Record(Event),
    Stop,
}

/// The state of the thread.
pub(super) struct Keeper {
    options: AuditOptions,
    shared: Arc<Shared>,
    state: watch::Sender<AuditState>,
    folder: Option<Folder>,
    /// The events that could not be recorded.
    lost: Option<Lost>,
    /// Decides what the edge's ordinary log says about failures.
    trouble: Trouble,
    retry: Instant,
}

/// How many events could not be recorded, since when, and why.
struct Lost {
    count: u64,
    since: Timestamp,
    why: String,
}

impl Keeper {
    pub(super) fn new(options: AuditOptions, shared: Arc<Shared>, state: watch::Sender<AuditState>) -> Self {
        let (trouble, retry) = (Trouble::default(), Instant::from_nanos(0));
        Self { options, shared, state, folder: None, lost: None, trouble, retry }
    }

    /// Writes until the edge stops, or all senders are gone.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        self.write(Vec::new());
        let mut ends = false;
        while !ends {
            let mut batch = Vec::new();
            match orders.recv_timeout(TICK) {
                Ok(Order::Record(event)) => batch.push(event),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => ends = true,
            }
            while batch.len() < BATCH_MAX && !ends {
                match orders.try_recv() {
                    Ok(Order::Record(event)) => batch.push(event),
                    Ok(Order::Stop) => ends = true,
                    Err(_) => break,
                }
            }
            let mut repeats = lock(&self.shared.repeats);
            batch.extend(if ends { repeats.finish() } else { repeats.handle_timeout(monotonic_now()) });
            drop(repeats);
            if ends {
                batch.push(Event::new(wall_now(), Kind::Stopped, "edge"));
            }
            self.write(batch);
        }
    }

    /// Writes a batch, or counts its events as lost.
    fn write(&mut self, batch: Vec<Event>) {
        let unqueued = std::mem::take(&mut *lock(&self.shared.unqueued));
        self.lose(unqueued, "more events at once than the log could write");
        let now = monotonic_now();
        let failing = match &*self.state.borrow() {
            AuditState::Failing { why } if now < self.retry => Some(why.clone()),
            _ => None,
        };
        if let Some(why) = failing {
            return self.lose(count(&batch), &why);
        }
        let told = told::read(&self.options.folder);
        let lost = self.lost.as_ref().map(Lost::event);
        let first = usize::from(lost.is_some());
        let last = first + batch.len();
        let told_events = told.iter().map(|(event, _)| event.clone());
        let events: Vec<Event> = lost.into_iter().chain(batch).chain(told_events).collect();
        let (written, result) = match self.open() {
            Ok(folder) => folder.append(&events, now, wall_now()),
            Err(error) => (0, Err(error)),
        };
        told.iter().take(written.saturating_sub(last)).for_each(|(_, file)| told::done(file));
        if written >= first.max(1) {
            self.lost = None;
        }
        match result {
            Ok(()) => {
                if let Some(lost) = self.trouble.handle_written(now) {
                    info!(
                        lost,
                        "the audit log is written again; records of kind lost say which events are missing, and why"
                    );
                }
                self.state.send_if_modified(|state| {
                    std::mem::replace(state, AuditState::Written) != AuditState::Written
                });
            }
            Err(error) => {
                self.retry = now + RETRY_INTERVAL;
                let why = error.to_string();
                // Events reported by commands are not lost: they stay in their files.
                self.lose(count(&events[written.clamp(first, last)..last]), &why);
                self.fail(why);
            }
        }
    }

    /// Opens the folder if it is not open.
    fn open(&mut self) -> Result<&mut Folder, AuditError> {
        if self.folder.is_none() {
            let (mut folder, found) = Folder::open(&self.options.folder, self.options.rotation)?;
            if !found.is_empty() {
                for event in &found {
                    error!("the audit log was changed while no edge ran: {}", event.why);
                }
                folder.append(&found, monotonic_now(), wall_now()).1?;
            }
            return Ok(self.folder.insert(folder));
        }
        Ok(self.folder.as_mut().expect("it was looked at just now"))
    }

    /// Logs once that the audit log cannot be written.
    fn fail(&mut self, why: String) {
        if self.trouble.handle_failed(monotonic_now()) {
            error!("the audit log cannot be written; until it can, events are only counted: {why}");
        }
        self.state.send_replace(AuditState::Failing { why });
    }

    fn lose(&mut self, count: u64, why: &str) {
        if count > 0 {
            self.trouble.handle_lost(monotonic_now(), count);
            let lost =
                self.lost.get_or_insert_with(|| Lost { count: 0, since: wall_now(), why: why.to_owned() });
            lost.count = lost.count.saturating_add(count);
        }
    }
}

/// The number of events, including repeats.
fn count(events: &[Event]) -> u64 {
    events.iter().map(|event| event.count).sum()
}

impl Lost {
    fn event(&self) -> Event {
        let Self { count, since, why } = self;
        let event = Event::new(wall_now(), Kind::Lost, "edge").why(format!("not recorded: {why}"));
        Event { count: *count, since: Some(*since), ..event }
    }
}
