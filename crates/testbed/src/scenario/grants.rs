//! Draws the rights in a world, and how they change.

use std::ops::RangeInclusive;
use std::time::Duration;

use mez_core::rights::{Grant, Grantee, Rights, Stance, Verb};
use mez_core::subscription::Deliver;

use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{Action, ApplicationId, ApplicationSpec, Ask, EdgeId, Resumes, World};

/// The verbs that applications of worlds use.
const VERBS: [Verb; 5] = [Verb::Watch, Verb::Read, Verb::Originals, Verb::Reply, Verb::Observe];
/// The camera patterns of grants.
const CAMERAS: [&str; 6] = ["**", "**", "dock/*", "dock/cam1", "*/cam1", "yard/**"];

/// The rights at the beginning: the drawn ones. Otherwise everything is allowed: each application has
/// grants for everything, or, with `open`, needs none.
pub(super) fn rights(drawn: Option<&Grants>, open: bool, applications: u64) -> Rights {
    match drawn {
        Some(granted) => granted.rights(),
        None if open => Rights::open(),
        None => everything(applications),
    }
}

/// Rights with grants for everything for each application.
fn everything(applications: u64) -> Rights {
    Rights::new(Stance::Deny, (0..applications as usize).flat_map(|place| all_of("**", &only(place))))
}

/// The drawn grants of a world's applications.
pub(super) struct Grants {
    random: Random,
    /// The grants of each application, and at the end the common grants.
    given: Vec<Vec<Grant>>,
}

impl Grants {
    /// Draws grants with their own random numbers, so that nothing else of a seed changes.
    pub(super) fn draw(seed: u64, applications: u64) -> Self {
        let mut random = Random::seeded(seed ^ 0x6772_616e_7473_2121);
        let mut given: Vec<Vec<Grant>> =
            (0..applications as usize).map(|place| some(&mut random, &only(place))).collect();
        let common = "app/reader/*".parse().expect("it is somebody");
        let shared = if random.one_in(4) { some(&mut random, &common) } else { Vec::new() };
        given.push(shared);
        Self { random, given }
    }

    fn rights(&self) -> Rights {
        Rights::new(Stance::Deny, self.given.iter().flatten().cloned())
    }

    /// Lets some applications claim that they begin now and resume. They must not get the past in this way.
    pub(super) fn claimant(&mut self, spec: ApplicationSpec) -> ApplicationSpec {
        if !self.random.one_in(6) || spec.originals {
            return spec;
        }
        let (begin_before, resumes) = (Some(Duration::ZERO), Resumes::Behind);
        ApplicationSpec { begin_before, end_after_ms: None, resumes, deliver: Deliver::Every, ..spec }
    }

    /// Plans changes of rights, and applications that list cameras.
    pub(super) fn plan(
        mut self,
        world: &mut World,
        edge: EdgeId,
        applications: &[ApplicationId],
        (restless, length): (RangeInclusive<Duration>, Duration),
    ) {
        for _ in 0..self.random.within(0..=6) {
            let at = Moment::START + self.random.duration(restless.clone());
            let back = at + self.random.duration(ms(1)..=secs(3));
            for (at, rights) in self.change(at, back) {
                let rights = world.rights(rights);
                world.at(at, Action::Rights(edge, rights));
            }
        }
        for _ in 0..self.random.within(2..=12) {
            let at = Moment::START + self.random.duration(*restless.start()..=length);
            let application = *self.random.pick(applications);
            world.asks_at(at, application, Ask::List);
        }
    }

    /// Draws a change at a moment, and perhaps another one that reverts it later.
    fn change(&mut self, at: Moment, back: Moment) -> Vec<(Moment, Rights)> {
        let before = self.rights();
        let place = self.random.within(0..=self.given.len() as u64 - 2) as usize;
        match self.random.within(0..=7) {
            0..=2 => self.given[place] = some(&mut self.random, &only(place)),
            // The application's grants are revoked.
            3 => self.given[place].clear(),
            4 => self.given[place] = all_of("**", &only(place)),
            // No application of this world is concerned.
            5 => {
                let stranger = "app/stranger".parse().expect("it is somebody");
                let more = before.grants().cloned().chain(all_of("**", &stranger));
                return vec![(at, Rights::new(Stance::Deny, more)), (back, before)];
            }
            6 => return vec![(at, Rights::default()), (back, before)],
            _ => return vec![(at, Rights::open()), (back, before)],
        }
        vec![(at, self.rights())]
    }
}

/// The grantee that is only this application.
pub(super) fn only(place: usize) -> Grantee {
    ApplicationId::nth(place).who().to_string().parse().expect("it is somebody")
}

/// Grants of all verbs for some cameras.
pub(super) fn all_of(cameras: &str, grantee: &Grantee) -> Vec<Grant> {
    let grant = |verb: &Verb| Grant {
        grantee: grantee.clone(),
        verb: *verb,
        cameras: cameras.parse().expect("it is a pattern"),
    };
    VERBS.iter().map(grant).collect()
}

/// Draws grants: none, all, or some for some cameras.
fn some(random: &mut Random, grantee: &Grantee) -> Vec<Grant> {
    match random.within(0..=9) {
        0 => Vec::new(),
        1..=3 => all_of("**", grantee),
        4 => {
            let cameras: &str = random.pick::<&str>(&CAMERAS);
            all_of(cameras, grantee)
        }
        _ => {
            let mut given = Vec::new();
            for verb in VERBS {
                for _ in 0..random.within(0..=2) {
                    let cameras = random.pick(&CAMERAS).parse().expect("it is a pattern");
                    given.push(Grant { grantee: grantee.clone(), verb, cameras });
                }
            }
            given
        }
    }
}
