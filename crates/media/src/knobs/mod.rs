//! The five knobs of the Mez paper (section 2.3.1), one module each, and applied in their order ([`Knobs`]).
//!
//! | knob | here | OpenCV's name for it |
//! | --- | --- | --- |
//! | 1 resolution | [`crate::resize`] with [`crate::resize::Filter::Linear`] | `resize` |
//! | 2 colour space | [`colour`] | `cvtColor` |
//! | 3 blur | [`blur`] | `blur` |
//! | 4 artefact removal | [`artefacts`] | `absdiff`, `threshold`, `dilate`, `findContours` |
//! | 5 frame differencing | [`difference`] | `absdiff` |
//!
//! Settings are those of [`mez_core::setting`]. Results depend only on the input, and are equal to the last bit on every machine.

pub mod artefacts;
pub mod blur;
pub mod colour;
pub mod difference;

use mez_core::setting::{ColourSpace, Knobs as Settings, Scale};

use self::artefacts::Motion;
use self::difference::LastSent;
use crate::image::{Image, ImageView, PixelFormat};
use crate::resize::{Filter, ResizeError, Resizer};

/// The result of the five knobs for one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Turned<'a> {
    /// The modified image.
    Image(&'a Image),
    /// Knob 5 leaves the frame out: this share of its pixels differs from the last frame that was sent.
    LeftOut {
        /// 0 (no pixel differs) to 1.
        difference: f64,
    },
}

/// The five knobs of one stream. Knobs 4 and 5 compare with earlier frames, so a stream has its own.
#[derive(Debug, Default)]
pub struct Knobs {
    resizer: Resizer,
    motion: Motion,
    last_sent: LastSent,
    image: Image,
    spare: Image,
}

impl Knobs {
    /// Knobs that have seen no frame.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the knobs. A frame that is not left out counts as sent until [`Knobs::not_sent`].
    ///
    /// # Errors
    /// [`ResizeError`].
    pub fn turn(&mut self, settings: &Settings, source: &ImageView<'_>) -> Result<Turned<'_>, ResizeError> {
        let size = match settings.scale {
            Scale::Full => (source.width(), source.height()),
            scale => scale.size((source.width(), source.height())),
        };
        self.resizer.resize(source, size, Filter::Linear, &mut self.image)?;
        // None of the colour spaces has alpha.
        if self.image.format() == PixelFormat::Bgra8 {
            drop_alpha(&self.image, &mut self.spare);
            std::mem::swap(&mut self.image, &mut self.spare);
        }
        if settings.colour != ColourSpace::Bgr {
            colour::convert(&self.image, settings.colour, &mut self.spare);
            std::mem::swap(&mut self.image, &mut self.spare);
        }
        if let Some(blur) = settings.blur {
            blur::blur(&self.image, blur.side(), &mut self.spare);
            std::mem::swap(&mut self.image, &mut self.spare);
        }
        self.motion.remove(settings.artefacts, &mut self.image);
        if let Some(most) = settings.difference {
            let difference = self.last_sent.difference(&self.image);
            if difference <= f64::from(most.get()) / 100.0 {
                return Ok(Turned::LeftOut { difference });
            }
            self.last_sent.sent(&self.image);
        }
        Ok(Turned::Image(&self.image))
    }

    /// Reports that the last image was not sent, so knob 5 does not compare with it.
    pub fn not_sent(&mut self) {
        self.last_sent.forget();
    }

    /// Forgets all earlier frames.
    pub fn reset(&mut self) {
        self.motion = Motion::default();
        self.last_sent = LastSent::default();
    }
}

fn drop_alpha(source: &Image, target: &mut Image) {
    let mut output = target.reset(source.width(), source.height(), PixelFormat::Bgr8);
    for (bgr, bgra) in output.data_mut().chunks_exact_mut(3).zip(source.data().chunks_exact(4)) {
        bgr.copy_from_slice(&bgra[..3]);
    }
}
