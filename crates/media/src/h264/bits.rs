//! Reads and writes the bits of H.264 syntax (ITU-T H.264, 7.2, 7.4.1 and 9.1): fixed lengths, Exp-Golomb codes, NAL units.

/// Reads from an unescaped payload, most significant bit first.
#[derive(Debug, Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Index of the next bit.
    pub(super) at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `count` bits, at most 32.
    pub(super) fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.bits(1).map(|bit| bit == 1)
    }

    /// ue(v), below 2^31.
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 30 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.bits(zeros)?)
    }
}

/// Writes a payload, most significant bit first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, in the lowest positions.
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    /// Writes the lowest `count` bits, at most 32.
    pub(crate) fn bits(&mut self, value: u32, count: u32) {
        let mask = (1u64 << count) - 1;
        self.pending = self.pending << count | (u64::from(value) & mask);
        self.pending_bits += count;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.bytes.push((self.pending >> self.pending_bits) as u8);
        }
    }

    /// ue(v).
    pub(crate) fn unsigned(&mut self, value: u32) {
        let code = value + 1;
        let len = 32 - code.leading_zeros();
        self.bits(0, len - 1);
        self.bits(code, len);
    }

    /// Copies all bits from bit `from` of a payload to its stop bit, and pads with zeros to the next byte.
    pub(crate) fn rest(mut self, payload: &[u8], from: usize) -> Option<Vec<u8>> {
        let last = payload.iter().rposition(|&byte| byte != 0)?;
        let end = last * 8 + 8 - payload[last].trailing_zeros() as usize;
        let mut reader = BitReader::new(payload);
        reader.at = from;
        // Bit by bit to a whole byte of the source, then byte by byte.
        let head = ((8 - from % 8) % 8).min(end.checked_sub(from)?);
        self.bits(reader.bits(head as u32)?, head as u32);
        let whole = end.checked_sub(reader.at)? / 8;
        let start = reader.at / 8;
        payload[start..start + whole].iter().for_each(|&byte| self.bits(byte.into(), 8));
        reader.at += whole * 8;
        let tail = (end - reader.at) as u32;
        self.bits(reader.bits(tail)?, tail);
        let padding = (8 - self.pending_bits) % 8;
        self.bits(0, padding);
        Some(self.bytes)
    }
}

/// The NAL units of a byte stream (annex B), each with its header byte and emulation prevention bytes.
pub(crate) fn units(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    let mut started = false;
    std::iter::from_fn(move || {
        loop {
            let code = memchr::memmem::find(rest, &[0, 0, 1]);
            let (unit, next) = match code {
                Some(at) => (&rest[..at], &rest[at + 3..]),
                None if rest.is_empty() => return None,
                None => (rest, &rest[rest.len()..]),
            };
            rest = next;
            let inside = std::mem::replace(&mut started, true);
            // Zeros before a start code belong to the start code.
            let len = unit.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            if inside && len > 0 {
                return Some(&unit[..len]);
            }
            code?;
        }
    })
}

/// The payload of a NAL unit, without the header byte and emulation prevention bytes.
pub(super) fn unescape(unit: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(unit.len());
    let mut zeros = 0;
    for &byte in &unit[1..] {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        payload.push(byte);
    }
    payload
}

/// Appends a start code, a header byte and an escaped payload.
pub(crate) fn escape(header: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0, 1, header]);
    let mut zeros = 0;
    for &byte in payload {
        if zeros >= 2 && byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(values in prop::collection::vec((0u32..1 << 30, 1u32..32), 0..30)) {
            let mut writer = BitWriter::default();
            for &(value, count) in &values {
                writer.unsigned(value);
                writer.bits(value, count);
            }
            let bytes = writer.rest(&[0x80], 0).unwrap();
            let mut reader = BitReader::new(&bytes);
            for &(value, count) in &values {
                prop_assert_eq!(reader.unsigned(), Some(value));
                prop_assert_eq!(reader.bits(count), Some(value & ((1 << count) - 1)));
            }
            prop_assert_eq!(reader.flag(), Some(true));
        }

        #[test]
        fn units_survive_escaping(payloads in prop::collection::vec(prop::collection::vec(0u8..5, 1..40), 1..4)) {
            let mut stream = Vec::new();
            // A payload ends with its stop bit, so it never ends with a zero.
            let payloads: Vec<Vec<u8>> = payloads.into_iter().map(|mut payload| { payload.push(0x80); payload }).collect();
            payloads.iter().for_each(|payload| escape(0x65, payload, &mut stream));
            let found: Vec<Vec<u8>> = units(&stream).map(unescape).collect();
            prop_assert_eq!(found, payloads);
        }

        /// All bits from `from` on arrive in order, whatever was written before.
        #[test]
        fn the_rest_is_moved_bit_by_bit(payload in prop::collection::vec(any::<u8>(), 1..30), from in 0usize..40, lead in 0u32..20) {
            let mut payload = payload;
            payload.push(0x40);
            let from = from.min(payload.len() * 8 - 7);
            let mut writer = BitWriter::default();
            writer.bits(0, lead);
            let moved = writer.rest(&payload, from).unwrap();
            let (mut a, mut b) = (BitReader::new(&payload), BitReader::new(&moved));
            (a.at, b.at) = (from, lead as usize);
            while a.at < payload.len() * 8 - 6 {
                prop_assert_eq!(a.flag(), b.flag());
            }
            prop_assert!(moved.len() * 8 - b.at < 8);
        }
    }
}
