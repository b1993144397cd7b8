//! Decides how long a free reader waits for the next frame, if the newest frame is no longer fresh.
//!
//! A reader that is slower than its camera becomes free at any moment between two frames. The newest frame is then half an interval old on
//! average. If the next frame comes sooner than the newest one is old, waiting saves more age than it costs time. Sun et al. ("Update or Wait: How
//! to Keep Your Data Fresh", IEEE Transactions on Information Theory 63(11), 2017) show that a sender that never waits does not keep
//! its receiver as up to date as possible.

use std::time::Duration;

use crate::frame::FrameId;
use crate::log::LogReader;
use crate::name::CameraName;
use crate::units::Instant;

/// How many of the last gaps between arrivals say when the next frame is due.
const GAPS: u64 = 8;
/// With fewer gaps than this, nobody knows when the next frame is due.
const GAPS_MIN: usize = 3;
/// Nobody waits for a camera whose frames come more rarely than this.
const GAP_MAX: Duration = Duration::from_secs(1);
/// A frame that is late by this share of a gap is no longer waited for.
const LATE_SHARE: u32 = 4;

/// The wait of a reader that prefers fresh frames.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// The last frame for which it was decided, and the decision.
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    camera: CameraName,
    frame: FrameId,
    /// `None`: the frame is taken as it is.
    until: Option<Instant>,
}

impl Fresh {
    /// Until when the reader waits for a frame newer than `frame`, which is the newest one in `log`. Decided once for each frame.
    ///
    /// `others`: the logs of the other cameras, none of which has a frame for the reader. `late_at`: when the frame becomes late for it.
    pub(super) fn look<'a>(
        &mut self,
        now: Instant,
        (camera, frame): (&CameraName, FrameId),
        log: &LogReader,
        others: impl Iterator<Item = &'a LogReader>,
        late_at: Option<Instant>,
    ) -> Option<Instant> {
        let is_it = |held: &Held| held.camera == *camera && held.frame == frame;
        if !self.held.as_ref().is_some_and(is_it) {
            let until = wait(now, log, others, late_at);
            self.held = Some(Held { camera: camera.clone(), frame, until });
        }
        self.until().filter(|until| *until > now)
    }

    /// Until when the reader waits at most.
    pub(super) fn until(&self) -> Option<Instant> {
        self.held.as_ref()?.until
    }
}

/// Until when to wait for the frame after the newest one in `log`. `None`: not at all.
///
/// A reader waits if the next frame is due sooner than the newest one is old, until it is late by a quarter of the gap. It does not wait if
/// a frame of another camera is due first: that frame would end the wait, and the newest one would go out older still. Nor if the newest
/// frame is on time, and would be late after the wait.
fn wait<'a>(
    now: Instant,
    log: &LogReader,
    mut others: impl Iterator<Item = &'a LogReader>,
    late_at: Option<Instant>,
) -> Option<Instant> {
    let newest = newest_arrival(log)?;
    let due = Due::of(log).filter(|due| due.is_expected(now))?;
    if due.at.saturating_since(now) >= now.saturating_since(newest) {
        return None;
    }
    let until = due.given_up_at();
    let comes_first = |other: Due| other.is_expected(now) && other.at <= due.at;
    let is_first = !others.any(|other| Due::of(other).is_some_and(comes_first));
    let is_in_time = late_at.is_none_or(|late_at| late_at <= now || until < late_at);
    (is_first && is_in_time).then_some(until)
}

/// When the next frame of a camera is due.
struct Due {
    at: Instant,
    /// The typical gap between two arrivals.
    gap: Duration,
}

impl Due {
    /// A typical gap after the newest frame arrived. The typical gap is the median of the last ones. `None`: there are too few.
    fn of(log: &LogReader) -> Option<Self> {
        let held = log.held();
        let from = held.start.max(held.end.saturating_sub(GAPS + 1));
        let arrivals = (from..held.end).filter_map(|index| log.arrived(index));
        // Of a record that an earlier start of the broker appended, it is not known when it arrived.
        let arrivals: Vec<Instant> = arrivals.filter(|arrived| *arrived > Instant::ZERO).collect();
        let mut gaps: Vec<Duration> =
            arrivals.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
        if gaps.len() < GAPS_MIN {
            return None;
        }
        let middle = gaps.len() / 2;
        let gap = *gaps.select_nth_unstable(middle).1;
        Some(Self { at: *arrivals.last()? + gap, gap })
    }

    fn given_up_at(&self) -> Instant {
        self.at + self.gap / LATE_SHARE
    }

    /// Whether the frame is still to be expected, and soon enough to be waited for.
    fn is_expected(&self, now: Instant) -> bool {
        self.gap <= GAP_MAX && now < self.given_up_at()
    }
}

fn newest_arrival(log: &LogReader) -> Option<Instant> {
    log.arrived(log.held().end.checked_sub(1)?)
}

#[cfg(test)]
mod tests {

    use bytes::Bytes;

    use super::*;
    use crate::frame::{Epoch, Frame, Sequence};
    use crate::log::{LogConfig, LogWriter, Record, log};
    use crate::sample;
    use crate::units::Timestamp;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A log to which a frame was appended at each of these milliseconds.
    fn log_of(arrivals: &[u64]) -> (LogWriter, LogReader) {
        let (mut writer, reader) = log(LogConfig::default());
        for (sequence, arrived) in arrivals.iter().enumerate() {
            let sequence = Sequence(sequence as u64);
            let meta =
                sample::meta(FrameId { epoch: Epoch(1), sequence }, Timestamp::from_nanos(1 + sequence.0));
            let frame = Frame { meta, payload: Bytes::from_static(b"x") };
            let record = Record { arrived: at(*arrived), ..sample::record(frame) };
            writer.append_record(record).unwrap();
        }
        (writer, reader)
    }

    fn wait_alone(log: &LogReader, now: u64) -> Option<Instant> {
        wait(at(now), log, std::iter::empty(), None)
    }

    #[test]
    fn a_reader_waits_for_a_frame_that_comes_sooner_than_the_newest_one_is_old() {
        let (_writer, log) = log_of(&[10, 110, 210, 310, 410]);
        // The newest frame came at 410, so the next is due at 510.
        let table = [
            (410, None),
            (450, None),
            // As soon as it is old: no gain.
            (460, None),
            (461, Some(535)),
            (500, Some(535)),
            // The next one is late, but not by much.
            (520, Some(535)),
            (535, None),
            (900, None),
        ];
        for (now, until) in table {
            assert_eq!(wait_alone(&log, now), until.map(at), "at {now}");
        }
    }

    #[test]
    fn one_odd_gap_changes_nothing_and_too_few_gaps_say_nothing() {
        let (_writer, log) = log_of(&[10, 110, 1_210, 1_310, 1_410]);
        assert_eq!(wait_alone(&log, 1_490), Some(at(1_535)));
        let (_writer, few) = log_of(&[10, 110, 210]);
        assert_eq!(wait_alone(&few, 290), None);
        let (_writer, restored) = log_of(&[0, 0, 100, 200, 300]);
        assert_eq!(wait_alone(&restored, 380), None, "of the time before the restart nothing is known");
        let (_writer, rare) = log_of(&[10, 1_510, 3_010, 4_510]);
        assert_eq!(wait_alone(&rare, 5_900), None, "a second is too long to wait");
        let (_writer, empty) = log_of(&[]);
        assert_eq!(wait_alone(&empty, 190), None);
    }

    #[test]
    fn nobody_waits_if_another_camera_comes_first() {
        let (_writer, log) = log_of(&[10, 110, 210, 310, 410]);
        let wait = |other: &[u64]| {
            let (_writer, other) = log_of(other);
            wait(at(480), &log, [&other].into_iter(), None)
        };
        assert_eq!(wait(&[100, 200, 300, 400]), None);
        assert_eq!(wait(&[110, 210, 310, 410]), None, "both at once");
        assert_eq!(wait(&[111, 211, 311, 411]), Some(at(535)));
        assert_eq!(wait(&[100, 110, 120, 130]), Some(at(535)), "it does not come any more");
        assert_eq!(wait(&[]), Some(at(535)));
    }

    #[test]
    fn nobody_waits_until_a_frame_is_late() {
        let (_writer, log) = log_of(&[10, 110, 210, 310, 410]);
        let wait = |late_at| wait(at(480), &log, std::iter::empty(), Some(at(late_at)));
        assert_eq!(wait(520), None);
        assert_eq!(wait(540), Some(at(535)));
        assert_eq!(wait(470), Some(at(535)), "it is late already");
    }

    #[test]
    fn a_wait_is_decided_once_and_ends() {
        let (_writer, log) = log_of(&[10, 110, 210, 310, 410]);
        let (mut fresh, camera) = (Fresh::default(), "dock/cam1".parse().unwrap());
        let frame = FrameId { epoch: Epoch(1), sequence: Sequence(4) };
        let mut look = |now| fresh.look(at(now), (&camera, frame), &log, std::iter::empty(), None);
        assert_eq!(look(450), None);
        assert_eq!(look(470), None, "no wait, so the frame may be gone already");
        let mut fresh = Fresh::default();
        let mut look = |now| fresh.look(at(now), (&camera, frame), &log, std::iter::empty(), None);
        assert_eq!(look(470), Some(at(535)));
        assert_eq!(look(520), Some(at(535)));
        assert_eq!(look(535), None);
        assert_eq!(fresh.until(), Some(at(535)));
    }
}
