//! Tracks where decoders are in their chains, sends them to wanted frames, and finds the next frame on their way.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::Decoded;
use crate::chain::{ChainFollower, ChainId, begins_chain, needed_before};
use crate::frame::{FrameId, FrameMeta};
use crate::log::{LogReader, Record};
use crate::units::Instant;

/// The most decoders of one camera: one for the newest frame, one for readers elsewhere.
pub const DECODERS_MAX: usize = 2;
/// After this long without a frame, a decoder's memory is freed.
pub const IDLE_MAX: Duration = Duration::from_secs(10);
/// A decoder that is more frames behind than this does not follow the log: the next query decides where it goes.
const FOLLOWED_FRAMES_MAX: u64 = 32;

/// How many frames after the last query of a reader may be made ahead.
pub(super) const AHEAD_FRAMES: u64 = 16;

/// The next step of a decoder.
pub(super) enum Path {
    /// No step.
    Rest,
    /// The decoder decodes this frame.
    Decode { record: Record, afresh: bool },
    /// The decoder makes a form of this frame, which it decoded last.
    Show { frame: FrameId },
    /// The decoder cannot reach the frame that it was sent to.
    Unreachable { frame: FrameId },
}

/// The frames that lead a decoder to its target.
#[derive(Default)]
struct Way {
    target: Option<FrameId>,
    /// The last frame decoded on this way. If the decoder has decoded another one since, the way is found anew.
    after: Option<FrameId>,
    /// The frames still to decode, the last first.
    rest: Vec<FrameId>,
}

/// The state of a decoder.
#[derive(Default)]
struct Place {
    follower: ChainFollower,
    /// The frame that the decoder is sent to, with its chain.
    target: Option<(ChainId, FrameId)>,
    /// Whether the decoder makes stills ahead for readers where it is, before it goes elsewhere.
    stays: bool,
    /// A reader waits elsewhere. The decoder leaves once it has decoded the frame
    /// with this index, even if readers still take the stills that it makes.
    leaves_at: Option<u32>,
    /// The frame that is being decoded.
    busy: Option<Record>,
    /// The chain of which no frame is passed over any more.
    takes_all: Option<ChainId>,
    /// The way to the target.
    way: Way,
    /// Until when the decoder follows the log without a query.
    follow_until: Instant,
    used: Instant,
    /// Whether the decoder has memory.
    runs: bool,
}

impl Place {
    /// The chain in which the decoder is, or to which it goes.
    fn chain(&self) -> Option<ChainId> {
        let begun = self.busy.as_ref().and_then(|record| ChainId::of(&record.frame.meta));
        self.target.map(|(chain, _)| chain).or(begun).or(self.follower.chain())
    }

    /// The cost of leaving the decoder's place for a chain. 0 if the chain begins right after
    /// the last frame, or if the decoder follows the newest frames and the chain is newer.
    fn cost_of_leaving(&self, now: Instant, chain: ChainId) -> u8 {
        let follows = now < self.follow_until;
        let begins_next = self.follower.last().is_some_and(|last| last.next() == chain.first_frame());
        match begins_next || follows && self.goes_on_to(chain) {
            true => 0,
            false => 1 + u8::from(follows),
        }
    }

    /// Whether a chain begins after the decoder's last frame.
    fn goes_on_to(&self, chain: ChainId) -> bool {
        self.follower.last().is_some_and(|last| last < chain.first_frame())
    }

    /// Whether a frame of a chain lies ahead of the decoder.
    fn is_on_way(&self, chain: ChainId, frame: FrameId) -> bool {
        self.chain() == Some(chain) && !self.is_beyond(chain, frame)
    }

    /// The current chain, if the target lies ahead but needs frames that the decoder has passed over. This
    /// may happen again in this chain. For a target behind, the decoder restarts the chain in any case.
    fn lacks_what_it_passed(&self) -> Option<ChainId> {
        let (chain, target) = self.target?;
        let is_ahead = self.follower.last().is_some_and(|last| last < target);
        (self.follower.chain() == Some(chain) && is_ahead).then_some(chain)
    }

    /// Whether the decoder has passed a frame of a chain.
    fn is_beyond(&self, chain: ChainId, frame: FrameId) -> bool {
        self.follower.chain() == Some(chain) && self.follower.last().is_some_and(|last| last > frame)
    }
}

/// All decoders of a camera.
#[derive(Default)]
pub(super) struct Places([Place; DECODERS_MAX]);

impl Places {
    /// Whether no decoder has memory.
    pub(super) fn are_released(&self) -> bool {
        self.0.iter().all(|place| !place.runs)
    }

    /// Whether more than `frames` frames must be decoded for a record.
    pub(super) fn is_further(&self, record: &Record, frames: u32, log: &LogReader) -> bool {
        let meta = &record.frame.meta;
        if meta.chain.index < frames {
            return false;
        }
        let chain = ChainId::of(meta);
        let inside = self.0.iter().map(|place| &place.follower).filter(|follower| follower.chain() == chain);
        let nobody = ChainFollower::default();
        let mut ways = inside.chain([&nobody]).filter_map(|follower| {
            if follower.last() == Some(meta.id) {
                Some(0)
            } else {
                Some(needed_for(follower, record, log)?.len())
            }
        });
        ways.all(|way| way > frames as usize)
    }

    /// Whether a decoder has passed a frame, so that the frame would have to be decoded again.
    pub(super) fn have_passed(&self, frame: FrameId) -> bool {
        self.0.iter().any(|place| place.follower.last().is_some_and(|last| last > frame))
    }

    /// Clears the targets of all decoders. Open queries then set new ones.
    pub(super) fn forget_targets(&mut self) {
        self.0.iter_mut().for_each(|place| (place.target, place.stays) = (None, false));
    }

    /// Sends a decoder to a frame: the nearest one in the frame's chain, or a free one. If there is none, the frame
    /// waits. The decoder that follows the newest frames does not go back, because all readers of the newest frames
    /// would wait for its return. A decoder inside a chain first makes stills ahead, if `stays` says that there are any.
    pub(super) fn head_for(
        &mut self,
        now: Instant,
        meta: &FrameMeta,
        stays: impl Fn(&ChainFollower) -> bool,
    ) {
        let Some(chain) = ChainId::of(meta) else { return };
        let on_way = |place: &&mut Place| place.is_on_way(chain, meta.id);
        let nearest = self.0.iter_mut().filter(on_way).max_by_key(|place| place.follower.last());
        let place = match nearest {
            Some(place) => Some(place),
            None => {
                let foremost = self.foremost(now);
                let is_free = |(_, place): &(usize, &mut Place)| {
                    place.busy.is_none() && place.target.is_none() && !place.stays
                };
                let free = self.0.iter_mut().enumerate().filter(is_free);
                let free = free.filter(|(at, place)| Some(*at) != foremost || place.goes_on_to(chain));
                let of_least_cost = free.min_by_key(|(_, place)| {
                    (stays(&place.follower), place.cost_of_leaving(now, chain), place.used)
                });
                of_least_cost.map(|(_, place)| place)
            }
        };
        let Some(place) = place else { return };
        if !place.is_on_way(chain, meta.id) {
            let index = place.follower.index();
            let leaves_at = *place.leaves_at.get_or_insert(index.saturating_add(AHEAD_FRAMES as u32));
            if index < leaves_at && stays(&place.follower) {
                place.stays = true;
                return;
            }
            place.leaves_at = None;
        }
        // Frames between two wanted ones may be passed over, but no wanted frame.
        let nearer = place.target.map_or(meta.id, |(_, to)| to.min(meta.id));
        place.target = Some((chain, nearer));
    }

    /// Of the decoders that follow the log, the one furthest ahead.
    fn foremost(&self, now: Instant) -> Option<usize> {
        let follow = self.0.iter().enumerate().filter(|(_, place)| now < place.follow_until);
        follow.max_by_key(|(_, place)| place.follower.last()).map(|(at, _)| at)
    }

    /// The next step of a decoder, if it is free.
    pub(super) fn next(
        &mut self,
        now: Instant,
        decoder: usize,
        log: &LogReader,
        refused: &VecDeque<FrameId>,
        next_ahead: impl Fn(&ChainFollower) -> Option<Record>,
    ) -> Path {
        let place = &mut self.0[decoder];
        if place.busy.is_some() {
            return Path::Rest;
        }
        let path = match place.target {
            Some(target) => to_target(place, target, log, refused),
            None if place.stays => match next_ahead(&place.follower) {
                Some(record) => Path::Decode { record, afresh: false },
                None => Path::Rest,
            },
            None if now < place.follow_until => follow(place, log, refused),
            None => Path::Rest,
        };
        match &path {
            Path::Decode { record, afresh } => {
                if *afresh {
                    place.takes_all = place.lacks_what_it_passed();
                    place.way = Way::default();
                    place.follower.forget();
                    place.leaves_at = None;
                }
                (place.busy, place.used, place.runs) = (Some(record.clone()), now, true);
            }
            Path::Show { .. } => {
                let record = place.target.and_then(|(_, frame)| log.get_frame(frame));
                (place.busy, place.used) = (record, now);
                if place.busy.is_none() {
                    // The frame was evicted between the two look-ups.
                    return Path::Rest;
                }
            }
            Path::Unreachable { .. } | Path::Rest => {}
        }
        path
    }

    /// A decoder has finished a frame. Returns the frame's record, unless the decoder was given another frame.
    pub(super) fn handle_done(
        &mut self,
        decoder: usize,
        frame: FrameId,
        decoded: &Decoded,
    ) -> Option<Record> {
        let place = self.0.get_mut(decoder)?;
        let record = place.busy.take_if(|record| record.frame.meta.id == frame)?;
        match decoded {
            Decoded::Still { encoding, .. } if encoding.is_chained() => place.follower.forget(),
            Decoded::Still { .. } | Decoded::Picture(_) | Decoded::Passed
                if place.follower.last() != Some(frame) =>
            {
                place.follower.note(&record.frame.meta);
            }
            Decoded::Failed => place.follower.forget(),
            Decoded::Still { .. } | Decoded::Picture(_) | Decoded::Passed | Decoded::NotHeld => {}
        }
        Some(record)
    }

    /// A query for a frame was answered. If the frame is one of the newest, the decoder that decoded it last follows the log until `until`.
    pub(super) fn served(&mut self, frame: FrameId, log: &LogReader, until: Instant) {
        if log.index_of(frame) + FOLLOWED_FRAMES_MAX < log.held().end {
            return;
        }
        let place = self.0.iter_mut().find(|place| place.follower.last() == Some(frame));
        if let Some(place) = place {
            place.follow_until = place.follow_until.max(until);
        }
    }

    /// Frees the memory of decoders that were idle for [`IDLE_MAX`], and returns these decoders.
    pub(super) fn release_idle(&mut self, now: Instant) -> impl Iterator<Item = usize> + use<> {
        let mut released = Vec::new();
        for (decoder, place) in self.0.iter_mut().enumerate() {
            if place.runs && place.busy.is_none() && now >= place.used + IDLE_MAX {
                *place = Place::default();
                released.push(decoder);
            }
        }
        released.into_iter()
    }

    /// When the next decoder will have been idle for [`IDLE_MAX`].
    pub(super) fn idle_due(&self) -> Option<Instant> {
        let running = self.0.iter().filter(|place| place.runs && place.busy.is_none());
        running.map(|place| place.used + IDLE_MAX).min()
    }
}

/// The next step to a decoder's target. Frames that the target does not need are passed over.
fn to_target(
    place: &mut Place,
    (chain, target): (ChainId, FrameId),
    log: &LogReader,
    refused: &VecDeque<FrameId>,
) -> Path {
    let unreachable = Path::Unreachable { frame: target };
    let last = place.follower.last();
    if last == Some(target) {
        return Path::Show { frame: target };
    }
    let is_on_way = place.way.target == Some(target) && place.way.after == last;
    if !is_on_way || place.way.rest.is_empty() {
        let Some(record) = log.get_frame(target) else { return unreachable };
        let is_inside = place.follower.chain() == Some(chain) && last.is_some_and(|last| last < target);
        let takes_all = is_inside && place.takes_all == Some(chain);
        let rest = match takes_all {
            true => all_up_to(&place.follower, &record, log, refused),
            false => needed_for(&place.follower, &record, log),
        };
        let Some(rest) = rest else { return unreachable };
        place.way = Way { target: Some(target), after: last, rest };
    }
    let way = &mut place.way;
    if way.rest.iter().any(|frame| refused.contains(frame)) {
        return unreachable;
    }
    let Some(record) = way.rest.pop().and_then(|next| log.get_frame(next)) else { return unreachable };
    way.after = Some(record.frame.meta.id);
    let first = chain.first_frame();
    // A decoder goes forwards only.
    let is_before = |last: FrameId| last < first && last.epoch == first.epoch;
    let begins = begins_chain(&record.frame.meta);
    Path::Decode { afresh: begins && !last.is_some_and(is_before), record }
}

/// The frames that must be decoded for `target`, and `target` itself, the last first. `None`: some of them are gone.
fn needed_for(follower: &ChainFollower, target: &Record, log: &LogReader) -> Option<Vec<FrameId>> {
    let meta = &target.frame.meta;
    let behind = (log.held().start..log.index_of(meta.id)).rev().filter_map(|index| log.get(index));
    let needed = needed_before(follower, meta, behind, |record| &record.frame.meta)?;
    let needed = needed.into_iter().map(|record| record.frame.meta.id);
    Some([meta.id].into_iter().chain(needed.rev()).collect())
}

/// All frames of the chain up to `target` that can be decoded, the last first. `None`: `target` cannot be decoded.
fn all_up_to(
    follower: &ChainFollower,
    target: &Record,
    log: &LogReader,
    refused: &VecDeque<FrameId>,
) -> Option<Vec<FrameId>> {
    let mut follower = follower.clone();
    let indices = log.index_of(follower.last()?.next())..log.index_of(target.frame.meta.id.next());
    let mut way = Vec::new();
    for meta in indices.filter_map(|index| log.get(index)).map(|record| record.frame.meta) {
        let is_of_chain = ChainId::of(&meta).is_some() && ChainId::of(&meta) == follower.chain();
        if is_of_chain && follower.allows(&meta) && !refused.contains(&meta.id) {
            follower.note(&meta);
            way.push(meta.id);
        }
    }
    way.reverse();
    way.first().is_some_and(|last| *last == target.frame.meta.id).then_some(way)
}

/// The next frame of the log after the last one, except the newest frame: a query for the newest frame decides whether a still is made of it.
fn follow(place: &Place, log: &LogReader, refused: &VecDeque<FrameId>) -> Path {
    let Some(last) = place.follower.last() else { return Path::Rest };
    let next = log.index_of(last.next())..log.held().end.saturating_sub(1);
    if next.end.saturating_sub(next.start) > FOLLOWED_FRAMES_MAX {
        return Path::Rest;
    }
    let mut records = next.filter_map(|index| log.get(index)).filter(|record| {
        let meta = &record.frame.meta;
        meta.encoding.is_chained() && meta.id.epoch == last.epoch && !refused.contains(&meta.id)
    });
    let found = records.find(|record| place.follower.allows(&record.frame.meta));
    found.map_or(Path::Rest, |record| Path::Decode { record, afresh: false })
}
