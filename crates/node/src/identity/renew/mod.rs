//! Renews certificates over connections that stand, before they expire.
//!
//! When is decided by [`mez_core::renewal`]; [`mod@keeper`] drives it. A member makes a new key, and asks the edge that it is connected to: a camera
//! on the link, an application with the call `RenewCertificate`, an edge its own signer. The request (`request.rs`) is signed with the old key as
//! well as with the new one. So it proves by itself whose it is, whoever passes it on: an edge without the authority's key passes it to one that
//! has it, and an edge that somebody has broken into can ask for nobody else.
//!
//! [`Signer`] has the authority's key, or knows who has it: a process beside the edge (`process.rs`), or another edge. What comes back replaces the key, the certificate and the authorities that are trusted,
//! in the file and in all clones of the [`super::Credentials`]. Connections that stand are not touched; the next one shows the new certificate.
//!
//! A request without a certificate asks only which authorities the site trusts now. Members ask it about every hour, so that all follow a new
//! authority soon.

mod accepted;
mod keeper;
mod process;
mod request;
mod signer;

use bytes::Bytes;
use prost::Message;

pub(crate) use self::accepted::stay_accepted;
pub(crate) use self::keeper::{Way, keep};
pub use self::process::{SignerError, SignerServer};
pub use self::signer::Signer;
pub(crate) use self::signer::{Claim, Signs, claimed};
use crate::api::pb;

/// What the old key signs before the request itself, so that the signature means nothing else.
const CONTEXT: &[u8] = b"mez-renewal-1:";

/// An answer that refuses.
pub(crate) fn refusal(code: pb::RenewalRefusal, message: impl Into<String>) -> pb::RenewCertificateResponse {
    pb::RenewCertificateResponse {
        refusal: code.into(),
        message: message.into(),
        answered_utc_ns: crate::clock::wall_now().as_nanos(),
        ..Default::default()
    }
}

/// The refusal of an edge that has no signer.
pub(crate) fn no_signer() -> pb::RenewCertificateResponse {
    refusal(
        pb::RenewalRefusal::NoSigner,
        "this edge has no signer, so it renews no certificates: run it on the host where the site was made, or name that host's edge with \
         --signer",
    )
}

/// An answer as it crosses the link.
pub(crate) fn encode(answer: &pb::RenewCertificateResponse) -> Bytes {
    answer.encode_to_vec().into()
}

#[cfg(test)]
mod tests;
