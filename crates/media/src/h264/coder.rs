//! The trait of all H.264 encoders ([`Coder`]), with its arguments and its result.

use std::fmt;

use bytes::Bytes;
use mez_core::setting::Quantiser;

use super::H264Error;
use crate::image::Yuv420View;

/// What to predict a picture from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Independent,
    /// The frame sent before, or the nearest one that can be referred to. For an
    /// anchor, the encoder may choose an older acknowledged one (`anchors.rs`).
    Previous,
    /// An acknowledged frame: this one if possible, otherwise any.
    Acknowledged(u64),
}

/// A coded picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H264Frame {
    /// The payload to send (annex B).
    pub payload: Bytes,
    /// The quantiser used.
    pub quantiser: Quantiser,
    /// The frame that it is predicted from: the one sent before it, or an acknowledged one. `None`: it begins a chain.
    pub refers: Option<u64>,
    /// Whether it is within its budget. If not, no quantiser makes it small enough at this size.
    pub fits: bool,
    /// How often it was coded.
    pub attempts: u32,
}

/// The encoder of one library. [`H264Encoder`](super::H264Encoder) documents the methods.
pub(super) trait Coder: fmt::Debug + Send {
    fn encode(
        &mut self,
        picture: &Yuv420View<'_>,
        number: u64,
        wanted: Wanted,
        finest: Quantiser,
        bytes_max: Option<usize>,
    ) -> Result<H264Frame, H264Error>;
    fn acknowledge(&mut self, number: u64);
    fn lost(&mut self, number: u64);
    fn can_recover(&self) -> bool;

    /// See [`H264Encoder::set_anchor_bytes_max`](super::H264Encoder::set_anchor_bytes_max). Encoders without anchors ignore it.
    fn set_anchor_bytes_max(&mut self, _: usize) {}
}
