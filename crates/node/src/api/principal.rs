//! Identifies who makes a request.

use std::fmt;

use mez_core::rights::Bearer;

use crate::identity::{Identity, Role};

/// The identity at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A member of the site, as its certificate says.
    Member(Identity),
    /// A user of the broker's own host who came through the Unix socket. The kernel names the user.
    User {
        /// The user's number.
        uid: u32,
    },
}

impl Principal {
    /// Whom the rights know it as. The user that this process runs as, and root, can change the rights themselves.
    pub fn bearer(&self) -> Bearer {
        match self {
            Self::Member(Identity { role, name, .. }) => {
                let name = name.as_camera().clone();
                match role {
                    Role::Camera => Bearer::Camera(name),
                    Role::Edge => Bearer::Edge(name),
                    Role::App => Bearer::App(name),
                }
            }
            Self::User { uid } if *uid == 0 || *uid == rustix::process::geteuid().as_raw() => Bearer::Owner,
            Self::User { uid } => Bearer::User(*uid),
        }
    }

    /// The name of a principal that gave itself none: the member's name, or the user's number.
    pub fn name(&self) -> String {
        match self {
            Self::Member(identity) => identity.name.to_string(),
            Self::User { uid } => format!("user {uid}"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(identity) => identity.fmt(f),
            Self::User { uid } => write!(f, "user {uid} of this host"),
        }
    }
}
