//! Collects published policies, for comparison with Mez's own. `mez camera --policy` selects one.
//!
//! | module | what it holds | source |
//! | --- | --- | --- |
//! | [`pi`] | the proportional-integral controller of the Mez paper | George et al. 2020, Algorithm 1 |
//! | [`awstream`] | the state machine of AWStream, with both published sets of constants | Zhang et al. 2018 |
//! | [`none`] | every frame at the best rung, without adaptation | |
//!
//! Policies for experiments only are in the testbed (`crates/testbed/src/policies/rivals/`).

pub mod awstream;
pub mod none;
pub mod pi;
