//! Logs are written by the real writer, exported by the real programs, and read back by other libraries.

mod copied;
mod said;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use ::mcap::MessageStream;
use bytes::Bytes;
use mez_core::broker::{Intake, IntakeConfig, Published};
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Reference, Rung, Sequence, SkipReason,
};
use mez_core::log::{LogConfig, log};
use mez_core::store::{KEY_BYTES, MasterKey, StoreConfig, StoreWriter};
use mez_core::units::{ClockAnchor, Instant};
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};
use prost::Message;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::mcap::CompressedImage;
use super::*;
use crate::persist::LogFiles;

const BEGIN: Instant = Instant::from_nanos(1_000_000_000);
/// Irregular times between frames, in milliseconds. The last one is a pause.
const STEPS_MS: [u64; 5] = [40, 67, 33, 50, 2_500];

fn anchor() -> ClockAnchor {
    ClockAnchor { wall: Timestamp::from_nanos(1_700_000_000_000_000_000), monotonic: BEGIN }
}

fn keys(byte: u8) -> KeyRing {
    KeyRing::new(vec![MasterKey::new([byte; KEY_BYTES])]).unwrap()
}

fn camera() -> CameraName {
    "dock/cam1".parse().unwrap()
}

/// Pixels that differ from frame to frame.
fn pixels(number: u64, (width, height): (u32, u32)) -> Vec<u8> {
    (0..width as usize * height as usize * 3).map(|at| (at as u64 / 7 + number * 37) as u8).collect()
}

fn jpeg(number: u64, size: (u32, u32)) -> Bytes {
    let pixels = pixels(number, size);
    let view = ImageView::packed(&pixels, size.0, size.1, PixelFormat::Bgr8).unwrap();
    Encoder::new(90, Sampling::Yuv420).unwrap().encode(&view).unwrap()
}

/// Time since the previous frame, encoding, payload and size.
type Shot = (Duration, Encoding, Bytes, (u32, u32));

/// A camera's log in a folder, as written by its broker.
struct Log {
    folder: TempDir,
    epoch: u64,
}

impl Log {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), epoch: 0 }
    }

    /// One start of the broker: publishes `frames` at their times, and stops.
    fn publish(&mut self, frames: &[Shot]) {
        self.publish_by(anchor(), frames);
    }

    fn publish_by(&mut self, anchor: ClockAnchor, frames: &[Shot]) {
        self.publish_as(&camera(), anchor, frames);
    }

    fn publish_as(&mut self, stream: &CameraName, anchor: ClockAnchor, frames: &[Shot]) {
        self.epoch += 1;
        let (writer, reader) = log(LogConfig::default());
        let mut intake = Intake::new(writer, IntakeConfig::new(Epoch(self.epoch), anchor));
        let mut store = self.store_of(stream, reader.cursor_at_end());
        store.set_start(Epoch(self.epoch), anchor);
        let mut now = anchor.monotonic;
        for (step, encoding, payload, (width, height)) in frames {
            now += *step;
            let (payload, encoding, width, height) = (payload.clone(), *encoding, *width, *height);
            intake.publish(now, Published { payload, encoding, width, height, captured: None }).unwrap();
        }
        settle(store, now);
    }

    fn store(&self, cursor: mez_core::log::Cursor) -> StoreWriter<LogFiles> {
        self.store_of(&camera(), cursor)
    }

    fn store_of(&self, stream: &CameraName, cursor: mez_core::log::Cursor) -> StoreWriter<LogFiles> {
        let state = self.folder.path().join("state").join(stream.as_str()).join("@log");
        let mut files = LogFiles::open(self.folder.path(), stream, state).unwrap();
        let ring = keys(1);
        let recovery = mez_core::store::RecoveryConfig {
            camera: stream,
            keys: &ring,
            bytes_max: u64::MAX,
            time_max: Duration::from_secs(60),
        };
        let resume = mez_core::store::recover(&mut files, recovery, || BEGIN).unwrap().resume;
        let config = StoreConfig::new(stream.clone(), ring, 64 << 20);
        StoreWriter::new(files, config, resume, cursor, BEGIN, anchor().wall)
    }

    fn options(&self, name: &str) -> ExportOptions {
        let output = self.folder.path().join(name);
        let format = ExportFormat::of(&output).unwrap();
        ExportOptions::new(self.folder.path().into(), keys(1), camera(), output, format)
    }
}

fn settle(mut store: StoreWriter<LogFiles>, mut now: Instant) {
    store.close();
    let mut salt = 0;
    for _ in 0..10_000 {
        now += Duration::from_millis(40);
        store.step(now, anchor().wall_at(now), &mut || {
            salt += 1;
            [salt; 32]
        });
        if store.is_settled() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the log was not written: {:?}", store.status());
}

/// `count` JPEG frames at the intervals of [`STEPS_MS`].
fn jpegs(count: u64) -> Vec<Shot> {
    let size = (64, 48);
    let step = |number: u64| Duration::from_millis(STEPS_MS[number as usize % STEPS_MS.len()]);
    (0..count).map(|number| (step(number), Encoding::Jpeg, jpeg(number, size), size)).collect()
}

/// The times of `frames` relative to the first one, without it.
fn times(frames: &[Shot]) -> Vec<f64> {
    let mut at = Duration::ZERO;
    let after_first = frames[1..].iter().map(|(step, ..)| {
        at += *step;
        at.as_secs_f64()
    });
    [0.0].into_iter().chain(after_first).collect()
}

fn run(program: &str, args: &[&str], file: &Path) -> Vec<u8> {
    let output = Command::new(program).args(["-v", "error"]).args(args).arg(file).output();
    let output = output.unwrap_or_else(|error| {
        panic!("{program} does not run ({error}): these tests need it; install ffmpeg")
    });
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The time of each picture in a video, in seconds, from ffprobe.
fn shown(file: &Path) -> Vec<f64> {
    let args =
        ["-select_streams", "v:0", "-show_entries", "frame=best_effort_timestamp_time", "-of", "csv=p=0"];
    let text = String::from_utf8(run("ffprobe", &args, file)).unwrap();
    let times = text.lines().filter(|line| !line.is_empty());
    times.map(|line| line.trim_end_matches(',').parse().unwrap()).collect()
}

fn assert_times(shown: &[f64], expected: &[f64]) {
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for (shown, expected) in shown.iter().zip(expected) {
        assert!((shown - expected).abs() < 20e-6, "{shown} instead of {expected}");
    }
}

fn left_over(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).collect()
}

/// The messages of a file, by topic.
fn messages(file: &Path) -> BTreeMap<String, Vec<(u64, u32, Vec<u8>)>> {
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let content = fs::read(file).unwrap();
    for message in MessageStream::new(&content).unwrap() {
        let message = message.unwrap();
        let entry = (message.log_time, message.sequence, message.data.to_vec());
        found.entry(message.channel.topic.clone()).or_default().push(entry);
    }
    found
}

#[tokio::test]
async fn a_video_has_every_frame_at_its_time() {
    let (mut log, frames) = (Log::new(), jpegs(17));
    log.publish(&frames);
    let exact = ExportOptions { codec: VideoCodec::Jpeg, ..log.options("exact.mp4") };
    let mut told = 0;
    let summary = export(&exact, |progress| {
        told += 1;
        assert_eq!(progress.frames, told);
        assert!(progress.from <= progress.at && progress.at <= progress.to);
    });
    let summary = summary.await.unwrap();
    assert_eq!((summary.frames, summary.gaps, summary.damaged, summary.recoded), (17, 0, 0, 0));
    assert_eq!(summary.file_bytes, exact.output.metadata().unwrap().len());
    assert_times(&shown(&exact.output), &times(&frames));
    // Byte for byte.
    let input = exact.output.to_str().unwrap();
    let split = log.folder.path().join("%d.jpg");
    run("ffmpeg", &["-i", input, "-c:v", "copy", "-vsync", "passthrough", "-f", "image2"], &split);
    for (number, (_, _, payload, _)) in frames.iter().enumerate() {
        let image = fs::read(log.folder.path().join(format!("{}.jpg", number + 1))).unwrap();
        assert_eq!(image, payload[..], "frame {number}");
    }

    let coded = log.options("coded.mp4");
    export(&coded, |_| {}).await.unwrap();
    assert_times(&shown(&coded.output), &times(&frames));
    let tags = ["-show_entries", "stream=codec_name,pix_fmt,color_range,color_space", "-of", "csv=p=0"];
    let tags = String::from_utf8(run("ffprobe", &tags, &coded.output)).unwrap();
    assert_eq!(tags.trim(), "h264,yuv420p,tv,smpte170m");
    assert_eq!(left_over(log.folder.path()), [""; 0]);
}

#[tokio::test]
async fn frames_of_other_sizes_and_of_a_clock_that_was_set_back_are_shown_as_well() {
    let mut log = Log::new();
    log.publish(&jpegs(3));
    let step = Duration::from_millis(100);
    let odd = [(31, 23), (63, 48), (64, 48)];
    let odd: Vec<_> = odd.map(|size| (step, Encoding::Jpeg, jpeg(9, size), size)).into();
    let earlier = ClockAnchor { wall: anchor().wall - Duration::from_secs(3600), ..anchor() };
    log.publish_by(earlier, &odd);
    let options = log.options("video.mp4");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.moved), (6, 3));
    let sizes: Vec<_> = summary.sizes.into_iter().collect();
    assert_eq!(sizes, [((31, 23), 1), ((63, 48), 1), ((64, 48), 4)]);
    assert_eq!(summary.video_size, (64, 48));
    assert_times(&shown(&options.output), &[0.0, 0.067, 0.1, 0.101, 0.201, 0.301]);
}

#[tokio::test]
async fn messages_hold_images_to_the_last_byte_and_say_what_is_missing() {
    let (mut log, frames) = (Log::new(), jpegs(12));
    log.publish(&frames);
    let size = (32, 24);
    let raw = Bytes::from(pixels(5, size));
    log.publish(&[(Duration::from_secs(60), Encoding::Bgr8, raw.clone(), size)]);
    damage_payload(&log, 4);
    let options = log.options("messages.mcap");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.gaps, summary.damaged, summary.recoded), (12, 1, 1, 1));
    assert_eq!(summary.missing.iter().collect::<Vec<_>>(), [(SkipReason::Damaged, 1)]);

    let found = messages(&options.output);
    let images = &found["/dock/cam1"];
    let kept: Vec<_> = (0..12).filter(|number| *number != 4).collect();
    for (number, (time, sequence, message)) in kept.iter().zip(images) {
        let image = CompressedImage::decode(&message[..]).unwrap();
        assert_eq!((*sequence, image.format.as_str()), (*number as u32, "jpeg"));
        assert_eq!((image.data, image.frame_id.as_str()), (frames[*number].2.clone(), "dock/cam1"));
        let stamp = image.timestamp.unwrap();
        assert_eq!(stamp.seconds as u64 * 1_000_000_000 + stamp.nanos as u64, *time);
    }
    let last = CompressedImage::decode(&images[11].2[..]).unwrap();
    let mut decoded = mez_media::Image::empty();
    mez_media::png::decode(&last.data, 1 << 20, &mut decoded).unwrap();
    assert_eq!((last.format.as_str(), decoded.data()), ("png", &raw[..]), "raw pixels stay what they are");
    let gaps: Vec<Value> =
        found["/dock/cam1/gaps"].iter().map(|gap| serde_json::from_slice(&gap.2).unwrap()).collect();
    assert_eq!(gaps, [json!({"epoch": 1, "before_sequence": 5, "frames": 1, "reasons": {"damaged": 1}})]);

    // A reader finds the schema by its name, and the summary.
    let content = fs::read(&options.output).unwrap();
    let listed = ::mcap::Summary::read(&content).unwrap().unwrap();
    let schema = listed.schemas.values().find(|schema| schema.name == "foxglove.CompressedImage").unwrap();
    assert_eq!(schema.encoding, "protobuf");
    assert_eq!(
        listed.channels.values().filter(|channel| channel.topic == "/dock/cam1").count(),
        2,
        "one an epoch"
    );
    assert_eq!(listed.stats.unwrap().message_count, 13);
    assert_eq!(listed.metadata_indexes.len(), 1);
}

/// Data records keep their bytes, their content type and their origin. A video leaves them out and counts them.
#[tokio::test]
async fn messages_hold_data_records_and_a_video_leaves_them_out() {
    let of = Origin {
        camera: "dock/cam2".parse().unwrap(),
        frame: FrameId { epoch: Epoch(3), sequence: Sequence(7) },
        captured: Timestamp::from_nanos(5),
    };
    let data = |body: &'static [u8], content_type: &str, of| {
        let record =
            DataRecord { content_type: content_type.parse().unwrap(), of, body: Bytes::from_static(body) };
        (Duration::from_millis(100), Encoding::Data, record.encode(), (0, 0))
    };
    let mut log = Log::new();
    let records = [data(b"[1]", "application/json", Some(of)), data(b"\0\x01", "application/x-mine", None)];
    log.publish(&records);
    let options = log.options("only.mp4");
    let error = export(&options, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::NoPictures(2)), "{error}");

    log.publish(&jpegs(3));
    let options = log.options("messages.mcap");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.no_pictures, summary.recoded), (5, 0, 0));
    assert_eq!(summary.sizes.values().sum::<u64>(), 3, "of pictures");
    let found = messages(&options.output);
    let bodies: Vec<&[u8]> = found["/dock/cam1/data"].iter().map(|message| &message.2[..]).collect();
    assert_eq!(bodies, [&b"[1]"[..], b"\0\x01"]);
    let told = found["/dock/cam1/records"].iter().map(|told| serde_json::from_slice(&told.2).unwrap());
    let told: Vec<Value> = told.collect();
    assert_eq!((&told[0]["of_camera"], &told[0]["of_sequence"]), (&json!("dock/cam2"), &json!(7)));
    assert_eq!(told[1], json!({"epoch": 1, "sequence": 1, "content_type": "application/x-mine"}));
    let content = fs::read(&options.output).unwrap();
    let listed = ::mcap::Summary::read(&content).unwrap().unwrap();
    let mut kinds: Vec<_> = listed
        .channels
        .values()
        .filter(|channel| channel.topic == "/dock/cam1/data")
        .map(|channel| (channel.message_encoding.clone(), channel.metadata["content_type"].clone()))
        .collect();
    kinds.sort();
    let named = |text: &str| text.to_owned();
    assert_eq!(
        kinds,
        [
            (named("application/x-mine"), named("application/x-mine")),
            (named("json"), named("application/json"))
        ]
    );

    let options = log.options("video.mp4");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.no_pictures), (3, 2));
}

/// A stream derived from the camera is exported on topics of its own.
#[tokio::test]
async fn messages_hold_the_streams_beside_a_camera() {
    let faces: CameraName = "dock/cam1/faces".parse().unwrap();
    let (mut log, frames) = (Log::new(), jpegs(4));
    log.publish(&frames);
    let record = DataRecord {
        content_type: "application/json".parse().unwrap(),
        of: None,
        body: Bytes::from_static(b"[]"),
    };
    let records = vec![(Duration::from_millis(50), Encoding::Data, record.encode(), (0, 0)); 3];
    log.publish_as(&faces, anchor(), &records);
    let with = vec![StreamBeside { name: faces, remembered: None, remembered_notes: None }];
    let options = ExportOptions { with: with.clone(), ..log.options("both.mcap") };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, &summary.with), (4, &BTreeMap::from([("dock/cam1/faces".to_owned(), 3)])));
    let found = messages(&options.output);
    let count = |topic: &str| found.get(topic).map_or(0, Vec::len);
    assert_eq!(
        (count("/dock/cam1"), count("/dock/cam1/faces/data"), count("/dock/cam1/faces/records")),
        (4, 3, 3)
    );
    let video = ExportOptions { with, ..log.options("both.mp4") };
    let error = export(&video, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("--format mcap"), "{error}");
}

#[tokio::test]
async fn a_span_is_exported_and_one_without_frames_says_what_there_is() {
    let (mut log, frames) = (Log::new(), jpegs(30));
    log.publish(&frames);
    let all = times(&frames);
    let first = anchor().wall + frames[0].0;
    let at = |number: usize| first + Duration::from_secs_f64(all[number]);
    let options = ExportOptions { begin: Some(at(7)), end: Some(at(19)), ..log.options("some.mcap") };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.gaps), (13, 0));
    assert_eq!((summary.from, summary.to), (at(7), at(19)));
    let later = Some(at(29) + Duration::from_secs(1));
    let none = ExportOptions { begin: later, end: later, ..log.options("none.mcap") };
    let error = export(&none, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains(&first.to_string()), "{error}");
    assert!(!none.output.exists());
    assert_eq!(left_over(log.folder.path()), [""; 0]);
}

/// The first frame crossed the link at half its size. The video has the published size.
#[tokio::test]
async fn a_video_is_as_large_as_frames_were_published() {
    let kept = Log::new();
    let (mut writer, reader) = log(LogConfig::default());
    let mut store = kept.store(reader.cursor_at_end());
    store.set_start(Epoch(1), anchor());
    for (sequence, size) in [(0, (32, 24)), (1, (64, 48)), (2, (16, 12))] {
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: anchor().wall + Duration::from_millis(sequence * 50),
            clock_source: ClockSource::Broker,
            width: size.0,
            height: size.1,
            published: (63, 47),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(sequence)),
        };
        writer.append(Frame { meta, payload: jpeg(sequence, size) }, [].into(), BEGIN).unwrap();
    }
    settle(store, BEGIN);
    let options = kept.options("large.mp4");
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.video_size), (3, (63, 47)));
    let args = ["-select_streams", "v:0", "-show_entries", "stream=width,height", "-of", "csv=p=0"];
    let size = String::from_utf8(run("ffprobe", &args, &options.output)).unwrap();
    // Sides of H.264 video are even.
    assert_eq!(size.trim(), "64,48");
    assert_eq!(shown(&options.output).len(), 3);
}

/// An edge may hold chains whose beginning is gone.
#[tokio::test]
async fn what_cannot_be_decoded_is_counted_and_left_out() {
    let kept = Log::new();
    let (mut writer, reader) = log(LogConfig::default());
    let mut store = kept.store(reader.cursor_at_end());
    store.set_start(Epoch(1), anchor());
    let mut append = |sequence: u64, encoding, chain: ChainLink, payload: Bytes| {
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: anchor().wall + Duration::from_millis(sequence * 50),
            clock_source: ClockSource::Broker,
            width: 64,
            height: 48,
            published: (64, 48),
            encoding,
            rung: Rung::original(),
            chain,
        };
        writer.append(Frame { meta, payload }, [].into(), BEGIN).unwrap();
    };
    append(1, Encoding::Jpeg, ChainLink::still(Sequence(1)), jpeg(1, (64, 48)));
    let orphan = ChainLink { chain: Sequence(2), index: 1, reference: Reference::Previous };
    append(3, Encoding::H264, orphan, Bytes::from_static(&[0, 0, 0, 1, 0x61, 0, 0]));
    append(4, Encoding::Jpeg, ChainLink::still(Sequence(4)), jpeg(4, (64, 48)));
    settle(store, BEGIN);
    let summary = export(&kept.options("some.mcap"), |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.undecodable), (2, 1));
}

#[tokio::test]
async fn nothing_is_replaced_unasked_and_nothing_is_left_of_what_failed() {
    let mut log = Log::new();
    log.publish(&jpegs(3));
    let options = log.options("video.mp4");
    fs::write(&options.output, "mine").unwrap();
    let error = export(&options, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::Exists(_)) && error.to_string().contains("--force"), "{error}");
    assert_eq!(fs::read(&options.output).unwrap(), b"mine");
    let forced = ExportOptions { overwrite: true, ..options.clone() };
    let lacking = ExportOptions { ffmpeg: "/nowhere/ffmpeg".into(), ..forced.clone() };
    let error = export(&lacking, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("apt-get install ffmpeg"), "{error}");
    // A program that reads nothing and fails.
    let broken = ExportOptions { ffmpeg: "false".into(), ..forced.clone() };
    let error = export(&broken, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::Ffmpeg { .. }), "{error}");
    assert_eq!(fs::read(&options.output).unwrap(), b"mine");
    export(&forced, |_| {}).await.unwrap();
    assert_eq!(shown(&options.output).len(), 3);

    let stranger = ExportOptions { keys: keys(2), ..log.options("other.mcap") };
    let error = export(&stranger, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::Key { .. }) && error.to_string().contains("--store-key"), "{error}");
    let nowhere = ExportOptions { output: log.folder.path().join("no/folder.mcap"), ..forced };
    let error = export(&ExportOptions { format: ExportFormat::Mcap, ..nowhere }, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::Write { .. }), "{error}");
    assert_eq!(left_over(log.folder.path()), [""; 0]);
}

/// The export is dropped after the first frames, as with Ctrl-C. There are more frames than a
/// task handles in one poll, so the export cannot be finished before the other branch is polled.
#[tokio::test]
async fn an_export_that_is_stopped_leaves_nothing() {
    let mut log = Log::new();
    log.publish(&jpegs(400));
    for name in ["video.mp4", "messages.mcap"] {
        let options = log.options(name);
        let (told, first) = tokio::sync::oneshot::channel();
        let mut told = Some(told);
        let exporting = export(&options, |_| {
            if let Some(told) = told.take() {
                let _ = told.send(());
            }
        });
        tokio::select! {
            biased;
            _ = first => {}
            _ = exporting => panic!("it was to be stopped"),
        }
        assert!(!options.output.exists());
        assert_eq!(left_over(log.folder.path()), [""; 0]);
    }
}

/// Flips a bit in the payload of a frame in the first segment.
fn damage_payload(log: &Log, number: u64) {
    let path = log.folder.path().join("dock/cam1/@log/0000000000000000.segment");
    let mut files = LogFiles::read_only(log.folder.path(), &camera());
    let bytes = path.metadata().unwrap().len();
    let mut scan =
        mez_core::store::SegmentScan::open(&mut files, &camera(), &keys(1), SegmentNumber(0), bytes).unwrap();
    for _ in 0..number {
        scan.next(&mut files, false);
    }
    let at = scan.offset() + 200;
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}
