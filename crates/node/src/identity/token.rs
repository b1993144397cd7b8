//! One-time tokens, with which a device without a certificate joins a site.
//!
//! A token is one line of text, carried to the device by hand. It states the device's identity. Its secret proves to the authority that an operator
//! allowed the device to join. Its fingerprint proves to the device that it talks to the right authority. `mez1.` is followed by base64url of:
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | secret, random |
//! | 32 | SHA-256 of the authority's certificate |
//! | 8 | expiry in seconds since 1970, big-endian |
//! | n | the identity, `spiffe://…` |
//! | 4 | first bytes of the SHA-256 of all before, so that a slip in copying is noticed as such |
//!
//! The authority's host stores only a hash of the secret, so a copy of its disk contains no usable tokens.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::authority::{AuthorityError, IssueError, check_hosts, random};
use super::certificate::{Fingerprint, Moment, Validity, hex};
use super::files::{self, FileError, Present, Readers};
use super::folder::{KeyFolder, TOKENS};
use super::name::Identity;

/// How long a token is valid by default: 1 h.
pub const TOKEN_VALID: Duration = Duration::from_secs(3600);
/// The longest that a token may be valid: 30 days.
pub const TOKEN_VALID_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// The most unused tokens of a site. It bounds the folder of tokens.
pub const TOKENS_MAX: usize = 1024;

/// The prefix of every token.
pub const PREFIX: &str = "mez1.";
const SECRET: usize = 16;
const FINGERPRINT: usize = 32;
const EXPIRY: usize = 8;
const CHECKSUM: usize = 4;
/// The longest text that is read as a token. The longest identity has 600 characters, so a longer text is not a token.
const TOKEN_BYTES_MAX: usize = 1024;

/// A one-time token. `{}` prints the line to carry to the device, `{:?}` leaves out the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub(super) secret: Secret,
    authority: Fingerprint,
    expires: SystemTime,
    identity: Identity,
}

impl Token {
    /// The identity that the device gets.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The fingerprint of the authority that the device must find.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// The time until which the token can be used.
    pub fn expires(&self) -> SystemTime {
        self.expires
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&self.secret.0);
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&unix_seconds(self.expires).to_be_bytes());
        bytes.extend_from_slice(self.identity.to_string().as_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Token");
        text.field("identity", &self.identity).field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenTextError;

    fn from_str(text: &str) -> Result<Self, TokenTextError> {
        let text = text.trim();
        let body = match text.strip_prefix(PREFIX) {
            Some(body) if text.len() <= TOKEN_BYTES_MAX => body,
            _ => return Err(TokenTextError::Form),
        };
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenTextError::Damaged)?;
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(TokenTextError::Damaged)?;
        if *sum != checksum(content) {
            return Err(TokenTextError::Damaged);
        }
        let (secret, rest) = content.split_first_chunk::<SECRET>().ok_or(TokenTextError::Damaged)?;
        let (authority, rest) = rest.split_first_chunk::<FINGERPRINT>().ok_or(TokenTextError::Damaged)?;
        let (expiry, identity) = rest.split_first_chunk::<EXPIRY>().ok_or(TokenTextError::Damaged)?;
        let expires = UNIX_EPOCH.checked_add(Duration::from_secs(u64::from_be_bytes(*expiry)));
        let identity = str::from_utf8(identity).ok().and_then(|identity| identity.parse().ok());
        match (expires, identity) {
            (Some(expires), Some(identity)) => {
                Ok(Self { secret: Secret(*secret), authority: Fingerprint(*authority), expires, identity })
            }
            _ => Err(TokenTextError::Damaged),
        }
    }
}

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenTextError {
    /// The text does not look like a token.
    #[error(
        "this is not a token; a token is one line that begins with {PREFIX}; make a token with `mez keys token`"
    )]
    Form,
    /// The token was changed in copying.
    #[error("the token is incomplete or was changed in copying; copy the whole line, or make another token")]
    Damaged,
}

/// A secret that only the token's bearer knows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret([u8; SECRET]);

impl Secret {
    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The hash under which the authority's host stores the token. A secret of 128 random bits needs
    /// no slow hash. The hash is looked up as a file name, so timing reveals nothing about it.
    fn hash(&self) -> String {
        hex(digest(&SHA256, &[b"mez enrolment token 1".as_slice(), &self.0].concat()).as_ref())
    }
}

/// The tokens that an authority has issued: one file each, named by the hash of the secret.
#[derive(Clone, Debug)]
pub struct TokenStore {
    folder: PathBuf,
}

impl TokenStore {
    /// The tokens of the authority whose key is in `keys`.
    pub fn of(keys: &KeyFolder) -> Self {
        Self { folder: keys.path().join(TOKENS) }
    }

    /// Makes a token with which one device can become `identity` during `valid`.
    ///
    /// `hosts`: additional names and addresses of an edge, for its certificate. The certificate is valid for 30 days.
    pub fn create(
        keys: &KeyFolder,
        identity: &Identity,
        hosts: &[String],
        valid: Duration,
    ) -> Result<Token, TokenError> {
        Self::create_for(keys, identity, hosts, (valid, Validity::MEMBER))
    }

    /// Like [`TokenStore::create`], with the lifetime of the certificate and its renewals: from one second to [`Validity::MEMBER_MAX`].
    pub fn create_for(
        keys: &KeyFolder,
        identity: &Identity,
        hosts: &[String],
        (valid, lifetime): (Duration, Duration),
    ) -> Result<Token, TokenError> {
        // Checked here, because a token of an authority that cannot sign would fail only later, on the device.
        let authority = keys.load_authority()?;
        if identity.site != *authority.site() {
            return Err(TokenError::OtherSite { identity: Box::new(identity.clone()) });
        }
        check_hosts(identity, hosts)?;
        if !(Duration::from_secs(1)..=TOKEN_VALID_MAX).contains(&valid) {
            return Err(TokenError::Valid);
        }
        if !(Duration::from_secs(1)..=Validity::MEMBER_MAX).contains(&lifetime) {
            return Err(TokenError::Lifetime);
        }
        let now = SystemTime::now();
        let store = Self::of(keys);
        files::make_private_folder(&store.folder)?;
        if store.sweep(now)? >= TOKENS_MAX {
            return Err(TokenError::TooMany { folder: store.folder });
        }
        let secret = Secret(random()?);
        let expires = UNIX_EPOCH + Duration::from_secs(unix_seconds(now + valid));
        let record = Record {
            identity: identity.to_string(),
            hosts: hosts.to_vec(),
            expires_unix_seconds: unix_seconds(expires),
            lifetime_seconds: lifetime.as_secs(),
        };
        let content = serde_json::to_vec_pretty(&record).expect("a record of texts and numbers is JSON");
        files::write(&store.waiting(&secret), &content, Readers::Owner, Present::Keep)?;
        Ok(Token {
            secret,
            authority: Fingerprint::of(authority.certificate()),
            expires,
            identity: identity.clone(),
        })
    }

    /// Looks up a secret, without using up the token.
    pub(super) fn look_up(&self, secret: &Secret, now: SystemTime) -> Result<Grant, TokenRefusal> {
        let path = self.waiting(secret);
        let record = match Record::read(&path) {
            Ok(record) => record,
            Err(error) if error.is_absent() && self.used(secret).exists() => return Err(TokenRefusal::Used),
            Err(error) if error.is_absent() => return Err(TokenRefusal::Unknown),
            Err(error) => return Err(TokenRefusal::Store(error)),
        };
        let expires = record.expires();
        if now > expires {
            return Err(TokenRefusal::Expired { at: Moment(expires).to_string() });
        }
        let identity = record.identity.parse().map_err(|_| TokenRefusal::Unknown)?;
        let lifetime = Duration::from_secs(record.lifetime_seconds).min(Validity::MEMBER_MAX);
        Ok(Grant { identity, hosts: record.hosts, lifetime, waiting: path, used: self.used(secret) })
    }

    /// Removes the files of expired tokens, used or not, and returns how many unused tokens remain.
    pub fn sweep(&self, now: SystemTime) -> Result<usize, FileError> {
        let mut waiting = 0;
        for name in files::names(&self.folder)? {
            let path = self.folder.join(&name);
            match Record::read(&path) {
                Ok(record) if now > record.expires() => remove(&path)?,
                // The file was swept by another process, or the token was used, since the folder was listed.
                Err(error) if error.is_absent() => {}
                _ => waiting += usize::from(name.ends_with(".json")),
            }
        }
        Ok(waiting)
    }

    /// The unused tokens: who may still join, and until when. Sorted by expiry, soonest first.
    pub fn list(&self, now: SystemTime) -> Result<Vec<(Identity, SystemTime)>, FileError> {
        let names = match files::names(&self.folder) {
            // The folder is created with the first token.
            Err(error) if error.is_absent() => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(".json")) {
            // An unreadable record was used since the folder was listed, or is invalid anyway.
            let Ok(record) = Record::read(&self.folder.join(name)) else { continue };
            if let Ok(identity) = record.identity.parse()
                && now <= record.expires()
            {
                found.push((identity, record.expires()));
            }
        }
        found.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        Ok(found)
    }

    /// Withdraws the unused tokens of an identity, and returns how many there were.
    pub fn withdraw(&self, identity: &Identity) -> Result<usize, FileError> {
        let names = match files::names(&self.folder) {
            // The folder is created with the first token.
            Err(error) if error.is_absent() => return Ok(0),
            other => other?,
        };
        let mut withdrawn = 0;
        for name in names.iter().filter(|name| name.ends_with(".json")) {
            let path = self.folder.join(name);
            if Record::read(&path).is_ok_and(|record| record.identity == identity.to_string()) {
                remove(&path)?;
                withdrawn += 1;
            }
        }
        Ok(withdrawn)
    }

    fn waiting(&self, secret: &Secret) -> PathBuf {
        self.folder.join(format!("{}.json", secret.hash()))
    }

    fn used(&self, secret: &Secret) -> PathBuf {
        self.folder.join(format!("{}.used", secret.hash()))
    }
}

/// What a token gives to its bearer.
pub(super) struct Grant {
    pub(super) identity: Identity,
    pub(super) hosts: Vec<String>,
    /// How long the certificate is valid.
    pub(super) lifetime: Duration,
    waiting: PathBuf,
    used: PathBuf,
}

impl Grant {
    /// Uses up the token. Of any number of callers in any number of processes,
    /// exactly one succeeds. After that the token stays used, even after a power cut.
    pub(super) fn claim(self) -> Result<(), TokenRefusal> {
        match fs::rename(&self.waiting, &self.used) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(TokenRefusal::Used),
            Err(error) => return Err(TokenRefusal::Store(FileError::on("use up", &self.waiting)(error))),
        }
        let folder = self.used.parent().unwrap_or(Path::new("."));
        files::sync_folder(folder).map_err(|e| TokenRefusal::Store(FileError::on("flush", folder)(e)))
    }
}

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenRefusal {
    #[error(
        "this edge does not know the token: it was made for another site, or expired long ago; make another token with `mez keys token`"
    )]
    Unknown,
    #[error(
        "the token was already used; if you did not use it, somebody else joined the site with it: the edge's log names the address"
    )]
    Used,
    #[error(
        "the token expired at {at}; make another token with `mez keys token`; --valid makes it last longer"
    )]
    Expired { at: String },
    #[error("the authority's host cannot use its store of tokens: {0}")]
    Store(FileError),
}

/// Why no token was made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The authority's key is not here or cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The identity belongs to another site.
    #[error("{identity} belongs to another site; this authority cannot vouch for it")]
    OtherSite {
        /// The identity.
        identity: Box<Identity>,
    },
    /// The host names are not allowed.
    #[error(transparent)]
    Hosts(#[from] IssueError),
    /// The token's validity is too short or too long.
    #[error("a token can be valid for 1 second to 30 days")]
    Valid,
    /// The certificate's lifetime is too short or too long.
    #[error(
        "a certificate can last for 1 second to 90 days; it is renewed automatically, so a short life costs no work"
    )]
    Lifetime,
    /// Too many unused tokens exist.
    #[error("{TOKENS_MAX} unused tokens exist already, which is the limit; remove tokens that nobody needs from {}", folder.display())]
    TooMany {
        /// The folder of tokens.
        folder: PathBuf,
    },
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are no random bytes.
    #[error("cannot make a secret: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// The record of a token on the authority's host.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    identity: String,
    hosts: Vec<String>,
    expires_unix_seconds: u64,
    lifetime_seconds: u64,
}

impl Record {
    fn read(path: &Path) -> Result<Self, FileError> {
        let content = files::read(path)?;
        serde_json::from_slice(&content).map_err(|error| FileError::on("read", path)(io::Error::other(error)))
    }

    fn expires(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.expires_unix_seconds)).unwrap_or(UNIX_EPOCH)
    }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::on("remove", path)(error)),
        _ => Ok(()),
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    *digest(&SHA256, bytes).as_ref().first_chunk().expect("a SHA-256 digest has 32 bytes")
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::super::folder::TemporarySite;
    use super::*;
    use proptest::prelude::*;

    fn site() -> TemporarySite {
        TemporarySite::create(&"harbour".parse().unwrap()).unwrap()
    }

    fn make(site: &TemporarySite, short: &str, valid: Duration) -> Result<Token, TokenError> {
        let identity = Identity::parse_within(site.keys().site(), short).unwrap();
        TokenStore::create(site.keys(), &identity, &[], valid)
    }

    #[test]
    fn a_token_is_one_line_that_reads_back() {
        let site = site();
        let token = make(&site, "camera/dock/cam1", TOKEN_VALID).unwrap();
        let line = token.to_string();
        assert!(line.starts_with("mez1.") && !line.contains(char::is_whitespace), "{line}");
        assert_eq!(format!(" {line}\n").parse::<Token>().unwrap(), token);
        assert_eq!(token.identity().short(), "camera/dock/cam1");
        assert_eq!(token.authority(), site.keys().fingerprint());
        assert!(!format!("{token:?}").contains(&token.secret.encode()));
    }

    #[test]
    fn every_slip_in_copying_is_noticed() {
        let line = make(&site(), "camera/dock/cam1", TOKEN_VALID).unwrap().to_string();
        for end in 0..line.len() {
            assert!(line[..end].parse::<Token>().is_err(), "cut at {end}");
        }
        for at in 0..line.len() {
            let mut changed = line.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(String::from_utf8(changed).unwrap().parse::<Token>().is_err(), "changed at {at}");
        }
        assert_eq!("https://example.org".parse::<Token>(), Err(TokenTextError::Form));
    }

    #[test]
    fn the_authoritys_disk_does_not_hold_the_secret() {
        let site = site();
        let token = make(&site, "app/counter", TOKEN_VALID).unwrap();
        let folder = site.keys().path().join(TOKENS);
        assert_eq!(files::mode(&folder).unwrap(), 0o700);
        let names = files::names(&folder).unwrap();
        assert_eq!(names.len(), 1);
        let path = folder.join(&names[0]);
        assert_eq!(files::mode(&path).unwrap(), 0o600);
        let kept = format!("{}{}", names[0], fs::read_to_string(&path).unwrap());
        assert!(!kept.contains(&token.secret.encode()) && !kept.contains(&hex(&token.secret.0)), "{kept}");
    }

    #[test]
    fn a_token_is_used_once_however_many_try() {
        let site = site();
        let token = make(&site, "app/counter", TOKEN_VALID).unwrap();
        let store = TokenStore::of(site.keys());
        let grants: Vec<_> =
            (0..16).map(|_| store.look_up(&token.secret, SystemTime::now()).unwrap()).collect();
        let claimed: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = grants.into_iter().map(|grant| scope.spawn(|| grant.claim())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(claimed.iter().filter(|claim| claim.is_ok()).count(), 1);
        assert!(claimed.iter().all(|claim| matches!(claim, Ok(()) | Err(TokenRefusal::Used))));
        let again = store.look_up(&token.secret, SystemTime::now());
        assert!(matches!(again, Err(TokenRefusal::Used)));
    }

    #[test]
    fn expired_and_unknown_tokens_are_told_apart_and_swept() {
        let site = site();
        let short = make(&site, "app/counter", Duration::from_secs(60)).unwrap();
        let store = TokenStore::of(site.keys());
        let long = make(&site, "app/reader", TOKEN_VALID).unwrap();
        let listed = |now| {
            let listed = store.list(now).unwrap();
            listed.into_iter().map(|(identity, _)| identity.short()).collect::<Vec<_>>()
        };
        assert_eq!(listed(SystemTime::now()), ["app/counter", "app/reader"]);
        let later = SystemTime::now() + Duration::from_secs(120);
        assert!(matches!(store.look_up(&short.secret, later), Err(TokenRefusal::Expired { .. })));
        assert_eq!(listed(later), ["app/reader"]);
        assert_eq!(store.sweep(later).unwrap(), 1);
        assert!(matches!(store.look_up(&short.secret, later), Err(TokenRefusal::Unknown)));
        store.look_up(&long.secret, later).unwrap();
    }

    #[test]
    fn what_cannot_be_granted_is_refused_where_it_is_asked_for() {
        let site = site();
        for valid in [Duration::ZERO, TOKEN_VALID_MAX + Duration::from_secs(1)] {
            assert!(matches!(make(&site, "app/x", valid), Err(TokenError::Valid)));
        }
        let foreign = "spiffe://airport/app/x".parse().unwrap();
        let refused = TokenStore::create(site.keys(), &foreign, &[], TOKEN_VALID);
        assert!(matches!(refused, Err(TokenError::OtherSite { .. })), "{refused:?}");
        let camera = Identity::parse_within(site.keys().site(), "camera/dock").unwrap();
        let refused = TokenStore::create(site.keys(), &camera, &["dock.lan".into()], TOKEN_VALID);
        assert!(matches!(refused, Err(TokenError::Hosts(_))), "{refused:?}");
        fs::remove_file(site.keys().path().join(super::super::folder::AUTHORITY_KEY)).unwrap();
        let refused = make(&site, "app/x", TOKEN_VALID);
        assert!(matches!(refused, Err(TokenError::Authority(AuthorityError::NoKey { .. }))), "{refused:?}");
    }

    #[test]
    fn waiting_tokens_are_bounded() {
        let site = site();
        let keep = make(&site, "app/x", TOKEN_VALID).unwrap();
        let folder = site.keys().path().join(TOKENS);
        let one = folder.join(&files::names(&folder).unwrap()[0]);
        for n in 1..TOKENS_MAX {
            fs::copy(&one, folder.join(format!("{n}.json"))).unwrap();
        }
        let refused = make(&site, "app/y", TOKEN_VALID);
        assert!(matches!(refused, Err(TokenError::TooMany { .. })), "{refused:?}");
        TokenStore::of(site.keys()).look_up(&keep.secret, SystemTime::now()).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(mez1\\.)?[A-Za-z0-9_=. -]{0,200}") {
            let _ = text.parse::<Token>();
        }

        /// Bytes with a correct checksum reach every branch of the parser.
        #[test]
        fn no_content_makes_the_parser_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let sum = checksum(&bytes);
            bytes.extend_from_slice(&sum);
            let _ = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)).parse::<Token>();
        }
    }
}
