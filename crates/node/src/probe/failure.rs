//! Obstacles between this host and an edge, in kinds with different remedies.

use std::fmt;
use std::io;

use quinn::ConnectionError;
use rustls::{AlertDescription, CertificateError, Error};

use crate::identity::explain::{explain, explain_quic};

/// The kind of an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The name has no address.
    Name,
    /// The host answers, but nothing listens at the port.
    Refused,
    /// There is no route to the network or the host.
    NoRoute,
    /// There is no answer.
    Silent,
    /// The answer is not from an edge of Mez.
    Stranger,
    /// The edge has another version.
    Version,
    /// The two sides do not belong to the same site.
    Site,
    /// The other side's certificate is not valid by the clock of one side.
    Clock,
    /// The edge does not accept this identity.
    Identity,
    /// The edge refuses this host's certificate, because it was revoked.
    Revoked,
    /// A problem on this host.
    Own,
}

/// Why an edge was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// The kind of the obstacle.
    pub obstacle: Obstacle,
    /// A description.
    pub text: String,
}

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ProbeFailure {}

impl ProbeFailure {
    pub(crate) fn new(obstacle: Obstacle, text: impl Into<String>) -> Self {
        Self { obstacle, text: text.into() }
    }

    /// An error on this host, before anything was sent.
    pub(crate) fn own(error: impl fmt::Display) -> Self {
        Self::new(Obstacle::Own, error.to_string())
    }

    /// An error of making a connection.
    pub(crate) fn connecting(error: &io::Error) -> Self {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
        match error.kind() {
            ConnectionRefused => Self::new(Obstacle::Refused, "nothing listens there"),
            HostUnreachable | NetworkUnreachable => {
                Self::new(Obstacle::NoRoute, format!("there is no route to it ({error})"))
            }
            TimedOut => Self::new(Obstacle::Silent, "it does not respond"),
            _ => Self::new(Obstacle::Own, error.to_string()),
        }
    }

    /// An error of TLS after a connection was made.
    pub(crate) fn securing(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Self::new(obstacle_of(error), explain(error)),
            None => Self::new(Obstacle::Stranger, format!("it closed the connection ({error})")),
        }
    }

    /// An error of QUIC.
    pub(crate) fn quic(error: &ConnectionError) -> Self {
        let alert = |code: quinn::TransportErrorCode| match u64::from(code) {
            code @ 0x100..0x200 => Some(AlertDescription::from((code & 0xff) as u8)),
            _ => None,
        };
        let text = explain_quic(error).unwrap_or_else(|| error.to_string());
        let obstacle = match error {
            ConnectionError::TimedOut => Obstacle::Silent,
            ConnectionError::TransportError(error) => {
                alert(error.code).map_or(Obstacle::Stranger, obstacle_of_alert)
            }
            ConnectionError::ConnectionClosed(close) => {
                alert(close.error_code).map_or(Obstacle::Stranger, obstacle_of_alert)
            }
            ConnectionError::VersionMismatch => Obstacle::Version,
            _ => Obstacle::Stranger,
        };
        Self::new(obstacle, text)
    }
}

fn obstacle_of(error: &Error) -> Obstacle {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        UnknownIssuer,
    };
    match error {
        Error::AlertReceived(alert) => obstacle_of_alert(*alert),
        Error::NoApplicationProtocol => Obstacle::Version,
        Error::InvalidCertificate(error) => match error {
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => Obstacle::Clock,
            UnknownIssuer => Obstacle::Site,
            NotValidForName | NotValidForNameContext { .. } => Obstacle::Stranger,
            _ => Obstacle::Site,
        },
        _ => Obstacle::Stranger,
    }
}

/// The obstacle of an alert from the other side, or of one that this side sent over QUIC.
fn obstacle_of_alert(alert: AlertDescription) -> Obstacle {
    match alert {
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError => Obstacle::Site,
        AlertDescription::CertificateExpired => Obstacle::Clock,
        AlertDescription::NoApplicationProtocol => Obstacle::Version,
        AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRequired
        | AlertDescription::AccessDenied => Obstacle::Identity,
        AlertDescription::CertificateRevoked => Obstacle::Revoked,
        _ => Obstacle::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_told_apart() {
        let tls = |error: Error| ProbeFailure::securing(&io::Error::other(error)).obstacle;
        assert_eq!(tls(Error::InvalidCertificate(CertificateError::UnknownIssuer)), Obstacle::Site);
        assert_eq!(tls(Error::InvalidCertificate(CertificateError::NotValidYet)), Obstacle::Clock);
        assert_eq!(tls(Error::AlertReceived(AlertDescription::CertificateExpired)), Obstacle::Clock);
        assert_eq!(tls(Error::AlertReceived(AlertDescription::CertificateUnknown)), Obstacle::Identity);
        assert_eq!(tls(Error::AlertReceived(AlertDescription::CertificateRevoked)), Obstacle::Revoked);
        assert_eq!(tls(Error::AlertReceived(AlertDescription::NoApplicationProtocol)), Obstacle::Version);
        assert_eq!(
            tls(Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)),
            Obstacle::Stranger
        );
        let io = |kind: io::ErrorKind| ProbeFailure::connecting(&kind.into()).obstacle;
        assert_eq!(io(io::ErrorKind::ConnectionRefused), Obstacle::Refused);
        assert_eq!(io(io::ErrorKind::HostUnreachable), Obstacle::NoRoute);
        assert_eq!(ProbeFailure::quic(&ConnectionError::TimedOut).obstacle, Obstacle::Silent);
    }
}
