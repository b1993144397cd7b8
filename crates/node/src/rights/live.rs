//! The rights in force at an edge that runs.

use std::sync::Arc;
use std::time::Duration;

use mez_core::rights::{Rights, Stance};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::file::{RightsError, RightsFile};
use super::text::RightsText;

/// How often the file is checked. A change takes effect within this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The rights in force. Cheap to clone; each clone notices changes separately.
#[derive(Clone, Debug)]
pub struct LiveRights(watch::Receiver<Arc<Rights>>);

impl LiveRights {
    /// Rights that never change, for an edge without a file.
    pub fn fixed(rights: Rights) -> Self {
        Self(watch::channel(Arc::new(rights)).1)
    }

    /// Rights that the holder of the sender changes.
    pub fn changing(rights: Rights) -> (watch::Sender<Arc<Rights>>, Self) {
        let (sender, receiver) = watch::channel(Arc::new(rights));
        (sender, Self(receiver))
    }

    /// The current rights.
    pub fn now(&self) -> Arc<Rights> {
        Arc::clone(&self.0.borrow())
    }

    /// The current rights, and marks them as noticed.
    pub fn notice(&mut self) -> Arc<Rights> {
        Arc::clone(&self.0.borrow_and_update())
    }

    /// Whether the rights have changed since they were noticed.
    pub fn has_changed(&self) -> bool {
        // Without a sender, the rights never change.
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until the rights have changed since they were noticed. Cancel safe.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Reads the file of an edge that starts, and follows it as long as a clone of the rights exists. Must run on a tokio runtime.
///
/// A file that becomes unreadable, becomes invalid or vanishes changes nothing: the rights in force stay, and the log says why.
///
/// # Errors
/// The rights at the start cannot be read.
pub fn follow(file: RightsFile) -> Result<LiveRights, RightsError> {
    follow_every(LOOK_INTERVAL, file)
}

fn follow_every(pause: Duration, file: RightsFile) -> Result<LiveRights, RightsError> {
    let written = file.read_or_open()?.1;
    let known = file.read_again()?;
    let text = &known.0;
    let path = file.path().display();
    if written {
        warn!(
            "this site is older than grants, so {path} was written: everything that was allowed stays allowed; give applications \
             their grants with `mez keys grant`, then run `mez keys rights --strict`"
        );
    } else {
        tell(&file, text);
    }
    let (sender, live) = LiveRights::changing(text.rights());
    tokio::spawn(look(pause, file, known, sender));
    Ok(live)
}

async fn look(
    pause: Duration,
    file: RightsFile,
    mut known: (RightsText, String),
    rights: watch::Sender<Arc<Rights>>,
) {
    let mut looks = interval(pause);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = rights.closed() => return,
        }
        let reading = file.clone();
        let Ok(read) = tokio::task::spawn_blocking(move || reading.read_again()).await else { return };
        match read {
            Ok(read) => {
                let mended = complaint.take().is_some();
                if mended || read.0 != known.0 {
                    tell(&file, &read.0);
                }
                if read.0 != known.0 {
                    if let Some(warning) = all_taken(&file, &known, &read.0) {
                        warn!("{warning}");
                    }
                    rights.send_replace(Arc::new(read.0.rights()));
                }
                // Also if only comments changed: the copy of the text must contain them.
                known = read;
            }
            Err(failure) => {
                let failure = failure.to_string();
                // Logged once, not every second.
                if complaint.as_ref() != Some(&failure) {
                    error!("the rights in force stay unchanged: {failure}");
                }
                complaint = Some(failure);
            }
        }
    }
}

/// The warning about a change that removes all grants at once, as when the file was cut. Keeps the previous text in [`super::BEFORE`].
fn all_taken(file: &RightsFile, before: &(RightsText, String), now: &RightsText) -> Option<String> {
    let path = file.path().display();
    let taken = match (before.0.stance, before.0.grants.len()) {
        _ if now.stance == Stance::Open || !now.grants.is_empty() => return None,
        (Stance::Deny, 0) => return None,
        (Stance::Deny, 1) => "the only grant was removed".into(),
        (Stance::Deny, grants) => format!("all {grants} grants were removed at once"),
        (Stance::Open, _) => "everything was allowed before, and there are no grants".into(),
    };
    let begin = format!("{taken}: according to {path}, only the edge's own user may do anything now");
    Some(match file.keep(&before.1) {
        Ok(kept) => {
            format!(
                "{begin}; if this was a mistake, run `mv {} {path}`, which restores what was allowed before",
                kept.display()
            )
        }
        Err(error) => {
            format!(
                "{begin}; if this was a mistake, restore the file from a copy (no copy was kept: {error})"
            )
        }
    })
}

fn tell(file: &RightsFile, text: &RightsText) {
    let (path, grants) = (file.path().display(), text.grants.len());
    match text.stance {
        Stance::Deny => info!(%path, grants, "the rights in force: only what is granted is allowed"),
        Stance::Open if grants == 0 => {
            info!(%path, "the rights in force: everything that was allowed before grants existed")
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

    /// Replaces the file as a whole. Otherwise a read between truncation and write sees an empty file, which removes all grants.
    fn put(file: &RightsFile, text: &str) {
        let beside = file.path().with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::rename(&beside, file.path()).unwrap();
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

        // Each of these texts would remove the right, or allow everything, if it counted.
        let good = fs::read_to_string(file.path()).unwrap();
        for broken in ["default = \"deny\"\ngrants = 1\n", "default = \"open", "\u{0}"] {
            put(&file, broken);
            tokio::time::sleep(10 * PAUSE).await;
            assert!(may_watch(&rights) && rights.now().stance() == Stance::Deny, "{broken:?}");
        }
        fs::remove_file(file.path()).unwrap();
        tokio::time::sleep(10 * PAUSE).await;
        assert!(may_watch(&rights));
        let gone = file.read_again().unwrap_err().to_string();
        assert!(gone.contains("is missing") && gone.contains("mez keys rights --strict"), "{gone}");
        put(&file, &good.replace("watch", "read"));
        until(&mut rights, false).await;
    }

    /// A rights file that is emptied by mistake removes all grants. Its previous text is kept, and the warning says how to restore it.
    #[tokio::test]
    async fn whoever_empties_the_file_by_mistake_gets_the_grants_back() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        file.create(Stance::Deny).unwrap();
        let whole = "# ours\n[grants.\"app/counter\"]\nwatch = [\"dock/*\", \"yard/*\"] # the dock\n";
        fs::write(file.path(), whole).unwrap();
        let mut rights = follow_every(PAUSE, file.clone()).unwrap();
        fs::write(file.path(), "").unwrap();
        until(&mut rights, false).await;
        let kept = keys.path().join("rights.toml.before");
        assert_eq!(fs::read_to_string(&kept).unwrap(), whole, "with its comments");
        assert_eq!(crate::identity::files::mode(&kept).unwrap(), 0o600);
        fs::rename(&kept, file.path()).unwrap();
        until(&mut rights, true).await;

        let before = file.read_again().unwrap();
        let warning = all_taken(&file, &before, &RightsText::default()).unwrap();
        assert!(warning.contains("all 2 grants were removed") && warning.contains("`mv "), "{warning}");
        let less = RightsText::parse("[grants.\"app/counter\"]\nwatch = [\"dock/*\"]").unwrap();
        assert_eq!(all_taken(&file, &before, &less), None);
        assert_eq!(all_taken(&file, &(RightsText::default(), String::new()), &RightsText::default()), None);
    }
}
