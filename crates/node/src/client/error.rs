//! Errors of calls to a broker.

use std::error::Error;
use std::io;

use rustls::AlertDescription;
use tonic::Status;

use super::address::Address;
use crate::api::{ApiError, RIGHTS_CHANGED};
use crate::identity::explain;
use crate::local::PacketError;

/// Why a call to a broker failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The broker was not reached, or the connection was lost. A retry may help.
    #[error("no broker at {address}: {reason}")]
    Unreachable {
        /// The address where the broker should be.
        address: Address,
        /// What failed, in words.
        reason: String,
    },
    /// TLS fails: one side does not accept the other's certificate, or the other side is no broker. Also
    /// returned if our own certificate has expired, whoever answers. A first connection fails at once with
    /// this error. A client that was connected before keeps trying, because certificates are renewed.
    #[error("no broker at {address}: {reason}")]
    Untrusted {
        /// The address where the broker should be.
        address: Address,
        /// What failed, in words.
        reason: String,
    },
    /// No camera of the subscription is connected to the edge in use, but one is connected to another edge.
    #[error(
        "no camera of the subscription is connected to the edge at {from}, but a camera is connected to the edge at {to}"
    )]
    Elsewhere {
        /// The edge that was in use.
        from: Address,
        /// The address of the edge where the camera is.
        to: Address,
    },
    /// The broker has refused the call.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The broker did not answer in time.
    #[error("the broker at {address} did not answer within {seconds} s")]
    TimedOut {
        /// The broker's address.
        address: Address,
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// This address needs a certificate, and there are no credentials.
    #[error(
        "the broker at {address} requires a certificate of its site (TLS); enrol this host with `mez keys enrol`, or name the folder of keys with \
         keys= or MEZ_KEYS"
    )]
    NoCredentials {
        /// The broker's address.
        address: Address,
    },
    /// The broker sent something that this version does not understand.
    #[error(
        "the broker at {address} sent what this version does not understand ({what}); update the older side"
    )]
    Protocol {
        /// The broker's address.
        address: Address,
        /// What was not understood.
        what: String,
    },
}

impl ClientError {
    /// Whether the same call may succeed later without any change by the program.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::TimedOut { .. }
            | Self::Elsewhere { .. } => true,
            Self::Refused(error) => error.is_passing(),
            Self::NoCredentials { .. } | Self::Protocol { .. } => false,
        }
    }

    /// Whether the failure may end within the seconds for which a first connection is retried.
    pub(super) fn is_worth_waiting(&self) -> bool {
        self.is_passing() && !matches!(self, Self::Untrusted { .. })
    }

    /// Whether the edge ended a stream because the program's rights, and so its matching cameras, may have changed. The edge is still reachable.
    pub fn is_change_of_rights(&self) -> bool {
        matches!(self, Self::Refused(error) if error.reason == RIGHTS_CHANGED)
    }

    pub(super) fn from_packet(error: PacketError, address: &Address) -> Self {
        let address = address.clone();
        match error {
            PacketError::Refused(error) => error.into(),
            PacketError::Io(error) => Self::Unreachable { address, reason: io_reason(&error) },
            PacketError::Cut => Self::Unreachable { address, reason: BROKER_CLOSED.into() },
            error => Self::Protocol { address, what: error.to_string() },
        }
    }

    pub(super) fn from_io(error: &io::Error, address: &Address) -> Self {
        Self::Unreachable { address: address.clone(), reason: io_reason(error) }
    }

    pub(super) fn from_status(status: &Status, address: &Address) -> Self {
        // A status from the broker has no cause on this side.
        match status.source() {
            None => ApiError::from_status(status).into(),
            Some(cause) => Self::from_cause(cause, address),
        }
    }

    pub(super) fn from_transport(error: &tonic::transport::Error, address: &Address) -> Self {
        Self::from_cause(error, address)
    }

    fn from_cause(cause: &(dyn Error + 'static), address: &Address) -> Self {
        let address = address.clone();
        match failure_of_tls(cause) {
            // A retry does not help.
            Some(error @ rustls::Error::AlertReceived(AlertDescription::CertificateRevoked)) => {
                ApiError::revoked(explain::explain(&error)).into()
            }
            Some(error) => Self::Untrusted { address, reason: explain::explain(&error) },
            None => Self::Unreachable { address, reason: innermost_reason(cause) },
        }
    }
}

/// The TLS error in an error's chain of causes, if there is one.
fn failure_of_tls(error: &(dyn Error + 'static)) -> Option<rustls::Error> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(error.clone());
    }
    // An `io::Error` does not return its content as its source.
    let inner = match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|held| held as &(dyn Error + 'static)),
        None => error.source(),
    };
    let known = inner.and_then(failure_of_tls);
    // HTTP/2 keeps only the text of a rustls error.
    known.or_else(|| explain::alert_in(&error.to_string()).map(rustls::Error::AlertReceived))
}

const BROKER_CLOSED: &str = "the broker closed the connection";

fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the socket does not exist; is the broker running?".into(),
        io::ErrorKind::ConnectionRefused => "nothing listens there; is the broker running?".into(),
        io::ErrorKind::PermissionDenied => {
            "this user may not use the socket; join the group of the broker's user".into()
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            BROKER_CLOSED.into()
        }
        _ => explain::explain_io(error).unwrap_or_else(|| error.to_string()),
    }
}

/// The innermost error of a chain says the most.
fn innermost_reason(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(error) = at.downcast_ref::<io::Error>()
            && (error.get_ref().is_none() || explain::explain_io(error).is_some())
        {
            return io_reason(error);
        }
        match at.source() {
            Some(source) => at = source,
            // HTTP/2 keeps only the text of a TLS error below it, and rustls' text is for programmers.
            None if at.to_string().contains("close_notify") => return BROKER_CLOSED.into(),
            None => return at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_killed_is_told_of_in_words_for_people() {
        let eof = "peer closed connection without sending TLS close_notify: see the manual";
        // As TCP reports it, and as HTTP/2 forwards it.
        for error in [io::Error::new(io::ErrorKind::UnexpectedEof, eof), io::Error::other(eof)] {
            assert_eq!(innermost_reason(&error), BROKER_CLOSED);
        }
        assert_eq!(innermost_reason(&io::Error::other("no route")), "no route");
    }

    /// At any depth, and also if only its text is left.
    #[test]
    fn what_tls_says_is_found_in_what_http_says() {
        use rustls::{CertificateError, Error};
        let errors =
            [Error::AlertReceived(AlertDescription::UnknownCA), CertificateError::UnknownIssuer.into()];
        for error in &errors {
            let wrapped = io::Error::other(io::Error::other(error.clone()));
            assert_eq!(failure_of_tls(error).as_ref(), Some(error));
            assert_eq!(failure_of_tls(&wrapped).as_ref(), Some(error), "{wrapped:?}");
        }
        let text = io::Error::other(format!("connection error: {}", errors[0]));
        assert_eq!(failure_of_tls(&text).as_ref(), Some(&errors[0]));
        assert_eq!(failure_of_tls(&io::Error::other("received fatal alert: Unknown")), None);
        assert_eq!(failure_of_tls(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }
}
