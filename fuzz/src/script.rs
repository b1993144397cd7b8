//! Scripts for state machines: bytes as a list of steps of four bytes each.
//!
//! Every step has the same length and every byte a meaning of its own, so that a mutation changes one step and leaves
//! the others as they were, and inputs can be written by hand. Numbers come out of tables of small values, where
//! collisions are common, with the extremes among them.

/// One event: what, and three arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which event, taken modulo their number.
    pub what: u8,
    /// The arguments; each event says what they are.
    pub args: [u8; 3],
}

/// The most steps of a script. Longer ones find nothing more and take longer.
pub const STEPS_MAX: usize = 400;

/// The steps of a script; what is left over at the end is ignored.
pub fn steps(bytes: &[u8]) -> impl Iterator<Item = Step> + '_ {
    let step = |&[what, a, b, c]: &[u8; 4]| Step { what, args: [a, b, c] };
    bytes.as_chunks().0.iter().take(STEPS_MAX).map(step)
}

/// The value of a table that a byte stands for.
pub fn pick<T: Copy>(table: &[T], byte: u8) -> T {
    table[usize::from(byte) % table.len()]
}

/// How far a step may move the clock, in nanoseconds: around every interval and limit that brokers know.
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

/// Numbers that a stranger may put where a time, a count or a sequence belongs.
pub const NUMBERS: [u64; 16] = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 63, 255, 1 << 32, u64::MAX - 1, u64::MAX];

/// Values of any length out of an input, until it ends.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte on.
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

    /// The next two, little-endian.
    pub fn u16(&mut self) -> Option<u16> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*first))
    }

    /// As many as the next two bytes say, or those that are left.
    pub fn block(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::from(self.u16()?).min(self.0.len());
        let (first, rest) = self.0.split_at(bytes);
        self.0 = rest;
        Some(first)
    }
}
