//! Announces an edge while it runs.

use std::time::Duration;

use mdns_sd::ServiceDaemon;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Advert, Network};

/// The longest time to tell the network that the edge is gone.
const FAREWELL_TIME_MAX: Duration = Duration::from_millis(500);

/// Answers searches for edges, on a thread of its own, until it is dropped.
pub struct Announcer(ServiceDaemon);

/// Why an edge is not announced.
#[derive(Debug, thiserror::Error)]
#[error(
    "the edge cannot be announced on the network: {0}; programs that give its address can still reach it"
)]
pub struct AnnounceError(#[from] mdns_sd::Error);

impl Announcer {
    /// Announces the edge from now on. Searches find it about a second later, because the network is first asked whether the name is free.
    ///
    /// # Errors
    /// The system provides no socket or no thread. Blocked multicast is not detected.
    pub fn start(network: Network, advert: &Advert) -> Result<Self, AnnounceError> {
        let daemon = network.daemon()?;
        let service = advert.to_service()?;
        let name = service.get_fullname().to_owned();
        daemon.register(service)?;
        info!(%name, "the edge is announced on the network");
        Ok(Self(daemon))
    }

    /// Tells the network that the edge is gone.
    pub async fn stop(self) {
        let Ok(ended) = self.0.shutdown() else { return };
        if timeout(FAREWELL_TIME_MAX, ended.recv_async()).await.is_err() {
            warn!(
                "the network was not told in time that the edge is gone; the announcement expires within two minutes"
            );
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        // This fails if the daemon has ended, which is no error here.
        let _ = self.0.shutdown();
    }
}
