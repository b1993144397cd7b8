//! Holds the camera broker and the edge broker, as state machines without I/O.
//!
//! Both follow one contract. The driver of a broker
//! 1. tells the broker what happened through `handle_*`, each with the present instant;
//! 2. then calls `poll_output` until it returns `None`, and carries out each output;
//! 3. then waits for the next event, at most until `poll_timeout`, and goes on with `handle_timeout`.
//!
//! `examples/one_screen.rs` of this crate drives both brokers that way, on one screen.
//!
//! The broker itself never sends, writes or waits. [`Intake`] stamps published frames and appends
//! them to the camera's log, on the publisher's own thread. So publishing never waits for a broker.

pub mod camera;
pub mod edge;
mod epochs;
mod intake;
mod revocations;

use std::time::Duration;

pub use self::epochs::{EPOCH_BASE, EPOCH_JUMP_MAX, EPOCH_MAX, EPOCH_RAISE_MAX, highest_believed};
pub use self::intake::{
    CAPTURED_MAX, Intake, IntakeConfig, PublishError, PublishPartError, Published, StreamPart,
};

/// Identifies a connection between a camera broker and an edge broker. The driver assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The index of an edge in the order in which a camera prefers its edges, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeIndex(pub usize);

/// The highest epoch and the highest sequence that a camera may use. Beyond it, arithmetic would wrap. Even
/// one start or one frame per nanosecond takes 292 years to reach it, so a higher number is always wrong.
pub const NUMBER_MAX: u64 = u64::MAX >> 1;
/// How often each side sends a ping.
pub const PING_INTERVAL: Duration = Duration::from_millis(250);
/// How often each side sends a ping on a resting link: its path is measured, nobody wants frames of its camera, and the last ping was answered.
pub const REST_PING_INTERVAL: Duration = Duration::from_secs(1);
/// After this long without a message from the edge, the camera dials again, and keeps the old connection meanwhile.
pub const PEER_SILENCE_MAX: Duration = Duration::from_millis(750);
/// The same on a resting link: after an answered ping, the next one comes later.
pub const REST_SILENCE_MAX: Duration = REST_PING_INTERVAL.saturating_add(PEER_SILENCE_MAX);
/// How often the camera dials while no connection of it works.
pub const REDIAL_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time for one attempt to connect. The driver then ends the attempt. Attempts run in parallel, so a slow one delays no other.
pub const DIAL_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the camera waits after a refusal that will not soon change by itself.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(5);
