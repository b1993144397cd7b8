//! Rules about what has to happen in time, looked at every 50 ms; see the table of [`crate::check`].

use std::time::Duration;

use mez_core::contract::{ContractState, OnInfeasible};
use mez_core::subscription::Deliver;

use super::camera::CameraProcess;
use super::{CameraSpec, Node, World};
use crate::link::{LinkSpec, Side};
use crate::time::{Moment, ms, secs};

/// How often the rules are looked at.
pub(super) const WATCH_INTERVAL: Duration = ms(50);
/// I12: after faults stop, delivery resumes within this. A frame that its publisher stamped wrongly, so that the camera's log refused it, is a fault.
pub(super) const RESUME_MAX: Duration = secs(2);
/// An idle link with something to send is silent for no longer than this.
const SILENCE_MAX: Duration = ms(250);
/// So many round trips until a frame of a hundred packets may be on its way over a new connection, which begins with ten.
const WINDOW_OPENS_FOR: u32 = 3;
/// What may be on its way grows for so many round trips and frames, until it is what the link carries.
const WINDOW_GROWS_FOR: u32 = 10;
const WINDOW_GROWS_WITH: u32 = 4;
/// A change of what is wanted is known at the camera within this, besides the time in queues.
const DEMAND_MAX: Duration = secs(1);
/// What a refused camera may wait before it tries again.
const REFUSED_MAX: Duration = secs(6);
/// What is left of a process that is gone without a word is gone after this: the edge gives the connection up, and
/// the refused camera tries again.
pub(super) const RIVAL_MAX: Duration = secs(16);
/// Dials that one process may have under way, and connections that it may have open.
const DIALS_MAX: usize = 8;
/// Connections of one process that may be open at the camera.
const CONNECTIONS_MAX: usize = 8;
/// Connections of one link that may be open at the edge, also of processes that are gone without a word.
const EDGE_CONNECTIONS_MAX: usize = 48;

impl World {
    pub(super) fn watch(&mut self) {
        for camera in 0..self.cameras.len() {
            self.watch_memory(camera);
            self.watch_demand(camera);
            self.watch_silence(camera);
            self.watch_presence(camera);
            for application in 0..self.applications.len() {
                self.watch_resuming(application, camera);
                self.watch_contract(application, camera);
            }
        }
        for index in 0..self.edges.len() {
            self.watch_door(index);
            let edge = &self.edges[index];
            let Some(process) = &edge.process else { continue };
            let cameras = process.broker.cameras(edge.clock.monotonic(self.now));
            let excess = process.lent.excess();
            self.checks.expect(excess.is_none(), "memory", || {
                let (bytes, bytes_max) = excess.unwrap_or_default();
                format!(
                    "{bytes} bytes that a log of edge {index} let go of are held for readers, of {bytes_max}"
                )
            });
            let bytes: u64 = cameras.iter().map(|camera| camera.log_bytes).sum();
            self.checks.expect(bytes <= edge.spec.log_bytes_max, "memory", || {
                format!("the replica logs of edge {index} hold {bytes} of {} bytes", edge.spec.log_bytes_max)
            });
        }
    }

    /// How long a camera's link may take beside what its rate says: where stations contend for a medium, some have bad luck.
    fn bad_luck(&self, camera: usize) -> Duration {
        let medium = self.links[self.cameras[camera].link].medium;
        medium.map_or(Duration::ZERO, |(medium, _)| self.media[medium].bad_luck())
    }

    /// Whether a camera that works is never silent for so long that the edge takes it for gone: where what is lost waits in a full queue
    /// again, both sides may well be.
    pub(super) fn is_brisk(&self, camera: usize) -> bool {
        let spec = self.links[self.cameras[camera].link].link.spec();
        queue_time(&spec) * 2 + spec.round_trip_time() * 2 + self.bad_luck(camera) < ms(400)
    }

    /// Whether everything on a camera's path works; the camera itself may not publish.
    fn is_well(&self, camera: usize) -> bool {
        if self.is_frozen(Node::Camera(camera))
            || self.is_frozen(Node::Edge(self.cameras[camera].spec.edge.0))
        {
            return false;
        }
        let camera = &self.cameras[camera];
        camera.process.is_some()
            && self.edges[camera.spec.edge.0].process.is_some()
            && !self.links[camera.link].link.is_cut()
    }

    /// When a camera's path has last been touched by anything that it may have to recover from.
    pub(super) fn quiet_since(&self, camera: usize) -> Moment {
        let robbed = if self.is_robbed(camera) { self.now } else { self.cameras[camera].robbed_until };
        let camera = &self.cameras[camera];
        let refused = camera.refused.map_or(Moment::START, |refused| refused + REFUSED_MAX);
        let rivals = if camera.rivals { camera.disturbed + RIVAL_MAX } else { Moment::START };
        camera.disturbed.max(refused).max(rivals).max(robbed)
    }

    /// How many live subscriptions want a camera.
    fn wanted(&self, camera: usize) -> usize {
        let camera = &self.cameras[camera];
        let edge = &self.edges[camera.spec.edge.0];
        let Some(process) = &edge.process else { return 0 };
        let wall = process.wall(edge.clock.monotonic(self.now));
        self.applications
            .iter()
            .filter(|application| {
                application.reads(camera.spec.edge.0, &camera.name)
                    && application.reading.as_ref().is_some_and(|(_, reading)| reading.span().is_live(wall))
            })
            .count()
    }

    /// Whether somebody's span ends about now: whether it is still wanted is then a matter of a moment.
    fn an_end_is_near(&self, edge: usize) -> bool {
        let host = &self.edges[edge];
        let Some(process) = &host.process else { return true };
        let wall = process.wall(host.clock.monotonic(self.now));
        self.applications.iter().filter(|application| application.spec.edge.0 == edge).any(|application| {
            application.reading.as_ref().and_then(|(_, reading)| reading.span().end).is_some_and(|end| {
                let over = end + secs(2);
                let apart = over.saturating_since(wall).max(wall.saturating_since(over));
                apart < DEMAND_MAX + ms(500)
            })
        })
    }

    fn watch_memory(&mut self, index: usize) {
        let camera = &self.cameras[index];
        let link = &self.links[camera.link].link;
        let (dials, edge_connections) = (link.dials(), link.open_connections(Side::Edge));
        if let Some(process) = &camera.process {
            let (bytes, connections) = (process.intake.log_bytes(), process.connections());
            self.checks.expect(bytes <= camera.spec.log_bytes_max, "memory", || {
                format!("the log of camera {index} holds {bytes} of {} bytes", camera.spec.log_bytes_max)
            });
            self.checks.expect(connections <= CONNECTIONS_MAX, "memory", || {
                format!("camera {index} has {connections} connections open")
            });
        }
        let processes = self.cameras.iter().filter(|other| other.link == self.cameras[index].link).count();
        self.checks.expect(dials <= DIALS_MAX * processes, "memory", || format!("{dials} dials on one link"));
        self.checks.expect(edge_connections <= EDGE_CONNECTIONS_MAX, "memory", || {
            format!("{edge_connections} connections of camera {index} are open at the edge")
        });
    }

    fn watch_demand(&mut self, index: usize) {
        let camera = &self.cameras[index];
        let edge = camera.spec.edge.0;
        if !self.is_well(index) || self.an_end_is_near(edge) {
            return;
        }
        let settled = self.quiet_since(index) + RESUME_MAX + self.bad_luck(index);
        let settled = settled.max(self.edges[edge].subscriptions_changed + DEMAND_MAX);
        if self.now < settled + queue_time(&self.links[camera.link].link.spec()) * 2 {
            return;
        }
        let Some(process) = &camera.process else { return };
        if !process.broker.is_up() {
            return;
        }
        let (wanted, told) =
            (self.wanted(index), process.broker.demand().map_or(0, |demand| demand.contracts.len()));
        self.checks.expect(wanted.min(mez_core::wire::CONTRACTS_MAX) == told, "demand", || {
            format!("{wanted} subscriptions want camera {index}, which knows of {told}")
        });
    }

    /// The edge says of a camera that it is connected when it is, and not for long when it is not.
    fn watch_presence(&mut self, index: usize) {
        let (well, since) = (self.is_well(index), self.quiet_since(index));
        let camera = &self.cameras[index];
        let edge = &self.edges[camera.spec.edge.0];
        let (Some(process), Some(at_edge)) = (&camera.process, &edge.process) else { return };
        let gone = self.links[camera.link].link.is_cut() && edge.frozen.is_none();
        let known = at_edge.broker.cameras(edge.clock.monotonic(self.now));
        let says =
            known.iter().find(|known| known.camera == camera.name).is_some_and(|known| known.connected);
        let spec = self.links[camera.link].link.spec();
        // Later than `resumes`, which says more of a camera that does not come back.
        if camera.rivals || self.now < since + RESUME_MAX + secs(1) + queue_time(&spec) * 2 {
            return;
        }
        let brisk = self.is_brisk(index);
        let right = if gone { !says } else { !well || !brisk || (says && process.broker.is_up()) };
        self.checks.expect(right, "state", || {
            format!("the edge says of camera {index} that it is connected: {says}; cut: {gone}, well: {well}")
        });
    }

    /// A link that could carry the newest frame has to.
    fn watch_silence(&mut self, index: usize) {
        let well = self.is_well(index);
        let quiet_since = self.quiet_since(index) + RESUME_MAX + self.bad_luck(index);
        let camera = &mut self.cameras[index];
        let local = camera.clock.monotonic(self.now);
        let link = &self.links[camera.link].link;
        let Some(process) = &mut camera.process else { return };
        if process.holds_back(local) {
            // It may have left this one out for good.
            (process.held_back, process.held_back_until) = (process.told, self.now);
        }
        let waits = process.has_to_send() && process.told > process.held_back;
        let idle = well
            && self.now >= quiet_since + queue_time(&link.spec()) * 2
            && process.broker.demand().is_some_and(|demand| !demand.contracts.is_empty())
            && !process.is_silenced()
            && self.now >= process.stuck_until
            && waits
            && link.is_idle(Side::Camera)
            && link.is_idle(Side::Edge)
            && process.open_connections().all(|connection| link.unsent_frames(connection) == 0);
        if !idle {
            process.idle_since = None;
            return;
        }
        let since = *process.idle_since.get_or_insert(self.now);
        let newest = process.told;
        self.checks.expect(self.now.since(since) <= SILENCE_MAX, "silence", || {
            format!("camera {index} has {newest:?} to send and an idle link since {since}, and sends nothing")
        });
    }

    /// Newest wins: the frame that an application just got is hardly older than it takes to carry the one that was on
    /// its way when it was published, and itself.
    pub(super) fn watch_age(&mut self, application: usize) {
        let reader = &self.applications[application];
        let Some((got, _)) = reader.deliveries.last() else { return };
        let Some(camera) = self.cameras.iter().position(|camera| camera.name == got.camera) else { return };
        let host = &self.cameras[camera];
        let rate = self.links[host.link].link.spec().bits_per_second;
        let spec = LinkSpec { bits_per_second: rate, ..host.spec.link };
        let settled = self.quiet_since(camera)
            + RESUME_MAX
            + window_time(&host.spec)
            + self.bad_luck(camera)
            + (queue_time(&spec) + self.service_time(camera)) * 2;
        // Who decodes chains gets all of them, and is as far behind as it is slow.
        let exempt = reader.spec.deliver == Deliver::Every
            || reader.spec.chains
            || spec.lost_once_in > 0
            || host.rivals
            || got.published < settled.max(reader.ready_since).max(reader.past_until);
        let turns = reader.spec.consumes * (self.cameras.len() as u32 + 1);
        let carried = self.service_time(camera) * 2 + queue_time(&spec) + spec.delay_up;
        // Where frames are made smaller, one waits for its turn at the codec until the next is published, and is decoded at the edge.
        let adapted = self
            .applications
            .iter()
            .any(|other| other.spec.contract.accuracy_floor.is_some() && other.pattern.matches(&host.name));
        let making_time_max = host.spec.footage.making_time_max() * host.spec.codec_slowness;
        let making =
            if adapted { host.spec.interval + host.spec.jitter + making_time_max * 2 } else { ms(0) };
        // On a path that was never full, one that is larger than any before waits for the window to open.
        let opens = host.process.as_ref().and_then(|process| process.opening_until);
        let opening = match adapted && opens.is_some_and(|until| got.published <= until) {
            true => host.spec.link.round_trip_time() * WINDOW_OPENS_FOR,
            false => ms(0),
        };
        let age_max = carried * 21 / 20 + turns + making + opening + self.bad_luck(camera) + ms(30);
        let (frame, age) = (got.frame, got.age());
        self.checks.expect(exempt || age <= age_max, "backlog", || {
            format!("application {application} got {frame} of camera {camera} {age:?} old; {age_max:?} were allowed")
        });
    }

    /// Who is told that all is well gets frames in time; after faults, while it is ready and its camera publishes.
    pub(super) fn watch_contract(&mut self, application: usize, camera: usize) {
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        // Of several cameras, another one may have been told of last.
        let only = self.cameras.iter().filter(|other| reader.pattern.matches(&other.name)).count() == 1;
        let watched = only
            && reader.reads(host.spec.edge.0, &host.name)
            && !reader.stalled
            && !self.is_frozen(Node::Edge(host.spec.edge.0))
            && host.publishing
            && host.process.is_some()
            && host.spec.interval < ms(500);
        let Some((id, _)) = reader.reading.as_ref().filter(|_| watched) else { return };
        self.checks.watch_contract(*id, &host.name, reader.ready_since + reader.spec.consumes * 2);
    }

    /// How long the largest frame of a camera takes on its link as it is now, with what else crosses.
    pub(super) fn service_time(&self, camera: usize) -> Duration {
        let host = &self.cameras[camera];
        let spec = self.links[host.link].link.spec();
        time_for(&spec, u64::from(*host.spec.frame_bytes.end()) * 21 / 20 + 2_000)
    }

    /// Whether an application may get nothing of a camera: it wants nothing below its bounds, and was told that they do not hold there; or those
    /// who go first want nothing below theirs, and the camera has said that nothing would keep them.
    fn is_withheld(&self, application: usize, camera: usize) -> bool {
        let reader = &self.applications[application];
        let name = &self.cameras[camera].name;
        let told = reader.reading.as_ref().and_then(|(id, _)| self.checks.told_state(*id, name));
        let own = reader.spec.contract.on_infeasible != OnInfeasible::Degrade
            && matches!(told, Some(ContractState::Infeasible | ContractState::LatencyMiss));
        own || self.cameras[camera].process.as_ref().is_some_and(CameraProcess::is_silenced)
    }

    fn watch_resuming(&mut self, application: usize, camera: usize) {
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        let live = reader.reads(host.spec.edge.0, &host.name)
            && reader.spec.end_after_ms.is_none()
            && reader.asked.is_empty()
            && !self.is_withheld(application, camera)
            && !reader.stalled
            && host.publishing
            && self.is_well(camera);
        let claimed = host.rivals && host.process.as_ref().is_none_or(|process| !process.broker.is_up());
        if !live || claimed {
            return;
        }
        let last = reader.deliveries.last_at(&host.name).unwrap_or(Moment::START);
        let held_back_until = match reader.spec.contract.on_infeasible {
            OnInfeasible::Degrade => None,
            _ => host.process.as_ref().map(|process| process.held_back_until),
        };
        let since = self.quiet_since(camera).max(host.misstamped);
        let since = since.max(reader.ready_since).max(reader.past_until).max(last);
        let since = since.max(held_back_until.unwrap_or(since));
        // One frame may be on its way when the next is published, and each camera has its turn at the application.
        let spec = self.links[host.link].link.spec();
        let service = self.service_time(camera);
        let told = reader.reading.as_ref().and_then(|(id, _)| self.checks.told_state(*id, &host.name));
        let turns = reader.spec.consumes * (self.cameras.len() as u32 + 1);
        let allowed = RESUME_MAX
            + host.spec.interval * 2
            + spec.round_trip_time() * WINDOW_GROWS_FOR
            + (service + queue_time(&spec)) * 3
            + self.bad_luck(camera)
            + turns;
        self.checks.expect(self.now.since(since) <= allowed, "resumes", || {
            format!(
                "application {application} got nothing of camera {camera} since {last}, though nothing has disturbed \
                 them since {since}; {allowed:?} were allowed; it was told {told:?}, and asks {:?}",
                reader.spec.contract
            )
        });
    }
}

/// How long it takes until as much may be on a camera's new connection as its link carries.
fn window_time(spec: &CameraSpec) -> Duration {
    spec.link.round_trip_time() * WINDOW_GROWS_FOR + spec.interval * WINDOW_GROWS_WITH
}

/// How long a full queue takes to drain.
pub(super) fn queue_time(spec: &LinkSpec) -> Duration {
    time_for(spec, spec.queue_bytes_max)
}

fn time_for(spec: &LinkSpec, bytes: u64) -> Duration {
    Duration::from_nanos(bytes * 8 * 1_000_000_000 / spec.bits_per_second.max(1))
}
