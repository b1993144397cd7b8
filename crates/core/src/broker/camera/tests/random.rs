//! Any messages of an edge and any reports of a driver, in any order.

use super::*;

/// An event for a camera broker.
#[derive(Clone, Debug)]
enum Input {
    Publish(usize),
    Pass(u64),
    Dialled(u64),
    DialFailed,
    Closed(u64),
    /// The frame that is being sent, or the one of this sequence.
    Sent(u64, Option<u64>),
    Stopped(u64, Option<u64>),
    /// All frames that were sent on a connection have arrived.
    Arrived(u64),
    Epoch(u64),
    /// The codec has finished its frame, or the one of this sequence: with so many bytes, or with a failure.
    Transformed(Option<u64>, Option<usize>),
    Message(u64, Message),
}

fn any_frame() -> impl Strategy<Value = FrameId> {
    (prop_oneof![0u64..6, any::<u64>()], prop_oneof![0u64..12, any::<u64>()])
        .prop_map(|(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) })
}

fn any_edge_message() -> impl Strategy<Value = Message> {
    let instant = || (0u64..30_000_000_000).prop_map(Instant::from_nanos);
    let newest = prop_oneof![9 => Just(None), 1 => any_frame().prop_map(Some)];
    let frame_bytes_max = prop_oneof![9 => Just(1000u32), 1 => 0u32..40];
    let contracts = prop::collection::vec((1u64..2_000, prop::option::of(0.0f64..=1.0), any::<bool>()), 0..4);
    let contracts = contracts.prop_map(|contracts| {
        let contract = |(ms, accuracy_floor, skip)| Contract {
            accuracy_floor,
            on_infeasible: if skip { OnInfeasible::Skip } else { OnInfeasible::Degrade },
            ..bound(Duration::from_millis(ms))
        };
        contracts.into_iter().map(contract).collect::<Vec<_>>()
    });
    let code = prop::sample::select(vec![
        RefuseCode::Version,
        RefuseCode::NameHeld,
        RefuseCode::Replaced,
        RefuseCode::Stopping,
    ]);
    prop_oneof![
        8 => (newest, frame_bytes_max).prop_map(|(newest, frame_bytes_max)| {
            Message::Welcome(Welcome { version: VERSION, newest, frame_bytes_max, software: String::new() })
        }),
        1 => code.prop_map(|code| Message::Refuse { code, text: String::new() }),
        2 => instant().prop_map(|t1| Message::Ping { t1 }),
        1 => Just(Message::Rest),
        2 => [instant(), instant(), instant()].prop_map(|[t1, t2, t3]| Message::Pong { t1, t2, t3 }),
        8 => (0u64..9, contracts).prop_map(|(revision, contracts)| Message::Demand(Demand { revision, contracts })),
        8 => (any_frame(), 0u32..40, any::<bool>(), instant()).prop_map(|(frame, bytes, complete, at)| {
            Message::Report(match complete {
                true => Report::Complete { frame, bytes, first: at, last: at },
                false => Report::Progress { frame, bytes, first: at, now: at },
            })
        }),
        1 => Just(Message::Status(Status::default())),
    ]
}

fn any_input() -> impl Strategy<Value = Input> {
    let link = || prop_oneof![4 => Just(1u64), 2 => Just(2u64), 1 => Just(3u64)];
    let which = || prop::option::weighted(0.2, 0u64..20);
    prop_oneof![
        8 => (1usize..40).prop_map(Input::Publish),
        4 => prop_oneof![4 => 0u64..100, 1 => 0u64..6_000].prop_map(Input::Pass),
        1 => link().prop_map(Input::Dialled),
        1 => Just(Input::DialFailed),
        1 => link().prop_map(Input::Closed),
        6 => (link(), which()).prop_map(|(link, sequence)| Input::Sent(link, sequence)),
        2 => (link(), which()).prop_map(|(link, sequence)| Input::Stopped(link, sequence)),
        3 => link().prop_map(Input::Arrived),
        1 => (3u64..6).prop_map(Input::Epoch),
        8 => (which(), prop::option::weighted(0.9, 0usize..1_200)).prop_map(|(s, made)| Input::Transformed(s, made)),
        14 => (link(), any_edge_message()).prop_map(|(link, message)| Input::Message(link, message)),
    ]
}

/// A camera, and what an observer knows of it.
struct Scene {
    rig: Rig,
    /// The frame of each connection that has unsent bytes.
    unsent: BTreeMap<LinkId, FrameId>,
    sent: std::collections::BTreeSet<FrameId>,
    under_way: BTreeMap<LinkId, Vec<(FrameId, u32)>>,
    making: Option<FrameId>,
}

impl Scene {
    fn named(&self, sequence: Option<u64>) -> Option<FrameId> {
        sequence.map(|sequence| FrameId { epoch: self.rig.broker.epoch(), sequence: Sequence(sequence) })
    }

    fn input(&mut self, input: Input) -> Result<(), TestCaseError> {
        match input {
            Input::Publish(bytes) => drop(self.rig.publish(bytes)),
            Input::Pass(ms) => return self.pass(ms),
            Input::Dialled(link) => {
                // The driver gives each connection a new number.
                self.close(LinkId(link));
                let edge = EdgeIndex(link as usize % 2);
                self.rig.broker.handle_dialled(self.rig.now, LinkId(link), edge);
            }
            Input::DialFailed => self.rig.broker.handle_dial_failed(self.rig.now, EdgeIndex(0)),
            Input::Closed(link) => self.close(LinkId(link)),
            Input::Sent(link, sequence) => {
                if let Some(frame) = self.leaves(LinkId(link), sequence) {
                    self.rig.broker.handle_sent(self.rig.now, LinkId(link), frame);
                }
            }
            Input::Stopped(link, sequence) => {
                if let Some(frame) = self.leaves(LinkId(link), sequence) {
                    let refused = Message::Report(Report::Refused { frame });
                    self.rig.broker.handle_message(self.rig.now, LinkId(link), refused);
                }
            }
            Input::Arrived(link) => {
                for (frame, bytes) in self.under_way.remove(&LinkId(link)).unwrap_or_default() {
                    self.unsent.retain(|_, being_sent| *being_sent != frame);
                    self.rig.complete(link, frame, bytes);
                }
            }
            Input::Epoch(epoch) => {
                if Epoch(epoch) > self.rig.broker.epoch() {
                    self.rig.intake.raise_epoch(Epoch(epoch));
                    self.rig.broker.handle_epoch(self.rig.now, Epoch(epoch));
                }
            }
            Input::Transformed(sequence, made) => {
                if let Some(frame) = self.named(sequence).or(self.making) {
                    // A report about a frame that no codec has is ignored.
                    self.making.take_if(|making| *making == frame);
                    let made = adapting::transformed(frame, made);
                    self.rig.broker.handle_transformed(self.rig.now, frame, made);
                }
            }
            Input::Message(link, message) => {
                if let Message::Report(Report::Complete { frame, .. }) = message
                    && self.unsent.get(&LinkId(link)) == Some(&frame)
                {
                    // The edge cannot have a frame that has not left completely. It is believed all the same.
                    self.unsent.remove(&LinkId(link));
                }
                self.rig.message(link, message);
            }
        }
        Ok(())
    }

    /// Lets time pass, and serves the timers.
    fn pass(&mut self, ms: u64) -> Result<(), TestCaseError> {
        let rig = &mut self.rig;
        let end = rig.now + Duration::from_millis(ms);
        let mut rounds = 0;
        while rig.broker.poll_timeout() <= end {
            rig.now = rig.now.max(rig.broker.poll_timeout());
            rig.broker.handle_timeout(rig.now);
            rig.drain();
            rounds += 1;
            prop_assert!(rounds < 20 + ms, "the timer turns in a circle");
        }
        rig.now = end;
        Ok(())
    }

    fn close(&mut self, link: LinkId) {
        self.rig.broker.handle_closed(self.rig.now, link);
        self.unsent.remove(&link);
    }

    /// A frame has left a connection, or was stopped there: the given one, or the one that is being sent.
    fn leaves(&mut self, link: LinkId, sequence: Option<u64>) -> Option<FrameId> {
        let frame = self.named(sequence).or(self.unsent.get(&link).copied())?;
        self.unsent.retain(|known, being_sent| (*known, *being_sent) != (link, frame));
        Some(frame)
    }

    /// Checks the broker's outputs.
    fn check_outputs(&mut self) -> Result<(), TestCaseError> {
        for output in self.rig.take() {
            match output {
                CameraOutput::SendFrame { link, header, .. } => {
                    let id = header.meta.id;
                    prop_assert_eq!(self.unsent.insert(link, id), None, "two frames are unsent");
                    self.under_way.entry(link).or_default().push((id, header.payload_bytes));
                    prop_assert!(self.sent.insert(id), "{} was sent twice", id);
                    prop_assert_eq!(id.epoch, self.rig.broker.epoch());
                    let mut end = 0;
                    for range in &header.skipped {
                        prop_assert!(range.first.0 >= end && range.end() <= id.sequence && range.count > 0);
                        end = range.end().0;
                    }
                }
                CameraOutput::Reset { link, frame } if self.unsent.get(&link) == Some(&frame) => {
                    self.unsent.remove(&link);
                }
                CameraOutput::Close { link } => drop(self.unsent.remove(&link)),
                CameraOutput::Transform(transform) => {
                    let id = transform.frame.meta.id;
                    prop_assert_eq!(self.making.replace(id), None, "two frames are being made");
                    prop_assert!(!self.sent.contains(&id), "{} was sent before it was made", id);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever an edge says and a driver reports, in any order: nothing panics, timers advance, at most one
    /// frame of a connection has unsent bytes, no frame is sent twice, and a header's skips are in order.
    #[test]
    fn nothing_that_happens_breaks_the_broker(inputs in prop::collection::vec(any_input(), 1..120)) {
        let rig = Rig::connected_with(2, bound(200 * MS));
        let (unsent, sent, under_way) = Default::default();
        let mut scene = Scene { rig, unsent, sent, under_way, making: None };
        for input in inputs {
            scene.input(input)?;
            scene.check_outputs()?;
        }
    }
}
