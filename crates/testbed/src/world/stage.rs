//! What the world lends to its parts: a part owns its state, and changes nothing of the world but through this and what it returns.

use std::collections::BTreeMap;

use mez_core::profile::{ProfileHash, SizedProfile};

use super::Bug;
use super::events::EventQueue;
use crate::check::Checks;
use crate::time::Moment;
use crate::trace::Trace;

/// The moment, and what all parts see and tell.
pub(super) struct Stage<'a> {
    pub(super) now: Moment,
    /// What goes wrong on purpose.
    pub(super) bug: Option<Bug>,
    /// Codecs fail and hang now and then.
    pub(super) codecs_fail: bool,
    /// Profiles that contracts may name.
    pub(super) profiles: &'a BTreeMap<ProfileHash, SizedProfile>,
    /// What will happen.
    pub(super) events: &'a mut EventQueue,
    pub(super) checks: &'a mut Checks,
    pub(super) trace: &'a mut Trace,
}
