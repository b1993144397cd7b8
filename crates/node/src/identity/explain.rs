//! Explains failed TLS handshakes: what happened, and what to do.
//!
//! The side whose certificate is refused gets only a number, in a TLS alert. These functions
//! turn this number, or the error on the refusing side, into a sentence that names the remedy.

use std::io;
use std::time::SystemTime;

use rustls::{AlertDescription, CertificateError, Error, ExtendedKeyPurpose, PeerIncompatible};

use super::certificate::Moment;

/// Explains a TLS error over TCP: our own error, or an alert from the other side.
pub fn explain(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::NoCertificatesPresented => {
            "the other side presented no certificate; it must join the site with `mez keys enrol`".into()
        }
        Error::NoApplicationProtocol => {
            "the other side speaks another protocol, or another version of Mez; update the older one".into()
        }
        Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)
        | Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig)
        | Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic)
        | Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired)
        | Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled) => {
            "the other side does not offer TLS 1.3, the only version that Mez accepts".into()
        }
        Error::InvalidMessage(_) => {
            format!("the other side does not speak TLS; is this the right port? ({error})")
        }
        other => format!("TLS failed: {other}"),
    }
}

/// Explains a QUIC error. `None` if the error is not from TLS.
pub fn explain_quic(error: &quinn::ConnectionError) -> Option<String> {
    use quinn::ConnectionError::{ConnectionClosed, TransportError};
    let alert = |code: quinn::TransportErrorCode| match u64::from(code) {
        code @ 0x100..0x200 => Some(AlertDescription::from((code & 0xff) as u8)),
        _ => None,
    };
    match error {
        // We refused. The reason is the text of our own TLS error.
        TransportError(error) => alert(error.code).map(|alert| explain_own_alert(alert, &error.reason)),
        // We were refused. The reason comes from the other side, so it is quoted.
        ConnectionClosed(close) => alert(close.error_code).map(|alert| {
            let reason = String::from_utf8_lossy(&close.reason);
            match verified_at(&reason) {
                Some(Verified { at, limit, has_expired }) => format!(
                    "{}; its clock says {at}, and our certificate {} {limit}",
                    explain_alert(alert),
                    if has_expired { "expired at" } else { "is valid only from" }
                ),
                None if reason.is_empty() => explain_alert(alert),
                None => format!("{} (it says: {:?})", explain_alert(alert), inner_reason(&reason)),
            }
        }),
        _ => None,
    }
}

/// The alert in a text that rustls wrote.
pub fn alert_in(text: &str) -> Option<AlertDescription> {
    let (_, rest) = text.split_once("received fatal alert: ")?;
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    (0..=u8::MAX).map(AlertDescription::from).find(|alert| format!("{alert:?}") == name)
}

/// Explains an I/O error that contains a TLS error, as tokio-rustls returns it.
pub fn explain_io(error: &io::Error) -> Option<String> {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        // The text of rustls is for programmers.
        return Some("the other side closed the connection".into());
    }
    error.get_ref()?.downcast_ref::<Error>().map(explain)
}

/// Explains our own TLS error over QUIC. QUIC keeps only the alert that was sent, and a text.
fn explain_own_alert(alert: AlertDescription, reason: &str) -> String {
    match alert {
        AlertDescription::UnknownCA => explain_certificate(&CertificateError::UnknownIssuer),
        AlertDescription::CertificateRequired => explain(&Error::NoCertificatesPresented),
        AlertDescription::NoApplicationProtocol => explain(&Error::NoApplicationProtocol),
        AlertDescription::CertificateRevoked => explain_certificate(&CertificateError::Revoked),
        AlertDescription::CertificateExpired => match verified_at(reason) {
            Some(Verified { at, limit, has_expired: true }) => expired(limit, at),
            Some(Verified { at, limit, has_expired: false }) => not_valid_yet(limit, at),
            None => explain_certificate(&CertificateError::Expired),
        },
        // The text is from rustls. Of the two purposes it names the missing one first.
        AlertDescription::UnsupportedCertificate => {
            let clients = reason.contains("for client authentication");
            explain_purpose(if clients {
                &ExtendedKeyPurpose::ClientAuth
            } else {
                &ExtendedKeyPurpose::ServerAuth
            })
        }
        AlertDescription::BadCertificate if reason.contains("not valid for name") => {
            format!("the other side is not an edge of this site ({reason})")
        }
        _ => inner_reason(reason).to_owned(),
    }
}

fn explain_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the other side requires a certificate, and none was presented; join the site with `mez keys enrol`".into()
        }
        AlertDescription::CertificateExpired => format!(
            "the other side refused our certificate: by its clock, our certificate has expired or is not valid yet; this host's clock says {}: \
             compare the clocks, and if the certificate has expired, make a token (`mez keys token`) and enrol again with `mez keys enrol` (see \
             `mez keys list`)",
            Moment(SystemTime::now())
        ),
        AlertDescription::UnknownCA => {
            "the other side does not know the authority of our certificate: it belongs to another site, or its site was created again; compare the \
             authorities with `mez keys show` on both hosts"
                .into()
        }
        AlertDescription::CertificateRevoked => {
            "the other side refused our certificate: it was revoked; to join the site again, enrol with a new token from whoever runs \
             the site (`mez keys revoked` on the edge's host says why it was revoked)"
                .into()
        }
        AlertDescription::AccessDenied => {
            "the other side no longer accepts our certificate; ask the person who runs the site".into()
        }
        AlertDescription::CertificateUnknown => {
            "the other side does not accept our identity there: its site's authority must have given it, and it must be a camera's to dial the \
             link and an application's to subscribe (see `mez keys list`)"
                .into()
        }
        AlertDescription::UnsupportedCertificate => {
            "the other side refused our certificate: it is not meant for our side of a connection (cameras and applications are clients, edges are \
             servers); enrol again with `mez keys enrol`"
                .into()
        }
        AlertDescription::BadCertificate | AlertDescription::DecryptError => {
            format!("the other side cannot verify our certificate ({alert:?}); enrol again with `mez keys enrol`")
        }
        AlertDescription::NoApplicationProtocol => {
            "the other side speaks another protocol, or another version of Mez; update the older one".into()
        }
        AlertDescription::ProtocolVersion => {
            "the other side does not offer TLS 1.3, the only version that Mez accepts".into()
        }
        other => format!("the other side broke off TLS ({other:?})"),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    let clock = |now: &rustls::pki_types::UnixTime| moment(now.as_secs());
    match error {
        CertificateError::ExpiredContext { time, not_after } => {
            expired(moment(not_after.as_secs()), clock(time))
        }
        CertificateError::Expired => {
            "the certificate of the other side has expired by this host's clock; it must enrol again with `mez keys enrol`, unless the clock is wrong"
                .into()
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            not_valid_yet(moment(not_before.as_secs()), clock(time))
        }
        CertificateError::UnknownIssuer => {
            "the certificate of the other side comes from an authority that this host does not know: it belongs to another site, or the site was \
             created again; compare the authorities with `mez keys show` on both hosts"
                .into()
        }
        CertificateError::NotValidForNameContext { .. } => {
            format!("the other side is not an edge of this site ({error})")
        }
        CertificateError::InvalidPurposeContext { required, .. } => explain_purpose(required),
        CertificateError::Revoked => {
            "the certificate of the other side was revoked (`mez keys revoked` shows the deny list)".into()
        }
        CertificateError::Other(reason) => reason.to_string(),
        other => format!("the certificate of the other side cannot be verified ({other})"),
    }
}

/// The message for a certificate of the other side that lacks the required purpose.
fn explain_purpose(required: &ExtendedKeyPurpose) -> String {
    match required {
        ExtendedKeyPurpose::ClientAuth => {
            "the certificate of the other side is not meant for clients, as certificates of cameras and applications are; it must enrol again with \
             `mez keys enrol`"
                .into()
        }
        _ => "the certificate of the other side is not meant for servers, so the other side is not an edge of this site".into(),
    }
}

fn expired(limit: Moment, now: Moment) -> String {
    format!(
        "the certificate of the other side expired at {limit}, and this host's clock says {now}; it must enrol again with `mez keys enrol`, unless \
         the clock is wrong"
    )
}

fn not_valid_yet(limit: Moment, now: Moment) -> String {
    format!(
        "the certificate of the other side is valid only from {limit}, and this host's clock says {now}; set the clock"
    )
}

/// When a certificate was verified, and which limit of its validity was exceeded.
#[derive(Debug, PartialEq, Eq)]
struct Verified {
    /// The clock of the verifying side.
    at: Moment,
    limit: Moment,
    /// Whether the limit is the end of the validity, not the beginning.
    has_expired: bool,
}

/// Reads a [`Verified`] from the text of rustls' error: QUIC keeps only the text.
fn verified_at(reason: &str) -> Option<Verified> {
    let seconds = |rest: &str| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
        digits.parse().ok().map(moment)
    };
    let (_, rest) = reason.split_once("verification time ")?;
    let (limit, has_expired) = match rest.split_once("is not valid after ") {
        Some((_, limit)) => (limit, true),
        None => (rest.split_once("is not valid before ")?.1, false),
    };
    Some(Verified { at: seconds(rest)?, limit: seconds(limit)?, has_expired })
}

/// Our own sentence, without the text that rustls adds around it.
fn inner_reason(text: &str) -> &str {
    let inner = text.strip_prefix("invalid peer certificate: Other(OtherError(");
    inner.and_then(|inner| inner.strip_suffix("))")).unwrap_or(text)
}

fn moment(unix_seconds: u64) -> Moment {
    let since = std::time::Duration::from_secs(unix_seconds);
    Moment(std::time::UNIX_EPOCH.checked_add(since).unwrap_or(std::time::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn the_clock_of_whoever_refused_is_read_out_of_its_reason() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (time, limit) = (at(1_800_000_000), at(1_790_000_000));
        for (error, has_expired) in [
            (CertificateError::ExpiredContext { time, not_after: limit }, true),
            (CertificateError::NotValidYetContext { time, not_before: limit }, false),
        ] {
            let reason = Error::InvalidCertificate(error).to_string();
            let (at, limit) = (moment(1_800_000_000), moment(1_790_000_000));
            assert_eq!(verified_at(&reason), Some(Verified { at, limit, has_expired }), "{reason}");
        }
        for other in ["", "verification time", "verification time x is not valid after 5", "invalid"] {
            assert_eq!(verified_at(other), None, "{other}");
        }
    }
}
