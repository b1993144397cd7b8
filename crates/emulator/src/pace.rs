//! Keeps real time to the nanosecond: reads the monotonic clock, and sleeps until an instant of this clock.
//!
//! The programs in `bench/peers` compile this file too, so that Mez and its peers are driven by the same code.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until an instant of `CLOCK_MONOTONIC`.
pub fn sleep_until(due_ns: u64) {
    loop {
        let now = now_ns();
        if now >= due_ns {
            return;
        }
        std::thread::sleep(Duration::from_nanos(due_ns - now));
    }
}

/// Asks the kernel to wake the main thread on time instead of within its usual 50 µs. Threads that
/// are created later inherit this, so call it after the measured program has created its own threads.
pub fn wake_on_time() {
    // If this fails, frames leave a little late, which is measured.
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}
