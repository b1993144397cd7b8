//! Defines the settings, events and outputs of a camera broker.

use std::time::Duration;

use bytes::Bytes;

use super::super::{EdgeIndex, LinkId};
use crate::answers::Answered;
use crate::controller::named::PolicyName;
use crate::frame::{ChainLink, Encoding, Epoch, Frame, FrameId, Reference, Rung, Sequence};
use crate::history::PastQuery;
use crate::name::CameraName;
use crate::profile::ProfileHash;
use crate::setting::Setting;
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{AnswerSkips, FrameHeader, Message, RefuseCode, ReplyResult};

/// How a camera broker is set up.
#[derive(Clone, Debug)]
pub struct CameraConfig {
    /// The camera's name.
    pub camera: CameraName,
    /// The camera broker's start.
    pub epoch: Epoch,
    /// Relates capture times to the monotonic clock.
    pub anchor: ClockAnchor,
    /// The name and version of the software, for people.
    pub software: String,
    /// The policy that chooses the rungs of live frames.
    pub policy: PolicyName,
    /// How many edges the camera may connect to, one at a time. At least one. [`EdgeIndex`] gives their order of preference.
    pub edges: usize,
}

/// News about the source of a camera's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceNews {
    /// The source is gone, or cannot be read. It is live again with its next frame.
    Lost {
        /// Why, for people, without a full stop.
        reason: String,
        /// The time until the next attempt to open it. `None`: there is none, or it is not known.
        retry: Option<Duration>,
    },
    /// The source ended in good order.
    Ended,
}

/// What the driver of a camera broker must do.
#[derive(Clone, Debug)]
pub enum CameraOutput {
    /// Ask the source for a keyframe, if it takes such requests. From this keyframe on, its frames can go as they are. No result is reported.
    AskKeyFrame,
    /// Connect to an edge, beside the existing connections. Report with [`CameraBroker::handle_dialled`](super::CameraBroker::handle_dialled)
    /// or [`CameraBroker::handle_dial_failed`](super::CameraBroker::handle_dial_failed).
    Dial {
        /// The edge.
        edge: EdgeIndex,
    },
    /// Send a message on the control stream.
    Send {
        /// The connection.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Encode a frame at its rung. Report every result with
    /// [`CameraBroker::handle_transformed`](super::CameraBroker::handle_transformed). One at a time.
    Transform(Box<Transform>),
    /// Encode a frame of the past, with a separate codec that knows no other frame. Report every result with
    /// [`CameraBroker::handle_past_transformed`](super::CameraBroker::handle_past_transformed). One at a time.
    TransformPast {
        /// The ticket for the report.
        ticket: u64,
        /// The work.
        transform: Box<Transform>,
    },
    /// Send a frame on a stream of its own, ahead of older frames. Call [`CameraBroker::handle_sent`](super::CameraBroker::handle_sent)
    /// once its last byte has left. A frame whose header names a question about the past goes behind all others, and is reported with
    /// [`CameraBroker::handle_history_sent`](super::CameraBroker::handle_history_sent).
    SendFrame {
        /// The connection.
        link: LinkId,
        /// The header, which precedes the payload.
        header: Box<FrameHeader>,
        /// The payload.
        payload: Bytes,
    },
    /// Cancel a frame's stream.
    Reset {
        /// The connection.
        link: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// Close a connection and forget it.
    Close {
        /// The connection.
        link: LinkId,
    },
    /// The edge holds frames of this or a later epoch that another run published: begin an epoch above `above`,
    /// persist it, tell the intake, and then call [`CameraBroker::handle_epoch`](super::CameraBroker::handle_epoch).
    RaiseEpoch {
        /// The newest epoch that the edge holds.
        above: Epoch,
    },
    /// A connection was refused, by the edge or by this camera; for the log.
    Refused {
        /// Why.
        code: RefuseCode,
        /// The reason in words.
        text: String,
    },
    /// The link came up or went down; for people.
    LinkChanged {
        /// Whether frames can be sent.
        up: bool,
    },
    /// Look for a frame of the past, in memory and on disk. Report with [`CameraBroker::handle_history`](super::CameraBroker::handle_history).
    ReadHistory {
        /// The ticket for the report.
        ticket: u64,
        /// The question.
        query: PastQuery,
    },
    /// Survey what this camera holds of a span of capture times, in memory and on disk, with at
    /// most [`SURVEY_HOLES_MAX`](crate::history::SURVEY_HOLES_MAX) holes. Report every result with
    /// [`CameraBroker::handle_surveyed`](super::CameraBroker::handle_surveyed). One at a time.
    Survey {
        /// The first capture time.
        begin: Timestamp,
        /// The last capture time.
        end: Timestamp,
    },
    /// A profile has arrived: check its hash, and read it. Report with [`CameraBroker::handle_profile`](super::CameraBroker::handle_profile).
    ReadProfile {
        /// Its hash.
        hash: ProfileHash,
        /// All its bytes.
        bytes: Bytes,
    },
    /// An edge sent a deny list that it says is newer than the held one. If its signature is genuine, the driver
    /// keeps the list and calls [`CameraBroker::handle_revocations`](super::CameraBroker::handle_revocations).
    Revocations {
        /// The connection on which the list came.
        link: LinkId,
        /// The list with its signature.
        signed: Bytes,
    },
    /// An answer has arrived: a picture that an application made of a frame. It is newer than all answers before it.
    Answer(Box<Answered>),
    /// How many answers were not delivered so far, by the edges' accounts.
    AnswersSkipped(AnswerSkips),
    /// An application replied to a frame.
    Reply {
        /// The frame.
        frame: FrameId,
        /// The application.
        application: String,
        /// Its result.
        result: ReplyResult,
    },
}

/// What became of frames that others may refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Frames that the edge has, with all that they refer to.
    pub arrived: Vec<Sequence>,
    /// Frames that were not sent, given up, or refused, or whose connection is gone.
    pub lost: Vec<Sequence>,
}

/// Work for a codec.
#[derive(Clone, Debug)]
pub struct Transform {
    /// The frame as it was published. A frame of a source's own chain is decoded with the frames that it needs, which are
    /// in the camera's log. If this takes longer than a frame may take, the result is [`Transformed::NotYet`], and the
    /// next frame continues the decoding. If the log has dropped a needed frame, the result is [`Transformed::Lacking`].
    pub frame: Frame,
    /// How to encode the frame. The codec ignores frame skip, which is up to the broker.
    pub setting: Setting,
    /// What the frame may refer to, if the setting is chained. [`Reference::Independent`]: nothing.
    /// [`Reference::Previous`]: any frame that the codec made before and that was not lost, preferably the last.
    pub reference: Reference,
    /// What became of frames that the codec made before. The codec takes this into account first.
    pub news: News,
    /// The most bytes of the result.
    pub bytes_max: u32,
    /// The most bytes of an anchor, approximately. An anchor refers to an older frame than the last one, so that later frames
    /// decode without the frames in between (`docs/decisions/0047-anchors.md`). 0: the codec may not make one.
    pub anchor_bytes_max: u32,
    /// When the codec is given up, because the frame would be too late.
    pub deadline: Instant,
}

/// The result of a [`Transform`].
#[derive(Clone, Debug, PartialEq)]
pub enum Transformed {
    /// The codec made a payload.
    Made {
        /// The payload.
        payload: Bytes,
        /// How the payload is coded.
        encoding: Encoding,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// The rung of the payload. Its quality is lower than requested if the limit of bytes forced that.
        rung: Rung,
        /// Its place in a chain.
        chain: ChainLink,
    },
    /// The codec could not keep the limit of bytes. It works otherwise.
    TooLarge {
        /// The fewest bytes that it reached.
        bytes: u32,
    },
    /// Not all frames that this one needs are decoded yet. The codec works.
    NotYet,
    /// The log no longer holds all frames that this one needs. The codec works,
    /// but nothing can be made of the source's video before its next keyframe.
    Lacking,
    /// The codec failed or was late, or the frame cannot be read. The driver's log says why.
    Failed,
}
