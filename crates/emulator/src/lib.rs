//! Emulates the links of a scenario file in real time, for the brokers of this machine. It needs no root.
//!
//! `mez demo --scenario` runs its brokers over such links, and so do experiments. A product may contain this crate. It uses the testbed,
//! which reads scenario files, and no experiment.
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
