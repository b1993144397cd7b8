//! Turns bytes into scripts for state machines: lists of steps of four bytes each.
//!
//! Every step has the same length, and each byte has its own meaning. So a mutation changes one step and no other, and
//! inputs can be written by hand. Numbers come from tables of small values, where collisions are frequent, and of extremes.

/// One event with three arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The event, modulo the number of events.
    pub what: u8,
    /// The arguments, whose meaning depends on the event.
    pub args: [u8; 3],
}

/// Maximum number of steps of a script. Longer scripts take longer and find nothing more.
pub const STEPS_MAX: usize = 400;

/// The steps of a script. Bytes that are left over at the end are ignored.
pub fn steps(bytes: &[u8]) -> impl Iterator<Item = Step> + '_ {
    let step = |&[what, a, b, c]: &[u8; 4]| Step { what, args: [a, b, c] };
    bytes.as_chunks().0.iter().take(STEPS_MAX).map(step)
}

/// The value of a table that a byte selects.
pub fn pick<T: Copy>(table: &[T], byte: u8) -> T {
    table[usize::from(byte) % table.len()]
}

/// Times by which a step may move the clock, in nanoseconds: values around every interval and limit of the brokers.
pub const PAUSES: [u64; 16] = [
    0,
    1,
    999_999,
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    750_000_001,
    1_000_000_000,
    1_500_000_000,
    3_000_000_001,
    5_000_000_000,
    10_000_000_000,
    61_000_000_000,
    1_000_000_000_000,
];

/// Numbers that a hostile peer may send as a time, a count or a sequence.
pub const NUMBERS: [u64; 16] = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 63, 255, 1 << 32, u64::MAX - 1, u64::MAX];

/// Reads values of any length from an input, until its end.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader that begins with the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next two bytes, little-endian.
    pub fn u16(&mut self) -> Option<u16> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*first))
    }

    /// As many bytes as the next two bytes give, or those that are left.
    pub fn block(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::from(self.u16()?).min(self.0.len());
        let (first, rest) = self.0.split_at(bytes);
        self.0 = rest;
        Some(first)
    }
}
