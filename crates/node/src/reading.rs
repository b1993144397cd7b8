//! Reads frames for one application: from memory at once, and from the past without delaying anyone.
//!
//! A [`Reading`] drives a [`Session`]. Separate tasks answer its questions about the
//! past ([`mez_core::history`]). Blocking threads read the disk, one frame at a time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::NotSurveyed;
use mez_core::frame::FrameId;
use mez_core::history::{PastAnswer, PastQuery, Survey, Tier, Unanswered};
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::session::{KnownCameras, Session, SessionOutput};
use mez_core::stills::{
    Decoded, PastDecoded, PastFrames, PastStills, PastTask, StillAnswer, StillQuery, still_of,
};
use mez_core::store::{StorageError, StorageErrorKind, StoreReader};
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::{Instant, Timestamp};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::clock::monotonic_now;
use crate::edge::request::Cameras;
use crate::persist::{BOUNDS, LogFiles, PersistOptions};
use crate::warm::{LentDecoder, WarmDecoders};

/// The most frames that all readings of a broker may read from disk at once. More would wait for the same disk while they hold threads and memory.
const DISK_READS_MAX: usize = 4;

/// Finds a camera's state folder.
type StateOf = Box<dyn Fn(&CameraName) -> PathBuf + Send + Sync>;

/// Where a broker finds frames of the past, besides memory.
pub(crate) struct PastSources {
    disk: Option<(PersistOptions, StateOf)>,
    cameras: Option<Cameras>,
    disk_reads: Arc<Semaphore>,
    decoders: Arc<WarmDecoders>,
}

impl PastSources {
    /// `disk` are the logs on disk with their state folders, if there are any. `cameras` are the cameras of an edge.
    pub(crate) fn new(disk: Option<(PersistOptions, StateOf)>, cameras: Option<Cameras>) -> Arc<Self> {
        let disk_reads = Arc::new(Semaphore::new(DISK_READS_MAX));
        Arc::new(Self { disk, cameras, disk_reads, decoders: Arc::default() })
    }

    fn tier_max(&self) -> Tier {
        match (&self.cameras, &self.disk) {
            (Some(_), _) => Tier::Camera,
            (None, Some(_)) => Tier::Disk,
            (None, None) => Tier::Memory,
        }
    }

    /// A camera's log on disk, for reading without payloads. `None` if no logs are kept on disk.
    pub(crate) fn skimming(&self, camera: &CameraName) -> Option<(LogFiles, StoreReader)> {
        let (options, bounds) = self.kept(camera)?;
        let files = LogFiles::reader(&options.folder, camera, bounds);
        Some((files, StoreReader::skimming(camera.clone(), options.keys.clone())))
    }

    /// The options of the logs on disk, and the bounds file of the camera's log. `None` if no logs are kept on disk.
    pub(crate) fn kept(&self, camera: &CameraName) -> Option<(&PersistOptions, PathBuf)> {
        let (options, state_of) = self.disk.as_ref()?;
        Some((options, state_of(camera).join(BOUNDS)))
    }

    /// Asks the camera itself for frames of the past.
    pub(crate) async fn ask_camera(&self, camera: &CameraName, query: PastQuery) -> PastAnswer {
        match &self.cameras {
            Some(cameras) => cameras.ask(camera, query).await,
            None => PastAnswer::unanswered(Unanswered::Unable),
        }
    }

    /// Asks the camera itself for a survey of a span.
    pub(crate) async fn survey_camera(
        &self,
        camera: &CameraName,
        span: (Timestamp, Timestamp),
    ) -> Result<Survey, NotSurveyed> {
        match &self.cameras {
            Some(cameras) => cameras.survey(camera, span).await,
            None => Err(NotSurveyed::Unanswered(Unanswered::Unable)),
        }
    }

    fn disk_of(&self, camera: &CameraName) -> Disk {
        let log = self.kept(camera).map(|(options, bounds)| {
            let files = LogFiles::reader(&options.folder, camera, bounds);
            let reader = || StoreReader::new(camera.clone(), options.keys.clone());
            let (decoder, stills) = (self.decoders.lend(camera), PastStills::default());
            Box::new((OnDisk { files, reader: reader(), again: reader(), decoder }, stills))
        });
        Disk { camera: camera.clone(), log, reads: Arc::clone(&self.disk_reads) }
    }
}

/// One camera's log on this disk.
struct Disk {
    camera: CameraName,
    log: Option<Box<(OnDisk, PastStills)>>,
    reads: Arc<Semaphore>,
}

/// A log on disk with the decoder of its chains.
struct OnDisk {
    files: LogFiles,
    reader: StoreReader,
    /// A second reader for frames that are decoded again, so that `reader` keeps its position.
    again: StoreReader,
    decoder: LentDecoder,
}

impl PastFrames for OnDisk {
    type Error = StorageError;

    fn find(&mut self, query: &PastQuery) -> Result<PastAnswer, StorageError> {
        self.reader.find(&mut self.files, query)
    }

    fn find_again(&mut self, query: &PastQuery) -> Result<PastAnswer, StorageError> {
        self.again.find(&mut self.files, query)
    }

    fn decode(&mut self, record: &Record, task: PastTask) -> PastDecoded {
        let PastTask { afresh, wanted } = task;
        let (decoded, failure) = self.decoder.run(record.frame.clone(), afresh, wanted);
        match decoded {
            Decoded::Still { payload, encoding, width, height } => {
                let still = still_of(record, (payload, encoding), (width, height), Instant::ZERO);
                PastDecoded::Still(Box::new(still))
            }
            Decoded::Passed | Decoded::Picture(_) => PastDecoded::Passed,
            Decoded::NotHeld | Decoded::Failed => {
                let why = failure.map(|failure| failure.to_string()).unwrap_or_default();
                debug!(camera = %self.reader.camera(), frame = %record.frame.meta.id, "a frame of the log could not be decoded: {why}");
                PastDecoded::Failed
            }
        }
    }
}

impl Disk {
    /// Answers a query. Chained frames become stills.
    async fn answer(&mut self, query: PastQuery) -> PastAnswer {
        let Some(mut log) = self.log.take() else { return PastAnswer::default() };
        // The semaphore is never closed.
        let permit = Arc::clone(&self.reads).acquire_owned().await;
        let read = tokio::task::spawn_blocking(move || {
            let (on_disk, stills) = &mut *log;
            let before = on_disk.reader.damaged();
            let answer = stills.find(on_disk, &query);
            drop(permit);
            if before == 0 && on_disk.reader.damaged() > 0 {
                let folder = on_disk.files.folder().display();
                warn!(
                    camera = %on_disk.reader.camera(), %folder,
                    "frames of the log on disk cannot be read; the reader is told that they are damaged; `mez store verify` lists them"
                );
            }
            (log, answer)
        });
        let Ok((log, answer)) = read.await else { return PastAnswer::default() };
        self.log = Some(log);
        answer.unwrap_or_else(|error| {
            if error.kind != StorageErrorKind::Missing {
                warn!(camera = %self.camera, "the log on disk cannot be read: {error}");
            }
            PastAnswer { broken: true, ..PastAnswer::default() }
        })
    }
}

/// A camera broker's own past, in memory and on disk.
pub(crate) struct LocalPast {
    memory: LogReader,
    disk: Option<Disk>,
}

impl LocalPast {
    /// The past of this camera.
    pub(crate) fn new(camera: &CameraName, memory: LogReader, places: Option<&PastSources>) -> Self {
        Self { memory, disk: places.map(|places| places.disk_of(camera)) }
    }

    /// Answers a query, and returns this value for the next one.
    pub(crate) async fn read(mut self, ticket: u64, query: PastQuery) -> (Self, u64, PastAnswer) {
        let answer = self.answer(query).await;
        (self, ticket, answer)
    }

    async fn answer(&mut self, query: PastQuery) -> PastAnswer {
        let in_memory = query.find_in(&self.memory);
        let oldest = self.memory.oldest();
        let held_from = query.held_from(oldest.as_ref().map(|oldest| (oldest.id, oldest.captured)));
        let reaches = oldest.is_some_and(|oldest| {
            oldest.captured < query.begin || query.after.is_some_and(|after| oldest.id <= after.next())
        });
        let Some(disk) = self.disk.as_mut().filter(|_| !reaches || query.newest && in_memory.is_none())
        else {
            return PastAnswer { record: in_memory, held_from, ..PastAnswer::default() };
        };
        if query.newest && in_memory.is_some() {
            return PastAnswer { record: in_memory, held_from, ..PastAnswer::default() };
        }
        let before = in_memory.as_ref().map(|record| record.frame.meta.id).or(query.before);
        // The frames that a chained frame refers to may be only on disk, where the camera's codec does not find them.
        let on_disk = disk.answer(PastQuery { before, ..query }).await;
        let held_from = oldest_of(on_disk.held_from, held_from);
        PastAnswer { record: on_disk.record.or(in_memory), held_from, ..on_disk }
    }
}

/// One camera's past for one reading at an edge.
pub(crate) struct Past {
    disk: Disk,
    places: Arc<PastSources>,
    /// A frame from the disk that follows the frames requested from the camera.
    ahead: Option<Record>,
}

impl Past {
    pub(crate) fn new(places: &Arc<PastSources>, camera: &CameraName) -> Self {
        Self { disk: places.disk_of(camera), places: Arc::clone(places), ahead: None }
    }

    pub(crate) fn camera(&self) -> &CameraName {
        &self.disk.camera
    }

    /// Answers a query.
    pub(crate) async fn answer(&mut self, query: PastQuery) -> PastAnswer {
        let ahead = self.ahead.take().filter(|record| query.admits(&record.frame.meta));
        let on_disk = match ahead {
            Some(record) => PastAnswer { record: Some(record), ..PastAnswer::default() },
            None if !query.asks_disk() => PastAnswer::default(),
            None => self.disk.answer(query).await,
        };
        let Some((cameras, asks)) = self.places.cameras.as_ref().zip(on_disk.left_to_ask(&query)) else {
            return on_disk;
        };
        let fetched = cameras.ask(&self.disk.camera, asks).await;
        let (answer, ahead) = on_disk.with_camera(fetched);
        self.ahead = ahead;
        answer
    }
}

fn oldest_of(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Makes stills of frames in memory.
pub(crate) trait AsksStills {
    /// Requests the still of a frame in a camera's log. `None` if stills cannot be made of this camera.
    fn still(&self, camera: &CameraName, query: StillQuery) -> Option<oneshot::Receiver<StillAnswer>>;
}

/// A session with its open queries.
pub(crate) struct Reading {
    session: Session,
    places: Option<Arc<PastSources>>,
    /// The past of each camera between two queries.
    waiting: HashMap<CameraName, Past>,
    /// The open queries, with the camera's generation. At most one per camera, and one more each time that the camera was forgotten meanwhile.
    asking: JoinSet<(u64, Past, PastAnswer)>,
    /// The requested stills. At most one per camera.
    stills: JoinSet<(CameraName, FrameId, StillAnswer)>,
    /// How often each camera was forgotten. An answer of an earlier generation is about a log that was put aside.
    generations: HashMap<CameraName, u64>,
}

impl Reading {
    /// Opens a session. Limits the request to the tiers that `places` has.
    pub(crate) fn new(
        mut spec: SubscriptionSpec,
        places: Option<Arc<PastSources>>,
        open: impl FnOnce(&SubscriptionSpec) -> Session,
    ) -> Self {
        let tier_max = places.as_ref().map_or(Tier::Memory, |places| places.tier_max());
        spec.past.tier_max = spec.past.tier_max.min(tier_max);
        let (waiting, generations) = (HashMap::new(), HashMap::new());
        let (asking, stills) = (JoinSet::new(), JoinSet::new());
        Self { session: open(&spec), places, waiting, asking, stills, generations }
    }

    /// The session, for input.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Handles a forgotten camera. If the camera returns, its past is read anew: open files and pending answers belong to the old log.
    pub(crate) fn forget(&mut self, camera: &CameraName) {
        self.waiting.remove(camera);
        *self.generations.entry(camera.clone()).or_default() += 1;
        self.session.handle_forgotten(camera);
    }

    fn generation(&self, camera: &CameraName) -> u64 {
        self.generations.get(camera).copied().unwrap_or_default()
    }

    /// The next output for an application that can take a frame. Starts the queries that the session needs for it.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        known: &(impl KnownCameras + AsksStills),
    ) -> Option<SessionOutput> {
        self.take_answers();
        let output = self.session.poll(now, true, known);
        while let Some((camera, query)) = self.session.poll_past() {
            let past = self.waiting.remove(&camera);
            let past = past.or_else(|| self.places.as_ref().map(|places| Past::new(places, &camera)));
            match past {
                Some(mut past) => {
                    let generation = self.generation(&camera);
                    self.asking.spawn(async move {
                        let answer = past.answer(query).await;
                        (generation, past, answer)
                    });
                }
                None => self.session.handle_past(&camera, PastAnswer::default()),
            }
        }
        while let Some((camera, query)) = self.session.poll_still() {
            let frame = query.frame;
            match known.still(&camera, query) {
                Some(still) => {
                    // Without an answer, the maker has ended or has too much to do. Another frame may have a still.
                    let still = async move { (camera, frame, still.await.unwrap_or(StillAnswer::Overtaken)) };
                    self.stills.spawn(still);
                }
                None => self.session.handle_still(&camera, frame, StillAnswer::NotDecoded),
            }
        }
        output
    }

    /// Takes the answers that have come. Without this, a camera that always has a frame would starve those that need answers: the reading
    /// would never wait in [`Reading::stirs`].
    fn take_answers(&mut self) {
        while let Some(Ok(answered)) = self.asking.try_join_next() {
            self.handle_past(answered);
        }
        while let Some(Ok(answered)) = self.stills.try_join_next() {
            self.handle_still(answered);
        }
    }

    fn handle_still(&mut self, (camera, frame, answer): (CameraName, FrameId, StillAnswer)) {
        self.session.handle_still(&camera, frame, answer);
    }

    fn handle_past(&mut self, (generation, past, answer): (u64, Past, PastAnswer)) {
        if generation == self.generation(&past.disk.camera) {
            let camera = past.disk.camera.clone();
            self.session.handle_past(&camera, answer);
            self.waiting.insert(camera, past);
        }
    }

    /// Waits until the session may have output again, after it had none at `looked`:
    /// for an answer or a timeout, or forever if neither is pending. Cancel-safe.
    pub(crate) async fn stirs(&mut self, looked: Instant) {
        let due = self.session.poll_timeout(looked);
        let due = async {
            match due {
                // Timers count whole milliseconds.
                Some(due) => sleep(due.saturating_since(monotonic_now()) + Duration::from_millis(1)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answered = self.asking.join_next(), if !self.asking.is_empty() => {
                // A task fails to answer only if the runtime ends.
                if let Some(Ok(answered)) = answered {
                    self.handle_past(answered);
                }
            }
            made = self.stills.join_next(), if !self.stills.is_empty() => {
                if let Some(Ok(made)) = made {
                    self.handle_still(made);
                }
            }
            () = due => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::broker::edge::CameraView;
    use mez_core::frame::Encoding;
    use mez_core::log::{LogConfig, LogWriter, log};
    use mez_core::session::FrameTimes;
    use mez_core::units::ClockAnchor;

    use super::*;
    use crate::stills::tests::record;

    /// Cameras whose stills are ready at once. Each still is the frame itself, as if it had been decoded.
    struct Known;

    impl KnownCameras for Known {
        fn times(&self, _: &CameraName, _: &Record) -> FrameTimes {
            FrameTimes::default()
        }

        fn view(&self, _: &CameraName) -> Arc<CameraView> {
            Arc::default()
        }
    }

    impl AsksStills for Known {
        fn still(&self, _: &CameraName, query: StillQuery) -> Option<oneshot::Receiver<StillAnswer>> {
            let (answer, answered) = oneshot::channel();
            let still = Box::new(record(query.frame.sequence.0, Encoding::Jpeg));
            let _ = answer.send(StillAnswer::Still(still, None));
            Some(answered)
        }
    }

    /// An application that is slower than a camera always finds a frame of it. It must also get frames of a camera that needs stills.
    #[tokio::test]
    async fn a_camera_that_always_has_a_frame_does_not_hide_one_that_needs_stills() {
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(0), monotonic: Instant::ZERO };
        let spec = SubscriptionSpec::live("*".parse().unwrap());
        let mut reading = Reading::new(spec, None, |spec| Session::new(anchor, spec));
        let mut logs: Vec<(LogWriter, Encoding)> = Vec::new();
        for (name, encoding) in [("stills", Encoding::Jpeg), ("video", Encoding::H264)] {
            let (writer, reader) = log(LogConfig::default());
            reading.session().handle_attach(Instant::ZERO, name.parse().unwrap(), reader, 0);
            logs.push((writer, encoding));
        }
        let mut got = HashMap::new();
        for sequence in 0..20 {
            for (log, encoding) in &mut logs {
                log.append_record(record(sequence, *encoding)).unwrap();
            }
            if let Some(SessionOutput::Frame { delivery, .. }) = reading.poll(monotonic_now(), &Known) {
                *got.entry(delivery.camera.to_string()).or_insert(0) += 1;
            }
            // The application works on the frame, and answers come meanwhile.
            tokio::task::yield_now().await;
        }
        assert!(got["stills"] > 5 && got.get("video") > Some(&5), "{got:?}");
    }
}
