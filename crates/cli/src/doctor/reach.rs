//! Checks whether the edges of this host can be reached, and whether edges answer there.

use mez_node::client::ClientError;
use mez_node::probe::{LinkReport, Obstacle, ProbeFailure};

use super::finding::{Check, Finding};
use super::network::{Answers, AppAnswer, blamed_on};
use super::subject::{Side, Subject};

pub(super) fn check(subject: &Subject, answers: &Answers) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        answers.failures().map(|(place, failure)| unreached(&place, failure)).collect();
    for (place, answer) in &answers.links {
        match answer {
            Ok(LinkReport { tcp: Ok(answer), .. }) => {
                let took = answer.as_ref().map(|answer| format!(" within {} ms", answer.took.as_millis()));
                let how = took.unwrap_or_else(|| ": something accepts connections there".into());
                findings.push(Finding::ok(Check::Reach, format!("{place} answers{how}")));
            }
            Ok(LinkReport { tcp: Err(failure), quic: Ok(Some(_)), .. }) => findings.push(Finding::warning(
                Check::Reach,
                format!("{place} answers over QUIC, but not over TCP: {}", failure.text),
                remedy(failure, &place.to_string()),
            )),
            Ok(_) | Err(_) => {}
        }
    }
    for (address, answer) in &answers.edges {
        let place = address.to_string();
        match answer {
            AppAnswer::Unreached(_) => {}
            AppAnswer::Nobody => {
                findings
                    .push(Finding::ok(Check::Reach, format!("{place}: something accepts connections there")));
            }
            AppAnswer::Asked(Err(
                error @ (ClientError::Unreachable { .. }
                | ClientError::Untrusted { .. }
                | ClientError::TimedOut { .. }),
            )) if address.as_unix() == Some(&subject.socket) && subject.is(Side::Edge) => {
                findings.push(Finding::warning(Check::Reach, error.to_string(), "start it with `mez edge`"));
            }
            AppAnswer::Asked(Err(
                error @ (ClientError::Unreachable { .. }
                | ClientError::Untrusted { .. }
                | ClientError::TimedOut { .. }),
            )) => findings.push(no_broker(error, address.as_unix().is_some())),
            AppAnswer::Asked(_) => findings.push(Finding::ok(Check::Reach, format!("{place} answers"))),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::skipped(Check::Reach, "no edge is named; name one with --edge HOST"));
    }
    findings
}

fn unreached(place: &str, failure: &ProbeFailure) -> Finding {
    match blamed_on(failure) {
        Check::Reach => {
            Finding::fault(Check::Reach, format!("{place}: {}", failure.text), remedy(failure, place))
        }
        other => {
            Finding::ok(Check::Reach, format!("{place} answers, but refuses this host: see {}", other.name()))
        }
    }
}

fn no_broker(error: &ClientError, is_local: bool) -> Finding {
    let remedy = if is_local {
        "start it with `mez edge`; if the edge is on another host, name it with --edge HOST or MEZ_EDGE; if it has another socket, name that with --socket PATH"
    } else {
        "check that `mez edge` is running there, and read its log"
    };
    Finding::fault(Check::Reach, error.to_string(), remedy)
}

/// The remedy for an obstacle.
fn remedy(failure: &ProbeFailure, place: &str) -> String {
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    match failure.obstacle {
        Obstacle::Name => format!(
            "check the name (`getent hosts {host}`), give the IP address instead, or add the name to /etc/hosts"
        ),
        Obstacle::Refused => {
            format!(
                "check that `mez edge` is running there and that its port is {port}; give another port with --edge HOST:PORT"
            )
        }
        Obstacle::NoRoute => format!("check the address, and this host's network: `ip route get {host}`"),
        Obstacle::Silent => format!(
            "check that the host is on (`ping {host}`) and that no firewall blocks TCP port {port}: open it at the edge host, and UDP 7650 for cameras"
        ),
        _ => format!(
            "another service uses this port: see `ss -ltnp 'sport = :{port}'` on {host}, and give the edge's port with --edge HOST:PORT"
        ),
    }
}
