//! Draws groups of workers into random worlds.

use std::time::Duration;

use mez_core::group::GroupOptions;

use super::{Variety, random};
use crate::random::Random;
use crate::time::{ms, secs};
use crate::world::{GroupId, GroupSpec, Mishaps, WorkerSpec, World};

/// A world drawn from a seed, with its planned faults, and one or two groups of workers. Also returns how long to run the world. The groups have
/// their own random numbers, so that the rest of the world is that of the seed.
pub fn shared(seed: u64) -> (World, Vec<GroupId>, Duration) {
    let (mut world, length) = random(seed, Variety::SHARED);
    let mut random = Random::seeded(seed ^ 0x6772_6f75_7073_2121);
    let count = random.within(1..=2);
    let groups = (0..count).map(|_| world.group(group(&mut random))).collect();
    (world, groups, length)
}

fn group(random: &mut Random) -> GroupSpec {
    let cameras = *random.pick(&["**", "**", "dock/*", "dock/cam1", "*/cam1"]);
    let every = !random.one_in(3);
    let options = GroupOptions {
        ordered: random.one_in(3),
        fresh: !every && random.one_in(2),
        again_after: *random.pick(&[ms(100), ms(500), secs(2), secs(30)]),
        away_max: *random.pick(&[ms(0), ms(300), secs(1), secs(1)]),
        tries_max: *random.pick(&[1, 2, 5, 5]),
        open_max: *random.pick(&[1, 3, 20, 1_000]),
        ..if every { GroupOptions::EVERY } else { GroupOptions::NEWEST }
    };
    let workers = (0..random.within(1..=6)).map(|_| worker(random, every)).collect();
    GroupSpec { workers, options, ..GroupSpec::new(cameras, options, 0, &WorkerSpec::steady(ms(1)..=ms(1))) }
}

fn worker(random: &mut Random, every: bool) -> WorkerSpec {
    let longest = *random.pick(&[ms(5), ms(50), ms(300), secs(1), secs(3)]);
    let mut once_in = || *random.pick(&[0, 0, 5, 20, 60]);
    let mishaps = Mishaps {
        fails: once_in(),
        forgets: once_in(),
        twice: once_in(),
        others: once_in(),
        dies_before: once_in(),
        dies_after: once_in(),
        cut: once_in(),
        leaves: once_in(),
    };
    // In a group of the newest, a worker that is ready for another record has finished its last one.
    let at_once = if every { *random.pick(&[1, 1, 2, 8]) } else { 1 };
    WorkerSpec { works: longest / 10..=longest, at_once, mishaps }
}
