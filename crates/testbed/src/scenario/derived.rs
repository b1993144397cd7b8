//! Draws applications that publish derived streams into random worlds, and applications that read them.

use std::time::Duration;

use mez_core::rights::{Grant, Rights, Stance, Verb};
use mez_core::subscription::Deliver;

use super::grants::{all_of, only};
use super::{CALM, QUIET, Variety, random};
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{Action, ApplicationId, ApplicationSpec, DeriveSpec, EdgeId, Resumes, World};

/// Streams, the cameras to read, and the sources: results of a camera, results of results, and results
/// of several cameras. No stream is its own source.
const STREAMS: [(&str, &str, &str); 5] = [
    ("dock/cam1/faces", "dock/cam1", "dock/cam1"),
    ("dock/cam1/faces", "dock/*", "dock/cam1"),
    ("dock/cam1/faces/names", "dock/*/faces", "dock/cam1/faces"),
    ("tracks", "*/cam1", "dock/cam1"),
    ("yard/results", "dock/cam2", "dock/cam2"),
];

/// A world drawn from a seed, with its planned faults, and some applications that publish derived streams. Returns these, and how long to run the
/// world. The applications have their own random numbers, so that nothing else changes.
pub fn deriving(seed: u64) -> (World, Vec<ApplicationId>, Duration) {
    let (mut world, length) = random(seed, Variety::DERIVED);
    let mut random = Random::seeded(seed ^ 0x6465_7269_7665_6421);
    let publishers: Vec<ApplicationId> =
        (0..random.within(1..=4)).map(|_| world.application(publisher(&mut random))).collect();
    let readers: Vec<ApplicationId> =
        (0..random.within(1..=3)).map(|_| world.application(reader(&mut random))).collect();
    for application in publishers.iter().chain(&readers) {
        for _ in 0..random.within(0..=2) {
            let from = Moment::START + random.duration(CALM..=length - QUIET);
            let until = from + random.duration(ms(1)..=secs(3));
            let (goes, comes) = match random.one_in(2) {
                true => (Action::Unsubscribe(*application), Action::Subscribe(*application)),
                false => (Action::Stall(*application), Action::Resume(*application)),
            };
            world.at(from, goes).at(until, comes);
        }
    }
    for _ in 0..random.within(0..=4) {
        let at = Moment::START + random.duration(CALM..=length - QUIET);
        let rights = rights(&mut random, &world, &publishers);
        let (taken, open) = (world.rights(rights), world.rights(Rights::open()));
        let edge = EdgeId::FIRST;
        world.at(at, Action::Rights(edge, taken));
        world.at(at + random.duration(ms(1)..=secs(3)), Action::Rights(edge, open));
    }
    (world, publishers, length)
}

fn publisher(random: &mut Random) -> ApplicationSpec {
    let (stream, cameras, of) = *random.pick(&STREAMS);
    let spec = match random.one_in(3) {
        true => ApplicationSpec::every(cameras),
        false => ApplicationSpec::newest(cameras),
    };
    let resumes = if random.one_in(4) { Resumes::Behind } else { Resumes::Anew };
    let spec = ApplicationSpec { resumes, ..spec.consuming(*random.pick(&[ms(0), ms(5), ms(40), ms(200)])) };
    spec.deriving(DeriveSpec {
        way: ms(0)..=*random.pick(&[ms(0), ms(3), ms(50), ms(500)]),
        record_bytes: 1..=*random.pick(&[100, 2_000, 20_000]),
        workers: *random.pick(&[1, 1, 2, 5]),
        dies_once_in: *random.pick(&[0, 0, 10, 60]),
        ..DeriveSpec::new(stream, of)
    })
}

/// An application that reads results, and perhaps the frames too.
fn reader(random: &mut Random) -> ApplicationSpec {
    let pattern = *random.pick(&["dock/*/faces", "dock/**", "**", "tracks", "*/results"]);
    let consumes = *random.pick(&[ms(0), ms(1), ms(20), ms(300)]);
    let spec = match random.within(0..=4) {
        0 => ApplicationSpec::newest(pattern),
        1 => ApplicationSpec::every(pattern),
        2 => ApplicationSpec { resumes: Resumes::Behind, ..ApplicationSpec::every(pattern) },
        3 => ApplicationSpec { resumes: Resumes::Behind, ..ApplicationSpec::newest(pattern) },
        _ => ApplicationSpec { deliver: Deliver::Every, ..ApplicationSpec::since(pattern, secs(2)) },
    };
    spec.consuming(consumes)
}

/// Rights that let all applications read everything, and let each publisher publish all streams, some, or none.
fn rights(random: &mut Random, world: &World, publishers: &[ApplicationId]) -> Rights {
    let mut given: Vec<Grant> =
        (0..world.application_count()).flat_map(|place| all_of("**", &only(place))).collect();
    for publisher in publishers {
        if let Some(streams) = random.pick(&[Some("**"), Some("dock/**"), Some("tracks"), None]) {
            let cameras = streams.parse().expect("it is a pattern");
            given.push(Grant { grantee: only(publisher.0), verb: Verb::Publish, cameras });
        }
    }
    Rights::new(Stance::Deny, given)
}
