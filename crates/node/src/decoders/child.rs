//! A decoding child process: pictures go in through one pipe, planes come out of another.
//!
//! All waits have a limit, since both pipes are non-blocking. The child is started by the thread that
//! owns it, so the kernel ends the child with this thread (`PR_SET_PDEATHSIG`), and with this process.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use mez_core::frame::{Encoding, FRAME_BYTES_MAX};
use mez_media::Yuv420;
use mez_media::h264::OutsideDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use super::Place;
use super::command::{Kind, Version, args};
use super::ivf;
use super::y4m::Reader;

/// Size of a pipe in bytes: the most that an unprivileged user may have. With less, child and parent wake each other more often.
const PIPE_BYTES: usize = 1 << 20;
/// The most bytes that may wait to be written.
const WAITING_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX as usize;
/// The most bytes of the child's error messages that are kept.
const COMPLAINT_BYTES_MAX: usize = 400;

/// A running child.
pub(super) struct Child {
    process: Option<process::Child>,
    input: File,
    output: File,
    /// Its standard error, until the child closes it.
    complaints: Option<File>,
    complaint: Vec<u8>,
    waiting: VecDeque<u8>,
    number: u64,
    reader: Reader,
    place: Option<Place>,
}

impl Child {
    /// Starts a decoder of pictures of `size`.
    pub(super) fn start(
        program: &Path,
        (kind, version): (Kind, Version),
        encoding: Encoding,
        size: (u32, u32),
    ) -> Result<Self, String> {
        let mut command = Command::new(program);
        command
            .args(args(kind, version, encoding))
            .env_remove("MEZ_SOURCE")
            .env_remove("MEZ_SOURCE_CREDENTIALS");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let parent = getpid();
        let die_with_parent = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the signal was set.
            if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
        };
        // SAFETY: the closure makes two system calls and builds an error from a number. It neither allocates nor takes a lock.
        unsafe { command.pre_exec(die_with_parent) };
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => format!("{} does not exist", program.display()),
            _ => format!("{} does not start: {error}", program.display()),
        };
        let mut process = command.spawn().map_err(failed)?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(input), Some(output), Some(complaints)) = pipes else {
            return Err("the child has no pipes".into());
        };
        let mut child = Self {
            process: Some(process),
            input: at_once(input.into()).map_err(failed)?,
            output: at_once(output.into()).map_err(failed)?,
            complaints: Some(at_once(complaints.into()).map_err(failed)?),
            complaint: Vec::new(),
            waiting: VecDeque::new(),
            number: 0,
            reader: Reader::new(size),
            place: None,
        };
        child.waiting.extend(ivf::file_header(encoding, size));
        Ok(child)
    }

    /// Holds a place for the lifetime of the child.
    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Writes as much as the pipe takes.
    fn write(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let (first, _) = self.waiting.as_slices();
            match self.input.write(first) {
                Ok(count) => _ = self.waiting.drain(..count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
        Ok(())
    }

    /// Reads available bytes, up to a whole picture.
    fn read(&mut self) -> Result<(), String> {
        loop {
            let room = self.reader.room();
            if room.is_empty() {
                return Ok(());
            }
            match self.output.read(room) {
                Ok(0) => return Err(self.ended("it ended")),
                Ok(count) => self.reader.advance(count)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
    }

    /// Reads the child's error messages, so that it does not block on a full pipe.
    fn listen(&mut self) {
        let mut piece = [0; 1024];
        while let Some(complaints) = &mut self.complaints {
            match complaints.read(&mut piece) {
                Ok(0) => self.complaints = None,
                Ok(count) => {
                    let room = COMPLAINT_BYTES_MAX.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&piece[..count.min(room)]);
                }
                Err(_) => return,
            }
        }
    }

    /// Why the child is unusable: its own error message, or else `otherwise`.
    fn ended(&mut self, otherwise: &str) -> String {
        self.listen();
        let words = String::from_utf8_lossy(&self.complaint);
        let line = words.lines().map(str::trim).find(|line| !line.is_empty());
        line.map_or_else(|| otherwise.to_owned(), |line| format!("it said: {line}"))
    }
}

impl OutsideDecoder for Child {
    fn give(&mut self, picture: &[u8]) -> Result<(), String> {
        let bytes = u32::try_from(picture.len()).map_err(|_| "the picture is too large")?;
        if self.waiting.len() + picture.len() > WAITING_BYTES_MAX {
            return Err("it does not read its pictures".into());
        }
        self.waiting.extend(ivf::frame_header(self.number, bytes));
        self.waiting.extend(picture);
        self.number += 1;
        self.write()
    }

    fn take(&mut self, patience: Duration, planes: &mut Yuv420) -> Result<bool, String> {
        let deadline = Instant::now() + patience;
        loop {
            self.listen();
            self.write()?;
            self.read()?;
            if self.reader.take(planes) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut ready = vec![PollFd::new(&self.output, PollFlags::IN)];
            ready.extend(self.complaints.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            if !self.waiting.is_empty() {
                ready.push(PollFd::new(&self.input, PollFlags::OUT));
            }
            let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut ready, Some(&time)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(format!("its pipes cannot be waited for: {error}")),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = process.kill();
        let place = self.place.take();
        // A driver may delay the child's end, so another thread waits for it.
        let reap = move || {
            let _ = process.wait();
            drop(place);
        };
        let _ = thread::Builder::new().name("mez decoder end".into()).spawn(reap);
    }
}

/// Makes a pipe non-blocking, and enlarges it.
fn at_once(pipe: OwnedFd) -> io::Result<File> {
    let flags = fcntl_getfl(pipe.as_fd())?;
    fcntl_setfl(pipe.as_fd(), flags | OFlags::NONBLOCK)?;
    // If the user may not have larger pipes, the size stays.
    let _ = fcntl_setpipe_size(pipe.as_fd(), PIPE_BYTES);
    Ok(File::from(pipe))
}
