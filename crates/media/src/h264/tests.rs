//! A receiver decodes exactly the pictures from which the encoder predicts.
//!
//! A second decoder gets all output of openh264, also what was thrown away or lost, with openh264's own headers. It shows what openh264
//! holds; x264 can show what it holds itself. Receivers get the sent frames, with Mez's headers, with random losses and delays.

use std::collections::{BTreeMap, VecDeque};

use mez_core::setting::Quantiser;
use proptest::prelude::*;

use super::coder::Coder;
use super::native::NativeDecoder;
use super::*;
use crate::image::{Image, ImageView, PixelFormat};
use crate::yuv::Yuv420;

const SIDE: u32 = 48;

/// Blocks of noise, a part of which changes with every picture.
fn picture(at: u32, busy: bool) -> Yuv420 {
    let mut pixels = Vec::new();
    for y in 0..SIDE {
        for x in 0..SIDE {
            let moving = busy || (x + 3 * at) % SIDE < SIDE / 4;
            let seed = (x / 2) * 7919 + (y / 3) * 104_729 + if moving { at * 15_485_863 } else { 0 };
            let noise = seed.wrapping_mul(0x9E37_79B9) >> 25;
            pixels.extend([40 + noise as u8, 90, 200 - noise as u8]);
        }
    }
    let mut planes = Yuv420::empty();
    planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Bgr8).unwrap());
    planes
}

/// An encoder that can show what it holds.
trait Subject: Coder {
    /// `hard`: it keeps as few pictures as possible, and makes as many anchors as possible.
    fn start(hard: bool) -> Self;

    /// The picture coded last, as the next may be predicted from it. `truth` decodes all output.
    fn holds(&mut self, truth: &mut NativeDecoder) -> Result<Image, H264Error>;
}

impl Subject for openh264::Encoder {
    fn start(hard: bool) -> Self {
        let mut encoder = Self::new(SIDE, SIDE).unwrap();
        encoder.set_anchor_bytes_max(usize::MAX);
        if !hard {
            return encoder;
        }
        encoder = encoder.with_many_anchors();
        encoder.set_anchor_bytes_max(usize::MAX);
        encoder
    }

    fn holds(&mut self, truth: &mut NativeDecoder) -> Result<Image, H264Error> {
        let mut held = Image::empty();
        for written in self.written.drain(..) {
            truth.decode(&written, |planes, width, height| {
                crate::yuv::to_bgr(planes, width, height, &mut held);
            })?;
        }
        Ok(held)
    }
}

#[cfg(feature = "x264")]
impl Subject for x264::Encoder {
    fn start(hard: bool) -> Self {
        Self::keeping(SIDE, SIDE, if hard { 5 } else { 16 }).unwrap()
    }

    fn holds(&mut self, _: &mut NativeDecoder) -> Result<Image, H264Error> {
        let mut held = Image::empty();
        self.shown().to_bgr(&mut held);
        Ok(held)
    }
}

#[derive(Debug, Clone, Copy)]
struct Step {
    busy: bool,
    /// Maximum bytes of the picture; `None`: no limit.
    most: Option<usize>,
    /// Whether the frame is lost.
    lost: bool,
    /// Number of frames until the sender learns of the arrival or the loss.
    delay: usize,
    /// Whether an independent frame is requested.
    independent: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        prop::bool::weighted(0.15),
        prop::option::weighted(0.7, prop::sample::select(&[120usize, 200, 300, 500, 900][..])),
        prop::bool::weighted(0.2),
        prop::sample::select(&[0usize, 0, 0, 0, 1, 1, 2, 4][..]),
        prop::bool::weighted(0.05),
    )
        .prop_map(|(busy, most, lost, delay, independent)| Step { busy, most, lost, delay, independent })
}

/// A receiver of frames, like an application's library.
struct Receiver {
    decoder: H264Decoder,
    shown: u32,
}

impl Receiver {
    fn new() -> Self {
        Self { decoder: H264Decoder::new(1 << 16), shown: 0 }
    }

    /// Decodes a frame and compares it with what the encoder holds. An error says what is wrong.
    fn take(&mut self, frame: &H264Frame, number: u64, expected: &Image) -> Result<(), String> {
        match self.decoder.decode(&frame.payload, number, frame.refers) {
            Ok(image) if image == expected => {
                self.shown += 1;
                Ok(())
            }
            Ok(_) => Err(format!("frame {number} ({:?}) was decoded to something else", frame.refers)),
            Err(H264Error::NotHeld { .. }) => Ok(()),
            Err(error) => Err(format!("frame {number}: {error}")),
        }
    }
}

fn play<S: Subject>(steps: &[Step], hard: bool) -> Result<(), String> {
    let mut encoder = S::start(hard);
    let mut truth = NativeDecoder::new().unwrap();
    let (mut receiver, mut reordered) = (Receiver::new(), Receiver::new());
    let mut late: Vec<Receiver> = Vec::new();
    let mut news: VecDeque<(usize, u64, bool)> = VecDeque::new();
    let mut held_back: Option<(H264Frame, u64, Image)> = None;
    let mut recover = false;
    let mut shown: BTreeMap<u64, (H264Frame, Image)> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        let number = 10 + at as u64;
        while let Some(&(_, about, arrived)) = news.iter().find(|(when, ..)| *when <= at) {
            news.retain(|(_, other, _)| *other != about);
            if arrived {
                encoder.acknowledge(about);
            } else {
                encoder.lost(about);
                recover = true;
            }
        }
        let wanted = match () {
            () if step.independent || at == 0 => Wanted::Independent,
            () if recover => Wanted::Acknowledged(number - 1),
            () => Wanted::Previous,
        };
        recover = false;
        let planes = picture(at as u32, step.busy);
        let frame = encoder
            .encode(&planes.view().unwrap(), number, wanted, Quantiser::clamped(22), step.most)
            .map_err(|error| error.to_string())?;
        let expected =
            encoder.holds(&mut truth).map_err(|error| format!("the codec's own stream: {error}"))?;
        if step.independent && frame.refers.is_some() {
            return Err(format!("frame {number} should be independent"));
        }
        if frame.fits != step.most.is_none_or(|most| frame.payload.len() <= most) {
            return Err(format!("frame {number} says {} of its {} bytes", frame.fits, frame.payload.len()));
        }
        // A frame that does not fit is not sent, and the sender knows that immediately.
        let lost = step.lost || !frame.fits;
        let decodes = !lost && {
            let before = receiver.shown;
            receiver.take(&frame, number, &expected)?;
            receiver.shown > before
        };
        if decodes {
            shown.insert(number, (frame.clone(), expected.clone()));
        }
        if !lost {
            late.iter_mut().try_for_each(|joined| joined.take(&frame, number, &expected))?;
            if at % 5 == 4 {
                late.push(Receiver::new());
            }
            // Every other frame overtakes the one before.
            match held_back.take() {
                Some((earlier, its_number, its_image)) => {
                    reordered.take(&frame, number, &expected)?;
                    reordered.take(&earlier, its_number, &its_image)?;
                }
                None => held_back = Some((frame.clone(), number, expected)),
            }
        }
        news.push_back((at + 1 + if frame.fits { step.delay } else { 0 }, number, decodes));
    }
    if let Some((last, _)) = shown.last_key_value() {
        look_at(*last, &shown)?;
    }
    let everything = steps.iter().all(|step| !step.lost && step.most.is_none());
    if everything && receiver.shown as usize != steps.len() {
        return Err("a receiver that lost nothing should show everything".into());
    }
    Ok(())
}

/// To show one frame, only the frames that it needs are decoded.
fn look_at(number: u64, frames: &BTreeMap<u64, (H264Frame, Image)>) -> Result<(), String> {
    let needed = std::iter::successors(Some(number), |number| frames[number].0.refers).collect::<Vec<_>>();
    let mut viewer = Receiver::new();
    let mut needed = needed.iter().rev();
    needed.try_for_each(|needed| viewer.take(&frames[needed].0, *needed, &frames[needed].1))
}

/// Without losses and with enough room, one picture of a chain needs few of those before it.
#[test]
fn one_picture_needs_few_others() {
    for (anchor_bytes_max, most, needed) in [
        (usize::MAX, None, 30..=45),
        (100_000, Some(100_000), 30..=45),
        // Anchors are not allowed, or the link cannot carry them.
        (0, None, 199..=199),
        (100, None, 199..=199),
        // Second attempts also refer to an older picture.
        (100_000, Some(900), 20..=190),
    ] {
        let mut encoder = openh264::Encoder::start(false);
        encoder.set_anchor_bytes_max(anchor_bytes_max);
        let mut needs: Vec<usize> = Vec::new();
        for number in 0..200u64 {
            let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
            let planes = picture(number as u32 % 8, false);
            let finest = Quantiser::clamped(30);
            let frame = encoder.encode(&planes.view().unwrap(), number, wanted, finest, most).unwrap();
            needs.push(frame.refers.map_or(0, |refers| needs[refers as usize] + 1));
            if let Some(arrived) = number.checked_sub(2) {
                encoder.acknowledge(arrived);
            }
        }
        let worst = needs.iter().max().unwrap();
        assert!(needed.contains(worst), "{anchor_bytes_max}, {most:?}: {needs:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_else_is_ever_shown(steps in prop::collection::vec(step(), 1..24), hard: bool) {
        if let Err(error) = play::<openh264::Encoder>(&steps, hard) {
            prop_assert!(false, "{}", error);
        }
    }

    #[cfg(feature = "x264")]
    #[test]
    fn nothing_else_is_ever_shown_of_x264(steps in prop::collection::vec(step(), 1..60), hard: bool) {
        if let Err(error) = play::<x264::Encoder>(&steps, hard) {
            prop_assert!(false, "{}", error);
        }
    }

    /// Foreign bytes are errors, whatever they claim. The decoder continues with the next independent frame.
    #[test]
    fn damage_is_an_error_or_a_picture(
        library in prop::sample::select(Library::ALL),
        at in 0usize..600,
        flip in 1u8..=255,
        cut in prop::option::of(0usize..600),
    ) {
        let mut encoder = H264Encoder::by(library, SIDE, SIDE).unwrap();
        let mut frame = |number: u64, wanted| {
            let planes = picture(number as u32, false);
            encoder.encode(&planes.view().unwrap(), number, wanted, Quantiser::clamped(30), None).unwrap()
        };
        let frames = [frame(0, Wanted::Independent), frame(1, Wanted::Previous), frame(2, Wanted::Independent)];
        let mut decoder = H264Decoder::new(1 << 12);
        for (number, frame) in (0..).zip(&frames[..2]) {
            let mut bytes = frame.payload.to_vec();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            bytes.truncate(cut.unwrap_or(usize::MAX));
            if let Ok(image) = decoder.decode(&bytes, number, frame.refers) {
                prop_assert!(u64::from(image.width()) * u64::from(image.height()) <= 1 << 12);
            }
        }
        prop_assert!(decoder.decode(&frames[2].payload, 2, frames[2].refers).is_ok());
    }
}

/// If acknowledgements are in time, a loss costs a predicted picture, not an independent one.
#[test]
fn a_loss_is_recovered_from_without_an_independent_frame() {
    for library in Library::ALL {
        let mut encoder = H264Encoder::by(*library, SIDE, SIDE).unwrap();
        let mut kinds = Vec::new();
        for number in 0..30u64 {
            let wanted = match number {
                0 => Wanted::Independent,
                number if number % 5 == 0 => Wanted::Acknowledged(number - 2),
                _ => Wanted::Previous,
            };
            let planes = picture(number as u32, false);
            let frame = encoder
                .encode(&planes.view().unwrap(), number, wanted, Quantiser::clamped(30), None)
                .unwrap();
            kinds.push(frame.refers);
            if number % 5 == 4 {
                encoder.lost(number);
            } else {
                encoder.acknowledge(number);
            }
        }
        assert_eq!(kinds.iter().filter(|refers| refers.is_none()).count(), 1, "{library}: {kinds:?}");
        assert_eq!(kinds[5], Some(3));
        assert_eq!(kinds[25], Some(23));
    }
}

/// x264 keeps its last sixteen pictures. So acknowledgements may come seven frames late, and losses still cost no independent picture.
#[cfg(feature = "x264")]
#[test]
fn x264_recovers_however_late_the_news_within_its_pictures() {
    for delay in 0..=7u64 {
        let mut encoder = H264Encoder::by(Library::X264, SIDE, SIDE).unwrap();
        let mut decoder = H264Decoder::new(1 << 12);
        let mut decoded = Vec::new();
        let mut independent = 0;
        for number in 0..120u64 {
            let mut recovers = false;
            if let Some(about) = number.checked_sub(delay + 1) {
                match decoded[about as usize] {
                    true => encoder.acknowledge(about),
                    false => encoder.lost(about),
                }
                recovers = !decoded[about as usize];
            }
            let wanted = match number {
                0 => Wanted::Independent,
                _ if recovers => Wanted::Acknowledged(number - 1),
                _ => Wanted::Previous,
            };
            let planes = picture(number as u32, false);
            let frame = encoder
                .encode(&planes.view().unwrap(), number, wanted, Quantiser::clamped(30), None)
                .unwrap();
            independent += u32::from(frame.refers.is_none());
            let arrives = number % 31 != 30;
            decoded.push(arrives && decoder.decode(&frame.payload, number, frame.refers).is_ok());
        }
        assert_eq!(independent, 1, "with news {delay} frames late");
    }
}
