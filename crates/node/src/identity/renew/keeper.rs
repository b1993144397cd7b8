//! Keeps the certificate of a member fresh for as long as a program runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mez_core::renewal::{Life, Now, Renewal, Step};
use prost::Message;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use super::request::{Asked, RenewError, certificates};
use crate::api::pb;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::authority::random;
use crate::identity::certificate::{BACKDATED, Moment, Validity, moment};
use crate::identity::credentials::{Credentials, Held, IdentityFile};
use crate::identity::files::{self, FileError, Present, Readers, Stamp};
use crate::identity::folder::{AUTHORITY_CERTIFICATE, KeyFolder};
use crate::lock::FileLock;

/// The shortest time that an edge gets for an answer. Between minimum and maximum, it is a thirtieth of the certificate's life.
const ANSWER_TIME_MIN: Duration = Duration::from_secs(1);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the file is checked for a newer certificate, from a new enrolment of this host or a renewal by another program.
const FILE_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// How often the file is checked while a renewal is overdue.
const FILE_INTERVAL_DUE: Duration = Duration::from_secs(5);
/// Held while an identity of the folder is renewed, so that only one of the programs with the same identity renews it.
const LOCK: &str = "renew.lock";

/// How a member reaches an edge.
pub(crate) trait Way: Send + 'static {
    /// Sends a request, and waits for the answer, a `RenewCertificateResponse`. An error is a sentence without a full stop.
    fn ask(&self, request: Bytes) -> impl Future<Output = Result<Bytes, String>> + Send;
    /// Completes when an edge can be reached again after an interruption. False: the certificate is no longer needed.
    fn reconnected(&mut self) -> impl Future<Output = bool> + Send;
}

/// Renews the certificate whenever it is due, until `way` ends.
pub(crate) async fn keep(credentials: Credentials, mut way: impl Way) {
    let mut keeper = Keeper::new(credentials);
    loop {
        let wait = match keeper.renewal.poll(now()) {
            Step::Ask => {
                keeper.renew(&way).await;
                continue;
            }
            Step::Listen => {
                keeper.listen(&way).await;
                continue;
            }
            Step::Wait(wait) => wait,
        };
        let pause = if keeper.renewal.is_due(now()) { FILE_INTERVAL_DUE } else { FILE_INTERVAL_MAX };
        tokio::select! {
            needed = way.reconnected() => match needed {
                true => keeper.renewal.handle_connected(now(), chance()),
                false => return,
            },
            // Another task with the same credentials has renewed. With a wrong clock, the new certificate would look overdue at once.
            Ok(()) = keeper.changes.changed() => keeper.begin_anew(),
            () = sleep(wait.min(pause)) => {
                if keeper.is_replaced().await {
                    keeper.look().await;
                }
            }
        }
    }
}

/// Renews one certificate, and remembers what was logged about it.
pub(super) struct Keeper {
    credentials: Credentials,
    /// Changes when another task has renewed the credentials.
    changes: watch::Receiver<u64>,
    renewal: Renewal,
    /// The stamp of the file when it was last checked.
    seen: Option<Stamp>,
    /// The last logged text, so that the same text is not logged at each attempt.
    said: String,
}

impl Keeper {
    pub(super) fn new(credentials: Credentials) -> Self {
        // Subscribed before the certificate is read, so that a renewal in between counts as a change.
        let changes = credentials.renewals();
        let seen = credentials.file().and_then(|file| files::stamp(file).ok());
        let renewal = loaded(&credentials);
        Self { credentials, changes, renewal, seen, said: String::new() }
    }

    /// Starts the schedule for a certificate that was just issued, to this keeper or to another one with the same credentials.
    fn begin_anew(&mut self) {
        self.changes.borrow_and_update();
        self.said.clear();
        self.renewal = Renewal::of_issued(self.life(), BACKDATED, now(), chance());
    }

    fn life(&self) -> Life {
        self.credentials.validity().life()
    }

    /// Renews the certificate, whether due or not. Failures are logged.
    pub(super) async fn renew(&mut self, way: &impl Way) {
        if self.look().await {
            return;
        }
        match self.ask(way).await {
            Ok(()) => self.begin_anew(),
            Err(error) => {
                self.report(&error);
                self.renewal.handle_failed(now(), chance());
            }
        }
    }

    /// Asks which authorities the site trusts. If there is a new authority, a renewal follows.
    async fn listen(&mut self, way: &impl Way) {
        let is_new = match self.question(way, Bytes::new()).await {
            Ok(answer) => {
                let trust = self.credentials.trust();
                let offered = certificates(answer.authorities);
                match (!offered.is_empty()).then(|| trust.follow(offered, SystemTime::now())) {
                    Some(Ok(Some(next))) => next.root() != trust.root(),
                    Some(Err(why)) => {
                        debug!(identity = %self.credentials.identity(), "the edge names another authority, but {why}");
                        false
                    }
                    Some(Ok(None)) | None => false,
                }
            }
            // Not urgent: the question is repeated later.
            Err(_) => false,
        };
        if is_new {
            info!(identity = %self.credentials.identity(), "the site has a new authority");
        }
        self.renewal.handle_heard(is_new, now(), chance());
    }

    /// Whether the file was replaced since the last check.
    async fn is_replaced(&mut self) -> bool {
        let Some(file) = self.credentials.file().map(Path::to_path_buf) else { return false };
        let found = spawn_blocking(move || files::stamp(&file).ok()).await.ok().flatten();
        found.is_some() && found != std::mem::replace(&mut self.seen, found)
    }

    /// Takes up a newer certificate from the file. Returns whether there was one.
    async fn look(&mut self) -> bool {
        let credentials = self.credentials.clone();
        let Ok(Some(held)) = spawn_blocking(move || newer_in_file(&credentials)).await else { return false };
        let validity = held.facts.validity;
        info!(identity = %self.credentials.identity(), until = %Moment(validity.not_after), "loaded a newer certificate from its file");
        self.credentials.replace(held);
        self.changes.borrow_and_update();
        self.renewal = loaded(&self.credentials);
        self.said.clear();
        true
    }

    async fn ask(&self, way: &impl Way) -> Result<(), RenewError> {
        // Of all clones of the credentials, and all programs with the same file, only one asks.
        let turn = self.credentials.turn().await;
        if self.life() != self.renewal.life() {
            return Ok(());
        }
        let file = self.credentials.file().map(Path::to_path_buf);
        let lock = match file.as_deref().and_then(Path::parent).map(|folder| folder.join(LOCK)) {
            Some(path) => match spawn_blocking(move || FileLock::take(&path)).await {
                Ok(Ok(None)) => return Err(RenewError::Busy),
                Ok(Ok(lock)) => lock,
                // In a folder that cannot be written, the certificate is renewed only in memory.
                _ => None,
            },
            None => None,
        };
        let credentials = self.credentials.clone();
        let asked =
            spawn_blocking(move || Asked::by(&credentials)).await.map_err(|_| RenewError::Thread)??;
        let answer = self.question(way, asked.request.encode_to_vec().into()).await?;
        let theirs = moment(answer.answered_utc_ns);
        let credentials = self.credentials.clone();
        let held = spawn_blocking(move || asked.accept(&credentials, answer, SystemTime::now()));
        let held = held.await.map_err(|_| RenewError::Thread)??;
        let validity = held.facts.validity;
        if !self.renewal.accepts(validity.life(), now()) {
            let (validity, ours) = (validity.to_string(), Moment(SystemTime::now()));
            return Err(RenewError::Clocks { validity, ours, theirs });
        }
        self.warn_of_clock(validity, theirs);
        keep_in_file(&self.credentials, &held).await;
        self.credentials.replace(held);
        drop((lock, turn));
        info!(identity = %self.credentials.identity(), until = %Moment(validity.not_after), "renewed the certificate");
        Ok(())
    }

    /// Asks an edge, and waits for its answer until the time limit.
    async fn question(
        &self,
        way: &impl Way,
        request: Bytes,
    ) -> Result<pb::RenewCertificateResponse, RenewError> {
        let patience = (self.credentials.validity().lasts() / 30).clamp(ANSWER_TIME_MIN, ANSWER_TIME_MAX);
        let late = |_| Err(format!("the edge did not answer within {:.0} s", patience.as_secs_f64()));
        let answer = timeout(patience, way.ask(request)).await.unwrap_or_else(late);
        let answer = answer.map_err(RenewError::Unreachable)?;
        pb::RenewCertificateResponse::decode(answer)
            .map_err(|_| RenewError::Unreachable("the edge's answer cannot be parsed".into()))
    }

    /// Warns if the new certificate is not valid by this host's clock.
    fn warn_of_clock(&self, validity: Validity, theirs: Moment) {
        let ours = SystemTime::now();
        if !validity.holds_at(ours) {
            warn!(
                identity = %self.credentials.identity(),
                "the new certificate is valid {validity}, and the authority's clock says {theirs}; this host's clock says {}: set this host's clock",
                Moment(ours)
            );
        }
    }

    fn report(&mut self, error: &RenewError) {
        let identity = self.credentials.identity();
        let (why, validity) = (error.to_string(), self.credentials.validity());
        let ended = self.renewal.has_ended(now());
        let text = if ended {
            let short = identity.short();
            format!(
                "the certificate of {short} expired at {}, this host's clock says {}, and it was not renewed in time: {why}; make a token where \
                 the site was made with `mez keys token {short}` and use it here with `mez keys enrol`: running programs load the new certificate",
                Moment(validity.not_after),
                Moment(SystemTime::now()),
            )
        } else {
            format!(
                "the certificate, which is valid until {}, was not renewed: {why}; trying again",
                Moment(validity.not_after)
            )
        };
        let news = match error {
            // The text contains the time, which is always different.
            RenewError::Refused { code, .. } => format!("{ended} {code:?}"),
            RenewError::Clocks { .. } => format!("{ended} clocks"),
            other => format!("{ended} {other}"),
        };
        if matches!(error, RenewError::Busy) || std::mem::replace(&mut self.said, news.clone()) == news {
            debug!(%identity, "{text}");
        } else if ended {
            error!(%identity, "{text}");
        } else {
            warn!(%identity, "{text}");
        }
    }
}

/// Writes a new certificate with its key into the file of the old one. The caller holds the [turn](Credentials::turn).
pub(super) async fn keep_in_file(credentials: &Credentials, held: &Arc<Held>) {
    let Some(file) = credentials.file().map(Path::to_path_buf) else { return };
    let held = Arc::clone(held);
    let written = spawn_blocking(move || write(&file, &held)).await;
    if let Ok(Err(error)) = written {
        warn!(
            identity = %credentials.identity(),
            "the new certificate is used, but cannot be saved: {error}; give this program write access to its folder of keys"
        );
    }
}

/// Writes the authorities first, so that the folder always knows the authority of its
/// certificates. If another program has followed a newer authority already, that authority stays.
fn write(file: &Path, held: &Held) -> Result<(), FileError> {
    let folder = file.parent().and_then(|folder| KeyFolder::open(folder).ok());
    let follows = |keys: &KeyFolder| {
        let next = keys.trust().follow(held.trust.certificates().to_vec(), SystemTime::now());
        next.is_ok_and(|next| next.is_some_and(|next| next.root() != keys.authority()))
    };
    if folder.is_some_and(|keys| follows(&keys)) {
        let authority = file.with_file_name(AUTHORITY_CERTIFICATE);
        files::write(&authority, held.trust.pem().as_bytes(), Readers::Everybody, Present::Replace)?;
    }
    files::write(file, held.pem().as_bytes(), Readers::Owner, Present::Replace)
}

/// The credentials in the file, if they expire later than the credentials in use.
fn newer_in_file(credentials: &Credentials) -> Option<Arc<Held>> {
    let file = credentials.file()?;
    let keys = KeyFolder::open(file.parent()?).ok()?;
    let found = IdentityFile::read(file, keys.trust()).content.ok()?;
    let newer = found.validity().not_after > credentials.validity().not_after;
    (newer && found.identity() == credentials.identity()).then(|| found.held())
}

fn loaded(credentials: &Credentials) -> Renewal {
    Renewal::of_loaded(credentials.validity().life(), BACKDATED, now(), chance())
}

fn now() -> Now {
    Now { monotonic: monotonic_now(), wall: wall_now() }
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    random::<4>().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
