//! Checks answers: pictures that applications make of frames, and that go back to the camera's publisher.
//!
//! An *account* is what one run of an edge counts for one start of a camera, as in `docs/offload.md`. Every answer that the edge has accepted ends once:
//! it arrives at the publisher and the edge hears so, or the account counts it as skipped. What arrived and was not confirmed before its connection
//! ended is counted too. What a killed edge had counted and not told is lost.

use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{Answered, UNCONFIRMED_ANSWERS_MAX};
use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, FrameId};
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant};
use mez_core::wire::{AnswerAccount, AnswerSkips, FrameHeader};

use super::offload::{Account, MadeSeen, Offload, Sent};
use super::{Checks, Path};
use crate::time::{Moment, ms};

/// How long an edge waits for a confirmation after the bound, and until it sends the next account.
const SETTLED_AFTER: Duration = ms(1_100);
/// Time for packets of an account that are lost, and for the two hosts.
const TELL_MARGIN: Duration = ms(500);
/// The most answers on the way: one waits, one is being sent, the others are not confirmed.
const ON_THE_WAY_MAX: u64 = UNCONFIRMED_ANSWERS_MAX as u64 + 2;

/// What a camera's publisher and its edge know of answers.
pub(crate) struct AnswersSeen {
    /// The run of the camera's process, and of the edge's.
    pub(crate) runs: (u64, Option<u64>),
    /// Whether the edge has welcomed the process.
    pub(crate) is_up: bool,
    /// What the publisher is told was not delivered.
    pub(crate) skipped: AnswerSkips,
}

impl Checks {
    // ---- the edge -----------------------------------------------------------------------------------------

    /// An edge has accepted a start of a camera on this connection. A new start begins an account.
    pub(crate) fn account_begins(
        &mut self,
        (edge, run): (usize, u64),
        camera: &CameraName,
        connection: LinkId,
        start: (Epoch, ClockAnchor),
    ) {
        let Offload { accounts, current, of_connection, .. } = &mut self.offload;
        let key = (run, camera.clone());
        let place = match current.get(&key) {
            Some(place) if accounts[*place].start == start => *place,
            _ => {
                accounts.push(Account::new(edge, start));
                accounts.len() - 1
            }
        };
        (accounts[place].asked, accounts[place].bound) = (None, None);
        current.insert(key, place);
        of_connection.insert(connection, place);
    }

    /// An edge forgets a camera, and its account.
    pub(crate) fn account_forgotten(&mut self, edge_run: u64, camera: &CameraName) {
        self.offload.current.remove(&(edge_run, camera.clone()));
    }

    /// An edge has accepted an answer.
    pub(crate) fn answer_taken(&mut self, (edge_run, camera): (u64, &CameraName), made: MadeSeen) {
        let now = self.now;
        let Offload { accounts, current, .. } = &mut self.offload;
        let Some(account) = current.get(&(edge_run, camera.clone())).map(|place| &mut accounts[*place])
        else {
            return self.fail("answer account", format!("an answer to unknown camera {camera} was accepted"));
        };
        account.accepted += 1 + u64::from(made.replaced);
        account.history.push_back((now, account.accepted));
        account.made.entry(made.frame).or_default().push(made);
    }

    /// A camera says whether its publisher takes answers.
    pub(crate) fn answers_asked(&mut self, connection: LinkId, bound: Option<Duration>) {
        let now = self.now;
        let Some(account) = self.account_of(connection) else { return };
        account.asked.get_or_insert(now);
        account.bound = bound;
        account.bound_max = account.bound_max.max(bound.unwrap_or_default());
    }

    /// Checks an answer that an edge begins to send.
    pub(crate) fn answer_begins(
        &mut self,
        connection: LinkId,
        header: &FrameHeader,
        payload: &Bytes,
        begun: Instant,
    ) {
        let frame = header.meta.id;
        let size = (header.meta.width, header.meta.height);
        let Some(account) = self.account_of(connection) else {
            return self.fail("answer bytes", format!("the answer to {frame} goes to nobody"));
        };
        let made = account.made.get(&frame).into_iter().flatten().find(|made| made.payload == *payload);
        let found = made.map(|made| (made.size == size, made.captured));
        let is_wanted = account.bound.is_some();
        self.expect(is_wanted, "answer bound", || {
            format!("the answer to {frame} is sent, and the publisher takes none")
        });
        let Some((true, captured)) = found else {
            return self.fail("answer bytes", format!("the answer to {frame} is sent as nobody made it"));
        };
        let sent = Sent {
            payload: payload.clone(),
            size,
            from: captured.unwrap_or(begun),
            is_excused: false,
            has_arrived: false,
            is_confirmed: false,
        };
        let again = self.offload.sent.insert((connection, frame), sent).is_some();
        self.expect(!again, "answer account", || format!("the answer to {frame} is sent twice"));
    }

    /// Checks how many answers have unsent bytes when another one is sent on the same connection.
    pub(crate) fn answer_goes(&mut self, connection: LinkId, frame: FrameId, unsent: usize) {
        self.expect(unsent == 0, "one answer", || {
            format!("the answer to {frame} is sent on {connection:?} while {unsent} others have unsent bytes")
        });
    }

    /// Checks an answer whose last byte has left, at `now` by the edge's clock.
    pub(crate) fn answer_left(&mut self, connection: LinkId, frame: FrameId, now: Instant) {
        let Some(bound) = self.account_of(connection).map(|account| account.bound) else { return };
        let Some(sent) = self.offload.sent.get(&(connection, frame)) else { return };
        let age = now.saturating_since(sent.from);
        let in_time = sent.is_excused || bound.is_some_and(|bound| age <= bound);
        self.expect(in_time, "answer bound", || {
            format!("the last byte of the answer to {frame} leaves after {age:?}, allowed are {bound:?}")
        });
    }

    /// An edge's host does nothing from now on, while its connections send what they have.
    pub(super) fn answers_stand_still(&mut self, edge: usize) {
        let Offload { accounts, of_connection, sent, .. } = &mut self.offload;
        let is_there = |connection: &LinkId| {
            of_connection.get(connection).is_some_and(|place| accounts[*place].edge == edge)
        };
        sent.iter_mut()
            .filter(|((connection, _), _)| is_there(connection))
            .for_each(|(_, sent)| sent.is_excused = true);
    }

    /// An edge learns that an answer has arrived.
    pub(crate) fn answer_confirmed(&mut self, connection: LinkId, frame: FrameId) {
        let now = self.now;
        let known = self.offload.sent.get_mut(&(connection, frame));
        let news =
            known.is_some_and(|sent| sent.has_arrived && !std::mem::replace(&mut sent.is_confirmed, true));
        self.expect(news, "answer account", || {
            format!("the answer to {frame} is confirmed on {connection:?} without reason")
        });
        if let Some(account) = self.account_of(connection).filter(|_| news) {
            if account.confirmed_at != now {
                (account.confirmed_at, account.confirmed_before) = (now, account.confirmed);
            }
            account.confirmed += 1;
        }
    }

    /// Checks an account that an edge sends to a camera.
    pub(crate) fn account_told(&mut self, connection: LinkId, told: &AnswerAccount) {
        let now = self.now;
        let Some(account) = self.account_of(connection) else {
            return self.fail("answer account", "an account goes to nobody".into());
        };
        let (accepted, confirmed) = (account.accepted, account.confirmed_before(now));
        let before = account.history.iter().rev().find(|(at, _)| *at < now).map_or(0, |(_, count)| *count);
        let ended = told.skipped.total() + confirmed;
        let counts = (before..=accepted).contains(&told.answered);
        let ends = (ended..=ended + ON_THE_WAY_MAX + account.confirmed - confirmed).contains(&told.answered);
        self.expect(counts && ends, "answer account", || {
            format!(
                "of {accepted} answers, {confirmed} of them confirmed, the camera is told: {} answered, {:?} skipped",
                told.answered, told.skipped
            )
        });
    }

    fn account_of(&mut self, connection: LinkId) -> Option<&mut Account> {
        let Offload { accounts, of_connection, .. } = &mut self.offload;
        of_connection.get(&connection).map(|place| &mut accounts[*place])
    }

    // ---- the camera ---------------------------------------------------------------------------------------

    /// A camera's process has an account from its edge.
    pub(crate) fn account_heard(&mut self, run: u64, connection: LinkId, heard: AnswerAccount) {
        let Offload { accounts, of_connection, publishers, .. } = &mut self.offload;
        let Some(place) = of_connection.get(&connection) else { return };
        let before = publishers.entry(run).or_default().accounts.insert(heard.since, *place);
        let since = heard.since;
        accounts[*place].heard = Some(heard);
        let is_one = before.is_none_or(|before| before == *place);
        self.expect(is_one, "answer account", || format!("two accounts have the number {since}"));
    }

    /// Checks an answer that has arrived at a camera.
    pub(crate) fn answer_arrived(
        &mut self,
        (camera, run): (&CameraName, u64),
        connection: Option<LinkId>,
        answered: &Answered,
    ) {
        let frame = answered.frame;
        let publisher = self.offload.publishers.entry(run).or_default();
        publisher.arrived += 1;
        publisher.waits = true;
        let sent = connection.and_then(|connection| self.offload.sent.get_mut(&(connection, frame)));
        let whole = sent.is_some_and(|sent| {
            sent.has_arrived = true;
            sent.payload == answered.payload && sent.size == (answered.width, answered.height)
        });
        let runs = self.published.get(&(camera.clone(), frame.epoch));
        let of_it = runs.and_then(|runs| runs.iter().find(|known| known.run == run));
        let published = of_it.and_then(|known| known.frames.get(frame.sequence.0 as usize));
        let is_of_it = published.is_some_and(|published| published.captured == answered.captured);
        self.expect(whole && is_of_it, "answer bytes", || {
            format!("the answer to {frame} of {camera} is not what an application gave (whole: {whole})")
        });
    }

    /// Checks an answer that a publisher takes. `news`: the skipped answers that it is told of; `known`: all that it could be told of.
    pub(crate) fn answer_given(&mut self, run: u64, frame: FrameId, news: &AnswerSkips, known: &AnswerSkips) {
        let publisher = self.offload.publishers.entry(run).or_default();
        publisher.given += 1;
        publisher.waits = false;
        let before = publisher.newest.replace(frame);
        publisher.told.add_all(news);
        publisher.known.add_all(&known.since(&publisher.known));
        let (told, known) = (publisher.told, publisher.known);
        self.expect(before < Some(frame), "answer order", || {
            format!("a publisher gets the answer to {frame} after that to {before:?}")
        });
        self.expect(told == known, "answer account", || {
            format!("a publisher is told of {told:?}, and {known:?} were skipped")
        });
    }

    /// A publisher stops taking answers. What waits for it is dropped.
    pub(crate) fn answers_cleared(&mut self, run: u64) {
        self.offload.publishers.entry(run).or_default().waits = false;
    }

    // ---- both ---------------------------------------------------------------------------------------------

    /// Checks what a publisher is told against what its edge has accepted.
    pub(crate) fn watch_answers(&mut self, path: &Path, name: &CameraName, seen: &AnswersSeen) {
        let Offload { accounts, current, publishers, .. } = &self.offload;
        let (run, edge_run) = seen.runs;
        let Some(publisher) = publishers.get(&run) else { return };
        let heard = |place: &usize| accounts[*place].heard.as_ref().map_or(0, |heard| heard.skipped.total());
        let by_accounts: u64 = publisher.accounts.values().map(heard).sum();
        let unread = publisher.arrived - publisher.given - u64::from(publisher.waits);
        let told = seen.skipped.total();
        let adds_up = told == by_accounts + unread;
        let place = edge_run.and_then(|edge_run| current.get(&(edge_run, name.clone())));
        let account = place.map(|place| &accounts[*place]);
        let untold = account.and_then(|account| self.untold(path, account, seen));
        self.expect(adds_up, "answer account", || {
            format!("{told} answers count as skipped at camera {name}: {by_accounts} by its edges, {unread} unread")
        });
        self.expect(untold.is_none(), "answer account", || untold.unwrap_or_default());
    }

    /// What a calm camera lacks of its present account, as text.
    fn untold(&self, path: &Path, account: &Account, seen: &AnswersSeen) -> Option<String> {
        let way = path.queue_time() * 2 + path.link.round_trip_time() * 3 + path.bad_luck * 2;
        let patience = account.bound_max * 2 + SETTLED_AFTER + way + TELL_MARGIN;
        let calm_since = path.recovered().max(account.asked?);
        if !seen.is_up || !path.is_well || self.now < calm_since + patience {
            return None;
        }
        let settled =
            self.now.since(Moment::START).checked_sub(patience).map(|since| Moment::START + since)?;
        let owed = account.accepted_by(settled);
        let skipped = account.heard.as_ref().map_or(0, |heard| heard.skipped.total());
        (skipped + account.confirmed < owed).then(|| {
            let (camera, confirmed) = (path.camera, account.confirmed);
            format!(
                "of {owed} answers, camera {camera} has {confirmed} and is told of {skipped} skipped ones"
            )
        })
    }
}
