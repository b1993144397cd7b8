//! What links carry, millisecond by millisecond.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`capacity`] | what a link carries in every millisecond, and when a given byte is through |
//! | [`classes`] | the reference set: calm, mixed and harsh links |
//! | [`links`] | all kinds of link that policies are compared on, drawn from a seed |
//! | [`packet_trace`] | recorded links |
//! | [`timetable`] | the same as steps, for links in real time |
//! | [`wifi`] | stations on one medium, calibrated against published measurements |

pub mod capacity;
pub mod classes;
pub mod links;
pub mod packet_trace;
pub mod timetable;
pub mod wifi;
