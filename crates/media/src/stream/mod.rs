//! Encodes one camera's frames at a rung, and decodes them for applications.
//!
//! [`StreamEncoder`] holds the state of encoding: codecs, the frames that the knobs remember, the chain. It takes a frame,
//! a [`Setting`], a byte budget and what to predict from. It returns a payload with its place in a chain. [`StreamDecoder`]
//! decodes to BGR. [`Transcoder`] turns chained frames into stills at the edge. [`show()`] decodes stills for applications.
//!
//! [`Setting`]: mez_core::setting::Setting

mod decode;
mod encode;
mod error;
mod picture;
mod show;
mod source;
mod transcode;

use std::time::Duration;

pub use decode::{StreamDecodeError, StreamDecoder};
pub use encode::{Encoded, Outcome, Request, StreamEncoder};
pub use error::StreamEncodeError;
pub use picture::{OwnedPicture, Picture};
pub use show::show;
pub use source::Source;
pub use transcode::{Still, TRANSCODED_QUALITY, TranscodeError, Transcoder, jpeg_of};

/// Maximum time from the capture of a chain's first frame to that of its last. A reader that joins late waits at most this long for a keyframe.
pub const CHAIN_DURATION_MAX: Duration = Duration::from_secs(10);
