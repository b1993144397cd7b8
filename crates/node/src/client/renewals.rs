//! Sends a program's requests for its next certificate to the edge in use.

use bytes::Bytes;
use prost::Message;
use tokio::sync::watch;

use super::edges::Edges;
use crate::api::pb;
use crate::identity::renew::Way;

/// A program's connection to its edges for renewals: calls over gRPC.
pub(super) struct Calls {
    edges: Edges,
    /// Whether the edge in use answered the last call.
    reachable: watch::Receiver<bool>,
}

impl Calls {
    pub(super) fn new(edges: Edges, reachable: watch::Receiver<bool>) -> Self {
        Self { edges, reachable }
    }
}

impl Way for Calls {
    async fn ask(&self, request: Bytes) -> Result<Bytes, String> {
        let request = pb::RenewCertificateRequest::decode(request).map_err(|error| error.to_string())?;
        let answer = self.edges.current().renew(request).await.map_err(|error| error.to_string())?;
        let answer = answer.ok_or(
            "the edge is on this host and is reached through its Unix socket, which needs no certificate",
        )?;
        Ok(answer.encode_to_vec().into())
    }

    async fn reconnected(&mut self) -> bool {
        // Reconnected means: unreachable first, then reachable.
        let _ = self.reachable.wait_for(|reachable| !reachable).await;
        self.reachable.wait_for(|reachable| *reachable).await.is_ok()
    }
}
