//! Requires an edge to prove its identity by its certificate.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::timeout;

use super::Advert;
use crate::identity::tls::{grpc_client_config, link_client_config};
use crate::identity::{Credentials, Identity, Role, peer_identity};
use crate::probe::{connect_tcp, secure};

/// The longest time per address.
const PROOF_TIME_MAX: Duration = Duration::from_millis(1500);

/// The port that an identity uses: the link for cameras, the port for applications for all others.
pub(super) fn port_for(role: Role, advert: &Advert) -> Option<u16> {
    match role {
        Role::Camera => Some(advert.link),
        Role::Edge | Role::App => advert.grpc,
    }
}

/// Connects to the announced addresses. Returns the first one at which the edge
/// proves its identity, and this identity. The error is a clause about the edge.
pub(super) async fn prove(advert: &Advert, credentials: &Credentials) -> Result<(IpAddr, Identity), String> {
    let own = &credentials.identity().site;
    if advert.site != *own {
        return Err(format!("belongs to the site {}, but this host belongs to {own}", advert.site));
    }
    let role = credentials.identity().role;
    let Some(port) = port_for(role, advert) else {
        return Err(
            "does not accept applications from other hosts (its gRPC port is off, or on loopback)".into()
        );
    };
    let mut why = String::new();
    for address in &advert.addresses {
        let shown = async {
            let config = match role {
                Role::Camera => link_client_config(credentials),
                Role::Edge | Role::App => grpc_client_config(credentials),
            };
            let config = config.map_err(|error| error.to_string())?;
            let stream = connect_tcp(&[SocketAddr::new(*address, port)]).await;
            let stream = secure(stream.map_err(|error| error.text)?, config).await;
            let stream = stream.map_err(|error| error.text)?;
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            peer_identity(certificates, own).map_err(|error| error.to_string())
        };
        let shown = timeout(PROOF_TIME_MAX, shown).await;
        why = match shown.unwrap_or_else(|_| Err(format!("no answer within {PROOF_TIME_MAX:?}"))) {
            Ok(identity) if identity.role == Role::Edge => return Ok((*address, identity)),
            Ok(identity) => format!("it is {}, not an edge", identity.short()),
            Err(why) => why,
        };
    }
    Err(format!("does not prove that it is an edge of {own}: {why}"))
}
