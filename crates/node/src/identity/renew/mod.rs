//! Renews certificates over existing connections, before they expire.
//!
//! [`mez_core::renewal`] decides when, and [`mod@keeper`] drives it. A member makes a new key, and asks the edge that it is connected
//! to: a camera on the link, an application with the call `RenewCertificate`, an edge its own signer. The request (`request.rs`) is
//! signed with both the old key and the new key. So the request itself proves who sent it, whoever forwards it. An edge without the
//! authority's key forwards it to an edge that has the key, and an attacker who controls an edge cannot get certificates for others.
//!
//! [`Signer`] has the authority's key, or knows who has it: a process beside the edge (`process.rs`), or another
//! edge. The answer replaces the key, the certificate and the trusted authorities, in the file and in all clones of
//! the [`super::Credentials`]. Existing connections are not affected. The next connection shows the new certificate.
//!
//! A request without a certificate only asks which authorities the site trusts now.
//! Members send one about every hour, so that all follow a new authority soon.

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

/// The old key signs this prefix before the request, so that the signature is not valid for another purpose.
const CONTEXT: &[u8] = b"mez-renewal-1:";

/// A refusing answer.
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
        "this edge has no signer, so it cannot renew certificates: run the edge on the host where the site was made, or give the address of that \
         host's edge with --signer",
    )
}

/// The encoded answer, as sent over the link.
pub(crate) fn encode(answer: &pb::RenewCertificateResponse) -> Bytes {
    answer.encode_to_vec().into()
}

#[cfg(test)]
mod tests;
