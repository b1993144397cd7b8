//! Cameras that share a declared channel: what the channel carries, and what each camera has of it.
//!
//! Every whole frame of its cameras measures the channel. Ten times a second it is divided between those that somebody wants, by what they say that
//! their rungs cost ([`Claim`]), and each is told ([`Share`]). A camera that is the only one, or whose channel nobody has measured yet, chooses by
//! itself. Cameras on no declared channel are never told anything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{EdgeBroker, EdgeOutput};
use crate::broker::LinkId;
use crate::controller::share::{
    CAP_INTERVAL, Channel, ChannelRate, Channels, Claim as ShareClaim, Grant, divide, turns,
};
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::units::{BitsPerSecond, Instant, Timestamp};
use crate::wire::{Claim, Message, Share};

/// The channel is divided anew by its rate when that differs by so much from the rate that it was last divided by: a rung that comes and goes with every
/// frame costs more than what it gains.
const RATE_TOLERANCE: (f64, f64) = (0.95, 1.08);
/// A camera whose last frame is older than this has no turn.
const TURN_AGE_MAX: Duration = Duration::from_secs(1);

/// What a camera has of a declared channel, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelShare {
    /// The channel's name.
    pub channel: String,
    /// What the channel carries, all cameras together, if that was measured.
    pub carries: Option<BitsPerSecond>,
    /// What the camera was last told that it has. `None`: nobody wants its frames.
    pub share: Option<Share>,
}

/// A frame that is here.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) frame: FrameId,
    pub(super) captured: Timestamp,
    /// When the first and the last of its bytes came.
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) bytes: u32,
}

/// All declared channels, and the cameras on them that are connected.
pub(super) struct Shares {
    channels: Channels,
    /// By the channel's place.
    known: Vec<Known>,
    /// As many as there are cameras, at most.
    members: BTreeMap<CameraName, Member>,
    /// When channels are divided again; `None` while nobody claims anything.
    due: Option<Instant>,
}

/// What is known of one channel.
#[derive(Default)]
struct Known {
    channel: Channel,
    /// Bytes per millisecond that it was last divided by.
    divided_by: Option<f64>,
}

/// A camera on a channel, on its present connection.
struct Member {
    channel: usize,
    claim: Option<Claim>,
    /// When its newest frame was captured.
    captured: Option<Instant>,
    told: Option<Share>,
    /// Since when there has been no room for it, and why.
    shed: Option<(Instant, String)>,
}

impl Shares {
    pub(super) fn new(channels: Channels) -> Self {
        let known = channels.as_slice().iter().map(|_| Known::default()).collect();
        Self { channels, known, members: BTreeMap::new(), due: None }
    }

    /// When [`EdgeBroker::share_channels`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A camera is connected anew.
    pub(super) fn join(&mut self, camera: &CameraName) {
        let Some(channel) = self.channels.of(camera) else { return };
        let member = Member { channel, claim: None, captured: None, told: None, shed: None };
        self.members.insert(camera.clone(), member);
    }

    /// A camera is gone.
    pub(super) fn leave(&mut self, camera: &CameraName) {
        self.members.remove(camera);
    }

    /// Since when there has been no room for a camera, and why.
    pub(super) fn shed(&self, camera: &CameraName) -> Option<(Instant, String)> {
        self.members.get(camera)?.shed.clone()
    }

    pub(super) fn share_of(&self, camera: &CameraName) -> Option<ChannelShare> {
        let channel = self.channels.of(camera)?;
        Some(ChannelShare {
            channel: self.channels.as_slice()[channel].name().to_owned(),
            carries: self.known[channel].channel.rate(),
            share: self.members.get(camera).and_then(|member| member.told),
        })
    }
}

impl Known {
    /// The rate to divide by.
    fn rate(&mut self) -> Option<ChannelRate> {
        let known = self.channel.known()?;
        let (least, most) = RATE_TOLERANCE;
        let near = |by: &f64| (least * by..=most * by).contains(&known.bytes_per_ms);
        let bytes_per_ms = self.divided_by.filter(near).unwrap_or(known.bytes_per_ms);
        self.divided_by = Some(bytes_per_ms);
        Some(ChannelRate { bytes_per_ms, ..known })
    }
}

impl EdgeBroker {
    /// What a camera is asked for has changed.
    pub(super) fn note_wanted(&mut self, camera: &CameraName, link: LinkId, is_wanted: bool) {
        let Some(member) = self.shares.members.get_mut(camera) else { return };
        if !is_wanted {
            (member.claim, member.told, member.shed) = (None, None, None);
        } else if member.told.is_none() {
            // It learns that it is on a channel, and says what it would have of it.
            self.tell_share(camera, link, Share::Free);
        }
    }

    /// A camera says what it would have of its channel.
    pub(super) fn note_claim(&mut self, now: Instant, link: LinkId, claim: Claim) {
        let Some(name) = self.session(link).map(|session| session.camera.clone()) else { return };
        if self.cameras.get(&name).is_none_or(|camera| camera.link != Some(link)) {
            return;
        }
        let Some(member) = self.shares.members.get_mut(&name) else { return };
        member.claim = Some(claim).filter(|claim| !claim.steps.is_empty());
        self.shares.due = Some(self.shares.due.unwrap_or(now + CAP_INTERVAL));
    }

    /// A frame of a camera is whole, which measures its channel.
    pub(super) fn note_whole(&mut self, link: LinkId, whole: &Whole) {
        let Whole { frame, captured, first, last, bytes } = *whole;
        let Some(name) = self.session(link).map(|session| session.camera.clone()) else { return };
        if !self.shares.members.contains_key(&name) {
            return;
        }
        let clock = self.capture_clock(last, &name);
        let captured = clock.and_then(|clock| clock.captured_at(frame, captured));
        let Some(member) = self.shares.members.get_mut(&name) else { return };
        member.captured = captured.map(|(at, _)| at);
        self.shares.known[member.channel].channel.handle_frame(first, last, bytes);
    }

    /// Divides the channels, if it is time for that.
    pub(super) fn share_channels(&mut self, now: Instant) {
        if self.shares.due.is_none_or(|due| now < due) {
            return;
        }
        for channel in 0..self.shares.known.len() {
            self.divide(now, channel);
        }
        let claims = self.shares.members.values().any(|member| member.claim.is_some());
        self.shares.due = claims.then_some(now + CAP_INTERVAL);
    }

    fn divide(&mut self, now: Instant, channel: usize) {
        let on_it = self.shares.members.iter().filter(|(_, member)| member.channel == channel);
        let (mut claiming, mut others) = (Vec::new(), Vec::new());
        for (name, member) in on_it {
            let Some(camera) = self.cameras.get(name) else { continue };
            let Some(link) = camera.link.filter(|_| member.told.is_some()) else { continue };
            match &member.claim {
                Some(claim) if !camera.silent => claiming.push((name.clone(), link, claim.clone())),
                _ => others.push((name.clone(), link)),
            }
        }
        let rate = self.shares.known[channel].rate().filter(|_| claiming.len() > 1);
        let Some(rate) = rate else {
            others.extend(claiming.into_iter().map(|(name, link, _)| (name, link)));
            return others.iter().for_each(|(name, link)| self.tell_free(name, *link));
        };
        others.iter().for_each(|(name, link)| self.tell_free(name, *link));
        let priority = |name: &CameraName| {
            let contracts = self.cameras.get(name).map(|camera| camera.demand.contracts.as_slice());
            contracts.and_then(|contracts| contracts.first()).map_or(0, |first| first.priority)
        };
        let claims: Vec<ShareClaim<'_>> = claiming
            .iter()
            .map(|(name, _, claim)| ShareClaim {
                steps: &claim.steps,
                floor: claim.floor,
                interval: claim.interval,
                latency_bound: claim.latency_bound,
                priority: priority(name),
                relative_rate: 1.0,
            })
            .collect();
        let declared = &self.shares.channels.as_slice()[channel];
        let grants = divide(now, &rate, &claims, declared.goal());
        let later = self.turns(now, &claiming, &grants);
        let why: Vec<Option<String>> = (0..claims.len())
            .map(|place| {
                let taken_by = |(other, grant): (&ShareClaim<'_>, &Grant)| {
                    grant.rung.is_some() && other.priority > claims[place].priority
                };
                let by_rank = claims.iter().zip(&grants).any(taken_by);
                let carries = BitsPerSecond(rate.bytes_per_ms * 8e3);
                grants[place].rung.is_none().then(|| why_shed(declared.name(), carries, by_rank))
            })
            .collect();
        for (((name, link, _), grant), (later, why)) in
            claiming.iter().zip(&grants).zip(later.into_iter().zip(why))
        {
            let share = match grant.rung {
                Some(_) => Share::cap(grant.cap.frame_bytes_max, later),
                None => Share::SHED,
            };
            self.tell_share(name, *link, share);
            self.note_shed(now, name, why);
        }
    }

    /// How much later the frames of each camera should begin.
    fn turns(
        &self,
        now: Instant,
        claiming: &[(CameraName, LinkId, Claim)],
        grants: &[Grant],
    ) -> Vec<Duration> {
        let begins = |name: &CameraName| {
            let captured = self.shares.members.get(name)?.captured?;
            (now.saturating_since(captured) <= TURN_AGE_MAX).then_some(captured)
        };
        let mut sending: Vec<(usize, Duration, Instant)> = Vec::new();
        for (place, ((name, _, claim), grant)) in claiming.iter().zip(grants).enumerate() {
            if let Some(captured) = begins(name).filter(|_| grant.rung.is_some()) {
                sending.push((place, claim.interval, captured));
            }
        }
        let mut later = vec![Duration::ZERO; claiming.len()];
        let Some((_, interval, origin)) = sending.first().copied().filter(|(_, one, _)| !one.is_zero())
        else {
            return later;
        };
        // Whole intervals before, so that none lies before the first.
        let origin = origin - interval * (TURN_AGE_MAX.div_duration_f64(interval).ceil() as u32 + 1);
        let cameras: Vec<(Duration, Duration)> = sending
            .iter()
            .map(|(_, interval, captured)| (*interval, captured.saturating_since(origin)))
            .collect();
        for ((place, ..), turn) in sending.iter().zip(turns(&cameras)) {
            later[*place] = Duration::from_micros(turn.as_micros() as u64);
        }
        later
    }

    /// Nothing is to be shared between a camera and others at present.
    fn tell_free(&mut self, camera: &CameraName, link: LinkId) {
        let told = self.shares.members.get(camera).and_then(|member| member.told);
        if told != Some(Share::Free) {
            self.tell_share(camera, link, Share::Free);
        }
        self.note_shed(Instant::ZERO, camera, None);
    }

    fn tell_share(&mut self, camera: &CameraName, link: LinkId, share: Share) {
        if let Some(member) = self.shares.members.get_mut(camera) {
            member.told = Some(share);
            self.send(link, Message::Share(share));
        }
    }

    /// Takes note of whether there is room for a camera; if not, why.
    fn note_shed(&mut self, now: Instant, camera: &CameraName, why: Option<String>) {
        let Some(member) = self.shares.members.get_mut(camera) else { return };
        let changed = member.shed.is_some() != why.is_some();
        let since = member.shed.as_ref().map_or(now, |(since, _)| *since);
        member.shed = why.map(|why| (since, why));
        if changed {
            self.outputs.push_back(EdgeOutput::ViewChanged { camera: camera.clone() });
        }
    }
}

/// Why there is no room for a camera, for people.
fn why_shed(channel: &str, carries: BitsPerSecond, by_rank: bool) -> String {
    let who = if by_rank { "cameras of higher priority take it" } else { "the other cameras take it" };
    format!("the channel {channel} carries {:.1} Mbit/s; {who}", carries.0 / 1e6)
}

#[cfg(all(test, not(loom)))]
mod tests;
