//! What the task of a group waits for.

use std::time::Duration;

use mez_core::units::Instant;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::monotonic_now;
use crate::edge::subscribers::Mailbox;

/// Waits for the broker to tell something; for ever where the group is not open.
pub(super) async fn changed(mailbox: Option<&Mailbox>) {
    match mailbox {
        Some(mailbox) => mailbox.changed.notified().await,
        None => std::future::pending().await,
    }
}

/// Waits until the broker stops.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // It also does when its last handle is dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits until then; for ever where there is nothing to wait for.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        // Timers count whole milliseconds.
        Some(due) => sleep(due.saturating_since(monotonic_now()) + Duration::from_millis(1)).await,
        None => std::future::pending().await,
    }
}
