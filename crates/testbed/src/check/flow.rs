//! Checks what must happen in time: frames flow, demand arrives, and brokers report the true state of links.
//!
//! Every 50 ms the world shows these rules its state, as plain values. `backlog` is checked with every frame that an application gets.

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

/// The longest silence of an idle link with a frame to send.
const SEND_GAP_MAX: Duration = ms(250);
/// The longest time until an edge knows whether a camera's source gives frames, in addition to transmission times.
const SOURCE_TOLD_MAX: Duration = ms(500);
/// The longest time until a camera knows of a change of demand, in addition to the time in queues.
const DEMAND_MAX: Duration = secs(1);
/// The most steps within one moment. With more, the world might never leave the moment.
const STEPS_MAX: u32 = 100_000;
/// How often a timer may be due again at the same moment, if each time there was something to do.
const SPINS_MAX: u32 = 2;

/// What subscriptions at an edge want of a camera, and what the camera knows of this demand.
pub(crate) struct DemandSeen {
    /// How many live subscriptions want the camera, and how many of them it knows.
    pub(crate) wanted: usize,
    pub(crate) told: usize,
    /// When subscriptions of the camera's edge last began or ended.
    pub(crate) changed: Moment,
    /// The edge's wall clock, and when the spans of its subscriptions end.
    pub(crate) wall: Timestamp,
    pub(crate) ends: Vec<Timestamp>,
}

impl DemandSeen {
    /// Whether a span ends about now, so that the demand may change at any moment.
    fn an_end_is_near(&self) -> bool {
        self.ends.iter().any(|end| {
            let over = *end + secs(2);
            let apart = over.saturating_since(self.wall).max(self.wall.saturating_since(over));
            apart < DEMAND_MAX + ms(500)
        })
    }
}

/// What an edge says about a camera's connection.
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
    /// The state that the camera's broker knows.
    pub(crate) is: SourceState,
    /// The state that the edge knows.
    pub(crate) known: SourceState,
}

/// Whether a camera's process has a frame to send.
pub(crate) struct SilenceSeen {
    pub(crate) run: u64,
    /// The newest frame, if it waits to be sent.
    pub(crate) waits: Option<FrameId>,
    /// Whether frames are wanted, no codec hangs, and no frame has bytes in the link.
    pub(crate) is_idle: bool,
    /// Whether frames are encoded at smaller sizes, which takes time.
    pub(crate) is_adapted: bool,
}

/// The state of an application, as far as its frames of one camera depend on it.
pub(crate) struct ReaderSeen {
    /// The application's index, for messages.
    pub(crate) application: usize,
    pub(crate) subscription: Option<SubscriptionId>,
    /// Whether the application takes live frames of the camera, without an end, and asks nothing of the past.
    pub(crate) is_live: bool,
    /// Whether the camera has reported that no rung keeps the leading contracts, and these want no frames below their bounds.
    pub(crate) is_silenced: bool,
    /// When the last frame of the camera came.
    pub(crate) last: Option<Moment>,
    /// Since when the application takes frames, and when its reading was last busy with the past.
    pub(crate) ready_since: Moment,
    pub(crate) past_until: Moment,
    /// When the camera's share of a channel last held frames back.
    pub(crate) held_back_until: Option<Moment>,
    /// Whether the camera's process runs and the edge has welcomed it.
    pub(crate) is_up: bool,
    /// How long the application works on one frame of each camera.
    pub(crate) turns: Duration,
}

/// A frame that an application has just got.
pub(crate) struct GotSeen {
    pub(crate) application: usize,
    pub(crate) frame: FrameId,
    pub(crate) published: Moment,
    pub(crate) age: Duration,
    /// Whether the application wants every frame, or decodes chains, and so lags behind if it is slow.
    pub(crate) takes_all: bool,
    /// Since when the application takes frames, and when its reading was last busy with the past.
    pub(crate) ready_since: Moment,
    pub(crate) past_until: Moment,
    pub(crate) turns: Duration,
    /// Whether frames of the camera are encoded at smaller sizes.
    pub(crate) is_adapted: bool,
    /// When the camera was last told that the path of a connection was never full.
    pub(crate) opening_until: Option<Moment>,
    /// How long frames of the source's own video may wait for each other.
    pub(crate) behind: Duration,
    /// Until when the camera's decoder works on the frames that a video frame needs.
    pub(crate) catching_up_until: Option<Moment>,
}

impl Checks {
    /// Checks that a camera knows the demand.
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

    /// Checks that the edge reports a camera as connected when it is, and soon reports when it is not.
    pub(crate) fn watch_presence(&mut self, path: &Path, seen: &PresenceSeen) {
        let gone = path.is_cut && seen.edge_runs;
        // The limit is later than that of `resumes`, which says more about a camera that does not come back.
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

    /// Checks that the edge learns when a camera's source stops giving frames, and when it gives frames again.
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

    /// Ends the silence of a camera's process, which has sent something or has a reason not to.
    pub(crate) fn breaks_silence(&mut self, run: u64) {
        self.silent_since.remove(&run);
    }

    /// Checks that a link that could carry the newest frame does.
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

    /// Checks that the newest frame wins: a frame that an application gets is little older than the time to
    /// carry it and the frame in flight when it was published.
    pub(crate) fn watch_age(&mut self, path: &Path, got: &GotSeen) {
        self.note_stale(path, got);
        let spec = LinkSpec { bits_per_second: path.link.bits_per_second, ..path.made };
        let (queue_time, service_time) = (queue_time(&spec), path.service_time());
        let settled = path.recovered() + path.window_time() + (queue_time + service_time) * 2;
        let exempt = got.takes_all
            || spec.lost_once_in > 0
            || path.rivals
            // The codec then waits for a frame that is not refused.
            || got.is_adapted && path.useless >= got.published
            || got.catching_up_until.is_some_and(|until| got.published <= until)
            || got.published < settled.max(got.ready_since).max(got.past_until);
        let carried = service_time * 2 + queue_time + spec.delay_up;
        // A frame to encode waits for the codec until the next frame is published, and is decoded at the edge.
        let making = match got.is_adapted {
            true => path.interval + path.jitter + path.making_time_max * 2,
            false => ms(0),
        };
        // On a path that was never full, a frame that is larger than all before waits for the window to open.
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

    /// Checks that a ready application gets frames two seconds after the last fault.
    pub(crate) fn watch_resuming(&mut self, path: &Path, reader: &ReaderSeen, contract: &Contract) {
        let told = reader.subscription.and_then(|id| self.told_state(id, &path.name));
        // An application that wants no frames below its bounds, and was told that the bounds cannot be kept, may get nothing.
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
        // One frame may be in flight when the next is published, and each camera has its turn at the application.
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

    /// Checks that a moment ends, given the number of steps within it. Returns whether the moment may continue.
    pub(crate) fn moment_goes_on(&mut self, steps: u32) -> bool {
        self.expect(steps <= STEPS_MAX, "progress", || "this moment does not end".into());
        self.violation.is_none()
    }

    /// Checks that a handled timer is not due again at the same moment, given how often it was in a row.
    pub(crate) fn timer_spins(&mut self, spins: u32, of: impl FnOnce() -> String) {
        self.expect(spins <= SPINS_MAX, "progress", || {
            format!("the timer of {} is due at once again and again", of())
        });
    }

    /// Checks that a camera's broker reports only changes of its link's state.
    pub(crate) fn says_link(&mut self, camera: usize, before: bool, up: bool) {
        self.expect(before != up, "state", || format!("camera {camera} said twice: link up {up}"));
    }

    /// Checks that the last link state that a camera's broker reported is its present one.
    pub(crate) fn thinks_of_link(&mut self, camera: usize, said: bool, thinks: bool) {
        self.expect(said == thinks, "state", || {
            format!("camera {camera} said that its link is up: {said}; but it thinks: {thinks}")
        });
    }
}
