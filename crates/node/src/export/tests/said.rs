//! Notes written by the real keeper, exported, and read back by other libraries.

use std::os::unix::fs::FileExt;

use mez_core::contract::ContractState;
use mez_core::frame::FrameId;
use mez_core::source::SourceState;
use mez_core::store::Storage;

use super::*;
use crate::notes::{NoteContent, NotedContract, NotedSource, Notes};
use crate::persist::{LogKind, PersistOptions, check_log, repair_log};
use crate::reply::{Detection, Detections, KeyPoint, Mask, ReplyContent};

impl Log {
    /// Notes replies and changes as an edge does, and stops.
    async fn note(&self, said: Vec<NoteContent>) {
        let options = PersistOptions::new(self.folder.path().into(), keys(1));
        let notes = Notes::start(options, self.folder.path().join("state"), Vec::new()).unwrap();
        said.into_iter().for_each(|content| notes.note(&camera(), content));
        tokio::task::spawn_blocking(move || notes.stop()).await.unwrap();
    }
}

fn reply(sequence: u64, content: ReplyContent) -> NoteContent {
    let frame = FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
    NoteContent::Reply(NotedReply { frame, captured: None, application: "counter".into(), content })
}

fn opaque(bytes: &'static [u8]) -> ReplyContent {
    ReplyContent::Opaque(Bytes::from_static(bytes))
}

/// A person in a frame that was published with twice the width and height of the one in the log.
fn person() -> ReplyContent {
    let item = Detection {
        xyxy: [20.0, 10.0, 60.0, 90.0],
        score: Some(0.93),
        class_name: "person".into(),
        tracker_id: Some(7),
        ..Detection::default()
    };
    ReplyContent::Detections(Detections::new((128, 96), vec![item]).unwrap())
}

fn late() -> NoteContent {
    NoteContent::Contract(NotedContract {
        application: "counter".into(),
        state: ContractState::LatencyMiss,
        reason: "3 of 9 within 40 ms".into(),
    })
}

/// Boxes on the image are in the image's pixels. The reply itself is in published pixels.
#[tokio::test]
async fn messages_hold_replies_and_contracts_and_boxes_that_fit_the_image() {
    let mut log = Log::new();
    let frames = jpegs(4);
    log.publish(&frames);
    log.note(vec![reply(1, person()), reply(2, opaque(b"{\"gate\": 3}")), late()]).await;
    // A reply to a frame that this log does not hold, without capture time: it belongs to another span.
    log.note(vec![reply(77, opaque(b"?"))]).await;
    let options = log.options("said.mcap");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.replies, summary.contract_changes, summary.notes_missing), (2, 1, 0));

    let found = messages(&options.output);
    let read = |topic: &str| -> Vec<(u64, u32, Value)> {
        let of = found.get(topic).map_or(&[][..], Vec::as_slice);
        of.iter().map(|(time, n, data)| (*time, *n, serde_json::from_slice(data).unwrap())).collect()
    };
    let shown: Vec<u64> = found["/dock/cam1"].iter().map(|(time, ..)| *time).collect();
    let replies = read("/dock/cam1/replies");
    assert_eq!(replies.len(), 2);
    let (time, sequence, boxes) = &replies[0];
    assert_eq!((*time, *sequence), (shown[1], 1), "a reply has the time of its frame");
    assert_eq!((&boxes["width"], &boxes["height"]), (&json!(128), &json!(96)));
    let item =
        json!({"xyxy": [20.0, 10.0, 60.0, 90.0], "score": 0.93, "class_name": "person", "tracker_id": 7});
    assert_eq!(boxes["detections"], json!([item]));
    assert_eq!(boxes["captured_ns"], json!(shown[1]));
    let (_, _, bytes) = &replies[1];
    assert_eq!(
        (&bytes["payload_base64"], &bytes["result"]),
        (&json!("eyJnYXRlIjogM30="), &json!({"gate": 3}))
    );

    let drawn = read("/dock/cam1/annotations");
    assert_eq!(drawn.len(), 1, "opaque bytes are not drawn");
    let (time, _, drawn) = &drawn[0];
    assert_eq!(*time, shown[1]);
    let corners =
        json!([{"x": 10.0, "y": 5.0}, {"x": 30.0, "y": 5.0}, {"x": 30.0, "y": 45.0}, {"x": 10.0, "y": 45.0}]);
    assert_eq!((&drawn["points"][0]["points"], &drawn["points"][0]["type"]), (&corners, &json!(2)));
    assert_eq!(drawn["texts"][0]["text"], "person 0.93 #7");
    let contracts = read("/dock/cam1/contracts");
    assert_eq!(contracts.len(), 1);
    assert_eq!(
        (&contracts[0].2["state"], &contracts[0].2["application"]),
        (&json!("latency_miss"), &json!("counter"))
    );

    let content = fs::read(&options.output).unwrap();
    let listed = ::mcap::Summary::read(&content).unwrap().unwrap();
    for name in ["foxglove.ImageAnnotations", "mez.Reply", "mez.ContractState"] {
        let schema = listed.schemas.values().find(|schema| schema.name == name).unwrap();
        assert_eq!(schema.encoding, "jsonschema");
        let schema: Value = serde_json::from_slice(&schema.data).unwrap();
        assert_eq!((&schema["title"], &schema["type"]), (&json!(name), &json!("object")));
    }
}

/// A state of the source. `since` is by the clock of these frames.
fn source(state: SourceState, reason: &str, since: Option<Timestamp>) -> NoteContent {
    NoteContent::Source(NotedSource { state, reason: reason.into(), since })
}

/// Publishes a frame half a minute ago and another half a minute ahead, so that notes of now are between them.
fn around_now(log: &mut Log) -> [Timestamp; 2] {
    let anchor = ClockAnchor { wall: wall_now() - Duration::from_secs(30), monotonic: BEGIN };
    let frame = |step| (step, Encoding::Jpeg, jpeg(0, (64, 48)), (64, 48));
    let pause = Duration::from_secs(60);
    log.publish_by(anchor, &[frame(Duration::ZERO), frame(pause)]);
    [anchor.wall, anchor.wall + pause]
}

/// A recording with a pause contains the reason: in messages, in the file beside a video, and in its subtitles.
#[tokio::test]
async fn a_recording_says_why_the_source_gave_no_frames() {
    let mut log = Log::new();
    let [before, after] = around_now(&mut log);
    let why = "rtsp://gate: connection refused";
    log.note(vec![source(SourceState::Lost, why, Some(before)), source(SourceState::Live, "", None)]).await;
    let until_after = |name: &str| ExportOptions { end: Some(after), ..log.options(name) };

    let options = until_after("lost.mcap");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.source_changes, summary.contract_changes), (2, 2, 0));
    let found = messages(&options.output);
    let told: Vec<(u64, Value)> = found["/dock/cam1/source"]
        .iter()
        .map(|(time, _, data)| (*time, serde_json::from_slice(data).unwrap()))
        .collect();
    let [(time, lost), (_, live)] = &told[..] else { panic!("{told:?}") };
    assert!(before.as_nanos() < *time && *time < after.as_nanos(), "between the two frames");
    assert_eq!(
        (&lost["kind"], &lost["state"], &lost["reason"]),
        (&json!("source"), &json!("lost"), &json!(why))
    );
    assert_eq!((&lost["since_ns"], &lost["noted_ns"]), (&json!(before.as_nanos()), &json!(time)));
    assert_eq!((&live["state"], &live["since_ns"]), (&json!("live"), &Value::Null));
    let listed = ::mcap::Summary::read(&fs::read(&options.output).unwrap()).unwrap().unwrap();
    assert!(listed.schemas.values().any(|schema| schema.name == "mez.SourceState"));

    let options = until_after("lost.mp4");
    let summary = export(&options, |_| {}).await.unwrap();
    let lines = fs::read_to_string(summary.side_file.unwrap()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, [lost.clone(), live.clone()]);
    let text = String::from_utf8(run("ffmpeg", &["-f", "srt", "-", "-i"], &options.output)).unwrap();
    assert!(
        text.contains(&format!("no frames before this one: the camera's source is lost: {why}")),
        "{text}"
    );
}

/// A span that begins while the source is lost contains this state, although it was noted before the span.
#[tokio::test]
async fn a_span_begins_with_how_the_source_stands() {
    let mut log = Log::new();
    let [_, after] = around_now(&mut log);
    log.note(vec![source(SourceState::Stalled, "", None), source(SourceState::Lost, "the cable", None)])
        .await;
    let span = ExportOptions { begin: Some(after), end: Some(after), ..log.options("span.mcap") };
    let summary = export(&span, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.source_changes), (1, 1));
    let found = messages(&span.output);
    let told: Value = serde_json::from_slice(&found["/dock/cam1/source"][0].2).unwrap();
    assert_eq!((&told["state"], &told["reason"]), (&json!("lost"), &json!("the cable")));
    // The source is live again before the span, so there is nothing to report.
    log.note(vec![source(SourceState::Live, "", None)]).await;
    let summary = export(&ExportOptions { overwrite: true, ..span }, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.source_changes), (1, 0));
}

/// A person with a mask over the whole picture and two key points.
fn posed() -> (Detection, Value) {
    let key_point = |x, y, score| KeyPoint { x, y, score };
    let item = Detection {
        xyxy: [20.0, 10.0, 60.0, 90.0],
        class_id: Some(0),
        mask: Some(Mask { width: 4, height: 2, runs: vec![2, 3, 3] }),
        key_points: vec![key_point(30.0, 20.0, Some(0.8)), key_point(50.5, 80.0, None)],
        ..Detection::default()
    };
    let written = json!({
        "xyxy": [20.0, 10.0, 60.0, 90.0],
        "class_id": 0,
        "mask": {"width": 4, "height": 2, "runs": [2, 3, 3]},
        "key_points": [[30.0, 20.0, 0.8], [50.5, 80.0, null]],
    });
    (item, written)
}

/// Masks and key points are exported unchanged: beside a video, in messages, and as points that viewers draw on the image.
#[tokio::test]
async fn masks_and_key_points_are_exported() {
    let mut log = Log::new();
    log.publish(&jpegs(4));
    let (item, written) = posed();
    let found = Detections::new((128, 96), vec![item]).unwrap();
    log.note(vec![reply(1, ReplyContent::Detections(found))]).await;
    let summary = export(&log.options("posed.mp4"), |_| {}).await.unwrap();
    let line: Value = serde_json::from_slice(&fs::read(summary.side_file.unwrap()).unwrap()).unwrap();
    assert_eq!(line["detections"], json!([written]));

    let options = log.options("posed.mcap");
    export(&options, |_| {}).await.unwrap();
    let found = messages(&options.output);
    let read = |topic: &str| -> Value { serde_json::from_slice(&found[topic][0].2).unwrap() };
    assert_eq!(read("/dock/cam1/replies")["detections"], json!([written]));
    // The image in the file has half the width and height.
    let drawn = read("/dock/cam1/annotations");
    assert_eq!(drawn["points"].as_array().unwrap().len(), 2, "the box, and the points");
    assert_eq!(drawn["points"][1]["type"], json!(1));
    assert_eq!(drawn["points"][1]["points"], json!([{"x": 15.0, "y": 10.0}, {"x": 25.25, "y": 40.0}]));
}

/// Subtitles show detections as long as they last. The file beside the video has all of them.
#[tokio::test]
async fn a_video_has_subtitles_and_a_file_beside_it() {
    let mut log = Log::new();
    let frames = jpegs(5);
    log.publish(&frames);
    log.note(vec![reply(1, person()), reply(2, person()), reply(3, opaque(b"seen")), late()]).await;
    for (name, codec) in [("coded.mp4", VideoCodec::H264), ("exact.mp4", VideoCodec::Jpeg)] {
        let options = ExportOptions { codec, ..log.options(name) };
        let summary = export(&options, |_| {}).await.unwrap();
        assert_eq!((summary.frames, summary.replies, summary.contract_changes), (5, 3, 1));
        assert_times(&shown(&options.output), &times(&frames));
        let args = ["-show_entries", "stream=codec_name,codec_type", "-of", "csv=p=0"];
        let streams = String::from_utf8(run("ffprobe", &args, &options.output)).unwrap();
        assert!(streams.contains("mov_text,subtitle"), "{streams}");
        let text = run("ffmpeg", &["-f", "srt", "-", "-i"], &options.output);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("00:00:00,067 --> 00:00:00,150\ncounter: 1 person"), "{text}");

        let side = summary.side_file.unwrap();
        assert_eq!(side, log.folder.path().join(format!("{name}.jsonl")));
        let lines = fs::read_to_string(&side).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&Value> = lines.iter().map(|line| &line["kind"]).collect();
        assert_eq!(kinds, ["reply", "reply", "reply", "contract"]);
        assert_eq!((&lines[0]["sequence"], &lines[0]["video_seconds"]), (&json!(1), &json!(0.067)));
        assert_eq!(lines[0]["detections"][0]["xyxy"], json!([20.0, 10.0, 60.0, 90.0]));

        // Neither of the two files is replaced without `overwrite`. A video without notes removes the side file of an earlier one.
        fs::remove_file(&options.output).unwrap();
        let error = export(&options, |_| {}).await.unwrap_err();
        assert!(matches!(&error, ExportError::Exists(path) if *path == side), "{error}");
        let without = ExportOptions { notes: false, overwrite: true, ..options };
        let summary = export(&without, |_| {}).await.unwrap();
        assert_eq!((summary.replies, summary.side_file), (0, None));
        assert!(!side.exists());
    }
    assert_eq!(left_over(log.folder.path()), [""; 0]);
}

/// A damaged note costs no other note. It is reported, counted in the export, and left out of a copy.
#[tokio::test]
async fn a_damaged_note_is_named_and_costs_no_other() {
    let mut log = Log::new();
    log.publish(&jpegs(4));
    log.note((0..4).map(|number| reply(number, person())).collect()).await;
    let root = log.folder.path();
    let mut files = LogFiles::reader_of(root, &camera(), LogKind::Notes, None);
    let (segment, bytes) = files.list().unwrap()[0];
    let of_notes = keys(1).for_notes();
    let mut scan =
        mez_core::store::SegmentScan::open(&mut files, &camera(), &of_notes, segment, bytes).unwrap();
    scan.next(&mut files, false);
    let at = scan.offset() + 100;
    let path = files.folder().join(format!("{segment}.segment"));
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();

    let frames = check_log(root, (&camera(), LogKind::Frames), &keys(1), None, true).unwrap();
    assert_eq!(frames.wrong(), 0);
    let notes = check_log(root, (&camera(), LogKind::Notes), &keys(1), None, true).unwrap();
    assert_eq!((notes.wrong(), notes.report.records(), notes.report.records_lost), (1, 3, 1));
    let says = notes.says(&notes.report.findings[0]);
    assert!(says.contains("1 note is lost") && says.contains("noted between"), "{says}");
    let told: Value = serde_json::from_str(&notes.to_json()).unwrap();
    assert_eq!((&told["log"], &told["notes"], &told["notes_lost"]), (&json!("notes"), &json!(3), &json!(1)));
    let summary = export(&log.options("damaged.mcap"), |_| {}).await.unwrap();
    assert_eq!((summary.replies, summary.notes_missing, summary.damaged), (3, 1, 0));

    let copy = tempfile::tempdir().unwrap();
    for kind in [LogKind::Frames, LogKind::Notes] {
        repair_log(root, (&camera(), kind), &keys(1), None, copy.path()).unwrap();
    }
    let options = ExportOptions { store: copy.path().into(), ..log.options("copy.mcap") };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.replies, summary.notes_missing), (4, 3, 1));

    // Notes are sealed with keys of their own, so they cannot be opened as frames.
    let opened = mez_core::store::SegmentScan::open(&mut files, &camera(), &keys(1), segment, bytes);
    assert!(opened.is_err());
    let stranger = ExportOptions { keys: keys(2), ..log.options("other.mcap") };
    assert!(export(&stranger, |_| {}).await.is_err());
}
