//! Requests frames of the past that a reader lacks, and combines the answers of memory, disk and camera.
//!
//! Reading the past takes one step at a time: *the next frame after this one*. Memory, this broker's disk and the camera's own log get
//! the same query, a [`PastQuery`]. The earliest answer is the next frame. So no frame comes twice or out of order, whatever is evicted,
//! removed or fetched meanwhile.
//!
//! | who is asked | where |
//! | --- | --- |
//! | memory | [`PastQuery::find_in`] |
//! | this broker's disk | [`crate::store::StoreReader`] |
//! | frames that were fetched from the camera | [`FetchedFrames`] |
//! | the camera | [`crate::broker::edge`], [`crate::broker::camera`] |
//!
//! [`HeldSummary`] sums up which times are held, and why others are not. The result is a [`Survey`]; a camera sends its survey to the edge.

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

/// The name of [`still_of_video`].
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

/// Which frames of the past a subscription requests, and at which quality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastOptions {
    /// The slowest tier that is asked. Faster tiers are asked too. Default: only memory.
    pub tier_max: Tier,
    /// The quality of frames of the past ([`PastQuery::quality`]). A subscription to the newest frames
    /// of the present may request originals ([`PastOptions::ORIGINALS`]), and no other quality.
    pub quality: Option<Setting>,
    /// Whether to deliver every frame that edge or camera still hold. Frames of the present that
    /// were skipped when they were new are then fetched, and delivered before the next later frame.
    pub fill: bool,
}

impl PastOptions {
    /// Every frame of the past, wherever it is held, at the quality at which it is held; the original if it
    /// must be fetched.
    pub const ALL: Self = Self { tier_max: Tier::Camera, quality: None, fill: false };
    /// All frames of the past, and also the frames between live ones, as far as edge or camera still hold them.
    pub const FILLED: Self = Self { fill: true, ..Self::ALL };
    /// The originals of the newest frames. If a frame crosses the link at another rung, its
    /// original is fetched, with the part of the link that the camera's contracts leave.
    pub const ORIGINALS: Self = Self { quality: Some(Setting::ORIGINAL), ..Self::ALL };

    /// Whether only originals are wanted.
    pub fn wants_originals(&self) -> bool {
        self.quality == Some(Setting::ORIGINAL)
    }
}

/// The rung for a frame of the past from a source's own video if its original is requested: the
/// original cannot be decoded without the frames before it. A JPEG of full size and quality 95.
pub fn still_of_video() -> Setting {
    STILL_OF_VIDEO.parse().expect("the rung is spelt right; a test looks at it")
}

/// Whether a frame's pixels are exactly those that were published.
pub fn is_unmodified(rung: &Rung) -> bool {
    is_original(rung) || rung.setting().is_ok_and(|setting| setting.form == Form::Original)
}

/// Why a text is no quality for frames of the past.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QualityError {
    /// The text names no rung.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The rung needs other frames to be decoded.
    #[error(
        "a frame of the past is encoded on its own, but the rung {} depends on other frames; use original, \
         jpeg[/wWIDTH]/qQUALITY/gray|420|422|444, data/NAME=NUMBER, or knobs without moving, contours, diff and skip",
        rung.as_str()
    )]
    NeedsOthers {
        /// The rung.
        rung: Rung,
    },
}

/// The quality for frames of the past that a rung's name stands for. The rung must stand alone.
///
/// # Errors
/// [`QualityError`], whose message lists the rungs that are allowed.
pub fn quality(rung: &str) -> Result<Setting, QualityError> {
    let setting: Setting = rung.parse()?;
    if setting.stands_alone() { Ok(setting) } else { Err(QualityError::NeedsOthers { rung: setting.rung() }) }
}

/// A query for one frame of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastQuery {
    /// The last frame that the reader has: only later frames answer. `None`: no limit.
    pub after: Option<FrameId>,
    /// The next frame that the reader can get elsewhere: only earlier frames answer. `None`: no limit.
    pub before: Option<FrameId>,
    /// The earliest capture time wanted. An older frame may answer if others need it to be decoded.
    pub begin: Timestamp,
    /// The earliest capture time wanted. An older frame may answer if later frames need it to be decoded.
    pub end: Timestamp,
    /// Whether the newest frame of the span is wanted instead of the oldest.
    pub newest: bool,
    /// The slowest tier that is asked for the frame. Faster tiers are asked too.
    pub tier_max: Tier,
    /// The quality at which the frame is wanted. `None`: as it is held here, or the original if it is not
    /// held here. With a quality, a frame that is held here at another quality is requested from its camera,
    /// and comes as it is held here only if the camera no longer has it. An original always answers.
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

    /// A query for the original of the newest frame after `after`, captured until `end`.
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

    /// Whether the newest frame of all is wanted, which only its camera knows. The camera
    /// picks the frame when it can send it, because a newer frame may come in the meantime.
    pub fn is_for_present(&self) -> bool {
        self.newest && self.begin == Timestamp::MIN && self.rung().as_str() == Rung::ORIGINAL
    }

    /// Whether this broker's disk may answer. The disk does not know which frame is the newest.
    pub fn asks_disk(&self) -> bool {
        !(self.is_for_present() && self.quality.is_some())
    }

    /// The rung that the camera is asked for.
    pub fn rung(&self) -> Rung {
        self.quality.as_ref().map_or_else(Rung::original, Setting::rung)
    }

    /// Whether a held frame has the wanted quality: no quality is given, or the frame is the original or has the wanted rung.
    pub fn is_served_by(&self, meta: &FrameMeta) -> bool {
        self.quality.is_none() || is_original(&meta.rung) || self.rung() == meta.rung
    }

    /// Whether a frame that was fetched earlier answers. Without a quality, only
    /// an original does, because a smaller frame was fetched for another reader.
    pub fn is_answered_by(&self, meta: &FrameMeta) -> bool {
        self.admits(meta) && (is_original(&meta.rung) || self.rung() == meta.rung)
    }

    /// Whether this identity lies between `after` and `before`.
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

    /// The capture time from which on frames are held before the upper limit, given the `oldest` frame of all. `None` if `oldest` is beyond the
    /// limit: its capture time then says nothing about frames before the limit, and may be earlier than theirs if the camera's clock was set back.
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

/// Why the camera gave no answer. A camera that holds nothing does answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unanswered {
    /// The camera does not support such queries: it has an earlier version, or does not make this rung.
    Unable,
    /// Too many queries are open.
    Busy,
    /// The camera did not answer in time, or its answer did not fit the query.
    TimedOut,
    /// The camera was not connected, and did not return within
    /// [`CAMERA_RETURN_MAX`](crate::broker::edge::CAMERA_RETURN_MAX).
    CameraAbsent,
}

/// The answer to a [`PastQuery`].
#[derive(Clone, Debug, Default)]
pub struct PastAnswer {
    /// The frame. `None` if no frame matches, or none any more.
    pub record: Option<Record>,
    /// Whether earlier frames that once were held cannot be read, because they were removed or damaged.
    pub broken: bool,
    /// The capture time of the oldest frame held, if this frame is before the query's upper limit. `None` otherwise.
    pub held_from: Option<Timestamp>,
    /// The capture time from which on the camera holds frames, once the camera has reported that it holds nothing else
    /// in the requested span. [`Timestamp::MAX`] if it holds no frame at all. `None`: the camera has not reported this.
    pub camera_holds_from: Option<Timestamp>,
    /// Why the camera did not answer when asked. It is then unknown which frames the camera holds before the frame.
    pub unanswered: Option<Unanswered>,
}

impl PastAnswer {
    /// The answer if the camera did not answer.
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

    /// The combined answer of disk (`self`) and camera. Also returns the disk's frame if it is later than the camera's.
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
