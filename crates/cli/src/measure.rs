//! `mez measure`: emulated links for the demo, and the compiled parts of experiments. Hidden: it is called by `mez demo --scenario` and `mez bench`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// Run a part of an experiment (mez bench calls this)
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    Emulate(EmulateArgs),
    #[cfg(feature = "bench")]
    #[command(flatten)]
    Experiment(mez_measure::Part),
}

/// Pass datagrams on as the links of a scenario would
#[derive(Debug, Args)]
struct EmulateArgs {
    /// A file, or the name of a shipped scenario
    #[arg(long, value_name = "FILE|NAME")]
    scenario: String,
    /// Where datagrams go: the edge's link port
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// Draws links anew; left out, the file's own
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(args: MeasureArgs) -> Result<(), Failure> {
    match args.part {
        Part::Emulate(args) => Ok(mez_emulator::emulate(&args.scenario, args.to, args.seed)?),
        #[cfg(feature = "bench")]
        Part::Experiment(part) => mez_measure::run(part).map_err(|error| Failure::new(&*error)),
    }
}
