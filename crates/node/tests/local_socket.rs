//! The local protocol and its socket with clients that make mistakes, lie, stall and die.

mod api_support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api_support::{Served, Site, everything, frame, image, number, warm_up, within};
use mez_node::api::pb;
use mez_node::api::{ApiLimits, ApiServer};
use mez_node::client::{Address, PublisherClient, PublisherEvent, PublisherOptions, SubscribeOptions};
use mez_node::local::{Kind, LocalConnection, MAGIC, PacketError};
use prost::Message;

/// A client's packet as bytes.
fn packet(kind: u8, message: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend((message.len() as u32).to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(message);
    bytes.extend(payload);
    bytes
}

/// Sends bytes on a new connection, and returns everything received until the broker closes it.
fn send(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The broker may close the connection before all is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // A reset also counts as an end: the broker did not read the rest.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the broker hangs");
    }
    answer
}

/// The error in an answer that consists only of it.
fn error(answer: &[u8]) -> pb::Error {
    assert_eq!(answer[0], Kind::Error as u8, "{answer:?}");
    pb::Error::decode(&answer[12..]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_answered_with_an_error_and_harms_nobody() {
    let rig = Served::new().await;
    let (_camera_server, camera_socket) = rig.site.serve_camera(&rig.camera);
    let client = rig.client().await;
    let mut subscription = client.subscribe(SubscribeOptions::new("**".parse().unwrap())).await.unwrap();
    warm_up(&rig.camera, &mut subscription).await;

    let with_magic = |rest: &[u8]| [&MAGIC[..], rest].concat();
    let subscribe = pb::SubscribeRequest { pattern: "a//b".into(), ..Default::default() }.encode_to_vec();
    let lying_length = [&[Kind::Publish as u8, 0, 0, 0][..], &[0; 4], &u32::MAX.to_le_bytes()].concat();
    let cases: [(&str, Vec<u8>, Option<&str>); 9] = [
        ("another version", b"MEZLOCL9\x01\0\0\0".to_vec(), Some("MALFORMED")),
        ("an unknown kind", with_magic(&packet(99, b"", b"")), Some("MALFORMED")),
        ("a broker's kind", with_magic(&packet(Kind::SubscribeEvent as u8, b"", b"")), Some("MALFORMED")),
        ("no protobuf", with_magic(&packet(Kind::Subscribe as u8, &[0xff; 9], b"")), Some("MALFORMED")),
        (
            "a bad pattern",
            with_magic(&packet(Kind::Subscribe as u8, &subscribe, b"")),
            Some("INVALID_PATTERN"),
        ),
        ("4 GiB announced", with_magic(&lying_length), Some("MESSAGE_TOO_LARGE")),
        ("the end after half a header", with_magic(&[1, 0, 0]), None),
        ("the end within a payload", with_magic(&packet(7, b"", &[9; 50])[..40]), None),
        ("nothing after the magic", with_magic(b""), None),
    ];
    for socket in [&rig.unix, &camera_socket] {
        let path = socket.as_unix().unwrap();
        for (what, bytes, reason) in &cases {
            let answer = tokio::task::block_in_place(|| send(path, bytes));
            match reason {
                Some(reason) => assert_eq!(error(&answer).reason, *reason, "{what}"),
                None => assert!(answer.is_empty(), "{what}: {answer:?}"),
            }
        }
        // Neither protocol: the broker hangs up as HTTP/2 does.
        tokio::task::block_in_place(|| send(path, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
        drop(UnixStream::connect(path).unwrap());
    }
    rig.camera.publish(image(4242, 1000)).unwrap();
    while number(&frame(&mut subscription).await.payload) != 4242 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_brokers_calls_are_refused_by_name() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, unix) = site.serve_camera(&camera);
    let mut connection = LocalConnection::open(unix.as_unix().unwrap()).await.unwrap();
    let request = pb::GetCameraInfoRequest::default();
    let answer =
        connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, Default::default()).await;
    match answer {
        Err(PacketError::Refused(error)) => assert_eq!(error.reason, "NOT_HERE"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_leaves_the_connection_of_use() {
    let site = Site::new();
    let edge = site.edge();
    let (_server, unix, _) = site.serve_edge(&edge).await;
    let mut connection = LocalConnection::open(unix.as_unix().unwrap()).await.unwrap();
    for _ in 0..3 {
        let request = pb::UnsubscribeRequest { subscription_id: 12345 };
        let answer =
            connection.call::<pb::UnsubscribeResponse>(Kind::Unsubscribe, &request, Default::default());
        assert!(matches!(within(answer).await, Err(PacketError::Refused(_))));
        let request = pb::GetCameraInfoRequest::default();
        let answer =
            connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, Default::default());
        assert!(within(answer).await.unwrap().cameras.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_more_than_allowed_is_closed_and_places_come_back() {
    let site = Site::new();
    let edge = site.edge();
    let mut server =
        ApiServer::edge(edge, everything(), ApiLimits { connections_max: 2, ..ApiLimits::default() });
    let path = site.socket("edge.sock");
    server.listen_unix(&path).unwrap();
    let call = async |connection: &mut LocalConnection| {
        let request = pb::GetCameraInfoRequest::default();
        let payload = Default::default();
        within(connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, payload)).await
    };
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut connection = LocalConnection::open(&path).await.unwrap();
        call(&mut connection).await.unwrap();
        kept.push(connection);
    }
    let refused = async || match LocalConnection::open(&path).await {
        Ok(mut connection) => call(&mut connection).await.is_err(),
        Err(_) => true,
    };
    assert!(refused().await);
    kept.pop();
    within(async { while refused().await {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_threads_may_send_through_one_publisher() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, socket) = site.serve_camera(&camera);
    let options = PublisherOptions { waiting_frames_max: 1000, ..PublisherOptions::default() };
    let publisher = PublisherClient::connect(socket, None, None, options).await.unwrap();
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let publisher = &publisher;
                scope.spawn(move || {
                    for value in 0..50 {
                        publisher.send(image(thread * 1000 + value, 3000)).unwrap();
                    }
                });
            }
        });
    });
    within(publisher.flush()).await;
    let counts = publisher.counts();
    assert_eq!((counts.sent, counts.accepted, counts.refused, counts.dropped), (200, 200, 0, 0));
    // The log has each thread's frames in the order of sending.
    let log = camera.log();
    let mut last = [None; 4];
    for index in log.held() {
        let value = number(&log.get(index).unwrap().frame.payload);
        let (thread, value) = ((value / 1000) as usize, value % 1000);
        assert!(last[thread] < Some(value));
        last[thread] = Some(value);
    }
    assert_eq!(last, [Some(49); 4]);
}

/// Set in the child process of this test: the socket to publish on.
const CHILD_SOCKET: &str = "MEZ_TEST_PUBLISH_ON";

/// Not a test itself: the process that [`a_publisher_that_is_killed_leaves_whole_frames`] starts and kills.
#[tokio::test(flavor = "multi_thread")]
async fn child_process_that_publishes() {
    let Some(path) = std::env::var_os(CHILD_SOCKET) else { return };
    let address = Address::Unix(path.into());
    let publisher = PublisherClient::connect(address, None, None, PublisherOptions::default()).await.unwrap();
    for value in 0.. {
        publisher.send(image(value, 2_000_000)).unwrap();
        while !matches!(publisher.next_event().await, Some(PublisherEvent::Accepted { .. })) {}
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_is_killed_leaves_whole_frames() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.camera("dock/cam1", &edge).await;
    let (_server, socket) = site.serve_camera(&camera);
    for round in 1..4u64 {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_that_publishes", "--nocapture", "--test-threads=1"])
            .env(CHILD_SOCKET, socket.as_unix().unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = Killed(child);
        let mut appended = camera.appended();
        let enough = *appended.borrow_and_update() + 5 * round;
        within(appended.wait_for(|count| *count >= enough)).await.unwrap();
        // SIGKILL, most likely in the middle of a frame of 2 MB.
        drop(child);
    }
    let log = camera.log();
    for index in log.held() {
        let record = log.get(index).unwrap();
        assert_eq!(record.frame.payload.len(), 2_000_000);
        number(&record.frame.payload);
    }
    // The broker accepts the next publisher normally.
    let publisher = site.publisher(&socket).await;
    publisher.send(image(9, 100)).unwrap();
    assert!(matches!(within(publisher.next_event()).await, Some(PublisherEvent::Accepted { .. })));
}
