//! Draws applications that answer frames into random worlds, and publishers that take the answers.

use std::time::Duration;

use super::{CALM, QUIET, Variety, random};
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{
    Action, AnswerSpec, ApplicationId, ApplicationSpec, CameraId, Counter, EdgeId, Host, TakeSpec, World,
};

/// The time at the end in which no answer is made, so that every account must be complete.
const SETTLES: Duration = secs(6);

/// A world drawn from a seed, with its planned faults, and some applications that answer frames. Returns these, and how long to run the world. The
/// applications, the publishers and more faults have their own random numbers, so that nothing else changes.
pub fn answering(seed: u64) -> (World, Vec<ApplicationId>, Duration) {
    let (mut world, length) = random(seed, Variety::ANSWERED);
    let mut random = Random::seeded(seed ^ 0x616e_7377_6572_7321);
    let until = Moment::START + length;
    let applications: Vec<ApplicationId> =
        (0..random.within(1..=3)).map(|_| world.application(application(&mut random, until))).collect();
    for camera in world.camera_ids() {
        publisher(&mut world, &mut random, camera, length);
    }
    for _ in 0..random.within(0..=4) {
        fault(&mut world, &mut random, &applications, length);
    }
    (world, applications, length + SETTLES)
}

fn application(random: &mut Random, until: Moment) -> ApplicationSpec {
    let cameras = *random.pick(&["**", "**", "dock/*", "dock/cam1", "*/cam1"]);
    let spec = match random.one_in(4) {
        true => ApplicationSpec::every(cameras),
        false => ApplicationSpec::newest(cameras),
    };
    let slowest = *random.pick(&[ms(1), ms(15), ms(60), ms(400), secs(3)]);
    let most = *random.pick(&[500, 5_000, 20_000, 60_000]);
    let answers = AnswerSpec {
        once_in: *random.pick(&[1, 1, 2, 10]),
        computes: slowest / 20..=slowest,
        bytes: most / 10..=most,
        replaced_once_in: *random.pick(&[0, 0, 3, 20]),
        twice_once_in: *random.pick(&[0, 0, 10]),
        until,
    };
    spec.consuming(*random.pick(&[ms(0), ms(5), ms(40), ms(150)])).answering(answers)
}

/// Plans when a publisher takes answers, and how fast.
fn publisher(world: &mut World, random: &mut Random, camera: CameraId, length: Duration) {
    let takes = |random: &mut Random| {
        let bound = *random.pick(&[ms(30), ms(100), ms(200), ms(200), ms(500)]);
        TakeSpec { bound, pause: *random.pick(&[ms(0), ms(0), ms(10), ms(100), ms(700)]) }
    };
    if random.one_in(12) {
        // This publisher takes no answers.
        return;
    }
    let begins = Moment::START + random.duration(ms(0)..=secs(2));
    let first = takes(random);
    world.at(begins, Action::TakeAnswers(camera, Some(first)));
    for _ in 0..random.within(0..=3) {
        let stops = Moment::START + random.duration(secs(2)..=length - QUIET);
        let again = takes(random);
        let back = stops + random.duration(ms(0)..=secs(2));
        if random.one_in(2) {
            world.at(stops, Action::TakeAnswers(camera, None));
        }
        world.at(back, Action::TakeAnswers(camera, Some(again)));
    }
}

/// Plans a fault that concerns answers, and its end.
fn fault(world: &mut World, random: &mut Random, applications: &[ApplicationId], length: Duration) {
    let cameras = world.camera_ids();
    let (camera, application) = (*random.pick(&cameras), *random.pick(applications));
    let start = Moment::START + random.duration(CALM..=length - QUIET);
    let end = start + random.duration(ms(1)..=ms(1_500));
    let amid = start + random.duration(ms(0)..=ms(600));
    let edge = EdgeId::FIRST;
    let (begins, ends) = match random.within(0..=10) {
        0 => (Action::Cut(camera), Action::Restore(camera)),
        // On a slow link, something else happens while an answer has left in part.
        1..=4 => {
            let takes = TakeSpec::within(ms(300));
            let (happens, passes) = *random.pick(&[
                (Action::Cut(camera), Action::Restore(camera)),
                (Action::Break(camera), Action::Break(camera)),
                (Action::KillEdge(edge), Action::StartEdge(edge)),
                (Action::TakeAnswers(camera, None), Action::TakeAnswers(camera, Some(takes))),
            ]);
            world.at(amid, happens).at(amid + random.duration(ms(1)..=ms(900)), passes);
            (Action::Slow(camera, random.within(2..=50)), Action::Slow(camera, 1))
        }
        5 => (Action::Break(camera), Action::Break(camera)),
        6 => (Action::KillEdge(edge), Action::StartEdge(edge)),
        7 => (Action::KillCamera(CameraId::FIRST), Action::StartCamera(CameraId::FIRST, Counter::Kept)),
        8 => (Action::Freeze(Host::Camera(camera)), Action::Thaw(Host::Camera(camera))),
        9 => (Action::Freeze(Host::Edge(edge)), Action::Thaw(Host::Edge(edge))),
        _ => (Action::Unsubscribe(application), Action::Subscribe(application)),
    };
    world.at(start, begins).at(end, ends);
}
