//! What is announced about an edge: its site, its name, its addresses and ports.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use mdns_sd::{ResolvedService, ServiceInfo};

use super::{Network, SERVICE};
use crate::identity::{Identity, Name, SiteName};

/// The version of the text. Adverts of other versions are ignored.
const VERSION: &str = "1";
/// The most addresses of an edge to try.
const ADDRESSES_MAX: usize = 8;
/// The most bytes of a label of a DNS name (RFC 1035).
const LABEL_BYTES_MAX: usize = 63;

/// What is announced about an edge. None of it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The announced site.
    pub site: SiteName,
    /// The announced name within the site.
    pub edge: Name,
    /// The addresses, IPv4 first. When announcing, an empty list stands for all addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// The port of the link: UDP and TCP.
    pub link: u16,
    /// The port for applications, if other hosts can use it.
    pub grpc: Option<u16>,
    /// The port of enrolment, if the edge enrols devices.
    pub enrol: Option<u16>,
    /// The port of the page, if other hosts can reach it.
    pub web: Option<u16>,
}

impl Advert {
    /// The advert of an edge with these ports. Ports that other hosts cannot reach are left out.
    pub fn of(
        identity: &Identity,
        network: Network,
        link: SocketAddr,
        [grpc, enrol, web]: [Option<SocketAddr>; 3],
    ) -> Self {
        let reached = |address: Option<SocketAddr>| {
            let address = address.filter(|address| network.is_loopback() || !is_loopback(address.ip()));
            address.map(|address| address.port())
        };
        let ip = link.ip().to_canonical();
        Self {
            site: identity.site.clone(),
            edge: identity.name.clone(),
            addresses: if ip.is_unspecified() { Vec::new() } else { vec![ip] },
            link: link.port(),
            grpc: reached(grpc),
            enrol: reached(enrol),
            web: reached(web),
        }
    }

    /// The URL of the edge's page at `host`.
    pub fn page(&self, host: IpAddr) -> Option<String> {
        self.web.map(|port| format!("https://{}", SocketAddr::new(host, port)))
    }

    /// The advert as a DNS service. Without addresses, the service has those of the host, and follows their changes.
    pub(super) fn to_service(&self) -> mdns_sd::Result<ServiceInfo> {
        let instance = shortened(format!("{} of {}", self.edge, self.site).replace('.', "-"));
        let host = format!("{}.local.", host_label(&self.edge, &self.site));
        let ports = [("grpc", self.grpc), ("enrol", self.enrol), ("web", self.web)];
        let mut text = vec![
            ("txtvers".to_owned(), VERSION.to_owned()),
            ("site".to_owned(), self.site.to_string()),
            ("edge".to_owned(), self.edge.to_string()),
        ];
        text.extend(ports.iter().filter_map(|(key, port)| Some(((*key).to_owned(), (*port)?.to_string()))));
        let service = ServiceInfo::new(SERVICE, &instance, &host, &self.addresses[..], self.link, &text[..])?;
        Ok(if self.addresses.is_empty() { service.enable_addr_auto() } else { service })
    }

    /// Decodes a received service. `None` if this version does not understand it.
    pub(super) fn read(service: &ResolvedService, network: Network) -> Option<Self> {
        let text = |key| service.get_property_val_str(key);
        let port = |key| text(key)?.parse::<u16>().ok().filter(|port| *port != 0);
        if text("txtvers") != Some(VERSION) || service.get_port() == 0 {
            return None;
        }
        let mut addresses: Vec<IpAddr> = service.get_addresses().iter().map(|ip| ip.to_ip_addr()).collect();
        // Loopback and unspecific addresses are not addresses of an edge on the network.
        addresses.retain(|ip| is_dialled(*ip) && is_loopback(*ip) == network.is_loopback());
        addresses.sort_by_key(|ip| (ip.is_ipv6(), *ip));
        addresses.truncate(ADDRESSES_MAX);
        let advert = Self {
            site: text("site")?.parse().ok()?,
            edge: text("edge")?.parse().ok()?,
            addresses,
            link: service.get_port(),
            grpc: port("grpc"),
            enrol: port("enrol"),
            web: port("web"),
        };
        (!advert.addresses.is_empty()).then_some(advert)
    }
}

impl fmt::Display for Advert {
    /// `hall at 10.0.0.7`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.edge.as_str())?;
        self.addresses.first().map_or(Ok(()), |address| write!(f, " at {address}"))
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether an address alone can be dialled. IPv6 link-local addresses also need an interface name, which differs between hosts.
fn is_dialled(ip: IpAddr) -> bool {
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_unspecified() && !ip.is_multicast() && !is_link_local
}

/// The label of the DNS host name. Not the host's own name, which another service of the host may already announce.
fn host_label(edge: &Name, site: &SiteName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = format!("mez-{edge}-{site}").chars().map(plain).take(LABEL_BYTES_MAX - 4).collect();
    label.trim_end_matches('-').to_owned()
}

/// Shortens an ASCII label, so that a number can be appended in case of a conflict.
fn shortened(mut label: String) -> String {
    label.truncate(LABEL_BYTES_MAX - 6);
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advert() -> Advert {
        Advert {
            site: "harbour".parse().unwrap(),
            edge: "hall/2".parse().unwrap(),
            addresses: vec!["10.0.0.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            link: 7650,
            grpc: Some(7651),
            enrol: None,
            web: Some(7653),
        }
    }

    fn received(text: &[(&str, &str)], addresses: &str, port: u16) -> Option<Advert> {
        let service = ServiceInfo::new(SERVICE, "x", "x.local.", addresses, port, text).unwrap();
        Advert::read(&service.as_resolved_service(), Network::LOCAL)
    }

    #[test]
    fn what_is_told_of_an_edge_is_read_as_it_was_written() {
        let advert = advert();
        let service = advert.to_service().unwrap();
        assert_eq!(service.get_fullname(), "hall/2 of harbour._mez._tcp.local.");
        assert_eq!(service.get_hostname(), "mez-hall-2-harbour.local.");
        assert_eq!(Advert::read(&service.as_resolved_service(), Network::LOCAL), Some(advert.clone()));
        assert_eq!(advert.to_string(), "hall/2 at 10.0.0.7");
        assert_eq!(advert.page(advert.addresses[1]).as_deref(), Some("https://[2001:db8::7]:7653"));
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        let good = [("txtvers", "1"), ("site", "harbour"), ("edge", "hall")];
        assert!(received(&good, "10.0.0.7", 7650).is_some());
        for (text, addresses, port) in [
            (&good[1..], "10.0.0.7", 7650),
            (&[("txtvers", "2"), good[1], good[2]], "10.0.0.7", 7650),
            (&[good[0], ("site", "Harbour\u{1b}[2J"), good[2]], "10.0.0.7", 7650),
            (&[good[0], good[1], ("edge", "../hall")], "10.0.0.7", 7650),
            (&[good[0], good[1]], "10.0.0.7", 7650),
            (&good, "10.0.0.7", 0),
            (&good, "127.0.0.1", 7650),
            (&good, "0.0.0.0", 7650),
            (&good, "224.0.0.251", 7650),
            (&good, "fe80::1", 7650),
        ] {
            assert_eq!(received(text, addresses, port), None, "{text:?} {addresses} {port}");
        }
        let odd = received(&[good[0], good[1], good[2], ("grpc", "0"), ("web", "70000")], "10.0.0.7", 1);
        assert_eq!(odd.map(|advert| (advert.grpc, advert.web)), Some((None, None)));
    }

    #[test]
    fn long_names_fit_into_labels() {
        let (site, edge) = ("s".repeat(64).parse().unwrap(), "e".repeat(64).parse().unwrap());
        let advert = Advert { site, edge, ..advert() };
        let service = advert.to_service().unwrap();
        let longest = |name: &str| name.split('.').map(str::len).max().unwrap();
        assert!(longest(service.get_fullname()) <= 63 && longest(service.get_hostname()) <= 63);
        assert_eq!(Advert::read(&service.as_resolved_service(), Network::LOCAL), Some(advert));
    }

    #[test]
    fn ports_that_others_cannot_reach_are_not_told() {
        let identity = Identity::parse_within(&"harbour".parse().unwrap(), "edge/hall").unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        let ports = [at("0.0.0.0:7651"), None, at("127.0.0.1:7653")];
        let advert = Advert::of(&identity, Network::LOCAL, "[::]:7650".parse().unwrap(), ports);
        assert_eq!((advert.grpc, advert.enrol, advert.web), (Some(7651), None, None));
        assert!(advert.addresses.is_empty());
        let one = Advert::of(&identity, Network::LOCAL, "10.0.0.7:7650".parse().unwrap(), ports);
        assert_eq!(one.addresses, ["10.0.0.7".parse::<IpAddr>().unwrap()]);
    }
}
