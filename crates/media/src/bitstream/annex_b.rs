//! Cuts a byte stream into NAL units (ITU-T H.264, annex B), in pieces of any size.

use memchr::memmem;

/// The start of every NAL unit in a byte stream (B.1).
const START: &[u8] = &[0, 0, 1];
/// Written before every NAL unit: the start code, with the zero byte by which decoders find the start of a picture.
pub(super) const START_CODE: &[u8] = &[0, 0, 0, 1];

/// Cuts a byte stream into NAL units. Besides the bytes pushed last, it holds one unit, of at most `unit_bytes_max` bytes.
///
/// ```
/// use mez_media::bitstream::UnitSplitter;
///
/// let mut splitter = UnitSplitter::new(1 << 20);
/// splitter.push(b"\0\0\0\x01\x67ab\0\0\x01\x68c");
/// assert_eq!(splitter.next_unit(), Some(&b"\x67ab"[..]));
/// assert_eq!(splitter.next_unit(), None);   // the second one may go on
/// splitter.finish();
/// assert_eq!(splitter.next_unit(), Some(&b"\x68c"[..]));
/// ```
#[derive(Debug)]
pub struct UnitSplitter {
    buffer: Vec<u8>,
    /// Where the current unit begins. Meaningless between units.
    start: usize,
    /// The buffer was searched for start codes up to here.
    scanned: usize,
    inside: bool,
    is_over: bool,
    unit_bytes_max: usize,
    units_too_large: u64,
}

impl UnitSplitter {
    /// A splitter that drops and counts units of more than `unit_bytes_max` bytes.
    #[must_use]
    pub fn new(unit_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            inside: false,
            is_over: false,
            unit_bytes_max,
            units_too_large: 0,
        }
    }

    /// Appends bytes of the stream. Call [`UnitSplitter::next_unit`] until it returns `None` before the next push.
    pub fn push(&mut self, bytes: &[u8]) {
        let keep_from = if self.inside { self.start } else { self.scanned };
        self.buffer.drain(..keep_from.min(self.buffer.len()));
        self.scanned -= keep_from.min(self.scanned);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Ends the stream, and with it the current unit.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// The next whole unit, from its header byte on, unchanged. `None` if the pushed bytes end inside it.
    pub fn next_unit(&mut self) -> Option<&[u8]> {
        loop {
            if !self.inside {
                let Some(at) = memmem::find(&self.buffer[self.scanned..], START) else {
                    self.wait();
                    return None;
                };
                self.inside = true;
                self.start = self.scanned + at + START.len();
                self.scanned = self.start;
            }
            let end = match self.end() {
                Some(end) => end,
                None if self.is_over => self.buffer.len(),
                None => {
                    self.wait();
                    return None;
                }
            };
            self.inside = false;
            self.scanned = end;
            // A unit never ends with a zero byte (7.4.1). Zero bytes may follow at the end of the stream.
            let unit = &self.buffer[self.start..end];
            let len = unit.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            if len > self.unit_bytes_max {
                self.units_too_large += 1;
            } else if len > 0 {
                return Some(&self.buffer[self.start..self.start + len]);
            }
        }
    }

    /// Number of units that were dropped because they were too large.
    #[must_use]
    pub fn units_too_large(&self) -> u64 {
        self.units_too_large
    }

    /// Where the current unit ends: before three zero bytes, or a start code (B.1.1).
    fn end(&mut self) -> Option<usize> {
        while let Some(at) = memmem::find(&self.buffer[self.scanned..], &[0, 0]) {
            let zeros = self.scanned + at;
            match self.buffer.get(zeros + 2) {
                Some(0 | 1) => return Some(zeros),
                Some(_) => self.scanned = zeros + 2,
                None => {
                    self.scanned = zeros;
                    return None;
                }
            }
        }
        None
    }

    /// Remembers that nothing was found up to the last two bytes, and drops a unit that has become too large.
    fn wait(&mut self) {
        self.scanned = self.scanned.max(self.buffer.len().saturating_sub(START.len() - 1));
        if self.inside && self.scanned - self.start > self.unit_bytes_max {
            self.units_too_large += 1;
            self.inside = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The units of a stream that is pushed in pieces of `piece` bytes.
    fn cut(stream: &[u8], piece: usize, most: usize) -> (Vec<Vec<u8>>, u64) {
        let mut splitter = UnitSplitter::new(most);
        let mut units = Vec::new();
        for bytes in stream.chunks(piece) {
            splitter.push(bytes);
            while let Some(unit) = splitter.next_unit() {
                units.push(unit.to_vec());
            }
            assert!(splitter.buffer.len() <= most + 3 + piece, "{}", splitter.buffer.len());
        }
        splitter.finish();
        while let Some(unit) = splitter.next_unit() {
            units.push(unit.to_vec());
        }
        assert_eq!(splitter.next_unit(), None);
        (units, splitter.units_too_large())
    }

    #[test]
    fn units_come_out_as_they_went_in_whatever_the_pieces() {
        let stream = b"junk\0\0\0\x01\x67a\0b\0\0\0\0\x01\x68\0\0\x03\x01\0\0\x01\0\0\x01\x65end\0\0";
        let expected = [&b"\x67a\0b"[..], b"\x68\0\0\x03\x01", b"\x65end"].map(<[u8]>::to_vec);
        for piece in 1..=stream.len() {
            assert_eq!(cut(stream, piece, 100), (expected.to_vec(), 0), "pieces of {piece}");
        }
    }

    #[test]
    fn a_unit_that_does_not_end_costs_itself_and_no_more_memory_than_allowed() {
        let mut stream = b"\0\0\x01\x67a\0\0\x01\x65".to_vec();
        stream.extend_from_slice(&[7; 1000]);
        stream.extend_from_slice(b"\0\0\x01\x41b");
        for piece in [1, 2, 3, 7, 100, 2000] {
            let expected = [b"\x67a".to_vec(), b"\x41b".to_vec()];
            assert_eq!(cut(&stream, piece, 50), (expected.to_vec(), 1), "pieces of {piece}");
        }
    }

    proptest! {
        #[test]
        fn no_piece_changes_what_is_cut(
            stream in prop::collection::vec(prop::sample::select(&[0u8, 0, 0, 1, 3, 0x65][..]), 0..200),
            piece in 1usize..40,
            most in 1usize..20,
        ) {
            prop_assert_eq!(cut(&stream, piece, most), cut(&stream, 1000, most));
        }
    }
}
