//! The thread that writes logs to disk, so that no other thread blocks on a disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mez_core::frame::{Epoch, FrameId};
use mez_core::name::CameraName;
use mez_core::store::{
    BATCH_INTERVAL, Degraded, RecordStanding, SALT_BYTES, SLOW_AFTER, Storage, StoreStatus, StoreWriter,
};
use mez_core::units::{ClockAnchor, Instant};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::LogKind;
use super::awaited::{Awaited, NotOnDisk, ON_DISK_TIME_MAX};
use crate::clock::{monotonic_now, wall_now};
use crate::lock::FileLock;

/// Capacity of the queue to the thread. Senders never block.
const ORDERS_MAX: usize = 1024;
/// The longest time that a stopping broker waits for its logs. A hanging disk must not keep the process alive.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// The longest time that [`LogKeeper::release`] waits for the thread.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(3);
/// The longest time that the thread spends on completing a released log. The other logs wait meanwhile.
const COMPLETE_TIME_MAX: Duration = Duration::from_millis(500);
/// How long after the last record the thread still polls for more. Otherwise a publisher would have to
/// wake it after every batch, which costs a publisher more than everything else about a log on disk.
const AWAKE_TIME: Duration = Duration::from_secs(2);
/// How often the state of the logs (degraded or not) is checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

enum Order<S> {
    Keep(CameraName, Box<StoreWriter<S>>),
    Refused(CameraName, Degraded),
    Start(CameraName, Epoch, ClockAnchor),
    /// Stop writing a log. The sender is notified when the remaining records are written and the files are closed.
    Release(CameraName, SyncSender<()>),
    /// Notify the sender when this record is on disk.
    Await(CameraName, FrameId, oneshot::Sender<Result<(), NotOnDisk>>),
    /// New records have been appended.
    Wake,
    Stop,
}

/// Writes the logs of cameras to disk in the background. Cheap to clone.
pub struct LogKeeper<S> {
    orders: SyncSender<Order<S>>,
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl<S> Clone for LogKeeper<S> {
    fn clone(&self) -> Self {
        Self {
            orders: self.orders.clone(),
            shared: Arc::clone(&self.shared),
            thread: Arc::clone(&self.thread),
        }
    }
}

#[derive(Default)]
struct Shared {
    statuses: Mutex<BTreeMap<CameraName, StoreStatus>>,
    /// Start of the thread's current step, or the time when it was woken, in nanoseconds of the monotonic clock. 0 while the thread waits for work.
    busy_since: AtomicU64,
    /// Whether the thread sleeps for longer than records may wait.
    asleep: AtomicBool,
}

impl Shared {
    fn status(&self, camera: &CameraName, now: Instant) -> Option<StoreStatus> {
        let mut status = lock(&self.statuses).get(camera).cloned()?;
        let busy = self.busy_since.load(Ordering::Acquire);
        let stuck = now.saturating_since(Instant::from_nanos(busy));
        // A thread that hangs in a system call cannot report that itself.
        if busy > 0 && stuck > SLOW_AFTER && status.degraded.is_none() {
            status.degraded = Some(Degraded::Slow(stuck));
        }
        Some(status)
    }
}

impl<S: Storage + Send + 'static> LogKeeper<S> {
    /// Starts the thread. It ends with [`LogKeeper::stop`], or when the last clone is
    /// dropped. In the second case the last records may not be on disk when the process ends.
    pub fn start() -> std::io::Result<Self> {
        Self::start_holding(None)
    }

    /// Starts the thread, which holds `lock` until it ends.
    pub(crate) fn start_holding(lock: Option<FileLock>) -> std::io::Result<Self> {
        let (orders, queue) = sync_channel(ORDERS_MAX);
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mez-log".into()).spawn(move || {
            run(&queue, &of_thread);
            drop(lock);
        })?;
        Ok(Self { orders, shared, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Starts to write a camera's log.
    pub fn keep(&self, camera: CameraName, writer: StoreWriter<S>) {
        self.order(Order::Keep(camera, Box::new(writer)));
    }

    /// Records that a camera's log cannot be written.
    pub fn refused(&self, camera: CameraName, why: Degraded) {
        self.order(Order::Refused(camera, why));
    }

    /// Sets the clock anchor of the camera broker's start with this epoch.
    pub fn set_start(&self, camera: CameraName, epoch: Epoch, anchor: ClockAnchor) {
        self.order(Order::Start(camera, epoch, anchor));
    }

    /// Writes the remaining records of a camera's log and closes its files. Blocks
    /// until the files are closed. Returns false if the disk takes too long.
    pub fn release(&self, camera: CameraName) -> bool {
        let (done, released) = sync_channel(1);
        self.order(Order::Release(camera, done));
        // The answer is dropped unsent only if the thread has ended, and then its files are closed.
        !matches!(released.recv_timeout(RELEASE_TIME_MAX), Err(RecvTimeoutError::Timeout))
    }

    /// Wakes the thread after records were appended to a log. Never blocks. While the thread is at work, this only reads a flag.
    pub fn wake(&self) {
        // Pairs with the fence in `run`: either the thread sees the record after it has set `asleep`, or this call sees `asleep`.
        fence(Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::Relaxed) && self.shared.asleep.swap(false, Ordering::AcqRel) {
            self.shared.busy_since.store(monotonic_now().as_nanos().max(1), Ordering::Release);
            // If the queue is full, the thread is being woken already. If the thread has ended, it writes nothing.
            let _ = self.orders.try_send(Order::Wake);
        }
    }

    /// Waits until a record, and everything before it, is on disk as far as the log's durability
    /// promises. All waiting publishers share syncs. Cancelling this future has no effect on the record.
    ///
    /// # Errors
    ///
    /// Why the record is not on disk, as soon as this is known, and after [`ON_DISK_TIME_MAX`] at the latest.
    pub async fn on_disk(&self, camera: &CameraName, frame: FrameId) -> Result<(), NotOnDisk> {
        let (told, known) = oneshot::channel();
        if self.orders.try_send(Order::Await(camera.clone(), frame, told)).is_err() {
            return Err(if self.is_stopped() { NotOnDisk::Stopped } else { NotOnDisk::TooMany });
        }
        match tokio::time::timeout(ON_DISK_TIME_MAX, known).await {
            Ok(known) => known.unwrap_or(Err(NotOnDisk::Stopped)),
            // A thread that hangs in a system call does not answer.
            Err(_) => {
                let degraded = self.status(camera).and_then(|status| status.degraded);
                Err(degraded.map_or(NotOnDisk::Late, NotOnDisk::Degraded))
            }
        }
    }

    /// The state of a camera's log on disk. `None` if the camera has no log on disk.
    pub fn status(&self, camera: &CameraName) -> Option<StoreStatus> {
        self.shared.status(camera, monotonic_now())
    }

    /// Whether [`LogKeeper::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        lock(&self.thread).is_none()
    }

    /// Writes the remaining records, syncs them and ends the thread. Blocks for at most 2.1 s.
    pub fn stop(&self) {
        self.order(Order::Stop);
        let thread = lock(&self.thread).take();
        let deadline = monotonic_now() + STOP_TIME_MAX + Duration::from_millis(100);
        if let Some(thread) = thread {
            // A thread that hangs in a system call ends with the process.
            while !thread.is_finished() && monotonic_now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Logs a line whenever a log becomes degraded or recovers, until the keeper ends. `kind` is the kind of the keeper's logs.
    pub async fn watch(self, kind: LogKind) {
        let what = kind.words().one;
        let shared = Arc::downgrade(&self.shared);
        drop(self);
        let mut degraded: BTreeMap<CameraName, u64> = BTreeMap::new();
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let Some(shared) = shared.upgrade() else { return };
            let cameras: Vec<CameraName> = lock(&shared.statuses).keys().cloned().collect();
            for camera in cameras {
                let Some(status) = shared.status(&camera, monotonic_now()) else { continue };
                match (&status.degraded, degraded.contains_key(&camera)) {
                    (Some(reason), false) => {
                        warn!(%camera, what, "the log on disk is degraded; the log continues in memory: {reason}");
                        degraded.insert(camera, status.lost);
                    }
                    (None, true) => {
                        let lost = status.lost - degraded.remove(&camera).unwrap_or(status.lost);
                        info!(%camera, what, lost, "the log on disk works again");
                    }
                    _ => {}
                }
            }
        }
    }

    fn order(&self, order: Order<S>) {
        // Orders are sent per camera and per start, not per frame, so the queue fills only if the disk hangs for long.
        if self.orders.try_send(order).is_err() {
            error!("the thread that writes logs to disk does not answer");
        }
    }
}

struct Kept<S> {
    writer: StoreWriter<S>,
    due: Instant,
}

fn run<S: Storage>(queue: &Receiver<Order<S>>, shared: &Shared) {
    let mut kept: BTreeMap<CameraName, Kept<S>> = BTreeMap::new();
    let mut awaited = Awaited::default();
    let mut awake_until = Instant::ZERO;
    loop {
        let now = monotonic_now();
        let is_awake = now < awake_until;
        let until_due = |kept: &BTreeMap<CameraName, Kept<S>>| {
            let due = kept.values().map(|kept| kept.due).min();
            due.map_or(Duration::from_secs(3600), |due| due.saturating_since(now))
        };
        if until_due(&kept) > BATCH_INTERVAL && !is_awake {
            shared.asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        // Records that came while their writer had nothing to do.
        for kept in kept.values_mut().filter(|kept| kept.due > now + BATCH_INTERVAL && kept.writer.has_news())
        {
            // While awake, the thread looks once per `BATCH_INTERVAL`, so these records have waited long enough for a batch.
            kept.due = if is_awake { now } else { kept.writer.wake(now) };
            awake_until = now + AWAKE_TIME;
        }
        let wait = until_due(&kept).min(if is_awake { BATCH_INTERVAL } else { Duration::MAX });
        let order = queue.recv_timeout(wait);
        shared.asleep.store(false, Ordering::Relaxed);
        match order {
            Ok(Order::Wake) => shared.busy_since.store(0, Ordering::Release),
            Ok(Order::Keep(camera, writer)) => {
                lock(&shared.statuses).insert(camera.clone(), StoreStatus::default());
                let mut writer = *writer;
                writer.set_awaited(awaited.is_for(&camera));
                kept.insert(camera, Kept { writer, due: now });
            }
            Ok(Order::Refused(camera, why)) => {
                let status = StoreStatus { degraded: Some(why), degradations: 1, ..StoreStatus::default() };
                lock(&shared.statuses).insert(camera, status);
            }
            Ok(Order::Start(camera, epoch, anchor)) => {
                if let Some(kept) = kept.get_mut(&camera) {
                    kept.writer.set_start(epoch, anchor);
                }
            }
            Ok(Order::Await(camera, frame, told)) => {
                if let Some(kept) = kept.get_mut(&camera) {
                    kept.writer.set_awaited(true);
                    kept.due = now;
                }
                awaited.add(camera, frame, told);
            }
            Ok(Order::Release(camera, done)) => {
                if let Some(mut released) = kept.remove(&camera) {
                    complete(&camera, &mut released, shared);
                }
                lock(&shared.statuses).remove(&camera);
                let _ = done.try_send(());
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        for (camera, kept) in kept.iter_mut().filter(|(_, kept)| kept.due <= monotonic_now()) {
            step(camera, kept, shared);
        }
        tell(&mut awaited, &mut kept, shared);
    }
    let deadline = monotonic_now() + STOP_TIME_MAX;
    kept.values_mut().for_each(|kept| kept.writer.close());
    while monotonic_now() < deadline && kept.values().any(|kept| !kept.writer.is_settled()) {
        for (camera, kept) in &mut kept {
            step(camera, kept, shared);
        }
        thread::sleep(Duration::from_millis(1));
    }
    tell(&mut awaited, &mut kept, shared);
}

/// Answers the publishers whose records' fate is known.
fn tell<S: Storage>(awaited: &mut Awaited, kept: &mut BTreeMap<CameraName, Kept<S>>, shared: &Shared) {
    if awaited.is_empty() {
        return;
    }
    awaited.settle(|camera, frame| verdict(camera, frame, kept, shared));
    for (camera, kept) in kept {
        kept.writer.set_awaited(awaited.is_for(camera));
    }
}

/// Whether a record reached the disk. `None` if this is not decided yet.
fn verdict<S: Storage>(
    camera: &CameraName,
    frame: FrameId,
    kept: &BTreeMap<CameraName, Kept<S>>,
    shared: &Shared,
) -> Option<Result<(), NotOnDisk>> {
    // A log that is still being opened has no writer.
    let standing = kept.get(camera).map_or(RecordStanding::Waiting, |kept| kept.writer.standing(frame));
    match standing {
        RecordStanding::Certain => Some(Ok(())),
        RecordStanding::Missing => Some(Err(NotOnDisk::Lost)),
        RecordStanding::Waiting => match lock(&shared.statuses).get(camera)?.degraded.clone()? {
            // The record may still be written in time.
            Degraded::Slow(_) => None,
            why => Some(Err(NotOnDisk::Degraded(why))),
        },
    }
}

/// Writes the remaining records of one log, within [`COMPLETE_TIME_MAX`].
fn complete<S: Storage>(camera: &CameraName, kept: &mut Kept<S>, shared: &Shared) {
    let deadline = monotonic_now() + COMPLETE_TIME_MAX;
    kept.writer.close();
    while monotonic_now() < deadline && !kept.writer.is_settled() {
        step(camera, kept, shared);
        thread::sleep(Duration::from_millis(1));
    }
}

fn step<S: Storage>(camera: &CameraName, kept: &mut Kept<S>, shared: &Shared) {
    let now = monotonic_now();
    shared.busy_since.store(now.as_nanos().max(1), Ordering::Release);
    kept.due = kept.writer.step(now, wall_now(), &mut salt);
    shared.busy_since.store(0, Ordering::Release);
    let mut statuses = lock(&shared.statuses);
    match statuses.get_mut(camera) {
        Some(status) => status.clone_from(kept.writer.status()),
        None => drop(statuses.insert(camera.clone(), kept.writer.status().clone())),
    }
}

/// New random bytes.
pub(super) fn salt() -> [u8; SALT_BYTES] {
    let mut bytes = [0; SALT_BYTES];
    // This fails only if the system has no source of random bytes. Then no certificate could have been made either.
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Locks a mutex even if another thread panicked: its data is consistent after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
