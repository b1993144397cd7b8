//! Grants in a world: stories of grants that are given and taken away, and planted bugs that the rules must detect.

use mez_core::rights::{Grant, Rights, Stance};
use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, Ask, Bug, CameraSpec, Delivered, EdgeId, EdgeSpec, Failure,
    HostClock, Moment, Resumes, World, ms, noticed, secs,
};

const EDGE: EdgeId = EdgeId::FIRST;

/// Rights from grants as text: `app/reader/0 watch dock/*`.
fn strict(grants: &[&str]) -> Rights {
    let grant = |text: &&str| {
        let words: Vec<&str> = text.split(' ').collect();
        Grant {
            grantee: words[0].parse().unwrap(),
            verb: words[1].parse().unwrap(),
            cameras: words[2].parse().unwrap(),
        }
    };
    Rights::new(Stance::Deny, grants.iter().map(grant))
}

/// The cameras of frames, each once, sorted.
fn cameras(got: &[Delivered]) -> Vec<&str> {
    let mut names: Vec<&str> = got.iter().map(|got| got.camera.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A world with two cameras whose clocks agree with the edge's.
fn two_cameras(seed: u64, grants: &[&str], bug: Option<Bug>) -> World {
    let clock =
        Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });
    let edge = EdgeSpec { rights: strict(grants), clock, ..EdgeSpec::default() };
    let mut world = World::seeded_with(seed, edge);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    for name in ["dock/cam1", "yard/cam1"] {
        world.camera(name, CameraSpec { clock, ..CameraSpec::frames(20, 30_000) });
    }
    world
}

/// Replaces the rights at this second.
fn writes(world: &mut World, second: u64, grants: &[&str]) {
    let rights = world.rights(strict(grants));
    world.at(Moment::START + secs(second), Action::Rights(EDGE, rights));
}

#[test]
fn names_of_applications_are_those_that_grants_use() {
    assert_eq!(ApplicationId::nth(3).who().to_string(), "app/reader/3");
}

/// Each application gets what it was granted, for as long as it is granted. Frames that no application may have do not cross a link.
#[test]
fn frames_come_while_they_are_granted_and_for_no_moment_longer() {
    let mut world = two_cameras(1, &["app/reader/0 watch **", "app/reader/1 watch dock/*"], None);
    let both = world.application(ApplicationSpec::newest("**"));
    let dock = world.application(ApplicationSpec::newest("**"));
    let none = world.application(ApplicationSpec::newest("**"));
    writes(&mut world, 5, &["app/reader/1 watch dock/*"]);
    writes(
        &mut world,
        10,
        &["app/reader/1 watch dock/*", "app/reader/0 watch yard/*", "app/reader/2 watch yard/*"],
    );
    world.run(secs(5));
    assert_eq!(cameras(world.deliveries(both)), ["dock/cam1", "yard/cam1"]);
    let second = |second| Moment::START + secs(second);
    world.run(secs(5));
    assert_eq!(world.deliveries_since(both, second(5)).len(), 0);
    world.run(secs(5));
    assert_eq!(cameras(world.deliveries_since(both, second(10))), ["yard/cam1"]);
    assert_eq!(cameras(world.deliveries(none)), ["yard/cam1"]);
    // The unaffected application was not disturbed.
    let got = world.deliveries(dock);
    assert_eq!(cameras(got), ["dock/cam1"]);
    assert!(got.iter().all(|got| got.subscription == 0) && got.len() > 280, "{} frames", got.len());
}

/// An application that is stalled when its right is taken away gets nothing more when it continues.
#[test]
fn an_application_that_stands_still_gets_nothing_of_what_it_has_lost() {
    let mut world = two_cameras(2, &["app/reader/0 watch dock/*"], None);
    let reader = world.application(ApplicationSpec::every("dock/*"));
    world.run(secs(5)).act(Action::Stall(reader)).run(secs(2));
    let rights = world.rights(strict(&[]));
    world.act(Action::Rights(EDGE, rights)).run(secs(1));
    let had = world.deliveries(reader).len();
    world.act(Action::Resume(reader)).run(secs(3));
    assert_eq!(world.deliveries(reader).len(), had);
}

/// An application that may only watch claims to begin now and to have an old frame. It is refused,
/// because it would otherwise get everything since then.
#[test]
fn claiming_to_have_an_old_frame_gives_nobody_the_past() {
    let everything = ["app/** watch **", "app/** read **", "app/** originals **"];
    let mut world = two_cameras(3, &everything, None);
    world.application(ApplicationSpec::newest("**"));
    let claims = ApplicationSpec {
        begin_before: Some(ms(0)),
        resumes: Resumes::Behind,
        ..ApplicationSpec::every("dock/*")
    };
    let reader = world.application(claims);
    world.run(secs(5)).act(Action::Unsubscribe(reader)).run(secs(5));
    let rights = world.rights(strict(&everything[..1]));
    world.act(Action::Rights(EDGE, rights));
    let (had, back) = (world.deliveries(reader).len(), world.now());
    world.act(Action::Subscribe(reader)).run(secs(2));
    assert_eq!(world.deliveries(reader).len(), had, "it got something since {back}");
}

// ---- planted bugs ------------------------------------------------------------------------------------------

/// Three applications: one may watch one camera, one reads the past, one lists cameras. Rights are taken away, and granted.
fn run(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let grants = [
        "app/reader/0 watch dock/*",
        "app/reader/1 read **",
        "app/reader/1 originals **",
        "app/reader/1 watch **",
    ];
    let mut world = two_cameras(4, &grants, bug);
    let watcher = world.application(ApplicationSpec { replies: true, ..ApplicationSpec::newest("**") });
    world.application(ApplicationSpec::since("**", secs(2)));
    for second in [3, 8, 13] {
        world.asks_at(Moment::START + secs(second), watcher, Ask::List);
    }
    writes(&mut world, 6, &grants[1..]);
    writes(&mut world, 10, &["app/reader/0 watch yard/*", "app/reader/0 observe yard/*"]);
    world.try_run(secs(15))
}

fn assert_noticed(bug: Bug, rule: &str) {
    noticed(bug, run(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_where_nothing_is_planted() {
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
}

#[test]
fn a_stream_that_gets_cameras_which_nobody_granted_is_noticed() {
    assert_noticed(Bug::GrantsForgotten, "granted");
}

#[test]
fn a_stream_that_goes_on_without_its_right_is_noticed() {
    assert_noticed(Bug::LostRightForgotten, "granted");
}

/// Silence does not satisfy the rules: a granted right must give frames.
#[test]
fn a_grant_that_gives_nothing_is_noticed() {
    let run = |bug| {
        let mut world = two_cameras(5, &[], bug);
        world.application(ApplicationSpec::newest("dock/*"));
        writes(&mut world, 4, &["app/reader/0 watch dock/*"]);
        world.try_run(secs(10))
    };
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
    let failure = run(Some(Bug::RightsNotReadAgain)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "resumes", "{failure}");
}
