//! Models an edge host: the edge broker and its driver.
//!
//! [`EdgeHost`] owns both. The world lends it the [`Stage`]. The host returns what concerns links and applications.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts and stops the process |
//! | `outputs.rs` | carries out the broker's outputs |
//! | `link.rs` | passes what arrives over cameras' links to the broker |
//! | `door.rs` | limits connections that are not authenticated |
//! | `logs.rs` | keeps replica logs on disk |
//! | `answers.rs` | takes answers, and sends them to cameras |
//! | `derived.rs` | accepts records of derived streams |
//! | `begun.rs` | remembers the epochs of derived streams |
//! | `lent.rs` | counts the memory held for stalled applications |
//! | `decoder.rs`, `decoding.rs` | makes stills of frames of chains |
//! | `rights.rs` | holds the rights in force |
//! | `lists.rs` | holds the deny list, and applies it |
//! | `reset.rs` | starts from a state that no broker wrote, and resets cameras |

mod answers;
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
    /// The host's index among the edges.
    pub(super) index: usize,
    pub(super) spec: EdgeSpec,
    pub(super) clock: HostClock,
    pub(super) timer: Timer,
    /// When subscriptions last began or ended.
    pub(super) subscriptions_changed: Moment,
    /// While the host is frozen: what has arrived, and on which link.
    frozen: Option<VecDeque<(usize, LinkOutput)>>,
    pub(super) process: Option<EdgeProcess>,
    /// The logs on disk.
    pub(super) kept: BTreeMap<CameraName, KeptLog>,
    /// What the edge remembers of derived streams. It outlives the process.
    derived: DerivedStates,
    /// Epochs beyond all bounds that were planted in the edge's state.
    poisoned: BTreeMap<CameraName, Epoch>,
    /// The present rights. They outlive the process.
    pub(super) rights: RightsInForce,
    /// The certificate that the edge presents to cameras.
    pub(super) certificate: Certificate,
    /// The deny list. It outlives the process.
    pub(super) lists: HeldList,
    /// The list that the operator has put into the key folder and the edge has not read.
    written: Option<SignedList>,
}

pub(in crate::world) struct EdgeProcess {
    pub(super) run: u64,
    pub(super) broker: EdgeBroker,
    anchor: ClockAnchor,
    /// For each connection, its link and its message buffer.
    connections: BTreeMap<LinkId, (usize, MessageBuffer)>,
    /// The certificate presented on each connection.
    shown: BTreeMap<LinkId, Certificate>,
    /// The version of the deny list that the broker was last told of.
    list_told: u64,
    pub(super) logs: BTreeMap<CameraName, LogReader>,
    /// Memory that is held for stalled applications.
    pub(super) lent: Lent,
    /// How many frames of each log the broker has reported.
    pub(super) appended: BTreeMap<CameraName, u64>,
    /// For each reset camera, how many last frames of the removed log the broker has still to report.
    pub(super) entered_last: BTreeMap<CameraName, usize>,
    /// The connection of each camera's newest start, as the broker reported.
    pub(super) holders: BTreeMap<CameraName, LinkId>,
    stills: BTreeMap<CameraName, Stills>,
    pub(super) door: Door,
}

impl EdgeProcess {
    /// Whether a connection is accepted.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Closes a connection from the edge's side.
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

    /// Calls `f` with the process, if it runs, and the monotonic clock. The broker may then have outputs.
    pub(super) fn with_process<R>(
        &mut self,
        stage: &mut Stage<'_>,
        f: impl FnOnce(&mut EdgeProcess, Instant) -> R,
    ) -> Option<R> {
        stage.touch(Node::Edge(self.index));
        let now = self.clock.monotonic(stage.now);
        self.process.as_mut().map(|process| f(process, now))
    }

    /// Steps the wall clock forwards by this many seconds, or backwards.
    pub(super) fn step_wall(&mut self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000_000_000);
    }

    /// Subscriptions have begun or ended, or a fault makes them do so.
    pub(super) fn disturb(&mut self, now: Moment) {
        self.subscriptions_changed = now;
    }

    // ---- freezing -----------------------------------------------------------------------------------------

    /// Freezes the processes: what arrives for them waits.
    pub(super) fn freeze(&mut self) {
        self.frozen.get_or_insert_default();
    }

    /// Continues the processes. Returns what has arrived meanwhile, and on which link.
    pub(super) fn thaw(&mut self) -> VecDeque<(usize, LinkOutput)> {
        self.frozen.take().unwrap_or_default()
    }

    pub(super) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Keeps what has arrived over a link, if the host is frozen. Otherwise returns it.
    pub(super) fn keep(&mut self, link: usize, output: LinkOutput) -> Option<LinkOutput> {
        match &mut self.frozen {
            Some(waiting) => {
                waiting.push_back((link, output));
                None
            }
            None => Some(output),
        }
    }

    // ---- stalled applications -----------------------------------------------------------------------------

    /// Lets an application take the beginning of a frame of the first camera that it reads, and then stall.
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

    /// Ends a stall: the application takes the rest of the frame, or has gone.
    pub(super) fn let_go(&mut self, application: usize) {
        if let Some(process) = &mut self.process {
            process.lent.let_go(application);
        }
    }

    // ---- starting and stopping ----------------------------------------------------------------------------

    /// When the timer of the broker or of the door is due.
    pub(super) fn due(&self) -> Moment {
        let process = self.process.as_ref();
        let due = process
            .and_then(|process| process.broker.poll_timeout().into_iter().chain(process.door.due()).min());
        due.map_or(Moment::NEVER, |due| self.clock.moment_of(due))
    }

    /// The timer of the broker or of the door is due.
    pub(super) fn handle_timeout(&mut self, stage: &mut Stage<'_>) {
        self.with_process(stage, |process, now| {
            process.broker.handle_timeout(now);
            process.door.handle_timeout(now);
        });
    }

    /// Starts a process, with the logs and the state on disk.
    pub(super) fn start(&mut self, run: u64, stage: &mut Stage<'_>) {
        self.make_process(run, stage);
        self.take_up_poison(stage);
        self.take_up_list(stage);
        self.with_process(stage, |process, now| process.broker.handle_started(now));
        self.take_up_logs(run, stage);
    }

    /// Ends the process, if it runs. The logs on disk stay. Returns whether the process ran.
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

    // ---- for the rules ------------------------------------------------------------------------------------

    /// What the door holds, if the process runs.
    pub(super) fn door_holds(&self) -> Option<DoorHolds> {
        self.process.as_ref().map(|process| process.door.holds())
    }
}
