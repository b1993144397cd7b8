//! Models the capacity of links, millisecond by millisecond, for the models of a path.
//!
//! A path is a rate over time, with a bounded queue and a transmitter before it and a delay behind it. There are three models of a path, for three
//! purposes. They share this folder and the constants of policies.
//!
//! | model | purpose | special ability |
//! | --- | --- | --- |
//! | [`crate::link`], with its own transmitter or with `world/network/medium.rs`, which links share | brokers that talk: connections, messages, loss, cuts | carries bytes, piece by piece, and its rate may change while they pass |
//! | `policies/queue.rs` | policies against an oracle | knows the future in closed form: an oracle asks when bytes *would* arrive, and frames are taken back |
//! | `mez-emulator` | real brokers on this machine | runs by the machine's clock, on datagrams |
//!
//! | module | contents |
//! | --- | --- |
//! | [`capacity`] | the capacity of a link in every millisecond, and when a given byte has passed |
//! | [`classes`] | the reference set: calm, mixed and harsh links |
//! | [`links`] | all kinds of links for comparisons of policies, from a seed |
//! | [`packet_trace`] | recorded links |
//! | [`timetable`] | rates as steps in whole bits, for links in real time, which know only what a file says |
//! | [`wifi`] | stations on one medium, calibrated against published measurements |

pub mod capacity;
pub mod classes;
pub mod links;
pub mod packet_trace;
pub mod timetable;
pub mod wifi;
