//! Models clients at an edge's door that are not cameras: attackers, and honest clients such as a program that lists cameras.
//!
//! A visitor has an address and passes through the stages of a connection. What it would send afterwards does not matter here. [`Visitors`] keeps the
//! results of the visits. The world lends it the edge of the door.

use std::time::Duration;

use mez_core::admission::Ticket;

use super::edge::EdgeHost;
use super::events::{Event, VisitStep};
use super::spec::{AttackSpec, EdgeId, VisitorId, VisitorSpec};
use super::stage::Stage;
use crate::check::Checks;
use crate::time::{Moment, ms};
use crate::trace::What;

/// How long a visitor that was turned away waits before its next attempt.
const AGAIN_AFTER: Duration = ms(100);
/// How long an event at a frozen host is postponed.
const FROZEN_AGAIN_AFTER: Duration = ms(50);

/// A visitor, and the results of its visits.
#[derive(Debug)]
struct Visitor {
    spec: VisitorSpec,
    /// The number of the present attempt. Events of earlier attempts are ignored.
    attempt: u64,
    ticket: Option<Ticket>,
    /// Since when the visitor has tried to get in while the edge could admit it.
    since: Option<Moment>,
    admitted: u64,
    turned_away: u64,
}

#[derive(Default)]
pub(super) struct Visitors(Vec<Visitor>);

impl Visitors {
    /// Adds a visitor that connects to an edge again and again.
    pub(super) fn add(&mut self, spec: VisitorSpec, stage: &mut Stage<'_>) -> VisitorId {
        let visitor = self.0.len();
        self.0.push(Visitor { spec, attempt: 0, ticket: None, since: None, admitted: 0, turned_away: 0 });
        let step = VisitStep::Arrives;
        stage.events.push(stage.now + spec.interval, Event::Visit { visitor, attempt: 0, step });
        VisitorId(visitor)
    }

    /// How often a visitor was admitted, and how often it was turned away.
    pub(super) fn visits(&self, visitor: VisitorId) -> (u64, u64) {
        let Visitor { admitted, turned_away, .. } = self.0[visitor.0];
        (admitted, turned_away)
    }

    /// The edge that a visitor connects to.
    pub(super) fn edge_of(&self, visitor: usize) -> EdgeId {
        self.0[visitor].spec.edge
    }

    /// Advances a visit by one step, at the edge's door.
    pub(super) fn handle_step(
        &mut self,
        (index, attempt): (usize, u64),
        step: VisitStep,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let visitor = &mut self.0[index];
        let Visitor { spec, attempt: newest, ticket, .. } = *visitor;
        if attempt != newest {
            return;
        }
        if edge.is_frozen() {
            let later = stage.now + FROZEN_AGAIN_AFTER;
            return stage.events.push(later, Event::Visit { visitor: index, attempt, step });
        }
        let next = match (step, ticket) {
            (VisitStep::Arrives, _) => {
                let ticket = edge.with_process(stage, |process, now| {
                    process.door.handle_visitor(now, spec.address, index)
                });
                match ticket {
                    // No process listens, so the visitor does not count as turned away.
                    None => visitor.since = None,
                    Some(_) => {
                        visitor.since.get_or_insert(stage.now);
                    }
                }
                visitor.ticket = ticket.flatten();
                if visitor.ticket.is_none() {
                    return self.come_again(index, AGAIN_AFTER, stage);
                }
                VisitStep::Speaks
            }
            (_, None) => return,
            (VisitStep::Speaks, Some(ticket)) => {
                edge.with_process(stage, |process, _| process.door.handle_heard(ticket));
                VisitStep::Proves
            }
            (VisitStep::Proves, Some(ticket)) => {
                edge.with_process(stage, |process, now| process.door.handle_authenticated(now, ticket));
                VisitStep::IsIn
            }
            (VisitStep::IsIn, Some(ticket)) => {
                edge.with_process(stage, |process, _| process.door.handle_left(ticket));
                (visitor.ticket, visitor.since) = (None, None);
                visitor.admitted += 1;
                return self.come_again(index, spec.interval, stage);
            }
        };
        let at = stage.now + spec.round_trip_time;
        stage.events.push(at, Event::Visit { visitor: index, attempt, step: next });
    }

    fn come_again(&mut self, index: usize, after: Duration, stage: &mut Stage<'_>) {
        let visitor = &mut self.0[index];
        visitor.attempt += 1;
        let event = Event::Visit { visitor: index, attempt: visitor.attempt, step: VisitStep::Arrives };
        stage.events.push(stage.now + after, event);
    }

    /// The door has closed a visitor's connection, to make room or because it was too slow.
    pub(super) fn handle_turned_away(&mut self, visitor: usize, stage: &mut Stage<'_>) {
        let Visitor { spec, ticket, turned_away, .. } = &mut self.0[visitor];
        stage.trace.record(stage.now, What::TurnedAway { edge: spec.edge.0, visitor });
        *ticket = None;
        *turned_away += 1;
        self.come_again(visitor, AGAIN_AFTER, stage);
    }

    /// An edge's process has ended. Interrupted visitors try again.
    pub(super) fn handle_edge_lost(&mut self, edge: EdgeId, stage: &mut Stage<'_>) {
        for index in 0..self.0.len() {
            let visitor = &mut self.0[index];
            if visitor.spec.edge != edge {
                continue;
            }
            visitor.since = None;
            if visitor.ticket.take().is_some() {
                self.come_again(index, AGAIN_AFTER, stage);
            }
        }
    }

    /// Shows the rules which visitors try to get in at an edge. No visitor can while the door is `shut`.
    pub(super) fn watch(&mut self, edge: EdgeId, shut: bool, now: Moment, checks: &mut Checks) {
        for (index, visitor) in self.0.iter_mut().enumerate() {
            if visitor.spec.edge != edge {
                continue;
            }
            if shut {
                visitor.since = visitor.since.map(|_| now);
            }
            let Some(since) = visitor.since else { continue };
            checks.watch_visitor(index, since, visitor.turned_away);
        }
    }
}

/// An attacker opens a connection at an edge's door, and plans the next one.
pub(super) fn attack(spec: AttackSpec, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
    if edge.is_frozen() {
        return stage.events.push(stage.now + FROZEN_AGAIN_AFTER, Event::Attack(spec));
    }
    edge.with_process(stage, |process, now| process.door.handle_attack(now, &spec));
    if let Some(connections) = spec.connections.checked_sub(1).filter(|left| *left > 0) {
        stage.events.push(stage.now + spec.interval, Event::Attack(AttackSpec { connections, ..spec }));
    }
}
