//! Sources of H.264, H.265 and AV1 between real brokers. Their pictures cross the link unchanged,
//! become rungs if the link is too slow, and cross unchanged again from a key frame on.

mod api_support;
mod chain_support;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_support::{Site, within};
use bytes::Bytes;
use chain_support::{SIZE, jpeg_shows, network, pixels, shows};
use mez_core::broker::Published;
use mez_core::contract::Contract;
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, FrameId, FrameMeta, Reference, Rung, SkipReason};
use mez_core::log::LogConfig;
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_media::h264::{ForeignEncoder, ForeignOptions};
use mez_media::{ImageView, ImageViewMut, PixelFormat, Yuv420};
use mez_node::api::ApiServer;
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{Address, DECODED_HERE, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::decoders::{DecoderChoice, Decoders};
use mez_node::edge::EdgeHandle;
use mez_node::feed::feed;
use mez_node::ports::EdgeAddress;
use mez_node::source::{Source, SourceOptions, SourceSpec};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const FPS: u32 = 30;
/// The recording is repeated after this many pictures.
const PICTURES: u64 = 450;
const FAST: u64 = 30_000_000;
const SLOW: u64 = 600_000;
const FLOOR: f64 = 0.9;
/// The most frames to wait for something. After failures, the source's video may be disabled for a minute.
const FRAMES_MAX: u32 = 2_500;
const BOUND: Duration = Duration::from_millis(500);

/// The encodings of a program that decodes all of them.
const ALL: [Encoding; 4] = [Encoding::H264, Encoding::H265, Encoding::Av1, Encoding::Jpeg];

/// A recording by x264 of pictures that show their numbers.
fn x264(folder: &Path, settings: &[&str]) -> SourceSpec {
    coded(folder, &["-c:v", "libx264", "-preset", "ultrafast", "-crf", "24", "-bf", "0"], settings)
}

/// A recording by x265 of pictures that show their numbers.
fn x265(folder: &Path) -> SourceSpec {
    let settings = "bframes=0:keyint=30:min-keyint=30:scenecut=0:log-level=error";
    coded(folder, &["-c:v", "libx265", "-preset", "ultrafast", "-crf", "22"], &["-x265-params", settings])
}

/// A recording by libaom of pictures that show their numbers.
fn av1(folder: &Path) -> SourceSpec {
    let settings = ["-usage", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-g", "30"];
    coded(folder, &["-c:v", "libaom-av1", "-crf", "30", "-b:v", "0"], &settings)
}

fn coded(folder: &Path, codec: &[&str], settings: &[&str]) -> SourceSpec {
    let path = folder.join("x.mp4");
    let (size, fps) = (format!("{}x{}", SIZE.0, SIZE.1), FPS.to_string());
    // With grain, so that rungs can save bytes. The key frames must still look feasible for the link, judged by small frames.
    let input = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "gray",
        "-s",
        &size,
        "-r",
        &fps,
        "-i",
        "pipe:0",
        "-vf",
        "noise=alls=9:allf=t",
    ];
    let mut ffmpeg = Command::new("ffmpeg")
        .args(["-v", "error", "-y"])
        .args(input)
        .args(["-pix_fmt", "yuv420p"])
        .args(codec)
        .args(settings)
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("these tests need ffmpeg; install it with: apt-get install ffmpeg");
    let mut pipe = ffmpeg.stdin.take().unwrap();
    (0..PICTURES).for_each(|number| pipe.write_all(&pixels(number)).unwrap());
    drop(pipe);
    assert!(ffmpeg.wait().unwrap().success());
    SourceSpec::File(path)
}

/// A recording by openh264 with two temporal layers, in which every second picture is not referred to.
fn openh264(folder: &Path) -> SourceSpec {
    let options = ForeignOptions {
        width: SIZE.0,
        height: SIZE.1,
        quantiser: 22,
        key_frame_interval: FPS,
        temporal_layers: 2,
        slices: 1,
    };
    let (mut encoder, mut planes) = (ForeignEncoder::new(&options).unwrap(), Yuv420::empty());
    let mut stream = Vec::new();
    // Grain, as above: without it, the slow link could carry the stream. From the upper bits of a linear congruential generator (Knuth).
    let mut grain = 1u64;
    for number in 0..PICTURES {
        let mut pixels = pixels(number);
        for pixel in &mut pixels {
            grain = grain.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *pixel = pixel.saturating_add_signed((grain >> 60) as i8 - 8);
        }
        planes.fill_from(&ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Gray8).unwrap());
        stream.extend_from_slice(&encoder.encode(&planes.view().unwrap()).unwrap());
    }
    let path = folder.join("x.h264");
    std::fs::write(&path, stream).unwrap();
    SourceSpec::File(path)
}

/// An edge behind a network with changing capacity, and a camera that publishes a recording in a loop.
struct Running {
    site: Site,
    camera: CameraHandle,
    records: Records,
    capacity: Arc<AtomicU64>,
    feeding: JoinHandle<()>,
    address: Address,
    _edge: EdgeHandle,
    _server: ApiServer,
    _folder: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.feeding.abort();
    }
}

impl Running {
    async fn of(recording: impl FnOnce(&Path) -> SourceSpec) -> Self {
        Self::with(recording, LogConfig::default()).await
    }

    async fn with(recording: impl FnOnce(&Path) -> SourceSpec, log: LogConfig) -> Self {
        Self::behind(recording, log, Decoders::software()).await
    }

    /// Starts the edge with these decoders.
    async fn behind(recording: impl FnOnce(&Path) -> SourceSpec, log: LogConfig, decoders: Decoders) -> Self {
        let folder = TempDir::new().unwrap();
        let spec = recording(folder.path());
        let site = Site::new();
        let edge = site.edge_decoding(decoders);
        let capacity = Arc::new(AtomicU64::new(FAST));
        let network = network(edge.link_address(), Arc::default(), Arc::clone(&capacity)).await;
        let camera = site.camera_with("dock/cam1", &edge, |options| {
            options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
            options.transport = Transport::Quic;
            options.log = log;
        });
        let camera = camera.await;
        let (server, address, _) = site.serve_edge(&edge).await;
        let options = SourceOptions { looped: true, fps: Some(FPS.into()), ..SourceOptions::default() };
        let mut source = Source::spawn(spec, options).await.unwrap();
        assert!(source.info().unwrap().passthrough);
        let fed = camera.clone();
        let feeding = tokio::spawn(async move {
            feed(&fed, &mut source, || {}).await.unwrap();
        });
        let records = Records::default();
        Self {
            site,
            camera,
            records,
            capacity,
            feeding,
            address,
            _edge: edge,
            _server: server,
            _folder: folder,
        }
    }

    /// A program that takes and checks every frame.
    async fn viewer(&self, accept: &[Encoding], floor: Option<f64>) -> Viewer {
        let client = self.site.client(&self.address).await;
        let options = SubscribeOptions {
            accept_encodings: accept.to_vec(),
            contract: Contract { accuracy_floor: floor, latency_bound: Some(BOUND), ..Contract::default() },
            deliver: Some(Deliver::Every),
            ..SubscribeOptions::new("dock/*".parse().unwrap())
        };
        Viewer {
            subscription: client.subscribe(options).await.unwrap(),
            camera: self.camera.clone(),
            records: Arc::clone(&self.records),
            last: None,
        }
    }

    /// Publishes a data record from time to time.
    fn publish_records(&self) -> JoinHandle<()> {
        let (camera, records) = (self.camera.clone(), Arc::clone(&self.records));
        let content_type = "application/json".parse().unwrap();
        let record = DataRecord { content_type, of: None, body: Bytes::from_static(b"[1]") };
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(70)).await;
                let mut records = records.lock().unwrap();
                let id = camera.publish(Published::data(&record, None)).unwrap();
                records.insert(id.sequence.0);
            }
        })
    }

    /// Waits until `frames` were published.
    async fn published(&self, frames: u64) {
        within(self.camera.appended().wait_for(|count| *count >= frames)).await.unwrap();
    }
}

/// The numbers of the data records among a camera's frames.
type Records = Arc<Mutex<BTreeSet<u64>>>;

struct Viewer {
    subscription: Subscription,
    camera: CameraHandle,
    records: Records,
    last: Option<u64>,
}

impl Viewer {
    /// The next frame. Checks that it shows the picture of its number, and that the frames before it are accounted for.
    async fn next(&mut self) -> Box<ReceivedFrame> {
        let frame = api_support::frame(&mut self.subscription).await;
        let FrameMeta { id, width, height, encoding, rung, .. } = &frame.meta;
        let (number, what) = (id.sequence.0, format!("{id} of {}", rung.as_str()));
        let picture = number - self.records.lock().unwrap().range(..number).count() as u64;
        match encoding {
            Encoding::Data => assert_eq!(frame.payload.as_ref(), b"[1]"),
            Encoding::H264 | Encoding::H265 | Encoding::Av1 => {
                let mut image = vec![0; (width * height * 3) as usize];
                let view = ImageViewMut::packed(&mut image, *width, *height, PixelFormat::Bgr8);
                frame.show(&mut view.unwrap()).unwrap();
                shows(&image, (*width, *height), picture % PICTURES, &what);
            }
            _ => jpeg_shows(&frame.payload, (*width, *height), picture % PICTURES, &what),
        }
        if is_own(&frame.meta) {
            // The frame that crossed the link is that of the source.
            let published = self.camera.log().get_frame(*id).expect("the camera keeps it").frame;
            assert!(published.payload == frame.payload && published.meta == frame.meta, "{what}");
        }
        if let Some(last) = self.last.replace(number) {
            assert!(number > last, "{number} after {last}");
            assert_eq!(frame.skipped.total(), number - last - 1, "between {last} and {number}");
        }
        frame
    }

    /// The metadata of the first frame that `is_so` accepts, within [`FRAMES_MAX`].
    async fn until(&mut self, what: &str, is_so: impl Fn(&FrameMeta) -> bool) -> FrameMeta {
        let mut instead = Vec::new();
        for _ in 0..FRAMES_MAX {
            let frame = self.next().await;
            if is_so(&frame.meta) {
                return frame.meta.clone();
            }
            instead.push((
                frame.meta.id.sequence.0,
                frame.meta.rung.as_str().to_owned(),
                frame.payload.len(),
            ));
        }
        panic!("{what} did not come, but {:?}", &instead[instead.len() - 60..]);
    }

    /// Reads until `frames` in a row are accepted by `is_so`.
    async fn in_a_row(&mut self, frames: u32, what: &str, is_so: impl Fn(&FrameMeta) -> bool) {
        let (mut row, mut seen) = (0, Vec::new());
        for _ in 0..FRAMES_MAX {
            let frame = self.next().await;
            row = if is_so(&frame.meta) { row + 1 } else { 0 };
            if row == frames {
                return;
            }
            let (meta, bytes) = (&frame.meta, frame.payload.len());
            seen.push((meta.id.sequence.0, meta.rung.as_str().to_owned(), meta.chain.index, bytes));
        }
        panic!("{what}: there were never {frames} in a row: {:?}", &seen[seen.len() - 120..]);
    }
}

/// Whether a frame is unchanged since its source coded it.
fn is_own(meta: &FrameMeta) -> bool {
    meta.encoding.is_chained() && meta.rung.as_str() == Rung::ORIGINAL
}

fn is_made(meta: &FrameMeta) -> bool {
    meta.rung.as_str().starts_with("h264/")
}

/// Unchanged video, then a rung, then unchanged video again.
async fn follows_the_link(recording: impl FnOnce(&Path) -> SourceSpec) {
    let running = Running::of(recording).await;
    let mut viewer = running.viewer(&ALL, Some(FLOOR)).await;
    viewer.in_a_row(40, "frames of the source", is_own).await;
    running.capacity.store(SLOW, Ordering::Relaxed);
    viewer.in_a_row(10, "frames at a rung", is_made).await;
    running.capacity.store(FAST, Ordering::Relaxed);
    let first = viewer.until("a frame of the source", is_own).await;
    assert_eq!(first.chain.reference, Reference::Independent, "it goes on with a key frame");
    viewer.in_a_row(40, "frames of the source", is_own).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn video_of_x264_follows_the_link() {
    follows_the_link(|folder| x264(folder, &["-g", "30"])).await;
}

/// Processes of ffmpeg decode its pictures: here for the program, and at the camera for rungs.
#[tokio::test(flavor = "multi_thread")]
async fn video_of_x265_follows_the_link() {
    follows_the_link(x265).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn video_of_av1_follows_the_link() {
    follows_the_link(av1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_of_several_slices_follow_the_link() {
    follows_the_link(|folder| {
        x264(folder, &["-g", "30", "-profile:v", "high", "-x264-params", "slices=4:ref=3"])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn video_of_openh264_in_two_layers_follows_the_link() {
    follows_the_link(openh264).await;
}

/// The only key frame is long past. Frames are decoded from the camera's log and sent at a rung. From the next key frame on, the video is unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_in_the_middle_of_a_long_chain_sees_it_at_once() {
    for floor in [Some(FLOOR), None] {
        let running = Running::of(|folder| x264(folder, &["-g", "9999", "-sc_threshold", "0"])).await;
        running.published(120).await;
        let mut viewer = running.viewer(&[Encoding::H264, Encoding::Jpeg], floor).await;
        let first = viewer.next().await;
        assert!(is_made(&first.meta), "{:?}", first.meta);
        assert!(first.meta.id.sequence.0 < PICTURES, "before the recording begins again");
        let own = viewer.until("a frame of the source", is_own).await;
        assert_eq!((own.chain.reference, own.id.sequence.0 % PICTURES), (Reference::Independent, 0));
    }
}

/// The key frame has left the camera's memory, and the recording has no other for a long time. From then on, ffmpeg decodes the recording.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_nothing_can_be_decoded_any_more_gets_frames_all_the_same() {
    let endless = |folder: &Path| x264(folder, &["-g", "9999", "-sc_threshold", "0"]);
    let running = Running::with(endless, LogConfig::with_bytes_max(1 << 18)).await;
    let log = running.camera.log();
    let has_lost_it = |_: &u64| {
        let newest = log.newest().map(|newest| newest.frame.meta);
        newest.is_some_and(|meta| log.get_frame(FrameId { sequence: meta.chain.chain, ..meta.id }).is_none())
    };
    within(running.camera.appended().wait_for(has_lost_it)).await.unwrap();
    let client = running.site.client(&running.address).await;
    let mut subscription = client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap();
    let frame = api_support::frame(&mut subscription).await;
    assert_eq!((frame.meta.encoding, frame.meta.rung.as_str()), (Encoding::Jpeg, Rung::ORIGINAL));
}

/// Programs that do not decode video get stills of it from the edge.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_stills_gets_stills_of_it() {
    let recordings: [fn(&Path) -> SourceSpec; 3] = [|folder| x264(folder, &["-g", "30"]), x265, av1];
    for recording in recordings {
        let running = Running::of(recording).await;
        let mut viewer = running.viewer(&[Encoding::Jpeg], None).await;
        for _ in 0..20 {
            assert_eq!(viewer.next().await.meta.encoding, Encoding::Jpeg);
        }
    }
}

/// A picture names the one that it refers to, whatever was published between the two.
#[tokio::test(flavor = "multi_thread")]
async fn records_between_pictures_end_no_chain() {
    let running = Running::of(|folder| x264(folder, &["-g", "60"])).await;
    let publishing = running.publish_records();
    let mut viewer = running.viewer(&[Encoding::H264, Encoding::Jpeg, Encoding::Data], None).await;
    let is_as_published = |meta: &FrameMeta| is_own(meta) || meta.encoding == Encoding::Data;
    viewer.until("a key frame", |meta| is_own(meta) && meta.chain.index == 0).await;
    viewer.in_a_row(100, "frames and records as they were published", is_as_published).await;
    assert!(running.records.lock().unwrap().len() > 10);
    publishing.abort();
}

/// There was no reader when the frames were new. Readers of the past get stills of them, and unchanged records.
#[tokio::test(flavor = "multi_thread")]
async fn its_past_comes_as_stills() {
    let running = Running::of(|folder| x264(folder, &["-g", "30"])).await;
    let publishing = running.publish_records();
    running.published(60).await;
    publishing.abort();
    let end = running.camera.log().newest().unwrap().frame.meta.captured;
    for quality in [None, Some("original"), Some("jpeg/w160/q50/420")] {
        let client = running.site.client(&running.address).await;
        let options = SubscribeOptions {
            begin: Some(Timestamp::MIN),
            end: Some(end),
            deliver: Some(Deliver::Every),
            quality: quality.map(|rung| Rung::new(rung).unwrap()),
            ..SubscribeOptions::new("dock/*".parse().unwrap())
        };
        let subscription = client.subscribe(options).await.unwrap();
        let (camera, records) = (running.camera.clone(), Arc::clone(&running.records));
        let mut viewer = Viewer { subscription, camera, records, last: None };
        let mut data = 0;
        for number in 0..60 {
            let frame = viewer.next().await;
            assert_eq!(frame.meta.id.sequence.0, number);
            assert!(matches!(frame.meta.encoding, Encoding::Jpeg | Encoding::Data), "{:?}", frame.meta);
            data += usize::from(frame.meta.encoding == Encoding::Data);
        }
        assert!(data > 3, "{data} records");
    }
}

/// By default, a program with our library decodes H.264. The edge makes stills
/// of what the program does not decode, and over a slow link it gets rungs.
#[tokio::test(flavor = "multi_thread")]
async fn who_decodes_h264_gets_stills_of_h265_and_rungs_as_they_are() {
    let running = Running::of(x265).await;
    let mut viewer = running.viewer(&DECODED_HERE, Some(FLOOR)).await;
    let is_still = |meta: &FrameMeta| meta.encoding == Encoding::Jpeg && meta.rung.as_str() == Rung::ORIGINAL;
    viewer.in_a_row(40, "stills of frames of the source", is_still).await;
    running.capacity.store(SLOW, Ordering::Relaxed);
    viewer.in_a_row(10, "frames at a rung", |meta| is_made(meta) && meta.encoding == Encoding::H264).await;
}

/// An edge without ffmpeg makes no stills of H.265. It counts these frames as not decoded and requests others, which
/// the camera makes until each key frame of its source. A reader of stills gets gaps, and pictures between them.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_decodes_no_h265_counts_it_and_gets_rungs() {
    let decoders = Decoders::start_with(DecoderChoice::Software, "/nowhere/ffmpeg".into());
    let running = Running::behind(x265, LogConfig::default(), decoders).await;
    let mut viewer = running.viewer(&[Encoding::Jpeg], None).await;
    let (mut not_decoded, mut gaps, mut made) = (0, 0, 0);
    for _ in 0..FRAMES_MAX {
        let frame = viewer.next().await;
        assert!(is_made(&frame.meta) && frame.meta.encoding == Encoding::Jpeg, "{:?}", frame.meta);
        let lost = frame.skipped.of(SkipReason::NotDecoded);
        (not_decoded, gaps, made) = (not_decoded + lost, gaps + u32::from(lost > 0), made + 1);
        if gaps >= 3 && made >= 60 {
            break;
        }
    }
    assert!(gaps >= 3 && made >= 60, "{gaps} gaps with {not_decoded} frames, {made} pictures");
    // Programs that decode H.265 get the source's video.
    let mut viewer = running.viewer(&[Encoding::H265, Encoding::Jpeg], None).await;
    viewer.until("a frame of the source", |meta| is_own(meta) && meta.encoding == Encoding::H265).await;
}
