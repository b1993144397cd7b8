//! Judges whether one subscription's contract is kept on each of its cameras. Reports the state with every frame and at every change.
//!
//! A [session](crate::session) calls [`ContractWatch::judge`] for every live frame before the application gets it, and
//! [`ContractWatch::handle_waiting`] when there is no frame. It calls [`ContractWatch::poll`] at least every [`LOOK_INTERVAL`], because missing
//! frames can break a contract. The state depends on the frames and on the edge's [`CameraView`]. The rules of the states are in [`super::monitor`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::monitor::{
    FrameOutcome, Handed, Monitor, Need, OVERDUE_MIN, OriginalsGot, Surroundings, TakenReport, WINDOW, Way,
};
use super::{Contract, ContractState, Joint, OnInfeasible, negotiation};
use crate::broker::edge::{CameraView, NamedContract, SubscriptionId};
use crate::frame::{Rung, SkipCounts, SkipReason};
use crate::name::CameraName;
use crate::profile::SizedProfile;
use crate::source::{SourceStanding, SourceState};
use crate::subscription::{Delivery, Missing};
use crate::units::Instant;
use crate::wire::ProfileUse;

/// How often a contract must be checked when no frame comes.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest time between two changes of state that are reported for one camera.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// The most frames of one gap that are recorded one by one, for each kind of loss. More frames would not change the state.
const LOST_MAX: u64 = 256;

/// Whether a frame keeps the contract, and the state of the contract with it.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameVerdict {
    /// The expected accuracy: from the subscription's own profile, or else as the camera reports it. It is 1
    /// for an unmodified frame. `None`: not known.
    pub expected_accuracy: Option<f64>,
    /// Whether the frame is below the floor, or was sent because nothing better would have been on time.
    pub infeasible: bool,
    /// The state over the last second.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
}

/// What to do with a frame.
#[derive(Clone, Debug)]
pub enum Judged {
    /// Give it to the application.
    Deliver(Box<Delivery>, FrameVerdict),
    /// Withhold it ([`OnInfeasible::Skip`]). It is counted with the next delivered frame.
    Withheld,
}

/// A change of a contract's state on one camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The camera.
    pub camera: CameraName,
    /// The new state.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
    /// Whether the contract wants the subscription to end with this change ([`OnInfeasible::Stop`]).
    pub ends: bool,
}

/// The watch of one camera.
struct Watched {
    monitor: Monitor,
    /// When the last frame was judged.
    last: Option<Instant>,
    /// Since when the application has waited for the next frame.
    waits_since: Option<Instant>,
    /// How long the application had waited for the next frame at the last check.
    waited: Option<Duration>,
    /// One in this many published frames is sent, at the rung of the last frame.
    one_in: u32,
    /// Whether the last frame was unmodified, so that its accuracy is known whatever the profile says.
    unmodified: bool,
    /// Withheld frames, and frames that were skipped before them.
    withheld: Missing,
    told: Option<(ContractState, Instant)>,
    /// The state reported with the last frame, if no change was reported since.
    said: Option<ContractState>,
    /// Whether a frame has come since the last look.
    changed: bool,
    /// How many originals came, if the application asked for originals.
    originals: OriginalsGot,
    /// Whether the application was told that it lacks originals.
    told_lack: bool,
}

/// One subscription's contract on all of its cameras.
pub struct ContractWatch {
    id: SubscriptionId,
    contract: Contract,
    profile: Option<Arc<SizedProfile>>,
    /// One entry for each attached camera; the edge bounds their number.
    cameras: BTreeMap<CameraName, Watched>,
    /// When the next check of all cameras is due.
    look_due: Instant,
    /// How long frames take from the edge into the application's client library.
    way: Way,
    /// Whether the application asked for originals, and is told which it lacks.
    originals: bool,
}

impl ContractWatch {
    /// A watch without cameras.
    pub fn new(id: SubscriptionId, contract: Contract, profile: Option<Arc<SizedProfile>>) -> Self {
        Self {
            id,
            contract,
            profile,
            cameras: BTreeMap::new(),
            look_due: Instant::ZERO,
            way: Way::default(),
            originals: false,
        }
    }

    /// Makes it a watch for an application that asked for originals. The application is also told which originals it lacks.
    #[must_use]
    pub fn of_originals(self) -> Self {
        Self { originals: true, ..self }
    }

    /// Whether there may be something to report when no frame comes: the contract can be broken, or originals can be lacking.
    pub fn tells(&self) -> bool {
        self.originals || !self.contract.asks_nothing()
    }

    /// The contract that is watched.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Replaces the contract. Frames seen so far no longer count.
    pub fn handle_update(&mut self, now: Instant, contract: Contract, profile: Option<Arc<SizedProfile>>) {
        if contract == self.contract {
            return;
        }
        (self.contract, self.profile) = (contract, profile);
        for watched in self.cameras.values_mut() {
            watched.monitor = Monitor::new(self.contract.clone(), now);
            watched.told = None;
        }
    }

    /// Notes that something besides frames has changed that affects the contract.
    pub fn handle_view_changed(&mut self) {
        self.look_due = Instant::ZERO;
    }

    /// Starts to watch a camera that the subscription reads from now on.
    pub fn handle_attach(&mut self, now: Instant, camera: CameraName) {
        let contract = self.contract.clone();
        let watched = self.cameras.entry(camera).or_insert_with(|| Watched {
            monitor: Monitor::new(contract, now),
            last: None,
            waits_since: None,
            waited: None,
            one_in: 1,
            unmodified: false,
            withheld: Missing::default(),
            told: None,
            said: None,
            changed: false,
            originals: OriginalsGot::default(),
            told_lack: false,
        });
        watched.originals.handle_begin(now);
    }

    /// Judges a live frame that the application can take now. `captured` is the capture time by the clock of
    /// `now`, if it is known.
    pub fn judge(
        &mut self,
        now: Instant,
        mut delivery: Box<Delivery>,
        captured: Option<Instant>,
        view: &CameraView,
    ) -> Judged {
        self.handle_attach(now, delivery.camera.clone());
        let verified = self.verified(&delivery);
        let below =
            verified.zip(self.contract.accuracy_floor).is_some_and(|(expected, floor)| expected < floor);
        let own = self.leads(view);
        let watched = self.cameras.get_mut(&delivery.camera).expect("attached above");
        watched.note_lost(now, &delivery.skipped);
        watched.originals.handle_frame(now, delivery.skipped.of(SkipReason::LinkBusy));
        let waited = watched.waited_for_application(now, &delivery);
        let on_time = match (captured, self.contract.latency_bound) {
            (Some(captured), Some(bound)) => now.saturating_since(captured).saturating_sub(waited) <= bound,
            _ => true,
        };
        // If others ask for more, the mark refers to their contracts.
        let quality = delivery.record.quality;
        let marked = quality.infeasible && (own || !on_time) && self.contract.accuracy_floor.is_some();
        let infeasible = below || marked;
        let outcome = FrameOutcome { on_time, infeasible, expected_accuracy: verified, came: true };
        let withholds = infeasible && self.contract.on_infeasible != OnInfeasible::Degrade;
        if withholds {
            // No client will ever report that it has the frame.
            watched.monitor.handle_frame(now, outcome);
        } else {
            let handed = Handed { frame: delivery.record.frame.meta.id, captured, waited };
            watched.monitor.handle_handed(now, outcome, handed);
        }
        (watched.last, watched.waits_since, watched.waited) = (Some(now), None, None);
        watched.one_in = delivery.record.frame.meta.rung.one_in();
        watched.unmodified = delivery.record.frame.meta.rung == Rung::original();
        watched.changed = true;
        let withheld = std::mem::take(&mut watched.withheld);
        withheld.tell(&mut delivery.skipped, &mut delivery.not_held);
        if withholds {
            watched.withheld.merge(&delivery.skipped, delivery.not_held);
            watched.withheld.add(SkipReason::Infeasible);
            return Judged::Withheld;
        }
        let (state, reason) = self.describe(now, &delivery.camera, view);
        if let Some(watched) = self.cameras.get_mut(&delivery.camera) {
            watched.said = Some(state);
        }
        let expected_accuracy = verified.or(quality.expected_accuracy);
        Judged::Deliver(delivery, FrameVerdict { expected_accuracy, infeasible, state, reason })
    }

    /// Takes the account of a camera's withheld frames that was not reported with a frame yet.
    pub fn rest(&mut self, camera: &CameraName) -> Missing {
        self.cameras.get_mut(camera).map(|watched| std::mem::take(&mut watched.withheld)).unwrap_or_default()
    }

    /// Stops watching a camera, because the edge has forgotten it. Returns the account of its withheld frames that was not reported with a frame yet.
    pub fn handle_forgotten(&mut self, camera: &CameraName) -> Missing {
        self.cameras.remove(camera).map(|watched| watched.withheld).unwrap_or_default()
    }

    /// The state of the contract on a camera, and why.
    pub fn describe(&self, now: Instant, camera: &CameraName, view: &CameraView) -> (ContractState, String) {
        match self.cameras.get(camera) {
            Some(watched) => self.describe_watched(now, watched, view).0,
            None => (ContractState::Unverified, "no frame yet".into()),
        }
    }

    /// The state of the contract on a watched camera and why, and whether requested originals are lacking.
    fn describe_watched(
        &self,
        now: Instant,
        watched: &Watched,
        view: &CameraView,
    ) -> ((ContractState, String), bool) {
        let (state, text) = watched.monitor.describe(now, &self.surroundings(now, view, watched));
        if !self.originals {
            return ((state, text), false);
        }
        // A contract that asks nothing is kept once a frame has come.
        let calm =
            state == ContractState::Unverified && self.contract.asks_nothing() && watched.last.is_some();
        let state = if calm { ContractState::Ok } else { state };
        let beside = view.demands.iter().any(|demand| demand.contract.accuracy_floor.is_some());
        let publishes = view.connected && view.frames_per_second > 0.0;
        match watched.originals.lack(now, beside, publishes) {
            Some(lack) if self.contract.asks_nothing() && state == ContractState::Ok => ((state, lack), true),
            Some(lack) => ((state, format!("{text}; {lack}")), true),
            None => ((state, text), false),
        }
    }

    /// Takes in the accuracy, from 0 to 1, that the application measured on one of a camera's frames.
    pub fn handle_accuracy(&mut self, now: Instant, camera: &CameraName, accuracy: f64) {
        if let Some(watched) = self.cameras.get_mut(camera) {
            watched.monitor.handle_accuracy(now, accuracy);
            watched.changed = true;
        }
    }

    /// Takes in the report of the application's client library on one of a camera's frames.
    pub fn handle_taken(&mut self, now: Instant, camera: &CameraName, report: &TakenReport) {
        if let Some(watched) = self.cameras.get_mut(camera) {
            if let Some(way) = watched.monitor.handle_taken(now, report) {
                self.way.handle_frame(now, way);
            }
            watched.changed = true;
        }
    }

    /// The time that nine of ten frames take at most from the edge into the
    /// application's client library. `None`: it has not changed since the last call.
    pub fn poll_way(&mut self, now: Instant) -> Option<Duration> {
        self.way.poll(now, self.contract.latency_bound?)
    }

    /// When a frame must be handed over at the latest to be on time, as far as the way to the application is known. `None`: the contract has no
    /// latency bound.
    pub fn hand_over_by(&self, captured: Instant) -> Option<Instant> {
        Some(captured + self.contract.latency_bound?.saturating_sub(self.way.known()))
    }

    /// Notes that the application has taken every frame, and waits for the next.
    pub fn handle_waiting(&mut self, now: Instant) {
        for watched in self.cameras.values_mut().filter(|watched| watched.last.is_some()) {
            let since = *watched.waits_since.get_or_insert(now);
            watched.waited = Some(now.saturating_since(since));
            watched.changed |= watched.waited > Some(OVERDUE_MIN);
        }
    }

    /// The next unreported change of the state, or of whether originals are lacking.
    /// `None` for a contract that asks nothing, unless originals were asked for.
    pub fn poll(&mut self, now: Instant, view: impl Fn(&CameraName) -> Arc<CameraView>) -> Option<Change> {
        if !self.tells() {
            return None;
        }
        let all = now >= self.look_due;
        let news = self.cameras.iter().find_map(|(camera, watched)| {
            let early = watched.told.is_some_and(|(_, at)| now.saturating_since(at) < TELL_INTERVAL);
            if early || !all && !watched.changed {
                return None;
            }
            let ((state, reason), lacks) = self.describe_watched(now, watched, &view(camera));
            let told = watched.told.map(|(state, _)| state);
            // Before the first frame, an unknown state is no news.
            let begins = told.is_none() && state == ContractState::Unverified && watched.last.is_none();
            // An application that relies on the state told with a frame must hear that it has changed.
            let unsaid = watched.said.is_some_and(|said| said != state);
            let lack_changed = watched.told_lack != lacks;
            let is_news = (told != Some(state) || unsaid) && !begins || lack_changed;
            is_news.then(|| (camera.clone(), state, reason, lacks))
        });
        if news.is_none() {
            self.cameras.values_mut().for_each(|watched| watched.changed = false);
            if all {
                self.look_due = now + LOOK_INTERVAL;
            }
        }
        let (camera, state, reason, lacks) = news?;
        let watched = self.cameras.get_mut(&camera)?;
        (watched.told, watched.said, watched.told_lack) = (Some((state, now)), None, lacks);
        let ends = state == ContractState::Infeasible && self.contract.on_infeasible == OnInfeasible::Stop;
        Some(Change { camera, state, reason, ends })
    }

    /// The accuracy of a frame. `None`: not known.
    fn verified(&self, delivery: &Delivery) -> Option<f64> {
        let rung = &delivery.record.frame.meta.rung;
        let by_profile = self.profile.as_ref().and_then(|known| known.profile.accuracy_of(rung));
        // Accuracy is agreement with the original, so the original has 1.
        by_profile.or_else(|| (*rung == Rung::original()).then_some(1.0))
    }

    /// Whether the camera's report about the joint contract also applies to this one.
    fn leads(&self, view: &CameraView) -> bool {
        let kept = view.demands.iter().zip(&view.negotiated);
        let kept = kept.filter(|(_, (verdict, _))| *verdict == Some(negotiation::ContractOutcome::Kept));
        let joint = Joint::together(kept.map(|(demand, _)| &demand.contract));
        // If the camera keeps no contract, it tries for all of the highest priority.
        let joint = joint.or_else(|| Joint::of(view.demands.iter().map(|demand| &demand.contract)));
        joint.is_some_and(|joint| {
            self.contract.accuracy_floor == Some(joint.accuracy_floor)
                && self.contract.latency_bound == joint.latency_bound
                && self.contract.profile == joint.profile
        })
    }

    fn surroundings(&self, now: Instant, view: &CameraView, watched: &Watched) -> Surroundings {
        let own = self.leads(view);
        let feasibility = &view.feasibility;
        // If no rung of the profile keeps the floor, no camera can.
        let best = self
            .profile
            .as_ref()
            .map(|known| known.profile.rungs().iter().map(|rung| rung.accuracy).fold(0.0, f64::max));
        let best = best.filter(|best| self.contract.accuracy_floor.is_some_and(|floor| *best < floor));
        let need = match (own, feasibility.floor_bytes, feasibility.best_accuracy) {
            _ if best.is_some() => best.map(Need::Best),
            (true, Some(bytes), _) => Some(Need::Bytes(bytes)),
            (true, None, Some(best)) => Some(Need::Best(best)),
            _ => None,
        };
        let live = view.source.as_ref().filter(|source| source.state == SourceState::Live);
        Surroundings {
            link_rate: feasibility.link_rate,
            need,
            interval: (view.frames_per_second > 0.0)
                .then(|| Duration::from_secs_f64(1.0 / view.frames_per_second.clamp(1e-3, 1e6))),
            one_in: watched.one_in,
            waited: watched.waited,
            one_way_delay: view.one_way_delay,
            is_away: !view.connected,
            source: view.source.as_ref().and_then(SourceStanding::sentence),
            live_for: live.and_then(|source| source.lasts(now)),
            interrupted: feasibility.interrupted,
            infeasible_since: self.given_up(view).or(view.infeasible_since.filter(|_| own)),
            shed: view.shed.clone(),
            drift: feasibility
                .drift
                .filter(|_| feasibility.profile == self.contract.profile && !watched.unmodified),
            unverified: self.why_unverified(own, view),
            conflict: self.conflict(view).unwrap_or_default(),
            way: self.way.known(),
        }
    }

    fn why_unverified(&self, own: bool, view: &CameraView) -> String {
        let Some(profile) = &self.profile else {
            return match self.contract.profile {
                None => "the contract has no profile, so the accuracy of frames is unknown; profile the application".into(),
                Some(_) => "the edge does not have the contract's profile".into(),
            };
        };
        let (width, height) = profile.size;
        if view.size != (0, 0) && view.size != profile.size {
            let (is_width, is_height) = view.size;
            return format!(
                "the profile was made with frames of {width}x{height}, but the camera's frames have {is_width}x{is_height}; profile this camera"
            );
        }
        match view.feasibility.profile_use {
            ProfileUse::Fetching if own => "the camera is fetching the profile".into(),
            ProfileUse::NoRung if own => "the camera can encode none of the profile's rungs".into(),
            ProfileUse::Unreadable if own => "the camera cannot read the profile; update the camera".into(),
            _ => String::new(),
        }
    }

    /// The outcome that the camera reports for this contract, and since when it holds.
    fn negotiated(&self, view: &CameraView) -> Option<(negotiation::ContractOutcome, Instant)> {
        let place = view.demands.iter().position(|demand| demand.subscription == self.id)?;
        let (verdict, since) = view.negotiated.get(place)?;
        verdict.map(|verdict| (verdict, *since))
    }

    /// Since when the camera has stopped trying to keep this contract.
    fn given_up(&self, view: &CameraView) -> Option<Instant> {
        self.negotiated(view)
            .filter(|(verdict, _)| *verdict != negotiation::ContractOutcome::Kept)
            .map(|(_, since)| since)
    }

    /// A sentence that names the contract that conflicts with this one.
    fn conflict(&self, view: &CameraView) -> Option<String> {
        let mine = &self.contract;
        match self.negotiated(view) {
            None => {}
            Some((negotiation::ContractOutcome::Infeasible, _)) => return None,
            Some((negotiation::ContractOutcome::Kept, _)) => return kept_beside(view, mine),
            Some((negotiation::ContractOutcome::Outvoted, _)) => {
                return Some("no rung keeps this contract together with the contracts that are kept".into());
            }
            Some((negotiation::ContractOutcome::Conflict { with }, _)) => {
                return view.demands.get(with).map(|other| stands_against(other, mine));
            }
        }
        let floor = |contract: &Contract| contract.accuracy_floor.unwrap_or(f64::INFINITY);
        let bound = |contract: &Contract| contract.latency_bound.unwrap_or(Duration::MAX);
        // A contract without a floor takes the rung of the others, and conflicts with none.
        let others = || {
            let others = view.demands.iter().filter(|other| other.subscription != self.id);
            others.filter(|other| other.contract.accuracy_floor.is_some())
        };
        if let Some(first) = others().find(|other| other.contract.priority > mine.priority)
            && (floor(&first.contract), bound(&first.contract)) != (floor(mine), bound(mine))
        {
            return Some(format!(
                "{} takes precedence, with priority {}",
                name(first),
                first.contract.priority
            ));
        }
        let peers = || others().filter(|other| other.contract.priority == mine.priority);
        let strict = peers()
            .filter(|other| floor(&other.contract) > floor(mine))
            .max_by(|a, b| floor(&a.contract).total_cmp(&floor(&b.contract)));
        if let Some(strict) = strict {
            return Some(format!("{} asks for the floor {}", name(strict), floor(&strict.contract)));
        }
        let hasty = peers().filter(|other| bound(&other.contract) < bound(mine));
        let hasty = hasty.min_by_key(|other| bound(&other.contract))?;
        Some(format!("{} asks for a latency bound of {} ms", name(hasty), bound(&hasty.contract).as_millis()))
    }
}

/// Names the contract that is kept together with this one and makes frames larger than this one needs. `None`: there is none.
fn kept_beside(view: &CameraView, mine: &Contract) -> Option<String> {
    let kept = view.demands.iter().zip(&view.negotiated);
    let kept = kept.filter(|(_, (verdict, _))| *verdict == Some(negotiation::ContractOutcome::Kept));
    let floors = kept.filter_map(|(other, _)| Some((other, other.contract.accuracy_floor?)));
    let (other, floor) = floors.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let is_finer = mine.accuracy_floor.is_some_and(|mine| mine < floor);
    is_finer.then(|| format!("frames are also encoded for {}, which asks for the floor {floor}", name(other)))
}

/// Says why no rung keeps both contracts.
fn stands_against(other: &NamedContract, mine: &Contract) -> String {
    let Contract { latency_bound, accuracy_floor, priority, .. } = &other.contract;
    let floor = accuracy_floor.map(|floor| format!("the floor {floor}"));
    let bound = latency_bound.map(|bound| format!("{} ms", bound.as_millis()));
    let asks: Vec<String> = floor.into_iter().chain(bound).collect();
    let first = if *priority > mine.priority { format!(" with priority {priority}") } else { String::new() };
    format!(
        "no rung keeps both this contract and {}, which asks for {}{first}",
        name(other),
        asks.join(" within ")
    )
}

/// The name of a subscription, for display.
fn name(demand: &NamedContract) -> String {
    match demand.application.as_str() {
        "" => format!("subscription {}", demand.subscription.0),
        application => format!("subscription {} ({application})", demand.subscription.0),
    }
}

impl Watched {
    /// How long a frame that is handed over now was in the log while the application was busy.
    fn waited_for_application(&self, now: Instant, delivery: &Delivery) -> Duration {
        let was_busy = self.waits_since.is_none() && self.last.is_some();
        let logged = delivery.record.trace.as_ref().filter(|_| was_busy).map(|trace| trace.logged);
        logged.map(|logged| now.saturating_since(logged)).unwrap_or_default()
    }

    /// Takes in frames that were skipped since the last frame. Frames that were sent and lost count as late.
    fn note_lost(&mut self, now: Instant, skipped: &SkipCounts) {
        let lost = [
            SkipReason::Stalled,
            SkipReason::LinkDown,
            SkipReason::LateOrLost,
            SkipReason::NotMade,
            SkipReason::Refused,
        ];
        let lost: u64 = lost.into_iter().map(|reason| skipped.of(reason)).sum();
        let infeasible = skipped.of(SkipReason::Infeasible);
        let Some(last) = self.last else { return };
        self.monitor.handle_passed(now, skipped.of(SkipReason::ApplicationBusy));
        // It is not known when each frame was due, so the frames are spread evenly over the time since the last one.
        let outcome =
            |on_time, infeasible, came| FrameOutcome { on_time, infeasible, expected_accuracy: None, came };
        let mut due: Vec<(Instant, FrameOutcome)> = Vec::new();
        for (count, outcome) in
            [(lost, outcome(false, false, false)), (infeasible, outcome(false, true, false))]
        {
            for place in count.saturating_sub(LOST_MAX)..count {
                let share = (place + 1) as f64 / (count + 1) as f64;
                let at = last + now.saturating_since(last).mul_f64(share);
                if now.saturating_since(at) < WINDOW {
                    due.push((at, outcome));
                }
            }
        }
        due.sort_by_key(|(at, _)| *at);
        for (at, outcome) in due {
            self.monitor.handle_frame(at, outcome);
        }
    }
}

#[cfg(test)]
mod tests;
