//! Random worlds with random faults: every rule of `mez_testbed::check`, on every event, for every seed.

use mez_testbed::scenario::{Variety, random};

/// The seeds to run: the one of `MEZ_SEED`, or this many.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("MEZ_SEED") {
        Ok(seed) => vec![seed.parse().expect("MEZ_SEED is a whole number")],
        Err(_) => (0..std::env::var("MEZ_SEEDS").map_or(count, |n| n.parse().unwrap())).collect(),
    }
}

#[test]
fn every_rule_holds_in_random_worlds() {
    let mut entries = 0;
    let mut failed = Vec::new();
    for seed in seeds(200) {
        let (mut world, length) = random(seed, Variety::ALL);
        if let Err(failure) = world.try_run(length) {
            if std::env::var("MEZ_SEED").is_ok() {
                panic!("{failure}");
            }
            failed.push(format!("{} {}", failure.seed, failure.violation));
        }
        entries += world.trace_entries();
    }
    println!("{entries} entries");
    assert!(failed.is_empty(), "{}\n{}", failed.len(), failed.join("\n"));
}
