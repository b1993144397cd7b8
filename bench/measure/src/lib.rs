//! The compiled parts of the experiments, behind the hidden command `mez measure` of builds with the feature `bench`. `mez bench` calls this command.

mod ablation;
mod awstream;
mod channel;
mod knobs;
mod link;
mod livelocks;
mod log;
mod openh264;
mod policies;
mod programs;
mod rights;
mod stamp;
mod store;
mod world;

use std::error::Error;

use clap::Subcommand;
use mez_emulator::pace;

/// Why a part of an experiment failed: an error, or a message.
pub type Failure = Box<dyn Error>;

/// A part of an experiment, with its arguments.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "clap would show them instead of the parts' own descriptions")]
pub enum Part {
    Ablation(ablation::AblationArgs),
    Awstream(awstream::AwstreamArgs),
    Channel(channel::ChannelArgs),
    Log(log::LogArgs),
    Store(store::StoreArgs),
    Policies(policies::PoliciesArgs),
    Knobs(knobs::KnobsArgs),
    Openh264(openh264::Openh264Args),
    Publish(programs::PublishArgs),
    PublishWithin(programs::PublishWithinArgs),
    Subscribe(programs::SubscribeArgs),
    Rights(rights::RightsArgs),
    Link(link::LinkArgs),
    Livelocks(livelocks::LivelocksArgs),
    World(world::WorldArgs),
}

/// Runs a part. Its results go to the standard output, as lines of JSON.
///
/// # Errors
/// Why the part could not be run.
pub fn run(part: Part) -> Result<(), Failure> {
    match part {
        Part::Ablation(args) => ablation::run(args),
        Part::Awstream(args) => awstream::run(args),
        Part::Channel(args) => channel::run(args),
        Part::Log(args) => log::run(args),
        Part::Store(args) => store::run(args),
        Part::Policies(args) => policies::run(args),
        Part::Knobs(args) => knobs::run(args),
        Part::Openh264(args) => openh264::run(args),
        Part::Publish(args) => programs::publish(args),
        Part::PublishWithin(args) => programs::publish_within(args),
        Part::Subscribe(args) => programs::subscribe(args),
        Part::Rights(args) => rights::run(args),
        Part::Link(args) => link::run(args),
        Part::Livelocks(args) => livelocks::run(args),
        Part::World(args) => world::run(args),
    }
}
