//! A process beside the edge that decodes for programs on its host (`docs/decisions/0049-picture-service.md`).
//!
//! The edge starts its own program once more when a second program looks at a camera's video. It gives the process frames; the process
//! writes pictures into memory that programs map. The process knows neither cameras nor programs, and has no rights and no keys. If it
//! dies, programs decode by themselves for a while.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | starts the process, watches it, and ends it ([`PictureService`]) |
//! | `decoder.rs` | one decoder of the process, at the edge |
//! | `serve.rs` | the process itself |
//! | `channel.rs` | what both say to each other |

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

/// How long the process may take until it serves. A busy host needs some seconds.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether a decoder is still wanted. A process without one ends at the second look.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// For this long after the process has failed, it is not started again. It doubles with each further failure.
const REST: Duration = Duration::from_secs(60);
/// It doubles no more often than this: an hour. A process that has run for so long has had no failures.
const DOUBLED_MAX: u32 = 6;
/// Frames for which the process may take too long before it is ended: each leaves a thread behind that may hang.
const LATE_MAX: u32 = 4;

/// The process that decodes for programs on this host: started when it is wanted, if there is a way to start it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PictureService(Option<Arc<Handle>>);

/// Who has it. The process ends with the last.
#[derive(Debug)]
struct Handle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The program, and its arguments.
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
    /// It does not run, and nobody has wanted it.
    Absent,
    Starting,
    Runs(Arc<Running>),
    /// It has failed.
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
    /// It took too long for a frame.
    fn was_late(&self) {
        if self.late.fetch_add(1, Ordering::Relaxed) + 1 == LATE_MAX {
            warn!("the process that decodes for programs on this host hangs, and is ended");
            self.end();
        }
    }

    /// Whoever watches it sees that its socket ends.
    fn end(&self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }
}

impl PictureService {
    /// None: whoever wants pictures decodes them in its own process.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// A process that this command starts: it calls [`serve`] with its standard input.
    #[must_use]
    pub fn new(command: Vec<OsString>) -> Self {
        let state = State { process: Process::Absent, failures: 0, has_ended: false };
        let inner = Inner { command, is_on: AtomicBool::new(true), state: Mutex::new(state) };
        Self(Some(Arc::new(Handle(Arc::new(inner)))))
    }

    /// Whether chains that begin from now on are decoded in the process, and not in this one.
    pub fn set_on(&self, is_on: bool) {
        if let Some(handle) = &self.0 {
            handle.0.is_on.store(is_on, Ordering::Relaxed);
        }
    }

    /// Whether pictures are made in the process.
    pub(crate) fn is_on(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.0.is_on.load(Ordering::Relaxed))
    }

    /// The number of the process, if it runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        match &self.0.as_ref()?.0.lock().process {
            Process::Runs(running) => Some(running.id),
            Process::Absent | Process::Starting | Process::Rests { .. } => None,
        }
    }

    /// Whether it can decode now. It is started if nobody has done so, which takes a moment.
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
            warn!("no process can be started that decodes for programs on this host: {error}");
            inner.rest();
        }
        false
    }

    /// A decoder, if the process runs.
    pub(crate) fn decoder(&self) -> Option<DecoderBeside> {
        let Process::Runs(running) = &self.0.as_ref()?.0.lock().process else { return None };
        let running = Arc::clone(running);
        let connected = UnixStream::pair().and_then(|(ours, theirs)| {
            send_with(&running.control, &[0], theirs.as_fd())?;
            DecoderBeside::new(Channel(ours), running)
        });
        connected.map_err(|error| debug!("the process that decodes takes no decoder: {error}")).ok()
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
                warn!(%program, "the process that decodes for programs on this host does not start: {error}; they decode by themselves");
                return self.rest();
            }
        };
        info!(pid = child.id(), "a process decodes for programs on this host");
        let begun = monotonic_now();
        let is_wanted = self.runs(&running);
        if monotonic_now().saturating_since(begun) >= REST * 2u32.pow(DOUBLED_MAX) {
            self.lock().failures = 0;
        }
        // It may hang in a codec.
        let _ = child.kill();
        let ended = child.wait();
        if is_wanted {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            warn!(
                "the process that decodes for programs on this host has ended ({how}); they decode by themselves for a while"
            );
            self.rest();
        }
    }

    fn start(&self) -> io::Result<(Child, Arc<Running>)> {
        let (mut control, theirs) = UnixStream::pair()?;
        let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "there is no command for it");
        let (program, words) = self.command.split_first().ok_or_else(nothing)?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Ctrl-C is for the edge, with which it ends.
            .process_group(0)
            .spawn()?;
        let mut said = [0; serve::READY.len()];
        let heard =
            control.set_read_timeout(Some(START_TIME_MAX)).and_then(|()| control.read_exact(&mut said));
        let is_ready = heard.is_ok() && said == serve::READY;
        if !is_ready {
            let _ = child.kill();
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(io::Error::other(format!("it did not come up ({ended})")));
        }
        control.set_read_timeout(Some(LOOK_INTERVAL))?;
        let running = Running { id: child.id(), control, late: AtomicU32::new(0) };
        Ok((child, Arc::new(running)))
    }

    /// Waits for the end of a process. True if it was still wanted then.
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
                    // This thread and the state have it, and no decoder.
                    let is_idle = Arc::strong_count(running) <= 2;
                    if is_idle && was_idle {
                        state.process = Process::Absent;
                        debug!("nobody wants the process that decodes for programs on this host; it ends");
                        return false;
                    }
                    was_idle = is_idle;
                }
                _ => return !self.lock().has_ended,
            }
        }
    }

    /// It has failed: nobody starts it for a while.
    fn rest(&self) {
        let mut state = self.lock();
        let rest = REST * 2u32.pow(state.failures.min(DOUBLED_MAX));
        state.failures += 1;
        state.process = Process::Rests { until: monotonic_now() + rest };
    }

    /// Every statement leaves it whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
