//! What enters and leaves a camera broker.

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

/// Who a camera broker is.
#[derive(Clone, Debug)]
pub struct CameraConfig {
    /// The camera's name.
    pub camera: CameraName,
    /// The camera broker's start.
    pub epoch: Epoch,
    /// Relates capture times to the monotonic clock.
    pub anchor: ClockAnchor,
    /// The software, for people.
    pub software: String,
    /// What chooses the rungs of live frames.
    pub policy: PolicyName,
    /// How many edges there are to be connected to, one at a time; at least one. They are named by their place in the order of preference.
    pub edges: usize,
}

/// What is heard of the source of a camera's frames, besides the frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceNews {
    /// It is gone, or cannot be read. It is live again with its next frame.
    Lost {
        /// Why, for people, without a full stop.
        reason: String,
        /// After which time it is tried again. `None`: it is not, or nobody knows.
        retry: Option<Duration>,
    },
    /// It ended in good order.
    Ended,
}

/// What a camera broker wants done.
#[derive(Clone, Debug)]
pub enum CameraOutput {
    /// Ask the source of the frames for a key frame, if it takes such requests: from there on its frames can go as they are. Nothing is reported.
    AskKeyFrame,
    /// Connect to an edge, beside whatever connections there are; report with [`CameraBroker::handle_dialled`](super::CameraBroker::handle_dialled)
    /// or [`CameraBroker::handle_dial_failed`](super::CameraBroker::handle_dial_failed).
    Dial {
        /// Which edge.
        edge: EdgeIndex,
    },
    /// Send a message on the control stream.
    Send {
        /// The connection.
        link: LinkId,
        /// The message.
        message: Message,
    },
    /// Make of a frame what its rung says; report with [`CameraBroker::handle_transformed`](super::CameraBroker::handle_transformed), whatever came of it. One at a time.
    Transform(Box<Transform>),
    /// The same for a frame of the past, by a codec of its own that knows no other frame; report with
    /// [`CameraBroker::handle_past_transformed`](super::CameraBroker::handle_past_transformed), whatever came of it. One at a time.
    TransformPast {
        /// For the report.
        ticket: u64,
        /// The work.
        transform: Box<Transform>,
    },
    /// Send a frame on a stream of its own, ahead of older frames; report with [`CameraBroker::handle_sent`](super::CameraBroker::handle_sent)
    /// once its last byte has left. One whose header names a question for the past goes behind all others, and is reported
    /// with [`CameraBroker::handle_history_sent`](super::CameraBroker::handle_history_sent).
    SendFrame {
        /// The connection.
        link: LinkId,
        /// What stands before the payload.
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
    /// The edge refused the camera; for the log.
    Refused {
        /// Why.
        code: RefuseCode,
        /// In words.
        text: String,
    },
    /// The link came up or went down; for people.
    LinkChanged {
        /// Whether frames can be sent.
        up: bool,
    },
    /// Look for a frame of the past, in memory and on disk; report with [`CameraBroker::handle_history`](super::CameraBroker::handle_history).
    ReadHistory {
        /// For the report.
        ticket: u64,
        /// The question.
        query: PastQuery,
    },
    /// Survey what this camera holds of a span of capture times, in memory and on disk, with
    /// [`SURVEY_HOLES_MAX`](crate::history::SURVEY_HOLES_MAX) holes at most; report with
    /// [`CameraBroker::handle_surveyed`](super::CameraBroker::handle_surveyed), whatever came of it. One at a time.
    Survey {
        /// The first capture time.
        begin: Timestamp,
        /// The last capture time.
        end: Timestamp,
    },
    /// A profile has come: see whether it is what its name says and whether it can be read; report with
    /// [`CameraBroker::handle_profile`](super::CameraBroker::handle_profile).
    ReadProfile {
        /// Its name.
        hash: ProfileHash,
        /// All of it.
        bytes: Bytes,
    },
    /// An edge has handed on a deny list that is newer than the one that is held, as it says. If its signature is
    /// genuine, the driver keeps it, and tells with
    /// [`CameraBroker::handle_revocations`](super::CameraBroker::handle_revocations).
    Revocations {
        /// The connection that it came on.
        link: LinkId,
        /// The list with its signature.
        signed: Bytes,
    },
    /// An application made a picture of a frame, and it is here. It is newer than all that came before.
    Answer(Box<Answered>),
    /// So many answers have not come so far, by the edges' accounts.
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
    /// The edge has all of them.
    pub arrived: Vec<Sequence>,
    /// They were not sent, given up, or refused, or their connection is gone.
    pub lost: Vec<Sequence>,
}

/// Work for a codec.
#[derive(Clone, Debug)]
pub struct Transform {
    /// The frame as it was published. One of a source's own chain is decoded with those that it needs, which are in the camera's log. If that
    /// takes longer than a frame may take, the answer is [`Transformed::NotYet`], and the next frame is decoded from where this one came to. If the log
    /// has dropped some of them, it is [`Transformed::Lacking`].
    pub frame: Frame,
    /// What to do to it. That it leaves out frames is the broker's business.
    pub setting: Setting,
    /// The most that it may refer to, where the setting is one of a chain: [`Reference::Independent`], nothing;
    /// [`Reference::Previous`], whatever the codec made before and was not lost, the last frame first.
    pub reference: Reference,
    /// What became of frames that the codec made before, to be heeded first.
    pub news: News,
    /// The most bytes that may come out.
    pub bytes_max: u32,
    /// The codec may refer to an older frame than the last one, so that later ones are decoded without those between
    /// (`docs/decisions/0047-anchors.md`), if the frame then has about so many bytes or fewer. 0: it may not.
    pub anchor_bytes_max: u32,
    /// When the codec is given up: the frame would be too late anyway.
    pub deadline: Instant,
}

/// What came of a [`Transform`].
#[derive(Clone, Debug, PartialEq)]
pub enum Transformed {
    /// A payload, and what has to be said of it.
    Made {
        /// What is sent.
        payload: Bytes,
        /// How it is coded.
        encoding: Encoding,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// What was done; lower than asked for where the bytes forced it.
        rung: Rung,
        /// Its place in a chain.
        chain: ChainLink,
    },
    /// Nothing: the codec could not keep to the bytes. It is in order otherwise.
    TooLarge {
        /// The fewest that it came down to.
        bytes: u32,
    },
    /// Nothing yet: the frames that it needs are not all decoded. The codec is in order.
    NotYet,
    /// Nothing: the log has no longer all frames that it needs. The codec is in order, and nothing can be made of the source's video before its next
    /// key frame.
    Lacking,
    /// Nothing: the codec failed or was late, or the frame cannot be read. The driver's log says why.
    Failed,
}
