//! The address of a payload in shared memory.

/// The address of a payload in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the memory.
    pub memory: u8,
    /// The slot in the memory.
    pub slot: u8,
    /// The size of the payload.
    pub bytes: u32,
}
