//! Reports to the edge when the program took frames, because the latency of a contract ends there.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::api::pb;

/// How long reports are collected before they are sent together.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Reports as long as the subscription lives, if its contract has a latency bound. A failed
/// report is not repeated: the edge then judges its frames by the time when it handed them over.
pub(super) async fn report(shared: Arc<Shared>) {
    loop {
        shared.taken.noted.notified().await;
        tokio::time::sleep(REPORT_INTERVAL).await;
        let (edge, subscription_id, is_bound) = {
            let opened = shared.opened();
            let contract = opened.request.contract.as_ref();
            (
                opened.edge.clone(),
                opened.id,
                contract.is_some_and(|contract| contract.latency_bound_ns.is_some()),
            )
        };
        let frames = shared.taken.take();
        if is_bound
            && let Err(error) = edge.report_taken(pb::ReportTakenRequest { subscription_id, frames }).await
        {
            tracing::debug!("the times when frames were taken were not reported to the edge: {error}");
        }
    }
}
