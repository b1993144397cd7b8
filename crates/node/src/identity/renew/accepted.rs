//! Gives an edge whose certificate was revoked another one, as soon as it may have one.
//!
//! A revocation denies what a member was given until then. So a later certificate is accepted everywhere, also by cameras that hold the list
//! on which the edge stands, and that would not come to hear of a newer one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::Signer;
use super::keeper::{Keeper, keep_in_file};
use crate::identity::authority::{AuthorityError, IssueError};
use crate::identity::certificate::Validity;
use crate::identity::credentials::{Credentials, Held};
use crate::identity::folder::KeyFolder;
use crate::revocation::{LiveRevocations, of_facts};

/// The pause between two attempts at first: certificates have whole seconds, and one of the second of the revocation is denied as well.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause between two attempts. A signer gives one member no two certificates within a minute.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// New certificates that may be denied before that is a fault: those of the second of the revocation.
const DENIED_AT_FIRST: u32 = 3;

/// Watches whether the certificate in use is on the deny list, until the edge stops.
///
/// Where the authority's key is, a new one is made at once: whoever has that key cannot be locked out. Elsewhere the edge waits until it is off
/// the list, and then has `signer` renew at once.
pub(crate) async fn stay_accepted(
    keys: KeyFolder,
    credentials: Credentials,
    revoked: LiveRevocations,
    signer: Option<Signer>,
) {
    let (mut denials, mut renewals) = (revoked.clone(), credentials.renewals());
    'certificate: loop {
        renewals.borrow_and_update();
        let Ok(own) = of_facts(&credentials.facts(), credentials.identity()) else { return };
        tokio::select! {
            _ = denials.denied(&own) => {}
            Ok(()) = renewals.changed() => continue,
        }
        if keys.holds_authority_key() {
            replace(&keys, &credentials, &revoked).await;
            continue;
        }
        while revoked.denies(&own).is_some() {
            tokio::select! {
                () = denials.changed() => drop(denials.notice()),
                // Somebody enrolled this host anew.
                Ok(()) = renewals.changed() => continue 'certificate,
            }
        }
        match &signer {
            Some(signer) => renew(&credentials, signer).await,
            None => warn!(
                edge = %credentials.identity(),
                "this edge is accepted again, and has no signer: cameras that do not know it yet stay away until it has another certificate; \
                 make a token with `mez keys token {short}` where the site was made, and enrol here with `mez keys enrol`",
                short = credentials.identity().short()
            ),
        }
    }
}

/// Makes a certificate that the list does not deny, and uses it.
async fn replace(keys: &KeyFolder, credentials: &Credentials, revoked: &LiveRevocations) {
    let (mut pause, mut denied) = (PAUSE_MIN, 0u32);
    // What was logged last. The same is not logged with each attempt.
    let mut said = String::new();
    loop {
        // A renewal that is under way is not written over.
        let turn = credentials.turn().await;
        let in_use = of_facts(&credentials.facts(), credentials.identity());
        if in_use.is_ok_and(|own| revoked.denies(&own).is_none()) {
            return;
        }
        let (folder, own) = (keys.clone(), credentials.clone());
        let trouble = match spawn_blocking(move || issue(&folder, &own)).await {
            Ok(Ok(held)) => {
                let own = of_facts(&held.facts, credentials.identity());
                if own.is_ok_and(|own| revoked.denies(&own).is_none()) {
                    keep_in_file(credentials, &held).await;
                    let serial = held.facts.serial.clone();
                    credentials.replace(held);
                    return info!(
                        edge = %credentials.identity(),
                        serial, "the edge's certificate was revoked, so it made itself another one: the authority's key is on this host"
                    );
                }
                denied += 1;
                // The first is of the second of the revocation.
                match denied > DENIED_AT_FIRST {
                    true => "its new certificates are denied as well: the deny list was signed by a clock that is ahead; set the clocks".into(),
                    false => String::new(),
                }
            }
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "the thread that makes it ended early".into(),
        };
        drop(turn);
        if !trouble.is_empty() && trouble != said {
            error!("the edge was revoked, and has no other certificate yet: {trouble}; trying again");
            said = trouble;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Why the edge has no other certificate.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// A certificate of the same identity, for the same hosts and as long as the one in use, for a new key.
fn issue(keys: &KeyFolder, own: &Credentials) -> Result<Arc<Held>, ReplaceError> {
    let hosts = own.facts().hosts_asked_for();
    let validity = Validity::from(SystemTime::now(), own.validity().lasts());
    Ok(Credentials::issue(&keys.load_authority()?, own.identity(), &hosts, validity)?.held())
}

/// Has the signer renew until it has.
async fn renew(credentials: &Credentials, signer: &Signer) {
    let (mut pause, mut renewals) = (PAUSE_MIN, credentials.renewals());
    renewals.borrow_and_update();
    let mut keeper = Keeper::new(credentials.clone());
    loop {
        keeper.renew(signer).await;
        if renewals.has_changed().unwrap_or(false) {
            return;
        }
        // Whoever renews because it is due does as well.
        if tokio::time::timeout(pause, renewals.changed()).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
