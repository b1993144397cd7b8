//! The folder in which a host keeps its keys: where it is found, what is in it, which of it fits.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use super::authority::{AuthorityError, IssueError, SiteAuthority, is_host_name, read_authority};
use super::certificate::{CertificateFacts, Fingerprint, Moment, Validity, hex};
use super::credentials::{Credentials, IdentityFile, IdentityFileError};
use super::files::{self, FileError};
use super::name::{Identity, Name, Role, SiteName};

/// The certificate of the site's authority: public, on every host of the site.
pub const AUTHORITY_CERTIFICATE: &str = "authority.pem";
/// The authority's private key: on the authority's host only.
pub const AUTHORITY_KEY: &str = "authority.key";
/// The folder of tokens that have been made and not yet used: on the authority's host only.
pub const TOKENS: &str = "tokens";

/// A folder of keys. See [`super`] for what is in it.
#[derive(Clone, Debug)]
pub struct KeyFolder {
    path: PathBuf,
    site: SiteName,
    authority: CertificateDer<'static>,
    facts: CertificateFacts,
}

impl KeyFolder {
    /// Finds the folder: `explicit` (the argument `keys=` or `--keys`), else `MEZ_KEYS`, else
    /// `$XDG_CONFIG_HOME/mez/keys`, which is `~/.config/mez/keys` where that variable is not set.
    ///
    /// The first of them that is given counts, and is an error where there is no key folder: falling through to
    /// another one would use keys that nobody meant.
    pub fn find(explicit: Option<&Path>) -> Result<Self, KeyFolderError> {
        Self::find_among(&Places::of(explicit, Surroundings::of_this_process()))
    }

    /// Where [`KeyFolder::find`] would look, whether or not there is a folder: the place to make one.
    pub fn location(explicit: Option<&Path>) -> Result<PathBuf, KeyFolderError> {
        let places = Places::of(explicit, Surroundings::of_this_process());
        places.chosen.clone().ok_or_else(|| places.not_found())
    }

    /// Opens the folder at `path`.
    pub fn open(path: &Path) -> Result<Self, KeyFolderError> {
        let certificate_path = path.join(AUTHORITY_CERTIFICATE);
        let content = files::read(&certificate_path)?;
        let mode = files::mode(path)?;
        // Whoever may write here may put another authority in, and with it be anybody.
        if mode & 0o022 != 0 {
            return Err(KeyFolderError::Exposed { folder: path.into(), mode });
        }
        let damaged = |reason| KeyFolderError::Damaged { path: certificate_path.clone(), reason };
        let authority = CertificateDer::from_pem_slice(&content).map_err(|e| damaged(e.to_string()))?;
        let authority = authority.into_owned();
        let (site, facts) = read_authority(&authority).map_err(damaged)?;
        Ok(Self { path: path.into(), site, authority, facts })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The site whose keys it holds.
    pub fn site(&self) -> &SiteName {
        &self.site
    }

    /// The certificate of the site's authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The fingerprint of the authority, by which people compare two hosts.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.authority)
    }

    /// From when to when the authority holds.
    pub fn validity(&self) -> Validity {
        self.facts.validity
    }

    /// Whether the authority's key is here, so that this host can issue certificates.
    pub fn holds_authority_key(&self) -> bool {
        self.path.join(AUTHORITY_KEY).exists()
    }

    /// The authority, where its key is here.
    pub fn load_authority(&self) -> Result<SiteAuthority, AuthorityError> {
        SiteAuthority::load(&self.path)
    }

    /// Every file that holds an identity, in the order of their names. An unusable one is listed with the reason.
    pub fn identity_files(&self) -> Result<Vec<IdentityFile>, FileError> {
        let mut found = Vec::new();
        for name in files::names(&self.path)? {
            if name.ends_with(".pem") && name != AUTHORITY_CERTIFICATE && !name.starts_with('.') {
                found.push(IdentityFile::read(&self.path.join(name), &self.authority));
            }
        }
        Ok(found)
    }

    /// The credentials to act in `role` with.
    ///
    /// An enrolled identity that fits is taken first: for a camera one that may publish `name`, the most specific
    /// of them; for others the one called `name`, or any where no name is given; of several, the one that lasts
    /// longest. Where none can be used and the authority's key is here, one is issued in memory for 90 days, and
    /// nothing is written. Without `name` an edge or an application is then called after the host; a camera has to
    /// have a name.
    pub fn credentials(&self, role: Role, name: Option<&Name>) -> Result<Credentials, CredentialsError> {
        self.credentials_at(role, name, &[], SystemTime::now())
    }

    /// [`KeyFolder::credentials`] for an edge that foreign clients reach by further host names or addresses.
    ///
    /// An enrolled certificate that lacks one of them is refused, since its hosts were settled by its token.
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
                site: self.site.clone(),
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
            // Without a name, "most specific" means nothing; the longest lasting one is the freshest.
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
        let identity = Identity { site: self.site.clone(), role, name };
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
        let name = name.map(Name::to_string);
        CredentialsError::Missing {
            wanted: format!("{role}/{}", name.as_deref().unwrap_or("…")),
            folder: self.path.clone(),
            held: if held.is_empty() { "no identity at all".into() } else { held.join(", ") },
            token_for: format!("{role}/{}", name.unwrap_or(example)),
        }
    }
}

/// A site that exists as long as this value: its authority and its folder are removed when it is dropped.
#[derive(Debug)]
pub struct TemporarySite {
    keys: KeyFolder,
    // Dropped last and removes the folder. After `kill -9` it stays behind, readable by its owner only.
    _folder: TempDir,
}

impl TemporarySite {
    /// Makes an authority for `site` in a new folder (mode 0700) of the system's folder for temporary files.
    ///
    /// For an edge inside a notebook or a test. Other processes of the same user join in by way of its path.
    pub fn create(site: &SiteName) -> Result<Self, TemporarySiteError> {
        let temporary = tempfile::Builder::new()
            .prefix("mez-keys-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir()
            .map_err(FileError::on("create a temporary folder in", &env::temp_dir()))?;
        SiteAuthority::create(temporary.path(), site)?;
        Ok(Self { keys: KeyFolder::open(temporary.path())?, _folder: temporary })
    }

    /// Its folder of keys.
    pub fn keys(&self) -> &KeyFolder {
        &self.keys
    }
}

/// The name of this host, as the kernel has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The names by which a host is usually reached: its own, and with `.local` where it has no domain.
pub(super) fn own_host_names(host: &str) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    if !host.contains('.') {
        names.push(format!("{host}.local"));
    }
    names.retain(|name| is_host_name(name));
    names
}

/// The file in a key folder that an identity is kept in.
///
/// Parts are joined by `+`, which no name holds, so that two identities never share a file.
pub(super) fn identity_file_name(identity: &Identity) -> String {
    let name = identity.short().replace('/', "+");
    // File systems bound a name at 255 bytes, and an identity may have 526.
    if name.len() <= 200 {
        return format!("{name}.pem");
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    format!("{}+{}.pem", &name[..160], hex(&digest.as_ref()[..16]))
}

/// Makes `folder` ready to take keys: creates it, or closes an empty or earlier one to others.
pub(super) fn prepare(folder: &Path) -> Result<(), PrepareError> {
    files::make_private_folder(folder)?;
    let is_ours = || folder.join(AUTHORITY_KEY).exists() || folder.join(AUTHORITY_CERTIFICATE).exists();
    // Emptiness first: whoever prepares the same folder at the same time may fill it in between.
    if !(files::is_empty(folder)? || is_ours()) {
        return Err(PrepareError::Occupied { folder: folder.into() });
    }
    files::close_to_others(folder)?;
    Ok(())
}

/// Why a folder cannot take keys.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It is full of other things.
    #[error(
        "{} holds other files and no keys; choose a folder of its own with --keys, which is then created",
        folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// It could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why no key folder could be opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyFolderError {
    /// There is none in the place that counts.
    #[error(
        "no keys were found. Looked at: {looked}. Make a site on this host with `mez keys init`, or join one that \
         exists with `mez keys enrol TOKEN --edge HOST` (a token is made with `mez keys token` where the site was made)"
    )]
    NotFound {
        /// Every place, and what was there.
        looked: String,
    },
    /// Others may change it.
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
    /// The authority's certificate is not one.
    #[error("{} is damaged: {reason}; enrol anew in another folder, or restore it", path.display())]
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

/// Why there are no credentials to act with.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// No identity fits.
    #[error(
        "{} holds no identity to act as {wanted} with; it holds {held}. Run `mez keys token {token_for}` where the \
         site was made, then `mez keys enrol TOKEN --edge HOST` here",
        folder.display()
    )]
    Missing {
        /// What was asked for.
        wanted: String,
        /// Where.
        folder: PathBuf,
        /// What is there instead.
        held: String,
        /// The identity to make a token for.
        token_for: String,
    },
    /// The one that fits has expired, or is not valid yet.
    #[error(
        "the certificate of {identity} in {} holds {validity}, and this host's clock says {now}; set the clock, or \
         enrol anew: `mez keys token {}` where the site was made, then `mez keys enrol TOKEN --edge HOST` here",
        path.display(),
        identity.short()
    )]
    NotNow {
        /// Whose it is.
        identity: Box<Identity>,
        /// Its file.
        path: PathBuf,
        /// When it holds.
        validity: Validity,
        /// What the clock says.
        now: String,
    },
    /// The authority itself has expired, or is not valid yet.
    #[error(
        "the authority of site {site} holds {validity}, and this host's clock says {now}; set the clock, or make a \
         new site with `mez keys init`"
    )]
    Authority {
        /// The site.
        site: SiteName,
        /// When it holds.
        validity: Validity,
        /// What the clock says.
        now: String,
    },
    /// A camera without a name.
    #[error("a camera acts under its name; say which one, such as dock/cam1")]
    NoName,
    /// An edge was to be known by a name that its certificate lacks.
    #[error(
        "the certificate of {identity} is not made for {host}; enrol anew with \
         `mez keys token {} --dns {host}`, or leave out that name",
        identity.short()
    )]
    Host {
        /// Whose certificate.
        identity: Box<Identity>,
        /// The host name.
        host: String,
    },
    /// The file that fits cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// The authority's key is here and cannot be used.
    #[error(transparent)]
    Key(#[from] AuthorityError),
    /// The authority could not issue.
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

/// What the environment says about where keys are.
#[derive(Clone, Default)]
struct Surroundings {
    mez_keys: Option<OsString>,
    xdg_config_home: Option<OsString>,
    home: Option<OsString>,
}

impl Surroundings {
    fn of_this_process() -> Self {
        // An empty variable counts as one that is not set, as everywhere in the XDG rules.
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            mez_keys: variable("MEZ_KEYS"),
            xdg_config_home: variable("XDG_CONFIG_HOME"),
            home: variable("HOME"),
        }
    }
}

/// The places where keys may be, and the one that counts.
struct Places {
    chosen: Option<PathBuf>,
    passed_over: Vec<&'static str>,
}

impl Places {
    fn of(explicit: Option<&Path>, around: Surroundings) -> Self {
        let mut passed_over = Vec::new();
        if let Some(path) = explicit {
            return Self { chosen: Some(path.into()), passed_over };
        }
        passed_over.push("keys= or --keys (not given)");
        if let Some(path) = around.mez_keys {
            return Self { chosen: Some(path.into()), passed_over };
        }
        passed_over.push("MEZ_KEYS (not set)");
        // The XDG rules: a relative path is not valid and is ignored.
        let xdg = around.xdg_config_home.map(PathBuf::from).filter(|path| path.is_absolute());
        if xdg.is_none() {
            passed_over.push("XDG_CONFIG_HOME (not set)");
        }
        let config = xdg.or_else(|| around.home.map(|home| PathBuf::from(home).join(".config")));
        if config.is_none() {
            passed_over.push("HOME (not set)");
        }
        Self { chosen: config.map(|config| config.join("mez").join("keys")), passed_over }
    }

    fn not_found(&self) -> KeyFolderError {
        let mut looked: Vec<String> = self.passed_over.iter().map(|&place| place.into()).collect();
        if let Some(path) = &self.chosen {
            let what = if path.exists() { "holds no authority.pem" } else { "does not exist" };
            looked.push(format!("{} ({what})", path.display()));
        }
        KeyFolderError::NotFound { looked: looked.join(", ") }
    }
}

impl KeyFolder {
    fn find_among(places: &Places) -> Result<Self, KeyFolderError> {
        let path = places.chosen.as_deref().ok_or_else(|| places.not_found())?;
        match Self::open(path) {
            Err(KeyFolderError::File(error)) if error.is_absent() => Err(places.not_found()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn harbour() -> SiteName {
        "harbour".parse().unwrap()
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// A site, and the folder of a host that was enrolled in it.
    struct Host {
        site: TemporarySite,
        folder: TempDir,
    }

    impl Host {
        fn new() -> Self {
            let host =
                Self { site: TemporarySite::create(&harbour()).unwrap(), folder: TempDir::new().unwrap() };
            host.close(0o700);
            let public = AUTHORITY_CERTIFICATE;
            std::fs::copy(host.site.keys().path().join(public), host.folder.path().join(public)).unwrap();
            host
        }

        fn close(&self, mode: u32) {
            std::fs::set_permissions(self.folder.path(), Permissions::from_mode(mode)).unwrap();
        }

        fn enrol(&self, short: &str, lasting: Duration) -> PathBuf {
            let identity = Identity::parse_within(&harbour(), short).unwrap();
            let authority = self.site.keys().load_authority().unwrap();
            let validity = Validity::from(SystemTime::now(), lasting);
            let made = Credentials::issue(&authority, &identity, &[], validity).unwrap();
            let path = self.folder.path().join(identity_file_name(&identity));
            self.put(&path, &format!("{}{}", made.key_pem(), made.chain_pem()));
            path
        }

        fn put(&self, path: &Path, content: &str) {
            files::write(path, content.as_bytes(), files::Readers::Owner, files::Present::Replace).unwrap();
        }

        fn keys(&self) -> KeyFolder {
            KeyFolder::open(self.folder.path()).unwrap()
        }

        fn credentials(&self, role: Role, of: &str) -> Result<Credentials, CredentialsError> {
            self.keys().credentials(role, Some(&name(of)))
        }
    }

    #[test]
    fn the_first_place_that_is_given_counts() {
        let all = Surroundings {
            mez_keys: Some("/from/variable".into()),
            xdg_config_home: Some("/xdg".into()),
            home: Some("/home/ana".into()),
        };
        let chosen = |explicit: Option<&str>, around: &Surroundings| {
            Places::of(explicit.map(Path::new), around.clone()).chosen
        };
        assert_eq!(chosen(Some("/given"), &all), Some("/given".into()));
        assert_eq!(chosen(None, &all), Some("/from/variable".into()));
        let mut around = Surroundings { mez_keys: None, ..all };
        assert_eq!(chosen(None, &around), Some("/xdg/mez/keys".into()));
        around.xdg_config_home = Some("relative".into());
        assert_eq!(chosen(None, &around), Some("/home/ana/.config/mez/keys".into()));
        assert_eq!(chosen(None, &Surroundings::default()), None);
    }

    #[test]
    fn where_there_are_no_keys_every_place_and_the_remedy_are_named() {
        let home = TempDir::new().unwrap();
        let around = Surroundings { home: Some(home.path().into()), ..Default::default() };
        let error = KeyFolder::find_among(&Places::of(None, around)).unwrap_err().to_string();
        let default = home.path().join(".config/mez/keys");
        for part in ["keys=", "MEZ_KEYS", &default.display().to_string(), "mez keys init", "mez keys enrol"] {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
        // A folder that is named and holds nothing is not passed over in favour of another.
        let site = TemporarySite::create(&harbour()).unwrap();
        let around = Surroundings { mez_keys: Some(site.keys().path().into()), ..Default::default() };
        let error = KeyFolder::find_among(&Places::of(Some(home.path()), around.clone())).unwrap_err();
        assert!(error.to_string().contains("holds no authority.pem"), "{error}");
        assert_eq!(KeyFolder::find_among(&Places::of(None, around)).unwrap().site(), &harbour());
    }

    #[test]
    fn the_most_specific_identity_that_fits_is_taken() {
        let host = Host::new();
        host.enrol("camera/dock", 80 * DAY);
        host.enrol("camera/dock/cam1", 10 * DAY);
        host.enrol("app/counter", 10 * DAY);
        host.enrol("app/reader", 20 * DAY);
        let of = |role, camera| host.credentials(role, camera).map(|found| found.identity().short());
        assert_eq!(of(Role::Camera, "dock/cam1").unwrap(), "camera/dock/cam1");
        assert_eq!(of(Role::Camera, "dock/cam2").unwrap(), "camera/dock");
        assert_eq!(of(Role::App, "counter").unwrap(), "app/counter");
        let any = host.keys().credentials(Role::App, None).unwrap();
        assert_eq!(any.identity().short(), "app/reader", "not the one that lasts longest");

        for (role, wanted) in [(Role::Camera, "yard"), (Role::App, "dock"), (Role::Edge, "main")] {
            let error = host.credentials(role, wanted).unwrap_err().to_string();
            for part in ["camera/dock/cam1", "app/counter", &format!("mez keys token {role}/{wanted}")] {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn an_expired_identity_is_named_with_its_dates_unless_another_fits() {
        let host = Host::new();
        let expired = host.enrol("camera/dock/cam1", Duration::from_secs(0));
        let error = host.credentials(Role::Camera, "dock/cam1").unwrap_err();
        assert!(matches!(error, CredentialsError::NotNow { .. }), "{error}");
        let text = error.to_string();
        for part in [&expired.display().to_string(), "UTC", "mez keys token camera/dock/cam1"] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        host.enrol("camera/dock", DAY);
        assert_eq!(host.credentials(Role::Camera, "dock/cam1").unwrap().identity().short(), "camera/dock");
        let far = SystemTime::now() + 11 * 366 * DAY;
        let error = host.keys().credentials_at(Role::Camera, Some(&name("dock")), &[], far).unwrap_err();
        assert!(matches!(error, CredentialsError::Authority { .. }), "{error}");
        let early = SystemTime::now() - DAY;
        let error = host.site.keys().credentials_at(Role::App, None, &[], early).unwrap_err();
        assert!(matches!(error, CredentialsError::Authority { .. }), "{error}");
    }

    #[test]
    fn an_exposed_key_is_refused_with_the_command_that_hides_it() {
        let host = Host::new();
        let path = host.enrol("app/counter", DAY);
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = host.credentials(Role::App, "counter").unwrap_err().to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        host.credentials(Role::App, "counter").unwrap();
        host.close(0o770);
        let error = KeyFolder::open(host.folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 700 {}", host.folder.path().display())), "{error}");
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let host = Host::new();
        let counter = host.enrol("app/counter", DAY);
        let reader = host.enrol("app/reader", DAY);
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        let split = |path: &Path| {
            let (key, certificate) = (text(path), text(path));
            let at = key.find("-----BEGIN CERTIFICATE").unwrap();
            (key[..at].to_owned(), certificate[at..].to_owned())
        };
        let ((key, certificate), (other_key, _)) = (split(&counter), split(&reader));
        let refused = |content: &str, why: &str| {
            host.put(&counter, content);
            let error = host.credentials(Role::App, "counter").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&format!("{other_key}{certificate}"), "does not belong to its certificate");
        refused(&certificate, "no private key");
        // Nobody can tell whose a key without a certificate is, so it fits nothing, and is shown.
        refused(&key, "app+counter.pem (unreadable)");
        refused("", "app+counter.pem (unreadable)");

        let stranger = Host::new();
        let foreign = text(&stranger.enrol("app/counter", DAY));
        refused(&foreign, "not signed by the authority");
    }

    #[test]
    fn the_authoritys_host_issues_in_memory_and_writes_nothing() {
        let site = TemporarySite::create(&harbour()).unwrap();
        let keys = site.keys();
        let before = files::names(keys.path()).unwrap();
        let camera = keys.credentials(Role::Camera, Some(&name("dock/cam1"))).unwrap();
        assert_eq!(camera.identity().to_string(), "spiffe://harbour/camera/dock/cam1");
        assert_eq!((camera.file(), camera.authority()), (None, keys.authority()));
        let edge = keys.edge_credentials(None, &["edge.example".into()]).unwrap();
        assert_eq!(edge.identity().name, Name::from_host_name(&host_name()));
        for host in ["mez-edge", "localhost", "edge.example"] {
            assert!(edge.facts().hosts.iter().any(|known| known == host), "{host}");
        }
        keys.credentials(Role::App, None).unwrap();
        let nameless = keys.credentials(Role::Camera, None).unwrap_err();
        assert!(matches!(nameless, CredentialsError::NoName), "{nameless}");
        assert_eq!(files::names(keys.path()).unwrap(), before);
        assert!(!format!("{camera:?}").contains("PRIVATE"));
    }

    #[test]
    fn an_enrolled_edge_serves_only_the_hosts_of_its_token() {
        let host = Host::new();
        host.enrol("edge/main", DAY);
        host.keys().edge_credentials(None, &["LOCALHOST".into()]).unwrap();
        let error = host.keys().edge_credentials(None, &["edge.example".into()]).unwrap_err();
        assert!(error.to_string().contains("--dns edge.example"), "{error}");
    }

    #[test]
    fn a_temporary_site_is_private_and_leaves_nothing() {
        let site = TemporarySite::create(&harbour()).unwrap();
        let path = site.keys().path().to_owned();
        assert_eq!(files::mode(&path).unwrap(), 0o700);
        drop(site);
        assert!(!path.exists());
    }

    #[test]
    fn identities_never_share_a_file() {
        let long = |end: &str| format!("camera/{}/{end}", vec!["x".repeat(64); 7].join("/"));
        let shorts = ["camera/dock/cam1", "camera/dock-cam1", "camera/dock.cam1", "app/dock/cam1"];
        let mut names: Vec<_> = shorts.map(str::to_owned).into_iter().chain([long("a"), long("b")]).collect();
        for short in &mut names {
            *short = identity_file_name(&Identity::parse_within(&harbour(), short).unwrap());
            assert!(short.len() <= 255, "{short}");
        }
        assert_eq!(names[0], "camera+dock+cam1.pem");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 6);
    }
}
