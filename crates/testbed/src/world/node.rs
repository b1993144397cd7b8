//! Names the parts of a world that have a timer or a log, and sets their timers.

use std::collections::VecDeque;

use mez_core::name::CameraName;

use crate::time::Moment;

/// A part with a timer or with work to do, by its index among parts of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Camera(usize),
    Edge(usize),
    Link(usize),
    Medium(usize),
    /// Has no timer, but may have frames to take.
    Application(usize),
    /// Has no timer, but may have records to give to members.
    Group(usize),
}

/// A reader at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Application(usize),
    Group(usize),
}

/// The owner of a log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Camera(usize),
    /// An edge's log of this camera.
    Edge(usize, CameraName),
}

/// When a node is due next, and how often in a row it was due at once.
pub(super) struct Timer {
    pub(super) armed: Moment,
    spins: u32,
}

impl Timer {
    pub(super) const fn new() -> Self {
        Self { armed: Moment::NEVER, spins: 0 }
    }

    /// Sets the timer to `due`, which is not before `now`. Returns whether the moment has changed, and how often in a row the timer was due at once.
    pub(super) fn arm(&mut self, due: Moment, now: Moment) -> (bool, u32) {
        debug_assert!(due >= now, "what is due has yet to happen");
        let changed = due != self.armed;
        self.armed = due;
        self.spins = if due > now { 0 } else { self.spins + u32::from(changed) };
        (changed, self.spins)
    }
}

/// Nodes with outputs to process at this moment, in the order of their events, each once.
#[derive(Default)]
pub(super) struct Touched(VecDeque<Node>);

impl Touched {
    pub(super) fn touch(&mut self, node: Node) {
        if !self.0.contains(&node) {
            self.0.push_back(node);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Node> {
        self.0.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
