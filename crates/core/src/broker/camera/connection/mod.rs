//! Connections to the edge.

pub(super) mod dialler;
pub(super) mod link;
