//! Addresses of ONVIF services.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use thiserror::Error;

use crate::source::spec::{SourceSpec, without_credentials};

/// The path of a camera's device service, unless another is given (ONVIF Core Specification, 5.10).
const DEVICE_PATH: &str = "/onvif/device_service";

/// Whether and where a network camera is asked for key frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnvifChoice {
    /// `http://HOST/onvif/device_service` of the host of an RTSP source. Other sources are not asked.
    #[default]
    Default,
    /// Never.
    Off,
    /// This service.
    At(ServiceAddress),
}

/// The address of a service, `http://HOST[:PORT]/PATH` or `https://…`. Holds no user name and no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    is_tls: bool,
    authority: Authority,
    path: PathAndQuery,
}

/// Why an address of a device service cannot be used. The messages never show a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OnvifAddressError {
    /// The text is not the address of a web service.
    #[error(
        "{text} is not the address of a device service; write http://HOST[:PORT]/PATH or https://…, without a query, or off"
    )]
    Form {
        /// What was given, without credentials.
        text: String,
    },
    /// The address holds a user name or a password.
    #[error(
        "the address of the device service of {text} holds credentials; leave them out, because the device service uses the credentials of the source"
    )]
    Credentials {
        /// What was given, without credentials.
        text: String,
    },
}

impl FromStr for OnvifChoice {
    type Err = OnvifAddressError;

    /// Parses `off`, or the address of a device service. A missing path becomes `/onvif/device_service`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text == "off" {
            return Ok(Self::Off);
        }
        let shown = || without_credentials(text);
        let form = || OnvifAddressError::Form { text: shown() };
        // An `@` in the path does not end credentials.
        let authority = text.split_once("://").map_or(text, |(_, rest)| rest).split(['/', '?']).next();
        if authority.is_some_and(|authority| authority.contains('@')) {
            return Err(OnvifAddressError::Credentials { text: shown() });
        }
        let uri: Uri = text.parse().map_err(|_| form())?;
        let mut address = ServiceAddress::of(&uri).ok_or_else(form)?;
        // A query might hold a secret, and settings are shown.
        if uri.query().is_some() {
            return Err(form());
        }
        if address.path == "/" {
            address.path = PathAndQuery::from_static(DEVICE_PATH);
        }
        Ok(Self::At(address))
    }
}

impl fmt::Display for OnvifChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl OnvifChoice {
    /// The device service of the camera that a source reads. `None`: the camera is not to be asked.
    pub(in crate::source) fn of(&self, source: &SourceSpec) -> Option<ServiceAddress> {
        let is_rtsp = source.scheme().is_some_and(|scheme| scheme.starts_with("rtsp"));
        match self {
            Self::At(address) if source.is_network() => Some(address.clone()),
            Self::Default if is_rtsp => ServiceAddress::of_host(source.host()?),
            Self::At(_) | Self::Off | Self::Default => None,
        }
    }
}

impl ServiceAddress {
    /// The default device service of a host.
    fn of_host(host: &str) -> Option<Self> {
        let path = PathAndQuery::from_static(DEVICE_PATH);
        Some(Self { is_tls: false, authority: host.parse().ok()?, path })
    }

    fn of(uri: &Uri) -> Option<Self> {
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty())?.clone();
        // `HOST:` and `HOST:99999` also parse as authorities.
        let rest = authority.as_str().strip_prefix(authority.host())?;
        if !rest.is_empty() && authority.port_u16().is_none() {
            return None;
        }
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(Self { is_tls, authority, path })
    }

    /// Another service of the same camera, at the address that the camera states. Only the path is taken, and the port if the stated host is
    /// the same. Cameras behind a router state addresses that are not valid here, and a camera must not choose another host for requests.
    pub(super) fn sibling(&self, stated: &str) -> Option<Self> {
        let stated = Self::of(&stated.trim().parse().ok()?)?;
        let is_same = stated.host() == self.host() && stated.is_tls == self.is_tls;
        let authority = if is_same { stated.authority } else { self.authority.clone() };
        Some(Self { is_tls: self.is_tls, authority, path: stated.path })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host as it is dialled and as a certificate names it: IPv6 addresses without brackets.
    pub(super) fn host(&self) -> &str {
        let host = self.authority.host();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(super) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 })
    }

    /// Host and port, as in the header `Host`.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Path and query, as in the request line.
    pub(super) fn path(&self) -> &str {
        self.path.as_str()
    }
}

/// Leaves out the query, which might hold a secret.
impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(choice: &str, source: &str) -> Option<String> {
        let choice = if choice.is_empty() { OnvifChoice::Default } else { choice.parse().unwrap() };
        choice.of(&SourceSpec::parse(source).unwrap()).map(|address| address.to_string())
    }

    #[test]
    fn the_device_service_is_on_the_host_of_the_source() {
        for (choice, source, expected) in [
            ("", "rtsp://bob:secret@cam:554/x", Some("http://cam/onvif/device_service")),
            ("", "rtsps://10.0.0.7/x?a=b", Some("http://10.0.0.7/onvif/device_service")),
            ("", "rtsp://[fe80::1]:8554/x", Some("http://[fe80::1]/onvif/device_service")),
            ("", "http://cam/video.mjpeg", None),
            ("", "x.mp4", None),
            ("off", "rtsp://cam/x", None),
            ("https://cam:8443", "rtsp://cam/x", Some("https://cam:8443/onvif/device_service")),
            ("http://cam/x/y", "rtsp://cam/x", Some("http://cam/x/y")),
            ("http://cam/x/y", "/dev/video0", None),
        ] {
            assert_eq!(service(choice, source).as_deref(), expected, "{choice} {source}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_showing_a_password() {
        for text in [
            "",
            "cam",
            "rtsp://cam/x",
            "http://",
            "http://cam:x/",
            "http://cam:99999/",
            "http://cam /",
            "http://cam/x?token=secret",
        ] {
            let refused = text.parse::<OnvifChoice>().unwrap_err();
            assert!(matches!(refused, OnvifAddressError::Form { .. }), "{text}: {refused}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
        let refused = "http://bob:secret@cam/".parse::<OnvifChoice>().unwrap_err().to_string();
        assert!(refused.contains("leave them out") && !refused.contains("secret"), "{refused}");
    }

    /// Whatever a camera states, requests go to the host that the user named, and never without TLS if the user asked for TLS.
    #[test]
    fn a_camera_names_paths_and_no_other_host() {
        let OnvifChoice::At(device) = "http://cam:8000/onvif/device_service".parse().unwrap() else {
            panic!()
        };
        for (stated, expected) in [
            ("http://cam:8000/onvif/media", Some("http://cam:8000/onvif/media")),
            ("http://cam:8899/media", Some("http://cam:8899/media")),
            ("http://192.168.1.64/onvif/Media2", Some("http://cam:8000/onvif/Media2")),
            ("https://cam/media", Some("http://cam:8000/media")),
            ("ftp://cam/media", None),
            ("/media", None),
            ("http://cam/ media", None),
        ] {
            assert_eq!(
                device.sibling(stated).map(|found| found.to_string()).as_deref(),
                expected,
                "{stated}"
            );
        }
        let OnvifChoice::At(device) = "https://cam".parse().unwrap() else { panic!() };
        assert_eq!(device.sibling("http://cam/media").unwrap().to_string(), "https://cam/media");
    }
}
