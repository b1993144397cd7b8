//! Decides which profile to fetch from the edge, and keeps the profiles that have come.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::rungs::Rungs;
use crate::broker::LinkId;
use crate::broker::camera::types::CameraOutput;
use crate::contract::{Contract, Joint};
use crate::profile::{Profile, ProfileHash, SizedProfile};
use crate::units::Instant;
use crate::wire::{Message, PROFILE_BYTES_MAX, ProfilePart, ProfileRequest, ProfileUse};

/// The most profiles that a camera keeps, to bound their memory. Beyond that, the profile that came first is forgotten.
pub const PROFILES_MAX: usize = 16;
/// After this long without a part, the camera asks again. It also asks again after this long for a profile
/// that the edge did not have.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The profiles of one camera.
#[derive(Default)]
pub(crate) struct Profiles {
    /// In the order in which they came. `None`: the profile could not be read.
    known: VecDeque<(ProfileHash, Option<SizedProfile>)>,
    fetching: Option<Fetching>,
}

/// A profile on its way.
struct Fetching {
    hash: ProfileHash,
    /// The bytes that have come so far.
    bytes: Vec<u8>,
    link: LinkId,
    /// When to ask again. `None`: all bytes have come, and the profile is being read.
    due: Option<Instant>,
}

impl Profiles {
    pub(crate) fn get(&self, hash: ProfileHash) -> Option<&SizedProfile> {
        self.known.iter().find(|(known, _)| *known == hash)?.1.as_ref()
    }

    /// The contract's own profile, if the rungs have the accuracies of another profile.
    pub(crate) fn own(&self, contract: &Contract, rungs: &Rungs) -> Option<&Profile> {
        let hash = contract.profile.filter(|hash| rungs.basis.profile.is_some_and(|of| of != *hash))?;
        self.get(hash).filter(|known| known.size == rungs.basis.pixels).map(|known| &known.profile)
    }

    /// Whether frames of a source's own video may go as they are, by the profile of the served contracts.
    pub(crate) fn take_source_video(&self, joint: &Joint) -> bool {
        let known = joint.profile.and_then(|hash| self.get(hash));
        known.is_none_or(|known| known.profile.takes_source_video())
    }

    fn is_known(&self, hash: ProfileHash) -> bool {
        self.known.iter().any(|(known, _)| *known == hash)
    }

    /// Why a profile is not in use: it is being fetched, or it could not be read.
    pub(crate) fn absent(&self, hash: ProfileHash) -> ProfileUse {
        if self.is_known(hash) { ProfileUse::Unreadable } else { ProfileUse::Fetching }
    }

    fn add(&mut self, hash: ProfileHash, profile: Option<SizedProfile>) {
        self.known.retain(|(known, _)| *known != hash);
        if self.known.len() == PROFILES_MAX {
            self.known.pop_front();
        }
        self.known.push_back((hash, profile));
    }

    /// When to ask for the wanted profile.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.fetching.as_ref()?.due
    }

    /// The first profile that is wanted and missing. The profile of the served contracts comes first, then those of the other contracts with a floor.
    fn lacking(&self, joint: &Joint, contracts: &[Contract]) -> Option<ProfileHash> {
        let others = contracts.iter().filter(|contract| contract.accuracy_floor.is_some());
        let mut wanted: Vec<ProfileHash> = Vec::new();
        for hash in joint.profile.into_iter().chain(others.filter_map(|contract| contract.profile)) {
            // A further one would push out another wanted profile.
            if wanted.len() < PROFILES_MAX && !wanted.contains(&hash) {
                wanted.push(hash);
            }
        }
        wanted.into_iter().find(|hash| !self.is_known(*hash))
    }

    /// Asks on a connection for a missing profile, if that is due. `wanted`: what the served contracts ask
    /// together, and all contracts; `None` without a connection, or if frames go unchanged.
    pub(crate) fn fetch(
        &mut self,
        now: Instant,
        wanted: Option<(LinkId, Joint, &[Contract])>,
    ) -> Option<CameraOutput> {
        let lacking =
            wanted.and_then(|(link, joint, contracts)| Some((link, self.lacking(&joint, contracts)?)));
        let Some((link, hash)) = lacking else {
            // A profile that is being read is still useful later.
            self.fetching.take_if(|fetching| fetching.due.is_some());
            return None;
        };
        let again = self.fetching.take_if(|fetching| fetching.hash == hash);
        let fetching = again.unwrap_or(Fetching { hash, bytes: Vec::new(), link, due: Some(now) });
        let fetching = self.fetching.insert(fetching);
        if fetching.due.is_none_or(|due| fetching.link == link && now < due) {
            return None;
        }
        (fetching.link, fetching.due) = (link, Some(now + ASK_AGAIN));
        let request = ProfileRequest { hash, offset: fetching.bytes.len() as u32 };
        Some(CameraOutput::Send { link, message: Message::ProfileRequest(request) })
    }

    /// A part of a profile has come: makes the next one due, or returns the complete profile to be read.
    /// Ignores parts that were not asked for.
    pub(crate) fn handle_part(&mut self, now: Instant, part: &ProfilePart) -> Option<CameraOutput> {
        let ProfilePart { hash, total, offset, bytes } = part;
        let fetching = self.fetching.as_mut()?;
        if fetching.hash != *hash || fetching.due.is_none() || *offset as usize != fetching.bytes.len() {
            return None;
        }
        let whole = fetching.bytes.len() + bytes.len();
        if bytes.is_empty() || *total > PROFILE_BYTES_MAX || whole > *total as usize {
            // The edge does not have the profile, or not yet: ask again later.
            fetching.bytes.clear();
            return None;
        }
        fetching.bytes.extend_from_slice(bytes);
        if whole < *total as usize {
            fetching.due = Some(now);
            return None;
        }
        fetching.due = None;
        let bytes = Bytes::from(std::mem::take(&mut fetching.bytes));
        Some(CameraOutput::ReadProfile { hash: *hash, bytes })
    }

    /// A profile was read. `None`: it is not a profile, or its hash is wrong.
    pub(crate) fn handle_profile(&mut self, hash: ProfileHash, profile: Option<SizedProfile>) {
        self.fetching.take_if(|fetching| fetching.hash == hash);
        self.add(hash, profile);
    }
}
