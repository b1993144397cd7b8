//! Provides the parts of a scenario that real brokers can run: its links in real time, its cameras, and its subscriptions.

use std::time::Duration;

use mez_core::contract::Contract;

use super::run::rates;
use super::{Change, Happening, Scenario, ScenarioError, Sharing};
use crate::channel::timetable::Timetable;
use crate::world::CameraSpec;

enum Event {
    Rate(u64),
    Cut(bool),
}

/// The request of one subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// The name of the subscription.
    pub name: &'a str,
    /// The cameras, as a pattern.
    pub cameras: &'a str,
    /// The contract of the subscription.
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

    /// The channels declared to the edge, as `mez edge --channel` takes them.
    pub fn edge_channels(&self) -> impl Iterator<Item = String> {
        self.declared.as_slice().iter().map(ToString::to_string)
    }

    /// The rate of a camera's link each way. It is 0 while the link is cut.
    ///
    /// # Panics
    /// If there is no such camera.
    pub fn timetable(&self, camera: usize, seed: u64) -> Timetable {
        let with = self.shared_queue();
        let shares = |of: usize| of == camera || with.contains(&of) && with.contains(&camera);
        let first = self.cameras[camera].1.link.bits_per_second;
        let drawn =
            self.channels[camera].map_or_else(Vec::new, |kind| rates(kind, self.length, seed, camera));
        let mut events: Vec<(Duration, Event)> =
            drawn.into_iter().map(|(at, rate)| (at, Event::Rate(rate))).collect();
        events.extend(self.changes.iter().filter_map(|change| match change.what {
            Happening::Rate(of, rate) if shares(of) => Some((change.at, Event::Rate(rate))),
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

    /// The cameras that share one queue, by index. Empty if no cameras do.
    pub fn shared_queue(&self) -> &[usize] {
        match &self.shared {
            Some((Sharing::Queue, cameras)) => cameras,
            _ => &[],
        }
    }

    /// Checks that relays between real brokers can emulate the scenario. The error names the field that asks for more.
    ///
    /// # Errors
    /// Cameras share a radio medium, or a change does not concern links: hosts that stop or start, clocks that are stepped. Or only some of the
    /// cameras that share a queue are cut off.
    pub fn check_emulated(&self) -> Result<(), ScenarioError> {
        let wrong = |field: String, problem: &str| {
            Err(ScenarioError::Field {
                field,
                problem: format!("{problem}; or run it in virtual time: mez bench world"),
            })
        };
        let media =
            self.shared.as_ref().filter(|(sharing, cameras)| *sharing != Sharing::Queue && cameras.len() > 1);
        if let Some((_, cameras)) = media {
            let field = format!("camera[{}].link.shared", cameras[0]);
            return wrong(
                field,
                "a radio medium cannot be emulated; let cameras share a queue (shared = \"queue\"), or give each a link of its own",
            );
        }
        let of_links = |what: &Happening| {
            matches!(what, Happening::Rate(..) | Happening::Cut(_) | Happening::Restore(_))
        };
        if let Some(other) = self.changes.iter().find(|change| !of_links(&change.what)) {
            return wrong(
                format!("change[{}]", other.entry),
                "only changes of links can be emulated: megabits_per_second, or the fault cut or restore",
            );
        }
        let queue = self.shared_queue();
        let is_cut = |change: &&Change, of: usize| matches!(change.what, Happening::Cut(cut) | Happening::Restore(cut) if cut == of);
        let cuts = self.changes.iter().filter(|change| queue.iter().any(|of| is_cut(change, *of)));
        for cut in cuts {
            let together = self.changes.iter().filter(|change| change.entry == cut.entry);
            if !queue.iter().all(|of| together.clone().any(|change| is_cut(&change, *of))) {
                return wrong(
                    format!("change[{}].camera", cut.entry),
                    "a queue that cameras share is cut off for all of them; name them all",
                );
            }
        }
        Ok(())
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
        assert_eq!(scenario.check_emulated(), Ok(()));
    }

    /// A gradual change changes the rate by the same factor every half second. A repeated change is repeated until the end.
    #[test]
    fn a_link_changes_gradually_and_again_and_again() {
        let rates = |change: &str| {
            let text = format!(
                "name = \"x\"\nseconds = 8\n[link]\nmegabits_per_second = 16\n[[camera]]\nname = \"c\"\n\
                 [[change]]\ncamera = \"c\"\n{change}"
            );
            let timetable = text.parse::<Scenario>().expect("sound").timetable(0, 1);
            [0, 2, 4, 6, 8].map(|second| timetable.rate_at(second * 1_000_000_000) as f64 / 1e6)
        };
        let gradual = rates("at_s = 2\nover_s = 4\nmegabits_per_second = 1\n");
        assert_eq!(gradual.map(f64::round), [16.0, 16.0, 4.0, 1.0, 1.0]);
        let again = "at_s = 2\nevery_s = 4\nmegabits_per_second = 1\n[[change]]\ncamera = \"c\"\nat_s = 4\nevery_s = 4\nmegabits_per_second = 9\n";
        assert_eq!(rates(again), [16.0, 1.0, 9.0, 1.0, 9.0]);
    }

    /// A queue that cameras share is one link, whichever camera a change names.
    #[test]
    fn a_shared_queue_changes_for_all_of_them() {
        let scenario: Scenario = "name = \"x\"\nseconds = 9\nedge_channels = [\"hall=**\"]\n[link]\nmegabits_per_second = 8\nshared = \"queue\"\n\
            [[camera]]\nname = \"c\"\n[[camera]]\nname = \"d\"\n[[change]]\nat_s = 2\ncamera = \"c\"\nmegabits_per_second = 3\n"
            .parse()
            .expect("sound");
        assert_eq!(scenario.shared_queue(), [0, 1]);
        assert_eq!(scenario.timetable(0, 1), scenario.timetable(1, 1));
        assert_eq!(scenario.timetable(1, 1).rate_at(3_000_000_000), 3_000_000);
        assert_eq!(scenario.check_emulated(), Ok(()));
        assert_eq!(scenario.edge_channels().collect::<Vec<_>>(), ["hall=**"]);
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

    /// Changes that exist only in virtual time are refused: faults of hosts, radio media, and a queue from
    /// which only some cameras are cut off. The error names the field.
    #[test]
    fn what_relays_cannot_do_is_named_by_its_field() {
        let refused = |link: &str, change: &str| {
            let text = format!(
                "name = \"x\"\nseconds = 9\n[link]\nshared = \"{link}\"\n[[camera]]\nname = \"dock/a\"\n[[camera]]\nname = \"dock/b\"\n\
                 [[change]]\nat_s = 2\ncamera = \"dock/*\"\nmegabits_per_second = 3\n[[change]]\nat_s = 3\n{change}\n"
            );
            let scenario: Scenario = text.parse().expect("sound");
            scenario.check_emulated().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let all = "camera = \"**\"\nfault = \"cut\"";
        assert_eq!(refused("queue", all), "");
        for (link, change, says) in [
            (
                "wifi",
                all,
                "camera[0].link.shared: a radio medium cannot be emulated; let cameras share a queue",
            ),
            ("queue", "camera = \"dock/a\"\nfault = \"cut\"", "change[1].camera: a queue that cameras share"),
            ("queue", "fault = \"kill_edge\"", "change[1]: only changes of links can be emulated"),
            ("queue", "camera = \"**\"\nstep_wall_clock_s = 5", "change[1]: only changes of links"),
        ] {
            let told = refused(link, change);
            assert!(
                told.starts_with(says) && told.ends_with("mez bench world"),
                "{told:?} does not begin with {says:?}"
            );
        }
    }
}
