//! Pictures and video for the page: one ordinary subscription for each principal and camera, shared by all tabs of the principal.
//!
//! A view begins with its first request and ends a few seconds after the last. Its subscription only looks on: beside other subscriptions it takes
//! the frames that they get; alone it asks the camera for few small pictures. Each picture is decoded and scaled once, however many tabs show it. A
//! view of video reports which H.264 frames are in the edge's memory, and leaves decoding to the browser. It takes no frames from its subscription,
//! because these would begin with stills until the next chain.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{Epoch, FrameId, FrameMeta, Sequence};
use mez_core::name::CameraName;
use mez_core::units::Instant;
use mez_media::image::{Image, PixelFormat};
use mez_media::jpeg::{Decoder, Encoder, Sampling};
use mez_media::resize::{Filter, Resizer};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tonic::Code;

use super::fill::utc_ms;
use super::video::{self, Piece};
use super::watcher::Look;
use crate::api::edge::EdgeApi;
use crate::api::feed::Feed;
use crate::api::page::{VIEW_QUALITY, VIEW_RATE_MAX, VIEW_WIDTH_MAX};
use crate::api::pb::subscribe_event::Event;
use crate::api::{ApiError, Limit, Principal, pb};
use crate::clock::monotonic_now;

/// The most views at once. Each view is a subscription.
const VIEWS_MAX: usize = 128;
/// How often a view of video looks for new frames.
const VIDEO_INTERVAL: Duration = Duration::from_millis(50);
/// A view ends if it gets no request for this long.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// How long the first request of a view waits for a picture.
const FIRST_PICTURE_TIME_MAX: Duration = Duration::from_secs(2);

/// A small picture of a camera.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) jpeg: Bytes,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    pub(super) captured_utc_ms: u64,
    /// When the frame was captured, by this machine's monotonic clock. `None`: the clocks have not been compared.
    pub(super) captured: Option<Instant>,
    pub(super) rung: String,
    /// Width and height of the frame as it was published.
    pub(super) published: (u32, u32),
}

impl Picture {
    /// The frame that the picture shows.
    pub(super) fn id(&self) -> FrameId {
        FrameId { epoch: Epoch(self.epoch), sequence: Sequence(self.sequence) }
    }

    /// The same description for an earlier frame of the camera. Its capture time on this machine is unknown.
    pub(super) fn as_of(&self, meta: &FrameMeta) -> Self {
        let (epoch, sequence) = (meta.id.epoch.0, meta.id.sequence.0);
        Self { epoch, sequence, captured_utc_ms: utc_ms(meta.captured), captured: None, ..self.clone() }
    }

    /// The age of the frame now.
    pub(super) fn age(&self) -> Option<Duration> {
        self.captured.map(|captured| monotonic_now().saturating_since(captured))
    }
}

/// The state of a view.
#[derive(Clone)]
enum Shown {
    /// No frame has come yet.
    Nothing,
    Picture(Arc<Picture>),
    /// A frame of video came and is in the camera's log. This describes the frame, without its bytes.
    Came(Arc<Picture>),
    /// The view has ended.
    Failed(ApiError),
}

/// What a view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Independent pictures.
    Pictures,
    /// H.264 in its original encoding.
    Video,
}

type Key = (String, CameraName, Kind);

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

    /// The newest picture of a camera. Waits up to [`FIRST_PICTURE_TIME_MAX`] for the first picture. `None`: none has come.
    pub(super) async fn picture(
        &self,
        principal: &Principal,
        camera: &CameraName,
    ) -> Result<Option<Arc<Picture>>, ApiError> {
        self.api.check_watch(principal, camera)?;
        let mut shown = self.view(principal, camera, Kind::Pictures)?;
        let came = shown.wait_for(|shown| !matches!(shown, Shown::Nothing));
        let Ok(came) = tokio::time::timeout(FIRST_PICTURE_TIME_MAX, came).await else { return Ok(None) };
        match came.as_deref() {
            Ok(Shown::Picture(picture)) => Ok(Some(Arc::clone(picture))),
            Ok(Shown::Failed(error)) => Err(error.clone()),
            Ok(Shown::Nothing | Shown::Came(_)) | Err(_) => Ok(None),
        }
    }

    /// The frames of a camera's newest chain after the frame `after`, from the edge's memory. Waits up to
    /// [`FIRST_PICTURE_TIME_MAX`] for a new frame. `None`: no frame has come, or it is not H.264.
    pub(super) async fn video(
        &self,
        principal: &Principal,
        camera: &CameraName,
        after: Option<FrameId>,
    ) -> Result<Option<Piece>, ApiError> {
        self.api.check_watch(principal, camera)?;
        let mut shown = self.view(principal, camera, Kind::Video)?;
        let came = shown.wait_for(|shown| match shown {
            Shown::Came(came) => Some(came.id()) != after,
            shown => !matches!(shown, Shown::Nothing),
        });
        let Ok(came) = tokio::time::timeout(FIRST_PICTURE_TIME_MAX, came).await else { return Ok(None) };
        let newest = match came.as_deref() {
            Ok(Shown::Came(newest)) => Arc::clone(newest),
            Ok(Shown::Failed(error)) => return Err(error.clone()),
            Ok(Shown::Nothing | Shown::Picture(_)) | Err(_) => return Ok(None),
        };
        drop(came);
        let look = Arc::clone(&self.looks.borrow());
        let log = look.camera(camera).and_then(|looked| looked.camera.log.as_ref());
        Ok(log.and_then(|log| video::piece(log, after, newest)))
    }

    /// The state of the view of a principal and a camera. Begins the view if there is none.
    fn view(
        &self,
        principal: &Principal,
        camera: &CameraName,
        kind: Kind,
    ) -> Result<watch::Receiver<Shown>, ApiError> {
        let key = (principal.short(), camera.clone(), kind);
        let now = monotonic_now();
        let mut open = self.lock();
        if let Some(view) = open.get(&key) {
            view.asked.send_replace(now);
            return Ok(view.shown.clone());
        }
        if open.len() >= VIEWS_MAX {
            let message =
                format!("{VIEWS_MAX} pictures are already shown, which is the limit; close some tabs");
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
            let ended = views.show(&principal, (&key.1, kind), &shows, is_asked).await;
            // From here on, a request begins a new view.
            views.lock().remove(&key);
            if let Err(error) = ended {
                shows.send_replace(Shown::Failed(error));
            }
        });
        Ok(shown)
    }

    /// Shows pictures until no request has come for [`IDLE_MAX`].
    async fn show(
        &self,
        principal: &Principal,
        (camera, kind): (&CameraName, Kind),
        shows: &watch::Sender<Shown>,
        mut asked: watch::Receiver<Instant>,
    ) -> Result<(), ApiError> {
        // While the size of frames is unknown, waits for a look that knows it. The broker itself is not asked.
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
        if kind == Kind::Video {
            return self.show_video(camera, feed, shows, asked).await;
        }
        loop {
            let (frame, payload) = tokio::select! {
                came = next(&mut feed) => came?,
                () = idle(&mut asked) => return Ok(()),
            };
            if let Some(jpeg) = small(&frame, payload).await {
                shows.send_replace(Shown::Picture(Arc::new(picture(frame, jpeg))));
            }
            // Frames that come meanwhile are skipped; the next frame is the newest at that time.
            tokio::time::sleep(Duration::from_secs_f64(1.0 / VIEW_RATE_MAX)).await;
        }
    }

    /// Reports new H.264 frames until no request has come for [`IDLE_MAX`]. `feed` holds the right to see them, and keeps the camera sending.
    async fn show_video(
        &self,
        camera: &CameraName,
        mut feed: Feed,
        shows: &watch::Sender<Shown>,
        mut asked: watch::Receiver<Instant>,
    ) -> Result<(), ApiError> {
        let (mut told, stopping) = (None, self.api.stopping());
        loop {
            if let Some(lost) = feed.lost() {
                return Err(lost);
            }
            if *stopping.borrow() {
                return Err(ApiError::stopping());
            }
            let look = Arc::clone(&self.looks.borrow());
            let newest = look.camera(camera).and_then(|looked| video::newest(&look, looked));
            if let Some(newest) = newest.filter(|newest| told != Some(newest.id())) {
                told = Some(newest.id());
                shows.send_replace(Shown::Came(Arc::new(newest)));
            }
            tokio::select! {
                () = tokio::time::sleep(VIDEO_INTERVAL) => {}
                () = idle(&mut asked) => return Ok(()),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, View>> {
        // Each statement leaves the map consistent, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes after [`IDLE_MAX`] without a request.
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

/// The next frame of a feed, with its payload.
async fn next(feed: &mut Feed) -> Result<(pb::Frame, Bytes), ApiError> {
    loop {
        let told = match feed.next().await {
            Some(told) => told?,
            None => return Err(ApiError::stopping()),
        };
        let Event::Frame(frame) = told.event else { continue };
        let Some(bytes) = told.payload.and_then(|payload| payload.bytes()) else { continue };
        return Ok((*frame, bytes));
    }
}

/// Scales a frame down. `None`: it is not a picture.
async fn small(frame: &pb::Frame, payload: Bytes) -> Option<Bytes> {
    let small = spawn_blocking(move || made_small(&payload)).await.ok()?.ok();
    if small.is_none() {
        let (camera, sequence) = (&frame.camera, frame.sequence);
        tracing::debug!(camera, sequence, "a frame cannot be shown as a picture on the page");
    }
    small
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

/// Scales a JPEG down to the width of the page. A JPEG that is small enough is returned unchanged.
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
