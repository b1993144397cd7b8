//! Chooses the edge of a program for which none is configured.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::find::{Findings, Found, Patience, Refused, find};
use super::prove::port_for;
use super::{LOOK_TIME, Network};
use crate::client::Address;
use crate::identity::{Credentials, KeyFolder, Role, SiteName};
use crate::ports::{self, EdgeAddress};

/// Why there is no edge for a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No edge of the site answered.
    #[error(
        "no edge is given, and no edge of the site {site} answered on this network within {} s; start an edge with `mez edge --announce`, or give \
         its address: --edge HOST, MEZ_EDGE=HOST, or edge=\"HOST\" in Python{}",
        LOOK_TIME.as_secs(),
        Others(refused)
    )]
    Nobody {
        /// The site.
        site: SiteName,
        /// The answers that were refused.
        refused: Vec<Refused>,
    },
    /// Several edges of the site answered.
    #[error(
        "no edge is given, and {} edges of the site {site} answer on this network: {}; give one edge, or several in order of preference: --edge \
         {example}, MEZ_EDGE={example}, or edge=\"{example}\" in Python",
        places.len(),
        places.join(", ")
    )]
    Several {
        /// The site.
        site: SiteName,
        /// The edges, with the addresses to configure.
        places: Vec<String>,
        /// The address of the first.
        example: String,
    },
    /// The network cannot be searched.
    #[error(
        "no edge is given, and the network cannot be searched: {0}; give the edge's address: --edge HOST"
    )]
    Network(String),
}

/// Shows refused answers as the end of a sentence.
struct Others<'a>(&'a [Refused]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Refused { advert, why }) in self.0.iter().enumerate() {
            write!(f, "{}{advert} {why}", if place == 0 { ". Not used: " } else { "; " })?;
        }
        Ok(())
    }
}

/// The only edge of the site that answers, and the port that these credentials use there.
///
/// # Errors
/// No edge answers, or more than one.
pub async fn one(network: Network, credentials: &Credentials) -> Result<(Found, u16), FindError> {
    let findings = find(network, Some(credentials), Patience::default()).await;
    let Findings { mut found, refused } = findings.map_err(|error| FindError::Network(error.to_string()))?;
    let identity = credentials.identity();
    let site = identity.site.clone();
    // The edge was dialled at this port, so the port is known.
    let port = |found: &Found| port_for(identity.role, &found.advert).unwrap_or_default();
    match found.len() {
        0 => Err(FindError::Nobody { site, refused }),
        1 => {
            let found = found.swap_remove(0);
            let port = port(&found);
            info!(
                "no edge is given; using {} at {}, which answers on this network",
                found.identity, found.address
            );
            Ok((found, port))
        }
        _ => {
            let usual = if identity.role == Role::Camera { ports::LINK } else { ports::GRPC };
            let written = |found: &Found| {
                let (host, port) = (found.address.to_string(), port(found));
                if port == usual { host } else { EdgeAddress { host, port }.to_string() }
            };
            let place = |found: &Found| format!("{} ({})", written(found), found.identity.short());
            let example = written(&found[0]);
            Err(FindError::Several { site, places: found.iter().map(place).collect(), example })
        }
    }
}

/// The edge of an application for which none is configured. If an edge runs on this host at `local`, this is `local`. Otherwise, if the host
/// is not an edge's and has keys of an application, it is the edge that answers on the network. The search is repeated for up to `patience`.
///
/// # Errors
/// No edge answers, or more than one.
pub async fn edge_for_application(
    local: Address,
    keys: Option<&Path>,
    patience: Duration,
) -> Result<Address, FindError> {
    let until = Instant::now().checked_add(patience);
    let mut is_told = false;
    loop {
        if is_served(&local) {
            return Ok(local);
        }
        let Some(credentials) = credentials_of_guest(keys) else { return Ok(local) };
        match one(Network::LOCAL, &credentials).await {
            Ok((found, port)) => return Ok(Address::Tcp { host: found.address.to_string(), port }),
            Err(error @ FindError::Nobody { .. }) if until.is_none_or(|until| Instant::now() < until) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn!("{error}; searching again");
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// The edge on the network for a camera for which none is configured.
///
/// # Errors
/// No edge answers, or more than one.
pub async fn edge_for_camera(credentials: &Credentials) -> Result<EdgeAddress, FindError> {
    let (found, port) = one(Network::LOCAL, credentials).await?;
    Ok(EdgeAddress { host: found.address.to_string(), port })
}

/// The enrolment address of a site, as HOST:PORT. A device has no keys yet, so the token that it uses decides whether the site is the right one.
///
/// # Errors
/// No edge answers, or more than one.
pub async fn enrolment_on(network: Network, site: &SiteName) -> Result<String, FindError> {
    let findings = find(network, None, Patience::default()).await;
    let findings = findings.map_err(|error| FindError::Network(error.to_string()))?;
    let (of_site, refused): (Vec<_>, Vec<_>) = findings
        .refused
        .into_iter()
        .partition(|refused| refused.advert.site == *site && refused.advert.enrol.is_some());
    let place = |refused: &Refused| {
        let address = refused.advert.addresses.first()?;
        Some(SocketAddr::new(*address, refused.advert.enrol?).to_string())
    };
    let mut places: Vec<String> = of_site.iter().filter_map(place).collect();
    match places.len() {
        0 => {
            let why = |refused: Refused| match refused.advert.site == *site {
                true => Refused { why: "does not enrol devices".into(), ..refused },
                false => Refused { why: format!("belongs to the site {}", refused.advert.site), ..refused },
            };
            Err(FindError::Nobody { site: site.clone(), refused: refused.into_iter().map(why).collect() })
        }
        1 => Ok(places.swap_remove(0)),
        _ => {
            let example = places[0].clone();
            Err(FindError::Several { site: site.clone(), places, example })
        }
    }
}

/// Whether an edge accepts connections at `local`, as far as this user can tell.
pub fn is_served(local: &Address) -> bool {
    let Some(path) = local.as_unix() else { return true };
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Whether a key folder belongs to an edge's host, whose programs use this edge.
pub fn is_of_edge(folder: &KeyFolder) -> bool {
    let is_edge = |files: Vec<crate::identity::credentials::IdentityFile>| {
        files.iter().any(|file| file.identity.as_ref().is_some_and(|identity| identity.role == Role::Edge))
    };
    folder.holds_authority_key() || folder.identity_files().is_ok_and(is_edge)
}

/// The keys of an application, if this host is not an edge's.
fn credentials_of_guest(keys: Option<&Path>) -> Option<Credentials> {
    let folder = KeyFolder::find(keys).ok().filter(|folder| !is_of_edge(folder))?;
    folder.credentials(Role::App, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Advert;

    #[test]
    fn what_to_write_is_told_and_who_was_refused() {
        let advert = Advert {
            site: "airport".parse().unwrap(),
            edge: "gate".parse().unwrap(),
            addresses: vec!["10.0.0.9".parse().unwrap()],
            link: 7650,
            grpc: None,
            enrol: None,
            web: None,
        };
        let refused = Refused { advert, why: "belongs to the site airport".into() };
        let site: SiteName = "harbour".parse().unwrap();
        let nobody = FindError::Nobody { site: site.clone(), refused: vec![refused] }.to_string();
        assert!(nobody.contains("no edge of the site harbour answered"), "{nobody}");
        assert!(nobody.ends_with(". Not used: gate at 10.0.0.9 belongs to the site airport"), "{nobody}");
        let alone = FindError::Nobody { site: site.clone(), refused: Vec::new() }.to_string();
        assert!(alone.ends_with("edge=\"HOST\" in Python"), "{alone}");
        let places = vec!["10.0.0.7 (edge/hall)".into(), "10.0.0.8:9 (edge/yard)".into()];
        let several = FindError::Several { site, places, example: "10.0.0.7".into() }.to_string();
        assert!(
            several.contains("2 edges of the site harbour") && several.contains("MEZ_EDGE=10.0.0.7"),
            "{several}"
        );
    }
}
