//! Holds what the world lends to its parts. A part owns its state. It changes the rest of the world
//! only through the stage, and through what it returns.

use std::collections::BTreeMap;

use mez_core::profile::{ProfileHash, SizedProfile};

use super::bug::Bug;
use super::events::EventQueue;
use super::node::{Node, Touched};
use crate::check::Checks;
use crate::disk::DiskBug;
use crate::random::Random;
use crate::time::Moment;
use crate::trace::Trace;

/// The present moment, and what all parts may read and report to.
pub(super) struct Stage<'a> {
    pub(super) now: Moment,
    /// The planted bug.
    pub(super) bug: Option<Bug>,
    /// Whether codecs occasionally fail and hang.
    pub(super) codecs_fail: bool,
    /// Profiles that contracts may name.
    pub(super) profiles: &'a BTreeMap<ProfileHash, SizedProfile>,
    /// The planted bug of the writers and readers of logs on disks.
    pub(super) disk_bug: Option<DiskBug>,
    /// The world's random numbers.
    pub(super) random: &'a mut Random,
    /// Future events.
    pub(super) events: &'a mut EventQueue,
    /// Nodes with outputs to process at this moment.
    pub(super) touched: &'a mut Touched,
    pub(super) checks: &'a mut Checks,
    pub(super) trace: &'a mut Trace,
}

impl Stage<'_> {
    /// Marks a node: its outputs are processed at this moment.
    pub(super) fn touch(&mut self, node: Node) {
        self.touched.touch(node);
    }
}

/// The stage. It borrows only those fields of the world that hold no part, so that a part can be borrowed beside it.
macro_rules! stage {
    ($world:expr) => {
        $crate::world::stage::Stage {
            now: $world.now,
            bug: $world.bug,
            codecs_fail: $world.codecs_fail,
            profiles: &$world.profiles,
            disk_bug: $world.disk_bug,
            random: &mut $world.random,
            events: &mut $world.events,
            touched: &mut $world.touched,
            checks: &mut $world.checks,
            trace: &mut $world.trace,
        }
    };
}
pub(super) use stage;
