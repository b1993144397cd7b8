//! One grant.

use std::fmt;

use super::bearer::Grantee;
use super::verb::Verb;
use crate::name::CameraPattern;

/// Allows somebody to do something with some cameras.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// Who gets the grant.
    pub grantee: Grantee,
    /// What is allowed.
    pub verb: Verb,
    /// The cameras for which it is allowed, present and future.
    pub cameras: CameraPattern,
}

impl fmt::Display for Grant {
    /// The arguments of `mez keys grant`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grantee, verb, cameras } = self;
        write!(f, "{} {verb} {}", quoted(&grantee.to_string()), quoted(cameras.as_str()))
    }
}

/// A word as a shell takes it: quoted if it has a `*`, which would stand for files.
pub(super) fn quoted(word: &str) -> String {
    if word.contains('*') { format!("'{word}'") } else { word.to_owned() }
}
