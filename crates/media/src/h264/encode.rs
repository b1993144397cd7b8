//! Encodes H.264 with a choice of libraries. [`H264Encoder`] checks sizes; the libraries do the rest (`openh264.rs`, `x264/`).

use std::fmt;
use std::str::FromStr;

use mez_core::setting::{Quantiser, h264_takes};
use thiserror::Error;

use super::coder::{Coder, H264Frame, Wanted};
use super::{H264Error, openh264};
use crate::image::Yuv420View;

/// The library that encodes H.264. It is a property of a camera, not of a rung: one
/// decoder decodes the output of both, and a rung has the same quantiser with both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Library {
    /// openh264, in every build.
    #[default]
    Openh264,
    /// x264, in builds with the feature `x264`, which are subject to its licence (GPL, version 2 or later).
    #[cfg(feature = "x264")]
    X264,
}

impl Library {
    /// The libraries of this build.
    pub const ALL: &[Self] = &[
        Self::Openh264,
        #[cfg(feature = "x264")]
        Self::X264,
    ];

    /// The library's name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Openh264 => "openh264",
            #[cfg(feature = "x264")]
            Self::X264 => "x264",
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a library cannot be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// This build does not have the library; other builds do.
    #[error(
        "this build of Mez has no x264. To build one that has it (and is then subject to the GPL), install libx264-dev and run: make build FEATURES=x264"
    )]
    NotBuilt,
    /// There is no library of that name.
    #[error("there is no such H.264 encoder; choose openh264 or x264")]
    Unknown,
}

impl FromStr for Library {
    type Err = LibraryError;

    fn from_str(name: &str) -> Result<Self, LibraryError> {
        match Self::ALL.iter().find(|library| library.name() == name) {
            Some(library) => Ok(*library),
            None if name == "x264" => Err(LibraryError::NotBuilt),
            None => Err(LibraryError::Unknown),
        }
    }
}

/// Encodes the pictures of one stream.
#[derive(Debug)]
pub struct H264Encoder {
    coder: Box<dyn Coder>,
    size: (u32, u32),
}

impl H264Encoder {
    /// An encoder with openh264, of pictures of this size.
    ///
    /// # Errors
    /// [`H264Error::Size`]; [`H264Error::Codec`] if memory is short.
    pub fn new(width: u32, height: u32) -> Result<Self, H264Error> {
        Self::by(Library::Openh264, width, height)
    }

    /// An encoder with `library`, of pictures of this size.
    ///
    /// # Errors
    /// Those of [`H264Encoder::new`].
    pub fn by(library: Library, width: u32, height: u32) -> Result<Self, H264Error> {
        let even = width.is_multiple_of(2) && height.is_multiple_of(2);
        if !even || !h264_takes((width, height)) {
            return Err(H264Error::Size { width, height });
        }
        let coder: Box<dyn Coder> = match library {
            Library::Openh264 => Box::new(openh264::Encoder::new(width, height)?),
            #[cfg(feature = "x264")]
            Library::X264 => Box::new(super::x264::Encoder::new(width, height)?),
        };
        Ok(Self { coder, size: (width, height) })
    }

    /// Width and height of the pictures.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Encodes the next picture as frame `number`, with the quantiser `finest`, or a coarser one if `bytes_max`
    /// requires it. The picture counts as sent until [`H264Encoder::lost`]. Call that for a picture that does not fit.
    ///
    /// # Errors
    /// [`H264Error::Size`] for a picture of another size; [`H264Error::Codec`]: replace the encoder.
    pub fn encode(
        &mut self,
        picture: &Yuv420View<'_>,
        number: u64,
        wanted: Wanted,
        finest: Quantiser,
        bytes_max: Option<usize>,
    ) -> Result<H264Frame, H264Error> {
        if (picture.width(), picture.height()) != self.size {
            return Err(H264Error::Size { width: picture.width(), height: picture.height() });
        }
        self.coder.encode(picture, number, wanted, finest, bytes_max)
    }

    /// Reports that frame `number` has arrived and was decoded.
    pub fn acknowledge(&mut self, number: u64) {
        self.coder.acknowledge(number);
    }

    /// Reports that frame `number` was not sent, was cancelled, or did not arrive.
    pub fn lost(&mut self, number: u64) {
        self.coder.lost(number);
    }

    /// Allows anchors (`docs/decisions/0047-anchors.md`) with at most this many expected bytes. Default 0: no anchors.
    pub fn set_anchor_bytes_max(&mut self, bytes: usize) {
        self.coder.set_anchor_bytes_max(bytes);
    }

    /// Whether the next picture can be predicted from an acknowledged one.
    #[must_use]
    pub fn can_recover(&self) -> bool {
        self.coder.can_recover()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        for library in Library::ALL {
            assert_eq!(library.to_string().parse(), Ok(*library));
        }
        assert_eq!("x265".parse::<Library>(), Err(LibraryError::Unknown));
        assert_eq!("x264".parse::<Library>().is_ok(), cfg!(feature = "x264"));
    }
}
