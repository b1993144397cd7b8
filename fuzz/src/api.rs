//! What applications and publishers send to a broker.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mez_core::frame::FRAME_BYTES_MAX;
use mez_core::name::CameraPattern;
use mez_core::units::Timestamp;
use mez_node::api::request::{Subscribe, parse_camera, published};
use mez_node::api::{APPLICATION_BYTES_MAX, ApiError, MESSAGE_BYTES_MAX, pb};
use mez_node::local::{Kind, PacketReader};
use prost::Message;

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// A request. The first byte says which: to subscribe, to publish, or packets of the local socket, which hold the same
/// messages and others.
pub fn api_request(bytes: &[u8]) {
    taken(bytes);
}

/// Checks requests and gives the number of those that a broker would take.
pub fn taken(bytes: &[u8]) -> usize {
    let Some((&which, bytes)) = bytes.split_first() else { return 0 };
    let taken = match which % 3 {
        0 => pb::SubscribeRequest::decode(bytes).is_ok_and(subscribe),
        1 => pb::PublishRequest::decode(bytes).is_ok_and(publish),
        _ => return packets(bytes),
    };
    usize::from(taken)
}

fn subscribe(request: pb::SubscribeRequest) -> bool {
    match Subscribe::parse(request, NOW) {
        Ok(valid) => {
            assert_eq!(valid.contract.validate(), Ok(()));
            assert_eq!(valid.span.validate(), Ok(()));
            assert!(valid.application.len() <= APPLICATION_BYTES_MAX);
            assert_eq!(valid.pattern.as_str().parse::<CameraPattern>().as_ref(), Ok(&valid.pattern));
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
            // The intake refuses images without pixels, whatever way they come.
            frame.width > 0 && frame.height > 0
        }
        Err(error) => {
            helps(&error);
            false
        }
    }
}

/// The socket's bytes, as the broker reads them.
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
            kind => packet.decode::<pb::ReplyRequest>(kind).is_ok(),
        };
        taken += usize::from(valid);
    }
    taken
}

/// Every refusal names the field and says something.
fn helps(error: &ApiError) {
    assert!(error.field.is_some() && !error.reason.is_empty() && !error.message.is_empty(), "{error:?}");
    // However long what was refused: a stranger does not make us send much.
    assert!(error.message.len() <= 4096, "{} bytes", error.message.len());
}

/// The result of a future that has nothing to wait for: its input lies in memory.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("reading from memory waits"),
    }
}
