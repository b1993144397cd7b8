//! Checks whether this host's edge can write its audit log, and whether the log is intact.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use mez_core::audit::Report;
use mez_node::audit::AuditLog;
use mez_node::audit::folder::audit_folder;
use mez_node::state;
use rustix::fs::{Access, access, statvfs};

use super::finding::{Check, Finding};
use super::subject::{Side, Subject};
use crate::text::{bytes, counted};

/// With less space, the next record may not fit.
const SPACE_MIN: u64 = 1 << 20;

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    if !subject.is(Side::Edge) {
        return Vec::new();
    }
    // The check of disks reports a missing state folder.
    let Ok(state) = state::folder(subject.state(Side::Edge).as_deref()) else { return Vec::new() };
    let folder = audit_folder(&state);
    if fs::symlink_metadata(&folder).is_err() {
        return vec![Finding::ok(
            Check::Audit,
            format!("the edge will create the audit log in {} at its first start", folder.display()),
        )];
    }
    vec![unwritable(&folder).unwrap_or_else(|| verified(&state, &folder))]
}

/// Why records cannot be written. `None` if they can.
fn unwritable(folder: &Path) -> Option<Finding> {
    let shown = folder.display();
    let fault = |found: String, remedy: String| Some(Finding::fault(Check::Audit, found, remedy));
    if !folder.is_dir() {
        return fault(
            format!("the audit log cannot be written: {shown} is not a folder"),
            format!("move it away (`mv {shown} {shown}.old`), or give the edge another folder with --state"),
        );
    }
    if let Err((path, error)) = try_opening(folder) {
        let remedy = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount the file system for writing (`mount -o remount,rw`), or give the edge another folder with --state"
                    .into()
            }
            _ => format!(
                "let the edge's user write there (`chown -R`, `chmod -R u+rwX {shown}`, `chattr -a -i`), or give the edge another folder with --state"
            ),
        };
        return fault(format!("the audit log cannot be written: {path}: {error}"), remedy);
    }
    let room = statvfs(folder).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if room < SPACE_MIN {
        return fault(
            format!("the audit log cannot be written: the disk of {shown} is full: {} are free", bytes(room)),
            format!("make room (`df -h {shown}`), or keep less of the log: --audit-bytes, --audit-age"),
        );
    }
    None
}

/// Opens what the edge opens for each record, without writing.
fn try_opening(folder: &Path) -> Result<(), (String, io::Error)> {
    let failed = |path: &Path, error: io::Error| (path.display().to_string(), error);
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failed(folder, error.into()))?;
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let logs = paths.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    // Older files are only read.
    let Some(newest) = logs.max() else { return Ok(()) };
    OpenOptions::new().append(true).open(&newest).map(drop).map_err(|error| failed(&newest, error))
}

/// The result of verifying the whole log.
fn verified(state: &Path, folder: &Path) -> Finding {
    let shown = folder.display();
    match AuditLog::of_state(state).and_then(|log| log.read(None, drop)) {
        Ok(Report { records, flaws, .. }) if flaws.is_empty() => Finding::ok(
            Check::Audit,
            format!("{shown}: {}, and the hash chain is intact", counted(records, "record")),
        ),
        Ok(Report { flaws, .. }) => Finding::warning(
            Check::Audit,
            format!("{shown} is not what the edge wrote: {}", flaws[0]),
            "run `mez keys audit --verify` for all flaws, keep a copy of the folder as evidence, and find out who could write there",
        ),
        Err(error) => {
            Finding::fault_of(Check::Audit, error, "run this command as the user that the edge runs as")
        }
    }
}
