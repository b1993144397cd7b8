//! What makers of stills are asked, told and want done.

use bytes::Bytes;

use crate::frame::{Encoding, Frame, FrameId};
use crate::log::{LogReader, Record};

/// In which form a frame of a chain is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As a still, which any application can take.
    Still,
    /// As the codec gives it, for readers on this host.
    Picture,
}

/// A decoded picture as the codec gave it. Whoever drives a maker of stills knows what the numbers and bytes mean; here they
/// are only held and handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// How the bytes are to be read.
    pub form: u8,
    /// Its samples.
    pub data: Bytes,
    /// Pixels in a row, and rows.
    pub size: (u32, u32),
    /// Where the samples lie, if others can look there too.
    pub place: Option<PicturePlace>,
}

/// A place that several processes can look at, in the numbers of whoever drives a maker of stills. What lies there stays as long as
/// somebody has the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PicturePlace {
    /// The memory.
    pub memory: u64,
    /// The slot in it.
    pub slot: u8,
}

/// What came of a frame that a decoder was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// The frame, in a form that decodes by itself.
    Still {
        /// Its bytes.
        payload: Bytes,
        /// The encoding of the decoded frame. It is never one that [`Encoding::is_chained`].
        encoding: Encoding,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// The frame, as the codec gives it.
    Picture(Picture),
    /// It was decoded, and nobody wanted to see it.
    Passed,
    /// It needs frames that the decoder does not hold. The decoder's state is unchanged.
    NotHeld,
    /// It is damaged, or the decoder failed or took too long. The decoder's state is lost.
    Failed,
}

/// A question for the still of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillQuery {
    /// The frame, which is in the log.
    pub frame: FrameId,
    /// It is asked for because it is the newest: a newer one that is there sooner would be better.
    pub newest: bool,
}

/// What there is of a still that was asked for.
#[derive(Clone, Debug)]
pub enum StillAnswer {
    /// The still, and the log that holds its memory. Without a log the memory is the reader's own.
    Still(Box<Record>, Option<LogReader>),
    /// It cannot be made: the frame, or one that it needs, is damaged or gone.
    NotDecoded,
    /// It would take long, and a newer chain has begun of which a still is made at once.
    Overtaken,
    /// The frame is in the log no more.
    Gone,
}

/// What there is of a picture that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PictureAnswer {
    /// The picture.
    Picture(Picture),
    /// There is none, but a newer frame has been decoded, of which there will be one.
    Overtaken,
    /// There is none: the frame, or one that it needs, cannot be decoded or is gone.
    NotDecoded,
}

/// What a maker of stills wants done.
#[derive(Clone, Debug)]
pub enum StillOutput {
    /// Give a decoder a frame, and report the outcome with [`StillMaker::handle_decoded`](super::StillMaker::handle_decoded).
    Decode {
        /// Which decoder, below [`DECODERS_MAX`](super::DECODERS_MAX).
        decoder: usize,
        /// The frame as it came.
        frame: Box<Frame>,
        /// The decoder must forget what it holds first.
        afresh: bool,
        /// What to make of it. `None`: it is decoded for those behind it.
        wanted: Option<Form>,
    },
    /// Make something of the frame that a decoder decoded last, and report it in the same way.
    Show {
        /// Which decoder.
        decoder: usize,
        /// The frame.
        frame: FrameId,
        /// What to make of it.
        form: Form,
    },
    /// A decoder is not needed now: free its memory.
    Release {
        /// Which decoder.
        decoder: usize,
    },
    /// A question is answered.
    Answer {
        /// Its number.
        question: u64,
        /// The answer.
        answer: StillAnswer,
    },
    /// A question for a picture is answered.
    Picture {
        /// Its number.
        question: u64,
        /// The answer.
        answer: PictureAnswer,
    },
    /// A chain cannot be decoded any further: the camera must be asked for another.
    ChainLost,
    /// A decoder failed on this frame for the first time. Whoever wants it or a later one of its chain, and not the newest, has the chain decoded
    /// once more.
    TriesAgain {
        /// The frame.
        frame: FrameId,
    },
}
