//! Defines who can ask for something, and who can get a grant.

use std::fmt;
use std::str::FromStr;

use crate::name::{CameraName, CameraPattern, NameError};

/// The most characters of a refused text that an error repeats.
const SHOWN_CHARS_MAX: usize = 128;

/// Who asks: a member of the site, identified by its certificate, or a user of the edge's host, identified by the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bearer {
    /// A camera host.
    Camera(CameraName),
    /// An edge, as the client of another edge.
    Edge(CameraName),
    /// An application.
    App(CameraName),
    /// A user of the edge's host, by number.
    User(u32),
    /// The user that the edge runs as, or root. Both can change the file of rights.
    Owner,
}

impl fmt::Display for Bearer {
    /// The name that commands use: `app/counter`, `user/1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Camera(name) => write!(f, "camera/{name}"),
            Self::Edge(name) => write!(f, "edge/{name}"),
            Self::App(name) => write!(f, "app/{name}"),
            Self::User(uid) => write!(f, "user/{uid}"),
            Self::Owner => f.write_str("the edge's own user"),
        }
    }
}

/// The cameras that a camera host may publish: `dock` and everything below it for `camera/dock`.
pub fn own_cameras(name: &CameraName) -> Vec<CameraPattern> {
    // Below the longest name there is no room for another segment.
    let below = format!("{name}/**").parse();
    std::iter::once(name.into()).chain(below).collect()
}

/// Whether `camera` is one of [`own_cameras`].
pub(super) fn is_own(name: &CameraName, camera: &CameraName) -> bool {
    let rest = camera.as_str().strip_prefix(name.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Who gets a grant.
///
/// `app/counter`, `app/line1/*`, `app/**` (every application), `edge/main`, `user/1000`, `user/*` (every user of
/// the edge's host who may open its socket).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// Applications whose names match.
    App(CameraPattern),
    /// Edges whose names match.
    Edge(CameraPattern),
    /// A user of the edge's host, by number.
    User(u32),
    /// Every user of the edge's host.
    EveryUser,
}

impl Grantee {
    /// Whether a grant to this grantee is a grant to `who`.
    pub fn includes(&self, who: &Bearer) -> bool {
        match (self, who) {
            (Self::App(names), Bearer::App(name)) | (Self::Edge(names), Bearer::Edge(name)) => {
                names.matches(name)
            }
            (Self::User(uid), Bearer::User(asking)) => uid == asking,
            (Self::EveryUser, Bearer::User(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Grantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::App(names) => write!(f, "app/{names}"),
            Self::Edge(names) => write!(f, "edge/{names}"),
            Self::User(uid) => write!(f, "user/{uid}"),
            Self::EveryUser => f.write_str("user/*"),
        }
    }
}

impl FromStr for Grantee {
    type Err = GranteeError;

    fn from_str(text: &str) -> Result<Self, GranteeError> {
        let shown = || text.chars().take(SHOWN_CHARS_MAX).collect();
        let (role, name) = text.split_once('/').ok_or_else(|| GranteeError::Form { text: shown() })?;
        let names = || name.parse::<CameraPattern>();
        match role {
            "app" => Ok(Self::App(names()?)),
            "edge" => Ok(Self::Edge(names()?)),
            "user" if name == "*" => Ok(Self::EveryUser),
            // A number has only one spelling, so that no user is in a file twice.
            "user" => match name.parse::<u32>() {
                Ok(uid) if uid.to_string() == name => Ok(Self::User(uid)),
                _ => Err(GranteeError::User { text: shown() }),
            },
            "camera" => Err(GranteeError::Camera { text: shown() }),
            _ => Err(GranteeError::Form { text: shown() }),
        }
    }
}

/// Why a text is no grantee.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GranteeError {
    /// No role with a name.
    #[error(
        "{text:?} is neither a member of the site nor a user; write app/NAME, edge/NAME or user/NUMBER, app/** for every application, user/* for \
         every user of this host"
    )]
    Form {
        /// The text that was refused.
        text: String,
    },
    /// A camera.
    #[error(
        "{text:?} is a camera, which publishes under its own name without a grant and may do nothing else; give a program on the camera's host its \
         own identity: mez keys token app/NAME"
    )]
    Camera {
        /// The text that was refused.
        text: String,
    },
    /// A user by name.
    #[error(
        "{text:?} is not a user; give the number of a user of this host, as `id -u NAME` prints it: user/1000"
    )]
    User {
        /// The text that was refused.
        text: String,
    },
    /// A name that no member can have.
    #[error(transparent)]
    Name(#[from] NameError),
}
