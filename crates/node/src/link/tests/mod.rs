//! Members that an edge refuses in the handshake, and what the camera learns of it; the order in which frames are received.

mod full_path;

use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::{ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, Rung, Sequence};
use mez_core::revocation::{Entry, Revocations};
use mez_core::trace::CameraTrace;
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::{FrameHeader, Message};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::{CameraEvent, Command, Dialler, EdgeEvent, Transport, listen};
use crate::audit::Audit;
use crate::identity::{Role, TemporarySite};
use crate::ports::EdgeAddress;
use crate::revocation::{LiveRevocations, SignedList, Taken};

/// The edge checks a certificate when the camera's handshake is already done, so the camera sees a
/// connection that ends. The camera still learns why, and what to do, over QUIC as over TCP.
#[tokio::test]
async fn a_camera_that_was_revoked_is_told_so_and_what_to_do() {
    let site = TemporarySite::create(&"test".parse().unwrap()).unwrap();
    let keys = site.keys();
    let edge = keys.credentials(Role::Edge, None).unwrap();
    let stolen = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let entry = Entry { since: Timestamp::MAX, until: Timestamp::MAX, because: "stolen".into() };
    let list = Revocations::none("test");
    let list = list.with(Timestamp::MIN, "camera/dock/cam1".parse().unwrap(), entry).unwrap();
    let list = SignedList::sign(&keys.load_authority().unwrap(), list).unwrap();
    let revoked = LiveRevocations::in_memory(&edge);
    assert_eq!(revoked.take(list.bytes, "a test"), Ok(Taken::News));
    let (came, _came) = mpsc::channel(8);
    let listener = listen("127.0.0.1:0".parse().unwrap(), &edge, (&revoked, Audit::off()), came).unwrap();
    let place = EdgeAddress { host: "127.0.0.1".into(), port: listener.address().unwrap().port() };

    for transport in [Transport::Quic, Transport::Tcp, Transport::Auto] {
        let (events, mut happened) = mpsc::channel(8);
        let nothing_known = LiveRevocations::in_memory(&stolen);
        let dialler = Dialler::new(transport, &stolen, nothing_known, events).unwrap();
        dialler.dial(LinkId(1), EdgeIndex(0), place.clone());
        // Held as long as the camera broker uses the connection.
        let mut commands = None;
        let told = loop {
            match happened.recv().await.unwrap() {
                CameraEvent::Dialled(_, _, sender) => commands = Some(sender),
                CameraEvent::DialFailed(_, told) | CameraEvent::Closed(_, told) => break told,
                other => panic!("{other:?}"),
            }
        };
        assert!(told.contains("refused our certificate: it was revoked"), "{transport:?}: {told}");
        assert!(told.contains("enrol with a new token"), "{transport:?}: {told}");
        drop(commands);
    }
}

fn header(sequence: u64, bytes: usize) -> FrameHeader {
    FrameHeader {
        meta: FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: Timestamp::from_nanos(sequence),
            clock_source: ClockSource::Broker,
            width: 4,
            height: 4,
            published: (4, 4),
            encoding: Encoding::Jpeg,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(sequence)),
        },
        payload_bytes: bytes as u32,
        sent: Instant::ZERO,
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: CameraTrace::default(),
        skipped: Vec::new(),
    }
}

/// A source that begins gives frames in bursts, and an edge can be busy for a moment. If the newest
/// frame were received first, no application would get the other frames.
#[tokio::test]
async fn frames_that_come_at_once_are_received_in_their_order() {
    const FRAMES: u64 = 12;
    let site = TemporarySite::create(&"test".parse().unwrap()).unwrap();
    let keys = site.keys();
    let edge = keys.credentials(Role::Edge, None).unwrap();
    let camera = keys.credentials(Role::Camera, Some(&"dock/cam1".parse().unwrap())).unwrap();
    let (came, mut comes) = mpsc::channel(64);
    let nothing_known = LiveRevocations::in_memory(&edge);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let entered = runtime.enter();
    let listener =
        listen("127.0.0.1:0".parse().unwrap(), &edge, (&nothing_known, Audit::off()), came).unwrap();
    drop(entered);
    let place = EdgeAddress { host: "127.0.0.1".into(), port: listener.address().unwrap().port() };
    let (events, mut happened) = mpsc::channel(64);
    let dialler =
        Dialler::new(Transport::Quic, &camera, LiveRevocations::in_memory(&camera), events).unwrap();
    dialler.dial(LinkId(1), EdgeIndex(0), place);
    let Some(CameraEvent::Dialled(_, _, sender)) = happened.recv().await else { panic!("no connection") };
    // A camera sends a message first.
    assert!(sender.send(Command::Send(Message::Ping { t1: Instant::ZERO })));
    let Some(EdgeEvent::Connected(_, _, _, _open)) = comes.recv().await else { panic!("no connection") };
    let Some(EdgeEvent::Message(..)) = comes.recv().await else { panic!("no message") };

    let (free, busy) = std::sync::mpsc::sync_channel::<()>(1);
    let held = runtime.spawn(async move { busy.recv() });
    let all: Vec<u64> = (0..FRAMES).collect();
    for sequence in &all {
        let payload = vec![0; 100];
        let header = Box::new(header(*sequence, payload.len()));
        assert!(sender.send(Command::SendFrame(header, payload.into())));
        while !matches!(happened.recv().await.unwrap(), CameraEvent::Sent(..)) {}
    }
    free.send(()).unwrap();
    let (mut begun, mut whole) = (Vec::new(), Vec::new());
    while whole.len() < all.len() {
        match comes.recv().await.unwrap() {
            EdgeEvent::FrameHeader(_, header, answer) => {
                begun.push(header.meta.id.sequence.0);
                answer.send(Ok(())).unwrap();
            }
            EdgeEvent::FrameComplete(_, frame, _) => whole.push(frame.sequence.0),
            _ => {}
        }
    }
    assert_eq!((&begun, &whole), (&all, &all));
    held.await.unwrap().unwrap();
    drop(listener);
    runtime.shutdown_background();
}
