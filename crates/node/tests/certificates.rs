//! Handshakes at the ports of a real edge, and of real clients with false edges: certificates with all kinds of faults,
//! and the messages of both sides. Prints a table: `cargo test -p mez-node --test certificates -- --nocapture`.

mod api_support;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use api_support::{Site, tcp, within};
use mez_core::revocation::{Entry, Revocations};
use mez_core::units::Timestamp;
use mez_node::client::{Address, ClientOptions, EdgeClient};
use mez_node::identity::explain::{explain_io, explain_quic};
use mez_node::identity::name::Role;
use mez_node::identity::tls::{ALPN_GRPC, ALPN_LINK, link_client_config, quic_client_config};
use mez_node::identity::{Credentials, EDGE_SERVER_NAME, SiteName, TemporarySite};
use mez_node::revocation::{SignedList, Taken};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const HOUR: Duration = Duration::from_secs(3600);

/// The fault of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Nothing,
    Expired,
    NotYetValid,
    OtherAuthority,
    SelfSigned,
    /// Names a member of another site.
    OtherSite,
    TwoNames,
    NoName,
    /// A member of the site in a wrong role.
    Role,
    /// May only be used by a server, or only by a client.
    Usage,
    /// On the site's deny list.
    Revoked,
    /// No certificate.
    None,
    /// The other side offers at most TLS 1.2.
    Tls12,
}

impl Wrong {
    const ALL: [Self; 13] = [
        Self::Nothing,
        Self::Expired,
        Self::NotYetValid,
        Self::OtherAuthority,
        Self::SelfSigned,
        Self::OtherSite,
        Self::TwoNames,
        Self::NoName,
        Self::Role,
        Self::Usage,
        Self::Revoked,
        Self::None,
        Self::Tls12,
    ];

    /// The message about such a client in the edge's log.
    const fn edge_says(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Expired => "expired",
            Self::NotYetValid => "valid",
            Self::OtherAuthority => "comes from an authority that this host does not know",
            Self::SelfSigned => "self-signed",
            Self::OtherSite => "belongs to another site",
            Self::TwoNames => "holds 2 URIs",
            Self::NoName => "holds no identity",
            Self::Role => "has no access here",
            Self::Usage => "not meant for clients",
            Self::Revoked => "was revoked",
            Self::None => "presented no certificate",
            Self::Tls12 => "does not offer TLS 1.3",
        }
    }

    /// The message of the client. Over TCP it only gets an alert number.
    const fn client_says(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Expired | Self::NotYetValid => "compare the clocks",
            Self::OtherAuthority => "does not know the authority of our certificate",
            Self::SelfSigned | Self::OtherSite | Self::TwoNames | Self::NoName | Self::Role => {
                "does not accept our identity there"
            }
            Self::Usage => "is not meant for our side of a connection",
            Self::Revoked => "it was revoked; to join the site again, enrol with a new token",
            Self::None => "requires a certificate",
            Self::Tls12 => "does not offer TLS 1.3",
        }
    }
}

/// A port of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Quic,
    Tcp,
    Grpc,
}

impl Way {
    const ALL: [Self; 3] = [Self::Quic, Self::Tcp, Self::Grpc];

    const fn alpn(self) -> &'static [u8] {
        match self {
            Self::Quic | Self::Tcp => ALPN_LINK,
            Self::Grpc => ALPN_GRPC,
        }
    }

    /// The member that connects. It is permitted unless its role is wrong or it was revoked.
    const fn client(self, wrong: Wrong) -> &'static str {
        match (self, wrong) {
            (Self::Quic | Self::Tcp, Wrong::Revoked) => "camera/dock/stolen",
            (Self::Grpc, Wrong::Revoked) => "app/stolen",
            (Self::Quic | Self::Tcp, Wrong::Role) => "app/viewer",
            (Self::Grpc, Wrong::Role) | (Self::Quic | Self::Tcp, _) => "camera/dock/cam1",
            (Self::Grpc, _) => "app/viewer",
        }
    }
}

/// The deny list of a site with the members for [`Wrong::Revoked`].
fn revoked(site: &Site) -> SignedList {
    let entry = Entry { since: Timestamp::MAX, until: Timestamp::MAX, because: "stolen".into() };
    let mut list = Revocations::none(site.keys.keys().site().as_str());
    for way in [Way::Quic, Way::Grpc] {
        let subject = way.client(Wrong::Revoked).parse().unwrap();
        list = list.with(Timestamp::MIN, subject, entry.clone()).unwrap();
    }
    SignedList::sign(&site.keys.keys().load_authority().unwrap(), list).unwrap()
}

/// An authority that makes faulty certificates.
struct Forge {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
type Member = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Forge {
    /// Signs with the key of a site's authority.
    fn of(folder: &Path) -> Self {
        let text = std::fs::read(folder.join("authority.key")).unwrap();
        let certificate = CertificateDer::from_pem_slice(&text).unwrap().into_owned();
        let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from_pem_slice(&text).unwrap()).unwrap();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).unwrap();
        Self { certificate, issuer }
    }

    /// A certificate for a client or a server of the site `test`.
    fn make(&self, short: &str, wrong: Wrong, serves: bool) -> Option<Member> {
        let now = SystemTime::now();
        let (begin, end) = match wrong {
            Wrong::Expired => (now - 2 * HOUR, now - HOUR),
            Wrong::NotYetValid => (now + HOUR, now + 2 * HOUR),
            Wrong::None | Wrong::Tls12 => return None,
            _ => (now - HOUR, now + HOUR),
        };
        let uri = |site: &str| SanType::URI(format!("spiffe://{site}/{short}").try_into().unwrap());
        let mut names = match wrong {
            Wrong::OtherSite => vec![uri("airport")],
            Wrong::TwoNames => vec![uri("test"), uri("test")],
            Wrong::NoName => Vec::new(),
            _ => vec![uri("test")],
        };
        if serves && wrong != Wrong::Role {
            names.push(SanType::DnsName(EDGE_SERVER_NAME.try_into().unwrap()));
        }
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (begin.into(), end.into());
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let is_for_servers = serves != (wrong == Wrong::Usage);
        params.extended_key_usages = vec![match is_for_servers {
            true => ExtendedKeyUsagePurpose::ServerAuth,
            false => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let key = KeyPair::generate().unwrap();
        let certificate = match wrong {
            Wrong::SelfSigned => params.self_signed(&key).unwrap(),
            _ => params.signed_by(&key, &self.issuer).unwrap(),
        };
        Some((vec![certificate.into()], PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    /// A client that trusts this authority, with a certificate or without.
    fn client(&self, member: Option<Member>, alpn: &[u8]) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.unwrap().with_root_certificates(self.roots());
        let mut config = match member {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        config
    }
}

/// The result of an attempt: the number of bytes received, and why it ended.
struct Attempt {
    given: usize,
    says: String,
}

fn words(error: &std::io::Error) -> String {
    explain_io(error).unwrap_or_else(|| error.to_string())
}

async fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    within(socket.connect(to)).await.unwrap()
}

async fn dial_tcp(from: IpAddr, to: SocketAddr, config: ClientConfig) -> Attempt {
    let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
    let connection = connect_from(from, to).await;
    let mut stream = match within(TlsConnector::from(Arc::new(config)).connect(name, connection)).await {
        Ok(stream) => stream,
        Err(error) => return Attempt { given: 0, says: words(&error) },
    };
    let mut given = 0;
    let mut bytes = [0; 1024];
    loop {
        // An accepted client receives something at once over gRPC, and nothing over the link.
        match tokio::time::timeout(Duration::from_secs(2), stream.read(&mut bytes)).await {
            Err(_) => return Attempt { given, says: "in".into() },
            Ok(Ok(0)) => return Attempt { given, says: "the end".into() },
            Ok(Ok(more)) if given > 0 => return Attempt { given: given + more, says: "in".into() },
            Ok(Ok(more)) => given += more,
            Ok(Err(error)) => return Attempt { given, says: words(&error) },
        }
    }
}

async fn dial_quic(from: IpAddr, to: SocketAddr, config: ClientConfig) -> Attempt {
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(config).unwrap();
    let endpoint = quinn::Endpoint::client(SocketAddr::new(from, 0)).unwrap();
    let says = |error: quinn::ConnectionError| Attempt {
        given: 0,
        says: explain_quic(&error).unwrap_or_else(|| error.to_string()),
    };
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connection = match within(endpoint.connect_with(config, to, EDGE_SERVER_NAME).unwrap()).await {
        Ok(connection) => connection,
        Err(error) => return says(error),
    };
    match tokio::time::timeout(Duration::from_secs(2), connection.accept_uni()).await {
        Err(_) => Attempt { given: 0, says: "in".into() },
        Ok(Ok(_)) => Attempt { given: 1, says: "in".into() },
        Ok(Err(error)) => says(error),
    }
}

/// A ClientHello of TLS 1.2 (RFC 5246), with one cipher and one signature algorithm.
const HELLO_12: &[u8] = &[
    0x16, 0x03, 0x01, 0x00, 0x37, 0x01, 0x00, 0x00, 0x33, 0x03, 0x03, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 0x00, 0x00, 0x02, 0xc0,
    0x2b, 0x01, 0x00, 0x00, 0x08, 0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x04, 0x03,
];

/// Offers TLS 1.2, and reads the alert.
async fn dial_tls12(from: IpAddr, to: SocketAddr) -> Attempt {
    let mut connection = connect_from(from, to).await;
    connection.write_all(HELLO_12).await.unwrap();
    let mut answer = Vec::new();
    let _ = within(connection.read_to_end(&mut answer)).await;
    // RFC 5246, section 7.2: a fatal alert with its number.
    let &[0x15, _, _, 0, 2, 2, number] = answer.as_slice() else { panic!("no alert: {answer:?}") };
    let alert = rustls::Error::AlertReceived(number.into());
    Attempt { given: 0, says: mez_node::identity::explain::explain(&alert) }
}

/// The edge's messages about clients, by address.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    async fn of(&self, from: IpAddr) -> String {
        within(async {
            loop {
                let line =
                    self.0.lock().unwrap().iter().find(|line| line.contains(&format!("\"{from}\""))).cloned();
                match line {
                    Some(line) => {
                        return sentence(&line);
                    }
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await
    }
}

/// The reason in a line about a refused client.
fn sentence(line: &str) -> String {
    let told = line.split("a client was refused: ").last().expect("there is always one part");
    told.split(" peer=").next().expect("there is always one part").to_owned()
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Every client without permission is refused before it receives a byte. The edge's log
/// has a different message for each fault, and the client's message leads to the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_wrong_certificate_is_refused_at_every_port() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let site = Site::new();
    let edge = site.edge();
    let (_api, _, grpc) = site.serve_edge(&edge).await;
    assert_eq!(edge.revoked().take(revoked(&site).bytes, "a test"), Ok(Taken::News));
    let Address::Tcp { host, port } = &grpc else { unreachable!("it is one of TCP") };
    let grpc = SocketAddr::new(host.parse().unwrap(), *port);
    let ours = Forge::of(site.keys.keys().path());
    let name: SiteName = "test".parse().unwrap();
    let namesake = TemporarySite::create(&name).unwrap();
    let others = Forge::of(namesake.keys().path());

    let mut table = format!("{:16} {:5} {:96} the client\n", "certificate", "port", "the edge");
    let mut said: BTreeMap<Way, BTreeMap<String, Wrong>> = BTreeMap::new();
    for (row, wrong) in (1u8..).zip(Wrong::ALL) {
        for (column, way) in (1u8..).zip(Way::ALL) {
            // Each client has its own address, so that its line can be found.
            let from = IpAddr::from([127, 0, column, row]);
            let to = if way == Way::Grpc { grpc } else { edge.link_address() };
            if wrong == Wrong::Tls12 && way == Way::Quic {
                // QUIC does not support TLS below 1.3 (RFC 9001, section 4.2).
                continue;
            }
            let forge = if wrong == Wrong::OtherAuthority { &others } else { &ours };
            let member = forge.make(way.client(wrong), wrong, false);
            let config = ours.client(member, way.alpn());
            let attempt = match way {
                _ if wrong == Wrong::Tls12 => dial_tls12(from, to).await,
                Way::Quic => dial_quic(from, to, config).await,
                Way::Tcp | Way::Grpc => dial_tcp(from, to, config).await,
            };
            if wrong == Wrong::Nothing {
                assert_eq!(attempt.says, "in", "{way:?}");
                continue;
            }
            let edge_says = log.of(from).await;
            table += &format!(
                "{:16} {:5} {edge_says:96} {}\n",
                format!("{wrong:?}"),
                format!("{way:?}"),
                attempt.says
            );
            assert_eq!(attempt.given, 0, "{wrong:?} {way:?}\n{table}");
            assert!(edge_says.contains(wrong.edge_says()), "{wrong:?} {way:?}\n{table}");
            assert!(attempt.says.contains(wrong.client_says()), "{wrong:?} {way:?}\n{table}");
            if let Some(other) = said.entry(way).or_default().insert(edge_says, wrong) {
                panic!("the edge says the same of {wrong:?} and {other:?}\n{table}");
            }
        }
    }
    println!("{table}");
}

/// A server with its own port.
struct Server {
    address: SocketAddr,
    /// How often clients connected to it.
    dialled: Arc<AtomicUsize>,
    /// The number of application bytes received.
    heard: Arc<AtomicUsize>,
}

async fn serve_tcp(config: Option<ServerConfig>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (dialled, heard) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (dials, counts, config) = (Arc::clone(&dialled), Arc::clone(&heard), config.map(Arc::new));
    // Ends with the test's runtime.
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            dials.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(connection, config.clone(), Arc::clone(&counts)));
        }
    });
    Server { address, dialled, heard }
}

/// Answers a client, with TLS 1.2 if there is no configuration, and counts application bytes.
async fn answer(mut connection: TcpStream, config: Option<Arc<ServerConfig>>, counts: Arc<AtomicUsize>) {
    let mut told = Vec::new();
    let Some(config) = config else {
        let mut hello = [0; 1024];
        let _ = connection.read(&mut hello).await;
        let _ = connection.write_all(SERVER_HELLO_12).await;
        let _ = connection.read_to_end(&mut told).await;
        // RFC 8446, section 5.1: a record of type 23 is application data, one of type 21 an alert.
        counts.fetch_add(usize::from(told.first() == Some(&23)), Ordering::Relaxed);
        return;
    };
    let Ok(mut stream) = TlsAcceptor::from(config).accept(connection).await else { return };
    let _ = stream.read_to_end(&mut told).await;
    counts.fetch_add(told.len(), Ordering::Relaxed);
}

/// A ServerHello that chooses TLS 1.2.
const SERVER_HELLO_12: &[u8] = &[
    0x16, 0x03, 0x03, 0x00, 0x2a, 0x02, 0x00, 0x00, 0x26, 0x03, 0x03, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
    13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 0x00, 0xc0, 0x2b, 0x00,
];

fn server(member: Member, alpn: &[u8]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config = builder.unwrap().with_no_client_auth().with_single_cert(member.0, member.1).unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// The message of a Mez client about a server, and the number of bytes that it sent.
async fn meets(way: Way, wrong: Wrong, member: Option<Member>, site: &Site) -> (String, usize) {
    let camera = site.credentials(Role::Camera, "dock/cam1");
    match way {
        Way::Quic => {
            let config = server(member.expect("QUIC has no TLS 1.2"), way.alpn());
            let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(config).unwrap();
            let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
            let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
            let to = endpoint.local_addr().unwrap();
            let serving = tokio::spawn(async move {
                let Ok(connection) = endpoint.accept().await.unwrap().await else { return 0 };
                usize::from(connection.accept_bi().await.is_ok())
            });
            let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(quic_client_config(&camera).unwrap()));
            let connected = within(client.connect_with(config, to, EDGE_SERVER_NAME).unwrap()).await;
            let error = connected.map(drop).expect_err(&format!("{wrong:?} passes for an edge"));
            (explain_quic(&error).unwrap_or_else(|| error.to_string()), within(serving).await.unwrap())
        }
        Way::Tcp => {
            let server = serve_tcp(member.map(|member| server(member, way.alpn()))).await;
            let config = link_client_config(&camera).unwrap();
            let attempt = dial_tcp(IpAddr::from([127, 0, 0, 1]), server.address, config).await;
            assert_ne!(attempt.says, "in", "{wrong:?} passes for an edge");
            (attempt.says, server.heard.load(Ordering::Relaxed))
        }
        Way::Grpc => {
            let server = serve_tcp(member.map(|member| server(member, way.alpn()))).await;
            let app: Credentials = site.credentials(Role::App, "viewer");
            // The client waits for a missing broker, but not for another certificate.
            let options = ClientOptions::default();
            let connected = within(EdgeClient::connect(vec![tcp(server.address)], Some(&app), options)).await;
            let error = connected.map(drop).expect_err(&format!("{wrong:?} passes for an edge"));
            assert_eq!(server.dialled.load(Ordering::Relaxed), 1, "{wrong:?}: {error}");
            (error.to_string(), server.heard.load(Ordering::Relaxed))
        }
    }
}

/// A false edge receives nothing from a camera or an application, and the message says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_wrong_certificate_passes_for_no_edge() {
    let site = Site::new();
    let ours = Forge::of(site.keys.keys().path());
    let name: SiteName = "test".parse().unwrap();
    let namesake = TemporarySite::create(&name).unwrap();
    let others = Forge::of(namesake.keys().path());
    let rows = [
        (Wrong::Expired, "expired"),
        (Wrong::NotYetValid, "valid"),
        (Wrong::OtherAuthority, "does not know"),
        (Wrong::SelfSigned, "does not know"),
        // A camera in place of an edge.
        (Wrong::Role, "is not an edge of this site"),
        (Wrong::Usage, "not meant for servers"),
        (Wrong::Tls12, "does not offer TLS 1.3"),
    ];
    let mut table = format!("{:16} {:5} the client\n", "certificate", "port");
    for (wrong, says) in rows {
        for way in Way::ALL {
            if wrong == Wrong::Tls12 && way == Way::Quic {
                continue;
            }
            let forge = if wrong == Wrong::OtherAuthority { &others } else { &ours };
            let member = forge.make("edge/main", wrong, true);
            let (text, told) = meets(way, wrong, member, &site).await;
            table += &format!("{:16} {:5} {text}\n", format!("{wrong:?}"), format!("{way:?}"));
            assert_eq!(told, 0, "{wrong:?} {way:?}\n{table}");
            assert!(text.contains(says), "{wrong:?} {way:?}\n{table}");
        }
    }
    println!("{table}");
}
