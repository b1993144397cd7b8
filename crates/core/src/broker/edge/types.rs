//! Defines the settings, events and outputs of an edge broker.

use std::time::Duration;

use bytes::Bytes;

use crate::answers::ANSWER_BYTES_MAX;
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
    /// The most cameras. Default 64. One more is refused, with that reason.
    pub cameras_max: usize,
    /// The largest payload that is accepted, in bytes. Default [`FRAME_BYTES_MAX`].
    pub frame_bytes_max: u32,
    /// The most bytes of frames of the past that were fetched from all cameras together. Default 64 MiB.
    pub history_bytes_max: u64,
    /// The channels that cameras share, such as radio cells. Cameras on none are left alone. Default none.
    pub channels: Channels,
    /// After how long a camera that is not connected may be forgotten
    /// ([`EdgeBroker::stale`](super::EdgeBroker::stale)). Default 7 days. `None`: never.
    pub forget_after: Option<Duration>,
    /// The software, for people.
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
    /// The cameras that it may be.
    pub cameras: Vec<CameraPattern>,
}

/// Identifies a subscription, given by whoever serves applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// Identifies somebody who publishes a derived stream, given by whoever serves applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherId(pub u64);

/// Who publishes a derived stream, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deriving {
    /// The principal, as grants name it: `app/counter`. Only its members publish the stream at the same time.
    pub owner: String,
    /// The streams that it is made of: at least one.
    pub of: Vec<CameraName>,
}

/// A derived stream that an earlier run of this edge has kept on disk.
#[derive(Debug)]
pub struct KeptStream {
    /// Its name.
    pub name: CameraName,
    /// Whose it was, and what it is made of.
    pub deriving: Deriving,
    /// The epoch and the anchor of its last start.
    pub start: (Epoch, ClockAnchor),
    /// The records that were read.
    pub records: Vec<Record>,
}

/// Why somebody may not publish a derived stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublisherRefused {
    /// Nobody has published it since the edge started: ask again with an epoch above this one.
    #[error("the stream needs an epoch above {}", .above.0)]
    NeedsEpoch {
        /// The newest epoch that the edge knows of it.
        above: Epoch,
    },
    /// A camera has this name.
    #[error(
        "{stream} is a camera that this edge knows; give what you publish another name, such as {stream}/results, or, if that camera is gone for \
         good, run `mez cameras forget {stream}` on the edge's host"
    )]
    IsCamera {
        /// The name.
        stream: CameraName,
    },
    /// Somebody else publishes it.
    #[error("{stream} is being published by {owner}; give what you publish another name, or stop that one")]
    OfAnother {
        /// The stream.
        stream: CameraName,
        /// Who.
        owner: String,
    },
    /// The principal has as many streams as one may have.
    #[error(
        "{owner} has {DERIVED_OF_OWNER_MAX} derived streams at this edge, as many as one may have; run `mez cameras forget NAME` on the edge's \
         host for those that are not needed any more"
    )]
    TooManyOfOwner {
        /// Who.
        owner: String,
    },
    /// The edge has as many as it may have.
    #[error(
        "this edge knows {DERIVED_MAX} derived streams, as many as it may; run `mez cameras forget NAME` on its host for those that are not needed \
         any more"
    )]
    TooMany,
}

/// Why a record of a derived stream was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedError {
    /// Whoever publishes has not been let in, or the stream was reset since.
    #[error("the stream was reset or forgotten; publish it anew")]
    NotOpen,
    /// The record itself was refused.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// The most derived streams that an edge knows.
pub const DERIVED_MAX: usize = 128;
/// The most of [`DERIVED_MAX`] that one principal has.
pub const DERIVED_OF_OWNER_MAX: usize = 32;
/// The largest record of a derived stream, in bytes: 8 MiB.
pub const DERIVED_BYTES_MAX: u32 = 8 << 20;

/// Why it is not known what a camera holds of a span of its past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSurveyed {
    /// It did not answer.
    #[error("the camera did not answer: {0:?}")]
    Unanswered(Unanswered),
    /// Its log on disk cannot be read. Its own log says why.
    #[error("the camera cannot read its log on disk")]
    Unreadable,
    /// Its answer is impossible.
    #[error("the camera's answer is impossible: {0}")]
    Absurd(SurveyFault),
}

/// What an edge broker wants done.
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
        /// Its frames as they came.
        log: LogReader,
    },
    /// Let a subscription read a camera's log no more: the camera was forgotten. The subscription goes on, and
    /// gets the camera's next log if it comes again.
    Detach {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
    },
    /// A camera's log has grown: whoever waits for it may look.
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
    /// The answer to a question for the past.
    History {
        /// The number that [`EdgeBroker::handle_history_query`](super::EdgeBroker::handle_history_query)
        /// gave.
        request: u64,
        /// The camera's answer, or the answer from frames that it had sent before.
        answer: PastAnswer,
    },
    /// The answer to a question what a camera holds of a span of its past.
    Surveyed {
        /// The number that [`EdgeBroker::handle_survey_query`](super::EdgeBroker::handle_survey_query) gave.
        question: u64,
        /// What it holds, as it says, or why that is not known.
        survey: Result<Survey, NotSurveyed>,
    },
    /// A connection was accepted as a camera. For people, who may want to know which identity made which
    /// start.
    Started {
        /// The camera.
        camera: CameraName,
        /// Its connection.
        link: LinkId,
        /// The start, which may have been connected before.
        epoch: Epoch,
        /// The anchor of the start.
        anchor: ClockAnchor,
    },
    /// A subscription is over because a camera that it reads was reset. Later frames may sort before those
    /// that it was given, so its application must subscribe again.
    Ended {
        /// The subscription.
        subscription: SubscriptionId,
        /// The camera.
        camera: CameraName,
    },
    /// What a camera says of the source of its frames has changed; for whoever waits for them.
    SourceChanged {
        /// The camera.
        camera: CameraName,
        /// What it says.
        source: SourceStanding,
    },
    /// A camera has brought a deny list that is newer than the one that is held, as it says. If its signature is
    /// genuine, the driver applies it, and tells with
    /// [`EdgeBroker::handle_revocations`](super::EdgeBroker::handle_revocations).
    Revocations {
        /// The connection that it came on.
        link: LinkId,
        /// The list with its signature.
        signed: Bytes,
    },
    /// Send an answer on a stream of its own, ahead of older ones; report with
    /// [`EdgeBroker::handle_answer_sent`](super::EdgeBroker::handle_answer_sent) once its last byte has left.
    SendAnswer {
        /// The connection.
        link: LinkId,
        /// What stands before the picture.
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
    /// A camera came or went; for people.
    CameraChanged {
        /// The camera.
        camera: CameraName,
        /// Whether it is connected.
        up: bool,
        /// Why, if it went or was refused.
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
    /// Applications publish it at this edge, and nobody there takes results.
    #[error(
        "{stream} is published at the edge by {owner}, and takes no replies; publish what you made of it as a stream of its own: {stream}/NAME"
    )]
    IsDerived {
        /// The stream.
        stream: CameraName,
        /// Who publishes it.
        owner: String,
    },
    /// The result is too large.
    #[error("the reply has {bytes} bytes, more than the limit of {REPLY_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// A picture that an application made of a frame.
#[derive(Clone, Debug)]
pub struct AnswerPicture {
    /// A whole JPEG.
    pub payload: Bytes,
    /// Pixels in a row, and rows.
    pub size: (u32, u32),
    /// How many answers to this camera the application gave up by itself since its last one, for newer ones.
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
    #[error("camera {camera} has published no frame {frame} yet; answer the frames of a subscription")]
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
    /// Applications publish it at this edge, and nobody there takes answers.
    #[error(
        "{stream} is published at the edge by {owner}, and takes no answers; publish what you made of it as a stream of its own: {stream}/NAME"
    )]
    IsDerived {
        /// The stream.
        stream: CameraName,
        /// Who publishes it.
        owner: String,
    },
    /// The picture is too large.
    #[error(
        "the answer has {bytes} bytes, more than the limit of {ANSWER_BYTES_MAX}; send a smaller picture, or one of lower quality"
    )]
    TooLarge {
        /// Its size.
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
    /// The camera is there.
    #[error(
        "camera {camera} is connected, and would be known again at once; stop its camera broker or publisher first"
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
    /// Whether it was connected and had been heard of lately.
    pub connected: bool,
}

/// What became of a camera's frames at the edge, since the edge started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounters {
    /// Frames that arrived in time to be appended.
    pub received: u64,
    /// Frames that arrived after a newer one.
    pub late: u64,
    /// Frames whose stream the camera cancelled.
    pub cancelled: u64,
    /// Frames that were refused, or for which the log had no room.
    pub refused: u64,
    /// Frames that arrived but did not enter the log, because what they need had not.
    pub not_decoded: u64,
    /// Payload bytes that crossed the link, also of late frames.
    pub bytes: u64,
}

/// What is known of a camera.
#[derive(Clone, Debug)]
pub struct CameraInfo {
    /// The camera.
    pub camera: CameraName,
    /// Whether it is connected and was heard of within the last 750 ms.
    pub connected: bool,
    /// The identity of the connection.
    pub identity: String,
    /// What it last said of itself.
    pub status: Status,
    /// What it last said of its log on its own disk, if it keeps one.
    pub disk: Option<DiskStatus>,
    /// What it last said that it can do for the contracts that lead.
    pub feasibility: FeasibilityReport,
    /// What became of its frames here.
    pub counters: CameraCounters,
    /// The newest frame here.
    pub newest: Option<(FrameId, Timestamp)>,
    /// The capture time of the oldest frame here.
    pub oldest: Option<Timestamp>,
    /// What it publishes, and what of that crosses the link, over the last seconds. `None` while it is not connected, and for its
    /// first second.
    pub traffic: Option<Traffic>,
    /// Bytes in its replica log.
    pub log_bytes: u64,
    /// How its clock relates to ours.
    pub clock: Option<ClockEstimate>,
    /// Whether its source gives frames. `None`: it has published none yet, or is not connected.
    pub source: Option<SourceStanding>,
    /// How many subscriptions want its frames.
    pub subscriptions: usize,
    /// What it has of a declared channel, if it is on one.
    pub share: Option<ChannelShare>,
    /// Whether it is a stream that applications publish at this edge, and how many of them do so at present. `None`: it is a camera.
    pub derived: Option<(Deriving, usize)>,
}

/// What a camera publishes, and what of that crosses the link, in payload bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Frames as they were published, wanted or not.
    pub published: BitsPerSecond,
    /// Payloads as they crossed the link, also late ones and those of the past.
    pub crossed: BitsPerSecond,
}

/// What bears on the contracts of one camera.
#[derive(Clone, Debug, Default)]
pub struct CameraView {
    /// Whether it is connected and was heard of lately.
    pub connected: bool,
    /// What it said of its source, if it said anything. What is final stays known of a camera that is gone.
    pub source: Option<SourceStanding>,
    /// What it said last that it can do.
    pub feasibility: FeasibilityReport,
    /// Since when it says that no rung keeps the contracts that lead.
    pub infeasible_since: Option<Instant>,
    /// Frames that it publishes in a second.
    pub frames_per_second: f64,
    /// Width and height of its published frames. 0 before the first.
    pub size: (u32, u32),
    /// What the path takes at least, one way, before any byte of a frame has passed.
    pub one_way_delay: Option<Duration>,
    /// The contracts on the camera: those with an accuracy floor first, and of these the highest priority first.
    pub demands: Vec<NamedContract>,
    /// The outcome that the camera reports for each of `demands`, and since when. Empty if there was nothing
    /// to choose, or if the camera does not report it.
    pub negotiated: Vec<(Option<ContractOutcome>, Instant)>,
    /// Since when there has been no room for it on the channel that it shares with others, and a sentence of
    /// why.
    pub shed: Option<(Instant, String)>,
}

/// A contract and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedContract {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The application's name, for people. May be empty.
    pub application: String,
    /// What it asks.
    pub contract: Contract,
}

/// What a camera has of a declared channel, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelShare {
    /// The channel's name.
    pub channel: String,
    /// What the channel carries, all cameras together, if that was measured.
    pub carries: Option<BitsPerSecond>,
    /// What the camera was last told that it has. `None`: nobody wants its frames.
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

    /// When a frame was captured, by our clock, and its largest error. `None` for frames of another epoch,
    /// which has another anchor.
    pub fn captured_at(&self, frame: FrameId, captured: Timestamp) -> Option<(Instant, Duration)> {
        if frame.epoch != self.epoch {
            return None;
        }
        let instant = self.estimate.to_ours(self.anchor.instant_at(captured));
        // The offset is that of `at`. The clocks may have drifted between the two.
        let apart = self.at.saturating_since(instant).max(instant.saturating_since(self.at));
        Some((instant, self.estimate.error + apart.mul_f64(DRIFT_PER_SECOND)))
    }
}
