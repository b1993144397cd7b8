//! Frames on a path that is always full, over QUIC on real sockets.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::units;
use mez_core::wire::Message;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

use super::header;
use crate::audit::Audit;
use crate::identity::{Role, TemporarySite};
use crate::link::quic::DATAGRAM_BYTES_ETHERNET;
use crate::link::{CameraEvent, Command, CommandSender, Dialler, EdgeEvent, Listener, Transport, listen};
use crate::ports::EdgeAddress;
use crate::revocation::LiveRevocations;

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// The most packets that wait in front of the path: more than a connection has in flight.
const QUEUE_PACKETS_MAX: usize = 4096;

/// The path for the camera's packets.
#[derive(Clone, Copy)]
struct Path {
    bytes_per_ms: u64,
    /// One packet in this many is lost; 0: none.
    lost_once_in: u64,
}

/// A path to `edge` that takes packets of Ethernet size.
async fn path(edge: SocketAddr, spec: Path) -> SocketAddr {
    let outside = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
    let inside = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
    inside.connect(edge).await.unwrap();
    let address = outside.local_addr().unwrap();
    let (from, to) = watch::channel(None);
    let (queue, mut queued) = mpsc::channel::<Vec<u8>>(QUEUE_PACKETS_MAX);
    let (near, far) = (Arc::clone(&outside), Arc::clone(&inside));
    tokio::spawn(async move {
        let (mut packet, mut packets) = (vec![0; 1 << 16], 0);
        while let Ok((bytes, sender)) = near.recv_from(&mut packet).await {
            from.send_replace(Some(sender));
            packets += 1;
            let is_lost = spec.lost_once_in > 0 && packets % spec.lost_once_in == 0;
            if bytes <= usize::from(DATAGRAM_BYTES_ETHERNET) && !is_lost {
                let _ = queue.try_send(packet[..bytes].to_vec());
            }
        }
    });
    tokio::spawn(async move {
        let mut free = Instant::now();
        while let Some(packet) = queued.recv().await {
            free = free.max(Instant::now())
                + Duration::from_micros(packet.len() as u64 * 1000 / spec.bytes_per_ms);
            tokio::time::sleep_until(free.into()).await;
            let _ = far.send(&packet).await;
        }
    });
    tokio::spawn(async move {
        let mut packet = vec![0; 1 << 16];
        while let Ok(bytes) = inside.recv(&mut packet).await {
            let sender = *to.borrow();
            if let Some(sender) = sender {
                let _ = outside.send_to(&packet[..bytes], sender).await;
            }
        }
    });
    address
}

/// A camera's end and an edge's end of a link, with a path between them.
struct Rig {
    commands: CommandSender,
    happened: mpsc::Receiver<CameraEvent>,
    comes: mpsc::Receiver<EdgeEvent>,
    _open: CommandSender,
    _parts: (Listener, Dialler, TemporarySite),
}

impl Rig {
    async fn new(spec: Path) -> Self {
        let site = TemporarySite::create(&"test".parse().unwrap()).unwrap();
        let keys = site.keys();
        let edge = keys.credentials(Role::Edge, None).unwrap();
        let camera = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
        let nothing_known = LiveRevocations::in_memory(&edge);
        let (came, mut comes) = mpsc::channel(64);
        let listener = listen(LOOPBACK.into(), &edge, (&nothing_known, Audit::off()), came).unwrap();
        let port = path(listener.address().unwrap(), spec).await.port();
        let (events, mut happened) = mpsc::channel(64);
        let dialler =
            Dialler::new(Transport::Quic, &camera, LiveRevocations::in_memory(&camera), events).unwrap();
        dialler.dial(LinkId(1), EdgeIndex(0), EdgeAddress { host: "127.0.0.1".into(), port });
        let Some(CameraEvent::Dialled(_, _, commands)) = happened.recv().await else {
            panic!("no connection")
        };
        assert!(commands.send(Command::Send(Message::Ping { t1: units::Instant::ZERO })));
        let Some(EdgeEvent::Connected(_, _, _, open)) = comes.recv().await else { panic!("no connection") };
        Self { commands, happened, comes, _open: open, _parts: (listener, dialler, site) }
    }

    /// Sends frames, each as soon as the previous one counts as sent. Returns the largest number of frames that were arriving at once.
    async fn flood(&mut self, frames: u64, bytes: usize) -> usize {
        let (mut begun, mut whole, mut at_once_max) = (0, 0, 0);
        let mut arriving = BTreeSet::new();
        let send = |sequence| {
            let command =
                Command::SendFrame(Box::new(header(sequence, bytes)), vec![sequence as u8; bytes].into());
            assert!(self.commands.send(command));
        };
        send(0);
        while whole < frames {
            tokio::select! {
                happened = self.happened.recv() => match happened.unwrap() {
                    CameraEvent::Sent(..) => {
                        begun += 1;
                        if begun < frames {
                            send(begun);
                        }
                    }
                    CameraEvent::Closed(_, reason) => panic!("{reason}"),
                    _ => {}
                },
                comes = self.comes.recv() => match comes.unwrap() {
                    EdgeEvent::FrameHeader(_, header, answer) => {
                        arriving.insert(header.meta.id.sequence);
                        at_once_max = at_once_max.max(arriving.len());
                        answer.send(Ok(())).unwrap();
                    }
                    EdgeEvent::FrameComplete(_, frame, payload) => {
                        assert!(payload.len() == bytes && payload.iter().all(|byte| *byte == frame.sequence.0 as u8));
                        assert!(arriving.remove(&frame.sequence));
                        whole += 1;
                    }
                    EdgeEvent::Closed(_, reason) => panic!("{reason}"),
                    _ => {}
                },
            }
        }
        at_once_max
    }
}

/// The last bytes of a frame do not wait for frames that were begun later: a link that is always full would never carry them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_is_whole_before_the_next_but_one_begins() {
    let mut rig = Rig::new(Path { bytes_per_ms: 4_000, lost_once_in: 0 }).await;
    let at_once_max = rig.flood(15, 300_000).await;
    assert!(at_once_max <= 2, "{at_once_max} frames were arriving at once");
}

/// Lost bytes do not wait for newer frames either. The loss is noticed a round trip later, which is less than a frame takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_goes_before_newer_frames() {
    let mut rig = Rig::new(Path { bytes_per_ms: 4_000, lost_once_in: 150 }).await;
    let at_once_max = rig.flood(15, 300_000).await;
    assert!(at_once_max <= 3, "{at_once_max} frames were arriving at once");
}

/// For a frame of this many packets, the error of the count exceeds what may be written ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_frame_leaves_to_its_end() {
    let mut rig = Rig::new(Path { bytes_per_ms: 12_000, lost_once_in: 0 }).await;
    assert!(rig.flood(2, 6_000_000).await <= 2);
}
