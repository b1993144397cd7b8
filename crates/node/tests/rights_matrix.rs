//! Who may ask what of which camera through which interface: every role and verb, granted, foreign and unknown cameras, on real sockets. Prints a
//! table: `cargo test -p mez-node --test rights_matrix -- --nocapture`.

mod api_support;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use api_support::{Site, within};
use mez_core::frame::{Epoch, FrameId, Rung, Sequence};
use mez_core::name::CameraName;
use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::subscription::Deliver;
use mez_core::units::{ClockAnchor, Timestamp};
use mez_core::wire::{Hello, Message, MessageBuffer, VERSION};
use mez_node::api::contract::Profile;
use mez_node::api::pb;
use mez_node::api::pb::edge_broker_client::EdgeBrokerClient;
use mez_node::client::{Address, ClientError, ClientOptions, EdgeClient, Resume, SubscribeOptions};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::edge::EdgeHandle;
use mez_node::identity::EDGE_SERVER_NAME;
use mez_node::identity::name::Role;
use mez_node::identity::tls::{link_client_config, quic_client_config};
use mez_node::rights::LiveRights;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;

/// The verbs that some interface asks for.
const ASKED: [Verb; 7] =
    [Verb::Watch, Verb::Read, Verb::Originals, Verb::Reply, Verb::Observe, Verb::Profile, Verb::Operate];

/// Something that can be asked of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Newest,
    Every,
    /// The past as the edge holds it, and at a lower quality.
    Held,
    Smaller,
    /// The past as it was published, and the originals of the newest frames.
    Past,
    Originals,
    /// Every frame that anybody holds.
    Filled,
    /// From a moment that is still to come.
    Later,
    /// With a profile of its own.
    Profiled,
    List,
    Starts,
    Notes,
    Reply,
    Reset,
    Forget,
}

impl Request {
    const ALL: [Self; 15] = [
        Self::Newest,
        Self::Every,
        Self::Held,
        Self::Smaller,
        Self::Past,
        Self::Originals,
        Self::Filled,
        Self::Later,
        Self::Profiled,
        Self::List,
        Self::Starts,
        Self::Notes,
        Self::Reply,
        // Last: after it, the camera is not the same any more.
        Self::Forget,
        Self::Reset,
    ];

    /// What it needs.
    const fn verbs(self) -> &'static [Verb] {
        use Verb::{Observe, Operate, Originals, Profile, Read, Reply, Watch};
        match self {
            Self::Newest | Self::Every => &[Watch],
            Self::Held | Self::Smaller | Self::Notes => &[Read],
            Self::Past => &[Read, Originals],
            Self::Originals => &[Watch, Originals],
            Self::Filled | Self::Later => &[Watch, Read, Originals],
            Self::Profiled => &[Watch, Profile],
            Self::List | Self::Starts => &[Observe],
            Self::Reply => &[Reply],
            Self::Reset | Self::Forget => &[Operate],
        }
    }

    /// Whether only users of the edge's host may ask it.
    const fn is_of_host(self) -> bool {
        matches!(self, Self::Reset | Self::Forget)
    }

    fn subscription(self, camera: &str) -> Option<SubscribeOptions> {
        let now = wall_now();
        let ago = Some(Timestamp::from_nanos(now.as_nanos() - 10_000_000_000));
        let live = SubscribeOptions::new(camera.parse().unwrap());
        let past = SubscribeOptions { begin: ago, end: Some(now), ..live.clone() };
        let quality = |rung: &str| Some(Rung::new(rung).unwrap());
        Some(match self {
            Self::Newest => live,
            Self::Every => SubscribeOptions { deliver: Some(Deliver::Every), ..live },
            Self::Held => SubscribeOptions { held_only: true, ..past },
            Self::Smaller => SubscribeOptions { quality: quality("jpeg/w32/q50/420"), ..past },
            Self::Past => past,
            Self::Originals => SubscribeOptions { quality: Some(Rung::original()), ..live },
            Self::Filled => SubscribeOptions { resume: Resume::Fill, ..live },
            Self::Later => SubscribeOptions { begin: Some(now + Duration::from_secs(60)), ..live },
            Self::Profiled => {
                SubscribeOptions { profile: Some(Profile::Inline(b"{}".as_slice().into())), ..live }
            }
            _ => return None,
        })
    }
}

/// What the edge says to a request, in a word.
async fn outcome(client: &EdgeClient, request: Request, camera: &str) -> &'static str {
    let name: CameraName = camera.parse().unwrap();
    if let Some(options) = request.subscription(camera) {
        return word(client.subscribe(options).await);
    }
    match request {
        Request::List => word(client.cameras(Some(&camera.parse().unwrap())).await),
        Request::Starts => word(client.camera_starts(&name).await),
        Request::Notes => word(client.notes(&name, (None, None), None).await),
        Request::Reset => word(client.reset_camera(&name).await),
        Request::Forget => word(client.forget_camera(&name).await),
        _ => {
            let failed = client.reply_counts().failed;
            let frame = FrameId { epoch: Epoch(1), sequence: Sequence(1) };
            client.reply(&name, frame, b"result".as_slice().into()).unwrap();
            client.flush_replies().await;
            if client.reply_counts().failed > failed { "no" } else { "yes" }
        }
    }
}

fn word<T>(answer: Result<T, ClientError>) -> &'static str {
    match answer {
        Err(ClientError::Refused(error)) if error.reason == "PERMISSION_DENIED" => {
            let names = error.message.contains(" may not ") && error.message.contains("`mez keys grant ");
            assert!(names, "{error}");
            "no"
        }
        Err(ClientError::Refused(error)) if error.reason == "ONLY_ON_HOST" => "host",
        // It came past the rights: `{}` is no profile, nobody keeps notes, the camera is there or unknown.
        Ok(_) | Err(ClientError::Refused(_)) => "yes",
        Err(error) => panic!("{error}"),
    }
}

fn grants(all: &[(String, Verb, &str)]) -> Rights {
    let grant = |(who, verb, cameras): &(String, Verb, &str)| Grant {
        grantee: who.parse().unwrap(),
        verb: *verb,
        cameras: cameras.parse().unwrap(),
    };
    Rights::new(Stance::Deny, all.iter().map(grant))
}

/// Somebody who asks.
struct Row {
    who: String,
    by: &'static str,
    client: EdgeClient,
    /// What it was granted, of `dock/*`. `None`: it may do everything.
    verbs: Option<Vec<Verb>>,
}

async fn client(site: &Site, address: &Address, role: Role, name: &str) -> Result<EdgeClient, ClientError> {
    let credentials = site.credentials(role, name);
    EdgeClient::connect(vec![address.clone()], Some(&credentials), ClientOptions::default()).await
}

/// Members with each verb alone, with all and with none, in both roles; and the edge's own user.
async fn rows(site: &Site, unix: &Address, tls: &Address) -> Vec<Row> {
    let mut rows = Vec::new();
    let members = ASKED.iter().map(|verb| (verb.as_str(), vec![*verb]));
    let members = members.chain([("everything", ASKED.to_vec()), ("nothing", Vec::new())]);
    for (name, verbs) in members {
        for role in [Role::App, Role::Edge] {
            let client = client(site, tls, role, &format!("only/{name}")).await.unwrap();
            let (who, verbs) = (format!("{}/only/{name}", role.as_str()), Some(verbs.clone()));
            rows.push(Row { who, by: "gRPC", client, verbs });
        }
    }
    // The kernel says who it is. What a certificate says plays no part on the socket.
    let client = client(site, unix, Role::App, "only/nothing").await.unwrap();
    rows.push(Row { who: "the edge's own user".into(), by: "socket", client, verbs: None });
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_may_ask_what_was_granted_and_nothing_else() {
    let site = Site::new();
    let mut given = Vec::new();
    for role in ["app", "edge"] {
        given.extend(ASKED.map(|verb| (format!("{role}/only/{verb}"), verb, "dock/*")));
        given.extend(ASKED.map(|verb| (format!("{role}/only/everything"), verb, "dock/*")));
    }
    let edge = site.edge();
    let _granted = site.camera("dock/cam1", &edge).await;
    let _foreign = site.camera("yard/cam1", &edge).await;
    let rights = LiveRights::fixed(grants(&given));
    let (_server, unix, tls) = site.serve_edge_with(&edge, rights).await;

    let heads: Vec<String> = Request::ALL.iter().map(|request| format!("{request:?}")).collect();
    let mut table = format!("{:22} {:6} {:10} {}\n", "who", "by", "camera", heads.join(" "));
    let mut wrong = Vec::new();
    for Row { who, by, client, verbs } in rows(&site, &unix, &tls).await {
        // Nobody knows the last: what is refused is refused in the same way whether the camera exists or not.
        for (camera, is_granted) in [("dock/cam1", true), ("yard/cam1", false), ("lane/cam9", false)] {
            let mut cells = Vec::new();
            for (request, head) in Request::ALL.into_iter().zip(&heads) {
                if camera == "lane/cam9" && verbs.is_none() && request == Request::Reply {
                    // Nobody is there to reply to.
                    cells.push(format!("{:>1$}", "-", head.len()));
                    continue;
                }
                let found = within(outcome(&client, request, camera)).await;
                let has = |verb: &Verb| verbs.as_ref().is_none_or(|verbs| verbs.contains(verb) && is_granted);
                let may = request.verbs().iter().all(has);
                let expected = match () {
                    () if verbs.is_some() && request.is_of_host() => "host",
                    () if may => "yes",
                    () => "no",
                };
                if found != expected {
                    wrong.push(format!("{who} {request:?} {camera}: {found} instead of {expected}"));
                }
                cells.push(format!("{found:>0$}", head.len()));
            }
            writeln!(table, "{who:22} {by:6} {camera:10} {}", cells.join(" ")).unwrap();
        }
    }
    // A camera's certificate opens no door for applications.
    let camera = client(&site, &tls, Role::Camera, "dock/cam1").await.err().expect("refused").to_string();
    writeln!(table, "{:22} {:6} {:10} {camera}", "camera/dock/cam1", "gRPC", "any").unwrap();
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
}

/// A client in another language comes through the same socket, as the same user, and meets the same rights.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_client_on_the_socket_meets_the_same_rights() {
    let site = Site::new();
    let edge = site.edge();
    let _camera = site.camera("dock/cam1", &edge).await;
    let (_server, unix, _) = site.serve_edge_with(&edge, LiveRights::fixed(Rights::default())).await;
    let path = unix.as_unix().unwrap().display().to_string();
    let channel = Endpoint::from_shared(format!("unix://{path}")).unwrap().connect().await.unwrap();
    let mut foreign = EdgeBrokerClient::new(channel);
    let listed = foreign.get_camera_info(pb::GetCameraInfoRequest { pattern: String::new() }).await.unwrap();
    // The owner of the edge's process needs no grant.
    assert_eq!(listed.into_inner().cameras.len(), 1);
}

// ---- the link ----------------------------------------------------------------------------------------------

/// A first message that claims a camera's name.
fn hello(camera: &str) -> Vec<u8> {
    let anchor = ClockAnchor { wall: wall_now(), monotonic: monotonic_now() };
    let (camera, software) = (camera.parse().unwrap(), "a program of somebody".into());
    let hello = Hello { version: VERSION, camera, epoch: Epoch(5), attempt: 1, anchor, software };
    let mut message = Vec::new();
    Message::Hello(hello).encode(&mut message);
    message
}

fn word_of(answer: &Message) -> String {
    match answer {
        Message::Welcome(_) => "yes".into(),
        Message::Refuse { text, .. } => format!("no: {text}"),
        other => format!("{other:?}"),
    }
}

async fn first_message(mut reader: impl AsyncRead + Unpin, records: bool) -> Message {
    let mut messages = MessageBuffer::default();
    loop {
        let mut bytes = vec![0; 1];
        if records {
            let mut head = [0; 8];
            reader.read_exact(&mut head).await.unwrap();
            bytes = vec![0; usize::from(u16::from_le_bytes([head[2], head[3]]))];
        }
        reader.read_exact(&mut bytes).await.unwrap();
        messages.push(&bytes);
        if let Some(message) = messages.next().unwrap() {
            return message;
        }
    }
}

async fn over_tcp(site: &Site, edge: &EdgeHandle, (holder, camera): (&str, &str)) -> String {
    let credentials = site.credentials(Role::Camera, holder);
    let connector = TlsConnector::from(Arc::new(link_client_config(&credentials).unwrap()));
    let socket = TcpStream::connect(edge.link_address()).await.unwrap();
    let stream = connector.connect(EDGE_SERVER_NAME.try_into().unwrap(), socket).await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    let message = hello(camera);
    // A record of kind `Control`.
    let mut record = vec![1, 0];
    record.extend_from_slice(&(message.len() as u16).to_le_bytes());
    record.extend_from_slice(&[0; 4]);
    record.extend_from_slice(&message);
    say(writer, &record).await;
    word_of(&first_message(reader, true).await)
}

async fn over_quic(site: &Site, edge: &EdgeHandle, (holder, camera): (&str, &str)) -> String {
    let credentials = site.credentials(Role::Camera, holder);
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(quic_client_config(&credentials).unwrap()));
    let connected = endpoint.connect_with(config, edge.link_address(), EDGE_SERVER_NAME).unwrap();
    let connection = connected.await.unwrap();
    let (writer, reader) = connection.open_bi().await.unwrap();
    let _open = say(writer, &hello(camera)).await;
    word_of(&first_message(reader, false).await)
}

/// Says it, and keeps the way open.
async fn say<W: AsyncWrite + Unpin>(mut writer: W, bytes: &[u8]) -> W {
    writer.write_all(bytes).await.unwrap();
    writer.flush().await.unwrap();
    writer
}

/// A camera publishes under its own name and below it, whatever its program claims. Other roles do not get through the handshake
/// (`certificates.rs`).
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_publishes_its_own_name_over_either_link() {
    let site = Site::new();
    let edge = site.edge();
    let rows = [
        (("dock/cam1", "dock/cam1"), true),
        (("dock", "dock/cam2"), true),
        (("dock/cam1", "yard/cam1"), false),
        (("dock/cam1", "dock/cam10"), false),
        (("dock/cam1", "dock"), false),
    ];
    let mut table = format!("{:10} {:10} {:5} may publish\n", "camera", "claims", "link");
    for (claim, may) in rows {
        for way in ["QUIC", "TCP"] {
            let told = match way {
                "QUIC" => within(over_quic(&site, &edge, claim)).await,
                _ => within(over_tcp(&site, &edge, claim)).await,
            };
            writeln!(table, "{:10} {:10} {way:5} {told}", claim.0, claim.1).unwrap();
            assert_eq!(told == "yes", may, "{table}");
            assert!(
                may || told.contains(&format!("may not be camera {}; enrol one that may", claim.1)),
                "{table}"
            );
        }
    }
    println!("{table}");
}
