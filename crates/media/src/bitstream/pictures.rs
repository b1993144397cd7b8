//! One parser for streams of all codecs.

use mez_core::frame::Encoding;

use super::access::{AccessUnit, AccessUnitLimits, AccessUnits, Entry};
use super::av1::Av1Pictures;
use super::error::BitstreamError;
use super::h265::{CodedPicture, H265Pictures};

/// Parses the stream of a source, one packet at a time. Accepts any bytes.
#[derive(Debug)]
pub struct StreamParser(Codec);

#[derive(Debug)]
enum Codec {
    H264(Box<AccessUnits>),
    H265(Box<H265Pictures>),
    Av1(Box<Av1Pictures>),
}

impl StreamParser {
    /// A parser that has seen no packet. `None` if `encoding` is not a video codec.
    #[must_use]
    pub fn new(encoding: Encoding, limits: AccessUnitLimits) -> Option<Self> {
        Some(Self(match encoding {
            Encoding::H264 => Codec::H264(Box::new(AccessUnits::new(limits))),
            Encoding::H265 => Codec::H265(Box::new(H265Pictures::new(limits))),
            Encoding::Av1 => Codec::Av1(Box::new(Av1Pictures::new(limits))),
            _ => return None,
        }))
    }

    /// Reads a container's description of the stream.
    ///
    /// # Errors
    /// [`BitstreamError`]: the description cannot be read. Key pictures may contain the parameter sets nevertheless.
    pub fn describe(&mut self, description: &[u8]) -> Result<(), BitstreamError> {
        match &mut self.0 {
            Codec::H264(units) => return units.configure(description),
            Codec::H265(pictures) => pictures.describe(description),
            Codec::Av1(pictures) => pictures.describe(description),
        }
        Ok(())
    }

    /// The picture of a packet; `None` if it contains none.
    ///
    /// # Errors
    /// [`BitstreamError`]: this picture is lost. After an error, pictures are not `is_unbroken` until the next key picture.
    pub fn packet(&mut self, packet: &[u8]) -> Result<Option<CodedPicture>, BitstreamError> {
        match &mut self.0 {
            Codec::H264(units) => Ok(units.packet(packet)?.map(of_access_unit)),
            Codec::H265(pictures) => pictures.packet(packet),
            Codec::Av1(pictures) => pictures.packet(packet),
        }
    }
}

fn of_access_unit(unit: AccessUnit) -> CodedPicture {
    let AccessUnit { payload, width, height, entry, is_needed, is_unbroken, .. } = unit;
    CodedPicture { payload, width, height, is_key: entry == Some(Entry::Key), is_needed, is_unbroken }
}
