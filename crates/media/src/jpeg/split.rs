//! Cuts a byte stream into JPEG frames.

use std::fmt;

use bytes::Bytes;
use memchr::memchr;

use super::scan::{JpegInfo, Scanner, Stop};

/// Default limit of the bytes of a frame in a stream: 32 MiB, the limit of a frame in Mez.
pub const FRAME_BYTES_MAX_DEFAULT: usize = 32 << 20;

/// One JPEG, copied byte for byte from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JpegFrame {
    /// The image from its start marker to its end marker. Its memory holds nothing else.
    pub jpeg: Bytes,
    /// The facts in its header.
    pub info: JpegInfo,
}

/// What a [`Splitter`] has dropped since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SplitterCounts {
    /// Images that were cut off, contradicted themselves, or were above the size limit.
    pub frames_broken: u64,
    /// Bytes between images. Some cameras pad their images; the padding does no harm.
    pub bytes_between: u64,
}

/// Cuts a stream of consecutive JPEG images (Motion JPEG) into frames. The stream may come in pieces of any size.
///
/// The splitter walks the markers of every image, so a thumbnail or a comment inside an image does not end it early. After
/// damage, it continues with the next start marker. It holds at most one frame, and at most `frame_bytes_max` bytes of it.
pub struct Splitter {
    /// The image so far, from its start marker; empty between images.
    frame: Vec<u8>,
    scanner: Scanner,
    state: Where,
    frame_bytes_max: usize,
    /// Size of the last frame. The next frame probably has a similar size, so memory is allocated once.
    frame_bytes_expected: usize,
    counts: SplitterCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// Between images.
    Between,
    /// Between images, after an `FF`.
    BetweenCode,
    /// Inside an image.
    Inside,
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter")
            .field("frame_bytes", &self.frame.len())
            .field("state", &self.state)
            .field("frame_bytes_max", &self.frame_bytes_max)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new(FRAME_BYTES_MAX_DEFAULT)
    }
}

impl Splitter {
    /// Makes a splitter that drops a frame of more than `frame_bytes_max` bytes and counts it as broken.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame: Vec::new(),
            scanner: Scanner::default(),
            state: Where::Between,
            frame_bytes_max,
            frame_bytes_expected: 0,
            counts: SplitterCounts::default(),
        }
    }

    /// What was dropped so far.
    #[must_use]
    pub fn counts(&self) -> SplitterCounts {
        self.counts
    }

    /// True after the start of an image and before its end.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        self.state == Where::Inside
    }

    /// Consumes bytes from the front of `bytes` up to the end of the next frame, and returns
    /// this frame. Consumes all bytes if no frame ends in them. Call it until `bytes` is empty.
    pub fn next_frame(&mut self, bytes: &mut &[u8]) -> Option<JpegFrame> {
        while !bytes.is_empty() {
            match self.state {
                Where::Between => match memchr(0xFF, bytes) {
                    Some(offset) => {
                        self.counts.bytes_between += offset as u64;
                        *bytes = &bytes[offset + 1..];
                        self.state = Where::BetweenCode;
                    }
                    None => {
                        self.counts.bytes_between += bytes.len() as u64;
                        *bytes = &[];
                    }
                },
                Where::BetweenCode => match bytes[0] {
                    0xD8 => {
                        *bytes = &bytes[1..];
                        self.open();
                    }
                    0xFF => {
                        self.counts.bytes_between += 1;
                        *bytes = &bytes[1..];
                    }
                    _ => {
                        self.counts.bytes_between += 2;
                        *bytes = &bytes[1..];
                        self.state = Where::Between;
                    }
                },
                Where::Inside => {
                    if let Some(frame) = self.inside(bytes) {
                        return Some(frame);
                    }
                }
            }
        }
        None
    }

    /// Ends the stream. An unfinished image is dropped, and counted as broken.
    pub fn finish(&mut self) {
        if self.state == Where::Inside {
            self.drop_frame();
        }
        self.state = Where::Between;
    }

    fn inside(&mut self, bytes: &mut &[u8]) -> Option<JpegFrame> {
        let (used, stop) = self.scanner.advance(bytes);
        let (taken, rest) = bytes.split_at(used);
        *bytes = rest;
        if self.frame.len() + taken.len() > self.frame_bytes_max {
            self.drop_frame();
            return None;
        }
        self.frame.extend_from_slice(taken);
        match stop {
            Stop::Segment | Stop::MoreBytes => None,
            Stop::Broken(_) => {
                self.drop_frame();
                None
            }
            Stop::Restarted => {
                // The start marker that was just read belongs to the next image.
                self.drop_frame();
                self.open();
                None
            }
            Stop::End => {
                let info =
                    self.scanner.info.expect("the scanner ends only images whose frame segment has passed");
                self.state = Where::Between;
                self.frame_bytes_expected = self.frame.len();
                let mut frame = std::mem::take(&mut self.frame);
                // A kept frame must not also keep the unused capacity.
                frame.shrink_to_fit();
                Some(JpegFrame { jpeg: Bytes::from(frame), info })
            }
        }
    }

    fn open(&mut self) {
        self.scanner = Scanner::default();
        self.state = Where::Inside;
        self.frame.clear();
        self.frame.reserve(self.frame_bytes_expected + self.frame_bytes_expected / 8 + 2);
        self.frame.extend_from_slice(&[0xFF, 0xD8]);
    }

    fn drop_frame(&mut self) {
        self.counts.frames_broken += 1;
        self.frame = Vec::new();
        self.state = Where::Between;
    }
}
