//! Reads NUT, the container in which ffmpeg hands packets through a pipe (nut.txt of the MPlayer and FFmpeg projects, version 3).
//!
//! NUT states the time and the length of every packet before its data, for every codec. So a packet is
//! complete as soon as its last byte arrives. In a byte stream, a packet is complete only when the next
//! one begins. ffmpeg's other containers wait for the next packet, or for a second, before they write one.
//!
//! The stream comes from a child process, through a pipe that loses nothing. So invalid bytes end the stream: there is no search
//! for the next valid packet. Checksums are not verified. Still, no bytes cause a panic or take more memory than allowed.

mod fields;
mod headers;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use thiserror::Error;

use self::fields::Fields;
use self::headers::{Main, START, side_data};

/// The start of a file.
const FILE_ID: &[u8] = b"nut/multimedia container\0";
const MAIN: u64 = 0x4E4D_7A56_1F5F_04AD;
const STREAM: u64 = 0x4E53_1140_5BF2_F9DB;
const SYNCPOINT: u64 = 0x4E4B_E4AD_EECA_4569;
/// Maximum bytes of a header. The largest headers hold parameter sets, or information about the file.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// An event of a file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NutEvent {
    /// A stream. Repeated if the file repeats its header.
    Stream(NutStream),
    /// A packet of a stream.
    Packet(NutPacket),
}

/// A stream of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NutStream {
    /// The stream's number in the file.
    pub id: u32,
    /// The codec's name in containers of this kind: `H264`, `avc1`.
    pub codec: Bytes,
    /// The codec's configuration, needed before the first packet.
    pub description: Bytes,
    /// Pixels in a row; 0 if the stream is not video.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// The decoder's reordering delay, in packets (`decode_delay`). 0 if packets are shown in the order in which they are decoded.
    pub delay: u32,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NutPacket {
    /// The number of its stream.
    pub stream: u32,
    /// Whether decoding can begin at this packet.
    pub is_key: bool,
    /// When the packet is shown, in nanoseconds of its stream's clock.
    pub time_nanos: i64,
    /// A new configuration of the stream's codec, valid from this packet on.
    pub description: Option<Bytes>,
    /// The coded data. Its memory holds nothing else.
    pub payload: Bytes,
}

/// Why reading of a stream ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("this is not the NUT stream of ffmpeg: {detail}")]
pub struct NutError {
    /// The defect.
    pub detail: &'static str,
}

/// Reads a file in pieces of `piece` bytes until its end or the first error. Keeps all events: for tests and fuzzing.
#[must_use]
pub fn read_whole(file: &[u8], piece: usize, packet_bytes_max: usize) -> (Vec<NutEvent>, Option<NutError>) {
    let mut reader = NutReader::new(packet_bytes_max);
    let mut events = Vec::new();
    for bytes in file.chunks(piece) {
        reader.push(bytes);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}

fn wrong(detail: &'static str) -> NutError {
    NutError { detail }
}

/// Reads a file in pieces of any size. Besides the bytes pushed last, it holds at most one packet, of at most `packet_bytes_max` bytes.
#[derive(Debug)]
pub struct NutReader {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read.
    read: usize,
    /// Bytes to skip.
    pass: u64,
    begun: bool,
    main: Option<Main>,
    packet_bytes_max: usize,
}

/// The result of a step.
enum Step {
    Event(NutEvent),
    /// Something was read that is not an event.
    Nothing,
    /// More bytes are needed.
    Short,
}

impl NutReader {
    /// A reader of packets of at most `packet_bytes_max` bytes.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), read: 0, pass: 0, begun: false, main: None, packet_bytes_max }
    }

    /// Appends bytes of the file. Call [`NutReader::next_event`] until it returns `None` before the next push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether a packet or a header has begun and is incomplete.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.read < self.buffer.len()
    }

    /// Returns the next event, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// [`NutError`]: the stream cannot be read further.
    pub fn next_event(&mut self) -> Result<Option<NutEvent>, NutError> {
        loop {
            match self.step()? {
                Step::Event(event) => return Ok(Some(event)),
                Step::Nothing => {}
                Step::Short => return Ok(None),
            }
        }
    }

    fn step(&mut self) -> Result<Step, NutError> {
        let left = self.buffer.len() - self.read;
        let passed = usize::try_from(self.pass).unwrap_or(usize::MAX).min(left);
        self.read += passed;
        self.pass -= passed as u64;
        let bytes = &self.buffer[self.read..];
        let Some(&first) = bytes.first() else { return Ok(Step::Short) };
        if !self.begun {
            let known = bytes.len().min(FILE_ID.len());
            if bytes[..known] != FILE_ID[..known] {
                return Err(wrong("it does not begin with NUT's signature"));
            }
            if known < FILE_ID.len() {
                return Ok(Step::Short);
            }
            self.begun = true;
            self.read += known;
            return Ok(Step::Nothing);
        }
        if first == START { self.header() } else { self.frame() }
    }

    fn header(&mut self) -> Result<Step, NutError> {
        let mut fields = Fields(&self.buffer[self.read..]);
        let Some(start) = fields.take(8) else { return Ok(Step::Short) };
        let start = start.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        let Some(size) = fields.number()? else { return Ok(Step::Short) };
        let checksum = if size > 4096 { 4 } else { 0 };
        let before = (self.buffer.len() - self.read - fields.0.len()) as u64 + checksum;
        if !matches!(start, MAIN | STREAM | SYNCPOINT) {
            // Information about the file, an index, or a type of a later version: not needed.
            self.pass = before.saturating_add(size);
            return Ok(Step::Nothing);
        }
        if !(4..=HEADER_BYTES_MAX).contains(&size) {
            return Err(wrong("a header has an impossible size"));
        }
        let whole = before as usize..(before + size - 4) as usize;
        if self.buffer.len() - self.read < whole.end + 4 {
            return Ok(Step::Short);
        }
        let mut fields = Fields(&self.buffer[self.read..][whole.clone()]);
        let cut_off = wrong("a header is cut off");
        let event = match start {
            MAIN => {
                let main = Main::read(&mut fields)?.ok_or(cut_off)?;
                self.main = Some(main.after(self.main.take()));
                Step::Nothing
            }
            STREAM => {
                let main = self.main.as_mut().ok_or(wrong("a stream comes before the main header"))?;
                Step::Event(NutEvent::Stream(main.stream_header(&mut fields)?.ok_or(cut_off)?))
            }
            _ => {
                let main = self.main.as_mut().ok_or(wrong("a syncpoint comes before the main header"))?;
                main.syncpoint(fields.number()?.ok_or(cut_off)?);
                Step::Nothing
            }
        };
        self.read += whole.end + 4;
        Ok(event)
    }

    fn frame(&mut self) -> Result<Step, NutError> {
        let main = self.main.as_mut().ok_or(wrong("a packet comes before the main header"))?;
        let mut fields = Fields(&self.buffer[self.read..]);
        let Some(header) = main.frame_header(&mut fields)? else { return Ok(Step::Short) };
        if header.size > self.packet_bytes_max as u64 {
            return Err(wrong("a packet is larger than allowed; lower the bit rate of the source"));
        }
        let size = header.size as usize;
        let Some(data) = fields.take(size) else { return Ok(Step::Short) };
        let mut data = Fields(data);
        let mut description = None;
        if header.has_side_data {
            // Side data, then metadata, in the same format.
            for _ in 0..2 {
                let found = side_data(&mut data)?.ok_or(wrong("side data is cut off"))?;
                description = description.or(found);
            }
        }
        let payload = [main.left_out(&header), data.0].concat().into();
        self.read = self.buffer.len() - fields.0.len();
        let time_nanos = main.pass(&header)?;
        let (stream, is_key) = (header.stream as u32, header.is_key);
        Ok(Step::Event(NutEvent::Packet(NutPacket { stream, is_key, time_nanos, description, payload })))
    }
}
