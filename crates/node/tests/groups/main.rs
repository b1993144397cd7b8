//! Groups with real brokers.

#[path = "../api_support/mod.rs"]
mod api_support;
mod given;
mod owners;
mod restarts;
mod support;
