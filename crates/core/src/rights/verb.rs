//! Defines what can be granted.

use std::fmt;
use std::str::FromStr;

/// The most characters of a refused text that an error repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// What somebody may do with a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Publish under the camera's name: a camera its frames, which its certificate allows; a grantee a stream derived at the edge.
    Publish,
    /// Receive the camera's frames from now on, as they cross the link.
    Watch,
    /// Read the camera's past, as it is held or made smaller.
    Read,
    /// Have the camera's frames fetched in full quality from the camera's own log.
    Originals,
    /// Send results for the camera's frames back to the camera.
    Reply,
    /// See the camera in lists, with its state, its contracts and its starts.
    Observe,
    /// Have the camera's frames written into files; the right to read them is needed too. `mez store export` reads the disk itself.
    Export,
    /// Use a profile of one's own for the camera. A profile from the edge's folder needs no grant.
    Profile,
    /// Join a group of readers. No interface asks for this yet.
    Join,
    /// Make the edge forget the camera (`mez cameras reset`).
    Operate,
    /// Change rights from another host. No interface asks for this yet: `mez keys grant` works on the edge's host.
    Administer,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 11] = [
        Self::Publish,
        Self::Watch,
        Self::Read,
        Self::Originals,
        Self::Reply,
        Self::Observe,
        Self::Export,
        Self::Profile,
        Self::Join,
        Self::Operate,
        Self::Administer,
    ];

    /// The verb as files and commands name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Watch => "watch",
            Self::Read => "read",
            Self::Originals => "originals",
            Self::Reply => "reply",
            Self::Observe => "observe",
            Self::Export => "export",
            Self::Profile => "profile",
            Self::Join => "join",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// Whether an interface of this version asks for the verb. A grant of another verb has no effect yet.
    pub const fn is_asked(self) -> bool {
        !matches!(self, Self::Join | Self::Administer)
    }

    /// The verb in a sentence that continues with the camera's name.
    pub(super) const fn phrase(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Watch => "watch",
            Self::Read => "read past frames of",
            Self::Originals => "fetch originals from",
            Self::Reply => "reply to",
            Self::Observe => "see the state of",
            Self::Export => "export",
            Self::Profile => "use its own profile for",
            Self::Join => "join a group on",
            Self::Operate => "forget or reset",
            Self::Administer => "change rights on",
        }
    }

    /// What works without the verb, if anything.
    pub(super) const fn instead(self) -> Option<&'static str> {
        match self {
            Self::Originals => Some(
                "or read only frames that the edge holds (held_only), or choose a quality below the original, such as jpeg/w640/q70/420",
            ),
            Self::Profile => Some("or name a profile in the edge's folder of profiles"),
            _ => None,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        let verb = Self::ALL.into_iter().find(|verb| verb.as_str() == text);
        verb.ok_or_else(|| UnknownVerb { text: text.chars().take(SHOWN_CHARS_MAX).collect() })
    }
}

/// The error for a text that is no verb.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a verb; the verbs are watch, read, originals, reply, publish, observe, export, profile, join, operate and administer"
)]
pub struct UnknownVerb {
    /// The text that was refused.
    pub text: String,
}
