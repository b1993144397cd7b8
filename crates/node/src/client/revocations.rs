//! Synchronises this edge's deny list with another edge's: the edge with the older list takes the newer one.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::address::Address;
use super::dial::Dialler;
use super::error::ClientError;
use crate::api::pb::ExchangeRevocationsRequest;
use crate::api::socket::Which;
use crate::identity::Credentials;
use crate::revocation::LiveRevocations;

/// How often the other edge is asked. A list reaches the other edge within this time.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Another edge of the site, with which deny lists are exchanged.
pub(crate) struct OtherEdge(Dialler);

impl OtherEdge {
    /// The edge at an address. `credentials` are those of this edge. `None` for a Unix socket, which never belongs to another edge.
    pub(crate) fn at(address: &Address, credentials: &Credentials) -> Result<Option<Self>, ClientError> {
        match address {
            Address::Unix(_) => Ok(None),
            Address::Tcp { .. } => {
                Ok(Some(Self(Dialler::new(address.clone(), Which::Edge, Some(credentials))?)))
            }
        }
    }

    /// Asks once a second, and at once when the list in force here changes.
    pub(crate) async fn exchange(self, mut revoked: LiveRevocations) {
        let mut asks = interval(ASK_INTERVAL);
        asks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The last logged text, so that the same text is not logged every second.
        let mut said = String::new();
        // The version of this edge's list that was last sent to compare it with the other edge's list of the same version.
        let mut compared = 0;
        loop {
            tokio::select! {
                _ = asks.tick() => {}
                () = revoked.changed() => {}
            }
            let trouble = self.once(&mut revoked, &mut compared).await.err().unwrap_or_default();
            if trouble == said {
                continue;
            }
            let edge = self.0.address();
            match trouble.is_empty() {
                true => info!(%edge, "deny lists are exchanged with the other edge again"),
                false => {
                    warn!(%edge, "the deny list of the other edge is not available, so its new revocations are unknown here: {trouble}")
                }
            }
            said = trouble;
        }
    }

    async fn once(&self, revoked: &mut LiveRevocations, compared: &mut u64) -> Result<(), String> {
        let held = revoked.notice();
        let version = held.list.version();
        let ask = |signed| self.0.exchange_revocations(ExchangeRevocationsRequest { version, signed });
        let mut answer = ask(bytes::Bytes::new()).await.map_err(|error| error.to_string())?;
        // A list of the same version is sent once: the other edge reports if its list differs.
        let shows = answer.version == version && version > 0 && *compared != version;
        if answer.version < version || shows {
            answer = ask(held.bytes.clone()).await.map_err(|error| error.to_string())?;
            *compared = version;
        }
        if answer.signed.is_empty() {
            return Ok(());
        }
        match revoked.take(answer.signed, &self.0.address().to_string()) {
            // A newer list may have arrived here meanwhile.
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the deny list of the other edge is refused: {error}")),
        }
    }
}
