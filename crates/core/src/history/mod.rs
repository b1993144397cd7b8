//! Asks for frames of the past that a reader lacks, and combines the answers of those who hold frames.
//!
//! Reading the past takes one step at a time: *the next frame after this one*. Memory, this broker's disk and
//! the camera's own log are all asked the same question, a [`PastQuery`]. The earliest answer is the next
//! frame. So no frame comes twice or out of order, whatever is evicted, removed or fetched meanwhile.
//!
//! | who is asked | where |
//! | --- | --- |
//! | memory | [`PastQuery::find_in`] |
//! | this broker's disk | [`crate::store::StoreReader`] |
//! | frames fetched from the camera before | [`FetchedFrames`] |
//! | the camera | [`crate::broker::edge`], [`crate::broker::camera`] |
//!
//! Which times are held, and why others are not, [`HeldSummary`] sums up. A [`Survey`] is what comes of it: a camera tells its own to the edge.

mod fetched;
mod held;
mod survey;

pub use self::fetched::FetchedFrames;
pub use self::held::{HOLE_MIN, HOLES_MAX, HeldSpan, HeldSummary, Hole, HoleReason, PAUSE_MIN};
pub use self::survey::{SURVEY_HOLES_MAX, SURVEY_SPANS_MAX, Survey, SurveyFault};

use crate::frame::{FrameId, FrameMeta, Rung};
use crate::log::{LogReader, Record};
use crate::setting::{Form, Setting, SettingError};
use crate::units::Timestamp;

/// [`still_of_video`].
const STILL_OF_VIDEO: &str = "jpeg/q95/420";

/// Where frames of the past are held. Each tier is slower to ask than the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The broker's memory.
    #[default]
    Memory,
    /// The broker's own disk.
    Disk,
    /// The camera's log. It also holds frames that were skipped when they were new.
    Camera,
}

/// What a subscription asks for of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastOptions {
    /// The slowest tier that is asked. Those before it are asked too. Default: only memory.
    pub tier_max: Tier,
    /// The quality at which it wants frames of the past ([`PastQuery::quality`]). A subscription to the newest
    /// frames of the present may want their originals ([`PastOptions::ORIGINALS`]), and nothing else.
    pub quality: Option<Setting>,
    /// Whether it wants every frame that anybody still holds. Frames of the present that were passed over
    /// when they were new are then fetched, and come before the frame behind them.
    pub fill: bool,
}

impl PastOptions {
    /// Every frame of the past, wherever it is held, at the quality at which it is held; the original if it
    /// must be fetched.
    pub const ALL: Self = Self { tier_max: Tier::Camera, quality: None, fill: false };
    /// All frames of the past, and also the frames between live ones, as far as anybody still holds them.
    pub const FILLED: Self = Self { fill: true, ..Self::ALL };
    /// The originals of the newest frames. Those that cross the link otherwise are fetched, in what the
    /// contracts on the camera leave of the link.
    pub const ORIGINALS: Self = Self { quality: Some(Setting::ORIGINAL), ..Self::ALL };

    /// Whether the originals are wanted, and nothing else.
    pub fn wants_originals(&self) -> bool {
        self.quality == Some(Setting::ORIGINAL)
    }
}

/// The rung at which a frame of a source's own video is given of the past, if its original is asked for: it could not be decoded without the frames
/// before it. A JPEG of full size and quality 95.
pub fn still_of_video() -> Setting {
    STILL_OF_VIDEO.parse().expect("the rung is spelt right; a test looks at it")
}

/// Whether a frame's pixels are those that were published, to the last bit.
pub fn is_unmodified(rung: &Rung) -> bool {
    is_original(rung) || rung.setting().is_ok_and(|setting| setting.form == Form::Original)
}

/// Why a text names no quality for frames of the past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QualityError {
    /// It names no rung.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The rung needs other frames to be decoded.
    #[error(
        "a frame of the past is made by itself, and the rung {} goes by other frames; take original, \
         jpeg[/wWIDTH]/qQUALITY/gray|420|422|444, data/NAME=NUMBER, or knobs without moving, contours, diff and skip",
        rung.as_str()
    )]
    NeedsOthers {
        /// The rung.
        rung: Rung,
    },
}

/// The quality for frames of the past that a rung's name says. The rung must stand alone.
///
/// # Errors
/// [`QualityError`] with the rungs that there are.
pub fn quality(rung: &str) -> Result<Setting, QualityError> {
    let setting: Setting = rung.parse()?;
    if setting.stands_alone() { Ok(setting) } else { Err(QualityError::NeedsOthers { rung: setting.rung() }) }
}

/// A question for one frame of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastQuery {
    /// The last frame that the reader has: only later frames answer. `None`: no limit.
    pub after: Option<FrameId>,
    /// The next frame that the reader can get elsewhere: only earlier frames answer. `None`: no limit.
    pub before: Option<FrameId>,
    /// The earliest capture time wanted. An older frame may answer if others need it to be decoded.
    pub begin: Timestamp,
    /// The latest capture time wanted.
    pub end: Timestamp,
    /// Whether the newest frame of the span is wanted instead of the oldest.
    pub newest: bool,
    /// The slowest tier that is asked for the frame. Those before it are asked too.
    pub tier_max: Tier,
    /// The quality at which the frame is wanted. `None`: as it is held here, or the original if it is not
    /// held here. With a quality, a frame that is held here at another one is requested from its camera. It
    /// comes as it is held here only if the camera no longer has it. The original always serves.
    pub quality: Option<Setting>,
}

impl PastQuery {
    /// Every frame of the past that this broker holds, as it is held.
    pub const EVERY: Self = Self {
        after: None,
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Disk,
        quality: None,
    };

    /// The question for the original of the newest frame after these.
    pub fn newest_original(after: Option<FrameId>, end: Timestamp) -> Self {
        Self {
            after,
            end,
            newest: true,
            tier_max: Tier::Camera,
            quality: Some(Setting::ORIGINAL),
            ..Self::EVERY
        }
    }

    /// Whether the newest frame of all is wanted, which only its camera can name. The camera looks for it when it
    /// can send it, because a newer one may come meanwhile.
    pub fn is_for_present(&self) -> bool {
        self.newest && self.begin == Timestamp::MIN && self.rung().as_str() == Rung::ORIGINAL
    }

    /// Whether this broker's disk may answer. It cannot say which frame is the newest.
    pub fn asks_disk(&self) -> bool {
        !(self.is_for_present() && self.quality.is_some())
    }

    /// The rung that a camera is asked for.
    pub fn rung(&self) -> Rung {
        self.quality.as_ref().map_or_else(Rung::original, Setting::rung)
    }

    /// Whether a held frame has the wanted quality: any will do, or it is the original or has the wanted
    /// rung.
    pub fn is_served_by(&self, meta: &FrameMeta) -> bool {
        self.quality.is_none() || is_original(&meta.rung) || self.rung() == meta.rung
    }

    /// Whether a frame that was fetched before answers. A smaller frame that was fetched for another reader
    /// is no original.
    pub fn is_answered_by(&self, meta: &FrameMeta) -> bool {
        self.admits(meta) && (is_original(&meta.rung) || self.rung() == meta.rung)
    }

    /// Whether a frame of this identity lies within the limits.
    pub fn spans(&self, id: FrameId) -> bool {
        self.after.is_none_or(|after| id > after) && self.before.is_none_or(|before| id < before)
    }

    /// The wanted frame, if a log holds it in memory.
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

    /// The capture time from which on frames are held before the upper limit, given the `oldest` frame of all.
    /// `None` if there are none: a frame behind the limit says nothing about those before it. Its capture time
    /// may lie before theirs, if the camera's clock was set back.
    pub fn held_from(&self, oldest: Option<(FrameId, Timestamp)>) -> Option<Timestamp> {
        let oldest = oldest.filter(|(id, _)| self.before.is_none_or(|before| *id < before));
        oldest.map(|(_, captured)| captured)
    }

    /// Whether a frame is within the limits of identity and time.
    pub fn admits(&self, meta: &FrameMeta) -> bool {
        self.spans(meta.id) && (self.begin..=self.end).contains(&meta.captured)
    }
}

fn is_original(rung: &Rung) -> bool {
    rung.as_str() == Rung::ORIGINAL
}

/// Why the camera gave no answer. This differs from the answer that it holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unanswered {
    /// The camera does not support such questions: it has an earlier version, or does not make this rung.
    Unable,
    /// Too many questions are open.
    Busy,
    /// The camera did not answer in time, or its answer did not fit the question.
    TimedOut,
    /// The camera was not connected, and did not return within
    /// [`CAMERA_RETURN_MAX`](crate::broker::edge::CAMERA_RETURN_MAX).
    CameraAbsent,
}

/// The answer to a question about the past.
#[derive(Clone, Debug, Default)]
pub struct PastAnswer {
    /// The frame. `None` if there is none, or none any more.
    pub record: Option<Record>,
    /// Whether earlier frames that were once held cannot be read, because they were removed or damaged.
    pub broken: bool,
    /// The capture time of the oldest frame that is held, if it is before the question's upper limit. `None`
    /// if none is.
    pub held_from: Option<Timestamp>,
    /// The capture time from which on the camera holds its frames, once the camera itself has said that it
    /// holds nothing else in the span asked for. [`Timestamp::MAX`] if it holds none at all. `None`: it has
    /// not said so.
    pub camera_holds_from: Option<Timestamp>,
    /// Why the camera did not answer when asked. What it holds before the frame is then unknown.
    pub unanswered: Option<Unanswered>,
}

impl PastAnswer {
    /// The answer if the camera was not heard.
    pub fn unanswered(why: Unanswered) -> Self {
        Self { unanswered: Some(why), ..Self::default() }
    }

    /// What to ask the camera after this broker's disk has answered. `None` if nothing is left to ask.
    pub fn left_to_ask(&self, query: &PastQuery) -> Option<PastQuery> {
        // A frame that is held at another quality than the wanted one is requested from the camera too.
        let held = self.record.as_ref().map(|record| &record.frame.meta);
        let next =
            held.map(|meta| if query.is_served_by(meta) { meta.id } else { meta.id.next() }).or(query.before);
        let follows = query.after.is_some_and(|after| Some(after.next()) == next);
        let is_enough = query.newest && self.record.is_some();
        (query.tier_max == Tier::Camera && !follows && !is_enough)
            .then_some(PastQuery { before: next, ..*query })
    }

    /// The combined answer of disk and camera, and the disk's frame if it is later than the camera's.
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
