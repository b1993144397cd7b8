//! Keeps a group's place on the edge's disk, for the next start of the edge.

use std::collections::VecDeque;

use mez_core::group::{Change, Place};

use crate::check::WRITTEN_AFTER;
use crate::random::Random;
use crate::time::Moment;

/// After this many changes, a journal is replaced by a shorter one.
const CHANGES_MAX: usize = 200;

/// A group's journal. A kill leaves all of it. A power cut leaves what was synced and some of the rest.
#[derive(Default)]
pub(super) struct Journal {
    synced: Vec<Change>,
    newer: VecDeque<(Moment, Change)>,
    /// Whether anything was ever written.
    pub(super) exists: bool,
    /// Whether the power was cut since the last reading.
    pub(super) cut: bool,
}

impl Journal {
    /// Writes a change, which is synced a little later.
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

    /// Loses some or all of what was not synced.
    pub(super) fn cut_power(&mut self, now: Moment, random: &mut Random) {
        self.cut = true;
        let sure = self.newer.iter().take_while(|(at, _)| *at + WRITTEN_AFTER <= now).count();
        let kept = random.within(sure as u64..=self.newer.len() as u64) as usize;
        self.newer.truncate(kept);
    }

    /// Loses the end of the journal, even what was synced.
    pub(super) fn lose_end(&mut self) {
        self.newer.clear();
        self.synced.truncate(self.synced.len() / 2);
    }

    /// The place that the journal describes.
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
