//! Announces an edge on the local network, and finds edges there: multicast DNS and DNS service discovery (RFC 6762, RFC 6763).
//!
//! Adverts prove nothing: anyone on the network can announce anything. So a program that looks for an edge requires each one
//! to prove by its certificate that it is an edge of the same site, and ignores all others. Decision 71 has the reasons.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `advert.rs` | what is announced about an edge, and its form as DNS records |
//! | `announce.rs` | announces an edge while it runs |
//! | `find.rs` | finds edges, and lets them prove their identity |
//! | `prove.rs` | one such proof |
//! | `choose.rs` | chooses the edge of a program for which none is configured, or explains what to configure |

mod advert;
mod announce;
mod choose;
mod find;
mod prove;

use std::time::Duration;

use mdns_sd::{IfKind, MDNS_PORT, ServiceDaemon};

pub use self::advert::Advert;
pub use self::announce::{AnnounceError, Announcer};
pub use self::choose::{
    FindError, edge_for_application, edge_for_camera, enrolment_on, is_of_edge, is_served, one,
};
pub use self::find::{Findings, Found, Patience, Refused, find};

/// The service type of an edge. The service's port is that of the link; its text contains the other ports.
pub const SERVICE: &str = "_mez._tcp.local.";

/// How long to wait for answers of edges.
pub const LOOK_TIME: Duration = Duration::from_secs(2);

/// The networks on which edges are announced and searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    port: u16,
    is_loopback: bool,
}

impl Network {
    /// All networks of this host except loopback, at the port of multicast DNS.
    pub const LOCAL: Self = Self { port: MDNS_PORT, is_loopback: false };

    /// Only loopback, for tests. At a port other than 5353, an answer goes to only one of the listeners there.
    pub fn loopback(port: u16) -> Self {
        Self { port, is_loopback: true }
    }

    /// Whether this is only loopback.
    pub fn is_loopback(self) -> bool {
        self.is_loopback
    }

    fn daemon(self) -> mdns_sd::Result<ServiceDaemon> {
        let daemon = ServiceDaemon::new_with_port(self.port)?;
        if self.is_loopback {
            daemon.disable_interface(IfKind::All)?;
            daemon.enable_interface(IfKind::LoopbackV4)?;
        } else {
            daemon.disable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
        }
        Ok(daemon)
    }
}
