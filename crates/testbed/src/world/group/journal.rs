//! Keeps what a group has to find again after a start of its edge, on the edge's disk.

use std::collections::VecDeque;

use mez_core::group::{Change, Place};

use crate::check::WRITTEN_AFTER;
use crate::random::Random;
use crate::time::Moment;

/// After so many changes a journal is replaced by a shorter one.
const CHANGES_MAX: usize = 200;

/// A group's journal. A killed process leaves all of it, a power cut what was synced and some of the rest.
#[derive(Default)]
pub(super) struct Journal {
    synced: Vec<Change>,
    newer: VecDeque<(Moment, Change)>,
    /// Whether anything was ever written.
    pub(super) exists: bool,
    /// Whether the power was cut since it was read last.
    pub(super) cut: bool,
}

impl Journal {
    /// Writes a change down. It is synced a little later.
    pub(super) fn write(&mut self, now: Moment, change: Change) {
        self.exists = true;
        while self.newer.front().is_some_and(|(at, _)| *at + WRITTEN_AFTER <= now) {
            self.synced.extend(self.newer.pop_front().map(|(_, change)| change));
        }
        if self.synced.len() > CHANGES_MAX {
            self.synced = place_of(self.synced.iter()).changes();
        }
        self.newer.push_back((now, change));
    }

    /// Loses what was not synced, or some of it.
    pub(super) fn cut_power(&mut self, now: Moment, random: &mut Random) {
        self.cut = true;
        let sure = self.newer.iter().take_while(|(at, _)| *at + WRITTEN_AFTER <= now).count();
        let kept = random.within(sure as u64..=self.newer.len() as u64) as usize;
        self.newer.truncate(kept);
    }

    /// Loses its end, whatever was promised.
    pub(super) fn lose_end(&mut self) {
        self.newer.clear();
        self.synced.truncate(self.synced.len() / 2);
    }

    /// What it says.
    pub(super) fn read(&mut self) -> Place {
        self.synced.extend(self.newer.drain(..).map(|(_, change)| change));
        place_of(self.synced.iter())
    }
}

fn place_of<'a>(changes: impl Iterator<Item = &'a Change>) -> Place {
    let mut place = Place::new();
    changes.for_each(|change| place.apply(change));
    place
}
