//! Pixels: what Mez does to the inside of a frame.
//!
//! This is the only crate with native code (libjpeg-turbo and openh264, built from source and linked statically; with the feature `x264`
//! the system's libx264). It knows nothing of brokers, sockets or clocks, and does no I/O.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`stream`] | one stream's frames in and out: what a rung makes of a frame, and what of it is shown |
//! | [`image`] | views of pixels that somebody else owns, checked once at the border; an owned, reusable image |
//! | [`jpeg`] | encode, decode, look at the header, find damage, cut a byte stream into frames |
//! | [`png`] | lossless stills |
//! | [`resize`] | scale an image down |
//! | [`knobs`] | the five knobs of the Mez paper |
//! | [`yuv`] | planar images, and their conversion |
//! | [`h264`] | video with a byte budget for every frame |
//! | [`tiles`] | JPEG of the tiles that changed |
//! | [`worker`] | native code under a deadline |
//! | [`encoding`] | tell by its first bytes how an image is encoded |
//!
//! Invariants:
//! - Bytes from outside become errors, never panics, and never an allocation larger than the limit that the
//!   caller set: sizes are read from the header and checked before memory is taken.
//! - An encoder or decoder carries no state from one image to the next: the same input gives the same output,
//!   whatever came before.

pub mod encoding;
pub mod h264;
pub mod image;
pub mod jpeg;
pub mod knobs;
pub mod png;
pub mod resize;
pub mod stream;
pub mod tiles;
pub mod worker;
pub mod yuv;

pub use encoding::{Encoding, sniff};
pub use image::{Image, ImageError, ImageView, ImageViewMut, PixelFormat, Yuv420View};
pub use yuv::Yuv420;
