//! Implements the protocol of Mez without any input or output.
//!
//! Nothing here reads a clock, opens a socket or a file, starts a thread or waits. Time, randomness and bytes
//! come in as arguments, and actions come out as values. So the same code runs over real sockets (`mez-node`)
//! and, thousands of times, in a deterministic simulation (`mez-testbed`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`units`] | instants, wall-clock times, rates, and the clock that stamps frames |
//! | [`name`] | camera names and the patterns that select them |
//! | [`frame`] | a frame: identity, encoding, rung, chain; why frames were skipped |
//! | [`chain`] | which frames of a chain a decoder holds, and which frame can be decoded next |
//! | [`setting`] | the parsed form of a rung: what exactly is done to a frame |
//! | [`contract`] | what an application requires of a camera, which contracts are kept, and how their state is reported |
//! | [`profile`] | the bytes and the accuracy of each rung, for one application |
//! | [`controller`] | which rung a frame is sent at |
//! | [`clock`] | offset and drift between two monotonic clocks from four-timestamp exchanges |
//! | [`buffer`] | a pool of payload buffers |
//! | [`reader_memory`] | bounds on the memory held for readers that have not taken their frames |
//! | [`allowance`] | a rate limit for reads of the past |
//! | [`data`] | records that are not pictures: a content type, the frame they were made of, and bytes |
//! | [`ancestors`] | which frames of a log must be decoded before a given frame |
//! | [`log`] | the in-memory, append-only, circular log: one writer, many readers |
//! | [`stills`] | stills made of chains on demand, once for all readers that request them |
//! | [`store`] | the same log on disk: format, background writer, recovery (`docs/log-format.md`) |
//! | [`history`] | which frame of the past comes next, and where it is requested |
//! | [`subscription`] | how one application reads logs: newest or every frame, past or live |
//! | [`source`] | whether a camera's source gives frames |
//! | [`session`] | one subscription as the edge serves it: its frames, its contract, its requests |
//! | [`join`] | joins frames with the records that were made of them |
//! | [`group`] | several readers that share the records of one subscription |
//! | [`window`] | how many bytes a connection may have in the network at once |
//! | [`trace`] | when a frame passed each stage, from the camera to the application |
//! | [`wire`] | the bytes that cross the link (`docs/wire.md`) |
//! | [`rights`] | who may do what with which camera |
//! | [`revocation`] | the site's deny list |
//! | [`renewal`] | when a member asks for its next certificate |
//! | [`audit`] | the audit log: who did what at an edge, in records that are chained by their hashes |
//! | [`admission`] | who may wait at a port before authentication, and which connection closes when too many wait |
//! | [`answers`] | pictures that applications make of frames, on their way back to the camera |
//! | [`broker`] | the camera broker and the edge broker as state machines |

pub mod admission;
pub mod allowance;
pub mod ancestors;
pub mod answers;
pub mod audit;
pub mod broker;
pub mod buffer;
pub mod chain;
pub mod clock;
pub mod contract;
pub mod controller;
pub mod data;
pub mod frame;
pub mod group;
pub mod history;
pub mod join;
pub mod log;
pub mod name;
pub mod profile;
pub mod reader_memory;
pub mod renewal;
pub mod revocation;
pub mod rights;
#[cfg(test)]
mod sample;
pub mod session;
pub mod setting;
pub mod source;
pub mod stills;
pub mod store;
pub mod subscription;
mod sync;
pub mod trace;
pub mod units;
pub mod window;
pub mod wire;
