//! Identities: who belongs to a site, and how members prove it.
//!
//! A **site** is everything that trusts one authority. Its members are camera hosts, edges and applications.
//! Each has an [`Identity`], `spiffe://SITE/ROLE/NAME`, in a certificate that the authority signed, and a key
//! that never left its host. Every connection between hosts is TLS 1.3, and both sides show their certificate.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`name`] | identities: site, role, name; which cameras one may publish |
//! | [`certificate`] | reads certificates: whose, how long, by whom |
//! | [`authority`] | the site's authority: created, loaded, issuing |
//! | [`folder`] | finds the folder of keys, and chooses an identity from it |
//! | [`credentials`] | a member's private key and certificate, and their file |
//! | [`token`] | one-time tokens |
//! | [`mod@enrol`] | gives a certificate to a device that has a token |
//! | [`trust`] | the authorities that a member trusts: one, or two while one replaces the other |
//! | [`mod@renew`] | renews certificates over running connections |
//! | [`tls`] | the TLS configurations of every port |
//! | [`accept`] | TLS over TCP |
//! | `door` | who may wait at a port, and for how long |
//! | `gate` | limits how many handshakes are computed at once |
//! | [`refusals`] | logs refused clients, without repeating itself |
//! | [`explain`] | explains failed handshakes |
//!
//! # The folder of keys
//!
//! ```text
//! keys/                      0700  found through keys=, MEZ_KEYS, then the configuration folder
//!   authority.pem            0644  certificate of the site's authority; on every host ([`trust`] says what follows it for a while)
//!   authority.key            0600  its private key and certificate; only where the site was made
//!   rights.toml              0600  who may do what at the edge of this host ([`crate::rights`])
//!   rights.lock              0600  held while that file is changed; shows that there has been one
//!   tokens/                  0700  only where the site was made
//!     HASH.json              0600  a token that waits to be used; HASH.used one that was, until it expires
//!   camera+dock+cam1.pem     0600  an identity of this host: private key, then certificate
//! ```
//!
//! An identity is one file, not two, so that a renewed key and its certificate change at once. OpenSSL, gRPC and
//! curl read both from the same file. Mez identifies a file by its certificate. The file name is only for people.
//!
//! # Who verifies what
//!
//! Clients verify that the server's certificate is from the site's authority and is valid for [`authority::EDGE_SERVER_NAME`], which only edges
//! are. The dialled address does not matter. Servers verify that the client's certificate is from the authority and has exactly one identity,
//! of this site, with a role that is allowed on this port. The identity from [`certificate::peer_identity`] decides what the member may do.

pub mod accept;
pub mod authority;
pub mod certificate;
pub mod credentials;
pub(crate) mod door;
pub mod enrol;
pub mod explain;
pub(crate) mod files;
pub mod folder;
pub(crate) mod gate;
pub mod name;
mod prepare;
pub mod refusals;
pub mod renew;
pub mod tls;
pub mod token;
pub mod trust;

pub use accept::TlsIncoming;
pub use authority::{EDGE_SERVER_NAME, SiteAuthority};
pub use certificate::{Fingerprint, Moment, Validity, peer_identity};
pub use credentials::Credentials;
pub use enrol::{EnrolmentServer, enrol};
pub use files::FileError;
pub use folder::{KeyFolder, TemporarySite, host_name};
pub use name::{Identity, Name, Role, SiteName};
pub use renew::Signer;
pub use token::{Token, TokenStore};
