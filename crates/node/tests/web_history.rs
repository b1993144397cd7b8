//! A camera's past over HTTP: held spans, reasons of holes, notes, pictures at an instant, files; access and refusals.

mod api_support;
mod past_support;
mod web_support;

use std::time::Duration;

use http::StatusCode;
use mez_core::broker::Published;
use mez_core::contract::Contract;
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::subscription::Span;
use mez_core::units::Timestamp;
use mez_node::reply::{Detection, Detections, ReplyContent};
use serde_json::Value;

use self::api_support::within;
use self::past_support::{CAMERA, World, arrives, jpeg, stretches, until};
use self::web_support::{Browser, Got, faults};

#[tokio::test(flavor = "multi_thread")]
async fn a_past_with_holes_is_told_and_shown() {
    let (world, jpeg) = (World::new(true).await, jpeg());
    // Two starts of the camera whose frames the edge receives, and later frames that stay at the camera.
    let camera = world.site.camera(CAMERA, &world.edge).await;
    let live = || world.edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE);
    let mut subscription = live().await.unwrap();
    world.begin(&camera, &jpeg, 9_200, &mut subscription).await;
    let mut ids = Vec::new();
    for frame in 0..12 {
        ids.push(world.publish(&camera, &jpeg, 10_000 + 200 * frame));
        arrives(&mut subscription).await;
    }
    let found = Detection { xyxy: [1.0, 2.0, 30.0, 40.0], class_name: "cat".into(), ..Detection::default() };
    let found = ReplyContent::Detections(Detections::new((1280, 720), vec![found]).unwrap());
    world.edge.reply(CAMERA.parse().unwrap(), ids[11], "counter".into(), found).await.unwrap();
    drop(camera);
    let camera = world.site.camera(CAMERA, &world.edge).await;
    world.begin(&camera, &jpeg, 59_200, &mut subscription).await;
    for frame in 0..3 {
        world.publish(&camera, &jpeg, 60_000 + 200 * frame);
        arrives(&mut subscription).await;
    }
    drop(subscription);
    let reader = world.member("reader");
    let held = world.path("history", (0, 300_000));
    let wanted = |got: &Got| {
        let frames = |span: &Value| span["frames"].as_u64().unwrap();
        got.json()["spans"].as_array().unwrap().iter().map(frames).sum::<u64>() >= 17
            && got.json()["camera_from_utc_ms"].is_u64()
    };
    let got = until(&reader, &held, wanted).await;
    let told = got.json();
    assert_eq!(faults(&told, "Held"), [""; 0]);
    let spans = stretches(&world, &told["spans"], "frames");
    let [(first, last, frames), (again, end, _)] = &spans[..] else { panic!("{told}") };
    assert!((9_200..10_000).contains(first) && (59_200..60_000).contains(again), "{told}");
    assert!((*last, *end) == (12_200, 60_400) && frames.as_u64() >= Some(13), "{told}");
    assert_eq!(
        stretches(&world, &told["holes"], "reason"),
        [
            (0, *first, "gone".into()),
            (12_200, *again, "camera_restarted".into()),
            (60_400, 300_000, "not_published".into())
        ]
    );
    assert_eq!(told["edge_from_utc_ms"], world.begin_ms + first, "the oldest is on disk alone");

    // A picture from the disk, none in the hole, and one that only the camera has.
    let picture = reader.get(&world.instant(10_300)).await;
    assert_eq!((picture.status, picture.header("content-type")), (StatusCode::OK, "image/jpeg"));
    assert_eq!(picture.header("mez-epoch"), ids[2].epoch.0.to_string());
    assert_eq!(picture.header("mez-sequence"), ids[2].sequence.0.to_string());
    let info = mez_media::jpeg::probe(&picture.body).unwrap();
    assert_eq!((info.width, info.height), (640, 360), "never an original");
    assert_eq!(reader.get(&world.instant(30_000)).await.status, StatusCode::NO_CONTENT);
    within(async {
        // Until the camera knows that there is no reader, frames may still cross.
        for number in 0.. {
            let behind_ms = 120_000 + 2_000 * number;
            world.publish(&camera, &jpeg, behind_ms);
            let got = reader.get(&world.instant(behind_ms)).await;
            if got.header("mez-rung") == "jpeg/w640/q60/420" {
                return assert_eq!(got.status, StatusCode::OK);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    replies_are_told(&world, &reader, ids[11]).await;
    rights_and_absurdities(&world).await;
}

/// An application's reply to a frame is among the notes of its time.
async fn replies_are_told(world: &World, reader: &Browser, frame: FrameId) {
    let notes = world.path("notes", (0, 900_000));
    let noted = until(reader, &notes, |got| !got.json()["notes"].as_array().unwrap().is_empty()).await;
    assert_eq!(faults(&noted.json(), "Notes"), [""; 0]);
    let said = noted.json()["notes"].as_array().unwrap().clone();
    let reply = said.iter().find(|note| note["kind"] == "reply").expect("it was noted");
    assert_eq!(
        (&reply["application"], &reply["reply"]["sequence"]),
        (&"counter".into(), &frame.sequence.0.into())
    );
    assert_eq!(reply["reply"]["detections"][0]["class_name"], "cat");
}

async fn rights_and_absurdities(world: &World) {
    let clip = world.path("clip", (9_000, 20_000));
    let (reader, viewer, exporter) =
        (world.member("reader"), world.member("viewer"), world.member("exporter"));
    let paths = [
        world.path("history", (0, 1_000)),
        world.path("notes", (0, 1_000)),
        world.instant(10_000),
        clip.clone(),
    ];
    for path in &paths {
        let refused = viewer.get(path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(faults(&refused.json(), "Problem"), [""; 0]);
    }
    assert_eq!(reader.get(&clip).await.status, StatusCode::FORBIDDEN, "it may not export");
    let file = exporter.get(&clip).await;
    assert_eq!((file.status, file.header("content-type")), (StatusCode::OK, "video/mp4"), "{:?}", file.body);
    assert_eq!(file.header("content-length"), file.body.len().to_string());
    assert!(file.header("content-disposition").contains("dock-cam1-"), "it is a download");
    assert_eq!(&file.body[4..8], b"ftyp");
    let nothing = exporter.get(&world.path("clip", (30_000, 31_000))).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
    assert!(nothing.text().contains("no frame in this time span"), "{}", nothing.text());

    let of = |rest: &str| format!("/api/v1/cameras/{CAMERA}/{rest}");
    for path in [
        of("history"),
        world.path("history", (1_000, 1_000)),
        world.path("history", (0, 86_400_001)),
        of("history?since_utc_ms=0&until_utc_ms=18446744073709551615"),
        of("history?since_utc_ms=-5&until_utc_ms=5"),
        world.path("notes", (5, 4)),
        of("instant"),
        of("instant?at_utc_ms=5&within_ms=0"),
        of("instant?at_utc_ms=5&within_ms=60001"),
        world.instant(600_000 + 86_400_000),
        of("instant?at_utc_ms=5&quality=original"),
    ] {
        let refused = reader.get(&path).await;
        let reason = refused.json()["reason"].as_str().map(str::to_owned);
        assert_eq!(
            (refused.status, reason.as_deref()),
            (StatusCode::BAD_REQUEST, Some("INVALID_ARGUMENT")),
            "{path}"
        );
    }
    let long = exporter.get(&world.path("clip", (0, 300_001))).await;
    assert_eq!(long.status, StatusCode::BAD_REQUEST);
    let unknown = reader.get("/api/v1/cameras/dock/none/history?since_utc_ms=0&until_utc_ms=5").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    // The beginning of time, where nothing can be.
    assert_eq!(
        reader.get(&of("history?since_utc_ms=0&until_utc_ms=5")).await.json()["spans"],
        serde_json::json!([])
    );
    assert_eq!(reader.get(&of("instant?at_utc_ms=0")).await.status, StatusCode::NO_CONTENT);
}

/// An edge without a store has the frames in memory, and reports what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_memory_is_told() {
    let (world, jpeg) = (World::new(false).await, jpeg());
    let camera = world.site.camera(CAMERA, &world.edge).await;
    let mut subscription =
        world.edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    world.begin(&camera, &jpeg, 0, &mut subscription).await;
    let reader = world.member("reader");
    let held = world.path("history", (0, 10_000));
    let got = until(&reader, &held, |got| got.json()["spans"][0]["frames"].is_u64()).await;
    assert_eq!(got.json()["stored"], false);
    let notes = reader.get(&world.path("notes", (0, 10_000))).await;
    assert_eq!((notes.status, notes.json()["reason"].as_str()), (StatusCode::CONFLICT, Some("NO_NOTES")));
    let clip = world.member("exporter").get(&world.path("clip", (0, 10_000))).await;
    assert!(clip.status == StatusCode::CONFLICT && clip.text().contains("--store"), "{}", clip.text());
    assert_eq!(reader.get(&world.instant(0)).await.status, StatusCode::OK);
}

/// Text records are shown as text, with their origins, to users who may read the past.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_the_past_is_told_as_text() {
    let world = World::new(true).await;
    let camera = world.site.camera(CAMERA, &world.edge).await;
    let mut subscription =
        world.edge.subscribe(CAMERA.parse().unwrap(), Contract::default(), Span::LIVE).await.unwrap();
    let of = Origin {
        camera: "yard/cam2".parse().unwrap(),
        frame: FrameId { epoch: Epoch(7), sequence: Sequence(1234) },
        captured: Timestamp::from_nanos(5),
    };
    let publish = |content_type: &str, body: &str, of: Option<Origin>, behind_ms: u64| {
        let captured = Timestamp::from_nanos((world.begin_ms + behind_ms) * 1_000_000);
        let record =
            DataRecord { content_type: content_type.parse().unwrap(), of, body: body.to_owned().into() };
        camera.publish(Published::data(&record, Some(captured))).unwrap()
    };
    // Until the demand has reached the camera, records do not cross.
    let mut before = 0..;
    within(async {
        loop {
            publish("text/plain", "before", None, before.next().unwrap());
            if tokio::time::timeout(Duration::from_millis(150), arrives(&mut subscription)).await.is_ok() {
                return;
            }
        }
    })
    .await;
    let people = publish("application/json", r#"{"people": 2}"#, Some(of), 10_000);
    arrives(&mut subscription).await;
    publish("application/octet-stream", "bytes", None, 20_000);
    arrives(&mut subscription).await;
    let reader = world.member("reader");
    let at = |behind_ms: u64| {
        format!("/api/v1/cameras/{CAMERA}/record?at_utc_ms={}&within_ms=500", world.begin_ms + behind_ms)
    };

    let told = until(&reader, &at(9_900), |got| got.json()["record"].is_object()).await.json();
    assert_eq!(faults(&told, "RecordAt"), [""; 0]);
    assert_eq!(
        told["record"],
        serde_json::json!({
            "epoch": people.epoch.0,
            "sequence": people.sequence.0,
            "captured_utc_ms": world.begin_ms + 10_000,
            "content_type": "application/json",
            "bytes": 13,
            "text": r#"{"people": 2}"#,
            "of": {"camera": "yard/cam2", "epoch": 7, "sequence": 1234},
        })
    );
    let bytes = until(&reader, &at(20_000), |got| got.json()["record"].is_object()).await.json();
    assert_eq!((&bytes["record"]["text"], &bytes["record"]["bytes"]), (&Value::Null, &5.into()));
    let none = reader.get(&at(15_000)).await.json();
    assert_eq!((&none["record"], faults(&none, "RecordAt")), (&Value::Null, Vec::new()));
    assert_eq!(world.member("viewer").get(&at(10_000)).await.status, StatusCode::FORBIDDEN);
    let unknown = reader.get("/api/v1/cameras/dock/none/record?at_utc_ms=5").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let absurd = format!("/api/v1/cameras/{CAMERA}/record");
    assert_eq!(reader.get(&absurd).await.status, StatusCode::BAD_REQUEST);
}
