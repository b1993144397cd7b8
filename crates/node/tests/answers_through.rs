//! Answers reach a publisher whose camera broker is in another process: over the local protocol, and over gRPC with TLS.

mod api_support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_support::{Site, image, tcp, within};
use bytes::Bytes;
use mez_core::answers::AnswerKind;
use mez_core::answers::Room;
use mez_core::broker::edge::GivenAnswer;
use mez_core::contract::Contract;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::subscription::Span;
use mez_core::wire::{AnswerSkip, AnswerSkips};
use mez_node::api::pb::camera_broker_client::CameraBrokerClient;
use mez_node::api::{ANSWERS_TAKEN, ApiError, ApiLimits, ApiServer, pb};
use mez_node::camera::{Answered, CameraHandle};
use mez_node::client::{Address, ClientError, PublisherClient, PublisherOptions};
use mez_node::edge::{EdgeHandle, EdgeSubscription, Served};
use mez_node::identity::name::Role;
use mez_node::local::{Kind, LocalConnection, PacketError};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

/// Runs a case over the local protocol and over TLS.
macro_rules! both_ways {
    ($($case:ident;)*) => { $(
        mod $case {
            #[tokio::test(flavor = "multi_thread")]
            async fn over_the_unix_socket() {
                super::$case(0).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn over_tls() {
                super::$case(1).await;
            }
        }
    )* };
}

both_ways! {
    an_answer_comes_back_with_its_frame_and_times;
    every_answer_is_given_or_told;
    a_broker_that_restarts_goes_on_with_answers;
    one_program_takes_answers_at_a_time;
    a_taker_that_ends_is_told_to_the_edge;
}

const BOUND: Duration = Duration::from_secs(10);

fn camera_name() -> CameraName {
    "dock/cam1".parse().unwrap()
}

/// An edge, a camera broker, and the addresses of the camera broker: its socket, and its port with TLS.
struct Rig {
    server: ApiServer,
    camera: CameraHandle,
    addresses: [Address; 2],
    edge: EdgeHandle,
    site: Site,
    /// Answers that were given to the edge.
    answered: AtomicU64,
}

impl Rig {
    async fn new() -> Self {
        let site = Site::new();
        let edge = site.edge();
        let camera = site.camera("dock/cam1", &edge).await;
        let (server, addresses) = serve(&site, &camera, "127.0.0.1:0".parse().unwrap(), &[Role::App]).await;
        Self { server, camera, addresses, edge, site, answered: AtomicU64::new(0) }
    }

    async fn publisher(&self, way: usize) -> PublisherClient {
        self.site.publisher(&self.addresses[way]).await
    }

    async fn frames(&self) -> EdgeSubscription {
        self.edge.subscribe("dock/cam1".parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap()
    }

    async fn answer(&self, frame: FrameId, bytes: usize) -> Room {
        self.answered.fetch_add(1, Ordering::Relaxed);
        // The edge does not decode it.
        let made = GivenAnswer {
            kind: AnswerKind::Picture,
            payload: vec![9; bytes].into(),
            size: (32, 24),
            shown: (32, 24),
            replaced: 0,
        };
        self.edge.answer(camera_name(), frame, made).await.unwrap()
    }

    /// Answers until the edge knows that answers are wanted. Returns the frame of the first wanted answer.
    async fn wanted(&self, publisher: &PublisherClient, frames: &mut EdgeSubscription) -> FrameId {
        within(async {
            loop {
                let frame = frame(publisher, frames).await;
                if self.answer(frame, 100).await.bound.is_some() {
                    return frame;
                }
            }
        })
        .await
    }

    /// A client in another language, on the camera broker's socket.
    async fn foreign(&self) -> CameraBrokerClient<Channel> {
        let path = self.addresses[0].as_unix().unwrap();
        CameraBrokerClient::new(channel(path).await).max_decoding_message_size(9 << 20)
    }
}

async fn channel(path: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", path.display())).unwrap().connect().await.unwrap()
}

async fn serve(
    site: &Site,
    camera: &CameraHandle,
    at: SocketAddr,
    accepts: &[Role],
) -> (ApiServer, [Address; 2]) {
    let mut server = ApiServer::camera(camera.clone(), ApiLimits::default());
    let path = site.socket("camera.sock");
    server.listen_unix(&path).unwrap();
    // Over TLS only an edge may serve, so an edge's identity stands in for a camera broker's.
    let tls = server.listen_tls(at, &site.credentials(Role::Edge, "edge"), accepts).await.unwrap();
    (server, [Address::Unix(path), tcp(tls)])
}

/// Publishes until a frame is at the edge, and returns its ID.
async fn frame(publisher: &PublisherClient, frames: &mut EdgeSubscription) -> FrameId {
    within(async {
        loop {
            publisher.send(image(7, 2_000)).unwrap();
            let next = async {
                loop {
                    if let Served::Frame { delivery, .. } = frames.next().await {
                        return delivery.record.frame.meta.id;
                    }
                }
            };
            if let Ok(frame) = tokio::time::timeout(Duration::from_millis(50), next).await {
                return frame;
            }
        }
    })
    .await
}

async fn next(publisher: &PublisherClient) -> (Answered, AnswerSkips) {
    within(publisher.next_answer()).await.expect("answers are taken").unwrap()
}

async fn an_answer_comes_back_with_its_frame_and_times(way: usize) {
    let rig = Rig::new().await;
    let (publisher, mut frames) = (rig.publisher(way).await, rig.frames().await);
    assert!(publisher.next_answer().await.is_none(), "no answers are taken yet");
    publisher.begin_answers(BOUND).await.unwrap();
    let first = rig.wanted(&publisher, &mut frames).await;
    assert_eq!(next(&publisher).await.0.frame, first);

    // Much larger than a window or a socket's buffer.
    let large = frame(&publisher, &mut frames).await;
    assert_eq!(rig.answer(large, 3_000_000).await.bound, Some(BOUND));
    let (answered, _) = next(&publisher).await;
    assert_eq!((answered.frame, answered.payload), (large, Bytes::from(vec![9; 3_000_000])));
    assert_eq!((answered.width, answered.height), (32, 24));
    let record = rig.camera.log().get_frame(large).unwrap();
    assert_eq!(answered.captured, record.frame.meta.captured);
    let times = answered.times;
    let stages = [Some(times.captured), times.up, times.made, times.sent, Some(times.arriving)];
    assert!(stages.iter().all(Option::is_some) && stages.is_sorted(), "{times:?}");
    let now = mez_node::clock::monotonic_now();
    assert!(times.arriving <= times.arrived && times.arrived <= now, "{times:?}");
}

async fn every_answer_is_given_or_told(way: usize) {
    let rig = Rig::new().await;
    let (publisher, mut frames) = (rig.publisher(way).await, rig.frames().await);
    publisher.begin_answers(BOUND).await.unwrap();
    let first = rig.wanted(&publisher, &mut frames).await;
    assert_eq!(next(&publisher).await.0.frame, first);

    // An older frame than the last one, the last one again, and more at once than the reader takes.
    let (older, last) = (frame(&publisher, &mut frames).await, frame(&publisher, &mut frames).await);
    rig.answer(last, 500).await;
    rig.answer(last, 500).await;
    rig.answer(older, 500).await;
    let mut newest = last;
    for _ in 0..20 {
        newest = frame(&publisher, &mut frames).await;
        rig.answer(newest, 200_000).await;
    }
    let (mut given, mut previous) = (1, first);
    while previous < newest {
        let (answered, _) = next(&publisher).await;
        assert!(answered.frame > previous, "{} after {previous}", answered.frame);
        (given, previous) = (given + 1, answered.frame);
    }
    assert!(given <= 11, "{given} answers to a reader that did not read: there is a queue");
    let answered = rig.answered.load(Ordering::Relaxed);
    within(async {
        while given + publisher.answers_skipped().total() < answered {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let skipped = publisher.answers_skipped();
    assert_eq!(given + skipped.total(), answered, "{skipped:?}");
    assert_eq!((skipped.get(AnswerSkip::Repeated), skipped.get(AnswerSkip::Overtaken)), (1, 1));
}

async fn a_broker_that_restarts_goes_on_with_answers(way: usize) {
    let mut rig = Rig::new().await;
    let (publisher, mut frames) = (rig.publisher(way).await, rig.frames().await);
    publisher.begin_answers(BOUND).await.unwrap();
    let before = rig.wanted(&publisher, &mut frames).await;
    assert_eq!(next(&publisher).await.0.frame, before);

    let Address::Tcp { port, .. } = rig.addresses[1] else { panic!("a port") };
    let Rig { server, camera, addresses, edge, site, answered } = rig;
    server.stop().await;
    camera.leave().await;
    drop(camera);
    let camera = site.camera("dock/cam1", &edge).await;
    let (server, _) = serve(&site, &camera, ([127, 0, 0, 1], port).into(), &[Role::App]).await;
    rig = Rig { server, camera, addresses, edge, site, answered };
    let after = rig.wanted(&publisher, &mut frames).await;
    assert!(after > before);
    assert_eq!(next(&publisher).await.0.frame, after);
}

async fn one_program_takes_answers_at_a_time(way: usize) {
    let rig = Rig::new().await;
    let (publisher, other) = (rig.publisher(way).await, rig.publisher(1 - way).await);
    publisher.begin_answers(BOUND).await.unwrap();
    match other.begin_answers(BOUND).await {
        Err(ClientError::Refused(error)) => {
            assert_eq!((error.code, error.reason.as_str()), (Code::FailedPrecondition, ANSWERS_TAKEN));
            assert!(error.message.contains("takes the answers of camera dock/cam1 already"), "{error}");
        }
        unexpected => panic!("{unexpected:?}"),
    }
    assert!(other.next_answer().await.is_none());
    // A program that has begun to wait gets its turn when the first one ends.
    other.set_answers(Some(BOUND));
    publisher.set_answers(None);
    assert!(publisher.next_answer().await.is_none());
    let mut frames = rig.frames().await;
    let first = rig.wanted(&other, &mut frames).await;
    assert_eq!(next(&other).await.0.frame, first);
}

async fn a_taker_that_ends_is_told_to_the_edge(way: usize) {
    let rig = Rig::new().await;
    let (publisher, mut frames) = (rig.publisher(way).await, rig.frames().await);
    for ends_all in [false, true] {
        let taker = rig.publisher(way).await;
        taker.begin_answers(BOUND).await.unwrap();
        rig.wanted(&publisher, &mut frames).await;
        match ends_all {
            true => drop(taker),
            false => taker.set_answers(None),
        }
        within(async {
            loop {
                let frame = frame(&publisher, &mut frames).await;
                if rig.answer(frame, 100).await.bound.is_none() {
                    return;
                }
            }
        })
        .await;
    }
}

/// A reader that stands still gets the newest answers later, whatever fits into the windows of HTTP/2. Counts add up.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_reader_that_stands_still_gets_no_backlog() {
    let rig = Rig::new().await;
    let (publisher, mut frames) = (rig.publisher(0).await, rig.frames().await);
    let request = pb::TakeAnswersRequest { bound_ns: 60_000_000_000, ..Default::default() };
    let mut answers = rig.foreign().await.take_answers(request).await.unwrap().into_inner();
    let began = within(answers.message()).await.unwrap().unwrap();
    assert_eq!(began, pb::TakeAnswersResponse::default());
    let mut previous = rig.wanted(&publisher, &mut frames).await;
    let (mut told, mut given) = (0, 1);
    let first = loop {
        let response = within(answers.message()).await.unwrap().unwrap();
        told += response.skipped.iter().map(|skipped| skipped.count).sum::<u64>();
        if let Some(answer) = response.answer {
            break answer;
        }
    };
    assert_eq!((first.epoch, first.sequence), (previous.epoch.0, previous.sequence.0));
    assert_eq!((first.content_type.as_str(), first.width, first.payload.len()), ("image/jpeg", 32, 100));

    let mut newest = previous;
    for _ in 0..30 {
        newest = frame(&publisher, &mut frames).await;
        rig.answer(newest, 1_000_000).await;
    }
    let answered = rig.answered.load(Ordering::Relaxed);
    while given + told < answered {
        let response = within(answers.message()).await.unwrap().unwrap();
        told += response.skipped.iter().map(|skipped| skipped.count).sum::<u64>();
        let Some(answer) = response.answer else { continue };
        let frame = FrameId {
            epoch: mez_core::frame::Epoch(answer.epoch),
            sequence: mez_core::frame::Sequence(answer.sequence),
        };
        assert!(frame > previous, "{frame} after {previous}");
        assert_eq!(answer.payload.len(), 1_000_000);
        (given, previous) = (given + 1, frame);
    }
    assert_eq!((given + told, previous), (answered, newest));
    // Two windows of a stream, and one that is being sent.
    assert!(given <= 9, "{given} of 30 answers waited for a reader that stood still");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_for_answers_is_refused() {
    let rig = Rig::new().await;
    let mut foreign = rig.foreign().await;
    for (camera, bound_ns, code, reason) in [
        ("", 0, Code::InvalidArgument, "INVALID_BOUND"),
        ("dock/cam2", 1_000, Code::NotFound, "UNKNOWN_CAMERA"),
        ("dock cam2", 1_000, Code::InvalidArgument, "INVALID_CAMERA"),
    ] {
        let request = pb::TakeAnswersRequest { camera: camera.into(), bound_ns };
        let refused = ApiError::from_status(&foreign.take_answers(request).await.unwrap_err());
        assert_eq!((refused.code, refused.reason.as_str()), (code, reason), "{camera} {bound_ns}");
    }
    // An edge broker has no answers to give.
    let (_edge_server, unix, _) = rig.site.serve_edge(&rig.edge).await;
    let mut connection = LocalConnection::open(unix.as_unix().unwrap()).await.unwrap();
    let request = pb::TakeAnswersRequest { bound_ns: 1_000, ..Default::default() };
    let answer = connection.call::<pb::TakeAnswersResponse>(Kind::TakeAnswers, &request, Bytes::new()).await;
    match answer {
        Err(PacketError::Refused(error)) => {
            assert_eq!((error.code, error.reason.as_str()), (Code::Unimplemented, "NOT_HERE"));
        }
        other => panic!("{other:?}"),
    }
}

/// Whoever may not publish at a broker may not take answers there: the port refuses both in the handshake.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_no_answers() {
    let rig = Rig::new().await;
    let mut server = ApiServer::camera(rig.camera.clone(), ApiLimits::default());
    let (any, edge) = ("127.0.0.1:0".parse().unwrap(), rig.site.credentials(Role::Edge, "edge"));
    let address = tcp(server.listen_tls(any, &edge, &[Role::Camera]).await.unwrap());
    let connect = async |role: Role, name: &'static str| {
        let credentials = rig.site.credentials(role, name);
        let options = PublisherOptions { patience: Duration::from_secs(1), ..PublisherOptions::default() };
        PublisherClient::connect(address.clone(), Some(&credentials), None, options).await
    };
    let refused = connect(Role::App, "stranger").await.err().expect("refused");
    assert!(
        matches!(refused, ClientError::Untrusted { .. } | ClientError::Unreachable { .. }),
        "{refused:?}"
    );
    let publisher = connect(Role::Camera, "dock/cam1").await.unwrap();
    publisher.begin_answers(BOUND).await.unwrap();
}
