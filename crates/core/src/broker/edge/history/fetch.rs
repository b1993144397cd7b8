//! Tracks a stretch of the past that is on its way from a camera, and tells which questions it answers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::broker::LinkId;
use crate::frame::{FrameId, Rung};
use crate::history::{FetchedFrames, PastAnswer, PastQuery, Unanswered};
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::FrameHeader;

/// How long a camera may take for a frame of the past. A camera that is busy with live frames sends no frames of the past meanwhile.
pub const HISTORY_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a camera may take for the original of its newest frame, while it is connected. The time is long,
/// because contracts may leave little of the link, and a transfer that is given up has cost its bytes for nothing.
const ORIGINAL_TIME_MAX: Duration = Duration::from_secs(600);
/// The number of frames that a fetch asks for at first. It is small, so that a reader of a single frame costs
/// the link little.
const BATCH_FRAMES_MIN: u16 = 2;
/// The most frames that a fetch asks for at once, after it has been used for a while. Twice as many may be on
/// their way or wait.
const BATCH_FRAMES_MAX: u16 = 32;
/// The most bytes that a fetch asks for at once, estimated from the frames that came.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// A stretch of the past that is on its way from a camera.
pub(super) struct Fetch {
    pub(super) link: LinkId,
    pub(super) camera: CameraName,
    /// The number of its first frame.
    first: u64,
    /// The query for the frames after the last one that was taken.
    pub(super) query: PastQuery,
    /// The next number to ask for.
    pub(super) next: u64,
    /// Numbers whose frames were not taken yet, in order.
    pub(super) numbers: VecDeque<u64>,
    /// What is known of the frames in `numbers`.
    pub(super) slots: BTreeMap<u64, Slot>,
    /// The first number that no frame answers, if known. With it: from when on the camera holds its frames, or why it has not answered.
    pub(super) end: Option<(u64, Result<Timestamp, Unanswered>)>,
    /// How many frames to ask for next time.
    batch: u16,
    /// The reader that waits for the next frame, and its question.
    pub(super) waiter: Option<(u64, PastQuery)>,
    /// Other readers that wait for the same frame: the original of the camera's newest frame.
    pub(super) beside: Vec<(u64, PastQuery)>,
    /// Whether the reader was told that there is nothing more. A fetch with an
    /// upper bound is then kept for the question about the frames from the bound on.
    pub(super) is_over: bool,
    /// When the fetch is given up.
    pub(super) due: Instant,
}

/// What is known of a frame that was asked for.
pub(super) enum Slot {
    /// The frame is on its way.
    Begun(Box<FrameHeader>),
    /// The frame is among the fetched frames, at this rung.
    Arrived { frame: FrameId, captured: Timestamp, rung: Rung },
    /// The rest of the frame will not come.
    Lost,
}

impl Slot {
    /// The frame and its capture time.
    fn frame(&self) -> Option<(FrameId, Timestamp)> {
        match self {
            Self::Begun(header) => Some((header.meta.id, header.meta.captured)),
            Self::Arrived { frame, captured, .. } => Some((*frame, *captured)),
            Self::Lost => None,
        }
    }
}

/// What a fetch has for the waiting reader.
pub(super) enum Found {
    /// The next frame.
    Frame(PastAnswer),
    /// The camera has no frame in the requested span, but later ones, which stay for later questions.
    Later(PastAnswer),
    /// No more frames come.
    End(PastAnswer),
    /// The next frame was evicted before it was taken, or must be asked for again.
    Gone,
}

impl Fetch {
    pub(super) fn new(
        now: Instant,
        link: LinkId,
        camera: &CameraName,
        query: PastQuery,
        (first, question, asked): (u64, u64, PastQuery),
    ) -> Self {
        Self {
            link,
            camera: camera.clone(),
            first,
            query,
            next: first,
            numbers: VecDeque::new(),
            slots: BTreeMap::new(),
            end: None,
            batch: if query.newest { 1 } else { BATCH_FRAMES_MIN },
            waiter: Some((question, asked)),
            beside: Vec::new(),
            is_over: false,
            due: now + if query.asks_disk() { HISTORY_TIME_MAX } else { ORIGINAL_TIME_MAX },
        }
    }

    /// Whether another reader's question waits for the frame of this fetch too: the original of the camera's newest frame.
    pub(super) fn is_shared_with(&self, camera: &CameraName, asked: &PastQuery) -> bool {
        let same = PastQuery { after: asked.after, ..self.query };
        self.waiter.is_some() && self.camera == *camera && !asked.asks_disk() && *asked == same
    }

    /// The camera and all waiting readers, when the fetch is given up.
    pub(super) fn into_waiters(self) -> (CameraName, impl Iterator<Item = (u64, PastQuery)>) {
        (self.camera, self.waiter.into_iter().chain(self.beside))
    }

    /// A reader no longer waits. Returns whether another reader does.
    pub(super) fn forget(&mut self, question: u64) -> bool {
        self.beside.retain(|(of, _)| *of != question);
        if self.waiter.is_some_and(|(of, _)| of == question) {
            self.waiter = self.beside.pop();
        }
        self.waiter.is_some()
    }

    /// Whether a reader waits with this question.
    pub(super) fn is_asked(&self, question: u64) -> bool {
        self.waiter.iter().chain(&self.beside).any(|(of, _)| *of == question)
    }

    /// Whether no reader waits for this fetch, and the question differs from its query only
    /// in its position. The question is then of the same reader, as far as can be told.
    fn is_of(&self, camera: &CameraName, asked: &PastQuery) -> bool {
        let bounds = PastQuery { after: asked.after, before: asked.before, ..self.query };
        self.waiter.is_none() && self.camera == *camera && *asked == bounds
    }

    /// Whether this fetch brings the frame that a question asks for.
    pub(super) fn serves(&self, camera: &CameraName, asked: &PastQuery) -> bool {
        let bounded_alike = self.query.before.is_none() || self.query.before == asked.before;
        // The reader may have advanced without this fetch, as long as the next frame of the fetch is still ahead of the reader.
        let position = asked.after == self.query.after
            || asked.after > self.query.after && self.begins_behind(asked.after);
        !self.is_over && !self.has_ended() && self.is_of(camera, asked) && bounded_alike && position
    }

    /// Whether the next item of a fetch without an upper bound is its end. Frames may have been published since, so the end
    /// does not answer a later question. With an upper bound it does: everything below the bound had been published by then.
    fn has_ended(&self) -> bool {
        let ended = self.end.as_ref().is_some_and(|(number, _)| self.numbers.front() == Some(number));
        ended && self.query.before.is_none()
    }

    /// Whether the question begins at the end of this fetch. A reader that asks for one stretch after another also wants the frames after them.
    pub(super) fn leads_to(&self, camera: &CameraName, asked: &PastQuery) -> bool {
        let begins = asked.after.map(|after| after.next());
        self.is_of(camera, asked) && begins.is_some() && self.query.before == begins
    }

    /// Whether the fetch is obsolete: its reader has advanced without it, or asks again after its end.
    pub(super) fn is_overtaken(&self, camera: &CameraName, asked: &PastQuery) -> bool {
        self.query.before.is_none() && self.is_of(camera, asked) && asked.after >= self.query.after
    }

    /// Whether the next frame of the fetch is known, and comes after `after`.
    fn begins_behind(&self, after: Option<FrameId>) -> bool {
        let first = self.numbers.front().and_then(|number| self.slots.get(number)).and_then(Slot::frame);
        first.is_some_and(|(frame, _)| Some(frame) > after)
    }

    /// Whether the known frames and this one are in the order of their numbers.
    pub(super) fn in_order(&self, number: u64, frame: FrameId) -> bool {
        let mut known = self.slots.iter().filter_map(|(of, slot)| Some((*of, slot.frame()?.0)));
        known.all(|(of, known)| (of < number) == (known < frame))
    }

    /// The answer for the waiting reader. `None` while it is not known.
    pub(super) fn find(&self, fetched: &FetchedFrames) -> Option<Found> {
        let (_, asked) = self.waiter.as_ref()?;
        let number = *self.numbers.front()?;
        let nothing = PastAnswer::default();
        if let Some((_, ended)) = self.end.filter(|(ended, _)| *ended == number) {
            return Some(Found::End(match ended {
                // When the camera answered, it had not published the frame at the question's
                // bound yet. So frames below the bound may have been missing too.
                Ok(_) if self.query.before.is_none() && asked.before.is_some() => return Some(Found::Gone),
                Ok(from) => {
                    let held_from = (from < Timestamp::MAX).then_some(from);
                    PastAnswer { held_from, camera_holds_from: Some(from), ..nothing }
                }
                // The camera has forgotten what the request continued from. A new request does not continue from anything.
                Err(Unanswered::Busy) if number > self.first => return Some(Found::Gone),
                Err(why) => PastAnswer::unanswered(why),
            }));
        }
        let slot = self.slots.get(&number)?;
        let behind = slot.frame().filter(|(frame, _)| asked.before.is_some_and(|before| *frame >= before));
        if let Some((_, captured)) = behind {
            return Some(Found::Later(PastAnswer { held_from: Some(captured), ..nothing }));
        }
        match slot {
            Slot::Begun(_) => None,
            Slot::Lost => Some(Found::End(PastAnswer::unanswered(Unanswered::TimedOut))),
            // Not every record comes at the requested rung: a data record has one form, and a source's own video comes as stills.
            Slot::Arrived { frame, rung, .. } => {
                let record = fetched.get(&self.camera, *frame, rung).cloned();
                Some(record.map_or(Found::Gone, |record| {
                    Found::Frame(PastAnswer { record: Some(record), ..nothing })
                }))
            }
        }
    }

    /// The next frame was taken. The more frames a reader takes in order, the more the fetch asks for at once.
    pub(super) fn take(&mut self, frame: FrameId) {
        // A reader only moves forward.
        debug_assert!(Some(frame) > self.query.after, "a frame of the past is taken twice");
        let taken = self.numbers.pop_front();
        taken.and_then(|number| self.slots.remove(&number));
        self.query.after = Some(frame);
        self.batch = (self.batch + 1).min(BATCH_FRAMES_MAX);
    }

    /// The frames on their way did not answer a question: fewer are asked for next time.
    pub(super) fn leave(&mut self) {
        self.batch = (self.batch / 2).max(1);
    }

    /// Notes the size of a frame that has come: the larger the frames, the fewer are asked for at once.
    pub(super) fn note_bytes(&mut self, bytes: u64) {
        let most = (BATCH_BYTES_MAX / bytes.max(1)).clamp(1, BATCH_FRAMES_MAX.into()) as u16;
        self.batch = self.batch.min(most);
    }

    /// No frame answers this number or a later one.
    pub(super) fn end_at(&mut self, number: u64, ended: Result<Timestamp, Unanswered>) {
        self.end = Some((number, ended));
        self.numbers.retain(|of| *of <= number);
    }

    /// The number of the first frame to ask for now, and how many.
    pub(super) fn ask(&mut self) -> (u64, u16) {
        let (request, count) = (self.next, self.batch);
        self.next += u64::from(count);
        self.numbers.extend(request..self.next);
        // More frames are asked for only while at most one batch waits.
        debug_assert!(
            self.numbers.len() <= 2 * usize::from(BATCH_FRAMES_MAX),
            "{} frames of a fetch are on their way",
            self.numbers.len()
        );
        debug_assert!(
            self.slots.keys().all(|number| self.numbers.contains(number)),
            "a frame that was not asked for is kept"
        );
        (request, count)
    }

    /// Whether more frames should be asked for.
    pub(super) fn lacks_more(&self) -> bool {
        self.end.is_none() && self.numbers.len() <= usize::from(self.batch)
    }
}
