//! Records which certificate made which start of a camera, and when the camera was reset. So an operator can tell a thief's starts apart.
//!
//! Each camera has a file, `edge/NAME/@starts`, in the folder for state: a line of JSON for each start or reset,
//! the oldest first. A separate thread reads and writes the files, so that nothing else waits for the disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use mez_core::frame::Epoch;
use mez_core::name::CameraName;
use mez_core::units::{ClockAnchor, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::state::{edge_folder, write_durably};

/// The most starts that are remembered of each camera. Beyond that, the oldest start is removed that has a later start with the
/// same certificate and address. So repeated starts of a thief cannot push out the camera's own starts, nor the other way round.
pub const STARTS_MAX: usize = 64;
/// The most resets that are remembered of each camera. Beyond that, the oldest is removed.
pub const RESETS_MAX: usize = 64;
/// The file in a camera's folder for state.
const FILE: &str = "@starts";
/// The length of the queue of records for the disk. If it is full, a new record is dropped and an error is logged.
const WAITING_MAX: usize = 1024;
/// The most cameras that are remembered in memory if there is no folder for state.
const CAMERAS_MAX: usize = 256;

/// A start of a camera broker that an edge accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameraStart {
    /// The epoch.
    pub epoch: u64,
    /// Distinguishes it from another start with the same epoch.
    anchor: (u64, u64),
    /// When the edge first accepted the start, in nanoseconds since 1970.
    pub first_utc_ns: u64,
    /// The identity in its certificate.
    pub identity: String,
    /// The certificate's serial number, in hexadecimal digits.
    pub serial: String,
    /// SHA-256 over the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The address that the camera connected from.
    pub address: String,
}

impl CameraStart {
    pub(super) fn new(
        (epoch, anchor): (Epoch, ClockAnchor),
        now: Timestamp,
        [identity, serial, fingerprint, address]: [String; 4],
    ) -> Self {
        let anchor = (anchor.wall.as_nanos(), anchor.monotonic.as_nanos());
        Self { epoch: epoch.0, anchor, first_utc_ns: now.as_nanos(), identity, serial, fingerprint, address }
    }

    /// The certificate and the address.
    fn whose(&self) -> (&str, &str) {
        (&self.fingerprint, &self.address)
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.epoch, self.anchor, self.whose()) == (other.epoch, other.anchor, other.whose())
    }
}

/// A reset of a camera.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CameraReset {
    /// The time, in nanoseconds since 1970.
    pub utc_ns: u64,
    /// The user of the edge's host who asked for it.
    pub uid: u32,
    /// The epoch that was forgotten. `None`: nothing was known of the camera.
    pub epoch: Option<u64>,
    /// The identity of the newest start that was forgotten. Empty if it is not known.
    pub identity: String,
    /// The folder that now holds the camera's log. `None`: there was no log on disk.
    pub put_aside: Option<PathBuf>,
}

/// The remembered starts and resets of a camera.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CameraRecord {
    /// Its starts, the oldest first.
    pub starts: Vec<CameraStart>,
    /// Its resets, the oldest first.
    pub resets: Vec<CameraReset>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Start(CameraStart),
    Reset(CameraReset),
}

impl CameraRecord {
    /// Adds a start. Returns false if it is already known.
    fn add(&mut self, start: CameraStart) -> bool {
        if self.starts.iter().any(|known| known.is_same(&start)) {
            return false;
        }
        if self.starts.len() >= STARTS_MAX {
            let later = |at: usize| {
                self.starts[at + 1..].iter().any(|other| other.whose() == self.starts[at].whose())
            };
            let oldest = (0..self.starts.len()).find(|at| later(*at)).unwrap_or(0);
            self.starts.remove(oldest);
        }
        self.starts.push(start);
        true
    }

    fn add_reset(&mut self, reset: CameraReset) {
        let surplus = (self.resets.len() + 1).saturating_sub(RESETS_MAX);
        self.resets.drain(..surplus);
        self.resets.push(reset);
    }

    fn to_text(&self) -> serde_json::Result<String> {
        let starts = self.starts.iter().cloned().map(|start| (start.first_utc_ns, Line::Start(start)));
        let resets = self.resets.iter().cloned().map(|reset| (reset.utc_ns, Line::Reset(reset)));
        let mut lines: Vec<(u64, Line)> = starts.chain(resets).collect();
        lines.sort_by_key(|(at, _)| *at);
        let mut text = String::new();
        for (_, line) in lines {
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// Parses a file of starts. Damaged lines are skipped and counted, because the rest is worth keeping.
    fn from_text(text: &str) -> (Self, usize) {
        let (mut record, mut damaged) = (Self::default(), 0);
        for line in text.lines().filter(|line| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(Line::Start(start)) => drop(record.add(start)),
                Ok(Line::Reset(reset)) => record.add_reset(reset),
                Err(_) => damaged += 1,
            }
        }
        (record, damaged)
    }
}

enum Order {
    Start(CameraName, Box<CameraStart>),
    Reset(CameraName, Box<CameraReset>, oneshot::Sender<io::Result<()>>),
    Read(CameraName, oneshot::Sender<CameraRecord>),
}

/// Records starts and resets. Cheap to clone; the thread ends after the last clone is dropped.
#[derive(Clone)]
pub(super) struct Starts(SyncSender<Order>);

impl Starts {
    /// Starts the thread. Records are kept below `state`, or in memory only.
    pub(super) fn begin(state: Option<PathBuf>) -> io::Result<Self> {
        let (orders, queue) = sync_channel(WAITING_MAX);
        let keeper = Keeper { state, in_memory: BTreeMap::new() };
        thread::Builder::new().name("mez-starts".into()).spawn(move || keeper.run(&queue))?;
        Ok(Self(orders))
    }

    /// Records a start that the edge has accepted. Does not wait: if the queue is full, the record is dropped.
    pub(super) fn started(&self, camera: &CameraName, start: CameraStart) {
        if self.0.try_send(Order::Start(camera.clone(), Box::new(start))).is_err() {
            error!(%camera, "a start of the camera was not recorded: the disk of the folder for state does not keep up");
        }
    }

    /// Records a reset of a camera. Returns once the record is on disk.
    pub(super) async fn reset(&self, camera: &CameraName, reset: CameraReset) -> io::Result<()> {
        let (done, recorded) = oneshot::channel();
        let stuck = || io::Error::other("the disk of the folder for state does not answer");
        self.0.try_send(Order::Reset(camera.clone(), Box::new(reset), done)).map_err(|_| stuck())?;
        recorded.await.unwrap_or_else(|_| Err(stuck()))
    }

    /// The remembered starts and resets of a camera. Empty if the thread does not keep up.
    pub(super) async fn read(&self, camera: &CameraName) -> CameraRecord {
        let (answer, read) = oneshot::channel();
        if self.0.try_send(Order::Read(camera.clone(), answer)).is_err() {
            return CameraRecord::default();
        }
        read.await.unwrap_or_default()
    }
}

struct Keeper {
    state: Option<PathBuf>,
    /// The records, if there is no folder for state.
    in_memory: BTreeMap<CameraName, CameraRecord>,
}

impl Keeper {
    fn run(mut self, queue: &Receiver<Order>) {
        while let Ok(order) = queue.recv() {
            match order {
                Order::Start(camera, start) => {
                    let mut record = self.read(&camera);
                    let CameraStart { epoch, serial, address, .. } = &*start;
                    let (epoch, serial, address) = (*epoch, serial.clone(), address.clone());
                    if record.add(*start) {
                        info!(%camera, epoch, serial, address, "a start of the camera was accepted");
                        if let Err(error) = self.write(&camera, record) {
                            error!(%camera, "a start of the camera was not recorded: {error}");
                        }
                    }
                }
                Order::Reset(camera, reset, done) => {
                    let mut record = self.read(&camera);
                    record.add_reset(*reset);
                    let _ = done.send(self.write(&camera, record));
                }
                Order::Read(camera, answer) => {
                    let _ = answer.send(self.read(&camera));
                }
            }
        }
    }

    fn path(state: &Path, camera: &CameraName) -> PathBuf {
        edge_folder(state, camera).join(FILE)
    }

    fn read(&self, camera: &CameraName) -> CameraRecord {
        let Some(state) = &self.state else { return self.in_memory.get(camera).cloned().unwrap_or_default() };
        let path = Self::path(state, camera);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let (record, damaged) = CameraRecord::from_text(&text);
                if damaged > 0 {
                    warn!(%camera, damaged, "damaged lines of {} are ignored", path.display());
                }
                record
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => CameraRecord::default(),
            Err(error) => {
                error!(%camera, "the starts of the camera cannot be read from {}: {error}", path.display());
                CameraRecord::default()
            }
        }
    }

    fn write(&mut self, camera: &CameraName, record: CameraRecord) -> io::Result<()> {
        let Some(state) = &self.state else {
            if self.in_memory.len() >= CAMERAS_MAX && !self.in_memory.contains_key(camera) {
                self.in_memory.pop_first();
            }
            self.in_memory.insert(camera.clone(), record);
            return Ok(());
        };
        let path = Self::path(state, camera);
        let folder = edge_folder(state, camera);
        fs::create_dir_all(&folder)?;
        write_durably(&folder, &path, record.to_text()?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use mez_core::units::Instant;

    use super::*;

    fn camera() -> CameraName {
        "dock/cam1".parse().unwrap()
    }

    fn start(epoch: u64, certificate: &str, address: &str) -> CameraStart {
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(epoch), monotonic: Instant::from_nanos(7) };
        let texts = ["spiffe://site/camera/dock", certificate, certificate, address].map(str::to_owned);
        CameraStart::new((Epoch(epoch), anchor), Timestamp::from_nanos(1_000 + epoch), texts)
    }

    fn reset(utc_ns: u64) -> CameraReset {
        let put_aside = Some("/log/@aside/x".into());
        CameraReset {
            utc_ns,
            uid: 7,
            epoch: Some(9),
            identity: "spiffe://site/camera/dock".into(),
            put_aside,
        }
    }

    #[tokio::test]
    async fn starts_and_resets_outlive_the_broker() {
        let folder = tempfile::tempdir().unwrap();
        let state = Some(folder.path().to_path_buf());
        let starts = Starts::begin(state.clone()).unwrap();
        for known in [start(1, "a", "::1"), start(1, "a", "::1"), start(2, "b", "::1"), start(1, "a", "::2")]
        {
            starts.started(&camera(), known);
        }
        starts.reset(&camera(), reset(1_002)).await.unwrap();
        drop(starts);

        let starts = Starts::begin(state).unwrap();
        let record = starts.read(&camera()).await;
        let whose: Vec<_> = record.starts.iter().map(|start| (start.epoch, start.whose())).collect();
        assert_eq!(whose, [(1, ("a", "::1")), (1, ("a", "::2")), (2, ("b", "::1"))]);
        assert_eq!(record.resets, [reset(1_002)]);

        // A damaged line loses only itself.
        let path = folder.path().join("edge/dock/cam1/@starts");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("{", "?", 1)).unwrap();
        assert_eq!(starts.read(&camera()).await.starts.len(), 2);
    }

    /// A camera that starts again and again does not push out the starts of others.
    #[test]
    fn a_flood_of_starts_leaves_one_of_everybody() {
        let mut record = CameraRecord::default();
        record.add(start(1, "camera", "::1"));
        for epoch in 0..10 * STARTS_MAX as u64 {
            record.add(start(100 + epoch, "thief", "::2"));
        }
        assert_eq!(record.starts.len(), STARTS_MAX);
        assert_eq!(record.starts[0].whose(), ("camera", "::1"));
        assert_eq!(record.starts.last().map(|start| start.epoch), Some(99 + 10 * STARTS_MAX as u64));
        for epoch in 0..10 * STARTS_MAX as u64 {
            record.add(start(epoch, "thief", &epoch.to_string()));
        }
        assert_eq!(record.starts.len(), STARTS_MAX);
    }
}
