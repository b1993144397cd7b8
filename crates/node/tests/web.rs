//! The page's data, pictures, events, health and metrics over real TLS: access, refusals and limits.

mod api_support;
mod web_support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api_support::{Site, within};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use mez_core::broker::Published;
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence};
use mez_core::revocation::{Entry, Revocations};
use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::subscription::{Deliver, Span};
use mez_core::units::Timestamp;
use mez_media::image::{ImageView, PixelFormat};
use mez_media::jpeg::{Encoder, Sampling};
use mez_node::api::ApiServer;
use mez_node::camera::CameraHandle;
use mez_node::client::{Address, ClientOptions, EdgeClient, Event, Membership, SubscribeOptions};
use mez_node::edge::EdgeHandle;
use mez_node::identity::Role;
use mez_node::reply::{Detection, Detections, ReplyContent};
use mez_node::revocation::{SignedList, Taken, seconds};
use mez_node::rights::LiveRights;
use mez_node::web::{ScrapeToken, WebOptions, WebServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use web_support::{Browser, Got, faults};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A site with `dock/cam1` and `yard/cam1`. `app/viewer` may observe and watch the first one.
struct World {
    web: WebServer,
    edge: EdgeHandle,
    cameras: Vec<CameraHandle>,
    unix: Address,
    tls: Address,
    rights: watch::Sender<Arc<Rights>>,
    _server: ApiServer,
    site: Site,
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut WebOptions)) -> Self {
        let site = Site::new();
        let edge = site.edge();
        let mut cameras = Vec::new();
        for name in ["dock/cam1", "yard/cam1"] {
            cameras.push(site.camera(name, &edge).await);
        }
        let grants = [
            ("app/viewer", Verb::Observe, "dock/*"),
            ("app/viewer", Verb::Watch, "dock/*"),
            ("app/all", Verb::Observe, "**"),
        ];
        let grants = grants.map(|(grantee, verb, cameras)| Grant {
            grantee: grantee.parse().unwrap(),
            verb,
            cameras: cameras.parse().unwrap(),
        });
        let (rights, live) = LiveRights::changing(Rights::new(Stance::Deny, grants));
        let (server, unix, tls) = site.serve_edge_with(&edge, live).await;
        let token = site.folder.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let mut options = WebOptions::new("127.0.0.1:0".parse().unwrap());
        options.scrape_token = Some(ScrapeToken::read(&token).unwrap());
        change(&mut options);
        let credentials = site.credentials(Role::Edge, "edge");
        let web = WebServer::start(&server, &credentials, options).await.unwrap();
        Self { web, edge, cameras, unix, tls, rights, _server: server, site }
    }

    fn address(&self) -> SocketAddr {
        self.web.address()
    }

    fn stranger(&self) -> Browser {
        Browser::stranger(self.address(), &self.site.credentials(Role::Edge, "edge"))
    }

    fn member(&self, name: &str) -> Browser {
        Browser::member(self.address(), &self.site.credentials(Role::App, name))
    }

    /// The user that runs the tests, and therefore the edge.
    async fn user(&self) -> EdgeClient {
        EdgeClient::connect(vec![self.unix.clone()], None, ClientOptions::default()).await.unwrap()
    }

    /// The token of a link that signs in as `identity`.
    async fn link(&self, identity: Option<&str>) -> String {
        let link = within(self.user().await.open_page(identity)).await.unwrap();
        let start = format!("https://localhost:{}/#token=", self.address().port());
        link.link.strip_prefix(&start).unwrap_or_else(|| panic!("{}", link.link)).to_owned()
    }

    /// A browser that is signed in by a link.
    async fn signed_in(&self, identity: Option<&str>) -> Browser {
        let got = sign_in(&self.stranger(), &self.link(identity).await).await;
        assert_eq!(got.status, StatusCode::NO_CONTENT, "{}", got.text());
        let cookie = got.header("set-cookie");
        for part in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        self.stranger().sending("cookie", cookie.split(';').next().unwrap())
    }

    /// Revokes `app/viewer`.
    fn revoke_viewer(&self) {
        let entry =
            Entry { since: seconds(SystemTime::now()), until: Timestamp::MAX, because: "lost".into() };
        let keys = self.site.keys.keys();
        let list = Revocations::none(keys.site().as_str());
        let list = list.with(Timestamp::MIN, "app/viewer".parse().unwrap(), entry).unwrap();
        let list = SignedList::sign(&keys.load_authority().unwrap(), list).unwrap();
        assert_eq!(self.edge.revoked().take(list.bytes, "a test"), Ok(Taken::News));
    }

    /// Publishes pictures of 1280x720 at a camera until it is aborted.
    fn publish(&self, camera: usize) -> tokio::task::JoinHandle<()> {
        let (camera, jpeg) = (self.cameras[camera].clone(), jpeg(1280, 720));
        tokio::spawn(async move {
            loop {
                let (width, height, payload) = (1280, 720, jpeg.clone());
                let encoding = Encoding::Jpeg;
                camera.publish(Published { payload, encoding, width, height, captured: None }).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

fn jpeg(width: u32, height: u32) -> bytes::Bytes {
    let pixels: Vec<u8> = (0..width * height).map(|pixel| (pixel % 251) as u8).collect();
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    Encoder::new(80, Sampling::Grey).unwrap().encode(&view).unwrap()
}

async fn sign_in(browser: &Browser, token: &str) -> Got {
    browser.ask(Method::POST, "/api/v1/session", &serde_json::json!({ "token": token }).to_string()).await
}

fn names(got: &Got) -> Vec<String> {
    let cameras = got.json()["cameras"].as_array().unwrap().clone();
    cameras.iter().map(|camera| camera["name"].as_str().unwrap().to_owned()).collect()
}

/// The value of a metric's sample.
fn sample(text: &str, series: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

const DATA: [&str; 5] =
    ["/api/v1/site", "/api/v1/cameras", "/api/v1/applications", "/api/v1/events", "/api/v1/session"];

#[tokio::test(flavor = "multi_thread")]
async fn everybody_is_told_what_its_rights_allow() {
    let world = World::new().await;
    let publishing = world.publish(0);
    let (stranger, viewer, nobody) = (world.stranger(), world.member("viewer"), world.member("nobody"));
    let picture = "/api/v1/cameras/dock%2Fcam1/picture";
    for path in DATA.into_iter().chain([picture, "/metrics"]) {
        let got = stranger.get(path).await;
        assert_eq!(
            (got.status, got.json()["reason"].as_str()),
            (StatusCode::UNAUTHORIZED, Some("NOT_SIGNED_IN")),
            "{path}"
        );
        assert_eq!(faults(&got.json(), "Problem"), [""; 0]);
        if path != "/api/v1/session" {
            assert_eq!(nobody.get(path).await.status, StatusCode::FORBIDDEN, "{path}");
        }
    }
    // Beside an application with a contract.
    let contract = mez_core::contract::Contract {
        latency_bound: Some(Duration::from_secs(5)),
        ..mez_core::contract::Contract::default()
    };
    let mut application =
        world.edge.subscribe("dock/*".parse().unwrap(), contract, Span::LIVE).await.unwrap();
    let reading =
        tokio::spawn(
            async move { while !matches!(application.next().await, mez_node::edge::Served::Stopped) {} },
        );
    let cameras = within(async {
        loop {
            let got = viewer.get("/api/v1/cameras").await;
            let contract = got.json()["cameras"][0]["contracts"][0].clone();
            if contract["latency_p95_ms"].is_number() && !contract["state"].is_null() {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    assert_eq!(names(&cameras), ["dock/cam1"], "the other camera does not exist for it");
    let metrics = world.member("all").get("/metrics").await.text();
    assert!(sample(&metrics, "mez_frame_age_seconds_count").is_some_and(|frames| frames > 0.0), "{metrics}");
    assert_eq!(faults(&cameras.json(), "Cameras"), [""; 0]);
    assert_eq!(cameras.json()["cameras"][0]["picture"], "/api/v1/cameras/dock/cam1/picture");
    for (path, schema) in [
        ("/api/v1/site", "Site"),
        ("/api/v1/applications", "Applications"),
        ("/api/v1/session", "SignedIn"),
        ("/readyz", "Health"),
    ] {
        let got = viewer.get(path).await;
        assert_eq!(got.status, StatusCode::OK, "{path}: {}", got.text());
        assert_eq!(faults(&got.json(), schema), [""; 0], "{path}");
        assert!(!got.text().contains("yard"), "{path}");
    }
    let replies = "/api/v1/cameras/dock/cam1/replies";
    assert_eq!(viewer.get(replies).await.status, StatusCode::FORBIDDEN, "it may not read");
    let found = Detection { xyxy: [1.0, 2.0, 30.0, 40.0], class_name: "cat".into(), ..Detection::default() };
    let found = ReplyContent::Detections(Detections::new((1280, 720), vec![found]).unwrap());
    let (camera, frame) = ("dock/cam1".parse().unwrap(), FrameId { epoch: Epoch(1), sequence: Sequence(1) });
    let _ = world.edge.reply(camera, frame, "counter".into(), found).await;
    let got = world.signed_in(None).await.get(replies).await;
    assert_eq!(faults(&got.json(), "Replies"), [""; 0]);
    assert_eq!(got.json()["replies"][0]["detections"][0]["class_name"], "cat");
    pictures_are_told_apart(&viewer, publishing).await;
    reading.abort();
}

/// A picture is small, and is not sent again to a reader that has it.
async fn pictures_are_told_apart(viewer: &Browser, publishing: tokio::task::JoinHandle<()>) {
    let picture = "/api/v1/cameras/dock%2Fcam1/picture";
    let got = viewer.get(picture).await;
    assert_eq!(
        (got.status, got.header("content-type")),
        (StatusCode::OK, "image/jpeg"),
        "{}",
        got.header("content-type")
    );
    assert_eq!((got.header("mez-width"), got.header("mez-height")), ("1280", "720"));
    let info = mez_media::jpeg::probe(&got.body).unwrap();
    assert_eq!((info.width, info.height), (640, 360));
    assert_eq!(viewer.get("/api/v1/cameras/yard/cam1/picture").await.status, StatusCode::FORBIDDEN);
    assert_eq!(viewer.get("/metrics").await.status, StatusCode::FORBIDDEN, "metrics are of all cameras");
    publishing.abort();
    // The last picture stays the newest one, and is not sent twice.
    within(async {
        loop {
            let tag = viewer.get(picture).await.header("etag").to_owned();
            let again = viewer.sending("if-none-match", &tag).get(picture).await;
            if again.status == StatusCode::NOT_MODIFIED {
                assert!(again.body.is_empty());
                return;
            }
        }
    })
    .await;
}

/// Video needs the right to watch. Requests must be valid, and a camera without H.264 has no video.
#[tokio::test(flavor = "multi_thread")]
async fn video_is_refused_or_said_not_to_be_there() {
    let world = World::new().await;
    let viewer = world.member("viewer");
    for (path, status, reason) in [
        ("dock/cam1/video?after=7", StatusCode::BAD_REQUEST, "MALFORMED"),
        ("dock/cam1/video?after=1-99999999999999999999", StatusCode::BAD_REQUEST, "MALFORMED"),
        ("dock/cam1/video?before=1-2", StatusCode::BAD_REQUEST, "MALFORMED"),
        ("yard/cam1/video", StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
        ("dock/none/video", StatusCode::NOT_FOUND, "UNKNOWN_CAMERA"),
    ] {
        let got = viewer.get(&format!("/api/v1/cameras/{path}")).await;
        assert_eq!((got.status, got.json()["reason"].as_str()), (status, Some(reason)), "{path}");
    }
    let _publishing = world.publish(0);
    assert_eq!(viewer.get("/api/v1/cameras/dock/cam1/video").await.status, StatusCode::NO_CONTENT);
}

/// A camera without other readers is asked for a few small pictures, not for originals.
#[tokio::test(flavor = "multi_thread")]
async fn a_picture_alone_makes_the_camera_send_small_ones() {
    let world = World::new().await;
    let _publishing = world.publish(0);
    let viewer = world.member("viewer");
    let rung = shown(&viewer, "/api/v1/cameras/dock/cam1/picture").await.header("mez-rung").to_owned();
    assert!(rung.starts_with("jpeg/w640/q60/"), "{rung}");
    let unknown = viewer.get("/api/v1/cameras/dock/none/picture").await;
    assert_eq!(
        (unknown.status, unknown.json()["reason"].as_str()),
        (StatusCode::NOT_FOUND, Some("UNKNOWN_CAMERA"))
    );
    // A running view gives nothing to a client that lost its rights or was revoked.
    let (path, session) = ("/api/v1/cameras/dock/cam1/picture", world.signed_in(Some("app/viewer")).await);
    let before = Arc::clone(&world.rights.borrow());
    world.rights.send_replace(Arc::new(Rights::new(Stance::Deny, [])));
    assert_eq!(session.get(path).await.status, StatusCode::FORBIDDEN);
    world.rights.send_replace(before);
    shown(&session, path).await;
    world.revoke_viewer();
    assert_eq!(session.get(path).await.status, StatusCode::FORBIDDEN);
}

/// Requests a picture until there is one.
async fn shown(browser: &Browser, path: &str) -> Got {
    within(async {
        loop {
            let got = browser.get(path).await;
            if got.status == StatusCode::OK {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_signs_in_once_and_a_session_ends() {
    let world = World::new().await;
    let stranger = world.stranger();
    let link = world.link(None).await;
    let foreign = stranger.sending("origin", "https://example.org");
    assert_eq!(sign_in(&foreign, &link).await.status, StatusCode::FORBIDDEN);
    assert_eq!(sign_in(&stranger, &link).await.status, StatusCode::NO_CONTENT);
    let again = sign_in(&stranger, &link).await;
    assert_eq!(
        (again.status, again.json()["reason"].as_str()),
        (StatusCode::UNAUTHORIZED, Some("UNKNOWN_LINK"))
    );
    let form = stranger.ask(Method::POST, "/api/v1/session", "token=1").await;
    assert_eq!(form.status, StatusCode::BAD_REQUEST);

    let owner = world.signed_in(None).await;
    assert_eq!(names(&owner.get("/api/v1/cameras").await), ["dock/cam1", "yard/cam1"]);
    assert_eq!(owner.get("/api/v1/session").await.json()["by"], "session");
    for (name, value) in [("origin", "https://example.org"), ("sec-fetch-site", "cross-site")] {
        let got = owner.sending(name, value).get("/api/v1/cameras").await;
        assert_eq!(
            (got.status, got.json()["reason"].as_str()),
            (StatusCode::FORBIDDEN, Some("OTHER_ORIGIN")),
            "{name}"
        );
    }
    assert_eq!(owner.ask(Method::DELETE, "/api/v1/session", "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(owner.get("/api/v1/cameras").await.status, StatusCode::UNAUTHORIZED);

    // As an application with its rights, until it is revoked.
    let wall = world.signed_in(Some("app/viewer")).await;
    assert_eq!(wall.get("/api/v1/session").await.json()["identity"], "app/viewer");
    assert_eq!(names(&wall.get("/api/v1/cameras").await), ["dock/cam1"]);
    let mut events = wall.begin(Method::GET, "/api/v1/events", "").await.into_body();
    event(&mut events, |event| event["kind"] == "camera").await;
    world.revoke_viewer();
    ended(&mut events).await;
    let got = wall.get("/api/v1/cameras").await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(got.text().contains("revoked (lost)"), "{}", got.text());

    // Links are only made on the edge's host, and not for cameras.
    let over_tls = world.site.credentials(Role::App, "all");
    let tls = world.tls.clone();
    let remote = EdgeClient::connect(vec![tls], Some(&over_tls), ClientOptions::default()).await.unwrap();
    assert!(
        within(remote.open_page(None)).await.unwrap_err().to_string().contains("only on the edge's host")
    );
    let camera = within(world.user().await.open_page(Some("camera/dock/cam1"))).await.unwrap_err();
    assert!(camera.to_string().contains("is not an application"), "{camera}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_scraped_with_a_token_or_the_right_to_observe_all() {
    let world = World::new().await;
    let _publishing = world.publish(0);
    let stranger = world.stranger();
    let scraper = stranger.sending("authorization", &format!("Bearer {TOKEN}"));
    let wrong = stranger.sending("authorization", "Bearer 0123456789abcdef0123456789abcdeX");
    assert_eq!(wrong.get("/metrics").await.status, StatusCode::UNAUTHORIZED);
    for path in DATA {
        assert_eq!(
            scraper.get(path).await.status,
            StatusCode::UNAUTHORIZED,
            "the token is for metrics alone"
        );
    }
    assert_eq!(world.member("all").get("/metrics").await.status, StatusCode::OK);
    // A camera counts as connected if it was heard recently, which may fail on a busy host.
    let text = within(async {
        loop {
            let text = scraper.get("/metrics").await.text();
            let published = sample(&text, "mez_camera_frames_published_total{camera=\"dock/cam1\"}");
            let connected = sample(&text, "mez_edge_cameras{state=\"connected\"}");
            let each = sample(&text, "mez_camera_connected{camera=\"yard/cam1\"}");
            if published.is_some_and(|count| count > 3.0) && connected == Some(2.0) && each == Some(1.0) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    assert_eq!(sample(&text, "mez_edge_ready"), Some(1.0));
    assert!(sample(&text, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6), "{text}");
    // A scraper in a loop gets cached values, and does not make the edge collect more often. The metrics of the process are current.
    let seen = async || {
        let text = scraper.get("/metrics").await.text();
        let seen = text.lines().filter(|line| line.starts_with("mez_"));
        seen.map(str::to_owned).collect::<Vec<_>>()
    };
    let same = [seen().await, seen().await];
    assert!(same[0] == same[1] || seen().await == same[1]);
    for path in ["/livez", "/readyz"] {
        assert_eq!(stranger.get(path).await.status, StatusCode::OK);
    }
    let page = stranger.get("/").await;
    assert!(page.text().contains("This build has no page"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    assert_eq!(stranger.get("/../etc/passwd").await.status, StatusCode::NOT_FOUND);
    assert_eq!(stranger.ask(Method::PUT, "/api/v1/site", "{}").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

/// Reads events until `wanted` accepts one. Returns its data.
async fn event(
    body: &mut hyper::body::Incoming,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let mut text = String::new();
    within(async {
        loop {
            let frame = body.frame().await.expect("the stream goes on").unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let mut events = data.map(|data| serde_json::from_str::<serde_json::Value>(data).unwrap());
            if let Some(found) = events.find(&wanted) {
                assert_eq!(faults(&found, "Event"), [""; 0]);
                return found;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_by_rights_and_go_on_where_a_reader_was() {
    let mut world = World::new().await;
    let viewer = world.member("viewer");
    let mut events = viewer.begin(Method::GET, "/api/v1/events", "").await.into_body();
    let is = |camera: &'static str, state: &'static str| {
        move |event: &serde_json::Value| event["camera"] == camera && event["state"] == state
    };
    let first = event(&mut events, is("dock/cam1", "connected")).await;
    // Two cameras go: one that may be observed, and one that may not.
    world.cameras.clear();
    let gone = event(&mut events, |event| {
        assert_ne!(event["camera"], "yard/cam1");
        event["camera"] == "dock/cam1" && event["state"] == "absent"
    })
    .await;
    assert_eq!(gone["before"], "connected");
    let again = viewer.sending("last-event-id", first["id"].as_str().unwrap());
    let mut again = again.begin(Method::GET, "/api/v1/events", "").await.into_body();
    let resumed = event(&mut again, |event| {
        assert_ne!(event["id"], first["id"], "it has that one");
        event["state"] == "absent"
    })
    .await;
    assert_eq!(resumed["id"], gone["id"]);
    let restarted = viewer.sending("last-event-id", "17-3");
    let mut restarted = restarted.begin(Method::GET, "/api/v1/events", "").await.into_body();
    event(&mut restarted, |event| event["kind"] == "missed" && event["state"] == "unknown").await;
    // The end of a session ends its stream.
    let owner = world.signed_in(None).await;
    let mut of_session = owner.begin(Method::GET, "/api/v1/events", "").await.into_body();
    event(&mut of_session, |event| event["kind"] == "camera").await;
    owner.ask(Method::DELETE, "/api/v1/session", "").await;
    let camera = world.site.camera("dock/cam1", &world.edge).await;
    event(&mut events, is("dock/cam1", "connected")).await;
    ended(&mut of_session).await;
    // So does the loss of rights, even without events.
    world.rights.send_replace(Arc::new(Rights::new(Stance::Deny, [])));
    ended(&mut events).await;
    assert_eq!(viewer.get("/api/v1/events").await.status, StatusCode::FORBIDDEN);
    drop(camera);
}

/// A group is told of to its owner alone, however many cameras another may observe.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_group_are_for_its_owner() {
    let mut world = World::with(|options| options.events.lag_records_max = 2).await;
    let _publishing = world.publish(0);
    let owner = world.signed_in(None).await;
    let mut told = owner.begin(Method::GET, "/api/v1/events", "").await.into_body();
    let mut others = world.member("all").begin(Method::GET, "/api/v1/events", "").await.into_body();
    let user = world.user().await;
    let options = SubscribeOptions {
        deliver: Some(Deliver::Every),
        group: Some(Membership::new("detect".parse().unwrap())),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    };
    let mut idle = within(user.subscribe(options)).await.unwrap();
    // It takes one record, and no more.
    while !matches!(within(idle.next()).await.unwrap(), Event::Frame(_)) {}
    let behind = event(&mut told, |event| event["kind"] == "group").await;
    assert_eq!((&behind["state"], &behind["severity"]), (&"behind".into(), &"warning".into()));
    let sentence = behind["sentence"].as_str().unwrap();
    assert!(sentence.contains("detect"), "{sentence}");
    // Events are told in order: the other reader is past that one when it hears of a camera that goes now.
    world.cameras.clear();
    event(&mut others, |event| {
        assert_ne!(event["kind"], "group");
        event["camera"] == "yard/cam1" && event["state"] == "absent"
    })
    .await;
}

/// Waits until a stream has ended.
async fn ended(body: &mut hyper::body::Incoming) {
    within(async {
        while let Some(Ok(frame)) = body.frame().await {
            drop(frame)
        }
    })
    .await;
}

/// A reader that does not read its answers is cut off. Others are not affected.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_reading_is_cut_off() {
    let world = World::with(|options| options.patience = Duration::from_secs(3)).await;
    let stranger = world.stranger();
    let mut stalled = stranger.dial().await.unwrap();
    let asks = 200_000;
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", world.address()).repeat(asks / 1_000);
    let wrote = within(async {
        for _ in 0..1_000 {
            if stalled.write_all(request.as_bytes()).await.is_err() {
                return false;
            }
        }
        true
    });
    // The edge stops reading when it cannot answer, and soon closes the connection.
    assert!(!wrote.await, "all {asks} requests were read, though no answer was");
    assert_eq!(stranger.get("/livez").await.status, StatusCode::OK);
    let mut rest = Vec::new();
    let _ = within(stalled.read_to_end(&mut rest)).await;
}

/// Over HTTP/2, only the answers stall, while the connection continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_grants_no_window_is_cut_off() {
    let world = World::with(|options| options.patience = Duration::from_secs(3)).await;
    let browser = world.member("viewer").over_http2();
    assert_eq!(names(&browser.get("/api/v1/cameras").await), ["dock/cam1"]);
    for window in [0, 1] {
        let stalled = browser.dial().await.unwrap();
        let mut builder = h2::client::Builder::new();
        let handshake = builder.initial_window_size(window).handshake::<_, bytes::Bytes>(stalled);
        let (mut sender, connection) = handshake.await.unwrap();
        // The connection answers pings, and reads all data.
        let connection = tokio::spawn(connection);
        let request = http::Request::get("https://mez-edge/").body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        let answer = within(answer).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let _ = within(connection).await;
    }
    assert_eq!(browser.get("/livez").await.status, StatusCode::OK);
}

/// Strangers with as many connections as an address may have, each with a request that is allowed to everyone.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_that_stay_keep_nobody_out_who_is_known() {
    let world = World::new().await;
    let mut strangers = Vec::new();
    for _ in 0..64 {
        let mut stranger = world.stranger().dial().await.unwrap();
        stranger.write_all(b"GET /livez HTTP/1.1\r\nhost: edge\r\n\r\n").await.unwrap();
        let mut answer = [0; 15];
        within(stranger.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        strangers.push(stranger);
    }
    assert_eq!(world.member("viewer").get("/livez").await.status, StatusCode::OK);
}
