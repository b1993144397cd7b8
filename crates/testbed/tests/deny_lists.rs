//! Revocation in a world: stories of streams and links that end, of a list that travels with a camera,
//! of a stolen camera. Also planted bugs that the rules must detect.

use mez_core::broker::{EPOCH_BASE, EPOCH_JUMP_MAX};
use mez_testbed::{
    Action, ApplicationSpec, Bug, By, CameraId, CameraSpec, Counter, EdgeId, EdgeSpec, Failure, Member,
    Moment, SiteAction, World, ms, noticed, secs,
};

const FIRST: EdgeId = EdgeId::FIRST;

fn second(second: u64) -> Moment {
    Moment::START + secs(second)
}

fn revoke(member: Member, by: By) -> Action {
    Action::Site(SiteAction::Revoke(member, by))
}

fn enrol(member: Member) -> Action {
    Action::Site(SiteAction::Enrol(member))
}

fn spec() -> CameraSpec {
    CameraSpec::frames(20, 30_000)
}

/// A world with two edges, and a camera that dials both and reaches the first.
fn two_edges(seed: u64, bug: Option<Bug>) -> (World, EdgeId, CameraId) {
    let mut world = World::seeded(seed);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let other = world.edge(EdgeSpec::default());
    let carrier = world.camera("yard/cam1", CameraSpec { second_edge: Some(other), ..spec() });
    (world, other, carrier)
}

/// A revoked member gets and gives nothing after a second, and continues with another certificate. No other member is disturbed.
#[test]
fn streams_and_links_end_and_go_on_with_another_certificate() {
    for by in [By::Serial, By::Name] {
        let mut world = World::seeded(1);
        let dock = world.camera("dock/cam1", spec());
        world.camera("yard/cam1", spec());
        let [app, other] = [0, 1].map(|_| world.application(ApplicationSpec::newest("**")));
        world.run(secs(4)).act(revoke(Member::Application(app), by)).act(revoke(Member::Camera(dock), by));
        world.run(secs(1));
        let (revoked, had) = (world.now(), world.deliveries(app).len());
        world.run(secs(4));
        assert_eq!(world.deliveries(app).len(), had);
        assert!(!world.is_up(dock));
        assert!(world.deliveries_since(other, revoked).iter().all(|got| got.camera.as_str() == "yard/cam1"));
        world.act(enrol(Member::Application(app))).act(enrol(Member::Camera(dock))).run(secs(4));
        let docks = |got: &[mez_testbed::Delivered]| {
            got.iter().filter(|got| got.camera.as_str() == "dock/cam1").count()
        };
        for who in [app, other] {
            assert!(docks(world.deliveries_since(who, revoked)) > 20);
        }
        let got = world.deliveries(other);
        assert!(got.iter().all(|got| got.subscription == 0), "it was disturbed");
    }
}

/// A member that was revoked by mistake continues with its certificate.
#[test]
fn who_is_unrevoked_goes_on_with_the_same_certificate() {
    let mut world = World::seeded(2);
    let dock = world.camera("dock/cam1", spec());
    let app = world.application(ApplicationSpec::newest("**"));
    let members = [Member::Application(app), Member::Camera(dock)];
    world.run(secs(3));
    for member in members {
        world.act(revoke(member, By::Name)).run(ms(1_100));
    }
    assert_eq!(world.list_version(FIRST), 2);
    for member in members {
        world.act(Action::Site(SiteAction::Unrevoke(member, By::Name))).run(ms(1_100));
    }
    let since = world.run(secs(6)).now();
    assert_eq!(world.list_version(FIRST), 4);
    assert!(world.run(secs(2)).deliveries_since(app, since).len() > 30);
}

/// The second edge gets the list from a camera that moves to it. The edge keeps the list over a restart, and does not replace it by an older one.
#[test]
fn a_camera_carries_the_list_to_the_other_edge() {
    let (mut world, other, carrier) = two_edges(3, None);
    let thief = world.camera("dock/cam1", CameraSpec { edge: other, ..spec() });
    let app = world.application(ApplicationSpec { edge: other, ..ApplicationSpec::newest("**") });
    world.run(secs(3)).act(revoke(Member::Camera(thief), By::Serial)).run(secs(2));
    assert_eq!((world.list_version(FIRST), world.list_version(other)), (1, 0));
    assert!(world.is_up(thief), "the other edge has not heard of it");
    world.act(Action::Move(carrier, other)).run(secs(2));
    assert_eq!(world.list_version(other), 1);
    assert!(world.is_up(carrier) && !world.is_up(thief));
    world.act(Action::KillCamera(carrier));
    world.restart_edge(other).run(secs(3));
    assert_eq!(world.list_version(other), 1);
    world.act(Action::Site(SiteAction::Copy(other, 1))).run(secs(2));
    let since = world.act(Action::StartCamera(carrier, Counter::Kept)).now();
    world.run(secs(3));
    assert!(world.is_up(carrier) && !world.is_up(thief));
    let got = world.deliveries_since(app, since);
    assert!(got.len() > 20 && got.iter().all(|got| got.camera.as_str() == "yard/cam1"));
}

/// A camera that restarts while it reaches no edge has the list on its own disk.
#[test]
fn a_list_survives_the_restart_of_whoever_carries_it() {
    let (mut world, other, carrier) = two_edges(4, None);
    let app = world.application(ApplicationSpec { edge: other, ..ApplicationSpec::newest("**") });
    world.run(secs(3)).act(revoke(Member::Application(app), By::Name)).run(secs(2));
    world.restart_camera(carrier, Counter::Kept).act(Action::Move(carrier, other)).run(secs(3));
    assert!(world.is_up(carrier));
    assert_eq!((world.list_version(other), world.deliveries(app).len()), (1, 0));
}

#[test]
fn a_camera_leaves_an_edge_that_was_revoked_and_comes_back_once_it_has_joined_anew() {
    let (mut world, other, carrier) = two_edges(5, None);
    world.run(secs(2)).act(revoke(Member::Edge(other), By::Name)).run(secs(2));
    world.act(Action::Move(carrier, other)).run(secs(8));
    assert!(!world.is_up(carrier));
    world.act(enrol(Member::Edge(other))).run(secs(3));
    assert!(world.is_up(carrier));
}

/// A thief raises the epoch as far as it can, is revoked, and stays. The camera joins again, and is delayed no longer than by a restart.
#[test]
fn a_stolen_camera_that_was_revoked_hinders_nothing() {
    for forges in [false, true] {
        let mut world = World::seeded(6);
        let dock = world.camera("dock/cam1", spec());
        let app = world.application(ApplicationSpec::newest("**"));
        let thief = world.thief(dock);
        if forges {
            world.forger(thief);
        }
        let highest = EPOCH_BASE.0 + EPOCH_JUMP_MAX;
        world.run(secs(3)).act(Action::Claim(thief, highest)).run(secs(2));
        assert!(world.is_up(thief) && !world.is_up(dock));
        world.act(revoke(Member::Camera(thief), By::Serial)).run(ms(1_100));
        assert!(!world.is_up(thief));
        let joined = world.act(enrol(Member::Camera(dock))).now();
        world.run(secs(2));
        assert!(world.is_up(dock) && !world.is_up(thief));
        assert_eq!(world.epoch(dock), Some(highest + 1), "above the thief's");
        let frames = world.deliveries_since(app, joined).len();
        assert!(frames > 15, "{frames} frames in two seconds");
        // The thief returns with several epochs, and the edge refuses it.
        let dials = world.camera_counts(thief).dials;
        for epoch in [1, highest + EPOCH_JUMP_MAX, u64::MAX >> 1] {
            world.act(Action::Claim(thief, epoch)).run(secs(1));
        }
        assert!(world.camera_counts(thief).dials > dials + 6 && world.camera_counts(thief).sent < 50);
        assert_eq!((world.is_up(dock), world.epoch(dock)), (true, Some(highest + 1)));
    }
}

// ---- planted bugs ------------------------------------------------------------------------------------------

/// Checks that a bug is detected, and that the story keeps every rule without it.
fn assert_noticed(bug: Bug, rule: &str, story: impl Fn(Option<Bug>) -> Result<(), Box<Failure>>) {
    if let Err(failure) = story(None) {
        panic!("{failure}");
    }
    noticed(bug, story(Some(bug)).err(), rule);
}

/// A camera and an application are revoked. The edge restarts. The application joins again.
fn revoked(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(7);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let dock = world.camera("dock/cam1", spec());
    world.camera("yard/cam1", spec());
    let app = world.application(ApplicationSpec::newest("**"));
    world.at(second(3), revoke(Member::Camera(dock), By::Name));
    world.at(second(5), revoke(Member::Application(app), By::Name));
    world.at(second(8), Action::KillEdge(FIRST)).at(second(9), Action::StartEdge(FIRST));
    world.at(second(12), enrol(Member::Application(app)));
    world.try_run(secs(18))
}

#[test]
fn a_link_that_goes_on_after_its_certificate_was_revoked_is_noticed() {
    assert_noticed(Bug::RevokedLinkKept, "revoked", revoked);
}

#[test]
fn a_stream_that_goes_on_after_its_certificate_was_revoked_is_noticed() {
    assert_noticed(Bug::RevokedStreamKept, "revoked", revoked);
}

#[test]
fn an_edge_that_forgets_who_was_revoked_is_noticed() {
    // The camera that holds the list is revoked, and so cannot bring it.
    assert_noticed(Bug::ListForgotten, "revoked", |bug| {
        let mut world = World::seeded(8);
        if let Some(bug) = bug {
            world.plant(bug);
        }
        let dock = world.camera("dock/cam1", spec());
        world.at(second(3), revoke(Member::Camera(dock), By::Serial));
        world.at(second(6), Action::KillEdge(FIRST)).at(second(7), Action::StartEdge(FIRST));
        world.try_run(secs(16))
    });
}

/// The rules also detect an edge that refuses every member that was ever revoked.
#[test]
fn an_edge_that_refuses_who_has_joined_anew_is_noticed() {
    assert_noticed(Bug::NewcomerRefused, "refusals", revoked);
}

/// An old copy of the list is put into the edge's key folder.
#[test]
fn an_edge_that_takes_an_older_list_is_noticed() {
    assert_noticed(Bug::OlderListTaken, "revoked", |bug| {
        let mut world = World::seeded(9);
        if let Some(bug) = bug {
            world.plant(bug);
        }
        world.camera("dock/cam1", spec());
        let app = world.application(ApplicationSpec::newest("**"));
        world.at(second(3), revoke(Member::Application(app), By::Serial));
        world.at(second(6), Action::Site(SiteAction::Copy(FIRST, 1)));
        world.try_run(secs(12))
    });
}

/// A thief brings its own forged list.
#[test]
fn an_edge_that_does_not_look_at_signatures_is_noticed() {
    assert_noticed(Bug::SignatureIgnored, "revoked", |bug| {
        let mut world = World::seeded(10);
        if let Some(bug) = bug {
            world.plant(bug);
        }
        let dock = world.camera("dock/cam1", spec());
        let app = world.application(ApplicationSpec::newest("**"));
        let thief = world.thief(dock);
        world.forger(thief);
        world.at(second(3), revoke(Member::Application(app), By::Serial));
        world.at(second(6), Action::Claim(thief, 20)).at(second(9), Action::Leave(thief));
        world.try_run(secs(22))
    });
}

#[test]
fn a_camera_that_keeps_the_list_for_itself_is_noticed() {
    assert_noticed(Bug::ListNotHandedOn, "lists", |bug| {
        let (mut world, other, carrier) = two_edges(11, bug);
        world.application(ApplicationSpec::newest("**"));
        let app = world.application(ApplicationSpec { edge: other, ..ApplicationSpec::newest("**") });
        world.at(second(3), revoke(Member::Application(app), By::Serial));
        world.at(second(6), Action::Move(carrier, other));
        world.try_run(secs(14))
    });
}
