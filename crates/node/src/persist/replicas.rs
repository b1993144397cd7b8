//! Keeps the replica logs of an edge on disk: recovers the existing logs at the start, and adds new ones as cameras connect.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mez_core::broker::edge::{EdgeBroker, KeptStream};
use mez_core::name::CameraName;
use mez_core::store::{Degraded, Recovery};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use tokio::sync::watch;
use tracing::{error, info};

use super::aside::{PutAsideError, put_aside};
use super::files::hold_folder;
use super::keeper::lock;
use super::layout::log_folder;
use super::{
    LogFiles, LogKeeper, LogKind, OpenLog, PersistError, PersistOptions, RECOVERY_TIME_MAX, cameras_in,
};
use crate::clock::wall_now;
use crate::derived::remembered;
use crate::notes::Notes;
use crate::state::edge_folder;

/// The most threads that read logs at the start. More would only wait for the same disk.
const READERS_MAX: usize = 4;

/// Time until opening a camera's log is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The logs on disk of an edge's cameras.
pub(crate) struct Replicas {
    options: PersistOptions,
    state: PathBuf,
    keeper: LogKeeper<LogFiles>,
    /// The notes about frames, if they are enabled.
    notes: Option<Notes>,
    kept: BTreeMap<CameraName, Dropped>,
    /// Logs that are being put aside. The value becomes true when the log has been moved.
    moving: BTreeMap<CameraName, watch::Receiver<bool>>,
}

/// Becomes true when a log that is being opened must not be written any more. Locked
/// while its writer is handed to the keeper, so that no reset comes in between.
type Dropped = Arc<Mutex<bool>>;

impl Replicas {
    /// Recovers the existing logs, passes their frames to the broker, and starts to write the logs.
    pub(crate) fn take_up(
        options: PersistOptions,
        state: PathBuf,
        broker: &mut EdgeBroker,
    ) -> Result<Self, PersistError> {
        let folder = hold_folder(&options.folder)?;
        let list = |source| PersistError::List { folder: options.folder.clone(), source };
        let cameras = cameras_in(&options.folder).map_err(list)?;
        let (options, notes) = options.split();
        let notes = notes.map(|options| Notes::start(options, state.clone(), cameras.clone()));
        let notes = notes.transpose().map_err(PersistError::Thread)?;
        let keeper = LogKeeper::start_holding(Some(folder)).map_err(PersistError::Thread)?;
        let opened = open_all(&options, &state, &cameras, broker.log_bytes_max())?;
        let mut logs = Vec::new();
        let (mut found, mut derived) = (Vec::new(), Vec::new());
        for (log, recovery) in opened {
            // If the anchor of a start is unknown, the camera is asked to begin another epoch.
            let anchor = ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO };
            let epoch = recovery.resume.newest_epoch.unwrap_or_default();
            let start = recovery.start.filter(|(newest, _)| *newest >= epoch).unwrap_or((epoch, anchor));
            // A log without readable records also counts: the camera is known, and its log continues.
            let is_known = recovery.resume.newest_epoch.is_some()
                || recovery.report.segments + recovery.report.strange_segments > 0;
            if is_known {
                let (name, records) = (log.camera.clone(), recovery.records);
                match remembered(&state, &name) {
                    Some(deriving) => derived.push(KeptStream { name, deriving, start, records }),
                    None => found.push((name, start, records)),
                }
                logs.push(log);
            }
        }
        let left_out = broker.restore(found) + broker.restore_derived(derived);
        if left_out > 0 {
            info!(frames = left_out, "frames of the logs on disk do not fit into memory; they stay on disk");
        }
        let mut kept = BTreeMap::new();
        for log in logs {
            let Some((reader, epoch, anchor)) = broker.log(&log.camera) else { continue };
            let (camera, mut writer) = log.writer(reader.cursor_at_end());
            writer.set_start(epoch, anchor);
            keeper.keep(camera.clone(), writer);
            kept.insert(camera, Dropped::default());
        }
        tokio::spawn(keeper.clone().watch(LogKind::Frames));
        Ok(Self { options, state, keeper, notes, kept, moving: BTreeMap::new() })
    }

    /// Wakes the keeper after a frame was appended to a log.
    pub(crate) fn wake(&self) {
        self.keeper.wake();
    }

    /// The keeper that writes the logs.
    pub(crate) fn keeper(&self) -> LogKeeper<LogFiles> {
        self.keeper.clone()
    }

    /// The notes about frames, if they are enabled.
    pub(crate) fn notes(&self) -> Option<Notes> {
        self.notes.clone()
    }

    /// Writes the log of a camera that has connected, from now on.
    pub(crate) fn keep(&mut self, broker: &EdgeBroker, camera: &CameraName) {
        let Some((reader, epoch, anchor)) = broker.log(camera) else { return };
        if self.kept.contains_key(camera) {
            return self.keeper.set_start(camera.clone(), epoch, anchor);
        }
        let dropped = Dropped::default();
        self.kept.insert(camera.clone(), Arc::clone(&dropped));
        let moving = self.moving.get(camera).cloned();
        // Taken before the first frame comes, since opening the files may take longer.
        let cursor = reader.cursor_at_end();
        let (options, state, keeper) = (self.options.clone(), self.state.clone(), self.keeper.clone());
        let camera = camera.clone();
        tokio::spawn(async move {
            if let Some(mut moving) = moving {
                // An error means that the sender is gone, so the wait is over as well.
                let _ = moving.wait_for(|is_over| *is_over).await;
            }
            let mut refused = false;
            // The cause of a failure may pass, such as another broker that is about to stop, or a disk that is not mounted yet.
            while !keeper.is_stopped() {
                let (options, name, state) = (options.clone(), camera.clone(), edge_folder(&state, &camera));
                let open = move || OpenLog::open(&options, &name, &state, (0, Duration::ZERO));
                let Ok(opened) = tokio::task::spawn_blocking(open).await else { return };
                {
                    let is_dropped = lock(&dropped);
                    match opened {
                        _ if *is_dropped => return,
                        Ok((log, _)) => {
                            let (camera, mut writer) = log.writer(cursor);
                            writer.set_start(epoch, anchor);
                            return keeper.keep(camera, writer);
                        }
                        Err(error) if !refused => {
                            refused = true;
                            error!(%camera, "the camera's log is not kept on disk; trying again every second: {error}");
                            keeper.refused(camera.clone(), Degraded::Denied(error.to_string()));
                        }
                        Err(_) => {}
                    }
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        });
    }
}

impl Replicas {
    /// Stops writing a camera's logs and puts them aside, so that the next logs
    /// start empty. Returns the new folder, or `None` if the camera has no log.
    pub(crate) fn put_aside(
        &mut self,
        camera: &CameraName,
    ) -> impl Future<Output = Result<Option<PathBuf>, PutAsideError>> + use<> {
        if let Some(dropped) = self.kept.remove(camera) {
            *lock(&dropped) = true;
        }
        let (over, moving) = watch::channel(false);
        self.moving.retain(|_, moving| !*moving.borrow());
        self.moving.insert(camera.clone(), moving);
        let (keeper, notes, camera) = (self.keeper.clone(), self.notes.clone(), camera.clone());
        let (root, state) = (self.options.folder.clone(), edge_folder(&self.state, &camera));
        let put = tokio::task::spawn_blocking(move || {
            let released = keeper.release(camera.clone());
            let released = notes.as_ref().is_none_or(|notes| notes.release(&camera)) && released;
            let put = match released {
                true => put_aside(&root, &camera, wall_now()),
                false => Err(PutAsideError::Busy { camera: camera.clone() }),
            };
            let forgotten = match put {
                // The disk hangs, so its files stay untouched.
                Err(PutAsideError::Busy { .. }) => Ok(()),
                _ => forget_gone(&root, &camera, &state),
            };
            // Only now: the next note opens a new log, which must not find the remembered facts of the old one.
            if let Some(notes) = notes {
                notes.resume(&camera);
            }
            put.and_then(|put| forgotten.map(|()| put))
        });
        async move {
            let put = put.await.unwrap_or(Err(PutAsideError::Stopped));
            over.send_replace(true);
            put
        }
    }
}

/// Removes the remembered facts about logs that are gone from `state`, the camera's state folder, since they do not apply to later
/// logs. A log that could not be put aside keeps its facts: without them a removal of its newest segments would go unnoticed.
fn forget_gone(root: &Path, camera: &CameraName, state: &Path) -> Result<(), PutAsideError> {
    for kind in [LogKind::Frames, LogKind::Notes] {
        if log_folder(root, camera, kind).try_exists().is_ok_and(|exists| !exists) {
            let bounds = state.join(kind.folder());
            match std::fs::remove_file(&bounds) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(PutAsideError::Io { path: bounds, source });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Opens and reads the logs of all `cameras`, several at a time. Each log gets its share of the memory and of the time.
fn open_all(
    options: &PersistOptions,
    state: &Path,
    cameras: &[CameraName],
    bytes_max: u64,
) -> Result<Vec<(OpenLog, Recovery)>, PersistError> {
    let readers = thread::available_parallelism().map_or(1, usize::from).min(READERS_MAX);
    let count = cameras.len().max(1);
    let time_max = RECOVERY_TIME_MAX * readers.min(count) as u32 / count as u32;
    let (next, opened) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..readers.min(cameras.len()) {
            scope.spawn(|| {
                while let Some(camera) = cameras.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = edge_folder(state, camera);
                    let share = (bytes_max / count as u64, time_max);
                    let log = OpenLog::open(options, camera, &folder, share);
                    lock(&opened).push(log);
                }
            });
        }
    });
    opened.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};

    use super::*;

    /// Another program has the logs open. The logs and their remembered facts stay: without
    /// the facts, the next start could not tell whether somebody removed the newest segments.
    #[tokio::test]
    async fn what_is_remembered_of_a_log_goes_with_the_log_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyRing::new(vec![MasterKey::new([1; KEY_BYTES])]).unwrap();
        let options = PersistOptions::new(folder.path().join("store"), keys);
        let (camera, state) = ("dock/cam1".parse::<CameraName>().unwrap(), folder.path().join("state"));
        let bounds =
            [LogKind::Frames, LogKind::Notes].map(|kind| edge_folder(&state, &camera).join(kind.folder()));
        let mut replicas = Replicas {
            options: options.clone(),
            state: state.clone(),
            keeper: LogKeeper::start().unwrap(),
            notes: Some(Notes::start(options.clone(), state, Vec::new()).unwrap()),
            kept: BTreeMap::new(),
            moving: BTreeMap::new(),
        };
        std::fs::create_dir_all(bounds[0].parent().unwrap()).unwrap();
        for file in &bounds {
            std::fs::write(file, b"").unwrap();
        }
        let open = |kind| LogFiles::open_kind(&options.folder, &camera, kind, folder.path().join("other"));
        let held = [LogKind::Frames, LogKind::Notes].map(|kind| open(kind).unwrap());
        let busy = replicas.put_aside(&camera).await.unwrap_err();
        assert!(matches!(busy, PutAsideError::Held(_)), "{busy}");
        assert!(bounds.iter().all(|file| file.exists()));

        drop(held);
        assert!(replicas.put_aside(&camera).await.unwrap().is_some());
        assert!(!bounds.iter().any(|file| file.exists()));
    }
}
