//! `mez._native`: the compiled half of the Python package `mez`.
//!
//! This crate only translates between Python and Rust. Its stub, `python/mez/_native.pyi`,
//! lists its interface. Users see `python/mez`, which is built on it.
//!
//! | module | what it contains |
//! | --- | --- |
//! | `runtime` | the runtime of all objects; interruptible waiting; forks |
//! | `pixels` | Python buffers as images, JPEG in and out |
//! | `publisher` | publishing through a camera broker in this process, or `through` a separate one or an edge |
//! | `knobs` | the knobs of a stream's data records, and the calls of its function |
//! | `client`, `options` | a connection to an edge broker; the options of a subscription |
//! | `subscription` | frames as they come, for threads and for event loops |
//! | `frame` | a frame and its bytes |
//! | `join` | joins frames with the records that were made of them |
//! | `answers` | pictures made of frames: encoded on the way back, and passed to publishers |
//! | `reply`, `note` | results of applications; notes about frames |
//! | `edge` | an edge broker inside this process |
//! | `error` | converts errors to the exceptions of `mez.errors` |
//! | `stream` | encodes frames at a rung without a broker, to measure rungs |
//! | `log` | what brokers log, for Python's `logging` |
//! | `keys`, `cli` | folders of keys; the command `mez` |
//!
//! Two rules: no code waits, encodes or decodes while it is attached to the
//! interpreter, and no thread of the runtime ever attaches to the interpreter.

mod answers;
mod cli;
mod client;
mod edge;
mod edges;
mod error;
mod frame;
mod join;
mod keys;
mod knobs;
mod log;
mod note;
mod options;
mod persist;
mod pixels;
mod publisher;
mod reply;
mod runtime;
mod stream;
mod subscription;
mod through;

/// The compiled half of the package `mez`; import `mez` instead.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::cli::cli_main;
    #[pymodule_export]
    use crate::client::{CameraRecord, Client};
    #[pymodule_export]
    use crate::edge::Edge;
    #[pymodule_export]
    use crate::frame::{Arrival, Payload, Picture};
    #[pymodule_export]
    use crate::join::Join;
    #[pymodule_export]
    use crate::knobs::Knobs;
    #[pymodule_export]
    use crate::pixels::{
        decode_into, decode_overlay_into, draw_overlay, encode_jpeg, encode_png, resize_into,
    };
    #[pymodule_export]
    use crate::publisher::Publisher;
    #[pymodule_export]
    use crate::stream::{Coded, Stream, default_rungs, rung_facts};
    #[pymodule_export]
    use crate::subscription::{Ending, Notice, Subscription};

    /// Version of Mez, the same for the Rust crates and the Python package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The most pixels that an image may have in order to be decoded.
    #[pymodule_export]
    const PIXELS_MAX: u64 = mez_media::jpeg::PIXELS_MAX_DEFAULT;
}
