//! The default ports of Mez.
//!
//! They are four consecutive ports that no common video or messaging server uses (1935, 1984, 4222, 5000, 7447, 7880, 8554, 8888 and 9997 are taken).

use std::fmt;

/// The link between camera brokers and an edge broker: UDP (QUIC), and TCP on the same number where UDP is blocked.
pub const LINK: u16 = 7650;

/// The edge broker's gRPC services for applications: TCP, TLS, both sides with certificates.
pub const GRPC: u16 = 7651;

/// Enrolment of new devices with a one-time token: TCP, TLS, only the server with a certificate.
pub const ENROL: u16 = 7652;

/// The edge's page, health and metrics: TCP, HTTP over TLS. Off by default. If on, the default address is loopback.
pub const WEB: u16 = 7653;

/// What the user can do if listening on an address fails. `option` is the command-line option for the address.
pub(crate) fn bind_remedy(error: &std::io::Error, option: &str) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    match error.kind() {
        AddrInUse => format!("is another broker running? Stop it, or choose another port with {option}"),
        AddrNotAvailable => {
            format!("this host does not have this address; choose an address of this host with {option}")
        }
        PermissionDenied => format!("ports below 1024 need root; choose a higher port with {option}"),
        _ => format!("choose another address with {option}"),
    }
}

/// Splits `HOST` or `HOST:PORT`. The host is a name, an IPv4 address or an IPv6 address,
/// which needs brackets if a port follows (`[::1]:7650`). `None` if the text is not valid.
pub fn host_and_port(text: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        // More than one colon without brackets: an IPv6 address without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|&port| port != 0)?,
        None => default_port,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

/// The address of an edge's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeAddress {
    /// The host name or address.
    pub host: String,
    /// The port, for UDP and TCP.
    pub port: u16,
}

impl EdgeAddress {
    /// Parses `HOST` or `HOST:PORT` like [`host_and_port`]. The default port is [`LINK`].
    pub fn parse(text: &str) -> Option<Self> {
        host_and_port(text, LINK).map(|(host, port)| Self { host: host.into(), port })
    }
}

impl fmt::Display for EdgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_depends_on_why_an_address_cannot_be_listened_on() {
        use std::net::{TcpListener, UdpSocket};
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let in_use = TcpListener::bind(taken.local_addr().unwrap()).unwrap_err();
        assert!(bind_remedy(&in_use, "--grpc").contains("another port with --grpc"));
        // An address for documentation, which no host has (RFC 5737).
        let foreign = UdpSocket::bind("192.0.2.1:0").unwrap_err();
        assert!(bind_remedy(&foreign, "--listen").contains("does not have this address"), "{foreign}");
    }

    #[test]
    fn hosts_and_ports_are_read_as_people_type_them() {
        for (text, expected) in [
            ("edge.local", Some(("edge.local", 7652))),
            ("edge.local:9000", Some(("edge.local", 9000))),
            ("10.0.0.7:9000", Some(("10.0.0.7", 9000))),
            ("::1", Some(("::1", 7652))),
            ("[::1]", Some(("::1", 7652))),
            ("[fe80::1%eth0]:9000", Some(("fe80::1%eth0", 9000))),
            ("", None),
            (":9000", None),
            ("edge:", None),
            ("edge:0", None),
            ("edge:70000", None),
            ("[::1", None),
            ("[::1]9000", None),
            ("https://edge", None),
            ("edge/x", None),
        ] {
            assert_eq!(host_and_port(text, ENROL), expected, "{text:?}");
        }
    }
}
