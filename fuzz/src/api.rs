//! Fuzzes the requests of applications and publishers to a broker.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mez_core::frame::FRAME_BYTES_MAX;
use mez_core::name::CameraPattern;
use mez_core::profile::{LADDER_RUNGS_MAX, RungProfile};
use mez_core::units::Timestamp;
use mez_node::api::contract;
use mez_node::api::request::{Subscribe, measured, parse_camera, published};
use mez_node::api::{APPLICATION_BYTES_MAX, ApiError, MESSAGE_BYTES_MAX, pb};
use mez_node::local::{Kind, PacketReader};
use mez_node::notes::{NoteContent, NotedReply};
use mez_node::profile::NamedProfile;
use mez_node::reply::{Detections, ReplyContent};
use prost::Message;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// The input is a request. Its first byte selects the kind: subscribe, publish, packets of the local socket
/// (which hold the same messages and others), update a contract, a profile, or a note (which is read from disk).
pub fn api_request(bytes: &[u8]) {
    taken(bytes);
}

/// Checks requests and returns how many a broker would accept.
pub fn taken(bytes: &[u8]) -> usize {
    let Some((&which, bytes)) = bytes.split_first() else { return 0 };
    let taken = match which % 6 {
        0 => pb::SubscribeRequest::decode(bytes).is_ok_and(subscribe),
        1 => pb::PublishRequest::decode(bytes).is_ok_and(publish),
        2 => return packets(bytes),
        3 => pb::UpdateContractRequest::decode(bytes).is_ok_and(change),
        4 => profile(bytes),
        _ => note(bytes),
    };
    usize::from(taken)
}

fn change(request: pb::UpdateContractRequest) -> bool {
    match contract::parse(request.contract) {
        Ok((contract, _)) => {
            assert_eq!(contract.validate(), Ok(()));
            true
        }
        Err(error) => {
            helps(&error);
            false
        }
    }
}

fn measure(request: pb::ReportAccuracyRequest) -> bool {
    match measured(&request) {
        Ok((_, accuracy)) => {
            assert!((0.0..=1.0).contains(&accuracy));
            true
        }
        Err(error) => {
            helps(&error);
            false
        }
    }
}

/// A profile, as part of a subscription.
fn profile(bytes: &[u8]) -> bool {
    match NamedProfile::read(bytes) {
        Ok(read) => {
            let ladder = read.profile.ladder();
            assert!((1..=LADDER_RUNGS_MAX).contains(&ladder.len()));
            let ascends = |pair: &[RungProfile]| {
                pair[0].bytes.mean <= pair[1].bytes.mean && pair[0].accuracy < pair[1].accuracy
            };
            assert!(ladder.rungs().windows(2).all(ascends));
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() <= 4096, "{} bytes", text.len());
            false
        }
    }
}

/// A note, as in a record on disk and in an edge's answer.
fn note(bytes: &[u8]) -> bool {
    match NoteContent::decode(bytes.to_vec().into()) {
        Ok(NoteContent::Reply(NotedReply { content: ReplyContent::Detections(found), .. })) => {
            let again = Detections::new(found.size(), found.items().to_vec());
            assert_eq!(again, Ok(found));
            true
        }
        Ok(_) => true,
        Err(error) => {
            assert!(error.to_string().len() <= 4096);
            false
        }
    }
}

fn subscribe(request: pb::SubscribeRequest) -> bool {
    match Subscribe::parse(request, NOW) {
        Ok(valid) => {
            assert_eq!(valid.spec.contract.validate(), Ok(()));
            assert_eq!(valid.spec.span.validate(), Ok(()));
            assert!(valid.spec.application.len() <= APPLICATION_BYTES_MAX);
            assert_eq!(
                valid.spec.cameras.as_str().parse::<CameraPattern>().as_ref(),
                Ok(&valid.spec.cameras)
            );
            true
        }
        Err(error) => {
            helps(&error);
            false
        }
    }
}

fn publish(request: pb::PublishRequest) -> bool {
    if let Err(error) = parse_camera(&request.camera) {
        helps(&error);
    }
    let payload = request.payload.clone();
    match published(request) {
        Ok((frame, _)) => {
            assert_eq!(frame.payload, payload);
            // The intake refuses images without pixels, whichever way they arrive.
            frame.width > 0 && frame.height > 0
        }
        Err(error) => {
            helps(&error);
            false
        }
    }
}

fn reply(mut request: pb::ReplyRequest) -> bool {
    let published = (request.published_width, request.published_height);
    match ReplyContent::parse(&mut request) {
        Ok(ReplyContent::Detections(detections)) => {
            assert_eq!(detections.size(), published);
            let again = Detections::new(published, detections.items().to_vec());
            assert_eq!(again, Ok(detections));
            true
        }
        Ok(ReplyContent::Opaque(_)) => true,
        Err(error) => {
            helps(&error);
            false
        }
    }
}

/// Reads the socket's bytes as the broker does.
fn packets(bytes: &[u8]) -> usize {
    let mut reader = PacketReader::new(bytes, FRAME_BYTES_MAX);
    let (mut taken, mut bytes_read) = (0, 0);
    while let Ok(Some(packet)) = at_once(reader.read()) {
        assert!(packet.message.len() <= MESSAGE_BYTES_MAX);
        bytes_read += packet.message.len() + packet.payload.len();
        assert!(bytes_read <= bytes.len());
        let valid = match packet.kind {
            Kind::Subscribe => packet.decode(Kind::Subscribe).is_ok_and(subscribe),
            Kind::Publish => packet.decode::<pb::PublishRequest>(Kind::Publish).is_ok_and(|mut request| {
                request.payload = packet.payload;
                publish(request)
            }),
            Kind::UpdateContract => packet.decode(Kind::UpdateContract).is_ok_and(change),
            Kind::ReportAccuracy => packet.decode(Kind::ReportAccuracy).is_ok_and(measure),
            Kind::Reply => packet.decode(Kind::Reply).is_ok_and(reply),
            kind => packet.decode::<pb::ReplyRequest>(kind).is_ok(),
        };
        taken += usize::from(valid);
    }
    taken
}

/// Checks that a refusal names the field and has a message.
fn helps(error: &ApiError) {
    assert!(error.field.is_some() && !error.reason.is_empty() && !error.message.is_empty(), "{error:?}");
    // Even after a long request, the refusal must be short.
    assert!(error.message.len() <= 4096, "{} bytes", error.message.len());
}

/// The result of a future that never waits, because its input is in memory.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("reading from memory waits"),
    }
}
