//! Renews certificates of cameras and applications, if this edge has a signer or knows one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::units::Instant;
use mez_core::wire::Message;
use prost::Message as _;
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tracing::debug;

use super::certificates::MemberCertificates;
use super::driver::Driver;
use crate::api::pb::{self, RenewalRefusal};
use crate::audit::Audit;
use crate::clock::{monotonic_now, sleep_until};
use crate::identity::Signer;
use crate::identity::certificate::CertificateFacts;
use crate::identity::renew::{Claim, claimed, encode, no_signer, refusal};
use crate::link::Command;

/// The shortest time between two answers on one connection. A member asks once in days.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);
/// The most requests of one connection that wait or are being answered. A member waits for its answer before it asks again.
const WAITING_MAX: usize = 4;

/// The signer, once it is known. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Renewals {
    signer: Arc<OnceLock<Signer>>,
    audit: Audit,
    /// When members' certificates expire.
    pub(super) certificates: MemberCertificates,
}

/// Who sent a request.
pub(crate) enum Asker {
    /// A member, for itself: the identity that its connection has proved, as a URI, and its address.
    Member(String, String),
    /// An edge that forwards a member's request: the edge's name.
    Edge(String),
}

impl Renewals {
    pub(super) fn new(audit: Audit) -> Self {
        Self { signer: Arc::default(), audit, certificates: MemberCertificates::default() }
    }

    /// Sets the signer. Only the first call counts.
    pub(super) fn set(&self, signer: Signer) {
        let _ = self.signer.set(signer);
    }

    /// Answers a request for a certificate.
    pub(super) async fn answer(&self, request: Bytes, asker: &Asker) -> Bytes {
        let claimed = match claimed(&request) {
            Claim::Nobody => None,
            Claim::Member(identity) => Some(identity),
            Claim::Unreadable => {
                return encode(&refusal(
                    RenewalRefusal::BadRequest,
                    "the request for a certificate cannot be read",
                ));
            }
        };
        let (is_edge, from) = match asker {
            Asker::Edge(name) => (true, name),
            Asker::Member(shown, from) => {
                if claimed.as_ref().is_some_and(|claimed| claimed.to_string() != *shown) {
                    let message =
                        "the request is for another identity than the certificate of the connection";
                    return encode(&refusal(RenewalRefusal::WrongIdentity, message));
                }
                (false, from)
            }
        };
        // A request that was forwarded once is not forwarded again: edges could pass it round for ever.
        let Some(signer) = self.signer.get().filter(|signer| !is_edge || !signer.passes_on()) else {
            return encode(&no_signer());
        };
        let answer = signer.answer(request).await;
        if let Some(identity) = claimed
            && let Some(facts) = issued(&answer)
        {
            self.certificates.note(identity.to_string(), facts.validity.not_after);
            self.audit.renewed(identity.short(), &facts.serial, from);
        }
        answer
    }
}

/// The certificate in an answer.
fn issued(answer: &[u8]) -> Option<CertificateFacts> {
    let answer = pb::RenewCertificateResponse::decode(answer).ok()?;
    let certificate = CertificateDer::from(answer.chain.first()?.as_ref());
    CertificateFacts::read(&certificate).ok()
}

/// The certificate requests of one connection, which are answered one at a time.
pub(super) struct Turns {
    /// Its one permit is held by the request that is being answered. Each waiting request holds a clone of the `Arc`, which counts it.
    turn: Arc<Semaphore>,
    /// The earliest time for the next answer.
    next: Instant,
}

impl Turns {
    pub(super) fn new(now: Instant) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), next: now }
    }
}

impl Driver {
    /// Renews the certificate of a camera host. Signing takes a while, so the request gets its own task.
    pub(super) fn renew(&mut self, link: LinkId, request: Bytes) {
        let Some(known) = self.links.get_mut(&link) else { return };
        if Arc::strong_count(&known.renewing.turn) > WAITING_MAX {
            return debug!(peer = known.who, "the member requests certificates faster than they are issued");
        }
        let from = known.from.to_canonical().to_string();
        let asker = Asker::Member(known.shown.peer.identity.clone(), from);
        let (renewals, commands) = (self.renewals.clone(), known.commands.clone());
        let (turn, at) = (Arc::clone(&known.renewing.turn), known.renewing.next);
        known.renewing.next = monotonic_now().max(at) + ANSWER_INTERVAL;
        tokio::spawn(async move {
            // The semaphore is never closed, and is fair: requests get the permit in order.
            let _turn = turn.acquire().await;
            sleep_until(at).await;
            let answer = renewals.answer(request, &asker).await;
            commands.send(Command::Send(Message::RenewalAnswer(answer)));
        });
    }
}
