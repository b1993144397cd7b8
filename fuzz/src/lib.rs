//! What the fuzzers do with their bytes: each target is a function of this library, so that `cargo test` can run every
//! committed input through it with a stable compiler (`tests/seeds.rs`), and libFuzzer new ones with a nightly one.
//!
//! | target | what it feeds | what must hold, besides that nothing panics or hangs |
//! | --- | --- | --- |
//! | [`wire_message`] | the control stream, in pieces | pieces change nothing; what was decoded survives encoding |
//! | [`frame_header`] | a frame's header | what was decoded survives encoding and stays within the limit |
//! | [`camera_pattern`] | patterns and names | matching agrees with a second, slower matcher |
//! | [`jpeg`](jpeg()) | images and streams of them | no more pixels than allowed; what the splitter cuts is whole |
//! | [`tiles`](tiles()) | two frames of changed tiles | a frame that is refused changes nothing |
//! | [`stream`](stream()) | frames of a stream, of every encoding | what is refused says why; independent frames need no other |
//! | [`log_segments`](log_segments()) | a log on disk, edited | only frames that were written come back, in one piece |
//! | [`api_request`] | requests of applications and publishers | what is taken is valid, what is not says why |
//! | [`edge_broker`](edge_broker()) | a script of events | see [`mod@edge_broker`] |
//! | [`camera_broker`](camera_broker()) | a script of events | see [`mod@camera_broker`] |
//!
//! A failing input becomes a regression test by putting it into `seeds/TARGET/`; one of a broker, as text into `scripts/TARGET/`. See `seeds.rs`.

pub mod api;
pub mod camera_broker;
pub mod edge_broker;
mod jpeg;
pub mod log_segments;
mod pattern;
mod profiles;
pub mod script;
pub mod seeds;
pub mod stream;
pub mod text;
pub mod tiles;
mod wire;

pub use self::api::api_request;
pub use self::camera_broker::run as camera_broker;
pub use self::edge_broker::run as edge_broker;
pub use self::jpeg::jpeg;
pub use self::log_segments::log_segments;
pub use self::pattern::camera_pattern;
pub use self::stream::stream;
pub use self::tiles::tiles;
pub use self::wire::{frame_header, wire_message};

/// A target by its name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    Some(match name {
        "api_request" => api_request,
        "camera_broker" => camera_broker,
        "camera_pattern" => camera_pattern,
        "edge_broker" => edge_broker,
        "frame_header" => frame_header,
        "jpeg" => jpeg,
        "log_segments" => log_segments,
        "stream" => stream,
        "tiles" => tiles,
        "wire_message" => wire_message,
        _ => return None,
    })
}
