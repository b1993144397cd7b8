//! Holds the profiles that contracts name. A camera gets the profiles that its contracts name.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::profile::ProfileHash;
use crate::wire::{PROFILE_PART_BYTES_MAX, ProfilePart, ProfileRequest};

/// The profiles for cameras. The caller bounds their number.
#[derive(Default)]
pub(super) struct Profiles {
    held: BTreeMap<ProfileHash, Bytes>,
}

impl Profiles {
    pub(super) fn add(&mut self, hash: ProfileHash, bytes: Bytes) {
        self.held.insert(hash, bytes);
    }

    pub(super) fn remove(&mut self, hash: ProfileHash) {
        self.held.remove(&hash);
    }

    /// The part that a camera asks for. Empty if no contract on it names the profile, or if there is no such
    /// part.
    pub(super) fn part(&self, request: &ProfileRequest, is_named: bool) -> ProfilePart {
        let ProfileRequest { hash, offset } = *request;
        let from = offset as usize;
        let profile = self.held.get(&hash).filter(|profile| is_named && from < profile.len());
        let Some(profile) = profile else {
            return ProfilePart { hash, total: 0, offset, bytes: Bytes::new() };
        };
        let end = profile.len().min(from + PROFILE_PART_BYTES_MAX);
        ProfilePart { hash, total: profile.len() as u32, offset, bytes: profile.slice(from..end) }
    }
}
