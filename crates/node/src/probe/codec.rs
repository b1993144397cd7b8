//! Tries the codecs of this build on test pictures.

use std::time::{Duration, Instant};

use mez_core::frame::{Reference, Sequence};
use mez_core::setting::Setting;
use mez_core::units;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{Outcome, Request, Source, StreamDecoder, StreamEncoder};
use mez_media::worker::Worker;
use mez_media::{ImageView, PixelFormat, trial};

/// The size of the test pictures, which is that of a common camera.
const SIZE: (u32, u32) = (640, 480);
/// Number of test pictures. The first is encoded by itself, each other one refers to its predecessor.
const PICTURES: u64 = 4;
/// The largest accepted mean difference between a picture and its decoded form. Broken pictures differ by about 50.
const DIFFERENCE_MAX: f64 = 10.0;
/// The longest time for all pictures. After this, a hanging codec is abandoned.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A codec that works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecTried {
    /// Time to encode the slowest picture.
    pub encoding: Duration,
    /// Time to decode the slowest picture.
    pub decoding: Duration,
    /// The mean difference between original and decoded picture, in steps of 8-bit pixels.
    pub difference: f64,
}

/// Encodes pictures at a rung such as `h264/q28`, decodes them, and compares. Blocks.
///
/// # Errors
/// A description of the failure.
pub fn try_codec(rung: &str) -> Result<CodecTried, String> {
    let setting: Setting = rung.parse().map_err(|error| format!("{rung}: {error}"))?;
    let mut worker = Worker::new("mez doctor codec", || |setting: Setting| tried(&setting));
    worker.run(setting, TIME_MAX).map_err(|error| error.to_string()).flatten()
}

fn tried(setting: &Setting) -> Result<CodecTried, String> {
    let mut encoder = StreamEncoder::new(PIXELS_MAX_DEFAULT).map_err(|error| error.to_string())?;
    let mut decoder = StreamDecoder::new(PIXELS_MAX_DEFAULT);
    let mut worst = CodecTried { encoding: Duration::ZERO, decoding: Duration::ZERO, difference: 0.0 };
    for number in 0..PICTURES {
        let pixels = trial::square(SIZE, number);
        let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Bgr8)
            .map_err(|error| error.to_string())?;
        let request = Request {
            sequence: Sequence(number),
            captured: units::Instant::from_nanos(number * 66_000_000),
            setting,
            bytes_max: None,
            reference: if number == 0 { Reference::Independent } else { Reference::Previous },
        };
        let begun = Instant::now();
        let made = match encoder.encode(&Source::Pixels(view), &request) {
            Ok(Outcome::Frame(made)) => made,
            Ok(other) => return Err(format!("picture {number} was not encoded ({other:?})")),
            Err(error) => return Err(format!("picture {number} was not encoded: {error}")),
        };
        let encoded = Instant::now();
        let size = (made.width, made.height);
        let shown = decoder
            .decode(made.encoding, request.sequence, &made.chain, size, &made.payload)
            .map_err(|error| format!("picture {number} was not decoded: {error}"))?;
        let decoding = encoded.elapsed();
        let difference = trial::difference(&pixels, shown.data());
        if difference.is_none_or(|difference| difference > DIFFERENCE_MAX) {
            return Err(format!("picture {number} was decoded wrongly (difference {difference:?})"));
        }
        worst.encoding = worst.encoding.max(encoded - begun);
        worst.decoding = worst.decoding.max(decoding);
        worst.difference = worst.difference.max(difference.unwrap_or_default());
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codecs_of_this_build_work_and_what_is_no_rung_is_said() {
        for rung in ["h264/q28", "jpeg/q80/420", "tiles/q80/420"] {
            let tried = try_codec(rung).unwrap_or_else(|error| panic!("{rung}: {error}"));
            assert!(tried.difference < DIFFERENCE_MAX, "{rung}: {tried:?}");
        }
        assert!(try_codec("h265/q28").unwrap_err().contains("h265"));
    }

    #[test]
    fn a_picture_that_is_another_one_is_noticed() {
        let picture = trial::square(SIZE, 0);
        let grey = vec![90; picture.len()];
        assert!(trial::difference(&picture, &grey).unwrap() > DIFFERENCE_MAX);
    }
}
