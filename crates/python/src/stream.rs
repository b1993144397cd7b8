//! Encodes and decodes one stream without a broker, to measure rungs, with the same code as on a live link.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::setting::{Chains, Setting, default_ladder};
use mez_core::units::Instant;
use mez_media::image::ImageError;
use mez_media::jpeg::PIXELS_MAX_DEFAULT;
use mez_media::stream::{
    Outcome, Request, Source, StreamDecodeError, StreamEncodeError, StreamEncoder, TranscodeError,
    Transcoder, show,
};
use mez_node::api::image::PayloadError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::pixels::{Given, Target};

/// What became of a frame that a rung was asked of.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Coded {
    outcome: &'static str,
    sequence: Sequence,
    payload: Bytes,
    encoding: Encoding,
    size: (u32, u32),
    setting: Option<Setting>,
    link: Option<ChainLink>,
}

#[pymethods]
impl Coded {
    /// `frame`; `left_out` by the rung's differencing; or `does_not_fit` the bytes allowed.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.outcome
    }

    /// Bytes that cross the network; 0 where there is no frame.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.payload.len()
    }

    /// The bytes; empty where there is no frame.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.payload)
    }

    /// How the payload is encoded.
    #[getter]
    fn encoding(&self) -> &'static str {
        self.encoding.name()
    }

    /// Pixels in a row; 0 where there is no frame.
    #[getter]
    fn width(&self) -> u32 {
        self.size.0
    }

    /// Rows; 0 where there is no frame.
    #[getter]
    fn height(&self) -> u32 {
        self.size.1
    }

    /// The rung that was applied, which a byte budget may have made coarser. `None` where there is no frame.
    #[getter]
    fn rung(&self) -> Option<String> {
        self.setting.map(|setting| setting.to_string())
    }

    /// Whether it decodes without any other frame.
    #[getter]
    fn independent(&self) -> bool {
        self.link.is_some_and(|link| link.index == 0)
    }
}

/// Both ends of a stream.
struct Ends {
    encoder: StreamEncoder,
    /// The edge's transcoder. Applications get its stills of frames that need others.
    transcoder: Transcoder,
    next: u64,
}

/// One camera's frames at one rung: what is sent, and what an application sees of it, by way of the edge. Every frame is taken to arrive.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Stream {
    setting: Setting,
    ends: Mutex<Ends>,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (rung, h264_encoder="openh264"))]
    fn new(py: Python<'_>, rung: &str, h264_encoder: &str) -> PyResult<Self> {
        let setting = parse(py, rung)?;
        let h264 = h264_encoder.parse().map_err(|failure| error::argument(py, "h264_encoder", failure))?;
        let encoder =
            StreamEncoder::new(PIXELS_MAX_DEFAULT).map_err(|failure| Unmade::from(failure).raise(py))?;
        let encoder = encoder.with_h264(h264);
        let transcoder =
            Transcoder::new(PIXELS_MAX_DEFAULT).map_err(|failure| error::raise(py, "ImageError", failure))?;
        Ok(Self { setting, ends: Mutex::new(Ends { encoder, transcoder, next: 0 }) })
    }

    /// Makes of the next published frame what the rung says. `image`: pixels, or the bytes of a JPEG. `captured_ns`: on any clock
    /// that never steps. `bytes_max`: the most bytes that may be sent of it. Does not hold the interpreter.
    #[pyo3(signature = (image, captured_ns, bytes_max=None))]
    fn encode(
        &self,
        image: &Bound<'_, PyAny>,
        captured_ns: u64,
        bytes_max: Option<usize>,
    ) -> PyResult<Coded> {
        let py = image.py();
        let given = Given::read(image)?;
        if let Given::Pixels(pixels) = &given
            && (pixels.size().0 == 0 || pixels.size().1 == 0)
        {
            return Err(error::raise(py, "ImageError", StreamEncodeError::Empty));
        }
        py.detach(|| self.make(&given, captured_ns, bytes_max)).map_err(|failure| failure.raise(py))
    }

    /// Decodes a frame into `image`, an array of shape (height, width, 3) of the frame's size, as BGR: what an application sees of it. Frames
    /// of one stream in their order, all of them. Does not hold the interpreter.
    fn decode_into(&self, coded: &Coded, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = image.py();
        let link = coded.link(py)?;
        let mut target = Target::read(image)?;
        if target.size() != coded.size {
            let (is, stated) = (coded.size, target.size());
            return Err(error::raise(py, "ImageError", StreamDecodeError::Size { is, stated }));
        }
        py.detach(|| {
            let still = match coded.encoding.is_chained() {
                true => self.transcode(coded, link, true)?.map(|still| (Encoding::Jpeg, still)),
                false => Some((coded.encoding, coded.payload.clone())),
            };
            let Some((encoding, payload)) = still else { return Ok(()) };
            Ok(show(encoding, &payload, &mut target.view()?)?)
        })
        .map_err(|failure: TranscodeError| error::raise(py, "ImageError", failure))
    }

    /// Takes in a frame that nobody wants to see, as the edge does when a newer one waits. Does not hold the interpreter.
    fn pass_over(&self, py: Python<'_>, coded: &Coded) -> PyResult<()> {
        let link = coded.link(py)?;
        if !coded.encoding.is_chained() {
            return Ok(());
        }
        py.detach(|| self.transcode(coded, link, false))
            .map(|_| ())
            .map_err(|failure| error::raise(py, "ImageError", failure))
    }
}

impl Coded {
    /// The frame's place in its chain.
    fn link(&self, py: Python<'_>) -> PyResult<&ChainLink> {
        self.link.as_ref().ok_or_else(|| {
            let message =
                format!("there is no frame: it was {}; show the frame before it again", self.outcome);
            error::raise(py, "ImageError", message)
        })
    }
}

impl Stream {
    fn make(&self, given: &Given, captured_ns: u64, bytes_max: Option<usize>) -> Result<Coded, Unmade> {
        let jpeg;
        let source = match given {
            Given::Pixels(pixels) => Source::Pixels(pixels.view()?),
            Given::Encoded(encoded) => {
                jpeg = encoded.take()?.0;
                Source::Jpeg(&jpeg)
            }
        };
        let mut ends = self.ends();
        let sequence = Sequence(ends.next);
        ends.next += 1;
        let request = Request {
            sequence,
            captured: Instant::from_nanos(captured_ns),
            setting: &self.setting,
            bytes_max,
            reference: Reference::Previous,
        };
        let outcome = ends.encoder.encode(&source, &request)?;
        if matches!(outcome, Outcome::Frame(_)) {
            ends.encoder.acknowledge(sequence);
        }
        Ok(coded(outcome, sequence))
    }

    fn transcode(
        &self,
        coded: &Coded,
        link: &ChainLink,
        wanted: bool,
    ) -> Result<Option<Bytes>, TranscodeError> {
        let place = (coded.sequence, link);
        let still = self.ends().transcoder.transcode(coded.encoding, place, &coded.payload, wanted)?;
        Ok(still.map(|still| still.payload))
    }

    /// Locks the ends, even after a panic of a codec. The codecs' own state decides what can still be decoded.
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn coded(outcome: Outcome, sequence: Sequence) -> Coded {
    let nothing = |outcome| Coded {
        outcome,
        sequence,
        payload: Bytes::new(),
        encoding: Encoding::Jpeg,
        size: (0, 0),
        setting: None,
        link: None,
    };
    match outcome {
        Outcome::Frame(frame) => Coded {
            outcome: "frame",
            sequence,
            payload: frame.payload,
            encoding: frame.encoding,
            size: (frame.width, frame.height),
            setting: Some(frame.setting),
            link: Some(frame.chain),
        },
        Outcome::LeftOut { .. } => nothing("left_out"),
        Outcome::DoesNotFit { .. } => nothing("does_not_fit"),
    }
}

/// The size in pixels of what a rung makes of frames of `width` × `height`, and whether its frames need earlier ones to be decoded,
/// and how many frames it leaves out after each.
#[pyfunction]
pub(crate) fn rung_facts(
    py: Python<'_>,
    rung: &str,
    width: u32,
    height: u32,
) -> PyResult<((u32, u32), bool, u8)> {
    let setting = parse(py, rung)?;
    Ok((setting.size((width, height)), setting.is_chained(), setting.skip))
}

/// The names of the rungs that a camera of `width` × `height` pixels chooses from without a profile, best first. `family`: `h264`,
/// `tiles` or `jpeg`.
#[pyfunction]
pub(crate) fn default_rungs(py: Python<'_>, width: u32, height: u32, family: &str) -> PyResult<Vec<String>> {
    let chains = match family {
        "h264" => Chains::ALL,
        "tiles" => Chains::TILES,
        "jpeg" => Chains::NONE,
        _ => {
            let message = format!("family is {family:?}; give \"h264\", \"tiles\" or \"jpeg\"");
            return Err(error::argument(py, "family", message));
        }
    };
    Ok(default_ladder((width, height), chains)
        .iter()
        .map(|setting| setting.rung().as_str().to_owned())
        .collect())
}

fn parse(py: Python<'_>, rung: &str) -> PyResult<Setting> {
    rung.parse().map_err(|failure| error::argument(py, "rung", failure))
}

/// Why a frame could not be encoded.
enum Unmade {
    Encode(StreamEncodeError),
    Payload(PayloadError),
}

impl Unmade {
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Encode(failure @ StreamEncodeError::NoOriginal) => error::argument(py, "rung", failure),
            Self::Encode(failure) => error::raise(py, "ImageError", failure),
            Self::Payload(failure) => error::raise(py, "ImageError", failure),
        }
    }
}

impl From<StreamEncodeError> for Unmade {
    fn from(failure: StreamEncodeError) -> Self {
        Self::Encode(failure)
    }
}

impl From<ImageError> for Unmade {
    fn from(failure: ImageError) -> Self {
        Self::Encode(failure.into())
    }
}

impl From<PayloadError> for Unmade {
    fn from(failure: PayloadError) -> Self {
        Self::Payload(failure)
    }
}
