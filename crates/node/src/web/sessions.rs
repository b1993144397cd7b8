//! Signs browsers in: one-time links, and the sessions that they begin.
//!
//! Only digests of secrets are kept, so that nobody can use what is in memory. Links and sessions are
//! only in memory: a restart of the edge ends all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mez_core::admission::Address;
use mez_core::units::{Instant, Timestamp};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::api::Principal;
use crate::clock::{monotonic_now, wall_now};

/// How long a link works.
pub(crate) const LINK_LASTS: Duration = Duration::from_secs(5 * 60);
/// How long a session lasts, used or not.
pub(crate) const SESSION_LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// The most links that wait to be opened. Beyond that, a link of the principal with the most links ends.
const LINKS_MAX: usize = 64;
/// The most sessions. Beyond that, a session of the principal with the most sessions ends.
const SESSIONS_MAX: usize = 256;
/// The most links and the most sessions of one principal. Beyond that, its own oldest ends.
const OF_PRINCIPAL_MAX: usize = 16;
/// The most attempts with a wrong token from one address (an IPv6 network of 64 bits counts as one) within [`ATTEMPTS_WINDOW`].
pub(super) const ATTEMPTS_MAX: u32 = 10;
/// The window of [`ATTEMPTS_MAX`].
const ATTEMPTS_WINDOW: Duration = Duration::from_secs(60);
/// The most addresses whose attempts are counted. Beyond that, wrong attempts from further addresses are refused until a window ends.
const ADDRESSES_MAX: usize = 256;
/// Random bytes in the secret of a link or session.
const SECRET_BYTES: usize = 32;

/// The digest of a secret.
type Digest = [u8; 32];

/// Identifies a session by the digest of its secret. It cannot be used to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey(Digest);

impl SessionKey {
    /// The key of the session with this secret.
    pub(crate) fn of(secret: &str) -> Self {
        Self(hash(secret))
    }
}

/// The links and sessions of an edge's page.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Sorted by expiry, soonest first.
    links: VecDeque<(Digest, Signed)>,
    /// Sorted by expiry, soonest first.
    sessions: VecDeque<(Digest, Signed)>,
    /// By address: when the first wrong attempt of the window was made, and the number of wrong attempts.
    failed: HashMap<Address, (Instant, u32)>,
}

/// A signed-in principal, and when its link or session ends.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) principal: Principal,
    ends: Instant,
    /// The end by the wall clock, for people.
    pub(crate) ends_utc: Timestamp,
}

/// The secret of a new link or session.
pub(crate) struct Issued {
    pub(crate) secret: String,
    pub(crate) signed: Signed,
}

/// Why a sign-in failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignInError {
    #[error(
        "this link was already used, has expired, or was made before a restart of the edge; make another link with `mez edge open` on the edge's host"
    )]
    Unknown,
    #[error("too many wrong links came from this address; wait a minute")]
    TooMany,
}

/// A link could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes; try again")]
pub(crate) struct NoRandomness;

impl Sessions {
    /// Makes a link whose secret signs `principal` in once.
    pub(crate) fn link(&self, principal: Principal) -> Result<Issued, NoRandomness> {
        let issued = issue(principal, LINK_LASTS).map_err(|_| NoRandomness)?;
        keep(&mut self.lock().links, &issued, LINKS_MAX);
        Ok(issued)
    }

    /// Begins the session that a link is for. The link is used up.
    pub(crate) fn sign_in(&self, from: Address, secret: &str) -> Result<Issued, SignInError> {
        let (now, hash) = (monotonic_now(), hash(secret));
        let mut kept = self.lock();
        // A valid link works, whatever others at this address have tried.
        let link = kept.links.iter().find(|(link, signed)| *link == hash && now < signed.ends);
        let Some((_, link)) = link else { return Err(kept.wrong(now, from)) };
        let issued = issue(link.principal.clone(), SESSION_LASTS).map_err(|_| SignInError::Unknown)?;
        keep(&mut kept.sessions, &issued, SESSIONS_MAX);
        kept.links.retain(|(link, _)| *link != hash);
        Ok(issued)
    }

    /// The owner and end of a session. `None`: it has ended, or is unknown.
    pub(crate) fn session(&self, SessionKey(hash): SessionKey) -> Option<Signed> {
        let now = monotonic_now();
        let kept = self.lock();
        let (_, signed) = kept.sessions.iter().find(|(session, _)| *session == hash)?;
        (now < signed.ends).then(|| signed.clone())
    }

    /// Ends a session.
    pub(crate) fn sign_out(&self, SessionKey(hash): SessionKey) {
        self.lock().sessions.retain(|(session, _)| *session != hash);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Each statement leaves the state consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Counts an attempt from this address with an unknown link. Returns the error for it.
    fn wrong(&mut self, now: Instant, from: Address) -> SignInError {
        self.failed.retain(|_, (first, _)| now.saturating_since(*first) < ATTEMPTS_WINDOW);
        let is_ok = match self.failed.get(&from) {
            Some((_, failed)) => *failed < ATTEMPTS_MAX,
            None => self.failed.len() < ADDRESSES_MAX,
        };
        if !is_ok {
            return SignInError::TooMany;
        }
        self.failed.entry(from).or_insert((now, 0)).1 += 1;
        SignInError::Unknown
    }
}

fn issue(principal: Principal, lasts: Duration) -> Result<Issued, ring::error::Unspecified> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    let ends_utc = Timestamp::from_nanos(wall_now().as_nanos() + lasts.as_nanos() as u64);
    let signed = Signed { principal, ends: monotonic_now() + lasts, ends_utc };
    Ok(Issued { secret: URL_SAFE_NO_PAD.encode(bytes), signed })
}

/// Adds a link or session. All of a kind last equally long, so the queue stays sorted by expiry.
///
/// If there is no room, the oldest entry of a principal with the most entries is removed; or the principal's own, if
/// no other has more. So a principal with many entries locks nobody out, and ends no entry of a principal with fewer.
fn keep(kept: &mut VecDeque<(Digest, Signed)>, issued: &Issued, max: usize) {
    let now = monotonic_now();
    while kept.front().is_some_and(|(_, first)| now >= first.ends) {
        kept.pop_front();
    }
    let of = |principal: &Principal| kept.iter().filter(|(_, signed)| signed.principal == *principal).count();
    let own = of(&issued.signed.principal);
    let ends = if own >= OF_PRINCIPAL_MAX {
        Some(issued.signed.principal.clone())
    } else if kept.len() >= max {
        let most = kept.iter().map(|(_, signed)| of(&signed.principal)).max().unwrap_or_default();
        let oldest = kept.iter().map(|(_, signed)| &signed.principal).find(|principal| of(principal) == most);
        if own >= most { Some(issued.signed.principal.clone()) } else { oldest.cloned() }
    } else {
        None
    };
    if let Some(place) = ends.and_then(|ends| kept.iter().position(|(_, signed)| signed.principal == ends)) {
        kept.remove(place);
    }
    kept.push_back((hash(&issued.secret), issued.signed.clone()));
}

fn hash(secret: &str) -> Digest {
    let mut hash = Digest::default();
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn address(last: u8) -> Address {
        IpAddr::from(Ipv4Addr::new(10, 0, 0, last)).into()
    }

    fn link(sessions: &Sessions, uid: u32) -> String {
        sessions.link(Principal::User { uid }).unwrap_or_else(|error| panic!("{error}")).secret
    }

    fn sign_in(sessions: &Sessions, uid: u32) -> Result<SessionKey, SignInError> {
        let issued = sessions.sign_in(address(1), &link(sessions, uid))?;
        Ok(SessionKey::of(&issued.secret))
    }

    #[test]
    fn a_link_signs_in_once() {
        let sessions = Sessions::default();
        let link = link(&sessions, 7);
        let issued = sessions.sign_in(address(1), &link).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(issued.secret, link);
        let key = SessionKey::of(&issued.secret);
        let signed = sessions.session(key).expect("it has begun");
        assert_eq!(signed.principal, Principal::User { uid: 7 });
        assert_eq!(sessions.sign_in(address(1), &link).err(), Some(SignInError::Unknown));
        assert!(sessions.session(SessionKey::of(&link)).is_none(), "a link is no session");
        sessions.sign_out(key);
        assert!(sessions.session(key).is_none());
    }

    #[test]
    fn wrong_links_are_limited_by_address_and_keep_no_right_one_out() {
        let sessions = Sessions::default();
        for _ in 0..ATTEMPTS_MAX {
            assert_eq!(sessions.sign_in(address(1), "guess").err(), Some(SignInError::Unknown));
        }
        assert_eq!(sessions.sign_in(address(1), "guess").err(), Some(SignInError::TooMany));
        assert_eq!(sessions.sign_in(address(2), "guess").err(), Some(SignInError::Unknown));
        assert!(sign_in(&sessions, 1).is_ok(), "whoever shares the address with a guesser gets in");
    }

    /// A principal that makes links in a loop ends only its own links and sessions.
    #[test]
    fn nobody_takes_the_sessions_or_links_of_others() {
        let sessions = Sessions::default();
        let other = sign_in(&sessions, 1).expect("there is room");
        let own: Vec<_> =
            (0..=OF_PRINCIPAL_MAX).map(|_| sign_in(&sessions, 2).expect("there is room")).collect();
        assert!(sessions.session(own[0]).is_none(), "its own oldest ended");
        assert!(own[1..].iter().chain([&other]).all(|key| sessions.session(*key).is_some()));
        let waits = link(&sessions, 1);
        (0..2 * LINKS_MAX).for_each(|_| drop(link(&sessions, 2)));
        assert!(sessions.sign_in(address(1), &waits).is_ok());
    }

    /// Some users of a host together fill all places. A principal with few entries gets in, and keeps its entries.
    #[test]
    fn many_that_fill_all_places_lock_nobody_out() {
        let sessions = Sessions::default();
        let others = SESSIONS_MAX / OF_PRINCIPAL_MAX;
        let fill = || {
            for _ in 0..OF_PRINCIPAL_MAX {
                for uid in 2..2 + others as u32 {
                    sign_in(&sessions, uid).expect("it has a place");
                    link(&sessions, uid);
                }
            }
        };
        fill();
        assert_eq!(sessions.lock().sessions.len(), SESSIONS_MAX);
        assert_eq!(sessions.lock().links.len(), LINKS_MAX);
        let waits = link(&sessions, 1);
        let owner = sign_in(&sessions, 1).expect("the oldest of one that has most ends");
        fill();
        assert!(sessions.session(owner).is_some(), "others have more, so theirs end");
        assert!(sessions.sign_in(address(1), &waits).is_ok());
        assert_eq!(sessions.lock().sessions.len(), SESSIONS_MAX);
        assert!(sessions.lock().links.len() <= LINKS_MAX);
    }
}
