//! Limits how many TLS handshakes are computed at once, because a signature costs the server more than it costs a stranger.
//!
//! A handshake computes for about a millisecond at a time, and waits for the network in between. Only one
//! handshake computes at a time in the whole process, so the other cores stay free for frames, however many
//! clients connect. Addresses take turns, so a thousand handshakes from one address hardly delay the others.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mez_core::admission::{Address, Turns};

/// How many handshakes one process computes at the same time. One leaves the other cores free for frames.
pub const HANDSHAKES_AT_ONCE_MAX: usize = 1;

/// The gate of all ports of this process, because they share its processors.
pub(crate) static HANDSHAKES: Gate = Gate::new(HANDSHAKES_AT_ONCE_MAX);

/// Limits how many futures are polled at once. Addresses take turns.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    turns: Turns,
    asked: u64,
    askers: BTreeMap<u64, Asker>,
}

#[derive(Debug)]
enum Asker {
    Waits(Waker),
    HasTurn,
}

impl State {
    /// Gives the turn to the next handshake. Its waker must be called after the lock is released.
    fn give(&mut self) -> Option<Waker> {
        let asker = self.turns.poll_turn()?;
        match self.askers.insert(asker, Asker::HasTurn)? {
            Asker::Waits(waker) => Some(waker),
            Asker::HasTurn => None,
        }
    }
}

impl Gate {
    pub(crate) const fn new(at_once_max: usize) -> Self {
        Self(Mutex::new(State { turns: Turns::new(at_once_max), asked: 0, askers: BTreeMap::new() }))
    }

    /// Returns `work` as a future that waits for a turn before each poll.
    pub(crate) fn in_turn<F: Future + Unpin>(&self, address: Address, work: F) -> InTurn<'_, F> {
        InTurn { work, turn: Turn { gate: self, address, asker: None } }
    }

    /// Waits for a turn. The turn ends when the value is dropped.
    pub(crate) async fn turn(&self, address: Address) -> Turn<'_> {
        let mut turn = Turn { gate: self, address, asker: None };
        poll_fn(|context| match self.ask(address, &mut turn.asker, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        turn
    }

    /// Each statement leaves the state consistent, so a poisoned lock is safe to use.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `asker`, or a new one, has a turn. If not, `waker` is called when it gets one.
    fn ask(&self, address: Address, asker: &mut Option<u64>, waker: &Waker) -> bool {
        let mut state = self.state();
        let number = *asker.get_or_insert_with(|| {
            state.asked += 1;
            let number = state.asked;
            state.turns.ask(address, number);
            state.askers.insert(number, Asker::Waits(Waker::noop().clone()));
            // If a turn is free, no other asker waits, so this asker gets it and needs no wake-up.
            let _ = state.give();
            number
        });
        match state.askers.get_mut(&number) {
            Some(Asker::Waits(waiting)) => {
                waiting.clone_from(waker);
                false
            }
            Some(Asker::HasTurn) | None => true,
        }
    }

    fn end(&self, address: Address, asker: u64) {
        let mut state = self.state();
        let gone = state.askers.remove(&asker);
        match gone {
            Some(Asker::HasTurn) => state.turns.end(),
            Some(Asker::Waits(_)) => {
                state.turns.withdraw(address, asker);
            }
            None => {}
        }
        let next = state.give();
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }
}

/// A turn, or a request for one.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    address: Address,
    asker: Option<u64>,
}

impl Turn<'_> {
    fn end(&mut self) {
        if let Some(asker) = self.asker.take() {
            self.gate.end(self.address, asker);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The future of [`Gate::in_turn`].
#[derive(Debug)]
pub(crate) struct InTurn<'a, F> {
    work: F,
    turn: Turn<'a>,
}

impl<F: Future + Unpin> Future for InTurn<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { work, turn } = &mut *self;
        if !turn.gate.ask(turn.address, &mut turn.asker, context.waker()) {
            return Poll::Pending;
        }
        let polled = Pin::new(work).poll(context);
        turn.end();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn address(last: u8) -> Address {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// Work that is polled `polls` times, and checks how many run at once.
    fn work(polls: usize, at_it: Arc<AtomicUsize>) -> impl Future<Output = ()> + Unpin {
        let mut left = polls;
        Box::pin(poll_fn(move |context| {
            assert_eq!(at_it.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            std::thread::yield_now();
            at_it.fetch_sub(1, Ordering::SeqCst);
            left -= 1;
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_at_a_time_is_worked_on_and_all_get_done() {
        let (gate, at_it) = (Arc::new(Gate::new(1)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..200_u8)
            .map(|n| {
                let (gate, at_it) = (Arc::clone(&gate), Arc::clone(&at_it));
                tokio::spawn(async move { gate.in_turn(address(n % 3), work(5, at_it)).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(gate.state().askers.is_empty());
    }

    #[tokio::test]
    async fn whoever_gives_up_with_a_turn_or_without_holds_up_nobody() {
        let (gate, at_it) = (Gate::new(1), Arc::new(AtomicUsize::new(0)));
        let mut asker = None;
        assert!(gate.ask(address(1), &mut asker, Waker::noop()), "nobody else is there");
        let mut waits = gate.in_turn(address(2), work(1, Arc::clone(&at_it)));
        assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut waits).poll(context).is_pending())).await);
        drop(waits);
        gate.end(address(1), asker.unwrap());
        gate.in_turn(address(3), work(1, at_it)).await;
        assert!(gate.state().askers.is_empty());
    }
}
