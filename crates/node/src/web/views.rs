//! Pictures for the page: one ordinary subscription of each principal and camera, shared by all of its tabs.
//!
//! A view begins with the first request for a picture and ends a few seconds after the last. Its subscription only looks on: beside others it
//! takes the frames that they get, and alone it asks the camera for few small pictures. Every picture is decoded and made small once, however
//! many tabs show it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::name::CameraName;
use mez_core::units::Instant;
use mez_media::image::{Image, PixelFormat};
use mez_media::jpeg::{Decoder, Encoder, Sampling};
use mez_media::resize::{Filter, Resizer};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tonic::Code;

use super::watcher::Look;
use crate::api::edge::EdgeApi;
use crate::api::feed::Feed;
use crate::api::page::{VIEW_QUALITY, VIEW_RATE_MAX, VIEW_WIDTH_MAX};
use crate::api::pb::subscribe_event::Event;
use crate::api::{ApiError, Limit, Principal, pb};
use crate::clock::monotonic_now;

/// The most views at once. Each is a subscription.
const VIEWS_MAX: usize = 128;
/// How long a view goes on that nobody asks for.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// How long the first request of a view waits for a picture.
const FIRST_PICTURE_TIME_MAX: Duration = Duration::from_secs(2);

/// A picture of a camera, made small.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) jpeg: Bytes,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) captured_utc_ms: u64,
    /// By this machine's monotonic clock. `None`: the clocks have not been compared.
    captured: Option<Instant>,
    pub(super) rung: String,
    /// Width and height of the frame as it was published.
    pub(super) published: (u32, u32),
}

impl Picture {
    /// How old it is now.
    pub(super) fn age(&self) -> Option<Duration> {
        self.captured.map(|captured| monotonic_now().saturating_since(captured))
    }
}

/// What a view shows.
#[derive(Clone)]
enum Shown {
    /// No picture has come yet.
    Nothing,
    Picture(Arc<Picture>),
    /// It is over.
    Failed(ApiError),
}

type Key = (String, CameraName);

/// The views of an edge's page. Cheap to clone.
#[derive(Clone)]
pub(super) struct Views {
    api: EdgeApi,
    looks: watch::Receiver<Arc<Look>>,
    open: Arc<Mutex<HashMap<Key, View>>>,
}

struct View {
    shown: watch::Receiver<Shown>,
    asked: watch::Sender<Instant>,
}

impl Views {
    pub(super) fn new(api: EdgeApi, looks: watch::Receiver<Arc<Look>>) -> Self {
        Self { api, looks, open: Arc::default() }
    }

    /// The newest picture of a camera. Waits for the first one. `None`: none has come.
    pub(super) async fn picture(
        &self,
        principal: &Principal,
        camera: &CameraName,
    ) -> Result<Option<Arc<Picture>>, ApiError> {
        self.api.check_watch(principal, camera)?;
        let mut shown = self.view(principal, camera)?;
        let came = shown.wait_for(|shown| !matches!(shown, Shown::Nothing));
        let Ok(came) = tokio::time::timeout(FIRST_PICTURE_TIME_MAX, came).await else { return Ok(None) };
        match came.as_deref() {
            Ok(Shown::Picture(picture)) => Ok(Some(Arc::clone(picture))),
            Ok(Shown::Failed(error)) => Err(error.clone()),
            Ok(Shown::Nothing) | Err(_) => Ok(None),
        }
    }

    /// What the view of a principal and a camera shows. It begins, if there is none.
    fn view(&self, principal: &Principal, camera: &CameraName) -> Result<watch::Receiver<Shown>, ApiError> {
        let key = (principal.short(), camera.clone());
        let now = monotonic_now();
        let mut open = self.lock();
        if let Some(view) = open.get(&key) {
            view.asked.send_replace(now);
            return Ok(view.shown.clone());
        }
        if open.len() >= VIEWS_MAX {
            let message = format!(
                "{VIEWS_MAX} pictures are shown at once already, the most that there may be; close some tabs"
            );
            return Err(ApiError::exhausted(
                "TOO_MANY_VIEWS",
                Limit::of_broker("views_max", VIEWS_MAX),
                message,
            ));
        }
        let (shows, shown) = watch::channel(Shown::Nothing);
        let (asked, is_asked) = watch::channel(now);
        open.insert(key.clone(), View { shown: shown.clone(), asked });
        let (views, principal) = (self.clone(), principal.clone());
        tokio::spawn(async move {
            let ended = views.show(&principal, &key.1, &shows, is_asked).await;
            // A request that comes now begins another one.
            views.lock().remove(&key);
            if let Err(error) = ended {
                shows.send_replace(Shown::Failed(error));
            }
        });
        Ok(shown)
    }

    /// Shows pictures until nobody has asked for one for a while.
    async fn show(
        &self,
        principal: &Principal,
        camera: &CameraName,
        shows: &watch::Sender<Shown>,
        mut asked: watch::Receiver<Instant>,
    ) -> Result<(), ApiError> {
        // Until it is known how large the frames are, the next look may tell it. The broker is asked nothing.
        let mut looks = self.looks.clone();
        let mut feed = loop {
            let look = Arc::clone(&looks.borrow_and_update());
            let known = look.camera(camera).map(|looked| &looked.camera.info);
            if let Some(feed) = self.api.view(principal, camera, known).await? {
                break feed;
            }
            tokio::select! {
                looked = looks.changed() => looked.map_err(|_| ApiError::stopping())?,
                () = idle(&mut asked) => return Ok(()),
            }
        };
        loop {
            let picture = tokio::select! {
                picture = next(&mut feed) => picture?,
                () = idle(&mut asked) => return Ok(()),
            };
            if let Some(picture) = picture {
                shows.send_replace(Shown::Picture(Arc::new(picture)));
            }
            // What comes meanwhile is skipped: the next is the newest then.
            tokio::time::sleep(Duration::from_secs_f64(1.0 / VIEW_RATE_MAX)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, View>> {
        // Every statement leaves it whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready when nobody has asked for [`IDLE_MAX`].
async fn idle(asked: &mut watch::Receiver<Instant>) {
    loop {
        let silent = monotonic_now().saturating_since(*asked.borrow_and_update());
        let Some(left) = IDLE_MAX.checked_sub(silent) else { return };
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            changed = asked.changed() => if changed.is_err() { return },
        }
    }
}

/// The next frame as a picture. `None`: it is none.
async fn next(feed: &mut Feed) -> Result<Option<Picture>, ApiError> {
    loop {
        let told = match feed.next().await {
            Some(told) => told?,
            None => return Err(ApiError::stopping()),
        };
        let Event::Frame(frame) = told.event else { continue };
        let Some(bytes) = told.payload.and_then(|payload| payload.bytes()) else { continue };
        let small = spawn_blocking(move || made_small(&bytes)).await;
        let Ok(Ok(jpeg)) = small else {
            tracing::debug!(
                camera = frame.camera,
                sequence = frame.sequence,
                "a frame is no picture for the page"
            );
            return Ok(None);
        };
        return Ok(Some(picture(*frame, jpeg)));
    }
}

pub(super) fn picture(frame: pb::Frame, jpeg: Bytes) -> Picture {
    Picture {
        jpeg,
        epoch: frame.epoch,
        sequence: frame.sequence,
        captured_utc_ms: frame.captured_utc_ns / 1_000_000,
        captured: frame.captured_monotonic_ns.map(Instant::from_nanos),
        rung: frame.rung,
        published: (frame.published_width, frame.published_height),
    }
}

/// A JPEG that is at most as wide as the page wants it. One that is small enough goes as it is.
pub(super) fn made_small(jpeg: &Bytes) -> Result<Bytes, ApiError> {
    let failed =
        |error: &dyn std::fmt::Display| ApiError::new(Code::Internal, "NO_PICTURE", error.to_string());
    let info = mez_media::jpeg::probe(jpeg).map_err(|error| failed(&error))?;
    if info.width <= VIEW_WIDTH_MAX {
        return Ok(jpeg.clone());
    }
    let height = (u64::from(info.height) * u64::from(VIEW_WIDTH_MAX) / u64::from(info.width)).max(1) as u32;
    let size = (VIEW_WIDTH_MAX, height);
    let (mut decoded, mut small) = (Image::empty(), Image::empty());
    let filled = Decoder::default()
        .decode_scaled(jpeg, PixelFormat::Bgr8, size, &mut decoded)
        .map_err(|error| failed(&error))?;
    let view = decoded.view().ok_or_else(|| failed(&"it has no pixels"))?;
    Resizer::new()
        .resize_filled(&view, filled, size, Filter::Area, &mut small)
        .map_err(|error| failed(&error))?;
    let view = small.view().ok_or_else(|| failed(&"it has no pixels"))?;
    let mut encoder = Encoder::new(VIEW_QUALITY, Sampling::Yuv420).map_err(|error| failed(&error))?;
    encoder.encode(&view).map_err(|error| failed(&error))
}
