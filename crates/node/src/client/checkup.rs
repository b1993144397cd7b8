//! Asks an edge what a checkup needs to know, and changes nothing there.

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

/// What an edge broker answered.
#[derive(Clone, Debug)]
pub struct Checkup {
    /// Its software, for people.
    pub software: String,
    /// How its wall clock differs from this host's.
    pub clock: WallDifference,
    /// Who this program is to the edge, as grants name it; nothing if nothing was wanted.
    pub who: String,
    /// What was wanted and is refused, with the reason.
    pub refused: Vec<(Verb, CameraPattern, String)>,
    /// What the edge goes by, if this program is its own user's.
    pub in_force: Option<InForce>,
}

/// What an edge that runs goes by. Its files may say something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The certificate that it shows. `None`: it cannot be read.
    pub certificate: Option<Certificate>,
    /// The version of its deny list.
    pub revoked_version: u64,
    /// The number of its grants.
    pub grants: u64,
    /// The [`digest()`](crate::rights::digest()) of its rights.
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

/// How the wall clock of another host differs from this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallDifference {
    /// How far it is from this one.
    pub by: Duration,
    /// Whether it is ahead of this host's.
    pub is_ahead: bool,
    /// How wrong that can be: half the round trip of the question.
    pub error: Duration,
}

impl WallDifference {
    /// From what the other host said, when the answer had come and how long that took.
    pub fn new(theirs: Timestamp, ours: Timestamp, round_trip: Duration) -> Self {
        let error = round_trip / 2;
        let (theirs, ours) = (theirs.as_nanos(), (ours - error).as_nanos());
        let by = Duration::from_nanos(theirs.abs_diff(ours));
        Self { by, is_ahead: theirs > ours, error }
    }

    /// How far the clocks differ at least.
    pub fn at_least(&self) -> Duration {
        self.by.saturating_sub(self.error)
    }
}

/// Asks the edge at `address` for its version and its clock, and whether this program may do what is `wanted`.
pub async fn checkup(
    address: Address,
    credentials: Option<&Credentials>,
    wanted: &[(Verb, CameraPattern)],
) -> Result<Checkup, ClientError> {
    let edge = Dialler::new(address, Which::Edge, credentials)?;
    // The first answer brings the connection about, which takes several round trips.
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
