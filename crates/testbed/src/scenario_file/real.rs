//! What of a scenario holds beyond the world: its links in real time, its cameras, and what is wanted of them.

use std::time::Duration;

use mez_core::contract::Contract;

use super::run::rates;
use super::{Happening, Scenario};
use crate::channel::timetable::Timetable;
use crate::world::CameraSpec;

enum Event {
    Rate(u64),
    Cut(bool),
}

/// What one subscription asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a str,
    /// A pattern.
    pub cameras: &'a str,
    /// What it asks of them.
    pub contract: &'a Contract,
}

impl Scenario {
    /// The cameras, in the file's order.
    pub fn cameras(&self) -> impl Iterator<Item = (&str, &CameraSpec)> {
        self.cameras.iter().map(|(name, spec)| (name.as_str(), spec))
    }

    /// The subscriptions, in the file's order.
    pub fn wanted(&self) -> impl Iterator<Item = Wanted<'_>> {
        self.subscriptions.iter().map(|(name, spec)| Wanted {
            name,
            cameras: &spec.cameras,
            contract: &spec.contract,
        })
    }

    /// What the link of a camera carries each way; 0 while it is cut.
    ///
    /// # Panics
    /// There is no such camera.
    pub fn timetable(&self, camera: usize, seed: u64) -> Timetable {
        let first = self.cameras[camera].1.link.bits_per_second;
        let drawn =
            self.channels[camera].map_or_else(Vec::new, |kind| rates(kind, self.length, seed, camera));
        let mut events: Vec<(Duration, Event)> =
            drawn.into_iter().map(|(at, rate)| (at, Event::Rate(rate))).collect();
        events.extend(self.changes.iter().filter_map(|change| match change.what {
            Happening::Rate(of, rate) if of == camera => Some((change.at, Event::Rate(rate))),
            Happening::Cut(of) if of == camera => Some((change.at, Event::Cut(true))),
            Happening::Restore(of) if of == camera => Some((change.at, Event::Cut(false))),
            _ => None,
        }));
        events.sort_by_key(|(at, _)| *at);
        let (mut rate, mut is_cut) = (first, false);
        let steps = events.into_iter().map(|(at, event)| {
            match event {
                Event::Rate(to) => rate = to,
                Event::Cut(to) => is_cut = to,
            }
            (at, if is_cut { 0 } else { rate })
        });
        Timetable::new(first, steps)
    }

    /// Whether cameras share a link, which relays of their own cannot emulate.
    pub fn has_shared_links(&self) -> bool {
        self.shared.as_ref().is_some_and(|(_, cameras)| cameras.len() > 1)
    }

    /// Whether something happens that is not of the links: hosts that stop or start, clocks that are set.
    pub fn has_faults_of_hosts(&self) -> bool {
        let of_links = |what: &Happening| {
            matches!(what, Happening::Rate(..) | Happening::Cut(_) | Happening::Restore(_))
        };
        !self.changes.iter().all(|change| of_links(&change.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_real_time_changes_when_the_file_says() {
        let scenario: Scenario = "name = \"x\"\nseconds = 9\n[link]\nmegabits_per_second = 8\n[[camera]]\nname = \"c\"\n\
            [[change]]\nat_s = 4\ncamera = \"c\"\nfault = \"cut\"\n[[change]]\nat_s = 2\ncamera = \"c\"\nmegabits_per_second = 3\n\
            [[change]]\nat_s = 5\ncamera = \"c\"\nfault = \"restore\"\n"
            .parse()
            .expect("sound");
        let timetable = scenario.timetable(0, 1);
        let rates = [0, 1, 2, 3, 4, 5, 8].map(|second| timetable.rate_at(second * 1_000_000_000) / 1_000_000);
        assert_eq!(rates, [8, 8, 3, 3, 0, 3, 3]);
        assert!(!scenario.has_faults_of_hosts());
    }

    #[test]
    fn a_drawn_link_is_the_same_as_in_the_world() {
        let scenario: Scenario =
            "name = \"x\"\nseconds = 9\n[[camera]]\nname = \"c\"\nlink = { channel = \"step_60_12\" }\n"
                .parse()
                .expect("sound");
        assert_eq!(scenario.timetable(0, 3), scenario.timetable(0, 3));
        assert_ne!(scenario.timetable(0, 3), scenario.timetable(0, 4));
    }
}
