//! The rights in force at an edge that runs.

use std::sync::Arc;
use std::time::Duration;

use mez_core::rights::{Rights, Stance};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::file::{RightsError, RightsFile};
use super::text::RightsText;

/// How often the file is looked at. A change takes effect within this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The rights in force. Cheap to clone; each clone notices changes for itself.
#[derive(Clone, Debug)]
pub struct LiveRights(watch::Receiver<Arc<Rights>>);

impl LiveRights {
    /// Rights that never change, for an edge without a file.
    pub fn fixed(rights: Rights) -> Self {
        Self(watch::channel(Arc::new(rights)).1)
    }

    /// Rights that whoever holds the sender changes.
    pub fn changing(rights: Rights) -> (watch::Sender<Arc<Rights>>, Self) {
        let (sender, receiver) = watch::channel(Arc::new(rights));
        (sender, Self(receiver))
    }

    /// The rights of this moment.
    pub fn now(&self) -> Arc<Rights> {
        Arc::clone(&self.0.borrow())
    }

    /// The rights of this moment, which count as noticed.
    pub fn notice(&mut self) -> Arc<Rights> {
        Arc::clone(&self.0.borrow_and_update())
    }

    /// Whether they have changed since they were noticed.
    pub fn has_changed(&self) -> bool {
        // Without a sender they stay what they are.
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until they have changed since they were noticed. Cancelling this loses nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Reads the file of an edge that starts, and follows it as long as anybody asks for its rights. On a tokio runtime.
///
/// A file that becomes unreadable, makes no sense or vanishes changes nothing: the rights that were in force stay,
/// and the log says why.
///
/// # Errors
/// There are no rights to begin with.
pub fn follow(file: RightsFile) -> Result<LiveRights, RightsError> {
    follow_every(LOOK_INTERVAL, file)
}

fn follow_every(pause: Duration, file: RightsFile) -> Result<LiveRights, RightsError> {
    let (text, written) = file.read_or_open()?;
    let path = file.path().display();
    if written {
        warn!(
            "this site is older than grants, so {path} was written: everything that was allowed stays allowed; give applications \
             their grants with `mez keys grant`, then run `mez keys rights --strict`"
        );
    } else {
        tell(&file, &text);
    }
    let (sender, live) = LiveRights::changing(text.rights());
    tokio::spawn(look(pause, file, text, sender));
    Ok(live)
}

async fn look(pause: Duration, file: RightsFile, mut known: RightsText, rights: watch::Sender<Arc<Rights>>) {
    let mut looks = interval(pause);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rights.closed() => return,
        }
        let reading = file.clone();
        let Ok(read) = tokio::task::spawn_blocking(move || reading.read()).await else { return };
        match read {
            Ok(text) => {
                let mended = complaint.take().is_some();
                if mended || text != known {
                    tell(&file, &text);
                }
                if text != known {
                    rights.send_replace(Arc::new(text.rights()));
                    known = text;
                }
            }
            Err(failure) => {
                let failure = failure.to_string();
                // Said once, not every second.
                if complaint.as_ref() != Some(&failure) {
                    error!("the rights stay as they were: {failure}");
                }
                complaint = Some(failure);
            }
        }
    }
}

fn tell(file: &RightsFile, text: &RightsText) {
    let (path, grants) = (file.path().display(), text.grants.len());
    match text.stance {
        Stance::Deny => info!(%path, grants, "the rights in force: only what is granted is allowed"),
        Stance::Open if grants == 0 => {
            info!(%path, "the rights in force: everything that was allowed before there were grants")
        }
        Stance::Open => {
            warn!(%path, grants, "these grants restrict nothing while default is \"open\"; run `mez keys rights --strict`")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mez_core::rights::{Bearer, Verb};

    use super::*;
    use crate::rights::edit::with_grant;

    const PAUSE: Duration = Duration::from_millis(20);

    fn may_watch(rights: &LiveRights) -> bool {
        let who = Bearer::App("counter".parse().unwrap());
        rights.now().allows(&who, Verb::Watch, &"dock/cam1".parse().unwrap())
    }

    async fn until(rights: &mut LiveRights, expected: bool) {
        let reached = async {
            while may_watch(rights) != expected {
                rights.changed().await;
                rights.notice();
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the change is noticed");
    }

    #[tokio::test]
    async fn a_change_of_the_file_is_followed_and_a_broken_file_changes_nothing() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        file.create(Stance::Deny).unwrap();
        let mut rights = follow_every(PAUSE, file.clone()).unwrap();
        assert!(!may_watch(&rights));
        let grant = "app/counter watch dock/*";
        let words: Vec<&str> = grant.split(' ').collect();
        let grant = mez_core::rights::Grant {
            grantee: words[0].parse().unwrap(),
            verb: words[1].parse().unwrap(),
            cameras: words[2].parse().unwrap(),
        };
        file.edit(|text| with_grant(&text, &grant)).unwrap();
        until(&mut rights, true).await;

        // Each of these would take the right away, or open everything, if it counted.
        let good = fs::read_to_string(file.path()).unwrap();
        for broken in ["default = \"deny\"\ngrants = 1\n", "default = \"open", "\u{0}"] {
            fs::write(file.path(), broken).unwrap();
            tokio::time::sleep(10 * PAUSE).await;
            assert!(may_watch(&rights) && rights.now().stance() == Stance::Deny, "{broken:?}");
        }
        fs::remove_file(file.path()).unwrap();
        tokio::time::sleep(10 * PAUSE).await;
        assert!(may_watch(&rights));
        fs::write(file.path(), good.replace("watch", "read")).unwrap();
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        until(&mut rights, false).await;
    }
}
