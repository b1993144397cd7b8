//! Reads and verifies a log. An edge may be writing it.

use std::io;
use std::path::{Path, PathBuf};

use mez_core::audit::{Record, RecordHash, Report, Verifier};

use super::files::{Line, Lines, LogFile, files_in};
use super::folder::{AuditError, audit_folder, read_head};

/// How often a read starts again because the edge removed the oldest file meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// The audit log of an edge.
#[derive(Clone, Debug)]
pub struct AuditLog {
    folder: PathBuf,
}

impl AuditLog {
    /// The log of the edge with this state folder.
    ///
    /// # Errors
    /// Fails if there is no log.
    pub fn of_state(state: &Path) -> Result<Self, AuditError> {
        let folder = audit_folder(state);
        if folder.is_dir() { Ok(Self { folder }) } else { Err(AuditError::Absent { path: folder }) }
    }

    /// The folder of the log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Passes all records to `each`, oldest first, and returns what is wrong with the
    /// log. `noted` is the number and hash of a record that the caller noted elsewhere.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn read(
        &self,
        noted: Option<(u64, RecordHash)>,
        each: impl FnMut(Record),
    ) -> Result<Report, AuditError> {
        let mut tail = self.tail(noted)?;
        tail.poll(each)?;
        Ok(tail.finish())
    }

    /// Follows the log: each call of [`Tail::poll`] returns the new records.
    ///
    /// # Errors
    /// Fails if the head cannot be read.
    pub fn tail(&self, noted: Option<(u64, RecordHash)>) -> Result<Tail, AuditError> {
        let mut tail =
            Tail { folder: self.folder.clone(), verifier: Verifier::new(None, noted), noted, at: None };
        tail.begin()?;
        Ok(tail)
    }
}

/// A position in a log.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    noted: Option<(u64, RecordHash)>,
    verifier: Verifier,
    at: Option<At>,
}

#[derive(Debug)]
struct At {
    file: LogFile,
    bytes: u64,
    /// An incomplete line follows.
    torn: bool,
}

impl Tail {
    /// Passes the records that were written since the last call to `each`.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn poll(&mut self, mut each: impl FnMut(Record)) -> Result<(), AuditError> {
        for _ in 0..ATTEMPTS_MAX {
            if self.attempt(&mut each)? {
                break;
            }
            self.begin()?;
        }
        Ok(())
    }

    /// What is wrong with the records that were read.
    pub fn finish(mut self) -> Report {
        if self.at.is_some_and(|at| at.torn) {
            self.verifier.handle_torn();
        }
        self.verifier.finish()
    }

    fn begin(&mut self) -> Result<(), AuditError> {
        // The head is read first, so records that are written meanwhile come after the last record that it names.
        self.verifier = Verifier::new(read_head(&self.folder)?, self.noted);
        Ok(())
    }

    /// Reads all new records. False if the edge removed the oldest file before it was read.
    fn attempt(&mut self, each: &mut impl FnMut(Record)) -> Result<bool, AuditError> {
        for file in files_in(&self.folder).map_err(AuditError::on(&self.folder))? {
            let from = match &self.at {
                Some(at) if file < at.file => continue,
                Some(at) if file == at.file => at.bytes,
                before => {
                    if before.as_ref().is_some_and(|at| at.torn) {
                        self.verifier.handle_torn();
                    }
                    self.verifier.handle_file(&file.name());
                    0
                }
            };
            match self.read_file(file.clone(), from, each) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.at.is_none() => {
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(AuditError::Io { path: file.path, source: error }),
            }
        }
        Ok(true)
    }

    fn read_file(&mut self, file: LogFile, from: u64, each: &mut impl FnMut(Record)) -> io::Result<()> {
        let mut lines = Lines::open(&file.path, from)?;
        let torn = loop {
            match lines.next()? {
                Line::Whole(line) => self.verifier.handle_line(&line).into_iter().for_each(&mut *each),
                Line::Torn => break true,
                Line::End => break false,
            }
        };
        self.at = Some(At { file, bytes: lines.bytes, torn });
        Ok(())
    }
}
