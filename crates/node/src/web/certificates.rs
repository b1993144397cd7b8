//! When the certificates end that an edge uses, trusts, and was shown by cameras.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::watcher::Looked;
use crate::identity::Credentials;
use crate::identity::certificate::CertificateFacts;
use crate::identity::name::member;

/// A certificate, and when it ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Whose it is: `edge/main`, `camera/dock/cam1`, or `authority`.
    pub(super) of: String,
    pub(super) ends: Timestamp,
    /// The cameras of its host. `None`: it is the edge's or the authority's.
    pub(super) cameras: Option<Vec<CameraName>>,
}

/// How a certificate stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Ok,
    EndsSoon,
    Ended,
}

impl Standing {
    /// As events name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::EndsSoon => "ends_soon",
            Self::Ended => "ended",
        }
    }
}

impl Ending {
    /// How it stands at `now`. It ends soon if it ends within `soon`.
    pub(super) fn standing(&self, now: Timestamp, soon: Duration) -> Standing {
        match self.left(now) {
            Duration::ZERO => Standing::Ended,
            left if left <= soon => Standing::EndsSoon,
            _ => Standing::Ok,
        }
    }

    /// For how long it holds from `now` on.
    pub(super) fn left(&self, now: Timestamp) -> Duration {
        self.ends.saturating_since(now)
    }
}

/// The certificates of the edge and its authority, and those of the hosts of cameras, the first to end first.
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
