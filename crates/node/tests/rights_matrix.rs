//! Every role and verb with granted, foreign and unknown cameras through every interface, on real sockets. Prints tables:
//! `cargo test -p mez-node --test rights_matrix -- --nocapture`. Other users of this host are real ones if root runs it.

mod api_support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
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
use mez_node::client::{
    Address, AnswerContent, AnswerCounts, ClientError, ClientOptions, DerivedStream, EdgeClient,
    PublisherClient, PublisherOptions, Resume, SubscribeOptions,
};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::edge::EdgeHandle;
use mez_node::identity::name::Role;
use mez_node::identity::tls::{link_client_config, quic_client_config};
use mez_node::identity::{Credentials, EDGE_SERVER_NAME};
use mez_node::rights::LiveRights;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;

/// The verbs that interfaces use: all of them.
const ASKED: [Verb; 9] = [
    Verb::Watch,
    Verb::Read,
    Verb::Originals,
    Verb::Export,
    Verb::Reply,
    Verb::Publish,
    Verb::Observe,
    Verb::Profile,
    Verb::Operate,
];

/// A granted, a foreign and an unknown camera: a refusal does not depend on whether the camera exists.
const CAMERAS: [&str; 3] = ["dock/cam1", "yard/cam1", "lane/cam9"];

/// A request to an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Newest,
    Every,
    /// The past as the edge holds it.
    Held,
    /// The past at a lower quality.
    Smaller,
    /// The past as published.
    Past,
    /// The originals of the newest frames.
    Originals,
    /// All frames, with gaps filled.
    Filled,
    /// From a future time on.
    Later,
    /// With a profile of its own.
    Profiled,
    /// Live frames to be written into files.
    Recorded,
    /// Frames of the past to be written into files.
    Exported,
    List,
    Starts,
    Notes,
    Reply,
    /// A picture made of a frame.
    Answer,
    /// A derived stream with this name.
    Publish,
    Reset,
    Forget,
}

impl Request {
    const ALL: [Self; 19] = [
        Self::Newest,
        Self::Every,
        Self::Held,
        Self::Smaller,
        Self::Past,
        Self::Originals,
        Self::Filled,
        Self::Later,
        Self::Profiled,
        Self::Recorded,
        Self::Exported,
        Self::List,
        Self::Starts,
        Self::Notes,
        Self::Reply,
        Self::Answer,
        Self::Publish,
        // Last, because the camera is changed afterwards.
        Self::Forget,
        Self::Reset,
    ];

    /// The required verbs.
    const fn verbs(self) -> &'static [Verb] {
        use Verb::{Export, Observe, Operate, Originals, Profile, Publish, Read, Reply, Watch};
        match self {
            Self::Newest | Self::Every => &[Watch],
            Self::Held | Self::Smaller | Self::Notes => &[Read],
            Self::Past => &[Read, Originals],
            Self::Originals => &[Watch, Originals],
            Self::Filled | Self::Later => &[Watch, Read, Originals],
            Self::Profiled => &[Watch, Profile],
            Self::Recorded => &[Watch, Export],
            Self::Exported => &[Read, Export],
            Self::List | Self::Starts => &[Observe],
            Self::Reply | Self::Answer => &[Reply],
            Self::Publish => &[Publish],
            Self::Reset | Self::Forget => &[Operate],
        }
    }

    /// Whether only users of the edge's host may make this request.
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
            Self::Recorded => SubscribeOptions { for_export: true, ..live },
            Self::Exported => SubscribeOptions { held_only: true, for_export: true, ..past },
            _ => return None,
        })
    }
}

/// A client, and its access path.
struct Asker {
    client: EdgeClient,
    address: Address,
    credentials: Option<Credentials>,
}

impl Asker {
    async fn connect(address: &Address, credentials: Option<Credentials>) -> Result<Self, ClientError> {
        let addresses = vec![address.clone()];
        let client = EdgeClient::connect(addresses, credentials.as_ref(), ClientOptions::default()).await?;
        Ok(Self { client, address: address.clone(), credentials })
    }

    /// A stream below `name` without sources.
    async fn publish(&self, name: CameraName) -> Result<PublisherClient, ClientError> {
        let (stream, addresses) = (DerivedStream { name, of: Vec::new() }, vec![self.address.clone()]);
        let options = PublisherOptions { patience: Duration::from_secs(1), waiting_frames_max: 1 };
        PublisherClient::connect_to_edge(addresses, self.credentials.as_ref(), &stream, options).await
    }
}

/// The edge's answer to a request, as a word.
async fn outcome(asker: &Asker, request: Request, camera: &str) -> &'static str {
    let client = &asker.client;
    let name: CameraName = camera.parse().unwrap();
    if let Some(options) = request.subscription(camera) {
        return word(client.subscribe(options).await);
    }
    match request {
        Request::Publish => word(asker.publish(name).await),
        Request::List => word(client.cameras(Some(&camera.parse().unwrap())).await),
        Request::Starts => word(client.camera_starts(&name).await),
        Request::Notes => word(client.notes(&name, (None, None), None).await),
        Request::Reset => word(client.reset_camera(&name).await),
        Request::Forget => word(client.forget_camera(&name).await),
        Request::Answer => {
            let before = client.answer_counts();
            let frame = FrameId { epoch: Epoch(1), sequence: Sequence(1) };
            client.answer(&name, frame, AnswerContent::Coded(b"picture".as_slice().into())).unwrap();
            while client.answer_counts() == (AnswerCounts { queued: before.queued + 1, ..before }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client
                .refused_answer(&name)
                .map_or("yes", |refusal| word::<()>(Err(ClientError::Refused(refusal))))
        }
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
        // It passed the check of rights: `{}` is no profile, there are no notes, the camera may be unknown, and a camera's name is no stream's.
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

/// The holders by name, with their verbs for `dock/*`: each verb alone, exactly what one request needs, everything, and nothing.
fn holders() -> Vec<(String, Vec<Verb>)> {
    let alone = ASKED.iter().map(|verb| (verb.to_string(), vec![*verb]));
    let several = Request::ALL.into_iter().filter(|request| request.verbs().len() > 1);
    let exact = several.map(|request| (format!("for-{request:?}").to_lowercase(), request.verbs().to_vec()));
    let ends = [("everything".to_owned(), ASKED.to_vec()), ("nothing".to_owned(), Vec::new())];
    alone.chain(exact).chain(ends).collect()
}

/// The first user ID that stands for a holder. Hosts of tests have no such users, but the kernel accepts them.
const UID: u32 = 61_000;

/// The grants of all holders, as applications, edges, and users of this host.
fn given() -> Vec<(String, Verb, &'static str)> {
    let names = |(place, (name, verbs)): (u32, (String, Vec<Verb>))| {
        let whos = [format!("app/only/{name}"), format!("edge/only/{name}"), format!("user/{}", UID + place)];
        whos.into_iter()
            .flat_map(move |who| verbs.clone().into_iter().map(move |verb| (who.clone(), verb, "dock/*")))
    };
    (0..).zip(holders()).flat_map(names).collect()
}

/// The answers, by camera and request.
type Heard = BTreeMap<(String, String), String>;

/// A client that makes all requests.
struct Row {
    who: String,
    by: &'static str,
    asks: Asks,
    /// Its verbs for `dock/*`. `None`: it may do everything.
    verbs: Option<Vec<Verb>>,
}

enum Asks {
    Client(Asker),
    /// In a process of another user.
    User(u32, PathBuf),
}

impl Row {
    async fn heard(&self) -> Heard {
        match &self.asks {
            Asks::Client(asker) => everything_asked(asker).await,
            Asks::User(uid, socket) => {
                let output = tokio::task::block_in_place(|| run_as(*uid, socket));
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
                let cells = text.lines().filter_map(|line| line.strip_prefix(CELL));
                let words = cells.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
                words.map(|words| ((words[0].clone(), words[1].clone()), words[2].clone())).collect()
            }
        }
    }

    /// The expected answer. `None`: there is nobody to reply to.
    fn expected(&self, request: Request, camera: &str) -> Option<&'static str> {
        let is_member = self.by == "gRPC";
        let is_granted = camera == CAMERAS[0];
        let has = |verb: &Verb| self.verbs.as_ref().is_none_or(|verbs| verbs.contains(verb) && is_granted);
        match () {
            () if camera == CAMERAS[2] && self.verbs.is_none() && request == Request::Reply => None,
            () if is_member && request.is_of_host() => Some("host"),
            () if request.verbs().iter().all(has) => Some("yes"),
            () => Some("no"),
        }
    }
}

async fn everything_asked(asker: &Asker) -> Heard {
    let mut heard = Heard::new();
    for camera in CAMERAS {
        for request in Request::ALL {
            let word = within(outcome(asker, request, camera)).await;
            heard.insert((camera.into(), format!("{request:?}")), word.into());
        }
    }
    heard
}

/// Set in the child process of this test: the socket to use.
const ASKS_AT: &str = "MEZ_TEST_ASKS_AT";
/// Begins a line of the child process that contains an answer.
const CELL: &str = "heard: ";

/// Runs [`child_process_that_asks`] as another user of this host. Only root can do this.
fn run_as(uid: u32, socket: &Path) -> Output {
    // That user may have no access to this program's path.
    let mut child = Command::new("/proc/self/exe");
    child.args(["--exact", "child_process_that_asks", "--nocapture", "--test-threads=1"]);
    child.current_dir("/").env_clear().env(ASKS_AT, socket).uid(uid).gid(uid);
    child.output().unwrap_or_else(|error| panic!("this test's program cannot be run as user {uid}: {error}"))
}

/// Not a test itself: a program of another user of this host, without a certificate.
#[tokio::test(flavor = "multi_thread")]
async fn child_process_that_asks() {
    let Ok(path) = std::env::var(ASKS_AT) else { return };
    let address = Address::Unix(path.clone().into());
    let asker = match Asker::connect(&address, None).await {
        Ok(asker) => asker,
        Err(error) => return println!("\n{CELL}the socket: {error}"),
    };
    for ((camera, request), word) in everything_asked(&asker).await {
        println!("\n{CELL}{camera} {request} {word}");
    }
    for camera in CAMERAS {
        println!("\n{CELL}{camera} {FOREIGN} {}", foreign_list(&path, camera).await);
    }
}

/// A list that a client in another language requests through the same socket.
const FOREIGN: &str = "foreign";

async fn foreign_list(path: &str, camera: &str) -> &'static str {
    let channel = Endpoint::from_shared(format!("unix://{path}")).unwrap().connect().await.unwrap();
    let request = pb::GetCameraInfoRequest { pattern: camera.into() };
    match within(EdgeBrokerClient::new(channel).get_camera_info(request)).await {
        Ok(_) => "yes",
        Err(status) if status.code() == tonic::Code::PermissionDenied => "no",
        Err(status) => panic!("{status}"),
    }
}

async fn asker(site: &Site, address: &Address, role: Role, name: &str) -> Result<Asker, ClientError> {
    Asker::connect(address, Some(site.credentials(role, name))).await
}

/// All holders in both roles and as users of this host, and finally the edge's own user.
async fn rows(site: &Site, unix: &Address, tls: &Address) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut users = Vec::new();
    let socket = unix.as_unix().unwrap();
    for (uid, (name, verbs)) in (UID..).zip(holders()) {
        for role in [Role::App, Role::Edge] {
            let asks = Asks::Client(asker(site, tls, role, &format!("only/{name}")).await.unwrap());
            let (who, verbs) = (format!("{}/only/{name}", role.as_str()), Some(verbs.clone()));
            rows.push(Row { who, by: "gRPC", asks, verbs });
        }
        let (who, asks) = (format!("user/{uid} {name}"), Asks::User(uid, socket.to_owned()));
        users.push(Row { who, by: "socket", asks, verbs: Some(verbs) });
    }
    if rustix::process::geteuid().is_root() {
        // The operator decides whom the kernel lets in: here, everyone.
        set_permissions(site.folder.path(), Permissions::from_mode(0o755)).unwrap();
        set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
        rows.append(&mut users);
    } else {
        println!("only root can be another user of this host: those {} rows are left out", users.len());
    }
    // On the socket, the kernel identifies the client. Its certificate does not matter.
    let asks = Asks::Client(asker(site, unix, Role::App, "only/nothing").await.unwrap());
    rows.push(Row { who: "the edge's own user".into(), by: "socket", asks, verbs: None });
    rows
}

/// Waits until both cameras are connected, since a request may have reset them.
async fn until_connected(edge: &EdgeHandle) {
    within(async {
        while edge.cameras().await.unwrap().iter().filter(|camera| camera.connected).count() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_may_ask_what_was_granted_and_nothing_else() {
    let site = Site::new();
    let edge = site.edge();
    let _granted = site.camera(CAMERAS[0], &edge).await;
    let _foreign = site.camera(CAMERAS[1], &edge).await;
    let rights = LiveRights::fixed(grants(&given()));
    let (_server, unix, tls) = site.serve_edge_with(&edge, rights).await;

    let heads: Vec<String> = Request::ALL.iter().map(|request| format!("{request:?}")).collect();
    let mut table = format!("{:24} {:6} {:10} {}\n", "who", "by", "camera", heads.join(" "));
    let mut wrong = Vec::new();
    for row in rows(&site, &unix, &tls).await {
        until_connected(&edge).await;
        let heard = row.heard().await;
        for camera in CAMERAS {
            let mut cells = Vec::new();
            for (request, head) in Request::ALL.into_iter().zip(&heads) {
                let found = heard.get(&(camera.into(), head.clone())).map_or("nothing", String::as_str);
                let Some(expected) = row.expected(request, camera) else {
                    cells.push(format!("{:>1$}", "-", head.len()));
                    continue;
                };
                if found != expected {
                    wrong.push(format!("{} {head} {camera}: {found} instead of {expected}", row.who));
                }
                cells.push(format!("{found:>0$}", head.len()));
            }
            if let Some(listed) = heard.get(&(camera.into(), FOREIGN.into())) {
                // With or without gRPC: the socket identifies the client, and the rights are the same.
                assert_eq!(
                    Some(listed.as_str()),
                    row.expected(Request::List, camera),
                    "{} {camera}",
                    row.who
                );
            }
            writeln!(table, "{:24} {:6} {camera:10} {}", row.who, row.by, cells.join(" ")).unwrap();
        }
    }
    // A camera's certificate is not accepted at the port for applications.
    let camera = asker(&site, &tls, Role::Camera, CAMERAS[0]).await.err().expect("refused").to_string();
    writeln!(table, "{:24} {:6} {:10} {camera}", "camera/dock/cam1", "gRPC", "any").unwrap();
    println!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
}

/// The permissions of the socket's file come before any right: they admit only the edge's user and group.
#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_the_socket_keeps_other_users_out() {
    if !rustix::process::geteuid().is_root() {
        return println!("only root can be another user of this host: left out");
    }
    let site = Site::new();
    let edge = site.edge();
    let all = [(format!("user/{UID}"), Verb::Observe, "**"), ("user/*".to_owned(), Verb::Watch, "**")];
    let (_server, unix, _) = site.serve_edge_with(&edge, LiveRights::fixed(grants(&all))).await;
    set_permissions(site.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let output = tokio::task::block_in_place(|| run_as(UID, unix.as_unix().unwrap()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = text.lines().find_map(|line| line.strip_prefix(CELL)).unwrap_or_else(|| panic!("{text}"));
    assert!(told.starts_with("the socket: ") && told.contains("this user may not use the socket"), "{text}");
}

/// A client in another language uses the same socket as the same user: the owner of the edge's process needs no grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_client_on_the_socket_meets_the_same_rights() {
    let site = Site::new();
    let edge = site.edge();
    let _camera = site.camera("dock/cam1", &edge).await;
    let (_server, unix, _) = site.serve_edge_with(&edge, LiveRights::fixed(Rights::default())).await;
    let path = unix.as_unix().unwrap().display().to_string();
    assert_eq!(foreign_list(&path, "dock/cam1").await, "yes");
}

// ---- the link ----------------------------------------------------------------------------------------------

/// A first message with a camera's name.
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
    // A record of type `Control`.
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

/// Sends bytes, and keeps the connection open.
async fn say<W: AsyncWrite + Unpin>(mut writer: W, bytes: &[u8]) -> W {
    writer.write_all(bytes).await.unwrap();
    writer.flush().await.unwrap();
    writer
}

/// A camera publishes under its own name and below it, whatever its program claims. Other roles fail in the handshake (`certificates.rs`).
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
                may || told
                    .contains(&format!("may not publish camera {}; enrol an identity that may", claim.1)),
                "{table}"
            );
        }
    }
    println!("{table}");
}
