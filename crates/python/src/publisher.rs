//! Publishes frames through a camera broker in this process, or through a separate one.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::DERIVED_BYTES_MAX;
use mez_core::broker::{PublishError, Published};
use mez_core::data::{DataRecord, Origin};
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence};
use mez_core::log::LogConfig;
use mez_core::name::CameraName;
use mez_core::units::{Instant, Timestamp};
use mez_media::jpeg::{EncodeError, Encoder, Sampling};
use mez_node::api::image::PayloadError;
use mez_node::background::Background;
use mez_node::camera::{CameraBroker, CameraHandle, CameraOptions, Reply, SourceNews, StartError};
use mez_node::client::DerivedStream;
use mez_node::clock::monotonic_now;
use mez_node::identity::Role;
use mez_node::ports::EdgeAddress;
use mez_node::reply::ReplyContent;
use mez_node::state::StateError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::edges::{self, addresses};
use crate::knobs::Knobs;
use crate::options::{FOR_EVER, seconds, transport};
use crate::persist::{self, LogOnDisk};
use crate::pixels::Given;
use crate::reply::DetectionsParts;
use crate::runtime::{Deadline, Owned, Waited, background, lock, wait};
use crate::through::{Refusal, Through};
use crate::{answers, error, keys, log, reply};

/// How long to wait until a broker of the same camera that was just closed or killed releases its state.
const HANDOVER: Duration = Duration::from_secs(1);

/// How long to wait until the brokers know that a publisher ends.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// A publisher of one camera's frames.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Publisher {
    /// `None` after closing.
    way: Owned<Mutex<Option<Way>>>,
    closed: AtomicBool,
    encoder: Mutex<Encoder>,
    camera: String,
    /// Where its frames go, for messages.
    place: String,
    frame_bytes_max: u32,
    published: AtomicU64,
    refused: AtomicU64,
}

/// How frames get into the camera's log.
#[derive(Clone)]
enum Way {
    /// Through a broker in this process.
    Here(CameraHandle),
    /// Through a broker in another process, or at an edge.
    Through(Arc<Through>),
}

impl Way {
    /// The connection to the edge, if this is a derived stream.
    fn to_edge(&self) -> Option<&Arc<Through>> {
        match self {
            Self::Through(through) if through.is_derived() => Some(through),
            Self::Here(_) | Self::Through(_) => None,
        }
    }
}

/// Epoch, sequence, application, and either opaque bytes or detections.
type ReplyParts<'py> = (u64, u64, String, Option<Bound<'py, PyBytes>>, Option<DetectionsParts>);

/// Why an image did not become a frame. The exception is raised after the thread is attached to the interpreter again.
enum Unfit {
    Encode(EncodeError),
    Payload(PayloadError),
    TooLarge(usize),
    Publish(PublishError),
    Through(Refusal),
}

#[pymethods]
impl Publisher {
    /// Starts a camera broker in this process, which sends to the first of `edges` that is there (none: that of this host, else the one that
    /// answers on the local network); or connects to one at `broker`.
    #[new]
    #[pyo3(signature = (camera, *, edges, broker, keys, quality, memory_bytes, frame_bytes_max, state, link, h264_encoder, store, history_share, knobs))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        camera: &str,
        edges: Vec<String>,
        broker: Option<&str>,
        keys: Option<PathBuf>,
        quality: u8,
        memory_bytes: u64,
        frame_bytes_max: u32,
        state: Option<PathBuf>,
        link: &str,
        h264_encoder: &str,
        store: Option<LogOnDisk>,
        history_share: f64,
        knobs: Option<PyRef<'_, Knobs>>,
    ) -> PyResult<Self> {
        let name: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let encoder =
            Encoder::new(quality, Sampling::default()).map_err(|failure| error::encode(py, &failure))?;
        let (way, place, background) = if let Some(broker) = broker {
            let background = background(py)?;
            let through = Through::connect(py, background, &name, broker, keys.as_deref())?;
            (Way::Through(Arc::new(through)), format!("the camera broker at {broker}"), background)
        } else {
            let named = edges.iter().map(|edge| {
                EdgeAddress::parse(edge).ok_or_else(|| {
                    let text = format!("{edge:?} is not an edge's address; write HOST or HOST:PORT");
                    error::argument(py, "edge", text)
                })
            });
            let mut edges = named.collect::<PyResult<Vec<_>>>()?;
            let credentials = keys::credentials(py, keys.as_deref(), Role::Camera, Some(camera))?;
            let background = background(py)?;
            if edges.is_empty() {
                edges.push(edges::of_publisher(py, background, &credentials, keys.as_deref())?);
            }
            let places: Vec<String> = edges.iter().map(|edge| format!("the edge at {edge}")).collect();
            let mut options = CameraOptions::new(name, edges, credentials);
            options.log = LogConfig::with_bytes_max(memory_bytes);
            options.frame_bytes_max = frame_bytes_max;
            options.state = state;
            options.transport = transport(py, link)?;
            options.h264 =
                h264_encoder.parse().map_err(|failure| error::argument(py, "h264_encoder", failure))?;
            options.persist = persist::options(py, store, keys.as_deref())?;
            options.history_share = history_share;
            options.knobs = knobs.map(|knobs| knobs.stream());
            (Way::Here(start(py, background, options)?), places.join(" or "), background)
        };
        Ok(Self {
            way: Owned::new(background, "publisher", Mutex::new(Some(way))),
            closed: AtomicBool::new(false),
            encoder: Mutex::new(encoder),
            camera: camera.to_owned(),
            place,
            frame_bytes_max,
            published: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Publishes a derived stream at the first of `edges` that takes it, trying again for `patience` seconds. `of`: the streams that it is made
    /// of; empty: the one below which its name lies.
    #[staticmethod]
    #[pyo3(signature = (stream, *, of, edges, keys, quality, patience))]
    fn at_edge(
        py: Python<'_>,
        stream: &str,
        of: Vec<String>,
        edges: Vec<String>,
        keys: Option<PathBuf>,
        quality: u8,
        patience: Option<f64>,
    ) -> PyResult<Self> {
        let name: CameraName = stream.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let source = |name: &String| name.parse().map_err(|failure| error::argument(py, "of", failure));
        let of = of.iter().map(source).collect::<PyResult<_>>()?;
        let encoder =
            Encoder::new(quality, Sampling::default()).map_err(|failure| error::encode(py, &failure))?;
        let patience = seconds(py, "connect_timeout", patience)?.unwrap_or(FOR_EVER);
        let background = background(py)?;
        let addresses = addresses(py, background, &edges, (keys.as_deref(), patience))?;
        let places: Vec<String> = addresses.iter().map(|edge| format!("the edge at {edge}")).collect();
        let derived = DerivedStream { name, of };
        let through = Through::connect_to_edge(py, background, &derived, addresses, (keys, patience))?;
        Ok(Self {
            way: Owned::new(background, "publisher", Mutex::new(Some(Way::Through(Arc::new(through))))),
            closed: AtomicBool::new(false),
            encoder: Mutex::new(encoder),
            camera: stream.to_owned(),
            place: places.join(" or "),
            frame_bytes_max: DERIVED_BYTES_MAX,
            published: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Publishes an image and returns (epoch, sequence); `None` where a separate broker did not take the
    /// frame.
    #[pyo3(signature = (image, captured_ns=None))]
    fn send(&self, image: &Bound<'_, PyAny>, captured_ns: Option<u64>) -> PyResult<Option<(u64, u64)>> {
        // The frame's age counts from here, so that it includes the encoding.
        let now = monotonic_now();
        let py = image.py();
        log::hand_on(py);
        let way = self.way(py)?;
        let published = self.publish(&way, image, now, captured_ns);
        self.counted(published)
    }

    /// Publishes a data record and returns (epoch, sequence); `None` where a separate broker did not take it. `of`: camera, epoch, sequence
    /// and capture time in nanoseconds of what it was made of.
    #[pyo3(signature = (payload, content_type, of=None, captured_ns=None))]
    fn send_data(
        &self,
        py: Python<'_>,
        payload: PyBackedBytes,
        content_type: &str,
        of: Option<(String, u64, u64, u64)>,
        captured_ns: Option<u64>,
    ) -> PyResult<Option<(u64, u64)>> {
        log::hand_on(py);
        let way = self.way(py)?;
        let published = record(py, payload, content_type, of)
            .and_then(|record| self.publish_data(py, &way, record, captured_ns));
        self.counted(published)
    }

    /// Waits until a record of a derived stream is on disk at the edge. Returns (reason, message) if the edge says that it is not.
    fn wait_on_disk(&self, py: Python<'_>, epoch: u64, sequence: u64) -> PyResult<Option<(String, String)>> {
        log::hand_on(py);
        let way = self.way(py)?;
        let Some(through) = way.to_edge() else {
            let message = "only a derived stream waits for the edge's disk; give of= as well";
            return Err(error::argument(py, "acknowledge", message));
        };
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        match py.detach(|| through.wait_on_disk(frame)) {
            Ok(()) => Ok(None),
            Err(Refusal::Broker(refusal)) => Ok(Some((refusal.reason, refusal.message))),
            Err(Refusal::Away { .. }) => {
                let message = format!(
                    "{} was lost before it confirmed that record {frame} of {} is on disk; ask again when it is back",
                    self.place, self.camera
                );
                Err(error::raise(py, "ConnectError", message))
            }
            Err(refusal) => Err(self.unfit(py, &way, Unfit::Through(refusal), None)),
        }
    }

    /// Says that the source of the frames gives none for now, and why.
    fn lost(&self, py: Python<'_>, reason: String) -> PyResult<()> {
        log::hand_on(py);
        match self.way(py)? {
            Way::Here(camera) => camera.tell_source(SourceNews::Lost { reason, retry: None }),
            Way::Through(through) => through.tell_lost(&reason),
        }
        Ok(())
    }

    /// Whether the edge has the camera connected; of a separate broker: whether that is there.
    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<bool> {
        log::hand_on(py);
        Ok(match &*lock(self.way.get(py)?.0) {
            Some(Way::Here(camera)) => camera.is_up(),
            Some(Way::Through(through)) => through.is_connected(),
            None => false,
        })
    }

    /// The address of the edge that has the camera connected; `None` without one, and of a separate broker.
    #[getter]
    fn edge(&self, py: Python<'_>) -> PyResult<Option<String>> {
        log::hand_on(py);
        Ok(match &*lock(self.way.get(py)?.0) {
            Some(Way::Here(camera)) => camera.edge().borrow().as_ref().map(ToString::to_string),
            Some(Way::Through(_)) | None => None,
        })
    }

    /// Waits until it is connected.
    #[pyo3(signature = (timeout=None))]
    fn wait_connected(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = Deadline::after(py, timeout)?;
        let background = self.way.get(py)?.1;
        let waited = match self.way(py)? {
            Way::Here(camera) => {
                let mut edge = camera.edge();
                let up = pin!(async { edge.wait_for(Option::is_some).await.is_ok() });
                wait(py, background, deadline, Some(&self.closed), up)?
            }
            Way::Through(through) => {
                let is_connected = std::future::poll_fn(|_| match through.is_connected() {
                    true => std::task::Poll::Ready(true),
                    // Checked again with every slice of the wait.
                    false => std::task::Poll::Pending,
                });
                wait(py, background, deadline, Some(&self.closed), pin!(is_connected))?
            }
        };
        match waited {
            Waited::Done(true) => Ok(()),
            Waited::Done(false) | Waited::Stopped => Err(self.over(py)),
            Waited::TimedOut => {
                let why = log::last_trouble(&self.camera).map(|why| format!(": {why}")).unwrap_or_default();
                let (camera, place, seconds) = (&self.camera, &self.place, timeout.unwrap_or_default());
                let message = format!("camera {camera} was not connected to {place} within {seconds} s{why}");
                Err(error::raise(py, "WaitTimeoutError", message))
            }
        }
    }

    /// The next reply of an application, as (epoch, sequence, application, payload, detections); `None` where
    /// `timeout` passes first.
    #[pyo3(signature = (timeout=None))]
    fn next_reply<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<ReplyParts<'py>>> {
        let deadline = Deadline::after(py, timeout)?;
        let background = self.way.get(py)?.1;
        let waited = match self.way(py)? {
            Way::Here(camera) => {
                let reply = pin!(camera.next_reply());
                wait(py, background, deadline, Some(&self.closed), reply)?
            }
            Way::Through(through) => {
                through.next_reply(py, deadline, || self.closed.load(Ordering::Relaxed))?
            }
        };
        match waited {
            Waited::Done(Reply { frame, application, content }) => {
                let (payload, found) = match content {
                    ReplyContent::Opaque(bytes) => (Some(PyBytes::new(py, &bytes)), None),
                    ReplyContent::Detections(detections) => (None, Some(reply::parts(detections))),
                };
                Ok(Some((frame.epoch.0, frame.sequence.0, application, payload, found)))
            }
            Waited::TimedOut => Ok(None),
            Waited::Stopped => Err(self.over(py)),
        }
    }

    /// Takes answers that leave the edge no later than `answer_s` seconds after their frame's capture; with `None`, takes none.
    #[pyo3(signature = (answer_s))]
    fn take_answers(&self, py: Python<'_>, answer_s: Option<f64>) -> PyResult<()> {
        let bound = seconds(py, "answer_ms", answer_s)?;
        match (self.answering(py)?, bound) {
            (Way::Here(camera), bound) => camera.set_answers(bound),
            (Way::Through(through), None) => through.end_answers(),
            (Way::Through(through), Some(bound)) => through.begin_answers(py, self.way.get(py)?.1, bound)?,
        }
        Ok(())
    }

    /// The newest answer, once there is one that was not given yet; `None` where `timeout` passes first, or no answers are taken any more.
    #[pyo3(signature = (timeout=None))]
    fn next_answer<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<answers::AnswerParts<'py>>> {
        let deadline = Deadline::after(py, timeout)?;
        let (way, background) = (self.answering(py)?, self.way.get(py)?.1);
        let next = async {
            match &way {
                Way::Here(camera) => Ok(camera.next_answer().await),
                Way::Through(through) => through.next_answer().await,
            }
        };
        match wait(py, background, deadline, Some(&self.closed), pin!(next))? {
            Waited::Done(Ok(None)) if self.closed() => Err(self.over(py)),
            Waited::Done(Ok(next)) => Ok(next.map(|next| answers::parts(py, &next, monotonic_now()))),
            Waited::Done(Err(failure)) => Err(error::client(py, &failure)),
            Waited::TimedOut => Ok(None),
            Waited::Stopped => Err(self.over(py)),
        }
    }

    /// All answers that were not given so far, by reason.
    fn answers_skipped(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        Ok(answers::skip_parts(&match self.answering(py)? {
            Way::Here(camera) => camera.answers_skipped(),
            Way::Through(through) => through.answers_skipped(),
        }))
    }

    /// Frames published so far.
    #[getter]
    fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Calls of `send` that raised.
    #[getter]
    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Frames that a separate broker did not take: it was away, or busy with the one before.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(match &*lock(self.way.get(py)?.0) {
            Some(Way::Through(through)) => {
                let counts = through.counts();
                counts.dropped + counts.lost
            }
            _ => 0,
        })
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Stops publishing; a thread that waits for replies stops waiting. Closing twice does nothing, and
    /// neither does closing what a parent process opened.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.way.is_ours() {
            return Ok(());
        }
        self.closed.store(true, Ordering::Relaxed);
        let (way, background) = self.way.get(py)?;
        let way = lock(way).take();
        // The edge must learn of the orderly end, and frames in the log must reach the disk if there is a store.
        py.detach(|| match &way {
            Some(Way::Here(camera)) => {
                camera.finish_log();
                camera.end_source();
                background.wait(pin!(camera.leave()), FAREWELL_TIME_MAX);
            }
            Some(Way::Through(through)) => {
                background.wait(pin!(through.finish()), FAREWELL_TIME_MAX);
            }
            None => {}
        });
        background.enter(|| drop(way));
        log::hand_on(py);
        Ok(())
    }
}

/// Makes a data record, and checks its parts.
fn record(
    py: Python<'_>,
    payload: PyBackedBytes,
    content_type: &str,
    of: Option<(String, u64, u64, u64)>,
) -> PyResult<DataRecord> {
    let content_type =
        content_type.parse().map_err(|failure| error::argument(py, "content_type", failure))?;
    let of = of.map(|(camera, epoch, sequence, captured_ns)| {
        let camera = camera.parse().map_err(|failure| error::argument(py, "of", failure))?;
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        PyResult::Ok(Origin { camera, frame, captured: Timestamp::from_nanos(captured_ns) })
    });
    Ok(DataRecord { content_type, of: of.transpose()?, body: Bytes::from_owner(payload) })
}

impl Publisher {
    /// The result of `send`, counted.
    fn counted(&self, published: PyResult<Option<FrameId>>) -> PyResult<Option<(u64, u64)>> {
        match &published {
            Ok(Some(_)) => self.published.fetch_add(1, Ordering::Relaxed),
            Ok(None) => 0,
            Err(_) => self.refused.fetch_add(1, Ordering::Relaxed),
        };
        Ok(published?.map(|id| (id.epoch.0, id.sequence.0)))
    }

    fn publish_data(
        &self,
        py: Python<'_>,
        way: &Way,
        record: DataRecord,
        captured_ns: Option<u64>,
    ) -> PyResult<Option<FrameId>> {
        let (bytes, bytes_max) = (record.body.len(), self.bytes_max(way));
        if bytes > bytes_max as usize {
            return Err(error::too_large(py, bytes as u64, bytes_max.into()));
        }
        let captured = captured_ns.map(Timestamp::from_nanos);
        py.detach(|| match way {
            Way::Here(camera) => {
                camera.publish(Published::data(&record, captured)).map(Some).map_err(Unfit::Publish)
            }
            Way::Through(through) => {
                through.publish(|client| client.send_data(record, captured)).map_err(Unfit::Through)
            }
        })
        .map_err(|unfit| self.unfit(py, way, unfit, captured_ns))
    }

    fn way(&self, py: Python<'_>) -> PyResult<Way> {
        lock(self.way.get(py)?.0).clone().ok_or_else(|| self.over(py))
    }

    fn over(&self, py: Python<'_>) -> PyErr {
        error::closed(py, &format!("publisher of camera {}", self.camera))
    }

    fn publish(
        &self,
        way: &Way,
        image: &Bound<'_, PyAny>,
        had: Instant,
        captured_ns: Option<u64>,
    ) -> PyResult<Option<FrameId>> {
        let py = image.py();
        let given = Given::read(image)?;
        let published = py.detach(|| {
            let (payload, (width, height)) = self.payload(&given)?;
            let captured = captured_ns.map(Timestamp::from_nanos);
            let frame = Published { payload, encoding: Encoding::Jpeg, width, height, captured };
            match way {
                Way::Here(camera) => camera.publish_at(had, frame).map(Some).map_err(Unfit::Publish),
                Way::Through(through) => {
                    through.publish(|client| client.send_at(had, frame)).map_err(Unfit::Through)
                }
            }
        });
        published.map_err(|unfit| self.unfit(py, way, unfit, captured_ns))
    }

    fn unfit(&self, py: Python<'_>, way: &Way, unfit: Unfit, captured_ns: Option<u64>) -> PyErr {
        match unfit {
            Unfit::Encode(failure) => error::encode(py, &failure),
            Unfit::Payload(failure) => error::raise(py, "ImageError", failure),
            Unfit::TooLarge(bytes) => error::too_large(py, bytes as u64, self.bytes_max(way).into()),
            Unfit::Publish(failure) => error::publish(py, &failure),
            Unfit::Through(Refusal::Send(failure)) => error::send(py, &failure),
            Unfit::Through(Refusal::Broker(refusal)) => error::refused_frame(py, &refusal, captured_ns),
            Unfit::Through(Refusal::Over(failure)) => error::client(py, &failure),
            Unfit::Through(Refusal::Away { is_sent }) => {
                let (stream, place) = (&self.camera, &self.place);
                let message = match is_sent {
                    true => format!(
                        "{place} was lost before it confirmed the record: {stream} may have the record or not; publish the record again if a \
                         duplicate does no harm"
                    ),
                    false => {
                        format!(
                            "{place} cannot be reached, and the record is not in {stream}; publish it again later"
                        )
                    }
                };
                error::raise(py, "ConnectError", message)
            }
        }
    }

    /// The frame's bytes and its size in pixels. Takes milliseconds.
    fn payload(&self, given: &Given) -> Result<(Bytes, (u32, u32)), Unfit> {
        match given {
            Given::Pixels(pixels) => {
                let payload = pixels.encode(&mut lock(&self.encoder)).map_err(Unfit::Encode)?;
                Ok((payload, pixels.size()))
            }
            // The limit is checked before memory is taken.
            Given::Encoded(bytes) if bytes.len() > self.frame_bytes_max as usize => {
                Err(Unfit::TooLarge(bytes.len()))
            }
            Given::Encoded(bytes) => bytes.take().map_err(Unfit::Payload),
        }
    }

    /// The way on which answers come. Those to a derived stream do not exist.
    fn answering(&self, py: Python<'_>) -> PyResult<Way> {
        let way = self.way(py)?;
        if way.to_edge().is_some() {
            let message =
                "answers are made of a camera's frames, and this is a derived stream; leave of= out";
            return Err(error::argument(py, "of", message));
        }
        Ok(way)
    }

    /// The lowest limit for a frame's bytes.
    fn bytes_max(&self, way: &Way) -> u32 {
        match way {
            Way::Here(_) => self.frame_bytes_max,
            Way::Through(through) => self.frame_bytes_max.min(through.frame_bytes_max()),
        }
    }
}

/// Starts a broker. A broker of the same camera that was just closed may not have released its state yet.
fn start(py: Python<'_>, background: &'static Background, options: CameraOptions) -> PyResult<CameraHandle> {
    let deadline = monotonic_now() + HANDOVER;
    loop {
        match background.enter(|| CameraBroker::start(options.clone())) {
            Ok(camera) => return Ok(camera),
            Err(StartError::State(StateError::Held { .. })) if monotonic_now() < deadline => {
                py.detach(|| std::thread::sleep(Duration::from_millis(10)));
                py.check_signals()?;
            }
            Err(failure) => return Err(error::start(py, &failure)),
        }
    }
}
