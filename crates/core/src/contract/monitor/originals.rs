//! Says which share of the requested originals an application got, and why not more.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The span of time over which originals are counted. A slow link carries one in several seconds.
const COUNTED_FOR: Duration = Duration::from_secs(10);
/// The most frames that are remembered of this span. At more frames per second, the oldest no longer count.
const FRAMES_MAX: usize = 1024;
/// How long an application waits for an original before it is told of the wait.
const WAIT_MENTIONED: Duration = Duration::from_secs(1);

/// How many of a camera's originals came lately.
#[derive(Debug, Default)]
pub struct OriginalsGot {
    /// For each original: when it came, and how many originals before it were passed over because the link had no room.
    frames: VecDeque<(Instant, u64)>,
    /// When the last original came, or reading began.
    last: Option<Instant>,
}

impl OriginalsGot {
    /// Reading begins.
    pub fn handle_begin(&mut self, now: Instant) {
        self.last.get_or_insert(now);
    }

    /// An original comes. `passed_over`: the number of originals before it for which the link had no room.
    pub fn handle_frame(&mut self, now: Instant, passed_over: u64) {
        while self.frames.front().is_some_and(|(at, _)| now.saturating_since(*at) >= COUNTED_FOR)
            || self.frames.len() >= FRAMES_MAX
        {
            self.frames.pop_front();
        }
        self.frames.push_back((now, passed_over));
        self.last = Some(now);
    }

    /// What the application lacks, as a sentence. `None` if it gets every original. `beside`: whether contracts
    /// on the camera take precedence. `publishes`: whether the camera is connected and publishes frames.
    pub fn lack(&self, now: Instant, beside: bool, publishes: bool) -> Option<String> {
        let recent = || self.frames.iter().filter(|(at, _)| now.saturating_since(*at) < COUNTED_FOR);
        let (came, passed_over) = (recent().count() as u64, recent().map(|(_, passed)| passed).sum::<u64>());
        let waited = self.last.map_or(Duration::ZERO, |last| now.saturating_since(last));
        let waits = publishes && waited >= WAIT_MENTIONED;
        if passed_over == 0 && !waits {
            return None;
        }
        let why = if beside {
            "contracts come first, and originals get only their share of the link (--history-share)"
        } else {
            "the link has no room for more"
        };
        let mut text = match came {
            0 => format!("no original for {:.1} s; {why}", waited.as_secs_f64()),
            _ => format!("originals of {came} of {} frames in the last 10 s; {why}", came + passed_over),
        };
        if came > 0 && waits {
            text = format!("{text}; none for {:.1} s", waited.as_secs_f64());
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The sentence counts the originals that were passed over and says what takes precedence. It is gone once none was passed over for ten seconds.
    #[test]
    fn the_share_of_originals_is_told_until_none_is_lacking() {
        let mut got = OriginalsGot::default();
        got.handle_begin(at(0));
        assert_eq!(got.lack(at(500), true, true), None);
        let text = got.lack(at(1_500), true, true);
        assert_eq!(
            text.as_deref(),
            Some(
                "no original for 1.5 s; contracts come first, and originals get only their share of the link (--history-share)"
            )
        );
        assert_eq!(got.lack(at(1_500), true, false), None, "it publishes nothing");
        got.handle_frame(at(2_000), 14);
        got.handle_frame(at(3_000), 9);
        let text = got.lack(at(3_100), false, true);
        assert_eq!(
            text.as_deref(),
            Some("originals of 2 of 25 frames in the last 10 s; the link has no room for more")
        );
        assert!(got.lack(at(4_200), true, true).is_some_and(|text| text.ends_with("; none for 1.2 s")));
        for ms in (4_300..14_000).step_by(100) {
            got.handle_frame(at(ms), 0);
        }
        assert_eq!(got.lack(at(14_000), true, true), None);
    }
}
