//! Enrolment over real sockets: success, and every expected failure.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mez_core::admission::Limits;
use mez_core::rights::Stance;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::identity::authority::EDGE_SERVER_NAME;
use crate::identity::certificate::Validity;
use crate::identity::folder::{AUTHORITY_CERTIFICATE, KeyFolder, TOKENS, TemporarySite};
use crate::identity::name::{Identity, Role};
use crate::identity::tls::{ALPN_ENROL, TLS13, hardened_client, link_client_config, provider};
use crate::identity::token::{TOKEN_VALID, Token, TokenStore};
use crate::identity::{files, peer_identity};
use crate::rights::{RightsFile, RightsText};

/// A site whose authority serves enrolment on loopback.
struct Served {
    site: TemporarySite,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Served {
    async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    async fn start_with(limits: Limits) -> Self {
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = EnrolmentServer::new(site.keys()).unwrap().with_limits(limits);
        let server = tokio::spawn(server.serve(listener, async move { drop(stopped.await) }));
        Self { site, address, stop, server }
    }

    fn token(&self, short: &str) -> Token {
        let identity = Identity::parse_within(self.site.keys().site(), short).unwrap();
        TokenStore::create(self.site.keys(), &identity, &[], TOKEN_VALID).unwrap()
    }

    async fn enrol(&self, token: &Token, folder: &Path) -> Result<Enrolled, EnrolError> {
        enrol(token, &self.address.to_string(), folder).await
    }

    /// A client of the right protocol that sends arbitrary bytes.
    async fn connect_raw(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.site.keys().authority().clone()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).unwrap();
        let config = hardened_client(config.with_root_certificates(roots).with_no_client_auth(), ALPN_ENROL);
        let connection = TcpStream::connect(self.address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from(EDGE_SERVER_NAME).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, connection).await.unwrap()
    }
}

fn new_folder() -> (TempDir, std::path::PathBuf) {
    let top = TempDir::new().unwrap();
    let folder = top.path().join("config/keys");
    (top, folder)
}

fn code(result: Result<Enrolled, EnrolError>) -> RefusalCode {
    match result {
        Err(EnrolError::Refused { code, .. }) => code,
        other => panic!("not refused by the authority: {other:?}"),
    }
}

#[tokio::test]
async fn a_device_enrols_with_nothing_but_a_token() {
    let served = Served::start().await;
    let token: Token = served.token("camera/dock/cam1").to_string().parse().unwrap();
    let (_top, folder) = new_folder();
    let enrolled = served.enrol(&token, &folder).await.unwrap();
    assert_eq!(enrolled.identity.to_string(), "spiffe://harbour/camera/dock/cam1");
    assert!(enrolled.validity.holds_at(SystemTime::now()));
    assert_eq!(enrolled.file, folder.join("camera+dock+cam1.pem"));
    assert_eq!(files::mode(&folder).unwrap(), 0o700);
    assert_eq!(files::mode(&enrolled.file).unwrap(), 0o600);
    assert_eq!(files::names(&folder).unwrap(), [AUTHORITY_CERTIFICATE, "camera+dock+cam1.pem"]);

    let keys = KeyFolder::open(&folder).unwrap();
    assert_eq!(keys.authority(), served.site.keys().authority());
    assert!(!keys.holds_authority_key());
    let camera = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    assert_eq!(peer_identity(&camera.chain(), keys.site()).unwrap(), enrolled.identity);
    link_client_config(&camera).unwrap();

    // A second identity on the same host, and a second enrolment of the first one.
    served.enrol(&served.token("app/counter"), &folder).await.unwrap();
    served.enrol(&served.token("camera/dock/cam1"), &folder).await.unwrap();
    assert_eq!(keys.identity_files().unwrap().len(), 2);
    let renewed = keys.credentials(Role::Camera, None).unwrap();
    assert_ne!(renewed.chain(), camera.chain());

    served.stop.send(()).unwrap();
    served.server.await.unwrap();
}

#[tokio::test]
async fn an_enrolled_edge_is_known_by_its_host_and_the_tokens_names() {
    let served = Served::start().await;
    let identity = Identity::parse_within(served.site.keys().site(), "edge/main").unwrap();
    let hosts = ["edge.example".to_owned()];
    let token = TokenStore::create(served.site.keys(), &identity, &hosts, TOKEN_VALID).unwrap();
    let (_top, folder) = new_folder();
    served.enrol(&token, &folder).await.unwrap();
    let keys = KeyFolder::open(&folder).unwrap();
    let edge = keys.edge_credentials(None, &hosts).unwrap();
    let has = |name: &str| edge.facts().hosts.iter().any(|host| host == name);
    assert!(has("mez-edge") && has("localhost") && has("127.0.0.1") && has("edge.example"));
    for own in crate::identity::folder::own_host_names(&crate::identity::host_name()) {
        assert!(has(&own), "{own}");
    }
}

/// A host that was no edge before begins with rights that allow nothing. A host that may have been an edge keeps its behaviour.
#[tokio::test]
async fn a_new_edge_is_strict_and_an_earlier_one_is_left_alone() {
    let served = Served::start().await;
    let (_top, folder) = new_folder();
    served.enrol(&served.token("app/viewer"), &folder).await.unwrap();
    assert!(
        RightsFile::of(&folder).read().unwrap_err().is_absent(),
        "an application's host has no rights to keep"
    );
    served.enrol(&served.token("edge/main"), &folder).await.unwrap();
    assert_eq!(RightsFile::of(&folder).read_or_open().unwrap(), (RightsText::default(), false));

    let (_top, older) = new_folder();
    served.enrol(&served.token("edge/main"), &older).await.unwrap();
    for name in ["rights.toml", "rights.lock"] {
        std::fs::remove_file(older.join(name)).unwrap();
    }
    served.enrol(&served.token("edge/main"), &older).await.unwrap();
    assert_eq!(RightsFile::of(&older).read_or_open().unwrap().0.stance, Stance::Open);
}

#[tokio::test]
async fn a_token_works_once() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    let ((_a, first), (_b, second)) = (new_folder(), new_folder());
    served.enrol(&token, &first).await.unwrap();
    assert_eq!(code(served.enrol(&token, &second).await), RefusalCode::UsedToken);
    assert_eq!(files::names(&second).unwrap(), [""; 0], "a refused enrolment left something behind");
}

#[tokio::test]
async fn of_many_with_one_token_exactly_one_is_enrolled() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    let folders: Vec<_> = (0..8).map(|_| new_folder()).collect();
    let address = served.address.to_string();
    let tasks: Vec<_> = folders
        .iter()
        .map(|(_, folder)| {
            let (token, address, folder) = (token.clone(), address.clone(), folder.clone());
            tokio::spawn(async move { enrol(&token, &address, &folder).await })
        })
        .collect();
    let mut enrolled = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => enrolled += 1,
            refused => assert_eq!(code(refused), RefusalCode::UsedToken),
        }
    }
    assert_eq!(enrolled, 1);
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    // The authority's own record decides, so the test backdates the record.
    let tokens = served.site.keys().path().join(TOKENS);
    let path = tokens.join(&files::names(&tokens).unwrap()[0]);
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["expires_unix_seconds"] = 1_000_000.into();
    std::fs::write(&path, record.to_string()).unwrap();
    let (_top, folder) = new_folder();
    let refused = served.enrol(&token, &folder).await;
    assert!(refused.as_ref().unwrap_err().to_string().contains("1970-01-12"), "{refused:?}");
    assert_eq!(code(refused), RefusalCode::ExpiredToken);
}

#[tokio::test]
async fn a_token_nobody_made_is_refused() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    std::fs::remove_dir_all(served.site.keys().path().join(TOKENS)).unwrap();
    let (_top, folder) = new_folder();
    assert_eq!(code(served.enrol(&token, &folder).await), RefusalCode::UnknownToken);
}

fn signing_request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
    URL_SAFE_NO_PAD.encode(request.der())
}

#[tokio::test]
async fn a_token_for_one_camera_does_not_make_another_and_stays_good() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    for (identity, signing_request, expected) in [
        ("spiffe://harbour/camera/dock/cam2", signing_request(), RefusalCode::WrongIdentity),
        ("spiffe://harbour/edge/dock/cam1", signing_request(), RefusalCode::WrongIdentity),
        ("spiffe://harbour/camera/dock/cam1", "MIIB".into(), RefusalCode::BadRequest),
        ("spiffe://harbour/camera/dock/cam1", "?".into(), RefusalCode::BadRequest),
    ] {
        let mut stream = served.connect_raw().await;
        let secret = token.secret.encode();
        let request = Request { secret, identity: identity.into(), signing_request, host: "x".into() };
        write_message(&mut stream, &request).await.unwrap();
        match read_message(&mut stream).await.unwrap() {
            Answer::Refused { code, .. } => assert_eq!(code, expected, "{identity}"),
            Answer::Issued { .. } => panic!("{identity} was enrolled"),
        }
    }
    let (_top, folder) = new_folder();
    served.enrol(&token, &folder).await.unwrap();
}

#[tokio::test]
async fn a_server_with_another_authority_does_not_get_the_token() {
    let (served, impostor) = (Served::start().await, Served::start().await);
    let token = served.token("camera/dock/cam1");
    let (_top, folder) = new_folder();
    let refused = impostor.enrol(&token, &folder).await;
    let Err(EnrolError::Tls { why, .. }) = &refused else { panic!("{refused:?}") };
    assert!(why.contains("not run by the authority that made the token"), "{why}");
    // The token was not sent, so it is still valid at its own site.
    served.enrol(&token, &folder).await.unwrap();
}

/// A member cannot pose as the authority with its own certificate.
#[tokio::test]
async fn a_member_that_is_no_edge_cannot_pose_as_the_authority() {
    use crate::identity::credentials::Credentials;
    let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
    let authority = site.keys().load_authority().unwrap();
    let identity = Identity::parse_within(site.keys().site(), "camera/evil").unwrap();
    let validity = Validity::from(SystemTime::now(), Validity::MEMBER);
    let evil = Credentials::issue(&authority, &identity, &[], validity).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = crate::identity::tls::enrolment_server_config(&evil).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let server =
        tokio::spawn(async move { acceptor.accept(listener.accept().await.unwrap().0).await.is_ok() });
    let victim = Identity::parse_within(site.keys().site(), "camera/dock").unwrap();
    let token = TokenStore::create(site.keys(), &victim, &[], TOKEN_VALID).unwrap();
    let (_top, folder) = new_folder();
    let refused = enrol(&token, &address, &folder).await;
    assert!(matches!(refused, Err(EnrolError::Tls { .. })), "{refused:?}");
    assert!(!server.await.unwrap(), "the device went on talking to it");
}

#[tokio::test]
async fn a_folder_that_cannot_take_the_keys_is_noticed_before_the_token_is_spent() {
    let served = Served::start().await;
    let token = served.token("camera/dock/cam1");
    let busy = TempDir::new().unwrap();
    std::fs::write(busy.path().join("thesis.tex"), "x").unwrap();
    let refused = served.enrol(&token, busy.path()).await;
    assert!(matches!(refused, Err(EnrolError::Prepare(_))), "{refused:?}");
    assert_eq!(files::names(busy.path()).unwrap(), ["thesis.tex"]);

    let other = TemporarySite::create(&"airport".parse().unwrap()).unwrap();
    let refused = served.enrol(&token, other.keys().path()).await.unwrap_err();
    assert!(refused.to_string().contains("holds the keys of site airport"), "{refused}");

    let (_top, folder) = new_folder();
    served.enrol(&token, &folder).await.unwrap();
}

#[tokio::test]
async fn an_open_folder_of_an_earlier_site_is_closed_to_others() {
    let served = Served::start().await;
    let (_top, folder) = new_folder();
    served.enrol(&served.token("camera/dock"), &folder).await.unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    served.enrol(&served.token("camera/yard"), &folder).await.unwrap();
    assert_eq!(files::mode(&folder).unwrap(), 0o700);
}

#[tokio::test]
async fn nobody_there_is_told_with_the_remedy() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let served = Served::start().await;
    let (_top, folder) = new_folder();
    let token = served.token("app/x");
    let error = enrol(&token, &address.to_string(), &folder).await.unwrap_err().to_string();
    assert!(error.contains("mez keys serve"), "{error}");
    let error = enrol(&token, "https://edge", &folder).await.unwrap_err();
    assert!(matches!(error, EnrolError::Address { .. }), "{error}");
}

/// The request announces more bytes than allowed: the server closes the connection instead of reading or allocating them.
#[tokio::test]
async fn an_endless_request_is_cut_off_and_the_server_goes_on() {
    let served = Served::start().await;
    for announced in [u32::MAX, MESSAGE_BYTES_MAX as u32 + 1] {
        let mut stream = served.connect_raw().await;
        stream.write_all(&announced.to_be_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    for garbage in [&b"\0\0\0\x02{}"[..], b"\0\0\0\x04null", b"\0\0\0\0", b"\0\0\0\x03\xff\xff\xff"] {
        let mut stream = served.connect_raw().await;
        stream.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{garbage:?}");
    }
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (_top, folder) = new_folder();
    served.enrol(&served.token("camera/dock"), &folder).await.unwrap();
}

#[tokio::test]
async fn a_client_is_closed_that_says_nothing_or_no_whole_request_in_time() {
    let limit = Duration::from_millis(300);
    let served = Served::start_with(Limits {
        silence_time_max: limit,
        handshake_time_max: limit,
        ..Limits::default()
    })
    .await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let mut half = served.connect_raw().await;
    half.write_all(&[0, 0]).await.unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "the silent one was not closed");
    assert_eq!(half.read(&mut [0]).await.unwrap_or(0), 0, "the one with half a request was not closed");
}

#[tokio::test]
async fn the_oldest_of_the_address_that_holds_the_most_makes_room() {
    let limits = Limits { strangers_max: 4, strangers_of_address_max: 3, ..Limits::default() };
    let served = Served::start_with(limits).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(served.connect_raw().await);
    }
    // 127.0.0.2 is another address of the same loopback.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(served.address).await.unwrap();
    // The oldest connection of the busiest address is closed, not its newest and not one of another address.
    let (_top, folder) = new_folder();
    served.enrol(&served.token("camera/dock"), &folder).await.unwrap();
    assert_eq!(held[0].read(&mut [0]).await.unwrap_or(0), 0);
    for kept in &mut held[1..] {
        kept.write_all(b"\0\0\0\x02{}").await.unwrap();
    }
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(other.read(&mut [0]).await.unwrap() > 0, "it is told what is wrong, so it was served");
}

/// A middlebox that closes the first connections, like a server that has too many.
async fn closes_first(times: usize, server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for _ in 0..times {
            drop(listener.accept().await.unwrap());
        }
        let mut device = listener.accept().await.unwrap().0;
        let mut server = TcpStream::connect(server).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut device, &mut server).await;
    });
    address
}

#[tokio::test]
async fn a_device_tries_again_where_nothing_is_spent_by_it_and_says_so_where_that_does_not_help() {
    let served = Served::start().await;
    let (_top, folder) = new_folder();
    let token = served.token("camera/dock");
    let busy = closes_first(usize::MAX, served.address).await;
    let error = enrol(&token, &busy.to_string(), &folder).await.unwrap_err();
    assert!(matches!(error, EnrolError::Busy { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("the token is still valid") && text.contains("Try again in a minute"), "{text}");
    // The token is still valid.
    let busy = closes_first(3, served.address).await;
    enrol(&token, &busy.to_string(), &folder).await.unwrap();
}

#[tokio::test]
async fn the_server_needs_the_authoritys_key() {
    let served = Served::start().await;
    let (_top, folder) = new_folder();
    served.enrol(&served.token("edge/main"), &folder).await.unwrap();
    let error = EnrolmentServer::new(&KeyFolder::open(&folder).unwrap()).unwrap_err();
    assert!(error.to_string().contains("does not hold an authority's key"), "{error}");
}
