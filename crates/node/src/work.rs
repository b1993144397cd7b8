//! Runs blocking work for requests. The work continues when the requester has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, spawn_blocking};

/// Runs `work` on the result of `prepare`. Holds the permit until the work is over, so that it limits
/// running work, not waiting requesters. If this future is dropped before, sets the flag that `prepare` got.
pub(crate) async fn run<W: Send + 'static, T: Send + 'static>(
    permit: Option<OwnedSemaphorePermit>,
    prepare: impl FnOnce(Arc<AtomicBool>) -> W,
    work: impl FnOnce(W) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let asks = Asks(Arc::default());
    let prepared = prepare(Arc::clone(&asks.0));
    spawn_blocking(move || {
        let done = work(prepared);
        drop(permit);
        done
    })
    .await
}

/// A waiting requester. Sets its flag when dropped.
struct Asks(Arc<AtomicBool>);

impl Drop for Asks {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::mpsc::sync_channel;
    use std::task::{Context, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn work_whose_asker_has_left_is_told_and_keeps_its_place_until_it_is_over() {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let (go, waits) = sync_channel::<()>(1);
        let (told, tells) = sync_channel(1);
        {
            let work = move |stop: Arc<AtomicBool>| {
                let _ = waits.recv();
                let _ = told.send(stop.load(Ordering::Relaxed));
            };
            let mut asked = pin!(run(place, |stop| stop, work));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(places.available_permits(), 0, "it still runs");
        drop(go);
        assert!(tells.recv().unwrap(), "it is told");
        drop(places.acquire().await.unwrap());
    }
}
