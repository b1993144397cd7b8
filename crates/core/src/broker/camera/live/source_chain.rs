//! Decides which frames of a source's own video stream may go to the edge as they are.
//!
//! A frame of such a chain needs the frame that it names, that one needs another, and so on up to the keyframe. So
//! the newest frame does not go alone: the frames that it needs and that were not sent wait behind it, in order
//! ([`SourceChain::replace`]). Frames that no other frame needs are skipped when a newer frame replaces them.
//!
//! Once a frame that others need was skipped or lost, no later frame may go as it is over this connection before the next keyframe.
//! Until then the newest frame is encoded at a rung. If the link had no room for the chain, keyframes do not begin it again for a while.

use std::collections::VecDeque;
use std::time::Duration;

use super::waiting::Waiting;
use crate::ancestors;
use crate::broker::LinkId;
use crate::broker::camera::adapt::Own;
use crate::broker::camera::types::Transformed;
use crate::frame::{FrameMeta, Sequence};
use crate::units::{ClockAnchor, Instant};

/// The most frames that wait behind the newest. If there are more, the chain is given up.
const BEHIND_FRAMES_MAX: usize = 64;
/// The most bytes of the frames behind the newest. A single frame may have more.
const BEHIND_BYTES_MAX: u64 = 16 << 20;
/// The most sent frames that are remembered: all on their way, and those that the next one may need.
const SENT_MAX: usize = 128;
/// The weight of one frame in the mean size of the chain's frames: the mean covers about the last 64, a keyframe among them.
const MEAN_GAIN: f64 = 1.0 / 64.0;
/// A chain that was given up this soon after it began again rests twice as long as the last time.
const LASTS_MIN: Duration = Duration::from_secs(10);
/// The first rest: how long keyframes do not begin a chain again after the link had no room for it.
const REST_TIME_MIN: Duration = Duration::from_secs(2);
/// The longest rest.
const REST_TIME_MAX: Duration = Duration::from_secs(64);
/// The weight of one frame in the share of frames that were not encoded: eleven in a row exceed [`UNMADE_SHARE_MAX`].
const UNMADE_GAIN: f64 = 1.0 / 16.0;
/// A chain rests because frames at rungs serve better. If more than this share of them is not encoded, they do not.
const UNMADE_SHARE_MAX: f64 = 0.5;
/// The source is asked for a keyframe at most once in this time. The time doubles after each
/// request that did not help. A keyframe has about ten times the bytes of other frames.
const ASK_INTERVAL_MIN: Duration = Duration::from_secs(2);

/// The frame that a frame of a source's own chain needs right before it.
fn parent(meta: &FrameMeta) -> Option<Sequence> {
    ancestors::parent(meta).map(|parent| parent.sequence)
}

/// A frame that was sent as it is, and was not lost.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: Sequence,
    parent: Option<Sequence>,
}

/// The source's own chain, on its way to the edge.
#[derive(Default)]
pub(super) struct SourceChain {
    /// The connection of the chain.
    link: Option<LinkId>,
    /// The first frame and the last one that were sent.
    span: Option<(Sequence, Sequence)>,
    sent: VecDeque<Sent>,
    /// Frames that the newest one needs and that have not been sent, oldest first.
    behind: VecDeque<Waiting>,
    /// The mean size of the source's frames.
    mean_bytes: Option<f64>,
    /// Since when frames go as they are without a break.
    since: Option<Instant>,
    rest_time: Duration,
    rests_until: Option<Instant>,
    /// The share of frames that the codec did not encode, of those that it was given lately. 0 since the chain last began.
    unmade_share: f64,
    /// Whether the source must be asked for a keyframe.
    asks: bool,
    /// When the source was last asked, and the pause before the next request. `None` once the chain has begun again.
    asked: Option<(Instant, Duration)>,
}

impl SourceChain {
    // ---- getters ------------------------------------------------------------------------------------------

    /// What has to be sent so that the newest frame can be decoded: the frames behind it, and the newest itself. `None`: it cannot go as it is.
    pub(super) fn own(&self, link: LinkId, newest: &Waiting, anchor: &ClockAnchor) -> Option<Own> {
        let mut held: Vec<Sequence> = match self.link == Some(link) {
            true => self.sent.iter().map(|sent| sent.sequence).collect(),
            false => Vec::new(),
        };
        // A data record goes after the pictures behind it, and needs none of them.
        let pictures =
            Some(newest).filter(|newest| newest.meta().encoding.is_picture() || self.behind.is_empty());
        for waiting in self.behind.iter().chain(pictures) {
            let meta = waiting.meta();
            if !meta.encoding.is_chained() || parent(meta).is_some_and(|parent| !held.contains(&parent)) {
                return None;
            }
            held.push(meta.id.sequence);
        }
        let first = self.behind.front().unwrap_or(newest);
        Some(Own {
            bytes: self.behind.iter().chain([newest]).map(Waiting::bytes).sum(),
            captured: anchor.instant_at(first.meta().captured),
            first_bytes: first.bytes().min(u64::from(u32::MAX)) as u32,
            begins: parent(first.meta()).is_none(),
            mean_bytes: self.mean_bytes(),
            rests: false,
            has_alternative: self.unmade_share <= UNMADE_SHARE_MAX,
        })
    }

    /// The mean bytes of the chain's frames.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.mean_bytes.unwrap_or_default()
    }

    /// Whether frames wait behind the newest.
    pub(super) fn has_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Whether the chain has to begin, and may not begin yet.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.since.is_none() && self.rests_until.is_some_and(|until| now < until)
    }

    /// Whether the chain can begin with this frame.
    pub(super) fn begins(&self, now: Instant, meta: &FrameMeta) -> bool {
        meta.encoding.is_chained() && parent(meta).is_none() && !self.rests(now)
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A frame of the chain was published.
    pub(super) fn published(&mut self, bytes: usize) {
        let bytes = bytes as f64;
        let mean = self.mean_bytes.get_or_insert(bytes);
        *mean += (bytes - *mean) * MEAN_GAIN;
    }

    /// The frame `newest` replaces `older`. `link`: the connection over which frames can go now. Returns the frames that are
    /// skipped; the others wait behind the newest. A data record needs no frame, but displaces no picture that later ones may need.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        older: Waiting,
        newest: &FrameMeta,
        link: Option<LinkId>,
    ) -> Vec<Waiting> {
        let needs = parent(newest).filter(|_| newest.encoding.is_chained());
        let first = self.behind.front().unwrap_or(&older).meta();
        let goes = first.id.epoch == newest.id.epoch && link.is_some_and(|link| self.goes_on(link, first));
        let is_picture = older.meta().encoding.is_picture();
        match needs {
            Some(parent) if goes && parent == older.id().sequence => self.wait_behind(now, older),
            Some(parent) if goes => {
                // Frames after the one that the newest needs waited because of a data record.
                let kept = self.behind.partition_point(|waiting| waiting.id().sequence <= parent);
                self.behind.drain(kept..).chain([older]).collect()
            }
            None if goes && !newest.encoding.is_picture() && is_picture => self.wait_behind(now, older),
            None if goes && !newest.encoding.is_picture() => vec![older],
            _ => {
                let mut skipped = self.take_behind();
                skipped.push(older);
                skipped
            }
        }
    }

    /// Puts a frame behind the newest. Returns all frames behind it if they are too many.
    fn wait_behind(&mut self, now: Instant, older: Waiting) -> Vec<Waiting> {
        self.behind.push_back(older);
        let bytes: u64 = self.behind.iter().map(Waiting::bytes).sum();
        let is_full = self.behind.len() > BEHIND_FRAMES_MAX || bytes > BEHIND_BYTES_MAX;
        if !is_full || self.behind.len() == 1 {
            return Vec::new();
        }
        self.rest(now);
        self.take_behind()
    }

    /// A frame is given to a connection as it is.
    pub(super) fn sent(&mut self, now: Instant, link: LinkId, meta: &FrameMeta) {
        let parent = parent(meta);
        if parent.is_none() {
            self.sent.clear();
            self.link = Some(link);
            self.since.get_or_insert(now);
            self.unmade_share = 0.0;
            self.asked = None;
        }
        let first = self.span.filter(|_| parent.is_some()).map_or(meta.id.sequence, |(first, _)| first);
        self.span = Some((first, meta.id.sequence));
        debug_assert_eq!(self.link, Some(link), "a source's chain goes on over another connection");
        debug_assert!(self.holds(parent), "{:?} goes without {parent:?}", meta.id);
        if self.sent.len() == SENT_MAX {
            // The next frame needs one of the newest frames. After a long run of frames
            // that no other frame needs, it may need the parent of the last one.
            let oldest = self.sent.iter().position(|sent| Some(sent.sequence) != parent);
            oldest.and_then(|oldest| self.sent.remove(oldest));
        }
        self.sent.push_back(Sent { sequence: meta.id.sequence, parent });
    }

    /// A frame will not arrive. Frames that need it are of no use.
    pub(super) fn lost(&mut self, frame: Sequence) {
        let Some(place) = self.sent.iter().position(|sent| sent.sequence == frame) else { return };
        let mut lost = vec![frame];
        self.sent.remove(place);
        self.sent.retain(|sent| {
            let needs_lost = sent.parent.is_some_and(|parent| lost.contains(&parent));
            lost.extend(needs_lost.then_some(sent.sequence));
            !needs_lost
        });
    }

    /// The edge could not decode a frame of a chain, or wants a new chain in its place.
    pub(super) fn refresh(&mut self, link: LinkId, frame: Sequence) {
        // The chain may have begun anew since.
        let concerns = self.span.is_some_and(|(first, last)| (first..=last).contains(&frame));
        if self.link == Some(link) && concerns {
            self.end();
        }
    }

    /// A frame of the source is encoded at a rung, so the chain goes on only at a keyframe. Returns the
    /// frames behind the newest, which are skipped. `is_refused`: the link had no room for the chain.
    pub(super) fn give_up(&mut self, now: Instant, is_refused: bool) -> Vec<Waiting> {
        if is_refused {
            self.rest(now);
        }
        self.end();
        if self.rests_until.is_none_or(|until| now >= until) {
            self.ask(now);
        }
        self.take_behind()
    }

    /// The codec cannot decode the newest frame, or has many frames to decode before it, so no frame goes. A keyframe
    /// of the source would help at once, even while it may not begin the chain, because it can be encoded at a rung.
    fn handle_undecoded(&mut self, now: Instant) {
        self.ask(now);
    }

    /// The codec has encoded a frame, or has not.
    pub(super) fn handle_transformed(&mut self, now: Instant, transformed: &Transformed) {
        let is_undecoded = matches!(transformed, Transformed::NotYet | Transformed::Lacking);
        if is_undecoded {
            self.handle_undecoded(now);
        }
        let is_unmade = is_undecoded || matches!(transformed, Transformed::Failed);
        self.unmade_share += (f64::from(u8::from(is_unmade)) - self.unmade_share) * UNMADE_GAIN;
    }

    /// Asks the source for a keyframe, unless it was asked a short time ago.
    fn ask(&mut self, now: Instant) {
        let is_due = self.asked.is_none_or(|(asked, pause)| now.saturating_since(asked) >= pause);
        if is_due {
            // A request that did not help is repeated less and less often.
            let pause = self.asked.map_or(ASK_INTERVAL_MIN, |(_, pause)| (pause * 2).min(REST_TIME_MAX));
            (self.asks, self.asked) = (true, Some((now, pause)));
        }
    }

    /// A frame gives way to a newer one, or nothing of it arrives. If the frame is of the chain, the link had no room for the chain.
    pub(super) fn gives_way(&mut self, now: Instant, frame: Sequence) {
        if self.sent.iter().any(|sent| sent.sequence == frame) {
            self.rest(now);
        }
    }

    /// The link has no room for the chain: keyframes do not begin it again for a while.
    fn rest(&mut self, now: Instant) {
        // A keyframe that does not begin the chain costs nothing. Only a chain that began and did not last is a reason to wait longer.
        let next = match self.since.take() {
            None => self.rest_time,
            Some(since) if now.saturating_since(since) < LASTS_MIN => self.rest_time * 2,
            Some(_) => REST_TIME_MIN,
        };
        self.rest_time = next.clamp(REST_TIME_MIN, REST_TIME_MAX);
        self.rests_until = Some(now + self.rest_time);
    }

    /// No frame goes as it is before the next keyframe.
    pub(super) fn end(&mut self) {
        (self.link, self.span, self.since) = (None, None, None);
        self.sent.clear();
    }

    /// Takes the frames behind the newest.
    pub(super) fn take_behind(&mut self) -> Vec<Waiting> {
        self.behind.drain(..).collect()
    }

    /// Takes the frame that goes first.
    pub(super) fn take_first(&mut self, newest: &mut Option<Waiting>) -> Option<Waiting> {
        self.behind.pop_front().or_else(|| newest.take())
    }

    /// Whether to ask the source for a keyframe, with which its chain could go again. Clears the request.
    pub(super) fn take_question(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    fn goes_on(&self, link: LinkId, meta: &FrameMeta) -> bool {
        let parent = parent(meta);
        meta.encoding.is_chained() && (parent.is_none() || self.link == Some(link) && self.holds(parent))
    }

    fn holds(&self, parent: Option<Sequence>) -> bool {
        parent.is_none_or(|parent| self.sent.iter().any(|sent| sent.sequence == parent))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::{
        ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, Quality, Reference, Rung, SkipReason,
    };
    use crate::log::Record;
    use crate::units::Timestamp;

    const LINK: LinkId = LinkId(1);
    const ANCHOR: ClockAnchor =
        ClockAnchor { wall: Timestamp::from_nanos(0), monotonic: Instant::from_nanos(0) };

    #[derive(Clone, Copy, Debug)]
    enum Kind {
        Key,
        Needed,
        Spare,
        Record,
    }

    /// A source, and all that it has published.
    #[derive(Default)]
    struct Stream {
        links: Vec<ChainLink>,
        /// The last picture.
        last: Option<ChainLink>,
        needed: Option<u64>,
    }

    impl Stream {
        fn publish(&mut self, kind: Kind) -> Waiting {
            let sequence = self.links.len() as u64;
            if matches!(kind, Kind::Record) {
                let link = ChainLink::still(Sequence(sequence));
                self.links.push(link);
                return coded(sequence, link, Encoding::Data);
            }
            let link = match (kind, self.needed, self.last) {
                (Kind::Key, ..) | (_, None, _) | (.., None) => ChainLink::still(Sequence(sequence)),
                (_, Some(needed), Some(last)) => {
                    let reference = match needed + 1 == sequence {
                        true => Reference::Previous,
                        false => Reference::Acknowledged(Sequence(needed)),
                    };
                    ChainLink { chain: last.chain, index: last.index + 1, reference }
                }
            };
            if !matches!(kind, Kind::Spare) || self.needed.is_none() {
                self.needed = Some(sequence);
            }
            self.links.push(link);
            self.last = Some(link);
            waiting(sequence, link)
        }

        fn parent(&self, sequence: Sequence) -> Option<Sequence> {
            parent(waiting(sequence.0, self.links[sequence.0 as usize]).meta())
        }
    }

    fn waiting(sequence: u64, chain: ChainLink) -> Waiting {
        coded(sequence, chain, Encoding::H264)
    }

    fn coded(sequence: u64, chain: ChainLink, encoding: Encoding) -> Waiting {
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: Timestamp::from_nanos(sequence * 33_000_000),
            clock_source: ClockSource::Broker,
            width: 64,
            height: 48,
            published: (64, 48),
            encoding,
            rung: Rung::original(),
            chain,
        };
        let frame = Frame { meta, payload: vec![0; 10].into() };
        let (skipped, quality, now) = (Arc::new([]), Quality::default(), Instant::from_nanos(0));
        let record = Record { frame, skipped, quality, trace: None, link_bytes: None, arrived: now };
        Waiting { record, reason: SkipReason::LinkBusy, published: now, rests_until: None, is_plain: false }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Publish(Kind),
        Send,
        Lose(usize),
        Reconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Publish(Kind::Key)),
            6 => Just(Step::Publish(Kind::Needed)),
            4 => Just(Step::Publish(Kind::Spare)),
            2 => Just(Step::Publish(Kind::Record)),
            8 => Just(Step::Send),
            1 => (0..4usize).prop_map(Step::Lose),
            1 => Just(Step::Reconnect),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// However frames come and get lost: a sent frame needs only frames that were sent before over the same connection and were not
        /// lost at that time. Each frame is sent, skipped or waits. A skipped frame is never one that a waiting or later sent frame needs.
        #[test]
        fn what_is_sent_can_be_decoded_and_nothing_is_forgotten(steps in prop::collection::vec(step(), 1..150)) {
            let (mut stream, mut chain, mut newest) = (Stream::default(), SourceChain::default(), None::<Waiting>);
            let (mut link, now) = (LINK, Instant::from_nanos(0));
            let (mut arrives, mut sent, mut skipped) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Publish(kind) => {
                        let next = stream.publish(kind);
                        if let Some(older) = newest.take() {
                            let gone = chain.replace(now, older, next.meta(), Some(link));
                            skipped.extend(gone.iter().map(|gone| gone.id().sequence));
                        }
                        newest = Some(next);
                    }
                    Step::Send => {
                        let Some(waiting) = &newest else { continue };
                        if !waiting.meta().encoding.is_picture() && !chain.has_behind() {
                            sent.extend(newest.take().map(|newest| newest.id().sequence));
                            continue;
                        }
                        if chain.own(link, waiting, &ANCHOR).is_none() {
                            // The frame is encoded at a rung, or goes alone.
                            let gone = chain.give_up(now, false);
                            skipped.extend(gone.iter().map(|gone| gone.id().sequence));
                            sent.extend(newest.take().map(|newest| newest.id().sequence));
                            arrives.clear();
                            continue;
                        }
                        let first = chain.take_first(&mut newest).expect("something waits");
                        let (sequence, needs) = (first.id().sequence, stream.parent(first.id().sequence));
                        prop_assert!(needs.is_none_or(|needs| arrives.contains(&needs)), "{sequence:?} needs {needs:?}");
                        sent.insert(sequence);
                        if first.meta().encoding.is_picture() {
                            chain.sent(now, link, first.meta());
                            arrives.insert(sequence);
                        }
                    }
                    Step::Lose(back) => {
                        let Some(lost) = arrives.iter().rev().nth(back).copied() else { continue };
                        chain.lost(lost);
                        arrives.remove(&lost);
                        loop {
                            let needs_lost = |of: &Sequence| stream.parent(*of).is_some_and(|parent| !arrives.contains(&parent));
                            let Some(next) = arrives.iter().copied().find(needs_lost) else { break };
                            arrives.remove(&next);
                        }
                    }
                    Step::Reconnect => {
                        link = LinkId(link.0 + 1);
                        arrives.clear();
                    }
                }
                prop_assert!(chain.behind.len() <= BEHIND_FRAMES_MAX);
                let waits: BTreeSet<Sequence> =
                    chain.behind.iter().chain(&newest).map(|waiting| waiting.id().sequence).collect();
                let all: BTreeSet<Sequence> = (0..stream.links.len() as u64).map(Sequence).collect();
                let told: BTreeSet<Sequence> = sent.iter().chain(&skipped).chain(&waits).copied().collect();
                prop_assert_eq!(told, all);
                prop_assert_eq!(sent.len() + skipped.len() + waits.len(), stream.links.len(), "one frame is two things");
            }
        }
    }

    /// On a link without room for the chain, the chain is tried rarely.
    #[test]
    fn a_chain_that_is_given_up_soon_again_rests_longer() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut chain = SourceChain::default();
        let begin = |chain: &mut SourceChain, seconds, sequence| {
            chain.sent(at(seconds), LINK, waiting(sequence, ChainLink::still(Sequence(sequence))).meta());
        };
        begin(&mut chain, 0, 0);
        chain.give_up(at(1), true);
        assert!(chain.rests(at(2)) && !chain.rests(at(3)));
        begin(&mut chain, 3, 1);
        chain.give_up(at(4), true);
        assert!(chain.rests(at(7)) && !chain.rests(at(8)), "twice as long");
        begin(&mut chain, 8, 2);
        chain.give_up(at(19), true);
        assert!(chain.rests(at(20)) && !chain.rests(at(21)), "it had lasted");
        begin(&mut chain, 21, 3);
        chain.give_up(at(22), false);
        assert!(!chain.rests(at(22)), "nothing was wrong with the link");
        for seconds in 0..20 {
            chain.give_up(at(50 + seconds), true);
        }
        assert!(
            chain.rests(at(70)) && !chain.rests(at(71)),
            "a key frame that the link has no room for costs nothing"
        );
        for number in 0..20 {
            begin(&mut chain, 100 + number, 4 + number);
            chain.give_up(at(100 + number), true);
        }
        assert!(chain.rests(at(119 + 63)) && !chain.rests(at(119 + 64)));
    }

    /// The source is asked when its chain could go, and not at every frame.
    #[test]
    fn a_key_frame_is_asked_for_when_it_would_help() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut chain = SourceChain::default();
        let mut asks = |seconds, is_refused| {
            chain.give_up(at(seconds), is_refused);
            chain.take_question()
        };
        assert!(asks(10, false) && !asks(11, false) && asks(12, false));
        assert!(!asks(20, true), "the link had no room");
        assert!(!asks(21, false) && asks(22, false));
        assert!(!asks(29, false) && asks(30, false), "it did not help");
    }

    /// A chain that rests needs no keyframes as long as frames can be encoded at rungs.
    #[test]
    fn a_key_frame_is_asked_for_while_the_chain_rests_if_nothing_can_be_decoded() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut chain = SourceChain::default();
        chain.give_up(at(10), true);
        assert!(chain.rests(at(11)) && !chain.take_question());
        let mut asks = |seconds| {
            chain.handle_undecoded(at(seconds));
            chain.take_question()
        };
        assert!(asks(11) && !asks(12) && asks(13), "at most once in two seconds");
        assert!(!asks(16) && asks(17), "it did not help");
    }
}
