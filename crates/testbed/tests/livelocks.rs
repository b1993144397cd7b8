//! A policy must not lock itself out of a link that has become slower.

use mez_testbed::policies::livelocks::locked_phases;

/// The number of seeds. `MEZ_SEEDS` overrides it.
const SEEDS: u64 = 60;

#[test]
fn frames_that_are_cancelled_one_after_the_other_still_measure_the_link() {
    let seeds = std::env::var("MEZ_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    let locked: Vec<u64> = (1..=seeds).filter(|seed| locked_phases(*seed) > 0).collect();
    assert!(locked.is_empty(), "slow phases without frames with the seeds {locked:?} of 1 to {seeds}");
}
