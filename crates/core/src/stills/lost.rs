//! Remembers on which chains decoders failed, and gives each a second try.
//!
//! A decoder may fail on a sound frame: it hung while the host stood still, or had no memory. Whoever takes the newest frame has the next chain
//! soon. Whoever wants a frame of the past has no other, so the chain is gone through once more for it. After a second failure
//! nobody tries again.

use std::collections::VecDeque;

use crate::chain::ChainId;
use crate::frame::FrameId;

/// The most chains that are remembered.
const CHAINS_MAX: usize = 32;

/// How far a chain can be decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A decoder failed on this frame.
    FailedOnce(FrameId),
    /// A decoder failed on a frame, and another time it did not.
    Passed,
    /// Decoders failed twice. From this frame on, nothing can be decoded.
    Lost(FrameId),
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is the first one of its chain.
    First,
    /// The second try failed as well.
    Again,
    /// It is the second one of its chain, whose first was overcome.
    Late,
}

/// The chains on which decoders failed lately.
#[derive(Default)]
pub(super) struct Lost(VecDeque<(ChainId, State)>);

impl Lost {
    /// A decoder failed on a frame.
    pub(super) fn failed(&mut self, chain: ChainId, frame: FrameId) -> Failure {
        let Some((_, state)) = self.0.iter_mut().find(|(of, _)| *of == chain) else {
            if self.0.len() == CHAINS_MAX {
                self.0.pop_front();
            }
            self.0.push_back((chain, State::FailedOnce(frame)));
            return Failure::First;
        };
        let (from, failure) = match *state {
            State::FailedOnce(_) => (frame, Failure::Again),
            State::Passed => (frame, Failure::Late),
            State::Lost(from) => (from.min(frame), Failure::Again),
        };
        *state = State::Lost(from);
        failure
    }

    /// A decoder has decoded a frame.
    pub(super) fn decoded(&mut self, chain: ChainId, frame: FrameId) {
        let failed = self.0.iter_mut().find(|(of, _)| *of == chain);
        // Frames behind that one do not tell: what they do not need is passed over.
        if let Some((_, state)) = failed.filter(|(_, state)| *state == State::FailedOnce(frame)) {
            *state = State::Passed;
        }
    }

    /// Whether no still of a frame is tried any more, for whoever takes the newest or for others.
    pub(super) fn holds(&self, chain: ChainId, frame: FrameId, newest: bool) -> bool {
        self.0.iter().any(|(of, state)| {
            *of == chain
                && match *state {
                    State::FailedOnce(from) => newest && from <= frame,
                    State::Passed => false,
                    State::Lost(from) => from <= frame,
                }
        })
    }
}
