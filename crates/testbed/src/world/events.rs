//! Holds future events, in order.

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
use mez_core::units::Timestamp;

use super::action::Action;
use super::node::{Node, Owner, Reader};
use super::spec::{Ask, AttackSpec};
use crate::time::{Moment, ms};

/// The stages of a visit at an edge's door.
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

/// A record that a program of an application sends to the edge.
#[derive(Clone, Debug)]
pub(super) struct MadeRecord {
    /// The program, by its index.
    pub(super) worker: usize,
    /// The frame or record that this record was made of.
    pub(super) of: Origin,
    pub(super) body: Bytes,
}

/// An answer that an application has made of a frame.
#[derive(Clone, Debug)]
pub(super) struct MadeAnswer {
    pub(super) camera: CameraName,
    pub(super) frame: FrameId,
    /// When the frame was captured.
    pub(super) captured: Timestamp,
    pub(super) payload: Bytes,
}

/// The answer to a request for a still.
#[derive(Clone, Debug)]
pub(super) struct StillMade {
    pub(super) subscription: SubscriptionId,
    pub(super) camera: CameraName,
    pub(super) frame: FrameId,
    pub(super) answer: StillAnswer,
}

/// The next step of a worker of a group. Each step names the program's life, or the connection, for which it was planned.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerStep {
    /// The worker connects to its edge and joins.
    Joins { program: u64 },
    /// The worker has finished a job.
    Worked { program: u64, job: u64 },
    /// The edge learns that the worker's connection is lost.
    Missed { connection: u64 },
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A node's timer fires, unless it was set to another moment since.
    Timer(Node),
    /// A camera's process publishes a frame.
    Publish { camera: usize, run: u64 },
    /// The broker's thread learns that the log has grown.
    Told { camera: usize, run: u64 },
    /// A camera's codec has finished a frame.
    Made { camera: usize, run: u64, frame: FrameId, made: Box<Transformed> },
    /// A camera learns that the last byte of a frame has left.
    LeftTold { camera: usize, connection: LinkId, frame: FrameId },
    /// A camera's host has searched for a frame of the past.
    Found { camera: usize, run: u64, ticket: u64, query: PastQuery },
    /// A camera's codec has finished a frame of the past.
    PastMade { camera: usize, run: u64, ticket: u64, made: Box<Transformed> },
    /// An application's request for the past is answered.
    Answered { application: usize, request: u64, answer: Box<PastAnswer> },
    /// An edge's decoder has finished a frame of a camera.
    Decoded { edge: usize, run: u64, camera: CameraName, decoder: usize, fails: bool },
    /// The maker of a camera's stills at an edge is due.
    Stills { edge: usize, run: u64, camera: CameraName },
    /// A subscription's request for a still is answered.
    Still { reader: Reader, made: Box<StillMade> },
    /// A worker of a group takes its next step.
    Worker { group: usize, worker: usize, step: WorkerStep },
    /// A group's timer fires, in this process of its edge.
    Group { group: usize, run: u64 },
    /// A counter above `above` is on the disk.
    EpochPersisted { camera: usize, run: u64, above: Epoch },
    /// The writer of a log on disk is due.
    Store { owner: Owner, run: u64 },
    /// An application's thread wakes to look at its logs.
    Wake { application: usize },
    /// An application has finished a frame.
    Ready { application: usize, frames: u64 },
    /// A subscription's end may have passed.
    Look { application: usize, subscription: SubscriptionId },
    /// A contract may be broken because frames did not come.
    Contract { application: usize, subscription: SubscriptionId },
    /// An application makes a request to its session.
    Ask { application: usize, ask: Box<Ask> },
    /// An application has taken a frame from its client library.
    Took { application: usize, took: Box<Took> },
    /// A record of a derived stream reaches the edge.
    Derived { application: usize, made: Box<MadeRecord> },
    /// An application has made an answer.
    AnswerMade { application: usize, made: Box<MadeAnswer> },
    /// A camera's publisher is ready for an answer.
    TakeAnswer { camera: usize, run: u64 },
    /// An attacker opens a connection.
    Attack(AttackSpec),
    /// A visitor takes its next step.
    Visit { visitor: usize, attempt: u64, step: VisitStep },
    /// An edge reads the changed deny list in its key folder.
    ListWritten { edge: usize },
    /// A planned action of the scenario.
    Action(Action),
    /// The rules watch the world.
    Watch,
}

impl Event {
    /// The host that must run for this event, and by how much the event is postponed while the host is frozen.
    pub(super) const fn needs(&self) -> Option<(Node, Duration)> {
        match self {
            Self::Made { camera, .. } => Some((Node::Camera(*camera), ms(15))),
            Self::TakeAnswer { camera, .. } => Some((Node::Camera(*camera), ms(10))),
            Self::Found { camera, .. }
            | Self::PastMade { camera, .. }
            | Self::EpochPersisted { camera, .. } => Some((Node::Camera(*camera), ms(20))),
            Self::Decoded { edge, .. } | Self::Stills { edge, .. } => Some((Node::Edge(*edge), ms(8))),
            Self::ListWritten { edge } => Some((Node::Edge(*edge), ms(30))),
            _ => None,
        }
    }
}

/// Events by moment. Simultaneous events keep the order in which they were added.
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
