//! Streams of frames with losses, resets, skips, late joining and reordering. Shown
//! frames are what their rung promises, and frames that cannot be decoded are not shown.

mod common;

use std::collections::VecDeque;

use bytes::Bytes;
use common::declared::Declared;
use common::{hash, picture};
use mez_core::frame::{Encoding, Reference, Sequence};
use mez_core::setting::{Form, Setting};
use mez_core::units::Instant;
use mez_media::h264::Library;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::stream::{
    CHAIN_DURATION_MAX, Encoded, Outcome, Request, Source, StreamDecodeError, StreamDecoder,
    StreamEncodeError, StreamEncoder, Transcoder, show,
};
use mez_media::{Image, ImageView, ImageViewMut, PixelFormat};
use proptest::prelude::*;

const PIXELS_MAX: u64 = 1 << 16;
/// JPEG and video upsample 4:2:0 chroma in different ways. Other pictures differ by hundreds.
const TRANSCODING_ERROR_MAX: f64 = 100.0;

/// A static background with a moving square.
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
    /// Whether the source is a JPEG.
    compressed: bool,
    bytes_max: Option<usize>,
    /// Whether the frame is not encoded at all.
    skipped: bool,
    lost: bool,
    /// Number of frames until the sender learns whether the frame arrived.
    delay: usize,
    predict: u8,
    /// Seconds since the previous frame.
    pause: u64,
}

/// Every knob. Knobs with more state are repeated.
const RUNGS: [&str; 27] = [
    "original",
    "h264/q28",
    "h264/q28",
    "h264/q28",
    "h264/q40",
    "h264/w32/q30",
    "h264/w32/q22",
    "tiles/q80/420",
    "tiles/q80/420",
    "tiles/q60/420",
    "tiles/w40/q70/gray",
    "tiles/q90/444",
    "jpeg/q70/420",
    "jpeg/w30/q60/444",
    "jpeg/q50/gray",
    "jpeg/w40/q95/422",
    "knobs/png",
    "knobs/s68/hsv/png",
    "knobs/s50/gray/blur5/png",
    "knobs/s33/lab/blur8/q95",
    "knobs/s25/luv/blur10/png",
    "knobs/blur15/contours/png",
    "knobs/gray/contours/diff0/q70",
    "knobs/moving/png",
    "knobs/moving/diff1/q90",
    "knobs/diff1/png",
    "knobs/s50/diff18/q40",
];

/// Number of streams: `MEZ_ROUND_TRIPS`, or by default as many as a test can play in a few seconds.
fn cases() -> u32 {
    std::env::var("MEZ_ROUND_TRIPS").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Several frames at one rung, then another rung.
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

/// Compares the picture of a receiver with that of a receiver without losses.
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

/// Compares the edge's still, and what an application sees of it, with the picture of a receiver without losses.
fn hands_on(
    edge: &mut Transcoder,
    sequence: Sequence,
    frame: &Encoded,
    expected: &Image,
    wanted: bool,
) -> Result<bool, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("frame {} of {}: {error}", sequence.0, frame.setting);
    let (encoding, payload) = if frame.encoding.is_chained() {
        match edge.transcode(frame.encoding, (sequence, &frame.chain), &frame.payload, wanted) {
            Ok(Some(still)) => (Encoding::Jpeg, still.payload),
            Ok(None) if wanted => return Err(failed(&"nothing was made of it")),
            Ok(None) => return Ok(true),
            Err(error) if error.is_not_held() => return Ok(false),
            Err(error) => return Err(failed(&error)),
        }
    } else {
        (frame.encoding, frame.payload.clone())
    };
    let mut pixels = vec![0; expected.data().len()];
    let view = ImageViewMut::packed(&mut pixels, frame.width, frame.height, PixelFormat::Bgr8);
    show(encoding, &payload, &mut view.unwrap()).map_err(|error| failed(&error))?;
    let squares = pixels.iter().zip(expected.data()).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2));
    let error = squares.sum::<u64>() as f64 / pixels.len() as f64;
    let most = if frame.encoding.is_chained() { TRANSCODING_ERROR_MAX } else { 0.0 };
    if error <= most {
        Ok(true)
    } else {
        Err(failed(&format!("handed on with a mean square error of {error:.1}")))
    }
}

/// One sender and all its receivers.
struct Play {
    encoder: StreamEncoder,
    declared: Declared,
    /// A receiver without losses.
    witness: StreamDecoder,
    /// A receiver with the losses of the steps.
    receiver: StreamDecoder,
    /// A receiver that joins late, repeatedly.
    late: StreamDecoder,
    /// A receiver that gets each pair of frames in the wrong order.
    reordered: StreamDecoder,
    held_back: Option<(Sequence, Encoded, Image)>,
    edge: Transcoder,
    /// Reports to the sender: from which step on it knows whether a frame was shown.
    news: VecDeque<(usize, Sequence, bool)>,
    /// The newest frame that the sender knows to have arrived.
    arrived: Option<Sequence>,
    now: u64,
    chain_started: u64,
}

/// The frame that one step sent.
struct Sent {
    frame: Encoded,
    /// The picture of a receiver without losses.
    expected: Image,
}

fn play(steps: &[Step], h264: Library) -> Result<(), String> {
    let new = || StreamDecoder::new(PIXELS_MAX);
    let mut play = Play {
        encoder: StreamEncoder::new(PIXELS_MAX).unwrap().with_h264(h264),
        declared: Declared::default(),
        witness: new(),
        receiver: new(),
        late: new(),
        reordered: new(),
        held_back: None,
        edge: Transcoder::new(PIXELS_MAX).unwrap(),
        news: VecDeque::new(),
        arrived: None,
        now: 0,
        chain_started: 0,
    };
    for (at, step) in steps.iter().enumerate() {
        play.now += 66_000_000 + step.pause * 1_000_000_000;
        let sequence = Sequence(3 * at as u64 + 5);
        play.learn(at);
        if step.skipped {
            continue;
        }
        if let Some(sent) = play.send(at, sequence, step)? {
            let shown = play.receive(at, sequence, step, sent)?;
            play.news.push_back((at + 1 + step.delay, sequence, shown));
        }
    }
    Ok(())
}

impl Play {
    /// Tells the sender which frames arrived or were lost.
    fn learn(&mut self, at: usize) {
        while let Some(place) = self.news.iter().position(|(when, ..)| *when <= at) {
            let (_, about, shown) = self.news.remove(place).unwrap();
            if shown {
                self.encoder.acknowledge(about);
                self.arrived = self.arrived.max(Some(about));
            } else {
                self.encoder.lost(about);
                self.declared.not_sent();
            }
        }
    }

    /// Encodes a frame, and checks it before it is received. `None` if nothing is sent.
    fn send(&mut self, at: usize, sequence: Sequence, step: &Step) -> Result<Option<Sent>, String> {
        let (width, height) = (64, 48);
        let setting: Setting = step.rung.parse().unwrap();
        let reference = match (step.predict, self.arrived) {
            (0, _) => Reference::Independent,
            (1..=3, Some(arrived)) => Reference::Acknowledged(arrived),
            _ => Reference::Previous,
        };
        let captured = Instant::from_nanos(self.now);
        let request = Request { sequence, captured, setting: &setting, bytes_max: step.bytes_max, reference };
        let (bytes, raw) = (jpeg(width, height, at as u32), pixels(width, height, at as u32));
        let view = ImageView::packed(&raw, width, height, PixelFormat::Bgr8).unwrap();
        // Raw pixels do not have the rung `original`.
        let compressed = step.compressed || setting == Setting::ORIGINAL;
        let source = if compressed { Source::Jpeg(&bytes) } else { Source::Pixels(view) };
        let mut outcome = self.encoder.encode(&source, &request).map_err(|error| error.to_string())?;
        let (mut step, roomier) = (step, Step { bytes_max: None, ..step.clone() });
        if matches!(outcome, Outcome::DoesNotFit { .. }) && setting.is_chained() && at.is_multiple_of(2) {
            // A broker without a newer frame encodes the same frame again.
            self.encoder.lost(sequence);
            let request = Request { bytes_max: None, ..request };
            outcome = self.encoder.encode(&source, &request).map_err(|error| error.to_string())?;
            step = &roomier;
        }
        let frame = match &outcome {
            Outcome::Frame(frame) => frame.clone(),
            Outcome::LeftOut { .. } => {
                self.declared.check(&source, &setting, &outcome, None)?;
                return Ok(None);
            }
            Outcome::DoesNotFit { bytes } => {
                self.declared.check(&source, &setting, &outcome, None)?;
                let fits = *bytes <= step.bytes_max.unwrap_or(usize::MAX);
                return if fits { Err(format!("frame {} fits", sequence.0)) } else { Ok(None) };
            }
        };
        check(&frame, step, &setting, reference, sequence)?;
        if frame.chain.index == 0 {
            self.chain_started = self.now;
        } else if self.now - self.chain_started >= CHAIN_DURATION_MAX.as_nanos() as u64 {
            return Err(format!("the chain of frame {} is too old", sequence.0));
        }
        let expected = decode(&mut self.witness, sequence, &frame)
            .map_err(|error| format!("frame {} of {}: {error}", sequence.0, frame.setting))?;
        if (expected.width(), expected.height()) != (frame.width, frame.height) {
            return Err(format!("frame {} has another size than it says", sequence.0));
        }
        self.declared.check(&source, &setting, &outcome, Some(&expected))?;
        Ok(Some(Sent { frame, expected }))
    }

    /// Passes the frame to all receivers whose turn it is. Returns whether `receiver` shows it.
    fn receive(&mut self, at: usize, sequence: Sequence, step: &Step, sent: Sent) -> Result<bool, String> {
        let Sent { frame, expected } = sent;
        if step.lost {
            return Ok(false);
        }
        let shown = agrees(&mut self.receiver, sequence, &frame, &expected)?;
        let wanted = at % 3 != 2;
        if hands_on(&mut self.edge, sequence, &frame, &expected, wanted)? != shown {
            return Err(format!("frame {}: the edge holds something else than a decoder", sequence.0));
        }
        if at % 4 == 3 {
            self.late = StreamDecoder::new(PIXELS_MAX);
        }
        agrees(&mut self.late, sequence, &frame, &expected)?;
        match self.held_back.take() {
            Some((earlier, its_frame, its_image)) => {
                agrees(&mut self.reordered, sequence, &frame, &expected)?;
                agrees(&mut self.reordered, earlier, &its_frame, &its_image)?;
            }
            None => self.held_back = Some((sequence, frame, expected)),
        }
        Ok(shown)
    }
}

fn check(
    frame: &Encoded,
    step: &Step,
    setting: &Setting,
    reference: Reference,
    sequence: Sequence,
) -> Result<(), String> {
    let independent = frame.chain.reference == Reference::Independent;
    let ok = step.bytes_max.is_none_or(|most| frame.payload.len() <= most)
        && independent == (frame.chain.index == 0)
        && (!independent || frame.chain.chain == sequence)
        && (independent || setting.is_chained() && reference != Reference::Independent)
        && frame.setting.size((64, 48)) == (frame.width, frame.height)
        && (step.bytes_max.is_some() || matches!(setting.form, Form::Tiles(_)) || frame.setting == *setting);
    if ok {
        Ok(())
    } else {
        Err(format!("frame {} of {setting}: {:?} {}", sequence.0, frame.chain, frame.setting))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn whatever_is_shown_is_what_the_rung_says(steps in steps(), h264 in prop::sample::select(Library::ALL)) {
        if let Err(error) = play(&steps, h264) {
            prop_assert!(false, "{}", error);
        }
    }
}

/// Originals are sent unchanged, also with extra bytes that a decoder would ignore.
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
        reference: Reference::Previous,
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

/// A source that is damaged, or too small for a codec, is an error. The stream continues with the next frame.
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
            reference: Reference::Previous,
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

/// In a new epoch, a camera's sequence starts at 0 again, but its encoder continues. Late
/// acknowledgements of old frames must not count for new frames with the same numbers.
#[test]
fn numbers_that_begin_again_are_those_of_other_frames() {
    for (rung, h264) in Library::ALL.iter().flat_map(|h264| [("h264/q30", *h264), ("tiles/q80/420", *h264)]) {
        let setting: Setting = rung.parse().unwrap();
        let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap().with_h264(h264);
        let mut at = 0;
        let mut encode = |encoder: &mut StreamEncoder, number: u64, reference: Reference| {
            at += 1;
            let request = Request {
                sequence: Sequence(number),
                captured: Instant::from_nanos(u64::from(at) * 66_000_000),
                setting: &setting,
                bytes_max: None,
                reference,
            };
            let source = jpeg(64, 48, at);
            let Outcome::Frame(frame) = encoder.encode(&Source::Jpeg(&source), &request).unwrap() else {
                panic!()
            };
            frame
        };
        for number in 0..9 {
            encode(&mut encoder, number, Reference::Previous);
            // The acknowledgement of the last frame comes after the numbers have started again.
            (0..number).for_each(|known| encoder.acknowledge(Sequence(known)));
        }
        encoder.acknowledge(Sequence(8));
        let zero = encode(&mut encoder, 0, Reference::Independent);
        let one = encode(&mut encoder, 1, Reference::Previous);
        assert_eq!(
            (zero.chain.reference, one.chain.reference),
            (Reference::Independent, Reference::Previous)
        );
        encoder.lost(Sequence(1));
        let two = encode(&mut encoder, 2, Reference::Previous);
        assert_eq!(two.chain.reference, Reference::Independent, "{rung} by {h264}: nothing that has arrived");
        encoder.acknowledge(Sequence(2));
        let three = encode(&mut encoder, 3, Reference::Previous);
        assert_eq!(three.chain.reference, Reference::Previous);
        encoder.lost(Sequence(3));
        let four = encode(&mut encoder, 4, Reference::Previous);
        assert_eq!(four.chain.reference, Reference::Acknowledged(Sequence(2)), "{rung} by {h264}");
        let mut decoder = StreamDecoder::new(PIXELS_MAX);
        for (number, frame) in [(2, &two), (4, &four)] {
            decode(&mut decoder, Sequence(number), frame).expect("all that it refers to is there");
        }
    }
}

/// A transcoder's stills are a decoder's pictures, apart from the loss of one more JPEG.
/// Frames that are only decoded continue the chain. A frame that lacks others is refused.
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
                reference: Reference::Previous,
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
                assert!(error < TRANSCODING_ERROR_MAX, "{rung}: mean square error {error:.1}");
            }
            if at > 0 {
                let refused = late.transcode(frame.encoding, place, &frame.payload, true).unwrap_err();
                assert!(refused.is_not_held(), "{rung}: {refused}");
            }
        }
    }
}

/// What an application sees of twelve frames at each rung, recorded to detect any change of any rung's pixels on any machine.
#[test]
fn applications_see_what_was_recorded() {
    let found: Vec<(&str, u64)> = GOLDEN.iter().map(|(rung, _)| (*rung, hash(&seen(rung)))).collect();
    assert_eq!(found, GOLDEN);
}

fn seen(rung: &str) -> Vec<u8> {
    let setting: Setting = rung.parse().unwrap();
    let mut encoder = StreamEncoder::new(PIXELS_MAX).unwrap();
    let (mut edge, mut seen) = (Transcoder::new(PIXELS_MAX).unwrap(), Vec::new());
    for at in 0..12u32 {
        let sequence = Sequence(u64::from(at));
        let source = jpeg(64, 48, at);
        let captured = Instant::from_nanos(u64::from(at) * 66_000_000);
        let reference = Reference::Previous;
        let request = Request { sequence, captured, setting: &setting, bytes_max: None, reference };
        let Outcome::Frame(frame) = encoder.encode(&Source::Jpeg(&source), &request).unwrap() else {
            continue;
        };
        let (mut encoding, mut payload) = (frame.encoding, frame.payload);
        if encoding.is_chained() {
            let still = edge.transcode(encoding, (sequence, &frame.chain), &payload, true).unwrap().unwrap();
            (encoding, payload) = (Encoding::Jpeg, still.payload);
        }
        let from = seen.len();
        seen.resize(from + frame.width as usize * frame.height as usize * 3, 0);
        let mut view =
            ImageViewMut::packed(&mut seen[from..], frame.width, frame.height, PixelFormat::Bgr8).unwrap();
        show(encoding, &payload, &mut view).unwrap();
    }
    seen
}

const GOLDEN: [(&str, u64); 12] = [
    ("original", 10_934_554_801_921_843_850),
    ("jpeg/q70/420", 12_139_206_726_751_310_683),
    ("jpeg/w30/q60/444", 12_290_448_939_370_797_800),
    ("jpeg/q50/gray", 14_065_494_803_346_954_357),
    ("tiles/q80/420", 600_722_734_929_483_437),
    ("tiles/w40/q70/gray", 15_027_733_821_359_252_789),
    ("h264/q28", 7_335_290_839_014_001_543),
    ("h264/w32/q30", 12_778_156_785_497_076_664),
    ("knobs/s50/gray/blur5/png", 15_176_094_974_539_875_005),
    ("knobs/s33/lab/blur8/q95", 10_456_783_450_573_031_525),
    ("knobs/moving/diff1/q90", 9_737_738_471_634_921_277),
    ("knobs/gray/contours/diff0/q70", 13_170_133_054_110_403_424),
];
