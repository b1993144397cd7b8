//! Decides who may do what with which camera: grants, and the one check that every interface uses.
//!
//! A grant lets a [`Grantee`] do one thing (a [`Verb`]) with the cameras of a pattern. What no grant allows is
//! refused, with a [`Refusal`] that names the grant that is missing. [`Rights::check`] asks for one camera,
//! [`Rights::select`] for the cameras of a pattern. Both look up trees, so a check takes about as long with a
//! thousand grants as with one. [`StreamRights`] holds what a stream was granted, and says when it must end.
//!
//! Three things need no grant:
//!
//! - A camera publishes under its own name ([`own_cameras`]). Its certificate contains the name.
//! - The owner of the edge's process, and root, may do everything: they can change the file of rights.
//! - At a site whose rights are [`Stance::Open`], members and users may do what they could do before grants existed.
//!
//! Reasons: `docs/decisions/0035-grants.md`.

mod bearer;
mod change;
mod grant;
mod granted;
mod refusal;
mod stream;
mod table;
mod tree;
mod verb;

#[cfg(test)]
mod tests;

pub use self::bearer::{Bearer, Grantee, GranteeError, own_cameras};
pub use self::change::Change;
pub use self::grant::Grant;
pub use self::granted::Granted;
pub use self::refusal::Refusal;
pub use self::stream::{Lost, StreamRights};
pub use self::table::{Rights, Stance};
pub use self::tree::{PatternSet, PatternTree};
pub use self::verb::{UnknownVerb, Verb};
