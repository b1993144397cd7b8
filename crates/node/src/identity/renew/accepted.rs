//! Gives an edge whose certificate was revoked another certificate, as soon as this is allowed.
//!
//! A revocation denies the certificates that a member got before it. So a later certificate is accepted everywhere.
//! Cameras that have the list with the edge on it accept it too, although they would not get a newer list.

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

/// The first pause between two attempts. Certificates have a resolution of one
/// second, and a certificate from the second of the revocation is denied too.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause between two attempts. A signer does not issue two certificates to one member within a minute.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How many new certificates may be denied before an error is logged. The first ones may be from the second of the revocation.
const DENIED_AT_FIRST: u32 = 3;

/// Watches whether the certificate in use is on the deny list, until the edge stops.
///
/// If the authority's key is on this host, a new certificate is made at once: the owner of that key cannot be locked
/// out. Elsewhere the edge waits until it is no longer on the list, and then asks `signer` for a renewal at once.
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
                // This host was enrolled again.
                Ok(()) = renewals.changed() => continue 'certificate,
            }
        }
        match &signer {
            Some(signer) => renew(&credentials, signer).await,
            None => warn!(
                edge = %credentials.identity(),
                "this edge is no longer revoked, but it has no signer to get a new certificate: cameras that do not know this yet stay away until \
                 then; make a token with `mez keys token {short}` where the site was made, and enrol here with `mez keys enrol`",
                short = credentials.identity().short()
            ),
        }
    }
}

/// Makes a certificate that the list does not deny, and uses it.
async fn replace(keys: &KeyFolder, credentials: &Credentials, revoked: &LiveRevocations) {
    let (mut pause, mut denied) = (PAUSE_MIN, 0u32);
    // The last logged text, so that the same text is not logged at each attempt.
    let mut said = String::new();
    loop {
        // A running renewal must not be overwritten.
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
                        serial, "the edge's certificate was revoked, so the edge made itself a new certificate: the authority's key is on this host"
                    );
                }
                denied += 1;
                // The first certificates may be from the second of the revocation.
                match denied > DENIED_AT_FIRST {
                    true => "its new certificates are revoked too: the deny list was signed by a clock that is ahead; set the clocks".into(),
                    false => String::new(),
                }
            }
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => "the thread that makes it ended early".into(),
        };
        drop(turn);
        if !trouble.is_empty() && trouble != said {
            error!("the edge was revoked, and has no new certificate yet: {trouble}; trying again");
            said = trouble;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Why the edge got no other certificate.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// Issues a certificate with a new key, for the same identity and hosts, and for the same lifetime as the certificate in use.
fn issue(keys: &KeyFolder, own: &Credentials) -> Result<Arc<Held>, ReplaceError> {
    let hosts = own.facts().hosts_asked_for();
    let validity = Validity::from(SystemTime::now(), own.validity().lasts());
    Ok(Credentials::issue(&keys.load_authority()?, own.identity(), &hosts, validity)?.held())
}

/// Asks the signer until the certificate is renewed.
async fn renew(credentials: &Credentials, signer: &Signer) {
    let (mut pause, mut renewals) = (PAUSE_MIN, credentials.renewals());
    renewals.borrow_and_update();
    let mut keeper = Keeper::new(credentials.clone());
    loop {
        keeper.renew(signer).await;
        if renewals.has_changed().unwrap_or(false) {
            return;
        }
        // A renewal by the regular schedule ends this loop too.
        if tokio::time::timeout(pause, renewals.changed()).await.is_ok() {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
