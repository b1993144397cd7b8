//! Surveys the frames of a camera's past that are held in memory and on disk, from frame
//! headers alone. At an edge or at the camera. An edge also asks the camera for its own survey.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mez_core::broker::edge::NotSurveyed;
use mez_core::frame::{FrameId, SkipCounts, SkipReason};
use mez_core::history::{
    HOLES_MAX, HeldSummary, HoleReason, PastQuery, SURVEY_HOLES_MAX, Survey, Tier, Unanswered,
};
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::store::{StorageError, StorageErrorKind, StoreReader};
use mez_core::subscription::skipped_between;
use mez_core::units::{Instant, Timestamp};
use tracing::{debug, warn};

use crate::clock::monotonic_now;
use crate::persist::LogFiles;
use crate::reading::PastSources;

/// The most frames whose headers one survey reads.
pub(crate) const SURVEY_FRAMES_MAX: u64 = 200_000;
/// The longest duration of one survey.
const SURVEY_TIME_MAX: Duration = Duration::from_secs(3);
/// How many frames are read between two checks of the clock.
const FRAMES_BETWEEN_LOOKS: u64 = 256;
/// The longest time for the camera to report since when it holds frames. After this, the next survey asks it again.
const CAMERA_TIME_MAX: Duration = Duration::from_secs(1);
/// The longest time for the camera's survey: the duration of a survey and the round trip.
const CAMERA_SURVEY_TIME_MAX: Duration = Duration::from_secs(5);

/// The broker whose log is surveyed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogOf {
    /// An edge. Contains the reason for the hole after the last frame, which applies if no frame after the span is held.
    Edge(HoleReason),
    /// The camera itself.
    Camera,
}

impl LogOf {
    const fn holes_max(self) -> u32 {
        match self {
            Self::Edge(_) => HOLES_MAX,
            Self::Camera => SURVEY_HOLES_MAX,
        }
    }

    const fn rest(self) -> HoleReason {
        match self {
            Self::Edge(rest) => rest,
            Self::Camera => HoleReason::NotPublished,
        }
    }

    /// The missing frames by reason. No frame is late in a camera's own log: its missing frames were not written to disk.
    fn missing(self, missing: SkipCounts) -> SkipCounts {
        match self {
            Self::Edge(_) => missing,
            Self::Camera => missing.relabelled(SkipReason::LateOrLost, SkipReason::NotHeld),
        }
    }
}

/// Surveys a log of a camera's frames, at an edge or at the camera.
pub(crate) struct Surveyor {
    of: LogOf,
    disk: Option<(LogFiles, StoreReader)>,
    memory: Option<LogReader>,
    summary: HeldSummary,
    span: (Timestamp, Timestamp),
    frames: u64,
    due: Instant,
    stop: Arc<AtomicBool>,
}

impl Surveyor {
    /// Prepares a survey of `begin..=end`. The survey ends early if `stop` is set.
    pub(crate) fn new(
        of: LogOf,
        (disk, memory): (Option<(LogFiles, StoreReader)>, Option<LogReader>),
        (begin, end): (Timestamp, Timestamp),
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            of,
            disk,
            memory,
            summary: HeldSummary::new(begin, end, of.holes_max()),
            span: (begin, end),
            frames: 0,
            due: monotonic_now() + SURVEY_TIME_MAX,
            stop,
        }
    }

    /// Surveys the log. Blocks, because it reads files.
    pub(crate) fn run(mut self) -> Result<Survey, StorageError> {
        let memory = self.memory.take();
        let oldest = memory.as_ref().and_then(LogReader::oldest);
        let mut held_from = oldest.as_ref().map(|oldest| oldest.captured);
        let mut cut_at = None;
        let mut disk = self.disk.take();
        if let Some((files, reader)) = &mut disk {
            // No frame is as old. Only `held_from` of the answer is used.
            let none = PastQuery { end: Timestamp::MIN, ..PastQuery::EVERY };
            let on_disk = unless_missing(reader.find(files, &none))?.and_then(|answer| answer.held_from);
            held_from = on_disk.into_iter().chain(held_from).min();
            let is_in_memory = oldest.as_ref().is_some_and(|oldest| oldest.captured <= self.span.0);
            if !is_in_memory {
                let before = oldest.as_ref().map(|oldest| oldest.id);
                cut_at = self.read_disk(files, reader, before)?;
            }
        }
        if let (None, Some(memory)) = (cut_at, &memory) {
            cut_at = self.read_memory(memory);
        }
        if cut_at.is_none() {
            self.look_behind(&mut disk, memory.as_ref(), oldest.map(|oldest| oldest.id))?;
        }
        let rest = self.of.rest();
        let (until, rest) = cut_at.map_or((self.span.1, rest), |at| (at, HoleReason::NotPublished));
        let (spans, holes) = self.summary.finish(held_from, until, rest);
        Ok(Survey { held_from, cut_at, spans, holes })
    }

    /// Adds the frames on disk before the frame `before`. Returns the time at which a limit of the survey was reached.
    fn read_disk(
        &mut self,
        files: &mut LogFiles,
        reader: &mut StoreReader,
        before: Option<FrameId>,
    ) -> Result<Option<Timestamp>, StorageError> {
        let (begin, end) = self.span;
        let mut query = PastQuery { begin, end, before, ..PastQuery::EVERY };
        while let Some(answer) = unless_missing(reader.find(files, &query))? {
            let Some(record) = answer.record else { break };
            query.after = Some(record.frame.meta.id);
            if let Some(at) = self.add(&record, answer.broken) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn read_memory(&mut self, memory: &LogReader) -> Option<Timestamp> {
        let ranges = memory.within(self.span.0, self.span.1);
        let mut records = ranges.into_iter().flatten().filter_map(|index| memory.get(index));
        records.find_map(|record| self.add(&record, false))
    }

    /// Finds the first frame after the span, which tells how many frames are missing at the span's end. `before` is the oldest frame in memory.
    fn look_behind(
        &mut self,
        disk: &mut Option<(LogFiles, StoreReader)>,
        memory: Option<&LogReader>,
        before: Option<FrameId>,
    ) -> Result<(), StorageError> {
        let begin = self.span.1 + Duration::from_nanos(1);
        let mut query = PastQuery { begin, after: self.summary.last(), before, ..PastQuery::EVERY };
        let is_in_memory = self.summary.last().zip(before).is_some_and(|(last, oldest)| last >= oldest);
        if let Some((files, reader)) = disk.as_mut().filter(|_| !is_in_memory) {
            // The reader may be at a later epoch, so it starts again.
            let _ = reader.find(files, &PastQuery { end: Timestamp::MIN, ..PastQuery::EVERY });
            while let Some(answer) = unless_missing(reader.find(files, &query))? {
                let Some(record) = answer.record else { break };
                query.after = Some(record.frame.meta.id);
                if self.add_behind(&record, answer.broken) || self.is_over() {
                    return Ok(());
                }
            }
        }
        let ranges = memory.map(|memory| memory.within(begin, Timestamp::MAX)).unwrap_or_default();
        let mut records = ranges.into_iter().flatten().filter_map(|index| memory?.get(index));
        let _ = records.any(|record| self.add_behind(&record, false));
        Ok(())
    }

    /// Adds a frame if it is the first after the span, and returns whether it is.
    fn add_behind(&mut self, record: &Record, broken: bool) -> bool {
        let meta = &record.frame.meta;
        // Other frames are only returned because later ones refer to them.
        let is_behind = meta.captured > self.span.1 && self.summary.last().is_none_or(|last| meta.id > last);
        if is_behind {
            self.summary.add_behind(meta.id, &self.missing_before(record, broken));
        }
        is_behind
    }

    /// The frames missing between the last frame and this one.
    fn missing_before(&self, record: &Record, broken: bool) -> SkipCounts {
        let missing = match self.summary.last() {
            None => record.skipped.iter().fold(SkipCounts::default(), |mut missing, range| {
                missing.add(range.reason, range.count);
                missing
            }),
            last => skipped_between(last, record, (0, broken)),
        };
        self.of.missing(missing)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || monotonic_now() >= self.due
    }

    /// Adds a frame. Returns its capture time if a limit of the survey is reached.
    fn add(&mut self, record: &Record, broken: bool) -> Option<Timestamp> {
        let meta = &record.frame.meta;
        // Other frames are only returned because later ones refer to them.
        if meta.captured < self.span.0 || self.summary.last().is_some_and(|last| meta.id <= last) {
            return None;
        }
        let missing = self.missing_before(record, broken);
        self.summary.add(meta.id, meta.captured, &missing);
        self.frames += 1;
        let is_enough = self.frames >= SURVEY_FRAMES_MAX
            || self.frames.is_multiple_of(FRAMES_BETWEEN_LOOKS) && self.is_over();
        is_enough.then_some(meta.captured)
    }
}

/// The frames that a camera itself holds.
pub(crate) struct AtCamera {
    /// The capture time since which it holds its frames. [`Timestamp::MAX`] if it holds none.
    pub(crate) from: Result<Timestamp, Unanswered>,
    /// Its survey of the requested span. `None` if it was not asked, or did not answer.
    pub(crate) survey: Option<Survey>,
}

impl AtCamera {
    /// The camera is not connected.
    pub(crate) const ABSENT: Self = Self { from: Err(Unanswered::CameraAbsent), survey: None };

    /// Asks the camera for a survey. Without a survey, asks since when it holds frames.
    pub(crate) async fn ask(places: &PastSources, camera: &CameraName, span: (Timestamp, Timestamp)) -> Self {
        let asked = tokio::time::timeout(CAMERA_SURVEY_TIME_MAX, places.survey_camera(camera, span)).await;
        match asked.unwrap_or(Err(NotSurveyed::Unanswered(Unanswered::TimedOut))) {
            Ok(survey) => Self { from: Ok(survey.held_from.unwrap_or(Timestamp::MAX)), survey: Some(survey) },
            Err(NotSurveyed::Unanswered(Unanswered::CameraAbsent)) => Self::ABSENT,
            Err(why) => {
                match why {
                    NotSurveyed::Absurd(_) | NotSurveyed::Unreadable => {
                        warn!(%camera, "it is not known which frames the camera holds: {why}");
                    }
                    NotSurveyed::Unanswered(_) => debug!(%camera, "no survey of the camera: {why}"),
                }
                Self { from: camera_holds_from(places, camera).await, survey: None }
            }
        }
    }
}

/// The capture time since which a camera itself holds its frames. [`Timestamp::MAX`] if it holds none.
async fn camera_holds_from(places: &PastSources, camera: &CameraName) -> Result<Timestamp, Unanswered> {
    // No frame is as old, so none crosses the link.
    let none = PastQuery { end: Timestamp::MIN, tier_max: Tier::Camera, ..PastQuery::EVERY };
    let asked = tokio::time::timeout(CAMERA_TIME_MAX, places.ask_camera(camera, none)).await;
    let answer = asked.map_err(|_| Unanswered::TimedOut)?;
    match (answer.camera_holds_from, answer.unanswered) {
        (Some(from), _) => Ok(from),
        (None, why) => Err(why.unwrap_or(Unanswered::TimedOut)),
    }
}

fn unless_missing<T>(answer: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match answer {
        Err(error) if error.kind == StorageErrorKind::Missing => Ok(None),
        answer => answer.map(Some),
    }
}
