//! Streams that applications publish at the edge, over both protocols: rights, reading, restarts, and unique names.

mod api_support;

use std::sync::Arc;
use std::time::Duration;

use api_support::{Served, Site, everything, frame, image, warm_up, within};
use mez_core::broker::edge::{DERIVED_BYTES_MAX, EdgeConfig};
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::rights::{Grant, Rights, Stance};
use mez_core::store::{KEY_BYTES, KeyRing, MasterKey};
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_node::api::{ApiLimits, ApiServer};
use mez_node::client::{
    Address, CameraSummary, ClientError, DerivedStream, EdgeClient, Event, PublisherClient, PublisherEvent,
    PublisherOptions, ReceivedFrame, Resume, SendError, SubscribeOptions, Subscription,
};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions, EdgeStartError};
use mez_node::identity::name::Role;
use mez_node::persist::PersistOptions;
use mez_node::rights::LiveRights;

fn stream(name: &str) -> DerivedStream {
    DerivedStream { name: name.parse().unwrap(), of: Vec::new() }
}

async fn publisher(
    site: &Site,
    address: &Address,
    who: &str,
    stream: &DerivedStream,
) -> Result<PublisherClient, ClientError> {
    let credentials = site.credentials(Role::App, who);
    let options = PublisherOptions { patience: Duration::from_secs(1), waiting_frames_max: 64 };
    PublisherClient::connect_to_edge(vec![address.clone()], Some(&credentials), stream, options).await
}

fn record(text: &str, of: Option<&ReceivedFrame>) -> DataRecord {
    DataRecord {
        content_type: "text/plain".parse().unwrap(),
        of: of.map(|frame| Origin {
            camera: frame.camera.clone(),
            frame: frame.meta.id,
            captured: frame.meta.captured,
        }),
        body: text.to_owned().into(),
    }
}

/// Publishes a record, and waits for its ID.
async fn publish(publisher: &PublisherClient, record: DataRecord) -> FrameId {
    let number = publisher.send_data(record, None).unwrap();
    within(async {
        loop {
            match publisher.next_event().await.expect("it has not ended") {
                PublisherEvent::Accepted { number: answered, frame } if answered == number => return frame,
                PublisherEvent::Refused { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    })
    .await
}

fn every(pattern: &str) -> SubscribeOptions {
    SubscribeOptions { deliver: Some(Deliver::Every), ..SubscribeOptions::new(pattern.parse().unwrap()) }
}

async fn known(client: &EdgeClient, name: &str) -> Option<CameraSummary> {
    let all = client.cameras(None).await.unwrap().into_iter();
    all.into_iter().find(|summary| summary.camera.as_str() == name)
}

fn id(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

fn refusal<T>(answer: Result<T, ClientError>) -> (String, String) {
    match answer.err().expect("it is refused") {
        ClientError::Refused(error) => (error.reason, error.message),
        other => panic!("{other}"),
    }
}

/// Two workers on this host, and one on another: their records have one order, and name the frames of which they were made.
#[tokio::test(flavor = "multi_thread")]
async fn what_workers_make_of_frames_is_one_stream() {
    let served = Served::new().await;
    let client = served.client().await;
    let mut frames = client.subscribe(every("dock/cam1")).await.unwrap();
    let mut results = client.subscribe(every("dock/*/faces")).await.unwrap();
    warm_up(&served.camera, &mut frames).await;
    let faces = stream("dock/cam1/faces");
    // Over the socket, this host's user publishes; over TLS, an application: two principals.
    let local = [
        publisher(&served.site, &served.unix, "faces", &faces).await.unwrap(),
        publisher(&served.site, &served.unix, "faces", &faces).await.unwrap(),
    ];
    let told = known(&client, "dock/cam1/faces").await.unwrap();
    assert_eq!(
        (told.publishers, told.connected, told.identity.as_str()),
        (Some(2), true, "the edge's own user")
    );
    assert_eq!(told.derived_from.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["dock/cam1"]);
    assert_eq!(known(&client, "dock/cam1").await.unwrap().publishers, None);
    let (reason, message) = refusal(publisher(&served.site, &served.tls, "faces", &faces).await);
    assert_eq!(reason, "STREAM_HELD");
    assert!(message.contains("the edge's own user already publishes"), "{message}");
    for round in 0..20_u64 {
        served.camera.publish(image(round as u32, 100)).unwrap();
        let source = frame(&mut frames).await;
        let worker = &local[(round % 2) as usize];
        let published = publish(worker, record(&format!("faces {round}"), Some(&source))).await;
        assert_eq!(published, id(1, round));
        let result = frame(&mut results).await;
        assert_eq!(
            (result.meta.id, result.payload.as_ref()),
            (published, format!("faces {round}").as_bytes())
        );
        assert_eq!(result.content_type.as_ref().unwrap().as_str(), "text/plain");
        let of = result.of.as_ref().unwrap();
        assert_eq!((of.camera.as_str(), of.frame), ("dock/cam1", source.meta.id));
        assert!(result.age().is_some() && result.meta.captured > source.meta.captured);
        assert_eq!((result.skipped.total(), result.link_bytes), (0, None));
    }
    // A reader of the past gets all records, without a request to a camera.
    let past = SubscribeOptions {
        begin: Some(Timestamp::from_nanos(1)),
        end: Some(mez_node::clock::wall_now()),
        ..SubscribeOptions::new("dock/cam1/faces".parse().unwrap())
    };
    let mut past = client.subscribe(past).await.unwrap();
    for round in 0..20 {
        assert_eq!(frame(&mut past).await.meta.id, id(1, round));
    }
    for worker in local {
        worker.finish().await;
    }
    within(async {
        while known(&client, "dock/cam1/faces").await.unwrap().connected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // The stream has no publisher now, so another principal may publish it.
    let remote = publisher(&served.site, &served.tls, "faces", &faces).await.unwrap();
    assert_eq!(publish(&remote, record("faces", None)).await, id(1, 20));
    assert_eq!(frame(&mut results).await.meta.id, id(1, 20));
    assert_eq!(known(&client, "dock/cam1/faces").await.unwrap().identity, "app/faces");
    // Pictures can be published too.
    let number = remote.send(image(7, 64)).unwrap();
    let picture = frame(&mut results).await;
    assert_eq!((number, picture.meta.id, picture.content_type), (1, id(1, 21), None));
    let large = DataRecord { body: vec![1; DERIVED_BYTES_MAX as usize + 1].into(), ..record("", None) };
    assert!(matches!(remote.send_data(large, None), Err(SendError::TooLarge { .. })));
}

fn strict(grants: &[&str]) -> Rights {
    let grant = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        Grant {
            grantee: words[0].parse().unwrap(),
            verb: words[1].parse().unwrap(),
            cameras: words[2].parse().unwrap(),
        }
    };
    Rights::new(Stance::Deny, grants.iter().map(grant))
}

/// Publishing needs a grant. Removing it ends the stream, even while the publisher is idle.
#[tokio::test(flavor = "multi_thread")]
async fn publishing_needs_a_grant_for_as_long_as_it_lasts() {
    let site = Site::new();
    let edge = site.edge();
    let (rights, followed) = LiveRights::changing(strict(&["app/faces watch **"]));
    let (_server, _, tls) = site.serve_edge_with(&edge, followed).await;
    let faces = stream("dock/cam1/faces");
    let (reason, message) = refusal(publisher(&site, &tls, "faces", &faces).await);
    assert_eq!(reason, "PERMISSION_DENIED");
    assert!(message.contains("`mez keys grant app/faces publish dock/cam1/faces`"), "{message}");
    rights.send_replace(Arc::new(strict(&["app/faces publish dock/*/faces"])));
    let publisher = within(async {
        loop {
            match publisher(&site, &tls, "faces", &faces).await {
                Ok(publisher) => return publisher,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    publish(&publisher, record("one", None)).await;
    rights.send_replace(Arc::new(strict(&[])));
    let why = within(async {
        loop {
            match publisher.next_event().await {
                Some(PublisherEvent::Failed { reason }) => return reason.to_string(),
                Some(_) => {}
                None => panic!("it ended without a reason"),
            }
        }
    })
    .await;
    assert!(why.contains("may not publish dock/cam1/faces"), "{why}");
    assert!(matches!(publisher.send_data(record("two", None), None), Err(SendError::Over(_))));
}

/// A camera cannot have the name of a derived stream, and the other way round. The second one is refused.
#[tokio::test(flavor = "multi_thread")]
async fn no_name_is_a_camera_and_a_derived_stream() {
    let served = Served::new().await;
    let client = served.client().await;
    let taken = DerivedStream { of: vec!["yard/cam1".parse().unwrap()], ..stream("dock/cam1") };
    let (reason, message) = refusal(publisher(&served.site, &served.unix, "faces", &taken).await);
    assert_eq!(reason, "NAME_IS_CAMERA");
    assert!(message.contains("mez cameras forget dock/cam1"), "{message}");
    let (reason, message) = refusal(publisher(&served.site, &served.unix, "faces", &stream("faces")).await);
    assert_eq!(reason, "INVALID_SOURCE");
    assert!(message.contains("give the source"), "{message}");

    let _faces = publisher(&served.site, &served.unix, "faces", &stream("dock/cam1/faces")).await.unwrap();
    let mut options = mez_node::camera::CameraOptions::new(
        "dock/cam1/faces".parse().unwrap(),
        vec![mez_node::ports::EdgeAddress {
            host: "127.0.0.1".into(),
            port: served.edge.link_address().port(),
        }],
        served.site.credentials(Role::Camera, "dock/cam1/faces"),
    );
    options.state = Some(served.site.folder.path().join("state"));
    let camera = mez_node::camera::CameraBroker::start(options).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!camera.is_up(), "the name is held");
    let told = known(&client, "dock/cam1/faces").await.unwrap();
    assert_eq!((told.publishers, told.identity.as_str()), (Some(1), "the edge's own user"));
}

/// An edge that restarts at its port with its state, with or without a store.
struct Restarted {
    site: Site,
    store: bool,
    listen: std::net::SocketAddr,
    running: Option<(EdgeHandle, ApiServer)>,
}

impl Restarted {
    async fn new(store: bool) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut this = Self { site: Site::new(), store, listen, running: None };
        this.start().await;
        this
    }

    async fn start(&mut self) {
        let credentials = self.site.credentials(Role::Edge, "edge");
        let mut options = EdgeOptions::new(self.listen, credentials, EdgeConfig::default());
        options.state = Some(self.site.folder.path().join("edge-state"));
        let keys = KeyRing::new(vec![MasterKey::new([5; KEY_BYTES])]).unwrap();
        let folder = self.site.folder.path().join("edge-log");
        options.persist = self.store.then(|| PersistOptions::new(folder, keys));
        let edge = within(async {
            loop {
                match EdgeBroker::start(options.clone()) {
                    Ok(edge) => return edge,
                    // The previous edge releases its port a moment later.
                    Err(EdgeStartError::Listen(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        self.listen.set_port(edge.link_address().port());
        let mut server = ApiServer::edge(edge.clone(), everything(), ApiLimits::default());
        server.listen_unix(&self.site.socket("edge.sock")).unwrap();
        self.running = Some((edge, server));
    }

    async fn stop(&mut self) {
        let (edge, server) = self.running.take().unwrap();
        server.stop().await;
        edge.stop().await;
    }

    fn address(&self) -> Address {
        Address::Unix(self.site.socket("edge.sock"))
    }
}

/// The epoch counts the runs of the edge. A reader that resumes is informed about the restart, and gets the records on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_edge_begins_an_epoch_and_is_told() {
    for store in [true, false] {
        let mut rig = Restarted::new(store).await;
        let faces = publisher(&rig.site, &rig.address(), "faces", &stream("dock/cam1/faces")).await.unwrap();
        for sequence in 0..3 {
            assert_eq!(publish(&faces, record("face", None)).await, id(1, sequence));
        }
        let client = rig.site.client(&rig.address()).await;
        let filled = SubscribeOptions { resume: Resume::Fill, ..every("dock/cam1/faces") };
        let mut reader = client.subscribe(filled).await.unwrap();
        assert_eq!(publish(&faces, record("face", None)).await, id(1, 3));
        assert_eq!(frame(&mut reader).await.meta.id, id(1, 3));
        rig.stop().await;
        rig.start().await;
        // The publisher reconnects automatically.
        within(async {
            loop {
                match faces.next_event().await.expect("it has not ended") {
                    PublisherEvent::Reconnected => return,
                    PublisherEvent::Failed { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
        })
        .await;
        assert_eq!(publish(&faces, record("face", None)).await, id(2, 0), "store: {store}");
        let next = frame(&mut reader).await;
        assert_eq!(next.meta.id, id(2, 0));
        let told = next.not_held.expect("what was lost with the restart is not known");
        assert_eq!(told.reason.name(), "camera_restarted");
        let past = SubscribeOptions {
            begin: Some(Timestamp::from_nanos(1)),
            end: Some(mez_node::clock::wall_now()),
            ..SubscribeOptions::new("dock/cam1/faces".parse().unwrap())
        };
        let mut past = client.subscribe(past).await.unwrap();
        let read = all(&mut past).await;
        let (before, after) = (vec![id(1, 0), id(1, 1), id(1, 2), id(1, 3)], vec![id(2, 0)]);
        assert_eq!(read, if store { [before, after].concat() } else { after });
    }
}

/// Queries about the disk only use free slots, and a query without a slot fails at once.
/// Nothing is sent between two awaits, since this test and the publisher share a thread.
#[tokio::test]
async fn a_question_costs_no_record_its_place() {
    let rig = Restarted::new(true).await;
    let options = PublisherOptions { waiting_frames_max: 2, ..PublisherOptions::default() };
    let (address, faces) = (rig.address(), stream("dock/cam1/faces"));
    let faces = PublisherClient::connect_to_edge(vec![address], None, &faces, options).await.unwrap();
    let first = publish(&faces, record("first", None)).await;
    let send = |text: &str| faces.send_data(record(text, None), None).unwrap();

    let before = [send("waits"), send("waits")];
    let found_full = faces.await_on_disk(first).unwrap();
    assert_eq!(on_disk(&faces).await, (found_full, Some("TOO_MANY_AWAITED".into())));
    assert_eq!(faces.counts().accepted, 1, "nobody had to wait for that");
    assert_eq!([accepted(&faces).await, accepted(&faces).await], before);

    let gives_way = faces.await_on_disk(first).unwrap();
    let behind = [send("waits"), send("takes its place")];
    assert_eq!(on_disk(&faces).await, (gives_way, Some("TOO_MANY_AWAITED".into())));
    assert_eq!([accepted(&faces).await, accepted(&faces).await], behind);

    let asked = faces.await_on_disk(first).unwrap();
    assert_eq!(on_disk(&faces).await, (asked, None), "there is room now");
    let counts = faces.counts();
    assert_eq!((counts.sent, counts.accepted, counts.dropped, counts.lost), (5, 5, 0, 0));
}

/// The next answer to a query, with its reason.
async fn on_disk(publisher: &PublisherClient) -> (u64, Option<String>) {
    match within(publisher.next_event()).await.expect("it has not ended") {
        PublisherEvent::OnDisk { number, error } => (number, error.map(|error| error.reason)),
        event => panic!("{event:?}"),
    }
}

/// The number of the record that is accepted next.
async fn accepted(publisher: &PublisherClient) -> u64 {
    match within(publisher.next_event()).await.expect("it has not ended") {
        PublisherEvent::Accepted { number, .. } => number,
        event => panic!("{event:?}"),
    }
}

async fn all(subscription: &mut Subscription) -> Vec<FrameId> {
    let mut read = Vec::new();
    within(async {
        while let Some(event) = subscription.next().await {
            match event {
                Event::Frame(frame) => read.push(frame.meta.id),
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    })
    .await;
    read
}
