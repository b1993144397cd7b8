//! A subscription for Python: for a thread that waits, or for an event loop.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::group::session::PlaceTold;
use mez_core::name::CameraName;
use mez_core::source::SourceStanding;
use mez_node::background::Background;
use mez_node::client::{self, Event};
use mez_node::clock::monotonic_now;
use pyo3::prelude::*;

use crate::frame::Arrival;
use crate::options::ContractArguments;
use crate::runtime::{Deadline, Owned, Waited, finish, lock, wait};
use crate::{error, log};

/// Frames of a subscription as they come.
#[pyclass(frozen, module = "mez._native")]
pub(crate) struct Subscription {
    place: Owned<Mutex<Place>>,
    bell: Arc<Bell>,
    closed: AtomicBool,
    every: bool,
    cameras: Vec<String>,
    control: Owned<client::SubscriptionControl>,
}

/// Waits for the next event, and returns the subscription with it.
type Waiting = Pin<Box<dyn Future<Output = (client::Subscription, Option<Event>)> + Send>>;

/// Where the subscription is.
enum Place {
    /// Not in use.
    Idle(client::Subscription),
    /// In a future that waits for its next event. Nothing is lost if the future is not
    /// polled for a while: a frame is chosen at the next poll, and is then the newest.
    Waiting(Waiting),
    /// In use by a thread that waits.
    Taken,
    /// Closed or ended.
    Over,
}

#[pymethods]
impl Subscription {
    /// What comes next; `None` where `timeout` seconds pass first. After the last event, and once closed,
    /// an `EndedError`.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        log::hand_on(py);
        let deadline = Deadline::after(py, timeout)?;
        let (place, background) = self.place.get(py)?;
        let mut waiting = self.take(py, place)?;
        let waited = wait(py, background, deadline, Some(&self.closed), waiting.as_mut());
        match waited {
            Ok(Waited::Done((subscription, event))) => self.came(py, place, subscription, event).map(Some),
            Ok(Waited::TimedOut) => {
                self.put_back(place, Place::Waiting(waiting));
                Ok(None)
            }
            Ok(Waited::Stopped) => {
                *lock(place) = Place::Over;
                background.enter(|| drop(waiting));
                Err(error::closed(py, "subscription"))
            }
            Err(signal) => {
                self.put_back(place, Place::Waiting(waiting));
                Err(signal)
            }
        }
    }

    /// What is there now, if anything. If not, `fileno` becomes readable when it is worth asking again.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        log::hand_on(py);
        let (place, background) = self.place.get(py)?;
        self.bell.silence();
        let mut waiting = self.take(py, place)?;
        let waker = Waker::from(Arc::clone(&self.bell));
        let polled = background.enter(|| waiting.as_mut().poll(&mut Context::from_waker(&waker)));
        match polled {
            Poll::Ready((subscription, event)) => self.came(py, place, subscription, event).map(Some),
            Poll::Pending => {
                self.put_back(place, Place::Waiting(waiting));
                Ok(None)
            }
        }
    }

    /// Asks for something else from now on, also while a thread waits for the next event.
    #[pyo3(signature = (*, latency_ms, accuracy, on_time_share, profile, profile_name, min_fps, on_infeasible, priority))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn update(
        &self,
        py: Python<'_>,
        latency_ms: Option<f64>,
        accuracy: Option<f64>,
        on_time_share: f64,
        profile: Option<Vec<u8>>,
        profile_name: Option<String>,
        min_fps: f64,
        on_infeasible: &str,
        priority: i32,
    ) -> PyResult<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(error::closed(py, "subscription"));
        }
        let asked = ContractArguments {
            latency_ms,
            accuracy,
            on_time_share,
            profile,
            profile_name,
            min_fps,
            on_infeasible,
            priority,
        };
        let (contract, profile) = asked.parse(py)?;
        let (control, background) = self.control.get(py)?;
        let changed = finish(py, background, || control.update(&contract, profile.as_ref()))?;
        changed.map_err(|failure| error::client(py, &failure))
    }

    /// Says how accurate the application's own result on a frame of a camera was.
    fn report_accuracy(&self, py: Python<'_>, camera: &str, accuracy: f64) -> PyResult<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(error::closed(py, "subscription"));
        }
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "frame", failure))?;
        let (control, background) = self.control.get(py)?;
        let said = finish(py, background, || control.report_accuracy(&camera, accuracy))?;
        said.map_err(|failure| error::client(py, &failure))
    }

    /// Says what came of a record of the program's group: its work is done, or an error. Does not wait. False if the program does not have
    /// the record.
    #[pyo3(signature = (camera, epoch, sequence, error))]
    fn settle(
        &self,
        py: Python<'_>,
        camera: &str,
        epoch: u64,
        sequence: u64,
        error: Option<String>,
    ) -> PyResult<bool> {
        let camera: CameraName = camera.parse().map_err(|failure| error::argument(py, "frame", failure))?;
        let frame = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        Ok(self.control.get(py)?.0.settle(&camera, frame, error))
    }

    /// Leaves the program's group, once the edge knows what was said of records, which may take so many seconds.
    fn leave(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        if !self.place.is_ours() {
            return Ok(());
        }
        let (control, background) = self.control.get(py)?;
        let patience = Duration::try_from_secs_f64(patience).unwrap_or_default();
        // If the edge does not answer, it gives the records to other members by itself.
        let _ = finish(py, background, || control.leave(patience))?;
        Ok(())
    }

    /// A descriptor for event loops; see `poll`.
    fn fileno(&self) -> i32 {
        self.bell.listener.as_raw_fd()
    }

    /// Whether every frame is delivered; otherwise the newest.
    #[getter]
    fn every(&self) -> bool {
        self.every
    }

    /// The cameras that matched at the start, connected or not.
    #[getter]
    fn cameras(&self) -> Vec<String> {
        self.cameras.clone()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Unsubscribes; says whether it did. A thread that waits for the next frame stops waiting. Closing
    /// twice does nothing, and neither does closing what a parent process opened.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.place.is_ours() || self.closed.swap(true, Ordering::Relaxed) {
            return Ok(false);
        }
        let (place, background) = self.place.get(py)?;
        let mut place = lock(place);
        // A thread that has taken the subscription drops it.
        if !matches!(*place, Place::Taken) {
            let gone = std::mem::replace(&mut *place, Place::Over);
            drop(place);
            background.enter(|| drop(gone));
        }
        // A caller in an event loop must poll again.
        self.bell.ring();
        Ok(true)
    }
}

impl Subscription {
    pub(crate) fn new(
        py: Python<'_>,
        background: &'static Background,
        subscription: client::Subscription,
    ) -> PyResult<Self> {
        let bell = Bell::new().map_err(|reason| {
            error::raise(
                py,
                "Error",
                format!("cannot make a pair of sockets ({reason}); raise the limit on open files"),
            )
        })?;
        Ok(Self {
            every: subscription.deliver() == mez_core::subscription::Deliver::Every,
            cameras: subscription.cameras().iter().map(ToString::to_string).collect(),
            control: Owned::new(background, "subscription", subscription.control()),
            place: Owned::new(background, "subscription", Mutex::new(Place::Idle(subscription))),
            bell: Arc::new(bell),
            closed: AtomicBool::new(false),
        })
    }

    fn take(&self, py: Python<'_>, place: &Mutex<Place>) -> PyResult<Waiting> {
        let mut place = lock(place);
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Idle(mut subscription) => Ok(Box::pin(async move {
                let event = subscription.next().await;
                (subscription, event)
            })),
            Place::Waiting(waiting) => Ok(waiting),
            Place::Taken => Err(error::raise(
                py,
                "Error",
                "another thread is waiting for the next frame of this subscription; give each thread its own",
            )),
            Place::Over => {
                *place = Place::Over;
                drop(place);
                Err(error::closed(py, "subscription"))
            }
        }
    }

    /// Puts the subscription back, unless it was closed meanwhile.
    fn put_back(&self, place: &Mutex<Place>, back: Place) {
        *lock(place) = if self.closed.load(Ordering::Relaxed) { Place::Over } else { back };
    }

    fn came(
        &self,
        py: Python<'_>,
        place: &Mutex<Place>,
        subscription: client::Subscription,
        event: Option<Event>,
    ) -> PyResult<Py<PyAny>> {
        let Some(event) = event else {
            *lock(place) = Place::Over;
            return Err(error::raise(py, "EndedError", "the subscription has ended; open a new one"));
        };
        self.put_back(place, Place::Idle(subscription));
        Ok(match event {
            Event::Frame(frame) => Py::new(py, Arrival::hand_over(py, *frame)?)?.into_any(),
            Event::Ended { rest } => Py::new(
                py,
                Ending {
                    rest: rest
                        .into_iter()
                        .map(|(camera, skipped, not_held)| {
                            let skipped =
                                skipped.iter().map(|(reason, count)| (reason.name(), count)).collect();
                            let not_held = not_held
                                .map(|span| (span.begin.as_nanos(), span.end.as_nanos(), span.reason.name()));
                            (camera.as_str().to_owned(), skipped, not_held)
                        })
                        .collect(),
                },
            )?
            .into_any(),
            Event::Failed { reason } => return Err(error::client(py, &reason)),
            Event::Camera { camera, up, reason } => {
                let kind = if up { "camera_up" } else { "camera_down" };
                notice(py, kind, Some(camera.as_str()), reason)?
            }
            Event::Contract { camera, state, reason } => {
                let (camera, reason) = (Some(camera.as_str().to_owned()), Some(reason));
                let state = Some(state.name());
                Py::new(py, Notice { kind: "contract", camera, reason, state, source: None })?.into_any()
            }
            Event::Source { camera, source } => {
                let camera = Some(camera.as_str().to_owned());
                let (reason, source) = (Some(source.reason.clone()), Some(source_parts(&source)));
                Py::new(py, Notice { kind: "source", camera, reason, state: None, source })?.into_any()
            }
            Event::Waiting { .. } => notice(py, "waiting", None, None)?,
            Event::Joined { place, survives } => {
                let (kind, reason) = joined(place, survives);
                notice(py, kind, None, Some(reason.into()))?
            }
            Event::Held { open: Some(open) } => {
                let reason = format!(
                    "no new records are given, because {open} records are not settled; call done() or failed() of each"
                );
                notice(py, "group_trouble", None, Some(reason))?
            }
            Event::Held { open: None } => {
                notice(py, "group", None, Some("new records are given again".into()))?
            }
            Event::Disconnected { reason } if reason.is_change_of_rights() => {
                notice(py, "rights", None, Some(reason.to_string()))?
            }
            Event::Disconnected { reason } => notice(py, "disconnected", None, Some(reason.to_string()))?,
            Event::Reconnected => notice(py, "reconnected", None, None)?,
        })
    }
}

/// The message for a program that has joined its group.
fn joined(place: PlaceTold, survives: bool) -> (&'static str, &'static str) {
    match (place, survives) {
        (PlaceTold::Kept, true) => ("group", "joined; the group's place survives a restart of the edge"),
        (PlaceTold::Kept, false) => {
            ("group", "joined; the group's place does not survive a restart of the edge")
        }
        (PlaceTold::Restored, _) => ("group", "the edge was restarted, and the group continues at its place"),
        (PlaceTold::Lost, _) => (
            "group_trouble",
            "this edge does not know the group's place: it was restarted and keeps no logs on disk, the group was forgotten, or this is \
             another edge with its own groups; records that were open are not given again",
        ),
    }
}

fn notice(
    py: Python<'_>,
    kind: &'static str,
    camera: Option<&str>,
    reason: Option<String>,
) -> PyResult<Py<PyAny>> {
    let camera = camera.map(str::to_owned);
    Ok(Py::new(py, Notice { kind, camera, reason, state: None, source: None })?.into_any())
}

/// Something that happened to a subscription besides frames.
#[pyclass(frozen, get_all, module = "mez._native")]
pub(crate) struct Notice {
    /// `camera_up`, `camera_down`, `source`, `contract`, `waiting`, `rights` (it subscribes again, because it may have other cameras),
    /// `disconnected`, `reconnected`, or `group` and `group_trouble` (what is told of its group).
    kind: &'static str,
    camera: Option<String>,
    reason: Option<String>,
    /// Of `contract`: how it stands now.
    state: Option<&'static str>,
    /// Of `source`: the source.
    source: Option<SourceParts>,
}

/// A camera's source: its state, the reason, seconds in this state, and seconds until the next attempt.
pub(crate) type SourceParts = (&'static str, String, Option<f64>, Option<f64>);

/// The current state of a camera's source, for Python.
pub(crate) fn source_parts(source: &SourceStanding) -> SourceParts {
    let now = monotonic_now();
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    let (lasts, retry) = (source.lasts(now).map(seconds), source.retry_in(now).map(seconds));
    (source.state.name(), source.reason.clone(), lasts, retry)
}

/// The final accounting of a camera: its name, skipped frames by reason, and what is not held.
type Rest = (String, Vec<(&'static str, u64)>, Option<(u64, u64, &'static str)>);

/// The end of a subscription, and what is left to account for of each camera.
#[pyclass(frozen, get_all, module = "mez._native")]
pub(crate) struct Ending {
    rest: Vec<Rest>,
}

/// Tells an event loop, which watches descriptors, that a future should be polled.
struct Bell {
    ringer: UnixStream,
    listener: UnixStream,
}

impl Bell {
    fn new() -> std::io::Result<Self> {
        let (ringer, listener) = UnixStream::pair()?;
        ringer.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        Ok(Self { ringer, listener })
    }

    fn ring(&self) {
        // If the buffer is full, the bell is ringing already.
        let _ = (&self.ringer).write(&[0]);
    }

    fn silence(&self) {
        let mut bytes = [0; 64];
        loop {
            match (&self.listener).read(&mut bytes) {
                Ok(64) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
