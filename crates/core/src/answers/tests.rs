//! The three parts together, over a link that loses, delays and reorders answers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::clock::ClockEstimate;
use crate::frame::{Encoding, Epoch, FrameId, FrameMeta, Sequence};
use crate::sample;
use crate::trace::{CameraTrace, Stage};
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{AnswerAccount, AnswerSkip, AnswerSkips, FrameHeader, Report};

const BOUND: Duration = Duration::from_millis(100);
const PATH: Duration = Duration::from_millis(5);
const ANCHOR: ClockAnchor = ClockAnchor { wall: Timestamp::from_nanos(0), monotonic: Instant::ZERO };

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn frame(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

/// An answer to a frame that was captured at `captured`. The clocks of both sides are the same.
fn answer(sequence: u64, captured: Instant, bytes: usize) -> MadeAnswer {
    let id = frame(sequence);
    let mut trace = CameraTrace::default();
    trace.stamp(Stage::Published, captured + PATH);
    trace.stamp(Stage::Encoded, captured + PATH * 2);
    let meta = FrameMeta {
        width: 64,
        height: 48,
        published: (64, 48),
        ..sample::meta(id, ANCHOR.wall_at(captured))
    };
    let header = FrameHeader {
        meta,
        payload_bytes: bytes as u32,
        sent: captured,
        expected_accuracy: None,
        infeasible: false,
        skipped: Vec::new(),
        history: 0,
        trace,
    };
    MadeAnswer { header: Box::new(header), payload: Bytes::from(vec![7; bytes]), captured: Some(captured) }
}

fn sent(steps: &[OutletStep]) -> Vec<u64> {
    let sent = steps.iter().filter_map(|step| match step {
        OutletStep::Send(answer) => Some(answer.frame().sequence.0),
        _ => None,
    });
    sent.collect()
}

fn outlet() -> Outlet {
    let mut outlet = Outlet::default();
    outlet.handle_taken_in((Epoch(1), ANCHOR), 1);
    outlet.handle_request(at(0), Some(BOUND));
    outlet
}

#[test]
fn one_is_sent_at_a_time_and_the_newest_waits() {
    let mut outlet = outlet();
    assert_eq!(sent(&outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH).1), [1]);
    assert!(sent(&outlet.handle_answer(at(20), answer(2, at(10), 9_000), PATH).1).is_empty());
    assert!(sent(&outlet.handle_answer(at(30), answer(3, at(20), 9_000), PATH).1).is_empty());
    assert_eq!(sent(&outlet.handle_sent(at(31), frame(1))), [3]);
    // An answer that comes late from another engine, and an answer that comes twice.
    outlet.handle_answer(at(32), answer(2, at(10), 9_000), PATH);
    outlet.handle_answer(at(33), answer(3, at(20), 9_000), PATH);
    let (answered, confirmed, skipped) = outlet.counts();
    assert_eq!((answered, confirmed, outlet.on_its_way()), (5, 0, 2));
    let all: Vec<_> = skipped.iter().collect();
    assert_eq!(all, [(AnswerSkip::Replaced, 1), (AnswerSkip::Overtaken, 1), (AnswerSkip::Repeated, 1)]);
}

#[test]
fn what_is_older_than_the_bound_is_given_up() {
    let mut outlet = outlet();
    outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH);
    outlet.handle_answer(at(50), answer(2, at(40), 9_000), PATH);
    assert_eq!(outlet.due(), Some(at(100)));
    let steps = outlet.handle_timeout(at(100));
    assert!(matches!(steps[0], OutletStep::Reset(id) if id == frame(1)), "{steps:?}");
    assert_eq!(sent(&steps), [2]);
    // An answer that comes too late from the application is not sent.
    outlet.handle_sent(at(101), frame(2));
    assert!(sent(&outlet.handle_answer(at(190), answer(3, at(90), 9_000), PATH).1).is_empty());
    assert_eq!(outlet.counts().2.get(AnswerSkip::Late), 2);
}

#[test]
fn one_that_was_given_up_after_its_last_byte_left_is_delivered() {
    let mut outlet = outlet();
    outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH);
    outlet.handle_timeout(at(100));
    assert_eq!(outlet.counts().2.total(), 1);
    outlet.handle_confirmed(at(110), frame(1), Some(at(104)));
    let (answered, confirmed, skipped) = outlet.counts();
    assert_eq!((answered, confirmed, skipped.total()), (1, 1, 0));
}

/// At 100 kB/s, an answer with 40 ms left may have 3.2 kB, and an answer of 9 kB is given up early for a newer one.
#[test]
fn the_way_to_the_camera_says_how_much_an_answer_may_have() {
    let mut outlet = outlet();
    let (room, _) = outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH);
    assert_eq!(room, Room { bound: Some(BOUND), bytes: None });
    outlet.handle_sent(at(90), frame(1));
    outlet.handle_confirmed(at(105), frame(1), Some(at(105)));
    let (room, _) = outlet.handle_answer(at(160), answer(2, at(105), 9_000), PATH);
    assert_eq!(room.bytes, Some(3_200), "0.8 x 100 kB/s x (100 - 55 - 5) ms");
    // It would need 90 ms, and has 45 ms.
    let (_, steps) = outlet.handle_answer(at(161), answer(3, at(150), 3_000), PATH);
    assert!(matches!(steps[0], OutletStep::Reset(id) if id == frame(2)), "{steps:?}");
    assert_eq!(sent(&steps), [3]);
    assert_eq!(outlet.counts().2.get(AnswerSkip::Replaced), 1);
}

/// At 100 kB/s and 20 answers a second, each may have less than 5 kB. With the 7.2 kB that a single one may have, each would wait for those before it.
#[test]
fn answers_leave_room_for_those_behind_them() {
    let mut outlet = outlet();
    let mut rooms = Vec::new();
    for number in 1..=8 {
        let now = 50 * number;
        let (room, _) = outlet.handle_answer(at(now), answer(number, at(now - 5), 4_200), PATH);
        rooms.push(room.bytes);
        outlet.handle_sent(at(now + 20), frame(number));
        outlet.handle_confirmed(at(now + 47), frame(number), Some(at(now + 47)));
    }
    assert_eq!(rooms[..4], [None, Some(7_200), Some(7_200), Some(3_750)]);
    assert_eq!(rooms[7], Some(4_620), "the path keeps up with 4.2 kB");
}

/// Each answer takes 25 ms longer than its bytes, as on a radio that sleeps. That does not make the budget smaller and smaller.
#[test]
fn delays_of_the_path_are_not_taken_for_a_low_rate_for_ever() {
    let mut outlet = outlet();
    let mut bytes = 5_000;
    for number in 1..=300 {
        let now = 33 * number;
        let (room, _) = outlet.handle_answer(at(now), answer(number, at(now - 5), bytes), PATH);
        let arrived = at(now) + PATH + Duration::from_micros(25_000 + bytes as u64 / 10);
        outlet.handle_sent(at(now + 1), frame(number));
        outlet.handle_confirmed(arrived, frame(number), Some(arrived));
        bytes = room.bytes.map_or(5_000, |bytes| bytes as usize);
    }
    assert!(bytes > 30_000, "10 MB/s carry more than {bytes} bytes in a few milliseconds");
}

/// The rate falls while an answer is on its way, and its confirmation does not come. Those behind it would be late. They wait, and the newest goes as
/// soon as it can be in time.
#[test]
fn answers_do_not_queue_behind_one_that_the_path_is_slow_with() {
    let mut outlet = outlet();
    outlet.handle_answer(at(10), answer(1, at(0), 10_000), PATH);
    outlet.handle_sent(at(11), frame(1));
    outlet.handle_confirmed(at(25), frame(1), Some(at(25)));
    let mut begun = Vec::new();
    for number in 2..=6 {
        let now = 30 * number;
        let (_, steps) = outlet.handle_answer(at(now), answer(number, at(now - 20), 10_000), PATH);
        begun.extend(sent(&steps));
        outlet.handle_sent(at(now + 1), frame(number));
    }
    assert_eq!(
        begun,
        [2, 3],
        "after 60 ms without a confirmation, 10 kB take 40 ms or more, and two are ahead"
    );
    assert_eq!(outlet.counts().2.get(AnswerSkip::Replaced), 2);
    outlet.handle_confirmed(at(185), frame(2), Some(at(185)));
    let steps = outlet.handle_confirmed(at(190), frame(3), Some(at(190)));
    assert_eq!(sent(&steps), [6]);
}

/// Answers that are given up are never confirmed. What has left of them shows that the path has become slower.
#[test]
fn answers_that_are_given_up_measure_the_path_too() {
    let mut outlet = outlet();
    outlet.handle_answer(at(10), answer(1, at(0), 10_000), PATH);
    outlet.handle_sent(at(18), frame(1));
    outlet.handle_confirmed(at(25), frame(1), Some(at(25)));
    for number in 2..=3 {
        let begun = 200 * number;
        let (room, _) = outlet.handle_answer(at(begun), answer(number, at(begun), 40_000), PATH);
        assert_eq!(room.bytes.is_some_and(|bytes| bytes > 50_000), number == 2, "{room:?}");
        outlet.handle_unsent(at(begun + 85), frame(number), 34_000);
        outlet.handle_timeout(at(begun + 105));
    }
    assert_eq!(outlet.counts().2.get(AnswerSkip::Late), 2);
    let (room, _) = outlet.handle_answer(at(1_000), answer(4, at(1_000), 1_000), PATH);
    assert_eq!(room.bytes, Some(4_342), "0.8 x 57 kB/s x 95 ms");
}

/// Devices show a picture in the size that the application made, unless an edge claims an absurd one.
#[test]
fn a_smaller_picture_says_in_which_size_it_is_shown() {
    let shown = |published: (u32, u32)| {
        let mut inlet = Inlet::default();
        let mut header = answer(1, at(0), 1).header;
        header.meta.published = published;
        inlet.handle_header(at(9), (1, Epoch(1)), header).unwrap();
        let done = inlet.handle_complete(at(9), (1, frame(1)), Bytes::from_static(b"x"), (ANCHOR, None));
        done.unwrap().1.unwrap().shown
    };
    assert_eq!([(64, 48), (256, 192), (512, 384)].map(shown), [(64, 48), (256, 192), (512, 384)]);
    for absurd in [(0, 0), (32, 24), (640, 48), (u32::MAX, u32::MAX)] {
        assert_eq!(shown(absurd), (64, 48), "{absurd:?}");
    }
}

#[test]
fn nobody_is_sent_what_he_does_not_want() {
    let mut outlet = Outlet::default();
    outlet.handle_taken_in((Epoch(1), ANCHOR), 1);
    let (room, steps) = outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH);
    assert_eq!((room, steps.len()), (Room::default(), 0));
    assert_eq!(outlet.counts().2.get(AnswerSkip::NotWanted), 1);
    // The same start on another connection continues the account; another start begins a new one.
    outlet.handle_closed();
    outlet.handle_taken_in((Epoch(1), ANCHOR), 2);
    let told = outlet.handle_request(at(20), Some(BOUND));
    assert!(matches!(&told[0], OutletStep::Tell(account) if account.since == 1 && account.answered == 1));
    outlet.handle_closed();
    outlet.handle_taken_in((Epoch(2), ANCHOR), 1);
    assert_eq!(outlet.counts().0, 0);
}

#[test]
fn the_inlet_takes_what_an_edge_may_send_and_nothing_else() {
    let mut inlet = Inlet::default();
    let mut header = |change: fn(&mut FrameHeader)| {
        let mut header = answer(5, at(0), 1_000).header;
        change(&mut header);
        inlet.handle_header(at(9), (1, Epoch(1)), header)
    };
    let empty = header(|header| header.payload_bytes = 0);
    let large = header(|header| header.payload_bytes = ANSWER_BYTES_MAX + 1);
    let flat = header(|header| header.meta.height = 0);
    let video = header(|header| header.meta.encoding = Encoding::H264);
    for refused in [empty, large, flat, video] {
        assert!(matches!(refused, Err(AnswerRefused::Form { .. })), "{refused:?}");
    }
    let foreign = header(|header| header.meta.id.epoch = Epoch(2));
    assert!(matches!(foreign, Err(AnswerRefused::Epoch { .. })), "{foreign:?}");
    for sequence in 0..ARRIVING_ANSWERS_MAX as u64 {
        let begun = inlet.handle_header(at(9), (1, Epoch(1)), answer(10 + sequence, at(0), 1).header);
        assert_eq!(begun, Ok(()));
    }
    let one_more = || answer(9, at(0), 1).header;
    assert_eq!(inlet.handle_header(at(9), (1, Epoch(1)), one_more()), Err(AnswerRefused::TooMany));
    inlet.handle_closed(1);
    assert_eq!(inlet.handle_header(at(9), (2, Epoch(1)), one_more()), Ok(()));
}

/// Even if a camera confirms each answer without reading it, at most one answer stays in memory.
#[test]
fn what_is_confirmed_before_it_has_left_is_cancelled() {
    let mut outlet = outlet();
    outlet.handle_answer(at(10), answer(1, at(0), 9_000), PATH);
    outlet.handle_answer(at(20), answer(2, at(10), 9_000), PATH);
    let steps = outlet.handle_confirmed(at(30), frame(1), None);
    assert!(matches!(steps[0], OutletStep::Reset(id) if id == frame(1)), "{steps:?}");
    assert_eq!(sent(&steps), [2]);
    let steps = outlet.handle_refused(at(31), frame(2));
    assert!(matches!(steps[..], [OutletStep::Reset(id)] if id == frame(2)), "{steps:?}");
}

/// Answers that a camera neither confirms nor refuses do not block others for ever.
#[test]
fn what_is_never_confirmed_gives_up_its_place() {
    let mut outlet = outlet();
    for sequence in 1..=UNCONFIRMED_ANSWERS_MAX as u64 {
        assert_eq!(sent(&outlet.handle_answer(at(10), answer(sequence, at(5), 100), PATH).1), [sequence]);
        outlet.handle_sent(at(10), frame(sequence));
    }
    assert!(sent(&outlet.handle_answer(at(20), answer(20, at(15), 100), PATH).1).is_empty());
    outlet.handle_timeout(at(1_110));
    assert_eq!(sent(&outlet.handle_answer(at(1_120), answer(21, at(1_115), 100), PATH).1), [21]);
    let (_, _, skipped) = outlet.counts();
    let expected = [(AnswerSkip::Late, 1), (AnswerSkip::Unconfirmed, UNCONFIRMED_ANSWERS_MAX as u64)];
    assert_eq!(skipped.iter().collect::<Vec<_>>(), expected);
}

/// An answer that was reported as lost and arrived after all does not count again when another one is lost.
#[test]
fn a_count_that_fell_is_not_told_again() {
    let mut waiting = AnswerBox::default();
    let mut inlet = Inlet::default();
    let mut told = Vec::new();
    for (sequence, late) in [(1, 1), (2, 0), (3, 1), (4, 2)] {
        let mut account = AnswerAccount { since: 1, answered: 9, skipped: AnswerSkips::default() };
        account.skipped.add(AnswerSkip::Late, late);
        waiting.set_skipped(inlet.handle_account(account));
        let header = answer(sequence, at(0), 1).header;
        assert_eq!(inlet.handle_header(at(9), (1, Epoch(1)), header), Ok(()));
        let clocks = (ANCHOR, None);
        let done = inlet.handle_complete(at(9), (1, frame(sequence)), Bytes::from_static(b"x"), clocks);
        waiting.put(done.unwrap().1.unwrap());
        told.push(waiting.take().unwrap().1.total());
    }
    assert_eq!(told, [1, 0, 0, 1]);
}

/// The counts of accounts that are no longer remembered stay counted.
#[test]
fn accounts_that_are_forgotten_stay_counted() {
    let mut inlet = Inlet::default();
    for since in 0..2 * ACCOUNTS_MAX as u64 {
        let mut account = AnswerAccount { since, answered: 1, skipped: AnswerSkips::default() };
        account.skipped.add(AnswerSkip::Late, 1);
        for time in ["once", "the same word again"] {
            assert_eq!(inlet.handle_account(account).total(), since + 1, "{time}");
        }
    }
}

/// The events of the random test.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The application answers the frame `behind` frames before the newest.
    Answer { behind: u64, bytes: usize },
    /// The answer that is being sent has left.
    Leave,
    /// An answer that has left at least in part arrives, or is cancelled if it was given up.
    Arrive { which: usize },
    /// The edge gets the camera's next message, and the camera the edge's.
    Hear,
    /// The publisher takes an answer.
    Take,
    /// Time passes.
    Pass { millis: u64 },
    /// The connection ends, and another one is made.
    Reconnect,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u64..3, 1usize..20_000).prop_map(|(behind, bytes)| Event::Answer { behind, bytes }),
        3 => Just(Event::Leave),
        3 => (0usize..4).prop_map(|which| Event::Arrive { which }),
        3 => Just(Event::Hear),
        2 => Just(Event::Take),
        3 => (1u64..60).prop_map(|millis| Event::Pass { millis }),
        1 => Just(Event::Reconnect),
    ]
}

/// An outlet and an inlet, the link between them, and the answers that a publisher got.
struct Story {
    now: Instant,
    outlet: Outlet,
    inlet: Inlet,
    waiting: AnswerBox,
    link: u64,
    newest: u64,
    /// Streams that are in flight, and whether each was cancelled before its last byte left.
    streams: Vec<(MadeAnswer, bool)>,
    reports: VecDeque<Report>,
    accounts: VecDeque<AnswerAccount>,
    given: Vec<u64>,
    told: u64,
    /// Answers that the edge had counted as lost and that were confirmed later.
    corrected: u64,
    /// Answers that the publisher got without the edge's knowledge, because the connection ended.
    in_doubt: u64,
    arrived: BTreeMap<FrameId, bool>,
}

impl Story {
    fn new() -> Self {
        Self {
            now: at(1_000),
            outlet: outlet(),
            inlet: Inlet::default(),
            waiting: AnswerBox::default(),
            link: 1,
            newest: 0,
            streams: Vec::new(),
            reports: VecDeque::new(),
            accounts: VecDeque::new(),
            given: Vec::new(),
            told: 0,
            corrected: 0,
            in_doubt: 0,
            arrived: BTreeMap::new(),
        }
    }

    fn carry_out(&mut self, steps: Vec<OutletStep>) {
        let unsent = steps.iter().filter(|step| matches!(step, OutletStep::Send(_))).count();
        assert!(unsent <= 1, "two answers have unsent bytes");
        for step in steps {
            match step {
                OutletStep::Send(answer) => self.streams.push((answer, false)),
                OutletStep::Reset(id) => {
                    let stream = self.streams.iter_mut().find(|(answer, _)| answer.frame() == id);
                    // The number of the frame decides whether the last byte had left.
                    if let Some((_, cancelled)) = stream {
                        *cancelled = id.sequence.0 % 2 == 0;
                    }
                }
                OutletStep::Tell(account) => self.accounts.push_back(account),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Answer { behind, bytes } => {
                self.newest += u64::from(behind == 0);
                let captured = at(now.as_nanos() / 1_000_000 - 20 * (behind + 1));
                let answer = answer(self.newest.saturating_sub(behind), captured, bytes);
                let (_, steps) = self.outlet.handle_answer(now, answer, PATH);
                self.carry_out(steps);
            }
            Event::Leave => {
                if let Some((answer, false)) = self.streams.last() {
                    let steps = self.outlet.handle_sent(now, answer.frame());
                    self.carry_out(steps);
                }
            }
            Event::Arrive { which } => self.arrive(which),
            Event::Hear => self.hear(),
            Event::Take => self.take(),
            Event::Pass { millis } => {
                self.now = now + Duration::from_millis(millis);
                let steps = self.outlet.handle_timeout(self.now);
                self.carry_out(steps);
            }
            Event::Reconnect => self.reconnect(),
        }
    }

    fn arrive(&mut self, which: usize) {
        if which >= self.streams.len() {
            return;
        }
        let (answer, cancelled) = self.streams.remove(which);
        let id = answer.frame();
        match self.inlet.handle_header(self.now, (self.link, Epoch(1)), answer.header) {
            Err(_) => self.reports.push_back(Report::Refused { frame: id }),
            Ok(()) if cancelled => self.inlet.handle_cancelled(self.link, id),
            Ok(()) => {
                let clocks = (ANCHOR, Some(ClockEstimate::SAME));
                let done = self.inlet.handle_complete(self.now, (self.link, id), answer.payload, clocks);
                let (report, answered) = done.expect("its header was taken");
                if let Some(answered) = answered {
                    let times = answered.times;
                    let order = [Some(times.captured), times.up, times.made, Some(times.arriving)];
                    assert!(order.is_sorted_by(|a, b| a <= b), "{times:?}");
                    self.waiting.put(answered);
                    self.arrived.insert(id, false);
                }
                self.reports.push_back(report);
            }
        }
    }

    fn hear(&mut self) {
        if let Some(account) = self.accounts.pop_front() {
            self.waiting.set_skipped(self.inlet.handle_account(account));
        }
        let Some(report) = self.reports.pop_front() else { return };
        let lost = self.outlet.counts().2.total();
        let steps = match report {
            Report::Complete { frame, last, .. } => {
                self.arrived.insert(frame, true);
                self.outlet.handle_confirmed(self.now, frame, Some(last))
            }
            Report::Refused { frame } => self.outlet.handle_refused(self.now, frame),
            Report::Progress { .. } => Vec::new(),
        };
        self.corrected += u64::from(self.outlet.counts().2.total() < lost);
        self.carry_out(steps);
    }

    fn take(&mut self) {
        if let Some((answer, skipped)) = self.waiting.take() {
            self.given.push(answer.frame.sequence.0);
            self.told += skipped.total();
        }
    }

    fn reconnect(&mut self) {
        self.outlet.handle_closed();
        self.inlet.handle_closed(self.link);
        self.in_doubt += self.arrived.values().filter(|confirmed| !**confirmed).count() as u64;
        self.arrived.clear();
        self.streams.clear();
        self.reports.clear();
        self.accounts.clear();
        self.link += 1;
        self.outlet.handle_taken_in((Epoch(1), ANCHOR), self.link);
        let steps = self.outlet.handle_request(self.now, Some(BOUND));
        self.carry_out(steps);
    }

    /// All messages and answers in flight arrive.
    fn end(&mut self) {
        for _ in 0..4 {
            self.happen(Event::Pass { millis: 100 });
            while !self.streams.is_empty() {
                self.happen(Event::Leave);
                self.arrive(0);
            }
            while !self.reports.is_empty() || !self.accounts.is_empty() {
                self.hear();
            }
        }
        self.take();
    }
}

proptest! {
    /// A publisher never gets an answer that is older than one before. The answers that it got and the skipped ones that were
    /// reported add up to all that applications gave. Only answers in doubt at the end of a connection are counted in both.
    #[test]
    fn what_is_delivered_and_what_is_told_is_what_was_answered(
        events in prop::collection::vec(event(), 0..200)
    ) {
        let mut story = Story::new();
        for event in events {
            story.happen(event);
        }
        story.end();
        let may_be_told = story.waiting.skipped().total() + story.corrected;
        prop_assert!(story.told <= may_be_told, "told {}, of {may_be_told}", story.told);
        prop_assert!(story.given.is_sorted_by(|a, b| a < b), "{:?}", story.given);
        let (answered, _, _) = story.outlet.counts();
        prop_assert_eq!(story.outlet.on_its_way(), 0);
        let all = story.given.len() as u64 + story.waiting.skipped().total();
        prop_assert!((answered..=answered + story.in_doubt).contains(&all), "{answered} answered, {all} known");
    }
}
