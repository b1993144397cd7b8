//! Decodes H.265 and AV1 of sources with decoders that the caller brings, because this crate has no library for them.
//!
//! What is read of a picture before a decoder gets it: its size, whether decoding may begin with it, whether others need it. A decoder gets no
//! picture that needs one it was not given.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mez_core::frame::Encoding;
use thiserror::Error;

use crate::bitstream::{AccessUnitLimits, BitstreamError, StreamParser};
use crate::h264::OutsideDecoder;
use crate::yuv::Yuv420;

/// Pictures that a decoder may owe. If there are more, it is waited for.
const OWED_MAX: usize = 64;

/// Gives decoders of encodings for which this crate has no library.
pub trait PlatformDecoders: Send + Sync + fmt::Debug {
    /// One for pictures of this size. Its pictures have full range and BT.601.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self, encoding: Encoding, size: (u32, u32)) -> Result<Box<dyn OutsideDecoder>, String>;
    /// One has failed.
    fn failed(&self, encoding: Encoding, reason: &str);
}

/// A picture was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// Nothing decodes the encoding here.
    #[error(
        "there is no decoder of {} here: {reason}; install ffmpeg on this host, or start the camera with --decode",
        encoding.name()
    )]
    NoDecoder {
        /// The encoding.
        encoding: Encoding,
        /// Why.
        reason: String,
    },
    /// It needs a frame that was not decoded.
    #[error("it needs frame {refers}, which was not decoded")]
    NotHeld {
        /// The frame.
        refers: u64,
    },
    /// It is not what it is said to be.
    #[error("it is not the picture that it is said to be")]
    Mislabelled,
    /// Its bytes are not those of a picture, or of one that is not decoded.
    #[error(transparent)]
    Bitstream(#[from] BitstreamError),
    /// The decoder has failed.
    #[error("the decoder of {} failed: {reason}", encoding.name())]
    Failed {
        /// The encoding.
        encoding: Encoding,
        /// What it said.
        reason: String,
    },
}

/// Decodes the frames of one stream of a source. Every frame comes with the newest one before it that others need.
pub struct PlatformDecoder {
    pixels_max: u64,
    decoders: Option<Arc<dyn PlatformDecoders>>,
    stream: Option<Stream>,
    /// The newest frame that others may need, of those that were given.
    newest: Option<u64>,
    /// Whose planes these are.
    shown: Option<u64>,
    planes: Yuv420,
}

/// The stream that is decoded.
struct Stream {
    encoding: Encoding,
    parser: StreamParser,
    decoder: Option<(Box<dyn OutsideDecoder>, (u32, u32))>,
    /// Frames that it was given and has not given back, oldest first.
    owed: VecDeque<u64>,
}

impl fmt::Debug for PlatformDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PlatformDecoder");
        shown.field("newest", &self.newest).field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl PlatformDecoder {
    /// One of pictures of at most `pixels_max` pixels, by these decoders. Without any, each frame says so.
    #[must_use]
    pub fn new(pixels_max: u64, decoders: Option<Arc<dyn PlatformDecoders>>) -> Self {
        Self { pixels_max, decoders, stream: None, newest: None, shown: None, planes: Yuv420::empty() }
    }

    /// Gives the decoder frame `number`, which needs frame `refers` (`None`: it is a key frame). Waits for nothing.
    ///
    /// # Errors
    /// [`PlatformError`]. After any, the next frame has to be a key frame.
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

    /// Takes pictures until that of frame `number` is there, for so long. False: it is not. A frame that was given and then others is passed over.
    ///
    /// # Errors
    /// [`PlatformError`]. After any, the next frame has to be a key frame.
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

    /// Gives and takes a frame. A decoder may take so long to begin, and so long for each picture after that.
    ///
    /// # Errors
    /// [`PlatformError`]; also if the picture does not come in time.
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

    /// The newest frame that others may need. All that it needs was given.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Whether a frame was given and its picture has not been passed.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        self.shown == Some(number) || self.stream.as_ref().is_some_and(|stream| stream.owed.contains(&number))
    }

    /// Whether it may be given another frame without waiting.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| stream.owed.len() < OWED_MAX)
    }

    /// Takes the oldest picture that is owed, for so long. False: it did not come.
    ///
    /// # Errors
    /// [`PlatformError`]. After any, the next frame has to be a key frame.
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
            Ok(true) => Err(self.fail(&format!("it gave a picture of {is:?} for one of {size:?}"))),
            Err(reason) => Err(self.fail(&reason)),
        }
    }

    /// Forgets all frames. The next has to be a key frame.
    pub fn forget(&mut self) {
        (self.newest, self.shown) = (None, None);
        // What it owes would be taken for frames of other streams.
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
            // The one before ends first: some platforms have few.
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

    /// The decoder is of no use any more.
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
