//! Sends and receives file descriptors over a Unix socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

/// Received descriptors that may wait to be taken. Further ones are closed.
const WAITING_MAX: usize = 2;

/// Sends `bytes` with a descriptor. Returns how many bytes were sent, at least one.
pub(crate) async fn send(stream: &UnixStream, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    stream
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [file];
            control.push(SendAncillaryMessage::ScmRights(&files));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags)?)
        })
        .await
}

/// A socket that can also receive descriptors.
#[derive(Debug)]
pub struct DescriptorReader {
    half: OwnedReadHalf,
    /// Reads of more bytes than this are payloads, which never come with descriptors.
    plain_bytes_min: usize,
    waiting: VecDeque<OwnedFd>,
}

impl DescriptorReader {
    pub(crate) fn new(half: OwnedReadHalf, plain_bytes_min: usize) -> Self {
        Self { half, plain_bytes_min, waiting: VecDeque::new() }
    }

    /// The oldest received descriptor.
    pub(crate) fn take(&mut self) -> Option<OwnedFd> {
        self.waiting.pop_front()
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Self { half, waiting, .. } = self;
        let stream: &UnixStream = (*half).as_ref();
        stream.try_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    waiting.extend(files);
                    waiting.truncate(WAITING_MAX);
                }
            }
            Ok(received.bytes)
        })
    }
}

impl AsyncRead for DescriptorReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if into.remaining() > this.plain_bytes_min {
            return Pin::new(&mut this.half).poll_read(context, into);
        }
        loop {
            ready!(this.half.as_ref().poll_read_ready(context))?;
            match this.receive(into.initialize_unfilled()) {
                Ok(bytes) => {
                    into.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
