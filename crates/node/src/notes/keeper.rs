//! Queues notes and writes them to disk.
//!
//! Making a note never blocks: a bounded queue leads to a thread of its own. This thread numbers the notes and
//! appends them to one small log in memory for each camera. A [`LogKeeper`] writes these logs to disk. Notes
//! that do not fit into the queue are dropped and counted, and the next note of the camera carries the count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mez_core::frame::{Epoch, FrameId, Sequence, SkipRange, SkipReason};
use mez_core::log::{AppendError, LogConfig, LogWriter, log};
use mez_core::name::CameraName;
use mez_core::store::{StorageError, StoreStatus};
use mez_core::units::{Instant, Timestamp};
use tokio::sync::Semaphore;
use tracing::{error, warn};

use super::{Note, NoteContent, NoteId, NoteReader};
use crate::clock::{anchor, monotonic_now, wall_now};
use crate::persist::keeper::lock;
use crate::persist::{LogFiles, LogKeeper, LogKind, OpenLog, PersistOptions, has_log};
use crate::state::edge_folder;

/// Capacity of the queue to the thread, in notes. A reply has at most 64 KiB.
const WAITING_MAX: usize = 512;
/// Memory for the notes of one camera that are not on disk yet. The oldest notes are evicted and counted.
const MEMORY_BYTES_MAX: u64 = 1 << 20;
/// Time until the thread tries again to open a camera's log.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The least time between two warnings that notes are lost.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time that a stopping broker, or a reset, waits for the thread.
const STOP_TIME_MAX: Duration = Duration::from_secs(4);
/// The most reads of notes from disk at the same time.
const READS_MAX: usize = 4;
/// The most notes on a page of [`Notes::read`].
const PAGE_NOTES_MAX: usize = 1_000;
/// The most bytes on a page. Only its last note may exceed them.
const PAGE_BYTES_MAX: usize = 512 << 10;

/// Why notes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadNotesError {
    /// The log of notes could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The broker stopped.
    #[error("the broker stopped while notes were read; ask again")]
    Stopped,
}

enum Order {
    /// A note of a camera, its time and content, and the number of the camera's notes that were dropped just before it because the queue was full.
    Note(CameraName, Timestamp, NoteContent, u64),
    /// Stop writing the notes of a camera. The answer is true when the files are closed, and false if the disk takes too long.
    Release(CameraName, SyncSender<bool>),
    Stop,
}

/// The notes of an edge. Cheap to clone.
#[derive(Clone)]
pub struct Notes {
    orders: SyncSender<Order>,
    shared: Arc<Shared>,
}

struct Shared {
    options: PersistOptions,
    state: PathBuf,
    /// Notes that were dropped because the queue was full, and that no note has reported yet.
    dropped: Mutex<BTreeMap<CameraName, u64>>,
    /// Cameras whose notes are being put aside. Notes of these cameras are discarded.
    moving: Mutex<BTreeSet<CameraName>>,
    keeper: LogKeeper<LogFiles>,
    thread: Mutex<Option<JoinHandle<()>>>,
    reads: Arc<Semaphore>,
}

impl Notes {
    /// Starts the thread. `options` contain the limit of notes on disk, `state` is the edge's state folder. The existing logs of
    /// `cameras` are opened at once, so that their old notes expire even if no new note comes. Must be called on a tokio runtime.
    pub(crate) fn start(
        options: PersistOptions,
        state: PathBuf,
        cameras: Vec<CameraName>,
    ) -> std::io::Result<Self> {
        let (notes, queue) = Self::queued(options, state, WAITING_MAX)?;
        tokio::spawn(notes.shared.keeper.clone().watch(LogKind::Notes));
        // The thread ends when the last sender is dropped, so it must not hold a sender itself.
        let shared = Arc::clone(&notes.shared);
        let run = move || {
            let mut keeper = Keeper { shared, kept: BTreeMap::new(), warned: None };
            keeper.open_existing(&cameras);
            keeper.run(&queue);
        };
        let thread = thread::Builder::new().name("mez-notes".into()).spawn(run)?;
        *lock(&notes.shared.thread) = Some(thread);
        Ok(notes)
    }

    /// Notes without a thread, and the queue for the thread.
    fn queued(
        options: PersistOptions,
        state: PathBuf,
        waiting_max: usize,
    ) -> std::io::Result<(Self, Receiver<Order>)> {
        let keeper = LogKeeper::start()?;
        let (orders, queue) = sync_channel(waiting_max);
        let reads = Arc::new(Semaphore::new(READS_MAX));
        let shared = Arc::new(Shared {
            options,
            state,
            dropped: Mutex::default(),
            moving: Mutex::default(),
            keeper,
            thread: Mutex::default(),
            reads,
        });
        Ok((Self { orders, shared }, queue))
    }

    /// Notes `content` about a camera, with the current time. Never blocks.
    pub fn note(&self, camera: &CameraName, content: NoteContent) {
        // Held over `try_send`, so that the count and the queue agree.
        let mut dropped = lock(&self.shared.dropped);
        let missing = dropped.remove(camera).unwrap_or_default();
        let order = Order::Note(camera.clone(), wall_now(), content, missing);
        if let Err(TrySendError::Full(_)) = self.orders.try_send(order) {
            dropped.insert(camera.clone(), missing + 1);
        }
    }

    /// The state of a camera's log of notes on disk. `None` if the camera has no such log yet.
    pub fn status(&self, camera: &CameraName) -> Option<StoreStatus> {
        self.shared.keeper.status(camera)
    }

    /// Up to a page of the notes of a camera that were made within `begin..=end` and follow `after`,
    /// oldest first; and whether there may be more. A note can be read about 0.2 s after it was made.
    pub async fn read(
        &self,
        camera: &CameraName,
        begin: Timestamp,
        end: Timestamp,
        after: Option<NoteId>,
    ) -> Result<(Vec<Note>, bool), ReadNotesError> {
        let Shared { options, state, reads, .. } = &*self.shared;
        let remembered = edge_folder(state, camera).join(LogKind::Notes.folder());
        let span = (begin, end, after);
        let mut reader = NoteReader::open(&options.folder, camera, &options.keys, Some(remembered), span);
        // The semaphore is never closed.
        let permit = Arc::clone(reads).acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let (mut notes, mut bytes) = (Vec::new(), 0);
            while notes.len() < PAGE_NOTES_MAX && bytes < PAGE_BYTES_MAX {
                let Some(note) = reader.read()? else {
                    return Ok((notes, false));
                };
                bytes += note.encoded_bytes();
                notes.push(note);
            }
            drop(permit);
            Ok((notes, true))
        });
        read.await.unwrap_or(Err(ReadNotesError::Stopped))
    }

    /// Writes the remaining notes of a camera and closes their files. Discards new notes until
    /// [`Notes::resume`]. Blocks until the files are closed. Returns false if the disk takes too long.
    pub(crate) fn release(&self, camera: &CameraName) -> bool {
        lock(&self.shared.moving).insert(camera.clone());
        let (done, released) = sync_channel(1);
        let deadline = monotonic_now() + STOP_TIME_MAX;
        let ordered = self.order(Order::Release(camera.clone(), done), deadline);
        match ordered.and_then(|()| released.recv_timeout(deadline.saturating_since(monotonic_now()))) {
            Ok(is_released) => is_released,
            // The answer is dropped unsent only if the thread has ended.
            Err(error) => error == RecvTimeoutError::Disconnected,
        }
    }

    /// Accepts notes of a camera again, after [`Notes::release`].
    pub(crate) fn resume(&self, camera: &CameraName) {
        lock(&self.shared.moving).remove(camera);
    }

    /// Writes the remaining notes and ends the thread. Blocks for at most 4 s.
    pub(crate) fn stop(&self) {
        let Some(thread) = lock(&self.shared.thread).take() else { return };
        let deadline = monotonic_now() + STOP_TIME_MAX;
        let _ = self.order(Order::Stop, deadline);
        // A thread that hangs in a system call ends with the process.
        while !thread.is_finished() && monotonic_now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends an order, and waits for room in the queue until `deadline`, because the thread may hang in a system call.
    fn order(&self, mut order: Order, deadline: Instant) -> Result<(), RecvTimeoutError> {
        loop {
            order = match self.orders.try_send(order) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(RecvTimeoutError::Disconnected),
                Err(TrySendError::Full(_)) if monotonic_now() >= deadline => {
                    return Err(RecvTimeoutError::Timeout);
                }
                Err(TrySendError::Full(order)) => order,
            };
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The state of the thread.
struct Keeper {
    shared: Arc<Shared>,
    kept: BTreeMap<CameraName, Kept>,
    warned: Option<Instant>,
}

enum Kept {
    Open(Box<Series>),
    /// The log could not be opened: when to try again, and how many notes were lost since.
    Refused(Instant, u64),
}

/// The notes of a camera since the start of the edge.
struct Series {
    log: LogWriter,
    /// The ID of the next note.
    next: NoteId,
    last: Timestamp,
    /// How many notes are missing before the next note.
    missing: u64,
}

impl Keeper {
    fn run(mut self, queue: &Receiver<Order>) {
        while let Ok(order) = queue.recv() {
            match order {
                Order::Note(camera, at, content, missing) => self.take(camera, at, &content, missing),
                Order::Release(camera, done) => {
                    self.kept.remove(&camera);
                    // Also without an open series: an earlier attempt may have timed out with the files still open.
                    let _ = done.try_send(self.shared.keeper.release(camera));
                }
                Order::Stop => break,
            }
        }
        self.shared.keeper.stop();
    }

    /// Opens the existing logs of these cameras.
    fn open_existing(&mut self, cameras: &[CameraName]) {
        for camera in cameras {
            if has_log(&self.shared.options.folder, camera, LogKind::Notes)
                && self.series(camera).is_none()
                && let Some(Kept::Refused(_, count)) = self.kept.get_mut(camera)
            {
                // No note was lost.
                *count = 0;
            }
        }
    }

    fn take(&mut self, camera: CameraName, at: Timestamp, content: &NoteContent, dropped: u64) {
        if lock(&self.shared.moving).contains(&camera) {
            return;
        }
        if dropped > 0 {
            self.warn(&camera, dropped);
        }
        let Some((series, refused)) = self.series(&camera) else {
            if let Some(Kept::Refused(_, count)) = self.kept.get_mut(&camera) {
                *count += dropped;
            }
            return;
        };
        let appended = series.append(at, content, dropped + refused);
        self.shared.keeper.wake();
        if let Err(error) = appended
            && self.may_tell()
        {
            error!(%camera, "replies, contract changes or source changes were not recorded: {error}");
        }
    }

    /// The series of a camera, and how many notes were lost before it could be opened.
    fn series(&mut self, camera: &CameraName) -> Option<(&mut Series, u64)> {
        let now = monotonic_now();
        let mut refused = 0;
        match self.kept.get_mut(camera) {
            Some(Kept::Refused(again, count)) if now < *again => {
                *count += 1;
                return None;
            }
            Some(Kept::Refused(_, count)) => refused = *count,
            _ => {}
        }
        if !matches!(self.kept.get(camera), Some(Kept::Open(_))) {
            let kept = match Series::open(&self.shared, camera) {
                Ok(series) => Kept::Open(Box::new(series)),
                Err(error) => {
                    if refused == 0 {
                        error!(%camera, "replies, contract changes and source changes are not recorded; trying again every second: {error}");
                    }
                    Kept::Refused(now + RETRY_INTERVAL, refused + 1)
                }
            };
            self.kept.insert(camera.clone(), kept);
        }
        match self.kept.get_mut(camera) {
            Some(Kept::Open(series)) => Some((series, refused)),
            _ => None,
        }
    }

    fn warn(&mut self, camera: &CameraName, dropped: u64) {
        if self.may_tell() {
            warn!(%camera, dropped, "replies, contract changes or source changes were not recorded: too many came at once");
        }
    }

    /// Whether a warning about lost notes may be logged again.
    fn may_tell(&mut self) -> bool {
        let now = monotonic_now();
        let is_time = self.warned.is_none_or(|warned| now.saturating_since(warned) >= WARN_INTERVAL);
        if is_time {
            self.warned = Some(now);
        }
        is_time
    }
}

impl Series {
    fn open(shared: &Shared, camera: &CameraName) -> Result<Self, crate::persist::PersistError> {
        let folder = edge_folder(&shared.state, camera);
        let of = (camera, LogKind::Notes);
        let (opened, recovery) = OpenLog::open_kind(&shared.options, of, &folder, (0, Duration::ZERO))?;
        let epoch = recovery.resume.newest_epoch.map_or(Epoch(1), |newest| Epoch(newest.0 + 1));
        let (log, reader) = log(LogConfig::with_bytes_max(MEMORY_BYTES_MAX));
        let (camera, mut writer) = opened.writer(reader.cursor_at_end());
        writer.set_start(epoch, anchor());
        shared.keeper.keep(camera, writer);
        Ok(Self { log, next: FrameId { epoch, sequence: Sequence(0) }, last: Timestamp::MIN, missing: 0 })
    }

    /// Appends a note after `missing` lost notes. If this fails, the note counts as missing before the next one.
    fn append(&mut self, at: Timestamp, content: &NoteContent, missing: u64) -> Result<(), AppendError> {
        let missing = self.missing + missing;
        let first = self.next.sequence;
        let number = Sequence(first.0 + missing);
        let lost = SkipRange { first, count: missing, reason: SkipReason::EdgeBusy };
        let skipped: Arc<[SkipRange]> = if missing > 0 { [lost].into() } else { [].into() };
        // Times strictly increase, like the capture times of frames.
        let at = at.max(self.last + Duration::from_nanos(1));
        let record = content.to_record(FrameId { sequence: number, ..self.next }, at);
        if let Err(error) = self.log.append(record, skipped, monotonic_now()) {
            self.missing = missing + 1;
            return Err(error);
        }
        self.last = at;
        self.next.sequence = Sequence(number.0 + 1);
        self.missing = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use mez_core::contract::ContractState;
    use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};

    use super::*;
    use crate::notes::{NotedContract, NotedReply};
    use crate::reply::ReplyContent;

    fn options(folder: &Path) -> PersistOptions {
        let keys = KeyRing::new(vec![MasterKey::new([1; KEY_BYTES])]).unwrap();
        PersistOptions::new(folder.join("store"), keys)
    }

    fn reply(number: u64) -> NoteContent {
        NoteContent::Reply(NotedReply {
            frame: FrameId { epoch: Epoch(1), sequence: Sequence(number) },
            captured: None,
            application: "counter".into(),
            content: ReplyContent::Opaque(Bytes::from_static(b"seen")),
        })
    }

    fn numbers(notes: &[Note]) -> Vec<(u64, u64)> {
        let number = |note: &Note| match &note.content {
            NoteContent::Reply(reply) => (reply.frame.sequence.0, note.missing),
            NoteContent::Contract(_) | NoteContent::Source(_) => (u64::MAX, note.missing),
        };
        notes.iter().map(number).collect()
    }

    /// The thread is busy, for example with a hanging disk. Making a note does not block, and the next note reports the dropped ones.
    #[tokio::test]
    async fn what_does_not_fit_into_the_queue_is_counted_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let (notes, queue) = Notes::queued(options.clone(), folder.path().join("state"), 3).unwrap();
        (0..8).for_each(|number| notes.note(&camera, reply(number)));
        let shared = Arc::clone(&notes.shared);
        let run = move || Keeper { shared, kept: BTreeMap::new(), warned: None }.run(&queue);
        let thread = thread::spawn(run);
        // This is answered once the queue is empty.
        assert!(notes.release(&"another".parse().unwrap()));
        notes.note(&camera, reply(8));
        notes.orders.send(Order::Stop).unwrap();
        thread.join().unwrap();
        let read = notes.read(&camera, Timestamp::MIN, Timestamp::MAX, None).await.unwrap();
        assert_eq!((numbers(&read.0), read.1), (vec![(0, 0), (1, 0), (2, 0), (8, 5)], false));

        // After a restart, the log continues, and no note is missing.
        let notes = Notes::start(options, folder.path().join("state"), vec![camera.clone()]).unwrap();
        notes.note(&camera, reply(9));
        let stopping = notes.clone();
        tokio::task::spawn_blocking(move || stopping.stop()).await.unwrap();
        let read = notes.read(&camera, Timestamp::MIN, Timestamp::MAX, Some(read.0[3].id)).await.unwrap();
        assert_eq!((numbers(&read.0), read.0[0].id.epoch), (vec![(9, 0)], Epoch(2)));
    }

    /// The disk is slow, and notes that are being written fill the memory. Notes without room are reported by the next one.
    #[test]
    fn notes_that_find_no_room_in_memory_are_counted_and_told() {
        let (log, reader) = log(LogConfig::with_bytes_max(20_000));
        let next = FrameId { epoch: Epoch(1), sequence: Sequence(0) };
        let mut series = Series { log, next, last: Timestamp::MIN, missing: 0 };
        let content = NoteContent::Contract(NotedContract {
            application: "counter".into(),
            state: ContractState::LatencyMiss,
            reason: "x".repeat(1_000),
        });
        let at = Timestamp::from_nanos(1);
        let mut held = Vec::new();
        while series.append(at, &content, 0).is_ok() {
            held.push(reader.newest().unwrap());
        }
        let first = Sequence(held.len() as u64);
        assert!(series.append(at, &content, 4).is_err());
        drop(held);
        series.append(at, &content, 2).unwrap();
        let lost = SkipRange { first, count: 1 + 5 + 2, reason: SkipReason::EdgeBusy };
        let record = reader.newest().unwrap();
        assert_eq!((&*record.skipped, record.frame.meta.id.sequence), (&[lost][..], Sequence(first.0 + 8)));
        // They are reported once.
        series.append(at, &content, 0).unwrap();
        assert!(reader.newest().unwrap().skipped.is_empty());
    }

    /// A release reports that the disk takes too long. If the thread has ended, no file is open any more.
    #[tokio::test]
    async fn a_release_is_over_only_when_the_files_are_closed() {
        let folder = tempfile::tempdir().unwrap();
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let (notes, queue) = Notes::queued(options(folder.path()), folder.path().join("state"), 1).unwrap();
        for is_closed in [false, true] {
            let release = {
                let (notes, camera) = (notes.clone(), camera.clone());
                thread::spawn(move || notes.release(&camera))
            };
            let Order::Release(_, done) = queue.recv().unwrap() else { panic!("nothing else was asked for") };
            done.send(is_closed).unwrap();
            assert_eq!(release.join().unwrap(), is_closed);
        }
        drop(queue);
        assert!(notes.release(&camera));
    }

    /// If the disk hangs and the queue is full, a release returns false in time.
    #[tokio::test]
    async fn a_release_does_not_wait_for_a_disk_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let (notes, _queue) = Notes::queued(options(folder.path()), folder.path().join("state"), 1).unwrap();
        notes.note(&camera, reply(0));
        let (told, answer) = sync_channel(1);
        thread::spawn(move || told.send(notes.release(&camera)));
        // With a time limit, since a release that hangs would block the test forever.
        assert_eq!(answer.recv_timeout(STOP_TIME_MAX * 5), Ok(false));
    }

    /// Old notes expire even if no new note follows after a start.
    #[tokio::test]
    async fn old_notes_go_also_where_nothing_more_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let (options, state) = (options(folder.path()), folder.path().join("state"));
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let stop = async |notes: &Notes| {
            let notes = notes.clone();
            tokio::task::spawn_blocking(move || notes.stop()).await.unwrap();
        };
        let notes = Notes::start(options.clone(), state.clone(), Vec::new()).unwrap();
        notes.note(&camera, reply(0));
        stop(&notes).await;
        let (read, _) = notes.read(&camera, Timestamp::MIN, Timestamp::MAX, None).await.unwrap();
        assert_eq!(numbers(&read), [(0, 0)]);

        let options = PersistOptions { disk_age_max: Some(Duration::from_millis(1)), ..options };
        let cameras = vec![camera.clone(), "never/noted".parse().unwrap()];
        let notes = Notes::start(options.clone(), state, cameras).unwrap();
        let gone = async {
            while !notes.read(&camera, Timestamp::MIN, Timestamp::MAX, None).await.unwrap().0.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the note is still there");
        stop(&notes).await;
        assert!(!options.folder.join("never").exists(), "no log is begun");
    }

    /// If a log cannot be opened at the start, no note is lost, so the next note reports none.
    #[tokio::test]
    async fn a_log_that_is_refused_at_the_start_lacks_no_note() {
        let folder = tempfile::tempdir().unwrap();
        let (options, state) = (options(folder.path()), folder.path().join("state"));
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let held = LogFiles::open_kind(&options.folder, &camera, LogKind::Notes, state.join("other"));
        let (notes, _queue) = Notes::queued(options, state, 1).unwrap();
        let mut keeper = Keeper { shared: notes.shared, kept: BTreeMap::new(), warned: None };
        keeper.open_existing(std::slice::from_ref(&camera));
        assert!(matches!(keeper.kept.get(&camera), Some(Kept::Refused(_, 0))));
        drop(held.unwrap());
        let Some(Kept::Refused(again, _)) = keeper.kept.get_mut(&camera) else { unreachable!() };
        *again = Instant::ZERO;
        assert!(matches!(keeper.series(&camera), Some((_, 0))));
    }

    /// While the notes of a camera are put aside, new notes are discarded. Afterwards they go to a new log.
    #[tokio::test]
    async fn a_reset_camera_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let notes = Notes::start(options.clone(), folder.path().join("state"), Vec::new()).unwrap();
        notes.note(&camera, reply(0));
        let release = async |camera: &str| {
            let (of, camera) = (notes.clone(), camera.parse().unwrap());
            tokio::task::spawn_blocking(move || of.release(&camera)).await.unwrap()
        };
        // This is answered once the note before it is appended.
        assert!(release("another").await && release("dock/cam1").await);
        let lost = options.folder.join("dock/cam1/@notes");
        std::fs::rename(&lost, options.folder.join("aside")).unwrap();
        std::fs::remove_file(edge_folder(&notes.shared.state, &camera).join("@notes")).unwrap();
        notes.note(&camera, reply(1));
        assert!(release("dock/cam1").await);
        assert!(!lost.exists());
        notes.resume(&camera);
        notes.note(&camera, reply(2));
        let stopping = notes.clone();
        tokio::task::spawn_blocking(move || stopping.stop()).await.unwrap();
        let (read, _) = notes.read(&camera, Timestamp::MIN, Timestamp::MAX, None).await.unwrap();
        assert_eq!(numbers(&read), [(2, 0)]);
    }
}
