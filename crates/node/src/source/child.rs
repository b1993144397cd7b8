//! Starts child processes that cannot outlive their owner.
//!
//! Dropping the owner kills the child, and the runtime reaps it. If this process is killed, the kernel kills
//! the child (`PR_SET_PDEATHSIG`). Without this, a child that is left behind would keep a camera device busy.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::error::SourceError;
use super::spec::without_credentials;

/// The number of last lines of a child's standard error that are kept for error texts.
const LINES_MAX: usize = 12;
/// The most bytes that are kept of such a line, so that a child cannot fill memory.
const LINE_BYTES_MAX: usize = 400;
/// The most children that may wait to be started. Further callers wait.
const SPAWNS_WAITING_MAX: usize = 16;

/// The most bytes of a child's standard input. Every pipe can buffer more, so writing never blocks.
const SCRIPT_BYTES_MAX: usize = 4000;

/// Environment variables that may hold a password. Children do not inherit them.
const SECRET_VARIABLES: [&str; 2] = ["MEZ_SOURCE", "MEZ_SOURCE_CREDENTIALS"];

type Job = Box<dyn FnOnce() + Send>;

/// The thread that starts all children. The kernel ties a child's death signal to the *thread* that
/// started the child. Runtime threads come and go; this thread lives as long as the process.
static SPAWNER: LazyLock<io::Result<SyncSender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = sync_channel::<Job>(SPAWNS_WAITING_MAX);
    thread::Builder::new().name("mez-spawn".into()).spawn(move || queue.into_iter().for_each(|job| job()))?;
    Ok(jobs)
});

/// Starts a program with `script`, or nothing, on its standard input, and with its standard error piped.
pub(super) async fn spawn_child(
    program: &Path,
    args: Vec<OsString>,
    script: Option<String>,
    stdout: Stdio,
) -> Result<Child, SourceError> {
    let stdin = match script {
        None => Stdio::null(),
        Some(script) => {
            let failed = |detail: String| SourceError::Spawn { program: program.to_owned(), detail };
            if script.len() > SCRIPT_BYTES_MAX {
                return Err(failed(format!("the source's name is longer than {SCRIPT_BYTES_MAX} bytes")));
            }
            let (reader, mut writer) = io::pipe().map_err(|error| failed(error.to_string()))?;
            // The pipe's buffer holds the script, so no reader is needed yet.
            writer.write_all(script.as_bytes()).map_err(|error| failed(error.to_string()))?;
            reader.into()
        }
    };
    spawn_fed_child(program, args, stdin, stdout).await
}

/// Starts a program with its standard error piped.
pub(crate) async fn spawn_fed_child(
    program: &Path,
    args: Vec<OsString>,
    stdin: Stdio,
    stdout: Stdio,
) -> Result<Child, SourceError> {
    let mut command = Command::new(program);
    // Others may be able to read a child's environment, so secrets are removed from it.
    SECRET_VARIABLES.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    command.args(args).stdin(stdin).stdout(stdout).stderr(Stdio::piped()).kill_on_drop(true);
    let parent = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the signal was set, and would then never send it.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two system calls
    // and builds an error from a number; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(die_with_parent) };

    let spawn_error = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::NoFfmpeg { program: program.to_owned() },
        _ => SourceError::Spawn { program: program.to_owned(), detail: error.to_string() },
    };
    let jobs = SPAWNER.as_ref().map_err(spawn_error)?;
    let runtime = Handle::current();
    let (answer, started) = oneshot::channel();
    let job: Job = Box::new(move || {
        // The caller's runtime reaps the child.
        let _entered = runtime.enter();
        // If the caller has gone, the child is dropped here, which kills it.
        let _ = answer.send(command.spawn());
    });
    let stopped =
        || SourceError::Spawn { program: program.to_owned(), detail: "the spawning thread is gone".into() };
    jobs.send(job).map_err(|_| stopped())?;
    started.await.map_err(|_| stopped())?.map_err(|error| spawn_error(&error))
}

/// The last lines that a child wrote to its standard error, with passwords removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    /// Reads to the end and keeps the last lines. Must run as long as the child does: otherwise a child that writes much would block.
    pub(crate) async fn read(self, mut stderr: impl AsyncRead + Unpin) {
        let mut buffer = [0; 4096];
        let mut line = Vec::new();
        while let Ok(count) = stderr.read(&mut buffer).await {
            for &byte in &buffer[..count] {
                match byte {
                    b'\n' | b'\r' => self.push(&mut line),
                    _ if line.len() < LINE_BYTES_MAX => line.push(byte),
                    _ => {}
                }
            }
            if count == 0 {
                break;
            }
        }
        self.push(&mut line);
    }

    /// All kept lines, oldest first.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    fn push(&self, line: &mut Vec<u8>) {
        let text = without_credentials(String::from_utf8_lossy(line).trim());
        line.clear();
        if text.is_empty() {
            return;
        }
        tracing::debug!(target: "mez::source", "ffmpeg: {text}");
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_lines_are_kept_and_no_password() {
        let lines = LastLines::default();
        let mut text = String::new();
        for number in 0..50 {
            text.push_str(&format!("line {number}\r\n\n"));
        }
        text.push_str(&"x".repeat(100_000));
        text.push_str("\nrtsp://bob:secret@cam/x: gone");
        lines.clone().read(text.as_bytes()).await;
        let kept = lines.text();
        assert_eq!(kept.lines().count(), LINES_MAX);
        assert!(kept.starts_with("line 40\n") && kept.ends_with("rtsp://cam/x: gone"), "{kept}");
        assert!(kept.len() < LINES_MAX * (LINE_BYTES_MAX + 1));
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named_with_the_remedy() {
        let error =
            spawn_child(Path::new("/nowhere/ffmpeg"), Vec::new(), None, Stdio::null()).await.unwrap_err();
        assert!(matches!(error, SourceError::NoFfmpeg { .. }));
        assert!(error.to_string().contains("apt-get install ffmpeg"), "{error}");
    }
}
