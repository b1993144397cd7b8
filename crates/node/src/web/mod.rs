//! Serves people and tools over HTTP: the page, its data as JSON and events, pictures, health, and metrics.
//!
//! `docs/schema/openapi.json` describes the interface; `docs/monitoring.md` and `docs/page.md` explain it. Callers see cameras according to their
//! rights, which `api/access.rs` checks. Requests for the present state do not ask the broker: the edge looks at itself once a second
//! ([`watcher`]), and requests read the result. So a thousand open tabs cost the broker as much as one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `serve` | the port: connections, their bounds, and how long they may stall |
//! | `route` | the answer of each path, and the rights that it needs |
//! | `caller` | identifies the caller: a certificate, a session, a scrape token |
//! | `proxy` | callers that a reverse proxy names, and which proxies may name them |
//! | [`sessions`] | one-time links, and the sessions that they begin |
//! | [`watcher`] | the look at the edge, once a second |
//! | `certificates`, `lags` | the expiry of certificates, and the groups that are behind |
//! | `events` | the changes between two looks, and their readers |
//! | `answers`, `fill` | the answers in JSON, and how they are filled in |
//! | `patience` | closes connections that do not take their answers |
//! | `places` | bounds, in total and for each holder |
//! | `views` | pictures and video, by an ordinary subscription |
//! | `video` | H.264 in pieces, for browsers that decode it |
//! | `history`, `record`, `clip` | a camera's past: what is held, notes, a picture or a record at an instant; a clip |
//! | `metrics`, `text` | metrics for Prometheus, and their text format |
//! | `response` | responses with their headers |
//! | `assets` | the files of the page |

mod answers;
mod assets;
mod caller;
mod certificates;
mod clip;
mod events;
mod fill;
mod history;
mod lags;
mod metrics;
mod patience;
mod places;
mod proxy;
mod record;
mod response;
mod route;
mod serve;
pub(crate) mod sessions;
mod text;
mod video;
mod views;
mod watcher;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::assets::{Asset, Assets};
pub use self::events::EventBounds;
pub use self::proxy::{ProxyHeader, ProxyHeaderName, ProxySender};
pub use self::serve::WebServer;
use crate::identity::tls::TlsConfigError;
use crate::ports::bind_remedy;

/// The most bytes of a scrape token.
const TOKEN_BYTES_MAX: u64 = 1024;
/// The least bytes of a scrape token.
const TOKEN_BYTES_MIN: usize = 16;

/// The setup of an edge's HTTP port.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The token with which metrics are scraped without a certificate. Default: none.
    pub scrape_token: Option<ScrapeToken>,
    /// The header by which a reverse proxy names the caller. Default: none; such headers are then ignored.
    pub proxy: Option<ProxyHeader>,
    /// The files of the page. Default: none; a plain page is served instead.
    pub assets: Assets,
    /// From when on events warn of certificates and groups.
    pub events: EventBounds,
    /// How long a connection may take nothing of what it is sent before it is closed. Default: 30 s.
    pub patience: Duration,
}

impl WebOptions {
    /// The defaults.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            scrape_token: None,
            proxy: None,
            assets: Assets::default(),
            events: EventBounds::default(),
            patience: Duration::from_secs(30),
        }
    }
}

/// Why the HTTP port was not opened.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The port cannot be bound.
    #[error(
        "cannot listen on {address} for the page and metrics: {source}; {}, or leave it out",
        bind_remedy(source, "--web")
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The certificate cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The broker is a camera broker.
    #[error("a camera broker has no page")]
    NotAnEdge,
}

/// The secret for scraping metrics. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ScrapeToken(Arc<str>);

/// Why a file gives no scrape token.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeTokenError {
    /// The file cannot be read.
    #[error("cannot read the scrape token in {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content is not a token.
    #[error(
        "{} holds no scrape token: write one line of 16 to 1024 printable characters without blanks into it, for example from `openssl rand -hex 32`",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
}

impl ScrapeToken {
    /// Reads the token out of a file: its only line.
    ///
    /// # Errors
    /// See [`ScrapeTokenError`].
    pub fn read(path: &Path) -> Result<Self, ScrapeTokenError> {
        use std::io::Read;
        let mut text = String::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(TOKEN_BYTES_MAX + 2).read_to_string(&mut text));
        read.map_err(|source| ScrapeTokenError::Read { path: path.into(), source })?;
        let token = text.trim_end_matches(['\n', '\r']);
        let ok = token.bytes().all(|byte| byte.is_ascii_graphic())
            && (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX as usize).contains(&token.len());
        if ok { Ok(Self(token.into())) } else { Err(ScrapeTokenError::Content { path: path.into() }) }
    }

    /// Whether the token is this text. Takes constant time for texts of one length.
    fn is(&self, text: &str) -> bool {
        let differs =
            self.0.bytes().zip(text.bytes()).fold(0, |differs, (own, other)| differs | (own ^ other));
        self.0.len() == text.len() && differs == 0
    }
}

impl std::fmt::Debug for ScrapeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScrapeToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_token_is_one_line_and_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |content: &str| {
            std::fs::write(&path, content).unwrap();
            ScrapeToken::read(&path)
        };
        let token = read("0123456789abcdef\n").unwrap();
        assert!(
            token.is("0123456789abcdef") && !token.is("0123456789abcdeF") && !token.is("0123456789abcde")
        );
        assert!(!format!("{token:?}").contains("0123"));
        for bad in ["", "short\n", "0123456789abcdef 0123\n", "0123456789abcdef\n0123456789abcdef\n"] {
            assert!(matches!(read(bad), Err(ScrapeTokenError::Content { .. })), "{bad:?}");
        }
        assert!(matches!(ScrapeToken::read(&folder.path().join("none")), Err(ScrapeTokenError::Read { .. })));
    }
}
