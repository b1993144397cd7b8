//! Policies against each other and against an oracle, on links whose whole future is known.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`capacity`] | what a link carries in every millisecond, and when a given byte is through |
//! | [`mod@reference`] | the reference set: calm, mixed and harsh links, and its ladder |
//! | [`links`] | steps, outages, a cell, a walk, an elevator |
//! | [`packet_trace`] | recorded links |
//! | [`setting`] | what policies are compared on: a link, cameras, the frames that they capture |
//! | [`run`] | cameras with policies on one link, in virtual time |
//! | [`oracle`] | the best plan of somebody who knows the future |
//! | [`entrants`] | the policies that are compared, each at its best |
//! | [`score`] | what a run was worth |

pub mod capacity;
pub mod chance;
pub mod entrants;
pub mod links;
pub mod oracle;
pub mod packet_trace;
mod queue;
pub mod reference;
pub mod run;
pub mod score;
pub mod setting;
