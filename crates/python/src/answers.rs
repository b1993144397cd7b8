//! Answers: pictures that a program makes of frames. Encodes them for the way to the camera, and passes them to the camera's publisher.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use mez_core::answers::{AnswerTimes, Answered};
use mez_core::name::CameraName;
use mez_core::units::Instant;
use mez_core::wire::AnswerSkips;
use mez_media::jpeg::{EncodeError, Encoder, Sampling};
use mez_node::api::image::PayloadError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::pixels::Given;
use crate::runtime::lock;

/// The JPEG qualities of answers, best first.
const QUALITIES: [u8; 9] = [90, 82, 74, 66, 58, 50, 40, 30, 20];
/// If the last answer used less than this part of its limit, the next better quality is tried. One quality lower saves about a sixth of the bytes.
const BETTER_BELOW: f64 = 0.75;
/// Maximum number of times that one answer is encoded. Each takes milliseconds.
const TRIES_MAX: usize = 3;
/// Maximum number of cameras whose last quality is remembered.
const CAMERAS_MAX: usize = 256;
/// Maximum number of idle encoders that are kept for later answers. Each thread that encodes takes one.
const ENCODERS_MAX: usize = 4;

/// An answer as a tuple: epoch, sequence, capture time, width, height, JPEG, times of
/// stages in seconds since the capture, and the answers that were not delivered before it.
pub(crate) type AnswerParts<'py> =
    (u64, u64, u64, (u32, u32), Bound<'py, PyBytes>, Vec<(&'static str, f64)>, Vec<(&'static str, u64)>);

/// Why an image did not become an answer. The exception is raised after the thread is attached to the interpreter again.
enum Unfit {
    Encode(EncodeError),
    Payload(PayloadError),
}

/// Encodes answers so that they fit into the link to their camera. Several threads can encode at the same time.
#[derive(Default)]
pub(crate) struct AnswerEncoder(Mutex<State>);

#[derive(Default)]
struct State {
    idle: Vec<Encoder>,
    /// How the last answer to each camera was encoded.
    last: BTreeMap<CameraName, Last>,
}

/// How an answer was encoded.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Index in [`QUALITIES`].
    place: usize,
    /// Its bytes, relative to the limit; 0 without a limit.
    part: f64,
}

impl AnswerEncoder {
    /// Returns the bytes of a JPEG, or encodes pixels with at most `bytes_max` bytes if a quality allows that.
    pub(crate) fn code(
        &self,
        image: &Bound<'_, PyAny>,
        camera: &CameraName,
        bytes_max: Option<u32>,
    ) -> PyResult<Bytes> {
        let (py, given) = (image.py(), Given::read(image)?);
        let coded = py.detach(|| match given {
            Given::Encoded(bytes) => bytes.take().map(|(bytes, _)| bytes).map_err(Unfit::Payload),
            Given::Pixels(pixels) => {
                let encode = |encoder: &mut Encoder| pixels.encode(encoder);
                self.fit(camera, bytes_max, encode).map_err(Unfit::Encode)
            }
        });
        coded.map_err(|unfit| match unfit {
            Unfit::Encode(failure) => error::encode(py, &failure),
            Unfit::Payload(failure) => error::raise(py, "ImageError", failure),
        })
    }

    fn fit(
        &self,
        camera: &CameraName,
        bytes_max: Option<u32>,
        encode: impl FnMut(&mut Encoder) -> Result<Bytes, EncodeError>,
    ) -> Result<Bytes, EncodeError> {
        let (idle, last) = lock(&self.0).begin(camera);
        let mut encoder = match idle {
            Some(encoder) => encoder,
            None => Encoder::new(QUALITIES[0], Sampling::default())?,
        };
        let (coded, last) = fit(&mut encoder, last, bytes_max, encode)?;
        lock(&self.0).end(camera, encoder, last);
        Ok(coded)
    }
}

impl State {
    fn begin(&mut self, camera: &CameraName) -> (Option<Encoder>, Last) {
        (self.idle.pop(), self.last.get(camera).copied().unwrap_or_default())
    }

    fn end(&mut self, camera: &CameraName, encoder: Encoder, last: Last) {
        if self.idle.len() < ENCODERS_MAX {
            self.idle.push(encoder);
        }
        if self.last.len() == CAMERAS_MAX && !self.last.contains_key(camera) {
            self.last.pop_first();
        }
        self.last.insert(camera.clone(), last);
    }
}

/// Encodes a picture with at most `bytes_max` bytes if a quality allows that. Returns also how it was encoded.
fn fit(
    encoder: &mut Encoder,
    last: Last,
    bytes_max: Option<u32>,
    mut encode: impl FnMut(&mut Encoder) -> Result<Bytes, EncodeError>,
) -> Result<(Bytes, Last), EncodeError> {
    let mut place = if last.part < BETTER_BELOW { last.place.saturating_sub(1) } else { last.place };
    let mut tries = 1;
    loop {
        encoder.set_quality(QUALITIES[place])?;
        let coded = encode(encoder)?;
        let part = bytes_max.map_or(0.0, |most| coded.len() as f64 / f64::from(most.max(1)));
        if part <= 1.0 || tries == TRIES_MAX || place + 1 == QUALITIES.len() {
            return Ok((coded, Last { place, part }));
        }
        // Four qualities lower halve the bytes.
        let steps = (4.0 * part.log2()).ceil().max(1.0) as usize;
        (place, tries) = ((place + steps).min(QUALITIES.len() - 1), tries + 1);
    }
}

/// Converts an answer for Python. `taken`: when Python takes it.
pub(crate) fn parts<'py>(
    py: Python<'py>,
    (answered, skipped): &(Answered, AnswerSkips),
    taken: Instant,
) -> AnswerParts<'py> {
    let Answered { frame, captured, width, height, payload, times } = answered;
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
    let jpeg = PyBytes::new(py, payload);
    (frame.epoch.0, frame.sequence.0, captured.as_nanos(), (*width, *height), jpeg, stages, skipped)
}

/// The number of answers that were not delivered, by reason.
pub(crate) fn skip_parts(skipped: &AnswerSkips) -> Vec<(&'static str, u64)> {
    skipped.iter().map(|(reason, count)| (reason.name(), count)).collect()
}
