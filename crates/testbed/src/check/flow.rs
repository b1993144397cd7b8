//! Checks what has to happen in time: frames flow, demand arrives, and brokers tell the true state of links.
//!
//! Every 50 ms the world shows these rules what it sees, as plain values. `backlog` is checked with every frame that an application gets.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::FrameId;
use mez_core::source::SourceState;
use mez_core::units::Timestamp;
use mez_core::wire::CONTRACTS_MAX;

use super::Checks;
use super::path::{Path, RESUME_MAX, WINDOW_GROWS_FOR, WINDOW_OPENS_FOR, queue_time};
use crate::link::LinkSpec;
use crate::time::{Moment, ms, secs};

/// The longest silence of an idle link that has something to send.
const SEND_GAP_MAX: Duration = ms(250);
/// The longest time until an edge knows whether a camera's source gives frames, beside the time on the way.
const SOURCE_TOLD_MAX: Duration = ms(500);
/// The longest time until a camera knows of a change of demand, beside the time in queues.
const DEMAND_MAX: Duration = secs(1);
/// The most steps within one moment. With more, the world would never leave the moment.
const STEPS_MAX: u32 = 100_000;
/// How often a timer may be due again at the same moment, if there was something to do each time.
const SPINS_MAX: u32 = 2;

/// What subscriptions at an edge want of a camera, and what the camera knows of it.
pub(crate) struct DemandSeen {
    /// How many live subscriptions want it, and of how many it knows.
    pub(crate) wanted: usize,
    pub(crate) told: usize,
    /// When subscriptions of its edge last came or went.
    pub(crate) changed: Moment,
    /// The edge's wall clock, and when spans of subscriptions there end.
    pub(crate) wall: Timestamp,
    pub(crate) ends: Vec<Timestamp>,
}

impl DemandSeen {
    /// Whether somebody's span ends about now: whether it is still wanted is then a matter of a moment.
    fn an_end_is_near(&self) -> bool {
        self.ends.iter().any(|end| {
            let over = *end + secs(2);
            let apart = over.saturating_since(self.wall).max(self.wall.saturating_since(over));
            apart < DEMAND_MAX + ms(500)
        })
    }
}

/// What an edge says of a camera.
pub(crate) struct PresenceSeen {
    /// Whether the edge's host is not frozen.
    pub(crate) edge_runs: bool,
    /// Whether the edge says that the camera is connected.
    pub(crate) edge_says: bool,
    /// Whether the camera says that it is connected.
    pub(crate) is_up: bool,
}

/// Whether a camera's source gives frames.
pub(crate) struct SourceSeen {
    /// As the camera's broker knows it.
    pub(crate) is: SourceState,
    /// As the edge knows it.
    pub(crate) known: SourceState,
}

/// What a camera's process has to send.
pub(crate) struct SilenceSeen {
    pub(crate) run: u64,
    /// The newest frame, where it waits to be sent.
    pub(crate) waits: Option<FrameId>,
    /// Whether somebody wants it, no codec hangs, and nothing of a frame lies in the link.
    pub(crate) is_idle: bool,
    /// Whether frames are made smaller. What was chosen to be sent takes its time in the codec.
    pub(crate) is_adapted: bool,
}

/// What an application does, so far as frames of one camera depend on it.
pub(crate) struct ReaderSeen {
    /// Its place among the applications, for people.
    pub(crate) application: usize,
    pub(crate) subscription: Option<SubscriptionId>,
    /// Whether it takes live frames of the camera, without an end, and asks nothing of the past.
    pub(crate) is_live: bool,
    /// Whether the camera has said that no rung keeps the leading contracts, and their applications want nothing below them.
    pub(crate) is_silenced: bool,
    /// When the last frame of the camera came.
    pub(crate) last: Option<Moment>,
    /// Since when it takes frames, and when its reading was last busy with the past.
    pub(crate) ready_since: Moment,
    pub(crate) past_until: Moment,
    /// When the camera's share of a channel last held it back.
    pub(crate) held_back_until: Option<Moment>,
    /// Whether the camera's process runs and the edge has welcomed it.
    pub(crate) is_up: bool,
    /// How long it works on one frame of each camera.
    pub(crate) turns: Duration,
}

/// A frame that an application has just got.
pub(crate) struct GotSeen {
    pub(crate) application: usize,
    pub(crate) frame: FrameId,
    pub(crate) published: Moment,
    pub(crate) age: Duration,
    /// It wants every frame, or decodes chains, and so is as far behind as it is slow.
    pub(crate) takes_all: bool,
    /// Since when it takes frames, and when its reading was last busy with the past.
    pub(crate) ready_since: Moment,
    pub(crate) past_until: Moment,
    pub(crate) turns: Duration,
    /// Frames of the camera are made smaller for somebody.
    pub(crate) is_adapted: bool,
    /// When the camera was last told that the path of a connection was never full.
    pub(crate) opening_until: Option<Moment>,
    /// How long frames of its source's own video may wait for each other.
    pub(crate) behind: Duration,
    /// Until when the camera's codec decodes what its frames of video need.
    pub(crate) catching_up_until: Option<Moment>,
}

impl Checks {
    /// Checks that a camera knows what is wanted.
    pub(crate) fn watch_demand(&mut self, path: &Path, seen: &DemandSeen) {
        if !path.is_well || seen.an_end_is_near() {
            return;
        }
        let settled = path.recovered().max(seen.changed + DEMAND_MAX);
        if self.now < settled + path.queue_time() * 2 {
            return;
        }
        let DemandSeen { wanted, told, .. } = seen;
        self.expect(*wanted.min(&CONTRACTS_MAX) == *told, "demand", || {
            format!("{wanted} subscriptions want camera {}, which knows of {told}", path.camera)
        });
    }

    /// Checks that the edge calls a camera connected when it is, and not for long when it is not.
    pub(crate) fn watch_presence(&mut self, path: &Path, seen: &PresenceSeen) {
        let gone = path.is_cut && seen.edge_runs;
        // The limit is later than that of `resumes`, which says more of a camera that does not come back.
        if path.rivals || self.now < path.quiet_since() + RESUME_MAX + secs(1) + path.queue_time() * 2 {
            return;
        }
        let (well, says) = (path.is_well, seen.edge_says);
        let right = if gone { !says } else { !well || !path.is_brisk() || (says && seen.is_up) };
        self.expect(right, "state", || {
            format!(
                "the edge says of camera {} that it is connected: {says}; cut: {gone}, well: {well}",
                path.camera
            )
        });
    }

    /// Checks that the edge learns of a camera whose source gives no frames, and that it does again.
    pub(crate) fn watch_source(&mut self, path: &Path, seen: &SourceSeen) {
        let settled = self.now >= path.quiet_since() + RESUME_MAX + secs(1) + path.queue_time() * 2;
        if seen.is == seen.known || path.rivals || !settled || !path.is_well || !path.is_brisk() {
            self.source_differs_since.remove(&path.camera);
            return;
        }
        let now = self.now;
        let since = *self.source_differs_since.entry(path.camera).or_insert(now);
        let allowed =
            SOURCE_TOLD_MAX + path.queue_time() * 2 + path.link.round_trip_time() * 2 + path.bad_luck;
        self.expect(now.since(since) <= allowed, "source", || {
            let (camera, is, known) = (path.camera, seen.is.name(), seen.known.name());
            format!("the source of camera {camera} is {is} since {since}, and its edge takes it for {known}")
        });
    }

    /// Restarts the silence of a camera's process, which has sent something or has a reason not to.
    pub(crate) fn breaks_silence(&mut self, run: u64) {
        self.silent_since.remove(&run);
    }

    /// Checks that a link which could carry the newest frame does.
    pub(crate) fn watch_silence(&mut self, path: &Path, seen: &SilenceSeen) {
        let now = self.now;
        let settled = now >= path.recovered() + path.queue_time() * 2;
        let Some(newest) = seen.waits.filter(|_| path.is_well && settled && seen.is_idle) else {
            return self.breaks_silence(seen.run);
        };
        let since = *self.silent_since.entry(seen.run).or_insert(now);
        let making = if seen.is_adapted { path.making_time_max } else { ms(0) };
        self.expect(now.since(since) <= SEND_GAP_MAX + making, "silence", || {
            format!(
                "camera {} has {newest:?} to send and an idle link since {since}, and sends nothing",
                path.camera
            )
        });
    }

    /// Checks that the newest frame wins. The age of the frame that an application has just got is little more than the time to
    /// carry it, and the frame that was on its way when it was published.
    pub(crate) fn watch_age(&mut self, path: &Path, got: &GotSeen) {
        self.note_stale(path, got);
        let spec = LinkSpec { bits_per_second: path.link.bits_per_second, ..path.made };
        let (queue_time, service_time) = (queue_time(&spec), path.service_time());
        let settled = path.recovered() + path.window_time() + (queue_time + service_time) * 2;
        let exempt = got.takes_all
            || spec.lost_once_in > 0
            || path.rivals
            || got.catching_up_until.is_some_and(|until| got.published <= until)
            || got.published < settled.max(got.ready_since).max(got.past_until);
        let carried = service_time * 2 + queue_time + spec.delay_up;
        // If frames are encoded smaller, a frame waits for the codec until the next one is published, and is decoded at the edge.
        let making = match got.is_adapted {
            true => path.interval + path.jitter + path.making_time_max * 2,
            false => ms(0),
        };
        // On a path that was never full, a frame larger than any before waits for the window to open.
        let opens = got.opening_until.is_some_and(|until| got.published <= until);
        let opening = match got.is_adapted && opens {
            true => path.made.round_trip_time() * WINDOW_OPENS_FOR,
            false => ms(0),
        };
        let age_max = carried * 21 / 20 + got.turns + got.behind + making + opening + path.bad_luck + ms(30);
        let GotSeen { application, frame, age, .. } = got;
        self.expect(exempt || *age <= age_max, "backlog", || {
            let camera = path.camera;
            format!("application {application} got {frame} of camera {camera} {age:?} old; {age_max:?} were allowed")
        });
    }

    /// Checks that an application that is ready gets frames two seconds after the last fault.
    pub(crate) fn watch_resuming(&mut self, path: &Path, reader: &ReaderSeen, contract: &Contract) {
        let told = reader.subscription.and_then(|id| self.told_state(id, &path.name));
        // An application that wants nothing below its bounds, and was told that they cannot be kept, may get nothing.
        let withheld = reader.is_silenced
            || contract.on_infeasible != OnInfeasible::Degrade
                && matches!(
                    told,
                    Some(ContractState::Infeasible | ContractState::LatencyMiss | ContractState::Absent)
                );
        let live = reader.is_live && !withheld && path.publishing && path.is_well;
        let claimed = path.rivals && !reader.is_up;
        if !live || claimed {
            return;
        }
        let last = reader.last.unwrap_or(Moment::START);
        let held_back_until = match contract.on_infeasible {
            OnInfeasible::Degrade => None,
            _ => reader.held_back_until,
        };
        let since = path.quiet_since().max(path.useless);
        let since = since.max(reader.ready_since).max(reader.past_until).max(last);
        let since = since.max(held_back_until.unwrap_or(since));
        // One frame may be on its way when the next is published, and each camera has its turn at the application.
        let allowed = RESUME_MAX
            + path.interval * 2
            + path.link.round_trip_time() * WINDOW_GROWS_FOR
            + (path.service_time() + path.queue_time()) * 3
            + path.bad_luck
            + reader.turns;
        self.expect(self.now.since(since) <= allowed, "resumes", || {
            format!(
                "application {} got nothing of camera {} since {last}, though nothing has disturbed \
                 them since {since}; {allowed:?} were allowed; it was told {told:?}, and asks {contract:?}",
                reader.application, path.camera
            )
        });
    }

    /// Checks that a moment ends, given the number of steps within it. Returns whether it may go on.
    pub(crate) fn moment_goes_on(&mut self, steps: u32) -> bool {
        self.expect(steps <= STEPS_MAX, "progress", || "this moment does not end".into());
        self.violation.is_none()
    }

    /// Checks that a timer which has been served is not due again at the same moment, given how often it was.
    pub(crate) fn timer_spins(&mut self, spins: u32, of: impl FnOnce() -> String) {
        self.expect(spins <= SPINS_MAX, "progress", || {
            format!("the timer of {} is due at once again and again", of())
        });
    }

    /// A camera's broker says what its link is.
    pub(crate) fn says_link(&mut self, camera: usize, before: bool, up: bool) {
        self.expect(before != up, "state", || format!("camera {camera} said twice: link up {up}"));
    }

    /// What a camera's broker said of its link is what it thinks.
    pub(crate) fn thinks_of_link(&mut self, camera: usize, said: bool, thinks: bool) {
        self.expect(said == thinks, "state", || {
            format!("camera {camera} said that its link is up: {said}; but it thinks: {thinks}")
        });
    }
}
