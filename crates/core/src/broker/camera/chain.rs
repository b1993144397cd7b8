//! What is known of the frames that others refer to: which of them arrived, which were lost, and when one has to stand alone.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::News;
use crate::broker::LinkId;
use crate::frame::{ChainLink, Reference, Sequence};
use crate::setting::Setting;
use crate::units::{Instant, Timestamp};

/// Frames of a chain whose fate is open, at most. More than a link lets be on their way; beyond that the chain ends.
const OPEN_MAX: usize = 64;
/// The longest time from the capture of a chain's first frame to that of its last. An encoder may end it sooner.
const CHAIN_DURATION_MAX: Duration = Duration::from_secs(10);
/// An edge gets no more frames that stand alone than one in this time, however often it asks.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// The chain that is being sent.
#[derive(Debug)]
struct Begun {
    first: Sequence,
    last: Sequence,
    captured: Timestamp,
    /// What was asked for its last frame.
    setting: Setting,
    /// The newest of its frames that has arrived.
    arrived: Option<Sequence>,
    /// Frames that were lost since the last one that was sent and not lost.
    lost: u32,
}

/// What the next frame may go on after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<'a> {
    /// What was asked for the last frame.
    pub(super) setting: &'a Setting,
    /// Frames that were lost since the one that it would refer to.
    pub(super) lost: u32,
}

/// The account of the chain that is being sent.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The connection that it goes over: behind another one there may be another decoder.
    link: Option<LinkId>,
    begun: Option<Begun>,
    /// Frames that were sent and neither arrived nor were lost.
    open: VecDeque<Sequence>,
    /// What the codec has not been told.
    news: News,
    refreshed: Option<Instant>,
}

impl Chain {
    /// What the next frame, captured at `captured`, may refer to on this connection.
    pub(super) fn reference(&self, link: LinkId, captured: Timestamp) -> Reference {
        match self.goes_on(link, captured) {
            Some(_) => Reference::Previous,
            None => Reference::Independent,
        }
    }

    /// What the next frame may go on after, if it need not stand alone.
    pub(super) fn goes_on(&self, link: LinkId, captured: Timestamp) -> Option<Before<'_>> {
        self.goes_on_after(link, captured, 0)
    }

    /// The same once `frame` is lost.
    pub(super) fn goes_on_without(
        &self,
        link: LinkId,
        captured: Timestamp,
        frame: Sequence,
    ) -> Option<Before<'_>> {
        let begins = self.begun.as_ref().is_some_and(|begun| begun.first == frame);
        let lost = u32::from(self.open.contains(&frame));
        self.goes_on_after(link, captured, lost).filter(|_| !begins)
    }

    fn goes_on_after(&self, link: LinkId, captured: Timestamp, lost: u32) -> Option<Before<'_>> {
        let begun = self.begun.as_ref().filter(|_| self.link == Some(link))?;
        let lost = begun.lost + lost;
        let young = captured.saturating_since(begun.captured) < CHAIN_DURATION_MAX;
        // Around a loss only a frame that has arrived can be referred to.
        let refers = lost == 0 || begun.arrived.is_some();
        (young && refers).then_some(Before { setting: &begun.setting, lost })
    }

    /// What happened to frames since this was last asked.
    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Whether a frame that was just made can be decoded by whoever got all that was not lost: nothing that it refers to was lost while
    /// it was made, nor was it sent over another connection.
    pub(super) fn holds(&self, link: LinkId, made: &ChainLink) -> bool {
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
    pub(super) fn sent(
        &mut self,
        link: LinkId,
        (sequence, captured): (Sequence, Timestamp),
        made: &ChainLink,
        setting: Setting,
    ) {
        if made.reference == Reference::Independent {
            self.link = Some(link);
            self.open.clear();
            self.begun =
                Some(Begun { first: sequence, last: sequence, captured, setting, arrived: None, lost: 0 });
        } else if let Some(begun) = &mut self.begun {
            (begun.last, begun.setting, begun.lost) = (sequence, setting, 0);
        }
        self.open.push_back(sequence);
        if self.open.len() > OPEN_MAX {
            self.end();
        }
    }

    /// A frame was made and is not sent.
    pub(super) fn not_sent(&mut self, sequence: Sequence) {
        self.note(|news| news.lost.push(sequence));
        if self.begun.as_ref().is_some_and(|begun| begun.first == sequence) {
            self.begun = None;
        }
        if let Some(begun) = &mut self.begun {
            begun.lost += 1;
        }
    }

    /// The edge has all of a frame.
    pub(super) fn arrived(&mut self, sequence: Sequence) {
        if self.forget(sequence) {
            self.note(|news| news.arrived.push(sequence));
            if let Some(begun) = self.begun.as_mut().filter(|begun| begun.first <= sequence) {
                begun.arrived = begun.arrived.max(Some(sequence));
            }
        }
    }

    /// A frame was given up, or refused, or its connection is gone.
    pub(super) fn lost(&mut self, sequence: Sequence) {
        if self.forget(sequence) {
            self.not_sent(sequence);
        }
    }

    /// The edge could not decode a frame.
    pub(super) fn refresh(&mut self, now: Instant, link: LinkId, frame: Sequence) {
        // The chain may have begun anew since.
        let concerns = self.link == Some(link)
            && self.begun.as_ref().is_some_and(|begun| (begun.first..=begun.last).contains(&frame));
        let due = self.refreshed.is_none_or(|last| now.saturating_since(last) >= REFRESH_INTERVAL);
        if concerns && due {
            self.refreshed = Some(now);
            self.end();
        }
    }

    /// The next frame stands alone.
    pub(super) fn end(&mut self) {
        self.begun = None;
        self.open.clear();
        // A codec that begins anew has no use for it.
        self.news = News::default();
    }

    fn forget(&mut self, sequence: Sequence) -> bool {
        let place = self.open.iter().position(|open| *open == sequence);
        place.and_then(|place| self.open.remove(place)).is_some()
    }

    fn note(&mut self, note: impl FnOnce(&mut News)) {
        note(&mut self.news);
        if self.news.arrived.len() + self.news.lost.len() > OPEN_MAX {
            self.end();
        }
    }
}
