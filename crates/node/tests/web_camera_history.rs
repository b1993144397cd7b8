//! What a camera holds in its own log, over HTTP and a real link: holes of both sides with reasons, and cameras that cannot or will not answer.

mod api_support;
mod past_support;
mod web_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::Contract;
use mez_core::frame::{Epoch, SkipCounts};
use mez_core::history::{HeldSpan, Survey};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::subscription::Span;
use mez_core::units::{ClockAnchor, Timestamp};
use mez_core::wire::{
    Abilities, Hello, HistoryCode, HistoryEnd, Message, MessageBuffer, NoSurvey, SurveyAnswer, SurveyRequest,
    VERSION,
};
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Transport};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::edge::EdgeSubscription;
use mez_node::identity::name::Role;
use mez_node::identity::tls::link_client_config;
use mez_node::identity::{Credentials, EDGE_SERVER_NAME};
use mez_node::persist::PersistOptions;
use mez_node::ports::EdgeAddress;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use self::api_support::within;
use self::past_support::{CAMERA, World, arrives, jpeg, stretches, until};
use self::web_support::{Got, faults};

/// A path between camera and edge that can be cut.
struct Way {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Way {
    async fn to(edge: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (listener.local_addr().unwrap(), watch::Sender::new(true));
        let is_open = open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut camera, _)) = listener.accept().await {
                let mut is_open = is_open.clone();
                tokio::spawn(async move {
                    let Ok(mut edge) = TcpStream::connect(edge).await else { return };
                    tokio::select! {
                        _ = is_open.wait_for(|open| !open) => {}
                        _ = tokio::io::copy_bidirectional(&mut camera, &mut edge) => {}
                    }
                });
            }
        });
        Self { address, open }
    }
}

fn options(world: &World, port: u16) -> CameraOptions {
    let edges = vec![EdgeAddress { host: "127.0.0.1".into(), port }];
    let credentials = world.site.credentials(Role::Camera, CAMERA);
    let mut options = CameraOptions::new(CAMERA.parse().unwrap(), edges, credentials);
    options.state = Some(world.site.folder.path().join("state"));
    options.transport = Transport::Tcp;
    options
}

/// Starts a camera. A camera that was just stopped releases its state and its log a moment later.
async fn start(options: &CameraOptions) -> CameraHandle {
    let started = async {
        loop {
            match CameraBroker::start(options.clone()) {
                Ok(camera) => return camera,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let camera = within(started).await;
    within(camera.edge().wait_for(Option::is_some)).await.unwrap();
    camera
}

async fn live(world: &World) -> EdgeSubscription {
    world.edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap()
}

/// The number of frames at the camera in an answer.
fn frames_at_camera(got: &Got) -> u64 {
    let told = got.json();
    let spans = told["camera_spans"].as_array().cloned().unwrap_or_default();
    spans.iter().map(|span| span["frames"].as_u64().unwrap()).sum()
}

/// The link breaks: frames of this time are only at the camera. Then the camera restarts without a disk: its earlier frames are only at the edge.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_link_is_a_hole_of_the_edge_and_a_restart_is_one_of_the_camera() {
    let (world, jpeg) = (World::new(true).await, jpeg());
    let way = Way::to(world.edge.link_address()).await;
    let camera = start(&options(&world, way.address.port())).await;
    let mut subscription = live(&world).await;
    world.begin(&camera, &jpeg, 9_200, &mut subscription).await;
    for frame in 0..5 {
        world.publish(&camera, &jpeg, 10_000 + 200 * frame);
        arrives(&mut subscription).await;
    }
    way.open.send_replace(false);
    within(camera.edge().wait_for(Option::is_none)).await.unwrap();
    for second in 11..=30 {
        world.publish(&camera, &jpeg, second * 1_000);
    }
    way.open.send_replace(true);
    within(camera.edge().wait_for(Option::is_some)).await.unwrap();
    world.begin(&camera, &jpeg, 31_000, &mut subscription).await;

    let reader = world.member("reader");
    let held = world.path("history", (0, 60_000));
    let spans = |got: &Got| got.json()["spans"].as_array().unwrap().len();
    let got = until(&reader, &held, |got| spans(got) == 2 && frames_at_camera(got) >= 27).await;
    let told = got.json();
    assert_eq!(faults(&told, "Held"), [""; 0]);
    let [(first, last, _), (again, ..)] = &stretches(&world, &told["spans"], "frames")[..] else {
        panic!("{told}")
    };
    let holes = stretches(&world, &told["holes"], "reason");
    assert_eq!(holes[..2], [(0, *first, "gone".into()), (*last, *again, "link_down".into())], "{told}");
    // The camera has all frames in one span, beginning before the edge's first frame.
    let [(from, to, _)] = &stretches(&world, &told["camera_spans"], "frames")[..] else { panic!("{told}") };
    assert!(from <= first && to >= again && *last == 10_800, "{told}");
    let of_camera = stretches(&world, &told["camera_holes"], "reason");
    assert_eq!(of_camera, [(0, *from, "gone".into()), (*to, 60_000, "not_published".into())]);
    assert_eq!(told["camera_from_utc_ms"], world.begin_ms + from);
    assert_eq!(told["camera_surveyed_until_utc_ms"], world.begin_ms + 60_000);
    // A picture within the hole comes from the camera.
    let picture = reader.get(&world.instant(20_000)).await;
    assert_eq!(picture.header("mez-rung"), "jpeg/w640/q60/420");

    drop(camera);
    let camera = start(&options(&world, way.address.port())).await;
    world.begin(&camera, &jpeg, 40_000, &mut subscription).await;
    let restarted = |got: &Got| spans(got) == 3 && frames_at_camera(got) > 0;
    let told = until(&reader, &held, restarted).await.json();
    let [.., (begun, end, _)] = &stretches(&world, &told["spans"], "frames")[..] else { panic!("{told}") };
    let of_camera = stretches(&world, &told["camera_holes"], "reason");
    let [(0, from, gone), (to, 60_000, _)] = &of_camera[..] else { panic!("{told}") };
    assert!(*gone == "gone" && (40_000..=*begun).contains(from) && to >= end, "{told}");
}

/// A camera with a disk and little memory, whose frames nobody requested: all its holes are its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_camera_with_a_disk_tells_the_holes_of_its_own_log() {
    let (world, jpeg) = (World::new(true).await, jpeg());
    let mut options = options(&world, world.edge.link_address().port());
    let keys = KeyRing::new(vec![MasterKey::new([6; KEY_BYTES])]).unwrap();
    options.persist = Some(PersistOptions::new(world.site.folder.path().join("camera-log"), keys));
    let publish = |camera: &CameraHandle, seconds: std::ops::RangeInclusive<u64>| {
        for second in seconds {
            world.publish(camera, &jpeg, second * 1_000);
        }
    };
    let camera = start(&options).await;
    let reader = world.member("reader");
    let held = world.path("history", (0, 100_000));
    publish(&camera, 10..=24);
    until(&reader, &held, |got| frames_at_camera(got) == 15).await;
    camera.finish_log();
    drop(camera);
    // Its next start has room for a dozen frames in memory, so the oldest ones are only on its disk.
    (options.log.bytes_max, options.log.segment_bytes) = (12 << 17, 1 << 17);
    let camera = start(&options).await;
    publish(&camera, 50..=54);
    publish(&camera, 70..=72);
    let told = until(&reader, &held, |got| frames_at_camera(got) == 23).await.json();
    assert_eq!(faults(&told, "Held"), [""; 0]);
    assert_eq!(
        stretches(&world, &told["camera_spans"], "frames"),
        [(10_000, 24_000, 15.into()), (50_000, 54_000, 5.into()), (70_000, 72_000, 3.into())]
    );
    assert_eq!(
        stretches(&world, &told["camera_holes"], "reason"),
        [
            (0, 10_000, "gone".into()),
            (24_000, 50_000, "camera_restarted".into()),
            (54_000, 70_000, "not_published".into()),
            (72_000, 100_000, "not_published".into()),
        ]
    );
    assert_eq!((&told["spans"], &told["holes"][0]["reason"]), (&serde_json::json!([]), &"gone".into()));
    // A span within a hole is explained by the frame after it.
    let told = reader.get(&world.path("history", (26_000, 40_000))).await.json();
    let hole = (26_000, 40_000, "not_published".into());
    assert_eq!(stretches(&world, &told["camera_holes"], "reason"), [hole], "{told}");
}

// ---- cameras of other versions, and lying ones --------------------------------------------------------------

/// The link of a camera: it sends hello and abilities, and answers surveys by `answer`.
struct Double {
    task: AbortHandle,
    /// The number of requests for a survey.
    asked: Arc<AtomicU64>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Double {
    /// A camera of this start. It reports to hold frames from 5 s after the beginning on.
    fn start(
        world: &World,
        start: u64,
        abilities: Abilities,
        survey: impl Fn(SurveyRequest) -> Option<Result<Survey, NoSurvey>> + Send + 'static,
    ) -> Self {
        let (credentials, edge) = (world.site.credentials(Role::Camera, CAMERA), world.edge.link_address());
        let held_from = Timestamp::from_nanos((world.begin_ms + 5_000) * 1_000_000);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let answer = move |message: Message| match message {
            Message::Welcome(_) => Some(Message::Abilities(abilities)),
            Message::Ping { t1 } => Some(Message::Pong { t1, t2: monotonic_now(), t3: monotonic_now() }),
            Message::HistoryRequest(request) => Some(Message::HistoryEnd(HistoryEnd {
                request: request.request,
                code: HistoryCode::None,
                held_from: Some(held_from),
            })),
            Message::SurveyRequest(request) => {
                counted.fetch_add(1, Ordering::Relaxed);
                let SurveyRequest { request: number, begin, .. } = request;
                let answer = |survey| SurveyAnswer { request: number, begin, survey };
                survey(request).map(answer).map(Message::SurveyAnswer)
            }
            _ => None,
        };
        let task = tokio::spawn(talk(credentials, edge, start, answer)).abort_handle();
        Self { task, asked }
    }
}

async fn talk(
    credentials: Credentials,
    edge: SocketAddr,
    start: u64,
    answer: impl Fn(Message) -> Option<Message>,
) {
    let connector = TlsConnector::from(Arc::new(link_client_config(&credentials).unwrap()));
    let socket = TcpStream::connect(edge).await.unwrap();
    let mut stream = connector.connect(EDGE_SERVER_NAME.try_into().unwrap(), socket).await.unwrap();
    let anchor = ClockAnchor { wall: wall_now(), monotonic: monotonic_now() };
    let (camera, epoch) = (CAMERA.parse().unwrap(), Epoch(start));
    let software = "a double".into();
    let hello = Hello { version: VERSION, camera, epoch, attempt: 1, anchor, software };
    stream.write_all(&record(&Message::Hello(hello))).await.unwrap();
    let mut messages = MessageBuffer::default();
    loop {
        let mut head = [0; 8];
        // The test is over, or another connection has replaced this one.
        let Ok(_) = stream.read_exact(&mut head).await else { return };
        let mut bytes = vec![0; usize::from(u16::from_le_bytes([head[2], head[3]]))];
        let Ok(_) = stream.read_exact(&mut bytes).await else { return };
        messages.push(&bytes);
        while let Some(message) = messages.next().unwrap() {
            let Some(answer) = answer(message) else { continue };
            let Ok(()) = stream.write_all(&record(&answer)).await else { return };
        }
    }
}

/// A message in a record of type `Control`.
fn record(message: &Message) -> Bytes {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let head = [&[1, 0], &(bytes.len() as u16).to_le_bytes()[..], &[0; 4]].concat();
    [head, bytes].concat().into()
}

/// The camera reports since when it holds frames, and nothing more.
fn says_only_since_when(world: &World, told: &Value) {
    assert_eq!(faults(told, "Held"), [""; 0]);
    assert_eq!(told["camera_from_utc_ms"], world.begin_ms + 5_000, "{told}");
    assert_eq!(told["camera_unanswered"], Value::Null);
    for name in ["camera_spans", "camera_holes", "camera_surveyed_until_utc_ms"] {
        assert_eq!(told[name], Value::Null, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_camera_of_an_earlier_version_is_not_asked() {
    let world = World::new(false).await;
    let abilities = Abilities { past: true, surveys: false };
    let camera = Double::start(&world, 1, abilities, |_| None);
    let answered = |got: &Got| got.json()["camera_from_utc_ms"].is_u64();
    let held = world.path("history", (0, 60_000));
    let got = until(&world.member("reader"), &held, answered).await;
    says_only_since_when(&world, &got.json());
    assert_eq!(camera.asked.load(Ordering::Relaxed), 0);
}

/// Whatever a camera answers, the page has an answer, and the camera stays connected.
#[tokio::test(flavor = "multi_thread")]
async fn a_lying_answer_is_refused() {
    let world = World::new(false).await;
    let reader = world.member("reader");
    let held = world.path("history", (0, 60_000));
    let answered = |got: &Got| got.json()["camera_from_utc_ms"].is_u64();
    let span = |begin, end| HeldSpan { begin, end, frames: 7, skipped: SkipCounts::default() };
    let of = |spans| Some(Ok(Survey { spans, ..Survey::default() }));
    type Answer = Box<dyn Fn(SurveyRequest) -> Option<Result<Survey, NoSurvey>> + Send>;
    let answers: [Answer; 5] = [
        // A day more than the requested span.
        Box::new(move |asked| of(vec![span(asked.begin, asked.end() + Duration::from_hours(24))])),
        // Backwards in time, within a span, and from one span to the next.
        Box::new(move |asked| of(vec![span(asked.end(), asked.begin)])),
        Box::new(move |asked| of(vec![span(asked.end(), asked.end()), span(asked.begin, asked.begin)])),
        Box::new(|_| Some(Err(NoSurvey::Busy))),
        // No answer: this costs the page 5 s.
        Box::new(|_| None),
    ];
    for (place, answer) in answers.into_iter().enumerate() {
        let camera = Double::start(&world, place as u64 + 1, Abilities::ALL, answer);
        let was_asked = || camera.asked.load(Ordering::Relaxed) > 0;
        let got = until(&reader, &held, |got| answered(got) && was_asked()).await;
        says_only_since_when(&world, &got.json());
        // A lying camera is not disconnected for it.
        assert!(world.edge.cameras().await.unwrap()[0].connected);
    }
    // An honest answer is believed.
    let honest = move |asked: SurveyRequest| {
        let survey = Survey { held_from: Some(asked.begin), ..Survey::default() };
        Some(Ok(Survey { spans: vec![span(asked.begin, asked.end())], ..survey }))
    };
    let _camera = Double::start(&world, 9, Abilities::ALL, honest);
    let told = until(&reader, &held, |got| frames_at_camera(got) == 7).await.json();
    assert_eq!(stretches(&world, &told["camera_spans"], "frames"), [(0, 60_000, 7.into())]);
    assert_eq!(told["camera_holes"], serde_json::json!([]));
}
