//! Frames of the past that only a camera has: fetched a few ahead of whoever reads them, and kept apart from the replica logs.
//!
//! A reading puts one question at a time: which frame comes next? The first makes a *fetch*, which asks the camera for a few frames that
//! follow each other; the next ones find their answers on the way already. A fetch asks for more of them the longer it is used.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::{EdgeBroker, EdgeOutput, FrameRefused};
use crate::broker::LinkId;
use crate::frame::{Frame, FrameId, Quality};
use crate::history::{PastAnswer, PastQuery};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, HistoryEnd, HistoryRequest, Message};

/// Fetches that may be open at one camera; one more is answered as if the camera held nothing.
pub const HISTORY_QUESTIONS_MAX: usize = 16;
/// How long a camera may take for a frame of the past. One that is busy with live frames sends none meanwhile; one of an earlier
/// version never answers.
pub const HISTORY_TIME_MAX: Duration = Duration::from_secs(20);
/// Frames that a fetch asks for at first: who wants one does not cost the link many.
const BATCH_FRAMES_MIN: u16 = 2;
/// Frames that a fetch asks for at once when it has been used for a while. Twice as many may be on their way or wait.
const BATCH_FRAMES_MAX: u16 = 32;
/// Bytes that a fetch asks for at once, by the size of the frames that came.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// Each fetch has two to the power of this many numbers for its frames.
const NUMBERS_BITS: u32 = 32;

/// A stretch of the past that is on its way from a camera.
pub(super) struct Fetch {
    link: LinkId,
    camera: CameraName,
    /// What is looked for, behind the last frame that was taken.
    query: PastQuery,
    /// The number that is asked for next.
    next: u64,
    /// Numbers whose frames were not taken yet, in order.
    numbers: VecDeque<u64>,
    /// What is known of them.
    slots: BTreeMap<u64, Slot>,
    /// No frame answers this number, and so none a later one.
    end: Option<(u64, Option<Timestamp>)>,
    /// Frames to ask for next time.
    batch: u16,
    /// The reading that waits for the next frame.
    waiter: Option<u64>,
    /// When it is given up.
    pub(super) due: Instant,
}

enum Slot {
    /// The frame is on its way.
    Begun(Box<FrameHeader>),
    /// It lies among those that were fetched.
    Arrived(FrameId),
    /// The rest of it will not come.
    Lost,
}

impl Slot {
    fn frame(&self) -> Option<FrameId> {
        match self {
            Self::Begun(header) => Some(header.meta.id),
            Self::Arrived(frame) => Some(*frame),
            Self::Lost => None,
        }
    }
}

impl Fetch {
    /// Whether it brings what is asked for next.
    fn serves(&self, camera: &CameraName, query: &PastQuery) -> bool {
        self.waiter.is_none() && self.camera == *camera && self.query == *query
    }

    /// The answer to whoever waits, if it is known. `None` inside: the frame had to make room before it was taken.
    fn answer(&mut self, fetched: &crate::history::FetchedFrames) -> Option<Option<PastAnswer>> {
        self.waiter?;
        let number = *self.numbers.front()?;
        if let Some((_, held_from)) = self.end.filter(|(ended, _)| *ended == number) {
            return Some(Some(PastAnswer { held_from, ..PastAnswer::default() }));
        }
        match self.slots.get(&number)? {
            Slot::Begun(_) => None,
            Slot::Lost => Some(Some(PastAnswer { broken: true, ..PastAnswer::default() })),
            Slot::Arrived(frame) => {
                let record = fetched.get(&self.camera, *frame, &self.query.rung())?.clone();
                Some(Some(PastAnswer { record: Some(record), ..PastAnswer::default() }))
            }
        }
    }
}

impl EdgeBroker {
    /// A reading lacks a frame that its camera may have. The answer comes as [`EdgeOutput::History`] with the number that
    /// this returns: at once if the frame has been fetched before, or if the camera is not connected.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        self.last_question += 1;
        let question = self.last_question;
        let fetch = self.fetches.iter_mut().find(|(_, fetch)| fetch.serves(camera, &query));
        if let Some((number, fetch)) = fetch.map(|(number, fetch)| (*number, fetch)) {
            fetch.waiter = Some(question);
            fetch.due = now + HISTORY_TIME_MAX;
            self.serve_fetch(now, number);
            return question;
        }
        // What was fetched tells of its neighbours only where it follows directly.
        let next = query.after.map(|after| after.next());
        let held = self.fetched.find(camera, &query).filter(|record| Some(record.frame.meta.id) == next);
        match held.cloned() {
            Some(record) => {
                self.answer_question(question, PastAnswer { record: Some(record), ..PastAnswer::default() })
            }
            None => self.begin_fetch(now, question, camera, query),
        }
        question
    }

    /// Nobody waits for the answer any more.
    pub fn handle_history_dropped(&mut self, question: u64) {
        let fetch = self.fetches.iter().find(|(_, fetch)| fetch.waiter == Some(question));
        let Some(fetch) = fetch.map(|(number, _)| *number).and_then(|number| self.fetches.remove(&number))
        else {
            return;
        };
        let request = fetch.next - 1;
        let withdrawn = HistoryRequest {
            request,
            query: fetch.query,
            rung: fetch.query.rung(),
            count: 0,
            continues: false,
        };
        self.send(fetch.link, Message::HistoryRequest(withdrawn));
    }

    pub(super) fn history_header(
        &mut self,
        now: Instant,
        link: LinkId,
        header: FrameHeader,
    ) -> Result<(), FrameRefused> {
        let (bytes_max, frame, number) = (self.frame_bytes_max(), header.meta.id, header.history);
        let first = self.fetch_of(link, number);
        let Some((first, fetch)) = first.and_then(|first| Some((first, self.fetches.get_mut(&first)?)))
        else {
            return Err(FrameRefused::NotAsked { frame });
        };
        if fetch.slots.contains_key(&number) {
            return Err(FrameRefused::NotAsked { frame });
        }
        let neighbours = fetch.slots.iter().filter_map(|(of, slot)| Some((*of, slot.frame()?)));
        let in_order = neighbours.into_iter().all(|(of, known)| (of < number) == (known < frame));
        let refused = if header.payload_bytes > bytes_max {
            Some(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max })
        } else if header.payload_bytes == 0 || header.meta.width == 0 || header.meta.height == 0 {
            Some(FrameRefused::Empty)
        } else if !in_order
            || !fetch.query.spans(frame)
            || header.meta.captured > fetch.query.end
            || header.meta.rung != fetch.query.rung()
            || header.meta.encoding.is_chained()
        {
            Some(FrameRefused::NotAsked { frame })
        } else {
            None
        };
        match refused {
            Some(refused) => {
                // A camera that answers what was not asked is asked no further.
                fetch.end = Some((number, None));
                fetch.numbers.retain(|of| *of <= number);
                self.serve_fetch(now, first);
                Err(refused)
            }
            None => {
                fetch.slots.insert(number, Slot::Begun(Box::new(header)));
                Ok(())
            }
        }
    }

    /// All of the payload of a frame of the past is here.
    pub fn handle_history_complete(&mut self, now: Instant, link: LinkId, number: u64, payload: Bytes) {
        if let Some(link) = self.links.get_mut(&link) {
            link.heard = now;
        }
        let Some(first) = self.fetch_of(link, number) else { return };
        let Some(fetch) = self.fetches.get_mut(&first) else { return };
        let Some(slot @ Slot::Begun(_)) = fetch.slots.get_mut(&number) else { return };
        let Slot::Begun(header) = std::mem::replace(slot, Slot::Lost) else { return };
        fetch.due = now + HISTORY_TIME_MAX;
        if header.payload_bytes as usize == payload.len() {
            *slot = Slot::Arrived(header.meta.id);
            let bytes = payload.len() as u64;
            fetch.batch =
                fetch.batch.min((BATCH_BYTES_MAX / bytes.max(1)).clamp(1, BATCH_FRAMES_MAX.into()) as u16);
            let (camera, quality) = (fetch.camera.clone(), Quality::default());
            let frame = Frame { meta: header.meta, payload };
            let skipped = header.skipped.into();
            self.fetched.insert(&camera, Record { frame, skipped, quality, trace: None, arrived: now });
            if let Some(known) = self.cameras.get_mut(&camera) {
                known.counters.bytes += bytes;
            }
        }
        self.serve_fetch(now, first);
    }

    /// The rest of a frame of the past will not come.
    pub fn handle_history_cancelled(&mut self, now: Instant, link: LinkId, number: u64) {
        let Some(first) = self.fetch_of(link, number) else { return };
        if let Some(fetch) = self.fetches.get_mut(&first) {
            fetch.slots.insert(number, Slot::Lost);
        }
        self.serve_fetch(now, first);
    }

    pub(super) fn history_end(&mut self, now: Instant, link: LinkId, end: HistoryEnd) {
        let Some(first) = self.fetch_of(link, end.request) else { return };
        if let Some(fetch) = self.fetches.get_mut(&first) {
            fetch.end = Some((end.request, end.held_from));
            fetch.numbers.retain(|number| *number <= end.request);
        }
        self.serve_fetch(now, first);
    }

    /// A camera has come to speak of other things without a word of what it can do: it is of a version that never answers.
    pub(super) fn note_silence_about_abilities(&mut self, link: LinkId) {
        let Some(known) = self.links.get_mut(&link) else { return };
        if !known.abilities.get_or_insert_default().past {
            let asked: Vec<u64> = self
                .fetches
                .iter()
                .filter(|(_, fetch)| fetch.link == link)
                .map(|(first, _)| *first)
                .collect();
            let fetches = asked.into_iter().filter_map(|first| self.fetches.remove(&first));
            let waiters: Vec<u64> = fetches.filter_map(|fetch| fetch.waiter).collect();
            waiters.into_iter().for_each(|question| self.answer_question(question, PastAnswer::default()));
        }
    }

    pub(super) fn forget_history(&mut self, link: LinkId) {
        self.give_up_fetches(|fetch| fetch.link == link);
    }

    pub(super) fn expire_history(&mut self, now: Instant) {
        self.give_up_fetches(|fetch| now >= fetch.due);
    }

    fn fetch_of(&self, link: LinkId, number: u64) -> Option<u64> {
        let fetch =
            self.fetches.iter().find(|(_, fetch)| fetch.link == link && fetch.numbers.contains(&number));
        fetch.map(|(first, _)| *first)
    }

    /// Begins to ask a camera.
    fn begin_fetch(&mut self, now: Instant, question: u64, camera: &CameraName, query: PastQuery) {
        let link = self.cameras.get(camera).and_then(|known| known.link.filter(|_| !known.silent));
        // Before a camera has said what it can do it is asked, and this may be in vain.
        let answers = |link: &LinkId| {
            self.links.get(link).is_some_and(|link| link.abilities.is_none_or(|abilities| abilities.past))
        };
        let link = link.filter(answers);
        let open = self.fetches.values().filter(|fetch| fetch.camera == *camera);
        if open.count() >= HISTORY_QUESTIONS_MAX {
            // One that nobody waits for makes room.
            let idle =
                self.fetches.iter().filter(|(_, fetch)| fetch.camera == *camera && fetch.waiter.is_none());
            match idle.min_by_key(|(_, fetch)| fetch.due).map(|(first, _)| *first) {
                Some(idle) => drop(self.fetches.remove(&idle)),
                None => return self.answer_question(question, PastAnswer::default()),
            }
        }
        let Some(link) = link else { return self.answer_question(question, PastAnswer::default()) };
        self.last_fetch += 1;
        let first = self.last_fetch << NUMBERS_BITS;
        let fetch = Fetch {
            link,
            camera: camera.clone(),
            query,
            next: first,
            numbers: VecDeque::new(),
            slots: BTreeMap::new(),
            end: None,
            batch: if query.newest { 1 } else { BATCH_FRAMES_MIN },
            waiter: Some(question),
            due: now + HISTORY_TIME_MAX,
        };
        self.fetches.insert(first, fetch);
        self.ask_on(first);
    }

    /// Asks a camera for more frames of a fetch.
    fn ask_on(&mut self, first: u64) {
        let Some(fetch) = self.fetches.get_mut(&first) else { return };
        let (request, count) = (fetch.next, fetch.batch);
        fetch.next += u64::from(count);
        fetch.numbers.extend(request..fetch.next);
        let (link, query, continues) = (fetch.link, fetch.query, request > first);
        let message = HistoryRequest { request, query, rung: query.rung(), count, continues };
        self.send(link, Message::HistoryRequest(message));
    }

    /// Gives who waits for the next frame of a fetch what is known, and asks for more in time.
    fn serve_fetch(&mut self, now: Instant, first: u64) {
        let Some(fetch) = self.fetches.get_mut(&first) else { return };
        let number = fetch.numbers.front().copied();
        let missing = fetch.waiter.is_some()
            && number.and_then(|number| fetch.slots.get(&number)).is_some_and(|slot| {
                matches!(slot, Slot::Arrived(frame) if self.fetched.get(&fetch.camera, *frame, &fetch.query.rung()).is_none())
            });
        if missing {
            // It had to make room for others before it was taken: it is fetched again.
            if let Some((question, fetch)) = self.fetches.remove(&first).and_then(|f| Some((f.waiter?, f))) {
                self.begin_fetch(now, question, &fetch.camera, fetch.query);
            }
            return;
        }
        if let Some(Some(answer)) = fetch.answer(&self.fetched)
            && let Some(question) = fetch.waiter.take()
        {
            match &answer.record {
                Some(record) => {
                    let taken = fetch.numbers.pop_front();
                    taken.and_then(|number| fetch.slots.remove(&number));
                    fetch.query.after = Some(record.frame.meta.id);
                    // Whoever takes one frame after the other wants many.
                    fetch.batch = (fetch.batch + 1).min(BATCH_FRAMES_MAX);
                }
                None => drop(self.fetches.remove(&first)),
            }
            self.answer_question(question, answer);
        }
        self.ask_ahead(first);
    }

    /// Asks for what comes behind the frames of a fetch, unless too much of it waits.
    fn ask_ahead(&mut self, first: u64) {
        let Some(fetch) = self.fetches.get(&first) else { return };
        if fetch.query.newest {
            if fetch.numbers.is_empty() {
                self.fetches.remove(&first);
            }
        } else if fetch.end.is_none() && fetch.numbers.len() <= usize::from(fetch.batch) {
            self.ask_on(first);
        }
    }

    fn give_up_fetches(&mut self, which: impl Fn(&Fetch) -> bool) {
        let given_up: Vec<Fetch> =
            self.fetches.extract_if(.., |_, fetch| which(fetch)).map(|(_, fetch)| fetch).collect();
        for question in given_up.into_iter().filter_map(|fetch| fetch.waiter) {
            self.answer_question(question, PastAnswer { broken: true, ..PastAnswer::default() });
        }
    }

    fn answer_question(&mut self, request: u64, answer: PastAnswer) {
        self.outputs.push_back(EdgeOutput::History { request, answer });
    }
}
