//! Waiting for another process that is at work in shared memory.
//!
//! What is waited for takes microseconds, less than a wake-up; so this looks again and again for as long as that, lets others
//! have the processor for a while after it, since it may be the very one that the other process needs, and only then sleeps.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

/// How long to look without a pause: 64 kB are copied in a tenth of it.
const LOOK: Duration = Duration::from_micros(50);
/// How long to look whenever the others have had the processor.
const YIELD: Duration = Duration::from_micros(500);
/// Between two looks after that, and how many of them there are before the other process is taken to have gone.
const SLEEP: Duration = Duration::from_millis(1);
const SLEEPS_MAX: usize = 5_000;

/// What `look` finds; nothing where it finds nothing for five seconds.
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
