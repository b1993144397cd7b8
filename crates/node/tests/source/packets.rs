//! Sources of H.264, H.265 and AV1 whose coded pictures are published unchanged.

use std::time::Duration;

use mez_core::broker::StreamPart;
use mez_core::frame::Encoding;
use mez_media::bitstream::UnitSplitter;
use mez_media::h264::H264Decoder;
use mez_media::platform::PlatformDecoder;
use mez_node::decoders::{DecoderChoice, Decoders};
use mez_node::source::{
    KeyFrameNeed, OnvifChoice, Source, SourceEvent, SourceOptions, SourcePacket, SourceSpec,
};
use tempfile::TempDir;

use super::rtsp::{Footage, rtsp_camera, showing_rtsp_camera};
use super::support::{Video, ffmpeg, next, transport_stream_camera};

const EVERY_EIGHTH: [&str; 10] =
    ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "0", "-g", "8", "-sc_threshold", "0"];

fn packets() -> SourceOptions {
    SourceOptions { packets: true, fps: Some(100.0), ..SourceOptions::default() }
}

/// All packets of a recording, and the numbers of JPEG frames and of skipped frames.
async fn read(source: &mut Source) -> (Vec<SourcePacket>, u64, u64) {
    let (mut packets, mut frames, mut skipped) = (Vec::new(), 0, 0);
    loop {
        match next(source).await {
            SourceEvent::Packet(packet) => packets.push(packet),
            SourceEvent::Frame(_) => frames += 1,
            SourceEvent::Skipped { count } => skipped += count,
            SourceEvent::Ended => return (packets, frames, skipped),
            event => panic!("{event:?}"),
        }
    }
}

/// NAL units except parameter sets, which containers store separately.
fn units(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut splitter = UnitSplitter::new(1 << 20);
    splitter.push(stream);
    splitter.finish();
    let units = std::iter::from_fn(|| splitter.next_unit().map(<[u8]>::to_vec));
    units.filter(|unit| !matches!(unit[0] & 0x1F, 7 | 8)).collect()
}

#[tokio::test]
async fn a_recording_gives_its_own_packets_and_each_decodes_with_those_before() {
    for name in ["x.mp4", "x.mkv", "x.h264"] {
        let video = Video::new(name, "64x48", 20, &EVERY_EIGHTH);
        let mut source = Source::spawn(video.spec(), packets()).await.unwrap();
        assert!(source.info().unwrap().passthrough);
        let (packets, frames, skipped) = read(&mut source).await;
        assert_eq!((packets.len(), frames, skipped), (20, 0, 0), "{name}");
        let stream: Vec<u8> = packets.iter().flat_map(|packet| packet.payload.iter().copied()).collect();
        let copied = ["-i", video.text(), "-c", "copy", "-bsf:v", "h264_mp4toannexb", "-f", "h264", "pipe:1"];
        assert_eq!(units(&stream), units(&ffmpeg(&copied)), "{name}");
        let mut decoder = H264Decoder::new(1 << 16);
        let mut needed = None;
        for (number, packet) in packets.iter().enumerate() {
            let refers = if packet.part == StreamPart::Key { None } else { needed };
            assert_eq!(refers.is_none(), number % 8 == 0, "{name}, {number}");
            let image = decoder.decode(&packet.payload, number as u64, refers).unwrap();
            assert_eq!((image.width(), image.height()), (packet.width, packet.height));
            if packet.part != (StreamPart::Following { is_needed: false }) {
                needed = Some(number as u64);
            }
        }
        assert!(packets.windows(2).all(|pair| pair[0].captured < pair[1].captured), "{name}");
    }
}

const X265: [&str; 4] =
    ["-c:v", "libx265", "-x265-params", "bframes=0:keyint=8:min-keyint=8:scenecut=0:log-level=error"];
const SVT: [&str; 8] = ["-c:v", "libsvtav1", "-pix_fmt", "yuv420p", "-preset", "12", "-g", "8"];
const AOM: [&str; 10] =
    ["-c:v", "libaom-av1", "-pix_fmt", "yuv420p", "-cpu-used", "8", "-lag-in-frames", "0", "-g", "8"];

/// Videos of other codecs in their containers. SVT-AV1 puts hidden pictures into packets, which are shown later.
fn others() -> Vec<(Encoding, Video)> {
    let video = |name: &str, args: &[&str]| {
        Video::new(name, "128x96", 20, &[&["-pix_fmt", "yuv420p"][..], args].concat())
    };
    let h265 = ["x.mp4", "x.mkv", "x.hevc"].map(|name| (Encoding::H265, video(name, &X265)));
    let av1 = [("x.mp4", &SVT[..]), ("x.mkv", &SVT), ("x.ivf", &AOM), ("x.obu", &AOM)];
    let av1 = av1.map(|(name, args)| (Encoding::Av1, video(name, args)));
    h265.into_iter().chain(av1).collect()
}

/// A stream as decoded by ffmpeg.
fn shown(input: &[&str]) -> Vec<u8> {
    ffmpeg(&[input, &["-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1"]].concat())
}

#[tokio::test]
async fn recordings_of_other_codecs_give_their_own_packets_too() {
    for (encoding, video) in others() {
        let name = video.text();
        let mut source = Source::spawn(video.spec(), packets()).await.unwrap();
        assert!(source.info().unwrap().passthrough, "{name}");
        let (packets, frames, skipped) = read(&mut source).await;
        assert_eq!((packets.len(), frames, skipped), (20, 0, 0), "{name}");
        assert!(packets.iter().all(|packet| packet.encoding == encoding), "{name}");
        let is_key = |at: &usize| packets[*at].part == StreamPart::Key;
        assert_eq!((0..20).filter(is_key).collect::<Vec<_>>(), [0, 8, 16], "{name}");

        // Together they are what ffmpeg decodes, and what its process decodes one by one.
        let mut stream = Vec::new();
        for packet in &packets {
            // Files omit the temporal delimiter.
            let lacks_mark = encoding == Encoding::Av1 && !packet.payload.starts_with(&[0x12, 0]);
            stream.extend_from_slice(if lacks_mark { &[0x12, 0] } else { &[] });
            stream.extend_from_slice(&packet.payload);
        }
        let copy = video.folder.path().join("copy");
        std::fs::write(&copy, stream).unwrap();
        let format = if encoding == Encoding::Av1 { "obu" } else { "hevc" };
        let whole = shown(&["-i", name]);
        assert_eq!(whole.len(), 20 * 128 * 96 * 3 / 2, "{name}");
        assert!(shown(&["-f", format, "-i", copy.to_str().unwrap()]) == whole, "{name}");
        let mut decoder = PlatformDecoder::new(1 << 16, Some(Decoders::software().platform()));
        let times = (Duration::from_secs(20), Duration::from_secs(20));
        let mut needed = None;
        for (number, packet) in packets.iter().enumerate() {
            let refers = if packet.part == StreamPart::Key { None } else { needed };
            let planes = decoder.decode(encoding, &packet.payload, number as u64, refers, times).unwrap();
            let picture = &whole[number * 128 * 96 * 3 / 2..][..128 * 96];
            let full = |luma: u8| ((i32::from(luma) - 16) * 255 / 219).clamp(0, 255);
            let worst =
                picture.iter().zip(planes.data()).map(|(is, was)| full(*is).abs_diff((*was).into())).max();
            assert!(worst <= Some(2), "{name}, {number}: {worst:?}");
            if packet.part != (StreamPart::Following { is_needed: false }) {
                needed = Some(number as u64);
            }
        }
    }
}

/// It could not be encoded at rungs, so it is decoded by the source's ffmpeg.
#[tokio::test]
async fn a_codec_that_nothing_decodes_here_becomes_jpeg() {
    let video = Video::new("x.mp4", "64x48", 8, &X265);
    let decoders = Decoders::start_with(DecoderChoice::Software, "/nowhere/ffmpeg".into());
    let refused = decoders.try_video(Encoding::H265).unwrap_err();
    assert!(refused.contains("/nowhere/ffmpeg"), "{refused}");
    let mut source = Source::spawn(video.spec(), SourceOptions { decoders, ..packets() }).await.unwrap();
    assert!(!source.info().unwrap().passthrough);
    let (packets, frames, _) = read(&mut source).await;
    assert!(packets.is_empty() && frames > 0, "{frames}");
}

/// Streams with reordered pictures are decoded instead, so nothing is lost.
#[tokio::test]
async fn pictures_in_another_order_become_jpeg() {
    let with_b = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "2", "-x264-params", "b-adapt=0"];
    let of_h265 = ["-c:v", "libx265", "-x265-params", "bframes=3:b-adapt=0:log-level=error"];
    for (name, args) in [("x.mp4", &with_b[..]), ("x.mp4", &of_h265), ("x.hevc", &of_h265)] {
        let video = Video::new(name, "64x48", 20, args);
        let mut source = Source::spawn(video.spec(), packets()).await.unwrap();
        assert!(!source.info().unwrap().passthrough);
        let (packets, frames, _) = read(&mut source).await;
        assert!(packets.is_empty() && frames > 0, "{name}: {frames}");
    }
}

/// The same applies to network cameras.
#[tokio::test]
async fn pictures_of_a_network_camera_in_another_order_become_jpeg() {
    const X264_B: &[&str] =
        &["-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", "20", "-bf", "2", "-x264-params", "b-adapt=0"];
    const X265_B: &[&str] = &[
        "-c:v",
        "libx265",
        "-pix_fmt",
        "yuv420p",
        "-x265-params",
        "keyint=20:bframes=3:b-adapt=0:log-level=error",
    ];
    let folder = TempDir::new().unwrap();
    for footage in [X264_B, X265_B] {
        let url = showing_rtsp_camera(folder.path(), Footage::Test(footage)).await;
        let options = SourceOptions { onvif: OnvifChoice::Off, ..SourceOptions::default() };
        let mut source = Source::spawn(SourceSpec::parse(&url).unwrap(), options).await.unwrap();
        for _ in 0..10 {
            match next(&mut source).await {
                SourceEvent::Frame(_) | SourceEvent::Skipped { .. } => {}
                event => panic!("{event:?}"),
            }
        }
        assert!(!source.info().unwrap().passthrough);
    }
}

#[tokio::test]
async fn a_source_that_is_to_be_decoded_gives_jpeg() {
    let video = Video::new("x.mp4", "64x48", 8, &EVERY_EIGHTH);
    let options = SourceOptions { packets: false, ..packets() };
    let (packets, frames, _) = read(&mut Source::spawn(video.spec(), options).await.unwrap()).await;
    assert!(packets.is_empty() && frames > 0, "{frames}");
}

/// Its only key frame is missing. ffmpeg shows what it can.
#[tokio::test]
async fn a_recording_without_key_frames_becomes_jpeg() {
    let args = [&EVERY_EIGHTH[..6], &["-x264-params", "keyint=5:intra-refresh=1:scenecut=0"]].concat();
    let video = Video::new("x.h264", "64x48", 40, &args);
    let stream = std::fs::read(&video.path).unwrap();
    let mut splitter = UnitSplitter::new(1 << 20);
    splitter.push(&stream);
    splitter.finish();
    let mut keyless = Vec::new();
    while let Some(unit) = splitter.next_unit() {
        if unit[0] & 0x1F != 5 {
            keyless.extend([0, 0, 0, 1]);
            keyless.extend_from_slice(unit);
        }
    }
    std::fs::write(&video.path, keyless).unwrap();
    let mut source = Source::spawn(video.spec(), packets()).await.unwrap();
    let (packets, frames, _) = read(&mut source).await;
    assert!(packets.is_empty() && frames > 10, "{frames}");
    assert!(!source.info().unwrap().passthrough);
}

/// The next packet of a live source.
async fn next_packet(source: &mut Source) -> SourcePacket {
    loop {
        match next(source).await {
            SourceEvent::Packet(packet) => return packet,
            SourceEvent::Skipped { .. } => {}
            event => panic!("{event:?}"),
        }
    }
}

/// Decodes packets in order.
#[derive(Default)]
struct Decoding {
    decoder: Option<H264Decoder>,
    number: u64,
    needed: Option<u64>,
}

impl Decoding {
    fn take(&mut self, packet: &SourcePacket) {
        let refers = if packet.part == StreamPart::Key { None } else { self.needed };
        let decoder = self.decoder.get_or_insert_with(|| H264Decoder::new(1 << 16));
        let image = decoder.decode(&packet.payload, self.number, refers).unwrap();
        assert_eq!((image.width(), image.height()), (packet.width, packet.height));
        if packet.part != (StreamPart::Following { is_needed: false }) {
            self.needed = Some(self.number);
        }
        self.number += 1;
    }
}

/// The first packet is a key frame, and every packet can be decoded with those before it, also after the camera was opened again.
#[tokio::test]
async fn cameras_on_the_network_give_their_own_packets() {
    let folder = TempDir::new().unwrap();
    for url in [rtsp_camera(folder.path()).await, transport_stream_camera().await] {
        let options = SourceOptions::default();
        let mut source = Source::spawn(SourceSpec::parse(&url).unwrap(), options).await.unwrap();
        let mut decoding = Decoding::default();
        for _ in 0..25 {
            decoding.take(&next_packet(&mut source).await);
        }
        let child = source.child_pid().unwrap();
        // For a key frame that merely helps, reopening the source is not worthwhile.
        source.ask_key_frame(KeyFrameNeed::Helps);
        for _ in 0..5 {
            decoding.take(&next_packet(&mut source).await);
        }
        assert_eq!(source.child_pid(), Some(child));
        source.ask_key_frame(KeyFrameNeed::Needed);
        while source.child_pid().is_none_or(|pid| pid == child) {
            decoding.take(&next_packet(&mut source).await);
        }
        for _ in 0..15 {
            decoding.take(&next_packet(&mut source).await);
        }
    }
}

/// Only this helps, since its next key frame may be an hour away.
#[tokio::test]
async fn a_recording_that_cannot_be_decoded_from_here_on_becomes_jpeg() {
    let args = [&EVERY_EIGHTH[..6], &["-g", "9999", "-sc_threshold", "0"]].concat();
    let video = Video::new("x.mp4", "64x48", 60, &args);
    let mut source = Source::spawn(video.spec(), SourceOptions::default()).await.unwrap();
    for _ in 0..10 {
        next_packet(&mut source).await;
    }
    source.ask_key_frame(KeyFrameNeed::Needed);
    let (packets, frames, skipped) = read(&mut source).await;
    assert!(frames > 0, "{} packets, {frames} frames, {skipped} skipped", packets.len());
    assert!(packets.len() < 45);
}

/// Each pass of a recording begins with its key frame.
#[tokio::test]
async fn a_recording_that_goes_round_goes_on_with_a_key_frame() {
    for name in ["x.mp4", "x.mkv", "x.h264"] {
        let video = Video::new(name, "64x48", 20, &EVERY_EIGHTH);
        let options = SourceOptions { looped: true, ..packets() };
        let mut source = Source::spawn(video.spec(), options).await.unwrap();
        let (mut decoding, mut keys) = (Decoding::default(), Vec::new());
        for number in 0..50 {
            let packet = next_packet(&mut source).await;
            decoding.take(&packet);
            keys.extend((packet.part == StreamPart::Key).then_some(number));
        }
        assert_eq!(keys, [0, 8, 16, 20, 28, 36, 40, 48], "{name}");
    }
}
