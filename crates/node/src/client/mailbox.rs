//! Keeps the events of a subscription until the application takes them.

use std::collections::VecDeque;

use mez_core::frame::{FrameId, SkipReason};
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, merged};
use mez_core::units::Timestamp;

use super::Event;
use super::frame::ReceivedFrame;

/// The most notices that wait. Beyond that, the oldest is dropped.
const NOTICES_MAX: usize = 256;

/// Holds the newest frame of each camera, or a queue of a few frames of all cameras, and the notices.
#[derive(Debug)]
pub(super) struct Mailbox {
    deliver: Deliver,
    /// With [`Deliver::Every`]: the most frames that may wait.
    frames_max: usize,
    notices: VecDeque<Event>,
    cameras: Vec<Camera>,
    /// With [`Deliver::Every`]: frames in order of arrival.
    queue: VecDeque<Box<ReceivedFrame>>,
    /// The index of the camera to look at first, so that every camera gets its turn.
    turn: usize,
    /// The last event, once nothing follows.
    last: Option<Event>,
    over: bool,
}

/// The frames of one camera.
#[derive(Debug)]
struct Camera {
    name: CameraName,
    /// The last received frame, and its capture time.
    last: Option<(FrameId, Timestamp)>,
    /// Whether the connection was lost since then, so that frames may be missing.
    resumed: bool,
    /// The newest waiting frame.
    waiting: Option<Box<ReceivedFrame>>,
}

impl Mailbox {
    pub(super) fn new(deliver: Deliver, frames_max: usize) -> Self {
        Self {
            deliver,
            frames_max: frames_max.max(1),
            notices: VecDeque::new(),
            cameras: Vec::new(),
            queue: VecDeque::new(),
            turn: 0,
            last: None,
            over: false,
        }
    }

    /// Whether one more frame may come.
    pub(super) fn has_room(&self) -> bool {
        self.deliver == Deliver::Newest || self.queue.len() < self.frames_max
    }

    /// Takes in a frame. Drops a frame that is not newer than the last one of its camera, because a new request may begin
    /// with older frames. Counts the frames missed while there was no connection. Returns the frame that was replaced.
    ///
    /// A camera broker whose state was wiped counts its starts from 1 again. An edge that still knows the camera makes it
    /// continue its epochs. If the edge was restarted as well, the only sign is an earlier epoch with later capture times.
    pub(super) fn put_frame(&mut self, mut frame: Box<ReceivedFrame>) -> Option<Box<ReceivedFrame>> {
        let deliver = self.deliver;
        let camera = self.camera(&frame.camera);
        let (id, captured) = (frame.meta.id, frame.meta.captured);
        if let Some((last, last_captured)) = camera.last {
            let wiped = camera.resumed && id.epoch < last.epoch && captured > last_captured;
            if id <= last && !wiped {
                return None;
            }
        }
        if let (true, Some((last, _))) = (std::mem::take(&mut camera.resumed), camera.last) {
            let next = if last.epoch == id.epoch { last.sequence.0 + 1 } else { 0 };
            let missed = id.sequence.0.saturating_sub(next).saturating_sub(frame.skipped.total());
            frame.skipped.add(SkipReason::LinkDown, missed);
        }
        camera.last = Some((id, captured));
        if deliver == Deliver::Every {
            self.queue.push_back(frame);
            return None;
        }
        let superseded = camera.waiting.take();
        if let Some(superseded) = &superseded {
            frame.skipped.merge(&superseded.skipped);
            frame.skipped.add(SkipReason::ApplicationBusy, 1);
            frame.not_held = merged(superseded.not_held, frame.not_held);
        }
        camera.waiting = Some(frame);
        superseded
    }

    /// Takes in a record that a group has given to this program, in order of arrival. It may be older than earlier records.
    pub(super) fn put_given(&mut self, frame: Box<ReceivedFrame>) {
        self.queue.push_back(frame);
    }

    /// Whether a frame waits.
    pub(super) fn has_frame(&self) -> bool {
        !self.queue.is_empty() || self.cameras.iter().any(|camera| camera.waiting.is_some())
    }

    /// Takes in a notice.
    pub(super) fn put_notice(&mut self, notice: Event) {
        if self.notices.len() == NOTICES_MAX {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// Notes that the connection was lost, so that the next frames may leave a gap.
    pub(super) fn resume(&mut self) {
        self.cameras.iter_mut().for_each(|camera| camera.resumed = true);
    }

    /// Nothing but `last` follows.
    pub(super) fn finish(&mut self, last: Event) {
        self.last = Some(last);
        self.over = true;
    }

    /// Takes the next event: notices first, then frames, then the last event.
    pub(super) fn take(&mut self) -> Option<Event> {
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        if let Some(frame) = self.queue.pop_front() {
            return Some(Event::Frame(frame));
        }
        let cameras = self.cameras.len();
        for offset in 0..cameras {
            let index = (self.turn + offset) % cameras;
            if let Some(frame) = self.cameras[index].waiting.take() {
                self.turn = (index + 1) % cameras;
                return Some(Event::Frame(frame));
            }
        }
        self.last.take()
    }

    /// Whether all events were taken and nothing follows.
    pub(super) fn is_over(&self) -> bool {
        self.over && self.last.is_none()
    }

    fn camera(&mut self, name: &CameraName) -> &mut Camera {
        let index = self.cameras.iter().position(|camera| camera.name == *name).unwrap_or_else(|| {
            self.cameras.push(Camera { name: name.clone(), last: None, resumed: false, waiting: None });
            self.cameras.len() - 1
        });
        &mut self.cameras[index]
    }
}

#[cfg(test)]
mod tests {
    use mez_core::units::Instant;
    use proptest::prelude::*;

    use super::*;
    use crate::api::pb;
    use crate::client::frame::BrokerClock;

    fn frame(camera: &str, epoch: u64, sequence: u64) -> Box<ReceivedFrame> {
        let message = pb::Frame {
            camera: camera.into(),
            epoch,
            sequence,
            captured_utc_ns: sequence,
            encoding: 1,
            rung: "original".into(),
            reference: 1,
            ..Default::default()
        };
        Box::new(ReceivedFrame::from_message(message, Instant::ZERO, BrokerClock::Same).unwrap())
    }

    fn taken(mailbox: &mut Mailbox) -> Option<(String, u64, u64)> {
        match mailbox.take()? {
            Event::Frame(frame) => {
                Some((frame.camera.to_string(), frame.meta.id.sequence.0, frame.skipped.total()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_newest_waits_and_the_superseded_are_counted() {
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        for sequence in 0..5 {
            mailbox.put_frame(frame("a", 1, sequence));
        }
        assert_eq!(taken(&mut mailbox), Some(("a".into(), 4, 4)));
        mailbox.put_frame(frame("a", 1, 5));
        assert_eq!(taken(&mut mailbox), Some(("a".into(), 5, 0)));
        assert_eq!(taken(&mut mailbox), None);
    }

    /// A fast camera must not delay a slow one.
    #[test]
    fn cameras_take_turns() {
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        let mut order = Vec::new();
        mailbox.put_frame(frame("slow", 1, 0));
        for sequence in 0..4 {
            mailbox.put_frame(frame("fast", 1, sequence));
            order.push(taken(&mut mailbox).unwrap().0);
        }
        assert_eq!(order, ["slow", "fast", "fast", "fast"]);
    }

    #[test]
    fn every_frame_waits_up_to_the_bound() {
        let mut mailbox = Mailbox::new(Deliver::Every, 2);
        mailbox.put_frame(frame("a", 1, 0));
        assert!(mailbox.has_room());
        mailbox.put_frame(frame("a", 1, 1));
        assert!(!mailbox.has_room());
        assert_eq!(taken(&mut mailbox).unwrap().1, 0);
        assert!(mailbox.has_room());
    }

    #[test]
    fn frames_missed_without_a_connection_are_counted_as_such() {
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        mailbox.put_frame(frame("a", 1, 3));
        taken(&mut mailbox);
        mailbox.resume();
        mailbox.put_frame(frame("a", 1, 3));
        assert_eq!(taken(&mut mailbox), None, "the same frame twice");
        mailbox.put_frame(frame("a", 1, 9));
        assert_eq!(taken(&mut mailbox), Some(("a".into(), 9, 5)));

        // The camera broker was restarted meanwhile.
        mailbox.resume();
        mailbox.put_frame(frame("a", 2, 2));
        assert_eq!(taken(&mut mailbox), Some(("a".into(), 2, 2)));
    }

    #[test]
    fn a_camera_that_lost_its_memory_is_not_ignored_for_ever() {
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        mailbox.put_frame(frame("a", 7, 100));
        taken(&mut mailbox);
        // Within one connection, an earlier epoch is just old.
        mailbox.put_frame(frame("a", 1, 101));
        assert_eq!(taken(&mut mailbox), None);
        mailbox.resume();
        mailbox.put_frame(frame("a", 1, 99));
        assert_eq!(taken(&mut mailbox), None, "captured before the last frame");
        mailbox.put_frame(frame("a", 1, 200));
        assert_eq!(taken(&mut mailbox).unwrap().1, 200);
        mailbox.put_frame(frame("a", 1, 201));
        assert_eq!(taken(&mut mailbox).unwrap().1, 201);
    }

    #[test]
    fn the_last_event_comes_after_everything_else() {
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        mailbox.put_frame(frame("a", 1, 0));
        mailbox.put_notice(Event::Waiting { matching: 0 });
        mailbox.finish(Event::Ended { rest: Vec::new() });
        assert!(matches!(mailbox.take(), Some(Event::Waiting { .. })));
        assert!(matches!(mailbox.take(), Some(Event::Frame(_))));
        assert!(!mailbox.is_over());
        assert!(matches!(mailbox.take(), Some(Event::Ended { .. })));
        assert!(mailbox.is_over());
    }

    proptest! {
        /// Even with repeated frames and steps back, taken frames increase, and delivered + skipped = published.
        #[test]
        fn order_is_kept_and_every_frame_is_accounted_for(
            steps in proptest::collection::vec((0u64..40, 0u8..4), 1..60),
            every in any::<bool>(),
        ) {
            let deliver = if every { Deliver::Every } else { Deliver::Newest };
            let mut mailbox = Mailbox::new(deliver, usize::MAX);
            let (mut last, mut sum, mut first) = (None, 0, None);
            let mut check = |event: Option<Event>| {
                if let Some(Event::Frame(frame)) = event {
                    let sequence = frame.meta.id.sequence.0;
                    assert!(last < Some(sequence));
                    last = Some(sequence);
                    let first = *first.get_or_insert(sequence - frame.skipped.total());
                    sum += 1 + frame.skipped.total();
                    assert_eq!(first + sum, sequence + 1);
                }
            };
            let mut came = None::<u64>;
            for (sequence, action) in steps {
                // A new request leaves gaps and goes back. Within one connection, the broker accounts for every frame.
                let mut next = frame("a", 1, sequence);
                mailbox.resume();
                if action == 0 && came.is_some_and(|came| came < sequence) {
                    next.skipped.add(SkipReason::Stalled, sequence - came.unwrap() - 1);
                }
                came = came.max(Some(sequence));
                mailbox.put_frame(next);
                if action == 1 {
                    check(mailbox.take());
                }
            }
            while let Some(event) = mailbox.take() {
                check(Some(event));
            }
        }
    }

    #[test]
    fn a_hole_in_the_past_is_told_with_the_frame_that_is_taken() {
        use mez_core::subscription::{NotHeld, NotHeldReason};
        let mut mailbox = Mailbox::new(Deliver::Newest, 1);
        let not_held =
            NotHeld { begin: Timestamp::MIN, end: Timestamp::from_nanos(1), reason: NotHeldReason::Gone };
        mailbox.put_frame(Box::new(ReceivedFrame { not_held: Some(not_held), ..*frame("a", 1, 0) }));
        mailbox.put_frame(frame("a", 1, 1));
        match mailbox.take() {
            Some(Event::Frame(frame)) => assert_eq!(frame.not_held, Some(not_held)),
            other => panic!("{other:?}"),
        }
    }
}
