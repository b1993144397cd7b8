//! Decoders in ffmpeg show the same pictures as the library. If they fail, the library continues.

mod api_support;
mod chain_support;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use api_support::{Site, within};
use chain_support::{INTERVAL, jpeg_shows, picture, slow_network};
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::setting::Setting;
use mez_core::subscription::{Deliver, Span, SubscriptionSpec};
use mez_core::units::Instant;
use mez_media::h264::{OutsideDecoder, OutsideDecoders};
use mez_media::nut::{NutEvent, read_whole};
use mez_media::platform::PlatformDecoder;
use mez_media::stream::{Outcome, Picture, Request, Source, StreamDecoder, StreamEncoder};
use mez_media::{ImageView, PixelFormat, Yuv420};
use mez_node::camera::Transport;
use mez_node::decoders::{DecoderChoice, Decoders, Kind};
use mez_node::edge::{EdgeBroker, EdgeOptions, Served};
use mez_node::identity::name::Role;
use mez_node::ports::EdgeAddress;

const WIDTH: u32 = 320;
const HEIGHT: u32 = 240;
const PIXELS_MAX: u64 = 1 << 22;
/// The longest start of a program on a busy host.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);

/// Counts the actions of a broker's decoders.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn OutsideDecoders>,
    /// The longest start of a decoder here, where a broker would not wait.
    begins_within: Duration,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicUsize,
    failed: AtomicUsize,
    /// Pictures from a child.
    taken: AtomicUsize,
}

struct CountedDecoder {
    inner: Box<dyn OutsideDecoder>,
    begins_within: Duration,
    counts: Arc<Counts>,
}

impl OutsideDecoders for Counted {
    fn open(&self, width: u32, height: u32) -> Option<Box<dyn OutsideDecoder>> {
        let inner = self.inner.open(width, height)?;
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(CountedDecoder {
            inner,
            begins_within: self.begins_within,
            counts: Arc::clone(&self.counts),
        }))
    }

    fn failed(&self, reason: &str) {
        println!("failed: {reason}");
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        self.inner.failed(reason);
    }
}

impl OutsideDecoder for CountedDecoder {
    fn give(&mut self, picture: &[u8]) -> Result<(), String> {
        self.inner.give(picture)
    }

    fn take(&mut self, patience: Duration, planes: &mut Yuv420) -> Result<bool, String> {
        // A busy host may need longer.
        let patience = if patience.is_zero() { self.begins_within } else { patience * 20 };
        let taken = self.inner.take(patience, planes)?;
        self.counts.taken.fetch_add(taken.into(), Ordering::Relaxed);
        Ok(taken)
    }
}

/// A frame of a test stream.
struct Made {
    sequence: Sequence,
    link: ChainLink,
    payload: Vec<u8>,
}

/// An object that moves over a texture.
fn pixels(number: u64) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let inside = (x + 4 * number as u32) % WIDTH < 60 && (40..120).contains(&y);
            let texture = (x.wrapping_mul(2_654_435_761).wrapping_add(y * 40_503) >> 28) as u8;
            pixels.extend(if inside {
                [230, 40, 90]
            } else {
                [(x / 2) as u8, y as u8, 128].map(|value| value / 2 + texture)
            });
        }
    }
    pixels
}

/// A test stream. With `losses`, every tenth frame is lost and left out, and the encoder learns this two frames later.
fn stream(length: u64, losses: bool) -> Vec<Made> {
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let setting: Setting = "h264/q28".parse().unwrap();
    let mut stream: Vec<Made> = Vec::new();
    // Several short chains after a long one.
    let is_key = |number: u64| number == 0 || (70..length).contains(&number) && number.is_multiple_of(2);
    let is_lost = |number: u64| losses && number % 10 == 4;
    for number in 0..length {
        if let Some(before) = number.checked_sub(2) {
            if is_lost(before) {
                encoder.lost(Sequence(before))
            } else {
                encoder.acknowledge(Sequence(before))
            }
        }
        let pixels = pixels(number);
        let view = ImageView::packed(&pixels, WIDTH, HEIGHT, PixelFormat::Bgr8).unwrap();
        let request = Request {
            sequence: Sequence(number),
            captured: Instant::from_nanos(number * 33_000_000),
            setting: &setting,
            bytes_max: None,
            reference: if is_key(number) { Reference::Independent } else { Reference::Previous },
        };
        let Outcome::Frame(made) = encoder.encode(&Source::Pixels(view), &request).unwrap() else { panic!() };
        if !is_lost(number) {
            stream.push(Made {
                sequence: Sequence(number),
                link: made.chain,
                payload: made.payload.to_vec(),
            });
        }
    }
    stream
}

/// Decodes a stream with both decoders. All pictures and all refusals must be the same.
fn compare(stream: &[Made], decoders: &Decoders, begins_within: Duration) -> Arc<Counts> {
    let counts = Arc::<Counts>::default();
    let outside = Counted { inner: decoders.outside().unwrap(), begins_within, counts: Arc::clone(&counts) };
    let mut beside = StreamDecoder::new(PIXELS_MAX).with_outside(Arc::new(outside));
    let mut alone = StreamDecoder::new(PIXELS_MAX);
    let encoding = Encoding::H264;
    let mut shown = 0;
    for Made { sequence, link, payload } in stream {
        let expected = alone.advance(encoding, *sequence, link, payload);
        let came = beside.advance(encoding, *sequence, link, payload);
        match (expected, came) {
            (Ok(Picture::Planes(expected)), Ok(Picture::Planes(came))) => {
                assert!(expected == came, "frame {}", sequence.0);
                shown += 1;
            }
            (Err(expected), Err(came)) => assert_eq!(expected, came, "frame {}", sequence.0),
            (expected, came) => panic!("frame {}: {expected:?} {came:?}", sequence.0),
        }
    }
    assert!(shown * 2 > stream.len(), "{shown} of {} were shown", stream.len());
    counts
}

fn counted(counts: &Counts) -> [usize; 3] {
    [&counts.opened, &counts.failed, &counts.taken].map(|count| count.load(Ordering::Relaxed))
}

/// A program that passes the trial as ffmpeg, and then runs `then`.
fn program(folder: &Path, then: &str) -> PathBuf {
    let path = folder.join("program");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -version ] && exec ffmpeg -version\nmkdir \"$0.tried\" 2>/dev/null && exec ffmpeg \"$@\"\n{then}\n"
    );
    let source = folder.join("program.sh");
    fs::write(&source, script).unwrap();
    // Another thread may start a process while a file is written here, which then holds it open too. Nobody can run such a file.
    let installed = Command::new("install").args(["-m", "755"]).args([&source, &path]).status().unwrap();
    assert!(installed.success());
    path
}

fn through(program: PathBuf) -> Decoders {
    let decoders = Decoders::start_with(DecoderChoice::Through(Kind::Ffmpeg), program);
    assert_eq!(decoders.wait(), Some(Kind::Ffmpeg), "the trial passes");
    decoders
}

#[test]
fn ffmpeg_shows_what_the_library_shows_one_picture_for_each() {
    let decoders = through("ffmpeg".into());
    let counts = compare(&stream(60, false), &decoders, BEGINS_WITHIN);
    assert_eq!(counted(&counts), [1, 0, 60]);
}

/// Lost frames leave gaps in the numbers, for which the other decoder would conceal pictures.
#[test]
fn what_was_lost_costs_the_other_decoder_no_more_than_the_library() {
    let decoders = through("ffmpeg".into());
    let stream = stream(70, true);
    assert!(stream.iter().any(|made| matches!(made.link.reference, Reference::Acknowledged(_))));
    let counts = compare(&stream, &decoders, BEGINS_WITHIN);
    let [opened, failed, taken] = counted(&counts);
    assert_eq!((opened, failed), (1, 0));
    assert!(taken > stream.len() / 2, "{taken}");
}

/// However the other decoder fails, every picture is shown correctly.
#[test]
fn where_it_fails_the_library_goes_on_from_the_key_frame_and_no_picture_is_lost() {
    let picture = WIDTH * HEIGHT * 3 / 2 + 6;
    let line = "YUV4MPEG2 W320 H240 F25:1 Ip A0:0 C420jpeg XYSCSS=420JPEG";
    // The header line with the size, and nine pictures.
    let nine = format!(
        "ffmpeg \"$@\" | {{ IFS= read -r line; echo \"$line\"; dd bs={picture} count=9 iflag=fullblock status=none; }}"
    );
    let stories = [
        ("dies at once", "echo 'no such device' >&2; exit 1".to_owned()),
        ("hangs at once", "exec sleep 5".to_owned()),
        ("says something else", "exec yes".to_owned()),
        ("gives another size", line.replace("320", "640") + "; exec sleep 5"),
        (
            "gives another picture",
            format!("(echo {line}; while :; do echo FRAME; head -c {} /dev/zero; done)", picture - 6),
        ),
        ("dies after some pictures", nine.clone()),
        ("hangs after some pictures", format!("{nine}; exec sleep 5")),
        ("gives garbage after some pictures", format!("{nine}; exec yes")),
    ];
    // A decoder that hangs may owe two seconds of pictures, and is given up some key frames later.
    let stream = stream(80, false);
    for (story, then) in stories {
        let then = if then.starts_with("YUV4") { format!("echo {then}") } else { then };
        let folder = tempfile::tempdir().unwrap();
        let decoders = through(program(folder.path(), &then));
        println!("{story}");
        let begins_within = if story == "hangs at once" { Duration::ZERO } else { BEGINS_WITHIN };
        let counts = compare(&stream, &decoders, begins_within);
        let [opened, failed, taken] = counted(&counts);
        assert_eq!((opened, failed), (1, 1), "{story}");
        assert_eq!(taken >= 8, story.contains("after"), "{story}: {taken} pictures came from it");
    }
}

#[test]
fn what_fails_the_trial_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    for then in ["exit 3", "exec yes"] {
        let program = program(folder.path(), then);
        let _ = fs::create_dir(folder.path().join("program.tried"));
        let decoders = Decoders::start_with(DecoderChoice::Through(Kind::Ffmpeg), program);
        assert_eq!(decoders.wait(), None);
        assert!(decoders.outside().unwrap().open(WIDTH, HEIGHT).is_none());
    }
    let decoders = Decoders::start_with(DecoderChoice::Auto, "/nowhere/ffmpeg".into());
    assert_eq!(decoders.wait(), None);
    assert!(Decoders::start(DecoderChoice::Software).outside().is_none());
}

#[test]
fn a_choice_has_a_name_and_another_name_is_refused_with_those_there_are() {
    for choice in DecoderChoice::ALL {
        assert_eq!(choice.to_string().parse(), Ok(choice));
    }
    let error = "nvdec".parse::<DecoderChoice>().unwrap_err();
    assert!(error.contains("cuda") && error.contains("software"), "{error}");
}

/// A program that runs `then` from the beginning.
fn always(folder: &Path, then: &str) -> PathBuf {
    let _ = fs::create_dir(folder.join("program.tried"));
    program(folder, then)
}

/// There is no library for these encodings to compare with.
#[test]
fn decoders_of_h265_and_av1_are_tried_on_pictures_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let black =
        "(echo YUV4MPEG2 W1280 H720 F25:1 C420jpeg; while :; do echo FRAME; head -c 1382400 /dev/zero; done)";
    for encoding in [Encoding::H265, Encoding::Av1] {
        let tried = Decoders::software().try_video(encoding).unwrap();
        assert_eq!(tried.kind, Kind::Ffmpeg);
        for (then, says) in [
            ("echo 'no such device' >&2; exit 1", "no such device"),
            ("exec yes", "is not a video"),
            (black, "decoded wrongly"),
        ] {
            let decoders = Decoders::start_with(DecoderChoice::Software, always(folder.path(), then));
            let refused = decoders.try_video(encoding).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }
}

#[test]
fn a_process_that_ends_costs_its_chain_and_the_next_key_frame_has_another() {
    let file = include_bytes!("../../media/tests/streams/h265.nut");
    let packet = |event| match event {
        NutEvent::Packet(packet) => Some(packet.payload),
        NutEvent::Stream(_) => None,
    };
    let packets: Vec<_> = read_whole(file, 1000, 1 << 20).0.into_iter().filter_map(packet).collect();
    let folder = tempfile::tempdir().unwrap();
    let six = format!(
        "ffmpeg \"$@\" | {{ IFS= read -r line; echo \"$line\"; dd bs={} count=6 iflag=fullblock status=none; }}",
        64 * 48 * 3 / 2 + 6
    );
    let decoders = Decoders::start_with(DecoderChoice::Software, always(folder.path(), &six));
    let mut decoder = PlatformDecoder::new(PIXELS_MAX, Some(decoders.platform()));
    let mut failed = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        let refers = (number % 4 != 0).then(|| number as u64 - 1);
        let times = (BEGINS_WITHIN, BEGINS_WITHIN);
        match decoder.decode(Encoding::H265, packet, number as u64, refers, times) {
            Ok(planes) => assert_eq!((planes.width(), planes.height()), (64, 48)),
            Err(error) => failed.push((number, error.to_string())),
        }
    }
    assert_eq!(failed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [6, 7], "{failed:?}");
}

/// An edge makes stills with its configured decoder, and with the library after the decoder has died.
#[tokio::test(flavor = "multi_thread")]
async fn an_edge_makes_stills_through_ffmpeg_and_goes_on_when_it_dies() {
    let folder = tempfile::tempdir().unwrap();
    // Records each start, and ends after nine pictures of any size.
    let nine = "echo started >> \"$0.starts\"; ffmpeg \"$@\" | { IFS= read -r line; echo \"$line\"; \
        set -- $(echo \"$line\" | sed 's/.* W\\([0-9]*\\) H\\([0-9]*\\) .*/\\1 \\2/'); \
        dd bs=$(($1 * $2 * 3 / 2 + 6)) count=9 iflag=fullblock status=none; }";
    let program = program(folder.path(), nine);
    let decoders = through(program.clone());

    let site = Site::new();
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut options = EdgeOptions::new(listen, site.credentials(Role::Edge, "edge"), EdgeConfig::default());
    options.state = Some(site.folder.path().join("edge-state"));
    options.decoders = decoders;
    let edge = EdgeBroker::start(options).unwrap();
    let network = slow_network(edge.link_address(), Arc::new(AtomicBool::new(false))).await;
    let camera = site.camera_with("dock/cam1", &edge, |options| {
        options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
        options.transport = Transport::Quic;
    });
    let camera = camera.await;
    let bound = Some(Duration::from_millis(150));
    let contract = Contract { accuracy_floor: Some(0.9), latency_bound: bound, ..Contract::default() };
    let span = Span { deliver: Deliver::Every, ..Span::LIVE };
    let spec = SubscriptionSpec { contract, span, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
    let mut subscription = edge.subscribe_as(spec, None).await.unwrap();
    let publishing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0.. {
            ticks.tick().await;
            camera.publish(picture(number)).unwrap();
        }
    });
    // Until it was started, and for some time after it has ended.
    let starts = folder.path().join("program.starts");
    let (mut shown, mut after) = (0, 0);
    while after < 60 {
        let Served::Frame { delivery, .. } = within(subscription.next()).await else { continue };
        let meta = &delivery.record.frame.meta;
        let number = meta.id.sequence.0;
        jpeg_shows(&delivery.record.frame.payload, (meta.width, meta.height), number, &meta.id.to_string());
        shown += 1;
        after += u32::from(starts.exists());
    }
    println!("{shown} stills, {after} of them after its start");
    assert!(fs::read_to_string(starts).unwrap().lines().count() >= 1);
    publishing.abort();
    edge.stop().await;
}
