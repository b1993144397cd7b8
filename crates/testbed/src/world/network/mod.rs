//! Holds the links of a world, and the media that links share.
//!
//! [`Network`] owns both, because a link and its medium must agree on the contents of the link's
//! queues. The world lends it the [`Stage`], and takes the links' outputs from it.

mod medium;

use std::collections::VecDeque;
use std::time::Duration;

use mez_core::broker::LinkId;

use self::medium::{Medium, Passed};
use super::bug::Bug;
use super::node::{Node, Timer};
use super::spec::{CameraSpec, MediumId, MediumSpec};
use super::stage::Stage;
use crate::link::{Link, LinkOutput, LinkSpec, Side};
use crate::random::Random;
use crate::time::Moment;

/// With [`Bug::PieceForgotten`], one transmitted piece of a shared medium in about this many is forgotten.
const FORGOTTEN_ONCE_IN: u64 = 20;

/// A link, with the host at its camera's end.
struct LinkNode {
    link: Link,
    /// The rate with which the link was created, in bits per second, if it shares no medium.
    made_with: u64,
    /// The medium that the link shares, and the link's place there.
    medium: Option<(usize, usize)>,
    timer: Timer,
    /// While the camera's host is frozen: what has arrived for it.
    frozen: Option<VecDeque<LinkOutput>>,
}

struct MediumNode {
    medium: Medium,
    timer: Timer,
    /// The links of the medium's cameras, by place.
    members: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Network {
    links: Vec<LinkNode>,
    media: Vec<MediumNode>,
}

impl Network {
    // ---- creation -----------------------------------------------------------------------------------------

    /// Creates a medium that links can share.
    pub(super) fn add_medium(&mut self, spec: MediumSpec, random: Random) -> MediumId {
        let medium = Medium::new(spec, random);
        self.media.push(MediumNode { medium, timer: Timer::new(), members: Vec::new() });
        MediumId(self.media.len() - 1)
    }

    /// Creates a camera's link, with a place on the medium that it shares. The medium then sets the link's rate.
    pub(super) fn add_link(&mut self, spec: &mut CameraSpec, random: Random, bug: Option<Bug>) -> usize {
        let link = self.links.len();
        let medium = spec.medium.map(|medium| self.join(medium, link));
        if let Some((medium, _)) = medium {
            let medium = &self.media[medium].medium;
            spec.link.bits_per_second = medium.share();
            spec.link.queue_bytes_max = medium.queue_share().unwrap_or(spec.link.queue_bytes_max);
        }
        let carries = match bug {
            Some(Bug::LongQueue) => {
                LinkSpec { queue_bytes_max: spec.link.queue_bytes_max * 100, bounded: false, ..spec.link }
            }
            _ => spec.link,
        };
        let make = if medium.is_some() { Link::shared } else { Link::new };
        self.links.push(LinkNode {
            link: make(carries, random, (link as u64 + 1) << 32),
            made_with: spec.link.bits_per_second,
            medium,
            timer: Timer::new(),
            frozen: None,
        });
        link
    }

    /// Gives a link a place on a medium.
    fn join(&mut self, medium: MediumId, link: usize) -> (usize, usize) {
        let MediumNode { medium: known, members, .. } = &mut self.media[medium.0];
        let member = members.len();
        assert!(member < known.places(), "the medium has places for {} cameras", known.places());
        members.push(link);
        (medium.0, member)
    }

    // ---- state --------------------------------------------------------------------------------------------

    pub(super) fn link(&self, link: usize) -> &Link {
        &self.links[link].link
    }

    pub(super) fn link_mut(&mut self, link: usize) -> &mut Link {
        &mut self.links[link].link
    }

    pub(super) fn link_timer(&mut self, link: usize) -> &mut Timer {
        &mut self.links[link].timer
    }

    pub(super) fn medium_timer(&mut self, medium: usize) -> &mut Timer {
        &mut self.media[medium].timer
    }

    /// When a medium's next transmission may end.
    pub(super) fn medium_due(&mut self, medium: usize) -> Moment {
        self.media[medium].medium.due()
    }

    /// How long a link may take beyond what its rate implies, because stations contend for its medium.
    pub(super) fn bad_luck(&self, link: usize) -> Duration {
        self.links[link].medium.map_or(Duration::ZERO, |(medium, _)| self.media[medium].medium.bad_luck())
    }

    /// The rate with which a link or its medium was created, in bits per second.
    pub(super) fn made_with_rate(&self, link: usize) -> u64 {
        let LinkNode { made_with, medium, .. } = self.links[link];
        medium.map_or(made_with, |(medium, member)| self.media[medium].medium.made_with(member))
    }

    // ---- events -------------------------------------------------------------------------------------------

    /// Changes a link, which may then have outputs.
    pub(super) fn change(&mut self, link: usize, stage: &mut Stage<'_>, change: impl FnOnce(&mut Link)) {
        change(&mut self.links[link].link);
        stage.touch(Node::Link(link));
    }

    /// Closes a connection from one side.
    pub(super) fn close(&mut self, link: usize, side: Side, connection: LinkId, stage: &mut Stage<'_>) {
        let now = stage.now;
        self.change(link, stage, |link| link.close(now, side, connection));
    }

    /// Changes the rate of a link, or of its medium. Returns the links that are affected: with a medium, all its members.
    pub(super) fn set_rate(
        &mut self,
        link: usize,
        bits_per_second: u64,
        stage: &mut Stage<'_>,
    ) -> Vec<usize> {
        let now = stage.now;
        let Some((medium, member)) = self.links[link].medium else {
            self.change(link, stage, |link| link.set_rate(now, bits_per_second));
            return vec![link];
        };
        let node = &mut self.media[medium];
        node.medium.set_rate(now, member, bits_per_second);
        let (share, members) = (node.medium.share(), node.members.clone());
        for link in &members {
            self.change(*link, stage, |link| link.set_rate(now, share));
        }
        stage.touch(Node::Medium(medium));
        members
    }

    /// Tells a link's medium, if there is one, what has entered the link's queues.
    pub(super) fn announce(&mut self, link: usize, stage: &mut Stage<'_>) {
        let LinkNode { link, medium: Some((medium, member)), .. } = &mut self.links[link] else { return };
        for from in Side::BOTH {
            while let Some(bytes) = link.take_queued(from) {
                self.media[*medium].medium.queue(stage.now, *member, from, bytes);
            }
        }
        stage.touch(Node::Medium(*medium));
    }

    /// Passes on what a medium has transmitted by now.
    pub(super) fn drain_medium(&mut self, medium: usize, stage: &mut Stage<'_>) {
        while let Some(Passed { member, from, arrives }) = self.media[medium].medium.pass(stage.now) {
            let forgets = stage.bug == Some(Bug::PieceForgotten);
            if forgets && stage.trace.entries() % FORGOTTEN_ONCE_IN == FORGOTTEN_ONCE_IN - 1 {
                continue;
            }
            let link = self.media[medium].members[member];
            self.links[link].link.handle_transmitted(stage.now, from, arrives);
            self.announce(link, stage);
            stage.touch(Node::Link(link));
        }
    }

    // ---- the host at a camera's end -----------------------------------------------------------------------

    /// Freezes the host at the camera's end of a link: what arrives there waits.
    pub(super) fn freeze(&mut self, link: usize) {
        self.links[link].frozen.get_or_insert_default();
    }

    /// Continues the host. Returns what has arrived meanwhile.
    pub(super) fn thaw(&mut self, link: usize) -> VecDeque<LinkOutput> {
        self.links[link].frozen.take().unwrap_or_default()
    }

    pub(super) fn is_frozen(&self, link: usize) -> bool {
        self.links[link].frozen.is_some()
    }

    /// Keeps what has arrived at the camera's end, if the host is frozen. Otherwise returns it.
    pub(super) fn keep(&mut self, link: usize, output: LinkOutput) -> Option<LinkOutput> {
        match &mut self.links[link].frozen {
            Some(waiting) => {
                waiting.push_back(output);
                None
            }
            None => Some(output),
        }
    }
}
