//! The folder of an audit log, as its single writer uses it.
//!
//! ```text
//! audit/                 0700  in the edge's state folder
//!   000000000001.jsonl   0600  records, one on each line, from number 1 on
//!   000000002931.jsonl   0600  the next file
//! head                 0600  the last record's number and hash, and the number of the oldest kept record
//!   lock                 0600  held by the edge that writes
//! told/                0700  events reported by commands of this host ([`super::told`])
//! ```
//!
//! Records are synced before the head names them. So after a power cut the head may be behind the
//! records, but never ahead of them. A head that is ahead means that somebody cut off the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mez_core::audit::{Chain, Event, Head, Kind, Rotation, Verifier};
use mez_core::units::{Instant, Timestamp};
use tracing::info;

use super::files::{Line, Lines, LogFile, files_in};
use crate::clock::wall_now;
use crate::identity::files::make_private_folder;
use crate::lock::FileLock;
use crate::state::write_durably;

/// The file that names the last record.
pub(super) const HEAD: &str = "head";
const LOCK: &str = "lock";
/// How often the age of files is checked.
const AGE_INTERVAL: Duration = Duration::from_secs(86_400);

/// The audit log folder of an edge with this state folder.
pub fn audit_folder(state: &Path) -> PathBuf {
    state.join("audit")
}

/// Why an audit log cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder cannot be used.
    #[error("cannot use {}: {source}; {}", path.display(), remedy(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no audit log.
    #[error("no edge has kept an audit log in {}; give its folder for state with --state", path.display())]
    Absent {
        /// The folder.
        path: PathBuf,
    },
    /// Another edge writes this log.
    #[error("another edge writes the audit log in {}; give each edge a folder of its own with --state", path.display())]
    Held {
        /// The folder.
        path: PathBuf,
    },
}

impl AuditError {
    pub(super) fn on(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// What the user can do about an error.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on that disk",
        io::ErrorKind::PermissionDenied => {
            "let the edge's user write there, or give another folder with --state"
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount it for writing, or give another folder with --state",
        _ => "check that the disk works and the folder is writable",
    }
}

/// The folder of an audit log, locked by its writer.
pub(super) struct Folder {
    path: PathBuf,
    rotation: Rotation,
    chain: Chain,
    /// The number of the oldest kept record.
    oldest: u64,
    current: Option<Current>,
    /// When the age of files is checked next.
    aged: Option<Instant>,
    _lock: FileLock,
}

/// The file that is being written.
struct Current {
    of: LogFile,
    file: File,
    bytes: u64,
}

impl Folder {
    /// Locks and opens a log. The returned events say how it differs from what the last writer left.
    pub(super) fn open(path: &Path, rotation: Rotation) -> Result<(Self, Vec<Event>), AuditError> {
        make_private_folder(path)
            .map_err(|error| AuditError::Io { path: path.into(), source: error.source })?;
        let lock = path.join(LOCK);
        let held = FileLock::take(&lock).map_err(AuditError::on(&lock))?;
        let lock = held.ok_or_else(|| AuditError::Held { path: path.into() })?;
        let head = read_head(path)?;
        let files = files_in(path).map_err(AuditError::on(path))?;
        let (last, torn) = match files.last() {
            Some(last) => check_last(last, head)?,
            None => (None, false),
        };
        let (chain, found) = take_up(last.as_ref(), head, files.is_empty());
        let oldest = head.map_or_else(|| files.first().map_or(1, |file| file.first), |head| head.oldest);
        let mut folder =
            Self { path: path.into(), rotation, chain, oldest, current: None, aged: None, _lock: lock };
        // A file whose end is doubtful is left unchanged, and a new file begins.
        if let (true, false, Some(last)) = (found.is_empty(), torn, files.last()) {
            folder.current = Some(Current::append_to(last.clone())?);
        }
        if torn {
            let why = "its last line is incomplete: the edge was killed, or the power failed";
            info!("the audit log: {why}");
        }
        if head.is_none() && found.is_empty() && files.is_empty() {
            // With this, records without a head always mean that somebody removed the head.
            folder.write_head()?;
        }
        Ok((folder, found))
    }

    /// Writes events as records, and returns how many were written, also after an error.
    pub(super) fn append(
        &mut self,
        events: &[Event],
        now: Instant,
        utc: Timestamp,
    ) -> (usize, Result<(), AuditError>) {
        let mut all: Vec<Event> = self.changed_behind_us().into_iter().collect();
        let own = all.len();
        all.extend_from_slice(events);
        let mut written = 0;
        let mut result = Ok(());
        while written < all.len() && result.is_ok() {
            result = self.write_some(&all[written..]).map(|count| written += count);
        }
        let result = result.and_then(|()| if written > 0 { self.write_head() } else { Ok(()) });
        let result = result.and_then(|()| self.remove_old(now, utc));
        (written.saturating_sub(own), result)
    }

    /// How the current file was changed by others, as an event.
    fn changed_behind_us(&mut self) -> Option<Event> {
        let current = self.current.as_ref()?;
        let why = current.changed()?;
        self.current = None;
        tracing::error!("the audit log was changed while the edge ran: {why}");
        Some(damaged(why))
    }

    /// Writes as many events as fit into one file, and syncs them. Returns their number.
    fn write_some(&mut self, events: &[Event]) -> Result<usize, AuditError> {
        let (mut chain, mut lines, mut count) = (self.chain, String::new(), 0);
        let bytes = self.current.as_ref().map_or(0, |current| current.bytes);
        let mut is_new = self.current.is_none();
        for event in events {
            let (line, next) = chain.with(event.clone());
            let has = if is_new { 0 } else { bytes } + lines.len() as u64;
            if self.rotation.begins_file(has, line.len() as u64 + 1) {
                if count > 0 {
                    break;
                }
                is_new = true;
            }
            lines.push_str(&line);
            lines.push('\n');
            (chain, count) = (next, count + 1);
        }
        if is_new {
            self.current = Some(Current::create(&self.path, self.chain.next())?);
        }
        let current = self.current.as_mut().expect("it was made just now");
        if let Err(error) = current.write(lines.as_bytes()) {
            let path = current.of.path.clone();
            // A partial line must not precede the next one.
            if current.file.set_len(current.bytes).is_err() {
                self.current = None;
            }
            return Err(AuditError::Io { path, source: error });
        }
        self.chain = chain;
        Ok(count)
    }

    fn write_head(&self) -> Result<(), AuditError> {
        let path = self.path.join(HEAD);
        let line = self.chain.head(self.oldest).to_line() + "\n";
        write_durably(&self.path, &path, line.as_bytes()).map_err(AuditError::on(&path))
    }

    /// Removes the oldest files when the log is too large or they are too old.
    fn remove_old(&mut self, now: Instant, utc: Timestamp) -> Result<(), AuditError> {
        let looks = self.aged.is_none_or(|due| now >= due);
        let is_first = self.current.as_ref().is_none_or(|current| current.of.first == self.oldest);
        if is_first && !looks {
            return Ok(());
        }
        let files = files_in(&self.path).map_err(AuditError::on(&self.path))?;
        let facts: Vec<_> = files.iter().filter_map(|file| file.facts().ok()).collect();
        if facts.len() != files.len() {
            return Ok(());
        }
        let mut gone = self.rotation.too_many(&facts);
        if looks {
            self.aged = Some(now + AGE_INTERVAL);
            gone = gone.max(usize::from(self.rotation.is_too_old(&facts, utc)));
        }
        if gone == 0 {
            return Ok(());
        }
        // The head first, so that the removed files never count as missing.
        self.oldest = files[gone].first;
        self.write_head()?;
        for file in &files[..gone] {
            fs::remove_file(&file.path).map_err(AuditError::on(&file.path))?;
        }
        Ok(())
    }
}

impl Current {
    fn create(folder: &Path, first: u64) -> Result<Self, AuditError> {
        let mut of = LogFile::new(folder, first, 0);
        loop {
            let made = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&of.path);
            match made {
                Ok(file) => return Ok(Self { of, file, bytes: 0 }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => of = of.again(folder),
                // The folder was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                    make_private_folder(folder)
                        .map_err(|error| AuditError::Io { path: folder.into(), source: error.source })?;
                }
                Err(error) => return Err(AuditError::Io { path: of.path, source: error }),
            }
        }
    }

    fn append_to(of: LogFile) -> Result<Self, AuditError> {
        let opened = OpenOptions::new().append(true).open(&of.path);
        let file = opened.map_err(AuditError::on(&of.path))?;
        let bytes = file.metadata().map_err(AuditError::on(&of.path))?.len();
        Ok(Self { of, file, bytes })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// How the file differs from what was written, if it does.
    fn changed(&self) -> Option<String> {
        let name = self.of.name();
        let Ok(own) = self.file.metadata() else { return Some(format!("{name} cannot be checked")) };
        match fs::metadata(&self.of.path) {
            Ok(there) if (there.dev(), there.ino()) != (own.dev(), own.ino()) => {
                Some(format!("another file replaced {name}"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!("{name} was removed")),
            _ if own.len() != self.bytes => {
                Some(format!("{name} has {} bytes, but the edge has written {}", own.len(), self.bytes))
            }
            _ => None,
        }
    }
}

fn damaged(why: impl Into<String>) -> Event {
    Event::new(wall_now(), Kind::Damaged, "edge").why(why)
}

/// Reads the head. `None` if it is missing or invalid.
pub(super) fn read_head(folder: &Path) -> Result<Option<Head>, AuditError> {
    let path = folder.join(HEAD);
    match fs::read(&path) {
        Ok(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(|line| Head::parse(line).ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AuditError::Io { path, source: error }),
    }
}

/// The state of the chain at the end of the newest file, and what is wrong in this file.
type Ending = (Chain, Vec<String>);

/// Checks the newest file. Returns its end, if it has records, and whether its last line is incomplete.
fn check_last(last: &LogFile, head: Option<Head>) -> Result<(Option<Ending>, bool), AuditError> {
    let io = AuditError::on(&last.path);
    // Only this file is checked, so earlier records must not count as missing.
    let head = head.map(|head| Head { oldest: last.first.max(head.oldest), ..head });
    let mut verifier = Verifier::new(head, None);
    verifier.handle_file(&last.name());
    let torn = (|| {
        let mut lines = Lines::open(&last.path, 0)?;
        loop {
            match lines.next()? {
                Line::Whole(line) => drop(verifier.handle_line(&line)),
                Line::Torn => return Ok(true),
                Line::End => return Ok(false),
            }
        }
    })();
    let torn = torn.map_err(io)?;
    let report = verifier.finish();
    let wrong = report.flaws.iter().filter(|flaw| !matches!(flaw, mez_core::audit::Flaw::Noted { .. }));
    let wrong = wrong.map(ToString::to_string).collect();
    // A file without records says nothing about the chain.
    let chain = (report.records > 0).then_some((report.chain, wrong));
    Ok((chain, torn))
}

/// Where the log continues, and what is wrong with it.
fn take_up(last: Option<&Ending>, head: Option<Head>, is_empty: bool) -> (Chain, Vec<Event>) {
    let named = head.map(|head| Chain::behind(head.last, head.hash));
    match (last, named) {
        (None, None) => (Chain::EMPTY, Vec::new()),
        (None, Some(named)) if is_empty && named.last() > 0 => {
            (named, vec![damaged(format!("all records up to {} are missing", named.last()))])
        }
        // The newest file was created, but nothing was written into it.
        (None, Some(named)) => (named, Vec::new()),
        (Some((chain, wrong)), named) => {
            // Continue after the record that the head names, so that missing records stay visible as a gap.
            let chain = named.filter(|named| named.last() >= chain.last()).unwrap_or(*chain);
            (chain, wrong.first().map(damaged).into_iter().collect())
        }
    }
}
