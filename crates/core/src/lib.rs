//! The protocol of Mez without its input and output.
//!
//! Nothing here reads a clock, opens a socket or a file, starts a thread or waits: time, randomness and
//! bytes come in as arguments, and what has to happen comes out as values. The same code therefore runs
//! under real sockets (`mez-node`) and, thousands of times, in a deterministic world (`mez-testbed`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`units`] | instants, wall-clock times, rates, and the clock that stamps frames |
//! | [`name`] | camera names and the patterns that select them |
//! | [`frame`] | a frame: identity, encoding, rung, chain; why frames were skipped |
//! | [`setting`] | a rung in parts: what exactly is done to a frame |
//! | [`contract`] | what an application asks of a camera, whose contracts are kept, and what applications are told of it |
//! | [`profile`] | what each rung costs and keeps, for one application |
//! | [`controller`] | which rung a frame is sent at |
//! | [`clock`] | offset and drift between two monotonic clocks from four-timestamp exchanges |
//! | [`buffer`] | memory of payloads, used again |
//! | [`log`] | the in-memory, append-only, circular log: one writer, many readers |
//! | [`store`] | the same log on disk: format, background writer, recovery (`docs/log-format.md`) |
//! | [`history`] | which frame of the past comes next, and who is asked for it |
//! | [`subscription`] | how one application reads logs: newest or every frame, past or live |
//! | [`session`] | one subscription as it is served: its frames, its contract, what it asks meanwhile |
//! | [`window`] | how much a connection may have in the network at once |
//! | [`trace`] | where a frame was when, from the camera to the application's hands |
//! | [`wire`] | the bytes that cross the link (`docs/wire.md`) |
//! | [`admission`] | who may wait at a port before it has proved who it is, and who goes when there are too many |
//! | [`broker`] | the camera broker and the edge broker as state machines |

pub mod admission;
pub mod broker;
pub mod buffer;
pub mod clock;
pub mod contract;
pub mod controller;
pub mod frame;
pub mod history;
pub mod log;
pub mod name;
pub mod profile;
pub mod session;
pub mod setting;
pub mod store;
pub mod subscription;
mod sync;
pub mod trace;
pub mod units;
pub mod unread;
pub mod window;
pub mod wire;
