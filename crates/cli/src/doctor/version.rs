//! Checks whether both sides run the same version.

use mez_node::api::SOFTWARE;
use mez_node::client::ClientError;
use mez_node::probe::LinkReport;

use super::finding::{Check, Finding};
use super::network::{Answers, AppAnswer, blamed_on};

const UPDATE: &str = "run `mez --version` on both hosts, and update the older one";
/// The reason code of a broker that does not support this version of the API.
const REFUSED: &str = "VERSION";

pub(super) fn check(answers: &Answers) -> Vec<Finding> {
    let blamed = answers.failures().filter(|(_, failure)| blamed_on(failure) == Check::Version);
    let mut findings: Vec<Finding> = blamed
        .map(|(place, failure)| Finding::fault(Check::Version, format!("{place}: {}", failure.text), UPDATE))
        .collect();
    for (place, answer) in &answers.links {
        let standing = |LinkReport { tcp, quic, .. }: &LinkReport| {
            [quic, tcp].into_iter().find_map(|answer| Some(answer.as_ref().ok()?.as_ref()?.standing.clone()))
        };
        let standing = answer.as_ref().ok().and_then(standing);
        findings.extend(standing.map(|standing| judge(&place.to_string(), &standing.software)));
    }
    for (address, answer) in &answers.edges {
        match answer {
            AppAnswer::Asked(Ok(checkup)) => findings.push(judge(&address.to_string(), &checkup.software)),
            AppAnswer::Asked(Err(ClientError::Refused(error))) if error.reason == REFUSED => {
                findings.push(Finding::fault(Check::Version, format!("{address}: {error}"), UPDATE));
            }
            AppAnswer::Asked(Err(error @ ClientError::Protocol { .. })) => {
                findings.push(Finding::fault(Check::Version, error.to_string(), UPDATE));
            }
            _ => {}
        }
    }
    if findings.is_empty() {
        findings.push(Finding::skipped(
            Check::Version,
            format!("this host has {SOFTWARE}; no edge reported its version"),
        ));
    }
    findings
}

fn judge(place: &str, software: &str) -> Finding {
    if software == SOFTWARE {
        return Finding::ok(Check::Version, format!("{SOFTWARE} here and at {place}"));
    }
    Finding::warning(
        Check::Version,
        format!("{place} runs {software}, but this host runs {SOFTWARE}"),
        UPDATE,
    )
}
