//! Looks for edges on the network, and has them prove who they are.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use mdns_sd::{Receiver, ServiceDaemon, ServiceEvent};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::prove::prove;
use super::{Advert, LOOK_TIME, Network, SERVICE};
use crate::identity::{Credentials, Identity};

/// The most answers that are looked at. Whoever floods the network with more keeps edges from being found, and nothing else.
const ANSWERS_MAX: usize = 32;
/// How long others may take to answer once an edge has proven who it is. Whoever has just answered somebody else is silent for a second (RFC 6762,
/// section 6).
const SETTLE_TIME: Duration = Duration::from_millis(1200);
/// How long proofs that have begun may take beyond the time to answer.
const LAST_PROOFS_TIME: Duration = Duration::from_secs(2);

/// How long is looked.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long edges have to answer.
    pub lasts: Duration,
    /// Whether that is cut short once one has proven who it is: others then have a little more than a second.
    pub settles: bool,
}

impl Default for Patience {
    /// That of a program which needs an edge.
    fn default() -> Self {
        Self { lasts: LOOK_TIME, settles: true }
    }
}

/// An edge that has proven that it is one of this site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who it is, by its certificate.
    pub identity: Identity,
    /// The address at which it has proven that.
    pub address: IpAddr,
    /// What it tells of itself.
    pub advert: Advert,
}

/// Something that answered, and is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What it tells of itself.
    pub advert: Advert,
    /// Why, as a clause: `is of the site airport, and this host is of harbour`.
    pub why: String,
}

/// What has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The edges of this site, by name.
    pub found: Vec<Found>,
    /// All else.
    pub refused: Vec<Refused>,
}

/// Looks for edges, as whoever has these credentials. Without credentials nobody can prove anything, and all are refused.
///
/// # Errors
/// The system gives no socket or no thread.
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

/// The same edge answers again when more of its addresses are known.
fn key(advert: &Advert) -> String {
    format!("{advert:?}")
}

async fn judge(advert: Advert, credentials: Option<Credentials>) -> Result<Found, Refused> {
    let proven = match &credentials {
        Some(credentials) => prove(&advert, credentials).await,
        None => Err("was not asked to prove anything, because this host has no keys of a site".into()),
    };
    match proven {
        Ok((address, identity)) => Ok(Found { identity, address, advert }),
        Err(why) => Err(Refused { advert, why }),
    }
}

impl Findings {
    /// Takes one more in. Whether it has proven who it is.
    fn take(&mut self, judged: Result<Found, Refused>) -> bool {
        match judged {
            // An edge counts once, however many tell of it.
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

/// Whether two tell of one edge: the name, and an address in common.
fn is_same(one: &Advert, other: &Advert) -> bool {
    (&one.site, &one.edge, one.link) == (&other.site, &other.edge, other.link)
        && one.addresses.iter().any(|address| other.addresses.contains(address))
}

/// Asks the network for edges until it is dropped.
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

    /// The next answer that makes sense. `None`: there will be no more.
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
        // It fails if it has ended.
        let _ = self.daemon.shutdown();
    }
}
