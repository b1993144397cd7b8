//! Connections to a broker over gRPC, with the current certificate.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint, Error};

use super::dial::ANSWER_TIMEOUT;
use crate::identity::tls::tonic_client_config;
use crate::identity::{Credentials, Moment};

/// How often a keepalive is sent. A lost broker is noticed after this interval plus [`KEEPALIVE_TIMEOUT`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a broker may take to answer a keepalive.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections to one broker. See the [module](self). Running streams and calls keep their connection.
pub(super) struct Remote {
    url: String,
    credentials: Credentials,
    made: Mutex<Made>,
}

struct Made {
    /// Changes when the certificate is renewed.
    renewals: watch::Receiver<u64>,
    /// Until when the previous authority is trusted, if it still was.
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

    /// The endpoint for a separate connection.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.made().endpoint.clone()
    }

    /// The channel for calls.
    pub(super) fn calls(&self) -> Channel {
        self.made().calls.clone()
    }

    /// The message that our own certificate has expired, if it has. The broker says so too, but the connection may end before its message is read.
    pub(super) fn expired(&self) -> Option<String> {
        let (until, now) = (self.credentials.validity().not_after, SystemTime::now());
        (now > until).then(|| {
            format!(
                "the certificate of {} expired at {}, and this host's clock says {}: enrol again with `mez keys enrol`, unless the clock is wrong",
                self.credentials.identity().short(),
                Moment(until),
                Moment(now)
            )
        })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        // Each statement leaves the value consistent, so a poisoned lock is safe to use.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = made.overlap.is_some_and(|until| SystemTime::now() > until);
        if is_over || made.renewals.has_changed().unwrap_or(false) {
            match Made::new(&self.url, &self.credentials) {
                Ok(new) => *made = new,
                // Not expected: URL and credentials were valid before.
                Err(error) => tracing::warn!(%error, "the renewed certificate cannot be used"),
            }
        }
        made
    }
}

impl Made {
    fn new(url: &str, credentials: &Credentials) -> Result<Self, Error> {
        // Subscribed before the certificate is read, so that a renewal in between counts as a change.
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
