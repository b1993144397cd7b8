//! Streams the events of a subscription, or the answers of a camera, as the body of a gRPC response.
//!
//! Generated code would first copy a frame into one message. For a stalled client, the broker would
//! then keep one or two copies. This module copies the payload in pieces, as the connection takes it.
//! It takes the next message only when the previous one has left, so that no queue builds up.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use prost::{Message, encode_length_delimiter, length_delimiter_len};
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use super::answers::AnswerFeed;
use super::feed::{Feed, Told};
use super::lent::Payload;
use super::pb::subscribe_event::Event;
use super::{ApiError, pb};

/// The bytes that are copied at once: as many as HTTP/2 sends at once, unless a client asks
/// for more. Two pieces of each stream may wait to be sent, whatever its client's windows are.
const PIECE_BYTES: usize = 16 << 10;
/// The prefix of each gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// The key of the field `frame` of a `SubscribeEvent`: its number in `mez.proto`, and the wire type for a length-delimited field.
const FRAME_KEY: &[u8] = &[2 << 3 | 2];
/// The key of the field `payload` of a `Frame`: its number in `mez.proto`, which takes two bytes, and the wire type for a length-delimited field.
const PAYLOAD_KEY: &[u8] = &[((24 << 3 | 2) & 0x7f) as u8 | 0x80, ((24 << 3 | 2) >> 7) as u8];

/// The key of the field `answer` of a `TakeAnswersResponse`, and that of the field `payload` of an `Answer`.
const ANSWER_KEY: &[u8] = &[1 << 3 | 2];
const ANSWER_PAYLOAD_KEY: &[u8] = &[9 << 3 | 2];

/// The messages of a stream.
pub(super) trait Messages: Send + 'static {
    /// The next message, chosen now. `None` after the last.
    fn next_message(&mut self) -> impl Future<Output = Option<Result<Sending, ApiError>>> + Send;
}

impl Messages for Feed {
    async fn next_message(&mut self) -> Option<Result<Sending, ApiError>> {
        Some(self.next().await?.map(Sending::event))
    }
}

impl Messages for AnswerFeed {
    async fn next_message(&mut self) -> Option<Result<Sending, ApiError>> {
        let next = self.next().await?;
        Some(next.map(|(response, payload)| Sending::answer(response, payload.map(|it| self.lent(it)))))
    }
}

type Turn<M> = Pin<Box<dyn Future<Output = (Option<Result<Sending, ApiError>>, Box<M>)> + Send>>;

/// The body with these messages. Each is chosen when the previous one was sent. Dropping it ends the stream.
pub(super) struct Events<M> {
    next: Next<M>,
    sending: Option<Sending>,
    unsent: Arc<Unsent>,
}

enum Next<M> {
    Idle(Box<M>),
    Turn(Turn<M>),
    Over,
}

impl<M: Messages> Events<M> {
    pub(super) fn new(messages: M) -> Self {
        Self { next: Next::Idle(Box::new(messages)), sending: None, unsent: Arc::default() }
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Sending, ApiError>>> {
        let mut turn = match std::mem::replace(&mut self.next, Next::Over) {
            Next::Over => return Poll::Ready(None),
            Next::Turn(turn) => turn,
            Next::Idle(mut messages) => Box::pin(async move {
                let next = messages.next_message().await;
                (next, messages)
            }),
        };
        match turn.as_mut().poll(context) {
            Poll::Ready((next, messages)) => {
                self.next = Next::Idle(messages);
                Poll::Ready(next)
            }
            Poll::Pending => {
                self.next = Next::Turn(turn);
                Poll::Pending
            }
        }
    }
}

impl<M: Messages> Body for Events<M> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if self.sending.is_some() {
                ready!(self.unsent.poll_at_most(PIECE_BYTES, context));
            }
            if let Some(sending) = &mut self.sending {
                match sending.piece() {
                    Some(Ok(piece)) => return Poll::Ready(Some(Ok(Frame::data(self.unsent.add(piece))))),
                    Some(Err(status)) => {
                        (self.sending, self.next) = (None, Next::Over);
                        return Poll::Ready(Some(Err(status)));
                    }
                    None => self.sending = None,
                }
            }
            // The newest frame or answer is chosen only when it can be sent.
            ready!(self.unsent.poll_at_most(0, context));
            if matches!(self.next, Next::Over) {
                return Poll::Ready(None);
            }
            let status = match ready!(self.poll_message(context)) {
                Some(Ok(message)) => {
                    self.sending = Some(message);
                    continue;
                }
                Some(Err(error)) => Status::from(error),
                None => Status::new(Code::Ok, ""),
            };
            self.next = Next::Over;
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
    }
}

/// A message that is being sent.
pub(super) struct Sending {
    /// The message without the payload.
    head: Bytes,
    payload: Option<Payload>,
    /// How much of the payload has been copied.
    copied: usize,
}

impl Sending {
    fn event(told: Told) -> Self {
        let Told { event, payload } = told;
        match event {
            Event::Frame(frame) => {
                let (keys, nothing) = ((FRAME_KEY, PAYLOAD_KEY), pb::SubscribeEvent::default());
                Self::nested(&nothing, &*frame, keys, payload)
            }
            event => Self::whole(&pb::SubscribeEvent { event: Some(event) }),
        }
    }

    fn answer(mut response: pb::TakeAnswersResponse, payload: Option<Payload>) -> Self {
        match response.answer.take() {
            Some(answer) => Self::nested(&response, &answer, (ANSWER_KEY, ANSWER_PAYLOAD_KEY), payload),
            None => Self::whole(&response),
        }
    }

    /// A message without a payload.
    fn whole(message: &impl Message) -> Self {
        let mut head = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
        put_prefix(&mut head, message.encoded_len());
        message.encode(&mut head).expect(GROWS);
        Self { head: head.freeze(), payload: None, copied: 0 }
    }

    /// The message `outer` with its field `inner`, whose last field is the payload. `keys`: those of the two fields. The
    /// fields of a message may be in any order.
    fn nested(
        outer: &impl Message,
        inner: &impl Message,
        (inner_key, payload_key): (&[u8], &[u8]),
        payload: Option<Payload>,
    ) -> Self {
        let payload = payload.filter(|payload| payload.len() > 0);
        let payload_bytes = payload.as_ref().map_or(0, Payload::len);
        let field = match payload_bytes {
            0 => 0,
            bytes => payload_key.len() + length_delimiter_len(bytes) + bytes,
        };
        let inner_bytes = inner.encoded_len() + field;
        let message_bytes =
            outer.encoded_len() + inner_key.len() + length_delimiter_len(inner_bytes) + inner_bytes;
        let mut head = BytesMut::with_capacity(PREFIX_BYTES + message_bytes - payload_bytes);
        put_prefix(&mut head, message_bytes);
        outer.encode(&mut head).expect(GROWS);
        head.put_slice(inner_key);
        encode_length_delimiter(inner_bytes, &mut head).expect(GROWS);
        inner.encode(&mut head).expect(GROWS);
        if payload_bytes > 0 {
            head.put_slice(payload_key);
            encode_length_delimiter(payload_bytes, &mut head).expect(GROWS);
        }
        Self { head: head.freeze(), payload, copied: 0 }
    }

    /// The next piece. `None` after the last.
    fn piece(&mut self) -> Option<Result<BytesMut, Status>> {
        let left = self.payload.as_ref().map_or(0, |payload| payload.len() - self.copied);
        if self.head.is_empty() && left == 0 {
            return None;
        }
        let part = left.min(PIECE_BYTES.saturating_sub(self.head.len()));
        let mut piece = BytesMut::with_capacity(self.head.len() + part);
        piece.put(std::mem::take(&mut self.head));
        if let Some(payload) = &mut self.payload {
            let Some(bytes) = payload.bytes() else { return Some(Err(too_slow())) };
            piece.put_slice(&bytes[self.copied..self.copied + part]);
            drop(bytes);
            self.copied += part;
            if part == left {
                self.payload = None;
                self.copied = 0;
            } else {
                payload.wait();
                payload.progressed();
            }
        }
        Some(Ok(piece))
    }
}

const GROWS: &str = "a buffer that grows has room";

fn put_prefix(head: &mut BytesMut, message_bytes: usize) {
    head.put_u8(0);
    head.put_u32(u32::try_from(message_bytes).expect("payloads are at most 32 MiB"));
}

/// The status of a stream that is reset in the middle of a message. Of gRPC's reasons for a reset, clients map only this one to `RESOURCE_EXHAUSTED`.
fn too_slow() -> Status {
    let mut status = Status::from(ApiError::too_slow());
    status.set_source(Arc::new(h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM)));
    status
}

/// The bytes of a stream that the connection holds and has not sent.
#[derive(Default)]
struct Unsent {
    bytes: AtomicUsize,
    waits: Mutex<Option<Waker>>,
}

impl Unsent {
    fn add(self: &Arc<Self>, piece: BytesMut) -> Bytes {
        self.bytes.fetch_add(piece.len(), Ordering::AcqRel);
        Bytes::from_owner(Piece { content: piece, of: Arc::clone(self) })
    }

    /// Waits until the connection holds at most `bytes`.
    fn poll_at_most(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        let few = || self.bytes.load(Ordering::Acquire) <= bytes;
        if few() {
            return Poll::Ready(());
        }
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        // Pieces may have been sent between the first check and the registration of the waker.
        if few() { Poll::Ready(()) } else { Poll::Pending }
    }
}

struct Piece {
    content: BytesMut,
    of: Arc<Unsent>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.content.len(), Ordering::AcqRel);
        let waits = self.of.waits.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waits {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::reader_memory::ReaderMemoryLimits;
    use proptest::prelude::*;

    use super::*;
    use crate::api::lent::Lending;
    use crate::api::principal::Principal;

    /// The message that is sent, without its prefix.
    fn sent(mut sending: Sending) -> Vec<u8> {
        let mut sent = Vec::new();
        while let Some(piece) = sending.piece() {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            sent.extend_from_slice(&piece);
        }
        assert_eq!(sent[0], 0);
        let length = u32::from_be_bytes(sent[1..PREFIX_BYTES].try_into().unwrap());
        assert_eq!(length as usize, sent.len() - PREFIX_BYTES);
        sent.split_off(PREFIX_BYTES)
    }

    proptest! {
        /// The pieces form the same message as generated code would make, and no piece is larger than allowed.
        #[test]
        fn pieces_add_up_to_the_message(
            payload in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..300),
                (0usize..200_000).prop_map(|bytes| (0..bytes).map(|at| at as u8).collect::<Vec<u8>>()),
            ],
            camera in "[a-z]{1,40}",
            sequence in any::<u64>(),
        ) {
            let frame = pb::Frame { camera, sequence, trace: vec![pb::StageTime::default()], ..Default::default() };
            let whole = pb::Frame { payload: payload.clone().into(), ..frame.clone() };
            let whole = pb::SubscribeEvent { event: Some(Event::Frame(Box::new(whole))) };
            let (lending, principal) = (Lending::new(ReaderMemoryLimits::default(), None), Principal::User { uid: 1 });
            let payload = Payload::own(payload.into(), None, &lending, &principal);
            let sending = Sending::event(Told { event: Event::Frame(Box::new(frame)), payload: Some(payload) });
            prop_assert_eq!(pb::SubscribeEvent::decode(&sent(sending)[..]).unwrap(), whole);
        }

        #[test]
        fn pieces_of_an_answer_add_up_to_it(
            payload in proptest::collection::vec(any::<u8>(), 0..40_000),
            sequence in any::<u64>(),
            count in any::<u64>(),
        ) {
            let answer = pb::Answer { sequence, content_type: "image/jpeg".into(), ..Default::default() };
            let skipped = vec![pb::SkippedAnswers { reason: 2, count, total: count }];
            let response = pb::TakeAnswersResponse { answer: Some(answer.clone()), skipped };
            let whole = pb::Answer { payload: payload.clone().into(), ..answer };
            let whole = pb::TakeAnswersResponse { answer: Some(whole), ..response.clone() };
            let (lending, principal) = (Lending::new(ReaderMemoryLimits::default(), None), Principal::User { uid: 1 });
            let payload = Payload::own(payload.into(), None, &lending, &principal);
            let sending = Sending::answer(response.clone(), Some(payload));
            prop_assert_eq!(pb::TakeAnswersResponse::decode(&sent(sending)[..]).unwrap(), whole);
            let counts = pb::TakeAnswersResponse { answer: None, ..response };
            let sending = Sending::answer(counts.clone(), None);
            prop_assert_eq!(pb::TakeAnswersResponse::decode(&sent(sending)[..]).unwrap(), counts);
        }
    }

    /// Bytes that a connection holds count until it has sent them.
    #[test]
    fn pieces_that_are_not_sent_hold_up_the_next() {
        let unsent = Arc::<Unsent>::default();
        let context = Context::from_waker(Waker::noop());
        let piece = unsent.add(BytesMut::from(&[0; 100][..]));
        let part = piece.slice(10..20);
        drop(piece);
        assert!(
            unsent.poll_at_most(99, &context).is_pending() && unsent.poll_at_most(100, &context).is_ready()
        );
        drop(part);
        assert!(unsent.poll_at_most(0, &context).is_ready());
    }
}
