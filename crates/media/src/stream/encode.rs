//! Encodes the frames of one stream at the requested rung.

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::setting::{Form, H264, Jpeg, Knobs as KnobSettings, Quality, Sampling, Setting, StillCoding};
use mez_core::units::Instant;

use super::CHAIN_DURATION_MAX;
use super::error::StreamEncodeError;
use super::source::{Reader, Source};
use crate::h264::{H264Encoder, Library, Wanted};
use crate::image::{ImageView, PixelFormat};
use crate::jpeg::{EncodeError, Encoder};
use crate::knobs::{Knobs, Turned};
use crate::png;
use crate::tiles::{Base, TileEncoder};

/// The lowest JPEG quality that a byte budget may force.
const QUALITY_FLOOR: u8 = 10;
/// Maximum number of attempts to fit a still into its budget. The last attempt uses [`QUALITY_FLOOR`].
const ATTEMPTS_MAX: u32 = 5;

/// How to encode a frame.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The frame's number. It increases from frame to frame.
    pub sequence: Sequence,
    /// When the frame was captured, on any monotonic clock. Limits the duration of a chain.
    pub captured: Instant,
    /// The rung.
    pub setting: &'a Setting,
    /// Maximum bytes of the payload; `None`: no limit.
    pub bytes_max: Option<usize>,
    /// What the frame may be predicted from. `Independent`: nothing; it begins a chain, for receivers that hold
    /// nothing. `Previous`: the frame sent before. If that was lost, an acknowledged frame, otherwise nothing.
    /// `Acknowledged`: this frame or a later acknowledged one, after a loss that was not reported to the encoder.
    pub reference: Reference,
}

/// The result for a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The frame to send. It counts as sent until [`StreamEncoder::lost`].
    Frame(Encoded),
    /// Knob 5 leaves the frame out: this share of its pixels differs from the last frame sent.
    LeftOut {
        /// 0 to 1.
        difference: f64,
    },
    /// The rung does not fit the budget. The frame counts as not sent.
    DoesNotFit {
        /// The fewest bytes of all attempts.
        bytes: usize,
    },
}

/// An encoded frame: its payload and its description.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// The payload to send.
    pub payload: Bytes,
    /// The payload's encoding.
    pub encoding: Encoding,
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// The setting used: the requested one, perhaps with the coarser quantiser or lower quality that the budget forced.
    pub setting: Setting,
    /// The frame's place in a chain.
    pub chain: ChainLink,
}

/// The codec of the current chain.
#[derive(Debug)]
enum Codec {
    Tiles {
        setting: Jpeg,
        encoder: Box<TileEncoder>,
        /// The newest frame that was acknowledged.
        acknowledged: Option<Sequence>,
        /// From this frame to the last, each frame needs the one before.
        unbroken_from: Sequence,
        /// Whether one of the frames from `unbroken_from` on was lost.
        broken: bool,
    },
    H264(Box<H264Encoder>),
}

/// The current chain.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: Sequence,
    last: Sequence,
    next_index: u32,
    started: Instant,
}

/// Encodes the frames of one camera at one rung, for all applications that get this rung.
#[derive(Debug)]
pub struct StreamEncoder {
    reader: Reader,
    jpeg: Encoder,
    knobs: Knobs,
    h264: Library,
    codec: Option<Codec>,
    chain: Option<Chain>,
    anchor_bytes_max: usize,
}

impl StreamEncoder {
    /// An encoder of frames of at most `pixels_max` pixels. It has seen no frame.
    ///
    /// # Errors
    /// [`StreamEncodeError::Jpeg`] if memory is short.
    pub fn new(pixels_max: u64) -> Result<Self, StreamEncodeError> {
        Ok(Self {
            reader: Reader::new(pixels_max),
            jpeg: Encoder::new(80, Sampling::Yuv420)?,
            knobs: Knobs::new(),
            h264: Library::default(),
            codec: None,
            chain: None,
            anchor_bytes_max: 0,
        })
    }

    /// Sets the library that encodes H.264; default [`Library::Openh264`].
    #[must_use]
    pub fn with_h264(mut self, library: Library) -> Self {
        self.h264 = library;
        self
    }

    /// Encodes the next frame.
    ///
    /// # Errors
    /// [`StreamEncodeError`]. The frame then counts as not sent, and the next frame of a chain is independent.
    pub fn encode(
        &mut self,
        source: &Source<'_>,
        request: &Request<'_>,
    ) -> Result<Outcome, StreamEncodeError> {
        if let Reference::Acknowledged(sequence) = request.reference {
            self.acknowledge(sequence);
        }
        let outcome = self.dispatch(source, request);
        if outcome.is_err() && request.setting.is_chained() {
            self.end_chain();
        }
        outcome
    }

    fn dispatch(&mut self, source: &Source<'_>, request: &Request<'_>) -> Result<Outcome, StreamEncodeError> {
        let size = request.setting.size(source.size()?);
        match request.setting.form {
            Form::Original => original(source, request, size),
            Form::Jpeg(jpeg) => self.jpeg(source, request, jpeg, size),
            Form::Knobs(knobs) => self.turn(source, request, knobs),
            Form::Tiles(jpeg) => self.tiles(source, request, jpeg, size),
            Form::H264(h264) => self.h264(source, request, h264, size),
            Form::Data(_) => Err(StreamEncodeError::OfData),
        }
    }

    /// Reports that frame `sequence` has arrived and was decoded.
    pub fn acknowledge(&mut self, sequence: Sequence) {
        match &mut self.codec {
            Some(Codec::H264(encoder)) => encoder.acknowledge(sequence.0),
            Some(Codec::Tiles { acknowledged, .. })
                if self.chain.is_some_and(|chain| sequence >= chain.first && sequence <= chain.last) =>
            {
                *acknowledged = (*acknowledged).max(Some(sequence));
            }
            _ => {}
        }
    }

    /// Reports that frame `sequence` was not sent, was cancelled, or did not arrive.
    pub fn lost(&mut self, sequence: Sequence) {
        self.knobs.not_sent();
        match &mut self.codec {
            Some(Codec::H264(encoder)) => encoder.lost(sequence.0),
            Some(Codec::Tiles { broken, unbroken_from, .. }) => *broken |= sequence >= *unbroken_from,
            None => {}
        }
        // Without its first frame, a chain cannot be decoded.
        if self.chain.is_some_and(|chain| chain.first == sequence) {
            self.end_chain();
        }
    }

    /// Lets H.264 frames refer to an older frame than the last, if such a frame is expected to have at most `bytes` bytes.
    /// Later frames can then be decoded without the frames between (`docs/decisions/0047-anchors.md`). Default 0: never.
    pub fn set_anchor_bytes_max(&mut self, bytes: usize) {
        self.anchor_bytes_max = bytes;
    }

    /// Bytes of the pictures that the encoder holds. Codecs hold about as much again; `mez bench knobs` measures them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let tiles = match &self.codec {
            Some(Codec::Tiles { encoder, .. }) => encoder.memory_bytes(),
            _ => 0,
        };
        self.reader.memory_bytes() + tiles
    }

    fn end_chain(&mut self) {
        self.codec = None;
        self.chain = None;
    }

    fn jpeg(
        &mut self,
        source: &Source<'_>,
        request: &Request<'_>,
        jpeg: Jpeg,
        size: (u32, u32),
    ) -> Result<Outcome, StreamEncodeError> {
        self.jpeg.set_sampling(jpeg.sampling);
        // The samples of a JPEG with 4:2:0 chroma are encoded without conversion to pixels and back.
        let (payload, quality) = if jpeg.sampling == Sampling::Yuv420 && matches!(source, Source::Jpeg(_)) {
            let planes = self.reader.planes(source, size)?.view()?;
            fit(&mut self.jpeg, jpeg.quality, request.bytes_max, |encoder| encoder.encode_yuv420(&planes))?
        } else {
            let image = self.reader.pixels(source, size, jpeg.sampling == Sampling::Grey)?;
            let view = image.view().ok_or(StreamEncodeError::Empty)?;
            fit(&mut self.jpeg, jpeg.quality, request.bytes_max, |encoder| encoder.encode(&view))?
        };
        let form = Form::Jpeg(Jpeg { quality, ..jpeg });
        Ok(still(payload, Encoding::Jpeg, size, Setting { form, ..*request.setting }, request))
    }

    fn turn(
        &mut self,
        source: &Source<'_>,
        request: &Request<'_>,
        settings: KnobSettings,
    ) -> Result<Outcome, StreamEncodeError> {
        let image = self.reader.original(source)?;
        let view = image.view().ok_or(StreamEncodeError::Empty)?;
        let turned = match self.knobs.turn(&settings, &view)? {
            Turned::Image(image) => image,
            Turned::LeftOut { difference } => return Ok(Outcome::LeftOut { difference }),
        };
        let size = (turned.width(), turned.height());
        let view = turned.view().ok_or(StreamEncodeError::Empty)?;
        let (payload, encoding, coding) = match settings.coding {
            StillCoding::Png => (png::encode(&view)?, Encoding::Png, StillCoding::Png),
            StillCoding::Jpeg(quality) => {
                self.jpeg.set_sampling(Sampling::Yuv420);
                let (payload, quality) =
                    fit(&mut self.jpeg, quality, request.bytes_max, |encoder| encoder.encode(&view))?;
                (payload, Encoding::Jpeg, StillCoding::Jpeg(quality))
            }
        };
        let form = Form::Knobs(KnobSettings { coding, ..settings });
        let outcome = still(payload, encoding, size, Setting { form, ..*request.setting }, request);
        if matches!(outcome, Outcome::DoesNotFit { .. }) {
            self.knobs.not_sent();
        }
        Ok(outcome)
    }

    fn tiles(
        &mut self,
        source: &Source<'_>,
        request: &Request<'_>,
        jpeg: Jpeg,
        size: (u32, u32),
    ) -> Result<Outcome, StreamEncodeError> {
        let image = self.reader.pixels(source, size, jpeg.sampling == Sampling::Grey)?;
        let view = image.view().ok_or(StreamEncodeError::Empty)?;
        // Unchanged tiles keep the quality at which they were sent. It must not be below the rung's quality.
        let serves = matches!(
            &self.codec,
            Some(Codec::Tiles { setting, encoder, .. })
                if setting.sampling == jpeg.sampling && jpeg.quality <= setting.quality && encoder.continues(&view)
        );
        let chain = continued(self.chain, serves, request);
        if chain.is_none() && !matches!(self.codec, Some(Codec::Tiles { .. })) {
            self.codec = Some(Codec::Tiles {
                setting: jpeg,
                encoder: Box::new(TileEncoder::new()?),
                acknowledged: None,
                unbroken_from: request.sequence,
                broken: false,
            });
        }
        let Some(Codec::Tiles { setting, encoder, acknowledged, unbroken_from, broken }) = &mut self.codec
        else {
            return Err(StreamEncodeError::Empty);
        };
        let (base, reference) = match (chain, *acknowledged) {
            (Some(_), _) if request.reference == Reference::Previous && !*broken => {
                (Base::Last, Reference::Previous)
            }
            (Some(chain), Some(arrived)) if arrived >= chain.first => {
                (Base::Frame(arrived.0), Reference::Acknowledged(arrived))
            }
            _ => (Base::Nothing, Reference::Independent),
        };
        let frame = encoder.encode(&view, &jpeg, request.sequence.0, base, request.bytes_max)?;
        if !frame.fits {
            // The encoder has recorded the tiles as sent with this frame, so the frame counts as lost.
            *broken = true;
            if base == Base::Nothing {
                self.end_chain();
            }
            return Ok(Outcome::DoesNotFit { bytes: frame.payload.len() });
        }
        if base == Base::Nothing {
            (*setting, *acknowledged) = (jpeg, None);
        }
        if base != Base::Last {
            (*unbroken_from, *broken) = (request.sequence, false);
        }
        let form = Form::Tiles(Jpeg { quality: frame.quality_min, ..jpeg });
        let chain = self.link(request, reference);
        let setting = Setting { form, ..*request.setting };
        let (width, height) = size;
        let payload = frame.payload;
        Ok(Outcome::Frame(Encoded { payload, encoding: Encoding::Tiles, width, height, setting, chain }))
    }

    fn h264(
        &mut self,
        source: &Source<'_>,
        request: &Request<'_>,
        h264: H264,
        size: (u32, u32),
    ) -> Result<Outcome, StreamEncodeError> {
        let planes = self.reader.planes(source, size)?.view()?;
        let serves = matches!(&self.codec, Some(Codec::H264(encoder)) if encoder.size() == size);
        let chain = continued(self.chain, serves, request);
        if !serves {
            self.codec = Some(Codec::H264(Box::new(H264Encoder::by(self.h264, size.0, size.1)?)));
        }
        let Some(Codec::H264(encoder)) = &mut self.codec else { return Err(StreamEncodeError::Empty) };
        let wanted = match (chain, request.reference) {
            (None, _) | (_, Reference::Independent) => Wanted::Independent,
            (_, Reference::Previous) => Wanted::Previous,
            (_, Reference::Acknowledged(sequence)) => Wanted::Acknowledged(sequence.0),
        };
        let number = request.sequence.0;
        encoder.set_anchor_bytes_max(self.anchor_bytes_max);
        let frame = encoder.encode(&planes, number, wanted, h264.quantiser, request.bytes_max)?;
        if !frame.fits {
            encoder.lost(number);
            if frame.refers.is_none() {
                self.chain = None;
            }
            return Ok(Outcome::DoesNotFit { bytes: frame.payload.len() });
        }
        let reference = match (frame.refers, chain) {
            (None, _) => Reference::Independent,
            (Some(number), Some(chain)) if chain.last.0 == number => Reference::Previous,
            (Some(number), _) => Reference::Acknowledged(Sequence(number)),
        };
        let form = Form::H264(H264 { quantiser: frame.quantiser, ..h264 });
        let chain = self.link(request, reference);
        let setting = Setting { form, ..*request.setting };
        let (width, height) = size;
        let payload = frame.payload;
        Ok(Outcome::Frame(Encoded { payload, encoding: Encoding::H264, width, height, setting, chain }))
    }

    /// Gives a frame its place in the chain.
    fn link(&mut self, request: &Request<'_>, reference: Reference) -> ChainLink {
        let sequence = request.sequence;
        let begins = Chain { first: sequence, last: sequence, next_index: 0, started: request.captured };
        let mut chain =
            if reference == Reference::Independent { begins } else { self.chain.unwrap_or(begins) };
        let index = chain.next_index;
        (chain.last, chain.next_index) = (sequence, index + 1);
        self.chain = Some(chain);
        ChainLink { chain: chain.first, index, reference }
    }
}

/// The current chain, if the frame may continue it.
fn continued(chain: Option<Chain>, serves: bool, request: &Request<'_>) -> Option<Chain> {
    let young = |chain: &Chain| request.captured.saturating_since(chain.started) < CHAIN_DURATION_MAX;
    chain.filter(|chain| serves && request.reference != Reference::Independent && young(chain))
}

fn original(
    source: &Source<'_>,
    request: &Request<'_>,
    size: (u32, u32),
) -> Result<Outcome, StreamEncodeError> {
    let Source::Jpeg(bytes) = source else { return Err(StreamEncodeError::NoOriginal) };
    Ok(still((*bytes).clone(), Encoding::Jpeg, size, *request.setting, request))
}

fn still(
    payload: Bytes,
    encoding: Encoding,
    (width, height): (u32, u32),
    setting: Setting,
    request: &Request<'_>,
) -> Outcome {
    if request.bytes_max.is_some_and(|most| payload.len() > most) {
        return Outcome::DoesNotFit { bytes: payload.len() };
    }
    let chain = ChainLink::still(request.sequence);
    Outcome::Frame(Encoded { payload, encoding, width, height, setting, chain })
}

/// Encodes at `quality`, or at a lower quality if the budget requires it.
fn fit(
    encoder: &mut Encoder,
    quality: Quality,
    bytes_max: Option<usize>,
    mut encode: impl FnMut(&mut Encoder) -> Result<Bytes, EncodeError>,
) -> Result<(Bytes, Quality), EncodeError> {
    let mut quality = quality.get();
    let mut attempt = 0;
    loop {
        encoder.set_quality(quality)?;
        let payload = encode(encoder)?;
        attempt += 1;
        let over = bytes_max.filter(|most| payload.len() > *most);
        match over {
            Some(most) if quality > QUALITY_FLOOR && attempt < ATTEMPTS_MAX => {
                let last = attempt + 1 == ATTEMPTS_MAX;
                quality = crate::jpeg::lower_quality(quality, QUALITY_FLOOR, payload.len(), most, last);
            }
            _ => return Ok((payload, Quality::clamped(quality))),
        }
    }
}

/// A published frame of pixels.
impl<'a> From<ImageView<'a>> for Source<'a> {
    fn from(view: ImageView<'a>) -> Self {
        debug_assert!(matches!(view.format(), PixelFormat::Bgr8 | PixelFormat::Gray8 | PixelFormat::Bgra8));
        Source::Pixels(view)
    }
}
