//! Videos in which nothing is encoded again.

use mez_core::broker::StreamPart;
use mez_core::units::Instant;
use mez_media::bitstream::{AccessUnitLimits, CodedPicture, StreamParser};
use mez_media::nut::{NutEvent, read_whole};
use mez_media::stream::{Outcome, Request, Source, StreamEncoder};

use super::*;
use crate::export::packets::with_lengths;

const SIZE: (u32, u32) = (64, 48);

/// An edge's log with two chains, the second one smaller, and a still between them; and their packets.
fn chains() -> (Log, Vec<Bytes>) {
    let kept = Log::new();
    let (mut writer, reader) = log(LogConfig::default());
    let mut store = kept.store(reader.cursor_at_end());
    store.set_start(Epoch(1), anchor());
    let mut encoder = StreamEncoder::new(1 << 20).unwrap();
    let mut packets = Vec::new();
    for sequence in 0..22 {
        let captured = anchor().wall + Duration::from_millis(sequence * 50);
        let (payload, encoding, size, chain) = if sequence == 12 {
            (jpeg(sequence, SIZE), Encoding::Jpeg, SIZE, ChainLink::still(Sequence(sequence)))
        } else {
            let pixels = pixels(sequence, SIZE);
            let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Bgr8).unwrap();
            let setting = if sequence < 12 { "h264/q24" } else { "h264/w32/q24" }.parse().unwrap();
            let request = Request {
                sequence: Sequence(sequence),
                captured: Instant::from_nanos(captured.as_nanos()),
                setting: &setting,
                bytes_max: None,
                reference: Reference::Previous,
            };
            let made = encoder.encode(&Source::Pixels(view), &request).unwrap();
            let Outcome::Frame(made) = made else { panic!("{sequence} was not made") };
            packets.push(made.payload.clone());
            (made.payload, made.encoding, (made.width, made.height), made.chain)
        };
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured,
            clock_source: ClockSource::Broker,
            width: size.0,
            height: size.1,
            published: SIZE,
            encoding,
            rung: Rung::original(),
            chain,
        };
        writer.append(Frame { meta, payload }, [].into(), BEGIN).unwrap();
    }
    settle(store, BEGIN);
    (kept, packets)
}

/// The pictures of a video, as in the file.
fn copied(options: &ExportOptions) -> Vec<u8> {
    let raw = options.output.with_extension("h264");
    let input = options.output.to_str().unwrap();
    run("ffmpeg", &["-i", input, "-c:v", "copy", "-bsf:v", "h264_mp4toannexb", "-f", "h264"], &raw);
    fs::read(raw).unwrap()
}

/// Its units, whatever start codes separate them.
fn units(stream: Vec<u8>) -> Bytes {
    with_lengths(&stream.into())
}

#[tokio::test]
async fn a_copied_video_has_the_packets_of_the_log() {
    let (log, packets) = chains();
    let options = ExportOptions { codec: VideoCodec::Copy, ..log.options("copied.mp4") };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.not_copied, summary.undecodable, summary.recoded), (21, 1, 0, 0));
    let expected: Vec<f64> =
        (0..22).filter(|number| *number != 12).map(|number| f64::from(number) / 20.0).collect();
    assert_times(&shown(&options.output), &expected);
    assert_eq!(units(copied(&options)), units(packets.concat()), "to the last byte");
}

/// A player needs the frames of the chain before the span. A chain without its beginning cannot be shown.
#[tokio::test]
async fn a_copied_span_begins_where_its_chain_begins() {
    let (log, packets) = chains();
    let at = |number: u64| anchor().wall + Duration::from_millis(number * 50);
    let options = ExportOptions {
        codec: VideoCodec::Copy,
        begin: Some(at(15)),
        end: Some(at(18)),
        ..log.options("span.mp4")
    };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.from, summary.to), (6, at(13), at(18)));
    assert_eq!(shown(&options.output).len(), 6);
    assert_eq!(units(copied(&options)), units(packets[12..18].concat()));

    damage_payload(&log, 13);
    let options = ExportOptions { codec: VideoCodec::Copy, ..log.options("cut.mp4") };
    let summary = export(&options, |_| {}).await.unwrap();
    assert_eq!((summary.frames, summary.damaged, summary.undecodable), (12, 1, 8));
    let options = ExportOptions { begin: Some(at(12)), end: Some(at(12)), ..options };
    let options = ExportOptions { output: options.output.with_file_name("none.mp4"), ..options };
    let error = export(&options, |_| {}).await.unwrap_err();
    assert!(matches!(error, ExportError::NothingToCopy(1)), "{error}");
}

/// The log of a camera whose source gives H.265 or AV1, and its packets.
fn of_source(encoding: Encoding, file: &[u8]) -> (Log, Vec<Bytes>) {
    let kept = Log::new();
    let (writer, reader) = log(LogConfig::default());
    let mut store = kept.store(reader.cursor_at_end());
    store.set_start(Epoch(1), anchor());
    let mut intake = Intake::new(writer, IntakeConfig::new(Epoch(1), anchor()));
    let mut parser = StreamParser::new(encoding, AccessUnitLimits::default()).unwrap();
    let mut packets = Vec::new();
    for event in read_whole(file, 1000, 1 << 20).0 {
        let NutEvent::Packet(packet) = event else { continue };
        let CodedPicture { payload, width, height, is_key, is_needed, .. } =
            parser.packet(&packet.payload).unwrap().unwrap();
        let part = if is_key { StreamPart::Key } else { StreamPart::Following { is_needed } };
        let captured = Some(anchor().wall + Duration::from_millis(packets.len() as u64 * 50));
        packets.push(payload.clone());
        let frame = Published { payload, encoding, width, height, captured };
        intake.publish_part(BEGIN, frame, part).unwrap();
    }
    settle(store, BEGIN);
    (kept, packets)
}

#[tokio::test]
async fn video_of_other_codecs_is_copied_and_stills_are_made_of_it() {
    const H265: &[u8] = include_bytes!("../../../../media/tests/streams/h265.nut");
    const AV1: &[u8] = include_bytes!("../../../../media/tests/streams/av1.nut");
    for (encoding, file, tag, format) in
        [(Encoding::H265, H265, "hvc1", "hevc"), (Encoding::Av1, AV1, "av01", "obu")]
    {
        let (log, packets) = of_source(encoding, file);
        let options = ExportOptions { codec: VideoCodec::Copy, ..log.options("copied.mp4") };
        let summary = export(&options, |_| {}).await.unwrap();
        assert_eq!((summary.frames, summary.not_copied, summary.undecodable, summary.recoded), (10, 0, 0, 0));
        let expected: Vec<f64> = (0..10).map(|number| f64::from(number) / 20.0).collect();
        assert_times(&shown(&options.output), &expected);
        let video = fs::read(&options.output).unwrap();
        assert!(video.windows(4).any(|bytes| bytes == tag.as_bytes()), "players look for {tag}");
        let raw = options.output.with_extension(format);
        run("ffmpeg", &["-i", options.output.to_str().unwrap(), "-c:v", "copy", "-f", format], &raw);
        let copied = fs::read(raw).unwrap();
        for packet in packets {
            // The part of a packet that the file keeps in any form: its pictures.
            let picture = packet.slice(packet.len() / 2..);
            assert!(copied.windows(picture.len()).any(|bytes| bytes == picture), "to the last byte");
        }

        let options = log.options("stills.mcap");
        let summary = export(&options, |_| {}).await.unwrap();
        assert_eq!((summary.frames, summary.undecodable, summary.recoded), (10, 0, 10));
    }
}
