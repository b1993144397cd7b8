//! Says which connections count as coming from one address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The origin of a connection, for counting: an IPv4 address, or the /64 network of an IPv6
/// address. One subscriber gets at least a /64 (RFC 7421), and can use all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u128);

/// The low bits of an IPv6 address that identify a host within its /64 network (RFC 4291, section 2.5.1).
/// They do not count.
const HOST_BITS: u32 = 64;

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
            IpAddr::V6(v6) => Self(v6.to_bits() >> HOST_BITS << HOST_BITS),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v6 = Ipv6Addr::from_bits(self.0);
        match v6.to_ipv4_mapped() {
            Some(v4) => v4.fmt(f),
            None => write!(f, "{v6}/{HOST_BITS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_address_is_one_of_ipv4_or_a_network_of_ipv6() {
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
        // A socket for both families sees IPv4 addresses in this form.
        assert_eq!(address("10.0.0.1"), address("::ffff:10.0.0.1"));
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::7"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("10.0.0.1").to_string(), "10.0.0.1");
        assert_eq!(address("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }
}
