//! The tokio runtime of all objects of a process, waiting for its work, and forks.
//!
//! Threads do not survive a fork. A child starts its own runtime when it needs one. Objects of
//! its parent refuse to work in the child ([`Owned`]), because their threads do not exist there.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mez_node::background::Background;
use pyo3::prelude::*;

use crate::{error, log};

/// How often signals are checked while waiting. Ctrl-C takes effect within twice this time.
const SLICE: Duration = Duration::from_millis(50);

/// The runtime and the process that it belongs to. It lives until the process ends.
static SHARED: Mutex<Option<(u32, &'static Background)>> = Mutex::new(None);

/// The runtime of this process, started by the first call.
pub(crate) fn background(py: Python<'_>) -> PyResult<&'static Background> {
    // It is locked only by threads that are attached to the interpreter, and os.fork() is called
    // by such a thread. So a child never finds it locked by a thread that does not exist there.
    let mut shared = lock(&SHARED);
    let this = process::id();
    match *shared {
        Some((owner, background)) if owner == this => Ok(background),
        // A parent's runtime is not dropped: dropping would wait for its threads.
        _ => {
            let background = Background::start().map_err(|reason| {
                error::raise(
                    py,
                    "Error",
                    format!("cannot start threads ({reason}); raise the limit on processes"),
                )
            })?;
            let background = Box::leak(Box::new(background));
            *shared = Some((this, background));
            log::gather();
            Ok(background)
        }
    }
}

/// An object whose work is done by the runtime's threads. It can be used only in the process that made it.
pub(crate) struct Owned<T> {
    process: u32,
    background: &'static Background,
    what: &'static str,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    /// `what` is the object's name for users.
    pub(crate) fn new(background: &'static Background, what: &'static str, value: T) -> Self {
        Self { process: process::id(), background, what, value: ManuallyDrop::new(value) }
    }

    /// Whether this process made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == process::id()
    }

    /// The value and its runtime, in the process that made it.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<(&T, &'static Background)> {
        if !self.is_ours() {
            return Err(error::raise(
                py,
                "ForkedError",
                format!(
                    "this {} was made by the parent of this process, and its threads did not survive the fork; \
                     make it in the process that uses it, or start processes with \
                     multiprocessing.get_context(\"spawn\")",
                    self.what
                ),
            ));
        }
        Ok((&self.value, self.background))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // In a forked child, the object's locks may be held by threads that do not exist there, and its sockets are the parent's.
        if self.is_ours() {
            // SAFETY: dropped only here, and not used afterwards, because `self` is being dropped.
            self.background.enter(|| unsafe { ManuallyDrop::drop(&mut self.value) });
        }
    }
}

/// When to stop waiting.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `timeout_s` seconds from now; never if it is `None`.
    pub(crate) fn after(py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Self> {
        let Some(seconds) = timeout_s else { return Ok(Self(None)) };
        if seconds.is_nan() || seconds < 0.0 {
            let message = format!("timeout is {seconds}; give seconds, 0 or more, or None to wait for ever");
            return Err(error::argument(py, "timeout", message));
        }
        // A time beyond the clock's range never comes.
        Ok(Self(
            Duration::try_from_secs_f64(seconds).ok().and_then(|limit| Instant::now().checked_add(limit)),
        ))
    }

    /// How long to wait before signals are checked again.
    pub(crate) fn slice(self) -> Duration {
        match self.0 {
            Some(deadline) => SLICE.min(deadline.saturating_duration_since(Instant::now())),
            None => SLICE,
        }
    }

    /// Whether the deadline has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// The result of waiting.
pub(crate) enum Waited<T> {
    /// The work's output.
    Done(T),
    /// The deadline has passed.
    TimedOut,
    /// `stopped` was set: there is nothing to wait for any more.
    Stopped,
}

/// Waits for `work` without blocking other Python threads. Returns an error if a signal's handler
/// raises one, as for Ctrl-C. Afterwards `work` can be waited for again. It is polled at least once.
pub(crate) fn wait<F>(
    py: Python<'_>,
    background: &'static Background,
    deadline: Deadline,
    stopped: Option<&AtomicBool>,
    mut work: Pin<&mut F>,
) -> PyResult<Waited<F::Output>>
where
    F: Future + Send + ?Sized,
    F::Output: Send,
{
    loop {
        let slice = deadline.slice();
        let slice_of_work = work.as_mut();
        if let Some(output) = py.detach(move || background.wait(slice_of_work, slice)) {
            return Ok(Waited::Done(output));
        }
        log::hand_on(py);
        py.check_signals()?;
        if stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
            return Ok(Waited::Stopped);
        }
        if deadline.has_passed() {
            return Ok(Waited::TimedOut);
        }
    }
}

/// Waits for work that ends by itself, without a time limit. `make` starts it.
pub(crate) fn finish<F>(
    py: Python<'_>,
    background: &'static Background,
    make: impl FnOnce() -> F + Send,
) -> PyResult<F::Output>
where
    F: Future,
    F::Output: Send,
{
    py.detach(|| {
        let mut work = pin!(make());
        loop {
            if let Some(output) = background.wait(work.as_mut(), SLICE) {
                return Ok(output);
            }
            Python::attach(|py| {
                log::hand_on(py);
                py.check_signals()
            })?;
        }
    })
}

/// Locks a mutex, even if it is poisoned: a panic leaves no inconsistent state behind the locks of this crate.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
