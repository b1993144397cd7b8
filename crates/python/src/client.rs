//! A connection to an edge broker: subscribes, and lists cameras.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::ANSWER_BYTES_MAX;
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, Span};
use mez_core::units::Timestamp;
use mez_node::client::{
    AnswerContent, CameraSummary, ClientOptions, DECODED_HERE, EdgeClient, Resume, SubscribeOptions,
};
use mez_node::identity::Role;
use pyo3::prelude::*;

use crate::answers::AnswerEncoder;
use crate::edges::addresses;
use crate::note::NoteParts;
use crate::options::{
    ContractArguments, FOR_EVER, GroupArguments, choice, last_frame, membership, pattern, quality, seconds,
};
use crate::reply::DetectionsParts;
use crate::runtime::{Deadline, Owned, Waited, background, finish, wait};
use crate::subscription::{SourceParts, Subscription, source_parts};
use crate::{error, keys, note, reply};

/// Encodings that an application may accept, for error messages.
const ENCODINGS: &str = r#""jpeg", "png", "bgr8", "gray8", "h264", "h265", "av1" or "tiles""#;

fn accepted(py: Python<'_>, name: &str) -> PyResult<Encoding> {
    Encoding::from_name(name).ok_or_else(|| choice(py, "accept", name, ENCODINGS))
}

/// A connection to an edge broker: cameras, subscriptions, replies.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Client {
    client: Owned<EdgeClient>,
    answers: AnswerEncoder,
}

impl Client {
    /// Sends what `content` makes as an answer. It gets the limit of bytes.
    fn answer_with(
        &self,
        py: Python<'_>,
        camera: &str,
        (epoch, sequence): (u64, u64),
        content: impl FnOnce(&CameraName, u32) -> PyResult<AnswerContent>,
    ) -> PyResult<()> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let client = &self.client.get(py)?.0;
        if let Some(refusal) = client.refused_answer(&camera) {
            return Err(error::refused(py, &refusal));
        }
        let room = client.answer_room(&camera).and_then(|room| room.bytes);
        let bytes_max = room.map_or(ANSWER_BYTES_MAX, |room| room.min(ANSWER_BYTES_MAX));
        let sent = client.answer(&camera, frame, content(&camera, bytes_max)?);
        sent.map_err(|failure| error::raise(py, "FrameTooLargeError", failure))
    }
}

#[pymethods]
impl Client {
    /// Connects to the first of `edges` that answers, else of `MEZ_EDGE`, else to the edge broker of this host, else to the one that answers on
    /// the local network, trying again for `patience` seconds.
    #[new]
    #[pyo3(signature = (edges, *, keys, application, patience))]
    fn new(
        py: Python<'_>,
        edges: Vec<String>,
        keys: Option<PathBuf>,
        application: Option<String>,
        patience: Option<f64>,
    ) -> PyResult<Self> {
        let patience = seconds(py, "connect_timeout", patience)?.unwrap_or(FOR_EVER);
        let background = background(py)?;
        let addresses = addresses(py, background, &edges, (keys.as_deref(), patience))?;
        let is_remote = addresses.iter().any(|address| address.as_unix().is_none());
        let credentials = match is_remote {
            true => {
                let keys = keys.map_or_else(|| keys::of_application(py), |keys| Ok(Some(keys)))?;
                Some(keys::credentials(py, keys.as_deref(), Role::App, None)?)
            }
            false => None,
        };
        let options = ClientOptions { application: application.unwrap_or_default(), patience };
        let connected =
            finish(py, background, || EdgeClient::connect(addresses, credentials.as_ref(), options))?;
        let client = connected.map_err(|failure| error::client(py, &failure))?;
        let client = Owned::new(background, "connection to an edge broker", client);
        Ok(Self { client, answers: AnswerEncoder::default() })
    }

    /// Where the broker is that is in use.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.client.get(py)?.0.address().to_string())
    }

    /// The cameras that match `pattern`; all of them where it is `None`.
    #[pyo3(signature = (pattern=None))]
    fn cameras(&self, py: Python<'_>, pattern: Option<&str>) -> PyResult<Vec<CameraRecord>> {
        let pattern = pattern.map(|pattern| self::pattern(py, pattern)).transpose()?;
        let (client, background) = self.client.get(py)?;
        let cameras = finish(py, background, || client.cameras(pattern.as_ref()))?;
        let cameras = cameras.map_err(|failure| error::client(py, &failure))?;
        Ok(cameras.into_iter().map(CameraRecord::from).collect())
    }

    /// The cameras that match `pattern` if this program may observe any of them, else `None`. The edge logs no refusal.
    fn observable(&self, py: Python<'_>, pattern: &str) -> PyResult<Option<Vec<CameraRecord>>> {
        let pattern = self::pattern(py, pattern)?;
        let (client, background) = self.client.get(py)?;
        let cameras = finish(py, background, || client.observable(Some(&pattern)))?;
        let cameras = cameras.map_err(|failure| error::client(py, &failure))?;
        Ok(cameras.map(|cameras| cameras.into_iter().map(CameraRecord::from).collect()))
    }

    /// A page of notes of a camera, after the place `after`; and whether there may be more.
    fn notes(
        &self,
        py: Python<'_>,
        camera: &str,
        since_ns: Option<u64>,
        until_ns: Option<u64>,
        after: Option<(u64, u64)>,
    ) -> PyResult<(Vec<NoteParts>, bool)> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let span = (since_ns.map(Timestamp::from_nanos), until_ns.map(Timestamp::from_nanos));
        let after =
            after.map(|(series, number)| FrameId { epoch: Epoch(series), sequence: Sequence(number) });
        let (client, background) = self.client.get(py)?;
        let page = finish(py, background, || client.notes(&camera, span, after))?;
        let (notes, more) = page.map_err(|failure| error::client(py, &failure))?;
        Ok((notes.into_iter().map(note::parts).collect(), more))
    }

    /// Makes the edge forget a camera that is not connected. Returns the folder of logs in which its log is since, if
    /// there was one on disk.
    fn forget_camera(&self, py: Python<'_>, camera: &str) -> PyResult<Option<String>> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let (client, background) = self.client.get(py)?;
        let forgotten = finish(py, background, || client.forget_camera(&camera))?;
        let forgotten = forgotten.map_err(|failure| error::client(py, &failure))?;
        Ok(forgotten.put_aside.map(|folder| folder.display().to_string()))
    }

    /// Subscribes.
    #[pyo3(signature = (pattern, *, since_ns, until_ns, latency_ms, accuracy, on_time_share, profile, profile_name,
        min_fps, on_infeasible, deliver, accept, priority, reconnect, quality, held_only, for_export, resume, after, group))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn subscribe(
        &self,
        py: Python<'_>,
        pattern: &str,
        since_ns: Option<u64>,
        until_ns: Option<u64>,
        latency_ms: Option<f64>,
        accuracy: Option<f64>,
        on_time_share: f64,
        profile: Option<Vec<u8>>,
        profile_name: Option<String>,
        min_fps: f64,
        on_infeasible: &str,
        deliver: Option<&str>,
        accept: Option<Vec<String>>,
        priority: i32,
        reconnect: bool,
        quality: Option<&str>,
        held_only: bool,
        for_export: bool,
        resume: &str,
        after: Vec<(String, u64, u64, Option<u64>)>,
        group: Option<GroupArguments>,
    ) -> PyResult<Subscription> {
        let asked = ContractArguments {
            latency_ms,
            accuracy,
            on_time_share,
            profile,
            profile_name,
            min_fps,
            on_infeasible,
            priority,
        };
        let (contract, profile) = asked.parse(py)?;
        let options = SubscribeOptions {
            contract,
            profile,
            begin: since_ns.map(Timestamp::from_nanos),
            end: until_ns.map(Timestamp::from_nanos),
            deliver: match deliver {
                None => None,
                Some("newest") => Some(Deliver::Newest),
                Some("every") => Some(Deliver::Every),
                Some(other) => return Err(choice(py, "deliver", other, r#""newest" or "every""#)),
            },
            accept_encodings: match accept {
                None => DECODED_HERE.to_vec(),
                Some(names) => names.iter().map(|name| accepted(py, name)).collect::<PyResult<_>>()?,
            },
            reconnect,
            quality: quality.map(|rung| self::quality(py, rung)).transpose()?,
            held_only,
            for_export,
            resume: match resume {
                "newest" => Resume::Newest,
                "fill" => Resume::Fill,
                other => return Err(choice(py, "resume", other, r#""newest" or "fill""#)),
            },
            after: after.into_iter().map(|last| last_frame(py, last)).collect::<PyResult<_>>()?,
            group: group.map(|group| membership(py, group)).transpose()?,
            ..SubscribeOptions::new(self::pattern(py, pattern)?)
        };
        let span = Span { begin: options.begin, end: options.end, deliver: Deliver::Newest };
        span.validate().map_err(|failure| error::argument(py, "until", failure))?;
        let (client, background) = self.client.get(py)?;
        let opened = finish(py, background, || client.subscribe(options))?;
        let subscription = opened.map_err(|failure| error::client(py, &failure))?;
        Subscription::new(py, background, subscription)
    }

    /// Sends a result for a frame back to its camera. Does not wait. Raises if the last one to that camera was refused for want of a grant.
    fn reply(&self, py: Python<'_>, camera: &str, epoch: u64, sequence: u64, payload: &[u8]) -> PyResult<()> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let client = &self.client.get(py)?.0;
        if let Some(refusal) = client.refused_reply(&camera) {
            return Err(error::refused(py, &refusal));
        }
        let sent = client.reply(&camera, frame, Bytes::copy_from_slice(payload));
        sent.map_err(|failure| error::raise(py, "ReplyTooLargeError", failure))
    }

    /// Sends what was found in a frame back to its camera. Does not wait. `published`: width and height of the frame as
    /// it was published.
    fn reply_detections(
        &self,
        py: Python<'_>,
        camera: &str,
        epoch: u64,
        sequence: u64,
        published: (u32, u32),
        detections: DetectionsParts,
    ) -> PyResult<()> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "camera", failure))?;
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let found =
            reply::detections(detections).map_err(|failure| error::argument(py, "result", failure))?;
        let client = &self.client.get(py)?.0;
        if let Some(refusal) = client.refused_reply(&camera) {
            return Err(error::refused(py, &refusal));
        }
        let sent = client.reply_detections(&camera, frame, published, found);
        sent.map_err(|failure| error::raise(py, "ReplyTooLargeError", failure))
    }

    /// Sends a picture that was made of a frame back to its camera: pixels, coded so that they can be there in time, or the bytes of a JPEG or of an
    /// overlay. Does not wait for the edge. Raises if the edge has said that it takes no answers to that camera from this program.
    fn answer(&self, camera: &str, epoch: u64, sequence: u64, image: &Bound<'_, PyAny>) -> PyResult<()> {
        let coded = |camera: &CameraName, bytes_max| self.answers.picture(image, camera, bytes_max);
        self.answer_with(image.py(), camera, (epoch, sequence), coded)
    }

    /// Like `answer`, for the pixels of an overlay: shape (height, width, 4).
    fn answer_overlay(
        &self,
        camera: &str,
        epoch: u64,
        sequence: u64,
        image: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let coded = |camera: &CameraName, bytes_max| {
            self.answers.overlay(image, camera, bytes_max).map(AnswerContent::Coded)
        };
        self.answer_with(image.py(), camera, (epoch, sequence), coded)
    }

    /// Like `answer`, for boxes. `published`: width and height of the frame as it was published.
    fn answer_boxes(
        &self,
        py: Python<'_>,
        camera: &str,
        epoch: u64,
        sequence: u64,
        published: (u32, u32),
        detections: DetectionsParts,
    ) -> PyResult<()> {
        let detections =
            reply::detections(detections).map_err(|failure| error::argument(py, "image", failure))?;
        let boxes = |_: &CameraName, _| Ok(AnswerContent::Boxes { detections, published });
        self.answer_with(py, camera, (epoch, sequence), boxes)
    }

    /// Answers handed in, sent, given up for newer ones before they were on their way, and failed.
    fn answer_counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let counts = self.client.get(py)?.0.answer_counts();
        Ok((counts.queued, counts.sent, counts.replaced, counts.failed))
    }

    /// Replies handed in, sent, dropped because newer ones waited, and failed.
    fn reply_counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64)> {
        let counts = self.client.get(py)?.0.reply_counts();
        Ok((counts.queued, counts.sent, counts.dropped, counts.failed))
    }

    /// Waits until every reply so far is answered for, at most `timeout` seconds; says whether it is so.
    fn flush_replies(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let (client, background) = self.client.get(py)?;
        let deadline = Deadline::after(py, Some(timeout))?;
        let flushed = wait(py, background, deadline, None, pin!(client.flush_replies()))?;
        Ok(matches!(flushed, Waited::Done(())))
    }
}

/// What an edge broker knows of a camera.
#[pyclass(frozen, get_all, module = "mez._native")]
pub(crate) struct CameraRecord {
    camera: String,
    connected: bool,
    identity: String,
    derived_from: Vec<String>,
    publishers: Option<u32>,
    subscriptions: u32,
    /// Epoch, sequence, capture time in nanoseconds.
    newest: Option<(u64, u64, u64)>,
    oldest_captured_ns: Option<u64>,
    edge_log_bytes: u64,
    published: u64,
    refused: u64,
    width: u32,
    height: u32,
    frames_per_second: f64,
    camera_log_bytes: u64,
    frames_received: u64,
    frames_late: u64,
    frames_cancelled: u64,
    frames_refused: u64,
    link_bytes: u64,
    clock_offset_ns: Option<i64>,
    clock_error_ms: Option<f64>,
    round_trip_time_ms: Option<f64>,
    link_bits_per_second: Option<f64>,
    predicted_on_time_share: Option<f64>,
    observed_on_time_share: Option<f64>,
    channel: Option<String>,
    channel_bits_per_second: Option<f64>,
    share_frame_bytes: Option<u64>,
    published_bytes: u64,
    published_bits_per_second: Option<f64>,
    crossed_bits_per_second: Option<f64>,
    /// State, reason, for how many seconds it has been so, and in how many seconds it is tried again.
    source: Option<SourceParts>,
    /// Subscription, application, state, reason.
    contracts: Vec<(u64, String, &'static str, String)>,
}

impl From<CameraSummary> for CameraRecord {
    fn from(camera: CameraSummary) -> Self {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        Self {
            camera: camera.camera.as_str().to_owned(),
            connected: camera.connected,
            identity: camera.identity,
            derived_from: camera.derived_from.iter().map(ToString::to_string).collect(),
            publishers: camera.publishers,
            subscriptions: camera.subscriptions,
            newest: camera.newest.map(|(id, captured)| (id.epoch.0, id.sequence.0, captured.as_nanos())),
            oldest_captured_ns: camera.oldest.map(Timestamp::as_nanos),
            edge_log_bytes: camera.edge_log_bytes,
            published: camera.published,
            refused: camera.refused,
            width: camera.width,
            height: camera.height,
            frames_per_second: camera.frames_per_second,
            camera_log_bytes: camera.camera_log_bytes,
            frames_received: camera.frames_received,
            frames_late: camera.frames_late,
            frames_cancelled: camera.frames_cancelled,
            frames_refused: camera.frames_refused,
            link_bytes: camera.link_bytes,
            clock_offset_ns: camera.clock.map(|clock| clock.ahead_ns),
            clock_error_ms: camera.clock.map(|clock| ms(clock.error)),
            round_trip_time_ms: camera.clock.map(|clock| ms(clock.round_trip_time)),
            link_bits_per_second: camera.link_bits_per_second,
            predicted_on_time_share: camera.predicted_on_time_share,
            observed_on_time_share: camera.observed_on_time_share,
            channel_bits_per_second: camera.channel.as_ref().and_then(|channel| channel.bits_per_second),
            share_frame_bytes: camera.channel.as_ref().and_then(|channel| channel.frame_bytes),
            channel: camera.channel.map(|channel| channel.name),
            published_bytes: camera.published_bytes,
            published_bits_per_second: camera.traffic.map(|traffic| traffic.published),
            crossed_bits_per_second: camera.traffic.map(|traffic| traffic.crossed),
            source: camera.source.as_ref().map(source_parts),
            contracts: camera
                .contracts
                .into_iter()
                .map(|known| (known.subscription, known.application, known.state.name(), known.reason))
                .collect(),
        }
    }
}
