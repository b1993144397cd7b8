//! Collects the policies of others, for comparison with Mez's own. `mez camera --policy` selects one.
//!
//! | module | what it holds | source |
//! | --- | --- | --- |
//! | [`pi`] | the proportional-integral controller of the Mez paper | George et al. 2020, Algorithm 1 |
//! | [`awstream`] | the state machine of AWStream, with both published sets of constants | Zhang et al. 2018 |
//! | [`none`] | the frame as it was published, always | |
//!
//! Policies that only experiments need are in the testbed (`crates/testbed/src/policies/rivals/`).

pub mod awstream;
pub mod none;
pub mod pi;
