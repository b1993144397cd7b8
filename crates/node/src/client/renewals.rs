//! Carries the requests of a program for its next certificate to the edge in use, and the answers back.

use bytes::Bytes;
use prost::Message;
use tokio::sync::watch;

use super::edges::Edges;
use crate::api::pb;
use crate::identity::renew::Way;

/// The way of a program to its edges: calls over gRPC.
pub(super) struct Calls {
    edges: Edges,
    /// Whether the edge in use answered last.
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
        let answer = answer.ok_or("the edge in use is one of this host, which asks for no certificate")?;
        Ok(answer.encode_to_vec().into())
    }

    async fn reconnected(&mut self) -> bool {
        // Was it reachable all the time, it is not again.
        let _ = self.reachable.wait_for(|reachable| !reachable).await;
        self.reachable.wait_for(|reachable| *reachable).await.is_ok()
    }
}
