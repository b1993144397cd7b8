//! Checks whether other users could read or replace keys.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mez_node::identity::KeyFolder;
use mez_node::identity::folder::{AUTHORITY_KEY, TOKENS};
use mez_node::persist::keys::STORE_KEY_FILE;
use mez_node::rights::RIGHTS;

use super::finding::{Check, Finding};
use super::subject::{Side, Store, Subject};

const MAY_WRITE: u32 = 0o022;
const MAY_READ: u32 = 0o077;

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut looked = 0;
    if let Ok(folder) = KeyFolder::location(subject.keys_given.as_deref())
        && folder.is_dir()
    {
        findings.extend(exposed(&folder, MAY_WRITE, "replace the keys in it", "700"));
        for (path, mask) in private_files(&folder, &subject.stores) {
            looked += 1;
            let what = if mask == MAY_READ { "read the keys in it" } else { "change it" };
            findings.extend(exposed(&path, mask, what, "600"));
        }
    }
    if subject.is(Side::Edge) || subject.is(Side::App) {
        findings.extend(socket(&subject.socket));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            Check::Permissions,
            format!("no other user can read the private files ({looked})"),
        ));
    }
    findings
}

/// The files of a key folder that no other user may read, and those that no other user may write.
fn private_files(folder: &Path, stores: &[Store]) -> Vec<(PathBuf, u32)> {
    let keys = stores.iter().filter_map(|store| store.key.clone());
    let mut found: Vec<(PathBuf, u32)> = keys.map(|file| (file, MAY_READ)).collect();
    for entry in [folder.to_owned(), folder.join(TOKENS)].iter().flat_map(fs::read_dir).flatten().flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if !path.is_file() {
            continue;
        }
        let holds_key = fs::read(&path).is_ok_and(|text| {
            let text = String::from_utf8_lossy(&text[..text.len().min(64 << 10)]).into_owned();
            text.contains("PRIVATE KEY")
        });
        if holds_key
            || [AUTHORITY_KEY, STORE_KEY_FILE].contains(&name.as_str())
            || path.parent() != Some(folder)
        {
            found.push((path, MAY_READ));
        } else if name == RIGHTS {
            found.push((path, MAY_WRITE));
        }
    }
    found
}

/// A finding if others have rights in `mask`, or this user has none.
fn exposed(path: &Path, mask: u32, what: &str, right: &str) -> Option<Finding> {
    let shown = path.display();
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & mask != 0 {
        return Some(Finding::fault(
            Check::Permissions,
            format!("other users could {what}: {shown} has mode {mode:03o}"),
            format!("run `chmod {right} {shown}`, and enrol again if somebody else may have read a key"),
        ));
    }
    let user = rustix::process::geteuid().as_raw();
    (user != 0 && metadata.uid() != user).then(|| {
        Finding::fault(
            Check::Permissions,
            format!("{shown} belongs to user {}, but this command runs as user {user}", metadata.uid()),
            format!("run this command as that user, or run `sudo chown -R {user} {shown}`"),
        )
    })
}

/// A user who may write in the socket's folder could replace the socket.
fn socket(path: &Path) -> Option<Finding> {
    let folder = path.parent()?;
    let metadata = fs::metadata(folder).ok()?;
    let mode = metadata.permissions().mode() & 0o7777;
    const STICKY: u32 = 0o1000;
    if mode & 0o002 != 0 && mode & STICKY == 0 {
        return Some(Finding::fault(
            Check::Permissions,
            format!(
                "other users could replace the socket {}: its folder has mode {mode:03o}",
                path.display()
            ),
            format!("run `chmod 750 {}`", folder.display()),
        ));
    }
    let socket = fs::symlink_metadata(path).ok()?;
    (!socket.file_type().is_socket()).then(|| {
        Finding::fault(
            Check::Permissions,
            format!("{} exists and is not a socket", path.display()),
            "remove it, or give another path with --socket",
        )
    })
}
