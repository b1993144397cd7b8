//! What the brokers promise, as stories on a virtual clock. While they run, every rule of `mez_testbed::check` is
//! looked at with every event; the stories ask for what is particular to them.

mod clocks;
mod demand;
mod failures;
mod identity;
mod past;
mod sizes;
mod slowness;
#[path = "../story/mod.rs"]
mod story;
