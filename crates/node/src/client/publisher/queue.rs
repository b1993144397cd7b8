//! Frames and questions that wait for the broker, and the number of those that were sent and not answered yet.
//!
//! A question ([`PublisherClient::await_on_disk`](super::PublisherClient::await_on_disk)) takes only a place that no frame needs:
//! a question can be repeated, but a dropped frame is lost. The counters count only frames. A data record counts as a frame here.

use std::collections::VecDeque;

use super::types::{PublisherCounts, PublisherEvent};
use crate::api::pb::PublishRequest;
use crate::api::{ApiError, Limit};

/// Requests to send, and the number of unanswered ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// In the order of sending.
    waiting: VecDeque<PublishRequest>,
    waiting_max: usize,
    /// Sent and not answered.
    frames_in_flight: u64,
    questions_in_flight: u64,
    counts: PublisherCounts,
}

impl Queue {
    /// Makes a queue for `waiting_max` frames and questions, at least one.
    pub(super) fn new(waiting_max: usize) -> Self {
        Self { waiting_max: waiting_max.max(1), ..Self::default() }
    }

    /// The counts of frames so far.
    pub(super) fn counts(&self) -> PublisherCounts {
        self.counts
    }

    /// Whether a request waits to be sent.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether every request was answered, dropped or lost.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.frames_in_flight == 0 && self.questions_in_flight == 0
    }

    /// Counts a frame that the program has sent. `connected`: there is a connection to the broker.
    pub(super) fn note_frame(&mut self, connected: bool) {
        self.counts.sent += 1;
        // The frame would be old when the broker is back.
        self.counts.dropped += u64::from(!connected);
    }

    /// Adds a request at the end. Returns the question that finds no place or is displaced.
    #[must_use = "whoever asked waits for an answer"]
    pub(super) fn push(&mut self, request: PublishRequest) -> Option<Unasked> {
        let given_way = self.make_room(&request);
        if self.has_room() {
            self.waiting.push_back(request);
            return given_way;
        }
        if is_question(&request) {
            return Some(self.unasked(&request));
        }
        // All waiting requests are frames.
        self.waiting.pop_front();
        self.counts.dropped += 1;
        self.waiting.push_back(request);
        None
    }

    /// Notes that a request is being sent.
    pub(super) fn note_sending(&mut self, request: &PublishRequest) {
        *self.in_flight(is_question(request)) += 1;
    }

    /// Puts back a request that could not be sent at once, before newer requests. Returns the question that finds no place or is displaced.
    #[must_use = "whoever asked waits for an answer"]
    pub(super) fn take_back(&mut self, request: PublishRequest) -> Option<Unasked> {
        let is_question = is_question(&request);
        self.note_answered(is_question);
        let given_way = self.make_room(&request);
        if self.has_room() {
            self.waiting.push_front(request);
            return given_way;
        }
        if is_question {
            return Some(self.unasked(&request));
        }
        self.counts.dropped += 1;
        None
    }

    /// Takes the next request, which counts as being sent from now on.
    pub(super) fn pop(&mut self) -> Option<PublishRequest> {
        let request = self.waiting.pop_front()?;
        self.note_sending(&request);
        Some(request)
    }

    /// Counts the broker's answer to a frame or a question.
    pub(super) fn handle(&mut self, event: &PublisherEvent) {
        match event {
            PublisherEvent::Accepted { .. } => self.counts.accepted += 1,
            PublisherEvent::Refused { .. } => self.counts.refused += 1,
            PublisherEvent::OnDisk { .. } => return self.note_answered(true),
            _ => return,
        }
        self.note_answered(false);
    }

    /// The connection is lost. Unanswered frames are lost with it. Waiting frames are dropped, because they would be old when the broker is back.
    pub(super) fn handle_disconnected(&mut self) {
        self.counts.dropped += self.waiting.iter().filter(|request| !is_question(request)).count() as u64;
        self.counts.lost += std::mem::take(&mut self.frames_in_flight);
        self.questions_in_flight = 0;
        self.waiting.clear();
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < self.waiting_max
    }

    /// Removes the oldest question if a frame finds no place.
    fn make_room(&mut self, request: &PublishRequest) -> Option<Unasked> {
        if self.has_room() || is_question(request) {
            return None;
        }
        let oldest = self.waiting.iter().position(is_question)?;
        let given_way = self.waiting.remove(oldest)?;
        Some(self.unasked(&given_way))
    }

    fn in_flight(&mut self, question: bool) -> &mut u64 {
        if question { &mut self.questions_in_flight } else { &mut self.frames_in_flight }
    }

    fn note_answered(&mut self, question: bool) {
        let in_flight = self.in_flight(question);
        *in_flight = in_flight.saturating_sub(1);
    }

    fn unasked(&self, question: &PublishRequest) -> Unasked {
        Unasked { number: question.number, waiting_max: self.waiting_max }
    }
}

fn is_question(request: &PublishRequest) -> bool {
    request.await_on_disk.is_some()
}

/// A question that is not sent, because frames need its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unasked {
    number: u64,
    waiting_max: usize,
}

impl Unasked {
    /// The event for the program that asked.
    pub(super) fn into_event(self) -> PublisherEvent {
        let Self { number, waiting_max } = self;
        let (name, value, subject) =
            ("waiting_frames_max".into(), waiting_max as u64, "this publisher".into());
        let message = format!(
            "the edge was not asked whether the record is on disk: {waiting_max} records and requests already wait for the edge; ask again in a \
             moment"
        );
        let error = ApiError::exhausted("TOO_MANY_AWAITED", Limit { name, value, subject }, message);
        PublisherEvent::OnDisk { number, error: Some(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pb::AwaitOnDisk;

    fn frame(number: u64) -> PublishRequest {
        PublishRequest { number, payload: vec![1].into(), ..Default::default() }
    }

    fn question(number: u64) -> PublishRequest {
        PublishRequest { number, await_on_disk: Some(AwaitOnDisk::default()), ..Default::default() }
    }

    /// Pushes a request, and returns the number of the question that must be repeated.
    fn hand_in(queue: &mut Queue, request: PublishRequest) -> Option<u64> {
        if !is_question(&request) {
            queue.note_frame(true);
        }
        queue.push(request).map(|unasked| unasked.number)
    }

    fn waiting(queue: &Queue) -> Vec<u64> {
        queue.waiting.iter().map(|request| request.number).collect()
    }

    fn accepted(number: u64) -> PublisherEvent {
        let frame = mez_core::frame::FrameId {
            epoch: mez_core::frame::Epoch(1),
            sequence: mez_core::frame::Sequence(number),
        };
        PublisherEvent::Accepted { number, frame }
    }

    #[test]
    fn a_question_never_takes_the_place_of_a_frame() {
        let mut queue = Queue::new(3);
        assert_eq!(hand_in(&mut queue, question(0)), None);
        assert_eq!(hand_in(&mut queue, frame(1)), None);
        assert_eq!(hand_in(&mut queue, question(2)), None);
        assert_eq!(hand_in(&mut queue, question(3)), Some(3), "it finds no place");
        assert_eq!(hand_in(&mut queue, frame(4)), Some(0), "the oldest question gives way");
        assert_eq!(waiting(&queue), [1, 2, 4]);
        assert_eq!(hand_in(&mut queue, frame(5)), Some(2));
        assert_eq!((waiting(&queue), queue.counts().dropped), (vec![1, 4, 5], 0));
        assert_eq!(hand_in(&mut queue, frame(6)), None, "newer frames take the place of older ones");
        assert_eq!(hand_in(&mut queue, question(7)), Some(7));
        assert_eq!(waiting(&queue), [4, 5, 6]);
        assert_eq!(queue.counts(), PublisherCounts { sent: 4, dropped: 1, ..Default::default() });
    }

    #[test]
    fn what_could_not_be_sent_at_once_keeps_its_turn() {
        let mut queue = Queue::new(2);
        queue.note_sending(&frame(0));
        assert_eq!(hand_in(&mut queue, question(1)), None);
        assert_eq!(hand_in(&mut queue, frame(2)), None);
        assert_eq!(queue.take_back(frame(0)).map(|unasked| unasked.number), Some(1));
        assert_eq!(waiting(&queue), [0, 2]);
        queue.note_sending(&frame(3));
        assert_eq!(queue.take_back(frame(3)), None);
        assert_eq!((waiting(&queue), queue.counts().dropped), (vec![0, 2], 1), "both are newer");
        queue.note_sending(&question(4));
        assert_eq!(queue.take_back(question(4)).map(|unasked| unasked.number), Some(4));
        assert_eq!(queue.frames_in_flight + queue.questions_in_flight, 0);
    }

    #[test]
    fn counters_count_frames_alone() {
        let mut queue = Queue::new(8);
        for request in [frame(0), question(1), frame(2), question(3), frame(4), question(5)] {
            assert_eq!(hand_in(&mut queue, request), None);
        }
        let sent: Vec<u64> = (0..4).filter_map(|_| Some(queue.pop()?.number)).collect();
        assert_eq!(sent, [0, 1, 2, 3]);
        queue.handle(&accepted(0));
        queue.handle(&PublisherEvent::OnDisk { number: 1, error: None });
        assert_eq!((queue.frames_in_flight, queue.questions_in_flight), (1, 1));
        queue.note_frame(false);
        queue.handle_disconnected();
        let expected = PublisherCounts { sent: 4, accepted: 1, dropped: 2, lost: 1, ..Default::default() };
        assert_eq!(queue.counts(), expected);
        assert!(queue.is_settled());
    }

    #[test]
    fn whoever_asked_is_told_to_ask_again() {
        let told = Unasked { number: 7, waiting_max: 4 }.into_event();
        let PublisherEvent::OnDisk { number: 7, error: Some(error) } = told else { panic!("{told:?}") };
        assert_eq!(error.reason, "TOO_MANY_AWAITED");
        assert!(error.message.contains("ask again"), "{}", error.message);
    }
}
