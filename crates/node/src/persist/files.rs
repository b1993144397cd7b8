//! Keeps a camera's log as files: one folder per log, one file per segment, a single writing program.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use mez_core::name::{CameraName, SEGMENTS_MAX};
use mez_core::store::{Bounds, Progress, SegmentNumber, Storage, StorageError, StorageErrorKind};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;

use super::layout::{EDGE_LOCK, LogKind, log_folder};
use super::remembered::{self, ProgressFile, Remembered};
use crate::lock::FileLock;

/// The file extension of segments.
const EXTENSION: &str = "segment";

/// Why a camera's log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLogError {
    /// Another program writes this log.
    #[error("another broker keeps its log in {} (it holds {}/lock); stop that broker, or give another --store", .0.display(), .0.display())]
    Held(PathBuf),
    /// Another edge uses the store folder.
    #[error("another edge keeps its logs in {} (it holds {}); stop that edge, or give another --store", folder.display(), lock.display())]
    HeldByEdge {
        /// The store folder.
        folder: PathBuf,
        /// The lock that the other edge holds.
        lock: PathBuf,
    },
    /// Other users may write in a folder of the log, and so replace or remove segments.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// A file or folder cannot be read or written.
    #[error("cannot use {}: {source}; give a writable folder with --store", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A folder of the store that other users may write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("others may change {} (mode {mode:03o}) and so remove frames from its logs; run `chmod go-w {}`", .folder.display(), .folder.display())]
pub struct Exposed {
    /// The folder.
    pub folder: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

/// The folders of a camera's log that other users may write: the store folder itself, and all folders from there down to the segments.
pub fn exposed(root: &Path, camera: &CameraName, kind: LogKind) -> Vec<Exposed> {
    let mut folders = vec![root.to_owned()];
    for segment in Path::new(camera.as_str()).iter().chain([kind.folder().as_ref()]) {
        folders.push(folders[folders.len() - 1].join(segment));
    }
    folders.iter().filter_map(|folder| exposed_folder(folder)).collect()
}

fn exposed_folder(folder: &Path) -> Option<Exposed> {
    let mode = fs::metadata(folder).ok()?.permissions().mode() & 0o777;
    (mode & 0o022 != 0).then(|| Exposed { folder: folder.into(), mode })
}

/// The segment files of one log.
pub struct LogFiles {
    folder: PathBuf,
    /// The file outside of the log that lists its segments.
    bounds: Option<PathBuf>,
    /// The file beside `bounds` that says how far the writer has written.
    progress: Option<ProgressFile>,
    /// The newest segment, and whether its directory entry is durable.
    writing: Option<(SegmentNumber, File, bool)>,
    /// The segment that was read last.
    reading: Option<(SegmentNumber, File)>,
    syncer: Option<Syncer>,
    _lock: Option<FileLock>,
}

impl LogFiles {
    /// Opens the log of a camera's frames for writing, and creates it if needed. `bounds` is a file outside of the log.
    pub fn open(root: &Path, camera: &CameraName, bounds: PathBuf) -> Result<Self, OpenLogError> {
        Self::open_kind(root, camera, LogKind::Frames, bounds)
    }

    /// Opens a log of any kind for writing, and creates it if needed. `bounds` is a file outside of the log.
    pub fn open_kind(
        root: &Path,
        camera: &CameraName,
        kind: LogKind,
        bounds: PathBuf,
    ) -> Result<Self, OpenLogError> {
        let folder = log_folder(root, camera, kind);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenLogError::Io { path, source }
        };
        DirBuilder::new().mode(0o700).recursive(true).create(&folder).map_err(io(&folder))?;
        if let Some(exposed) = exposed(root, camera, kind).pop() {
            return Err(exposed.into());
        }
        let path = folder.join("lock");
        let Some(lock) = FileLock::take(&path).map_err(io(&path))? else {
            return Err(OpenLogError::Held(folder));
        };
        if let Some(folder) = bounds.parent() {
            fs::create_dir_all(folder).map_err(io(folder))?;
        }
        Ok(Self {
            folder,
            progress: Some(ProgressFile::beside(&bounds)),
            bounds: Some(bounds),
            writing: None,
            reading: None,
            syncer: None,
            _lock: Some(lock),
        })
    }

    /// Opens the log of a camera's frames for reading. A broker may be writing to it. The files in the state folder are not used.
    pub fn read_only(root: &Path, camera: &CameraName) -> Self {
        Self::reader_of(root, camera, LogKind::Frames, None)
    }

    /// Opens any log of a camera for reading. A broker may be writing to it. `bounds` is
    /// the file in which the broker lists its segments. Expired segments are not read.
    pub fn reader_of(root: &Path, camera: &CameraName, kind: LogKind, bounds: Option<PathBuf>) -> Self {
        let folder = log_folder(root, camera, kind);
        let progress = bounds.as_deref().map(ProgressFile::beside);
        Self { folder, bounds, progress, writing: None, reading: None, syncer: None, _lock: None }
    }

    /// Creates the folder for a copy of a camera's log, without any file in the state folder. The log must not exist yet.
    pub fn create_copy(root: &Path, camera: &CameraName, kind: LogKind) -> Result<Self, OpenLogError> {
        let folder = log_folder(root, camera, kind);
        let io = |source| OpenLogError::Io { path: folder.clone(), source };
        if let Some(parent) = folder.parent() {
            DirBuilder::new().mode(0o700).recursive(true).create(parent).map_err(io)?;
        }
        DirBuilder::new().mode(0o700).create(&folder).map_err(io)?;
        Ok(Self::reader_of(root, camera, kind, None))
    }

    /// Syncs all segments to disk, which takes a while.
    pub fn sync_all(&mut self) -> Result<(), StorageError> {
        for (segment, _) in self.list()? {
            let synced = open_file(&self.path(segment)).and_then(|file| file.sync_all());
            synced.map_err(|source| self.error(segment, "sync", source))?;
        }
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| storage_error("sync", &self.folder, &source))
    }

    /// Opens the log of a camera's frames for reading, like [`LogFiles::reader_of`].
    pub fn reader(root: &Path, camera: &CameraName, bounds: PathBuf) -> Self {
        Self::reader_of(root, camera, LogKind::Frames, Some(bounds))
    }

    /// Whether this log exists.
    pub fn exist(&self) -> bool {
        self.folder.is_dir()
    }

    /// Whether a program is writing this log.
    pub fn is_held(&self) -> bool {
        FileLock::is_held(&self.folder.join("lock"))
    }

    /// The folder of the segments.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, segment: SegmentNumber) -> PathBuf {
        self.folder.join(format!("{segment}.{EXTENSION}"))
    }

    fn begin_sync(&mut self, segment: SegmentNumber) -> io::Result<()> {
        let (file, folder) = match &self.writing {
            Some((number, file, true)) if *number == segment => (file.try_clone()?, None),
            Some((number, file, false)) if *number == segment => {
                (file.try_clone()?, Some(File::open(&self.folder)?))
            }
            _ => (open_file(&self.path(segment))?, Some(File::open(&self.folder)?)),
        };
        let syncer = match self.syncer.take() {
            Some(syncer) => syncer,
            None => Syncer::start()?,
        };
        let queued = syncer.jobs.try_send((file, folder));
        self.syncer = Some(syncer);
        queued.map_err(|_| io::Error::other("a sync is already in progress"))
    }

    fn error(&self, segment: SegmentNumber, action: &str, source: io::Error) -> StorageError {
        storage_error(action, &self.path(segment), &source)
    }
}

/// Locks a store folder for an edge, and creates it if needed. So an edge learns at its start, before a camera comes, whether it can write there.
pub(crate) fn hold_folder(root: &Path) -> Result<FileLock, OpenLogError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenLogError::Io { path, source }
    };
    DirBuilder::new().mode(0o700).recursive(true).create(root).map_err(io(root))?;
    if let Some(exposed) = exposed_folder(root) {
        return Err(exposed.into());
    }
    let path = root.join(EDGE_LOCK);
    let lock = FileLock::take(&path).map_err(io(&path))?;
    lock.ok_or_else(|| OpenLogError::HeldByEdge { folder: root.into(), lock: path })
}

/// The names of the cameras that have a log in the store folder, sorted.
pub fn cameras_in(root: &Path) -> io::Result<Vec<CameraName>> {
    let mut found = Vec::new();
    find_cameras(root, "", SEGMENTS_MAX, &mut found)?;
    found.sort();
    Ok(found)
}

fn find_cameras(folder: &Path, name: &str, depth: usize, found: &mut Vec<CameraName>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some(segment) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if segment == LogKind::Frames.folder() {
            found.extend(name.parse::<CameraName>().ok());
        } else if depth > 0 {
            let name = if name.is_empty() { segment } else { format!("{name}/{segment}") };
            find_cameras(&entry.path(), &name, depth - 1, found)?;
        }
    }
    Ok(())
}

/// Opens a segment for reading. Anything but a regular file is refused at once: a pipe, for example, would block until somebody writes to it.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::NXIO.into()) }
}

fn storage_error(action: &str, path: &Path, source: &io::Error) -> StorageError {
    let kind = match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => StorageErrorKind::Full,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => StorageErrorKind::Denied,
        Some(Errno::NOENT) => StorageErrorKind::Missing,
        // Not a regular file, a link, or a socket: see `open_file`.
        Some(Errno::NXIO | Errno::LOOP) => StorageErrorKind::NotAFile,
        _ => StorageErrorKind::Io,
    };
    StorageError { kind, text: format!("cannot {action} {}: {source}", path.display()) }
}

impl Storage for LogFiles {
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError> {
        let failed = |source: io::Error| storage_error("list", &self.folder, &source);
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.strip_suffix('.'));
            let number = number.filter(|digits| digits.len() == 16);
            if let Some(number) = number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
                segments.push((SegmentNumber(number), entry.metadata().map_err(failed)?.len()));
            }
        }
        Ok(segments)
    }

    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        let path = self.path(segment);
        let file = File::options().create_new(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|source| self.error(segment, "make", source))?;
        self.writing = Some((segment, file, false));
        Ok(())
    }

    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError> {
        let written = match &mut self.writing {
            Some((number, file, _)) if *number == segment => file.write_all(bytes),
            _ => Err(io::Error::other("it is not the newest segment")),
        };
        written.map_err(|source| self.error(segment, "write", source))
    }

    fn start_sync(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.begin_sync(segment).map_err(|source| self.error(segment, "sync", source))?;
        if let Some((_, _, named)) = self.writing.as_mut().filter(|(number, ..)| *number == segment) {
            *named = true;
        }
        Ok(())
    }

    fn finish_sync(&mut self) -> Option<Result<(), StorageError>> {
        let done = match self.syncer.as_ref()?.done.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(done) => done,
            Err(TryRecvError::Disconnected) => {
                self.syncer = None;
                Err(io::Error::other("the thread that syncs has ended"))
            }
        };
        Some(done.map_err(|source| storage_error("sync a segment in", &self.folder, &source)))
    }

    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError> {
        if self.reading.as_ref().is_none_or(|(number, _)| *number != segment) {
            let file = open_file(&self.path(segment));
            self.reading = Some((segment, file.map_err(|source| self.error(segment, "read", source))?));
        }
        let Some((_, file)) = &self.reading else { return Ok(0) };
        let mut read = 0;
        while read < buffer.len() {
            match file.read_at(&mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.error(segment, "read", source)),
            }
        }
        Ok(read)
    }

    fn prefetch(&mut self, segment: SegmentNumber) {
        // Only a hint, so errors are ignored: a later read reports them.
        if let Ok(file) = open_file(&self.path(segment)) {
            let _ = fadvise(&file, 0, None, Advice::WillNeed);
        }
    }

    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.writing.take_if(|(number, ..)| *number == segment);
        self.reading.take_if(|(number, _)| *number == segment);
        fs::remove_file(self.path(segment)).map_err(|source| self.error(segment, "remove", source))
    }

    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError> {
        let Some(path) = &self.bounds else { return Ok(None) };
        match remembered::read(path) {
            Ok(remembered) => Ok(remembered.map(|remembered| remembered.bounds)),
            Err(source) => Err(storage_error("read", path, &source)),
        }
    }

    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError> {
        let Some(path) = &self.bounds else { return Ok(()) };
        let failed = |source: io::Error| storage_error("write", path, &source);
        if let Some(progress) = &self.progress {
            progress.sync().map_err(failed)?;
        }
        let folder = fs::canonicalize(&self.folder).map_err(failed)?;
        remembered::write(path, &Remembered { bounds, folder: Some(folder) }).map_err(failed)
    }

    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError> {
        // If the progress is unreadable, recovery only detects less damage.
        Ok(self.progress.as_ref().and_then(ProgressFile::read))
    }

    fn write_progress(&mut self, progress: Progress) -> Result<(), StorageError> {
        let Some(file) = &mut self.progress else { return Ok(()) };
        file.write(&progress).map_err(|source| storage_error("write", file.path(), &source))
    }
}

/// A thread that syncs segments, so that records can be written at the same time.
struct Syncer {
    jobs: SyncSender<(File, Option<File>)>,
    done: Receiver<io::Result<()>>,
}

impl Syncer {
    fn start() -> io::Result<Self> {
        let (jobs, queue) = sync_channel::<(File, Option<File>)>(1);
        let (results, done) = sync_channel(1);
        thread::Builder::new().name("mez-log-sync".into()).spawn(move || {
            while let Ok((file, folder)) = queue.recv() {
                let synced = file.sync_data();
                let synced = synced.and_then(|()| folder.map_or(Ok(()), |folder| folder.sync_all()));
                if results.send(synced).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs, done })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn camera() -> CameraName {
        "dock/cam1".parse().unwrap()
    }

    fn wait_for_sync(files: &mut LogFiles) -> Result<(), StorageError> {
        loop {
            if let Some(done) = files.finish_sync() {
                return done;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn segments_are_private_files_that_are_read_back() {
        let root = tempfile::tempdir().unwrap();
        let bounds = root.path().join("state/log");
        let mut files = LogFiles::open(root.path(), &camera(), bounds.clone()).unwrap();
        let segment = SegmentNumber(31);
        files.create(segment).unwrap();
        assert!(files.create(segment).is_err(), "made twice");
        files.append(segment, b"abc").unwrap();
        files.append(segment, b"def").unwrap();
        files.start_sync(segment).unwrap();
        wait_for_sync(&mut files).unwrap();
        assert_eq!(files.list().unwrap(), [(segment, 6)]);
        let mut buffer = [0; 10];
        assert_eq!(files.read_at(segment, 2, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"cdef");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.path(segment)), 0o600);
        assert_eq!(mode(files.folder()), 0o700);

        assert_eq!(files.read_bounds().unwrap(), None);
        let remembered = Bounds { oldest: SegmentNumber(3), next: SegmentNumber(32), ..Bounds::default() };
        files.write_bounds(remembered).unwrap();
        assert_eq!(files.read_bounds().unwrap(), Some(remembered));
        fs::write(&bounds, "x").unwrap();
        assert!(files.read_bounds().unwrap_err().text.contains("remove it"));

        files.remove(segment).unwrap();
        assert_eq!(files.list().unwrap(), []);
        let missing = files.read_at(segment, 0, &mut buffer).unwrap_err();
        assert_eq!(missing.kind, StorageErrorKind::Missing);
        assert_eq!(files.start_sync(segment).unwrap_err().kind, StorageErrorKind::Missing);
    }

    #[test]
    fn a_second_program_is_refused_and_readers_are_not() {
        let root = tempfile::tempdir().unwrap();
        let open = || LogFiles::open(root.path(), &camera(), root.path().join("state/log"));
        let first = open().unwrap();
        let refused = open().err().unwrap();
        assert!(refused.to_string().contains("--store"), "{refused}");
        assert!(LogFiles::read_only(root.path(), &camera()).is_held());
        drop(first);
        assert!(!LogFiles::read_only(root.path(), &camera()).is_held());
        open().unwrap();
    }

    #[test]
    fn a_folder_of_logs_is_had_by_one_edge() {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("logs");
        let first = hold_folder(&logs).unwrap();
        let refused = hold_folder(&logs).unwrap_err().to_string();
        assert!(refused.contains("another edge") && refused.contains("--store"), "{refused}");
        // Camera brokers of the same host may use the same store folder.
        LogFiles::open(&logs, &camera(), root.path().join("state/log")).unwrap();
        assert_eq!(cameras_in(&logs).unwrap(), [camera()]);
        drop(first);
        hold_folder(&logs).unwrap();
        let file = hold_folder(&logs.join("@edge")).unwrap_err().to_string();
        assert!(file.contains("--store"), "{file}");
    }

    #[test]
    fn logs_are_found_by_the_names_of_their_cameras() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(cameras_in(&root.path().join("nowhere")).unwrap(), []);
        for name in ["dock/cam1", "dock", "yard/north/cam2"] {
            LogFiles::open(root.path(), &name.parse().unwrap(), root.path().join("@state")).unwrap();
        }
        let names: Vec<String> = cameras_in(root.path()).unwrap().iter().map(|c| c.to_string()).collect();
        assert_eq!(names, ["dock", "dock/cam1", "yard/north/cam2"]);
    }
}
