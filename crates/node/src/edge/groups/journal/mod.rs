//! Keeps the places of groups on disk, beside the logs: a journal for each group, in `@groups` of the folder of logs.
//!
//! One thread writes, so that groups do not wait for the disk. A second thread syncs, so that no change waits for a sync.
//! A killed process loses nothing that was written. A power cut may lose the changes of the last [`SYNC_INTERVAL`].

mod format;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use mez_core::group::members::{Asks, GroupKey};
use mez_core::group::{Change, Place};
use ring::digest::{SHA256, digest};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

pub(crate) use self::format::owner_text;
use crate::state::write_durably;

/// The folder of journals, in a folder of logs. No camera name contains an `@`.
const FOLDER: &str = "@groups";
const ENDING: &str = "group";
/// The length of the writer's queue. Groups wait if it is full.
const ORDERS_MAX: usize = 1024;
/// How long a group waits before it retries an order after the queue was full.
const FULL_PAUSE: Duration = Duration::from_millis(5);
/// How long a group waits for the disk to take its changes. After that the group goes on, and its place counts as not written.
const WRITE_TIME_MAX: Duration = Duration::from_millis(500);
/// The longest time between the write of a change and its sync.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);
/// The size in bytes up to which a journal is not compacted.
const REPLACED_BYTES_MIN: usize = 256 << 10;
/// A journal is compacted when it has grown by this factor since it was last compacted.
const REPLACED_TIMES: usize = 8;

enum Order {
    /// Opens a group. Answered with its place, if it has one.
    TakeUp(GroupKey, oneshot::Sender<io::Result<Option<Place>>>),
    /// A group begins to write, or its members ask for something else: replaces its journal by this place.
    Begin(GroupKey, Box<Asks>, Place, oneshot::Sender<io::Result<()>>),
    /// Appends changes.
    Write(GroupKey, Vec<Change>, oneshot::Sender<io::Result<()>>),
    Remove(GroupKey, oneshot::Sender<io::Result<()>>),
}

/// Keeps the places of groups. Cheap to clone; the threads end after the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Journals {
    orders: SyncSender<Order>,
    backlog: Arc<Backlog>,
    write_time_max: Duration,
}

/// The orders that the writer has not carried out yet.
#[derive(Default)]
struct Backlog {
    /// The number of orders that were given and not carried out.
    open: AtomicUsize,
    /// An order took longer than [`WRITE_TIME_MAX`].
    is_late: AtomicBool,
}

impl Backlog {
    /// Whether an order was late and the writer has not caught up since.
    fn is_stuck(&self) -> bool {
        self.is_late.load(Ordering::Acquire) && self.open.load(Ordering::Acquire) > 0
    }
}

impl Journals {
    /// Starts the threads for journals below the folder of logs `root`. Returns the groups that have a journal.
    pub(crate) fn start(root: &Path) -> io::Result<(Self, Vec<(GroupKey, Asks)>)> {
        let folder = root.join(FOLDER);
        let known = if folder.is_dir() { list(&folder)? } else { Vec::new() };
        let (orders, queue) = sync_channel(ORDERS_MAX);
        let unsynced = Arc::<Unsynced>::default();
        let writer = Writer { folder, open: HashMap::new(), unsynced: Arc::clone(&unsynced) };
        let backlog = Arc::<Backlog>::default();
        let of_writer = Arc::clone(&backlog);
        let (stop, stopped) = sync_channel::<()>(0);
        thread::Builder::new().name("mez groups".into()).spawn(move || {
            writer.run(&queue, &of_writer);
            drop(stop);
        })?;
        thread::Builder::new().name("mez groups sync".into()).spawn(move || {
            // Changes after the last tick are synced at the end.
            while stopped.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                unsynced.sync();
            }
            unsynced.sync();
        })?;
        Ok((Self { orders, backlog, write_time_max: WRITE_TIME_MAX }, known))
    }

    /// Reads the place of a group that begins. `None`: it has none.
    pub(super) async fn take_up(&self, key: &GroupKey) -> io::Result<Option<Place>> {
        let (answer, answered) = oneshot::channel();
        self.order(Order::TakeUp(key.clone(), answer), answered).await
    }

    /// Replaces a group's journal by this place.
    pub(super) async fn begin(&self, key: &GroupKey, asks: &Asks, place: Place) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        self.in_time(Order::Begin(key.clone(), Box::new(asks.clone()), place, answer), answered).await
    }

    /// Writes changes. Members and applications must hear of a change only after this returns.
    pub(super) async fn write(&self, key: &GroupKey, changes: Vec<Change>) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        self.in_time(Order::Write(key.clone(), changes, answer), answered).await
    }

    /// Removes a group's journal.
    pub(super) async fn remove(&self, key: &GroupKey) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        self.in_time(Order::Remove(key.clone(), answer), answered).await
    }

    /// Gives an order, and does not wait for a drive that is saturated or hangs. A late order is carried
    /// out, in order, once the drive responds. Until then further orders fail at once.
    async fn in_time(&self, order: Order, answered: oneshot::Receiver<io::Result<()>>) -> io::Result<()> {
        if self.backlog.is_stuck() {
            return Err(self.late());
        }
        self.backlog.is_late.store(false, Ordering::Release);
        let written = tokio::time::timeout(self.write_time_max, self.order(order, answered)).await;
        written.unwrap_or_else(|_| {
            self.backlog.is_late.store(true, Ordering::Release);
            Err(self.late())
        })
    }

    async fn order<T>(&self, mut order: Order, answered: oneshot::Receiver<io::Result<T>>) -> io::Result<T> {
        loop {
            self.backlog.open.fetch_add(1, Ordering::AcqRel);
            let Err(left) = self.orders.try_send(order) else { break };
            self.backlog.open.fetch_sub(1, Ordering::AcqRel);
            let TrySendError::Full(back) = left else { return Err(gone()) };
            order = back;
            tokio::time::sleep(FULL_PAUSE).await;
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn late(&self) -> io::Error {
        let milliseconds = self.write_time_max.as_millis();
        let text = format!("the disk has not written it within {milliseconds} ms; use a faster disk");
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that writes the places of groups has ended")
}

fn path(folder: &Path, key: &GroupKey) -> PathBuf {
    let text = format!("{}\n{}", owner_text(&key.owner), key.name);
    let mut name = String::new();
    for byte in &digest(&SHA256, text.as_bytes()).as_ref()[..16] {
        let _ = write!(name, "{byte:02x}");
    }
    folder.join(name).with_extension(ENDING)
}

/// The groups that have a journal. A journal that cannot be read stays in place, and its group begins anew.
fn list(folder: &Path) -> io::Result<Vec<(GroupKey, Asks)>> {
    let mut known = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        let head = first_line(&file).map(|line| format::parse_head(line.trim_end_matches('\n')));
        match head {
            Ok(Some((key, asks))) if path(folder, &key) == file => known.push((key, asks)),
            Ok(_) => warn!(
                "{} is not a journal of a group; the group loses its place and starts again",
                file.display()
            ),
            Err(error) => warn!(
                "{} cannot be read, so the group loses its place and starts again: {error}",
                file.display()
            ),
        }
    }
    Ok(known)
}

fn first_line(file: &Path) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(File::open(file)?.take(64 << 10)).read_line(&mut line)?;
    Ok(line)
}

/// Files that were written to since their last sync.
#[derive(Default)]
struct Unsynced(Mutex<Vec<(Arc<File>, Arc<AtomicBool>)>>);

impl Unsynced {
    fn add(&self, file: &Arc<File>, failed: &Arc<AtomicBool>) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.iter().all(|(known, _)| !Arc::ptr_eq(known, file)) {
            files.push((Arc::clone(file), Arc::clone(failed)));
        }
    }

    fn sync(&self) {
        let files = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (file, failed) in files {
            if let Err(error) = file.sync_data() {
                error!("the place of a group cannot be synced to disk: {error}");
                // The next change replaces the whole journal.
                failed.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// An open journal.
struct Journal {
    file: Arc<File>,
    head: String,
    /// The place that the journal gives.
    place: Place,
    bytes: usize,
    /// The size in bytes when the journal was last replaced.
    shortest: usize,
    /// A write or a sync failed: the journal must be replaced before anything else is written.
    failed: Arc<AtomicBool>,
}

struct Writer {
    folder: PathBuf,
    open: HashMap<GroupKey, Journal>,
    unsynced: Arc<Unsynced>,
}

impl Writer {
    fn run(mut self, queue: &Receiver<Order>, backlog: &Backlog) {
        while let Ok(order) = queue.recv() {
            // The asker may have gone, so results of `send` are ignored.
            match order {
                Order::TakeUp(key, answer) => drop(answer.send(self.take_up(&key))),
                Order::Begin(key, asks, place, answer) => {
                    drop(answer.send(self.replace(&key, format::head(&key, &asks), place)));
                }
                Order::Write(key, changes, answer) => drop(answer.send(self.write(&key, &changes))),
                Order::Remove(key, answer) => drop(answer.send(self.remove(&key))),
            }
            backlog.open.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn take_up(&mut self, key: &GroupKey) -> io::Result<Option<Place>> {
        let file = path(&self.folder, key);
        let content = match fs::read(&file) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let written = format::read(&content).filter(|written| written.key == *key);
        match &written {
            Some(written) if written.bytes < content.len() => {
                info!(group = %key.name, torn = content.len() - written.bytes, "the last entry of the group's place is incomplete and is ignored");
            }
            Some(_) => {}
            None => warn!(
                "{} is not the journal of its group; the group loses its place and starts again",
                file.display()
            ),
        }
        Ok(written.map(|written| written.place))
    }

    /// Replaces a journal by the shortest one that gives this place. After a power cut either the old or the new journal is there.
    fn replace(&mut self, key: &GroupKey, head: String, place: Place) -> io::Result<()> {
        self.open.remove(key);
        let mut text = head.clone();
        place.changes().iter().for_each(|change| format::put(change, &mut text));
        fs::create_dir_all(&self.folder)?;
        let file = path(&self.folder, key);
        write_durably(&self.folder, &file, text.as_bytes())?;
        let file = Arc::new(File::options().append(true).open(&file)?);
        let (bytes, failed) = (text.len(), Arc::default());
        self.open.insert(key.clone(), Journal { file, head, place, bytes, shortest: bytes, failed });
        Ok(())
    }

    fn write(&mut self, key: &GroupKey, changes: &[Change]) -> io::Result<()> {
        let Some(journal) = self.open.get_mut(key) else {
            return Err(io::Error::other("the journal is not open"));
        };
        let mut text = String::new();
        for change in changes {
            journal.place.apply(change);
            format::put(change, &mut text);
        }
        let is_long = journal.bytes > REPLACED_BYTES_MIN.max(REPLACED_TIMES * journal.shortest);
        if is_long || journal.failed.load(Ordering::Relaxed) {
            let (head, place) = (journal.head.clone(), journal.place.clone());
            return self.replace(key, head, place);
        }
        match (&*journal.file).write_all(text.as_bytes()) {
            Ok(()) => {
                journal.bytes += text.len();
                self.unsynced.add(&journal.file, &journal.failed);
                Ok(())
            }
            Err(error) => {
                // A part of a line may be in the file.
                journal.failed.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn remove(&mut self, key: &GroupKey) -> io::Result<()> {
        self.open.remove(key);
        match fs::remove_file(path(&self.folder, key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::{Epoch, FrameId, Sequence};
    use mez_core::group::{End, GroupOptions, MemberId};
    use mez_core::name::CameraName;
    use mez_core::rights::Bearer;
    use mez_core::subscription::SubscriptionSpec;

    use super::*;

    fn key(name: &str) -> GroupKey {
        GroupKey { owner: Bearer::User(1000), name: name.parse().unwrap() }
    }

    fn asks() -> Asks {
        Asks::of(&SubscriptionSpec::live("dock/*".parse().unwrap()), GroupOptions::EVERY).unwrap()
    }

    fn given(sequence: u64) -> Change {
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let frame = FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        Change::Given { camera, frame, member: MemberId(7) }
    }

    fn done(sequence: u64) -> Change {
        let Change::Given { camera, frame, member } = given(sequence) else { unreachable!() };
        Change::Settled { camera, frame, end: End::Done(member) }
    }

    fn place(changes: &[Change]) -> Place {
        let mut place = Place::new();
        changes.iter().for_each(|change| place.apply(change));
        place
    }

    /// Journals that wait as long as it takes for a slow disk.
    fn start(root: &Path) -> io::Result<(Journals, Vec<(GroupKey, Asks)>)> {
        let (journals, known) = Journals::start(root)?;
        Ok((Journals { write_time_max: Duration::from_secs(600), ..journals }, known))
    }

    #[tokio::test]
    async fn a_place_is_found_again_and_forgotten_when_told() {
        let root = tempfile::tempdir().unwrap();
        let (ours, other) = (key("detect"), key("other"));
        let changes = [given(1), given(2), done(1), given(3)];
        {
            let (journals, known) = start(root.path()).unwrap();
            assert_eq!(known, []);
            assert_eq!(journals.take_up(&ours).await.unwrap(), None);
            assert!(journals.write(&ours, vec![given(1)]).await.is_err(), "it has not begun");
            for key in [&ours, &other] {
                journals.begin(key, &asks(), Place::new()).await.unwrap();
            }
            journals.write(&ours, changes[..2].to_vec()).await.unwrap();
            journals.write(&ours, changes[2..].to_vec()).await.unwrap();
        }
        // The earlier process was killed in the middle of a line.
        let file = path(&root.path().join(FOLDER), &ours);
        File::options().append(true).open(&file).unwrap().write_all(b"settled 1 3 dock/").unwrap();
        let (journals, mut known) = start(root.path()).unwrap();
        known.sort_by_key(|(key, _)| key.name.to_string());
        assert_eq!(known, [(ours.clone(), asks()), (other.clone(), asks())]);
        let found = journals.take_up(&ours).await.unwrap();
        assert_eq!(found, Some(place(&changes)));
        journals.begin(&ours, &asks(), found.unwrap()).await.unwrap();
        journals.write(&ours, vec![done(3)]).await.unwrap();
        let changes = [given(1), given(2), done(1), given(3), done(3)];
        assert_eq!(journals.take_up(&ours).await.unwrap(), Some(place(&changes)), "the torn line is gone");
        journals.remove(&ours).await.unwrap();
        journals.remove(&ours).await.unwrap();
        assert_eq!(journals.take_up(&ours).await.unwrap(), None);
        assert_eq!(journals.take_up(&other).await.unwrap(), Some(Place::new()));
    }

    #[tokio::test]
    async fn a_long_journal_is_replaced_by_a_short_one() {
        let root = tempfile::tempdir().unwrap();
        let (journals, _) = start(root.path()).unwrap();
        journals.begin(&key("detect"), &asks(), Place::new()).await.unwrap();
        let file = path(&root.path().join(FOLDER), &key("detect"));
        let mut longest = 0;
        for batch in 0..200u64 {
            let changes = (batch * 100..(batch + 1) * 100).flat_map(|n| [given(n), done(n)]).collect();
            journals.write(&key("detect"), changes).await.unwrap();
            longest = longest.max(fs::metadata(&file).unwrap().len());
        }
        assert!(longest < 2 * REPLACED_BYTES_MIN as u64, "{longest} bytes");
        assert_eq!(
            journals.take_up(&key("detect")).await.unwrap(),
            Some(place(&[given(19_999), done(19_999)]))
        );
    }

    /// The disk refuses writes for a while: the writer gets an error, and the next change that is written brings the whole place.
    #[tokio::test]
    async fn after_a_failure_the_whole_place_is_written() {
        let root = tempfile::tempdir().unwrap();
        let (journals, _) = start(root.path()).unwrap();
        let ours = key("detect");
        journals.begin(&ours, &asks(), Place::new()).await.unwrap();
        let mut writer =
            Writer { folder: root.path().join(FOLDER), open: HashMap::new(), unsynced: Arc::default() };
        writer.replace(&ours, format::head(&ours, &asks()), Place::new()).unwrap();
        writer.write(&ours, &[given(1)]).unwrap();
        let journal = writer.open.get_mut(&ours).unwrap();
        // A file that cannot be written to.
        journal.file = Arc::new(File::open(path(&writer.folder, &ours)).unwrap());
        assert!(writer.write(&ours, &[given(2)]).is_err());
        writer.write(&ours, &[done(1)]).unwrap();
        assert_eq!(writer.take_up(&ours).unwrap(), Some(place(&[given(1), given(2), done(1)])));
    }

    /// The drive hangs: the thread is in a system call that does not return. No group waits for it, and its orders are carried out later, in order.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_drive_that_hangs_holds_up_no_group() {
        let root = tempfile::tempdir().unwrap();
        let (journals, _) = start(root.path()).unwrap();
        let (ours, other) = (key("detect"), key("other"));
        journals.begin(&ours, &asks(), Place::new()).await.unwrap();
        // A reader of a pipe waits until a writer opens it.
        let pipe = path(&root.path().join(FOLDER), &other);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reading = tokio::spawn({
            let journals = journals.clone();
            async move { journals.take_up(&other).await }
        });
        let hasty = Journals { write_time_max: WRITE_TIME_MAX, ..journals.clone() };
        while !reading.is_finished() && hasty.write(&ours, vec![given(1)]).await.is_ok() {}
        for late in [hasty.write(&ours, vec![given(2)]).await, hasty.remove(&ours).await] {
            let late = late.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
        }
        drop(File::options().write(true).open(&pipe).unwrap());
        assert_eq!(reading.await.unwrap().unwrap(), None);
        // As a group does: the whole place, once it can be written again.
        while journals.begin(&ours, &asks(), place(&[given(1), given(2)])).await.is_err() {
            tokio::time::sleep(FULL_PAUSE).await;
        }
        journals.write(&ours, vec![done(1)]).await.unwrap();
        assert_eq!(journals.take_up(&ours).await.unwrap(), Some(place(&[given(1), given(2), done(1)])));
    }
}
