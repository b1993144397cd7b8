//! Passes frames to Python.

use std::ffi::c_int;
use std::sync::Arc;

use bytes::Bytes;
use mez_core::data::Origin;
use mez_media::stream::{OwnedPicture, StreamDecodeError};
use mez_node::client::ReceivedFrame;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{Py, ffi};

use crate::error;
use crate::pixels::Target;

/// The bytes of a frame. Offers them to Python without a copy, read-only.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Payload(Bytes);

#[pymethods]
impl Payload {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// Called by the interpreter, which gives a `view` that may be written to.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill in"));
        }
        let bytes = &slf.get().0;
        let Ok(length) = ffi::Py_ssize_t::try_from(bytes.len()) else {
            return Err(PyBufferError::new_err("larger than memory can be"));
        };
        // SAFETY: `view` is not null and is ours to fill. The bytes never change or move while `slf` lives, and
        // the view holds a reference to it. They are offered read-only, so nobody writes through the pointer.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), length, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The decoded picture of a frame of video, which nobody has converted to pixels yet.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Picture {
    picture: Arc<OwnedPicture>,
    /// The edge decoded it, for several programs of its host.
    #[pyo3(get)]
    shared: bool,
}

#[pymethods]
impl Picture {
    /// Converts it into `image`, an array of shape (height, width, 3) of its size whose memory has no gaps, as BGR. Does not hold the
    /// interpreter.
    fn show_into(&self, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = image.py();
        let mut target = Target::read(image)?;
        py.detach(|| self.picture.show(&mut target.view()?))
            .map_err(|failure: StreamDecodeError| error::raise(py, "ImageError", failure))
    }
}

/// A frame that was received: all that `mez.Frame` needs to know.
#[pyclass(frozen, get_all, module = "mez._native")]
pub(crate) struct Arrival {
    camera: String,
    epoch: u64,
    sequence: u64,
    captured_ns: u64,
    /// `broker` or `publisher`.
    clock_source: &'static str,
    width: u32,
    height: u32,
    /// Width and height of the frame as it was published.
    published_size: (u32, u32),
    /// `jpeg`, `png`, `bgr8` or `gray8`; with a `picture`, `h264`, `h265`, `av1` or `tiles`.
    encoding: &'static str,
    rung: String,
    accuracy_expected: Option<f64>,
    /// How old it was when this was made, and the most by which that is wrong.
    age_ms: Option<f64>,
    age_error_ms: Option<f64>,
    contract_state: &'static str,
    contract_reason: String,
    infeasible: bool,
    /// Frames skipped before it, by reason.
    skipped: Vec<(&'static str, u64)>,
    /// A stretch before it that is not held: from and to, in nanoseconds, and why.
    not_held: Option<(u64, u64, &'static str)>,
    /// Where it was when: milliseconds since its capture, by stage.
    trace: Vec<(&'static str, f64)>,
    /// When it was captured, by `CLOCK_MONOTONIC` of this machine, in nanoseconds.
    captured_monotonic_ns: Option<u64>,
    /// Payload bytes that crossed the link.
    link_bytes: Option<u64>,
    /// In a group: the how manieth time it is given. 0 outside groups.
    attempt: u32,
    /// What the payload of a data record is.
    content_type: Option<String>,
    /// What a data record was made of: camera, epoch, sequence, capture time in nanoseconds.
    of: Option<(String, u64, u64, u64)>,
    payload: Py<Payload>,
    /// Of video, whose payload is of no use without the frames before it.
    picture: Option<Py<Picture>>,
}

impl Arrival {
    /// Converts a frame for Python. Its age is computed at this moment.
    pub(crate) fn hand_over(py: Python<'_>, frame: ReceivedFrame) -> PyResult<Self> {
        let age = frame.age();
        // To the microsecond: comparisons of clocks are not more exact, and people print the values.
        let ms = |duration: std::time::Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        let (meta, shared) = (frame.meta, frame.is_shared);
        let picture = frame.picture.map(|picture| Py::new(py, Picture { picture, shared }));
        Ok(Self {
            camera: frame.camera.as_str().to_owned(),
            epoch: meta.id.epoch.0,
            sequence: meta.id.sequence.0,
            captured_ns: meta.captured.as_nanos(),
            clock_source: match meta.clock_source {
                mez_core::frame::ClockSource::Broker => "broker",
                mez_core::frame::ClockSource::Publisher => "publisher",
            },
            width: meta.width,
            height: meta.height,
            published_size: meta.published,
            encoding: meta.encoding.name(),
            rung: meta.rung.as_str().to_owned(),
            accuracy_expected: frame.accuracy_expected,
            age_ms: age.map(|(age, _)| ms(age)),
            age_error_ms: age.map(|(_, error)| ms(error)),
            contract_state: frame.contract_state.name(),
            contract_reason: frame.contract_reason,
            infeasible: frame.infeasible,
            skipped: frame.skipped.iter().map(|(reason, count)| (reason.name(), count)).collect(),
            not_held: frame
                .not_held
                .map(|span| (span.begin.as_nanos(), span.end.as_nanos(), span.reason.name())),
            trace: frame.trace.iter().map(|(stage, since)| (stage.name(), ms(since))).collect(),
            captured_monotonic_ns: frame.captured_at.map(|(at, _)| at.as_nanos()),
            link_bytes: frame.link_bytes,
            attempt: frame.attempt,
            content_type: frame.content_type.map(|content_type| content_type.to_string()),
            of: frame.of.map(|Origin { camera, frame, captured }| {
                (camera.as_str().to_owned(), frame.epoch.0, frame.sequence.0, captured.as_nanos())
            }),
            payload: Py::new(py, Payload(frame.payload))?,
            picture: picture.transpose()?,
        })
    }
}
