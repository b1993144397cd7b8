//! Who is asking.

use std::fmt;

use crate::identity::Identity;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A member of the site, as its certificate says.
    Member(Identity),
    /// A user of the broker's own host, as the kernel says; came through the Unix socket.
    User {
        /// The user's number.
        uid: u32,
    },
}

impl Principal {
    /// What to call it where it gave itself no name: the member's name, or the user's number.
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
