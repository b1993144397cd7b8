//! Describes who answers frames, and who takes the answers.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::time::{Moment, ms};

/// How an application answers the frames that it takes.
#[derive(Clone, Debug)]
pub struct AnswerSpec {
    /// One frame in this many is answered, at random. Default 1: every frame.
    pub once_in: u64,
    /// How long after the work on a frame its answer reaches the edge. Default 5 to 20 ms.
    pub computes: RangeInclusive<Duration>,
    /// The smallest and the largest size of an answer, in bytes. Default 4,000 to 20,000.
    pub bytes: RangeInclusive<u32>,
    /// One answer in this many is replaced by the next one before it is sent to the edge. Default 0: none.
    pub replaced_once_in: u64,
    /// One answer in this many is given twice. Default 0: none.
    pub twice_once_in: u64,
    /// When the application makes its last answer. Default: never.
    pub until: Moment,
}

impl Default for AnswerSpec {
    fn default() -> Self {
        Self {
            once_in: 1,
            computes: ms(5)..=ms(20),
            bytes: 4_000..=20_000,
            replaced_once_in: 0,
            twice_once_in: 0,
            until: Moment::NEVER,
        }
    }
}

/// How a camera's publisher takes answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeSpec {
    /// The longest time from the capture of a frame until its answer has left the edge.
    pub bound: Duration,
    /// How long the publisher works on an answer before it takes the next one.
    pub pause: Duration,
}

impl TakeSpec {
    /// A publisher that takes each answer at once.
    pub const fn within(bound: Duration) -> Self {
        Self { bound, pause: Duration::ZERO }
    }
}
