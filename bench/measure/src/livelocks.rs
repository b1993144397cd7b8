//! Searches for livelocks of the policy in virtual time. Prints a line of JSON for each seed. `mez bench contracts` counts them.

use clap::Args;
use mez_testbed::policies::livelocks::locked_phases;

use crate::Failure;

/// Look for links on which the policy locks itself out
#[derive(Debug, Args)]
pub struct LivelocksArgs {
    /// Links
    #[arg(long, value_name = "N", default_value_t = 300)]
    seeds: u64,
    /// The seed of the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
}

pub(crate) fn run(args: LivelocksArgs) -> Result<(), Failure> {
    for seed in args.first_seed..args.first_seed.saturating_add(args.seeds) {
        println!(r#"{{"kind":"livelocks","seed":{seed},"locked_phases":{}}}"#, locked_phases(seed));
    }
    Ok(())
}
