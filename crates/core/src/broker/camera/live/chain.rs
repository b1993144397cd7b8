//! Decides which frames the next one may refer to, and when it must be a keyframe.
//!
//! A frame that has arrived is of use only if the frames that it refers to have arrived too: the edge keeps it until
//! then (`edge/arrivals.rs`). So frames count as arrived in the order of their references. A frame that refers to a lost
//! frame is lost too, even if it arrives. A frame older than one that the edge has already taken is no longer taken.

use std::collections::VecDeque;
use std::time::Duration;

use crate::broker::LinkId;
use crate::broker::camera::adapt::Before;
use crate::broker::camera::types::News;
use crate::frame::{ChainLink, Reference, Sequence};
use crate::setting::Setting;
use crate::units::{Instant, Timestamp};

/// The most open frames of a chain: sent, and neither arrived nor lost. A link allows fewer on their way, so
/// this is never reached in regular operation; if it is, the chain ends.
const OPEN_MAX: usize = 64;
/// The longest time from the capture of a chain's first frame to that of its last. It bounds how far back a
/// decoder depends on earlier frames. An encoder may end a chain sooner.
const CHAIN_DURATION_MAX: Duration = Duration::from_secs(10);
/// An edge gets at most one requested keyframe in this time, because a keyframe has about ten times the bytes
/// of other frames. An earlier request is served when the time is over.
const KEYFRAME_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The chain that is being sent.
#[derive(Debug)]
struct Begun {
    first: Sequence,
    last: Sequence,
    captured: Timestamp,
    /// The setting that its last frame was encoded for.
    setting: Setting,
    /// The newest of its frames that has arrived and can be decoded.
    arrived: Option<Sequence>,
    /// Frames lost since the last frame that was sent and not lost.
    lost: u32,
}

/// A sent frame of which it is not known whether the edge can decode it.
#[derive(Clone, Copy, Debug)]
struct Open {
    sequence: Sequence,
    /// Whether it refers to the frame before. Otherwise it refers to no frame, or to one that has arrived.
    follows: bool,
    /// Whether the edge has it.
    arrived: bool,
}

/// Follows the frames of the chain that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// The connection of the chain. At the end of another connection there may be another decoder.
    link: Option<LinkId>,
    begun: Option<Begun>,
    /// Frames that were sent and not lost, beginning with the oldest of which it is not known whether the edge can decode it.
    open: VecDeque<Open>,
    /// Arrivals and losses that the codec has not been told yet.
    news: News,
    refreshed: Option<Instant>,
    /// Whether the edge has asked for a keyframe earlier than [`KEYFRAME_INTERVAL_MIN`] allows.
    refresh_owed: bool,
}

impl Chain {
    /// What the next frame on this connection, captured at `captured`, may refer to.
    pub(crate) fn reference(&self, link: LinkId, captured: Timestamp) -> Reference {
        match self.goes_on(link, captured) {
            Some(_) => Reference::Previous,
            None => Reference::Independent,
        }
    }

    /// The frame that the next one may refer to, if it need not be a keyframe.
    pub(crate) fn goes_on(&self, link: LinkId, captured: Timestamp) -> Option<Before<'_>> {
        self.goes_on_after(link, captured, 0)
    }

    /// The frame that the next one may refer to, if `frame` were lost.
    pub(crate) fn goes_on_without(
        &self,
        link: LinkId,
        captured: Timestamp,
        frame: Sequence,
    ) -> Option<Before<'_>> {
        let begins = self.begun.as_ref().is_some_and(|begun| begun.first == frame);
        let lost = u32::from(self.open.iter().any(|open| open.sequence == frame));
        self.goes_on_after(link, captured, lost).filter(|_| !begins)
    }

    fn goes_on_after(&self, link: LinkId, captured: Timestamp, lost: u32) -> Option<Before<'_>> {
        let begun = self.begun.as_ref().filter(|_| self.link == Some(link))?;
        let lost = begun.lost + lost;
        let young = captured.saturating_since(begun.captured) < CHAIN_DURATION_MAX;
        // After a loss, only a frame that has arrived can be referred to.
        let refers = lost == 0 || begun.arrived.is_some();
        (young && refers).then_some(Before { setting: &begun.setting, lost })
    }

    /// Takes the arrivals and losses since the last call.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Whether the edge can decode a frame that was just encoded, if it gets all frames that are not lost: no
    /// frame that it refers to was lost meanwhile or was sent over another connection.
    pub(crate) fn holds(&self, link: LinkId, made: &ChainLink) -> bool {
        let refers = match made.reference {
            Reference::Independent => return true,
            Reference::Previous => self.begun.as_ref().map(|begun| begun.last),
            Reference::Acknowledged(sequence) => Some(sequence),
        };
        self.link == Some(link)
            && self.begun.as_ref().is_some_and(|begun| begun.first == made.chain)
            && refers.is_some_and(|refers| !self.news.lost.contains(&refers))
    }

    /// A frame of a chain is given to a connection.
    pub(crate) fn sent(
        &mut self,
        link: LinkId,
        (sequence, captured): (Sequence, Timestamp),
        made: &ChainLink,
        setting: Setting,
    ) {
        if made.reference == Reference::Independent {
            self.link = Some(link);
            self.open.clear();
            self.refresh_owed = false;
            self.begun =
                Some(Begun { first: sequence, last: sequence, captured, setting, arrived: None, lost: 0 });
        } else if let Some(begun) = &mut self.begun {
            // A frame that refers to another is sent only on the connection of its chain: `holds`.
            debug_assert_eq!(self.link, Some(link), "a chain goes on over another connection");
            // Frames are encoded one at a time, in the log's order.
            debug_assert!(begun.last < sequence, "{sequence:?} goes on after {:?}", begun.last);
            (begun.last, begun.setting, begun.lost) = (sequence, setting, 0);
        }
        let follows = made.reference == Reference::Previous;
        // Frames are sent in the log's order, and `open` is emptied where a chain begins or an epoch ends.
        debug_assert!(self.open.back().is_none_or(|last| last.sequence < sequence), "open out of order");
        self.open.push_back(Open { sequence, follows, arrived: false });
        if self.open.len() > OPEN_MAX {
            self.end();
        }
    }

    /// A frame was encoded and is not sent.
    pub(crate) fn not_sent(&mut self, sequence: Sequence) {
        self.note(|news| news.lost.push(sequence));
        if self.begun.as_ref().is_some_and(|begun| begun.first == sequence) {
            self.begun = None;
        }
        if let Some(begun) = &mut self.begun {
            begun.lost += 1;
        }
    }

    /// A frame has arrived at the edge completely.
    pub(crate) fn arrived(&mut self, sequence: Sequence) {
        let Some(open) = self.open.iter_mut().find(|open| open.sequence == sequence) else { return };
        open.arrived = true;
        // Find the newest frame that the edge can decode. All frames that the oldest open one refers to have
        // arrived.
        let (mut newest, mut decodes) = (None, true);
        for (place, open) in self.open.iter().enumerate() {
            decodes = open.arrived && (decodes || !open.follows);
            newest = if decodes { Some(place) } else { newest };
        }
        let Some(newest) = newest else { return };
        let mut decodes = true;
        for open in self.open.drain(..=newest).collect::<Vec<_>>() {
            decodes = open.arrived && (decodes || !open.follows);
            let Open { sequence, .. } = open;
            self.note(|news| if decodes { news.arrived.push(sequence) } else { news.lost.push(sequence) });
            if let Some(begun) = self.begun.as_mut().filter(|begun| decodes && begun.first <= sequence) {
                debug_assert!(sequence <= begun.last, "{sequence:?} has arrived and was not sent");
                begun.arrived = begun.arrived.max(Some(sequence));
            }
        }
    }

    /// A frame was given up, or refused, or its connection is gone.
    pub(crate) fn lost(&mut self, sequence: Sequence) {
        let Some(place) = self.open.iter().position(|open| open.sequence == sequence) else { return };
        let after = self.open.iter().skip(place + 1).take_while(|open| open.follows).count();
        for open in self.open.drain(place..=place + after).collect::<Vec<_>>() {
            self.not_sent(open.sequence);
        }
    }

    /// The edge could not decode a frame.
    pub(crate) fn refresh(&mut self, now: Instant, link: LinkId, frame: Sequence) {
        // The chain may have begun anew since.
        let concerns = self.link == Some(link)
            && self.begun.as_ref().is_some_and(|begun| (begun.first..=begun.last).contains(&frame));
        let due = self.refreshed.is_none_or(|last| now.saturating_since(last) >= KEYFRAME_INTERVAL_MIN);
        if concerns && due {
            self.refreshed = Some(now);
            self.end();
        }
        self.refresh_owed |= concerns && !due;
    }

    /// Serves a delayed request of the edge for a keyframe, once it is due.
    pub(crate) fn refresh_late(&mut self, now: Instant) {
        let due = self.refreshed.is_none_or(|last| now.saturating_since(last) >= KEYFRAME_INTERVAL_MIN);
        if self.refresh_owed && due {
            self.refreshed = Some(now);
            self.end();
        }
    }

    /// Ends the chain: the next frame is a keyframe.
    pub(crate) fn end(&mut self) {
        self.begun = None;
        self.refresh_owed = false;
        self.open.clear();
        // A codec that begins a new chain has no use for the news.
        self.news = News::default();
    }

    fn note(&mut self, note: impl FnOnce(&mut News)) {
        note(&mut self.news);
        if self.news.arrived.len() + self.news.lost.len() > OPEN_MAX {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::setting::{Chains, default_ladder};

    const LINK: LinkId = LinkId(1);

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send,
        Arrive(usize),
        Lose(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Send),
            3 => (0..8usize).prop_map(Step::Arrive),
            1 => (0..8usize).prop_map(Step::Lose),
        ]
    }

    /// A codec that follows its instructions, and what really became of its frames.
    #[derive(Default)]
    struct Stream {
        chain: Chain,
        first: Sequence,
        index: u32,
        last: Option<Sequence>,
        arrived: Option<Sequence>,
        /// What each frame refers to, and whether the edge has it.
        frames: Vec<(Option<Sequence>, bool)>,
        open: Vec<Sequence>,
    }

    impl Stream {
        fn send(&mut self) {
            let sequence = Sequence(self.frames.len() as u64);
            let captured = Timestamp::from_nanos(sequence.0 * 1_000_000);
            let allowed = self.chain.reference(LINK, captured);
            let news = self.chain.take_news();
            self.arrived = self.arrived.max(news.arrived.into_iter().max());
            for lost in news.lost {
                self.last.take_if(|last| *last >= lost);
            }
            let arrived = self.arrived.filter(|arrived| *arrived >= self.first);
            let (reference, refers) = match (allowed, self.last, arrived) {
                (Reference::Independent, ..) | (_, None, None) => (Reference::Independent, None),
                (_, Some(last), _) => (Reference::Previous, Some(last)),
                (_, None, Some(arrived)) => (Reference::Acknowledged(arrived), Some(arrived)),
            };
            if refers.is_none() {
                (self.first, self.index) = (sequence, 0);
            } else {
                self.index += 1;
            }
            let made = ChainLink { chain: self.first, index: self.index, reference };
            assert!(self.chain.holds(LINK, &made), "{made:?}");
            let setting = default_ladder((640, 480), Chains::ALL)[0];
            self.chain.sent(LINK, (sequence, captured), &made, setting);
            self.last = Some(sequence);
            self.frames.push((refers, false));
            self.open.push(sequence);
        }

        fn decodes(&self, sequence: Sequence) -> bool {
            let (refers, arrived) = self.frames[sequence.0 as usize];
            arrived && refers.is_none_or(|refers| self.decodes(refers))
        }

        fn arrive(&mut self, sequence: Sequence) {
            self.frames[sequence.0 as usize].1 = true;
            self.chain.arrived(sequence);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// In whatever order frames arrive and are lost: frames that are reported as arrived can be decoded from the frames
        /// that arrived, so any frame may refer to them. Once the fate of all frames is known, none of them is kept.
        #[test]
        fn what_has_arrived_can_be_decoded(steps in prop::collection::vec(step(), 1..120)) {
            let mut stream = Stream::default();
            for step in steps {
                match step {
                    Step::Send => stream.send(),
                    Step::Arrive(place) if place < stream.open.len() => {
                        let sequence = stream.open.remove(place);
                        stream.arrive(sequence);
                    }
                    Step::Lose(place) if place < stream.open.len() => {
                        let sequence = stream.open.remove(place);
                        stream.chain.lost(sequence);
                    }
                    Step::Arrive(_) | Step::Lose(_) => {}
                }
                let told = &stream.chain.news.arrived;
                prop_assert!(told.iter().all(|told| stream.decodes(*told)), "{told:?} of {:?}", stream.frames);
            }
            for sequence in std::mem::take(&mut stream.open) {
                stream.arrive(sequence);
            }
            prop_assert!(stream.chain.open.is_empty(), "{:?}", stream.chain.open);
        }
    }
}
