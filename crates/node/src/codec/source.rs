//! Decodes frames of a source's own video, together with the frames that they refer to, from the camera's log.

use mez_core::ancestors::{parent, with_ancestors};
use mez_core::frame::{Epoch, Frame, FrameId};
use mez_core::log::LogReader;
use mez_core::units::Instant;
use mez_media::Yuv420;
use mez_media::h264::{H264Decoder, H264Error};
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::platform::{PlatformDecoder, PlatformError};
use tracing::warn;

use crate::clock::monotonic_now;
use crate::decoders::Decoders;

/// The part of a frame's remaining time that its ancestors may take: one third. Ancestors
/// beyond this are left to the next frame, so that each call comes closer to the newest frame.
const DECODING_SHARE: u32 = 3;

/// The result of decoding a frame.
pub(super) enum Decoded<'a> {
    /// Its picture.
    Picture(&'a Yuv420),
    /// There was no time for all its ancestors. The next call continues after the last decoded one.
    NotYet,
    /// The log does not hold all frames that it refers to, or one of them is damaged. Nothing can be decoded before the source's next key frame.
    Lacking,
}

/// Decodes frames of one camera's log. Keeps its state, so that no frame is decoded twice.
pub(super) struct SourceDecoder {
    log: LogReader,
    decoder: H264Decoder,
    /// The decoder of H.265 and AV1.
    platform: PlatformDecoder,
    /// The epoch of the frames in the decoder.
    epoch: Epoch,
    /// The frame whose planes the decoder holds.
    shown: Option<FrameId>,
    /// The newest frame that could not be decoded. Frames that refer to it cannot be decoded either.
    damaged: Option<FrameId>,
}

impl SourceDecoder {
    /// A decoder without frames.
    pub(super) fn new(log: LogReader, decoders: &Decoders) -> Self {
        let decoder = H264Decoder::new(PIXELS_MAX_DEFAULT);
        Self {
            log,
            decoder: match decoders.outside() {
                Some(outside) => decoder.with_outside(outside),
                None => decoder,
            },
            platform: PlatformDecoder::new(PIXELS_MAX_DEFAULT, Some(decoders.platform())),
            epoch: Epoch(0),
            shown: None,
            damaged: None,
        }
    }

    /// Decodes a frame, and before it the frames that it refers to. Each call decodes at least one of them.
    pub(super) fn decode(&mut self, frame: &Frame, deadline: Instant) -> Decoded<'_> {
        if self.shown == Some(frame.meta.id) {
            // The frame is encoded again, at another size.
            return Decoded::Picture(self.planes(frame));
        }
        let begun = monotonic_now();
        let until = begun + deadline.saturating_since(begun) / DECODING_SHARE;
        if self.epoch != frame.meta.id.epoch {
            self.decoder.forget();
            self.platform.forget();
            self.epoch = frame.meta.id.epoch;
        }
        if frame.meta.encoding.is_foreign() {
            return self.decode_outside(frame, until);
        }
        let Some(frames) = self.lacking(frame, self.decoder.newest()) else { return Decoded::Lacking };
        for (place, next) in frames.iter().enumerate() {
            if place > 0 && monotonic_now() >= until {
                return Decoded::NotYet;
            }
            if let Err(error) = self.step(next, next.meta.id == frame.meta.id) {
                warn!(frame = %next.meta.id, "a picture of the source cannot be decoded, nor can pictures that depend on it: {error}");
                (self.shown, self.damaged) = (None, Some(next.meta.id));
                return Decoded::Lacking;
            }
        }
        self.shown = Some(frame.meta.id);
        Decoded::Picture(self.decoder.planes())
    }

    /// Like `decode`, with a decoder in another process. It gets all missing frames
    /// at once. Pictures that it does not return in time are taken by the next call.
    fn decode_outside(&mut self, frame: &Frame, until: Instant) -> Decoded<'_> {
        match self.try_outside(frame, until) {
            Ok(Some(true)) => {
                self.shown = Some(frame.meta.id);
                Decoded::Picture(self.platform.planes())
            }
            Ok(Some(false)) => Decoded::NotYet,
            Ok(None) => Decoded::Lacking,
            Err(error) => {
                warn!(frame = %frame.meta.id, "a picture of the source cannot be decoded, nor can pictures that depend on it: {error}");
                (self.shown, self.damaged) = (None, Some(frame.meta.id));
                Decoded::Lacking
            }
        }
    }

    /// Whether the picture is available. `None` if the log lacks a frame that it refers to.
    fn try_outside(&mut self, frame: &Frame, until: Instant) -> Result<Option<bool>, PlatformError> {
        let number = frame.meta.id.sequence.0;
        let left = || until.saturating_since(monotonic_now());
        if !self.platform.has(number) {
            let Some(frames) = self.lacking(frame, self.platform.newest()) else { return Ok(None) };
            for next in &frames {
                while !self.platform.has_room() {
                    if !self.platform.take_one(left())? {
                        return Ok(Some(false));
                    }
                }
                let refers = parent(&next.meta).map(|refers| refers.sequence.0);
                self.platform.give(next.meta.encoding, &next.payload, next.meta.id.sequence.0, refers)?;
            }
        }
        self.platform.take(number, left()).map(Some)
    }

    /// The frames that a decoder needs for `frame`, if `newest` is its newest one. `None` if the log lacks one of them, or one is damaged.
    fn lacking(&self, frame: &Frame, newest: Option<u64>) -> Option<Vec<Frame>> {
        let frames = with_ancestors(&self.log, frame, |id| Some(id.sequence.0) == newest)?;
        let is_damaged = frames.iter().any(|next| Some(next.meta.id) == self.damaged);
        (!is_damaged).then_some(frames)
    }

    fn planes(&self, frame: &Frame) -> &Yuv420 {
        if frame.meta.encoding.is_foreign() { self.platform.planes() } else { self.decoder.planes() }
    }

    /// Decodes one frame. Copies its planes only if it is shown.
    fn step(&mut self, next: &Frame, is_shown: bool) -> Result<(), H264Error> {
        let (number, refers) = (next.meta.id.sequence.0, parent(&next.meta).map(|refers| refers.sequence.0));
        match is_shown {
            true => self.decoder.decode_planes(&next.payload, number, refers).map(drop),
            false => self.decoder.pass(&next.payload, number, refers),
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::broker::{Intake, IntakeConfig, Published, StreamPart};
    use mez_core::frame::Encoding;
    use mez_core::log::{LogConfig, log};
    use mez_media::bitstream::{AccessUnits, Entry};
    use mez_media::h264::{ForeignEncoder, ForeignOptions};
    use mez_media::{ImageView, PixelFormat};

    use super::*;
    use crate::clock::anchor;

    const SIDE: u32 = 64;

    /// A camera's log with its source's pictures: noise below, and above it a brightness that encodes the picture's number.
    struct Camera {
        intake: Intake,
        log: LogReader,
        encoder: ForeignEncoder,
        parser: AccessUnits,
        pictures: u32,
        /// The picture that is published damaged.
        damages: Option<u32>,
    }

    impl Camera {
        fn new(log_bytes: u64, key_frame_interval: u32, temporal_layers: u32) -> Self {
            let (writer, log) = log(LogConfig::with_bytes_max(log_bytes));
            let intake = Intake::new(writer, IntakeConfig::new(Epoch(1), anchor()));
            let (width, height, quantiser, slices) = (SIDE, SIDE, 24, 1);
            let options =
                ForeignOptions { width, height, quantiser, key_frame_interval, temporal_layers, slices };
            let encoder = ForeignEncoder::new(&options).unwrap();
            Self { intake, log, encoder, parser: AccessUnits::default(), pictures: 0, damages: None }
        }

        fn publish(&mut self, pictures: u32) -> Frame {
            for _ in 0..pictures {
                let noise =
                    |at: u32| (at.wrapping_mul(2_654_435_761) ^ (self.pictures * 77)).to_le_bytes()[2];
                let pixel = |at: u32| if at < SIDE * 16 { brightness(self.pictures) } else { noise(at) };
                let pixels: Vec<u8> = (0..SIDE * SIDE).map(pixel).collect();
                let mut planes = Yuv420::empty();
                planes.fill_from(&ImageView::packed(&pixels, SIDE, SIDE, PixelFormat::Gray8).unwrap());
                let payload = self.encoder.encode(&planes.view().unwrap()).unwrap();
                let unit = self.parser.packet(&payload).unwrap().unwrap();
                let part = match unit.entry {
                    Some(Entry::Key) => StreamPart::Key,
                    _ => StreamPart::Following { is_needed: unit.is_needed },
                };
                let (encoding, captured) = (Encoding::H264, None);
                let payload = match self.damages == Some(self.pictures) {
                    // No H.264 unit begins like this.
                    true => vec![0, 0, 0, 1, 0x81, 0x9A, 0x80].into(),
                    false => unit.payload,
                };
                let frame = Published { payload, encoding, width: SIDE, height: SIDE, captured };
                self.intake.publish_part(monotonic_now(), frame, part).unwrap();
                self.pictures += 1;
            }
            self.log.newest().unwrap().frame
        }
    }

    fn brightness(number: u32) -> u8 {
        20 + (number % 20 * 11) as u8
    }

    /// Whether these planes show the picture with this number.
    fn shows(decoded: &Decoded<'_>, number: u32) -> bool {
        let Decoded::Picture(planes) = decoded else { panic!("there was time") };
        let luma = planes.view().unwrap().luma()[0];
        luma.abs_diff(brightness(number)) <= 4
    }

    fn in_an_hour() -> Instant {
        monotonic_now() + std::time::Duration::from_secs(3600)
    }

    #[test]
    fn a_frame_is_decoded_with_those_that_it_needs_and_the_next_goes_on_from_there() {
        for layers in [1, 2] {
            let mut camera = Camera::new(1 << 24, 50, layers);
            let mut decoder = SourceDecoder::new(camera.log.clone(), &Decoders::software());
            for (more, number) in [(30, 29), (1, 30), (9, 39), (1, 40), (30, 70), (5, 75)] {
                let frame = camera.publish(more);
                let planes = decoder.decode(&frame, in_an_hour());
                assert!(shows(&planes, number), "{number} of {layers} layers");
                let again = decoder.decode(&frame, in_an_hour());
                assert!(shows(&again, number), "made once more: {number} of {layers} layers");
            }
        }
    }

    /// However little time there is, each call decodes one more frame, and none is decoded twice.
    #[test]
    fn what_takes_too_long_goes_on_with_the_next_frame() {
        let mut camera = Camera::new(1 << 24, 0, 1);
        let mut decoder = SourceDecoder::new(camera.log.clone(), &Decoders::software());
        let frame = camera.publish(40);
        for _ in 0..20 {
            assert!(matches!(decoder.decode(&frame, monotonic_now()), Decoded::NotYet));
        }
        let newer = camera.publish(5);
        for _ in 20..44 {
            assert!(matches!(decoder.decode(&newer, monotonic_now()), Decoded::NotYet));
        }
        assert!(shows(&decoder.decode(&newer, monotonic_now()), 44));
    }

    /// Without the beginning of its chain, no frame can be decoded until the next key frame, unless the decoder holds the frames that it refers to.
    #[test]
    fn a_chain_whose_beginning_is_gone_is_told() {
        let mut camera = Camera::new(40 << 10, 400, 1);
        let mut following = SourceDecoder::new(camera.log.clone(), &Decoders::software());
        for number in 0..399 {
            let frame = camera.publish(1);
            assert!(shows(&following.decode(&frame, in_an_hour()), number));
        }
        let frame = camera.publish(1);
        let mut late = SourceDecoder::new(camera.log.clone(), &Decoders::software());
        assert!(matches!(late.decode(&frame, in_an_hour()), Decoded::Lacking));
        let frame = camera.publish(2);
        assert!(shows(&late.decode(&frame, in_an_hour()), 401), "behind a key frame");
    }

    /// A damaged picture is tried once, and so are the frames that refer to it. The next key frame ends the damage.
    #[test]
    fn a_damaged_picture_costs_what_needs_it() {
        let mut camera = Camera::new(1 << 24, 20, 1);
        camera.damages = Some(10);
        let mut decoder = SourceDecoder::new(camera.log.clone(), &Decoders::software());
        for number in 0..40 {
            let frame = camera.publish(1);
            let decoded = decoder.decode(&frame, in_an_hour());
            match number {
                10..20 => assert!(matches!(decoded, Decoded::Lacking), "{number}"),
                _ => assert!(shows(&decoded, number)),
            }
            assert_eq!(decoder.damaged.map(|id| id.sequence.0), (number >= 10).then_some(10));
        }
    }
}
