//! The API as seen by a client in another language: gRPC on the Unix socket, generated from `mez.proto`.

mod api_support;

use std::path::Path;
use std::time::Duration;

use api_support::{Site, everything, image, number, within};
use mez_core::frame::FRAME_BYTES_MAX;
use mez_node::api::pb::camera_broker_client::CameraBrokerClient;
use mez_node::api::pb::edge_broker_client::EdgeBrokerClient;
use mez_node::api::pb::subscribe_event::Event;
use mez_node::api::pb::{self, publish_event};
use mez_node::api::{ApiError, ApiLimits, ApiServer};
use mez_node::camera::CameraHandle;
use mez_node::clock::monotonic_now;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

async fn channel(path: &Path) -> Channel {
    Endpoint::from_shared(format!("unix://{}", path.display())).unwrap().connect().await.unwrap()
}

fn request(pattern: &str) -> pb::SubscribeRequest {
    pb::SubscribeRequest { pattern: pattern.into(), ..Default::default() }
}

async fn event(events: &mut Streaming<pb::SubscribeEvent>) -> Event {
    within(events.message()).await.unwrap().expect("the stream goes on").event.unwrap()
}

async fn next_frame(events: &mut Streaming<pb::SubscribeEvent>) -> Box<pb::Frame> {
    loop {
        if let Event::Frame(frame) = event(events).await {
            return frame;
        }
    }
}

/// A camera whose frames reach the edge, and a client of each broker.
struct Served {
    _site: Site,
    camera: CameraHandle,
    _servers: [ApiServer; 2],
    edge: EdgeBrokerClient<Channel>,
    publisher: CameraBrokerClient<Channel>,
}

async fn served() -> Served {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (edge_server, edge_socket, _) = site.serve_edge(&edge).await;
    let (camera_server, camera_socket) = site.serve_camera(&camera);
    let bytes_max = 33 << 20;
    let edge = EdgeBrokerClient::new(channel(edge_socket.as_unix().unwrap()).await);
    let publisher = CameraBrokerClient::new(channel(camera_socket.as_unix().unwrap()).await);
    Served {
        _site: site,
        camera,
        _servers: [edge_server, camera_server],
        edge: edge.max_decoding_message_size(bytes_max),
        publisher: publisher.max_encoding_message_size(bytes_max).max_decoding_message_size(bytes_max),
    }
}

/// Publishes images until one is delivered.
async fn delivered(camera: &CameraHandle, events: &mut Streaming<pb::SubscribeEvent>) -> Box<pb::Frame> {
    for value in 0..600 {
        camera.publish(image(value, 100)).unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(100), next_frame(events));
        if let Ok(frame) = wait.await {
            return frame;
        }
    }
    panic!("nothing was delivered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_says_all_that_is_known_of_it() {
    let Served { camera, edge, .. } = &mut served().await;
    let mut events = edge.subscribe(request("dock/*")).await.unwrap().into_inner();
    match event(&mut events).await {
        Event::Started(started) => {
            assert_eq!(started.cameras, ["dock/cam1"]);
            assert_eq!(started.deliver(), pb::Deliver::Newest);
        }
        other => panic!("{other:?}"),
    }
    let frame = delivered(camera, &mut events).await;
    let record = camera.log().newest().unwrap();
    assert_eq!((frame.camera.as_str(), frame.epoch), ("dock/cam1", record.frame.meta.id.epoch.0));
    assert_eq!((frame.width, frame.height, frame.encoding()), (100, 1, pb::Encoding::Gray8));
    assert_eq!((frame.rung.as_str(), frame.reference()), ("original", pb::Reference::Independent));
    assert_eq!(frame.chain_sequence, frame.sequence);
    assert_eq!(frame.clock_source(), pb::ClockSource::Broker);
    // There is no requirement that could fail, and the frame is unchanged.
    assert_eq!(frame.contract_state(), pb::ContractState::Ok);
    assert!(frame.contract_reason.contains("in the last second"), "{}", frame.contract_reason);
    assert!(!frame.infeasible);
    assert_eq!(frame.accuracy_expected, Some(1.0));
    // On the same host, both monotonic clocks are the same.
    let now = monotonic_now().as_nanos();
    let (captured, error) =
        (frame.captured_monotonic_ns.unwrap(), frame.captured_monotonic_error_ns.unwrap());
    assert!(captured <= now + error);
    assert!(frame.age_ns.unwrap() <= now + error - captured);
    number(&frame.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishing_answers_every_frame_and_goes_on_after_a_refusal() {
    let Served { camera, publisher, .. } = &mut served().await;
    let (frames, receiver) = mpsc::channel(8);
    let mut answers = publisher.publish(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let frame = |number: u64, width: u32, payload: Vec<u8>| pb::PublishRequest {
        number,
        encoding: pb::Encoding::Gray8 as i32,
        width,
        height: 1,
        payload: payload.into(),
        ..Default::default()
    };
    let big = FRAME_BYTES_MAX as usize;
    for request in [
        pb::PublishRequest { camera: "dock/cam1".into(), ..frame(7, 3, vec![1; 3]) },
        frame(8, 4, vec![1; 3]),
        pb::PublishRequest { encoding: 0, ..frame(9, 3, vec![1; 3]) },
        pb::PublishRequest { encoding: pb::Encoding::Jpeg as i32, ..frame(10, 3, vec![1; 3]) },
        frame(11, big as u32, vec![1; big]),
        frame(12, big as u32 + 1, vec![1; big + 1]),
        pb::PublishRequest { captured_utc_ns: Some(5), ..frame(13, 3, vec![1; 3]) },
    ] {
        frames.send(request).await.unwrap();
    }
    let mut outcomes = Vec::new();
    while outcomes.len() < 8 {
        let answer = within(answers.message()).await.unwrap().unwrap().event.unwrap();
        outcomes.push(match answer {
            publish_event::Event::Started(started) => (0, started.camera),
            publish_event::Event::Accepted(accepted) => (accepted.number, accepted.sequence.to_string()),
            publish_event::Event::Refused(refused) => {
                let error = ApiError::from(refused.error.unwrap());
                (refused.number, format!("{} {}", error.reason, error.field.unwrap()))
            }
            publish_event::Event::Reply(_) | publish_event::Event::OnDisk(_) => panic!("{answer:?}"),
        });
    }
    let expected = [
        (0, "dock/cam1"),
        (7, "0"),
        (8, "WRONG_SIZE payload"),
        (9, "UNKNOWN_VALUE encoding"),
        (10, "DAMAGED_IMAGE payload"),
        (11, "1"),
        (12, "FRAME_TOO_LARGE payload"),
        (13, "CAPTURE_TIME captured_utc_ns"),
    ];
    assert_eq!(outcomes, expected.map(|(number, what)| (number, what.to_owned())));
    assert_eq!(camera.log().held(), 0..2);

    // Closing the requests ends the stream regularly.
    drop(frames);
    assert!(within(answers.message()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_frame_comes_through() {
    let Served { camera, publisher, .. } = &mut served().await;
    let mut events = publisher.subscribe(request("**")).await.unwrap().into_inner();
    assert!(matches!(event(&mut events).await, Event::Started(_)));
    camera.publish(image(77, FRAME_BYTES_MAX)).unwrap();
    let frame = next_frame(&mut events).await;
    assert_eq!((frame.payload.len(), number(&frame.payload)), (FRAME_BYTES_MAX as usize, 77));
    assert_eq!(frame.captured_monotonic_error_ns, Some(0), "the camera broker's own clock stamped it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_never_reads_is_served_all_the_same() {
    let Served { camera, publisher, .. } = &mut served().await;
    let (frames, receiver) = mpsc::channel(8);
    let _unread = publisher.publish(ReceiverStream::new(receiver)).await.unwrap();
    for number in 0..20_000 {
        let request = pb::PublishRequest {
            number,
            encoding: pb::Encoding::Gray8 as i32,
            width: 1,
            height: 1,
            payload: vec![1].into(),
            ..Default::default()
        };
        within(frames.send(request)).await.unwrap();
    }
    within(camera.appended().wait_for(|count| *count == 20_000)).await.unwrap();
}

/// The next state of a source, with its reason.
async fn next_source(events: &mut Streaming<pb::SubscribeEvent>) -> (pb::SourceState, String) {
    loop {
        if let Event::SourceChange(pb::SourceChange { source: Some(source), .. }) = event(events).await {
            return (source.state(), source.reason);
        }
    }
}

/// The camera was unplugged: the publisher reports it, and the end of its stream does not revoke this.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_says_why_it_has_no_frames() {
    let Served { camera, edge, publisher, .. } = &mut served().await;
    let mut events = edge.subscribe(request("dock/*")).await.unwrap().into_inner();
    let (requests, receiver) = mpsc::channel(8);
    let mut answers = publisher.publish(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let lost = |reason: &str| pb::PublishRequest { source_lost: reason.into(), ..Default::default() };
    requests.send(lost("no such device")).await.unwrap();
    assert_eq!(next_source(&mut events).await, (pb::SourceState::Lost, "no such device".into()));
    requests.send(lost("the cable is out")).await.unwrap();
    assert_eq!(next_source(&mut events).await, (pb::SourceState::Lost, "the cable is out".into()));
    drop(requests);
    // The report is not answered, and the stream ends regularly.
    let mut answered = Vec::new();
    while let Some(answer) = within(answers.message()).await.unwrap() {
        answered.push(answer.event.unwrap());
    }
    assert!(matches!(answered[..], [publish_event::Event::Started(_)]), "{answered:?}");
    // Long enough for a report of another state.
    tokio::time::sleep(Duration::from_millis(300)).await;
    camera.publish(image(0, 100)).unwrap();
    assert_eq!(next_source(&mut events).await.0, pb::SourceState::Live);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_ended_by_its_number() {
    let Served { edge, .. } = &mut served().await;
    let mut events = edge.subscribe(request("dock/*")).await.unwrap().into_inner();
    let Event::Started(pb::Started { subscription_id, .. }) = event(&mut events).await else {
        panic!("a subscription begins with its start")
    };
    let unknown = pb::UnsubscribeRequest { subscription_id: subscription_id + 1 };
    let error = ApiError::from_status(&edge.unsubscribe(unknown).await.unwrap_err());
    assert_eq!((error.code, error.reason.as_str()), (Code::NotFound, "UNKNOWN_SUBSCRIPTION"));

    edge.unsubscribe(pb::UnsubscribeRequest { subscription_id }).await.unwrap();
    loop {
        if let Event::Ended(_) = event(&mut events).await {
            break;
        }
    }
    assert!(within(events.message()).await.unwrap().is_none());
    // Its slot is free again.
    let gone = edge.unsubscribe(pb::UnsubscribeRequest { subscription_id }).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_the_stream_unsubscribes() {
    let Served { edge, .. } = &mut served().await;
    let subscriptions = async |edge: &mut EdgeBrokerClient<Channel>| {
        let info = edge.get_camera_info(pb::GetCameraInfoRequest::default()).await.unwrap();
        info.into_inner().cameras[0].subscriptions
    };
    let events = edge.subscribe(request("dock/*")).await.unwrap();
    assert_eq!(subscriptions(edge).await, 1);
    drop(events);
    within(async { while subscriptions(edge).await != 0 {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoding_that_is_not_accepted_ends_the_stream_and_says_so() {
    let Served { camera, edge, .. } = &mut served().await;
    let accept_encodings = vec![pb::Encoding::Png as i32];
    let asked = pb::SubscribeRequest { accept_encodings, ..request("**") };
    let mut events = edge.subscribe(asked).await.unwrap().into_inner();
    let status = within(async {
        loop {
            camera.publish(image(1, 100)).unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(50), events.message());
            if let Ok(Err(status)) = wait.await {
                return status;
            }
        }
    })
    .await;
    let error = ApiError::from_status(&status);
    assert_eq!((error.code, error.reason.as_str()), (Code::FailedPrecondition, "ENCODING_NOT_ACCEPTED"));
    assert!(error.message.contains("gray8"), "{error}");
}

/// An application that accepts only JPEG gets JPEG of all frames, with the same size and number.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_nothing_but_jpeg_gets_jpeg_of_everything() {
    let Served { camera, edge, .. } = &mut served().await;
    let accept_encodings = vec![pb::Encoding::H264 as i32, pb::Encoding::Jpeg as i32];
    let asked = pb::SubscribeRequest { accept_encodings, ..request("**") };
    let mut events = edge.subscribe(asked).await.unwrap().into_inner();
    let published = image(7, 100);
    let frame = within(async {
        loop {
            camera.publish(published.clone()).unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(50), events.message());
            if let Ok(Ok(Some(pb::SubscribeEvent { event: Some(Event::Frame(frame)) }))) = wait.await {
                return frame;
            }
        }
    })
    .await;
    assert_eq!((frame.encoding, frame.rung.as_str()), (pb::Encoding::Jpeg as i32, "original"));
    let info = mez_media::jpeg::check(&frame.payload).unwrap();
    assert_eq!((info.width, info.height), (published.width, published.height));
    assert_eq!((frame.width, frame.height), (published.width, published.height));

    // Chained encodings need a still encoding beside them; otherwise the request is refused at once.
    let accept_encodings = vec![pb::Encoding::H264 as i32, pb::Encoding::Tiles as i32];
    let status =
        edge.subscribe(pb::SubscribeRequest { accept_encodings, ..request("**") }).await.unwrap_err();
    let error = ApiError::from_status(&status);
    assert_eq!((error.code, error.reason.as_str()), (Code::InvalidArgument, "CHAINS_NEED_STILLS"));
    assert_eq!(error.field.as_deref(), Some("accept_encodings"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_field_for_programs_and_the_remedy_for_people() {
    let Served { edge, publisher, .. } = &mut served().await;
    let status = edge.subscribe(request("dock/cam*")).await.unwrap_err();
    let error = ApiError::from_status(&status);
    assert_eq!((error.code, error.reason.as_str()), (Code::InvalidArgument, "INVALID_PATTERN"));
    assert_eq!(error.field.as_deref(), Some("pattern"));
    assert!(status.message().contains("'**' for any number"), "{}", status.message());

    let newer = pb::ConnectRequest { version_min: 2, version_max: 3, ..Default::default() };
    assert_eq!(edge.connect(newer).await.unwrap_err().code(), Code::Unimplemented);

    let reply = pb::ReplyRequest { camera: "no/such".into(), ..Default::default() };
    assert_eq!(edge.reply(reply).await.unwrap_err().code(), Code::NotFound);

    let (frames, receiver) = mpsc::channel(1);
    let mut answers = publisher.publish(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    frames.send(pb::PublishRequest { camera: "yard".into(), ..Default::default() }).await.unwrap();
    let error = ApiError::from_status(&within(answers.message()).await.unwrap_err());
    assert_eq!(error.reason, "UNKNOWN_CAMERA");
    assert!(error.message.contains("dock/cam1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_and_the_clocks_are_compared() {
    let Served { edge, publisher, .. } = &mut served().await;
    let sent = monotonic_now().as_nanos();
    let request = pb::ConnectRequest { client_sent_monotonic_ns: sent, ..Default::default() };
    let answer = edge.connect(request.clone()).await.unwrap().into_inner();
    let (received, left) = (answer.broker_received_monotonic_ns, answer.broker_sent_monotonic_ns);
    assert_eq!((answer.version, answer.client_sent_monotonic_ns), (1, sent));
    assert!(sent <= received && received <= left && left <= monotonic_now().as_nanos());
    assert_eq!(answer.frame_bytes_max, FRAME_BYTES_MAX);
    assert_eq!(publisher.connect(request).await.unwrap().into_inner().cameras, ["dock/cam1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_subscription_more_than_allowed_is_refused() {
    let site = Site::new();
    let edge = site.edge();
    let mut server =
        ApiServer::edge(edge, everything(), ApiLimits { subscriptions_max: 2, ..ApiLimits::default() });
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let mut client = EdgeBrokerClient::new(channel(&path).await);
    let _first = client.subscribe(request("a")).await.unwrap();
    let second = client.subscribe(request("a")).await.unwrap();
    assert_eq!(client.subscribe(request("a")).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(second);
    within(async { while client.subscribe(request("a")).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_find_the_services_and_whether_they_are_well() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let site = Site::new();
    let edge = site.edge();
    let (_server, socket, _) = site.serve_edge(&edge).await;
    let channel = channel(socket.as_unix().unwrap()).await;
    let service = "mez.v1.EdgeBroker".to_owned();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest { service }).await.unwrap();
    assert_eq!(health.into_inner().status(), ServingStatus::Serving);

    let list = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let answers = reflection.server_reflection_info(tokio_stream::once(list)).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(services)) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    for name in ["mez.v1.EdgeBroker", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|found| found == name), "{name} is not among {names:?}");
    }
}
