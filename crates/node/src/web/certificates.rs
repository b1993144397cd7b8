//! The expiry of the certificates that an edge uses, trusts, and was shown by cameras.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::watcher::Looked;
use crate::identity::Credentials;
use crate::identity::certificate::CertificateFacts;
use crate::identity::name::member;

/// A certificate and its expiry.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// The owner: `edge/main`, `camera/dock/cam1`, or `authority`.
    pub(super) of: String,
    pub(super) ends: Timestamp,
    /// The cameras of the host that owns the certificate. `None`: the owner is the edge or the authority.
    pub(super) cameras: Option<Vec<CameraName>>,
}

/// The state of a certificate at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Ok,
    EndsSoon,
    Ended,
}

impl Standing {
    /// The name in events.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::EndsSoon => "ends_soon",
            Self::Ended => "ended",
        }
    }
}

impl Ending {
    /// The state at `now`. The certificate ends soon if it expires within `soon`.
    pub(super) fn standing(&self, now: Timestamp, soon: Duration) -> Standing {
        match self.left(now) {
            Duration::ZERO => Standing::Ended,
            left if left <= soon => Standing::EndsSoon,
            _ => Standing::Ok,
        }
    }

    /// The time from `now` until expiry; zero after it.
    pub(super) fn left(&self, now: Timestamp) -> Duration {
        self.ends.saturating_since(now)
    }
}

/// The certificates of the edge, its authority and the hosts of cameras, sorted by expiry, soonest first.
pub(super) fn ending(credentials: &Credentials, cameras: &[Looked]) -> Vec<Ending> {
    let own = (credentials.identity().short(), credentials.validity().not_after);
    let authority = CertificateFacts::read(&credentials.authority()).ok();
    let authority = authority.map(|facts| ("authority".to_owned(), facts.validity.not_after));
    let of_edge = std::iter::once(own).chain(authority);
    // A host of several cameras has one certificate for all of them.
    let mut hosts: BTreeMap<&str, (SystemTime, Vec<CameraName>)> = BTreeMap::new();
    for looked in cameras {
        let Some(ends) = looked.camera.certificate_ends else { continue };
        let host = hosts.entry(&looked.camera.info.identity).or_insert_with(|| (ends, Vec::new()));
        host.1.push(looked.name().clone());
    }
    let hosts = hosts.into_iter().map(|(identity, (ends, cameras))| Ending {
        of: member(identity).to_owned(),
        ends: timestamp(ends),
        cameras: Some(cameras),
    });
    let of_edge = of_edge.map(|(of, ends)| Ending { of, ends: timestamp(ends), cameras: None });
    let mut all: Vec<_> = of_edge.chain(hosts).collect();
    all.sort_by(|one, other| (one.ends, &one.of).cmp(&(other.ends, &other.of)));
    all
}

fn timestamp(moment: SystemTime) -> Timestamp {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_ends_soon_before_it_has_ended() {
        let day = Duration::from_secs(86_400);
        let at = |days: u32| Timestamp::from_nanos(u64::try_from((day * days).as_nanos()).unwrap());
        let ending = Ending { of: "edge/main".into(), ends: at(30), cameras: None };
        let standing = |days| ending.standing(at(days), day * 7);
        assert_eq!(standing(22), Standing::Ok);
        assert_eq!(standing(23), Standing::EndsSoon);
        assert_eq!(standing(29), Standing::EndsSoon);
        assert_eq!(standing(30), Standing::Ended);
        assert_eq!(standing(31), Standing::Ended);
    }
}
