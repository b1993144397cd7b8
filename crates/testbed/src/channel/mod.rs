//! Models what links carry, millisecond by millisecond, for the models of a path that use it.
//!
//! A path is a rate over time, with a bounded queue and a transmitter in front of it and a delay behind it. There are three models of a
//! path, because three different things are asked of one. They share this folder and the constants of policies.
//!
//! | model | what it is for | what no other can do |
//! | --- | --- | --- |
//! | [`crate::link`], with a transmitter of its own or with `world/medium.rs`, which others share | brokers that talk: connections, messages, loss, cuts | carries bytes, piece by piece, and its rate is changed while they pass |
//! | `policies/queue.rs` | policies against an oracle | knows the future in closed form: an oracle asks when bytes *would* be through, and frames are taken back |
//! | `mez-emulator` | real brokers on this machine | runs by the machine's clock, on datagrams |
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`capacity`] | the capacity of a link in every millisecond, and when a given byte has passed |
//! | [`classes`] | the reference set: calm, mixed and harsh links |
//! | [`links`] | all kinds of link that policies are compared on, from a seed |
//! | [`packet_trace`] | recorded links |
//! | [`timetable`] | the same as steps in whole bits, for links in real time: nothing is known of them beyond what a file says |
//! | [`wifi`] | stations on one medium, calibrated against published measurements |

pub mod capacity;
pub mod classes;
pub mod links;
pub mod packet_trace;
pub mod timetable;
pub mod wifi;
