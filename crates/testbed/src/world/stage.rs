//! Holds what the world lends to its parts. A part owns its state. It changes the rest of the world only through the stage, and through
//! what it returns.

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

/// The moment, and what all parts see and tell.
pub(super) struct Stage<'a> {
    pub(super) now: Moment,
    /// What goes wrong on purpose.
    pub(super) bug: Option<Bug>,
    /// Whether codecs fail and hang now and then.
    pub(super) codecs_fail: bool,
    /// Profiles that contracts may name.
    pub(super) profiles: &'a BTreeMap<ProfileHash, SizedProfile>,
    /// Bugs of whoever writes and reads logs on disks.
    pub(super) disk_bug: Option<DiskBug>,
    /// The world's own source of chance.
    pub(super) random: &'a mut Random,
    /// What will happen.
    pub(super) events: &'a mut EventQueue,
    /// What is to be looked at within this moment.
    pub(super) touched: &'a mut Touched,
    pub(super) checks: &'a mut Checks,
    pub(super) trace: &'a mut Trace,
}

impl Stage<'_> {
    /// Something happened to a node: what it wants done is carried out within this moment.
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
