//! Reads user names and passwords of network cameras, and keeps them off command lines and out of logs.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

/// The environment variable that holds a source's credentials directly, instead of a file name.
pub const SOURCE_CREDENTIALS_VARIABLE: &str = "MEZ_SOURCE_CREDENTIALS";
/// The name of the systemd credential (`LoadCredential=mez-source-credentials:…`).
pub const SOURCE_CREDENTIALS_CREDENTIAL: &str = "mez-source-credentials";

/// The longest line of credentials that is read.
const LINE_BYTES_MAX: u64 = 1024;

/// A user name and a password. Never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SourceCredentials {
    user: String,
    password: String,
}

/// Why credentials cannot be used. The messages never show them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceCredentialsError {
    /// The text is not of the right form.
    #[error(
        "the source's credentials are not in the form USER:PASSWORD, on one line, without control characters"
    )]
    Form,
    /// The file cannot be read.
    #[error("cannot read the source's credentials from {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users may read the file.
    #[error("others may read {path} (mode {mode:o}), which holds a password; run: chmod 600 {path}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
    /// Credentials were given for a source that takes none.
    #[error(
        "credentials are only for network cameras, but the source {source_name} is not a network camera; leave the credentials out"
    )]
    NotForThis {
        /// The source.
        source_name: String,
    },
    /// Credentials were given twice.
    #[error(
        "the address of {source_name} holds credentials, but other credentials were also given; remove the credentials from the address"
    )]
    Twice {
        /// The source.
        source_name: String,
    },
}

impl SourceCredentials {
    /// Parses `USER:PASSWORD`. The user name has no colon; the password may have some.
    pub fn parse(text: &str) -> Result<Self, SourceCredentialsError> {
        let (user, password) = text.split_once(':').ok_or(SourceCredentialsError::Form)?;
        if user.is_empty() || text.chars().any(char::is_control) {
            return Err(SourceCredentialsError::Form);
        }
        Ok(Self { user: user.into(), password: password.into() })
    }

    /// Reads the first line of a pipe, or of a file that only its owner can read.
    pub fn read_file(path: &Path) -> Result<Self, SourceCredentialsError> {
        let fault = |source| SourceCredentialsError::Read { path: path.into(), source };
        let file = File::open(path).map_err(fault)?;
        let metadata = file.metadata().map_err(fault)?;
        let is_pipe = metadata.file_type().is_fifo();
        if !is_pipe && metadata.mode() & 0o077 != 0 {
            return Err(SourceCredentialsError::Exposed {
                path: path.into(),
                mode: metadata.mode() & 0o7777,
            });
        }
        Self::read(file).map_err(|error| match error {
            Ok(error) => error,
            Err(source) => fault(source),
        })
    }

    /// The credentials in the variable [`SOURCE_CREDENTIALS_VARIABLE`], or else in the systemd credential
    /// [`SOURCE_CREDENTIALS_CREDENTIAL`]. `None`: neither is set.
    pub fn of_environment() -> Result<Option<Self>, SourceCredentialsError> {
        if let Some(text) = env::var(SOURCE_CREDENTIALS_VARIABLE).ok().filter(|text| !text.is_empty()) {
            return Self::parse(&text).map(Some);
        }
        let folder = env::var_os("CREDENTIALS_DIRECTORY");
        let file = folder.map(|folder| Path::new(&folder).join(SOURCE_CREDENTIALS_CREDENTIAL));
        let Some(path) = file.filter(|path| path.exists()) else { return Ok(None) };
        let fault = |source| SourceCredentialsError::Read { path: path.clone(), source };
        // The service manager restricts who can read the file.
        let read = Self::read(File::open(&path).map_err(fault)?);
        read.map(Some).map_err(|error| match error {
            Ok(error) => error,
            Err(source) => fault(source),
        })
    }

    /// Reads the first line of standard input.
    pub fn read_stdin() -> Result<Self, SourceCredentialsError> {
        let fault = |source| SourceCredentialsError::Read { path: "standard input".into(), source };
        Self::read(io::stdin().lock()).map_err(|error| match error {
            Ok(error) => error,
            Err(source) => fault(source),
        })
    }

    fn read(from: impl Read) -> Result<Self, Result<SourceCredentialsError, io::Error>> {
        let mut line = String::new();
        BufReader::new(from.take(LINE_BYTES_MAX)).read_line(&mut line).map_err(Err)?;
        Self::parse(line.trim_end_matches(['\r', '\n'])).map_err(Ok)
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }

    /// Decodes the credentials in a URL.
    pub(super) fn of_url(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text| percent_decode_str(text).decode_utf8().ok().map(String::from);
        Self::parse(&format!("{}:{}", decoded(user)?, decoded(password)?)).ok()
    }

    /// Encodes the credentials for a URL.
    pub(super) fn in_url(&self) -> String {
        let encoded = |text| utf8_percent_encode(text, NOT_IN_CREDENTIALS);
        format!("{}:{}", encoded(&self.user), encoded(&self.password))
    }
}

/// The characters that are encoded in a URL: all but the unreserved characters of RFC 3986.
const NOT_IN_CREDENTIALS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl fmt::Debug for SourceCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceCredentials(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dock.credentials");
        fs::write(&path, "bob:se:cret\nand more\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let refused = SourceCredentials::read_file(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("cret"), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let read = SourceCredentials::read_file(&path).unwrap();
        assert_eq!(read.in_url(), "bob:se%3Acret");
        assert_eq!(format!("{read:?}"), "SourceCredentials(…)");
        assert!(matches!(
            SourceCredentials::read_file(&folder.path().join("none")),
            Err(SourceCredentialsError::Read { .. })
        ));
    }

    #[test]
    fn what_is_no_user_and_password_is_refused_without_being_shown() {
        for text in ["", "secret", ":secret", "bob:sec\u{0}ret", "bob:secret\u{1b}"] {
            let refused = SourceCredentials::parse(text).unwrap_err().to_string();
            assert!(refused.contains("USER:PASSWORD") && !refused.contains("secret"), "{refused}");
        }
        assert_eq!(SourceCredentials::parse("bob:").unwrap().in_url(), "bob:");
        assert_eq!(SourceCredentials::parse("b b:p@/'%ü").unwrap().in_url(), "b%20b:p%40%2F%27%25%C3%BC");
    }
}
