//! The promises of the brokers, as stories on a virtual clock. Every rule of `mez_testbed::check` is
//! checked at every event; the stories also check what is special to them.

mod clocks;
mod demand;
mod failures;
mod identity;
mod past;
mod sizes;
mod slowness;
#[path = "../story/mod.rs"]
mod story;
