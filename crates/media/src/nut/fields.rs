//! Fields of headers: numbers in groups of seven bits, and byte strings after their length.

use super::{NutError, wrong};

/// Maximum groups of seven bits in a number of 64 bits.
const GROUPS_MAX: usize = 10;

/// Decodes a number whose lowest bit is its sign.
pub(super) fn signed(value: u64) -> i64 {
    let half = (value.saturating_add(1) >> 1) as i64;
    if value & 1 == 1 { half } else { -half }
}

/// The unread bytes of a sequence of fields.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes `count` bytes. `None` if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a number in groups of seven bits. `None` if it is cut off.
    pub(super) fn number(&mut self) -> Result<Option<u64>, NutError> {
        let mut value = 0u64;
        for (place, &byte) in self.0.iter().enumerate() {
            if place == GROUPS_MAX || value >> 57 != 0 {
                return Err(wrong("a number has more than 64 bits"));
            }
            value = value << 7 | u64::from(byte & 0x7F);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Reads a byte string after its length. `None` if it is cut off.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, NutError> {
        let Some(count) = self.number()? else { return Ok(None) };
        Ok(usize::try_from(count).ok().and_then(|count| self.take(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endless number must not make a reader wait for ever and buffer all bytes.
    #[test]
    fn a_number_ends_after_ten_groups() {
        assert!(matches!(Fields(&[0x80; GROUPS_MAX]).number(), Ok(None)), "its end may still come");
        assert!(Fields(&[0x80; GROUPS_MAX + 1]).number().is_err());
        let largest = [0x81, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
        assert!(matches!(Fields(&largest).number(), Ok(Some(u64::MAX))));
    }
}
