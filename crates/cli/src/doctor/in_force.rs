//! Checks whether this host's running edge uses what its files contain: its certificate, the deny list, the rights.

use std::thread;
use std::time::Duration;

use mez_node::client::{Address, InForce, checkup};
use mez_node::identity::KeyFolder;
use mez_node::revocation::RevokedFile;
use mez_node::rights::{RightsFile, digest};
use mez_node::runtime::block_on;

use super::finding::{Check, Finding};
use super::network::{Answers, AppAnswer, wanted};
use super::subject::{Side, Subject};
use crate::text::counted;

/// An edge applies changed files within a second, so it is asked again after this time.
const TAKEN_WITHIN: Duration = Duration::from_millis(1_500);
const OTHER_FOLDER: &str = "the edge's log says why: if it uses another folder of keys (--keys, or keys in its settings file), run this command with the same folder; otherwise restart the edge";

pub(super) fn check(subject: &Subject, answers: &Answers) -> Vec<Finding> {
    let (true, Ok(keys)) = (subject.is(Side::Edge), &subject.keys) else { return Vec::new() };
    let own = answers.edges.iter().find_map(|(address, answer)| match answer {
        AppAnswer::Asked(Ok(checkup)) if address.as_unix() == Some(&subject.socket) => {
            checkup.in_force.clone()
        }
        _ => None,
    });
    let Some(first) = own else { return Vec::new() };
    let found = compare(keys, &first);
    if found.is_empty() {
        return found;
    }
    // A file may have been changed just now.
    thread::sleep(TAKEN_WITHIN);
    let asked = block_on(checkup(Address::Unix(subject.socket.clone()), None, &wanted(subject)));
    let again = asked.ok().and_then(Result::ok).and_then(|checkup| checkup.in_force);
    again.map_or(found, |again| compare(keys, &again))
}

/// The differences between the edge and the files in its key folder.
fn compare(keys: &KeyFolder, running: &InForce) -> Vec<Finding> {
    let findings = [shown(keys, running), deny_list(keys, running), rights(keys, running)];
    findings.into_iter().flatten().collect()
}

/// Whether the shown certificate is revoked. That in the folder, or a new one from the authority, may be valid.
fn shown(keys: &KeyFolder, running: &InForce) -> Option<Finding> {
    let held = RevokedFile::of(keys.path(), keys.trust()).read().ok()?;
    let own = running.certificate.as_ref()?;
    held.list.denies(own).map(|_| {
        Finding::fault(
            Check::Revocation,
            format!(
                "the running edge uses a revoked certificate of {} (serial number {}): cameras refuse to connect to it",
                own.member, own.serial
            ),
            format!(
                "an edge with a signer renews it within seconds; otherwise enrol again (`mez keys token {}` where the site was made, then `mez keys enrol TOKEN --edge HOST` \
                 here), and the edge uses the new certificate within a minute. If it was revoked by mistake: `mez keys unrevoke`",
                own.member
            ),
        )
    })
}

fn deny_list(keys: &KeyFolder, running: &InForce) -> Option<Finding> {
    let file = RevokedFile::of(keys.path(), keys.trust());
    let version = file.read().ok()?.list.version();
    (version > running.revoked_version).then(|| {
        Finding::fault(
            Check::Revocation,
            format!(
                "the running edge has version {} of the deny list, but {} has version {version}",
                running.revoked_version,
                file.path().display()
            ),
            OTHER_FOLDER,
        )
    })
}

fn rights(keys: &KeyFolder, running: &InForce) -> Option<Finding> {
    let file = RightsFile::of(keys.path());
    let (shown, grants) = (file.path().display(), counted(running.grants, "grant"));
    let text = match file.read() {
        Ok(text) => text,
        Err(error) if error.is_absent() => {
            return Some(Finding::fault(
                Check::Grant,
                format!("{shown} does not exist, so the running edge keeps its previous rights ({grants})"),
                "restore the file from a backup; or write a new one, which allows nothing, with `mez keys rights --strict`, and grant again with \
                 `mez keys grant`",
            ));
        }
        // Another check reports this error.
        Err(_) => return None,
    };
    (running.rights != digest(&text.rights())).then(|| {
        let in_file = counted(text.grants.len() as u64, "grant");
        Finding::fault(
            Check::Grant,
            format!("the running edge has other rights ({grants}) than {shown} ({in_file})"),
            OTHER_FOLDER,
        )
    })
}
