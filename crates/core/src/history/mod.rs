//! Asking for the past: what a reader lacks, and what whoever keeps frames has to say of it.
//!
//! A reading of the past takes one step at a time: *the next frame after this one*. Memory, the disk of this broker and
//! the camera's own log are asked the same question, a [`PastQuery`], and the smallest answer is the next frame. So nothing
//! comes twice or out of order, whatever is evicted, removed or fetched meanwhile.
//!
//! | who is asked | where |
//! | --- | --- |
//! | memory | [`crate::log::LogReader::find`] |
//! | this broker's disk | [`crate::store::StoreReader`] |
//! | frames that were fetched from the camera before | [`FetchedFrames`] |
//! | the camera | [`crate::broker::edge`], [`crate::broker::camera`] |

mod fetched;

pub use self::fetched::FetchedFrames;

use crate::frame::{FrameId, FrameMeta};
use crate::log::Record;
use crate::units::Timestamp;

/// How far a subscription reaches for frames of the past that memory does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// No further than memory.
    #[default]
    Memory,
    /// To what the broker keeps on its own disk.
    Disk,
    /// To the camera's log, also for frames that were skipped when they were new.
    Camera,
}

/// A question for a frame of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastQuery {
    /// The last frame that the reader has: only later ones are of use. `None`: any.
    pub after: Option<FrameId>,
    /// The next frame that the reader can have elsewhere: only earlier ones are of use. `None`: any.
    pub before: Option<FrameId>,
    /// The first capture time wanted. A frame that others need to be decoded may be given although it is older.
    pub begin: Timestamp,
    /// The last capture time wanted.
    pub end: Timestamp,
    /// The newest frame of the span instead of the oldest.
    pub newest: bool,
    /// Who is to be asked.
    pub reach: Reach,
}

impl PastQuery {
    /// Whether a frame of this identity lies where it is looked for.
    pub fn spans(&self, id: FrameId) -> bool {
        self.after.is_none_or(|after| id > after) && self.before.is_none_or(|before| id < before)
    }

    /// Whether a frame is one that is looked for.
    pub fn admits(&self, meta: &FrameMeta) -> bool {
        self.spans(meta.id) && (self.begin..=self.end).contains(&meta.captured)
    }
}

/// What is known of the past.
#[derive(Clone, Debug, Default)]
pub struct PastAnswer {
    /// The frame; `None` if there is none, or none any more.
    pub record: Option<Record>,
    /// Frames before it that were once held cannot be read: removed meanwhile, or damaged.
    pub broken: bool,
    /// The capture time of the oldest frame that is held; `None` if none is.
    pub held_from: Option<Timestamp>,
}
