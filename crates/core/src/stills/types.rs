//! Defines the queries, answers and outputs of makers of stills.

use bytes::Bytes;

use crate::frame::{Encoding, Frame, FrameId};
use crate::log::{LogReader, Record};

/// The form in which a frame of a chain is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A still, which any application can take.
    Still,
    /// A picture as the codec gives it, for readers on this host.
    Picture,
}

/// A decoded picture as the codec gave it. Only the driver of a maker of stills knows how to read its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The layout of the bytes.
    pub form: u8,
    /// The samples.
    pub data: Bytes,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Where the samples are in memory, if other processes can read them there.
    pub place: Option<PicturePlace>,
}

/// A place in memory that several processes can read; the driver defines the numbers. It is not reused while somebody holds the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PicturePlace {
    /// The memory.
    pub memory: u64,
    /// The slot in the memory.
    pub slot: u8,
}

/// The outcome of a frame that a decoder was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// The frame was decoded to a still.
    Still {
        /// The bytes of the still.
        payload: Bytes,
        /// The encoding of the still, never one that [`Encoding::is_chained`].
        encoding: Encoding,
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The frame was decoded to a picture as the codec gives it.
    Picture(Picture),
    /// The frame was decoded, and no form of it was wanted.
    Passed,
    /// The frame needs frames that the decoder does not hold. The decoder's state is unchanged.
    NotHeld,
    /// The frame is damaged, or the decoder failed or took too long. The decoder's state is lost.
    Failed,
}

/// A query for the still of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillQuery {
    /// The frame, which is in the log.
    pub frame: FrameId,
    /// Whether the frame is wanted because it is the newest. A newer frame whose still is ready sooner would be better.
    pub newest: bool,
}

/// The answer to a query for a still.
#[derive(Clone, Debug)]
pub enum StillAnswer {
    /// The still, and the log whose budget holds it. Without a log, the reader alone holds the still.
    Still(Box<Record>, Option<LogReader>),
    /// The still cannot be made: the frame, or a frame that it needs, is damaged or gone.
    NotDecoded,
    /// The still would take long, and a newer chain has begun, of which a still is made at once. Or its maker did not answer.
    Overtaken,
    /// The frame is no longer in the log.
    Gone,
}

/// The answer to a query for a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureAnswer {
    /// The picture.
    Picture(Picture),
    /// There is no picture, because a decoder has passed the frame. A newer frame will have a picture.
    Overtaken,
    /// There is no picture: the frame, or a frame that it needs, cannot be decoded or is gone.
    NotDecoded,
}

/// An action for the driver of a maker of stills.
#[derive(Clone, Debug)]
pub enum StillOutput {
    /// Give a decoder a frame, and report the outcome with [`StillMaker::handle_decoded`](super::StillMaker::handle_decoded).
    Decode {
        /// Which decoder, below [`DECODERS_MAX`](super::DECODERS_MAX).
        decoder: usize,
        /// The frame to decode.
        frame: Box<Frame>,
        /// Whether the decoder must first forget what it holds.
        afresh: bool,
        /// The form wanted. `None`: the frame is decoded only for later frames.
        wanted: Option<Form>,
    },
    /// Make a form of the frame that a decoder decoded last, and report the outcome in the same way.
    Show {
        /// Which decoder.
        decoder: usize,
        /// The frame.
        frame: FrameId,
        /// The form wanted.
        form: Form,
    },
    /// Free the memory of a decoder, which is not needed now.
    Release {
        /// Which decoder.
        decoder: usize,
    },
    /// The answer to a query for a still.
    Answer {
        /// The number of the query.
        question: u64,
        /// The answer.
        answer: StillAnswer,
    },
    /// The answer to a query for a picture.
    Picture {
        /// The number of the query.
        question: u64,
        /// The answer.
        answer: PictureAnswer,
    },
    /// A chain cannot be decoded, or not soon: ask the camera for a keyframe.
    ChainLost,
    /// A decoder failed on this frame for the first time. For queries for this or a later
    /// frame of its chain that do not want the newest, the chain is decoded once more.
    TriesAgain {
        /// The frame.
        frame: FrameId,
    },
}
