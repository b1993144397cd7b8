//! Parses the value of `--source`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use super::credentials::{SourceCredentials, SourceCredentialsError};

/// Schemes of network cameras that `ffmpeg` reads.
const SCHEMES: [&str; 12] =
    ["rtsp", "rtsps", "http", "https", "tcp", "udp", "rtp", "rtmp", "rtmps", "srt", "rtspt", "rtspu"];

/// Where frames come from.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum SourceSpec {
    /// A video or image file, played at its own rate.
    File(PathBuf),
    /// A camera of this machine (Video4Linux2), such as `/dev/video0`.
    Device(PathBuf),
    /// A camera or a recording on the network, as a URL. The URL may contain a password: show it only through `Display` or
    /// `Debug`, which leave the password out. ffmpeg gets such a URL through a pipe, so that it is not in the list of processes.
    Url(String),
}

/// Why a text is not a source.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SourceSpecError {
    /// The text is blank.
    #[error(
        "the source is empty: give a video file, a device such as /dev/video0, or a URL such as rtsp://HOST/PATH"
    )]
    Empty,
    /// The scheme of the URL is not supported.
    #[error("the source {text} has the unknown scheme {scheme}: use one of {}", SCHEMES.join(", "))]
    Scheme {
        /// The text, without credentials.
        text: String,
        /// The part before `://`.
        scheme: String,
    },
    /// The URL has no host.
    #[error("the source {text} has no host: write it as {scheme}://HOST/PATH")]
    NoHost {
        /// The text, without credentials.
        text: String,
        /// The part before `://`.
        scheme: String,
    },
}

impl SourceSpec {
    /// Parses what a user types: the path of a file, a video device (`/dev/video0`, `/dev/v4l/by-id/…`, or
    /// its number alone), or a URL. Looks only at the text.
    ///
    /// # Errors
    /// [`SourceSpecError`].
    pub fn parse(text: &str) -> Result<Self, SourceSpecError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(SourceSpecError::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Device(PathBuf::from(format!("/dev/video{text}"))));
        }
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            let is_device = text.starts_with("/dev/video") || text.starts_with("/dev/v4l/");
            return Ok(if is_device { Self::Device(text.into()) } else { Self::File(text.into()) });
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "file" {
            return Ok(Self::File(rest.into()));
        }
        let rest = quoted(rest);
        let shown = without_credentials(&format!("{scheme}://{rest}"));
        if !SCHEMES.contains(&scheme.as_str()) {
            return Err(SourceSpecError::Scheme { text: shown, scheme });
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // `udp://:5000` and `tcp://@:5000` listen on a port of this machine.
        if authority.rsplit('@').next().is_none_or(str::is_empty) {
            return Err(SourceSpecError::NoHost { text: shown, scheme });
        }
        Ok(Self::Url(format!("{scheme}://{rest}")))
    }

    /// The same source with a user name and a password.
    ///
    /// # Errors
    /// [`SourceCredentialsError`] if the source takes no credentials, or already has some.
    pub fn with_credentials(&self, credentials: &SourceCredentials) -> Result<Self, SourceCredentialsError> {
        let source_name = self.to_string();
        let Self::Url(url) = self else { return Err(SourceCredentialsError::NotForThis { source_name }) };
        let (scheme, rest) = url.split_once("://").ok_or(SourceCredentialsError::Form)?;
        if self.holds_credentials() {
            return Err(SourceCredentialsError::Twice { source_name });
        }
        Ok(Self::Url(format!("{scheme}://{}@{rest}", credentials.in_url())))
    }

    /// True for a URL with a user name or a password before its host.
    #[must_use]
    pub fn holds_credentials(&self) -> bool {
        let Self::Url(url) = self else { return false };
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((before, _)) => !before.is_empty(),
            // `bob:sec/ret@cam`: see `without_credentials`.
            None => !is_host(authority) && rest.contains('@'),
        }
    }

    /// True for a URL.
    #[must_use]
    pub fn is_network(&self) -> bool {
        matches!(self, Self::Url(_))
    }

    /// The URL, if it may contain a secret. ffmpeg then gets it through a pipe and not as an argument.
    pub(super) fn secret_url(&self) -> Option<&str> {
        match self {
            Self::Url(url) if self.holds_credentials() || url.contains('?') => Some(url),
            _ => None,
        }
    }

    /// True for a source without a start to return to: a device, or a URL that is not fetched by HTTP.
    #[must_use]
    pub(super) fn is_always_live(&self) -> bool {
        match self {
            Self::File(_) => false,
            Self::Device(_) => true,
            Self::Url(_) => !matches!(self.scheme(), Some("http" | "https")),
        }
    }

    /// The part of a URL between `://` and the path.
    fn authority(&self) -> Option<&str> {
        let Self::Url(url) = self else { return None };
        url.split_once("://")?.1.split(['/', '?', '#']).next()
    }

    /// The host of a URL; an IPv6 address keeps its brackets.
    #[must_use]
    pub(super) fn host(&self) -> Option<&str> {
        let authority = self.authority()?;
        // `bob:sec/ret@cam`: see `without_credentials`.
        if self.holds_credentials() && !authority.contains('@') {
            return None;
        }
        let host = authority.rsplit('@').next()?;
        match host.find(']') {
            Some(end) => host.get(..=end),
            None => host.split(':').next(),
        }
    }

    /// The user name and password in a URL.
    #[must_use]
    pub(super) fn credentials(&self) -> Option<SourceCredentials> {
        let (credentials, _) = self.authority()?.rsplit_once('@')?;
        SourceCredentials::of_url(credentials)
    }

    /// Path and query of a URL.
    #[must_use]
    pub(super) fn path_and_query(&self) -> Option<&str> {
        match self {
            Self::Url(url) => path_and_query(url),
            Self::File(_) | Self::Device(_) => None,
        }
    }

    /// The scheme of a URL, in lower case.
    #[must_use]
    pub(super) fn scheme(&self) -> Option<&str> {
        match self {
            Self::Url(url) => url.split_once("://").map(|(scheme, _)| scheme),
            Self::File(_) | Self::Device(_) => None,
        }
    }

    /// The path of a file or a device.
    #[must_use]
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Device(path) => Some(path),
            Self::Url(_) => None,
        }
    }
}

impl FromStr for SourceSpec {
    type Err = SourceSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// As typed, without user name, password and query.
impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Device(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&without_credentials(url)),
        }
    }
}

impl fmt::Debug for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::File(_) => "File",
            Self::Device(_) => "Device",
            Self::Url(_) => "Url",
        };
        write!(f, "{kind}({self})")
    }
}

/// Percent-encodes blanks, quotes and control characters. They would end a URL in texts of other
/// programs, such as ffmpeg's `'http://…': gone`. Readers of URLs decode them.
fn quoted(rest: &str) -> String {
    let mut quoted = String::with_capacity(rest.len());
    for c in rest.chars() {
        if c.is_whitespace() || c.is_control() || matches!(c, '\'' | '"') {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| quoted.push_str(&format!("%{byte:02X}")));
        } else {
            quoted.push(c);
        }
    }
    quoted
}

/// Path and query of a URL; empty if it has neither.
pub(super) fn path_and_query(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    Some(rest.find(['/', '?']).map_or("", |at| &rest[at..]))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// True for `HOST` and `HOST:PORT`; HOST may be an address in brackets. A trailing colon, as in messages, is accepted.
fn is_host(authority: &str) -> bool {
    let after_brackets = authority.rsplit(']').next().unwrap_or_default();
    after_brackets
        .split_once(':')
        .is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit() || byte == b':'))
}

/// Removes user names, passwords and queries from all URLs in a text. Queries may hold passwords too.
pub fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"')).unwrap_or(after.len());
        let (url, after) = after.split_at(end);
        let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let authority = &url[..authority_end];
        let host_start = match authority.rfind('@') {
            Some(at) => at + 1,
            // `bob:sec/ret@cam`: a password with a slash is not valid, and must not be shown all the same.
            None if !is_host(authority) => match url.rfind('@') {
                Some(at) => at + 1,
                // The URL is cut off before its host, as in a long line.
                None => {
                    out.push('…');
                    rest = after;
                    continue;
                }
            },
            None => 0,
        };
        let shown = &url[host_start..];
        match shown.split_once('?') {
            Some((path, _)) => {
                out.push_str(path);
                out.push_str("?…");
                // ffmpeg ends messages with `URL: what happened`.
                if shown.ends_with(':') {
                    out.push(':');
                }
            }
            None => out.push_str(shown),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_source_that_is_meant() {
        let file = |path: &str| Ok(SourceSpec::File(path.into()));
        let device = |path: &str| Ok(SourceSpec::Device(path.into()));
        let url = |text: &str| Ok(SourceSpec::Url(text.into()));
        for (text, expected) in [
            ("vtest.avi", file("vtest.avi")),
            (" a b.mp4 ", file("a b.mp4")),
            ("C:/x.mp4", file("C:/x.mp4")),
            ("concat:a|b", file("concat:a|b")),
            ("file:///tmp/x.mp4", file("/tmp/x.mp4")),
            ("-i", file("-i")),
            ("/dev/video0", device("/dev/video0")),
            ("/dev/v4l/by-id/usb-cam", device("/dev/v4l/by-id/usb-cam")),
            ("2", device("/dev/video2")),
            ("rtsp://cam/stream", url("rtsp://cam/stream")),
            ("RTSP://cam:554/stream?ch=1", url("rtsp://cam:554/stream?ch=1")),
            ("http://u:p@10.0.0.7/video.mjpeg", url("http://u:p@10.0.0.7/video.mjpeg")),
            ("udp://:5000", url("udp://:5000")),
        ] {
            assert_eq!(SourceSpec::parse(text), expected, "{text}");
        }
        assert_eq!(SourceSpec::parse("  "), Err(SourceSpecError::Empty));
        assert!(matches!(SourceSpec::parse("ftp://x/y"), Err(SourceSpecError::Scheme { .. })));
        assert!(matches!(SourceSpec::parse("rtsp:///x"), Err(SourceSpecError::NoHost { .. })));
        assert!(matches!(SourceSpec::parse("rtsp://u:p@"), Err(SourceSpecError::NoHost { .. })));
        let error = SourceSpec::parse("gopher://bob:secret@cam/").unwrap_err().to_string();
        assert!(error.contains("rtsp") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn credentials_come_to_a_url_from_elsewhere() {
        let credentials = SourceCredentials::parse("bob:p@ss/w'rd").unwrap();
        let camera = SourceSpec::parse("rtsp://10.0.0.9:554/stream?ch=1").unwrap();
        assert!(!camera.holds_credentials());
        let with = camera.with_credentials(&credentials).unwrap();
        assert_eq!(with, SourceSpec::Url("rtsp://bob:p%40ss%2Fw%27rd@10.0.0.9:554/stream?ch=1".into()));
        assert!(with.holds_credentials());
        assert_eq!(with.to_string(), "rtsp://10.0.0.9:554/stream?…");
        assert!(matches!(with.with_credentials(&credentials), Err(SourceCredentialsError::Twice { .. })));
        assert_eq!(with.credentials(), Some(credentials.clone()));
        assert_eq!((with.host(), with.path_and_query()), (Some("10.0.0.9"), Some("/stream?ch=1")));
        let file = SourceSpec::parse("x.mp4").unwrap();
        assert_eq!((file.credentials(), file.host(), file.path_and_query()), (None, None, None));
        assert!(matches!(
            file.with_credentials(&credentials),
            Err(SourceCredentialsError::NotForThis { .. })
        ));
        assert!(SourceSpec::parse("http://bob:sec/ret@cam/x").unwrap().holds_credentials());
        assert_eq!(SourceSpec::parse("http://bob:sec/ret@cam/x").unwrap().host(), None);
        assert_eq!(SourceSpec::parse("rtsp://[::1]:554").unwrap().host(), Some("[::1]"));
        assert!(!SourceSpec::parse("udp://@:5000").unwrap_or(file).holds_credentials());
    }

    #[test]
    fn passwords_are_never_shown() {
        for (text, shown) in [
            ("rtsp://bob:secret@cam/x", "rtsp://cam/x"),
            ("rtsp://bob:sec@ret@cam/x", "rtsp://cam/x"),
            ("rtsp://bob:sec/ret@cam/x", "rtsp://cam/x"),
            ("http://cam:80/a@b", "http://cam:80/a@b"),
            ("http://[::1]:80/a@b: gone", "http://[::1]:80/a@b: gone"),
            ("tcp://cam:99: Connection refused", "tcp://cam:99: Connection refused"),
            ("http://cam/v?user=bob&password=secret", "http://cam/v?…"),
            ("rtsp://bob:secret@cam/x: 401 Unauthorized", "rtsp://cam/x: 401 Unauthorized"),
            ("http://cam/v?pw=secret: Connection refused", "http://cam/v?…: Connection refused"),
            (
                "[tcp] to tcp://a:secret@b:1?timeout=0 failed, 'rtsp://secret@c'",
                "[tcp] to tcp://b:1?… failed, 'rtsp://c'",
            ),
            ("cut off: rtsp://bob:secret", "cut off: rtsp://…"),
            ("no url at all", "no url at all"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
        let spec = SourceSpec::parse("rtsp://bob:secret@cam/x").unwrap();
        assert_eq!(format!("{spec} {spec:?}"), "rtsp://cam/x Url(rtsp://cam/x)");
        let spec = SourceSpec::parse("rtsp://bob:it's \"secret\"@cam/x").unwrap();
        assert!(spec.holds_credentials());
        assert_eq!(format!("{spec} {spec:?}"), "rtsp://cam/x Url(rtsp://cam/x)");
    }
}
