//! The deny list in force.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use mez_core::audit::{Event, Kind};
use mez_core::revocation::{Certificate, Denial, Offer, Revocations, Subject};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::file::{RevokedError, RevokedFile};
use super::of_facts;
use super::signed::{ListError, SignedList};
use crate::audit::Audit;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::Credentials;
use crate::identity::refusals::Refusals;

/// How often the file is checked. A change takes effect within this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The deny list in force. Cheap to clone; each clone notices changes separately.
#[derive(Clone)]
pub struct LiveRevocations {
    shared: Arc<Shared>,
    held: watch::Receiver<Arc<SignedList>>,
}

struct Shared {
    sender: watch::Sender<Arc<SignedList>>,
    /// This host's own certificate, and the authorities whose lists it trusts.
    credentials: Credentials,
    /// Where a received list is stored.
    file: Option<RevokedFile>,
    /// Logs the refusals, with a limit per member.
    refusals: Refusals,
    /// The edge's audit log, which records the refusals.
    audit: OnceLock<Audit>,
}

/// The result of [`LiveRevocations::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The list is now in force.
    News,
    /// The list was in force already.
    Known,
    /// The list is older, or has the same version with different content. The list in force stays.
    Refused(Offer),
}

impl LiveRevocations {
    /// Begins with nothing revoked at the site of `credentials`. A received list is kept in memory only.
    pub fn in_memory(credentials: &Credentials) -> Self {
        Self::with(credentials, SignedList::none(&credentials.identity().site), None)
    }

    /// Begins with the list in `file`, and stores received lists there. A file that cannot be read counts as an empty list.
    pub fn kept(credentials: &Credentials, file: RevokedFile) -> Self {
        let held = file.read().unwrap_or_else(|failure| {
            warn!("the deny list is unknown until an edge sends it: {failure}");
            SignedList::none(&credentials.identity().site)
        });
        Self::with(credentials, held, Some(file))
    }

    fn with(credentials: &Credentials, held: SignedList, file: Option<RevokedFile>) -> Self {
        let (sender, receiver) = watch::channel(Arc::new(held));
        let credentials = credentials.clone();
        let shared =
            Shared { sender, credentials, file, refusals: Refusals::default(), audit: OnceLock::new() };
        shared.look_at_own();
        Self { shared: Arc::new(shared), held: receiver }
    }

    /// The current list.
    pub fn now(&self) -> Arc<SignedList> {
        Arc::clone(&self.held.borrow())
    }

    /// This host's own current certificate. `None`: it cannot be read.
    pub fn own(&self) -> Option<Certificate> {
        let credentials = &self.shared.credentials;
        of_facts(&credentials.facts(), credentials.identity()).ok()
    }

    /// The current list, and marks it as noticed.
    pub fn notice(&mut self) -> Arc<SignedList> {
        Arc::clone(&self.held.borrow_and_update())
    }

    /// Whether the list has changed since it was noticed.
    pub fn has_changed(&self) -> bool {
        self.held.has_changed().unwrap_or(false)
    }

    /// Waits until the list has changed since it was noticed. Cancel safe.
    pub async fn changed(&mut self) {
        if self.held.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Why a certificate is not accepted. `None`: it is accepted.
    pub fn denies(&self, certificate: &Certificate) -> Option<Denial> {
        self.held.borrow().list.denies(certificate)
    }

    /// Like [`Self::denies`], for a member that is now refused: logs the refusal, with a limit per member, and records it in the audit log.
    pub fn refuses(&self, certificate: &Certificate) -> Option<Denial> {
        let denial = self.denies(certificate)?;
        let (member, why) = (certificate.member.as_str(), denial.to_string());
        self.shared.refusals.log(monotonic_now(), member, &why);
        if let Some(audit) = self.shared.audit.get() {
            audit.note(Event::new(wall_now(), Kind::Refused, member).what("revoked").why(why));
        }
        Some(denial)
    }

    /// Records refusals in the edge's audit log from now on.
    pub(crate) fn record(&self, audit: Audit) {
        // An edge has one audit log, so a second call sets nothing new.
        let _ = self.shared.audit.set(audit);
    }

    /// Waits until a certificate is no longer accepted. Cancel safe.
    pub async fn denied(&mut self, certificate: &Certificate) -> Denial {
        loop {
            if let Some(denial) = self.notice().list.denies(certificate) {
                return denial;
            }
            self.changed().await;
        }
    }

    /// Takes in a list that came from `from`. The list is in force from now on if the site's
    /// authority has signed it and it is newer than the list in force. Must run on a tokio runtime.
    pub fn take(&self, bytes: Bytes, from: &str) -> Result<Taken, ListError> {
        let signed = SignedList::read(bytes, &self.shared.credentials.trust())?;
        let taken = self.shared.offer(signed.clone(), from);
        if taken == Taken::News
            && let Some(file) = self.shared.file.clone()
        {
            tokio::task::spawn_blocking(move || {
                if let Err(failure) = file.store(&signed) {
                    error!(
                        "the deny list is in force, but cannot be saved, so it is lost at a restart: {failure}"
                    );
                }
            });
        }
        Ok(taken)
    }
}

impl fmt::Debug for LiveRevocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveRevocations(version {})", self.held.borrow().list.version())
    }
}

impl Shared {
    fn look_at_own(&self) {
        let own = of_facts(&self.credentials.facts(), self.credentials.identity()).ok();
        if let Some(denial) = own.and_then(|own| self.sender.borrow().list.denies(&own)) {
            error!("this host itself was revoked: {denial}");
        }
    }

    fn offer(&self, signed: SignedList, from: &str) -> Taken {
        let mut offer = Offer::Same;
        let signed = Arc::new(signed);
        let mut before = Arc::clone(&signed);
        self.sender.send_if_modified(|held| {
            offer = held.list.judge(&signed.list);
            let is_newer = offer == Offer::Newer;
            if is_newer {
                before = std::mem::replace(held, Arc::clone(&signed));
            }
            is_newer
        });
        match offer {
            Offer::Newer => {
                tell(&before.list, &signed.list, from);
                self.look_at_own();
                Taken::News
            }
            Offer::Same => Taken::Known,
            Offer::Older | Offer::Conflict => Taken::Refused(offer),
        }
    }
}

/// Logs what is now revoked, and what is no longer revoked.
fn tell(before: &Revocations, after: &Revocations, from: &str) {
    let version = after.version();
    for (subject, entry) in after.entries().filter(|(subject, entry)| before.get(subject) != Some(*entry)) {
        warn!(version, from, because = entry.because, "{subject} is revoked");
    }
    for subject in missing(before, after) {
        info!(version, from, "{subject} is no longer revoked");
    }
    info!(version, from, entries = after.len(), "another deny list is in force");
}

/// The subjects that are on `on` but not on `not_on`.
fn missing(on: &Revocations, not_on: &Revocations) -> Vec<Subject> {
    on.entries().map(|(subject, _)| subject).filter(|subject| not_on.get(subject).is_none()).collect()
}

/// Reads the file of an edge that starts, and follows it as long as a clone of the list exists. Must run on a tokio runtime.
///
/// A file that becomes unreadable, is cut or is not signed by the authority changes nothing. If
/// the file is older than the list in force, or was removed, the list in force is written to it.
///
/// # Errors
/// The file exists but is not a list of this site, or it existed before and is gone.
pub fn follow(file: RevokedFile, credentials: &Credentials) -> Result<LiveRevocations, RevokedError> {
    follow_every(LOOK_INTERVAL, file, credentials)
}

fn follow_every(
    pause: Duration,
    file: RevokedFile,
    credentials: &Credentials,
) -> Result<LiveRevocations, RevokedError> {
    let held = file.read()?;
    if !held.list.is_empty() {
        let (path, version, entries) = (file.path().display(), held.list.version(), held.list.len());
        info!(%path, version, entries, "a deny list is in force");
    }
    let live = LiveRevocations::with(credentials, held.clone(), Some(file.clone()));
    tokio::spawn(look(pause, file, Arc::downgrade(&live.shared), held));
    Ok(live)
}

async fn look(pause: Duration, file: RevokedFile, live: Weak<Shared>, mut seen: SignedList) {
    let mut looks = interval(pause);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        looks.tick().await;
        let reading = file.clone();
        let Ok(read) = tokio::task::spawn_blocking(move || reading.present()).await else { return };
        let Some(live) = live.upgrade() else { return };
        let problem = match read {
            Ok(Some(there)) if there == seen && complaint.is_none() => None,
            Ok(Some(there)) => {
                seen = there.clone();
                let path = file.path().display().to_string();
                match live.offer(there.clone(), &path) {
                    Taken::News | Taken::Known => None,
                    Taken::Refused(_) => {
                        let held = Arc::clone(&live.sender.borrow());
                        Some((old_copy(&path, &there.list, &held.list), Some(held)))
                    }
                }
            }
            // A list that a camera has just brought may not be written yet.
            Ok(None) => (seen.list.version() > 0).then(|| {
                let held = Arc::clone(&live.sender.borrow());
                (format!("{} was removed, and is written again", file.path().display()), Some(held))
            }),
            Err(failure) => Some((format!("the deny list in force stays unchanged: {failure}"), None)),
        };
        let (text, put_back) = problem.unzip();
        // Logged once, not every second.
        if let Some(text) = text.as_ref().filter(|text| complaint.as_ref() != Some(*text)) {
            error!("{text}");
        }
        complaint = text;
        if let Some(held) = put_back.flatten() {
            let storing = file.clone();
            let stored = tokio::task::spawn_blocking(move || storing.store(&held)).await;
            if let Ok(Err(failure)) = stored {
                error!(
                    "the deny list is in force, but cannot be saved, so it is lost at a restart: {failure}"
                );
            }
        }
    }
}

/// The message about a file that is older than the list in force.
fn old_copy(path: &str, there: &Revocations, held: &Revocations) -> String {
    let mut text = format!(
        "{path} has version {}, made from an old copy, but version {} is in force and is written back",
        there.version(),
        held.version()
    );
    let lost: Vec<String> = missing(there, held).iter().map(ToString::to_string).collect();
    if !lost.is_empty() {
        text += &format!(
            "; to revoke entries that are only in the old copy, run `mez keys revoke {}` again",
            lost.join(" ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use mez_core::revocation::Entry;
    use mez_core::units::Timestamp;

    use super::*;
    use crate::identity::{Role, TemporarySite};

    const PAUSE: Duration = Duration::from_millis(20);

    fn site() -> (TemporarySite, Credentials) {
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let credentials = site.keys().credentials(Role::Edge, None).unwrap();
        (site, credentials)
    }

    fn file(site: &TemporarySite, folder: &Path) -> RevokedFile {
        RevokedFile::of(folder, site.keys().trust())
    }

    fn revoke(site: &TemporarySite, file: &RevokedFile, member: &str) -> Result<SignedList, RevokedError> {
        let entry = Entry { since: Timestamp::MAX, until: Timestamp::MAX, because: String::new() };
        let authority = site.keys().load_authority().unwrap();
        file.edit(&authority, |list| Ok(list.with(Timestamp::MIN, member.parse().unwrap(), entry)?))
    }

    async fn until(live: &LiveRevocations, version: u64) {
        let mut live = live.clone();
        let reached = async {
            while live.notice().list.version() < version {
                live.changed().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the change is noticed");
    }

    #[tokio::test]
    async fn a_change_of_the_file_is_followed_and_what_is_broken_or_old_changes_nothing() {
        let (site, credentials) = site();
        let folder = tempfile::tempdir().unwrap();
        let file = file(&site, folder.path());
        let live = follow_every(PAUSE, file.clone(), &credentials).unwrap();
        assert!(live.now().list.is_empty() && !file.path().exists());
        revoke(&site, &file, "app/a").unwrap();
        until(&live, 1).await;
        let old = fs::read(file.path()).unwrap();
        revoke(&site, &file, "app/b").unwrap();
        until(&live, 2).await;
        let good = fs::read(file.path()).unwrap();

        for broken in [&good[..good.len() / 2], b"", b"hello"] {
            fs::write(file.path(), broken).unwrap();
            tokio::time::sleep(5 * PAUSE).await;
            assert_eq!(live.now().list.version(), 2, "{broken:?}");
        }
        // An old copy, or a missing file, would accept revoked members again: the list in force is written back.
        let is_back = async || {
            let back = async {
                while fs::read(file.path()).ok().as_deref() != Some(&good[..]) {
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), back).await.expect("it is put back");
        };
        fs::write(file.path(), &old).unwrap();
        is_back().await;
        fs::remove_file(file.path()).unwrap();
        is_back().await;
        assert_eq!((live.now().list.version(), live.now().list.len()), (2, 2));
    }

    #[tokio::test]
    async fn nobody_starts_with_a_list_that_is_not_the_one() {
        let (ours, credentials) = site();
        let folder = tempfile::tempdir().unwrap();
        let there = file(&ours, folder.path());
        let says = |what: &str| {
            let refused = follow(there.clone(), &credentials).unwrap_err().to_string();
            assert!(refused.contains(what) && refused.contains("revoked.list"), "{refused}");
        };
        revoke(&ours, &there, "app/a").unwrap();
        let old = fs::read(there.path()).unwrap();
        revoke(&ours, &there, "app/b").unwrap();
        let good = fs::read(there.path()).unwrap();
        fs::write(there.path(), &old).unwrap();
        says("an old copy replaced it");
        assert!(revoke(&ours, &there, "app/c").is_err(), "it would lose app/b");
        fs::write(there.path(), &good[..good.len() - 40]).unwrap();
        says("cut or damaged");
        let (other, _) = site();
        let elsewhere = tempfile::tempdir().unwrap();
        let foreign = file(&other, elsewhere.path());
        revoke(&other, &foreign, "app/a").unwrap();
        fs::copy(foreign.path(), there.path()).unwrap();
        says("was not signed by the authority of this site");
        fs::remove_file(there.path()).unwrap();
        says("is missing, so it is not known who was revoked");
        fs::write(there.path(), &good).unwrap();
        assert_eq!(follow(there, &credentials).unwrap().now().list.len(), 2);
    }

    /// A list from a link is kept. An older, changed or foreign list is not.
    #[tokio::test]
    async fn what_comes_is_taken_only_if_it_is_genuine_and_newer() {
        let (site, credentials) = site();
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let elsewhere = file(&site, there.path());
        let one = revoke(&site, &elsewhere, "app/a").unwrap();
        let two = revoke(&site, &elsewhere, "app/b").unwrap();
        let live = LiveRevocations::kept(&credentials, file(&site, here.path()));
        assert_eq!(live.take(two.bytes.clone(), "a camera"), Ok(Taken::News));
        assert_eq!(live.take(two.bytes.clone(), "a camera"), Ok(Taken::Known));
        assert_eq!(live.take(one.bytes, "a camera"), Ok(Taken::Refused(Offer::Older)));
        let mut forged = two.bytes.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert!(live.take(forged.into(), "a camera").is_err());
        assert_eq!(live.now().list, two.list);
    }
}
