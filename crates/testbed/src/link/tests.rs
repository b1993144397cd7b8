use mez_core::frame::{Epoch, Sequence};

use super::*;

/// 8 Mbit/s: a byte takes a microsecond.
const SPEC: LinkSpec = LinkSpec {
    bits_per_second: 8_000_000,
    delay_up: ms(10),
    delay_down: ms(20),
    queue_bytes_max: 4_000,
    lost_once_in: 0,
    bounded: false,
};

struct Rig {
    now: Moment,
    link: Link,
    seen: Vec<(Moment, LinkOutput)>,
}

impl Rig {
    fn new(spec: LinkSpec) -> Self {
        Self { now: Moment::START, link: Link::new(spec, Random::seeded(1), 0), seen: Vec::new() }
    }

    /// A rig with one connection that both ends know.
    fn connected(spec: LinkSpec) -> (Self, LinkId) {
        let mut rig = Self::new(spec);
        rig.link.dial(rig.now, 7);
        rig.pass(secs(1));
        let id = match rig.take()[..] {
            [
                (_, LinkOutput::Dialled { connection, owner: 7 }),
                (_, LinkOutput::Accepted { connection: same, owner: 7 }),
            ] if same == connection => connection,
            ref other => panic!("{other:?}"),
        };
        (rig, id)
    }

    fn gather(&mut self) {
        while let Some(output) = self.link.poll_output() {
            // Only the edge's door uses this output.
            if !matches!(output, LinkOutput::Knocked { .. }) {
                self.seen.push((self.now, output));
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.gather();
        let end = self.now + duration;
        while self.link.poll_timeout() <= end {
            self.now = self.link.poll_timeout();
            self.link.handle_timeout(self.now);
            self.gather();
            assert!(self.link.poll_timeout() > self.now, "the link turns in a circle");
        }
        self.now = end;
    }

    fn take(&mut self) -> Vec<(Moment, LinkOutput)> {
        self.gather();
        std::mem::take(&mut self.seen)
    }

    fn say(&mut self, from: Side, id: LinkId, text: &str) {
        self.link.send(self.now, from, id, Bytes::copy_from_slice(text.as_bytes()));
    }

    fn send_frame(&mut self, id: LinkId, sequence: u64, bytes: usize) -> FrameId {
        let frame = frame(sequence);
        self.send_frame_from(Side::Camera, id, frame, bytes);
        frame
    }

    fn send_frame_from(&mut self, from: Side, id: LinkId, frame: FrameId, bytes: usize) {
        self.link.send_frame(self.now, (from, id), frame, (vec![1; 100].into(), vec![2; bytes].into()));
    }
}

fn frame(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

fn texts(seen: &[(Moment, LinkOutput)]) -> Vec<String> {
    let text = |(_, output): &(Moment, LinkOutput)| match output {
        LinkOutput::Message { bytes, .. } => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    seen.iter().filter_map(text).collect()
}

fn finished(seen: &[(Moment, LinkOutput)]) -> Vec<u64> {
    let frame = |(_, output): &(Moment, LinkOutput)| match output {
        LinkOutput::FrameFinished { frame, .. } => Some(frame.sequence.0),
        _ => None,
    };
    seen.iter().filter_map(frame).collect()
}

fn moment_of(seen: &[(Moment, LinkOutput)], which: impl Fn(&LinkOutput) -> bool) -> Moment {
    seen.iter().find(|(_, output)| which(output)).unwrap_or_else(|| panic!("not in {seen:?}")).0
}

#[test]
fn bytes_take_their_time_and_then_the_way() {
    let (mut rig, id) = Rig::connected(SPEC);
    let start = rig.now;
    rig.send_frame(id, 1, 30_000);
    rig.pass(ms(200));
    let seen = rig.take();
    // Headers add 60 bytes to every 1,200. The last piece counts as sent when it enters the queue.
    let arrived = moment_of(&seen, |output| matches!(output, LinkOutput::FrameFinished { .. }));
    assert!((ms(41)..ms(42)).contains(&arrived.since(start)), "{arrived}");
    let left = moment_of(&seen, |output| matches!(output, LinkOutput::FrameSent { .. }));
    assert!((ms(25)..ms(29)).contains(&left.since(start)), "{left}");
    let pieces = seen.iter().filter(|(_, output)| matches!(output, LinkOutput::FrameProgress { .. })).count();
    assert_eq!(pieces, 14, "one every two milliseconds");
}

/// The frame and its answer have the same name, and each has its own direction.
#[test]
fn an_answer_goes_down_while_its_frame_goes_up() {
    let (mut rig, id) = Rig::connected(SPEC);
    let start = rig.now;
    let frame = rig.send_frame(id, 1, 10_000);
    rig.send_frame_from(Side::Edge, id, frame, 30_000);
    assert_eq!(Side::BOTH.map(|from| rig.link.unsent_frames(from, id)), [1, 1]);
    rig.pass(ms(200));
    let seen = rig.take();
    let arrived = |side: Side| {
        let is_whole =
            |output: &LinkOutput| matches!(output, LinkOutput::FrameFinished { to, .. } if *to == side);
        moment_of(&seen, is_whole).since(start)
    };
    assert!((ms(51)..ms(53)).contains(&arrived(Side::Camera)), "{:?}", arrived(Side::Camera));
    assert!((ms(20)..ms(22)).contains(&arrived(Side::Edge)), "{:?}", arrived(Side::Edge));
}

#[test]
fn an_edge_that_closes_sends_no_more_of_an_answer() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.send_frame_from(Side::Edge, id, frame(1), 30_000);
    rig.pass(ms(10));
    rig.link.close(rig.now, Side::Edge, id);
    rig.pass(ms(200));
    let seen = rig.take();
    let closed =
        |(_, output): &(Moment, LinkOutput)| matches!(output, LinkOutput::Closed { to: Side::Camera, .. });
    assert!(finished(&seen).is_empty() && seen.iter().any(closed), "{seen:?}");
}

#[test]
fn messages_go_before_frames_and_newer_frames_before_older_ones() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.send_frame(id, 1, 30_000);
    rig.pass(ms(2));
    rig.send_frame(id, 2, 10_000);
    rig.say(Side::Camera, id, "first");
    rig.pass(ms(200));
    let seen = rig.take();
    assert_eq!(finished(&seen), [2, 1]);
    let message = moment_of(&seen, |output| matches!(output, LinkOutput::Message { .. }));
    let newer = moment_of(&seen, |output| matches!(output, LinkOutput::FrameFinished { .. }));
    assert!(message < newer);
}

#[test]
fn what_is_cancelled_does_not_leave() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.send_frame(id, 1, 300_000);
    rig.pass(ms(20));
    rig.link.reset(rig.now, (Side::Camera, id), frame(1));
    let cancelled = rig.now;
    rig.send_frame(id, 2, 1_000);
    rig.pass(ms(400));
    let seen = rig.take();
    assert_eq!(finished(&seen), [2]);
    assert!(seen.iter().any(
        |(_, output)| matches!(output, LinkOutput::FrameCancelled { frame, .. } if frame.sequence.0 == 1)
    ));
    let arrived = moment_of(&seen, |output| matches!(output, LinkOutput::FrameFinished { .. }));
    assert!(arrived.since(cancelled) < ms(20), "it waited behind what was cancelled");
}

/// After a cut of a second, everything arrives once and in order, with the sender's next probe. No end is told of the cut.
#[test]
fn a_cut_loses_nothing_and_tells_nobody() {
    let (mut rig, id) = Rig::connected(SPEC);
    for text in ["one", "two"] {
        rig.say(Side::Camera, id, text);
    }
    rig.pass(ms(5));
    rig.link.cut(rig.now);
    rig.say(Side::Camera, id, "three");
    rig.pass(secs(1));
    assert!(rig.take().is_empty());
    rig.link.restore(rig.now);
    let restored = rig.now;
    rig.say(Side::Camera, id, "four");
    rig.pass(secs(3));
    let seen = rig.take();
    assert_eq!(texts(&seen), ["one", "two", "three", "four"]);
    // Probes after 70, 210, 490, 1050 ms.
    let first = seen[0].0;
    assert!((ms(50)..ms(80)).contains(&first.since(restored)), "{first}");
}

#[test]
fn a_dial_succeeds_when_one_of_its_tries_does() {
    let mut rig = Rig::new(SPEC);
    rig.link.cut(rig.now);
    rig.link.dial(rig.now, 7);
    rig.pass(ms(500));
    rig.link.restore(rig.now);
    rig.pass(ms(500));
    // Tries at 0, 150 and 450 ms failed; the next is at 1,050 ms.
    assert!(rig.take().is_empty());
    rig.pass(ms(200));
    assert!(matches!(rig.take()[..], [(_, LinkOutput::Dialled { .. }), (_, LinkOutput::Accepted { .. })]));

    rig.link.lose_edge();
    rig.link.dial(rig.now, 8);
    rig.pass(DIAL_TIME_MAX);
    assert!(matches!(rig.take()[..], [(_, LinkOutput::DialFailed { owner: 8 })]));
}

#[test]
fn silence_ends_a_connection_at_both_ends() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.link.cut(rig.now);
    rig.say(Side::Camera, id, "unheard");
    rig.pass(secs(11));
    let seen = rig.take();
    let ends: Vec<Side> = seen
        .iter()
        .filter_map(|(_, output)| match output {
            LinkOutput::Closed { to, .. } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 2);
    assert_eq!(rig.link.open_connections(Side::Camera) + rig.link.open_connections(Side::Edge), 0);
}

/// A new process of the edge resets connections of the old process.
#[test]
fn a_new_edge_resets_what_it_does_not_know() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.link.lose_edge();
    rig.say(Side::Camera, id, "to nobody");
    rig.pass(ms(100));
    assert!(rig.take().is_empty());
    rig.link.edge_listens();
    rig.say(Side::Camera, id, "to a stranger");
    rig.pass(ms(100));
    assert!(matches!(rig.take()[..], [(_, LinkOutput::Closed { to: Side::Camera, .. })]));
}

#[test]
fn the_edge_is_heard_out_when_it_closes() {
    let (mut rig, id) = Rig::connected(SPEC);
    rig.say(Side::Edge, id, "because");
    rig.link.close(rig.now, Side::Edge, id);
    rig.say(Side::Camera, id, "but");
    rig.pass(ms(100));
    let seen = rig.take();
    assert_eq!(texts(&seen), ["because"]);
    assert!(matches!(seen[..], [_, (_, LinkOutput::Closed { to: Side::Camera, .. })]));
}

/// Losses only delay: messages stay in order, and frames arrive whole, but a frame may overtake another.
#[test]
fn losses_reorder_frames_but_not_messages() {
    let (mut rig, id) = Rig::connected(LinkSpec { lost_once_in: 4, ..SPEC });
    let mut said = Vec::new();
    for number in 0..200u64 {
        said.push(number.to_string());
        rig.say(Side::Camera, id, &number.to_string());
        rig.send_frame(id, number, 3_000);
        rig.pass(ms(20));
    }
    rig.pass(secs(5));
    let seen = rig.take();
    assert_eq!(texts(&seen), said);
    let mut frames = finished(&seen);
    assert!(!frames.is_sorted());
    frames.sort_unstable();
    assert_eq!(frames, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_change_of_rate_counts_from_then_on() {
    let (mut rig, id) = Rig::connected(SPEC);
    let start = rig.now;
    rig.send_frame(id, 1, 20_000);
    rig.pass(ms(11));
    rig.link.set_rate(rig.now, 800_000);
    rig.pass(secs(1));
    let arrived = moment_of(&rig.take(), |output| matches!(output, LinkOutput::FrameFinished { .. }));
    // 11,000 of 21,180 bytes at 8 Mbit/s, the rest at a tenth of this rate, and the delay.
    assert!((ms(120)..ms(128)).contains(&arrived.since(start)), "{arrived}");
}

/// The bytes in flight are bounded as on real connections, so a new frame waits behind few bytes, even if the path has a long queue.
#[test]
fn what_is_on_its_way_is_bounded() {
    let waited = |bounded| {
        let (mut rig, id) = Rig::connected(LinkSpec { bounded, queue_bytes_max: 1 << 20, ..SPEC });
        rig.send_frame(id, 1, 600_000);
        rig.pass(ms(400));
        rig.take();
        let asked = rig.now;
        rig.send_frame(id, 2, 1_000);
        rig.pass(secs(2));
        let seen = rig.take();
        let whole = |sequence| {
            let is_whole = |output: &LinkOutput| matches!(output, LinkOutput::FrameFinished { frame, .. } if frame.sequence.0 == sequence);
            moment_of(&seen, is_whole).since(asked)
        };
        // 600,000 bytes with their headers take 630 ms, wherever they wait.
        assert!((ms(240)..ms(330)).contains(&whole(1)), "{:?}", whole(1));
        whole(2)
    };
    assert!(waited(false) > ms(230), "behind all of the first");
    assert!(waited(true) < ms(40), "{:?}", waited(true));
}

#[test]
fn what_was_lost_with_a_cut_leaves_the_window() {
    let (mut rig, id) = Rig::connected(LinkSpec { bounded: true, lost_once_in: 5, ..SPEC });
    for sequence in 0..20 {
        rig.send_frame(id, sequence, 60_000);
        rig.pass(ms(20));
        match sequence % 4 {
            1 => rig.link.cut(rig.now),
            2 => rig.link.reset(rig.now, (Side::Camera, id), frame(sequence)),
            3 => rig.link.restore(rig.now),
            _ => {}
        }
    }
    rig.pass(secs(20));
    let mut came = finished(&rig.take());
    came.sort_unstable();
    let kept: Vec<u64> = (0..20).filter(|sequence| sequence % 4 != 2).collect();
    assert_eq!(came, kept);
}
