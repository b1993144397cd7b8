//! Decodes H.265 and AV1 of sources with decoders from the caller. This crate has no library for them.
//!
//! Before a decoder gets a picture, its bitstream is parsed: the size, whether it is a key frame, and
//! whether other pictures need it. A decoder gets a picture only after the picture that it needs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mez_core::frame::Encoding;
use thiserror::Error;

use crate::bitstream::{AccessUnitLimits, BitstreamError, StreamParser};
use crate::h264::OutsideDecoder;
use crate::yuv::Yuv420;

/// Maximum frames whose pictures a decoder may owe. At this number, take a picture before you give another frame.
const OWED_MAX: usize = 64;

/// Opens decoders of encodings for which this crate has no library.
pub trait PlatformDecoders: Send + Sync + fmt::Debug {
    /// Opens a decoder of pictures of this size (width, height). Its pictures have full range and BT.601.
    ///
    /// # Errors
    /// The reason why there is no decoder.
    fn open(&self, encoding: Encoding, size: (u32, u32)) -> Result<Box<dyn OutsideDecoder>, String>;
    /// Reports that a decoder has failed.
    fn failed(&self, encoding: Encoding, reason: &str);
}

/// Why a picture was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// There is no decoder of this encoding.
    #[error(
        "this host has no decoder of {}: {reason}; install ffmpeg on this host, or start the camera with --decode",
        encoding.name()
    )]
    NoDecoder {
        /// The encoding.
        encoding: Encoding,
        /// Why there is none.
        reason: String,
    },
    /// The frame needs a frame that was not decoded.
    #[error("the frame needs frame {refers}, which was not decoded")]
    NotHeld {
        /// The missing frame.
        refers: u64,
    },
    /// The bytes are another kind of picture than stated.
    #[error("the payload is another kind of picture than stated")]
    Mislabelled,
    /// The bytes are not a picture, or a picture of a kind that is not decoded.
    #[error(transparent)]
    Bitstream(#[from] BitstreamError),
    /// The decoder has failed.
    #[error("the decoder of {} failed: {reason}", encoding.name())]
    Failed {
        /// The encoding.
        encoding: Encoding,
        /// The decoder's message.
        reason: String,
    },
}

/// Decodes the frames of one stream of a source. Each frame names the frame that it needs: the newest earlier frame that others need.
pub struct PlatformDecoder {
    pixels_max: u64,
    decoders: Option<Arc<dyn PlatformDecoders>>,
    stream: Option<Stream>,
    /// The newest frame given that others may need.
    newest: Option<u64>,
    /// The frame whose picture is in `planes`.
    shown: Option<u64>,
    planes: Yuv420,
}

/// The stream that is decoded.
struct Stream {
    encoding: Encoding,
    parser: StreamParser,
    decoder: Option<(Box<dyn OutsideDecoder>, (u32, u32))>,
    /// Frames that were given to the decoder and whose pictures were not taken, oldest first.
    owed: VecDeque<u64>,
}

impl fmt::Debug for PlatformDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PlatformDecoder");
        shown.field("newest", &self.newest).field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl PlatformDecoder {
    /// A decoder of pictures of at most `pixels_max` pixels. Without `decoders`, each frame is an error.
    #[must_use]
    pub fn new(pixels_max: u64, decoders: Option<Arc<dyn PlatformDecoders>>) -> Self {
        Self { pixels_max, decoders, stream: None, newest: None, shown: None, planes: Yuv420::empty() }
    }

    /// Gives the decoder frame `number`, which needs frame `refers` (`None`: it is a key frame). Does not wait.
    ///
    /// # Errors
    /// [`PlatformError`]. After an error, the next frame must be a key frame.
    pub fn give(
        &mut self,
        encoding: Encoding,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
    ) -> Result<(), PlatformError> {
        if refers.is_some() && (self.newest != refers || self.encoding() != Some(encoding)) {
            return Err(PlatformError::NotHeld { refers: refers.unwrap_or_default() });
        }
        let given = self.feed(encoding, payload, number, refers.is_none());
        if given.is_err() {
            self.newest = None;
        }
        given
    }

    /// Takes pictures up to that of frame `number`, for at most `patience`. False: it did not come in time. Pictures of earlier frames are dropped.
    ///
    /// # Errors
    /// [`PlatformError`]. After an error, the next frame must be a key frame.
    pub fn take(&mut self, number: u64, patience: Duration) -> Result<bool, PlatformError> {
        let deadline = Instant::now() + patience;
        while self.shown != Some(number) {
            if !self.has(number) {
                return Err(PlatformError::NotHeld { refers: number });
            }
            if !self.take_one(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives a frame and takes its picture. The first picture may take `begins_within`, later pictures `patience`.
    ///
    /// # Errors
    /// [`PlatformError`], also if the picture does not come in time.
    pub fn decode(
        &mut self,
        encoding: Encoding,
        payload: &[u8],
        number: u64,
        refers: Option<u64>,
        (begins_within, patience): (Duration, Duration),
    ) -> Result<&Yuv420, PlatformError> {
        self.give(encoding, payload, number, refers)?;
        let patience = if self.shown.is_none() { begins_within } else { patience };
        if !self.take(number, patience)? {
            return Err(self.fail(&format!("it did not give a picture within {} ms", patience.as_millis())));
        }
        Ok(&self.planes)
    }

    /// The planes of the picture that was taken last.
    #[must_use]
    pub fn planes(&self) -> &Yuv420 {
        &self.planes
    }

    /// The newest frame given that others may need. All frames that it needs were given.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Whether the frame was given and its picture can still be taken.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        self.shown == Some(number) || self.stream.as_ref().is_some_and(|stream| stream.owed.contains(&number))
    }

    /// Whether another frame can be given before a picture is taken.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| stream.owed.len() < OWED_MAX)
    }

    /// Takes the picture of the oldest frame that is owed, within `patience`. False: it did not come.
    ///
    /// # Errors
    /// [`PlatformError`]. After an error, the next frame must be a key frame.
    pub fn take_one(&mut self, patience: Duration) -> Result<bool, PlatformError> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let (Some(oldest), Some((decoder, size))) = (stream.owed.front(), &mut stream.decoder) else {
            return Ok(false);
        };
        let oldest = *oldest;
        let taken = decoder.take(patience, &mut self.planes);
        let (is, size) = ((self.planes.width(), self.planes.height()), *size);
        match taken {
            Ok(false) => Ok(false),
            Ok(true) if is == size => {
                stream.owed.pop_front();
                self.shown = Some(oldest);
                Ok(true)
            }
            Ok(true) => Err(self.fail(&format!("it gave a picture of {is:?} instead of {size:?}"))),
            Err(reason) => Err(self.fail(&reason)),
        }
    }

    /// Forgets all frames. The next must be a key frame.
    pub fn forget(&mut self) {
        (self.newest, self.shown) = (None, None);
        // A decoder that still owes pictures is dropped: they would be taken for frames of the next stream.
        self.stream = self.stream.take().filter(|stream| stream.owed.is_empty());
    }

    fn encoding(&self) -> Option<Encoding> {
        self.stream.as_ref().map(|stream| stream.encoding)
    }

    fn feed(
        &mut self,
        encoding: Encoding,
        payload: &[u8],
        number: u64,
        is_key: bool,
    ) -> Result<(), PlatformError> {
        let mut stream = match self.stream.take().filter(|stream| stream.encoding == encoding) {
            Some(stream) => stream,
            None => {
                let limits = AccessUnitLimits { pixels_max: self.pixels_max, ..AccessUnitLimits::default() };
                let parser = StreamParser::new(encoding, limits).filter(|_| encoding.is_foreign());
                let parser = parser.ok_or(PlatformError::Mislabelled)?;
                self.shown = None;
                Stream { encoding, parser, decoder: None, owed: VecDeque::new() }
            }
        };
        let picture = stream.parser.packet(payload);
        let stream = self.stream.insert(stream);
        let picture =
            picture?.filter(|picture| picture.is_key == is_key).ok_or(PlatformError::Mislabelled)?;
        let size = (picture.width, picture.height);
        if stream.decoder.as_ref().is_none_or(|(_, of)| *of != size) {
            if !is_key {
                return Err(PlatformError::Mislabelled);
            }
            // The old decoder ends first, because some platforms allow few decoders at once.
            stream.decoder = None;
            stream.owed.clear();
            self.shown = None;
            let none = |reason: String| PlatformError::NoDecoder { encoding, reason };
            let decoders = self.decoders.as_ref().ok_or_else(|| none("none was asked for".into()))?;
            stream.decoder = Some((decoders.open(encoding, size).map_err(none)?, size));
        }
        let Some((decoder, _)) = &mut stream.decoder else { return Err(PlatformError::Mislabelled) };
        if let Err(reason) = decoder.give(payload) {
            return Err(self.fail(&reason));
        }
        stream.owed.push_back(number);
        self.newest = if picture.is_needed { Some(number) } else { self.newest };
        Ok(())
    }

    /// Drops the failed decoder, reports it, and returns the error.
    fn fail(&mut self, reason: &str) -> PlatformError {
        (self.newest, self.shown) = (None, None);
        let Some(stream) = self.stream.take() else { return PlatformError::Mislabelled };
        if let Some(decoders) = &self.decoders {
            decoders.failed(stream.encoding, reason);
        }
        PlatformError::Failed { encoding: stream.encoding, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
