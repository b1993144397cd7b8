//! The way to a broker over gRPC, with the certificate that is in use now.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint, Error};

use super::dial::ANSWER_TIMEOUT;
use crate::identity::tls::tonic_client_config;
use crate::identity::{Credentials, Moment};

/// How often a keepalive is sent. A broker that is gone is noticed after this interval and
/// [`KEEPALIVE_TIMEOUT`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a broker may take to answer a keepalive.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// See the [module](self). Streams and calls that have begun keep the connection that they began on.
pub(super) struct Remote {
    url: String,
    credentials: Credentials,
    made: Mutex<Made>,
}

struct Made {
    /// Tells that the certificate has been renewed since.
    renewals: watch::Receiver<u64>,
    /// Until when the authority before is trusted, if it still was.
    overlap: Option<SystemTime>,
    endpoint: Endpoint,
    /// The channel for calls. It reconnects by itself.
    calls: Channel,
}

impl Remote {
    pub(super) fn new(host: &str, port: u16, credentials: &Credentials) -> Result<Self, Error> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let url = format!("https://{host}:{port}");
        let made = Mutex::new(Made::new(&url, credentials)?);
        Ok(Self { url, credentials: credentials.clone(), made })
    }

    /// For a connection of one's own.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.made().endpoint.clone()
    }

    /// For calls.
    pub(super) fn calls(&self) -> Channel {
        self.made().calls.clone()
    }

    /// That our own certificate has expired, if it has. The broker says so as well, but a connection may end before that is read.
    pub(super) fn expired(&self) -> Option<String> {
        let (until, now) = (self.credentials.validity().not_after, SystemTime::now());
        (now > until).then(|| {
            format!(
                "the certificate of {} expired at {}, and this host's clock says {}: enrol anew with `mez keys enrol`, unless the clock is wrong",
                self.credentials.identity().short(),
                Moment(until),
                Moment(now)
            )
        })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        // Every statement leaves it whole.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = made.overlap.is_some_and(|until| SystemTime::now() > until);
        if is_over || made.renewals.has_changed().unwrap_or(false) {
            match Made::new(&self.url, &self.credentials) {
                Ok(new) => *made = new,
                // Both come from credentials that were checked.
                Err(error) => tracing::warn!(%error, "the renewed certificate cannot be used"),
            }
        }
        made
    }
}

impl Made {
    fn new(url: &str, credentials: &Credentials) -> Result<Self, Error> {
        // Before the certificate is read: one that comes meanwhile counts as news.
        let renewals = credentials.renewals();
        let overlap = credentials.trust().overlaps_until(SystemTime::now());
        let endpoint = Endpoint::from_shared(url.to_owned())?
            .tls_config(tonic_client_config(credentials))?
            .tcp_nodelay(true)
            .connect_timeout(ANSWER_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let calls = endpoint.connect_lazy();
        Ok(Self { renewals, overlap, endpoint, calls })
    }
}
