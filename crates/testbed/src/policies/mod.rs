//! Compares policies with each other and with an oracle, on links whose whole future is known ([`crate::channel`]).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mod@reference`] | the ladders of the reference set |
//! | [`setting`] | what policies are compared on: a link, cameras, the frames that they capture |
//! | [`ablation`] | the policy with one mechanism after the other switched off |
//! | [`run`] | cameras with policies on one link, in virtual time |
//! | [`livelocks`] | links on which a policy may lock itself out |
//! | [`oracle`] | the best plan of somebody who knows the future |
//! | [`entrants`] | the policies that are compared, each at its best, by name |
//! | [`rivals`] | policies that only experiments need |
//! | [`score`] | what a run was worth |

pub mod ablation;
pub mod entrants;
pub mod livelocks;
pub mod oracle;
mod queue;
pub mod reference;
pub mod rivals;
pub mod run;
pub mod score;
pub mod setting;
