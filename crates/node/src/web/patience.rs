//! Closes connections whose other end does not take its answers.
//!
//! [`Patient`] notices a socket that takes nothing. Over HTTP/2 a reader can block answers while its socket takes everything, by granting no
//! flow-control window. So [`Taking`] tracks each answer until its last byte is written, in pieces of at most [`PIECE_BYTES_MAX`]. A reader that
//! takes less than a piece in time is cut off as well. So nothing that an answer holds, such as a place among the readers of events, is held for
//! longer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use mez_core::units::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::response::Body;
use crate::clock::{monotonic_now, sleep_until};

/// The most bytes of an answer that are handed to a connection at once.
pub(super) const PIECE_BYTES_MAX: usize = 16 << 10;

/// The answers of one connection that are not written yet. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Taking(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    begun: u64,
    /// When an answer last made progress, by its number. A connection has at most a few entries for each request in progress.
    since: BTreeMap<u64, Instant>,
}

impl Taking {
    /// The body of an answer, tracked until it is written.
    pub(super) fn watched(&self, body: Body) -> Watched {
        let open = (!body.is_end_stream()).then(|| self.begin());
        Watched { body, rest: Bytes::new(), taking: self.clone(), open }
    }

    /// Completes when an answer has made no progress for `patience`.
    pub(super) async fn given_up(&self, patience: Duration) {
        loop {
            let oldest = self.lock().since.values().min().copied();
            // An answer that begins during this sleep is due only after it.
            let due = oldest.unwrap_or_else(monotonic_now) + patience;
            if due <= monotonic_now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    fn begin(&self) -> Arc<Open> {
        let mut waiting = self.lock();
        let number = waiting.begun;
        waiting.begun += 1;
        waiting.since.insert(number, monotonic_now());
        Arc::new(Open { taking: self.clone(), number })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Each statement leaves the state consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that has bytes to be taken. Dropping it ends its tracking.
struct Open {
    taking: Taking,
    number: u64,
}

impl Open {
    /// Notes that a piece of the answer was taken.
    fn goes_on(&self) {
        self.taking.lock().since.insert(self.number, monotonic_now());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.taking.lock().since.remove(&self.number);
    }
}

/// Bytes that are being written. The connection drops them once they are written.
struct Piece {
    bytes: Bytes,
    open: Arc<Open>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.open.goes_on();
    }
}

/// The body of an answer, in pieces.
pub(super) struct Watched {
    body: Body,
    /// The rest of the frame that the body gave last.
    rest: Bytes,
    taking: Taking,
    /// `None`: the body has nothing to give at present.
    open: Option<Arc<Open>>,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            // While the body has nothing to give, the reader is not at fault.
            this.open = None;
            let Some(Ok(frame)) = ready!(Pin::new(&mut this.body).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let open = Arc::clone(this.open.get_or_insert_with(|| this.taking.begin()));
        open.goes_on();
        let bytes = this.rest.split_to(this.rest.len().min(PIECE_BYTES_MAX));
        if this.is_end_stream() {
            this.open = None;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Piece { bytes, open })))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest, mut hint) = (self.body.size_hint(), self.rest.len() as u64, SizeHint::new());
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(of_body.lower() + rest);
        hint
    }
}

/// A stream whose writes fail if the other end takes nothing for too long.
pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The deadline of the pending write, if there is one.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, until: None }
    }

    /// The result of a write. It fails if writes have been pending for too long.
    fn waited<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        until
            .as_mut()
            .poll(context)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the other side does not read its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.waited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.waited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.waited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.waited(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::super::response::{bytes, stream};
    use super::*;

    impl Taking {
        /// Whether all answers are written.
        fn is_over(&self) -> bool {
            self.lock().since.is_empty()
        }
    }

    fn poll(body: &mut Watched) -> Poll<Option<Bytes>> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        Pin::new(body)
            .poll_frame(&mut context)
            .map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
    }

    #[test]
    fn an_answer_waits_until_its_last_byte_is_written() {
        let taking = Taking::default();
        let content = Bytes::from(vec![7; PIECE_BYTES_MAX + 1]);
        let mut body = taking.watched(bytes("text/plain", content.clone()).into_body());
        assert_eq!(body.size_hint().exact(), Some(content.len() as u64));
        assert!(!taking.is_over(), "nobody has asked for its first piece");
        let Poll::Ready(Some(first)) = poll(&mut body) else { panic!("it is there") };
        assert_eq!((first.len(), body.size_hint().exact()), (PIECE_BYTES_MAX, Some(1)));
        drop(first);
        let Poll::Ready(Some(last)) = poll(&mut body) else { panic!("it is there") };
        assert!(body.is_end_stream() && last[..] == content[PIECE_BYTES_MAX..]);
        drop(body);
        assert!(!taking.is_over(), "its end is still to be written");
        drop(last);
        assert!(taking.is_over());
    }

    #[test]
    fn a_stream_without_news_keeps_nobody_waiting() {
        let (taking, (pieces, receiver)) = (Taking::default(), mpsc::channel(1));
        let mut body = taking.watched(stream("text/event-stream", receiver).into_body());
        assert!(poll(&mut body).is_pending() && taking.is_over());
        pieces.try_send(Bytes::from_static(b"news")).unwrap();
        let Poll::Ready(Some(piece)) = poll(&mut body) else { panic!("it is there") };
        assert!(!taking.is_over());
        drop(piece);
        assert!(poll(&mut body).is_pending() && taking.is_over());
        drop(pieces);
        assert_eq!(poll(&mut body), Poll::Ready(None));
    }
}
