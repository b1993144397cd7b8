//! `mez measure`: the parts of the experiments that have to be compiled. Hidden, and only in builds with the feature
//! `bench`; `mez bench` calls it.

mod ablation;
mod awstream;
mod channel;
mod emulate;
mod knobs;
mod link;
mod log;
mod policies;
mod programs;
mod relay;
mod stamp;
mod store;
mod world;

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
    Ablation(ablation::AblationArgs),
    Awstream(awstream::AwstreamArgs),
    Channel(channel::ChannelArgs),
    Log(log::LogArgs),
    Store(store::StoreArgs),
    Policies(policies::PoliciesArgs),
    Knobs(knobs::KnobsArgs),
    Publish(programs::PublishArgs),
    PublishWithin(programs::PublishWithinArgs),
    Subscribe(programs::SubscribeArgs),
    Link(link::LinkArgs),
    Emulate(emulate::EmulateArgs),
    World(world::WorldArgs),
}

pub(crate) fn run(args: MeasureArgs) -> Result<(), Failure> {
    match args.part {
        Part::Ablation(args) => ablation::run(args),
        Part::Awstream(args) => awstream::run(args),
        Part::Channel(args) => channel::run(args),
        Part::Log(args) => log::run(args),
        Part::Store(args) => store::run(args),
        Part::Policies(args) => policies::run(args),
        Part::Knobs(args) => knobs::run(args),
        Part::Publish(args) => programs::publish(args),
        Part::PublishWithin(args) => programs::publish_within(args),
        Part::Subscribe(args) => programs::subscribe(args),
        Part::Link(args) => link::run(args),
        Part::Emulate(args) => emulate::run(args),
        Part::World(args) => world::run(args),
    }
}
