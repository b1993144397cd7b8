//! Runs cameras that share one link, each with a policy, in virtual time.
//!
//! The link is one queue, first come, first served, before a delay. Bytes in the delay do not occupy the queue. A camera gives the link one frame at
//! a time. The next frame may follow when all but `window_bytes` of the last have been served, as with a congestion controller that keeps queues
//! short. The receiver reports the first byte, then every 10 ms, then the last byte. A report takes the delay on its way back. Bytes of a frame that
//! are not yet in the window can be recalled, the rest cannot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use mez_core::controller::share::{CAP_INTERVAL, Channel, Claim, Overhead, Step, divide};
use mez_core::controller::{Arrival, Cap, Choice, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::units::Instant;

use super::queue::{Burst, Plan, Queue};
use super::setting::{ChainEnd, Queueing, Setting, SlotResult, Slots};

/// How often the receiver reports a frame in service.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);
/// The most frames that may be sent and not acknowledged.
const UNACKNOWLEDGED_FRAMES_MAX: usize = 32;

enum Event {
    Captured { camera: usize, frame: usize },
    Left { burst: usize, version: u32 },
    Passing { burst: usize, version: u32 },
    Passed { burst: usize, version: u32 },
    Reported { burst: usize, arrival: Arrival },
    Wake { camera: usize, turn: u64 },
    Stalled { camera: usize, turn: u64 },
    Share,
    Capped { caps: Vec<Cap> },
}

struct Due {
    at: Instant,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct Camera<'a> {
    policy: &'a mut dyn Policy,
    waiting: Option<usize>,
    sending: Option<usize>,
    unacknowledged: Vec<usize>,
    progress: Instant,
    outage_retry: Option<Instant>,
    turn: u64,
    stall_turn: u64,
    stalls: u32,
    cap: Option<Cap>,
    /// The end of the chain that the next frame can refer to.
    chain: Option<ChainEnd>,
    /// Since when a frame has waited while the link was idle, outside an outage, and the longest such wait.
    silent_since: Option<Instant>,
    silence_max: Duration,
    results: Vec<SlotResult>,
}

struct World<'a> {
    setting: &'a Setting,
    slots: &'a Slots,
    cameras: Vec<Camera<'a>>,
    queue: Queue<'a>,
    events: BinaryHeap<Reverse<Due>>,
    order: u64,
    now: Instant,
    channel: Channel,
    captures_left: usize,
}

/// Runs a setting with one policy for each camera.
pub fn run(setting: &Setting, slots: &Slots, policies: &mut [Box<dyn Policy>]) -> Vec<Vec<SlotResult>> {
    watched(setting, slots, policies).into_iter().map(|watched| watched.results).collect()
}

/// The result of a run for one camera.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The result of each frame.
    pub results: Vec<SlotResult>,
    /// The longest time for which a frame waited while the link was idle, outside an outage. Settings ask
    /// for `degrade`, so it must be 250 ms at most.
    pub silence_max: Duration,
}

/// Like [`run`], but also measures silences after every event.
pub fn watched(setting: &Setting, slots: &Slots, policies: &mut [Box<dyn Policy>]) -> Vec<Watched> {
    assert_eq!(policies.len(), setting.cameras.len(), "one policy for each camera");
    let cameras = policies.iter_mut().map(|policy| Camera {
        policy: policy.as_mut(),
        waiting: None,
        sending: None,
        unacknowledged: Vec::new(),
        progress: Instant::ZERO,
        outage_retry: None,
        turn: 0,
        stall_turn: 0,
        stalls: 0,
        cap: None,
        chain: None,
        silent_since: None,
        silence_max: Duration::ZERO,
        results: vec![SlotResult::default(); slots.frames],
    });
    let mut world = World {
        setting,
        slots,
        cameras: cameras.collect(),
        queue: Queue::new(&setting.capacity, setting.window_bytes),
        events: BinaryHeap::new(),
        order: 0,
        now: Instant::ZERO,
        channel: Channel::default(),
        captures_left: slots.frames * setting.cameras.len(),
    };
    if slots.frames > 0 {
        for camera in 0..setting.cameras.len() {
            world.schedule(slots.captured(camera, 0), Event::Captured { camera, frame: 0 });
        }
    }
    if setting.share.is_some() {
        world.schedule(Instant::ZERO, Event::Share);
    }
    while let Some(Reverse(due)) = world.events.pop() {
        world.now = due.at;
        world.watch_silence();
        world.handle(due.event);
        world.watch_silence();
    }
    let cameras = world.cameras.into_iter();
    cameras.map(|camera| Watched { results: camera.results, silence_max: camera.silence_max }).collect()
}

impl<'a> World<'a> {
    fn schedule(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Due { at: at.max(self.now), order: self.order, event }));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Captured { camera, frame } => {
                self.captures_left -= 1;
                if self.slots.is_coded(frame)
                    && let Some(left_out) = self.cameras[camera].waiting.replace(frame)
                {
                    self.leave_out(camera, left_out);
                }
                if frame + 1 < self.slots.frames {
                    let at = self.slots.captured(camera, frame + 1);
                    self.schedule(at, Event::Captured { camera, frame: frame + 1 });
                }
                self.ask(camera);
            }
            Event::Left { burst, version } => {
                if self.queue.is_current(burst, version) {
                    let Burst { camera, frame, .. } = *self.queue.burst(burst);
                    self.cameras[camera].policy.handle_left(self.now, frame_id(frame));
                    if self.cameras[camera].sending == Some(burst) {
                        self.cameras[camera].sending = None;
                        self.cameras[camera].unacknowledged.push(burst);
                        self.ask(camera);
                    }
                }
            }
            Event::Passing { burst, version } => {
                if self.queue.is_current(burst, version) {
                    self.pass(burst, version);
                }
            }
            Event::Passed { burst, version } => {
                if self.queue.is_current(burst, version) {
                    self.end(burst);
                }
            }
            Event::Reported { burst, arrival } => self.report(burst, &arrival),
            Event::Wake { camera, turn } => {
                if self.cameras[camera].turn == turn {
                    self.ask(camera);
                }
            }
            Event::Share => self.share(),
            Event::Capped { caps } => {
                for (camera, cap) in self.cameras.iter_mut().zip(caps) {
                    camera.cap = Some(cap);
                }
            }
            Event::Stalled { camera, turn } => {
                if self.cameras[camera].stall_turn == turn {
                    self.stall(camera);
                }
            }
        }
    }

    fn watch_silence(&mut self) {
        let idle = self.queue.is_idle();
        for camera in &mut self.cameras {
            if !idle || camera.waiting.is_none() || camera.outage_retry.is_some() {
                camera.silent_since = None;
                continue;
            }
            let since = *camera.silent_since.get_or_insert(self.now);
            camera.silence_max = camera.silence_max.max(self.now.saturating_since(since));
        }
    }

    /// Divides the channel, as the edge does. The caps arrive a delay later.
    fn share(&mut self) {
        if let (Some(goal), Some(rate)) = (self.setting.share, self.channel.known()) {
            let steps: Vec<Vec<Step>> =
                self.setting.cameras.iter().map(|camera| Step::of(&camera.ladder)).collect();
            let claims = self.setting.cameras.iter().zip(&steps).map(|(camera, steps)| Claim {
                steps,
                floor: camera.ladder.lowest_at(camera.accuracy_floor).unwrap_or(steps.len() - 1),
                interval: self.setting.interval,
                latency_bound: camera.latency_bound,
                priority: 0,
                overhead: Overhead::default(),
            });
            let claims: Vec<Claim<'_>> = claims.collect();
            let caps = divide(self.now, &rate, &claims, goal).iter().map(|grant| grant.cap).collect();
            self.schedule(self.now + self.setting.delay, Event::Capped { caps });
        }
        if self.captures_left > 0 {
            self.schedule(self.now + CAP_INTERVAL, Event::Share);
        }
    }

    /// Asks a camera's policy about the waiting frame, if the link is free or can be made free.
    fn ask(&mut self, index: usize) {
        let camera = &self.cameras[index];
        let Some(frame) = camera.waiting else { return };
        let every = self.setting.queueing == Queueing::Every;
        if !every && camera.unacknowledged.len() >= UNACKNOWLEDGED_FRAMES_MAX {
            return;
        }
        let mut offer = self.offer(index, frame);
        if !every && let Some(burst) = camera.sending {
            let unsent = self.queue.unsent_bytes(self.now, burst);
            offer.unsent_bytes = unsent as u64;
            // Without the frame that is being sent, the next frame has no reference.
            offer.coding = self.slots.coding(None);
            let camera = &mut self.cameras[index];
            if unsent <= 0.0 || camera.outage_retry.is_some() || !camera.policy.gives_up(&offer) {
                return;
            }
            let known = self.queue.burst(burst);
            let left = known.bytes - unsent;
            camera.policy.handle_cancelled(self.now, frame_id(known.frame), left as u64);
            (camera.sending, camera.chain) = (None, None);
            self.recall(burst);
            offer.unsent_bytes = 0;
        }
        let camera = &mut self.cameras[index];
        camera.turn += 1;
        let turn = camera.turn;
        if let Some(retry) = camera.outage_retry
            && self.now < retry
        {
            return self.schedule(retry, Event::Wake { camera: index, turn });
        }
        match camera.policy.decide(&offer) {
            Decision::Wait { until } => {
                let until = until.max(self.now + Duration::from_millis(1));
                self.schedule(until, Event::Wake { camera: index, turn });
            }
            Decision::Send(choice) => self.send(index, frame, choice),
        }
    }

    /// Leaves out a frame. Its changes are part of the next frame.
    fn leave_out(&mut self, index: usize, frame: usize) {
        let ladder = &self.setting.cameras[index].ladder;
        let Some(chain) = &mut self.cameras[index].chain else { return };
        let bytes = self.slots.bytes(index, frame, ladder, chain.rung);
        chain.left_out += u32::from(bytes > 0.0);
        chain.left_out_bytes += bytes;
    }

    fn offer(&self, index: usize, frame: usize) -> Offer<'a> {
        let setting: &'a Setting = self.setting;
        let slots: &'a Slots = self.slots;
        let spec = &setting.cameras[index];
        Offer {
            now: self.now,
            captured: self.slots.captured(index, frame),
            interval: setting.interval,
            ladder: &spec.ladder,
            latency_bound: spec.latency_bound,
            result_latency_bound: None,
            accuracy_floor: spec.accuracy_floor,
            on_time_share: 0.98,
            degrade: true,
            cap: self.cameras[index].cap,
            unsent_bytes: 0,
            window: None,
            coding: slots.coding(self.cameras[index].chain.as_ref()),
            prefers_finer: false,
        }
    }

    fn send(&mut self, index: usize, frame: usize, choice: Choice) {
        let spec = &self.setting.cameras[index];
        let mut offer = self.offer(index, frame);
        if self.slots.stands_alone(frame, choice.rung) {
            // The encoder learns this only after encoding, as in a real camera.
            offer.coding = self.slots.coding(None);
        }
        let expected_bytes = offer.bytes(choice.rung).mean as u32;
        let chain = self.cameras[index].chain.as_ref();
        let bytes = self.slots.bytes_after(index, frame, &spec.ladder, choice.rung, chain);
        // The frame is encoded with a finer quantiser than the rung's, to measure the link.
        let bytes = choice.stretch_bytes.map_or(bytes, |stretched| bytes.max(stretched.round()));
        let captured = self.slots.captured(index, frame);
        let camera = &mut self.cameras[index];
        camera.waiting = None;
        camera.results[frame] = SlotResult {
            rung: Some(choice.rung as u8),
            latency_ms: None,
            on_time_probability: choice.on_time_probability,
            infeasible: choice.infeasible,
            bytes: bytes as u32,
            sent_after: Some(self.now.saturating_since(captured)),
        };
        if bytes == 0.0 {
            // The rung leaves this frame out.
            return self.leave_out(index, frame);
        }
        camera.chain = Some(ChainEnd { rung: choice.rung, left_out: 0, left_out_bytes: 0.0 });
        if camera.unacknowledged.is_empty() {
            camera.progress = self.now;
        }
        if camera.outage_retry.is_some() {
            camera.outage_retry = Some(self.now + OUTAGE_INTERVAL);
        }
        camera.policy.handle_sent(&SentFrame {
            frame: frame_id(frame),
            rung: choice.rung,
            expected_bytes,
            bytes: bytes as u32,
            captured,
            sent: self.now,
            due: captured + spec.latency_bound,
            window: None,
            first_packet_bytes: None,
            of_source: false,
            infeasible: choice.infeasible,
        });
        let plan = self.queue.push(self.now, index, frame, bytes, f64::from(choice.probe_bytes));
        let burst = plan.burst;
        if self.setting.queueing == Queueing::Every {
            self.cameras[index].unacknowledged.push(burst);
        } else {
            self.cameras[index].sending = Some(burst);
        }
        self.follow(&plan);
        self.watch(index);
    }

    /// Schedules the events of a burst.
    fn follow(&mut self, plan: &Plan) {
        let Plan { burst, version, left, passing, passed } = *plan;
        if let Some(at) = left {
            self.schedule(at, Event::Left { burst, version });
        }
        if let Some(at) = passing {
            self.schedule(at, Event::Passing { burst, version });
        }
        if let Some(at) = passed {
            self.schedule(at, Event::Passed { burst, version });
        }
    }

    /// Reports that a part of a burst has passed, and plans the next report.
    fn pass(&mut self, burst: usize, version: u32) {
        let arrived = self.now + self.setting.delay;
        let through = self.queue.through_bytes(self.now, burst);
        let known = self.queue.burst_mut(burst);
        let first = *known.first.get_or_insert(arrived);
        let arrival = Arrival {
            frame: frame_id(known.frame),
            bytes: through as u32,
            first,
            last: arrived,
            complete: false,
        };
        self.schedule(arrived + self.setting.delay, Event::Reported { burst, arrival });
        // Nothing passes after the end of the known future.
        if self.now.as_nanos() / 1_000_000 < self.setting.capacity.ms() as u64 {
            self.schedule(self.now + REPORT_INTERVAL, Event::Passing { burst, version });
        }
    }

    /// Ends a burst whose last byte has passed.
    fn end(&mut self, burst: usize) {
        let arrived = self.now + self.setting.delay;
        self.queue.end(burst);
        let known = self.queue.burst_mut(burst);
        let complete = !known.recalled;
        let first = *known.first.get_or_insert(arrived);
        let (camera, frame) = (known.camera, known.frame);
        let arrival = Arrival {
            frame: frame_id(frame),
            bytes: if complete { known.bytes as u32 } else { known.passing_bytes() as u32 },
            first,
            last: arrived,
            complete,
        };
        if complete {
            let latency = arrived.saturating_since(self.slots.captured(camera, frame));
            self.channel.handle_frame((first, arrived), arrival.bytes, None);
            self.cameras[camera].results[frame].latency_ms = Some(latency.as_secs_f64() * 1e3);
        }
        self.schedule(arrived + self.setting.delay, Event::Reported { burst, arrival });
    }

    fn report(&mut self, burst: usize, arrival: &Arrival) {
        let index = self.queue.burst(burst).camera;
        let camera = &mut self.cameras[index];
        camera.progress = self.now;
        camera.outage_retry = None;
        if arrival.complete {
            camera.stalls = 0;
            camera.unacknowledged.retain(|other| *other != burst);
        }
        camera.policy.handle_arrival(self.now, arrival);
        self.watch(index);
        self.ask(index);
    }

    /// Plans a check for a stall.
    fn watch(&mut self, index: usize) {
        let camera = &mut self.cameras[index];
        camera.stall_turn += 1;
        if self.setting.queueing == Queueing::Every {
            return;
        }
        if camera.sending.is_none() && camera.unacknowledged.is_empty() {
            return;
        }
        let bound = self.setting.cameras[index].latency_bound;
        let limit = (bound + bound / 2).max(self.setting.delay * 6) * (1 << camera.stalls.min(4));
        let (at, turn) = (camera.progress + limit, camera.stall_turn);
        self.schedule(at, Event::Stalled { camera: index, turn });
    }

    /// Gives up all frames in flight, because nothing has got through for too long.
    fn stall(&mut self, index: usize) {
        let camera = &mut self.cameras[index];
        let given_up: Vec<usize> = camera.unacknowledged.drain(..).chain(camera.sending.take()).collect();
        camera.outage_retry = Some(camera.outage_retry.unwrap_or(self.now));
        camera.progress = self.now;
        camera.chain = None;
        camera.stalls += 1;
        for burst in given_up {
            let frame = frame_id(self.queue.burst(burst).frame);
            self.cameras[index].policy.handle_reset(self.now, frame);
            self.recall(burst);
        }
        self.ask(index);
    }

    /// Recalls the bytes that have not left the camera.
    fn recall(&mut self, burst: usize) {
        for plan in self.queue.recall(self.now, burst) {
            self.follow(&plan);
        }
    }
}

fn frame_id(frame: usize) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(frame as u64) }
}
