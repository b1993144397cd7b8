//! Runs native code under a deadline.
//!
//! A codec that panics or hangs may cost a frame, but never the broker. A [`Worker`] runs the work on its own
//! thread, and its owner waits for the result until a deadline. A thread that misses the deadline is abandoned and
//! replaced by a thread with new state; a late result is dropped. A crash of native code still ends the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use thiserror::Error;

/// Maximum number of a worker's threads that have missed their deadline and not ended. At this number, the worker
/// refuses work until one of them ends. So a codec that hangs on every frame does not exhaust the machine's memory.
pub const LATE_THREADS_MAX: usize = 4;

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The work panicked. The next work starts with new state.
    #[error("the work panicked; the next work starts with new state")]
    Panicked,
    /// The work missed its deadline, which is given. The next work starts with new state.
    #[error("the work took longer than {} ms; its thread was replaced", .0.as_millis())]
    Late(Duration),
    /// Too many threads have missed their deadline and not ended.
    #[error(
        "{LATE_THREADS_MAX} threads of this worker missed their deadline and have not ended; the codec hangs on this stream"
    )]
    TooManyLate,
    /// The system could not start a thread.
    #[error("cannot start a thread for the codec; raise the limit of processes (ulimit -u)")]
    NoThread,
}

/// How often work was not done, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of panics.
    pub panicked: u64,
    /// Number of missed deadlines.
    pub late: u64,
    /// Number of refusals because of too many late threads.
    pub refused: u64,
}

/// Makes the work function of a thread, with new state.
type Make<I, O> = dyn Fn() -> Box<dyn FnMut(I) -> O> + Send + Sync;

/// Does one kind of work, one piece at a time, with state that lives on a separate thread.
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
    /// A worker whose threads are called `name`. `make` makes the work function, with its state, for each thread. No thread is started yet.
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

    /// Does a piece of work, and waits for its result until the deadline.
    ///
    /// # Errors
    /// [`WorkerError`]; the worker can be used again immediately.
    pub fn run(&mut self, input: I, deadline: Duration) -> Result<O, WorkerError> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => self.start()?,
        };
        // The channel is empty: the thread waits for work, or has ended after a panic.
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

    /// How often work was not done so far, by reason.
    pub fn counts(&self) -> WorkerCounts {
        self.counts
    }

    fn start(&mut self) -> Result<Thread<I, O>, WorkerError> {
        // All live threads are late: the current one was taken by `run`, or has ended.
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
                // The receiver may be gone.
                let _ = finished.send(Err(WorkerError::Panicked));
            }
        };
        let spawned = thread::Builder::new().name(self.name.clone()).spawn(body);
        spawned.map_err(|_| WorkerError::NoThread)?;
        Ok(Thread { work, done })
    }
}

/// Counts a thread while it lives.
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

    /// Sums its inputs; panics at 0.
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

    /// Hanging work is abandoned, a limited number of times. A late result is not mistaken for that of other work.
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
        // Threads end when they are scheduled. Until then, the worker refuses work.
        while worker.run(false, PATIENT) == Err(WorkerError::TooManyLate) {
            thread::yield_now();
        }
        assert_eq!(worker.run(false, PATIENT), Ok(false));
        assert_eq!(worker.counts().late, LATE_THREADS_MAX as u64);
        assert!(worker.counts().refused >= 1);
    }

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
