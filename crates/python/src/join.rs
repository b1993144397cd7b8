//! Joins frames with the records that were made of them.

use std::sync::Mutex;

use mez_core::data::Origin;
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::join::{Join as Joins, JoinConfig, Joined};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use mez_node::clock::monotonic_now;
use pyo3::prelude::*;

use crate::error;
use crate::options::{FOR_EVER, seconds};
use crate::runtime::lock;

/// A result: `"pair"`, `"stray"` or `"never_met"`; the frame; records; and why something is missing.
type JoinedParts = (&'static str, Option<Py<PyAny>>, Vec<Py<PyAny>>, Option<String>);

/// Brings frames and records together. Any thread may use it, and nothing waits.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Join {
    join: Mutex<Joins<Py<PyAny>, Py<PyAny>>>,
}

#[pymethods]
impl Join {
    #[new]
    #[pyo3(signature = (*, within, records, waiting_max, bytes_max, strange_after, past))]
    fn new(
        py: Python<'_>,
        within: f64,
        records: usize,
        waiting_max: usize,
        bytes_max: u64,
        strange_after: f64,
        past: bool,
    ) -> PyResult<Self> {
        let time = |field, given| PyResult::Ok(seconds(py, field, Some(given))?.unwrap_or(FOR_EVER));
        let (within, strange_after) = (time("within_ms", within)?, time("strange_after", strange_after)?);
        let (frames_max, records_max) = (waiting_max, waiting_max);
        let config =
            JoinConfig { within, records, frames_max, records_max, bytes_max, strange_after, is_past: past };
        Ok(Self { join: Mutex::new(Joins::new(config)) })
    }

    /// A frame has come, of so many bytes.
    fn frame(
        &self,
        py: Python<'_>,
        camera: &str,
        place: (u64, u64, u64),
        frame: Py<PyAny>,
        size: u64,
    ) -> PyResult<()> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let (id, captured) = self::place(place);
        lock(&self.join).handle_frame(monotonic_now(), (&camera, id, captured), frame, size);
        Ok(())
    }

    /// A record has come, of so many bytes, published at `published_ns`. `of`: camera, epoch, sequence and capture time of its frame.
    fn record(
        &self,
        py: Python<'_>,
        of: Option<(String, u64, u64, u64)>,
        published_ns: u64,
        record: Py<PyAny>,
        size: u64,
    ) -> PyResult<()> {
        let of = of.map(|(camera, epoch, sequence, captured_ns)| {
            let camera = camera.parse().map_err(|failure| error::argument(py, "of", failure))?;
            let (frame, captured) = place((epoch, sequence, captured_ns));
            PyResult::Ok(Origin { camera, frame, captured })
        });
        let (of, published) = (of.transpose()?, Timestamp::from_nanos(published_ns));
        lock(&self.join).handle_record(monotonic_now(), (of.as_ref(), published), record, size);
        Ok(())
    }

    /// No frames follow.
    fn frames_ended(&self) {
        lock(&self.join).handle_frames_ended();
    }

    /// No records follow.
    fn records_ended(&self) {
        lock(&self.join).handle_records_ended();
    }

    /// What comes out next, if anything does now.
    fn poll(&self) -> Option<JoinedParts> {
        let joined = lock(&self.join).poll(monotonic_now())?;
        Some(match joined {
            Joined::Pair { frame, records, missing } => {
                ("pair", Some(frame), records, missing.map(|missing| missing.name().into()))
            }
            Joined::Stray { record, reason } => ("stray", None, vec![record], Some(reason.name().into())),
            Joined::NeverMet(told) => ("never_met", None, Vec::new(), Some(told.to_string())),
        })
    }

    /// In how many seconds something comes out although nothing comes in.
    #[getter]
    fn due(&self) -> Option<f64> {
        let due = lock(&self.join).poll_timeout()?;
        Some(due.saturating_since(monotonic_now()).as_secs_f64())
    }

    /// Whether the next frame of the past has room, and the next record.
    #[getter]
    fn wants(&self) -> (bool, bool) {
        let join = lock(&self.join);
        (join.wants_frame(), join.wants_record())
    }

    /// Frames and records that wait, and their bytes.
    #[getter]
    fn waiting(&self) -> (usize, usize, u64) {
        lock(&self.join).waiting()
    }

    /// Frames and records that came; frames with all their records, and with fewer; records with their frames, and without.
    #[getter]
    fn counts(&self) -> (u64, u64, u64, u64, u64, u64) {
        let counts = lock(&self.join).counts();
        (counts.frames, counts.records, counts.whole, counts.missing, counts.matched, counts.strays)
    }
}

/// The identity and the capture time of a frame.
fn place((epoch, sequence, captured_ns): (u64, u64, u64)) -> (FrameId, Timestamp) {
    let id = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
    (id, Timestamp::from_nanos(captured_ns))
}
