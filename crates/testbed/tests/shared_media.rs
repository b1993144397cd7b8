//! Cameras that share a medium to the edge, as stories on a virtual clock.

use mez_testbed::channel::wifi::{Constants, Load, Scene};
use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, Bug, CameraId, CameraSpec, MediumSpec, Moment, World, mbps, ms,
    secs,
};

/// Cameras on one medium, each with more to send than there is room for, and an application for each.
fn crowded(world: &mut World, medium: MediumSpec, cameras: usize) -> Vec<(CameraId, ApplicationId)> {
    let medium = world.medium(medium);
    (0..cameras)
        .map(|number| {
            let name = format!("dock/cam{number}");
            let spec = CameraSpec { medium: Some(medium), ..CameraSpec::frames(30, 200_000) };
            (world.camera(&name, spec), world.application(ApplicationSpec::newest(&name)))
        })
        .collect()
}

/// The rate that an application got since `from`, in Mbit/s.
fn rate(world: &World, application: ApplicationId, from: Moment) -> f64 {
    let frames = world.deliveries_since(application, from).len() as f64;
    frames * 200_000.0 * 8.0 / 1e6 / world.now().since(from).as_secs_f64()
}

fn queue(cameras: usize) -> MediumSpec {
    MediumSpec::Queue { bits_per_second: mbps(20), queue_bytes_max: 64 << 10, cameras }
}

/// Stations of the calibrated medium, without other loads.
fn wifi(cameras: usize) -> Scene {
    let mut scene = Scene::new(&Constants::CALIBRATED, &[]);
    scene.cameras = vec![(Constants::CALIBRATED.station(), None); cameras];
    scene
}

/// Two cameras in one queue have half of it each. When one falls silent, the other has all.
#[test]
fn a_queue_is_shared_evenly_and_wholly() {
    let mut world = World::seeded(60);
    let cameras = crowded(&mut world, queue(2), 2);
    world.run(secs(2));
    let from = world.now();
    world.run(secs(10));
    let rates = [0, 1].map(|place: usize| rate(&world, cameras[place].1, from));
    assert!(rates.iter().all(|rate| (8.5..10.5).contains(rate)), "{rates:?} Mbit/s of 20");
    world.act(Action::Silence(cameras[0].0)).run(secs(1));
    let from = world.now();
    world.run(secs(10));
    let alone = rate(&world, cameras[1].1, from);
    assert!((17.0..20.0).contains(&alone), "{alone} Mbit/s of 20");
}

/// A slower queue is slower for all its cameras, and recovers for all.
#[test]
fn what_slows_one_slows_all() {
    let mut world = World::seeded(61);
    let cameras = crowded(&mut world, queue(3), 3);
    world.run(secs(2)).act(Action::Slow(cameras[0].0, 4)).run(secs(3));
    let from = world.now();
    world.run(secs(12));
    let slow: f64 = cameras.iter().map(|(_, application)| rate(&world, *application, from)).sum();
    assert!((4.0..5.2).contains(&slow), "{slow} Mbit/s of 5");
    world.act(Action::Slow(cameras[1].0, 1)).run(secs(3));
    let from = world.now();
    world.run(secs(6));
    let whole: f64 = cameras.iter().map(|(_, application)| rate(&world, *application, from)).sum();
    assert!((17.0..20.0).contains(&whole), "{whole} Mbit/s of 20");
}

/// Wi-Fi stations contend: five share less than one has, about evenly. Two that do not hear each other get less than two that do.
#[test]
fn stations_contend_for_the_air() {
    let rates = |scene: Scene| {
        let cameras = scene.cameras.len();
        // Over a few seconds the medium is unfair. With three seeds in ten, one of five saturating stations waits so long that a rule breaks.
        let mut world = World::seeded(5);
        let cameras = crowded(&mut world, MediumSpec::Wifi(scene), cameras);
        world.run(secs(1));
        let from = world.now();
        world.run(secs(4));
        cameras.iter().map(|(_, application)| rate(&world, *application, from)).collect::<Vec<f64>>()
    };
    let (one, five) = (rates(wifi(1)), rates(wifi(5)));
    let together: f64 = five.iter().sum();
    // Thirty frames a second are 48 Mbit/s.
    assert!(one[0] > 45.0, "{one:?}");
    assert!(together < 5.0 * 0.8 * one[0] && together > 40.0, "{five:?} against {one:?}");
    let (least, most) =
        five.iter().fold((f64::MAX, 0.0f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    assert!(least > 0.6 * most, "{five:?}");
    let mut hidden = Scene { hidden: vec![(0, 1)], ..wifi(2) };
    hidden.constants.request_after_failures = 1;
    let hidden = rates(hidden);
    let heard = rates(wifi(2));
    assert!(hidden.iter().sum::<f64>() < 0.8 * heard.iter().sum::<f64>(), "{hidden:?} against {heard:?}");
}

/// Other loads on the same medium take their part.
#[test]
fn others_take_their_part_of_the_air() {
    let got = |others: usize| {
        let mut world = World::seeded(63);
        let mut scene = wifi(1);
        let load = Load { bytes: 600e3, frames_per_second: 15.0, size_noise: 0.1, on_off_ms: None };
        scene.cameras.extend(vec![(Constants::CALIBRATED.station(), Some(load)); others]);
        let cameras = crowded(&mut world, MediumSpec::Wifi(scene), 1);
        world.run(secs(4));
        rate(&world, cameras[0].1, Moment::START + secs(1))
    };
    let (alone, among) = (got(0), (4..8).map(got).sum::<f64>() / 4.0);
    assert!(among < 0.8 * alone, "{among} and {alone}");
}

/// A station that was cut off and comes back gets its share again. Its earlier queued pieces cause no confusion.
#[test]
fn a_station_that_was_cut_off_comes_back() {
    for medium in [queue(2), MediumSpec::Wifi(wifi(2))] {
        let mut world = World::seeded(64);
        let cameras = crowded(&mut world, medium, 2);
        for _ in 0..3 {
            world.run(secs(2)).cut(cameras[0].0).run(ms(1_300)).restore(cameras[0].0);
        }
        world.run(secs(3));
        let from = world.now();
        world.run(secs(4));
        assert!(rate(&world, cameras[0].1, from) > 7.0 && rate(&world, cameras[1].1, from) > 7.0);
    }
}

/// A piece whose transmission the medium forgets to report delays all pieces behind it.
#[test]
fn a_forgotten_piece_is_noticed() {
    let run = |bug: Option<Bug>| {
        let mut world = World::seeded(65);
        if let Some(bug) = bug {
            world.plant(bug);
        }
        crowded(&mut world, queue(2), 2);
        world.try_run(secs(10))
    };
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
    let failure = run(Some(Bug::PieceForgotten)).expect_err("it went unnoticed");
    assert!(["resumes", "backlog", "state"].contains(&failure.violation.rule), "{failure}");
}
