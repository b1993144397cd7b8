//! Frames of the past that only a camera has: fetched a few ahead of whoever reads them, and kept apart from the replica logs.
//!
//! A reading puts one question at a time: which frame comes next? The first makes a *fetch*, which asks the camera for a few frames that
//! follow each other; the next ones find their answers on the way already. A fetch asks for more of them the longer it is used.
//!
//! A question to a camera that is not connected waits for it (`waiting.rs`). What no camera has answered is never passed off as an answer
//! ([`Unanswered`]).

mod fetch;
mod waiting;

use bytes::Bytes;

pub(super) use self::fetch::Fetch;
pub use self::fetch::HISTORY_TIME_MAX;
use self::fetch::{Found, Slot};
pub use self::waiting::CAMERA_RETURN_MAX;
pub(super) use self::waiting::Waiting;
use super::{EdgeBroker, EdgeOutput, FrameRefused};
use crate::broker::LinkId;
use crate::frame::{Frame, Quality};
use crate::history::{PastAnswer, PastQuery, Unanswered};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, HistoryCode, HistoryEnd, HistoryRequest, Message};

/// Fetches that may be open at one camera, and questions that may wait for it; one more is answered with [`Unanswered::Busy`].
pub const HISTORY_QUESTIONS_MAX: usize = 16;
/// Each fetch has two to the power of this many numbers for its frames.
const NUMBERS_BITS: u32 = 32;

impl EdgeBroker {
    /// A reading lacks a frame that its camera may have. The answer comes as [`EdgeOutput::History`] with the number that
    /// this returns: at once if the frame has been fetched before, or if the camera is not connected and is not expected to be soon.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        self.last_question += 1;
        let question = self.last_question;
        let fetch = self.fetches.iter_mut().find(|(_, fetch)| fetch.serves(camera, &query));
        if let Some((number, fetch)) = fetch.map(|(number, fetch)| (*number, fetch)) {
            fetch.waiter = Some((question, query));
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

    /// What is looked for at the camera when a fetch begins, after those that it takes the place of have been given up: no more than
    /// was asked for, or what lies behind that as well.
    fn extent(&mut self, camera: &CameraName, asked: PastQuery) -> PastQuery {
        let overtaken = self.fetches.extract_if(.., |_, fetch| fetch.is_overtaken(camera, &asked));
        let overtaken: Vec<Fetch> = overtaken.map(|(_, fetch)| fetch).collect();
        overtaken.iter().for_each(|fetch| self.withdraw(fetch));
        let leads = self.fetches.iter().find(|(_, fetch)| fetch.leads_to(camera, &asked));
        match leads.map(|(first, _)| *first).and_then(|first| self.fetches.remove(&first)) {
            Some(_) => PastQuery { before: None, ..asked },
            None => asked,
        }
    }

    /// Nobody waits for the answer any more.
    pub fn handle_history_dropped(&mut self, question: u64) {
        let asked = |fetch: &Fetch| fetch.waiter.is_some_and(|(of, _)| of == question);
        let fetch = self.fetches.iter().find(|(_, fetch)| asked(fetch));
        if let Some(fetch) = fetch.map(|(number, _)| *number).and_then(|number| self.fetches.remove(&number))
        {
            self.withdraw(&fetch);
        }
        self.waiting.remove(&question);
    }

    /// Tells a camera that nobody wants the rest of what it was asked for.
    fn withdraw(&mut self, fetch: &Fetch) {
        let (request, query) = (fetch.next - 1, fetch.query);
        let withdrawn = HistoryRequest { request, query, rung: query.rung(), count: 0, continues: false };
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
        let in_order = fetch.in_order(number, frame);
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
                fetch.end = Some((number, Err(Unanswered::TimedOut)));
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
            *slot = Slot::Arrived { frame: header.meta.id, captured: header.meta.captured };
            let bytes = payload.len() as u64;
            fetch.note_bytes(bytes);
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
            let ended = match end.code {
                HistoryCode::None | HistoryCode::TooLarge => Ok(end.held_from.unwrap_or(Timestamp::MAX)),
                HistoryCode::Rung => Err(Unanswered::Unable),
                HistoryCode::Busy => Err(Unanswered::Busy),
            };
            fetch.end = Some((end.request, ended));
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
            let waiters: Vec<u64> = fetches.filter_map(|fetch| Some(fetch.waiter?.0)).collect();
            let unable = || PastAnswer::unanswered(Unanswered::Unable);
            waiters.into_iter().for_each(|question| self.answer_question(question, unable()));
        }
    }

    /// A connection is gone. What was asked on it is asked again on the camera's next one.
    pub(super) fn forget_history(&mut self, link: LinkId) {
        for fetch in self.give_up_fetches(|fetch| fetch.link == link) {
            if let Some((question, query)) = fetch.waiter {
                self.wait_for_camera(question, &fetch.camera, query);
            }
        }
    }

    pub(super) fn expire_history(&mut self, now: Instant) {
        for fetch in self.give_up_fetches(|fetch| now >= fetch.due) {
            if let Some((question, _)) = fetch.waiter {
                self.answer_question(question, PastAnswer::unanswered(Unanswered::TimedOut));
            }
        }
    }

    fn fetch_of(&self, link: LinkId, number: u64) -> Option<u64> {
        let fetch =
            self.fetches.iter().find(|(_, fetch)| fetch.link == link && fetch.numbers.contains(&number));
        fetch.map(|(first, _)| *first)
    }

    /// Begins to ask a camera.
    fn begin_fetch(&mut self, now: Instant, question: u64, camera: &CameraName, asked: PastQuery) {
        let query = self.extent(camera, asked);
        let link = self.cameras.get(camera).and_then(|known| known.link.filter(|_| !known.silent));
        let Some((link, known)) = link.and_then(|link| Some((link, self.links.get(&link)?))) else {
            if now < self.expected_until(camera) {
                return self.wait_for_camera(question, camera, asked);
            }
            return self.answer_question(question, PastAnswer::unanswered(Unanswered::CameraAbsent));
        };
        // Before a camera has said what it can do it is asked, and this may be in vain.
        if known.abilities.is_some_and(|abilities| !abilities.past) {
            return self.answer_question(question, PastAnswer::unanswered(Unanswered::Unable));
        }
        let open = self.fetches.iter().filter(|(_, fetch)| fetch.camera == *camera);
        if open.clone().count() >= HISTORY_QUESTIONS_MAX {
            // One that nobody waits for makes room.
            let idle = open.filter(|(_, fetch)| fetch.waiter.is_none()).min_by_key(|(_, fetch)| fetch.due);
            match idle.map(|(first, _)| *first) {
                Some(idle) => drop(self.fetches.remove(&idle)),
                None => return self.answer_question(question, PastAnswer::unanswered(Unanswered::Busy)),
            }
        }
        self.last_fetch += 1;
        let first = self.last_fetch << NUMBERS_BITS;
        self.fetches.insert(first, Fetch::new(now, link, camera, query, (first, question, asked)));
        self.ask_on(first);
    }

    /// Asks a camera for more frames of a fetch.
    fn ask_on(&mut self, first: u64) {
        let Some(fetch) = self.fetches.get_mut(&first) else { return };
        let (request, count) = fetch.ask();
        let (link, query, continues) = (fetch.link, fetch.query, request > first);
        let message = HistoryRequest { request, query, rung: query.rung(), count, continues };
        self.send(link, Message::HistoryRequest(message));
    }

    /// Gives who waits for the next frame of a fetch what is known, and asks for more in time.
    fn serve_fetch(&mut self, now: Instant, first: u64) {
        let Some(fetch) = self.fetches.get_mut(&first) else { return };
        if let Some(found) = fetch.find(&self.fetched)
            && let Some((question, asked)) = fetch.waiter.take()
        {
            let answer = match found {
                Found::Gone => {
                    // It is fetched again.
                    let camera = fetch.camera.clone();
                    self.fetches.remove(&first);
                    return self.begin_fetch(now, question, &camera, asked);
                }
                Found::Frame(answer) => {
                    answer.record.iter().for_each(|record| fetch.take(record.frame.meta.id));
                    answer
                }
                Found::Later(answer) => {
                    fetch.leave();
                    answer
                }
                Found::End(answer) => {
                    fetch.is_over = true;
                    answer
                }
            };
            self.answer_question(question, answer);
        }
        self.ask_ahead(first);
    }

    /// Asks for what comes behind the frames of a fetch, unless too much of it waits. One that is of no more use ends.
    fn ask_ahead(&mut self, first: u64) {
        let Some(fetch) = self.fetches.get(&first) else { return };
        let is_used_up = fetch.query.newest && fetch.numbers.is_empty();
        if is_used_up || fetch.is_over && fetch.query.before.is_none() {
            self.fetches.remove(&first);
        } else if !fetch.is_over && !fetch.query.newest && fetch.lacks_more() {
            self.ask_on(first);
        }
    }

    fn give_up_fetches(&mut self, which: impl Fn(&Fetch) -> bool) -> Vec<Fetch> {
        self.fetches.extract_if(.., |_, fetch| which(fetch)).map(|(_, fetch)| fetch).collect()
    }

    fn answer_question(&mut self, request: u64, answer: PastAnswer) {
        self.outputs.push_back(EdgeOutput::History { request, answer });
    }
}
