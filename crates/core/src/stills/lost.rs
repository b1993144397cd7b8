//! Remembers on which chains decoders failed, and gives each a second try.
//!
//! A decoder may fail on a sound frame: it hung while the host stood still, or had no memory. Readers of the newest frame soon get the next chain.
//! Readers of the past have no other chain, so the chain is decoded once more for them. After a second failure, the chain is not tried again.

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
    /// A decoder failed on a frame, and a second try succeeded.
    Passed,
    /// Decoders failed twice. From this frame on, the chain cannot be decoded.
    Lost(FrameId),
}

/// What a failure means for its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The first failure of the chain.
    First,
    /// The second try failed as well.
    Again,
    /// The second failure of the chain, after the first one was overcome.
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
        // Later frames prove nothing, because their decoding may have passed over the failed frame.
        if let Some((_, state)) = failed.filter(|(_, state)| *state == State::FailedOnce(frame)) {
            *state = State::Passed;
        }
    }

    /// Whether stills of a frame are not tried any more, for readers of the `newest` frame or for others.
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
