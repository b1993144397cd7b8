//! Asks a camera for key frames, one request at a time and rarely, and logs once whether this works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::address::ServiceAddress;
use super::device::{Device, OnvifError};
use crate::source::spec::SourceSpec;

/// The shortest time between two requests to a camera. A key frame has about ten times the bytes of other frames.
const ASKED_ONCE_IN: Duration = Duration::from_secs(2);
/// The pause after the first failed request. It doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// How long a request for a key frame may take, with the look for the profile: one request for each profile and a few more.
const LOOKING_TIME_MAX: Duration = Duration::from_secs(30);

/// Asks one camera for key frames. Dropping it ends its requests.
#[derive(Debug)]
pub(in crate::source) struct OnvifAsker {
    /// The task, until it starts.
    waiting: Mutex<Option<Asking>>,
    wanted: Arc<Notify>,
    is_able: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

impl OnvifAsker {
    pub(in crate::source) fn new(address: ServiceAddress, source: &SourceSpec) -> Self {
        let (wanted, is_able) = (Arc::<Notify>::default(), Arc::<AtomicBool>::default());
        let asking = Asking {
            source: source.to_string(),
            device: Device::new(address, source),
            wanted: Arc::clone(&wanted),
            is_able: Arc::clone(&is_able),
            told: Told::default(),
        };
        Self { waiting: Mutex::new(Some(asking)), wanted, is_able, task: Mutex::default() }
    }

    /// Starts the task for a source that gives packets. The task checks whether the camera can be asked for
    /// key frames, and logs the result. Further calls have no effect. Must be called within a Tokio runtime.
    pub(in crate::source) fn begin(&self) {
        let Some(asking) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let task = tokio::spawn(asking.run()).abort_handle();
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Whether the last request to the camera succeeded.
    pub(in crate::source) fn is_able(&self) -> bool {
        self.is_able.load(Ordering::Relaxed)
    }

    /// Wishes for a key frame. Several pending wishes count as one.
    pub(in crate::source) fn wish(&self) {
        self.wanted.notify_one();
    }
}

impl Drop for OnvifAsker {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// What was logged about a camera.
#[derive(Default)]
struct Told {
    works: bool,
    fails: bool,
}

/// The task that asks the camera.
struct Asking {
    /// The source, without credentials.
    source: String,
    device: Device,
    wanted: Arc<Notify>,
    is_able: Arc<AtomicBool>,
    told: Told,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Asking").field(&self.source).finish()
    }
}

impl Asking {
    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let mut looked = self.look().await;
        let mut rests_until = Instant::now() + if looked { Duration::ZERO } else { pause };
        loop {
            self.wanted.notified().await;
            // A wish during a pause is dropped: a key frame ten minutes later would be of no use.
            if !looked && Instant::now() < rests_until {
                continue;
            }
            tokio::time::sleep_until(rests_until).await;
            looked = self.ask().await;
            pause = if looked { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            rests_until = Instant::now() + if looked { ASKED_ONCE_IN } else { pause };
        }
    }

    /// Looks for the camera's profile. Returns whether there is one.
    async fn look(&mut self) -> bool {
        let found = timed(self.device.find()).await;
        self.tell(found.map(|found| found.to_string()))
    }

    async fn ask(&mut self) -> bool {
        let asked = timed(async {
            self.device.ask_key_frame().await?;
            Ok(self.device.find().await?.to_string())
        });
        let asked = asked.await;
        self.tell(asked)
    }

    /// Logs the outcome of a request, once if it works and once if it fails. Returns whether it works.
    fn tell(&mut self, answered: Result<String, String>) -> bool {
        let Self { source, device, told, .. } = self;
        let is_able = answered.is_ok();
        self.is_able.store(is_able, Ordering::Relaxed);
        match answered {
            Ok(found) if !told.works => {
                told.works = true;
                tracing::info!(source, "the camera accepts keyframe requests ({found})");
            }
            Ok(_) => {}
            Err(why) if !told.fails => {
                told.fails = true;
                tracing::warn!(
                    source,
                    "keyframes cannot be requested from the camera at {}: {why}; after an interruption, its own video continues only with its next \
                     keyframe. If the camera's device service has another address, give it with --source-onvif URL; if the camera has no device \
                     service, give --source-onvif off",
                    device.address()
                );
            }
            Err(why) => tracing::debug!(source, "a keyframe could not be requested: {why}"),
        }
        is_able
    }
}

/// Bounds the time of a request, and turns its error into text.
async fn timed<T>(asking: impl Future<Output = Result<T, OnvifError>>) -> Result<T, String> {
    match tokio::time::timeout(LOOKING_TIME_MAX, asking).await {
        Ok(asked) => asked.map_err(|error| error.to_string()),
        Err(_) => Err(format!("its answers took more than {} s", LOOKING_TIME_MAX.as_secs())),
    }
}
