//! Reads the structure of a JPEG file marker by marker.
//!
//! A JPEG is a start marker, segments that contain their own length, then entropy-coded data. In this data `FF` is always
//! followed by `00`, by a restart marker, or by the marker that ends the data. This module walks from segment to segment to
//! find the end of an image. A search for `FF D9` would stop inside an EXIF thumbnail or a comment. (ITU-T T.81, annex B.)

use memchr::memchr;

use super::error::DecodeError;
use crate::encoding::sniff;

/// The facts in the header of a JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct JpegInfo {
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// Colour components and their resolution.
    pub chroma: Chroma,
    /// How the coefficients are coded.
    pub process: Process,
    /// Bits per sample: 8 in almost every file.
    pub bits_per_sample: u8,
}

impl JpegInfo {
    /// Width times height.
    #[must_use]
    pub fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

/// Colour components of a JPEG, and the chroma resolution relative to luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Chroma {
    /// One component: no colour.
    Grey,
    /// Half the resolution both ways (4:2:0).
    Yuv420,
    /// Half the resolution across (4:2:2).
    Yuv422,
    /// Half the resolution down (4:4:0).
    Yuv440,
    /// A quarter of the resolution across (4:1:1).
    Yuv411,
    /// Full resolution (4:4:4), whether the components are Y′CbCr or RGB.
    Yuv444,
    /// Three components in any other arrangement.
    Other,
    /// Four components (CMYK or YCCK), used in print. Mez does not decode them.
    FourComponents,
}

/// How the coefficients of a JPEG are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Process {
    /// Baseline or extended sequential DCT. Cameras use it.
    Sequential,
    /// Progressive DCT: several scans, each refining the last.
    Progressive,
    /// Lossless or hierarchical. Mez does not decode these.
    Lossless,
}

/// Reads the header of a JPEG, up to its frame segment, without decoding and without allocating.
///
/// The sizes are those that the file claims. Use [`check`] to find out whether the file is whole.
///
/// # Errors
/// [`DecodeError::NotJpeg`], [`DecodeError::Truncated`] if the bytes end before the frame segment, or
/// [`DecodeError::Corrupt`].
pub fn probe(bytes: &[u8]) -> Result<JpegInfo, DecodeError> {
    let mut walk = Walk::start(bytes)?;
    loop {
        if let Some(info) = walk.scanner.info {
            return Ok(info);
        }
        if walk.step()? {
            return Err(corrupt("it ends without a frame segment that gives its size"));
        }
    }
}

/// Walks a JPEG from its first to its last marker without decoding it, which proves that
/// it was not cut off. Bytes after the end marker (padding of cameras) are allowed.
///
/// # Errors
/// [`DecodeError::NotJpeg`], [`DecodeError::Truncated`] if the end marker is missing, or [`DecodeError::Corrupt`]
/// if the markers contradict each other. Damage inside the coded data is found only by decoding.
pub fn check(bytes: &[u8]) -> Result<JpegInfo, DecodeError> {
    let mut walk = Walk::start(bytes)?;
    while !walk.step()? {}
    walk.scanner.info.ok_or_else(|| corrupt("it ends without a frame segment that gives its size"))
}

/// One pass over an image that is completely in memory.
struct Walk<'a> {
    rest: &'a [u8],
    len_bytes: usize,
    scanner: Scanner,
}

impl<'a> Walk<'a> {
    fn start(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            let starts_with = bytes[..bytes.len().min(4)].to_vec();
            return Err(DecodeError::NotJpeg { len_bytes: bytes.len(), starts_with, found: sniff(bytes) });
        }
        Ok(Self { rest: &bytes[2..], len_bytes: bytes.len(), scanner: Scanner::default() })
    }

    /// Goes to the end of the next segment or of the entropy-coded data. True at the end of the image.
    fn step(&mut self) -> Result<bool, DecodeError> {
        let (used, stop) = self.scanner.advance(self.rest);
        self.rest = &self.rest[used..];
        match stop {
            Stop::Segment => Ok(false),
            Stop::End => Ok(true),
            Stop::MoreBytes => Err(DecodeError::Truncated { len_bytes: self.len_bytes }),
            Stop::Restarted => Err(corrupt("a second image starts inside it")),
            Stop::Broken(why) => Err(corrupt(why)),
        }
    }
}

fn corrupt(detail: &str) -> DecodeError {
    DecodeError::Corrupt { detail: detail.to_owned() }
}

/// Why [`Scanner::advance`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A segment ended; the image continues.
    Segment,
    /// All bytes were used, and the image continues.
    MoreBytes,
    /// The end marker was read.
    End,
    /// A start marker was read: the image before it was cut off, and a new image begins.
    Restarted,
    /// The last bytes that were read cannot be part of a JPEG.
    Broken(&'static str),
}

/// Bytes of a frame segment of four components, up to and including the last component.
const FRAME_SEGMENT_BYTES_MAX: usize = 6 + 4 * 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the `FF` of a marker.
    Marker,
    /// After the `FF` of a marker, before the marker's code.
    Code,
    /// Before the first of the two bytes of a segment's length.
    LengthHigh {
        code: u8,
    },
    LengthLow {
        code: u8,
        high: u8,
    },
    /// Inside a segment, with this many bytes left.
    Segment {
        code: u8,
        left: usize,
    },
    /// Inside entropy-coded data.
    Entropy,
    /// After an `FF` in entropy-coded data.
    EntropyCode,
}

/// Walks one image, from just after its start marker, in pieces of any size. Holds a few bytes, never the image.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    frame_segment: [u8; FRAME_SEGMENT_BYTES_MAX],
    frame_segment_len: usize,
    scan_seen: bool,
    /// The content of the frame segment, once it was read.
    pub(super) info: Option<JpegInfo>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Marker,
            frame_segment: [0; FRAME_SEGMENT_BYTES_MAX],
            frame_segment_len: 0,
            scan_seen: false,
            info: None,
        }
    }
}

impl Scanner {
    /// Consumes bytes up to the next stop, and returns their number: all of them for [`Stop::MoreBytes`].
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.state {
                State::Marker => {
                    at += 1;
                    if byte != 0xFF {
                        return (at, Stop::Broken("a marker is missing where one must be"));
                    }
                    self.state = State::Code;
                }
                State::Code => {
                    at += 1;
                    match byte {
                        // Any number of FF bytes may come before a marker's code.
                        0xFF => {}
                        0xD8 => return (at, self.restart()),
                        0xD9 => return (at, self.end()),
                        0x00 => return (at, Stop::Broken("a marker has the code 0")),
                        // TEM and restart markers have no segment.
                        0x01 | 0xD0..=0xD7 => self.state = State::Marker,
                        code => self.state = State::LengthHigh { code },
                    }
                }
                State::LengthHigh { code } => {
                    at += 1;
                    self.state = State::LengthLow { code, high: byte };
                }
                State::LengthLow { code, high } => {
                    at += 1;
                    let length = usize::from(u16::from_be_bytes([high, byte]));
                    // The length counts its own two bytes.
                    let Some(left) = length.checked_sub(2) else {
                        return (at, Stop::Broken("a segment is shorter than its own length"));
                    };
                    if is_frame_segment(code) {
                        self.frame_segment_len = 0;
                    }
                    self.state = State::Segment { code, left };
                    if left == 0 {
                        return (at, self.segment_done(code));
                    }
                }
                State::Segment { code, left } => {
                    let take = left.min(bytes.len() - at);
                    if is_frame_segment(code) {
                        let want = (FRAME_SEGMENT_BYTES_MAX - self.frame_segment_len).min(take);
                        self.frame_segment[self.frame_segment_len..self.frame_segment_len + want]
                            .copy_from_slice(&bytes[at..at + want]);
                        self.frame_segment_len += want;
                    }
                    at += take;
                    self.state = State::Segment { code, left: left - take };
                    if left == take {
                        return (at, self.segment_done(code));
                    }
                }
                State::Entropy => match memchr(0xFF, &bytes[at..]) {
                    Some(offset) => {
                        at += offset + 1;
                        self.state = State::EntropyCode;
                    }
                    None => return (bytes.len(), Stop::MoreBytes),
                },
                State::EntropyCode => {
                    at += 1;
                    match byte {
                        0x00 | 0xD0..=0xD7 => self.state = State::Entropy,
                        0xFF => {}
                        0xD8 => return (at, self.restart()),
                        0xD9 => return (at, self.end()),
                        code => self.state = State::LengthHigh { code },
                    }
                }
            }
        }
        (at, Stop::MoreBytes)
    }

    fn restart(&mut self) -> Stop {
        *self = Self::default();
        Stop::Restarted
    }

    fn end(&self) -> Stop {
        if self.info.is_none() {
            Stop::Broken("it ends without a frame segment that gives its size")
        } else if !self.scan_seen {
            Stop::Broken("it ends without image data")
        } else {
            Stop::End
        }
    }

    /// Handles a segment that was read completely.
    fn segment_done(&mut self, code: u8) -> Stop {
        self.state = State::Marker;
        if is_frame_segment(code) {
            if self.info.is_some() {
                return Stop::Broken("it has two frame segments");
            }
            match parse_frame_segment(code, &self.frame_segment[..self.frame_segment_len]) {
                Ok(info) => self.info = Some(info),
                Err(why) => return Stop::Broken(why),
            }
        } else if code == 0xDA {
            if self.info.is_none() {
                return Stop::Broken("image data comes before the frame segment that gives its size");
            }
            self.scan_seen = true;
            self.state = State::Entropy;
        }
        Stop::Segment
    }
}

/// True for SOF0 to SOF15. The codes of DHT, JPG and DAC lie in the same range, but are not frame segments.
fn is_frame_segment(code: u8) -> bool {
    matches!(code, 0xC0..=0xCF) && !matches!(code, 0xC4 | 0xC8 | 0xCC)
}

fn parse_frame_segment(code: u8, segment: &[u8]) -> Result<JpegInfo, &'static str> {
    let &[bits_per_sample, h1, h0, w1, w0, components, ref specs @ ..] = segment else {
        return Err("its frame segment is too short");
    };
    let height = u32::from(u16::from_be_bytes([h1, h0]));
    let width = u32::from(u16::from_be_bytes([w1, w0]));
    if width == 0 || height == 0 {
        return Err("its frame segment gives a side of zero pixels");
    }
    let sampling = |component: usize| specs.get(component * 3 + 1).copied();
    let chroma = match components {
        1 if sampling(0).is_some() => Chroma::Grey,
        3 => {
            let (Some(luma), Some(blue), Some(red)) = (sampling(0), sampling(1), sampling(2)) else {
                return Err("its frame segment is too short for its components");
            };
            match (luma, blue, red) {
                (0x22, 0x11, 0x11) => Chroma::Yuv420,
                // Some cameras write 4:2:2 as 2x2 luma with 1x2 chroma.
                (0x21, 0x11, 0x11) | (0x22, 0x12, 0x12) => Chroma::Yuv422,
                (0x12, 0x11, 0x11) | (0x22, 0x21, 0x21) => Chroma::Yuv440,
                (0x41, 0x11, 0x11) | (0x42, 0x12, 0x12) => Chroma::Yuv411,
                (a, b, c) if a == b && b == c => Chroma::Yuv444,
                _ => Chroma::Other,
            }
        }
        4 if sampling(3).is_some() => Chroma::FourComponents,
        1 | 4 => return Err("its frame segment is too short for its components"),
        _ => return Err("its frame segment gives a number of colour components other than 1, 3 and 4"),
    };
    let process = match code {
        0xC0 | 0xC1 | 0xC9 => Process::Sequential,
        0xC2 | 0xCA => Process::Progressive,
        _ => Process::Lossless,
    };
    Ok(JpegInfo { width, height, chroma, process, bits_per_sample })
}
