//! Encodes the parts of a profile. A camera asks for one part after another, so that reports of frames never
//! wait behind a long message.

use bytes::Bytes;

use super::codec::{Reader, WireError, Write};
use crate::profile::ProfileHash;

/// The most bytes of a profile.
pub const PROFILE_BYTES_MAX: u32 = 1 << 20;
/// The most bytes of one part of a profile. It takes 8 ms at 8 Mbit/s.
pub const PROFILE_PART_BYTES_MAX: usize = 8 << 10;

/// Asks for a part of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The hash of the profile.
    pub hash: ProfileHash,
    /// The offset of the first byte wanted.
    pub offset: u32,
}

impl ProfileRequest {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash);
        out.u32(self.offset);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { hash: r.fixed::<32>("profile")?, offset: r.u32("offset")? })
    }
}

/// A part of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilePart {
    /// The hash of the profile.
    pub hash: ProfileHash,
    /// The size of the whole profile. 0: the edge does not have it, or no contract on this camera names it.
    pub total: u32,
    /// The offset of the part in the profile.
    pub offset: u32,
    /// The part, at most [`PROFILE_PART_BYTES_MAX`] bytes.
    pub bytes: Bytes,
}

impl ProfilePart {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.hash);
        out.u32(self.total);
        out.u32(self.offset);
        let bytes = &self.bytes[..self.bytes.len().min(PROFILE_PART_BYTES_MAX)];
        out.u16(bytes.len() as u16);
        out.extend_from_slice(bytes);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let hash = r.fixed::<32>("profile")?;
        let (total, offset) = (r.u32("total")?, r.u32("offset")?);
        let length = usize::from(r.u16("part")?);
        if length > PROFILE_PART_BYTES_MAX {
            let max = PROFILE_PART_BYTES_MAX as u64;
            return Err(WireError::TooLong { field: "part", length: length as u64, max });
        }
        Ok(Self { hash, total, offset, bytes: Bytes::copy_from_slice(r.bytes("part", length)?) })
    }
}
