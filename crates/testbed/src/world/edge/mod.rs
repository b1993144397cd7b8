//! Models an edge host: the edge broker and its driver.
//!
//! [`EdgeHost`] owns all of it. The world lends it the [`Stage`]. The host returns what concerns links and applications.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts a process |
//! | `outputs.rs` | carries out the broker's outputs |
//! | `link.rs` | tells the broker what comes over cameras' links |
//! | `door.rs` | decides who may wait without having proved who it is |
//! | `logs.rs` | keeps replica logs on disk |
//! | `derived.rs` | takes in derived streams |
//! | `begun.rs` | remembers how often each of them began |
//! | `lent.rs` | accounts for what is held for applications that stand still |
//! | `decoder.rs`, `decoding.rs` | makes stills of frames of chains |
//! | `rights.rs` | knows who may do what |
//! | `lists.rs` | knows who was revoked |
//! | `reset.rs` | takes up a state that no broker wrote, and resets cameras |

mod begun;
mod decoder;
mod decoding;
mod derived;
mod door;
mod lent;
mod link;
mod lists;
mod logs;
mod outputs;
mod reset;
mod rights;

use std::collections::{BTreeMap, VecDeque};

use mez_core::broker::LinkId;
use mez_core::broker::edge::{EdgeBroker, EdgeConfig};
use mez_core::frame::Epoch;
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::revocation::Certificate;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::MessageBuffer;

use self::begun::DerivedStates;
pub(super) use self::decoder::DiskStills;
use self::decoder::Stills;
use self::door::Door;
use self::lent::Lent;
pub(super) use self::link::Opened;
pub(super) use self::outputs::{Effect, Readers};
pub(super) use self::rights::RightsInForce;
use super::node::{Node, Timer};
use super::site::{HeldList, SignedList};
use super::spec::EdgeSpec;
use super::stage::Stage;
use super::storage::KeptLog;
use crate::check::DoorHolds;
use crate::link::LinkOutput;
use crate::time::{HostClock, Moment};

pub(super) struct EdgeHost {
    /// Its place among the edges.
    pub(super) index: usize,
    pub(super) spec: EdgeSpec,
    pub(super) clock: HostClock,
    pub(super) timer: Timer,
    /// When subscriptions last came or went.
    pub(super) subscriptions_changed: Moment,
    /// What arrived and was not looked at, while the host is frozen, and on which link.
    frozen: Option<VecDeque<(usize, LinkOutput)>>,
    pub(super) process: Option<EdgeProcess>,
    /// Its logs on disk.
    pub(super) kept: BTreeMap<CameraName, KeptLog>,
    /// What it remembers of derived streams. A start finds the same.
    derived: DerivedStates,
    /// Epochs that are planted in its state, beyond all bounds.
    poisoned: BTreeMap<CameraName, Epoch>,
    /// Who may do what, now. A start reads it anew, and finds the same.
    pub(super) rights: RightsInForce,
    /// What it shows to cameras.
    pub(super) certificate: Certificate,
    /// Who was revoked, as far as it knows. A start finds the same.
    pub(super) lists: HeldList,
    /// The list that the operator has put into its folder of keys, until it is looked at.
    written: Option<SignedList>,
}

pub(in crate::world) struct EdgeProcess {
    pub(super) run: u64,
    pub(super) broker: EdgeBroker,
    anchor: ClockAnchor,
    /// Each with the link that it is on.
    connections: BTreeMap<LinkId, (usize, MessageBuffer)>,
    /// What was shown on each.
    shown: BTreeMap<LinkId, Certificate>,
    /// The version of the deny list that the broker was told of last.
    list_told: u64,
    pub(super) logs: BTreeMap<CameraName, LogReader>,
    /// What it holds for applications that stand still.
    pub(super) lent: Lent,
    /// How many frames each log has been given.
    pub(super) appended: BTreeMap<CameraName, u64>,
    /// How many frames entered logs of cameras that were reset at the end, and are still to be told of.
    pub(super) entered_last: BTreeMap<CameraName, usize>,
    /// The connection of each camera's newest start, as the broker said.
    pub(super) holders: BTreeMap<CameraName, LinkId>,
    stills: BTreeMap<CameraName, Stills>,
    pub(super) door: Door,
}

impl EdgeProcess {
    /// Whether a connection has been taken in.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Closes a connection from this side.
    pub(super) fn close(&mut self, now: Instant, connection: LinkId) {
        self.forget(connection);
        self.broker.handle_closed(now, connection);
    }

    /// Forgets a connection. Returns its link.
    fn forget(&mut self, connection: LinkId) -> Option<usize> {
        self.shown.remove(&connection);
        self.connections.remove(&connection).map(|(link, _)| link)
    }

    /// The broker's wall clock: an anchor and the monotonic clock, as for capture times.
    pub(super) fn wall(&self, now: Instant) -> Timestamp {
        self.anchor.wall_at(now)
    }
}

impl EdgeHost {
    /// A host whose process does not run yet.
    pub(super) fn new(
        index: usize,
        spec: EdgeSpec,
        clock: HostClock,
        certificate: Certificate,
        now: Moment,
    ) -> Self {
        let rights = RightsInForce::new(spec.rights.clone());
        Self {
            index,
            spec,
            clock,
            timer: Timer::new(),
            subscriptions_changed: now,
            frozen: None,
            process: None,
            kept: BTreeMap::new(),
            derived: DerivedStates::default(),
            poisoned: BTreeMap::new(),
            rights,
            certificate,
            lists: HeldList::none(),
            written: None,
        }
    }

    /// Does something with the process if it runs, at the time of its own clock. The broker may then have something to say.
    pub(super) fn with_process<R>(
        &mut self,
        stage: &mut Stage<'_>,
        f: impl FnOnce(&mut EdgeProcess, Instant) -> R,
    ) -> Option<R> {
        stage.touch(Node::Edge(self.index));
        let now = self.clock.monotonic(stage.now);
        self.process.as_mut().map(|process| f(process, now))
    }

    /// Its wall clock is set forwards by this many seconds, or backwards.
    pub(super) fn step_wall(&mut self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000_000_000);
    }

    /// Subscriptions have come or gone, or a fault makes them do so.
    pub(super) fn disturb(&mut self, now: Moment) {
        self.subscriptions_changed = now;
    }

    // ---- a host that stands still -------------------------------------------------------------------------

    /// Its processes stand still: what comes for them waits.
    pub(super) fn freeze(&mut self) {
        self.frozen.get_or_insert_default();
    }

    /// They continue. Returns what has come meanwhile, and on which link.
    pub(super) fn thaw(&mut self) -> VecDeque<(usize, LinkOutput)> {
        self.frozen.take().unwrap_or_default()
    }

    pub(super) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Keeps what has come over a link, if the host is frozen. Otherwise it is given back.
    pub(super) fn keep(&mut self, link: usize, output: LinkOutput) -> Option<LinkOutput> {
        match &mut self.frozen {
            Some(waiting) => {
                waiting.push_back((link, output));
                None
            }
            None => Some(output),
        }
    }

    // ---- applications that stand still --------------------------------------------------------------------

    /// Lets an application take the beginning of a frame of the first camera that it reads, and then stand still.
    pub(super) fn stand_still(
        &mut self,
        application: usize,
        reads: impl Fn(&CameraName) -> bool,
        stage: &Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        if let Some((_, log)) = process.logs.iter().find(|(camera, _)| reads(camera)) {
            process.lent.stand_still(self.clock.monotonic(stage.now), application, log, stage.bug);
        }
    }

    /// Ends that: the application takes the rest, or has gone.
    pub(super) fn let_go(&mut self, application: usize) {
        if let Some(process) = &mut self.process {
            process.lent.let_go(application);
        }
    }

    // ---- starting and stopping ----------------------------------------------------------------------------

    /// When the broker's timer is due, or the door's.
    pub(super) fn due(&self) -> Moment {
        let process = self.process.as_ref();
        let due = process
            .and_then(|process| process.broker.poll_timeout().into_iter().chain(process.door.due()).min());
        due.map_or(Moment::NEVER, |due| self.clock.moment_of(due))
    }

    /// The broker's timer is due, or the door's.
    pub(super) fn handle_timeout(&mut self, stage: &mut Stage<'_>) {
        self.with_process(stage, |process, now| {
            process.broker.handle_timeout(now);
            process.door.handle_timeout(now);
        });
    }

    /// Starts a process, with what its disk and its state give back.
    pub(super) fn start(&mut self, run: u64, stage: &mut Stage<'_>) {
        self.make_process(run, stage);
        self.take_up_poison(stage);
        self.take_up_list(stage);
        self.with_process(stage, |process, now| process.broker.handle_started(now));
        self.take_up_logs(run, stage);
    }

    /// Ends the process, if it runs. Its logs stay on disk. Returns whether it ran.
    pub(super) fn stop(&mut self, stage: &mut Stage<'_>) -> bool {
        if self.process.take().is_none() {
            return false;
        }
        self.frozen = None;
        for kept in self.kept.values_mut() {
            stage.checks.disk_left(kept.end());
        }
        true
    }

    fn make_process(&mut self, run: u64, stage: &Stage<'_>) {
        let config = EdgeConfig {
            log_bytes_max: self.spec.log_bytes_max,
            cameras_max: self.spec.cameras_max,
            frame_bytes_max: self.spec.frame_bytes_max,
            channels: self.spec.channels.clone(),
            software: "world".into(),
            ..EdgeConfig::default()
        };
        self.process = Some(EdgeProcess {
            run,
            broker: EdgeBroker::new(config),
            anchor: self.clock.anchor(stage.now),
            connections: BTreeMap::new(),
            shown: BTreeMap::new(),
            list_told: 0,
            logs: BTreeMap::new(),
            lent: Lent::new(),
            appended: BTreeMap::new(),
            entered_last: BTreeMap::new(),
            holders: BTreeMap::new(),
            stills: BTreeMap::new(),
            door: Door::new(stage.bug),
        });
    }

    // ---- what rules are shown -----------------------------------------------------------------------------

    /// What waits at the door, if the process runs.
    pub(super) fn door_holds(&self) -> Option<DoorHolds> {
        self.process.as_ref().map(|process| process.door.holds())
    }
}
