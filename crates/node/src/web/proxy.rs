//! The header by which a reverse proxy names the caller ([page.md](../../../../docs/page.md#behind-a-reverse-proxy)).
//!
//! The header is only as trustworthy as its sender. So it counts only from the senders that the settings name. A request that
//! carries it from any other sender is refused: either a caller claims to be someone else, or the settings do not name the proxy.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use tracing::warn;

use super::caller::Peer;
use super::response::Refused;
use crate::api::Principal;
use crate::api::principal::Member;
use crate::identity::{Identity, Name, Role, SiteName};
use crate::revocation::of_person;

/// The folder of application names for people whom a proxy has signed in. So a person cannot get the grants of a program by using its name.
pub(super) const FOLDER: &str = "proxy";
/// The most people that are remembered as reported to the audit log. Beyond that, the person reported longest ago is reported again on return.
const TOLD_MAX: usize = 256;
/// Headers with another meaning, which cannot name a caller.
const OTHERS: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::CONTENT_TYPE,
    header::HOST,
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
];

/// The header that names the caller, and the senders that may set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The header.
    pub name: ProxyHeaderName,
    /// The senders that may set the header. Empty: nobody.
    pub from: Vec<ProxySender>,
}

/// The name of a header that names the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyHeaderName(HeaderName);

impl FromStr for ProxyHeaderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name: HeaderName =
            text.parse().map_err(|_| "write the name of a header, such as X-Remote-User".to_owned())?;
        if OTHERS.contains(&name) {
            return Err(format!("{name} has another meaning; use another header, such as X-Remote-User"));
        }
        Ok(Self(name))
    }
}

impl fmt::Display for ProxyHeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A sender that may name the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxySender {
    /// Any process on the edge's host, whichever user runs it.
    Loopback,
    /// Anyone who shows the certificate of this application.
    App(Name),
}

impl FromStr for ProxySender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write loopback, or the application whose certificate the proxy shows, such as app/gateway"
                .to_owned()
        };
        match text.strip_prefix("app/") {
            Some(name) => name.parse().map(Self::App).map_err(|_| wrong()),
            None if text == "loopback" => Ok(Self::Loopback),
            None => Err(wrong()),
        }
    }
}

impl fmt::Display for ProxySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::App(name) => write!(f, "app/{name}"),
        }
    }
}

/// The proxy header of a running port.
pub(super) struct Proxy {
    header: ProxyHeader,
    site: SiteName,
    /// A request from a sender that is not a proxy was refused, and a warning was logged.
    told_of_strangers: AtomicBool,
    /// A header that names no person was refused, and a warning was logged.
    told_of_names: AtomicBool,
    /// People that were reported to the audit log, longest ago first.
    told: Mutex<VecDeque<Name>>,
}

impl Proxy {
    pub(super) fn new(header: ProxyHeader, site: SiteName) -> Self {
        let (told_of_strangers, told_of_names) = (AtomicBool::default(), AtomicBool::default());
        Self { header, site, told_of_strangers, told_of_names, told: Mutex::default() }
    }

    /// The caller that the header names. `None`: the request has no such header.
    pub(super) fn person(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Principal>, Refused> {
        let name = &self.header.name;
        let mut values = headers.get_all(&name.0).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if !self.counts_from(peer) {
            if !self.told_of_strangers.swap(true, Ordering::Relaxed) {
                warn!(
                    from = %peer.from, header = %name,
                    "a request was refused: it names its user in a header, but does not come from a proxy in web_proxy_from; further requests like \
                     this are refused without a log line"
                );
            }
            let detail = format!(
                "only a proxy in web_proxy_from may send the header {name}: add the proxy to web_proxy_from, and make sure that nobody else can \
                 send this header"
            );
            return Err(Refused::new(StatusCode::FORBIDDEN, "NOT_A_PROXY", detail));
        }
        let person =
            value.to_str().ok().filter(|_| values.next().is_none()).and_then(|person| self.named(person));
        person.map(Some).ok_or_else(|| {
            if !self.told_of_names.swap(true, Ordering::Relaxed) {
                warn!(
                    from = %peer.from, header = %name,
                    "a request was refused: the name of the user that the proxy sent is not valid; further requests like this are refused without \
                     a log line"
                );
            }
            let detail = format!(
                "the header {name} must occur once, with the name of a person: 1 to 64 letters, digits, '.', '_' and '-'"
            );
            Refused::new(StatusCode::FORBIDDEN, "NO_PERSON", detail)
        })
    }

    /// Whether a member is a proxy, which names callers and so is never one itself.
    pub(super) fn is_proxy(&self, member: &Principal) -> bool {
        let Principal::Member(Member { identity, .. }) = member else { return false };
        let is = |sender: &ProxySender| matches!(sender, ProxySender::App(name) if *name == identity.name);
        identity.role == Role::App && self.header.from.iter().any(is)
    }

    /// Whether this person is still to be reported to the audit log. The person counts as reported from now on.
    pub(super) fn is_news(&self, person: &Principal) -> bool {
        let Principal::Member(Member { identity, .. }) = person else { return false };
        // Each statement leaves the queue consistent, so a poisoned lock is safe to use.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&identity.name) {
            return false;
        }
        if told.len() >= TOLD_MAX {
            told.pop_front();
        }
        told.push_back(identity.name.clone());
        true
    }

    fn counts_from(&self, peer: &Peer) -> bool {
        let is_loopback = || peer.from.to_canonical().is_loopback();
        let by_address = self.header.from.contains(&ProxySender::Loopback) && is_loopback();
        by_address || peer.member.as_ref().is_some_and(|member| self.is_proxy(member))
    }

    fn named(&self, person: &str) -> Option<Principal> {
        if person.contains('/') {
            return None;
        }
        let name = format!("{FOLDER}/{person}").parse().ok()?;
        let identity = Identity { site: self.site.clone(), role: Role::App, name };
        let certificate = of_person(&identity)?;
        Some(Principal::Member(Member { identity, certificate }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::identity::door::Said;

    fn peer(from: &str, member: Option<&str>) -> Peer {
        let from: IpAddr = from.parse().unwrap();
        let member = member.map(|name| {
            let site: SiteName = "test".parse().unwrap();
            let identity = Identity::parse_within(&site, name).unwrap();
            let certificate = of_person(&identity).unwrap();
            Principal::Member(Member { identity, certificate })
        });
        Peer::new(from, member, Said::default())
    }

    fn proxy(from: &[&str]) -> Proxy {
        let from = from.iter().map(|sender| sender.parse().unwrap()).collect();
        Proxy::new(ProxyHeader { name: "X-Remote-User".parse().unwrap(), from }, "test".parse().unwrap())
    }

    fn asks(proxy: &Proxy, peer: &Peer, people: &[&str]) -> Result<Option<String>, String> {
        let mut headers = HeaderMap::new();
        for person in people {
            headers.append("x-remote-user", person.parse().unwrap());
        }
        let asked = proxy.person(peer, &headers);
        asked.map(|who| who.map(|who| who.short())).map_err(|refused| refused.reason.into_owned())
    }

    #[test]
    fn the_header_counts_only_from_whom_the_settings_name() {
        let (local, mapped, remote) = ("127.0.0.1", "::ffff:127.0.0.1", "10.0.0.9");
        let alice = || Ok(Some("app/proxy/alice".to_owned()));
        let refused = || Err("NOT_A_PROXY".to_owned());
        for (senders, from, member, expected) in [
            (&["loopback"][..], local, None, alice()),
            (&["loopback"], mapped, None, alice()),
            (&["loopback"], local, Some("app/counter"), alice()),
            (&["loopback"], remote, None, refused()),
            (&["loopback"], remote, Some("app/gateway"), refused()),
            (&["app/gateway"], remote, Some("app/gateway"), alice()),
            (&["app/gateway"], remote, Some("app/gateway/2"), refused()),
            (&["app/gateway"], local, None, refused()),
            (&["app/gateway"], local, Some("app/counter"), refused()),
            (&[], local, Some("app/gateway"), refused()),
        ] {
            let asked = asks(&proxy(senders), &peer(from, member), &["alice"]);
            assert_eq!(asked, expected, "{senders:?} {from} {member:?}");
        }
        assert_eq!(asks(&proxy(&["loopback"]), &peer(remote, None), &[]), Ok(None));
    }

    #[test]
    fn only_one_plain_name_is_a_person() {
        let (proxy, local) = (proxy(&["loopback"]), peer("::1", None));
        for people in [
            &[""][..],
            &["app/counter"],
            &["../x"],
            &["a@b"],
            &["a b"],
            &["é"],
            &[".."],
            &["a", "b"],
            &["a", "a"],
        ] {
            assert_eq!(asks(&proxy, &local, people), Err("NO_PERSON".into()), "{people:?}");
        }
        let longest = "x".repeat(64);
        assert_eq!(asks(&proxy, &local, &[&longest]), Ok(Some(format!("app/proxy/{longest}"))));
        assert_eq!(asks(&proxy, &local, &[&format!("{longest}x")]), Err("NO_PERSON".into()));
    }

    #[test]
    fn settings_are_read_or_say_what_to_write() {
        for bad in ["", "X Remote", "Cookie", "host", "Authorization"] {
            assert!(bad.parse::<ProxyHeaderName>().unwrap_err().contains("X-Remote-User"), "{bad}");
        }
        for bad in ["", "Loopback", "gateway", "app/", "camera/x", "10.0.0.9"] {
            assert!(bad.parse::<ProxySender>().unwrap_err().contains("app/gateway"), "{bad}");
        }
        for good in ["loopback", "app/gateway"] {
            assert_eq!(good.parse::<ProxySender>().unwrap().to_string(), good);
        }
    }

    #[test]
    fn people_are_told_once_and_remembered_within_a_bound() {
        let proxy = proxy(&["loopback"]);
        let named = |number: usize| proxy.named(&format!("p{number}")).unwrap();
        assert!(proxy.is_news(&named(0)) && !proxy.is_news(&named(0)));
        (1..=TOLD_MAX).for_each(|number| assert!(proxy.is_news(&named(number))));
        assert!(proxy.is_news(&named(0)), "it was forgotten for others");
    }
}
