//! Serves one group: takes its records from the edge's logs, gives them to members, and writes down how far it has come.
//!
//! [`GroupSession`] makes the decisions. The task lives as long as the group is known. While the group
//! has members it is open, and is one subscription to the edge broker.

mod seats;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::watch::Change as ContractChange;
use mez_core::group::members::{Asks, GroupKey};
use mez_core::group::session::{GroupOutput, GroupSession, Life};
use mez_core::group::{Change, MemberId};
use mez_core::name::CameraName;
use mez_core::subscription::LastFrame;
use mez_core::units::Instant;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use self::seats::Seated;
use super::bell::Bell;
use super::command::{Command, GroupStanding, JoinFailure, Joining, SettledRecords};
use super::finding::{Finding, Found};
use super::journal::Journals;
use super::member::{GroupMember, Seat};
use super::registry::Registry;
use super::waits::{Timer, changed, stopped};
use crate::clock::{anchor, monotonic_now};
use crate::edge::accounts::{Accounts, Open as OpenAccount};
use crate::edge::failure::Stopped;
use crate::edge::lock;
use crate::edge::request::{Opening, Request};
use crate::edge::standing::{Standing, Standings, forget};
use crate::edge::subscribers::{Attached, CameraNews, Mailbox};
use crate::edge::subscription::{Served, SharedCameras};
use crate::reading::PastSources;

/// How long a group waits until it retries a failed write of its place.
const REWRITE_INTERVAL: Duration = Duration::from_secs(5);
/// How long reports wait that do not wake the group. It wakes up for records long before, if there are any.
const REPORTS_WAIT_MAX: Duration = Duration::from_millis(200);
/// The most commands that are carried out before members are served.
const COMMANDS_AT_ONCE: usize = 64;

/// What groups use of the edge.
pub(crate) struct Tools {
    pub(crate) requests: mpsc::WeakSender<Request>,
    pub(crate) next_subscription: Arc<AtomicU64>,
    pub(crate) places: Arc<PastSources>,
    pub(crate) standings: Arc<Mutex<Standings>>,
    pub(crate) accounts: Accounts,
    /// The journals of places. `None`: places are not kept.
    pub(crate) journals: Option<Journals>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// The subscription of a group that has members.
struct Open {
    id: SubscriptionId,
    mailbox: Arc<Mailbox>,
    /// The request that it was opened with.
    joining: Joining,
    /// What the group was given, for the page and for metrics.
    account: OpenAccount,
}

/// The task of one group.
pub(super) struct GroupTask {
    key: GroupKey,
    tools: Arc<Tools>,
    registry: Arc<Registry>,
    commands: mpsc::Receiver<Command>,
    /// Names the seats to look at.
    bell: Arc<Bell>,
    session: GroupSession,
    open: Option<Open>,
    cameras: SharedCameras,
    finding: Finding,
    seats: BTreeMap<MemberId, Seated>,
    /// The members that the registry knows.
    admitted: BTreeSet<MemberId>,
    /// The group's count of members that have left, when `admitted` was last compared with the group. `None`: compare again.
    left: Option<u64>,
    /// The number of cameras that match. `Some` if no camera was connected at opening, until one is.
    waiting: Option<usize>,
    /// Why the place is not written, and when the write is retried.
    degraded: Option<(String, Instant)>,
    /// Answers that wait until the changes behind them are written.
    answers: Vec<(oneshot::Sender<SettledRecords>, SettledRecords)>,
    /// How many reports of streams were carried out. Their members hear of it when the changes behind them are written.
    carried_out: Vec<(Arc<Seat>, usize)>,
    over: bool,
}

impl GroupTask {
    /// Runs a group until it is forgotten or the edge stops. Its place is read first, if there is one.
    pub(super) async fn run(
        key: GroupKey,
        asks: Asks,
        tools: Arc<Tools>,
        registry: Arc<Registry>,
        commands: mpsc::Receiver<Command>,
    ) {
        let options = asks.options;
        let place = match &tools.journals {
            Some(journals) if options.keeps_place() => {
                journals.take_up(&key).await.unwrap_or_else(|error| {
                    warn!(group = %key.name, owner = %key.owner, "the place of the group cannot be read, so the group starts again: {error}");
                    None
                })
            }
            _ => None,
        };
        let (now, life, on_disk) = (monotonic_now(), new_life(), tools.journals.is_some());
        let session = match place {
            Some(place) => GroupSession::restored(now, options, life, place),
            None => GroupSession::new(now, options, life, on_disk),
        };
        let finding = Finding::new(Arc::clone(&tools.places));
        let task = Self {
            key,
            tools,
            registry,
            commands,
            bell: Arc::default(),
            session,
            open: None,
            cameras: SharedCameras::default(),
            finding,
            seats: BTreeMap::new(),
            admitted: BTreeSet::new(),
            left: None,
            waiting: None,
            degraded: None,
            answers: Vec::new(),
            carried_out: Vec::new(),
            over: false,
        };
        task.serve_always().await;
    }

    async fn serve_always(mut self) {
        let mut stop = self.tools.stop.clone();
        let bell = Arc::clone(&self.bell);
        // These live across turns, because to register anew takes longer than to look.
        let (stopped, rung, mut timer) = (stopped(&mut stop), bell.wait(), Timer::new());
        tokio::pin!(stopped, rung);
        loop {
            // A moment that passes while members are served is not missed.
            let looked = monotonic_now();
            self.serve().await;
            if self.over {
                return;
            }
            let at_ease = self.is_at_ease();
            bell.set_at_ease(at_ease);
            let retry = self.degraded.as_ref().map(|(_, at)| *at);
            let look =
                (at_ease && self.session.group().place().open_count() > 0).then(|| looked + REPORTS_WAIT_MAX);
            let due = self.session.poll_timeout(looked).into_iter().chain(retry).chain(look).min();
            let mailbox = self.open.as_ref().map(|open| Arc::clone(&open.mailbox));
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command).await,
                    None => return self.end().await,
                },
                () = &mut rung => rung.set(bell.wait()),
                () = changed(mailbox.as_deref()) => {}
                found = self.finding.next() => self.take_in(found),
                () = timer.until(due) => {}
                () = &mut stopped => {
                    // Otherwise, work that was reported would be done again after the start.
                    self.look_at_seats();
                    self.write_down().await;
                    self.seats.values().for_each(|seated| seated.seat.end(Served::Stopped));
                    return;
                }
            }
        }
    }

    /// Ends the streams of a group that was forgotten.
    async fn end(&mut self) {
        self.seats.values().for_each(|seated| seated.seat.end(Served::Replaced));
        self.close().await;
    }

    // ---- commands -----------------------------------------------------------------------------------------

    async fn take(&mut self, first: Command) {
        self.carry_out(first).await;
        for _ in 1..COMMANDS_AT_ONCE {
            // Commands left in the channel are carried out after members were served.
            let Ok(command) = self.commands.try_recv() else { return };
            self.carry_out(command).await;
        }
    }

    async fn carry_out(&mut self, command: Command) {
        match command {
            Command::Join(joining, answer) => {
                // If nobody waits for the answer, dropping the member reports it as away.
                let _ = answer.send(self.join(*joining).await);
            }
            Command::Settle(settlements, answer) => {
                // Reports that came earlier go before it.
                self.look_at_seats();
                let settled = self.settle(&settlements);
                self.answers.push((answer, settled));
            }
            Command::Taken(reports) => {
                let now = monotonic_now();
                for (camera, report) in &reports {
                    self.session.handle_taken(now, camera, report);
                    if let Some(open) = &self.open {
                        open.account.note_taken(camera, report);
                    }
                }
            }
            Command::Report(answer) => {
                self.look_at_seats();
                self.write_down().await;
                drop(answer.send(self.standing()));
            }
        }
    }

    async fn join(&mut self, joining: Joining) -> Result<GroupMember, JoinFailure> {
        let Joining { member, knows, at_once, .. } = joining;
        // The registry may have let the member go since it was admitted.
        self.registry.lock().groups.admit(&self.key, member, &joining.asks)?;
        self.admitted.insert(member);
        self.left = None;
        let is_other = |open: &Open| open.joining.asks != joining.asks;
        if self.open.as_ref().is_none_or(is_other) {
            self.close().await;
            self.open(joining.clone()).await?;
        }
        if let Some(before) = self.seats.get(&member) {
            let before = Arc::clone(&before.seat);
            let reports = before.take().reports;
            self.carry_out_reports(vec![(before, reports)]);
        }
        let mut joined = self.session.join(member, knows)?;
        self.session.holds(member, &joining.holds);
        joined.survives &= self.degraded.is_none();
        let seat = Arc::new(Seat::new(Served::Joined(joined)));
        if let Some(matching) = self.waiting {
            seat.tell(Served::Waiting { matching });
        }
        let application = joining.spec.application;
        let seated = Seated { seat: Arc::clone(&seat), application, credits: at_once, is_free: false };
        if let Some(before) = self.seats.insert(member, seated) {
            before.seat.end(Served::Replaced);
        }
        self.bell.note(member);
        Ok(GroupMember::new(member, seat, Arc::clone(&self.bell)))
    }

    fn standing(&self) -> GroupStanding {
        let group = self.session.group();
        let place = group.place();
        let application = |member| self.seats.get(&member).map(|seated| seated.application.clone());
        let members = group
            .members()
            .map(|(member, open, account)| (member, application(member).unwrap_or_default(), open, *account));
        let lane = |(camera, last): (CameraName, LastFrame)| {
            let open = place.open().filter(|(of, _)| **of == camera).count();
            (camera, last.id, open)
        };
        GroupStanding {
            survives: self.keeps() && self.degraded.is_none(),
            degraded: self.degraded.as_ref().map(|(why, _)| why.clone()),
            members: members.collect(),
            lanes: place.after().map(lane).collect(),
            account: group.account().clone(),
            open: place.open_count(),
        }
    }

    // ---- opening and closing ------------------------------------------------------------------------------

    async fn open(&mut self, joining: Joining) -> Result<(), Stopped> {
        let Some(requests) = self.tools.requests.upgrade() else { return Err(Stopped) };
        let id = SubscriptionId(self.tools.next_subscription.fetch_add(1, Ordering::Relaxed));
        let (mailbox, clock) = (Arc::new(Mailbox::default()), anchor());
        let Joining { asks, spec, profile, .. } = &joining;
        let spec = self.session.asked_for(clock, spec.clone(), &asks.options);
        let (answer, connected) = oneshot::channel();
        let opening = Opening {
            id,
            spec: spec.clone(),
            profile: profile.clone(),
            clock,
            mailbox: Arc::clone(&mailbox),
        };
        requests.send(Request::Subscribe(Box::new(opening), answer)).await.map_err(|_| Stopped)?;
        let (connected, _) = connected.await.map_err(|_| Stopped)?;
        let sized = profile.as_ref().map(|held| Arc::clone(&held.profile));
        let account = self.tools.accounts.open(id, &spec, Some(self.key.name.to_string()));
        let account = OpenAccount(account);
        self.session.open(clock, (id, spec), asks.options, sized);
        self.waiting = (connected == 0).then_some(0);
        let (owner, name) = (&self.key.owner, &self.key.name);
        info!(%owner, %name, cameras = %asks.cameras, "a group of readers is open");
        self.open = Some(Open { id, mailbox, joining, account });
        self.begin_journal().await;
        Ok(())
    }

    async fn close(&mut self) {
        self.session.close();
        self.finding.drop_all();
        let Some(Open { id, .. }) = self.open.take() else { return };
        {
            let mut standings = lock(&self.tools.standings);
            self.cameras.names().for_each(|camera| forget(&mut standings, camera, id));
        }
        self.cameras = SharedCameras::default();
        if let Some(requests) = self.tools.requests.upgrade() {
            // A broker that has stopped has no subscriptions.
            let _ = requests.send(Request::Unsubscribe(id)).await;
        }
    }

    /// Opens the group anew for the same request, without what it knew of a camera that was reset.
    async fn open_again(&mut self, reset: &CameraName) {
        let Some(joining) = self.open.as_ref().map(|open| open.joining.clone()) else { return };
        self.close().await;
        self.session.handle_forgotten(reset);
        if self.open(joining).await.is_err() {
            self.seats.values().for_each(|seated| seated.seat.end(Served::Stopped));
        }
    }

    // ---- the place on disk --------------------------------------------------------------------------------

    /// Whether the group's place is to be written.
    fn keeps(&self) -> bool {
        self.session.group().options().keeps_place() && self.tools.journals.is_some()
    }

    /// Makes the journal hold the present place. A group of the newest has no place, so its journal is removed.
    async fn begin_journal(&mut self) {
        let (Some(journals), Some(open)) = (&self.tools.journals, &self.open) else { return };
        // The place already includes all changes so far.
        while self.session.poll_change().is_some() {}
        let written = if self.session.group().options().keeps_place() {
            let place = self.session.group().place().clone();
            journals.begin(&self.key, &open.joining.asks, place).await
        } else {
            journals.remove(&self.key).await
        };
        self.note_written(written);
    }

    /// Writes changes down, before any member hears of them.
    async fn write_down(&mut self) {
        let changes: Vec<Change> = std::iter::from_fn(|| self.session.poll_change()).collect();
        if !self.keeps() {
            return;
        }
        if let Some((_, again)) = &self.degraded {
            if *again <= monotonic_now() {
                self.begin_journal().await;
            }
        } else if let (Some(journals), false) = (&self.tools.journals, changes.is_empty()) {
            let written = journals.write(&self.key, changes).await;
            self.note_written(written);
        }
    }

    fn note_written(&mut self, written: std::io::Result<()>) {
        let (owner, name) = (&self.key.owner, &self.key.name);
        match written {
            Ok(()) => {
                if self.degraded.take().is_some() {
                    info!(%owner, %name, "the place of the group is written to disk again");
                }
            }
            Err(error) => {
                let again = monotonic_now() + REWRITE_INTERVAL;
                if self.degraded.replace((error.to_string(), again)).is_none() {
                    warn!(%owner, %name, "the place of the group cannot be written to disk, so its work would be repeated after a restart: {error}");
                }
            }
        }
    }

    // ---- serving ------------------------------------------------------------------------------------------

    /// Gives members their records and news, and answers them.
    async fn serve(&mut self) {
        // Before news of cameras, which ends the records of a camera that is forgotten.
        self.look_at_seats();
        self.read_letters().await;
        let mut outputs = Vec::new();
        loop {
            while let Some(output) = self.session.poll(monotonic_now(), &self.cameras) {
                outputs.push(output);
            }
            let mut found_some = false;
            while let Some(question) = self.session.poll_question() {
                if let Some(found) = self.finding.ask(question, &self.cameras) {
                    self.take_in(found);
                    found_some = true;
                }
            }
            if !found_some {
                break;
            }
        }
        self.write_down().await;
        // Before the records, so that a record confirms the report before it.
        for (answer, settled) in self.answers.drain(..) {
            // The asker may have gone.
            let _ = answer.send(settled);
        }
        for (seat, reports) in self.carried_out.drain(..) {
            seat.has_carried_out(reports);
        }
        outputs.into_iter().for_each(|output| self.tell(output));
        self.let_go().await;
    }

    /// Takes in what the broker has told.
    async fn read_letters(&mut self) {
        let Some(mailbox) = self.open.as_ref().map(|open| Arc::clone(&open.mailbox)) else { return };
        let now = monotonic_now();
        let (reset, stopped) = {
            let mut letters = lock(&mailbox.letters);
            for camera in letters.detached.drain(..) {
                self.session.handle_forgotten(&camera);
                self.finding.forget(&camera);
                self.cameras.remove(&camera);
                if let Some(open) = &self.open {
                    open.account.forget(&camera);
                }
            }
            for Attached { camera, log, present, shared } in letters.attached.drain(..) {
                self.cameras.insert(camera.clone(), shared);
                self.session.handle_attach(now, camera, log, present);
            }
            if std::mem::take(&mut letters.view_changed) {
                self.session.handle_view_changed();
            }
            for news in letters.changes.drain(..) {
                if matches!(news, CameraNews::Camera(_, true, _)) {
                    self.waiting = None;
                }
                self.seats.values().for_each(|seated| seated.seat.tell(served(&news)));
            }
            (letters.reset.take(), letters.stopped)
        };
        if let Some(camera) = reset {
            self.finding.forget(&camera);
            self.open_again(&camera).await;
        }
        if stopped {
            self.seats.values().for_each(|seated| seated.seat.end(Served::Stopped));
        }
    }

    fn take_in(&mut self, found: Found) {
        match found {
            Found::Still(camera, frame, answer) => self.session.handle_still(&camera, frame, answer),
            Found::Past(camera, asked, answer) => self.session.handle_past(&camera, asked, answer),
        }
    }

    fn tell(&mut self, output: GroupOutput) {
        match output {
            GroupOutput::Record(record) => self.give(*record),
            GroupOutput::HeldBack { open } => {
                self.seats.values().for_each(|seated| seated.seat.tell(Served::Held(Some(open))));
            }
            GroupOutput::GoesOn => {
                self.seats.values().for_each(|seated| seated.seat.tell(Served::Held(None)));
            }
            GroupOutput::Contract(change) => {
                self.note_standing(&change);
                for seated in self.seats.values() {
                    let told = Served::Contract(change.clone());
                    if change.ends { seated.seat.end(told) } else { seated.seat.tell(told) }
                }
            }
        }
    }

    /// Publishes the contract's state to those who ask the broker.
    fn note_standing(&mut self, change: &ContractChange) {
        let Some(Open { id, joining, account, .. }) = &self.open else { return };
        account.note_contract(change);
        let ContractChange { camera, state, reason, .. } = change.clone();
        let application = format!("group {}", self.key.name);
        let standing = Standing { application, contract: joining.asks.contract.clone(), state, reason };
        lock(&self.tools.standings).entry(camera).or_default().insert(*id, standing);
    }
}

fn served(news: &CameraNews) -> Served {
    match news {
        CameraNews::Camera(camera, up, reason) => {
            Served::Camera { camera: camera.clone(), up: *up, reason: reason.clone() }
        }
        CameraNews::Source(camera, source) => {
            Served::Source { camera: camera.clone(), source: source.clone() }
        }
    }
}

fn new_life() -> Life {
    let mut bytes = [0; 16];
    // Without randomness, members would believe that an older life of the group goes on. The system always provides randomness.
    let _ = SystemRandom::new().fill(&mut bytes);
    Life(u128::from_be_bytes(bytes))
}
