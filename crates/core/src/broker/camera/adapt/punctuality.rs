//! Keeps the ages of the newest frames at their arrival, so that a contract can be judged by results and not only by predictions.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::FrameId;
use crate::units::Instant;

/// How many frames are remembered: two seconds at 15 frames per second.
const FRAMES: usize = 30;
/// This many more late frames than a contract allows may be chance, and a change of the rung costs as many.
const CHANCE: f64 = 2.0;
/// The most frames that are on their way at once.
const ON_THEIR_WAY_MAX: usize = 64;

/// The ages of the newest frames at their arrival.
#[derive(Debug, Default)]
pub(super) struct Punctuality {
    /// Frames that were sent, and when they were captured.
    on_their_way: VecDeque<(FrameId, Instant)>,
    /// The ages of the newest frames. `None`: the frame was lost or cancelled.
    ages: VecDeque<Option<Duration>>,
}

/// How many of the known frames were late by a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lateness {
    pub(crate) known: usize,
    pub(crate) late: usize,
}

impl Lateness {
    /// Whether more than [`CHANCE`] frames were late beyond what this share allows.
    pub(crate) fn is_strained(self, on_time_share: f64) -> bool {
        self.late as f64 > (1.0 - on_time_share) * self.known as f64 + CHANCE
    }

    /// Whether enough frames are known, and no more were late than this share allows.
    pub(crate) fn is_kept(self, on_time_share: f64) -> bool {
        self.known >= FRAMES && self.late as f64 <= (1.0 - on_time_share) * self.known as f64
    }
}

impl Punctuality {
    /// A frame is given to the link.
    pub(super) fn handle_sent(&mut self, frame: FrameId, captured: Instant) {
        if self.on_their_way.len() == ON_THEIR_WAY_MAX {
            self.on_their_way.pop_front();
        }
        self.on_their_way.push_back((frame, captured));
    }

    /// A frame has arrived completely.
    pub(super) fn handle_arrived(&mut self, frame: FrameId, at: Instant) {
        self.end(frame, |captured| Some(at.saturating_since(captured)));
    }

    /// A frame will not arrive.
    pub(super) fn handle_lost(&mut self, frame: FrameId) {
        self.end(frame, |_| None);
    }

    fn end(&mut self, frame: FrameId, age: impl Fn(Instant) -> Option<Duration>) {
        let Some(place) = self.on_their_way.iter().position(|(sent, _)| *sent == frame) else { return };
        let Some((_, captured)) = self.on_their_way.remove(place) else { return };
        if self.ages.len() == FRAMES {
            self.ages.pop_front();
        }
        self.ages.push_back(age(captured));
    }

    /// How many of the newest frames were late by a bound.
    pub(super) fn lateness(&self, bound: Duration) -> Lateness {
        let late = self.ages.iter().filter(|age| age.is_none_or(|age| age > bound)).count();
        Lateness { known: self.ages.len(), late }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Epoch, Sequence};

    #[test]
    fn what_came_late_or_not_at_all_is_counted_among_the_newest() {
        let (mut punctuality, ms) = (Punctuality::default(), Duration::from_millis);
        let of = |sequence| FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        for number in 0..80u64 {
            let captured = Instant::ZERO + ms(66 * number);
            punctuality.handle_sent(of(number), captured);
            match number {
                70 => punctuality.handle_lost(of(number)),
                _ => punctuality
                    .handle_arrived(of(number), captured + ms(if number % 10 == 5 { 60 } else { 20 })),
            }
        }
        let (tight, wide) = (punctuality.lateness(ms(50)), punctuality.lateness(ms(60)));
        assert_eq!(tight, Lateness { known: 30, late: 4 }, "55, 65, 75 and the lost one");
        assert_eq!(wide, Lateness { known: 30, late: 1 });
        assert!(tight.is_strained(0.98) && !tight.is_strained(0.93) && !wide.is_strained(0.98));
        assert!(!tight.is_kept(0.98) && tight.is_kept(0.86) && wide.is_kept(0.96));
        assert!(!Punctuality::default().lateness(ms(60)).is_kept(0.5), "nothing is known");
    }
}
