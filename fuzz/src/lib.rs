//! The fuzz targets, as functions of a library. So `cargo test` runs every committed input with
//! a stable compiler (`tests/inputs.rs`), and libFuzzer runs new inputs with a nightly compiler.
//!
//! | target | its input | what must hold, besides that nothing panics or hangs |
//! | --- | --- | --- |
//! | [`wire_message`] | the control stream, in pieces | the cut into pieces changes nothing; a decoded message survives encoding |
//! | [`frame_header`] | a frame's header | a decoded header survives encoding and stays within the limit |
//! | [`camera_pattern`] | patterns and names | matching agrees with a second, slower matcher |
//! | [`jpeg`](jpeg()) | images and streams of them | no more pixels than allowed; the splitter cuts complete images |
//! | [`tiles`](tiles()) | two frames of changed tiles | a refused frame changes nothing |
//! | [`stream`](stream()) | frames of a stream, of every encoding | a refusal gives a reason; keyframes and stills need no other frame |
//! | [`h264_access_units`](access_units()) | H.264 of other encoders | the cut into pieces changes nothing; key frames stand alone; limits hold |
//! | [`nut`](nut()) | output of ffmpeg's pipe | the cut into pieces changes nothing; no packet is larger than allowed |
//! | [`log_segments`](log_segments()) | a log on disk, edited | only frames that were written are recovered, unchanged |
//! | [`api_request`] | requests of applications and publishers | an accepted request is valid; a refusal gives a reason |
//! | [`deny_list`](deny_list()) | a deny list, its signature, its file | a trusted list was signed by the authority; equal lists have equal bytes |
//! | [`edge_broker`](edge_broker()) | a script of events | see [`mod@edge_broker`] |
//! | [`camera_broker`](camera_broker()) | a script of events | see [`mod@camera_broker`] |
//!
//! To make a regression test of a failing input, put it into `seeds/TARGET/`; for a broker, put it as text into `scripts/TARGET/`. See `seeds.rs`.

pub mod access_units;
pub mod api;
pub mod camera_broker;
pub mod deny_list;
pub mod edge_broker;
mod jpeg;
pub mod log_segments;
pub mod nut;
mod pattern;
mod profiles;
pub mod script;
pub mod seeds;
pub mod stream;
mod surveys;
pub mod text;
pub mod tiles;
mod wire;

pub use self::access_units::access_units;
pub use self::api::api_request;
pub use self::camera_broker::run as camera_broker;
pub use self::deny_list::deny_list;
pub use self::edge_broker::run as edge_broker;
pub use self::jpeg::jpeg;
pub use self::log_segments::log_segments;
pub use self::nut::nut;
pub use self::pattern::camera_pattern;
pub use self::stream::stream;
pub use self::tiles::tiles;
pub use self::wire::{frame_header, wire_message};

/// The target with this name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    Some(match name {
        "api_request" => api_request,
        "camera_broker" => camera_broker,
        "camera_pattern" => camera_pattern,
        "deny_list" => deny_list,
        "edge_broker" => edge_broker,
        "frame_header" => frame_header,
        "h264_access_units" => access_units,
        "jpeg" => jpeg,
        "log_segments" => log_segments,
        "nut" => nut,
        "stream" => stream,
        "tiles" => tiles,
        "wire_message" => wire_message,
        _ => return None,
    })
}
