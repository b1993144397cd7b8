//! Checks what readings pass over. Every frame between two frames of an application was delivered,
//! counted or told. A reading that asks the camera gets what the camera holds.

use std::collections::BTreeSet;

use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastQuery, Tier};
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, NotHeld, NotHeldReason, Span};
use mez_core::units::Timestamp;

use super::Checks;
use super::path::{Path, RESUME_MAX};
use crate::time::{Moment, ms};

/// A frame published this long before an application subscribed has arrived by then.
const ON_ITS_WAY_MAX: std::time::Duration = ms(100);

/// The frames of one camera between two that an application got.
#[derive(Clone, Copy)]
pub(crate) struct Passage {
    /// The frame before the passage, of this subscription or of an earlier one that it resumes.
    pub(crate) last: Option<FrameId>,
    /// The frame after the passage. `None` at the end of the reading.
    pub(crate) next: Option<FrameId>,
    /// When the next frame was captured. Of two starts with the same epoch, the edge has accepted one.
    pub(crate) captured: Option<Timestamp>,
    /// How many skipped frames came with the next frame.
    pub(crate) counted: u64,
}

impl Passage {
    /// Whether a frame is among those counted with the next frame: they lie immediately before it.
    fn counts(&self, id: FrameId) -> bool {
        let is_before = |next: FrameId| {
            next.epoch == id.epoch && id < next && id.sequence.0 + self.counted >= next.sequence.0
        };
        self.next.is_some_and(is_before)
    }
}

/// How an application reads.
pub(crate) struct PassageReader {
    /// The application's index, for messages.
    pub(crate) application: usize,
    pub(crate) span: Span,
    pub(crate) tier_max: Tier,
    /// Whether the application also asks for missing frames between frames of the present.
    pub(crate) fills: bool,
    pub(crate) subscribed: Moment,
    /// Whether a request for the past was not answered in time or in full. There may then be holes.
    pub(crate) excused: bool,
    /// Whether a thief has answered a request about the camera since its last frame.
    pub(crate) misled: bool,
    /// The largest frame that the application's edge accepts.
    pub(crate) frame_bytes_max: usize,
}

/// The camera that published the frames.
pub(crate) struct PassageCamera {
    pub(crate) path: Path,
    /// Whether two frames may have the same id, or another process claims the camera's name. The camera's frames are then not to be trusted.
    pub(crate) is_doubtful: bool,
    pub(crate) process: Option<PassageProcess>,
}

/// The camera's process.
pub(crate) struct PassageProcess {
    pub(crate) run: u64,
    pub(crate) log: LogReader,
    /// Whether the edge has welcomed the process.
    pub(crate) is_up: bool,
    /// Epochs in which no edge accepted the process. Another start may have the same epochs, so none of their frames is delivered.
    pub(crate) doubted: BTreeSet<Epoch>,
}

/// A frame of which an application should have been told.
struct Owed {
    id: FrameId,
    captured: Timestamp,
    why: &'static str,
}

impl PassageProcess {
    /// The frames of the log that lie in a passage, oldest first. Frames before `begin`, which a search
    /// finds because others refer to them, are left out.
    fn held(&self, passage: &Passage, begin: Timestamp, end: Timestamp) -> impl Iterator<Item = Record> {
        let mut query = question(passage, begin, end);
        let found = std::iter::from_fn(move || {
            let record = query.find_in(&self.log)?;
            query.after = Some(record.frame.meta.id);
            Some(record)
        });
        found.filter(move |record| record.frame.meta.captured >= begin)
    }
}

fn question(passage: &Passage, begin: Timestamp, end: Timestamp) -> PastQuery {
    let Passage { last: after, next: before, .. } = *passage;
    PastQuery { after, before, begin, end, newest: false, tier_max: Tier::Memory, quality: None }
}

impl Checks {
    /// Checks that a reading that asks the camera passes over no frame that the camera still holds. Such a hole would have no cause.
    pub(crate) fn watch_holes(&mut self, reader: &PassageReader, camera: &PassageCamera, passage: &Passage) {
        let (Some(begin), since) = (reader.span.begin, reader.subscribed) else { return };
        let asks = reader.span.deliver == Deliver::Every && reader.tier_max == Tier::Camera;
        let Some(process) = camera.process.as_ref().filter(|_| asks && !reader.excused) else { return };
        let path = &camera.path;
        let settled = path.quiet_since() + RESUME_MAX * 2;
        if path.rivals || settled > since || !process.is_up || !path.is_brisk() {
            return;
        }
        let end = reader.span.end.unwrap_or(Timestamp::MAX);
        // The camera does not send frames that it knows to have the ids of another start's frames.
        let kept_back = |id: FrameId| self.has_given_up(&path.name, process.run, id.epoch);
        let mut held = process.held(passage, begin, end);
        let Some(passed) = held.find(|passed| !kept_back(passed.frame.meta.id)) else { return };
        let id = passed.frame.meta.id;
        let published = self.published_at(&path.name, id);
        let fits = passed.frame.payload.len() <= reader.frame_bytes_max;
        let was_past = published.is_some_and(|published| published + ON_ITS_WAY_MAX < since);
        self.expect(!fits || !was_past, "holes", || {
            let (application, Passage { last, next, .. }) = (reader.application, passage);
            format!(
                "application {application} got {next:?} of camera {} after {last:?}, but the camera holds {id}",
                path.camera
            )
        });
    }

    /// Checks that every frame in a passage was delivered, counted or told. A reading that fills must get all that the camera holds.
    pub(crate) fn watch_told(
        &mut self,
        reader: &PassageReader,
        camera: &PassageCamera,
        passage: &Passage,
        not_held: Option<NotHeld>,
    ) {
        let Passage { last, next, .. } = *passage;
        if camera.is_doubtful || next.is_some_and(|next| last.is_some_and(|last| next <= last)) {
            return;
        }
        self.expect_end_told(reader, &camera.path, passage, not_held);
        let (span, fills) = (reader.span, reader.fills);
        // In other cases, the frames are counted.
        let counted = !fills && last.is_some() && next.is_some();
        let asks = fills || span.begin.is_some() && span.deliver == Deliver::Every;
        let began = span.begin.is_some() || last.is_some();
        if counted || !asks || !began || reader.tier_max < Tier::Camera {
            return;
        }
        // A thief holds none of the camera's frames, and says so. The edge cannot know that another start holds them.
        if fills && reader.misled {
            return;
        }
        for owed in self.owed(reader, camera, passage) {
            self.expect_owed_told(reader, &camera.path, passage, &owed, not_held);
        }
    }

    /// Checks that the end of an epoch between two frames is told.
    fn expect_end_told(
        &mut self,
        reader: &PassageReader,
        path: &Path,
        passage: &Passage,
        not_held: Option<NotHeld>,
    ) {
        let (Some(last), Some(next)) = (passage.last, passage.next) else { return };
        if last.epoch >= next.epoch {
            return;
        }
        let newest = self.last_published(&path.name, last.epoch);
        let told = not_held.is_some_and(|told| newest.is_none_or(|newest| told.begin <= newest));
        self.expect(told, "untold", || {
            format!(
                "application {} got {:?} of camera {} after {last:?}, and of the end of that epoch, {newest:?}, \
                 was told {not_held:?}",
                reader.application, passage.next, path.camera
            )
        });
    }

    /// The frames of a passage of which an application has to be told.
    fn owed(&self, reader: &PassageReader, camera: &PassageCamera, passage: &Passage) -> Vec<Owed> {
        let name = &camera.path.name;
        let begin = reader.span.begin.filter(|_| passage.last.is_none()).unwrap_or(Timestamp::MIN);
        let end = reader.span.end.unwrap_or(Timestamp::MAX);
        let mut owed = Vec::new();
        if let Some(process) = &camera.process {
            for passed in process.held(passage, begin, end) {
                let meta = &passed.frame.meta;
                // Frames that may have the id of another frame are not delivered.
                let is_given = !reader.fills || !process.doubted.contains(&meta.id.epoch);
                if is_given && passed.frame.payload.len() <= reader.frame_bytes_max {
                    owed.push(Owed { id: meta.id, captured: meta.captured, why: "the camera holds it" });
                }
            }
        }
        // Before the first frame: all frames that an edge has ever had. Later frames are counted.
        if passage.last.is_none() && passage.next.is_some() {
            let seen = self.seen(name, &question(passage, begin, end));
            let why = "an edge has seen it";
            owed.extend(seen.into_iter().map(|(id, captured)| Owed { id, captured, why }));
        }
        owed
    }

    fn expect_owed_told(
        &mut self,
        reader: &PassageReader,
        path: &Path,
        passage: &Passage,
        owed: &Owed,
        not_held: Option<NotHeld>,
    ) {
        let (Owed { id, captured, why }, Passage { last, next, .. }) = (owed, *passage);
        // A frame published at the time of the end may be in flight.
        let published = self.published_at(&path.name, *id);
        let on_its_way = |published: Moment| published + ON_ITS_WAY_MAX >= reader.subscribed;
        if next.is_none() && published.is_none_or(on_its_way) {
            return;
        }
        // If the clock of a start was set back, no frame of it comes before this frame in time.
        let covers =
            |told: &NotHeld| told.begin <= *captured && (*captured < told.end || told.end <= told.begin);
        let heard = |told: &NotHeld| {
            use NotHeldReason::{Busy, CameraAbsent, NotAnswered};
            !reader.fills || matches!(told.reason, CameraAbsent | NotAnswered | Busy)
        };
        // A frame of which no still could be made is counted, even before the first delivered frame.
        let is_counted = !reader.fills && passage.counts(*id);
        let is_told = is_counted || not_held.as_ref().is_some_and(|told| covers(told) && heard(told));
        let next_at = passage.captured.filter(|_| next.is_some_and(|next| next.epoch != id.epoch));
        let set_back = next_at.is_some_and(|next_at| next_at <= *captured);
        self.expect(is_told || set_back, if reader.fills { "filled" } else { "untold" }, || {
            format!(
                "application {} got {next:?} of camera {} after {last:?}, and nothing of {id}, captured {captured}: \
                 {why}; it was told {not_held:?}",
                reader.application, path.camera
            )
        });
    }

    /// The frames that a run of an edge has had in its replica and that a query admits.
    fn seen(&self, camera: &CameraName, query: &PastQuery) -> Vec<(FrameId, Timestamp)> {
        let ids = self.appended.iter().filter(|((_, of), _)| of == camera).flat_map(|(_, ids)| ids);
        let seen = ids.filter(|id| query.spans(**id)).filter_map(|id| {
            let runs = self.published.get(&(camera.clone(), id.epoch))?;
            let frame = runs.iter().find_map(|run| run.frames.get(id.sequence.0 as usize))?;
            Some((*id, frame.captured))
        });
        seen.filter(|(_, captured)| (query.begin..=query.end).contains(captured)).collect()
    }
}
