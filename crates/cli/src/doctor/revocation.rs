//! Checks whether this host was revoked, by its own copies of the deny list. Edges that refuse it report that too (`network.rs`).

use mez_node::identity::KeyFolder;
use mez_node::revocation::{RevokedFile, shown};
use mez_node::state::{self, camera_folder};

use super::finding::{Check, Finding};
use super::subject::{Side, Subject};

/// The remedy for a member that was revoked by mistake.
pub(super) const JOIN_AGAIN: &str = "run `mez keys revoked` where the site was made to see why; to join again, run `mez keys token ROLE/NAME` there, then \
     `mez keys enrol TOKEN --edge HOST` here";

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    let Ok(keys) = &subject.keys else { return Vec::new() };
    let mut findings = Vec::new();
    if subject.is(Side::Edge) {
        // An edge does not start with an invalid list. `in_force.rs` asks a running edge about its list.
        let file = RevokedFile::of(keys.path(), keys.trust());
        findings.extend(look(subject, &file, Finding::fault_of));
    }
    findings.extend(of_camera(subject, keys));
    findings
}

/// Checks the list that a camera of this host has received over its link.
fn of_camera(subject: &Subject, keys: &KeyFolder) -> Vec<Finding> {
    let state = state::folder(subject.state(Side::Camera).as_deref()).ok();
    let (true, Some(camera), Some(state)) = (subject.is(Side::Camera), &subject.camera, state) else {
        return Vec::new();
    };
    let file = RevokedFile::of(&camera_folder(&state, camera), keys.trust());
    // Only a warning: the camera works without the list, and will receive it again.
    look(subject, &file, |check, error, otherwise| {
        let fault = Finding::fault_of(check, error, otherwise);
        Finding::warning(check, fault.found, fault.remedy.unwrap_or_default())
    })
}

fn look(
    subject: &Subject,
    file: &RevokedFile,
    unreadable: impl Fn(Check, String, &str) -> Finding,
) -> Vec<Finding> {
    let held = match file.read() {
        Ok(held) => held,
        Err(error) => {
            return vec![unreadable(
                Check::Revocation,
                error.to_string(),
                "copy it again from another edge of the site",
            )];
        }
    };
    let own = subject.credentials.iter().filter_map(|(_, credentials)| credentials.as_ref().ok());
    let denied: Vec<Finding> = own
        .filter_map(|own| held.list.denies(&shown(&own.chain()[0], own.identity()).ok()?))
        .map(|denial| {
            let text = denial.to_string();
            let found = text.split("; to join again").next().unwrap_or(&text);
            Finding::fault(Check::Revocation, found, JOIN_AGAIN)
        })
        .collect();
    if !denied.is_empty() {
        return denied;
    }
    let (version, entries) = (held.list.version(), held.list.len());
    vec![Finding::ok(
        Check::Revocation,
        match version {
            0 => "this host's deny list is empty".into(),
            _ => format!(
                "{} (version {version}, {entries} revoked): this host is not on it",
                file.path().display()
            ),
        },
    )]
}
