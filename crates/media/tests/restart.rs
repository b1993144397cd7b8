//! Decoders that are reused for another chain, and frames that are decoded only because later frames need them.

mod common;

use common::picture;
use mez_core::frame::{Encoding, Reference, Sequence};
use mez_core::setting::Setting;
use mez_core::units::Instant;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::stream::{Encoded, Outcome, Request, Source, Still, StreamEncoder, Transcoder};
use mez_media::{ImageView, PixelFormat};

const PIXELS_MAX: u64 = 1 << 16;
const FRAMES: u64 = 8;
const RUNGS: [&str; 4] = ["h264/q28", "h264/w32/q22", "tiles/q80/420", "tiles/w40/q70/gray"];

/// A chain whose first frame has the number `first`. Each frame shows another picture.
fn chain(rung: &str, first: u64) -> Vec<Encoded> {
    let setting: Setting = rung.parse().unwrap();
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let frames = (first..first + FRAMES).map(|number| {
        let pixels = picture(64, 48, PixelFormat::Bgr8, number as u32);
        let view = ImageView::packed(&pixels, 64, 48, PixelFormat::Bgr8).unwrap();
        let source = Encoder::new(90, Sampling::Yuv420).unwrap().encode(&view).unwrap();
        let request = Request {
            sequence: Sequence(number),
            captured: Instant::from_nanos(number * 66_000_000),
            setting: &setting,
            bytes_max: None,
            reference: Reference::Previous,
        };
        match encoder.encode(&Source::Jpeg(&source), &request).unwrap() {
            Outcome::Frame(frame) => frame,
            outcome => panic!("{outcome:?}"),
        }
    });
    frames.collect()
}

fn numbered(frames: &[Encoded], first: u64) -> impl Iterator<Item = (Sequence, &Encoded)> {
    frames.iter().enumerate().map(move |(at, frame)| (Sequence(first + at as u64), frame))
}

/// The still of a chain's last frame, after `pass` of all frames before it.
fn last_of(transcoder: &mut Transcoder, frames: &[Encoded], first: u64) -> Still {
    let mut still = None;
    for (sequence, frame) in numbered(frames, first) {
        let place = (sequence, &frame.chain);
        if sequence.0 + 1 < first + FRAMES {
            transcoder.pass(frame.encoding, place, &frame.payload).unwrap();
        } else {
            still = transcoder.transcode(frame.encoding, place, &frame.payload, true).unwrap();
        }
    }
    still.expect("the last was wanted")
}

/// A decoder stops anywhere in one chain and begins another one, of the same or
/// another kind, with higher or lower numbers. It shows what a new decoder shows.
#[test]
fn a_decoder_that_begins_anew_shows_what_a_new_one_shows() {
    for left in RUNGS {
        for rung in RUNGS {
            let (before, behind) = (chain(left, 100), chain(rung, 5));
            let expected = last_of(&mut Transcoder::new(PIXELS_MAX).unwrap(), &behind, 5);
            for length in 1..=before.len() {
                let mut transcoder = Transcoder::new(PIXELS_MAX).unwrap();
                for (sequence, frame) in numbered(&before[..length], 100) {
                    let place = (sequence, &frame.chain);
                    transcoder.transcode(frame.encoding, place, &frame.payload, length % 2 == 0).unwrap();
                }
                transcoder.restart();
                let second = &behind[1];
                let refused = transcoder.pass(second.encoding, (Sequence(6), &second.chain), &second.payload);
                assert!(refused.is_err_and(|error| error.is_not_held()), "{left}, {rung}: it holds nothing");
                assert_eq!(last_of(&mut transcoder, &behind, 5), expected, "{left} left at {length}, {rung}");
            }
        }
    }
}

/// A frame decoded with `pass` cannot be shown: its picture was not kept, and no other is shown instead.
#[test]
fn a_frame_that_was_passed_is_not_shown() {
    let frames = chain("h264/q28", 0);
    let mut transcoder = Transcoder::new(PIXELS_MAX).unwrap();
    for (sequence, frame) in numbered(&frames, 0) {
        let place = (sequence, &frame.chain);
        if sequence.0 % 2 == 0 {
            transcoder.transcode(Encoding::H264, place, &frame.payload, false).unwrap();
            transcoder.show(sequence).unwrap();
        } else {
            transcoder.pass(Encoding::H264, place, &frame.payload).unwrap();
            assert!(transcoder.show(sequence).unwrap_err().is_not_held());
        }
        assert!(transcoder.show(Sequence(sequence.0 + 1)).is_err());
    }
}
