//! Checks whether the folders of a store and of the state are writable, have space, and are fast enough.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use mez_node::persist::keys::{StoreKeyError, find_store_keys};
use mez_node::state;
use rustix::fs::statvfs;

use super::finding::{Check, Finding};
use super::subject::{Side, Subject};
use crate::place::Place;
use crate::text::{bytes, milliseconds};

/// With less space, a log loses its oldest frames within minutes.
const SPACE_SMALL: u64 = 1 << 30;
/// With less space, a log cannot begin.
const SPACE_MIN: u64 = 64 << 20;
/// Bytes of one test write: about one second of frames.
const TRIED_BYTES: usize = 1 << 20;
/// The number of test writes.
const TRIES: usize = 3;
/// A write slower than this is a warning: a broker syncs a second of frames every second.
const SLOW: Duration = Duration::from_millis(500);

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for store in &subject.stores {
        findings.push(folder("store", &store.folder, "--store", true));
        let keys = find_store_keys(store.key.as_deref(), subject.keys_given.as_deref());
        findings.extend(keys.err().and_then(|error| without_key(&error)));
    }
    for side in [Side::Edge, Side::Camera].into_iter().filter(|side| subject.is(*side)) {
        let found = match state::folder(subject.state(side).as_deref()) {
            // Only a few bytes are written at each start, so speed does not matter.
            Ok(path) => folder("state", &path, "--state or MEZ_STATE", false),
            Err(error) => Finding::fault_of(Check::Disk, error, "give a folder with --state or MEZ_STATE"),
        };
        // On most hosts all brokers use the same folder.
        if !findings.contains(&found) {
            findings.push(found);
        }
    }
    findings
}

fn without_key(error: &StoreKeyError) -> Option<Finding> {
    match error {
        StoreKeyError::NotFound { file } => Some(Finding::fault(
            Check::Disk,
            format!("no key for the store: {} does not exist", file.display()),
            "make one with `mez store key`, once on each host",
        )),
        // The check of permissions reports these.
        StoreKeyError::Exposed { .. } | StoreKeyError::Folder(_) => None,
        error => Some(Finding::fault_of(Check::Disk, error, "make one with `mez store key`")),
    }
}

fn folder(what: &str, path: &Path, option: &str, writes: bool) -> Finding {
    let shown = path.display();
    let cannot = |error: &dyn std::fmt::Display| {
        Finding::fault(
            Check::Disk,
            format!("the folder of the {what}, {shown}, cannot be written: {error}"),
            format!(
                "give a writable folder with {option}, or make this one writable: `chown`, `chmod u+rwx`, `mount -o remount,rw`"
            ),
        )
    };
    let place = Place::of(path);
    if let Some(obstacle) = place.obstacle() {
        return cannot(&obstacle);
    }
    let Place { there, exists } = place;
    let room = statvfs(&there).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize)).unwrap_or(u64::MAX);
    let full = |found: String| {
        let remedy = format!(
            "free some space (`df -h {shown}`, `du -xh {shown} | sort -h`), give another disk with {option}, or keep fewer frames: --store-bytes, --store-age"
        );
        (found, remedy)
    };
    if room < SPACE_MIN {
        let (found, remedy) =
            full(format!("the disk of the {what}, {shown}, is full: {} are free", bytes(room)));
        return Finding::fault(Check::Disk, found, remedy);
    }
    if !exists {
        return Finding::ok(
            Check::Disk,
            format!(
                "the folder of the {what}, {shown}, will be created at the first start; {} are free",
                bytes(room)
            ),
        );
    }
    if !writes {
        return Finding::ok(Check::Disk, format!("the folder of the {what}, {shown}: {} free", bytes(room)));
    }
    let slowest = match try_writing(path) {
        Ok(slowest) => slowest,
        Err(error) => return cannot(&error),
    };
    let found = format!(
        "the folder of the {what}, {shown}: {} free, writing and syncing 1 MiB took up to {}",
        bytes(room),
        milliseconds(slowest)
    );
    if slowest > SLOW {
        return Finding::warning(
            Check::Disk,
            found,
            "the disk is slow or busy (`iostat -x 1`): use another disk, or --durability async",
        );
    }
    if room < SPACE_SMALL {
        let (found, remedy) = full(found);
        return Finding::warning(Check::Disk, found, remedy);
    }
    Finding::ok(Check::Disk, found)
}

/// The time of the slowest of a few synced writes. The file is unlinked before it is written, so nothing is left behind in any case.
fn try_writing(folder: &Path) -> io::Result<Duration> {
    let path = folder.join(format!(".mez-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    let content = vec![0xA5; TRIED_BYTES];
    let mut slowest = Duration::ZERO;
    for _ in 0..TRIES {
        let begun = Instant::now();
        file.write_all(&content)?;
        file.sync_all()?;
        slowest = slowest.max(begun.elapsed());
    }
    Ok(slowest)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_folder_is_tried_and_nothing_is_left_in_it() {
        let home = tempfile::tempdir().unwrap();
        let tried = folder("store", home.path(), "--store", true);
        assert!(matches!(tried.level, Level::Ok | Level::Warning), "{tried:?}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        let later = folder("store", &home.path().join("a/b"), "--store", true);
        assert!(later.level == Level::Ok && later.found.contains("will be created"), "{later:?}");
        assert!(!home.path().join("a").exists());
    }

    #[test]
    fn a_file_in_its_place_is_a_fault_with_a_remedy() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), b"").unwrap();
        for path in ["file", "file/store"] {
            let fault = folder("store", &home.path().join(path), "--store", true);
            assert!(fault.level == Level::Fault && fault.found.contains("is not a folder"), "{fault:?}");
            assert!(fault.remedy.unwrap().contains("--store"));
        }
        // Nothing is reported as full here.
        let fault = folder("store", Path::new("/proc/nope"), "--store", true);
        assert!(fault.level == Level::Fault && fault.found.contains("belongs to the kernel"), "{fault:?}");
        assert!(!fault.found.contains("full") && fault.remedy.unwrap().contains("--store"));
    }
}
