//! Checks what must hold in every world at every event. Each rule has a name. The first breach ends the run.
//!
//! The rules see what they are shown, as plain values (`Path`, `ReaderSeen`, `Passage` and others), and know nothing of the world. What they
//! remember of it is in `known.rs`.
//!
//! | rule | what it says | where |
//! | --- | --- | --- |
//! | `bytes` | what an application gets is what was published under that identity, time and size, and what it gets of an epoch is of one start, unless it asks the camera as well (decision 0018; I1, I4); a camera sends nothing of an epoch that it gave up because another start had it | `frames.rs`, `deliveries.rs`, `past.rs`, `camera.rs` |
//! | `order` | per subscription and camera, identities strictly increase (I2) | `deliveries.rs`, `frames.rs`, `camera.rs` |
//! | `gaps` | delivered + stated gaps = published (I5) | `deliveries.rs` |
//! | `rests` | what a reading of the present did not get before the end that it asked for is counted at the end, as far as the edge holds it (I5) | `deliveries.rs` |
//! | `reasons` | a frame that was never sent has its own reason, not "late or lost", unless its camera has told that to another edge (I5, I7) | `deliveries.rs` |
//! | `quality` | a frame says what was done to it, and comes with what its camera said of how good it is (I6) | `deliveries.rs` |
//! | `originals` | an application that wants originals gets nothing else (I6) | `deliveries.rs` |
//! | `floor` | a frame below the floor of a contract whose profile knows it is marked (I6) | `contracts.rs` |
//! | `contract` | nobody is told that a contract is kept while too many frames are late by what it asks now, none comes in time, or its application measured less than its floor (I6, I7) | `contracts.rs` |
//! | `clock` | the age that the edge states is right within the error that it states | `deliveries.rs` |
//! | `one crossing` | no frame is given to a link twice, whatever the number of subscribers | `frames.rs` |
//! | `one in flight` | at most one frame of a connection has bytes unsent | `frames.rs` |
//! | `recovery` | what a broker's disk gives back at a start is one piece with all that was durable; nothing that had gone or nobody published (I3, I4) | `ledger.rs` |
//! | `sealed` | no pixels lie on a disk in the clear, and no key and nonce sealed two things (I11) | `ledger.rs` |
//! | `caps` | a camera makes no frame whose rung has more bytes on average than the cap that it was told, but for that of the floor | `camera.rs` |
//! | `holes` | a reading that asks the camera passes over no frame of the past that the camera holds, but for those of an epoch that it gave up because another start had it (I5) | `passage.rs` |
//! | `untold` | what was published between two frames of an application, or between the beginning that it asked for and its first frame, is told by number or by time, at every moment of a restart (I5) | `passage.rs`, `derived.rs` |
//! | `filled` | an application that fills is given every frame that the camera holds, unless it is told that the camera was not heard; not what a thief was asked for in its place, who holds none of it and says so, and which is counted or told as a restart; nor frames of an epoch in which no edge took the camera in, whose names another start may have (I5) | `passage.rs` |
//! | `granted` | nobody gets a frame, live or past, or hears of a camera, or does anything with it or publishes a derived stream, without a grant for that at this moment (I10) | `grants.rs`, `derived.rs` |
//! | `refusals` | nobody is refused what is granted, no stream ends although its grants are the same, and nobody is turned away as revoked who is on no list; whoever may not publish a derived stream is told a reason that is so (I10) | `grants.rs`, `revoked.rs`, `derived.rs` |
//! | `revoked` | nobody whose certificate was revoked gets a frame, publishes one or is connected at an edge that has heard of it, a second after it was written there or at once where a camera has brought the list; no camera stays at an edge of which it knows that it was revoked (I10) | `revoked.rs` |
//! | `lists` | a camera and its edge hold the same deny list half a second after one of them has had a newer one | `revoked.rs` |
//! | `past last` | a frame of the past is begun when no live frame has bytes unsent, one at a time, and then rests | `past.rs` |
//! | `cancels` | a frame that gets through is cancelled only while bytes of it are unsent and a newer one is there | `camera.rs` |
//! | `references` | no frame is sent that refers to one that the camera has given up, that went over another connection or in another chain | `chains.rs` |
//! | `entry` | a camera that is asked for a frame that stands alone gives one within a second and a half, if it sends any | `chains.rs` |
//! | `decodable` | a replica takes a frame of a chain if it has what that refers to; an application that does not decode chains gets nothing but frames that decode by themselves, made of what could be decoded; one that does was given all that a frame refers to, since it last lost one | `chains.rs`, `deliveries.rs` |
//! | `replica` | what a record says is missing before it lies between it and the record before; what a replica has of an epoch is of one start | `frames.rs` |
//! | `demand` | a camera knows what is wanted; nothing crosses that nobody wants | `flow.rs`, `camera.rs` |
//! | `replies` | a camera gets each reply once, as it was given | `deliveries.rs` |
//! | `memory` | logs stay within their budgets, what readers that stand still hold of them, connections, dials and those who wait at a door within their bounds (I9) | `memory.rs` |
//! | `admitted` | an honest client that comes to an edge gets in within two seconds, whatever attackers hold there | `memory.rs` |
//! | `resumes` | two seconds after the last fault frames are delivered again (I12) | `flow.rs` |
//! | `backlog` | the newest frame that an application gets is not older than the link makes it | `flow.rs` |
//! | `newest` | of the burst when a link carries again, whoever takes the newest frame is given no older one first | `bursts.rs` |
//! | `silence` | an idle link with a frame to send is not silent for more than 250 ms, and the time that a codec takes | `flow.rs` |
//! | `progress` | a timer that has been served is not due again at the same moment | `flow.rs` |
//! | `state` | what brokers say of a link is how it is | `flow.rs` |
//! | `alone` | no two members have a record at once before the time of the first is over, or its connection was lost for too long | `groups.rs` |
//! | `turns` | with order, one record of a camera is at work at a time | `groups.rs` |
//! | `settled` | every record that a member was given ends once: done by who says so, a dead letter after as many tries as were asked for, or lost for a reason that is so; until then it is given again within two seconds after its member had its time, if somebody is free | `groups.rs` |
//! | `freshest` | a member of a group of the newest is given the newest record that the edge holds | `groups.rs` |
//! | `place` | the place of a group never goes back, over restarts too, unless its members are told so; what was not synced when the power was cut may come again | `groups.rs` |
//! | `answers` | who acknowledges a record is told whether that settled it; what it was not given nobody settles | `groups.rs` |
//! | `account` | the account of a group is what its members saw | `groups.rs` |
//! | `accepted` | a record of a derived stream is in the stream, and its readers are woken for it, when its publisher hears that it was accepted | `derived.rs` |
//! | `origin` | a record of a derived stream says which frame it was made of and when that was captured, and somebody published that frame so | `derived.rs` |
//! | `owner` | nobody publishes a derived stream while somebody else does | `derived.rs` |
//! | `epochs` | a derived stream has one epoch in a run of its edge, and a later one in the next run | `derived.rs` |
//! | `source` | an edge knows within half a second whether a connected camera's source gives frames | `flow.rs` |

mod bursts;
mod camera;
mod chains;
mod contracts;
mod deliveries;
mod derived;
mod flow;
mod frames;
mod grants;
mod groups;
mod known;
mod ledger;
mod memory;
mod passage;
mod past;
mod path;
mod revoked;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mez_core::broker::LinkId;
use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{Epoch, FrameId};
use mez_core::name::CameraName;

pub(crate) use self::camera::Cancelled;
pub(crate) use self::derived::{AcceptedSeen, StreamPassage};
pub(crate) use self::flow::{DemandSeen, GotSeen, PresenceSeen, ReaderSeen, SilenceSeen, SourceSeen};
pub(crate) use self::groups::{GroupSeen, Said, WRITTEN_AFTER};
use self::known::{Entry, Granting, Heard, Holder, Links, Run, Shared, Stream, Use};
pub(crate) use self::known::{Kept, Reading};
pub(crate) use self::ledger::Ledger;
pub(crate) use self::memory::{CameraHolds, DoorHolds};
pub(crate) use self::passage::{Passage, PassageCamera, PassageProcess, PassageReader};
pub(crate) use self::path::{Path, RIVAL_MAX};
pub(crate) use self::revoked::{LIST_READ_MAX, ListsSeen};
use crate::time::Moment;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name, as in the table of [`crate::check`].
    pub rule: &'static str,
    /// When.
    pub at: Moment,
    /// What was seen, and what should have been.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}` at {}: {}", self.rule, self.at, self.text)
    }
}

/// What the rules know of the world. They see all that its hosts do, and no host sees them.
#[derive(Default)]
pub(crate) struct Checks {
    now: Moment,
    violation: Option<Violation>,
    /// All that was published. An epoch has two runs if a camera lost its counter.
    published: BTreeMap<(CameraName, Epoch), Vec<Run>>,
    /// What each run of an edge holds or has held.
    appended: BTreeMap<(u64, CameraName), Vec<FrameId>>,
    /// Those of them that came after a silence, with a newer one right behind.
    overtaken: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    /// For each run of an edge and each epoch that it holds or has held: which run published its frames.
    starts: BTreeMap<(u64, CameraName, Epoch), u64>,
    /// The chains that cameras' connections carry.
    entries: BTreeMap<(u64, LinkId), Entry>,
    /// Frames of chains that each run of an edge has received whole.
    whole: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    /// Frames of chains that each decoder of each run of an edge holds, so that it can decode their successors.
    decoded: BTreeMap<(u64, CameraName, usize), BTreeSet<FrameId>>,
    /// Frames of chains of which each run of an edge could make stills.
    shown: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    readings: BTreeMap<SubscriptionId, Reading>,
    contracts: BTreeMap<SubscriptionId, Kept>,
    /// What each edge's operator grants.
    granting: BTreeMap<usize, Granting>,
    /// Whose each subscription is.
    holders: BTreeMap<SubscriptionId, Holder>,
    /// The deny lists that each edge has heard of.
    heard: BTreeMap<usize, Heard>,
    /// Since when a camera's deny list is another than its edge's.
    lists_differ_since: BTreeMap<usize, Moment>,
    /// How many replies to a frame are on their way, by application.
    replies: BTreeMap<(CameraName, FrameId, String), u64>,
    /// What each run of a camera did for readings of the past.
    past: BTreeMap<(CameraName, u64), Use>,
    /// Since when each run of a camera has had something to send and sent nothing.
    silent_since: BTreeMap<u64, Moment>,
    /// How the links of cameras carry.
    links: Links,
    /// When cameras have changed to another edge.
    moves: BTreeMap<CameraName, Vec<Moment>>,
    /// Since when an edge takes a camera's source for what it is not.
    source_differs_since: BTreeMap<usize, Moment>,
    /// Groups of readers.
    groups: BTreeMap<usize, Shared>,
    /// Derived streams.
    streams: BTreeMap<CameraName, Stream>,
}

impl Checks {
    /// Sets the moment at which things happen from here on.
    pub(crate) fn set_now(&mut self, now: Moment) {
        self.now = now;
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Notes a breach of a rule. Only the first one counts, because later ones may be its consequences.
    pub(crate) fn fail(&mut self, rule: &'static str, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { rule, at: self.now, text });
        }
    }

    pub(crate) fn expect(&mut self, holds: bool, rule: &'static str, text: impl FnOnce() -> String) {
        if !holds {
            self.fail(rule, text());
        }
    }
}
