//! One grant.

use std::fmt;

use super::bearer::Grantee;
use super::verb::Verb;
use crate::name::CameraPattern;

/// One thing that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// To whom.
    pub grantee: Grantee,
    /// What.
    pub verb: Verb,
    /// With which cameras, also those that come later.
    pub cameras: CameraPattern,
}

impl fmt::Display for Grant {
    /// As arguments of `mez keys grant`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grantee, verb, cameras } = self;
        write!(f, "{} {verb} {}", quoted(&grantee.to_string()), quoted(cameras.as_str()))
    }
}

/// A word as a shell takes it: a `*` would otherwise stand for files.
pub(super) fn quoted(word: &str) -> String {
    if word.contains('*') { format!("'{word}'") } else { word.to_owned() }
}
