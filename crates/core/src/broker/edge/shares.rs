//! Divides the rate of each declared channel between the cameras on it.
//!
//! Every complete frame of the channel's cameras measures the rate. Ten times a second the channel is divided between the
//! wanted cameras, by the sizes of their rungs ([`ShareRequest`]) and the overhead of headers and messages. A camera is
//! told its share ([`Share`]) when the share changes, and five times a second. A camera chooses by itself if it is alone
//! on its channel, or if the channel has not been measured yet. A camera on no declared channel is never told anything.

use std::collections::BTreeMap;

use super::arrivals::Whole;
use super::camera::Cameras;
use super::types::{ChannelShare, EdgeOutput};
use crate::broker::LinkId;
use crate::controller::share::{
    CAP_INTERVAL, CAP_REFRESH_INTERVAL, Channel, ChannelRate, Channels, Claim, DATAGRAM_BYTES,
    DATAGRAM_OVERHEAD_BYTES, Grant, OverheadMeter, divide, on_the_wire,
};
use crate::name::CameraName;
use crate::units::{BitsPerSecond, Instant};
use crate::wire::{Message, Share, ShareRequest};

/// The rate of the last division is kept while the present rate divided by it is in
/// this range. A rung that comes and goes with every frame costs more than it gains.
const RATE_TOLERANCE: (f64, f64) = (0.95, 1.08);

/// All declared channels, and the cameras on them that are connected.
pub(super) struct Shares {
    channels: Channels,
    /// What is known of each channel, in the order of `channels`.
    known: Vec<Known>,
    /// At most one for each camera.
    members: BTreeMap<CameraName, Member>,
    /// When channels are divided again. `None` while there is no share request.
    due: Option<Instant>,
}

/// What is known of one channel.
#[derive(Default)]
struct Known {
    channel: Channel,
    /// The rate at the last division, in bytes per millisecond.
    divided_by: Option<f64>,
}

/// A camera on a channel, on its present connection.
struct Member {
    channel: usize,
    claim: Option<ShareRequest>,
    told: Option<Share>,
    /// When the camera was last told its share.
    told_at: Instant,
    /// Measures what the camera takes of the channel beside the payload of its frames.
    meter: OverheadMeter,
    /// Since when the channel has no room for the camera, and why.
    shed: Option<(Instant, String)>,
}

impl Shares {
    pub(super) fn new(channels: Channels) -> Self {
        let known = channels.as_slice().iter().map(|_| Known::default()).collect();
        Self { channels, known, members: BTreeMap::new(), due: None }
    }

    /// When [`Shares::handle_timeout`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A camera has connected.
    pub(super) fn join(&mut self, camera: &CameraName) {
        let Some(channel) = self.channels.of(camera) else { return };
        self.members.insert(camera.clone(), Member::new(channel));
    }

    /// Replaces the declared channels. `connected` are the connected cameras, with their connections and
    /// whether they are wanted. A channel that keeps its name keeps its measurements, and its cameras
    /// keep their shares. A camera that leaves its channel is told that it shares nothing at present.
    pub(super) fn set(
        &mut self,
        channels: Channels,
        connected: &[(CameraName, LinkId, bool)],
    ) -> Vec<EdgeOutput> {
        let mut before = std::mem::replace(self, Self::new(channels));
        self.due = before.due;
        let old = before.channels.as_slice();
        for (channel, known) in self.channels.as_slice().iter().zip(&mut self.known) {
            if let Some(place) = old.iter().position(|old| old.name() == channel.name()) {
                *known = std::mem::take(&mut before.known[place]);
            }
        }
        let mut outputs = Vec::new();
        for (camera, link, is_wanted) in connected {
            let was = before.members.remove(camera);
            let Some(channel) = self.channels.of(camera) else {
                outputs.extend(was.into_iter().flat_map(|member| member.set_free(*link, camera)));
                continue;
            };
            let Some(mut member) = was else {
                self.join(camera);
                outputs.extend(self.handle_demand(camera, *link, *is_wanted));
                continue;
            };
            let stays = old[member.channel].name() == self.channels.as_slice()[channel].name();
            member.channel = channel;
            self.members.insert(camera.clone(), member);
            if !stays && *is_wanted {
                outputs.extend(self.tell_free(camera, *link));
            }
        }
        outputs
    }

    /// A camera is gone.
    pub(super) fn leave(&mut self, camera: &CameraName) {
        self.members.remove(camera);
    }

    /// Since when a camera's channel has no room for it, and why.
    pub(super) fn shed(&self, camera: &CameraName) -> Option<(Instant, String)> {
        self.members.get(camera)?.shed.clone()
    }

    /// A camera's share of its channel, for people. `None` if the camera is on no channel.
    pub(super) fn share_of(&self, camera: &CameraName) -> Option<ChannelShare> {
        let channel = self.channels.of(camera)?;
        Some(ChannelShare {
            channel: self.channels.as_slice()[channel].name().to_owned(),
            carries: self.known[channel].channel.rate(),
            share: self.members.get(camera).and_then(|member| member.told),
        })
    }

    /// The demand on a camera has changed.
    pub(super) fn handle_demand(
        &mut self,
        camera: &CameraName,
        link: LinkId,
        is_wanted: bool,
    ) -> Option<EdgeOutput> {
        let member = self.members.get_mut(camera)?;
        if !is_wanted {
            (member.claim, member.told, member.shed) = (None, None, None);
            return None;
        }
        // The camera learns that it is on a channel, and answers with its share request.
        member.told.is_none().then(|| member.tell(link, Share::Free))
    }

    /// A camera sends its share request.
    pub(super) fn handle_share_request(&mut self, now: Instant, camera: &CameraName, claim: ShareRequest) {
        let Some(member) = self.members.get_mut(camera) else { return };
        member.claim = Some(claim).filter(|claim| !claim.steps.is_empty());
        self.due = Some(self.due.unwrap_or(now + CAP_INTERVAL));
    }

    /// A complete frame of a camera measures its channel.
    pub(super) fn handle_whole(&mut self, camera: &CameraName, whole: &Whole) {
        let Some(member) = self.members.get_mut(camera) else { return };
        let Whole { first, last, bytes, header_bytes, first_bytes } = *whole;
        member.meter.handle_frame(header_bytes);
        let with_header = |payload: u32| on_the_wire(header_bytes.saturating_add(payload));
        let channel = &mut self.known[member.channel].channel;
        let all = with_header(bytes);
        // If nobody has reported what the first packet carried, a full packet is assumed.
        let first_bytes = first_bytes.map_or(all.min(DATAGRAM_BYTES + DATAGRAM_OVERHEAD_BYTES), with_header);
        channel.handle_frame((first, last), all, Some(first_bytes));
    }

    /// A camera has sent a message, which takes part of the channel too.
    pub(super) fn handle_message(&mut self, now: Instant, camera: &CameraName, message: &Message) {
        let Some(member) = self.members.get_mut(camera) else { return };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        member.meter.handle_message(now, bytes.len() as u32);
    }

    /// Divides the channels if that is due.
    pub(super) fn handle_timeout(&mut self, now: Instant, cameras: &Cameras) -> Vec<EdgeOutput> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let channels = 0..self.known.len();
        let outputs = channels.flat_map(|channel| self.divide(now, channel, cameras)).collect();
        let claims = self.members.values().any(|member| member.claim.is_some());
        self.due = claims.then_some(now + CAP_INTERVAL);
        outputs
    }

    fn divide(&mut self, now: Instant, channel: usize, cameras: &Cameras) -> Vec<EdgeOutput> {
        let on_it = self.members.iter().filter(|(_, member)| member.channel == channel);
        let (mut claiming, mut others) = (Vec::new(), Vec::new());
        for (name, member) in on_it.filter(|(_, member)| member.told.is_some()) {
            let Some(camera) = cameras.get(name) else { continue };
            let Some(link) = camera.link else { continue };
            match &member.claim {
                Some(claim) if !camera.is_silent() => {
                    claiming.push((name.clone(), link, claim.clone(), camera.report.priority()));
                }
                _ => others.push((name.clone(), link)),
            }
        }
        let rate = self.known[channel].rate().filter(|_| claiming.len() > 1);
        if rate.is_none() {
            others.extend(claiming.drain(..).map(|(name, link, ..)| (name, link)));
        }
        let mut outputs: Vec<EdgeOutput> =
            others.iter().flat_map(|(name, link)| self.tell_free(name, *link)).collect();
        let Some(rate) = rate else { return outputs };
        // Unwanted cameras send control messages too.
        let on_it = self.members.values().filter(|member| member.channel == channel);
        let control = on_it.map(|member| member.meter.control_bytes_per_second()).sum();
        let rate = ChannelRate { control_bytes_per_second: control, ..rate };
        let claims: Vec<Claim<'_>> = claiming
            .iter()
            .map(|(name, _, claim, priority)| Claim {
                steps: &claim.steps,
                floor: claim.floor,
                interval: claim.interval,
                latency_bound: claim.latency_bound,
                priority: *priority,
                overhead: self.members.get(name).map(|member| member.meter.of_frames()).unwrap_or_default(),
            })
            .collect();
        let declared = &self.channels.as_slice()[channel];
        let grants = divide(now, &rate, &claims, declared.goal());
        // From here on, a claim and its grant have the same index.
        debug_assert_eq!(grants.len(), claims.len(), "a grant for each claim");
        let why: Vec<Option<String>> = (0..claims.len())
            .map(|place| {
                let taken_by = |(other, grant): (&Claim<'_>, &Grant)| {
                    grant.rung.is_some() && other.priority > claims[place].priority
                };
                let by_rank = claims.iter().zip(&grants).any(taken_by);
                let carries = BitsPerSecond(rate.bytes_per_ms * 8e3);
                grants[place].rung.is_none().then(|| why_shed(declared.name(), carries, by_rank))
            })
            .collect();
        for (((name, link, ..), grant), why) in claiming.iter().zip(&grants).zip(why) {
            let share = match grant.rung {
                Some(_) => Share::cap(grant.cap.frame_bytes_max),
                None => Share::SHED,
            };
            if let Some(member) = self.members.get_mut(name) {
                outputs.extend(member.tell_share(now, *link, share));
                outputs.extend(member.note_shed(now, name, why));
            }
        }
        outputs
    }

    /// Tells a camera that it shares nothing with others at present.
    fn tell_free(&mut self, camera: &CameraName, link: LinkId) -> Vec<EdgeOutput> {
        let Some(member) = self.members.get_mut(camera) else { return Vec::new() };
        let news = (member.told != Some(Share::Free)).then(|| member.tell(link, Share::Free));
        news.into_iter().chain(member.note_shed(Instant::ZERO, camera, None)).collect()
    }
}

impl Member {
    fn new(channel: usize) -> Self {
        let (told_at, meter) = (Instant::ZERO, OverheadMeter::default());
        Self { channel, claim: None, told: None, told_at, meter, shed: None }
    }

    /// Tells the camera its share if it has changed, and every [`CAP_REFRESH_INTERVAL`], because a share expires.
    fn tell_share(&mut self, now: Instant, link: LinkId, share: Share) -> Option<EdgeOutput> {
        let expires = now.saturating_since(self.told_at) >= CAP_REFRESH_INTERVAL;
        (expires || self.told != Some(share)).then(|| {
            self.told_at = now;
            self.tell(link, share)
        })
    }

    fn tell(&mut self, link: LinkId, share: Share) -> EdgeOutput {
        self.told = Some(share);
        EdgeOutput::Send { link, message: Message::Share(share) }
    }

    /// The camera leaves its channel: it is told that it may send what its own link carries.
    fn set_free(mut self, link: LinkId, camera: &CameraName) -> Vec<EdgeOutput> {
        let held = self.told.is_some_and(|told| told != Share::Free);
        let news = held.then(|| self.tell(link, Share::Free));
        news.into_iter().chain(self.note_shed(Instant::ZERO, camera, None)).collect()
    }

    /// Notes whether the channel has room for the camera, and if not, why.
    fn note_shed(&mut self, now: Instant, camera: &CameraName, why: Option<String>) -> Option<EdgeOutput> {
        let changed = self.shed.is_some() != why.is_some();
        let since = self.shed.as_ref().map_or(now, |(since, _)| *since);
        self.shed = why.map(|why| (since, why));
        changed.then(|| EdgeOutput::ViewChanged { camera: camera.clone() })
    }
}

impl Known {
    /// The rate for the next division.
    fn rate(&mut self) -> Option<ChannelRate> {
        let known = self.channel.known()?;
        let (least, most) = RATE_TOLERANCE;
        let near = |by: &f64| (least * by..=most * by).contains(&known.bytes_per_ms);
        let bytes_per_ms = self.divided_by.filter(near).unwrap_or(known.bytes_per_ms);
        self.divided_by = Some(bytes_per_ms);
        Some(ChannelRate { bytes_per_ms, ..known })
    }
}

/// Why there is no room for a camera, for people.
fn why_shed(channel: &str, carries: BitsPerSecond, by_rank: bool) -> String {
    let who = if by_rank {
        "cameras of higher priority leave no room for this camera"
    } else {
        "the other cameras leave no room for this camera"
    };
    format!("the channel {channel} carries {:.1} Mbit/s; {who}", carries.0 / 1e6)
}
