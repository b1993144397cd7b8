//! Errors of an authority: why it could not be loaded, and why it did not sign.

use std::path::PathBuf;
use std::time::Duration;

use super::EDGE_HOSTS_MAX;
use crate::identity::certificate::Moment;
use crate::identity::files::FileError;
use crate::identity::name::{Identity, IdentityError};
use crate::identity::prepare::{AUTHORITY_KEY, PrepareError};
use crate::revocation::RevokedError;
use crate::rights::RightsError;

/// Why an authority could not be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The folder already holds an authority.
    #[error(
        "{} already holds {}, and nothing was changed; see `mez keys list`, or choose another folder with --keys",
        folder.display(),
        if *key { "a site's authority" } else { "the certificate of a site that this host was enrolled in" }
    )]
    Exists {
        /// The folder.
        folder: PathBuf,
        /// Whether the authority's key is in it, and not only its certificate.
        key: bool,
    },
    /// The folder does not hold the authority's key.
    #[error(
        "{} does not hold an authority's key ({AUTHORITY_KEY}); run this on the host where the site was made, or \
         make a site with `mez keys init`",
        folder.display()
    )]
    NoKey {
        /// The folder.
        folder: PathBuf,
    },
    /// Others may read the key.
    #[error(
        "{} may be read by others (mode {mode:03o}), so its key is not used; run `chmod 600 {}`, and make a new \
         site if somebody else may have read it",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file is damaged.
    #[error("{} is damaged: {reason}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The previous authority still has members, and they would not know a third authority.
    #[error(
        "this authority has replaced another authority, whose certificates are accepted until {until}; replace it after this time, or with --force \
         if members that have not renewed since may enrol again"
    )]
    Overlaps {
        /// The end of the overlap.
        until: Moment,
    },
    /// The overlap is too short or too long.
    #[error("two authorities may overlap for one second to one year, not {asked:?}")]
    Overlap {
        /// The requested overlap.
        asked: Duration,
    },
    /// The folder cannot be used for keys.
    #[error(transparent)]
    Folder(#[from] PrepareError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The rights file could not be written.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The deny list, which a new authority must sign again, could not be used.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
    /// Making or using a key failed.
    #[error("cannot make or use the authority's key: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Why a certificate was not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The identity is of another site.
    #[error(transparent)]
    Site(IdentityError),
    /// Host names for an identity that is not an edge.
    #[error("{identity} is not an edge, so its certificate cannot carry host names; leave out --dns")]
    HostsOfNonEdge {
        /// The identity.
        identity: Box<Identity>,
    },
    /// More host names than allowed.
    #[error("an edge's certificate carries at most {EDGE_HOSTS_MAX} host names, and {count} were asked for")]
    TooManyHosts {
        /// The requested number.
        count: usize,
    },
    /// Not a host name.
    #[error("{host:?} is neither a host name nor an address")]
    Host {
        /// The text that was refused.
        host: String,
    },
    /// The signature could not be made.
    #[error("cannot sign the certificate: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Why a signing request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not PKCS #10.
    #[error("the signing request cannot be read ({reason})")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
    /// The key is of another kind.
    #[error("the signing request is not for a P-256 key, the only kind that Mez uses")]
    Algorithm,
    /// The request was not signed with the private key that belongs to it.
    #[error("the signing request is not signed with its own key")]
    NoProof,
}
