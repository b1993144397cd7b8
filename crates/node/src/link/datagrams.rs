//! Sets up the UDP socket of a link: how large datagrams may be, and how many are sent or received at once.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// The largest datagram that is tried, in bytes. Loopback takes 65,507 bytes, other routes at most about 9,000.
pub(super) const DATAGRAM_BYTES_MAX: u16 = 65_000;
/// The largest datagram that is received, in bytes: the most that QUIC allows (RFC 9000, section 18.2).
pub(super) const RECEIVED_BYTES_MAX: u16 = 65_527;
/// The most bytes for one send call. The kernel silently drops what exceeds it.
const SENT_AT_ONCE_BYTES_MAX: usize = 65_507;
/// The number of buffers for one receive call. The kernel returns at most [`RECEIVED_BYTES_MAX`] bytes in one
/// call, whether as one datagram or many. quinn would reserve the largest size for the largest number: 130 MB.
const RECEIVED_AT_ONCE_MAX: usize = 1;

/// A socket that passes no more datagrams to a send call than the kernel takes. quinn itself passes up
/// to ten, whatever their size; datagrams of more than 6,550 bytes would then stall the connection.
pub(super) struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    sent_at_once_max: usize,
}

impl Socket {
    /// A socket whose datagrams have at most `datagram_bytes_max` bytes.
    pub(super) fn new(inner: Arc<dyn AsyncUdpSocket>, datagram_bytes_max: u16) -> Self {
        Self { inner, sent_at_once_max: SENT_AT_ONCE_BYTES_MAX / usize::from(datagram_bytes_max) }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} datagrams at once", self.inner, self.sent_at_once_max)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments().min(self.sent_at_once_max)
    }

    fn max_receive_segments(&self) -> usize {
        RECEIVED_AT_ONCE_MAX
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use quinn::Runtime;

    use super::*;

    /// The kernel would drop more than this, and the connection would stall.
    #[tokio::test]
    async fn no_more_leaves_at_once_than_the_kernel_takes() {
        for bytes in [1200, 1452, 6500, 8952, 16_000, 33_000, DATAGRAM_BYTES_MAX] {
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            udp.set_nonblocking(true).unwrap();
            let socket = Socket::new(quinn::TokioRuntime.wrap_udp_socket(udp).unwrap(), bytes);
            let at_once = socket.max_transmit_segments();
            assert!(
                at_once >= 1 && at_once * usize::from(bytes) <= SENT_AT_ONCE_BYTES_MAX,
                "{at_once} x {bytes}"
            );
            // The largest receive also fits.
            assert!(
                socket.max_receive_segments() * usize::from(RECEIVED_BYTES_MAX) >= SENT_AT_ONCE_BYTES_MAX
            );
        }
    }
}
