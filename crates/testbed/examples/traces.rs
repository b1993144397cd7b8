//! The trace hashes of random worlds and of all shipped scenarios, one line each. A change that must not change what happens, such as
//! a move of code, leaves every line as it was.
//!
//! ```console
//! $ cargo run -p mez-testbed --example traces -- [SEEDS] > before.txt
//! ```

use mez_testbed::scenario::{Variety, random};
use mez_testbed::scenario_file::{SHIPPED, Scenario};

/// Random worlds, where no other number is given.
const SEEDS: u64 = 200;

fn main() {
    let seeds = std::env::args().nth(1).map_or(SEEDS, |text| text.parse().expect("SEEDS is a whole number"));
    for seed in 0..seeds {
        let (mut world, length) = random(seed, Variety::ALL);
        match world.try_run(length) {
            Ok(()) => println!("seed {seed} {:016x} {}", world.trace_hash(), world.trace_entries()),
            Err(failure) => println!("seed {seed} fails: {}", failure.violation),
        }
    }
    for (name, text) in SHIPPED {
        let scenario: Scenario = text.parse().expect("shipped scenarios are sound");
        match scenario.run(scenario.seed()) {
            Ok(report) => println!("scenario {name} {:016x} {}", report.trace_hash, report.trace_entries),
            Err(failure) => println!("scenario {name} fails: {}", failure.violation),
        }
    }
}
