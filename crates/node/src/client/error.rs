//! Defines why a call to a broker failed.

use std::error::Error;
use std::io;

use rustls::AlertDescription;
use tonic::Status;

use super::address::Address;
use crate::api::ApiError;
use crate::identity::explain;
use crate::local::PacketError;

/// Why a call to a broker came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The broker was not reached, or the connection was lost. Trying again may help.
    #[error("no broker at {address}: {reason}")]
    Unreachable {
        /// The address where the broker should be.
        address: Address,
        /// What went wrong, in words.
        reason: String,
    },
    /// No camera of the subscription is connected to the edge in use, but one is connected to another edge.
    #[error(
        "no camera of the subscription is connected to the edge at {from}, and one is to the edge at {to}"
    )]
    Elsewhere {
        /// The edge that was in use.
        from: Address,
        /// The address of the edge where the camera is.
        to: Address,
    },
    /// The broker answered, and says no.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The broker did not answer in time.
    #[error("the broker at {address} did not answer within {seconds} s")]
    TimedOut {
        /// The broker's address.
        address: Address,
        /// How long it had to answer.
        seconds: u64,
    },
    /// The address asks for a certificate.
    #[error(
        "the broker at {address} is reached over TLS and asks for a certificate of its site; enrol this host with \
         `mez keys enrol`, or name the folder of keys with keys= or MEZ_KEYS"
    )]
    NoCredentials {
        /// The broker.
        address: Address,
    },
    /// The broker sent something that makes no sense.
    #[error(
        "the broker at {address} sent what this version does not understand ({what}); update the older of the two"
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
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Elsewhere { .. } => true,
            Self::Refused(error) => error.is_passing(),
            Self::NoCredentials { .. } | Self::Protocol { .. } => false,
        }
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
        // A status that came from the broker has no cause on this side.
        match status.source() {
            Some(cause) if is_revoked(cause) => revoked(),
            None => ApiError::from_status(status).into(),
            Some(cause) => Self::Unreachable { address: address.clone(), reason: innermost_reason(cause) },
        }
    }

    pub(super) fn from_transport(error: &tonic::transport::Error, address: &Address) -> Self {
        if is_revoked(error) {
            return revoked();
        }
        Self::Unreachable { address: address.clone(), reason: innermost_reason(error) }
    }
}

/// Whether the broker refused our certificate because it was revoked: then it is of no use to try again.
fn is_revoked(error: &(dyn Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        // HTTP/2 keeps only the text of what rustls says.
        if error.to_string().contains("CertificateRevoked") {
            return true;
        }
        at = error.source();
    }
    false
}

fn revoked() -> ClientError {
    ApiError::revoked(explain::explain(&rustls::Error::AlertReceived(AlertDescription::CertificateRevoked)))
        .into()
}

const BROKER_CLOSED: &str = "the broker closed the connection";

fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such socket; is the broker running?".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens there; is the broker running?".into(),
        io::ErrorKind::PermissionDenied => {
            "this user may not use the socket; join the group of the broker's user".into()
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            BROKER_CLOSED.into()
        }
        _ => explain::explain_io(error).unwrap_or_else(|| error.to_string()),
    }
}

/// The innermost error of a chain says most. A TLS error on the way is put into words.
fn innermost_reason(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(error) = at.downcast_ref::<rustls::Error>() {
            return explain::explain(error);
        }
        if let Some(error) = at.downcast_ref::<io::Error>()
            && (error.get_ref().is_none() || explain::explain_io(error).is_some())
        {
            return io_reason(error);
        }
        match at.source() {
            Some(source) => at = source,
            // Of an error of TLS below it HTTP/2 keeps the text only, and rustls' is for programmers.
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
        // As TCP says it, and as HTTP/2 hands it on.
        for error in [io::Error::new(io::ErrorKind::UnexpectedEof, eof), io::Error::other(eof)] {
            assert_eq!(innermost_reason(&error), BROKER_CLOSED);
        }
        assert_eq!(innermost_reason(&io::Error::other("no route")), "no route");
    }
}
