//! Announces an edge on the local network, and finds edges there: multicast DNS and DNS service discovery (RFC 6762, RFC 6763).
//!
//! What is announced proves nothing: anybody on the network can announce anything. So whoever looks for an edge has each one prove by its
//! certificate that it is an edge of the same site, and takes no other. The reasons are in decision 71.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `advert.rs` | what is told of an edge, and how it is written into DNS records |
//! | `announce.rs` | tells it, as long as the edge runs |
//! | `find.rs` | looks for edges, and has them prove who they are |
//! | `prove.rs` | one such proof |
//! | `choose.rs` | the one edge that a program takes that was told of none, or what to write |

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

/// The type of service of an edge. Its port is that of the link; the other ports stand in its text.
pub const SERVICE: &str = "_mez._tcp.local.";

/// How long edges have to answer.
pub const LOOK_TIME: Duration = Duration::from_secs(2);

/// Where edges are announced and looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    port: u16,
    is_loopback: bool,
}

impl Network {
    /// All networks that this host is in, by the port of multicast DNS. Loopback is none of them.
    pub const LOCAL: Self = Self { port: MDNS_PORT, is_loopback: false };

    /// Loopback alone, for tests. At another port than 5353 a question is answered to one of those that listen there, and not to all.
    pub fn loopback(port: u16) -> Self {
        Self { port, is_loopback: true }
    }

    /// Whether this is loopback alone.
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
