//! Decides which certificates of a site are no longer accepted: the site's deny list, and which of two lists is valid.
//!
//! A [`Revocations`] names certificates by serial number, or members of the site by name. The entry of a member denies all
//! certificates that the member was given until then. The version of the list increases by one with each change. A holder of a
//! list replaces it only by a newer one ([`Revocations::judge`]), so that an old list cannot bring back revoked certificates.
//!
//! The list is signed by the site's authority. Signatures are verified elsewhere: the lists here are genuine.
//! The encoding is fixed ([`Revocations::encode`]), so that a list can be passed on as it was signed.
//!
//! Reasons: `docs/decisions/0039-revocation.md`.

mod list;
mod subject;

#[cfg(test)]
mod tests;

pub use self::list::{
    BECAUSE_BYTES_MAX, Denial, ENTRIES_MAX, Entry, LIST_BYTES_MAX, ListFull, Offer, Revocations,
};
pub use self::subject::{Certificate, MemberName, Serial, Subject, SubjectError};
