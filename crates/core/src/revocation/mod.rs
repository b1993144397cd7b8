//! Decides which certificates of a site are not accepted any more: the site's deny list, and which of two lists counts.
//!
//! A [`Revocations`] names certificates by their serial number, or members of the site by their name: then all
//! certificates that the member was given until that moment. It has a version, one up with each change. Whoever
//! holds a list takes only a newer one in its place ([`Revocations::judge`]), so that nobody can bring back what was
//! revoked with a list from before.
//!
//! The list is signed by the site's authority. Who reads the signature is not decided here: what gets here is
//! genuine. Its bytes are fixed ([`Revocations::encode`]), so that a list can be handed on as it was signed.
//!
//! Why it is so: `docs/decisions/0039-revocation.md`.

mod list;
mod subject;

#[cfg(test)]
mod tests;

pub use self::list::{
    BECAUSE_BYTES_MAX, Denial, ENTRIES_MAX, Entry, LIST_BYTES_MAX, ListFull, Offer, Revocations,
};
pub use self::subject::{Certificate, MemberName, Serial, Subject, SubjectError};
