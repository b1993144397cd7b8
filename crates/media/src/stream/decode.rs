//! Decodes the frames of one stream to BGR. If a frame cannot be decoded, the error says what is missing.

use std::sync::Arc;
use std::time::Duration;

use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use thiserror::Error;

use super::picture::Picture;
use crate::h264::{H264Decoder, H264Error, OutsideDecoders};
use crate::image::{Image, ImageError, ImageView, PixelFormat};
use crate::jpeg::{self, DecodeError};
use crate::platform::{PlatformDecoder, PlatformDecoders, PlatformError};
use crate::png::{self, PngError};
use crate::tiles::{TileDecoder, TileError};

/// How long a decoder of the platform may take for its first picture, and for each later picture. It is a separate process, and the host may be busy.
const PLATFORM_TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(500));

/// Why a frame could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamDecodeError {
    /// The frame is a data record.
    #[error("it is a data record and has no pixels; read its bytes by its content type")]
    NotPicture,
    /// The frame needs a frame that the decoder does not hold: that frame was lost, or the decoder joined the chain too late.
    #[error("frame {} needs frames of chain {} that are not held; wait for the next independent frame", sequence.0, chain.0)]
    NotHeld {
        /// The frame.
        sequence: Sequence,
        /// The chain.
        chain: Sequence,
    },
    /// A later frame of the same chain was already decoded.
    #[error("frame {} of chain {} came after a later frame; drop it", sequence.0, chain.0)]
    TooLate {
        /// The frame.
        sequence: Sequence,
        /// The chain.
        chain: Sequence,
    },
    /// The frame's place in the chain is contradictory.
    #[error("frame {} cannot be number {index} of chain {}", sequence.0, chain.0)]
    Link {
        /// The frame.
        sequence: Sequence,
        /// The chain.
        chain: Sequence,
        /// The frame's index in the chain.
        index: u32,
    },
    /// Frames of this encoding need others, so they are not stills.
    #[error("{} frames need others to be decoded; decode the whole stream", encoding.name())]
    NotStill {
        /// The encoding.
        encoding: Encoding,
    },
    /// The image has another size than stated.
    #[error("the image has {}x{} pixels, not {}x{}", is.0, is.1, stated.0, stated.1)]
    Size {
        /// Actual width and height, in pixels.
        is: (u32, u32),
        /// The width and height that the frame's header states, in pixels.
        stated: (u32, u32),
    },
    /// The payload has more bytes than the pixels need.
    #[error("{bytes} bytes are more than the {expected} of an image of the stated size")]
    Bytes {
        /// Actual bytes.
        bytes: usize,
        /// Expected bytes.
        expected: usize,
    },
    /// The JPEG decoder's error.
    #[error(transparent)]
    Jpeg(#[from] DecodeError),
    /// The PNG decoder's error.
    #[error(transparent)]
    Png(#[from] PngError),
    /// The tile decoder's error.
    #[error(transparent)]
    Tiles(#[from] TileError),
    /// The H.264 decoder's error.
    #[error(transparent)]
    H264(#[from] H264Error),
    /// The error of a decoder of H.265 or AV1.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// The raw pixels have another size than stated.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Errors of the decoders of chains.
enum Failure {
    H264(H264Error),
    Platform(PlatformError),
    Tiles(TileError),
}

/// The frame of a chain that was decoded last.
#[derive(Debug, Clone, Copy)]
struct Held {
    encoding: Encoding,
    chain: Sequence,
    index: u32,
    sequence: Sequence,
    /// Whether the decoder has the frame's picture.
    is_shown: bool,
}

/// Decodes the frames of one stream to BGR, 8 bits per channel. Give it the frames of a chain in order, with all frames that they
/// need, even those whose pictures are not wanted. A frame that cannot be decoded is an error; the decoder never invents pixels.
#[derive(Debug)]
pub struct StreamDecoder {
    pixels_max: u64,
    jpeg: jpeg::Decoder,
    h264: H264Decoder,
    platform: PlatformDecoder,
    tiles: TileDecoder,
    held: Option<Held>,
    image: Image,
}

impl StreamDecoder {
    /// A decoder of frames of at most `pixels_max` pixels. It holds no frame.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        Self {
            pixels_max,
            jpeg: jpeg::Decoder::new(pixels_max),
            h264: H264Decoder::new(pixels_max),
            platform: PlatformDecoder::new(pixels_max, None),
            tiles: TileDecoder::new(pixels_max),
            held: None,
            image: Image::empty(),
        }
    }

    /// Adds decoders of H.264 that are used beside the library ([`OutsideDecoders`]).
    #[must_use]
    pub fn with_outside(mut self, outside: Arc<dyn OutsideDecoders>) -> Self {
        self.h264 = self.h264.with_outside(outside);
        self
    }

    /// Adds decoders of H.265 and AV1. Without them, frames of these encodings cannot be decoded.
    #[must_use]
    pub fn with_platform(mut self, decoders: Arc<dyn PlatformDecoders>) -> Self {
        self.platform = PlatformDecoder::new(self.pixels_max, Some(decoders));
        self
    }

    /// Decodes a frame. `size` (width, height) is stated by the frame's header, and is used only for raw pixels.
    ///
    /// # Errors
    /// [`StreamDecodeError`]. [`StreamDecodeError::NotHeld`] and [`StreamDecodeError::TooLate`] occur in normal operation.
    /// After them, frames can be decoded again from the next independent frame, or from a frame that refers to a held one.
    pub fn decode(
        &mut self,
        encoding: Encoding,
        sequence: Sequence,
        link: &ChainLink,
        size: (u32, u32),
        payload: &[u8],
    ) -> Result<&Image, StreamDecodeError> {
        match encoding {
            Encoding::Jpeg => {
                self.jpeg.decode_bgr(payload, &mut self.image)?;
            }
            Encoding::Png => {
                png::decode(payload, self.pixels_max, &mut self.image)?;
                to_colour(&mut self.image);
            }
            Encoding::Bgr8 => self.raw(payload, size, PixelFormat::Bgr8)?,
            Encoding::Gray8 => self.raw(payload, size, PixelFormat::Gray8)?,
            Encoding::Data => return Err(StreamDecodeError::NotPicture),
            Encoding::H265 | Encoding::Av1 => {
                let mut image = std::mem::take(&mut self.image);
                if let Picture::Planes(planes) = self.advance(encoding, sequence, link, payload)? {
                    planes.to_bgr(&mut image);
                }
                self.image = image;
            }
            Encoding::H264 | Encoding::Tiles => {
                let refers = self.admit(encoding, sequence, link)?;
                let shown = if encoding == Encoding::H264 {
                    let decoded = self.h264.decode(payload, sequence.0, refers.map(|sequence| sequence.0));
                    decoded.map_err(Failure::H264)
                } else {
                    tiles(&mut self.tiles, payload, refers).map_err(Failure::Tiles)
                };
                let image = settle(&mut self.held, (encoding, sequence, link), true, shown)?;
                if image.format() != PixelFormat::Gray8 {
                    return Ok(image);
                }
                self.image.clone_from(image);
                to_colour(&mut self.image);
            }
        }
        Ok(&self.image)
    }

    /// Decodes a frame of a chain, and returns the picture in the codec's own format, for callers that encode it again.
    ///
    /// # Errors
    /// Those of [`StreamDecoder::decode`]; [`StreamDecodeError::Link`] also for frames that are not in a chain.
    pub fn advance(
        &mut self,
        encoding: Encoding,
        sequence: Sequence,
        link: &ChainLink,
        payload: &[u8],
    ) -> Result<Picture<'_>, StreamDecodeError> {
        if !encoding.is_chained() {
            return Err(StreamDecodeError::Link { sequence, chain: link.chain, index: link.index });
        }
        let refers = self.admit(encoding, sequence, link)?;
        let frame = (sequence.0, refers.map(|sequence| sequence.0));
        let shown = match encoding {
            Encoding::H264 => {
                self.h264.decode_planes(payload, frame.0, frame.1).map(Picture::Planes).map_err(Failure::H264)
            }
            Encoding::H265 | Encoding::Av1 => self
                .platform
                .decode(encoding, payload, frame.0, frame.1, PLATFORM_TIMES)
                .map(Picture::Planes)
                .map_err(Failure::Platform),
            _ => tiles(&mut self.tiles, payload, refers).map(Picture::Image).map_err(Failure::Tiles),
        };
        settle(&mut self.held, (encoding, sequence, link), true, shown)
    }

    /// Decodes a frame only because later frames need it. This saves a copy of the picture if the codec allows.
    ///
    /// # Errors
    /// Those of [`StreamDecoder::advance`].
    pub fn pass(
        &mut self,
        encoding: Encoding,
        sequence: Sequence,
        link: &ChainLink,
        payload: &[u8],
    ) -> Result<(), StreamDecodeError> {
        if encoding != Encoding::H264 {
            return self.advance(encoding, sequence, link, payload).map(drop);
        }
        let refers = self.admit(encoding, sequence, link)?;
        let passed = self.h264.pass(payload, sequence.0, refers.map(|sequence| sequence.0));
        settle(&mut self.held, (encoding, sequence, link), false, passed.map_err(Failure::H264))
    }

    /// The picture that [`StreamDecoder::advance`] decoded last, if it is that of frame `sequence` and nothing was decoded since.
    #[must_use]
    pub fn advanced(&self, sequence: Sequence) -> Option<Picture<'_>> {
        let held = self.held.filter(|held| held.sequence == sequence && held.is_shown)?;
        Some(match held.encoding {
            Encoding::H264 => Picture::Planes(self.h264.planes()),
            Encoding::H265 | Encoding::Av1 => Picture::Planes(self.platform.planes()),
            _ => Picture::Image(self.tiles.held()),
        })
    }

    /// Forgets all frames, and frees the memory of the codecs.
    pub fn forget(&mut self) {
        self.held = None;
        self.h264.forget();
        self.platform.forget();
        self.tiles.forget();
    }

    /// Forgets all frames, and keeps the memory of the codecs for the next chain.
    pub fn restart(&mut self) {
        self.held = None;
        self.h264.restart();
        self.platform.forget();
        self.tiles.forget();
    }

    fn raw(
        &mut self,
        payload: &[u8],
        (width, height): (u32, u32),
        format: PixelFormat,
    ) -> Result<(), StreamDecodeError> {
        let view = ImageView::packed(payload, width, height, format)?;
        self.image.reset(width, height, format).data_mut().copy_from_slice({
            let mut rows = view.rows();
            let row_bytes = rows.next().map_or(0, <[u8]>::len);
            &payload[..row_bytes * height as usize]
        });
        to_colour(&mut self.image);
        Ok(())
    }

    /// Checks that the frame can be decoded after the held frame of its chain. Returns the frame that it refers to, if any.
    fn admit(
        &self,
        encoding: Encoding,
        sequence: Sequence,
        link: &ChainLink,
    ) -> Result<Option<Sequence>, StreamDecodeError> {
        let chain = link.chain;
        let is_first = link.index == 0 && chain == sequence;
        if is_first != (link.reference == Reference::Independent) || chain > sequence {
            return Err(StreamDecodeError::Link { sequence, chain, index: link.index });
        }
        if is_first {
            return match self.held {
                Some(held) if held.encoding == encoding && held.sequence >= sequence => {
                    Err(StreamDecodeError::TooLate { sequence, chain })
                }
                _ => Ok(None),
            };
        }
        let not_held = StreamDecodeError::NotHeld { sequence, chain };
        let held = self.held.filter(|held| (held.encoding, held.chain) == (encoding, chain));
        let held = held.ok_or(not_held.clone())?;
        if link.index <= held.index || sequence <= held.sequence {
            return Err(StreamDecodeError::TooLate { sequence, chain });
        }
        match link.reference {
            Reference::Previous if link.index == held.index + 1 => Ok(Some(held.sequence)),
            // For tiles, the picture of that frame or of any later one will do. The H.264 decoder itself checks what it holds.
            Reference::Acknowledged(refers) if refers <= held.sequence => Ok(Some(refers)),
            _ => Err(not_held),
        }
    }
}

/// Decodes tiles into the held picture. An independent frame begins a new picture.
fn tiles<'a>(
    decoder: &'a mut TileDecoder,
    payload: &[u8],
    refers: Option<Sequence>,
) -> Result<&'a Image, TileError> {
    if refers.is_none() {
        decoder.forget();
    }
    decoder.decode(payload)
}

/// Records the result: which frame of a chain is held now.
fn settle<T>(
    held: &mut Option<Held>,
    (encoding, sequence, link): (Encoding, Sequence, &ChainLink),
    is_shown: bool,
    shown: Result<T, Failure>,
) -> Result<T, StreamDecodeError> {
    let chain = link.chain;
    match shown {
        Ok(shown) => {
            *held = Some(Held { encoding, chain, index: link.index, sequence, is_shown });
            Ok(shown)
        }
        Err(Failure::H264(H264Error::NotHeld { .. }) | Failure::Platform(PlatformError::NotHeld { .. })) => {
            Err(StreamDecodeError::NotHeld { sequence, chain })
        }
        Err(failure) => {
            *held = None;
            Err(match failure {
                Failure::H264(error) => error.into(),
                Failure::Platform(error) => error.into(),
                Failure::Tiles(error) => error.into(),
            })
        }
    }
}

/// Converts grey to three equal channels.
fn to_colour(image: &mut Image) {
    if image.format() != PixelFormat::Gray8 {
        return;
    }
    let colour = image.data().iter().flat_map(|&grey| [grey; 3]).collect();
    *image = Image::from_packed(colour, image.width(), image.height(), PixelFormat::Bgr8)
        .expect("three bytes for each pixel of an image that exists");
}
