//! Compares policies with each other and with an oracle, on links whose whole future is known ([`crate::channel`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@reference`] | the ladders of the reference set |
//! | [`setting`] | settings for comparisons of policies: a link, cameras, their frames |
//! | [`ablation`] | the policy with its mechanisms switched off one by one |
//! | [`run`] | runs of cameras with policies on one link, in virtual time |
//! | [`livelocks`] | links on which a policy may lock itself out |
//! | [`oracle`] | the best plan with known future |
//! | [`entrants`] | the compared policies, each with its best constants, by name |
//! | [`rivals`] | policies that only experiments use |
//! | [`score`] | scores of runs |

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
