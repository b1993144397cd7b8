//! Emulates the links of a scenario file in real time, for the brokers on this machine. Needs no root rights.
//!
//! `mez demo --scenario` and experiments run their brokers over such links. A product may
//! contain this crate: it uses the testbed, which reads scenario files, but no experiment.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `scenario` | a relay for each camera of a scenario, driven over standard input and output |
//! | [`relay`] | a link in user space, for UDP |
//! | [`pace`] | real time to the nanosecond |

pub mod pace;
pub mod relay;
mod scenario;

pub use self::scenario::{EmulateError, emulate};
