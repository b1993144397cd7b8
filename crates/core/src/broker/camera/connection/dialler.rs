//! Decides when the camera dials, and which edge it dials.

use std::time::Duration;

use crate::broker::{DIAL_TIME_MAX, EdgeIndex, REDIAL_INTERVAL};
use crate::units::Instant;

/// The most simultaneous attempts to connect to one edge: as many as begin, one every [`REDIAL_INTERVAL`],
/// before the first is given up. Fewer would leave pauses without a fresh attempt. An attempt that began
/// while the path was dead repeats its first message too rarely to notice soon that the path is back.
const DIALS_MAX: u32 = (DIAL_TIME_MAX.as_millis() / REDIAL_INTERVAL.as_millis()) as u32;

/// How often the edge that was last in use is dialled alone, before other edges are dialled too. Most
/// losses are pauses of the path: afterwards the same edge is back, with all frames that it holds.
const DIALS_ALONE: u32 = 3;

/// How long the camera stays with an edge before it tries a better one, which is earlier in the order of
/// edges. The interval doubles after each return that did not last [`RETURN_LASTS`], up to
/// [`RETURN_INTERVAL_MAX`].
const RETURN_INTERVAL: Duration = Duration::from_secs(10);
/// The longest time that the camera stays with an edge before it tries a better one: [`RETURN_INTERVAL`]
/// doubled five times.
const RETURN_INTERVAL_MAX: Duration = Duration::from_secs(320);
/// A return to a better edge counts as lasting after this long.
const RETURN_LASTS: Duration = Duration::from_secs(60);

/// Schedules the attempts to connect. The first one is due at once, the others at regular intervals until one
/// succeeds. Each round dials the edge that was last in use. After [`DIALS_ALONE`] rounds, each round also
/// dials another edge, in turn. While connected to an edge that is not the first of the order, the camera
/// tries to return to a better one.
#[derive(Debug)]
pub(crate) struct Dialler {
    edges: Vec<Edge>,
    due: Instant,
    /// The edge that was last in use; at the start, the first of the order.
    home: usize,
    /// Rounds since an edge was in use.
    rounds: u32,
    /// The edges of this round that are still to be dialled.
    queue: Vec<usize>,
    /// Connections made so far. Edges are told this number.
    attempts: u64,
    /// When to try a better edge, while another is in use.
    return_due: Instant,
    return_interval: Duration,
    /// When the camera last returned to a better edge.
    returned: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    /// Attempts to connect that are under way.
    dialling: u32,
    /// The edge is not dialled before this.
    hold: Instant,
}

impl Dialler {
    pub(crate) fn new(edges: usize, now: Instant) -> Self {
        Self {
            edges: vec![Edge { dialling: 0, hold: now }; edges.max(1)],
            due: now,
            home: 0,
            rounds: 0,
            queue: Vec::new(),
            attempts: 0,
            return_due: now,
            return_interval: RETURN_INTERVAL,
            returned: None,
        }
    }

    /// The next edge to dial now, while none is in use. Call it until it returns `None`; the next round is
    /// due one interval later.
    pub(crate) fn next(&mut self, now: Instant) -> Option<EdgeIndex> {
        if now >= self.due() {
            self.due = now + REDIAL_INTERVAL;
            self.queue = self.round(now);
            self.rounds = self.rounds.saturating_add(1);
        }
        let edge = self.queue.pop()?;
        self.edges[edge].dialling += 1;
        Some(EdgeIndex(edge))
    }

    /// The edges to dial in a round, the last first.
    fn round(&self, now: Instant) -> Vec<usize> {
        let may = |edge: &usize| self.edges[*edge].hold <= now;
        let home = Some(self.home).filter(may);
        let mut others: Vec<usize> =
            (0..self.edges.len()).filter(|edge| *edge != self.home).filter(may).collect();
        let beside = self.rounds.checked_sub(DIALS_ALONE).or(home.is_none().then_some(self.rounds));
        let other = match beside {
            Some(round) if !others.is_empty() => Some(others.swap_remove(round as usize % others.len())),
            _ => None,
        };
        let round = other.into_iter().chain(home);
        round.filter(|edge| self.edges[*edge].dialling < DIALS_MAX).collect()
    }

    /// An edge better than the one in use, if it is time to try one.
    pub(crate) fn better(&mut self, now: Instant) -> Option<EdgeIndex> {
        self.return_due().filter(|due| *due <= now)?;
        self.return_due = now + self.return_interval;
        let edge =
            (0..self.home).find(|edge| self.edges[*edge].hold <= now && self.edges[*edge].dialling == 0)?;
        self.edges[edge].dialling += 1;
        Some(EdgeIndex(edge))
    }

    /// When to call [`Dialler::next`], while no edge is in use.
    pub(crate) fn due(&self) -> Instant {
        let free = self.edges.iter().map(|edge| edge.hold).min();
        free.map_or(self.due, |free| self.due.max(free))
    }

    /// When to call [`Dialler::better`], while an edge is in use.
    pub(crate) fn return_due(&self) -> Option<Instant> {
        (self.home > 0).then_some(self.return_due)
    }

    /// A connection was made. Returns its number, counted from 1.
    pub(crate) fn dialled(&mut self, edge: EdgeIndex) -> u64 {
        self.failed(edge);
        self.attempts += 1;
        self.attempts
    }

    /// A connection could not be made.
    pub(crate) fn failed(&mut self, edge: EdgeIndex) {
        let dialling = &mut self.edges[edge.0].dialling;
        *dialling = dialling.saturating_sub(1);
    }

    /// An edge has welcomed the camera.
    pub(crate) fn welcomed(&mut self, now: Instant, edge: EdgeIndex) {
        (self.due, self.rounds) = (now, 0);
        self.queue.clear();
        if edge.0 < self.home {
            self.returned = Some(now);
        } else if edge.0 > self.home
            && let Some(returned) = self.returned.take()
        {
            let lasted = now.saturating_since(returned) >= RETURN_LASTS;
            let doubled = (self.return_interval * 2).min(RETURN_INTERVAL_MAX);
            self.return_interval = if lasted { RETURN_INTERVAL } else { doubled };
        }
        self.home = edge.0;
        self.edges[edge.0].hold = now;
        self.return_due = now + self.return_interval;
    }

    /// Lets the next round begin at `until`, and dials no edge before.
    pub(crate) fn hold_until(&mut self, until: Instant) {
        self.due = until;
        for edge in &mut self.edges {
            edge.hold = until;
        }
    }

    /// Does not dial this edge before `until`. Other edges are dialled as they are due.
    pub(crate) fn hold_edge_until(&mut self, edge: EdgeIndex, until: Instant) {
        self.edges[edge.0].hold = until;
    }
}
