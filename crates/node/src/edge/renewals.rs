//! Renews certificates of cameras and applications, if this edge has a signer or knows one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::wire::Message;
use tracing::debug;

use super::driver::Driver;
use crate::api::pb::RenewalRefusal;
use crate::identity::Signer;
use crate::identity::renew::{claimed, encode, no_signer, refusal};
use crate::link::Command;

/// What renews certificates, once it is known. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Renewals(Arc<OnceLock<Signer>>);

impl Renewals {
    /// From now on this signer is asked. The first one counts.
    pub(super) fn set(&self, signer: Signer) {
        let _ = self.0.set(signer);
    }

    /// Answers a request that came from `shown`, the identity that a connection has proved. `None`: from an edge, which passes it on for
    /// somebody else.
    pub(super) async fn answer(&self, request: Bytes, shown: Option<&str>) -> Bytes {
        let claimed = claimed(&request).map(|identity| identity.to_string());
        if shown.is_some() && claimed.as_deref() != shown {
            let message = "the request is for another identity than the connection has shown";
            return encode(&refusal(RenewalRefusal::WrongIdentity, message));
        }
        match self.0.get() {
            Some(signer) => signer.answer(request).await,
            None => encode(&no_signer()),
        }
    }
}

impl Driver {
    /// A camera host asks for its next certificate. Signing takes a while, so a task of its own waits for it; of one connection, one at a time.
    pub(super) fn renew(&mut self, link: LinkId, request: Bytes) {
        let Some(known) = self.links.get_mut(&link) else { return };
        if known.renewal.as_ref().is_some_and(|renewal| !renewal.is_finished()) {
            return debug!(peer = known.who, "asks for a certificate again before it has its answer");
        }
        let (renewals, commands, shown) =
            (self.renewals.clone(), known.commands.clone(), known.shown.peer.identity.clone());
        known.renewal = Some(tokio::spawn(async move {
            let answer = renewals.answer(request, Some(&shown)).await;
            commands.send(Command::Send(Message::RenewalAnswer(answer)));
        }));
    }
}
