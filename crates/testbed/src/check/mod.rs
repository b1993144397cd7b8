//! Checks what must hold in every world at every event. Each rule has a name. The first breach ends the run.
//!
//! The rules get plain values (`Path`, `ReaderSeen`, `Passage` and others), and know nothing else of the world. What they remember is in `known.rs`.
//!
//! | rule | meaning | where |
//! | --- | --- | --- |
//! | `bytes` | an application gets what was published under this identity, time and size; all its frames of an epoch are of one start, unless it asks the camera too (decision 0018; I1, I4); a camera sends no frame of an epoch that it gave up because another start had it | `frames.rs`, `deliveries.rs`, `past.rs`, `camera.rs` |
//! | `order` | per subscription and camera, identities strictly increase (I2) | `deliveries.rs`, `frames.rs`, `camera.rs` |
//! | `gaps` | delivered + stated gaps = published (I5) | `deliveries.rs` |
//! | `rests` | frames that a reading of the present missed before its requested end are counted at the end, as far as the edge holds them (I5) | `deliveries.rs` |
//! | `reasons` | a frame that was never sent has its own reason, not "late or lost", unless its camera has told the reason to another edge (I5, I7) | `deliveries.rs` |
//! | `quality` | a frame states its rung, and has the expected accuracy that its camera stated (I6) | `deliveries.rs` |
//! | `originals` | an application that wants originals gets only originals (I6) | `deliveries.rs` |
//! | `floor` | a frame below the floor of a contract whose profile knows the frame's rung is marked (I6) | `contracts.rs` |
//! | `contract` | no application is told that its contract is kept while too many frames are late by the present contract, no frame comes in time, or the application measured less than its floor (I6, I7) | `contracts.rs` |
//! | `clock` | the age that the edge states is right within the stated error | `deliveries.rs` |
//! | `one crossing` | no frame is sent over a link twice, whatever the number of subscribers | `frames.rs` |
//! | `one in flight` | at most one frame of a connection has unsent bytes | `frames.rs` |
//! | `recovery` | what a broker's disk gives back at a start is contiguous and has all that was durable; nothing that had expired or was never published (I3, I4) | `ledger.rs` |
//! | `sealed` | no pixels are on a disk unencrypted, and no key and nonce encrypt two records (I11) | `ledger.rs` |
//! | `caps` | a camera encodes no frame at a rung with more mean bytes than its cap, except at the floor's rung | `camera.rs` |
//! | `holes` | a reading that asks the camera passes over no frame of the past that the camera holds, except frames of an epoch that the camera gave up because another start had it (I5) | `passage.rs` |
//! | `untold` | frames published between two frames of an application, or between its requested beginning and its first frame, are told by number or by time span, at every moment of a restart (I5) | `passage.rs`, `derived.rs` |
//! | `filled` | an application that fills gets every frame that the camera holds, or is told that the camera was not reached. Exceptions: a thief, asked in the camera's place, says that it holds no frames, and they are counted or told as a restart; frames of an epoch in which no edge accepted the camera may have the ids of another start's frames (I5) | `passage.rs` |
//! | `granted` | without a grant for it at this moment, no application gets a frame, live or past, hears of a camera, does anything with it, or publishes a derived stream (I10) | `grants.rs`, `derived.rs` |
//! | `refusals` | nothing that is granted is refused, no stream ends while its grants are unchanged, and no member that is on no list is refused as revoked; an application that may not publish a derived stream is told a true reason (I10) | `grants.rs`, `revoked.rs`, `derived.rs` |
//! | `revoked` | no member with a revoked certificate gets a frame, publishes a frame or is connected at an edge that has the list: a second after the list was written there, or at once if a camera has brought it; no camera stays at an edge that it knows to be revoked (I10) | `revoked.rs` |
//! | `lists` | a camera and its edge hold the same deny list half a second after one of them got a newer one | `revoked.rs` |
//! | `past last` | a frame of the past is begun when no live frame has unsent bytes, one at a time, followed by a rest | `past.rs` |
//! | `cancels` | a frame that makes progress is cancelled only while it has unsent bytes and a newer frame waits | `camera.rs` |
//! | `references` | no sent frame refers to a frame that the camera has given up, or that went over another connection or in another chain | `chains.rs` |
//! | `entry` | a camera that is asked for a keyframe sends one within 1.5 s, if it sends any frame | `chains.rs` |
//! | `decodable` | a replica takes a frame of a chain if it has the frame's reference; an application that does not decode chains gets only stills, made of frames that could be decoded; an application that decodes chains was given all references since it last lost its chain | `chains.rs`, `deliveries.rs` |
//! | `replica` | frames that a record states as missing before it lie between it and the previous record; all frames of an epoch in a replica are of one start | `frames.rs` |
//! | `demand` | a camera knows the demand, and no unwanted frame crosses | `flow.rs`, `camera.rs` |
//! | `replies` | a camera gets each reply once and unchanged | `deliveries.rs` |
//! | `memory` | logs stay within their budgets; memory held for stalled readers, connections, dials and clients at a door stay within their bounds (I9) | `memory.rs` |
//! | `admitted` | an honest client is admitted to an edge within two seconds, whatever attackers do | `memory.rs` |
//! | `resumes` | two seconds after the last fault, frames are delivered again (I12) | `flow.rs` |
//! | `backlog` | the newest frame that an application gets is not older than the link makes it | `flow.rs` |
//! | `newest` | of the burst when a link carries again, an application that takes the newest frame gets no older frame first | `bursts.rs` |
//! | `silence` | an idle link with a frame to send is silent for at most 250 ms plus encoding time | `flow.rs` |
//! | `progress` | a handled timer is not due again at the same moment | `flow.rs` |
//! | `state` | brokers report the true state of links | `flow.rs` |
//! | `alone` | no two members have a record at once, before the first one's time is over or its connection was lost for too long | `groups.rs` |
//! | `turns` | in an ordered group, one record of a camera is in work at a time | `groups.rs` |
//! | `settled` | every record given to a member ends once: done by the member that reports it, a dead letter after the allowed number of tries, or lost for a true reason; until then it is given again within two seconds after its member's time is over, if a member is free | `groups.rs` |
//! | `freshest` | a member of a group of the newest gets the newest record that the edge holds | `groups.rs` |
//! | `patient` | a free member of a group that waits for fresh records waits for one and a half times the age of the newest record at most | `groups.rs` |
//! | `place` | the place of a group never goes back, even over restarts, unless its members are told so; what was not synced before a power cut may come again | `groups.rs` |
//! | `answers` | a member that acknowledges a record is told whether this settled it; a member settles no record that it was not given | `groups.rs` |
//! | `account` | the account of a group is what its members saw | `groups.rs` |
//! | `accepted` | when its publisher hears that a record of a derived stream was accepted, the record is in the stream, and readers are woken for it | `derived.rs` |
//! | `origin` | a record of a derived stream states its origin and the origin's capture time, and that frame was published so | `derived.rs` |
//! | `owner` | no application publishes a derived stream while another one does | `derived.rs` |
//! | `epochs` | a derived stream has one epoch in a run of its edge, and a later one in the next run | `derived.rs` |
//! | `answer order` | of the answers that a publisher gets, each is to a newer frame than the one before, within a start of its camera | `answers.rs` |
//! | `answer bytes` | an answer arrives as an application gave it, with the capture time of its frame | `answers.rs` |
//! | `answer bound` | no answer is sent to a publisher that takes none, and the last byte of an answer leaves its edge no later than the publisher's bound after the capture, unless the edge's host is frozen | `answers.rs` |
//! | `one answer` | at most one answer of a connection has unsent bytes | `answers.rs` |
//! | `answer account` | delivered + told = answered, for each start of a camera at each run of an edge: of the accepted answers, at most ten are on their way, and each of the others is confirmed or told as skipped, to a calm camera after at most twice its bound and a few seconds; what arrived and was not confirmed before its connection ended is told too; what a killed edge had not told is lost | `answers.rs` |
//! | `source` | an edge knows within half a second whether a connected camera's source gives frames | `flow.rs` |

mod answers;
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
mod offload;
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

pub(crate) use self::answers::AnswersSeen;
pub(crate) use self::camera::Cancelled;
pub(crate) use self::derived::{AcceptedSeen, StreamPassage};
pub(crate) use self::flow::{DemandSeen, GotSeen, PresenceSeen, ReaderSeen, SilenceSeen, SourceSeen};
pub(crate) use self::groups::{GroupSeen, Said, WRITTEN_AFTER};
use self::known::{Entry, Granting, Heard, Holder, Links, Run, Shared, Stream, Use};
pub(crate) use self::known::{Kept, Reading};
pub(crate) use self::ledger::Ledger;
pub(crate) use self::memory::{CameraHolds, DoorHolds};
pub(crate) use self::offload::MadeSeen;
use self::offload::Offload;
pub(crate) use self::passage::{Passage, PassageCamera, PassageProcess, PassageReader};
pub(crate) use self::path::{Path, RIVAL_MAX};
pub(crate) use self::revoked::{LIST_READ_MAX, ListsSeen};
use crate::time::Moment;

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule's name, as in the table of [`crate::check`].
    pub rule: &'static str,
    /// When it was found.
    pub at: Moment,
    /// The observation, and what was expected.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}` at {}: {}", self.rule, self.at, self.text)
    }
}

/// What the rules know of the world. The rules see all hosts; no host sees the rules.
#[derive(Default)]
pub(crate) struct Checks {
    now: Moment,
    violation: Option<Violation>,
    /// All published frames. An epoch has two runs if a camera lost its counter.
    published: BTreeMap<(CameraName, Epoch), Vec<Run>>,
    /// The frames that each run of an edge holds or has held, by camera.
    appended: BTreeMap<(u64, CameraName), Vec<FrameId>>,
    /// Frames of `appended` that came after a silence, immediately followed by a newer one.
    overtaken: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    /// For each run of an edge and each epoch that it holds or has held: the run that published the frames.
    starts: BTreeMap<(u64, CameraName, Epoch), u64>,
    /// The present chains of cameras' connections.
    entries: BTreeMap<(u64, LinkId), Entry>,
    /// Frames of chains that each run of an edge has received completely.
    whole: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    /// Frames of chains that each decoder of each run of an edge holds as references.
    decoded: BTreeMap<(u64, CameraName, usize), BTreeSet<FrameId>>,
    /// Frames of chains of which each run of an edge could make stills.
    shown: BTreeMap<(u64, CameraName), BTreeSet<FrameId>>,
    readings: BTreeMap<SubscriptionId, Reading>,
    contracts: BTreeMap<SubscriptionId, Kept>,
    /// The grants at each edge.
    granting: BTreeMap<usize, Granting>,
    /// The holder of each subscription.
    holders: BTreeMap<SubscriptionId, Holder>,
    /// The deny lists that each edge has received.
    heard: BTreeMap<usize, Heard>,
    /// Since when a camera's deny list differs from its edge's.
    lists_differ_since: BTreeMap<usize, Moment>,
    /// How many replies to a frame are in flight, by application.
    replies: BTreeMap<(CameraName, FrameId, String), u64>,
    /// What each run of a camera did for readings of the past.
    past: BTreeMap<(CameraName, u64), Use>,
    /// Since when each run of a camera has had a frame to send and sent nothing.
    silent_since: BTreeMap<u64, Moment>,
    /// How the links of cameras carry.
    links: Links,
    /// When cameras moved to another edge.
    moves: BTreeMap<CameraName, Vec<Moment>>,
    /// Since when an edge's view of a camera's source is wrong.
    source_differs_since: BTreeMap<usize, Moment>,
    /// Groups of workers.
    groups: BTreeMap<usize, Shared>,
    /// Derived streams.
    streams: BTreeMap<CameraName, Stream>,
    /// Answers of applications.
    offload: Offload,
}

impl Checks {
    /// Sets the present moment.
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
