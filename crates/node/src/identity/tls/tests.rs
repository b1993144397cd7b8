//! Real handshakes over loopback: of members, of strangers, and of members at the wrong port.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use mez_core::revocation::{Entry, Revocations, Subject};
use mez_core::units::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_stream::StreamExt;

use super::super::accept::TlsIncoming;
use super::super::authority::SiteAuthority;
use super::super::certificate::{PeerError, Validity, peer_identity};
use super::super::explain::{explain_io, explain_quic};
use super::super::folder::TemporarySite;
use super::super::name::SiteName;
use super::super::refusals::Refusals;
use super::*;
use crate::revocation::{SignedList, Taken, shown};

/// What both sides report of one attempt: the server the identity that it met, the client the text that it read.
#[derive(Debug)]
struct Outcome {
    server: Result<Identity, String>,
    client: Result<String, String>,
}

impl Outcome {
    fn expect_refused(&self, server_says: &str, client_says: &str) {
        let server = self.server.as_ref().expect_err("the server let it in");
        assert!(server.contains(server_says), "{server_says:?} is not in the server's: {server}");
        let client = self.client.as_ref().expect_err("the client got in");
        assert!(client.contains(client_says), "{client_says:?} is not in the client's: {client}");
    }
}

fn site(name: &str) -> SiteName {
    name.parse().unwrap()
}

fn authority(name: &str) -> SiteAuthority {
    SiteAuthority::generate(&site(name), SystemTime::now()).unwrap()
}

fn member(authority: &SiteAuthority, short: &str) -> Credentials {
    member_with(authority, short, Validity::from(SystemTime::now(), Validity::MEMBER))
}

fn member_with(authority: &SiteAuthority, short: &str, validity: Validity) -> Credentials {
    let identity = Identity::parse_within(authority.site(), short).unwrap();
    Credentials::issue(authority, &identity, &[], validity).unwrap()
}

fn nobody_revoked(edge: &Credentials) -> LiveRevocations {
    LiveRevocations::in_memory(edge)
}

fn expired() -> Validity {
    let now = SystemTime::now();
    Validity { not_before: now - Duration::from_secs(7200), not_after: now - Duration::from_secs(3600) }
}

fn words(error: &std::io::Error) -> String {
    explain_io(error).unwrap_or_else(|| error.to_string())
}

/// One handshake over TCP, and a greeting from the server, so that the client notices a late refusal.
async fn over_tcp(server: ServerConfig, client: ClientConfig, site: &SiteName) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (connection, _) = listener.accept().await.unwrap();
        let mut stream =
            TlsAcceptor::from(Arc::new(server)).accept(connection).await.map_err(|e| words(&e))?;
        let identity = peer_identity(stream.get_ref().1.peer_certificates().unwrap(), site).unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        Ok(identity)
    };
    let dial = async {
        let connection = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
        let mut stream =
            TlsConnector::from(Arc::new(client)).connect(name, connection).await.map_err(|e| words(&e))?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map_err(|e| words(&e))?;
        Ok(text)
    };
    let (server, client) = tokio::join!(serve, dial);
    Outcome { server, client }
}

/// One handshake over QUIC, with a greeting.
async fn over_quic(
    server: quinn::crypto::rustls::QuicServerConfig,
    client: quinn::crypto::rustls::QuicClientConfig,
    site: &SiteName,
) -> Outcome {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let words = |error: &quinn::ConnectionError| explain_quic(error).unwrap_or_else(|| error.to_string());
    let edge = quinn::Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(server)), here).unwrap();
    let address = edge.local_addr().unwrap();
    let mut camera = quinn::Endpoint::client(here).unwrap();
    camera.set_default_client_config(quinn::ClientConfig::new(Arc::new(client)));
    let serve = async {
        let connection = edge.accept().await.unwrap().await.map_err(|e| words(&e))?;
        let certificates = connection.peer_identity().unwrap();
        let certificates = certificates.downcast::<Vec<CertificateDer<'static>>>().unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.finish().unwrap();
        connection.closed().await;
        Ok(peer_identity(&certificates, site).unwrap())
    };
    let dial = async {
        let connection = camera.connect(address, EDGE_SERVER_NAME).unwrap().await.map_err(|e| words(&e))?;
        let mut stream = connection.accept_uni().await.map_err(|e| words(&e))?;
        let text = stream.read_to_end(100).await.unwrap();
        connection.close(0u8.into(), b"");
        Ok(String::from_utf8(text).unwrap())
    };
    let (server, client) = tokio::join!(serve, dial);
    Outcome { server, client }
}

async fn link_over_both(edge: &Credentials, camera: &Credentials) -> [Outcome; 2] {
    let site = &edge.identity().site;
    [
        over_tcp(
            link_server_config(edge, &nobody_revoked(edge)).unwrap(),
            link_client_config(camera).unwrap(),
            site,
        )
        .await,
        over_quic(
            quic_server_config(edge, &nobody_revoked(edge)).unwrap(),
            quic_client_config(camera).unwrap(),
            site,
        )
        .await,
    ]
}

#[tokio::test]
async fn a_camera_and_an_edge_of_one_site_meet() {
    let harbour = authority("harbour");
    let (edge, camera) = (member(&harbour, "edge/main"), member(&harbour, "camera/dock/cam1"));
    for outcome in link_over_both(&edge, &camera).await {
        assert_eq!(outcome.server.unwrap(), *camera.identity());
        assert_eq!(outcome.client.unwrap(), "hello");
    }
}

#[tokio::test]
async fn an_expired_camera_is_refused_and_told_why() {
    let harbour = authority("harbour");
    let camera = member_with(&harbour, "camera/dock/cam1", expired());
    for outcome in link_over_both(&member(&harbour, "edge/main"), &camera).await {
        outcome.expect_refused("expired", "compare the clocks");
    }
}

/// A revoked certificate is refused with its own reason, also over TCP, where the
/// other side gets only an alert. Another certificate of the same camera is accepted.
#[tokio::test]
async fn a_revoked_camera_is_refused_and_told_why() {
    let harbour = authority("harbour");
    let (edge, camera) = (member(&harbour, "edge/main"), member(&harbour, "camera/dock/cam1"));
    let revoked = LiveRevocations::in_memory(&edge);
    let entry = Entry { since: Timestamp::MIN, until: Timestamp::MAX, because: "stolen".into() };
    let serial = shown(&camera.chain()[0], camera.identity()).unwrap().serial;
    let list = Revocations::none("harbour").with(Timestamp::MIN, Subject::Serial(serial), entry).unwrap();
    let list = SignedList::sign(&harbour, list).unwrap();
    assert_eq!(revoked.take(list.bytes, "a test"), Ok(Taken::News));
    let site = site("harbour");
    let client = || link_client_config(&camera).unwrap();
    let outcome = over_tcp(link_server_config(&edge, &revoked).unwrap(), client(), &site).await;
    outcome.expect_refused("was revoked", "it was revoked");
    let client = quic_client_config(&camera).unwrap();
    let outcome = over_quic(quic_server_config(&edge, &revoked).unwrap(), client, &site).await;
    outcome.expect_refused("was revoked", "it was revoked");

    let anew = member(&harbour, "camera/dock/cam1");
    let client = link_client_config(&anew).unwrap();
    let outcome = over_tcp(link_server_config(&edge, &revoked).unwrap(), client, &site).await;
    assert_eq!(outcome.server.unwrap(), *camera.identity());
}

#[tokio::test]
async fn an_expired_edge_is_refused_and_told_why() {
    let harbour = authority("harbour");
    let edge = member_with(&harbour, "edge/main", expired());
    for outcome in link_over_both(&edge, &member(&harbour, "camera/dock/cam1")).await {
        outcome.expect_refused("compare the clocks", "expired");
    }
}

#[test]
fn the_fastest_cipher_of_the_processor_comes_first() {
    let order = |has_aes_instructions| {
        let mut suites: Vec<_> = provider().cipher_suites.iter().map(|suite| suite.suite()).collect();
        suites.sort_by_key(|&suite| preference(suite, has_aes_instructions));
        suites.truncate(3);
        suites
    };
    use CipherSuite::{
        TLS13_AES_128_GCM_SHA256 as AES_128, TLS13_AES_256_GCM_SHA384 as AES_256,
        TLS13_CHACHA20_POLY1305_SHA256 as CHACHA20,
    };
    assert_eq!(order(true), [AES_128, AES_256, CHACHA20]);
    assert_eq!(order(false), [CHACHA20, AES_128, AES_256]);
}

#[tokio::test]
async fn a_camera_of_another_authority_is_refused_even_if_it_trusts_ours() {
    // Both sites have the same name: the authority's key decides.
    let (harbour, impostor) = (authority("harbour"), authority("harbour"));
    let own = member(&impostor, "camera/dock/cam1");
    // The impostor's camera trusts our authority, so that only the edge can refuse.
    let mut roots = RootCertStore::empty();
    roots.add(harbour.certificate().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).unwrap();
    let client = builder.with_root_certificates(roots);
    let client = client.with_client_auth_cert(own.chain().to_vec(), own.key()).unwrap();
    let client = hardened_client(client, ALPN_LINK);
    let edge = member(&harbour, "edge/main");
    let tcp = over_tcp(
        link_server_config(&edge, &nobody_revoked(&edge)).unwrap(),
        client.clone(),
        &site("harbour"),
    )
    .await;
    tcp.expect_refused("does not know", "does not know the authority");
    let quic = quinn::crypto::rustls::QuicClientConfig::try_from(client).unwrap();
    let quic =
        over_quic(quic_server_config(&edge, &nobody_revoked(&edge)).unwrap(), quic, &site("harbour")).await;
    quic.expect_refused("does not know", "does not know the authority");
}

#[tokio::test]
async fn an_edge_of_another_authority_is_refused() {
    let (harbour, impostor) = (authority("harbour"), authority("harbour"));
    for outcome in link_over_both(&member(&impostor, "edge/main"), &member(&harbour, "camera/dock")).await {
        outcome.expect_refused("does not know the authority", "does not know");
    }
}

#[tokio::test]
async fn without_a_certificate_nobody_gets_in() {
    let harbour = authority("harbour");
    let edge = member(&harbour, "edge/main");
    let mut roots = RootCertStore::empty();
    roots.add(harbour.certificate().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).unwrap();
    let nobody = hardened_client(builder.with_root_certificates(roots).with_no_client_auth(), ALPN_LINK);
    let tcp = over_tcp(
        link_server_config(&edge, &nobody_revoked(&edge)).unwrap(),
        nobody.clone(),
        &site("harbour"),
    )
    .await;
    tcp.expect_refused("presented no certificate", "requires a certificate");
    let nobody = quinn::crypto::rustls::QuicClientConfig::try_from(nobody).unwrap();
    let quic =
        over_quic(quic_server_config(&edge, &nobody_revoked(&edge)).unwrap(), nobody, &site("harbour")).await;
    quic.expect_refused("no certificate", "requires a certificate");
}

#[tokio::test]
async fn an_application_cannot_dial_the_link_and_a_camera_cannot_subscribe() {
    let harbour = authority("harbour");
    let (edge, app) = (member(&harbour, "edge/main"), member(&harbour, "app/counter"));
    let refused = link_client_config(&app);
    assert!(matches!(refused, Err(TlsConfigError::Role { .. })), "{refused:?}");
    // Built by hand, as a foreign program would.
    let client = client_config(&app, ALPN_LINK).unwrap();
    let tcp = over_tcp(
        link_server_config(&edge, &nobody_revoked(&edge)).unwrap(),
        client.clone(),
        &site("harbour"),
    )
    .await;
    tcp.expect_refused("spiffe://harbour/app/counter has no access here", "does not accept our identity");
    let client = quinn::crypto::rustls::QuicClientConfig::try_from(client).unwrap();
    let quic =
        over_quic(quic_server_config(&edge, &nobody_revoked(&edge)).unwrap(), client, &site("harbour")).await;
    quic.expect_refused("spiffe://harbour/app/counter has no access here", "only the role camera");

    let grpc = || grpc_server_config(&edge, &[Role::App, Role::Edge], &nobody_revoked(&edge)).unwrap();
    let camera = grpc_client_config(&member(&harbour, "camera/dock")).unwrap();
    let outcome = over_tcp(grpc(), camera, &site("harbour")).await;
    outcome.expect_refused("only the role app or edge has", "does not accept our identity");
    let outcome = over_tcp(grpc(), grpc_client_config(&app).unwrap(), &site("harbour")).await;
    assert_eq!(outcome.server.unwrap(), *app.identity());
}

#[tokio::test]
async fn only_an_edge_can_answer_for_an_edge() {
    let harbour = authority("harbour");
    let (edge, camera) = (member(&harbour, "edge/main"), member(&harbour, "camera/dock"));
    let refused = link_server_config(&camera, &nobody_revoked(&camera));
    assert!(matches!(refused, Err(TlsConfigError::Role { .. })), "{refused:?}");
    // A camera whose owner serves with its certificate nevertheless.
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).unwrap();
    let server =
        builder.with_no_client_auth().with_single_cert(camera.chain().to_vec(), camera.key()).unwrap();
    let server = hardened_server(server, &[ALPN_GRPC]);
    let app = grpc_client_config(&member(&harbour, "app/counter")).unwrap();
    let outcome = over_tcp(server, app, &site("harbour")).await;
    assert!(outcome.client.as_ref().unwrap_err().contains("not an edge"), "{outcome:?}");
    drop(edge);
}

#[tokio::test]
async fn another_version_of_the_protocol_is_told_so() {
    let harbour = authority("harbour");
    let (edge, camera) = (member(&harbour, "edge/main"), member(&harbour, "camera/dock"));
    let mut newer = link_client_config(&camera).unwrap();
    newer.alpn_protocols = vec![b"mez/99".to_vec()];
    let outcome =
        over_tcp(link_server_config(&edge, &nobody_revoked(&edge)).unwrap(), newer, &site("harbour")).await;
    outcome.expect_refused("another version of Mez", "another version of Mez");
}

#[tokio::test]
async fn what_is_not_tls_is_told_so() {
    let harbour = authority("harbour");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        let _ = connection.read_to_end(&mut rest).await;
    };
    let client = grpc_client_config(&member(&harbour, "app/counter")).unwrap();
    let dial = async {
        let connection = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
        let connected = TlsConnector::from(Arc::new(client)).connect(name, connection).await;
        connected.map(drop).map_err(|error| words(&error))
    };
    let ((), outcome) = tokio::join!(plain, dial);
    assert!(outcome.unwrap_err().contains("does not speak TLS"));
}

/// A second connection with the same configuration, whose session could be resumed, is a full handshake.
#[tokio::test]
async fn a_session_is_never_resumed() {
    let harbour = authority("harbour");
    let edge = member(&harbour, "edge/main");
    let server = Arc::new(link_server_config(&edge, &nobody_revoked(&edge)).unwrap());
    let mut client = link_client_config(&member(&harbour, "camera/dock")).unwrap();
    // A client that tries to resume.
    client.resumption = Resumption::in_memory_sessions(8);
    client.enable_early_data = true;
    let client = Arc::new(client);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    for round in 0..3 {
        let serve = async {
            let (connection, _) = listener.accept().await.unwrap();
            let mut stream = TlsAcceptor::from(server.clone()).accept(connection).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.shutdown().await.unwrap();
            stream.get_ref().1.handshake_kind().unwrap()
        };
        let dial = async {
            let connection = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
            let mut stream = TlsConnector::from(client.clone()).connect(name, connection).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        };
        let (kind, ()) = tokio::join!(serve, dial);
        assert_eq!(kind, rustls::HandshakeKind::Full, "round {round}");
    }
}

#[test]
fn an_edge_asks_for_tls13_alone() {
    let harbour = authority("harbour");
    let edge = member(&harbour, "edge/main");
    let config = link_server_config(&edge, &nobody_revoked(&edge)).unwrap();
    assert_eq!((config.max_early_data_size, config.send_tls13_tickets), (0, 0));
    let config = grpc_client_config(&member(&harbour, "app/counter")).unwrap();
    assert!(!config.enable_early_data);
}

#[test]
fn a_certificate_of_another_site_is_not_a_peer() {
    let harbour = authority("harbour");
    let camera = member(&harbour, "camera/dock");
    let elsewhere = peer_identity(&camera.chain(), &site("airport"));
    assert!(matches!(elsewhere, Err(PeerError::OtherSite { .. })), "{elsewhere:?}");
}

/// tonic's own client against the configuration of the gRPC services: strangers do not disturb it.
#[tokio::test]
async fn tonics_client_is_admitted_and_a_stalled_one_holds_up_nobody() {
    let site = TemporarySite::create(&site("harbour")).unwrap();
    let edge = site.keys().credentials(Role::Edge, None).unwrap();
    let app = site.keys().credentials(Role::App, None).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(grpc_server_config(&edge, &[Role::App], &nobody_revoked(&edge)).unwrap());
    let refusals = Arc::new(Refusals::default());
    let mut incoming = TlsIncoming::new(listener, config, Arc::clone(&refusals));

    let _silent = TcpStream::connect(address).await.unwrap();
    let mut rude = TcpStream::connect(address).await.unwrap();
    rude.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let stranger = {
        let connector = TlsConnector::from(Arc::new(
            grpc_client_config(&member(&authority("harbour"), "app/counter")).unwrap(),
        ));
        let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
        connector.connect(name, TcpStream::connect(address).await.unwrap()).await
    };
    assert!(stranger.is_err());

    let endpoint = tonic::transport::Endpoint::from_shared(format!("https://{address}")).unwrap();
    let endpoint = endpoint.tls_config(tonic_client_config(&app)).unwrap();
    let dial = tokio::spawn(async move { endpoint.connect().await });
    let stream = incoming.next().await.unwrap().unwrap().stream;
    let certificates = stream.get_ref().1.peer_certificates().unwrap();
    assert_eq!(peer_identity(certificates, site.keys().site()).unwrap(), *app.identity());
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(ALPN_GRPC));
    // The refusal is logged once and remembered.
    let told = async {
        while !format!("{refusals:?}").contains("compare the authorities") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), told).await.unwrap();
    // tonic counts a channel as connected only after the HTTP/2 greeting, which this test does not need.
    dial.abort();
}
