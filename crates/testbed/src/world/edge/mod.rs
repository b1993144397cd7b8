//! Models an edge host: the edge broker and its driver.
//!
//! [`EdgeHost`] owns all of it. The world lends it the [`Stage`]. The host returns what concerns links and applications.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts a process |
//! | `outputs.rs` | carries out the broker's outputs |
//! | `link.rs` | tells the broker what comes over cameras' links |
//! | `logs.rs` | keeps replica logs on disk |

mod link;
mod logs;
mod outputs;

use std::collections::{BTreeMap, VecDeque};

use mez_core::broker::LinkId;
use mez_core::broker::edge::{EdgeBroker, EdgeConfig};
use mez_core::frame::Epoch;
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::MessageBuffer;

pub(super) use self::link::Opened;
pub(super) use self::outputs::{Effect, Readers};
use super::chain::Decoders;
use super::door::Door;
use super::lent::Lent;
use super::stage::Stage;
use super::storage::KeptLog;
use super::{EdgeSpec, Timer};
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
    pub(super) frozen: Option<VecDeque<(usize, LinkOutput)>>,
    pub(super) process: Option<EdgeProcess>,
    /// Its logs on disk.
    pub(super) kept: BTreeMap<CameraName, KeptLog>,
    /// Epochs that are planted in its state, beyond all bounds.
    pub(super) poisoned: BTreeMap<CameraName, Epoch>,
}

pub(in crate::world) struct EdgeProcess {
    pub(super) run: u64,
    pub(super) broker: EdgeBroker,
    anchor: ClockAnchor,
    /// Each with the link that it is on.
    connections: BTreeMap<LinkId, (usize, MessageBuffer)>,
    pub(super) logs: BTreeMap<CameraName, LogReader>,
    /// What it holds for applications that stand still.
    pub(super) lent: Lent,
    /// How many frames each log has been given.
    pub(super) appended: BTreeMap<CameraName, u64>,
    /// The connection of each camera's newest start, as the broker said.
    pub(super) holders: BTreeMap<CameraName, LinkId>,
    pub(super) decoders: Decoders,
    pub(super) door: Door,
}

impl EdgeProcess {
    /// Whether a connection has been taken in.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Closes a connection from this side.
    pub(super) fn close(&mut self, now: Instant, connection: LinkId) {
        self.connections.remove(&connection);
        self.broker.handle_closed(now, connection);
    }

    /// The broker's wall clock: an anchor and the monotonic clock, as for capture times.
    pub(super) fn wall(&self, now: Instant) -> Timestamp {
        self.anchor.wall_at(now)
    }
}

impl EdgeHost {
    /// A host whose process does not run yet.
    pub(super) const fn new(index: usize, spec: EdgeSpec, clock: HostClock, now: Moment) -> Self {
        Self {
            index,
            spec,
            clock,
            timer: Timer::new(),
            subscriptions_changed: now,
            frozen: None,
            process: None,
            kept: BTreeMap::new(),
            poisoned: BTreeMap::new(),
        }
    }

    /// When the broker's timer is due, or the door's.
    pub(super) fn due(&self) -> Moment {
        let process = self.process.as_ref();
        let due = process
            .and_then(|process| process.broker.poll_timeout().into_iter().chain(process.door.due()).min());
        due.map_or(Moment::NEVER, |due| self.clock.moment_of(due))
    }

    /// Starts a process, which knows nothing yet.
    pub(super) fn start(&mut self, run: u64, stage: &Stage<'_>) {
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
            logs: BTreeMap::new(),
            lent: Lent::new(),
            appended: BTreeMap::new(),
            holders: BTreeMap::new(),
            decoders: Decoders::new(),
            door: Door::new(stage.bug),
        });
    }
}
