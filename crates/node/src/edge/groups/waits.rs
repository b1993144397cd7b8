//! The events that a group's task waits for.

use std::time::Duration;

use mez_core::units::Instant;
use tokio::sync::watch;
use tokio::time::sleep;

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

/// Waits until `due`; for ever if it is `None`.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        // Timers count whole milliseconds.
        Some(due) => sleep(due.saturating_since(monotonic_now()) + Duration::from_millis(1)).await,
        None => std::future::pending().await,
    }
}
