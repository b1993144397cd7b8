//! Everything of Mez that touches the world: sockets, files, clocks, processes.

pub mod api;
pub mod camera;
pub mod clock;
pub mod edge;
pub mod identity;
mod link;
pub mod ports;
pub mod source;
pub mod state;
