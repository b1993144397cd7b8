//! Holds what will happen, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::Transformed;
use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::monitor::TakenReport;
use mez_core::data::Origin;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::name::CameraName;
use mez_core::stills::StillAnswer;

use super::action::Action;
use super::node::{Node, Owner, Reader};
use super::spec::{Ask, AttackSpec};
use crate::time::{Moment, ms};

/// How far a visit at an edge's door has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum VisitStep {
    Arrives,
    Speaks,
    Proves,
    IsIn,
}

/// A frame that an application has taken from its client library.
#[derive(Clone, Debug)]
pub(super) struct Took {
    pub(super) subscription: SubscriptionId,
    pub(super) camera: CameraName,
    pub(super) handed: Moment,
    pub(super) report: TakenReport,
}

/// A record that a program of an application has made, on its way to the edge.
#[derive(Clone, Debug)]
pub(super) struct MadeRecord {
    /// Which program.
    pub(super) worker: usize,
    /// What it was made of.
    pub(super) of: Origin,
    pub(super) body: Bytes,
}

/// The answer to a question for a still.
#[derive(Clone, Debug)]
pub(super) struct StillMade {
    pub(super) subscription: SubscriptionId,
    pub(super) camera: CameraName,
    pub(super) frame: FrameId,
    pub(super) answer: StillAnswer,
}

/// What a worker of a group does next. Each names the life of the program, or the connection, for which it was planned.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerStep {
    /// It connects to its edge and joins.
    Joins { program: u64 },
    /// It is through with a job.
    Worked { program: u64, job: u64 },
    /// Its edge learns that its connection is lost.
    Missed { connection: u64 },
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The node's timer, unless it was set anew since.
    Timer(Node),
    /// A camera's process publishes a frame.
    Publish { camera: usize, run: u64 },
    /// The broker's thread learns that the log has grown.
    Told { camera: usize, run: u64 },
    /// A camera's codec is done with a frame.
    Made { camera: usize, run: u64, frame: FrameId, made: Box<Transformed> },
    /// A camera learns that the last byte of a frame has left.
    LeftTold { camera: usize, connection: LinkId, frame: FrameId },
    /// A camera's host has found a frame of the past, or none.
    Found { camera: usize, run: u64, ticket: u64, query: PastQuery },
    /// A camera's codec is done with a frame of the past.
    PastMade { camera: usize, run: u64, ticket: u64, made: Box<Transformed> },
    /// An application's question for the past is answered.
    Answered { application: usize, request: u64, answer: Box<PastAnswer> },
    /// An edge's decoder is done with the frame of a camera that it was given.
    Decoded { edge: usize, run: u64, camera: CameraName, decoder: usize, fails: bool },
    /// Who makes stills of a camera at an edge has something to do.
    Stills { edge: usize, run: u64, camera: CameraName },
    /// A subscription's question for a still is answered.
    Still { reader: Reader, made: Box<StillMade> },
    /// A worker of a group goes on.
    Worker { group: usize, worker: usize, step: WorkerStep },
    /// A group may have something to do, in this process of its edge.
    Group { group: usize, run: u64 },
    /// The counter above `above` is on the disk.
    EpochPersisted { camera: usize, run: u64, above: Epoch },
    /// The writer of a log on disk has something to do.
    Store { owner: Owner, run: u64 },
    /// An application's thread may look at what it is to read.
    Wake { application: usize },
    /// An application has done with its frame.
    Ready { application: usize, frames: u64 },
    /// A subscription's end may have passed.
    Look { application: usize, subscription: SubscriptionId },
    /// A contract may have been broken by frames that did not come.
    Contract { application: usize, subscription: SubscriptionId },
    /// An application asks something of its session.
    Ask { application: usize, ask: Box<Ask> },
    /// An application has taken a frame from its client library.
    Took { application: usize, took: Box<Took> },
    /// A record of a derived stream reaches the edge.
    Derived { application: usize, made: Box<MadeRecord> },
    /// An attacker opens a connection.
    Attack(AttackSpec),
    /// A visitor goes on.
    Visit { visitor: usize, attempt: u64, step: VisitStep },
    /// An edge looks at the deny list in its folder of keys, which has changed.
    ListWritten { edge: usize },
    /// Something that the scenario planned.
    Action(Action),
    /// The checks look around.
    Watch,
}

impl Event {
    /// Returns the host that has to run for it, and when it is looked at again if that host is frozen.
    pub(super) const fn needs(&self) -> Option<(Node, Duration)> {
        match self {
            Self::Made { camera, .. } => Some((Node::Camera(*camera), ms(15))),
            Self::Found { camera, .. }
            | Self::PastMade { camera, .. }
            | Self::EpochPersisted { camera, .. } => Some((Node::Camera(*camera), ms(20))),
            Self::Decoded { edge, .. } | Self::Stills { edge, .. } => Some((Node::Edge(*edge), ms(8))),
            Self::ListWritten { edge } => Some((Node::Edge(*edge), ms(30))),
            _ => None,
        }
    }
}

/// Events by moment; those of one moment in the order in which they were added.
#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

struct Entry {
    at: Moment,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl EventQueue {
    pub(super) fn push(&mut self, at: Moment, event: Event) {
        if at < Moment::NEVER {
            self.added += 1;
            self.heap.push(Reverse(Entry { at, number: self.added, event }));
        }
    }

    /// The next event, if it comes no later than `until`.
    pub(super) fn pop(&mut self, until: Moment) -> Option<(Moment, Event)> {
        if self.heap.peek()?.0.at > until {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
