//! Keeps the certificate of a member fresh for as long as a program runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mez_core::renewal::{Now, Renewal, Step};
use prost::Message;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use super::request::{Asked, RenewError};
use crate::api::pb;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::authority::random;
use crate::identity::certificate::{BACKDATED, Moment, Validity, moment};
use crate::identity::credentials::{Credentials, Held, IdentityFile};
use crate::identity::files::{self, FileError, Present, Readers};
use crate::identity::folder::{AUTHORITY_CERTIFICATE, KeyFolder};
use crate::lock::FileLock;

/// How long an edge may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How often the file is looked at while a new certificate is overdue: somebody may have enrolled this host anew.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// Held while an identity of the folder is renewed, so that programs with the same identity do not all do it.
const LOCK: &str = "renew.lock";

/// How a member reaches an edge.
pub(crate) trait Way: Send + 'static {
    /// Asks, and waits for the answer, a `RenewCertificateResponse`. An error is a sentence without a full stop.
    fn ask(&self, request: Bytes) -> impl Future<Output = Result<Bytes, String>> + Send;
    /// Ready when an edge can be reached again, after it could not. False: nobody needs the certificate any more.
    fn reconnected(&mut self) -> impl Future<Output = bool> + Send;
}

/// Renews the certificate whenever it is due, until the way is over.
pub(crate) async fn keep(credentials: Credentials, mut way: impl Way) {
    let mut keeper = Keeper { renewal: loaded(&credentials), credentials, said: String::new() };
    loop {
        let wait = match keeper.renewal.poll(now()) {
            Step::Ask => {
                keeper.renew(&way).await;
                continue;
            }
            Step::Wait(wait) => wait,
        };
        let is_due = keeper.renewal.is_due(now());
        let mut renewals = keeper.credentials.renewals();
        tokio::select! {
            needed = way.reconnected() => match needed {
                true => keeper.renewal.handle_connected(now(), chance()),
                false => return,
            },
            // Somebody else with the same credentials.
            Ok(()) = renewals.changed() => keeper.renewal = loaded(&keeper.credentials),
            () = sleep(if is_due { wait.min(FILE_INTERVAL) } else { wait }) => {
                if is_due {
                    keeper.look().await;
                }
            }
        }
    }
}

struct Keeper {
    credentials: Credentials,
    renewal: Renewal,
    /// What was logged last, so that the same is not logged with each attempt.
    said: String,
}

impl Keeper {
    async fn renew(&mut self, way: &impl Way) {
        if self.look().await {
            return;
        }
        match self.ask(way).await {
            Ok(()) => {
                let validity = self.credentials.validity();
                info!(identity = %self.credentials.identity(), until = %Moment(validity.not_after), "renewed the certificate");
                self.said.clear();
                self.renewal = Renewal::of_issued(validity.life(), BACKDATED, now(), chance());
            }
            Err(error) => {
                self.report(&error);
                self.renewal.handle_failed(now(), chance());
            }
        }
    }

    /// Takes up a newer certificate that somebody else has put into the file. Whether there was one.
    async fn look(&mut self) -> bool {
        let credentials = self.credentials.clone();
        let Ok(Some(held)) = spawn_blocking(move || newer_in_file(&credentials)).await else { return false };
        let validity = held.facts.validity;
        info!(identity = %self.credentials.identity(), until = %Moment(validity.not_after), "took up a newer certificate from its file");
        self.credentials.replace(held);
        self.renewal = loaded(&self.credentials);
        self.said.clear();
        true
    }

    async fn ask(&self, way: &impl Way) -> Result<(), RenewError> {
        // Of clones of the same credentials, and of programs with the same file, one asks.
        let turn = self.credentials.turn().await;
        let file = self.credentials.file().map(Path::to_path_buf);
        let lock = match file.as_deref().and_then(Path::parent).map(|folder| folder.join(LOCK)) {
            Some(path) => match spawn_blocking(move || FileLock::take(&path)).await {
                Ok(Ok(None)) => return Err(RenewError::Busy),
                Ok(Ok(lock)) => lock,
                // A folder that cannot be written: the certificate is then renewed in memory.
                _ => None,
            },
            None => None,
        };
        let credentials = self.credentials.clone();
        let asked =
            spawn_blocking(move || Asked::by(&credentials)).await.map_err(|_| RenewError::Thread)??;
        let request = asked.request.encode_to_vec().into();
        let answer = timeout(ANSWER_TIME_MAX, way.ask(request)).await.unwrap_or_else(|_| {
            Err(format!("the edge did not answer within {} s", ANSWER_TIME_MAX.as_secs()))
        });
        let answer = answer.map_err(RenewError::Unreachable)?;
        let answer = pb::RenewCertificateResponse::decode(answer)
            .map_err(|_| RenewError::Unreachable("the edge's answer makes no sense".into()))?;
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
        self.write(&held).await;
        self.credentials.replace(held);
        drop((lock, turn));
        Ok(())
    }

    /// The old certificate did not hold by this host's clock either.
    fn warn_of_clock(&self, validity: Validity, theirs: Moment) {
        let ours = SystemTime::now();
        if !validity.holds_at(ours) {
            warn!(
                identity = %self.credentials.identity(),
                "the new certificate holds {validity} by the authority's clock, which says {theirs}; this host's clock says {}: set it",
                Moment(ours)
            );
        }
    }

    /// Writes the new certificate with its key to where the old one came from.
    async fn write(&self, held: &Arc<Held>) {
        let Some(file) = self.credentials.file().map(Path::to_path_buf) else { return };
        let held = Arc::clone(held);
        let written = spawn_blocking(move || write(&file, &held)).await;
        if let Ok(Err(error)) = written {
            warn!(
                identity = %self.credentials.identity(),
                "the renewed certificate is used but not kept: {error}; this program needs to write into its folder of keys"
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
                "the certificate of {short} expired at {}, this host's clock says {}, and it was not renewed in time: {why}; make a token \
                 where the site was made with `mez keys token {short}` and use it here with `mez keys enrol`: programs that run take the new \
                 certificate up",
                Moment(validity.not_after),
                Moment(SystemTime::now()),
            )
        } else {
            format!(
                "the certificate, which holds until {}, was not renewed: {why}; trying again",
                Moment(validity.not_after)
            )
        };
        // The time in it is new each time.
        let news = format!("{ended} {error}");
        if matches!(error, RenewError::Busy) || std::mem::replace(&mut self.said, news.clone()) == news {
            debug!(%identity, "{text}");
        } else if ended {
            error!(%identity, "{text}");
        } else {
            warn!(%identity, "{text}");
        }
    }
}

/// Writes the authorities first: certificates in the folder are always of an authority that it knows.
fn write(file: &Path, held: &Held) -> Result<(), FileError> {
    let authority = file.with_file_name(AUTHORITY_CERTIFICATE);
    let certificates = held.trust.pem();
    if files::read(&authority)? != certificates.as_bytes() {
        files::write(&authority, certificates.as_bytes(), Readers::Everybody, Present::Replace)?;
    }
    files::write(file, held.pem().as_bytes(), Readers::Owner, Present::Replace)
}

/// What the file holds, if it lasts longer than what is in use.
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

/// From 0 to 1.
fn chance() -> f64 {
    random::<4>().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
