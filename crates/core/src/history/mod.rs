//! Asking for the past: what a reader lacks, and what whoever keeps frames has to say of it.
//!
//! A reading of the past takes one step at a time: *the next frame after this one*. Memory, the disk of this broker and
//! the camera's own log are asked the same question, a [`PastQuery`], and the smallest answer is the next frame. So nothing
//! comes twice or out of order, whatever is evicted, removed or fetched meanwhile.
//!
//! | who is asked | where |
//! | --- | --- |
//! | memory | [`PastQuery::find_in`] |
//! | this broker's disk | [`crate::store::StoreReader`] |
//! | frames that were fetched from the camera before | [`FetchedFrames`] |
//! | the camera | [`crate::broker::edge`], [`crate::broker::camera`] |

mod fetched;

pub use self::fetched::FetchedFrames;

use crate::frame::{FrameId, FrameMeta, Rung};
use crate::log::{LogReader, Record};
use crate::setting::{Setting, SettingError};
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

/// What a subscription asks of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastWish {
    /// How far it reaches.
    pub reach: Reach,
    /// As what it wants frames of the past: see [`PastQuery::quality`].
    pub quality: Option<Setting>,
    /// Whether it wants every frame that somebody still holds, also those of the present that were passed over when they were new:
    /// they are fetched, and come before the frame behind them.
    pub fill: bool,
}

impl PastWish {
    /// All that there is, as it is held, and as it was published where it is not.
    pub const ALL: Self = Self { reach: Reach::Camera, quality: None, fill: false };
    /// The same without holes, as far as anybody still holds what lies in them.
    pub const FILLED: Self = Self { fill: true, ..Self::ALL };
}

/// Why a text says no quality that frames of the past can be had at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QualityError {
    /// It is no rung.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A frame cannot be made so without others.
    #[error(
        "a frame of the past is made by itself, and the rung {} goes by other frames; take original, \
         jpeg[/wWIDTH]/qQUALITY/gray|420|422|444, or knobs without moving, contours, diff and skip",
        rung.as_str()
    )]
    NeedsOthers {
        /// The rung.
        rung: Rung,
    },
}

/// The quality that a rung's name says, for frames of the past: one that a frame can be made to by itself.
///
/// # Errors
/// [`QualityError`] with the rungs that there are.
pub fn quality(rung: &str) -> Result<Setting, QualityError> {
    let setting: Setting = rung.parse()?;
    if setting.stands_alone() { Ok(setting) } else { Err(QualityError::NeedsOthers { rung: setting.rung() }) }
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
    /// As what the frame is wanted. `None`: as it is held here, and as it was published where it is not. Otherwise a frame that is held
    /// here as anything else but this, or the original, is asked of its camera, and comes as it is held only where that has it no more.
    pub quality: Option<Setting>,
}

impl PastQuery {
    /// For every frame of the past that this broker holds, as it is held.
    pub const EVERY: Self = Self {
        after: None,
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        reach: Reach::Disk,
        quality: None,
    };

    /// What a camera is asked to make of the frame.
    pub fn rung(&self) -> Rung {
        self.quality.as_ref().map_or_else(Rung::original, Setting::rung)
    }

    /// Whether a frame that is held is as good as was asked: what was published, which is never less, or the rung that is wanted.
    pub fn is_served_by(&self, meta: &FrameMeta) -> bool {
        self.quality.is_none() || is_original(&meta.rung) || self.rung() == meta.rung
    }

    /// Whether a frame that was fetched before answers. One that was fetched smaller, for another reading, is no original.
    pub fn is_answered_by(&self, meta: &FrameMeta) -> bool {
        self.admits(meta) && (is_original(&meta.rung) || self.rung() == meta.rung)
    }

    /// Whether a frame of this identity lies where it is looked for.
    pub fn spans(&self, id: FrameId) -> bool {
        self.after.is_none_or(|after| id > after) && self.before.is_none_or(|before| id < before)
    }

    /// The frame that is looked for, if a log holds it in memory.
    pub fn find_in(&self, log: &LogReader) -> Option<Record> {
        let ranges = log.between(self.begin, self.end);
        let (from, to) = (
            self.after.map_or(0, |after| log.index_of(after.next())),
            self.before.map_or(u64::MAX, |before| log.index_of(before)),
        );
        let mut wanted = ranges.into_iter().map(|range| range.start.max(from)..range.end.min(to));
        if self.newest {
            wanted.rev().flat_map(Iterator::rev).find_map(|index| log.get(index))
        } else {
            wanted.find_map(|mut range| range.find_map(|index| log.get(index)))
        }
    }

    /// Whether a frame is one that is looked for.
    pub fn admits(&self, meta: &FrameMeta) -> bool {
        self.spans(meta.id) && (self.begin..=self.end).contains(&meta.captured)
    }
}

fn is_original(rung: &Rung) -> bool {
    rung.as_str() == Rung::ORIGINAL
}

/// Why a question was not answered by the camera that it was for. That is not the answer that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unanswered {
    /// The camera takes no such questions: it is of an earlier version, or does not make this rung.
    Unable,
    /// As many questions wait as may.
    Busy,
    /// It did not answer in time, or not what was asked.
    TimedOut,
    /// It was not connected, and did not come within
    /// [`CAMERA_RETURN_MAX`](crate::broker::edge::CAMERA_RETURN_MAX).
    CameraAbsent,
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
    /// The camera itself has said that it holds nothing else where it was asked, and holds its frames from this capture time on;
    /// [`Timestamp::MAX`] if it holds none at all. `None`: it has not said so.
    pub camera_holds_from: Option<Timestamp>,
    /// The camera was to be asked and did not answer: what it may hold before the frame is not known.
    pub unanswered: Option<Unanswered>,
}

impl PastAnswer {
    /// The answer of a camera that has not been heard.
    pub fn unanswered(why: Unanswered) -> Self {
        Self { unanswered: Some(why), ..Self::default() }
    }

    /// What is left to ask of the camera when this broker's disk has answered like this; `None` if nothing is.
    pub fn left_to_ask(&self, query: &PastQuery) -> Option<PastQuery> {
        // What is held otherwise than it is wanted is asked of the camera too.
        let held = self.record.as_ref().map(|record| &record.frame.meta);
        let next =
            held.map(|meta| if query.is_served_by(meta) { meta.id } else { meta.id.next() }).or(query.before);
        let follows = query.after.is_some_and(|after| Some(after.next()) == next);
        let is_enough = query.newest && self.record.is_some();
        (query.reach == Reach::Camera && !follows && !is_enough)
            .then_some(PastQuery { before: next, ..*query })
    }

    /// What disk and camera have together, and the disk's frame if that comes behind the camera's.
    pub fn with_camera(self, fetched: Self) -> (Self, Option<Record>) {
        let held_from = oldest_of(self.held_from, fetched.held_from);
        match fetched.record {
            Some(record) => {
                let held_from = oldest_of(held_from, Some(record.frame.meta.captured));
                let answer = Self { record: Some(record), broken: false, held_from, ..fetched };
                (answer, self.record)
            }
            None => {
                let Self { record, broken, .. } = self;
                (Self { record, broken, held_from, ..fetched }, None)
            }
        }
    }
}

fn oldest_of(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
