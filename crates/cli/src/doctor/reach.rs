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
                let how = took.unwrap_or_else(|| ": something takes connections there".into());
                findings.push(Finding::ok(Check::Reach, format!("{place} answers{how}")));
            }
            Ok(LinkReport { tcp: Err(failure), quic: Ok(Some(_)), .. }) => findings.push(Finding::warning(
                Check::Reach,
                format!("{place} answers over QUIC, and not over TCP: {}", failure.text),
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
                    .push(Finding::ok(Check::Reach, format!("{place}: something takes connections there")));
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
        findings.push(Finding::skipped(Check::Reach, "no edge was named: --edge HOST"));
    }
    findings
}

fn unreached(place: &str, failure: &ProbeFailure) -> Finding {
    match blamed_on(failure) {
        Check::Reach => {
            Finding::fault(Check::Reach, format!("{place}: {}", failure.text), remedy(failure, place))
        }
        other => Finding::ok(Check::Reach, format!("{place} answers, and refuses: see {}", other.name())),
    }
}

fn no_broker(error: &ClientError, is_local: bool) -> Finding {
    let remedy = if is_local {
        "start it with `mez edge`; an edge on another host: --edge HOST or MEZ_EDGE; another socket: --socket PATH"
    } else {
        "is `mez edge` running there? See its log"
    };
    Finding::fault(Check::Reach, error.to_string(), remedy)
}

/// The remedy for an obstacle.
fn remedy(failure: &ProbeFailure, place: &str) -> String {
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    match failure.obstacle {
        Obstacle::Name => format!(
            "is the name right (`getent hosts {host}`)? Give the address instead, or add it to /etc/hosts"
        ),
        Obstacle::Refused => {
            format!(
                "is `mez edge` running there, and is {port} its port? Give another one with --edge HOST:PORT"
            )
        }
        Obstacle::NoRoute => format!("is the network up, and the address right? `ip route get {host}`"),
        Obstacle::Silent => format!(
            "is the host on (`ping {host}`), and does a firewall block TCP port {port}? Open it at the edge host, and UDP 7650 for cameras"
        ),
        _ => format!(
            "another service has this port: see `ss -ltnp 'sport = :{port}'` on {host}, and give the edge's own port with --edge HOST:PORT"
        ),
    }
}
