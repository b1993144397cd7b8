//! Helpers for stories: short summaries of what an application got. Each file of stories uses some of them.

#![allow(dead_code, reason = "each file of stories uses some of them")]

use std::time::Duration;

use mez_core::frame::SkipCounts;
use mez_testbed::{ApplicationId, Delivered, Moment, World};

/// How long after `moment` the application got its next frame that was published after `moment`.
pub fn resumed_after(world: &World, application: ApplicationId, moment: Moment) -> Duration {
    let next = world.deliveries_since(application, moment).iter().find(|got| got.published >= moment);
    next.unwrap_or_else(|| panic!("nothing came after {moment}")).at.since(moment)
}

/// The age of the oldest frame.
pub fn ages_max(got: &[Delivered]) -> Duration {
    got.iter().map(Delivered::age).max().expect("something was delivered")
}

/// The sum of all skipped frames.
pub fn skipped(got: &[Delivered]) -> SkipCounts {
    got.iter().fold(SkipCounts::default(), |mut sum, got| {
        sum.merge(&got.skipped);
        sum
    })
}

/// All skipped frames, by reason.
pub fn reasons(got: &[Delivered]) -> Vec<(&'static str, u64)> {
    skipped(got).iter().map(|(reason, count)| (reason.name(), count)).collect()
}

/// The sequences, in order.
pub fn sequences(got: &[Delivered]) -> Vec<u64> {
    got.iter().map(|got| got.frame.sequence.0).collect()
}
