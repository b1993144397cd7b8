//! Runs native code under a deadline.
//!
//! A codec that panics or hangs may cost a frame, but never the broker. A [`Worker`] works on a thread of its own. Its owner waits for the
//! result until a deadline. A thread that misses the deadline is abandoned and replaced by a new one with new state; its result, if it ever
//! comes, is dropped. A crash of native code still ends the process, because no thread survives that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thiserror::Error;

/// Threads of one worker that may have missed their deadline at once. At this number the worker refuses work until one of them ends. So a
/// codec that hangs on every frame does not exhaust the machine's memory.
pub const LATE_THREADS_MAX: usize = 4;

/// Work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// It panicked. Its state is gone; the next work starts with new state.
    #[error("the work panicked; its state was replaced")]
    Panicked,
    /// It missed its deadline. Its state is gone; the next work starts with new state.
    #[error("the work took longer than {} ms; its thread was replaced", .0.as_millis())]
    Late(Duration),
    /// Too many threads are late already.
    #[error(
        "{LATE_THREADS_MAX} threads of this worker have missed their deadline and not ended; the codec hangs on this stream"
    )]
    TooManyLate,
    /// The system gave no thread.
    #[error("cannot start a thread for the codec; raise the limit of processes (ulimit -u)")]
    NoThread,
}

/// How often work was not done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Panics.
    pub panicked: u64,
    /// Deadlines missed.
    pub late: u64,
    /// Refused because too many were late.
    pub refused: u64,
}

/// Makes the work of one thread, with new state.
type Make<I, O> = dyn Fn() -> Box<dyn FnMut(I) -> O> + Send + Sync;

/// Does work of one kind, one piece at a time, with state that lives on a thread of its own.
pub struct Worker<I, O> {
    name: String,
    make: Arc<Make<I, O>>,
    thread: Option<Thread<I, O>>,
    late: Arc<AtomicUsize>,
    counts: WorkerCounts,
}

struct Thread<I, O> {
    work: SyncSender<I>,
    done: Receiver<Result<O, WorkerError>>,
}

impl<I, O> std::fmt::Debug for Worker<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("name", &self.name)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl<I: Send + 'static, O: Send + 'static> Worker<I, O> {
    /// A worker whose threads are called `name`. `make` makes the work and its state for each thread. No thread is started yet.
    pub fn new<F>(name: &str, make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: FnMut(I) -> O + 'static,
    {
        Self {
            name: name.to_owned(),
            make: Arc::new(move || Box::new(make())),
            thread: None,
            late: Arc::new(AtomicUsize::new(0)),
            counts: WorkerCounts::default(),
        }
    }

    /// Has a piece of work done, and waits for it until the deadline.
    ///
    /// # Errors
    /// [`WorkerError`]; the worker can be used again at once.
    pub fn run(&mut self, input: I, deadline: Duration) -> Result<O, WorkerError> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => self.start()?,
        };
        // The thread waits for work, or is gone after a panic; it never leaves any in the channel.
        if thread.work.send(input).is_err() {
            return Err(WorkerError::Panicked);
        }
        match thread.done.recv_timeout(deadline) {
            Ok(Ok(output)) => {
                self.thread = Some(thread);
                Ok(output)
            }
            Ok(Err(error)) => {
                self.counts.panicked += 1;
                Err(error)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.counts.late += 1;
                Err(WorkerError::Late(deadline))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.counts.panicked += 1;
                Err(WorkerError::Panicked)
            }
        }
    }

    /// How often work was not done so far.
    pub fn counts(&self) -> WorkerCounts {
        self.counts
    }

    fn start(&mut self) -> Result<Thread<I, O>, WorkerError> {
        // All threads that live are late ones: the one in use was taken away or has ended.
        if self.late.load(Ordering::Acquire) >= LATE_THREADS_MAX {
            self.counts.refused += 1;
            return Err(WorkerError::TooManyLate);
        }
        let (work, todo) = sync_channel::<I>(1);
        let (finished, done) = sync_channel(1);
        let (make, alive) = (Arc::clone(&self.make), Alive::count(&self.late));
        let body = move || {
            let _alive = alive;
            let attempt = catch_unwind(AssertUnwindSafe(|| {
                let mut process = make();
                while let Ok(input) = todo.recv() {
                    if finished.send(Ok(process(input))).is_err() {
                        break;
                    }
                }
            }));
            if attempt.is_err() {
                // Nobody may be waiting any more.
                let _ = finished.send(Err(WorkerError::Panicked));
            }
        };
        let spawned = thread::Builder::new().name(self.name.clone()).spawn(body);
        spawned.map_err(|_| WorkerError::NoThread)?;
        Ok(Thread { work, done })
    }
}

/// Counts a thread for as long as it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn count(threads: &Arc<AtomicUsize>) -> Self {
        threads.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(threads))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Long enough for any machine.
    const PATIENT: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    /// Adds up what it is given; panics at 0.
    fn adder() -> Worker<u32, u32> {
        Worker::new("adder", || {
            let mut sum = 0;
            move |number| {
                assert!(number != 0, "planned");
                sum += number;
                sum
            }
        })
    }

    #[test]
    fn state_lives_as_long_as_its_thread() {
        let mut worker = adder();
        assert_eq!(worker.run(2, PATIENT), Ok(2));
        assert_eq!(worker.run(3, PATIENT), Ok(5));
        assert_eq!(worker.run(0, PATIENT), Err(WorkerError::Panicked));
        assert_eq!(worker.run(4, PATIENT), Ok(4), "new state after a panic");
        assert_eq!(worker.counts(), WorkerCounts { panicked: 1, late: 0, refused: 0 });
    }

    /// Hanging work is abandoned, a bounded number of times. A result that it gives later is not mistaken for another.
    #[test]
    fn what_hangs_is_replaced() {
        let (release, gate) = sync_channel::<()>(1);
        let gate = Arc::new(Mutex::new(gate));
        let mut worker = Worker::new("gated", move || {
            let gate = Arc::clone(&gate);
            move |wait: bool| {
                if wait {
                    let _ = gate.lock().map(|gate| gate.recv());
                }
                wait
            }
        });
        for _ in 0..LATE_THREADS_MAX {
            assert_eq!(worker.run(false, PATIENT), Ok(false));
            assert_eq!(worker.run(true, SHORT), Err(WorkerError::Late(SHORT)));
        }
        assert_eq!(worker.run(false, PATIENT), Err(WorkerError::TooManyLate));
        drop(release);
        // Threads end when they are scheduled; until then the worker refuses.
        while worker.run(false, PATIENT) == Err(WorkerError::TooManyLate) {
            thread::yield_now();
        }
        assert_eq!(worker.run(false, PATIENT), Ok(false));
        assert_eq!(worker.counts().late, LATE_THREADS_MAX as u64);
        assert!(worker.counts().refused >= 1);
    }

    /// A stream's encoder fits in.
    #[test]
    fn a_stream_encoder_fits_in() {
        let mut worker = Worker::new("encoder", || {
            let mut encoder = crate::stream::StreamEncoder::new(1 << 20);
            move |()| {
                encoder.as_mut().map(|encoder| encoder.memory_bytes()).map_err(|error| error.to_string())
            }
        });
        assert_eq!(worker.run((), PATIENT), Ok(Ok(0)));
    }
}
