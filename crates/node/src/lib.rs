//! Everything of Mez that touches the world: sockets, files, clocks, processes.

pub mod identity;
pub mod ports;
pub mod camera;
pub mod clock;
pub mod edge;
pub mod state;
mod link;
pub mod source;
