//! Headers of the container: the table of frame codes, streams, clocks, and the header of a packet.

use bytes::Bytes;

use super::fields::{Fields, signed};
use super::{NutError, NutStream, wrong};

/// The first byte of all start codes. It is not a frame code.
pub(super) const START: u8 = b'N';
/// Maximum number of streams, and of time bases.
const STREAMS_MAX: u64 = 16;
/// Maximum number of headers that payloads may leave out.
const ELIDED_MAX: u64 = 128;
/// Maximum bytes of all these headers together.
const ELIDED_BYTES_MAX: usize = 1024;
/// Maximum pieces of side data of one packet.
const SIDE_DATA_MAX: u64 = 64;

/// The meaning of a frame code.
#[derive(Debug, Clone, Copy, Default)]
struct FrameCode {
    flags: u64,
    time_delta: i64,
    size_factor: u64,
    stream: u64,
    size_low: u64,
    reserved: u64,
    elided: u64,
}

impl FrameCode {
    const KEY: u64 = 1;
    const CODED_TIME: u64 = 8;
    const STREAM_ID: u64 = 16;
    const SIZE_HIGH: u64 = 32;
    const CHECKSUM: u64 = 64;
    const RESERVED: u64 = 128;
    const SIDE_DATA: u64 = 256;
    const ELIDED: u64 = 1024;
    const MATCH_TIME: u64 = 2048;
    const CODED: u64 = 4096;
    const INVALID: u64 = 8192;
}

/// Seconds of one tick, as the fraction `over` / `under`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeBase {
    over: u64,
    under: u64,
}

#[derive(Debug, Clone, Copy)]
struct Clock {
    base: usize,
    low_bits: u32,
    last: i64,
}

/// The content of the main header, and the clocks of the streams.
#[derive(Debug)]
pub(super) struct Main {
    codes: Vec<FrameCode>,
    bases: Vec<TimeBase>,
    elided: Vec<Bytes>,
    clocks: Vec<Option<Clock>>,
}

/// The header of a packet.
pub(super) struct FrameHeader {
    pub(super) stream: usize,
    time: i64,
    pub(super) is_key: bool,
    /// Bytes of side data and payload that follow. Bytes that the packet leaves out are not counted.
    pub(super) size: u64,
    elided: usize,
    pub(super) has_side_data: bool,
}

/// Reads the next number. Returns `Ok(None)` from the function if the number is cut off.
macro_rules! number {
    ($fields:ident) => {
        match $fields.number()? {
            Some(number) => number,
            None => return Ok(None),
        }
    };
}

impl Main {
    /// Reads the main header. `None` if it is cut off.
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Self>, NutError> {
        let version = number!(fields);
        if !(2..=4).contains(&version) {
            return Err(wrong("its version is unknown"));
        }
        if version > 3 {
            number!(fields);
        }
        let streams = number!(fields);
        number!(fields);
        let count = number!(fields);
        if !(1..=STREAMS_MAX).contains(&streams) || !(1..=STREAMS_MAX).contains(&count) {
            return Err(wrong("it has no streams, or more than 16"));
        }
        let mut bases = Vec::new();
        for _ in 0..count {
            let base = TimeBase { over: number!(fields), under: number!(fields) };
            let fits = |value: u64| (1..1 << 32).contains(&value);
            if !fits(base.over) || !fits(base.under) {
                return Err(wrong("it has an impossible clock"));
            }
            bases.push(base);
        }
        let Some(codes) = frame_codes(fields)? else { return Ok(None) };
        let mut elided = vec![Bytes::new()];
        if !fields.0.is_empty() {
            let count = number!(fields);
            if count > ELIDED_MAX {
                return Err(wrong("it has too many headers that packets leave out"));
            }
            let mut total = 0;
            for _ in 0..count {
                let Some(header) = fields.bytes()? else { return Ok(None) };
                total += header.len();
                if total > ELIDED_BYTES_MAX {
                    return Err(wrong("it has too many headers that packets leave out"));
                }
                elided.push(Bytes::copy_from_slice(header));
            }
        }
        Ok(Some(Self { codes, bases, elided, clocks: vec![None; streams as usize] }))
    }

    /// Makes this header continue another one. Main headers are repeated, and the clocks of the streams go on.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        match before {
            Some(before) if before.clocks.len() == self.clocks.len() && before.bases == self.bases => {
                Self { clocks: before.clocks, ..self }
            }
            _ => self,
        }
    }

    /// The bytes that a packet leaves out at its start.
    pub(super) fn left_out(&self, header: &FrameHeader) -> &[u8] {
        &self.elided[header.elided]
    }

    /// Advances the stream's clock to a packet. Returns the packet's time in nanoseconds.
    pub(super) fn pass(&mut self, header: &FrameHeader) -> Result<i64, NutError> {
        let clock = self.clocks.get_mut(header.stream).and_then(Option::as_mut);
        let clock = clock.ok_or(wrong("a packet belongs to no stream"))?;
        clock.last = header.time;
        Ok(scaled(header.time, self.bases[clock.base], TimeBase { over: 1, under: 1_000_000_000 }))
    }

    pub(super) fn stream_header(&mut self, fields: &mut Fields<'_>) -> Result<Option<NutStream>, NutError> {
        const VIDEO: u64 = 0;
        let (id, class) = (number!(fields), number!(fields));
        let Some(codec) = fields.bytes()? else { return Ok(None) };
        let (base, low_bits) = (number!(fields), number!(fields));
        let (_, delay, _) = (number!(fields), number!(fields), number!(fields));
        let Some(description) = fields.bytes()? else { return Ok(None) };
        let (mut width, mut height) = (0, 0);
        if class == VIDEO {
            (width, height) = (number!(fields), number!(fields));
        }
        let place = usize::try_from(id).ok().and_then(|id| self.clocks.get_mut(id));
        let place = place.ok_or(wrong("a stream has an invalid number"))?;
        if base >= self.bases.len() as u64 || low_bits > 16 {
            return Err(wrong("a stream has an impossible clock"));
        }
        let last = place.map_or(0, |clock| clock.last);
        *place = Some(Clock { base: base as usize, low_bits: low_bits as u32, last });
        let number = |value: u64| u32::try_from(value).map_err(|_| wrong("a stream has an impossible size"));
        Ok(Some(NutStream {
            id: number(id)?,
            codec: Bytes::copy_from_slice(codec),
            description: Bytes::copy_from_slice(description),
            width: number(width)?,
            height: number(height)?,
            delay: number(delay)?,
        }))
    }

    /// Sets all clocks. `coded` contains a time and the number of its time base.
    pub(super) fn syncpoint(&mut self, coded: u64) {
        let count = self.bases.len() as u64;
        let (time, base) = (coded / count, self.bases[(coded % count) as usize]);
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        for clock in self.clocks.iter_mut().flatten() {
            clock.last = scaled(time, base, self.bases[clock.base]);
        }
    }

    /// Reads the header of a packet. `None` if it is cut off.
    pub(super) fn frame_header(&self, fields: &mut Fields<'_>) -> Result<Option<FrameHeader>, NutError> {
        let Some(&[code]) = fields.take(1) else { return Ok(None) };
        let code = self.codes[usize::from(code)];
        if code.flags & FrameCode::INVALID != 0 {
            return Err(wrong("a packet has an invalid frame code"));
        }
        let FrameCode { mut flags, mut stream, mut reserved, mut elided, .. } = code;
        if flags & FrameCode::CODED != 0 {
            flags ^= number!(fields);
        }
        if flags & FrameCode::STREAM_ID != 0 {
            stream = number!(fields);
        }
        let clock = usize::try_from(stream).ok().and_then(|stream| *self.clocks.get(stream)?);
        let clock = clock.ok_or(wrong("a packet belongs to no stream"))?;
        let time = if flags & FrameCode::CODED_TIME != 0 {
            clock.time(number!(fields))
        } else {
            clock.last.saturating_add(code.time_delta)
        };
        let mut size = code.size_low;
        if flags & FrameCode::SIZE_HIGH != 0 {
            size = size.saturating_add(number!(fields).saturating_mul(code.size_factor));
        }
        if flags & FrameCode::MATCH_TIME != 0 {
            number!(fields);
        }
        if flags & FrameCode::ELIDED != 0 {
            elided = number!(fields);
        }
        if flags & FrameCode::RESERVED != 0 {
            reserved = number!(fields);
        }
        if reserved > 256 {
            return Err(wrong("a packet has too many reserved fields"));
        }
        for _ in 0..reserved {
            number!(fields);
        }
        if flags & FrameCode::CHECKSUM != 0 && fields.take(4).is_none() {
            return Ok(None);
        }
        // Packets of more than 4096 bytes leave nothing out.
        let elided = if size > 4096 { 0 } else { elided };
        let elided = usize::try_from(elided).ok().filter(|elided| *elided < self.elided.len());
        let elided = elided.ok_or(wrong("a packet leaves out a header that does not exist"))?;
        let size = size.checked_sub(self.elided[elided].len() as u64);
        Ok(Some(FrameHeader {
            stream: stream as usize,
            time,
            is_key: flags & FrameCode::KEY != 0,
            size: size.ok_or(wrong("a packet is smaller than what it leaves out"))?,
            elided,
            has_side_data: flags & FrameCode::SIDE_DATA != 0,
        }))
    }
}

impl Clock {
    /// Decodes a time. It is coded completely, or by its lowest bits; these stand for the time that is nearest to the last one.
    fn time(self, coded: u64) -> i64 {
        let range = 1u64 << self.low_bits;
        let Some(low) = i64::try_from(coded).ok().filter(|_| coded < range) else {
            return i64::try_from(coded - range).unwrap_or(i64::MAX);
        };
        let mask = (range - 1) as i64;
        let from = self.last.saturating_sub(mask / 2);
        (low.wrapping_sub(from) & mask).saturating_add(from)
    }
}

/// Converts a time to another time base, rounded down.
fn scaled(time: i64, from: TimeBase, to: TimeBase) -> i64 {
    let over = i128::from(from.over) * i128::from(to.under);
    let under = i128::from(from.under) * i128::from(to.over);
    let scaled = i128::from(time).saturating_mul(over).div_euclid(under);
    i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
}

/// Reads the table of all 256 frame codes.
fn frame_codes(fields: &mut Fields<'_>) -> Result<Option<Vec<FrameCode>>, NutError> {
    let mut codes: Vec<FrameCode> = Vec::with_capacity(256);
    let mut code = FrameCode { size_factor: 1, ..FrameCode::default() };
    while codes.len() < 256 {
        let (flags, count) = (number!(fields), number!(fields));
        if count > 64 {
            return Err(wrong("a frame code has too many fields"));
        }
        code = FrameCode { flags, size_low: 0, reserved: 0, ..code };
        let mut times = None;
        for field in 0..count {
            let value = number!(fields);
            match field {
                0 => code.time_delta = signed(value),
                1 => code.size_factor = value,
                2 => code.stream = value,
                3 => code.size_low = value,
                4 => code.reserved = value,
                5 => times = Some(value),
                7 => code.elided = value,
                // Field 6 is the time for MATCH_TIME, which is not needed. Later fields are reserved.
                _ => {}
            }
        }
        let usual = code.size_factor.saturating_sub(code.size_low);
        let times = times.unwrap_or(usual);
        if !(1..=256).contains(&times) {
            return Err(wrong("a frame code stands for an impossible number of sizes"));
        }
        for more in 0..times {
            if codes.len() == usize::from(START) {
                codes.push(FrameCode { flags: FrameCode::INVALID, ..FrameCode::default() });
            }
            if codes.len() >= 256 {
                return Err(wrong("it has more than 256 frame codes"));
            }
            codes.push(FrameCode { size_low: code.size_low.saturating_add(more), ..code });
        }
    }
    Ok(Some(codes))
}

/// Reads side data. Returns a new description of the stream if there is one; `None` if the data is cut off.
pub(super) fn side_data(data: &mut Fields<'_>) -> Result<Option<Option<Bytes>>, NutError> {
    let count = number!(data);
    if count > SIDE_DATA_MAX {
        return Err(wrong("a packet has too much side data"));
    }
    let mut description = None;
    for _ in 0..count {
        let (Some(name), Some(kind)) = (data.bytes()?, data.number()?) else { return Ok(None) };
        let value = match signed(kind) {
            // Text; then bytes with a type name; then numbers.
            -1 => data.bytes()?,
            -2 => match data.bytes()? {
                Some(_) => data.bytes()?,
                None => None,
            },
            kind if kind < -2 => data.number()?.map(|_| &[][..]),
            _ => Some(&[][..]),
        };
        let Some(value) = value else { return Ok(None) };
        if name == b"Extradata" {
            description = Some(Bytes::copy_from_slice(value));
        }
    }
    Ok(Some(description))
}
