//! How one application reads: frames of memory at once, frames of the past from wherever they are, without holding up anybody.
//!
//! A [`Reading`] drives a [`Subscription`]. Its questions for the past ([`mez_core::history`]) are answered by tasks of their own; the
//! disk is read by threads for blocking work, one frame at a time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use mez_core::history::{PastAnswer, PastQuery, Reach};
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::store::StoreReader;
use mez_core::subscription::{Next, Span, Subscription};
use mez_core::units::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::warn;

use crate::persist::{BOUNDS, LogFiles, PersistOptions};

/// Frames that may be read from disk at once by all readings of a broker. More would only wait for the same disk, and hold
/// threads and frames meanwhile.
const DISK_READS_MAX: usize = 4;

/// Where a broker's frames of the past are, besides memory.
pub(crate) struct PastPlaces {
    disk: Option<PersistOptions>,
    /// What is remembered of a camera's log stands in this folder.
    state_of: Box<dyn Fn(&CameraName) -> PathBuf + Send + Sync>,
    disk_reads: Arc<Semaphore>,
}

impl PastPlaces {
    /// The logs on disk, if they are kept. `state_of` is the folder of state of a camera.
    pub(crate) fn new(
        disk: Option<PersistOptions>,
        state_of: impl Fn(&CameraName) -> PathBuf + Send + Sync + 'static,
    ) -> Arc<Self> {
        let disk_reads = Arc::new(Semaphore::new(DISK_READS_MAX));
        Arc::new(Self { disk, state_of: Box::new(state_of), disk_reads })
    }

    fn reach(&self) -> Reach {
        if self.disk.is_some() { Reach::Disk } else { Reach::Memory }
    }

    fn of(&self, camera: &CameraName) -> Past {
        let disk = self.disk.as_ref().map(|options| {
            let files = LogFiles::reader(&options.folder, camera, (self.state_of)(camera).join(BOUNDS));
            Box::new((files, StoreReader::new(camera.clone(), options.keys.clone())))
        });
        Past { camera: camera.clone(), disk, disk_reads: Arc::clone(&self.disk_reads) }
    }
}

/// One camera's past for one reading.
struct Past {
    camera: CameraName,
    disk: Option<Box<(LogFiles, StoreReader)>>,
    disk_reads: Arc<Semaphore>,
}

impl Past {
    async fn answer(&mut self, query: PastQuery) -> PastAnswer {
        self.on_disk(query).await
    }

    async fn on_disk(&mut self, query: PastQuery) -> PastAnswer {
        let Some(mut disk) = self.disk.take() else { return PastAnswer::default() };
        // It is closed by nobody.
        let permit = Arc::clone(&self.disk_reads).acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let (files, reader) = &mut *disk;
            let answer = reader.find(files, &query);
            drop(permit);
            (disk, answer)
        });
        let Ok((disk, answer)) = read.await else { return PastAnswer::default() };
        match answer {
            Ok(answer) => {
                self.disk = Some(disk);
                answer
            }
            Err(error) => {
                warn!(camera = %self.camera, "the log on disk cannot be read: {error}");
                PastAnswer { broken: true, ..PastAnswer::default() }
            }
        }
    }
}

/// A subscription with its open questions.
pub(crate) struct Reading {
    subscription: Subscription,
    places: Option<Arc<PastPlaces>>,
    /// Who answers for a camera, between two questions.
    waiting: HashMap<CameraName, Past>,
    /// At most one for each camera.
    asking: JoinSet<(Past, PastAnswer)>,
}

impl Reading {
    /// A reading of nothing yet.
    pub(crate) fn new(span: Span, places: Option<Arc<PastPlaces>>) -> Self {
        let reach = places.as_ref().map_or(Reach::Memory, |places| places.reach());
        Self {
            subscription: Subscription::reaching(span, reach),
            places,
            waiting: HashMap::new(),
            asking: JoinSet::new(),
        }
    }

    /// See [`Subscription::attach_from`].
    pub(crate) fn attach_from(&mut self, camera: CameraName, log: LogReader, present: u64) {
        self.subscription.attach_from(camera, log, present);
    }

    /// How many cameras are read.
    pub(crate) fn cameras(&self) -> usize {
        self.subscription.cameras().count()
    }

    /// What was asked for.
    pub(crate) fn span(&self) -> Span {
        self.subscription.span()
    }

    /// What there is now. Puts the questions that have come up.
    pub(crate) fn next(&mut self, now: Timestamp) -> Next {
        let next = self.subscription.next(now);
        while let Some((camera, query)) = self.subscription.poll_past() {
            let past = self.waiting.remove(&camera);
            let past = past.or_else(|| self.places.as_ref().map(|places| places.of(&camera)));
            match past {
                Some(mut past) => {
                    self.asking.spawn(async move {
                        let answer = past.answer(query).await;
                        (past, answer)
                    });
                }
                None => self.subscription.handle_past(&camera, PastAnswer::default()),
            }
        }
        next
    }

    /// Waits for an answer; for ever if there is no question. Cancelling this loses nothing.
    pub(crate) async fn answered(&mut self) {
        match self.asking.join_next().await {
            Some(Ok((past, answer))) => {
                self.subscription.handle_past(&past.camera, answer);
                self.waiting.insert(past.camera.clone(), past);
            }
            // Only the end of the runtime ends a task before it has answered.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}
