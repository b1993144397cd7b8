//! Streams of frames under losses, resets, skips, late joining and reordering: what is shown is what the rung says, and nothing
//! that cannot be decoded is shown.

mod common;

use std::collections::VecDeque;

use bytes::Bytes;
use common::picture;
use mez_core::frame::{Encoding, Reference, Sequence};
use mez_core::setting::{Form, Setting};
use mez_core::units::Instant;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::region::Region;
use mez_media::stream::{
    CHAIN_DURATION_MAX, Encoded, Outcome, Predict, Request, Source, StreamDecodeError, StreamDecoder,
    StreamEncodeError, StreamEncoder, Transcoder,
};
use mez_media::{Image, ImageView, PixelFormat};
use proptest::prelude::*;

const PIXELS_MAX: u64 = 1 << 16;

/// A still background with a square that moves.
fn pixels(width: u32, height: u32, at: u32) -> Vec<u8> {
    let mut pixels = picture(width, height, PixelFormat::Bgr8, 7);
    for y in height / 4..height / 2 {
        for x in 0..8.min(width) {
            let place = (y * width + (x + at * 3) % width) as usize * 3;
            pixels[place..place + 3].copy_from_slice(&[20, (at * 40) as u8, 230]);
        }
    }
    pixels
}

fn jpeg(width: u32, height: u32, at: u32) -> Bytes {
    let pixels = pixels(width, height, at);
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap();
    Encoder::new(90, Sampling::Yuv420).unwrap().encode(&view).unwrap()
}

fn decode(
    decoder: &mut StreamDecoder,
    sequence: Sequence,
    frame: &Encoded,
) -> Result<Image, StreamDecodeError> {
    let size = (frame.width, frame.height);
    decoder.decode(frame.encoding, sequence, &frame.chain, size, &frame.payload).cloned()
}

#[derive(Debug, Clone)]
struct Step {
    rung: &'static str,
    /// The source is a JPEG.
    compressed: bool,
    bytes_max: Option<usize>,
    /// The frame is not encoded at all.
    skipped: bool,
    lost: bool,
    /// Frames until the sender learns what became of it.
    delay: usize,
    predict: u8,
    /// Seconds since the frame before.
    pause: u64,
}

const RUNGS: [&str; 14] = [
    "h264/q28",
    "h264/q28",
    "h264/q28",
    "h264/q40",
    "h264/w32/q30",
    "tiles/q80/420",
    "tiles/q80/420",
    "tiles/q60/420",
    "tiles/w40/q70/gray",
    "jpeg/q70/420",
    "jpeg/w30/q60/444",
    "jpeg/q50/gray",
    "knobs/s50/gray/blur5/png",
    "knobs/moving/diff1/q90",
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // A run of frames at one rung, then another.
    let frame = (
        any::<bool>(),
        prop::option::weighted(0.3, prop::sample::select(&[150usize, 300, 600, 1200][..])),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.2),
        prop::sample::select(&[0usize, 0, 0, 1, 2, 3][..]),
        0u8..20,
        prop::sample::select(&[0u64, 0, 0, 0, 4][..]),
    );
    let run = (prop::sample::select(&RUNGS[..]), prop::collection::vec(frame, 1..7));
    prop::collection::vec(run, 1..4).prop_map(|runs| {
        let step = |rung, (compressed, bytes_max, skipped, lost, delay, predict, pause)| Step {
            rung,
            compressed,
            bytes_max,
            skipped,
            lost,
            delay,
            predict,
            pause,
        };
        runs.into_iter()
            .flat_map(|(rung, frames)| frames.into_iter().map(move |frame| step(rung, frame)))
            .collect()
    })
}

/// Compares what a receiver shows with what one shows that lost nothing.
fn agrees(
    decoder: &mut StreamDecoder,
    sequence: Sequence,
    frame: &Encoded,
    expected: &Image,
) -> Result<bool, String> {
    match decode(decoder, sequence, frame) {
        Ok(image) if image == *expected => Ok(true),
        Ok(_) => {
            Err(format!("frame {} of {} shows something else: {:?}", sequence.0, frame.setting, frame.chain))
        }
        Err(StreamDecodeError::NotHeld { .. } | StreamDecodeError::TooLate { .. }) => Ok(false),
        Err(error) => Err(format!("frame {} of {}: {error}", sequence.0, frame.setting)),
    }
}

fn play(steps: &[Step]) -> Result<(), String> {
    let (width, height) = (64, 48);
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let new = || StreamDecoder::new(PIXELS_MAX);
    let (mut witness, mut receiver, mut late, mut reordered) = (new(), new(), None, new());
    let mut held_back: Option<(Sequence, Encoded, Image)> = None;
    let mut news: VecDeque<(usize, Sequence, bool)> = VecDeque::new();
    let mut arrived = None;
    let (mut now, mut chain_started) = (0u64, 0u64);
    for (at, step) in steps.iter().enumerate() {
        now += 66_000_000 + step.pause * 1_000_000_000;
        let sequence = Sequence(3 * at as u64 + 5);
        while let Some(place) = news.iter().position(|(when, ..)| *when <= at) {
            let (_, about, shown) = news.remove(place).unwrap();
            if shown {
                encoder.acknowledge(about);
                arrived = arrived.max(Some(about));
            } else {
                encoder.lost(about);
            }
        }
        if step.skipped {
            continue;
        }
        let setting: Setting = step.rung.parse().unwrap();
        let predict = match (step.predict, arrived) {
            (0, _) => Predict::Independent,
            (1..=3, Some(arrived)) => Predict::Acknowledged(arrived),
            _ => Predict::Previous,
        };
        let regions = [Region { x: at as u32, y: 3, width: 9, height: 9 }];
        let captured = Instant::from_nanos(now);
        let request = Request {
            sequence,
            captured,
            setting: &setting,
            bytes_max: step.bytes_max,
            predict,
            regions: &regions,
        };
        let (bytes, raw) = (jpeg(width, height, at as u32), pixels(width, height, at as u32));
        let view = ImageView::packed(&raw, width, height, PixelFormat::Bgr8).unwrap();
        let source = if step.compressed { Source::Jpeg(&bytes) } else { Source::Pixels(view) };
        let frame = match encoder.encode(&source, &request).map_err(|error| error.to_string())? {
            Outcome::Frame(frame) => frame,
            Outcome::LeftOut { .. } => continue,
            Outcome::DoesNotFit { bytes } => {
                if bytes <= step.bytes_max.unwrap_or(usize::MAX) {
                    return Err(format!("frame {} fits", sequence.0));
                }
                continue;
            }
        };
        check(&frame, step, &setting, predict, sequence)?;
        if frame.chain.index == 0 {
            chain_started = now;
        } else if now - chain_started >= CHAIN_DURATION_MAX.as_nanos() as u64 {
            return Err(format!("the chain of frame {} is too old", sequence.0));
        }
        let expected = decode(&mut witness, sequence, &frame)
            .map_err(|error| format!("frame {} of {}: {error}", sequence.0, frame.setting))?;
        if (expected.width(), expected.height()) != (frame.width, frame.height) {
            return Err(format!("frame {} has another size than it says", sequence.0));
        }
        let shown = !step.lost && agrees(&mut receiver, sequence, &frame, &expected)?;
        if !step.lost {
            let late = late.get_or_insert_with(new);
            if at % 4 == 3 {
                *late = new();
            }
            agrees(late, sequence, &frame, &expected)?;
            match held_back.take() {
                Some((earlier, its_frame, its_image)) => {
                    agrees(&mut reordered, sequence, &frame, &expected)?;
                    agrees(&mut reordered, earlier, &its_frame, &its_image)?;
                }
                None => held_back = Some((sequence, frame, expected)),
            }
        }
        news.push_back((at + 1 + step.delay, sequence, shown));
    }
    Ok(())
}

fn check(
    frame: &Encoded,
    step: &Step,
    setting: &Setting,
    predict: Predict,
    sequence: Sequence,
) -> Result<(), String> {
    let independent = frame.chain.reference == Reference::Independent;
    let ok = step.bytes_max.is_none_or(|most| frame.payload.len() <= most)
        && independent == (frame.chain.index == 0)
        && (!independent || frame.chain.chain == sequence)
        && (independent || setting.is_chained() && predict != Predict::Independent)
        && frame.setting.size((64, 48)) == (frame.width, frame.height)
        && (step.bytes_max.is_some() || matches!(setting.form, Form::Tiles(_)) || frame.setting == *setting);
    if ok {
        Ok(())
    } else {
        Err(format!("frame {} of {setting}: {:?} {}", sequence.0, frame.chain, frame.setting))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_shown_is_what_the_rung_says(steps in steps()) {
        if let Err(error) = play(&steps) {
            prop_assert!(false, "{}", error);
        }
    }
}

/// The original crosses untouched, also with oddities that a decoder would not mind.
#[test]
fn originals_are_not_touched() {
    let mut bytes = jpeg(64, 48, 1).to_vec();
    bytes.extend_from_slice(b"padding");
    let bytes = Bytes::from(bytes);
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let request = Request {
        sequence: Sequence(1),
        captured: Instant::from_nanos(0),
        setting: &Setting::ORIGINAL,
        bytes_max: None,
        predict: Predict::Previous,
        regions: &[],
    };
    let Outcome::Frame(frame) = encoder.encode(&Source::Jpeg(&bytes), &request).unwrap() else { panic!() };
    assert_eq!((&frame.payload, frame.encoding, frame.setting), (&bytes, Encoding::Jpeg, Setting::ORIGINAL));
    assert_eq!(frame.payload.as_ptr(), bytes.as_ptr(), "not even copied");
    let tight = Request { bytes_max: Some(100), ..request };
    let outcome = encoder.encode(&Source::Jpeg(&bytes), &tight).unwrap();
    assert_eq!(outcome, Outcome::DoesNotFit { bytes: bytes.len() });
    let raw = pixels(64, 48, 1);
    let view = ImageView::packed(&raw, 64, 48, PixelFormat::Bgr8).unwrap();
    assert_eq!(encoder.encode(&Source::Pixels(view), &request), Err(StreamEncodeError::NoOriginal));
}

/// A source that is damaged, or too small for a codec, is an error, and the stream goes on with the next.
#[test]
fn a_bad_frame_costs_itself() {
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let setting: Setting = "h264/q30".parse().unwrap();
    let mut encode = |number: u64, source: &Source<'_>| {
        let request = Request {
            sequence: Sequence(number),
            captured: Instant::from_nanos(number),
            setting: &setting,
            bytes_max: None,
            predict: Predict::Previous,
            regions: &[],
        };
        encoder.encode(source, &request)
    };
    let good = jpeg(64, 48, 1);
    let is_sent = |outcome| matches!(outcome, Ok(Outcome::Frame(_)));
    assert!(is_sent(encode(0, &Source::Jpeg(&good))));
    for bad in [good.slice(..good.len() / 2), Bytes::from_static(b"GIF89a"), Bytes::new(), jpeg(12, 9, 0)] {
        assert!(encode(1, &Source::Jpeg(&bad)).is_err());
    }
    for (number, (width, height, format)) in
        (2..).zip([(33, 17, PixelFormat::Gray8), (64, 48, PixelFormat::Bgra8), (301, 17, PixelFormat::Bgr8)])
    {
        let raw = picture(width, height, format, 1);
        let view = ImageView::packed(&raw, width, height, format).unwrap();
        assert!(is_sent(encode(number, &Source::Pixels(view))), "{width}x{height} {format}");
    }
}

/// What a transcoder makes of a chain is what a decoder shows of it, but for the loss of one more JPEG; frames that are only
/// decoded keep the chain going, and one that lacks others is refused.
#[test]
fn a_transcoder_shows_what_a_decoder_shows() {
    for rung in ["h264/q28", "h264/w32/q30", "tiles/q80/420", "tiles/w40/q70/gray"] {
        let setting: Setting = rung.parse().unwrap();
        let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
        let (mut decoder, mut transcoder) =
            (StreamDecoder::new(PIXELS_MAX), Transcoder::new(PIXELS_MAX).unwrap());
        let mut late = Transcoder::new(PIXELS_MAX).unwrap();
        for at in 0..12u32 {
            let sequence = Sequence(u64::from(at));
            let source = jpeg(64, 48, at);
            let request = Request {
                sequence,
                captured: Instant::from_nanos(u64::from(at) * 66_000_000),
                setting: &setting,
                bytes_max: None,
                predict: Predict::Previous,
                regions: &[],
            };
            let Outcome::Frame(frame) = encoder.encode(&Source::Jpeg(&source), &request).unwrap() else {
                panic!()
            };
            let expected = decode(&mut decoder, sequence, &frame).unwrap();
            let (place, wanted) = ((sequence, &frame.chain), at % 3 == 2);
            let still = transcoder.transcode(frame.encoding, place, &frame.payload, wanted).unwrap();
            assert_eq!(still.is_some(), wanted);
            if let Some(still) = still {
                assert_eq!((still.width, still.height), (frame.width, frame.height));
                let mut shown = Image::empty();
                mez_media::jpeg::Decoder::new(PIXELS_MAX).decode_bgr(&still.payload, &mut shown).unwrap();
                let apart = shown.data().iter().zip(expected.data());
                let squares: u64 = apart.map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum();
                let error = squares as f64 / expected.data().len() as f64;
                // Colour at half the resolution is brought back in another way by either; other pictures differ by hundreds.
                assert!(error < 40.0, "{rung}: mean square error {error:.1}");
            }
            if at > 0 {
                let refused = late.transcode(frame.encoding, place, &frame.payload, true).unwrap_err();
                assert!(refused.is_not_held(), "{rung}: {refused}");
            }
        }
    }
}
