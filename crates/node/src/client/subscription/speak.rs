//! Sends a member's reports on its records to the edge.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::group::ToSay;
use super::shared::Shared;
use crate::client::ClientError;

/// The pause before a failed report is repeated, unless the program joins again first.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// Waits until the edge has got all reports so far, for at most `patience`.
pub(super) async fn flush(shared: &Shared, patience: Duration) {
    let Some(member) = &shared.member else { return };
    let all_said = async {
        let mut has_asked = false;
        loop {
            let (said, confirmed) = (member.said.notified(), member.confirmed());
            tokio::pin!(said);
            said.as_mut().enable();
            if member.has_said_all() {
                return;
            }
            if !std::mem::replace(&mut has_asked, true) {
                member.asks_to_confirm();
            }
            tokio::select! {
                () = said => {}
                () = confirmed => {}
            }
        }
    };
    // What has not arrived by then, the edge gives to others.
    let _ = timeout(patience, all_said).await;
}

/// Sends the program's reports on its records to the edge, as long as the subscription lives. To an edge on this
/// host they go on the connection of the stream, and are confirmed with the next record. Other edges get calls.
pub(super) async fn speak(shared: Arc<Shared>) {
    let Some(member) = &shared.member else { return };
    loop {
        while let Some(ToSay { request, confirm, line, joins }) = member.take() {
            let (edge, ready) = (shared.opened().edge.clone(), request.ready);
            let sent = match line {
                Some(line) => {
                    let sent = line.report(&request, confirm).await;
                    sent.map(Some).map_err(|error| ClientError::from_io(&error, edge.address()))
                }
                None => edge.settle_records(request).await.map(|_| None),
            };
            match sent {
                Ok(number) => member.was_said(number, joins),
                Err(error) => {
                    tracing::debug!("settled records were not reported to the edge: {error}");
                    if !member.was_not_said(ready, joins) {
                        tokio::select! {
                            () = member.joined.notified() => {}
                            () = sleep(SAY_AGAIN) => {}
                        }
                    }
                }
            }
        }
        member.changed.notified().await;
    }
}
