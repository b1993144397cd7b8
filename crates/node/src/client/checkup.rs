//! Asks an edge for the facts that a checkup needs. Changes nothing at the edge.

use std::time::Duration;

use mez_core::name::CameraPattern;
use mez_core::revocation::Certificate;
use mez_core::rights::Verb;
use mez_core::units::Timestamp;

use super::address::Address;
use super::dial::Dialler;
use super::error::ClientError;
use crate::api::pb;
use crate::api::socket::Which;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::Credentials;

/// The answers of an edge broker.
#[derive(Clone, Debug)]
pub struct Checkup {
    /// The broker's software, for people.
    pub software: String,
    /// The difference between the edge's wall clock and this host's.
    pub clock: WallDifference,
    /// This program's identity at the edge, in the form of grants. Empty if no right was asked for.
    pub who: String,
    /// The rights that are refused, with the reason.
    pub refused: Vec<(Verb, CameraPattern, String)>,
    /// What is in force at the edge. Only for a program of the edge's own user.
    pub in_force: Option<InForce>,
}

/// What is in force at a running edge. Its files may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The certificate that the edge shows. `None`: it cannot be read.
    pub certificate: Option<Certificate>,
    /// The version of the deny list.
    pub revoked_version: u64,
    /// The number of grants.
    pub grants: u64,
    /// The [`digest()`](crate::rights::digest()) of the rights.
    pub rights: Vec<u8>,
}

impl From<pb::InForce> for InForce {
    fn from(answer: pb::InForce) -> Self {
        let certificate = || {
            let (member, serial) = (answer.member.parse().ok()?, answer.serial.parse().ok()?);
            Some(Certificate { member, serial, issued: Timestamp::from_nanos(answer.issued_utc_ns) })
        };
        Self {
            certificate: certificate(),
            revoked_version: answer.revoked_version,
            grants: answer.grants,
            rights: answer.rights_sha256.to_vec(),
        }
    }
}

/// The difference between another host's wall clock and this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallDifference {
    /// The absolute difference.
    pub by: Duration,
    /// Whether the other clock is ahead of this host's.
    pub is_ahead: bool,
    /// The maximum error of the difference: half the round trip.
    pub error: Duration,
}

impl WallDifference {
    /// Computes the difference from the other host's time, this host's time at the answer, and the round trip.
    pub fn new(theirs: Timestamp, ours: Timestamp, round_trip: Duration) -> Self {
        let error = round_trip / 2;
        let (theirs, ours) = (theirs.as_nanos(), (ours - error).as_nanos());
        let by = Duration::from_nanos(theirs.abs_diff(ours));
        Self { by, is_ahead: theirs > ours, error }
    }

    /// The least possible difference.
    pub fn at_least(&self) -> Duration {
        self.by.saturating_sub(self.error)
    }
}

/// Asks the edge at `address` for its version and clock, and whether this program has the `wanted` rights.
pub async fn checkup(
    address: Address,
    credentials: Option<&Credentials>,
    wanted: &[(Verb, CameraPattern)],
) -> Result<Checkup, ClientError> {
    let edge = Dialler::new(address, Which::Edge, credentials)?;
    // The first call sets up the connection, which takes several round trips.
    edge.connect().await?;
    let asked = monotonic_now();
    let greeting = edge.connect().await?;
    let (round_trip, ours) = (monotonic_now().saturating_since(asked), wall_now());
    let theirs = Timestamp::from_nanos(greeting.broker_utc_ns);
    let clock = WallDifference::new(theirs, ours, round_trip);
    let mut found = Checkup {
        software: greeting.software,
        clock,
        who: String::new(),
        refused: Vec::new(),
        in_force: None,
    };
    if wanted.is_empty() {
        return Ok(found);
    }
    let question = |(verb, pattern): &(Verb, CameraPattern)| pb::WantedRight {
        verb: verb.to_string(),
        pattern: pattern.to_string(),
    };
    let request = pb::CheckRightsRequest { wanted: wanted.iter().map(question).collect() };
    let answer = edge.check_rights(request).await?;
    if answer.refusals.len() != wanted.len() {
        return Err(edge.protocol("answers that do not fit the questions"));
    }
    found.who = answer.who;
    found.in_force = answer.in_force.map(InForce::from);
    let refused = wanted.iter().zip(answer.refusals).filter(|(_, why)| !why.is_empty());
    found.refused = refused.map(|((verb, pattern), why)| (*verb, pattern.clone(), why)).collect();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_clocks_is_no_larger_than_the_way_explains() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let second = Duration::from_secs(1);
        let ahead = WallDifference::new(at(160), at(101), 2 * second);
        assert_eq!((ahead.by, ahead.is_ahead, ahead.error), (60 * second, true, second));
        let behind = WallDifference::new(at(40), at(100), Duration::ZERO);
        assert_eq!((behind.at_least(), behind.is_ahead), (60 * second, false));
        assert_eq!(WallDifference::new(at(101), at(101), 4 * second).at_least(), Duration::ZERO);
    }
}
