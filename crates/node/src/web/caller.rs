//! Identifies the caller: by a proxy's header, a session's cookie, the connection's certificate, or the token for metrics.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{self, HeaderMap, HeaderName};
use http::{StatusCode, Uri};
use mez_core::units::Timestamp;

use super::ScrapeToken;
use super::answers::SignedIn;
use super::fill::utc_ms;
use super::proxy::Proxy;
use super::response::Refused;
use super::sessions::{SESSION_LASTS, SessionKey, Sessions};
use crate::api::Principal;
use crate::identity::door::Said;

/// The header by which a browser tells where a request's page came from (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The other end of a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Peer {
    /// The address.
    pub(super) from: IpAddr,
    /// The member whose certificate was shown, if one was.
    pub(super) member: Option<Principal>,
    /// Frees the connection's place at the door. `None`: a known caller has used the connection.
    unknown: Arc<Mutex<Option<Said>>>,
}

impl Peer {
    pub(super) fn new(from: IpAddr, member: Option<Principal>, said: Said) -> Self {
        Self { from, member, unknown: Arc::new(Mutex::new(Some(said))) }
    }

    /// Notes that a known caller uses the connection, which frees its place at the door.
    pub(super) fn known(&self) {
        if let Some(mut said) = self.unknown.lock().unwrap_or_else(PoisonError::into_inner).take() {
            said.tell();
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// The caller of a request.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) principal: Principal,
    /// The session and its end, if the caller was identified by a session.
    session: Option<(Timestamp, SessionKey)>,
    /// Whether a proxy's header names the caller.
    pub(super) is_proxied: bool,
}

impl Caller {
    pub(super) fn signed_in(&self) -> SignedIn {
        SignedIn {
            identity: self.principal.bearer().to_string(),
            by: match self.session {
                _ if self.is_proxied => "proxy",
                Some(_) => "session",
                None => "certificate",
            },
            until_utc_ms: self.session.as_ref().map(|(ends, _)| utc_ms(*ends)),
        }
    }

    /// Whether the caller may go on: its session is still open, or it has none.
    pub(super) fn goes_on(&self, sessions: &Sessions) -> bool {
        self.session.is_none_or(|(_, key)| sessions.session(key).is_some())
    }

    /// The caller's session.
    pub(super) fn session(&self) -> Option<SessionKey> {
        self.session.map(|(_, key)| key)
    }
}

/// The name of the cookie. It contains the port, because browsers send the cookies of a host to all its
/// ports. Browsers accept the `__Host-` prefix over TLS only, for this host and for all paths (RFC 6265bis).
pub(super) fn cookie_name(port: u16) -> String {
    format!("__Host-mez-{port}")
}

/// The cookie of a new session. With an empty secret: a cookie that removes the session's cookie.
pub(super) fn cookie(port: u16, secret: &str) -> String {
    let lasts = if secret.is_empty() { 0 } else { SESSION_LASTS.as_secs() };
    format!("{}={secret}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={lasts}", cookie_name(port))
}

/// Identifies the caller. A proxy's header goes first, because it names the caller of this request. A session goes
/// before a certificate, because opening a link is deliberate. The certificate of a proxy never identifies a caller.
pub(super) fn caller(
    peer: &Peer,
    headers: &HeaderMap,
    (sessions, port): (&Sessions, u16),
    proxy: Option<&Proxy>,
) -> Result<Caller, Refused> {
    if let Some(principal) = proxy.map(|proxy| proxy.person(peer, headers)).transpose()?.flatten() {
        return Ok(Caller { principal, session: None, is_proxied: true });
    }
    let secret = cookie_of(headers, &cookie_name(port));
    let key = secret.map(SessionKey::of);
    if let Some(key) = key
        && let Some(signed) = sessions.session(key)
    {
        let session = Some((signed.ends_utc, key));
        return Ok(Caller { principal: signed.principal, session, is_proxied: false });
    }
    let member = peer.member.clone().filter(|member| !proxy.is_some_and(|proxy| proxy.is_proxy(member)));
    if let Some(principal) = member {
        return Ok(Caller { principal, session: None, is_proxied: false });
    }
    let detail = match secret {
        Some(_) => {
            "the session has ended, or the edge was restarted; run `mez edge open` on the edge's host, and open the link that it prints"
        }
        None => {
            "sign in: run `mez edge open` on the edge's host, and open the link that it prints; or use a client certificate of the site"
        }
    };
    Err(Refused::new(StatusCode::UNAUTHORIZED, "NOT_SIGNED_IN", detail))
}

/// Refuses requests from pages of another origin: the browser would add our cookie or certificate to them.
pub(super) fn same_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let refused = || {
        let detail = "the request comes from a page of another origin; open the edge's own page";
        Err(Refused::new(StatusCode::FORBIDDEN, "OTHER_ORIGIN", detail))
    };
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return refused();
    }
    let Some(origin) = text(&header::ORIGIN) else { return Ok(()) };
    // Over HTTP/2 the host is part of the URI.
    let host = uri.authority().map(http::uri::Authority::as_str).or_else(|| text(&header::HOST));
    match origin.strip_prefix("https://") {
        Some(of) if host.is_some_and(|host| host.eq_ignore_ascii_case(of)) => Ok(()),
        _ => refused(),
    }
}

/// What a request shows to scrape metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// No token.
    Nothing,
    /// The token for metrics.
    Token,
    /// Another token.
    Wrong,
    /// A token, and this edge has none.
    Unasked,
}

/// The kind of token that a request carries. Only `Bearer` counts (RFC 6750): a proxy before the edge may add other schemes.
pub(super) fn scrapes(headers: &HeaderMap, token: Option<&ScrapeToken>) -> Shown {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (value.split_once(' '), token) {
        (Some((scheme, given)), Some(token)) if scheme.eq_ignore_ascii_case("bearer") => {
            if token.is(given.trim()) { Shown::Token } else { Shown::Wrong }
        }
        (Some((scheme, _)), None) if scheme.eq_ignore_ascii_case("bearer") => Shown::Unasked,
        _ => Shown::Nothing,
    }
}

fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_pages_may_ask() {
        let (uri, relative) = ("https://edge:7653/api/v1/site".parse().unwrap(), "/api".parse().unwrap());
        for (given, ok) in [
            (headers(&[]), true),
            (headers(&[("sec-fetch-site", "same-origin")]), true),
            (headers(&[("sec-fetch-site", "none")]), true),
            (headers(&[("sec-fetch-site", "same-site")]), false),
            (headers(&[("sec-fetch-site", "cross-site")]), false),
            (headers(&[("origin", "https://edge:7653")]), true),
            (headers(&[("origin", "https://edge:7654")]), false),
            (headers(&[("origin", "http://edge:7653")]), false),
            (headers(&[("origin", "null")]), false),
        ] {
            assert_eq!(same_origin(&uri, &given).is_ok(), ok, "{given:?}");
        }
        let by_header = headers(&[("host", "edge:7653"), ("origin", "https://edge:7653")]);
        assert!(same_origin(&relative, &by_header).is_ok());
        let other = headers(&[("host", "edge:7653"), ("origin", "https://evil")]);
        assert!(same_origin(&relative, &other).is_err());
    }

    #[test]
    fn only_a_bearer_is_a_scrape_token() {
        let token = ScrapeToken("0123456789abcdef".into());
        for (value, shown, without) in [
            ("Bearer 0123456789abcdef", Shown::Token, Shown::Unasked),
            ("bearer  0123456789abcdef", Shown::Token, Shown::Unasked),
            ("Bearer 0123456789abcdeF", Shown::Wrong, Shown::Unasked),
            ("Basic dXNlcjpwYXNz", Shown::Nothing, Shown::Nothing),
            ("0123456789abcdef", Shown::Nothing, Shown::Nothing),
        ] {
            let given = headers(&[("authorization", value)]);
            assert_eq!((scrapes(&given, Some(&token)), scrapes(&given, None)), (shown, without), "{value}");
        }
        assert_eq!(scrapes(&headers(&[]), Some(&token)), Shown::Nothing);
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let name = cookie_name(7653);
        let given = headers(&[("cookie", "a=b; __Host-mez-7653=secret; __Host-mez-7654=other")]);
        assert_eq!(cookie_of(&given, &name), Some("secret"));
        assert_eq!(cookie_of(&headers(&[("cookie", "x__Host-mez-7653=no")]), &name), None);
    }
}
