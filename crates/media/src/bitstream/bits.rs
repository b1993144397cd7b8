//! Reads syntax elements of H.264 from a NAL unit, and skips the emulation prevention bytes on
//! the way (ITU-T H.264, 7.3.1). So a slice of 100 kB is read only up to the end of its header.

/// Reads bits, most significant first. Every method returns `None` beyond the end.
#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Index of the current byte.
    at: usize,
    /// Bits of the current byte that were read.
    used: u32,
    /// Number of zero bytes directly before `at`.
    zeros: u32,
}

impl<'a> Bits<'a> {
    /// Reads a NAL unit after its header byte.
    pub(super) fn of_unit(unit: &'a [u8]) -> Self {
        Self { bytes: unit.get(1..).unwrap_or_default(), at: 0, used: 0, zeros: 0 }
    }

    /// u(1).
    pub(super) fn flag(&mut self) -> Option<bool> {
        if self.used == 0 && self.zeros >= 2 && self.bytes.get(self.at) == Some(&3) {
            self.at += 1;
            self.zeros = 0;
        }
        let byte = *self.bytes.get(self.at)?;
        let bit = byte >> (7 - self.used) & 1 == 1;
        self.used += 1;
        if self.used == 8 {
            self.used = 0;
            self.at += 1;
            self.zeros = if byte == 0 { self.zeros + 1 } else { 0 };
        }
        Some(bit)
    }

    /// u(n), for n up to 32.
    pub(super) fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value = 0u32;
        for _ in 0..count {
            value = value << 1 | u32::from(self.flag()?);
        }
        Some(value)
    }

    /// Skips bits.
    pub(super) fn skip(&mut self, count: u32) -> Option<()> {
        for _ in 0..count {
            self.flag()?;
        }
        Some(())
    }

    /// ue(v) (9.1), up to 2^32 − 2, the maximum of the syntax.
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        // The sum is at most 2^32 − 2.
        let rest = self.bits(zeros)?;
        Some(((1u32 << zeros) - 1) + rest)
    }

    /// ue(v), `None` above `most`.
    pub(super) fn unsigned_up_to(&mut self, most: u32) -> Option<u32> {
        self.unsigned().filter(|value| *value <= most)
    }

    /// se(v) (9.1.1).
    pub(super) fn signed(&mut self) -> Option<i64> {
        let code = i64::from(self.unsigned()?);
        Some(if code % 2 == 1 { (code + 1) / 2 } else { -(code / 2) })
    }

    /// Eight bits, for bytes of messages. They need not be aligned.
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bits(8).and_then(|value| u8::try_from(value).ok())
    }

    /// Whether there is more than the trailing bits (`more_rbsp_data`, 7.2).
    pub(super) fn has_more(&self) -> bool {
        let mut rest = self.clone();
        // The first bit that is set is the stop bit, unless another one follows.
        while let Some(bit) = rest.flag() {
            if bit {
                while let Some(bit) = rest.flag() {
                    if bit {
                        return true;
                    }
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::h264::bits::{BitWriter, escape};

    proptest! {
        /// The reader reads what this crate's writer writes, with emulation prevention bytes.
        #[test]
        fn numbers_come_back(values in prop::collection::vec((0u32..1 << 30, 1u32..32), 0..30)) {
            let mut writer = BitWriter::default();
            for &(value, count) in &values {
                writer.unsigned(value & 0xFF);
                writer.bits(if value % 3 == 0 { 0 } else { value }, count);
            }
            let payload = writer.rest(&[0x80], 0).unwrap();
            let mut unit = Vec::new();
            escape(0x67, &payload, &mut unit);
            let mut reader = Bits::of_unit(&unit[4..]);
            for &(value, count) in &values {
                prop_assert_eq!(reader.unsigned(), Some(value & 0xFF));
                let expected = if value % 3 == 0 { 0 } else { value } & ((1u64 << count) - 1) as u32;
                prop_assert_eq!(reader.bits(count), Some(expected));
            }
            prop_assert!(!reader.has_more());
            prop_assert_eq!(reader.flag(), Some(true));
        }
    }

    #[test]
    fn signed_numbers_alternate() {
        // ue 0 to 4: 1, 010, 011, 00100, 00101.
        let mut reader = Bits::of_unit(&[0, 0b1010_0110, 0b0100_0010, 0b1000_0000]);
        let read: Vec<_> = (0..5).map(|_| reader.signed().unwrap()).collect();
        assert_eq!(read, [0, 1, -1, 2, -2]);
        assert!(!reader.has_more());
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let mut reader = Bits::of_unit(&[0x65]);
        assert_eq!((reader.flag(), reader.unsigned(), reader.has_more()), (None, None, false));
        let mut zeros = Bits::of_unit(&[0; 40]);
        assert_eq!(zeros.unsigned(), None);
        assert_eq!(Bits::of_unit(&[]).flag(), None);
        // The highest code has 31 zeros.
        let mut highest = Bits::of_unit(&[0, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFE]);
        assert_eq!(highest.unsigned(), Some(u32::MAX - 1));
    }
}
