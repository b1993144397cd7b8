//! What the encoder of a library does: the trait that openh264 and x264 implement, and its arguments and results.

use std::fmt;

use bytes::Bytes;
use mez_core::setting::Quantiser;

use super::H264Error;
use crate::image::Yuv420View;

/// What a picture is to be predicted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Independent,
    /// The frame sent before, or what comes nearest to it.
    Previous,
    /// A frame that has been acknowledged; this one or any other.
    Acknowledged(u64),
}

/// A coded picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H264Frame {
    /// The bytes to send (annex B).
    pub payload: Bytes,
    /// The quantiser that it was coded with.
    pub quantiser: Quantiser,
    /// The frame that it is predicted from: the one sent before it, or one that has been acknowledged. `None`: it begins a chain.
    pub refers: Option<u64>,
    /// Whether it is within its budget. If not, nothing smaller can be had at this size.
    pub fits: bool,
    /// How often it was coded.
    pub attempts: u32,
}

/// What the encoder of each library does; [`H264Encoder`] says what is meant.
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
}
