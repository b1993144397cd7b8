//! A process beside the edge that decodes for programs on its host (`docs/decisions/0049-picture-service.md`).
//!
//! The edge starts its own program again as this process when a second program reads a camera's video. The edge
//! sends it frames, and the process writes pictures into memory that the programs map. The process knows neither
//! cameras nor programs, and has no rights and no keys. If it dies, programs decode by themselves for a while.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts the process, watches it, and ends it ([`PictureService`]) |
//! | `decoder.rs` | the edge's side of one decoder of the process |
//! | `serve.rs` | the process itself |
//! | `channel.rs` | the messages between the two |

mod channel;
mod decoder;
mod serve;

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mez_core::units::Instant;
use tracing::{debug, info, warn};

use self::channel::{Channel, send_with};
pub(crate) use self::decoder::DecoderBeside;
pub use self::serve::serve;
use crate::clock::monotonic_now;

/// The longest start of the process, until it is ready. On a busy host this takes some seconds.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How often to check whether a decoder is still in use. The process ends after two checks in a row without one.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// After a failure, the process is not started again for this long. The time doubles with each further failure.
const REST: Duration = Duration::from_secs(60);
/// The rest doubles at most this many times, to about an hour. After a run of this length, the count of failures is reset.
const DOUBLED_MAX: u32 = 6;
/// After this many late frames the process is ended. Each late frame leaves a thread behind that may hang.
const LATE_MAX: u32 = 4;

/// The process that decodes for programs on this host. It is started on demand, if a command for it is configured. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PictureService(Option<Arc<Handle>>);

/// Shared by all clones. The process ends when the last one is dropped.
#[derive(Debug)]
struct Handle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The program and its arguments.
    command: Vec<OsString>,
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    process: Process,
    failures: u32,
    has_ended: bool,
}

#[derive(Debug)]
enum Process {
    /// Not running, and not requested.
    Absent,
    Starting,
    Runs(Arc<Running>),
    /// It failed.
    Rests {
        until: Instant,
    },
}

/// A process that runs.
#[derive(Debug)]
struct Running {
    id: u32,
    control: UnixStream,
    late: AtomicU32,
}

impl Running {
    /// Counts a late frame.
    fn was_late(&self) {
        if self.late.fetch_add(1, Ordering::Relaxed) + 1 == LATE_MAX {
            warn!("the process that decodes for programs on this host hangs, and is killed");
            self.end();
        }
    }

    /// Closes the socket, which ends the thread that watches the process.
    fn end(&self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }
}

impl PictureService {
    /// No process: pictures are decoded in the edge's own process.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// A process that `command` starts. The command must call [`serve`](self::serve()) with its standard input.
    #[must_use]
    pub fn new(command: Vec<OsString>) -> Self {
        let state = State { process: Process::Absent, failures: 0, has_ended: false };
        let inner = Inner { command, is_on: AtomicBool::new(true), state: Mutex::new(state) };
        Self(Some(Arc::new(Handle(Arc::new(inner)))))
    }

    /// Sets whether chains that begin from now on are decoded in the process instead of the edge.
    pub fn set_on(&self, is_on: bool) {
        if let Some(handle) = &self.0 {
            handle.0.is_on.store(is_on, Ordering::Relaxed);
        }
    }

    /// Whether pictures are made in the process.
    pub(crate) fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.0.is_on.load(Ordering::Relaxed))
    }

    /// The process ID, if the process runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        match &self.0.as_ref()?.0.lock().process {
            Process::Runs(running) => Some(running.id),
            Process::Absent | Process::Starting | Process::Rests { .. } => None,
        }
    }

    /// Whether the process can decode now. If it does not run, this starts it in the background.
    pub(crate) fn is_ready(&self) -> bool {
        let Some(Handle(inner)) = self.0.as_deref() else { return false };
        let mut state = inner.lock();
        match state.process {
            Process::Runs(_) => return true,
            Process::Starting => return false,
            Process::Rests { until } if monotonic_now() < until => return false,
            Process::Rests { .. } | Process::Absent => {}
        }
        state.process = Process::Starting;
        drop(state);
        let watched = Arc::clone(inner);
        let spawned = thread::Builder::new().name("mez pictures".into()).spawn(move || watched.watch());
        if let Err(error) = spawned {
            warn!("cannot start the process that decodes for programs on this host: {error}");
            inner.rest();
        }
        false
    }

    /// A new decoder, if the process runs.
    pub(crate) fn decoder(&self) -> Option<DecoderBeside> {
        let Process::Runs(running) = &self.0.as_ref()?.0.lock().process else { return None };
        let running = Arc::clone(running);
        let connected = UnixStream::pair().and_then(|(ours, theirs)| {
            send_with(&running.control, &[0], theirs.as_fd())?;
            DecoderBeside::new(Channel(ours), running)
        });
        connected.map_err(|error| debug!("the process that decodes cannot start a decoder: {error}")).ok()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        if let Process::Runs(running) = &state.process {
            running.end();
        }
    }
}

impl Inner {
    /// Starts the process, and watches it until it ends.
    fn watch(&self) {
        let (mut child, running) = match self.start() {
            Ok(started) => started,
            Err(error) => {
                let program =
                    self.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
                warn!(%program, "the process that decodes for programs on this host does not start: {error}; the programs decode themselves");
                return self.rest();
            }
        };
        info!(pid = child.id(), "a process decodes for programs on this host");
        let begun = monotonic_now();
        let is_wanted = self.runs(&running);
        if monotonic_now().saturating_since(begun) >= REST * 2u32.pow(DOUBLED_MAX) {
            self.lock().failures = 0;
        }
        // The process may hang in a codec.
        let _ = child.kill();
        let ended = child.wait();
        if is_wanted {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            warn!(
                "the process that decodes for programs on this host has ended ({how}); the programs decode themselves for a while"
            );
            self.rest();
        }
    }

    fn start(&self) -> io::Result<(Child, Arc<Running>)> {
        let (mut control, theirs) = UnixStream::pair()?;
        let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "no command is configured");
        let (program, words) = self.command.split_first().ok_or_else(nothing)?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Ctrl-C must not reach the process: it ends with the edge.
            .process_group(0)
            .spawn()?;
        let mut said = [0; serve::READY.len()];
        let heard =
            control.set_read_timeout(Some(START_TIME_MAX)).and_then(|()| control.read_exact(&mut said));
        let is_ready = heard.is_ok() && said == serve::READY;
        if !is_ready {
            let _ = child.kill();
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(io::Error::other(format!("it did not become ready ({ended})")));
        }
        control.set_read_timeout(Some(LOOK_INTERVAL))?;
        let running = Running { id: child.id(), control, late: AtomicU32::new(0) };
        Ok((child, Arc::new(running)))
    }

    /// Waits for the end of a process. Returns whether it was still wanted at that time.
    fn runs(&self, running: &Arc<Running>) -> bool {
        {
            let mut state = self.lock();
            if state.has_ended {
                return false;
            }
            state.process = Process::Runs(Arc::clone(running));
        }
        let mut was_idle = false;
        loop {
            match (&running.control).read(&mut [0]) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    let mut state = self.lock();
                    // Only this thread and the state hold it, so there is no decoder.
                    let is_idle = Arc::strong_count(running) <= 2;
                    if is_idle && was_idle {
                        state.process = Process::Absent;
                        debug!(
                            "the process that decodes for programs on this host is no longer needed, and ends"
                        );
                        return false;
                    }
                    was_idle = is_idle;
                }
                _ => return !self.lock().has_ended,
            }
        }
    }

    /// Disables the process for a while after a failure.
    fn rest(&self) {
        let mut state = self.lock();
        let rest = REST * 2u32.pow(state.failures.min(DOUBLED_MAX));
        state.failures += 1;
        state.process = Process::Rests { until: monotonic_now() + rest };
    }

    /// Each statement leaves the state consistent, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
