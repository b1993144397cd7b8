//! Models what links can carry, millisecond by millisecond.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`capacity`] | the capacity of a link in every millisecond, and when a given byte has passed |
//! | [`classes`] | the reference set: calm, mixed and harsh links |
//! | [`links`] | all kinds of link that policies are compared on, from a seed |
//! | [`packet_trace`] | recorded links |
//! | [`timetable`] | the capacity of a link as steps, for links in real time |
//! | [`wifi`] | Wi-Fi stations on one medium, calibrated against published measurements |

pub mod capacity;
pub mod classes;
pub mod links;
pub mod packet_trace;
pub mod timetable;
pub mod wifi;
