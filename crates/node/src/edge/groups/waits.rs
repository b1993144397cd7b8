//! The events that a group's task waits for.

use std::pin::Pin;
use std::time::Duration;

use mez_core::units::Instant;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use crate::clock::monotonic_now;
use crate::edge::subscribers::Mailbox;

/// Waits for news from the broker; for ever if the group is not open.
pub(super) async fn changed(mailbox: Option<&Mailbox>) {
    match mailbox {
        Some(mailbox) => mailbox.changed.notified().await,
        None => std::future::pending().await,
    }
}

/// Waits until the broker stops.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the last handle was dropped, which also stops the broker.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A timer that is set again only where that is necessary: a group looks at it twice for each record.
#[derive(Debug)]
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// What it is set for.
    due: Option<Instant>,
}

impl Timer {
    pub(super) fn new() -> Self {
        Self { sleep: Box::pin(sleep(Duration::ZERO)), due: None }
    }

    /// Waits until `due`, or until an earlier time that was waited for before; for ever if it is `None`. Cancel-safe.
    pub(super) async fn until(&mut self, due: Option<Instant>) {
        let Some(due) = due else { return std::future::pending().await };
        if self.due.is_none_or(|set| due < set) {
            // Timers count whole milliseconds.
            let wait = due.saturating_since(monotonic_now()) + Duration::from_millis(1);
            self.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
            self.due = Some(due);
        }
        self.sleep.as_mut().await;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_timer_rings_at_the_earliest_of_what_was_waited_for() {
        let (mut timer, began) = (Timer::new(), monotonic_now());
        let at = |ms| Some(began + Duration::from_millis(ms));
        assert!(timer.until(at(60_000)).now_or_never().is_none());
        assert!(timer.until(at(30)).now_or_never().is_none());
        assert!(timer.until(None).now_or_never().is_none());
        timer.until(at(60_000)).await;
        assert!(monotonic_now() >= began + Duration::from_millis(30), "not before");
        assert!(timer.until(at(60_000)).now_or_never().is_none(), "it is set again");
        timer.until(at(1)).await;
    }
}
