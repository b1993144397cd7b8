//! What the brokers promise, as stories on a virtual clock. While they run, every rule of `mez_testbed::check` is
//! looked at with every event; the stories ask for what is particular to them.

use mez_testbed::{ApplicationSpec, CameraSpec, World, secs};

#[test]
fn frames_travel() {
    let mut world = World::seeded(1);
    world.camera("dock/cam1", CameraSpec::default());
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(10));
    let got = world.deliveries(application);
    assert!(got.len() >= 98, "{} frames", got.len());
    println!("{} {:?}", world.trace_entries(), got.last().unwrap().age());
}
