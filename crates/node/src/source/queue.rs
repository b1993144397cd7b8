//! The queue between the task that reads a source and its caller: the newest frames, and the events between them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mez_core::broker::StreamPart;
use tokio::sync::Notify;

use super::error::SourceError;
use super::types::{SourceEvent, SourceFrame, SourcePacket};

/// The most frames that wait for the caller. Beyond that, the oldest is dropped and counted as skipped.
const FRAMES_WAITING_MAX: usize = 3;

/// The most packets that wait for the caller. Packets need each other: beyond that, all are dropped,
/// and so are further packets up to the next key frame.
const PACKETS_WAITING_MAX: usize = 64;

/// The most bytes of packets that wait. A single packet may have more.
const PACKETS_BYTES_MAX: usize = 64 << 20;

/// A bounded queue of events: at most [`FRAMES_WAITING_MAX`] frames, [`PACKETS_WAITING_MAX`] packets
/// with [`PACKETS_BYTES_MAX`] together, the last restart, and the end.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    inner: Mutex<Inner>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<SourceEvent>,
    skipped: u64,
    end: Option<Result<(), SourceError>>,
    /// Packets were dropped: further packets before the next key frame cannot be decoded.
    lacks_key: bool,
}

impl EventQueue {
    pub(super) fn push_frame(&self, frame: SourceFrame) {
        let mut inner = self.lock();
        let is_frame = |event: &SourceEvent| matches!(event, SourceEvent::Frame(_));
        if inner.events.iter().filter(|event| is_frame(event)).count() == FRAMES_WAITING_MAX
            && let Some(oldest) = inner.events.iter().position(is_frame)
        {
            inner.events.remove(oldest);
            inner.skipped += 1;
        }
        inner.events.push_back(SourceEvent::Frame(frame));
        self.wake.notify_one();
    }

    pub(super) fn push_packet(&self, packet: SourcePacket) {
        let mut inner = self.lock();
        let bytes_of = |event: &SourceEvent| match event {
            SourceEvent::Packet(packet) => Some(packet.payload.len()),
            _ => None,
        };
        let waiting = inner.events.iter().filter_map(bytes_of).count();
        let bytes = inner.events.iter().filter_map(bytes_of).sum::<usize>() + packet.payload.len();
        if waiting == PACKETS_WAITING_MAX || waiting > 0 && bytes > PACKETS_BYTES_MAX {
            inner.events.retain(|event| bytes_of(event).is_none());
            inner.skipped += waiting as u64;
            inner.lacks_key = true;
        }
        inner.lacks_key &= packet.part != StreamPart::Key;
        if inner.lacks_key {
            inner.skipped += 1;
            return;
        }
        inner.events.push_back(SourceEvent::Packet(packet));
        self.wake.notify_one();
    }

    /// Counts frames that will not come. The caller is told before the next event.
    pub(super) fn add_skipped(&self, count: u64) {
        self.lock().skipped += count;
    }

    /// Reports a restart. Replaces one that the caller has not seen yet: only the last is of interest.
    pub(super) fn push_restarting(&self, why: String, after: Duration) {
        let mut inner = self.lock();
        inner.events.retain(|event| !matches!(event, SourceEvent::Restarting { .. }));
        inner.events.push_back(SourceEvent::Restarting { why, after });
        self.wake.notify_one();
    }

    /// Ends the queue. Only the first call counts.
    pub(super) fn finish(&self, end: Result<(), SourceError>) {
        self.lock().end.get_or_insert(end);
        self.wake.notify_one();
    }

    /// Waits for the next event. An error is reported once; after an error or a clean end, every event is [`SourceEvent::Ended`].
    pub(super) async fn next(&self) -> SourceEvent {
        loop {
            // Registered before the check, so that an event between the two is not missed.
            let woken = self.wake.notified();
            if let Some(event) = self.try_next() {
                return event;
            }
            woken.await;
        }
    }

    fn try_next(&self) -> Option<SourceEvent> {
        let mut inner = self.lock();
        if inner.skipped > 0 && (!inner.events.is_empty() || inner.end.is_some()) {
            return Some(SourceEvent::Skipped { count: std::mem::take(&mut inner.skipped) });
        }
        if let Some(event) = inner.events.pop_front() {
            return Some(event);
        }
        match inner.end.replace(Ok(())) {
            Some(Ok(())) => Some(SourceEvent::Ended),
            Some(Err(error)) => Some(SourceEvent::Failed(error)),
            None => {
                inner.end = None;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each statement leaves the queue consistent, so a poisoned lock is safe to use.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use mez_core::frame::Encoding;

    use super::*;

    fn frame(number: u8) -> SourceFrame {
        SourceFrame { jpeg: Bytes::from(vec![number]), width: 1, height: 1, captured: Instant::now() }
    }

    fn drain(queue: &EventQueue) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(event) = queue.try_next() {
            let is_end = matches!(event, SourceEvent::Ended);
            seen.push(match event {
                SourceEvent::Frame(frame) => format!("frame {}", frame.jpeg[0]),
                SourceEvent::Packet(packet) => format!("packet {}", packet.payload[0]),
                SourceEvent::Skipped { count } => format!("skipped {count}"),
                SourceEvent::Restarting { why, .. } => format!("restarting {why}"),
                SourceEvent::Failed(error) => format!("failed {error}"),
                SourceEvent::Ended => "ended".to_owned(),
            });
            if is_end {
                break;
            }
        }
        seen
    }

    #[test]
    fn a_caller_that_is_away_finds_the_newest_frames_and_the_count_of_the_rest() {
        let queue = EventQueue::default();
        queue.push_frame(frame(0));
        queue.push_restarting("once".into(), Duration::ZERO);
        for number in 1..100 {
            queue.push_frame(frame(number));
        }
        queue.push_restarting("again".into(), Duration::ZERO);
        assert_eq!(drain(&queue), ["skipped 97", "frame 97", "frame 98", "frame 99", "restarting again"]);
    }

    /// Packets need the packets before them: after a loss, the queue continues with a key frame.
    #[test]
    fn a_caller_that_was_away_too_long_goes_on_with_a_key_frame() {
        let queue = EventQueue::default();
        let push = |number: u8| {
            let part = match number % 50 {
                0 => StreamPart::Key,
                _ => StreamPart::Following { is_needed: true },
            };
            let payload = Bytes::from(vec![number]);
            let captured = Instant::now();
            queue.push_packet(SourcePacket {
                payload,
                encoding: Encoding::H264,
                width: 1,
                height: 1,
                part,
                captured,
            });
        };
        // Packets 0 to 63 wait; 64 is too many. The next key frame is 100.
        (0..=98).for_each(push);
        queue.push_restarting("once".into(), Duration::ZERO);
        assert_eq!(drain(&queue), ["skipped 99", "restarting once"]);
        (99..102).for_each(push);
        assert_eq!(drain(&queue), ["skipped 1", "packet 100", "packet 101"]);
    }

    /// Large pictures, such as a stream of key frames only, fill memory long before there are many of them.
    #[test]
    fn what_waits_is_bounded_in_bytes_too() {
        let queue = EventQueue::default();
        let third = Bytes::from(vec![7; PACKETS_BYTES_MAX / 3]);
        for _ in 0..4 {
            let (payload, captured) = (third.clone(), Instant::now());
            queue.push_packet(SourcePacket {
                payload,
                encoding: Encoding::H264,
                width: 1,
                height: 1,
                part: StreamPart::Key,
                captured,
            });
        }
        assert_eq!(drain(&queue), ["skipped 3", "packet 7"]);
    }

    #[test]
    fn an_error_is_told_once_and_then_it_is_over() {
        let queue = EventQueue::default();
        queue.push_frame(frame(1));
        queue.add_skipped(2);
        queue.finish(Err(SourceError::Stopped));
        queue.finish(Ok(()));
        assert_eq!(
            drain(&queue),
            [
                "skipped 2".to_owned(),
                "frame 1".into(),
                format!("failed {}", SourceError::Stopped),
                "ended".into()
            ]
        );
        assert_eq!(drain(&queue), ["ended"]);
    }

    /// Frames that were skipped while nothing else happened are reported with the next event, not alone.
    #[test]
    fn skipped_frames_wait_for_an_event() {
        let queue = EventQueue::default();
        queue.add_skipped(1);
        assert_eq!(drain(&queue), Vec::<String>::new());
        queue.push_frame(frame(1));
        assert_eq!(drain(&queue), ["skipped 1", "frame 1"]);
    }
}
