//! Originals beside contracts, as stories on a virtual clock. Every rule of `mez_testbed::check` is checked at every event.

use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::{Rung, SkipReason};

use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, CameraId, CameraSpec, Footage, Moment, World, mbps, ms, secs,
};

/// A camera on a link of this rate, and an application whose contract makes its frames smaller.
fn contracted(
    world: &mut World,
    bits_per_second: u64,
    on_infeasible: OnInfeasible,
) -> (CameraId, ApplicationId) {
    let camera =
        world.camera("dock/cam1", CameraSpec::filming(Footage::PEDESTRIANS).at_rate(bits_per_second));
    let profile = world.profile(Footage::PEDESTRIANS.profile().expect("it was measured"));
    let contract = Contract {
        latency_bound: Some(ms(150)),
        accuracy_floor: Some(0.9),
        profile: Some(profile),
        on_infeasible,
        ..Contract::default()
    };
    (camera, world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") }))
}

fn is_original(rung: &Rung) -> bool {
    *rung == Rung::original()
}

/// Checks that every frame between the first and the last of an application is delivered or counted. Returns how many were delivered and skipped.
fn assert_counted(world: &World, application: ApplicationId) -> (u64, u64) {
    let got = world.deliveries(application);
    let (first, last) = (got[0].frame.sequence.0, got[got.len() - 1].frame.sequence.0);
    let skipped: u64 = got[1..].iter().map(|frame| frame.skipped.total()).sum();
    assert_eq!(got.len() as u64 + skipped, last - first + 1);
    (got.len() as u64, skipped)
}

/// Frames of a contract go first, unaffected by originals. Originals use the rest of the link. Their application is told how many come, and why not
/// more: with each original, and between them.
#[test]
fn originals_come_in_what_a_contract_leaves() {
    let mut world = World::seeded(70);
    let (_, people) = contracted(&mut world, mbps(2), OnInfeasible::Degrade);
    world.run(secs(20));
    let alone = world.deliveries_since(people, Moment::START + secs(4)).len();
    let reader = world.application(ApplicationSpec::originals("dock/*"));
    let joined = world.now();
    world.run(secs(16));
    let beside = world.deliveries_since(people, joined);
    assert!(beside.len() * 100 >= alone * 97, "{} frames beside it, {alone} alone", beside.len());
    let late = beside.iter().filter(|got| got.age() > ms(150)).count();
    assert!(late * 50 <= beside.len(), "{late} of {} frames were late", beside.len());
    let got = world.deliveries(reader);
    assert!(got.len() >= 3 && got.iter().all(|frame| is_original(&frame.rung)), "{} came", got.len());
    let (came, skipped) = assert_counted(&world, reader);
    assert!(skipped > came, "the link carries few of them");
    let busy: u64 = got[1..].iter().map(|frame| frame.skipped.of(SkipReason::LinkBusy)).sum();
    // The application works for a millisecond on each.
    assert!(busy + got.len() as u64 >= skipped, "{busy} of {skipped} for want of room");
    let told = &got[got.len() - 1].verdict.as_ref().expect("it is live").reason;
    assert!(told.contains("frames in the last 10 s; contracts come first"), "{told}");
    let changes = world.contract_changes(reader);
    let lacks = changes.iter().find(|told| told.change.reason.contains("contracts come first"));
    assert_eq!(lacks.expect("it is told between frames").change.state, ContractState::Ok);
}

/// While a contract with `skip` wants no frames, originals still come. No frame at another rung crosses for the application that wants originals.
#[test]
fn originals_come_while_a_contract_wants_nothing() {
    let mut world = World::seeded(71);
    let (dock, people) = contracted(&mut world, mbps(20), OnInfeasible::Skip);
    let reader = world.application(ApplicationSpec::originals("dock/*"));
    world.run(secs(6));
    let slow = world.now();
    // The smallest rung above the floor does not fit.
    world.act(Action::Rate(dock, 60_000)).run(secs(60));
    let kept = world.deliveries_since(people, slow + secs(4)).len();
    assert!(kept <= 5, "{kept} frames came to the application with the contract");
    let got = world.deliveries_since(reader, slow + secs(4));
    assert!(!got.is_empty() && got.iter().all(|frame| is_original(&frame.rung)), "{} came", got.len());
    assert_counted(&world, reader);
}

/// Without a contract, live frames are originals. All applications get the same frames, and none crosses twice.
#[test]
fn alone_live_frames_are_the_originals() {
    let mut world = World::seeded(72);
    world.camera("dock/cam1", CameraSpec::frames(10, 30_000));
    let reader = world.application(ApplicationSpec::originals("dock/*"));
    let looker = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(10));
    let (came, skipped) = assert_counted(&world, reader);
    assert!(came >= 95 && skipped <= 1, "{came} came, {skipped} were skipped");
    assert!(world.deliveries(reader).iter().all(|frame| frame.skipped.of(SkipReason::LinkBusy) == 0));
    let frames = |application| -> Vec<u64> {
        world.deliveries(application).iter().map(|got| got.frame.sequence.0).collect()
    };
    assert_eq!(frames(reader)[1..90], frames(looker)[1..90]);
}

/// Two applications that want originals get the same ones: each crosses once.
#[test]
fn originals_cross_once_for_all_who_want_them() {
    let mut world = World::seeded(73);
    contracted(&mut world, mbps(3), OnInfeasible::Degrade);
    let one = world.application(ApplicationSpec::originals("dock/*"));
    world.run(secs(15));
    let alone = world.deliveries(one).len();
    let other = world.application(ApplicationSpec::originals("**"));
    let joined = world.now();
    world.run(secs(15));
    let frames = |application| -> Vec<u64> {
        world.deliveries_since(application, joined + secs(3)).iter().map(|got| got.frame.sequence.0).collect()
    };
    assert_eq!(frames(one), frames(other));
    let beside = world.deliveries_since(one, joined).len();
    assert!(beside * 10 >= alone * 8, "{beside} beside another, {alone} before");
}
