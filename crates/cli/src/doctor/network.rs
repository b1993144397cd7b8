//! Asks each edge that this host uses, once. The other checks judge the answers.

use std::thread;

use mez_core::name::CameraPattern;
use mez_core::rights::Verb;
use mez_node::client::{Address, Checkup, ClientError, checkup};
use mez_node::identity::Role;
use mez_node::ports::EdgeAddress;
use mez_node::probe::{self, LinkReport, Obstacle, ProbeFailure};
use mez_node::runtime::block_on;

use super::finding::{Check, Finding};
use super::revocation::JOIN_AGAIN;
use super::subject::Subject;
use super::{clock, grant, in_force, mtu, reach, udp, version};

/// The answers of the edges.
#[derive(Default)]
pub(super) struct Answers {
    /// Of the links that cameras of this host use.
    pub(super) links: Vec<(EdgeAddress, Result<LinkReport, ProbeFailure>)>,
    /// Of the ports that applications of this host use.
    pub(super) edges: Vec<(Address, AppAnswer)>,
}

/// The answer of an edge to an application of this host.
pub(super) enum AppAnswer {
    /// The edge was not reached.
    Unreached(ProbeFailure),
    /// The edge was reached, but there are no credentials to ask with.
    Nobody,
    /// The edge answered.
    Asked(Result<Checkup, ClientError>),
}

impl Answers {
    /// Asks all edges at the same time. Each step has its own time limit.
    pub(super) fn ask(subject: &Subject) -> Self {
        thread::scope(|scope| {
            let links: Vec<_> = subject
                .links
                .iter()
                .map(|place| scope.spawn(move || (place.clone(), ask_link(subject, place))))
                .collect();
            let edges: Vec<_> = subject
                .edges
                .iter()
                .map(|address| scope.spawn(move || (address.clone(), ask_edge(subject, address))))
                .collect();
            Self {
                links: links.into_iter().filter_map(|asked| asked.join().ok()).collect(),
                edges: edges.into_iter().filter_map(|asked| asked.join().ok()).collect(),
            }
        })
    }

    /// The findings of all checks about the answers.
    pub(super) fn judge(&self, subject: &Subject) -> Vec<Finding> {
        let blamed = self.failures().filter_map(|(place, failure)| blame(&place, failure));
        [
            blamed.collect(),
            clock::check(subject, self),
            reach::check(subject, self),
            udp::check(self),
            mtu::check(self),
            version::check(self),
            grant::check(subject, self),
            in_force::check(subject, self),
        ]
        .concat()
    }

    /// The obstacle on the way to each edge. If QUIC and TCP differ, the more informative one.
    pub(super) fn failures(&self) -> impl Iterator<Item = (String, &ProbeFailure)> {
        let links = self.links.iter().filter_map(|(place, answer)| {
            let failure =
                match answer {
                    Err(failure) => failure,
                    Ok(LinkReport { tcp: Err(tcp), quic: Err(quic), .. }) => {
                        if blamed_on(tcp) == Check::Reach { more(tcp, quic) } else { tcp }
                    }
                    Ok(LinkReport { tcp: Err(tcp), quic: Ok(None), .. }) => tcp,
                    Ok(_) => return None,
                };
            Some((place.to_string(), failure))
        });
        let edges = self.edges.iter().filter_map(|(address, answer)| match answer {
            AppAnswer::Unreached(failure) => Some((address.to_string(), failure)),
            AppAnswer::Nobody | AppAnswer::Asked(_) => None,
        });
        links.chain(edges)
    }
}

/// The failure over QUIC may be more informative than that over TCP.
fn more<'a>(tcp: &'a ProbeFailure, quic: &'a ProbeFailure) -> &'a ProbeFailure {
    if blamed_on(quic) == Check::Reach { tcp } else { quic }
}

/// The check that reports a failure.
pub(super) fn blamed_on(failure: &ProbeFailure) -> Check {
    match failure.obstacle {
        Obstacle::Site | Obstacle::Identity => Check::Certificate,
        Obstacle::Revoked => Check::Revocation,
        Obstacle::Clock => Check::Clock,
        Obstacle::Version => Check::Version,
        _ => Check::Reach,
    }
}

/// A finding about a certificate that only the other side rejected.
fn blame(place: &str, failure: &ProbeFailure) -> Option<Finding> {
    let check = blamed_on(failure);
    [Check::Certificate, Check::Revocation].contains(&check).then(|| {
        let remedy = match failure.obstacle {
            Obstacle::Site => {
                "compare the authorities: `mez keys show` on both hosts must print the same fingerprint; otherwise enrol again \
                 (`mez keys enrol TOKEN --edge HOST --keys DIR`)"
            }
            Obstacle::Revoked => JOIN_AGAIN,
            _ => "see `mez keys list`; make a token for the right role: `mez keys token camera/NAME` or `mez keys token app/NAME`",
        };
        Finding::fault(check, format!("{place}: {}", failure.text), remedy)
    })
}

fn ask_link(subject: &Subject, place: &EdgeAddress) -> Result<LinkReport, ProbeFailure> {
    let asking = subject.usable(Role::Camera).zip(subject.camera.as_ref());
    block_on(probe::link(place, asking)).map_err(|error| failed_here(&error)).flatten()
}

fn ask_edge(subject: &Subject, address: &Address) -> AppAnswer {
    let credentials = subject.usable(Role::App);
    let asked = block_on(async {
        if let Address::Tcp { host, port } = address {
            if let Err(failure) = probe::grpc(host, *port, credentials).await {
                return AppAnswer::Unreached(failure);
            }
            if credentials.is_none() {
                return AppAnswer::Nobody;
            }
        }
        AppAnswer::Asked(checkup(address.clone(), credentials, &wanted(subject)).await)
    });
    asked.unwrap_or_else(|error| AppAnswer::Unreached(failed_here(&error)))
}

/// What applications of this host need. By default, to see any camera.
pub(super) fn wanted(subject: &Subject) -> Vec<(Verb, CameraPattern)> {
    if !subject.wanted.is_empty() {
        return subject.wanted.clone();
    }
    let everything: CameraPattern = "**".parse().expect("a constant that is a pattern");
    vec![(Verb::Watch, everything.clone()), (Verb::Read, everything)]
}

fn failed_here(error: &std::io::Error) -> ProbeFailure {
    ProbeFailure { obstacle: Obstacle::Own, text: format!("this host cannot connect: {error}") }
}
