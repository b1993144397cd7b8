//! Fetches frames of the past that only a camera has, a few ahead of the reader, and keeps them apart from
//! the replica logs.
//!
//! A reader asks one question at a time: which frame comes next? The first question starts a *fetch*, which
//! asks the camera for a few successive frames. So the answers to the next questions are already on their
//! way. The longer a fetch is used, the more frames it asks for.
//!
//! A question to a camera that is not connected waits for the camera (`waiting.rs`). If no
//! camera has answered, the reader is told so ([`Unanswered`]), never that there is no frame.

mod fetch;
mod waiting;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use self::fetch::HISTORY_TIME_MAX;
use self::fetch::{Fetch, Found, Slot};
pub use self::waiting::CAMERA_RETURN_MAX;
use self::waiting::{Question, Waiting};
use super::arrivals::{FrameRefused, admit_size};
use super::roster::Roster;
use super::types::EdgeOutput;
use crate::broker::LinkId;
use crate::frame::{Frame, FrameMeta, Quality, Rung};
use crate::history::{FetchedFrames, PastAnswer, PastQuery, Unanswered, still_of_video};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::{Abilities, FrameHeader, HistoryCode, HistoryEnd, HistoryRequest, Message};

/// The most fetches that may be open at one camera, and the most questions that
/// may wait for it. A further question is answered with [`Unanswered::Busy`].
pub const HISTORY_QUESTIONS_MAX: usize = 16;
/// Each fetch has 2 to the power of this many numbers for its frames.
const NUMBERS_BITS: u32 = 32;

/// The questions of applications about the past, and the frames of the past that are on their way.
pub(super) struct History {
    /// The open fetches, by the number of their first frame.
    fetches: BTreeMap<u64, Fetch>,
    /// Questions to cameras that are not connected but expected.
    waiting: Waiting,
    fetched: FetchedFrames,
    last_question: u64,
    last_fetch: u64,
}

impl History {
    /// Begins without fetched frames. Those of all cameras together may take `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            fetches: BTreeMap::new(),
            waiting: Waiting::default(),
            fetched: FetchedFrames::new(bytes_max),
            last_question: 0,
            last_fetch: 0,
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Until when cameras of an earlier run of the edge are expected to connect.
    pub(super) fn any_expected_until(&self) -> Option<Instant> {
        self.waiting.any_expected_until()
    }

    /// When [`History::handle_timeout`] is due.
    pub(super) fn due(&self, roster: &Roster) -> Option<Instant> {
        let fetches = self.fetches.values().map(|fetch| fetch.due);
        fetches.chain(self.waiting.due(roster)).min()
    }

    // ---- readings -----------------------------------------------------------------------------------------

    /// The edge listens to cameras from now on.
    pub(super) fn handle_started(&mut self, now: Instant) {
        self.waiting.handle_started(now);
    }

    /// A reader lacks a frame. Returns the number that the answer will have.
    pub(super) fn handle_query(
        &mut self,
        now: Instant,
        roster: &Roster,
        camera: &CameraName,
        query: PastQuery,
    ) -> (u64, Vec<EdgeOutput>) {
        self.last_question += 1;
        let question = self.last_question;
        let fetch = self.fetches.iter_mut().find(|(_, fetch)| fetch.serves(camera, &query));
        if let Some((number, fetch)) = fetch.map(|(number, fetch)| (*number, fetch)) {
            fetch.waiter = Some((question, query));
            fetch.due = now + HISTORY_TIME_MAX;
            return (question, self.serve(now, roster, number));
        }
        // A fetched frame is the answer only if it directly follows the reader's last frame: otherwise
        // the camera may have frames between the two. It never tells which frame is the newest.
        let next = query.after.map(|after| after.next()).filter(|_| query.asks_disk());
        let held = self.fetched.find(camera, &query).filter(|record| Some(record.frame.meta.id) == next);
        let outputs = match held.cloned() {
            Some(record) => {
                vec![answer(question, PastAnswer { record: Some(record), ..PastAnswer::default() })]
            }
            None => self.begin(now, roster, question, (camera, query)),
        };
        (question, outputs)
    }

    /// No reader waits for the answer any more.
    pub(super) fn handle_dropped(&mut self, question: u64) -> Option<EdgeOutput> {
        self.waiting.remove(question);
        let (first, fetch) = self.fetches.iter_mut().find(|(_, fetch)| fetch.is_asked(question))?;
        let first = *first;
        if fetch.forget(question) {
            return None;
        }
        self.fetches.remove(&first).map(|fetch| withdraw(&fetch))
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// The header of a frame of the past has arrived.
    pub(super) fn handle_header(
        &mut self,
        now: Instant,
        roster: &Roster,
        link: LinkId,
        header: FrameHeader,
    ) -> (Result<(), FrameRefused>, Vec<EdgeOutput>) {
        let (frame, number) = (header.meta.id, header.history);
        let not_asked = (Err(FrameRefused::NotAsked { frame }), Vec::new());
        let Some(first) = self.fetch_of(link, number) else { return not_asked };
        let Some(fetch) = self.fetches.get_mut(&first) else { return not_asked };
        if fetch.slots.contains_key(&number) {
            return not_asked;
        }
        match admit(fetch, &header, roster.cameras.frame_bytes_max()) {
            Ok(()) => {
                fetch.slots.insert(number, Slot::Begun(Box::new(header)));
                (Ok(()), Vec::new())
            }
            Err(refused) => {
                // A camera that gives a wrong answer is asked for nothing more in this fetch.
                fetch.end_at(number, Err(Unanswered::TimedOut));
                (Err(refused), self.serve(now, roster, first))
            }
        }
    }

    /// The whole payload of a frame of the past has arrived. Returns how many bytes of it are useful.
    pub(super) fn handle_complete(
        &mut self,
        now: Instant,
        roster: &Roster,
        (link, number): (LinkId, u64),
        payload: Bytes,
    ) -> (u64, Vec<EdgeOutput>) {
        let Some(first) = self.fetch_of(link, number) else { return Default::default() };
        let Some(fetch) = self.fetches.get_mut(&first) else { return Default::default() };
        let Some(slot @ Slot::Begun(_)) = fetch.slots.get_mut(&number) else { return Default::default() };
        let Slot::Begun(header) = std::mem::replace(slot, Slot::Lost) else { return Default::default() };
        fetch.due = now + HISTORY_TIME_MAX;
        let mut bytes = 0;
        if header.payload_bytes as usize == payload.len() {
            let FrameMeta { id: frame, captured, rung, .. } = header.meta.clone();
            *slot = Slot::Arrived { frame, captured, rung };
            bytes = payload.len() as u64;
            fetch.note_bytes(bytes);
            let record = Record {
                frame: Frame { meta: header.meta, payload },
                skipped: header.skipped.into(),
                quality: Quality::default(),
                trace: None,
                link_bytes: Some(header.payload_bytes),
                arrived: now,
            };
            self.fetched.insert(&fetch.camera, record);
        }
        (bytes, self.serve(now, roster, first))
    }

    /// The rest of a frame of the past will not come.
    pub(super) fn handle_cancelled(
        &mut self,
        now: Instant,
        roster: &Roster,
        (link, number): (LinkId, u64),
    ) -> Vec<EdgeOutput> {
        let Some(first) = self.fetch_of(link, number) else { return Vec::new() };
        if let Some(fetch) = self.fetches.get_mut(&first) {
            fetch.slots.insert(number, Slot::Lost);
        }
        self.serve(now, roster, first)
    }

    /// A camera has nothing more to answer to a request.
    pub(super) fn handle_end(
        &mut self,
        now: Instant,
        roster: &Roster,
        link: LinkId,
        end: HistoryEnd,
    ) -> Vec<EdgeOutput> {
        let Some(first) = self.fetch_of(link, end.request) else { return Vec::new() };
        if let Some(fetch) = self.fetches.get_mut(&first) {
            let ended = match end.code {
                HistoryCode::None | HistoryCode::TooLarge => Ok(end.held_from.unwrap_or(Timestamp::MAX)),
                HistoryCode::Rung => Err(Unanswered::Unable),
                HistoryCode::Busy => Err(Unanswered::Busy),
            };
            fetch.end_at(end.request, ended);
        }
        self.serve(now, roster, first)
    }

    /// A camera tells what it can do. If it does not answer questions about the past, the waiting readers are told at once.
    pub(super) fn handle_abilities(&mut self, link: LinkId, abilities: Abilities) -> Vec<EdgeOutput> {
        if abilities.past {
            return Vec::new();
        }
        let unable = || PastAnswer::unanswered(Unanswered::Unable);
        let given_up = self.give_up(|fetch| fetch.link == link).into_iter();
        let waiters = given_up.flat_map(|fetch| fetch.into_waiters().1);
        waiters.map(|(question, _)| answer(question, unable())).collect()
    }

    /// A connection is gone. Its open questions wait for the camera's next connection.
    pub(super) fn handle_closed(&mut self, link: LinkId) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        for (camera, waiters) in self.give_up(|fetch| fetch.link == link).into_iter().map(Fetch::into_waiters)
        {
            outputs.extend(waiters.filter_map(|(question, query)| self.wait(question, &camera, query)));
        }
        outputs
    }

    /// A camera was reset: its fetched frames are forgotten.
    pub(super) fn handle_reset(&mut self, camera: &CameraName) {
        self.fetched.forget(camera);
    }

    /// Asks again the questions whose cameras are connected now, or that have waited long enough.
    pub(super) fn handle_connected(&mut self, now: Instant, roster: &Roster) -> Vec<EdgeOutput> {
        let due = self.waiting.take_due(now, roster).into_iter();
        due.flat_map(|(question, Question { camera, query })| {
            self.begin(now, roster, question, (&camera, query))
        })
        .collect()
    }

    /// Answers questions that have waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant, roster: &Roster) -> Vec<EdgeOutput> {
        let late =
            self.give_up(|fetch| now >= fetch.due).into_iter().flat_map(|fetch| fetch.into_waiters().1);
        let timed_out = || PastAnswer::unanswered(Unanswered::TimedOut);
        let mut outputs: Vec<EdgeOutput> = late.map(|(question, _)| answer(question, timed_out())).collect();
        outputs.extend(self.handle_connected(now, roster));
        outputs
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn fetch_of(&self, link: LinkId, number: u64) -> Option<u64> {
        let fetch =
            self.fetches.iter().find(|(_, fetch)| fetch.link == link && fetch.numbers.contains(&number));
        fetch.map(|(first, _)| *first)
    }

    /// Keeps a question until its camera is connected. Answers it if too many questions wait.
    fn wait(&mut self, question: u64, camera: &CameraName, query: PastQuery) -> Option<EdgeOutput> {
        if self.waiting.of_camera(camera) >= HISTORY_QUESTIONS_MAX {
            return Some(answer(question, PastAnswer::unanswered(Unanswered::Busy)));
        }
        self.waiting.insert(question, camera, query);
        None
    }

    /// Begins a fetch for a question, unless an open fetch already asks for the same frame.
    fn begin(
        &mut self,
        now: Instant,
        roster: &Roster,
        question: u64,
        (camera, asked): (&CameraName, PastQuery),
    ) -> Vec<EdgeOutput> {
        if let Some(fetch) = self.fetches.values_mut().find(|fetch| fetch.is_shared_with(camera, &asked)) {
            fetch.beside.push((question, asked));
            return Vec::new();
        }
        if let Some(held_from) = roster.derived_from(camera) {
            // A derived stream has no log besides those of the edge, which were asked before.
            let none = PastAnswer { camera_holds_from: Some(held_from), ..PastAnswer::default() };
            return vec![answer(question, none)];
        }
        let (query, mut outputs) = self.extent(camera, asked);
        let Some(link) = roster.reached(camera) else {
            outputs.extend(if now < self.waiting.expected_until(camera, roster) {
                self.wait(question, camera, asked)
            } else {
                Some(answer(question, PastAnswer::unanswered(Unanswered::CameraAbsent)))
            });
            return outputs;
        };
        // A camera that has not told its abilities yet is asked, perhaps in vain.
        if link.abilities.is_some_and(|abilities| !abilities.past) {
            outputs.push(answer(question, PastAnswer::unanswered(Unanswered::Unable)));
            return outputs;
        }
        if !self.make_room(camera) {
            outputs.push(answer(question, PastAnswer::unanswered(Unanswered::Busy)));
            return outputs;
        }
        self.last_fetch += 1;
        let first = self.last_fetch << NUMBERS_BITS;
        self.fetches.insert(first, Fetch::new(now, link.id, camera, query, (first, question, asked)));
        outputs.extend(self.ask_on(first));
        outputs
    }

    /// The query of a new fetch: exactly the question, or also the frames after it if the reader
    /// asks for one stretch after another. Gives up the fetches that the new one replaces.
    fn extent(&mut self, camera: &CameraName, asked: PastQuery) -> (PastQuery, Vec<EdgeOutput>) {
        let overtaken = self.give_up(|fetch| fetch.is_overtaken(camera, &asked));
        let outputs = overtaken.iter().map(withdraw).collect();
        let leads = self.fetches.iter().find(|(_, fetch)| fetch.leads_to(camera, &asked));
        match leads.map(|(first, _)| *first).and_then(|first| self.fetches.remove(&first)) {
            Some(_) => (PastQuery { before: None, ..asked }, outputs),
            None => (asked, outputs),
        }
    }

    /// Makes room for another fetch from a camera, by ending a fetch that no reader waits for. Returns false if there is none.
    fn make_room(&mut self, camera: &CameraName) -> bool {
        let open = self.fetches.iter().filter(|(_, fetch)| fetch.camera == *camera);
        let count = open.clone().count();
        debug_assert!(count <= HISTORY_QUESTIONS_MAX, "{count} fetches are open at {camera}");
        if count < HISTORY_QUESTIONS_MAX {
            return true;
        }
        let idle = open.filter(|(_, fetch)| fetch.waiter.is_none()).min_by_key(|(_, fetch)| fetch.due);
        let idle = idle.map(|(first, _)| *first);
        idle.and_then(|idle| self.fetches.remove(&idle)).is_some()
    }

    /// Asks a camera for more frames of a fetch.
    fn ask_on(&mut self, first: u64) -> Option<EdgeOutput> {
        let fetch = self.fetches.get_mut(&first)?;
        let (request, count) = fetch.ask();
        let (link, query, continues) = (fetch.link, fetch.query, request > first);
        let message = HistoryRequest { request, query, rung: query.rung(), count, continues };
        Some(EdgeOutput::Send { link, message: Message::HistoryRequest(message) })
    }

    /// Answers the reader that waits for the next frame of a fetch, if the answer is known. Asks for more frames in time.
    fn serve(&mut self, now: Instant, roster: &Roster, first: u64) -> Vec<EdgeOutput> {
        let Some(fetch) = self.fetches.get_mut(&first) else { return Vec::new() };
        let mut outputs = Vec::new();
        if let Some(found) = fetch.find(&self.fetched)
            && let Some((question, asked)) = fetch.waiter.take()
        {
            let (camera, beside) = (fetch.camera.clone(), std::mem::take(&mut fetch.beside));
            let found = match found {
                Found::Gone => {
                    // The frame is fetched again.
                    self.fetches.remove(&first);
                    let waiters = std::iter::once((question, asked)).chain(beside);
                    return self.begin_all(now, roster, &camera, waiters.collect());
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
            let answers = |asked: &PastQuery| {
                found.record.as_ref().is_none_or(|record| asked.admits(&record.frame.meta))
            };
            let (answered, others): (Vec<_>, Vec<_>) =
                beside.into_iter().partition(|(_, asked)| answers(asked));
            outputs.extend(answered.into_iter().map(|(question, _)| answer(question, found.clone())));
            outputs.push(answer(question, found));
            outputs.extend(self.ask_ahead(first));
            // A reader that already has this frame or a newer one wants the next.
            outputs.extend(self.begin_all(now, roster, &camera, others));
            return outputs;
        }
        outputs.extend(self.ask_ahead(first));
        outputs
    }

    /// Begins to ask a camera again for readers that wait.
    fn begin_all(
        &mut self,
        now: Instant,
        roster: &Roster,
        camera: &CameraName,
        waiters: Vec<(u64, PastQuery)>,
    ) -> Vec<EdgeOutput> {
        let waiters = waiters.into_iter();
        waiters.flat_map(|(question, query)| self.begin(now, roster, question, (camera, query))).collect()
    }

    /// Asks for the frames that follow those of a fetch, unless too many wait. Ends a fetch that is no longer
    /// useful.
    fn ask_ahead(&mut self, first: u64) -> Option<EdgeOutput> {
        let fetch = self.fetches.get(&first)?;
        let is_used_up = fetch.query.newest && fetch.numbers.is_empty();
        if is_used_up || fetch.is_over && fetch.query.before.is_none() {
            self.fetches.remove(&first);
            return None;
        }
        let asks = !fetch.is_over && !fetch.query.newest && fetch.lacks_more();
        if asks { self.ask_on(first) } else { None }
    }

    fn give_up(&mut self, which: impl Fn(&Fetch) -> bool) -> Vec<Fetch> {
        self.fetches.extract_if(.., |_, fetch| which(fetch)).map(|(_, fetch)| fetch).collect()
    }
}

/// Refuses a frame of the past that is not what was asked for.
fn admit(fetch: &Fetch, header: &FrameHeader, bytes_max: u32) -> Result<(), FrameRefused> {
    let meta = &header.meta;
    admit_size(header, bytes_max)?;
    let asked = fetch.query.rung();
    // Knobs apply to data records, other rungs to pictures. A record of the other kind
    // comes as it was published. From a source's own video the camera makes stills.
    let of_data = asked.setting().is_ok_and(|setting| setting.is_of_data());
    let has_rung = meta.rung == asked
        || of_data == meta.encoding.is_picture() && meta.rung == Rung::original()
        || (of_data || asked == Rung::original()) && meta.rung == still_of_video().rung();
    let is_asked = fetch.in_order(header.history, meta.id)
        && fetch.query.spans(meta.id)
        && meta.captured <= fetch.query.end
        && has_rung
        && !meta.encoding.is_chained();
    if is_asked { Ok(()) } else { Err(FrameRefused::NotAsked { frame: meta.id }) }
}

/// Tells a camera that the rest of its answer is no longer wanted.
fn withdraw(fetch: &Fetch) -> EdgeOutput {
    let (request, query) = (fetch.next - 1, fetch.query);
    let withdrawn = HistoryRequest { request, query, rung: query.rung(), count: 0, continues: false };
    EdgeOutput::Send { link: fetch.link, message: Message::HistoryRequest(withdrawn) }
}

fn answer(request: u64, answer: PastAnswer) -> EdgeOutput {
    EdgeOutput::History { request, answer }
}
