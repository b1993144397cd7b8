//! The address of a broker.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::api::socket::{self, Which};
use crate::ports;

/// Where a program finds a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// On this host, through a Unix socket. The permissions of the file control access.
    Unix(PathBuf),
    /// Over TCP with TLS. A certificate of the site controls access.
    Tcp {
        /// A host name or an IP address.
        host: String,
        /// The port. Default [`ports::GRPC`].
        port: u16,
    },
}

impl Address {
    /// Parses an address: `unix:///run/mez/edge.sock`, `unix:` for the socket at its usual place, `edge.local`, `10.0.0.7:7651`, `[::1]:7651`.
    pub fn parse(text: &str, which: Which) -> Result<Self, AddressError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Ok(Self::Unix(if path.is_empty() { socket::find(which) } else { path.into() }));
        }
        let (host, port) =
            ports::host_and_port(text, ports::GRPC).ok_or_else(|| AddressError { text: text.into() })?;
        Ok(Self::Tcp { host: host.into(), port })
    }

    /// The socket at its usual place on this host.
    pub fn local(which: Which) -> Self {
        Self::Unix(socket::find(which))
    }

    /// The path, if it is a Unix socket.
    pub fn as_unix(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp { .. } => None,
        }
    }
}

impl fmt::Display for Address {
    /// Prints the address as [`Address::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a broker's address; write HOST, HOST:PORT, or unix:///PATH")]
pub struct AddressError {
    /// The text that was refused.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_type_them() {
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        for (text, expected) in [
            ("unix:///run/mez/edge.sock", Address::Unix("/run/mez/edge.sock".into())),
            ("unix:edge.sock", Address::Unix("edge.sock".into())),
            ("edge.local", tcp("edge.local", ports::GRPC)),
            (" 10.0.0.7:9000 ", tcp("10.0.0.7", 9000)),
            ("[::1]:9000", tcp("::1", 9000)),
        ] {
            let address = Address::parse(text, Which::Edge).unwrap();
            assert_eq!(address, expected, "{text:?}");
            assert_eq!(Address::parse(&address.to_string(), Which::Edge), Ok(address));
        }
        for bad in ["", "edge:port", "http://edge", "a b"] {
            assert!(Address::parse(bad, Which::Edge).is_err(), "{bad:?} was accepted");
        }
    }
}
