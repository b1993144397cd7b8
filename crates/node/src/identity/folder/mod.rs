//! Finds and opens the folder in which a host keeps its keys, and chooses an identity from it.

mod error;
mod search;
mod temporary;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

pub use self::error::{CredentialsError, KeyFolderError, TemporarySiteError};
use self::search::{Environment, Search};
pub use self::temporary::TemporarySite;
use super::authority::{AuthorityError, SiteAuthority, is_host_name, read_authority};
use super::certificate::{CertificateFacts, Fingerprint, Moment, Validity, hex};
use super::credentials::{Credentials, IdentityFile};
use super::files::{self, FileError};
use super::name::{Identity, Name, Role, SiteName};
pub(super) use super::prepare::prepare;
pub use super::prepare::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY, PrepareError};
use super::trust::Trust;

/// The folder of tokens that are not used yet. Only the authority's host has it.
pub const TOKENS: &str = "tokens";

/// A folder of keys. Its content is described in [`super`].
#[derive(Clone, Debug)]
pub struct KeyFolder {
    path: PathBuf,
    trust: Trust,
    facts: CertificateFacts,
    /// Whether this process may use the authority's key, if the folder has it.
    signs: bool,
}

impl KeyFolder {
    /// Finds the folder: `explicit` (the argument `keys=` or `--keys`), else `MEZ_KEYS`, else
    /// `$XDG_CONFIG_HOME/mez/keys`, which is `~/.config/mez/keys` if that variable is not set.
    ///
    /// Only the first given place is used. If it has no key folder, this is an error: another place might have keys that the user did not mean.
    pub fn find(explicit: Option<&Path>) -> Result<Self, KeyFolderError> {
        Self::find_among(&Search::of(explicit, Environment::of_this_process()))
    }

    /// The path where [`KeyFolder::find`] looks, even if no folder exists there. New keys are made there.
    pub fn location(explicit: Option<&Path>) -> Result<PathBuf, KeyFolderError> {
        let places = Search::of(explicit, Environment::of_this_process());
        places.chosen.clone().ok_or_else(|| places.not_found())
    }

    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> Result<Self, KeyFolderError> {
        let certificate_path = path.join(AUTHORITY_CERTIFICATE);
        let content = files::read(&certificate_path)?;
        let mode = files::mode(path)?;
        // A user who may write here could replace the authority, and then pose as anybody.
        if mode & 0o022 != 0 {
            return Err(KeyFolderError::Exposed { folder: path.into(), mode });
        }
        let damaged = |reason| KeyFolderError::Damaged { path: certificate_path.clone(), reason };
        let certificates = CertificateDer::pem_slice_iter(&content);
        let certificates = certificates.map(|certificate| certificate.map(CertificateDer::into_owned));
        let certificates = certificates.collect::<Result<_, _>>().map_err(|e| damaged(e.to_string()))?;
        let trust = Trust::of(certificates).map_err(damaged)?;
        let (_, facts) = read_authority(trust.root()).map_err(damaged)?;
        Ok(Self { path: path.into(), trust, facts, signs: true })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The site of these keys.
    pub fn site(&self) -> &SiteName {
        self.trust.site()
    }

    /// The certificate of the site's authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        self.trust.root()
    }

    /// The authorities that members of the site trust.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The fingerprint of the authority. People compare it between two hosts.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.authority())
    }

    /// The time during which the authority is valid.
    pub fn validity(&self) -> Validity {
        self.facts.validity
    }

    /// Whether the folder has the authority's key, so that this host can issue certificates.
    pub fn holds_authority_key(&self) -> bool {
        self.signs && self.path.join(AUTHORITY_KEY).exists()
    }

    /// The same folder for a process that must never use the authority's key, because another process signs.
    #[must_use]
    pub fn without_authority_key(self) -> Self {
        Self { signs: false, ..self }
    }

    /// Loads the authority. Its key must be in the folder.
    pub fn load_authority(&self) -> Result<SiteAuthority, AuthorityError> {
        SiteAuthority::load(&self.path)
    }

    /// All files with an identity, sorted by name. An unusable file is listed with the reason.
    pub fn identity_files(&self) -> Result<Vec<IdentityFile>, FileError> {
        let mut found = Vec::new();
        for name in files::names(&self.path)? {
            if name.ends_with(".pem") && name != AUTHORITY_CERTIFICATE && !name.starts_with('.') {
                found.push(IdentityFile::read(&self.path.join(name), &self.trust));
            }
        }
        Ok(found)
    }

    /// The credentials for `role`.
    ///
    /// An enrolled identity that fits is preferred. For a camera: an identity that may publish `name`, the most specific first.
    /// For other roles: the identity called `name`, or any identity if no name is given. Of several, the one that expires last.
    ///
    /// If no identity can be used and the authority's key is in the folder, a certificate is issued in memory for 30 days,
    /// and nothing is written. Without `name`, an edge or application is then named after the host. A camera needs a name.
    pub fn credentials(&self, role: Role, name: Option<&Name>) -> Result<Credentials, CredentialsError> {
        self.credentials_at(role, name, &[], SystemTime::now())
    }

    /// Like [`KeyFolder::credentials`], for an edge that foreign clients reach by additional host names or addresses.
    ///
    /// An enrolled certificate that lacks one of them is refused, because its token determined its hosts.
    pub fn edge_credentials(
        &self,
        name: Option<&Name>,
        hosts: &[String],
    ) -> Result<Credentials, CredentialsError> {
        self.credentials_at(Role::Edge, name, hosts, SystemTime::now())
    }

    pub(super) fn credentials_at(
        &self,
        role: Role,
        name: Option<&Name>,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Credentials, CredentialsError> {
        if !self.facts.validity.holds_at(now) {
            return Err(CredentialsError::Authority {
                site: self.site().clone(),
                validity: self.facts.validity,
                now: Moment(now).to_string(),
            });
        }
        let fits = |identity: &Identity| match (role, name) {
            _ if identity.role != role => false,
            (_, None) => true,
            (Role::Camera, Some(name)) => identity.permits_camera(name.as_camera()),
            (_, Some(name)) => identity.name == *name,
        };
        let files = self.identity_files()?;
        let (fitting, others): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| file.identity.as_ref().is_some_and(fits));
        let rank = |file: &IdentityFile| {
            let credentials = file.content.as_ref().ok();
            let specific = file.identity.as_ref().map(|identity| identity.name.parts());
            // Without a name, the identity that expires last is the freshest.
            let specific = specific.filter(|_| name.is_some());
            (file.is_usable_at(now), specific, credentials.map(|c| c.validity().not_after))
        };
        let best = fitting.into_iter().max_by_key(rank);
        if self.holds_authority_key() && !best.as_ref().is_some_and(|file| file.is_usable_at(now)) {
            return self.issue(role, name, hosts, now);
        }
        let Some(best) = best else {
            return Err(self.missing(role, name, &others));
        };
        let credentials = best.content?;
        let validity = credentials.validity();
        if !validity.holds_at(now) {
            return Err(CredentialsError::NotNow {
                identity: Box::new(credentials.identity().clone()),
                path: best.path,
                validity,
                now: Moment(now).to_string(),
            });
        }
        let has =
            |host: &String| credentials.facts().hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        match hosts.iter().find(|host| !has(host)) {
            Some(host) => Err(CredentialsError::Host {
                identity: Box::new(credentials.identity().clone()),
                host: host.clone(),
            }),
            None => Ok(credentials),
        }
    }

    fn issue(
        &self,
        role: Role,
        name: Option<&Name>,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Credentials, CredentialsError> {
        let name = match (name, role) {
            (Some(name), _) => name.clone(),
            (None, Role::Camera) => return Err(CredentialsError::NoName),
            (None, Role::Edge | Role::App) => Name::from_host_name(&host_name()),
        };
        let identity = Identity { site: self.site().clone(), role, name };
        let mut all_hosts = hosts.to_vec();
        if role == Role::Edge {
            all_hosts.extend(own_host_names(&host_name()));
        }
        let validity = Validity::from(now, Validity::MEMBER);
        Ok(Credentials::issue(&self.load_authority()?, &identity, &all_hosts, validity)?)
    }

    fn missing(&self, role: Role, name: Option<&Name>, others: &[IdentityFile]) -> CredentialsError {
        let describe = |file: &IdentityFile| match &file.identity {
            Some(identity) => identity.short(),
            None => format!("{} (unreadable)", file.path.display()),
        };
        let held: Vec<_> = others.iter().map(describe).collect();
        let example = match role {
            Role::Camera => "dock/cam1".into(),
            Role::Edge | Role::App => Name::from_host_name(&host_name()).to_string(),
        };
        // The name of an unreadable file tells whose identity it was.
        let was =
            others.iter().filter(|file| file.identity.is_none()).find_map(|file| named_by(role, &file.path));
        let name = name.map(Name::to_string);
        let example = was.unwrap_or(example);
        CredentialsError::Missing {
            wanted: format!("{role}/{}", name.as_deref().unwrap_or("…")),
            folder: self.path.clone(),
            held: if held.is_empty() { "no identity at all".into() } else { held.join(", ") },
            token_for: format!("{role}/{}", name.unwrap_or(example)),
        }
    }
}

/// The member's name that the file name of a role contains, if it is valid.
fn named_by(role: Role, file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?.strip_suffix(".pem")?;
    let name = name.strip_prefix(&format!("{role}+"))?.replace('+', "/");
    name.parse::<Name>().ok().map(|name| name.to_string())
}

/// The name of this host, from the kernel.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The usual names of a host: its own name, and with `.local` if it has no domain.
pub(super) fn own_host_names(host: &str) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    if !host.contains('.') {
        names.push(format!("{host}.local"));
    }
    names.retain(|name| is_host_name(name));
    names
}

/// The file name of an identity in a key folder.
///
/// Parts are joined by `+`, which no name contains, so two identities never share a file.
pub(super) fn identity_file_name(identity: &Identity) -> String {
    let name = identity.short().replace('/', "+");
    // File systems limit a name to 255 bytes, and an identity may have 526.
    if name.len() <= 200 {
        return format!("{name}.pem");
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    format!("{}+{}.pem", &name[..160], hex(&digest.as_ref()[..16]))
}

impl KeyFolder {
    fn find_among(places: &Search) -> Result<Self, KeyFolderError> {
        let path = places.chosen.as_deref().ok_or_else(|| places.not_found())?;
        match Self::open(path) {
            Err(KeyFolderError::File(error)) if error.is_absent() => Err(places.not_found()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
