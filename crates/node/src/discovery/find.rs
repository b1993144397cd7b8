//! Finds edges on the network, and lets them prove their identity.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use mdns_sd::{Receiver, ServiceDaemon, ServiceEvent};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::prove::prove;
use super::{Advert, LOOK_TIME, Network, SERVICE};
use crate::identity::{Credentials, Identity};

/// The most answers to check. A flood of answers can only prevent edges from being found.
const ANSWERS_MAX: usize = 32;
/// How long to wait for other answers after an edge has proven its identity. A responder
/// that has just answered another query is silent for a second (RFC 6762, section 6).
const SETTLE_TIME: Duration = Duration::from_millis(1200);
/// How long to wait for running proofs after the time for answers.
const LAST_PROOFS_TIME: Duration = Duration::from_secs(2);

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long to wait for answers.
    pub lasts: Duration,
    /// Whether the search ends earlier once an edge has proven its identity: other edges then have 1.2 s to answer.
    pub settles: bool,
}

impl Default for Patience {
    /// For a program that needs an edge.
    fn default() -> Self {
        Self { lasts: LOOK_TIME, settles: true }
    }
}

/// An edge that has proven to belong to this site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its identity by its certificate.
    pub identity: Identity,
    /// The address at which it has proven its identity.
    pub address: IpAddr,
    /// Its advert.
    pub advert: Advert,
}

/// An answer that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its advert.
    pub advert: Advert,
    /// Why, as a clause: `is of the site airport, and this host is of harbour`.
    pub why: String,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The edges of this site, by name.
    pub found: Vec<Found>,
    /// All other answers.
    pub refused: Vec<Refused>,
}

/// Searches for edges. Each must prove its identity to these credentials. Without credentials, all answers are refused.
///
/// # Errors
/// The system provides no socket or no thread.
pub async fn find(
    network: Network,
    credentials: Option<&Credentials>,
    patience: Patience,
) -> Result<Findings, mdns_sd::Error> {
    let browsing = Browsing::begin(network)?;
    let (mut seen, mut asked, mut findings) = (HashSet::new(), JoinSet::new(), Findings::default());
    let mut until = Instant::now() + patience.lasts;
    loop {
        tokio::select! {
            advert = browsing.next() => {
                let Some(advert) = advert else { break };
                if seen.len() < ANSWERS_MAX && seen.insert(key(&advert)) {
                    asked.spawn(judge(advert, credentials.cloned()));
                }
            }
            Some(Ok(judged)) = asked.join_next() => {
                if findings.take(judged) && patience.settles {
                    until = until.min(Instant::now() + SETTLE_TIME);
                }
            }
            () = sleep(until.saturating_duration_since(Instant::now())) => break,
        }
    }
    let last = Instant::now() + LAST_PROOFS_TIME;
    while let Ok(Some(Ok(judged))) = timeout_at(last, asked.join_next()).await {
        findings.take(judged);
    }
    findings.sort();
    Ok(findings)
}

/// A key that changes with the advert, since an edge answers again when more of its addresses are known.
fn key(advert: &Advert) -> String {
    format!("{advert:?}")
}

async fn judge(advert: Advert, credentials: Option<Credentials>) -> Result<Found, Refused> {
    let proven = match &credentials {
        Some(credentials) => prove(&advert, credentials).await,
        None => Err("was not verified, because this host has no keys of a site".into()),
    };
    match proven {
        Ok((address, identity)) => Ok(Found { identity, address, advert }),
        Err(why) => Err(Refused { advert, why }),
    }
}

impl Findings {
    /// Adds a result. Returns whether the edge has proven its identity.
    fn take(&mut self, judged: Result<Found, Refused>) -> bool {
        match judged {
            // An edge counts once, even if it has several adverts.
            Ok(found) => {
                self.refused.retain(|refused| !is_same(&refused.advert, &found.advert));
                if !self.found.iter().any(|known| known.identity == found.identity) {
                    self.found.push(found);
                }
                true
            }
            Err(refused) => {
                let is_found = self.found.iter().any(|found| is_same(&found.advert, &refused.advert));
                let is_told = self.refused.iter_mut().find(|known| is_same(&known.advert, &refused.advert));
                match is_told {
                    Some(told) => *told = refused,
                    None if !is_found => self.refused.push(refused),
                    None => {}
                }
                false
            }
        }
    }

    fn sort(&mut self) {
        self.found.sort_by(|one, other| one.identity.cmp(&other.identity));
        let of = |refused: &Refused| (refused.advert.site.clone(), refused.advert.edge.clone());
        self.refused.sort_by_key(of);
    }
}

/// Whether two adverts describe the same edge: the same name and port, and a common address.
fn is_same(one: &Advert, other: &Advert) -> bool {
    (&one.site, &one.edge, one.link) == (&other.site, &other.edge, other.link)
        && one.addresses.iter().any(|address| other.addresses.contains(address))
}

/// Searches the network for edges until it is dropped.
struct Browsing {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    network: Network,
}

impl Browsing {
    fn begin(network: Network) -> Result<Self, mdns_sd::Error> {
        let daemon = network.daemon()?;
        let events = daemon.browse(SERVICE)?;
        Ok(Self { daemon, events, network })
    }

    /// The next valid advert. `None` if there will be no more.
    async fn next(&self) -> Option<Advert> {
        loop {
            if let ServiceEvent::ServiceResolved(service) = self.events.recv_async().await.ok()?
                && let Some(advert) = Advert::read(&service, self.network)
            {
                return Some(advert);
            }
        }
    }
}

impl Drop for Browsing {
    fn drop(&mut self) {
        // This fails if the daemon has ended, which is no error here.
        let _ = self.daemon.shutdown();
    }
}
