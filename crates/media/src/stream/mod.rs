//! One camera's frames, in and out: what a rung makes of a frame, and what an application sees of it.
//!
//! [`StreamEncoder`] holds all state that encoding a stream needs: codecs, the knobs' memory of earlier frames, the chain. It is
//! given a frame, a [`Setting`], a byte budget and what to predict from, and gives a payload with its place in a chain.
//! [`StreamDecoder`] is the other end: it decodes what it can, to BGR, and says of the rest what it lacks. [`Transcoder`] makes stills of what it
//! decodes, as the edge does, and [`show()`] pixels of stills, as applications do.
//!
//! [`Setting`]: mez_core::setting::Setting

mod decode;
mod encode;
mod error;
mod show;
mod source;
mod transcode;

use std::time::Duration;

pub use decode::{Picture, StreamDecodeError, StreamDecoder};
pub use encode::{Encoded, Outcome, Predict, Request, StreamEncoder};
pub use error::StreamEncodeError;
pub use show::show;
pub use source::Source;
pub use transcode::{Still, TRANSCODED_QUALITY, TranscodeError, Transcoder, jpeg_of};

/// The longest time that a chain covers, from the capture of its first frame to that of its last: who joins late waits no
/// longer than this for a frame that decodes by itself.
pub const CHAIN_DURATION_MAX: Duration = Duration::from_secs(10);
