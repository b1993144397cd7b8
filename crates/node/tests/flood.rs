//! Strangers who hold connections and send nothing, or only a part of a message. Honest clients get in, and strangers are closed with a reason.

mod api_support;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use mez_core::admission::STRANGERS_OF_ADDRESS_MAX;
use mez_node::api::ApiServer;
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::Address;
use mez_node::edge::EdgeHandle;
use mez_node::identity::name::Role;
use mez_node::identity::tls::{grpc_client_config, link_client_config, quic_client_config};
use mez_node::identity::token::TOKEN_VALID;
use mez_node::identity::{EDGE_SERVER_NAME, EnrolmentServer, Identity, TokenStore, enrol};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::api_support::{Site, within};

/// More than the limit per address, and than all earlier limits together.
const ATTACKERS: usize = 300;
const ATTACKER: [u8; 4] = [127, 0, 0, 2];
const HONEST: [u8; 4] = [127, 0, 0, 1];

/// All listeners of an edge.
struct Ports {
    site: Site,
    edge: EdgeHandle,
    _api: ApiServer,
    grpc: Address,
    enrol: SocketAddr,
}

impl Ports {
    async fn open() -> Self {
        let site = Site::new();
        let edge = site.edge();
        let (api, _, grpc) = site.serve_edge(&edge).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let enrol = listener.local_addr().unwrap();
        let server = EnrolmentServer::new(site.keys.keys()).unwrap();
        tokio::spawn(server.serve(listener, std::future::pending()));
        Self { site, edge, _api: api, grpc, enrol }
    }

    fn tcp(&self) -> [SocketAddr; 3] {
        [self.edge.link_address(), address(&self.grpc), self.enrol]
    }

    async fn camera(&self, name: &str, transport: Transport) -> CameraHandle {
        self.site.camera_with(name, &self.edge, |options| options.transport = transport).await
    }

    /// A client of each kind gets in.
    async fn everybody_gets_in(&self) {
        self.camera("dock/cam1", Transport::Tcp).await;
        self.camera("dock/cam2", Transport::Quic).await;
        let client = within(self.site.client(&self.grpc)).await;
        within(client.cameras(None)).await.unwrap();
        let keys = self.site.keys.keys();
        let identity = Identity::parse_within(keys.site(), "app/late").unwrap();
        let token = TokenStore::create(keys, &identity, &[], TOKEN_VALID).unwrap();
        let folder = tempfile::tempdir().unwrap();
        within(enrol(&token, &self.enrol.to_string(), &folder.path().join("keys"))).await.unwrap();
    }
}

fn address(of: &Address) -> SocketAddr {
    match of {
        Address::Tcp { host, port } => SocketAddr::new(host.parse().unwrap(), *port),
        Address::Unix(_) => unreachable!("it is one of TCP"),
    }
}

async fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    within(socket.connect(to)).await.unwrap()
}

/// A ClientHello without its second half.
const HALF_A_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

/// 300 connections to every port. Each sends `word` and nothing else.
async fn attack(from: [u8; 4], ports: &Ports, word: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for port in ports.tcp() {
        for _ in 0..ATTACKERS {
            let mut connection = connect_from(from, port).await;
            // A late connection may be closed already.
            let _ = connection.write_all(word).await;
            held.push(connection);
        }
    }
    held
}

/// Waits until the other side closes the connection, and ignores what it sends.
async fn is_closed(mut connection: impl AsyncRead + Unpin) -> bool {
    let mut answer = [0; 64];
    loop {
        match within(connection.read(&mut answer)).await {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
    }
}

async fn honest_get_in_beside(from: [u8; 4], word: &[u8]) {
    let log = Log::of_this_process();
    let ports = Ports::open().await;
    let mut held = attack(from, &ports, word).await;
    ports.everybody_gets_in().await;
    // At each port, new connections displaced the oldest. The others are finally closed by timeout.
    for of_port in held.chunks_mut(ATTACKERS) {
        for closed in &mut of_port[..ATTACKERS - STRANGERS_OF_ADDRESS_MAX] {
            assert!(is_closed(closed).await);
        }
        assert!(is_closed(of_port.last_mut().unwrap()).await);
    }
    let from = IpAddr::from(from).to_string();
    assert!(log.says(&from, "was closed to make room"), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_idle_connections_keep_out_nobody() {
    honest_get_in_beside(ATTACKER, b"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_half_hellos_keep_out_nobody() {
    honest_get_in_beside(ATTACKER, HALF_A_HELLO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_idle_connections_keep_out_nobody_of_their_own_address() {
    honest_get_in_beside(HONEST, b"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_half_hellos_keep_out_nobody_of_their_own_address() {
    honest_get_in_beside(HONEST, HALF_A_HELLO).await;
}

async fn tls(to: SocketAddr, config: rustls::ClientConfig) -> TlsStream<TcpStream> {
    let name = ServerName::try_from(EDGE_SERVER_NAME).unwrap();
    let connection = TcpStream::connect(to).await.unwrap();
    within(TlsConnector::from(Arc::new(config)).connect(name, connection)).await.unwrap()
}

/// A client with a certificate that sends half of its first message is closed. A client that sends all of it and is then idle is not.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_preface_is_not_kept_for_ever() {
    const LACKING: &str = "was not admitted within";
    let log = Log::of_this_process();
    let ports = Ports::open().await;
    let (app, camera) =
        (ports.site.credentials(Role::App, "viewer"), ports.site.credentials(Role::Camera, "dock/cam9"));
    let idle = ports.site.client(&ports.grpc).await;
    let (link, grpc) = (ports.edge.link_address(), address(&ports.grpc));

    let mut over_grpc = tls(grpc, grpc_client_config(&app).unwrap()).await;
    over_grpc.write_all(b"PRI * HTTP/2").await.unwrap();
    let mut over_tcp = tls(link, link_client_config(&camera).unwrap()).await;
    over_tcp.write_all(&[0, 1]).await.unwrap();
    let quic = |words: &'static [u8]| {
        let crypto = Arc::new(quic_client_config(&camera).unwrap());
        async move {
            let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            let config = quinn::ClientConfig::new(crypto);
            let connection = endpoint.connect_with(config, link, EDGE_SERVER_NAME).unwrap().await.unwrap();
            if !words.is_empty() {
                let (mut control, _messages) = connection.open_bi().await.unwrap();
                control.write_all(words).await.unwrap();
                return within(connection.closed()).await.to_string();
            }
            within(connection.closed()).await.to_string()
        }
    };
    let (half, nothing) = tokio::join!(within(quic(&[0])), within(quic(&[])));
    assert!(half.contains(LACKING) && nothing.contains(LACKING), "{half}; {nothing}");
    assert!(is_closed(over_grpc).await && is_closed(over_tcp).await);
    assert!(log.says("127.0.0.1", LACKING), "{log:?}");
    within(idle.cameras(None)).await.unwrap();
}

/// First packets of QUIC connections that go no further.
async fn first_packets(count: usize, site: &Site) -> Vec<Vec<u8>> {
    let recorder = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let crypto = Arc::new(quic_client_config(&site.credentials(Role::Camera, "dock/cam8")).unwrap());
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut packets = Vec::new();
    for _ in 0..count {
        let config = quinn::ClientConfig::new(crypto.clone());
        let attempt =
            endpoint.connect_with(config, recorder.local_addr().unwrap(), EDGE_SERVER_NAME).unwrap();
        let mut packet = vec![0; 2048];
        let bytes = within(recorder.recv(&mut packet)).await.unwrap();
        packet.truncate(bytes);
        packets.push(packet);
        drop(attempt);
        // Its last packet is not a first one.
        let _ = tokio::time::timeout(Duration::from_millis(20), recorder.recv(&mut [0; 2048])).await;
    }
    packets
}

/// Above a number of handshakes, QUIC clients must prove their address. Honest clients do.
#[tokio::test(flavor = "multi_thread")]
async fn first_packets_of_quic_keep_out_no_camera() {
    let ports = Ports::open().await;
    let mut asked = 0;
    let mut held = Vec::new();
    for packet in first_packets(40, &ports.site).await {
        let socket = UdpSocket::bind((IpAddr::from(ATTACKER), 0)).await.unwrap();
        socket.send_to(&packet, ports.edge.link_address()).await.unwrap();
        let mut answer = [0; 2048];
        within(socket.recv(&mut answer)).await.unwrap();
        // RFC 9000, section 17.2.5: a long header of type 3 is a Retry.
        asked += usize::from(answer[0] & 0xf0 == 0xf0);
        held.push(socket);
    }
    assert!((20..40).contains(&asked), "{asked} of 40 were asked for a proof of their address");
    ports.camera("dock/cam2", Transport::Quic).await;
}

/// The log lines about refused clients.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn of_this_process() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Log::default();
            tracing::subscriber::set_global_default(log.clone()).unwrap();
            log
        });
        log.clone()
    }

    fn says(&self, peer: &str, text: &str) -> bool {
        self.0.lock().unwrap().iter().any(|line| line.contains(peer) && line.contains(text))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.lock().unwrap().join("\n"))
    }
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
