//! Draws which members are revoked in a world, which join again, and which cameras carry the list from edge to edge.

use std::ops::RangeInclusive;
use std::time::Duration;

use mez_core::rights::Rights;

use crate::random::Random;
use crate::time::{HostClock, Moment, ms, secs};
use crate::world::{
    Action, ApplicationId, ApplicationSpec, By, CameraId, EdgeId, EdgeSpec, Member, SiteAction, World,
};

/// A revoked member joins again in a later second.
const JOINS_AGAIN: RangeInclusive<Duration> = secs(1)..=secs(3);

/// The events of a site. They have their own random numbers, so that nothing else of a seed changes except by consequence.
pub(super) struct Members {
    random: Random,
    second: Option<EdgeId>,
}

impl Members {
    /// Draws whether there is a second edge. The world has no camera yet.
    pub(super) fn draw(world: &mut World, seed: u64) -> Self {
        let mut random = Random::seeded(seed ^ 0x7265_766f_6b65_6421);
        let second = (!random.one_in(3)).then(|| {
            let clock = HostClock::right(random.duration(secs(1)..=secs(1_000_000)));
            world.edge(EdgeSpec { rights: Rights::open(), clock: Some(clock), ..EdgeSpec::default() })
        });
        Self { random, second }
    }

    /// The second edge, if there is one.
    pub(super) const fn second(&self) -> Option<EdgeId> {
        self.second
    }

    /// Creates the applications of the second edge, and plans the events of members.
    pub(super) fn plan(
        mut self,
        world: &mut World,
        cameras: &[CameraId],
        applications: &[ApplicationId],
        (restless, may_rob): (RangeInclusive<Duration>, bool),
    ) {
        let mut applications = applications.to_vec();
        for edge in self.second.into_iter().chain(self.second) {
            let cameras: &str = self.random.pick::<&str>(&["**", "dock/*", "*/cam1"]);
            let every = self.random.one_in(2);
            let spec = if every { ApplicationSpec::every(cameras) } else { ApplicationSpec::newest(cameras) };
            applications.push(world.application(ApplicationSpec { edge, ..spec }));
        }
        if let Some(edge) = self.second {
            self.moves(world, edge, cameras, &restless);
        }
        if may_rob && self.random.one_in(2) {
            self.theft(world, cameras, &restless);
        }
        for _ in 0..self.random.within(1..=4) {
            let at = Moment::START + self.random.duration(restless.clone());
            self.change(world, at, cameras, &applications);
        }
    }

    /// Plans moves of cameras between the edges.
    fn moves(
        &mut self,
        world: &mut World,
        edge: EdgeId,
        cameras: &[CameraId],
        restless: &RangeInclusive<Duration>,
    ) {
        for _ in 0..self.random.within(1..=4) {
            let camera = *self.random.pick(cameras);
            let at = Moment::START + self.random.duration(restless.clone());
            world.at(at, Action::Move(camera, edge));
            if !self.random.one_in(4) {
                let back = at + self.random.duration(ms(100)..=secs(4));
                world.at(back, Action::Move(camera, EdgeId::FIRST));
            }
        }
    }

    /// Plans a thief with a camera's keys, which is revoked and stays, while the camera joins again.
    fn theft(&mut self, world: &mut World, cameras: &[CameraId], restless: &RangeInclusive<Duration>) {
        let camera = *self.random.pick(cameras);
        let thief = world.thief(camera);
        if self.random.one_in(2) {
            world.forger(thief);
        }
        let comes = Moment::START + self.random.duration(restless.clone());
        let epoch = *self.random.pick(&[1, 5, 20, 1 << 20, 1 << 32, 1 << 40]);
        let revoked = comes + self.random.duration(ms(1)..=secs(3));
        let by = *self.random.pick(&[By::Serial, By::Name]);
        let joins = revoked + self.random.duration(JOINS_AGAIN);
        world
            .at(comes, Action::Claim(thief, epoch))
            .at(revoked, Action::Site(SiteAction::Revoke(Member::Camera(thief), by)))
            .at(joins, Action::Site(SiteAction::Enrol(Member::Camera(camera))));
        if self.random.one_in(2) {
            // The thief leaves, and returns with the same keys.
            world.at(joins + secs(1), Action::Leave(thief));
            world.at(joins + secs(2), Action::Claim(thief, epoch + 1));
        }
    }

    /// Plans that a member is revoked, and perhaps joins again, or that an old list is copied.
    fn change(
        &mut self,
        world: &mut World,
        at: Moment,
        cameras: &[CameraId],
        applications: &[ApplicationId],
    ) {
        let (camera, application) = (*self.random.pick(cameras), *self.random.pick(applications));
        let second = self.second.unwrap_or_default();
        let member = match self.random.within(0..=8) {
            0..=3 => Member::Application(application),
            4..=6 => Member::Camera(camera),
            7 => Member::Edge(second),
            _ => {
                let edge = *self.random.pick(&[EdgeId::FIRST, second]);
                let changes = self.random.within(0..=3) as usize;
                world.at(at, Action::Site(SiteAction::Copy(edge, changes)));
                return;
            }
        };
        let by = *self.random.pick(&[By::Serial, By::Name]);
        world.at(at, Action::Site(SiteAction::Revoke(member, by)));
        let later = at + self.random.duration(JOINS_AGAIN);
        match self.random.within(0..=3) {
            0 | 1 => drop(world.at(later, Action::Site(SiteAction::Enrol(member)))),
            2 => drop(world.at(later, Action::Site(SiteAction::Unrevoke(member, by)))),
            _ => {}
        }
    }
}
