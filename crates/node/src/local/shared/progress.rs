//! Waits for another process that works in shared memory.
//!
//! The wait usually takes microseconds, less than a wake-up. So the waiting thread first spins for that long.
//! Then it yields the processor for a while, because the other process may need it. Only then does it sleep.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// How long to spin. Copying 64 kB takes a tenth of this.
const LOOK: Duration = Duration::from_micros(50);
/// How long to check without sleeping: spinning until [`LOOK`], then yielding between two checks.
const YIELD: Duration = Duration::from_micros(500);
/// How long to sleep between two checks, after yielding.
const SLEEP: Duration = Duration::from_millis(1);
/// The number of sleeps without progress after which the other process counts as gone: five seconds.
const SLEEPS_MAX: usize = 5_000;

/// Waits until `look` returns a value. `None` if it returns none for five seconds.
pub(super) async fn wait<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    if let Some(found) = look() {
        return Some(found);
    }
    let began = Instant::now();
    while began.elapsed() < YIELD {
        if began.elapsed() < LOOK {
            for _ in 0..8 {
                spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
        if let Some(found) = look() {
            return Some(found);
        }
    }
    for _ in 0..SLEEPS_MAX {
        tokio::time::sleep(SLEEP).await;
        if let Some(found) = look() {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_late_is_found_and_what_never_comes_is_given_up() {
        let looks = AtomicU32::new(0);
        let late = |after: u32| {
            looks.store(0, Ordering::Relaxed);
            let looks = &looks;
            move || (looks.fetch_add(1, Ordering::Relaxed) >= after).then_some(after)
        };
        assert_eq!(wait(late(0)).await, Some(0));
        assert_eq!(wait(late(3)).await, Some(3));
        let start = tokio::time::Instant::now();
        assert_eq!(wait(|| (start.elapsed() >= Duration::from_secs(1)).then_some(())).await, Some(()));
        assert_eq!(wait(|| None::<()>).await, None);
    }
}
