//! Computes what a rung promises of a picture, independently of the code that encodes and shows it.

use mez_core::setting::{ColourSpace, Form, Sampling, Setting, StillCoding};
use mez_media::jpeg::{Decoder, Encoder};
use mez_media::knobs::{Knobs, Turned, colour};
use mez_media::resize::{Filter, Resizer};
use mez_media::stream::{Encoded, Outcome, Source};
use mez_media::{Image, PixelFormat, png};

/// Checks for each frame of a stream that it shows what its rung promises.
#[derive(Default)]
pub struct Declared {
    knobs: Knobs,
    resizer: Resizer,
}

impl Declared {
    /// Reports that a frame was lost or not sent.
    pub fn not_sent(&mut self) {
        self.knobs.not_sent();
    }

    /// Checks an encoder's result for a frame, and what a receiver without losses shows (`None`: nothing).
    pub fn check(
        &mut self,
        source: &Source<'_>,
        setting: &Setting,
        outcome: &Outcome,
        shown: Option<&Image>,
    ) -> Result<(), String> {
        let original = pixels(source);
        if let Form::Knobs(settings) = setting.form {
            let turned = self.knobs.turn(&settings, &original.view().unwrap()).unwrap();
            return match (turned, outcome) {
                (Turned::LeftOut { difference }, Outcome::LeftOut { difference: said })
                    if difference == *said =>
                {
                    Ok(())
                }
                (Turned::Image(image), Outcome::Frame(frame)) => turned_as_said(image, frame, shown),
                (Turned::Image(_), Outcome::DoesNotFit { .. }) => {
                    self.knobs.not_sent();
                    Ok(())
                }
                (turned, outcome) => Err(format!("{setting}: {turned:?}, but {outcome:?}")),
            };
        }
        let (Outcome::Frame(frame), Some(shown)) = (outcome, shown) else { return Ok(()) };
        self.near(&original, frame, shown)
    }

    /// For lossy rungs: the luma is that of the picture at the frame's size, within the error that the quality allows.
    fn near(&mut self, original: &Image, frame: &Encoded, shown: &Image) -> Result<(), String> {
        let (mut wanted, mut found, mut grey) = (Image::empty(), Image::empty(), Image::empty());
        colour::convert(original, ColourSpace::Gray, &mut grey);
        self.resizer
            .resize(&grey.view().unwrap(), (frame.width, frame.height), Filter::Area, &mut wanted)
            .unwrap();
        colour::convert(shown, ColourSpace::Gray, &mut found);
        let squares = wanted.data().iter().zip(found.data()).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2));
        let error = squares.sum::<u64>() as f64 / wanted.data().len() as f64;
        let most = error_max(&frame.setting);
        if error <= most {
            Ok(())
        } else {
            Err(format!("{} is off by a mean square of {error:.0}, at most {most:.0}", frame.setting))
        }
    }
}

/// The frame must show the output of the five knobs: exactly if it is a PNG, otherwise as JPEG of its quality reproduces it.
fn turned_as_said(turned: &Image, frame: &Encoded, shown: Option<&Image>) -> Result<(), String> {
    let Form::Knobs(made) = frame.setting.form else { return Err(format!("{} is no knob", frame.setting)) };
    let view = turned.view().unwrap();
    let (payload, mut expected) = match made.coding {
        StillCoding::Png => (png::encode(&view).unwrap(), turned.clone()),
        StillCoding::Jpeg(quality) => {
            let payload = Encoder::new(quality.get(), Sampling::Yuv420).unwrap().encode(&view).unwrap();
            let mut image = Image::empty();
            Decoder::default().decode_bgr(&payload, &mut image).unwrap();
            (payload, image)
        }
    };
    if expected.format() == PixelFormat::Gray8 {
        let colour = expected.data().iter().flat_map(|grey| [*grey; 3]).collect();
        expected = Image::from_packed(colour, turned.width(), turned.height(), PixelFormat::Bgr8).unwrap();
    }
    if payload != frame.payload {
        return Err(format!("{}: the payload is not that of the turned image", frame.setting));
    }
    match shown == Some(&expected) {
        true => Ok(()),
        false => Err(format!("{}: shows something else than the knobs say", frame.setting)),
    }
}

/// The pixels of a published frame.
pub fn pixels(source: &Source<'_>) -> Image {
    match source {
        Source::Jpeg(bytes) => {
            let mut image = Image::empty();
            Decoder::default().decode_bgr(bytes, &mut image).unwrap();
            image
        }
        Source::Pixels(view) => {
            let data = view.rows().flatten().copied().collect();
            Image::from_packed(data, view.width(), view.height(), view.format()).unwrap()
        }
        Source::Planes(planes) => {
            let mut image = Image::empty();
            planes.to_bgr(&mut image);
            image
        }
    }
}

/// Maximum mean square error of a setting for the pictures of these tests. Another frame of the same scene differs by 700.
fn error_max(setting: &Setting) -> f64 {
    let step = match setting.form {
        // Steps double every six quantisers (ITU-T H.264, 8.5.9).
        Form::H264(h264) => 0.625 * 2f64.powf(f64::from(h264.quantiser.get()) / 6.0),
        Form::Jpeg(jpeg) | Form::Tiles(jpeg) => {
            // The middle of the table of ITU-T T.81 (K.1), scaled as libjpeg does.
            let quality = f64::from(jpeg.quality.get());
            50.0 * (if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 })
        }
        Form::Original | Form::Knobs(_) | Form::Data(_) => 0.0,
    };
    let unchanged = if matches!(setting.form, Form::Tiles(_)) { 40.0 } else { 0.0 };
    (30.0 + unchanged + step * step / 12.0).min(400.0)
}
