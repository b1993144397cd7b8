//! Says why a request is refused, and which grant would allow it.

use std::fmt;

use super::bearer::Bearer;
use super::grant::quoted;
use super::verb::Verb;
use crate::name::CameraPattern;

/// The most patterns that a refusal lists.
pub(super) const SHOWN_MAX: usize = 4;

/// A request that no grant allows. As text, it names the missing grant and the command that gives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Who asked.
    pub who: Bearer,
    /// The verb asked for.
    pub verb: Verb,
    /// The camera or cameras asked for.
    pub cameras: CameraPattern,
    /// The cameras for which `who` may do this, at most four of their patterns.
    pub has: Vec<CameraPattern>,
    /// Whether there are more patterns.
    pub has_more: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, verb, cameras, has, has_more } = self;
        write!(f, "{who} may not {} {cameras}: ", verb.phrase())?;
        match (who, verb) {
            (Bearer::Camera(_), Verb::Publish) => {
                return write!(
                    f,
                    "a camera publishes only under its own name and below it; for this name, make a token with `mez keys token camera/{cameras}`"
                );
            }
            (Bearer::Camera(_), _) => {
                return f.write_str(
                    "a camera may only publish; give the program its own identity with `mez keys token app/NAME`",
                );
            }
            _ => {}
        }
        if has.is_empty() {
            write!(f, "it has no grant of {verb}")?;
        } else {
            let has: Vec<&str> = has.iter().map(CameraPattern::as_str).collect();
            write!(f, "its grants of {verb} are for {}", has.join(", "))?;
            if *has_more {
                f.write_str(" and more")?;
            }
        }
        let (who, cameras) = (quoted(&who.to_string()), quoted(cameras.as_str()));
        write!(f, "; to grant this, run `mez keys grant {who} {verb} {cameras}` on the edge's host")?;
        match verb.instead() {
            Some(instead) => write!(f, ", {instead}"),
            None => Ok(()),
        }
    }
}
