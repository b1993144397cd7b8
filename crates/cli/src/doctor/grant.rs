//! Checks whether the edges would allow what this host needs.

use mez_core::rights::Stance;
use mez_core::wire::RefuseCode;
use mez_node::client::{Checkup, ClientError};
use mez_node::identity::KeyFolder;
use mez_node::probe::LinkReport;
use mez_node::rights::RightsFile;

use super::finding::{Check, Finding};
use super::network::{Answers, AppAnswer};
use super::revocation::JOIN_AGAIN;
use super::subject::{Side, Subject};
use crate::text::counted;

pub(super) fn check(subject: &Subject, answers: &Answers) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (place, answer) in &answers.links {
        findings.extend(answer.as_ref().ok().and_then(|answer| camera(&place.to_string(), answer)));
    }
    for (address, answer) in &answers.edges {
        match answer {
            AppAnswer::Asked(Ok(checkup)) => {
                findings.extend(application(subject, &address.to_string(), checkup))
            }
            AppAnswer::Asked(Err(ClientError::Refused(error))) if error.reason == "REVOKED" => {
                findings.push(Finding::fault(Check::Revocation, format!("{address}: {error}"), JOIN_AGAIN));
            }
            AppAnswer::Asked(Err(ClientError::Refused(error))) if error.reason != "VERSION" => {
                findings.push(Finding::fault_of(
                    Check::Grant,
                    format!("{address}: {error}"),
                    "see the edge's log",
                ));
            }
            _ => {}
        }
    }
    if let (true, Ok(keys)) = (subject.is(Side::Edge), &subject.keys) {
        findings.push(rights(keys));
    }
    if findings.is_empty() {
        findings.push(Finding::skipped(Check::Grant, "no edge answered, so rights could not be checked"));
    }
    findings
}

/// Whether an edge would accept this host's camera.
fn camera(place: &str, answer: &LinkReport) -> Option<Finding> {
    let LinkReport { tcp, quic, .. } = answer;
    let standing =
        [quic, tcp].into_iter().find_map(|answer| Some(&answer.as_ref().ok()?.as_ref()?.standing))?;
    Some(match &standing.refusal {
        None if standing.is_connected => {
            Finding::ok(Check::Grant, format!("this host's camera is connected to {place}"))
        }
        None => Finding::ok(Check::Grant, format!("{place} would accept this host's camera")),
        Some((code, text)) => {
            // The name comes from a certificate.
            let check = if *code == RefuseCode::NotPermitted { Check::Certificate } else { Check::Grant };
            Finding::fault_of(
                check,
                format!("{place} would refuse this camera: {text}"),
                "see `mez cameras` on the edge's host",
            )
        }
    })
}

/// What an edge would allow an application of this host.
fn application(subject: &Subject, place: &str, checkup: &Checkup) -> Vec<Finding> {
    let Checkup { who, refused, .. } = checkup;
    if refused.is_empty() {
        return vec![Finding::ok(Check::Grant, format!("{place}: {who} has all requested rights"))];
    }
    if subject.wanted.is_empty() {
        // Without `wanted`, one allowed verb is enough.
        let nothing = refused.len() == super::network::wanted(subject).len();
        let held = format!("{place}: {who} may watch or read some cameras");
        return vec![match refused.first() {
            Some((_, _, why)) if nothing => {
                let (found, remedy) = split(why);
                Finding::warning(Check::Grant, format!("{place}: {found}"), remedy)
            }
            _ => Finding::ok(Check::Grant, held),
        }];
    }
    let fault = |why: &String| {
        let (found, remedy) = split(why);
        Finding::fault(Check::Grant, format!("{place}: {found}"), remedy)
    };
    refused.iter().map(|(_, _, why)| fault(why)).collect()
}

/// Splits a refusal into its sentence and the command that it recommends.
fn split(why: &str) -> (String, String) {
    match why.split_once("; to grant this, ") {
        Some((found, remedy)) => (found.into(), remedy.into()),
        None => (why.into(), "see `mez keys grants` on the edge's host".into()),
    }
}

/// The rights file of this host's edge.
fn rights(keys: &KeyFolder) -> Finding {
    let file = RightsFile::of(keys.path());
    let shown = file.path().display();
    match file.read() {
        Ok(text) if text.stance == Stance::Open => Finding::warning(
            Check::Grant,
            format!(
                "{shown}: every application may do everything; the {} in it {restrict} nothing",
                counted(text.grants.len() as u64, "grant"),
                restrict = if text.grants.len() == 1 { "restricts" } else { "restrict" },
            ),
            "give applications their grants with `mez keys grant`, then run `mez keys rights --strict`",
        ),
        Ok(text) if text.grants.is_empty() => {
            Finding::ok(Check::Grant, format!("{shown}: nothing is granted, so applications may do nothing"))
        }
        Ok(text) => {
            let grants = counted(text.grants.len() as u64, "grant");
            Finding::ok(Check::Grant, format!("{shown}: {grants}; everything else is refused"))
        }
        Err(error) if error.is_absent() => Finding::skipped(
            Check::Grant,
            format!("{shown} does not exist yet: `mez edge` creates it at its first start"),
        ),
        Err(error) => Finding::fault_of(Check::Grant, error, "correct the file, or restore it from a backup"),
    }
}
