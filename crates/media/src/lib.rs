//! Encodes, decodes and transforms frames.
//!
//! This is the only crate with native code: libjpeg-turbo and openh264, built from source and linked statically, and with the feature
//! `x264` the system's libx264. It does no I/O and has no clock.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`stream`] | encodes one stream at a rung, and decodes it |
//! | [`image`] | checked views of borrowed pixels; an owned, reusable image |
//! | [`jpeg`] | encodes and decodes JPEG, reads headers, finds damage, cuts a byte stream into frames |
//! | [`png`] | lossless stills |
//! | [`fit`] | encodes with at most a given number of bytes |
//! | [`resize`] | scales an image down |
//! | [`knobs`] | the five knobs of the Mez paper |
//! | [`yuv`] | planar images and their conversion |
//! | [`h264`] | video with a byte budget for every frame |
//! | [`bitstream`] | the H.264, H.265 and AV1 of cameras and files: pictures, key frames, parameter sets |
//! | [`platform`] | decodes H.265 and AV1 with decoders from the caller |
//! | [`nut`] | reads packets from ffmpeg's pipe |
//! | [`overlay`] | pictures with alpha, drawn over other pictures |
//! | [`tiles`] | JPEG of the tiles that changed |
//! | [`trial`] | test pictures for codecs, and a measure of how much a decoded picture differs |
//! | [`worker`] | runs native code under a deadline |
//! | [`encoding`] | recognises an image's encoding by its first bytes |
//!
//! Invariants:
//! - Bytes from outside become errors, never panics, and never an allocation above the
//!   caller's limit: sizes are read from the header and checked before memory is taken.
//! - An encoder or decoder of single images carries no state from one image to the next: the same input always gives the same output.

pub mod bitstream;
pub mod encoding;
pub mod fit;
pub mod h264;
pub mod image;
pub mod jpeg;
pub mod knobs;
pub mod nut;
pub mod overlay;
pub mod platform;
pub mod png;
pub mod resize;
pub mod stream;
pub mod tiles;
pub mod trial;
pub mod worker;
pub mod yuv;

pub use encoding::{Encoding, sniff};
pub use image::{Image, ImageError, ImageView, ImageViewMut, PixelFormat, Yuv420View};
pub use yuv::Yuv420;
