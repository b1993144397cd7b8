//! Defines the settings, events and outputs of an edge broker.

use std::time::Duration;

use bytes::Bytes;

use crate::answers::{ANSWER_BYTES_MAX, AnswerKind};
use crate::broker::{LinkId, PublishError};
use crate::clock::{ClockEstimate, DRIFT_PER_SECOND};
use crate::contract::Contract;
use crate::contract::negotiation::ContractOutcome;
use crate::controller::share::Channels;
use crate::frame::{Epoch, FRAME_BYTES_MAX, FrameId};
use crate::history::{PastAnswer, Survey, SurveyFault, Unanswered};
use crate::log::{LogReader, Record};
use crate::name::{CameraName, CameraPattern};
use crate::source::SourceStanding;
use crate::trace::{FrameTrace, Trace};
use crate::units::{BitsPerSecond, ClockAnchor, Instant, Timestamp};
use crate::wire::{DiskStatus, FeasibilityReport, FrameHeader, Message, REPLY_BYTES_MAX, Share, Status};

/// How an edge broker is set up.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The budget of all replica logs together, in bytes. Each camera has an equal share. Default 1 GiB.
    pub log_bytes_max: u64,
    /// The most cameras. Default 64. Each further camera is refused, with this reason.
    pub cameras_max: usize,
    /// The largest payload that is accepted, in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u32,
    /// The budget of fetched frames of the past, for all cameras together, in bytes. Default 64 MiB.
    pub history_bytes_max: u64,
    /// The declared channels that cameras share, such as radio cells. A camera on no channel gets no share. Default none.
    pub channels: Channels,
    /// How long a camera must be without a connection before it may be forgotten
    /// ([`EdgeBroker::stale`](super::EdgeBroker::stale)). Default 7 days. `None`: never.
    pub forget_after: Option<Duration>,
    /// The name and version of the software, for people.
    pub software: String,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        Self {
            log_bytes_max: 1 << 30,
            cameras_max: 64,
            frame_bytes_max: FRAME_BYTES_MAX,
            history_bytes_max: 64 << 20,
            channels: Channels::default(),
            forget_after: Some(Duration::from_hours(7 * 24)),
            software: concat!("mez ", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// The other end of a connection, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity, such as `spiffe://site/camera/dock`.
    pub identity: String,
    /// The cameras that this identity may connect as.
    pub cameras: Vec<CameraPattern>,
}

/// Identifies a subscription. The part that serves applications assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// Identifies a publisher of a derived stream. The part that serves applications assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherId(pub u64);

/// The owner and the sources of a derived stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deriving {
    /// The principal, as grants name it: `app/counter`. Only clients of one principal may publish the stream at the same time.
    pub owner: String,
    /// The source streams, at least one.
    pub of: Vec<CameraName>,
}

/// A derived stream that an earlier run of this edge has kept on disk.
#[derive(Debug)]
pub struct KeptStream {
    /// The stream's name.
    pub name: CameraName,
    /// The stream's owner and sources.
    pub deriving: Deriving,
    /// The epoch and the anchor of its last start.
    pub start: (Epoch, ClockAnchor),
    /// The records that were read from disk.
    pub records: Vec<Record>,
}

/// Why a client may not publish a derived stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublisherRefused {
    /// The stream has no epoch since the edge started. Ask again with an epoch above this one.
    #[error("the stream needs an epoch above {}", .above.0)]
    NeedsEpoch {
        /// The newest epoch of the stream that the edge knows.
        above: Epoch,
    },
    /// A camera has this name.
    #[error(
        "{stream} is a camera that this edge knows; publish under another name, such as {stream}/results, or, if the camera is gone for good, run \
         `mez cameras forget {stream}` on the edge's host"
    )]
    IsCamera {
        /// The name.
        stream: CameraName,
    },
    /// Another principal publishes the stream.
    #[error("{owner} already publishes {stream}; publish under another name, or stop the other publisher")]
    OfAnother {
        /// The stream.
        stream: CameraName,
        /// The principal that publishes it.
        owner: String,
    },
    /// The principal already has [`DERIVED_OF_OWNER_MAX`] streams.
    #[error(
        "{owner} has {DERIVED_OF_OWNER_MAX} derived streams at this edge, which is the limit for one identity; run `mez cameras forget NAME` on \
         the edge's host for streams that are no longer needed"
    )]
    TooManyOfOwner {
        /// The principal.
        owner: String,
    },
    /// The edge already knows [`DERIVED_MAX`] derived streams.
    #[error(
        "this edge knows {DERIVED_MAX} derived streams, which is its limit; run `mez cameras forget NAME` on the edge's host for streams that are \
         no longer needed"
    )]
    TooMany,
}

/// Why a record of a derived stream was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedError {
    /// The publisher was not accepted, or the stream was reset or forgotten since.
    #[error("the stream was reset or forgotten; open a new publisher")]
    NotOpen,
    /// The record itself was refused.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// The most derived streams that an edge knows.
pub const DERIVED_MAX: usize = 128;
/// The most derived streams of one principal.
pub const DERIVED_OF_OWNER_MAX: usize = 32;
/// The largest record of a derived stream, in bytes: 8 MiB.
pub const DERIVED_BYTES_MAX: u32 = 8 << 20;

/// Why the edge does not know what a camera holds of a span of its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSurveyed {
    /// The camera did not answer.
    #[error("the camera did not answer: {0:?}")]
    Unanswered(Unanswered),
    /// The camera cannot read its log on disk. The camera broker's own messages say why.
    #[error("the camera cannot read its log on disk")]
    Unreadable,
    /// The camera's answer is impossible.
    #[error("the camera's answer is impossible: {0}")]
    Absurd(SurveyFault),
}

/// What the driver of an edge broker must do.
#[derive(Clone, Debug)]
pub enum EdgeOutput {
    /// Send a message on a connection's control stream.
    Send {
        /// The connection.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Close a connection after everything sent on it has left, and forget it.
    Close {
        /// The connection.
        link: LinkId,
    },
    /// Let a subscription read a camera's log, from now on or as far back as it asked for.
    Attach {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
        /// Reads the camera's frames as they arrived.
        log: LogReader,
    },
    /// Take a camera's log from a subscription, because the camera was forgotten.
    /// The subscription goes on, and gets a new log if the camera connects again.
    Detach {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
    },
    /// A camera's log has grown: wake the readers that wait for it.
    Appended {
        /// The camera.
        camera: CameraName,
    },
    /// Something has changed that affects the contracts on a camera
    /// ([`EdgeBroker::view`](super::EdgeBroker::view)).
    ViewChanged {
        /// The camera.
        camera: CameraName,
    },
    /// The answer to a question about the past.
    History {
        /// The number that [`EdgeBroker::handle_history_query`](super::EdgeBroker::handle_history_query) returned.
        request: u64,
        /// The camera's answer, or an answer from frames that were fetched before.
        answer: PastAnswer,
    },
    /// The answer to the question what a camera holds of a span of its past.
    Surveyed {
        /// The number that [`EdgeBroker::handle_survey_query`](super::EdgeBroker::handle_survey_query) returned.
        question: u64,
        /// What the camera says that it holds, or why this is not known.
        survey: Result<Survey, NotSurveyed>,
    },
    /// A connection was accepted as a camera. For people, who may want to know which identity made which start.
    Started {
        /// The camera.
        camera: CameraName,
        /// Its connection.
        link: LinkId,
        /// The camera's start. It may have been connected before.
        epoch: Epoch,
        /// The anchor of the start.
        anchor: ClockAnchor,
    },
    /// A subscription is over because a camera that it reads was reset. The camera's later
    /// frames may sort before frames already delivered, so the application must subscribe again.
    Ended {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
    },
    /// The state of a camera's source has changed. For readers that wait for its frames.
    SourceChanged {
        /// The camera.
        camera: CameraName,
        /// The new state.
        source: SourceStanding,
    },
    /// A camera sent a deny list that it says is newer than the held one. If its signature is genuine, the driver
    /// applies the list and calls [`EdgeBroker::handle_revocations`](super::EdgeBroker::handle_revocations).
    Revocations {
        /// The connection on which the list came.
        link: LinkId,
        /// The list with its signature.
        signed: Bytes,
    },
    /// Send an answer on a stream of its own, ahead of older answers. Call
    /// [`EdgeBroker::handle_answer_sent`](super::EdgeBroker::handle_answer_sent) once its last byte has left.
    SendAnswer {
        /// The connection.
        link: LinkId,
        /// The header, which precedes the picture.
        header: Box<FrameHeader>,
        /// The picture.
        payload: Bytes,
    },
    /// Cancel an answer's stream.
    ResetAnswer {
        /// The connection.
        link: LinkId,
        /// The frame that was answered.
        frame: FrameId,
    },
    /// A camera came or went; for people. A silent camera counts as gone.
    CameraChanged {
        /// The camera.
        camera: CameraName,
        /// Whether the camera is there.
        up: bool,
        /// The reason, if the camera went or was refused.
        reason: Option<String>,
    },
}

/// Why an application's result was not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No such camera.
    #[error("no camera {camera} is known; see `mez cameras`")]
    UnknownCamera {
        /// The name.
        camera: CameraName,
    },
    /// The camera is not connected.
    #[error("camera {camera} is not connected; the reply did not reach it")]
    NotConnected {
        /// The name.
        camera: CameraName,
    },
    /// The name is a derived stream of this edge, which takes no results.
    #[error(
        "{stream} is published at the edge by {owner}, and takes no replies; publish your results as a derived stream: {stream}/NAME"
    )]
    IsDerived {
        /// The stream.
        stream: CameraName,
        /// The principal that publishes it.
        owner: String,
    },
    /// The result is too large.
    #[error("the reply has {bytes} bytes, more than the limit of {REPLY_BYTES_MAX}")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
    },
}

/// An answer of an application: a picture that it made of a frame, or an overlay or boxes to draw over the frame.
#[derive(Clone, Debug)]
pub struct GivenAnswer {
    /// What the answer is.
    pub kind: AnswerKind,
    /// The answer, coded as its kind is.
    pub payload: Bytes,
    /// Width and height in pixels. Of boxes: those of the picture that their coordinates are in.
    pub size: (u32, u32),
    /// Width and height in which a picture is shown. They differ from `size` if the picture was made smaller for the way to the camera.
    pub shown: (u32, u32),
    /// How many answers to this camera the application itself replaced by newer ones since its last answer.
    pub replaced: u32,
}

/// Why an application's picture was not taken as an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No such camera.
    #[error("no camera {camera} is known; see `mez cameras`")]
    UnknownCamera {
        /// The name.
        camera: CameraName,
    },
    /// The camera has published no such frame.
    #[error(
        "camera {camera} has published no frame {frame} yet; answer only frames that a subscription delivered"
    )]
    UnknownFrame {
        /// The name.
        camera: CameraName,
        /// The frame.
        frame: FrameId,
    },
    /// The camera is not connected.
    #[error("camera {camera} is not connected; the answer did not reach it")]
    NotConnected {
        /// The name.
        camera: CameraName,
    },
    /// The name is a derived stream of this edge, which takes no answers.
    #[error(
        "{stream} is published at the edge by {owner}, and takes no answers; publish your results as a derived stream: {stream}/NAME"
    )]
    IsDerived {
        /// The stream.
        stream: CameraName,
        /// The principal that publishes it.
        owner: String,
    },
    /// The picture is too large.
    #[error(
        "the answer has {bytes} bytes, more than the limit of {ANSWER_BYTES_MAX}; send a smaller picture, or a picture of lower quality"
    )]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
    },
}

/// Why a camera was not forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// No such camera.
    #[error("no camera {camera} is known; see `mez cameras`")]
    Unknown {
        /// The name.
        camera: CameraName,
    },
    /// The camera is connected.
    #[error(
        "camera {camera} is connected, so the edge would know it again at once; stop its camera broker or publisher first"
    )]
    Connected {
        /// The name.
        camera: CameraName,
    },
}

/// What was known of a camera that was reset or forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The epoch of its newest start.
    pub epoch: Epoch,
    /// The identity of the camera's connection. Empty if it has not been connected since the edge started.
    pub identity: String,
    /// Whether the camera was connected and not silent.
    pub connected: bool,
}

/// What became of a camera's frames at the edge, since the edge started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounters {
    /// Frames that arrived in time to be appended.
    pub received: u64,
    /// Frames that arrived after a newer frame.
    pub late: u64,
    /// Frames whose stream the camera cancelled.
    pub cancelled: u64,
    /// Frames that were refused, or for which the log had no room.
    pub refused: u64,
    /// Frames that arrived but did not enter the log, because a frame that they need is missing.
    pub not_decoded: u64,
    /// Payload bytes that crossed the link, including those of late frames.
    pub bytes: u64,
}

/// What is known of a camera.
#[derive(Clone, Debug)]
pub struct CameraInfo {
    /// The camera.
    pub camera: CameraName,
    /// Whether the camera is connected and was heard within the last 750 ms (1.75 s if nobody wants its frames).
    pub connected: bool,
    /// The identity of the camera's connection.
    pub identity: String,
    /// The last status report.
    pub status: Status,
    /// The last report about the log on the camera's own disk, if it keeps one.
    pub disk: Option<DiskStatus>,
    /// The last feasibility report, about the leading contracts.
    pub feasibility: FeasibilityReport,
    /// What became of the camera's frames at the edge.
    pub counters: CameraCounters,
    /// The newest frame in the replica log, with its capture time.
    pub newest: Option<(FrameId, Timestamp)>,
    /// The capture time of the oldest frame in the replica log.
    pub oldest: Option<Timestamp>,
    /// The rates at which frames are published and cross the link, over the last
    /// seconds. `None` while the camera is not connected, and for its first second.
    pub traffic: Option<Traffic>,
    /// Bytes in the replica log.
    pub log_bytes: u64,
    /// How the camera's clock relates to the edge's clock.
    pub clock: Option<ClockEstimate>,
    /// The state of the camera's source. `None`: the camera has published no frame yet, or is not connected.
    pub source: Option<SourceStanding>,
    /// How many subscriptions want its frames.
    pub subscriptions: usize,
    /// The camera's share of a declared channel, if it is on one.
    pub share: Option<ChannelShare>,
    /// For a derived stream: its owner and sources, and the present number of its publishers. `None`: a camera.
    pub derived: Option<(Deriving, usize)>,
}

/// The rates at which a camera's frames are published and cross the link, in payload bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Published frames, wanted or not.
    pub published: BitsPerSecond,
    /// Payloads that crossed the link, including late frames and frames of the past.
    pub crossed: BitsPerSecond,
}

/// What affects the contracts on one camera.
#[derive(Clone, Debug, Default)]
pub struct CameraView {
    /// Whether the camera is connected and not silent.
    pub connected: bool,
    /// The last reported state of its source, if any. A final state is kept after the camera is gone.
    pub source: Option<SourceStanding>,
    /// The last feasibility report.
    pub feasibility: FeasibilityReport,
    /// Since when the camera reports that no rung keeps the leading contracts.
    pub infeasible_since: Option<Instant>,
    /// Frames published per second.
    pub frames_per_second: f64,
    /// Width and height of the published frames, in pixels. 0 before the first frame.
    pub size: (u32, u32),
    /// The minimum one-way delay of the path, without the transmission time of a frame.
    pub one_way_delay: Option<Duration>,
    /// The contracts on the camera: those with an accuracy floor first, and of these the highest priority first.
    pub demands: Vec<NamedContract>,
    /// The outcome that the camera reports for each of `demands`, and since when. Empty
    /// if there was nothing to choose, or if the camera does not report outcomes.
    pub negotiated: Vec<(Option<ContractOutcome>, Instant)>,
    /// Since when the camera's shared channel has no room for it, and a sentence that says why.
    pub shed: Option<(Instant, String)>,
}

/// A contract and its subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedContract {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The application's name, for people. May be empty.
    pub application: String,
    /// The contract.
    pub contract: Contract,
}

/// A camera's share of a declared channel, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelShare {
    /// The channel's name.
    pub channel: String,
    /// The measured rate of the channel for all cameras together, if known.
    pub carries: Option<BitsPerSecond>,
    /// The share that the camera was last told. `None`: no application wants its frames.
    pub share: Option<Share>,
}

/// Maps a camera's capture times to the edge's clock.
#[derive(Clone, Copy, Debug)]
pub struct CaptureClock {
    /// When the estimate was made.
    at: Instant,
    epoch: Epoch,
    anchor: ClockAnchor,
    estimate: ClockEstimate,
}

impl CaptureClock {
    pub(super) fn new(at: Instant, epoch: Epoch, anchor: ClockAnchor, estimate: ClockEstimate) -> Self {
        Self { at, epoch, anchor, estimate }
    }

    /// The times of a frame's stages since its capture. `None` for frames of another epoch.
    pub fn trace(&self, frame: FrameId, captured: Timestamp, stamps: &FrameTrace) -> Option<Trace> {
        let captured_here = self.captured_at(frame, captured)?;
        Some(stamps.since(self.anchor.instant_at(captured), captured_here))
    }

    /// The capture time of a frame by the edge's clock, and its largest error. `None` for frames of another epoch, which has another anchor.
    pub fn captured_at(&self, frame: FrameId, captured: Timestamp) -> Option<(Instant, Duration)> {
        if frame.epoch != self.epoch {
            return None;
        }
        let instant = self.estimate.to_ours(self.anchor.instant_at(captured));
        // The clocks may have drifted between `at`, when the offset was estimated, and `instant`.
        let apart = self.at.saturating_since(instant).max(instant.saturating_since(self.at));
        Some((instant, self.estimate.error + apart.mul_f64(DRIFT_PER_SECOND)))
    }
}
