//! The identity of the caller.

use std::fmt;

use mez_core::revocation::Certificate;
use mez_core::rights::Bearer;

use crate::identity::{Identity, Role};

/// A member of the site, and the certificate that it showed. Members are equal if their identities are equal.
#[derive(Clone, Debug)]
pub struct Member {
    /// The member's identity.
    pub identity: Identity,
    /// The certificate that it showed.
    pub certificate: Certificate,
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for Member {}

/// The identity at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A member of the site, identified by its certificate.
    Member(Member),
    /// A user of the broker's own host, who connected through the Unix socket. The kernel identifies the user.
    User {
        /// The user's number.
        uid: u32,
    },
}

impl Principal {
    /// The certificate that the member showed. `None` for a user of this host.
    pub fn certificate(&self) -> Option<&Certificate> {
        match self {
            Self::Member(member) => Some(&member.certificate),
            Self::User { .. } => None,
        }
    }

    /// The bearer of rights for this principal. The user that this process runs as, and root, can change the rights themselves.
    pub fn bearer(&self) -> Bearer {
        match self {
            Self::Member(Member { identity: Identity { role, name, .. }, .. }) => {
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

    /// Role and name, or `user/` and the user's number, as in commands and the audit log.
    pub fn short(&self) -> String {
        match self {
            Self::Member(member) => member.identity.short(),
            Self::User { uid } => format!("user/{uid}"),
        }
    }

    /// The default name of an application of this principal: the member's name, or the user's number.
    pub fn name(&self) -> String {
        match self {
            Self::Member(member) => member.identity.name.to_string(),
            Self::User { uid } => format!("user {uid}"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => member.identity.fmt(f),
            Self::User { uid } => write!(f, "user {uid} of this host"),
        }
    }
}
