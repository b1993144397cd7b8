//! What a rung says becomes of a picture, worked out beside the code that makes and shows it.

use mez_core::setting::{ColourSpace, Form, Sampling, Setting, StillCoding};
use mez_media::jpeg::{Decoder, Encoder};
use mez_media::knobs::{Knobs, Turned, colour};
use mez_media::resize::{Filter, Resizer};
use mez_media::stream::{Encoded, Outcome, Source};
use mez_media::{Image, PixelFormat, png};

/// Follows a stream of frames, and says of each whether it shows what its rung says.
#[derive(Default)]
pub struct Declared {
    knobs: Knobs,
    resizer: Resizer,
}

impl Declared {
    /// A frame was lost, or not sent.
    pub fn not_sent(&mut self) {
        self.knobs.not_sent();
    }

    /// Looks at what was made of a frame, and at what a receiver shows of it that lost nothing (`None` where there is nothing to show).
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

    /// Lossy rungs: the brightness is that of the picture at the frame's size, but for what its quality takes.
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

/// What the five knobs leave is what the frame shows, to the last bit where it is coded as PNG, and else what JPEG of its quality leaves of it.
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

/// The pixels of a frame as it was published.
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

/// The mean square error that a setting may leave of this file's pictures. Another frame of the same scene is off by 700.
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
