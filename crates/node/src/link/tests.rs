//! Whom an edge refuses in the handshake, and what the camera hears of it.

use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::revocation::{Entry, Revocations};
use mez_core::units::Timestamp;
use tokio::sync::mpsc;

use super::{CameraEvent, Dialler, Transport, listen};
use crate::audit::Audit;
use crate::identity::{Role, TemporarySite};
use crate::ports::EdgeAddress;
use crate::revocation::{LiveRevocations, SignedList, Taken};

/// The edge judges a certificate when the camera already takes the handshake for done, so the camera sees a connection that ends. It is told
/// why all the same, and what to do, over QUIC as over TCP.
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
