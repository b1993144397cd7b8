//! Edges on a network of real sockets: which are found, which are refused and why, and the message for a program with several candidates.

mod api_support;

use api_support::{Site, within};
use mez_node::api::ApiServer;
use mez_node::client::Address;
use mez_node::discovery::{
    Advert, Announcer, FindError, Findings, Found, Network, Patience, Refused, enrolment_on, find, one,
};
use mez_node::edge::EdgeHandle;
use mez_node::identity::{Credentials, Role, TemporarySite};

/// Multicast on loopback at the usual port, since at other ports an answer goes to
/// only one listener. So all tests hear each other, and each has its own sites.
fn network() -> Network {
    Network::loopback(5353)
}

fn site(name: &str) -> Site {
    Site {
        keys: TemporarySite::create(&name.parse().unwrap()).unwrap(),
        folder: tempfile::tempdir().unwrap(),
    }
}

/// An edge that accepts applications over TLS, and its advert.
struct Edge {
    advert: Advert,
    _edge: EdgeHandle,
    _server: ApiServer,
}

impl Edge {
    async fn of(site: &Site, network: Network, name: &str) -> Self {
        let edge = site.edge();
        let credentials = site.credentials(Role::Edge, name);
        let mut server = ApiServer::edge(edge.clone(), api_support::everything(), Default::default());
        let grpc = "127.0.0.1:0".parse().unwrap();
        let grpc = server.listen_tls(grpc, &credentials, &[Role::App, Role::Edge]).await.unwrap();
        // Without a listener, since enrolment is not tested here.
        let enrol = "127.0.0.1:7652".parse().unwrap();
        let advert =
            Advert::of(credentials.identity(), network, edge.link_address(), [Some(grpc), Some(enrol), None]);
        Self { advert, _edge: edge, _server: server }
    }

    fn announced(&self, network: Network) -> Announcer {
        Announcer::start(network, &self.advert).unwrap()
    }

    fn port(&self) -> u16 {
        self.advert.grpc.unwrap()
    }
}

/// The edges that answer beside a site and are refused.
const NAMES: [&str; 4] = ["gate", "impostor", "empty", "closed"];

/// Searches until `see` finds something. An announcement takes a second, or more on a busy host.
async fn until<T>(network: Network, who: Option<&Credentials>, see: impl Fn(&Findings) -> Option<T>) -> T {
    let mut findings = Findings::default();
    for _ in 0..10 {
        findings =
            within(find(network, who, Patience { settles: false, ..Patience::default() })).await.unwrap();
        if let Some(seen) = see(&findings) {
            return seen;
        }
    }
    panic!("it is never seen: {findings:?}");
}

/// The chosen edge. On a busy host, an answer may come too late.
async fn taken(network: Network, who: &Credentials) -> (Found, u16) {
    for _ in 0..9 {
        if let Ok(taken) = within(one(network, who)).await {
            return taken;
        }
    }
    within(one(network, who)).await.unwrap()
}

#[tokio::test]
async fn an_edge_is_found_by_those_of_its_site_as_long_as_it_is_announced() {
    let (site, network) = (site("harbour"), network());
    let edge = Edge::of(&site, network, "hall").await;
    let announcer = edge.announced(network);
    let app = site.credentials(Role::App, "viewer");
    until(network, Some(&app), |findings| (findings.found.len() == 1).then_some(())).await;

    let (found, port) = taken(network, &app).await;
    assert_eq!(
        (found.identity.short().as_str(), found.address.to_string().as_str()),
        ("edge/hall", "127.0.0.1")
    );
    assert_eq!((port, &found.advert.site), (edge.port(), site.keys.keys().site()));
    let client = site.client(&Address::Tcp { host: found.address.to_string(), port }).await;
    assert_eq!(within(client.cameras(None)).await.unwrap().len(), 0);
    let camera = site.credentials(Role::Camera, "dock/cam1");
    let (found, port) = taken(network, &camera).await;
    // The link shows the certificate of the broker, which differs from the advert here.
    assert_eq!((found.identity.short().as_str(), port), ("edge/edge", edge.advert.link));

    let stranger = within(find(network, None, Patience::default())).await.unwrap();
    let is_told =
        |refused: &Refused| refused.advert.edge.as_str() == "hall" && refused.why.contains("no keys");
    assert!(stranger.found.is_empty() && stranger.refused.iter().any(is_told), "{stranger:?}");

    let enrolment = within(enrolment_on(network, site.keys.keys().site())).await;
    assert_eq!(enrolment, Ok("127.0.0.1:7652".into()));
    announcer.stop().await;
    let gone = within(one(network, &app)).await.unwrap_err();
    let FindError::Nobody { refused, .. } = &gone else { panic!("{gone}") };
    assert!(refused.iter().all(|refused| refused.advert.site != app.identity().site), "{gone}");
}

#[tokio::test]
async fn edges_of_other_sites_and_impostors_are_named_and_not_taken() {
    let (own, other, network) = (site("port"), site("airport"), network());
    let gate = Edge::of(&other, network, "gate").await;
    let mut impostor = Edge::of(&other, network, "impostor").await;
    impostor.advert.site = "port".parse().unwrap();
    // An edge without a listener.
    let mut empty = impostor.advert.clone();
    (empty.edge, empty.grpc) = ("empty".parse().unwrap(), Some(1));
    // An edge that accepts no applications.
    let mut closed = impostor.advert.clone();
    (closed.edge, closed.grpc) = ("closed".parse().unwrap(), None);
    let _others = [&gate.advert, &impostor.advert, &empty, &closed]
        .map(|advert| Announcer::start(network, advert).unwrap());
    let app = own.credentials(Role::App, "viewer");
    let refused = until(network, Some(&app), |findings| {
        assert!(findings.found.is_empty(), "{findings:?}");
        let is_ours = |refused: &&Refused| NAMES.contains(&refused.advert.edge.as_str());
        let refused: Vec<Refused> = findings.refused.iter().filter(is_ours).cloned().collect();
        (refused.len() == NAMES.len()).then_some(refused)
    })
    .await;
    let why = |name: &str| {
        let refused = refused.iter().find(|Refused { advert, .. }| advert.edge.as_str() == name);
        refused.map(|refused| refused.why.clone()).unwrap_or_default()
    };
    assert!(why("gate").contains("belongs to the site airport"), "{}", why("gate"));
    assert!(why("impostor").contains("does not prove that it is an edge of port"), "{}", why("impostor"));
    assert!(why("empty").contains("nothing listens there"), "{}", why("empty"));
    assert!(why("closed").contains("does not accept applications"), "{}", why("closed"));
    // On a busy host, different edges answer in time.
    let mut told = String::new();
    for _ in 0..10 {
        told = within(one(network, &app)).await.unwrap_err().to_string();
        assert!(told.contains("no edge of the site port"), "{told}");
        if told.contains("gate at 127.0.0.1 belongs to the site airport") {
            break;
        }
    }
    assert!(told.contains("gate at 127.0.0.1 belongs to the site airport"), "{told}");

    // The right edge is chosen, whatever the others announce.
    let hall = Edge::of(&own, network, "hall").await;
    let _hall = hall.announced(network);
    until(network, Some(&app), |findings| (findings.found.len() == 1).then_some(())).await;
    assert_eq!(taken(network, &app).await.0.identity.short(), "edge/hall");
}

#[tokio::test]
async fn of_several_edges_nobody_chooses_and_one_that_is_told_of_twice_is_one() {
    let (site, network) = (site("pier"), network());
    let (hall, yard) = (Edge::of(&site, network, "hall").await, Edge::of(&site, network, "yard").await);
    let mut copy = hall.advert.clone();
    copy.edge = "copy".parse().unwrap();
    let _hall = [hall.announced(network), Announcer::start(network, &copy).unwrap()];
    let app = site.credentials(Role::App, "viewer");
    until(network, Some(&app), |findings| (findings.found.len() == 1).then_some(())).await;
    assert_eq!(taken(network, &app).await.1, hall.port());

    let _yard = yard.announced(network);
    until(network, Some(&app), |findings| (findings.found.len() == 2).then_some(())).await;
    // On a busy host, an answer may come too late.
    let mut several = within(one(network, &app)).await;
    for _ in 0..10 {
        if several.is_err() {
            break;
        }
        several = within(one(network, &app)).await;
    }
    let several = several.unwrap_err();
    let FindError::Several { places, example, .. } = &several else { panic!("{several}") };
    assert_eq!(*example, format!("127.0.0.1:{}", hall.port()));
    assert_eq!(places[1], format!("127.0.0.1:{} (edge/yard)", yard.port()));
    assert!(several.to_string().contains(&format!("--edge {example}")), "{several}");
}
