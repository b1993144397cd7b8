//! Limits of the API: a client that reaches a limit gets its name and owner, and other clients are not affected.

mod api_support;

use std::path::Path;
use std::time::Duration;

use api_support::{Served, Site, everything, frame, image, number, warm_up, within};
use bytes::{Buf, BufMut, Bytes};
use mez_core::broker::edge::EdgeConfig;
use mez_core::subscription::Deliver;
use mez_node::api::pb::camera_broker_client::CameraBrokerClient;
use mez_node::api::pb::edge_broker_client::EdgeBrokerClient;
use mez_node::api::pb::subscribe_event::Event;
use mez_node::api::{ApiError, ApiLimits, ApiServer, MESSAGE_BYTES_MAX, pb};
use mez_node::client::SubscribeOptions;
use mez_node::identity::name::Role;
use mez_node::local::{Kind, LocalConnection, PacketError};
use tokio_stream::iter;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

async fn channel(path: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    // A large window, since unread streams must not use up the window of the connection.
    endpoint.initial_connection_window_size(1 << 30).connect().await.unwrap()
}

fn request(pattern: &str) -> pb::SubscribeRequest {
    pb::SubscribeRequest { pattern: pattern.into(), ..Default::default() }
}

fn limit_of(error: &ApiError) -> (&str, u64, &str) {
    let limit = error.limit.as_ref().expect("the limit is named");
    (limit.name.as_str(), limit.value, limit.subject.as_str())
}

// ---- stalled readers ----------------------------------------------------------------------------------------

/// Sixty applications stop reading in the middle of different frames, which together have five times the log's
/// size. One application reads on and gets every frame, and 3/4 of the log's memory stays for new frames.
#[tokio::test(flavor = "multi_thread")]
async fn applications_that_stand_still_cost_others_no_frame() {
    const LOG_BYTES: u64 = 4 << 20;
    const PIXELS: u32 = 350_000;
    let site = Site::new();
    let edge = site.edge_with(EdgeConfig { log_bytes_max: LOG_BYTES, ..EdgeConfig::default() });
    let rig = Served::with(site, edge, |_| {}).await;
    let client = rig.client().await;
    let options =
        SubscribeOptions { deliver: Some(Deliver::Every), ..SubscribeOptions::new("**".parse().unwrap()) };
    let mut reads = client.subscribe(options).await.unwrap();
    let mut next = warm_up(&rig.camera, &mut reads).await + 1;
    let path = rig.unix.as_unix().unwrap().to_owned();
    let (mut local, mut grpc) = (Vec::new(), Vec::new());
    let mut broker = EdgeBrokerClient::new(channel(&path).await).max_decoding_message_size(1 << 20);
    for round in 0..100 {
        if round < 60 && round % 2 == 0 {
            let mut connection = LocalConnection::open(&path).await.unwrap();
            connection.writer.write(Kind::Subscribe, &request("**"), Bytes::new()).await.unwrap();
            let started = within(connection.reader.read()).await.unwrap().unwrap();
            started.decode::<pb::SubscribeEvent>(Kind::SubscribeEvent).unwrap();
            local.push(connection);
        } else if round < 60 {
            let mut events = within(broker.subscribe(request("**"))).await.unwrap().into_inner();
            within(events.message()).await.unwrap();
            grpc.push(events);
        }
        rig.camera.publish(image(next, PIXELS)).unwrap();
        let came = frame(&mut reads).await;
        assert_eq!((number(&came.payload), came.skipped.total()), (next, 0), "round {round}");
        next += 1;
    }
    let known = rig.edge.cameras().await.unwrap();
    assert!(known[0].log_bytes <= LOG_BYTES, "{}", known[0].log_bytes);
    // A stalled application that reads on gets the begun frame, or learns that it is gone. Then it gets the newest frame.
    let late = within(async {
        loop {
            match grpc[29].message().await {
                Ok(Some(pb::SubscribeEvent { event: Some(Event::Frame(came)) })) => {
                    break Ok(number(&came.payload));
                }
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended in order"),
                Err(status) => break Err(status.code()),
            }
        }
    });
    match late.await {
        Ok(value) => assert!(value < next),
        Err(code) => assert_eq!(code, Code::ResourceExhausted),
    }
}

// ---- limits of counts ---------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn one_call_too_many_on_a_connection_is_refused_at_once() {
    let site = Site::new();
    let mut server = ApiServer::edge(
        site.edge(),
        everything(),
        ApiLimits { calls_per_connection_max: 3, ..ApiLimits::default() },
    );
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let mut broker = EdgeBrokerClient::new(channel(&path).await);
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(within(broker.subscribe(request("**"))).await.unwrap());
    }
    let refused = within(broker.subscribe(request("**"))).await.unwrap_err();
    let error = ApiError::from_status(&refused);
    assert_eq!((error.code, error.reason.as_str()), (Code::ResourceExhausted, "TOO_MANY_CALLS"));
    assert_eq!(limit_of(&error), ("calls_per_connection_max", 3, "this connection"));
    let quota = refused.get_details_quota_failure().expect("for clients in any language");
    assert_eq!(quota.violations[0].subject, "this connection");
    // Other calls are refused too. Another connection has its own limit, and slots become free again.
    let info = pb::GetCameraInfoRequest::default();
    assert_eq!(
        within(broker.get_camera_info(info.clone())).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    let mut another = EdgeBrokerClient::new(channel(&path).await);
    within(another.get_camera_info(info)).await.unwrap();
    open.pop();
    within(async { while broker.subscribe(request("**")).await.is_err() {} }).await;
}

/// With the default limits: HTTP/2 itself would let the 257th subscription wait silently.
#[tokio::test(flavor = "multi_thread")]
async fn the_257th_subscription_of_a_connection_is_answered() {
    let site = Site::new();
    let (_server, unix, _) = site.serve_edge(&site.edge()).await;
    let mut broker = EdgeBrokerClient::new(channel(unix.as_unix().unwrap()).await);
    let mut open = Vec::new();
    for _ in 0..256 {
        open.push(within(broker.subscribe(request("**"))).await.unwrap());
    }
    for _ in 0..50 {
        let refused = within(broker.subscribe(request("**"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
}

/// On every path: this host's user over both protocols, and a member of the site.
#[tokio::test(flavor = "multi_thread")]
async fn a_principal_gets_its_part_of_subscriptions_and_no_more() {
    let site = Site::new();
    let limits = ApiLimits { subscriptions_per_principal_max: 2, ..ApiLimits::default() };
    let mut server = ApiServer::edge(site.edge(), everything(), limits);
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let address = server.listen_tls(any, &site.credentials(Role::Edge, "edge"), &[Role::App]).await.unwrap();
    let local = site.client(&mez_node::client::Address::Unix(path.clone())).await;
    let remote = site.client(&api_support::tcp(address)).await;
    let options = || SubscribeOptions::new("**".parse().unwrap());
    let mut kept = Vec::new();
    for client in [&local, &remote] {
        for _ in 0..2 {
            kept.push(within(client.subscribe(options())).await.unwrap());
        }
        let refused = within(client.subscribe(options())).await.unwrap_err();
        let mez_node::client::ClientError::Refused(error) = &refused else { panic!("{refused:?}") };
        assert_eq!((error.code, error.reason.as_str()), (Code::ResourceExhausted, "TOO_MANY_SUBSCRIPTIONS"));
        let (name, value, subject) = limit_of(error);
        assert_eq!((name, value), ("subscriptions_per_principal_max", 2));
        assert!(error.message.contains(subject) && error.message.contains("end some"), "{}", error.message);
    }
    // On another path, the same user is the same principal.
    let mut broker = EdgeBrokerClient::new(channel(&path).await);
    assert_eq!(within(broker.subscribe(request("**"))).await.unwrap_err().code(), Code::ResourceExhausted);
}

/// This host's user has no slot left and is informed. A member of the site still gets one.
#[tokio::test(flavor = "multi_thread")]
async fn a_principal_gets_its_part_of_connections_and_no_more() {
    let site = Site::new();
    let limits = ApiLimits { connections_per_principal_max: 3, ..ApiLimits::default() };
    let mut server = ApiServer::edge(site.edge(), everything(), limits);
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let address = server.listen_tls(any, &site.credentials(Role::Edge, "edge"), &[Role::App]).await.unwrap();
    let ask = async |connection: &mut LocalConnection| {
        let request = pb::GetCameraInfoRequest::default();
        within(connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, Bytes::new()))
            .await
    };
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut connection = LocalConnection::open(&path).await.unwrap();
        ask(&mut connection).await.unwrap();
        kept.push(connection);
    }
    match ask(&mut LocalConnection::open(&path).await.unwrap()).await {
        Err(PacketError::Refused(error)) => {
            assert_eq!(
                (error.code, error.reason.as_str()),
                (Code::ResourceExhausted, "TOO_MANY_CONNECTIONS")
            );
            assert_eq!(limit_of(&error).0, "connections_per_principal_max");
        }
        other => panic!("{other:?}"),
    }
    let remote = site.client(&api_support::tcp(address)).await;
    within(remote.subscribe(SubscribeOptions::new("**".parse().unwrap()))).await.unwrap();
}

// ---- invalid bytes ------------------------------------------------------------------------------------------

/// Sends raw bytes, and ignores answers.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// The error of a call with these bytes as its message.
async fn refused(path: &Path, method: &str, bytes: Bytes) -> ApiError {
    let mut grpc = tonic::client::Grpc::new(channel(path).await);
    grpc.ready().await.unwrap();
    let method = method.parse().unwrap();
    let answer = async {
        let stream = grpc.streaming(Request::new(iter([bytes])), method, Raw).await?;
        let mut answers = stream.into_inner();
        while answers.message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    ApiError::from_status(&within(answer).await.unwrap_err())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_and_what_is_too_large_is_refused_with_details() {
    let site = Site::new();
    let edge = site.edge();
    let rig = Served::with(site, edge, |options| options.frame_bytes_max = 100_000).await;
    let (_camera_server, camera_socket) = rig.site.serve_camera(&rig.camera);
    let (edge_path, camera_path) = (rig.unix.as_unix().unwrap(), camera_socket.as_unix().unwrap());
    let no_protobuf = Bytes::from_static(&[0xff; 40]);
    let edge_max = MESSAGE_BYTES_MAX;
    let camera_max = 100_000 + MESSAGE_BYTES_MAX;
    for (path, method, bytes_max) in [
        (edge_path, "/mez.v1.EdgeBroker/GetCameraInfo", edge_max),
        (edge_path, "/mez.v1.EdgeBroker/Subscribe", edge_max),
        (edge_path, "/mez.v1.EdgeBroker/Reply", edge_max),
        (camera_path, "/mez.v1.CameraBroker/Connect", camera_max),
        (camera_path, "/mez.v1.CameraBroker/Publish", camera_max),
        (camera_path, "/mez.v1.CameraBroker/TakeAnswers", camera_max),
    ] {
        let error = refused(path, method, no_protobuf.clone()).await;
        assert_eq!(
            (error.code, error.reason.as_str()),
            (Code::InvalidArgument, "MALFORMED"),
            "{method}: {error}"
        );
        let large = Bytes::from(vec![0; bytes_max + 7]);
        let error = refused(path, method, large).await;
        assert_eq!(
            (error.code, error.reason.as_str()),
            (Code::InvalidArgument, "MESSAGE_TOO_LARGE"),
            "{method}"
        );
        assert_eq!(limit_of(&error).1, bytes_max as u64);
        assert!(error.message.contains(&format!("{} bytes", bytes_max + 7)), "{}", error.message);
        assert!(!error.is_passing(), "the same request fails again");
    }
    // The local protocol returns the same error.
    let mut connection = LocalConnection::open(camera_path).await.unwrap();
    let large = Bytes::from(vec![0; 100_001]);
    let publish = pb::PublishRequest::default();
    match within(connection.call::<pb::PublishEvent>(Kind::Publish, &publish, large)).await {
        Err(PacketError::Refused(error)) => {
            assert_eq!((error.reason.as_str(), limit_of(&error).1), ("MESSAGE_TOO_LARGE", 100_000));
        }
        other => panic!("{other:?}"),
    }
    let mut publisher = CameraBrokerClient::new(channel(camera_path).await);
    within(publisher.connect(pb::ConnectRequest::default())).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), rig.edge.cameras()).await.unwrap().unwrap();
}

// ---- pace of the past ---------------------------------------------------------------------------------------

/// A principal's pace of reading the past is limited, independent of its number of readings. Its live stream is not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_read_no_faster_than_allowed_and_live_frames_do_not_wait() {
    const BYTES_PER_SECOND: u64 = 400_000;
    let site = Site::new();
    let edge = site.edge();
    let limits = ApiLimits { past_bytes_per_second: Some(BYTES_PER_SECOND), ..ApiLimits::default() };
    let mut server = ApiServer::edge(edge.clone(), everything(), limits);
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let camera = site.camera("dock/cam1", &edge).await;
    let client = site.client(&mez_node::client::Address::Unix(path)).await;
    let options = |begin: Option<mez_core::units::Timestamp>| SubscribeOptions {
        deliver: Some(Deliver::Every),
        begin,
        ..SubscribeOptions::new("**".parse().unwrap())
    };
    let mut live = client.subscribe(options(None)).await.unwrap();
    let next = warm_up(&camera, &mut live).await + 1;
    let begin = mez_node::clock::wall_now();
    for number in next..next + 12 {
        camera.publish(image(number, 100_000)).unwrap();
        frame(&mut live).await;
    }
    let begun = std::time::Instant::now();
    let mut readings = Vec::new();
    for _ in 0..2 {
        readings.push(client.subscribe(options(Some(begin))).await.unwrap());
    }
    let mut bytes = 0;
    for round in 0..12 {
        for reading in &mut readings {
            bytes += frame(reading).await.payload.len() as u64;
        }
        // Two readings may start at the same time, with one frame each.
        let allowed = BYTES_PER_SECOND as f64 * (begun.elapsed().as_secs_f64() + 1.0) + 2.0 * 110_000.0;
        assert!(bytes as f64 <= allowed, "{bytes} of {allowed} after {round} rounds");
        if round == 6 {
            camera.publish(image(next + 12, 1_000)).unwrap();
            assert_eq!(number(&frame(&mut live).await.payload), next + 12);
        }
    }
    assert!(bytes >= 2 * 12 * 100_000);
    // Without the limit the rest comes at once, without a new connection.
    server.set_limits(ApiLimits::default());
    let mut free = client.subscribe(options(Some(begin))).await.unwrap();
    for _ in 0..12 {
        frame(&mut free).await;
    }
}

/// Lower limits apply to new subscriptions, and close no open one.
#[tokio::test(flavor = "multi_thread")]
async fn limits_that_become_smaller_close_nothing() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let options = || SubscribeOptions::new("**".parse().unwrap());
    let mut first = client.subscribe(options()).await.unwrap();
    let _second = client.subscribe(options()).await.unwrap();
    rig.server.set_limits(ApiLimits { subscriptions_per_principal_max: 1, ..ApiLimits::default() });
    assert!(client.subscribe(options()).await.is_err(), "one more is refused");
    warm_up(&rig.camera, &mut first).await;
}
