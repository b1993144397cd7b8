//! Errors of a folder of keys. Each names the remedy.

use std::path::PathBuf;

use crate::identity::authority::{AuthorityError, IssueError};
use crate::identity::certificate::Validity;
use crate::identity::credentials::IdentityFileError;
use crate::identity::files::FileError;
use crate::identity::name::{Identity, SiteName};

/// Why no key folder could be opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyFolderError {
    /// The chosen place has no key folder.
    #[error(
        "no keys were found. Looked at: {looked}. Make a site on this host with `mez keys init`, or join an existing site with `mez keys enrol \
         TOKEN --edge HOST` (a token is made with `mez keys token` where the site was made)"
    )]
    NotFound {
        /// All places, and what was found there.
        looked: String,
    },
    /// Others may change the folder.
    #[error(
        "{} may be changed by others (mode {mode:03o}), who could replace the keys in it; run `chmod 700 {}`",
        folder.display(),
        folder.display()
    )]
    Exposed {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file with the authority's certificate is invalid.
    #[error("{} is damaged: {reason}; enrol again in another folder, or restore it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why there are no credentials for a role.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No identity fits.
    #[error(
        "{} holds no identity {wanted}; it holds {held}. Run `mez keys token {token_for}` where the site was made, then `mez keys enrol TOKEN \
         --edge HOST` here",
        folder.display()
    )]
    Missing {
        /// The requested identity.
        wanted: String,
        /// The folder.
        folder: PathBuf,
        /// The identities in the folder.
        held: String,
        /// The identity to make a token for.
        token_for: String,
    },
    /// The identity that fits has expired, or is not valid yet.
    #[error(
        "the certificate of {identity} in {} is valid {validity}, but this host's clock says {now}; set the clock, or enrol again: `mez keys token \
         {}` where the site was made, then `mez keys enrol TOKEN --edge HOST` here",
        path.display(),
        identity.short()
    )]
    NotNow {
        /// The identity.
        identity: Box<Identity>,
        /// Its file.
        path: PathBuf,
        /// When the certificate is valid.
        validity: Validity,
        /// The time of this host's clock.
        now: String,
    },
    /// The authority itself has expired, or is not valid yet.
    #[error(
        "the authority of site {site} is valid {validity}, but this host's clock says {now}; set the clock, or make a new site with `mez keys init`"
    )]
    Authority {
        /// The site.
        site: SiteName,
        /// When the authority is valid.
        validity: Validity,
        /// The time of this host's clock.
        now: String,
    },
    /// No name was given for a camera.
    #[error("a camera acts under its name; give the camera's name, such as dock/cam1")]
    NoName,
    /// A host name was requested that the edge's certificate lacks.
    #[error(
        "the certificate of {identity} is not made for {host}; enrol again with `mez keys token {} --dns {host}`, or leave out this name",
        identity.short()
    )]
    Host {
        /// The identity of the certificate.
        identity: Box<Identity>,
        /// The host name.
        host: String,
    },
    /// The file of the matching identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// The authority's key exists but cannot be used.
    #[error(transparent)]
    Key(#[from] AuthorityError),
    /// The authority could not issue a certificate.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The folder cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a temporary site could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TemporarySiteError {
    /// The folder could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authority could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The folder could not be opened.
    #[error(transparent)]
    Folder(#[from] KeyFolderError),
}
