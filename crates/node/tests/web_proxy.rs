//! Users signed in by a reverse proxy: which proxies are trusted, what is refused, and which grants users do not get.

mod api_support;
mod web_support;

use std::sync::Arc;
use std::time::SystemTime;

use api_support::Site;
use http::StatusCode;
use mez_core::revocation::{Entry, Revocations};
use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::units::Timestamp;
use mez_node::api::ApiServer;
use mez_node::edge::EdgeHandle;
use mez_node::identity::Role;
use mez_node::revocation::{SignedList, Taken, seconds};
use mez_node::rights::LiveRights;
use mez_node::web::{ProxyHeader, WebOptions, WebServer};
use tokio::sync::watch;
use web_support::{Browser, faults};

const HEADER: &str = "x-remote-user";

/// An edge whose page trusts some proxies. `app/proxy/alice` and `app/counter` may observe.
struct World {
    site: Site,
    edge: EdgeHandle,
    web: WebServer,
    _rights: watch::Sender<Arc<Rights>>,
    _server: ApiServer,
}

impl World {
    async fn with(from: Option<&[&str]>) -> Self {
        let site = Site::new();
        let edge = site.edge();
        let grants = ["app/proxy/alice", "app/counter", "app/gateway"].map(|grantee| Grant {
            grantee: grantee.parse().unwrap(),
            verb: Verb::Observe,
            cameras: "**".parse().unwrap(),
        });
        let (rights, live) = LiveRights::changing(Rights::new(Stance::Deny, grants));
        let (server, ..) = site.serve_edge_with(&edge, live).await;
        let mut options = WebOptions::new("127.0.0.1:0".parse().unwrap());
        options.proxy = from.map(|from| ProxyHeader {
            name: "X-Remote-User".parse().unwrap(),
            from: from.iter().map(|sender| sender.parse().unwrap()).collect(),
        });
        let web = WebServer::start(&server, &site.credentials(Role::Edge, "edge"), options).await.unwrap();
        Self { site, edge, web, _rights: rights, _server: server }
    }

    fn stranger(&self) -> Browser {
        Browser::stranger(self.web.address(), &self.site.credentials(Role::Edge, "edge"))
    }

    fn member(&self, name: &str) -> Browser {
        Browser::member(self.web.address(), &self.site.credentials(Role::App, name))
    }

    fn revoke(&self, member: &str) {
        let entry =
            Entry { since: seconds(SystemTime::now()), until: Timestamp::MAX, because: "left".into() };
        let keys = self.site.keys.keys();
        let list = Revocations::none(keys.site().as_str());
        let list = list.with(Timestamp::MIN, member.parse().unwrap(), entry).unwrap();
        let list = SignedList::sign(&keys.load_authority().unwrap(), list).unwrap();
        assert_eq!(self.edge.revoked().take(list.bytes, "a test"), Ok(Taken::News));
    }
}

/// The identity of a browser's session, or the error.
async fn who(browser: &Browser) -> Result<(String, String), (StatusCode, String)> {
    let got = browser.get("/api/v1/session").await;
    let json = got.json();
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    if got.status != StatusCode::OK {
        return Err((got.status, text("reason")));
    }
    assert_eq!(faults(&json, "SignedIn"), [""; 0]);
    Ok((text("identity"), text("by")))
}

fn refused(status: StatusCode, reason: &str) -> Result<(String, String), (StatusCode, String)> {
    Err((status, reason.to_owned()))
}

fn known(identity: &str, by: &str) -> Result<(String, String), (StatusCode, String)> {
    Ok((identity.to_owned(), by.to_owned()))
}

#[tokio::test]
async fn a_proxy_on_the_host_names_people_who_get_what_they_were_granted() {
    let world = World::with(Some(&["loopback"])).await;
    let alice = world.stranger().sending(HEADER, "alice");
    assert_eq!(who(&alice).await, known("app/proxy/alice", "proxy"));
    assert_eq!(who(&alice.over_http2()).await, known("app/proxy/alice", "proxy"));
    assert_eq!(alice.get("/api/v1/cameras").await.status, StatusCode::OK);
    // A user does not get the grants of a program with the same name.
    for name in ["bob", "counter"] {
        let got = world.stranger().sending(HEADER, name).get("/api/v1/cameras").await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{}", got.text());
        assert!(got.text().contains(&format!("app/proxy/{name}")), "{}", got.text());
    }
    // The proxy's header takes precedence over a certificate on the same connection.
    let member = world.member("counter");
    assert_eq!(who(&member.sending(HEADER, "alice")).await, known("app/proxy/alice", "proxy"));
    assert_eq!(who(&member).await, known("app/counter", "certificate"));
    assert_eq!(who(&world.stranger()).await, refused(StatusCode::UNAUTHORIZED, "NOT_SIGNED_IN"));
    // Pages of other origins cannot send requests for users.
    assert_eq!(
        who(&alice.sending("origin", "https://evil.example")).await,
        refused(StatusCode::FORBIDDEN, "OTHER_ORIGIN")
    );
}

#[tokio::test]
async fn names_that_are_none_are_refused_and_never_taken_for_nothing() {
    let world = World::with(Some(&["loopback"])).await;
    // The certificate alone would suffice.
    let member = world.member("counter");
    for name in ["", "app/counter", "../counter", "alice@example.com", "a,b"] {
        assert_eq!(
            who(&member.sending(HEADER, name)).await,
            refused(StatusCode::FORBIDDEN, "NO_PERSON"),
            "{name:?}"
        );
    }
    let twice = member.sending(HEADER, "alice").sending(HEADER, "bob");
    assert_eq!(who(&twice).await, refused(StatusCode::FORBIDDEN, "NO_PERSON"));
}

#[tokio::test]
async fn a_proxy_with_a_certificate_speaks_for_others_and_never_for_itself() {
    let world = World::with(Some(&["app/gateway"])).await;
    let gateway = world.member("gateway");
    assert_eq!(who(&gateway.sending(HEADER, "alice")).await, known("app/proxy/alice", "proxy"));
    // The proxy forwarded a user that it has not signed in.
    assert_eq!(who(&gateway).await, refused(StatusCode::UNAUTHORIZED, "NOT_SIGNED_IN"));
    // Loopback and the other application are not trusted as proxies: all their requests with the header fail.
    for other in [world.stranger(), world.member("counter")] {
        let claims = other.sending(HEADER, "alice");
        assert_eq!(who(&claims).await, refused(StatusCode::FORBIDDEN, "NOT_A_PROXY"));
        for path in ["/", "/livez", "/metrics", "/api/v1/cameras", "/nothing"] {
            let got = claims.get(path).await;
            assert_eq!(got.status, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(got.json()["reason"].as_str(), Some("NOT_A_PROXY"), "{path}");
        }
        assert_eq!(other.get("/livez").await.status, StatusCode::OK);
    }
    assert_eq!(who(&world.member("counter")).await, known("app/counter", "certificate"));
}

#[tokio::test]
async fn where_no_header_is_named_it_means_nothing() {
    let world = World::with(None).await;
    let claims = world.stranger().sending(HEADER, "alice");
    assert_eq!(who(&claims).await, refused(StatusCode::UNAUTHORIZED, "NOT_SIGNED_IN"));
    let member = world.member("counter").sending(HEADER, "alice");
    assert_eq!(who(&member).await, known("app/counter", "certificate"));
}

#[tokio::test]
async fn a_person_that_was_revoked_stays_out_whatever_the_proxy_says() {
    let world = World::with(Some(&["loopback"])).await;
    let alice = world.stranger().sending(HEADER, "alice");
    assert_eq!(alice.get("/api/v1/cameras").await.status, StatusCode::OK);
    world.revoke("app/proxy/alice");
    let got = alice.get("/api/v1/cameras").await;
    assert!(got.status.is_client_error() && got.text().contains("revoked"), "{} {}", got.status, got.text());
}
