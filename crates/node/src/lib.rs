//! Connects Mez to the outside world: sockets, files, clocks and processes.

pub mod api;
pub mod background;
pub mod camera;
pub mod client;
pub mod clock;
mod codec;
pub mod descriptors;
pub mod edge;
pub mod export;
pub mod feed;
pub mod identity;
mod link;
pub mod local;
mod lock;
pub mod memory;
pub mod notes;
pub mod persist;
pub mod ports;
pub mod process;
pub mod profile;
pub mod profiles;
mod reading;
pub mod reply;
pub mod rights;
pub mod runtime;
pub mod source;
pub mod state;
