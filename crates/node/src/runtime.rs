//! Runs async work to its end in a program that is not async, such as the command line.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::pin::pin;

use tokio::signal::unix::{SignalKind, signal};

/// Worker threads of an edge's process. Two are enough: one receives while the other serves.
const WORKER_THREADS: usize = 2;
/// Worker threads of a camera broker. With two, each frame wakes both: the second one looks for work, finds none and
/// sleeps again, which is most of the cost of an idle camera. Slow work has threads of its own: codecs, disks, the past.
const WORKER_THREADS_OF_CAMERA: usize = 1;

/// Runs `work` to its end on a new runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    block_on_with(WORKER_THREADS, work)
}

/// Runs `work` of a camera broker to its end on a new runtime.
pub fn block_on_camera<T>(work: impl Future<Output = T>) -> io::Result<T> {
    block_on_with(WORKER_THREADS_OF_CAMERA, work)
}

fn block_on_with<T>(threads: usize, work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("mez")
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // A hanging blocking call must not keep the process alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    Ok(result)
}

/// The signal that asked the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, such as from a supervisor.
    Terminate,
}

/// Waits for Ctrl-C or SIGTERM. After the first call, these signals no longer end the process by themselves.
pub async fn stop_signal() -> io::Result<StopSignal> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => Ok(StopSignal::Interrupt),
        _ = terminate.recv() => Ok(StopSignal::Terminate),
    }
}

/// Runs `work` until it ends or the process is asked to stop, and `reload` at each SIGHUP. Returns `None`
/// if the process was asked to stop. A SIGHUP because the terminal is gone also stops the process.
pub async fn until_stopped_reloading<T>(
    work: impl Future<Output = T>,
    mut reload: impl AsyncFnMut(),
) -> io::Result<Option<T>> {
    let had_terminal = io::stdin().is_terminal();
    let mut hangups = signal(SignalKind::hangup())?;
    let (mut work, mut stop) = (pin!(work), pin!(stop_signal()));
    loop {
        tokio::select! {
            result = &mut work => return Ok(Some(result)),
            signal = &mut stop => {
                tracing::info!("stopping ({:?})", signal?);
                return Ok(None);
            }
            Some(()) = hangups.recv() => {
                if had_terminal && !io::stdin().is_terminal() {
                    tracing::info!("stopping: the terminal is gone");
                    return Ok(None);
                }
                reload().await;
            }
        }
    }
}

/// Runs `work` until it ends or the process is asked to stop. Returns `None` if the process was asked to stop.
pub async fn until_stopped<T>(work: impl Future<Output = T>) -> io::Result<Option<T>> {
    tokio::select! {
        result = work => Ok(Some(result)),
        signal = stop_signal() => signal.map(|_| None),
    }
}

/// Runs `work` for at most `limit`. Returns `None` if `work` took longer, and drops it.
pub async fn within<T>(limit: std::time::Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}

/// Runs `work` to its end, and `aside` at the same time. Then drops `aside`.
pub async fn beside<T>(work: impl Future<Output = T>, aside: impl Future<Output = ()>) -> T {
    let aside = async {
        aside.await;
        std::future::pending().await
    };
    tokio::select! {
        result = work => result,
        result = aside => result,
    }
}

/// Sleeps for `time`.
pub async fn pause(time: std::time::Duration) {
    tokio::time::sleep(time).await;
}
