//! H.264 sources whose pictures come as they coded them.

use mez_core::broker::StreamPart;
use mez_media::bitstream::UnitSplitter;
use mez_media::h264::H264Decoder;
use mez_node::source::{Source, SourceEvent, SourceOptions, SourcePacket};

use super::support::{Video, ffmpeg, next};

const EVERY_EIGHTH: [&str; 10] =
    ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "0", "-g", "8", "-sc_threshold", "0"];

fn packets() -> SourceOptions {
    SourceOptions { packets: true, fps: Some(100.0), ..SourceOptions::default() }
}

/// All packets of a recording, and how many frames came otherwise or not at all.
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

/// NAL units other than parameter sets, which containers keep aside.
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

/// Nothing is lost for those whose encoder is set otherwise: they are decoded, as ever.
#[tokio::test]
async fn pictures_in_another_order_become_jpeg() {
    let with_b = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "2", "-x264-params", "b-adapt=0"];
    let video = Video::new("x.mp4", "64x48", 20, &with_b);
    let mut source = Source::spawn(video.spec(), packets()).await.unwrap();
    assert!(!source.info().unwrap().passthrough);
    let (packets, frames, _) = read(&mut source).await;
    assert!(packets.is_empty() && frames > 0, "{frames}");
}

#[tokio::test]
async fn without_being_asked_a_source_gives_jpeg() {
    let video = Video::new("x.mp4", "64x48", 8, &EVERY_EIGHTH);
    let options = SourceOptions { packets: false, ..packets() };
    let (packets, frames, _) = read(&mut Source::spawn(video.spec(), options).await.unwrap()).await;
    assert!(packets.is_empty() && frames > 0, "{frames}");
}
