//! A tokio runtime in the background of a program that is not async itself, such as Python.
//!
//! [`crate::runtime::block_on`] suits a command, which does one thing until it ends. A library inside
//! another process has many objects that work at the same time. Its callers wait for one object at a time.
//! They must be able to interrupt the wait, for example to handle signals, and to continue it later.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

/// Worker threads. Two are enough: one receives while the other serves.
const WORKER_THREADS: usize = 2;

/// A multi-threaded runtime whose threads are called `mez`.
#[derive(Debug)]
pub struct Background(tokio::runtime::Runtime);

impl Background {
    /// Starts the threads.
    pub fn start() -> io::Result<Self> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .thread_name("mez")
            .enable_all()
            .build()
            .map(Self)
    }

    /// Runs `work` on the calling thread for at most `limit`. Returns `None` if it is not done by then; another
    /// call continues it. `work` is polled at least once. Must not be called by async code of this runtime.
    pub fn wait<F: Future + ?Sized>(&self, work: Pin<&mut F>, limit: Duration) -> Option<F::Output> {
        self.0.block_on(async { tokio::time::timeout(limit, work).await.ok() })
    }

    /// Calls `work` within the runtime, so that it can start tasks, timers or sockets. `work` must not block.
    pub fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.0.enter();
        work()
    }

    /// Runs `work` in the background until it ends or the returned handle is dropped.
    #[must_use = "dropping it ends the work"]
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(self.0.spawn(work))
    }
}

/// Work in the background, which ends when this is dropped.
#[derive(Debug)]
pub struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn waiting_goes_on_where_it_stopped() {
        let background = Background::start().unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut work = pin!(async { receiver.await.unwrap() + 1 });
        assert_eq!(background.wait(work.as_mut(), Duration::ZERO), None);
        assert_eq!(background.wait(work.as_mut(), Duration::from_millis(1)), None);
        sender.send(41).unwrap();
        assert_eq!(background.wait(work, Duration::from_secs(60)), Some(42));
    }

    #[test]
    fn what_is_ready_takes_no_time() {
        let background = Background::start().unwrap();
        assert_eq!(background.wait(pin!(async { 7 }), Duration::ZERO), Some(7));
    }

    #[test]
    fn work_in_the_background_goes_on_by_itself_until_it_is_dropped() {
        let background = Background::start().unwrap();
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = background.spawn(async move {
            sender.send(1).unwrap();
            std::future::pending().await
        });
        assert_eq!(receiver.recv(), Ok(1));
        drop(task);
        // The sender is gone with the work that held it.
        assert!(receiver.recv().is_err());
    }
}
