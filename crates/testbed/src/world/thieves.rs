//! Tracks which hosts have stolen a camera's identity, their connections, and how long the camera may be without its name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mez_core::broker::LinkId;

use super::camera::CameraHost;
use crate::check::RIVAL_MAX;
use crate::time::{Moment, secs};

/// How late a refusal that was already on its way may arrive.
const REFUSED_LATE_MAX: Duration = secs(1);

#[derive(Default)]
pub(super) struct Thieves {
    /// The robbed camera of each thief.
    victims: BTreeMap<usize, usize>,
    /// Connections that thieves made.
    connections: BTreeSet<LinkId>,
    /// Until when nothing is promised for a camera, because a thief of its identity may have left unnoticed.
    robbed_until: BTreeMap<usize, Moment>,
}

impl Thieves {
    /// Adds a host that has stolen a camera's identity.
    pub(super) fn add(&mut self, thief: usize, victim: usize) {
        debug_assert!(!self.is_thief(victim), "a thief has no identity to steal");
        self.victims.insert(thief, victim);
    }

    pub(super) fn is_thief(&self, camera: usize) -> bool {
        self.victims.contains_key(&camera)
    }

    /// The thieves of a camera's identity.
    pub(super) fn of(&self, camera: usize) -> impl Iterator<Item = usize> {
        self.victims.iter().filter(move |(_, victim)| **victim == camera).map(|(thief, _)| *thief)
    }

    /// Whether a thief made a connection.
    pub(super) fn made(&self, connection: LinkId) -> bool {
        self.connections.contains(&connection)
    }

    /// Until when nothing is promised for a camera.
    pub(super) fn robbed_until(&self, camera: usize) -> Moment {
        self.robbed_until.get(&camera).copied().unwrap_or(Moment::START)
    }

    /// Whether an edge may refuse a camera now. After all its thieves are gone, there is no reason left to refuse a camera. `robbed`: a thief may
    /// hold the camera's name at this moment.
    pub(super) fn may_be_refused(&self, host: &CameraHost, robbed: bool, now: Moment) -> bool {
        let own = host.counter_lost.is_some_and(|lost| now <= lost + RIVAL_MAX);
        self.of(host.index).next().is_none()
            || own
            || robbed
            || now <= host.disturbed.max(self.robbed_until(host.index)) + REFUSED_LATE_MAX
    }

    /// A host has made a connection.
    pub(super) fn handle_dialled(&mut self, camera: usize, connection: LinkId) {
        if self.is_thief(camera) {
            self.connections.insert(connection);
        }
    }

    /// A thief has gone. Its camera may be without its name until this moment.
    pub(super) fn handle_left(&mut self, thief: usize, until: Moment) {
        if let Some(victim) = self.victims.get(&thief) {
            self.robbed_until.insert(*victim, until);
        }
    }
}
