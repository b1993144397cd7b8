//! What the edge knows of a camera that bears on contracts, and the profiles that contracts name.

use std::time::Duration;

use bytes::Bytes;

use super::{EdgeBroker, EdgeOutput, SubscriptionId};
use crate::broker::LinkId;
use crate::contract::Contract;
use crate::contract::settle::Verdict;
use crate::name::CameraName;
use crate::profile::ProfileHash;
use crate::units::Instant;
use crate::wire::{Message, Outlook, PROFILE_PART_BYTES_MAX, ProfilePart, ProfileRequest, Settled};

/// A subscription's contract may change this often; of more changes the last counts.
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

/// What bears on the contracts of one camera.
#[derive(Clone, Debug, Default)]
pub struct CameraView {
    /// Whether it is connected and was heard of lately.
    pub connected: bool,
    /// What it said last that it can do.
    pub outlook: Outlook,
    /// Since when it says that no rung keeps the contracts that lead.
    pub infeasible_since: Option<Instant>,
    /// Frames that it publishes in a second.
    pub frames_per_second: f64,
    /// Width and height of its frames as they are published; 0 before the first.
    pub size: (u32, u32),
    /// What the path takes at least, one way, before any byte of a frame has passed.
    pub one_way_delay: Option<Duration>,
    /// All that is asked of it, those of the highest priority first.
    pub demands: Vec<NamedContract>,
    /// What the camera said becomes of each of `demands`, and since when; empty where nothing had to be settled between them, or by cameras that
    /// do not say.
    pub settled: Vec<(Option<Verdict>, Instant)>,
    /// Since when there has been no room for it on the channel that it shares with others, and a sentence of why.
    pub shed: Option<(Instant, String)>,
}

/// A contract and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedContract {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// Its application's name, for people; may be empty.
    pub application: String,
    /// What it asks.
    pub contract: Contract,
}

impl EdgeBroker {
    /// What bears on the contracts of a camera; nothing if it is not known. It changes with [`EdgeOutput::ViewChanged`].
    pub fn view(&self, now: Instant, name: &CameraName) -> CameraView {
        let Some(camera) = self.cameras.get(name) else { return CameraView::default() };
        let link = camera.link.and_then(|link| self.links.get(&link));
        let wanting = self.subscriptions.iter().filter(|(_, entry)| entry.wants(name));
        let mut demands: Vec<NamedContract> = wanting
            .map(|(id, entry)| NamedContract {
                subscription: *id,
                application: entry.application.clone(),
                contract: entry.contract.clone(),
            })
            .collect();
        demands.sort_by_key(|demand| std::cmp::Reverse(demand.contract.priority));
        CameraView {
            connected: link.is_some() && !camera.silent,
            outlook: camera.outlook,
            infeasible_since: camera.infeasible_since,
            frames_per_second: camera.status.frames_per_second,
            size: (camera.status.width, camera.status.height),
            one_way_delay: link
                .and_then(|link| link.clock.estimate(now))
                .map(|clock| clock.round_trip_time / 2),
            demands,
            settled: camera.settled.clone(),
            shed: self.shares.shed(name),
        }
    }

    /// A subscription asks for something else from now on. Ten times a second at most; of more changes the last counts.
    pub fn handle_update(&mut self, now: Instant, id: SubscriptionId, contract: Contract) {
        let Some(entry) = self.subscriptions.get_mut(&id) else { return };
        entry.pending = Some(contract);
        self.update_contracts(now);
    }

    /// Lets changes of contracts take effect that are due.
    pub(super) fn update_contracts(&mut self, now: Instant) {
        let mut changed = false;
        for entry in self.subscriptions.values_mut() {
            if entry.update_due().is_some_and(|due| now >= due)
                && let Some(contract) = entry.pending.take()
            {
                entry.updated = now;
                changed |= entry.contract != contract;
                entry.contract = contract;
            }
        }
        if changed {
            self.update_all_demands();
        }
    }

    /// Holds a profile for the cameras that contracts name it to. Whoever adds them bounds them, and takes them away with
    /// [`EdgeBroker::remove_profile`].
    pub fn add_profile(&mut self, hash: ProfileHash, bytes: Bytes) {
        self.profiles.insert(hash, bytes);
    }

    /// Forgets a profile.
    pub fn remove_profile(&mut self, hash: ProfileHash) {
        self.profiles.remove(&hash);
    }

    /// A camera asks for a part of a profile. It gets those that its own contracts name.
    pub(super) fn send_profile(&mut self, link: LinkId, request: ProfileRequest) {
        let ProfileRequest { hash, offset } = request;
        let Some(camera) = self.session(link).map(|session| session.camera.clone()) else { return };
        let named = self
            .subscriptions
            .values()
            .any(|entry| entry.contract.profile == Some(hash) && entry.wants(&camera));
        let profile = self.profiles.get(&hash).filter(|_| named);
        let part = match profile.filter(|profile| (offset as usize) < profile.len()) {
            Some(profile) => {
                let end = profile.len().min(offset as usize + PROFILE_PART_BYTES_MAX);
                ProfilePart {
                    hash,
                    total: profile.len() as u32,
                    offset,
                    bytes: profile.slice(offset as usize..end),
                }
            }
            None => ProfilePart { hash, total: 0, offset, bytes: Bytes::new() },
        };
        self.send(link, Message::ProfilePart(part));
    }

    /// A camera says what it can do.
    pub(super) fn note_outlook(&mut self, now: Instant, link: LinkId, outlook: Outlook) {
        let Some(camera) = self.camera_of(link) else { return };
        camera.outlook = outlook;
        camera.infeasible_since = outlook.infeasible.then(|| camera.infeasible_since.unwrap_or(now));
        self.view_changed_of(link);
    }

    /// A camera says whose contracts it keeps. What it says of an earlier demand no longer counts.
    pub(super) fn note_settled(&mut self, now: Instant, link: LinkId, settled: &Settled) {
        let Some(camera) = self.camera_of(link) else { return };
        let Settled { revision, verdicts } = settled;
        if *revision != camera.demand.revision || verdicts.len() != camera.demand.contracts.len() {
            return;
        }
        let is_kept = |verdict: &Option<Verdict>| *verdict == Some(Verdict::Kept);
        let since = |(place, verdict): (usize, &Option<Verdict>)| {
            let before = camera.settled.get(place).filter(|(before, _)| is_kept(before) == is_kept(verdict));
            (*verdict, before.map_or(now, |(_, since)| *since))
        };
        camera.settled = verdicts.iter().enumerate().map(since).collect();
        self.view_changed_of(link);
    }

    pub(super) fn view_changed_of(&mut self, link: LinkId) {
        if let Some(camera) = self.session(link).map(|session| session.camera.clone()) {
            self.outputs.push_back(EdgeOutput::ViewChanged { camera });
        }
    }
}
