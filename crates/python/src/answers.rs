//! Answers to frames: pictures, overlays and boxes. Encodes them for the way to the camera, and passes them to the camera's publisher.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use mez_core::answers::{AnswerKind, AnswerTimes, Answered};
use mez_core::name::CameraName;
use mez_core::units::Instant;
use mez_core::wire::AnswerSkips;
use mez_media::fit::{Ladder, Last};
use mez_media::jpeg::{EncodeError, Encoder, Sampling};
use mez_media::overlay::{self, Effort};
use mez_media::resize::{Filter, Resizer};
use mez_media::{Image, PixelFormat};
use mez_node::api::image::{PayloadError, answer_kind};
use mez_node::client::AnswerContent;
use mez_node::reply::Detections;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::pixels::{Given, Pixels};
use crate::reply::DetectionsParts;
use crate::runtime::lock;
use crate::{error, reply};

/// How pictures are encoded, best first: by how much their sides are divided, and with which JPEG quality. The device stretches them again.
const PICTURES: [(u32, u8); 14] = [
    (1, 90),
    (1, 82),
    (1, 74),
    (1, 66),
    (1, 58),
    (1, 50),
    (1, 40),
    (1, 30),
    (1, 20),
    (2, 50),
    (2, 30),
    (4, 50),
    (4, 30),
    (8, 50),
];
/// Their bytes, from pictures of streets: four qualities lower, a picture has half. Half the side saves two thirds.
const PICTURE_LADDER: Ladder = Ladder {
    sizes: &[1.0, 0.84, 0.71, 0.59, 0.50, 0.42, 0.35, 0.30, 0.25, 0.13, 0.093, 0.043, 0.033, 0.015],
};
/// How overlays are encoded, best first: by how much their sides are divided, and with which effort. The device stretches them over the frame.
const OVERLAYS: [(u32, Effort); 5] =
    [(1, Effort::Fast), (1, Effort::Small), (2, Effort::Small), (4, Effort::Small), (8, Effort::Small)];
/// Their bytes: the effort saves four fifths, and half the side about three fifths.
const OVERLAY_LADDER: Ladder = Ladder { sizes: &[1.0, 0.2, 0.08, 0.032, 0.013] };
/// Maximum number of cameras whose last quality is remembered.
const CAMERAS_MAX: usize = 256;
/// Maximum number of idle encoders that are kept for later answers. Each thread that encodes takes one.
const ENCODERS_MAX: usize = 4;

/// An answer as a tuple: epoch, sequence, capture time, kind, its size as coded and as shown, payload, its boxes if it has any, times of
/// stages in seconds since the capture, and the answers that were not delivered before it.
pub(crate) type AnswerParts<'py> = (
    u64,
    u64,
    u64,
    &'static str,
    [(u32, u32); 2],
    Bound<'py, PyBytes>,
    Option<DetectionsParts>,
    Vec<(&'static str, f64)>,
    Vec<(&'static str, u64)>,
);

/// Why an image did not become an answer. The exception is raised after the thread is attached to the interpreter again.
enum Unfit {
    Encode(EncodeError),
    Payload(PayloadError),
    Scale(String),
    Overlay(String),
}

impl Unfit {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Encode(failure) => error::encode(py, &failure),
            Self::Payload(failure) => error::raise(py, "ImageError", failure),
            Self::Scale(failure) | Self::Overlay(failure) => error::raise(py, "ImageError", failure),
        }
    }
}

/// Encodes answers so that they fit into the link to their camera. Several threads can encode at the same time.
#[derive(Default)]
pub(crate) struct AnswerEncoder(Mutex<State>);

#[derive(Default)]
struct State {
    idle: Vec<Encoder>,
    /// How the last picture for each camera was encoded: places in [`PICTURES`].
    pictures: BTreeMap<CameraName, Last>,
    /// The same for overlays: places in [`OVERLAYS`].
    overlays: BTreeMap<CameraName, Last>,
}

impl AnswerEncoder {
    /// Takes the bytes of a JPEG or of an overlay, or encodes pixels to a JPEG of at most `bytes_max` bytes if a size and a quality allow that.
    pub(crate) fn picture(
        &self,
        image: &Bound<'_, PyAny>,
        camera: &CameraName,
        bytes_max: u32,
    ) -> PyResult<AnswerContent> {
        let (py, given) = (image.py(), Given::read(image)?);
        let coded = py.detach(|| match given {
            Given::Encoded(bytes) => {
                let bytes = bytes.copied();
                answer_kind(&bytes).map(|_| AnswerContent::Coded(bytes)).map_err(Unfit::Payload)
            }
            Given::Pixels(pixels) => self.fit_picture(camera, bytes_max, &pixels),
        });
        coded.map_err(|unfit| unfit.raise(py))
    }

    /// Encodes the pixels of an overlay, with alpha, to a PNG of at most `bytes_max` bytes if a size allows that.
    pub(crate) fn overlay(
        &self,
        image: &Bound<'_, PyAny>,
        camera: &CameraName,
        bytes_max: u32,
    ) -> PyResult<Bytes> {
        let (py, given) = (image.py(), Given::read(image)?);
        let Given::Pixels(pixels) = given else {
            return Err(error::raise(py, "ImageError", "the overlay has one dimension; pass pixels in rows"));
        };
        let coded = py.detach(|| self.fit_overlay(camera, bytes_max, &pixels).map_err(Unfit::Overlay));
        coded.map_err(|unfit| unfit.raise(py))
    }

    fn fit_picture(
        &self,
        camera: &CameraName,
        bytes_max: u32,
        pixels: &Pixels,
    ) -> Result<AnswerContent, Unfit> {
        let (idle, last) = {
            let mut state = lock(&self.0);
            (state.idle.pop(), state.pictures.get(camera).copied().unwrap_or_default())
        };
        let mut encoder = match idle {
            Some(encoder) => encoder,
            None => Encoder::new(PICTURES[0].1, Sampling::default()).map_err(Unfit::Encode)?,
        };
        let (width, height) = pixels.size();
        // The side was divided by this at the last try.
        let (mut scaled, mut divided) = (Image::empty(), 1);
        let (coded, last) = PICTURE_LADDER.fit(last, bytes_max, |place| {
            let (divisor, quality) = PICTURES[place];
            encoder.set_quality(quality).map_err(Unfit::Encode)?;
            // A picture of a few pixels stays as it is.
            if divisor == 1 || width < divisor || height < divisor {
                divided = 1;
                return pixels.encode(&mut encoder).map_err(Unfit::Encode);
            }
            if divided != divisor {
                let view = pixels.view().map_err(|failure| Unfit::Scale(failure.to_string()))?;
                let size = (width.div_ceil(divisor), height.div_ceil(divisor));
                let resized = Resizer::new().resize(&view, size, Filter::Area, &mut scaled);
                resized.map_err(|failure| Unfit::Scale(failure.to_string()))?;
                divided = divisor;
            }
            let view = scaled.view().ok_or_else(|| Unfit::Scale("the picture is empty".into()))?;
            encoder.encode(&view).map_err(Unfit::Encode)
        })?;
        let mut state = lock(&self.0);
        if state.idle.len() < ENCODERS_MAX {
            state.idle.push(encoder);
        }
        remember(&mut state.pictures, camera, last);
        Ok(match divided {
            1 => AnswerContent::Coded(coded),
            _ => AnswerContent::Smaller(coded, (width, height)),
        })
    }

    fn fit_overlay(&self, camera: &CameraName, bytes_max: u32, pixels: &Pixels) -> Result<Bytes, String> {
        let view = pixels.view().map_err(|failure| failure.to_string())?;
        if view.format() != PixelFormat::Bgra8 {
            return Err(format!(
                "an overlay of {}; pass (height, width, 4): blue, green, red, alpha",
                view.format()
            ));
        }
        let last = lock(&self.0).overlays.get(camera).copied().unwrap_or_default();
        let (coded, last) = OVERLAY_LADDER.fit(last, bytes_max, |place| {
            let (divisor, effort) = OVERLAYS[place];
            if divisor == 1 {
                return overlay::encode(&view, effort).map_err(|failure| failure.to_string());
            }
            let size = (view.width().div_ceil(divisor), view.height().div_ceil(divisor));
            let scaled = overlay::scale(&view, size).map_err(|failure| failure.to_string())?;
            let scaled = scaled.view().ok_or("the overlay is empty")?;
            overlay::encode(&scaled, effort).map_err(|failure| failure.to_string())
        })?;
        remember(&mut lock(&self.0).overlays, camera, last);
        Ok(coded)
    }
}

fn remember(of: &mut BTreeMap<CameraName, Last>, camera: &CameraName, last: Last) {
    if of.len() == CAMERAS_MAX && !of.contains_key(camera) {
        of.pop_first();
    }
    of.insert(camera.clone(), last);
}

/// Converts an answer for Python. `taken`: when Python takes it.
pub(crate) fn parts<'py>(
    py: Python<'py>,
    (answered, skipped): &(Answered, AnswerSkips),
    taken: Instant,
) -> AnswerParts<'py> {
    let Answered { frame, captured, kind, width, height, shown, payload, times } = answered;
    let AnswerTimes { captured: begun, up, made, sent, arriving, arrived } = *times;
    let stages = [
        ("up", up),
        ("made", made),
        ("sent", sent),
        ("arriving", Some(arriving)),
        ("arrived", Some(arrived)),
        ("taken", Some(taken)),
    ];
    let since = |(name, at): (_, Option<Instant>)| Some((name, at?.saturating_since(begun).as_secs_f64()));
    let stages = stages.into_iter().filter_map(since).collect();
    let skipped = skip_parts(skipped);
    let boxes = match kind {
        // Damaged boxes are told when they are looked at, as damaged pixels are.
        AnswerKind::Boxes => Detections::from_bytes(payload).ok().map(reply::parts),
        AnswerKind::Picture | AnswerKind::Overlay => None,
    };
    let (id, coded) = ((frame.epoch.0, frame.sequence.0), PyBytes::new(py, payload));
    (id.0, id.1, captured.as_nanos(), kind.name(), [(*width, *height), *shown], coded, boxes, stages, skipped)
}

/// The number of answers that were not delivered, by reason.
pub(crate) fn skip_parts(skipped: &AnswerSkips) -> Vec<(&'static str, u64)> {
    skipped.iter().map(|(reason, count)| (reason.name(), count)).collect()
}
