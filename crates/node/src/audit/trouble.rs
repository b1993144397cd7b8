//! Decides when to report that the log cannot be written, and that it works again: once each.

use std::time::Duration;

use mez_core::units::Instant;

/// For this long no record may be lost before the log counts as working again. A disk that is almost full takes some records and refuses others.
pub(super) const SOUND_TIME: Duration = Duration::from_secs(60);

/// A period in which records are lost.
#[derive(Debug, Default)]
pub(super) struct Trouble(Option<Ongoing>);

#[derive(Debug)]
struct Ongoing {
    /// The number of records lost in this period.
    lost: u64,
    last: Instant,
    said: bool,
}

impl Trouble {
    /// Counts lost records.
    pub(super) fn handle_lost(&mut self, now: Instant, count: u64) {
        let ongoing = self.at(now);
        ongoing.lost = ongoing.lost.saturating_add(count);
    }

    /// Handles a failed write. Returns whether to report it.
    pub(super) fn handle_failed(&mut self, now: Instant) -> bool {
        !std::mem::replace(&mut self.at(now).said, true)
    }

    /// Handles a successful write. If this ends the period, returns how many records were lost in it.
    pub(super) fn handle_written(&mut self, now: Instant) -> Option<u64> {
        let over = self.0.take_if(|ongoing| now.saturating_since(ongoing.last) >= SOUND_TIME);
        over.map(|ongoing| ongoing.lost)
    }

    fn at(&mut self, now: Instant) -> &mut Ongoing {
        let ongoing = self.0.get_or_insert(Ongoing { lost: 0, last: now, said: false });
        ongoing.last = now;
        ongoing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// A full disk has room for the short record of the loss, but not for more. So for ten minutes the log seems to work again every two seconds.
    #[test]
    fn a_disk_that_takes_some_records_is_said_once_to_fail_and_once_to_be_sound() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.handle_written(at(0)), None, "nothing was wrong");
        let mut said = 0;
        for second in (1..600).step_by(2) {
            trouble.handle_lost(at(second), 3);
            said += u32::from(trouble.handle_failed(at(second)));
            assert_eq!(trouble.handle_written(at(second + 1)), None, "in second {second}");
        }
        assert_eq!(said, 1);
        assert_eq!(trouble.handle_written(at(599 + 59)), None);
        assert_eq!(trouble.handle_written(at(599 + 60)), Some(900));
        assert_eq!(trouble.handle_written(at(700)), None, "it is said once");
        assert!(trouble.handle_failed(at(800)), "another time is said again");
    }
}
