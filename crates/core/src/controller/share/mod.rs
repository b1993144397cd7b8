//! The resource is time: a frame that has `s` bytes with its headers (`overhead.rs`) takes `s / r` of it. The edge measures the
//! rate `r` by the frames of all cameras (`channel.rs`), and subtracts the time for messages. First, every camera that somebody
//! wants gets the cheapest rung that keeps its floor. Then one camera after another is upgraded while the sum fits. This is a
//! greedy choice on the frontier of accuracy and airtime. Each camera receives the frame size of its rung as a cap, which
//! expires soon. Within the cap it decides by itself. If not even the floors fit, cameras of the lowest priority are shed first.
//!
//! All cameras reach the edge over the same cable, so the edge cannot see which of them share a channel. The operator declares it (`declared.rs`).

use std::time::Duration;

pub use self::channel::{Channel, ChannelRate};
pub use self::declared::{
    CHANNEL_NAME_BYTES_MAX, CHANNEL_PATTERNS_MAX, CHANNELS_MAX, ChannelError, Channels, DeclaredChannel,
};
pub use self::overhead::{DATAGRAM_BYTES, DATAGRAM_OVERHEAD_BYTES, Overhead, OverheadMeter, on_the_wire};
use super::Cap;
use crate::profile::Ladder;
use crate::units::Instant;

mod channel;
mod declared;
mod overhead;

/// How long a cap lasts. After three lost updates the camera decides by itself again.
pub const CAP_LIFETIME: Duration = Duration::from_millis(750);
/// How often caps are computed. A cap that has changed is sent at once.
pub const CAP_INTERVAL: Duration = Duration::from_millis(100);
/// How often an unchanged cap is sent again. Each time takes two datagrams, and slow channels carry few.
pub const CAP_REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// How often a camera that was shed sends a frame of its cheapest rung, if a contract accepts frames below the floor.
pub const SHED_INTERVAL: Duration = Duration::from_millis(200);

/// The largest share of a channel's time that is kept for messages and acknowledgements.
const CONTROL_SHARE_MAX: f64 = 0.5;

/// Which camera gets the next upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// The camera whose accuracy is lowest.
    #[default]
    MaxMin,
    /// The camera that gains most accuracy for the airtime.
    Sum,
    /// The camera that has the fewest bytes per second, whatever its accuracy. For applications whose accuracies cannot be compared with each other.
    Bandwidth,
}

/// The properties of a rung that the division of a channel needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Mean bytes of its frames, above 0.
    pub bytes: f64,
    /// The accuracy that the rung keeps, in 0..=1.
    pub accuracy: f64,
}

impl Step {
    /// The rungs of a ladder.
    pub fn of(ladder: &Ladder) -> Vec<Self> {
        ladder.rungs().iter().map(|rung| Self { bytes: rung.bytes.mean, accuracy: rung.accuracy }).collect()
    }
}

/// What a camera needs of its channel.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The rungs that the camera can send, by increasing size. At least one.
    pub steps: &'a [Step],
    /// The index of the cheapest rung that keeps the floor. If none does, the index of the best rung.
    pub floor: usize,
    /// The time between its frames.
    pub interval: Duration,
    /// The longest allowed time from capture to the application.
    pub latency_bound: Duration,
    /// The camera's priority. If the channel is too small, cameras of a lower priority are shed first.
    pub priority: i32,
    /// What the camera takes of the channel in addition to the payload of its frames.
    pub overhead: Overhead,
}

/// What a camera gets of its channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The index of the camera's rung in [`Claim::steps`]. `None`: the channel has no room for the camera.
    pub rung: Option<usize>,
    /// The cap that is sent to the camera.
    pub cap: Cap,
}

impl Claim<'_> {
    /// The share of the channel's time that a rung takes. Its frame must pass before the next one, and within
    /// the latency bound.
    fn airtime(&self, rung: usize, bytes_per_ms: f64) -> f64 {
        self.airtime_within(self.interval.min(self.latency_bound), rung, bytes_per_ms)
    }

    fn airtime_within(&self, within: Duration, rung: usize, bytes_per_ms: f64) -> f64 {
        let within_ms = within.as_secs_f64() * 1e3;
        self.overhead.with_frame(self.steps[rung].bytes) / (bytes_per_ms * within_ms)
    }

    fn bytes_per_second(&self, rung: usize) -> f64 {
        self.overhead.with_frame(self.steps[rung].bytes) / self.interval.as_secs_f64().max(1e-3)
    }

    fn floor(&self) -> usize {
        self.floor.min(self.steps.len() - 1)
    }
}

/// Divides a channel between cameras.
///
/// Returns one grant per claim, in the same order. The result is deterministic: among equal claims, the first one wins.
pub fn divide(now: Instant, channel: &ChannelRate, claims: &[Claim<'_>], goal: Goal) -> Vec<Grant> {
    let bytes_per_ms = channel.bytes_per_ms;
    let mut rungs: Vec<Option<usize>> = vec![None; claims.len()];
    // At most half. If the rate is estimated much too low, something must be left for frames, because frames measure the rate.
    let for_control = (channel.control_bytes_per_second / (bytes_per_ms * 1e3)).min(CONTROL_SHARE_MAX);
    let all = channel.airtime_share() * (1.0 - for_control);
    let mut left = all;
    let mut by_priority: Vec<usize> = (0..claims.len()).collect();
    by_priority.sort_by_key(|index| std::cmp::Reverse(claims[*index].priority));
    for index in by_priority {
        let claim = &claims[index];
        let airtime = claim.airtime(claim.floor(), bytes_per_ms);
        // A camera that is alone may try a rung that does not fit by the estimate.
        if airtime <= left || left == all {
            left -= airtime;
            rungs[index] = Some(claim.floor());
        }
    }
    // A camera that was shed still sends its cheapest rung from time to time. Cameras with room give up that
    // airtime.
    let shed = claims.iter().zip(&rungs).filter(|(_, rung)| rung.is_none());
    left -= shed.map(|(claim, _)| claim.airtime_within(SHED_INTERVAL, 0, bytes_per_ms)).sum::<f64>();
    while let Some((index, airtime)) = next_upgrade(claims, &rungs, bytes_per_ms, left, goal) {
        left -= airtime;
        rungs[index] = rungs[index].map(|rung| rung + 1);
    }
    let grants = claims.iter().zip(&rungs).map(|(claim, rung)| {
        let frame_bytes_max = rung.map_or(0.0, |rung| claim.steps[rung].bytes);
        Grant { rung: *rung, cap: Cap { frame_bytes_max, until: now + CAP_LIFETIME } }
    });
    grants.collect()
}

/// The camera to be upgraded next, and the airtime that it takes.
fn next_upgrade(
    claims: &[Claim<'_>],
    rungs: &[Option<usize>],
    bytes_per_ms: f64,
    left: f64,
    goal: Goal,
) -> Option<(usize, f64)> {
    let mut best: Option<(usize, f64, f64)> = None;
    for (index, (claim, rung)) in claims.iter().zip(rungs).enumerate() {
        let Some(rung) = rung.filter(|rung| rung + 1 < claim.steps.len()) else { continue };
        let airtime = claim.airtime(rung + 1, bytes_per_ms) - claim.airtime(rung, bytes_per_ms);
        if airtime > left {
            continue;
        }
        let [now, then] = [rung, rung + 1].map(|rung| claim.steps[rung].accuracy);
        let merit = match goal {
            Goal::MaxMin => -now,
            Goal::Sum => (then - now) / airtime,
            Goal::Bandwidth => -claim.bytes_per_second(rung),
        };
        if best.is_none_or(|(_, _, other)| merit > other) {
            best = Some((index, airtime, merit));
        }
    }
    best.map(|(index, airtime, _)| (index, airtime))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::controller::tests::ladder;

    fn steady(bytes_per_ms: f64) -> ChannelRate {
        ChannelRate { bytes_per_ms, spread: 0.0, control_bytes_per_second: 0.0 }
    }

    fn steps() -> Vec<Step> {
        Step::of(&ladder())
    }

    /// The index of the cheapest rung with that accuracy.
    fn lowest_at(accuracy: f64) -> usize {
        ladder().lowest_at(Some(accuracy)).expect("the best one has it")
    }

    fn claim(steps: &[Step]) -> Claim<'_> {
        Claim {
            steps,
            floor: 0,
            interval: Duration::from_millis(100),
            latency_bound: Duration::from_millis(100),
            priority: 0,
            overhead: Overhead::default(),
        }
    }

    fn rungs(bytes_per_ms: f64, claims: &[Claim<'_>], goal: Goal) -> Vec<Option<usize>> {
        let grants = divide(Instant::ZERO, &steady(bytes_per_ms), claims, goal);
        grants.iter().map(|grant| grant.rung).collect()
    }

    #[test]
    fn cameras_that_are_alike_get_alike() {
        let steps = steps();
        let five = [claim(&steps); 5];
        for goal in [Goal::MaxMin, Goal::Sum, Goal::Bandwidth] {
            // A little more than 1000 kB in 100 ms: 200 kB each.
            assert_eq!(rungs(10_100.0, &five, goal), [Some(6); 5]);
        }
    }

    #[test]
    fn a_camera_with_larger_frames_costs_more_airtime_and_the_goal_decides_what_it_gets() {
        let steps = steps();
        let larger: Vec<Step> = steps.iter().map(|step| Step { bytes: 4.0 * step.bytes, ..*step }).collect();
        let claims = [claim(&steps), claim(&larger)];
        let fair = rungs(4_000.0, &claims, Goal::MaxMin);
        let sum = rungs(4_000.0, &claims, Goal::Sum);
        assert!(fair[1] > sum[1], "the goal of equals gives the dear camera more: {fair:?}, {sum:?}");
        assert!(sum[0] > fair[0]);
    }

    #[test]
    fn equal_bandwidth_is_equal_bytes_and_what_one_cannot_use_goes_to_the_other() {
        let steps = steps();
        let larger: Vec<Step> = steps.iter().map(|step| Step { bytes: 4.0 * step.bytes, ..*step }).collect();
        // 400 kB in 100 ms: 200 kB each. The second ladder has 180 kB, and then 260.
        let claims = [claim(&steps), claim(&larger)];
        assert_eq!(rungs(4_000.0, &claims, Goal::Bandwidth), [Some(6), Some(2)]);
        // Every second frame: twice the bytes of a frame are the same bandwidth.
        let slow = Claim { interval: Duration::from_millis(200), ..claim(&steps) };
        let half = Claim { latency_bound: Duration::from_millis(200), ..slow };
        let [every, second] = rungs(4_500.0, &[claim(&steps), half], Goal::Bandwidth)[..] else { panic!() };
        assert!(second > every, "{every:?}, {second:?}");
        let few = &steps[..3];
        let alone = rungs(4_000.0, &[claim(few), claim(&steps)], Goal::Bandwidth);
        assert_eq!(alone, [Some(2), Some(7)], "the first has its best rung, and leaves the rest");
    }

    /// Frames of 400 bytes take twice their payload of the channel, and messages are subtracted first.
    #[test]
    fn headers_and_messages_take_their_part_of_the_channel() {
        let steps: Vec<Step> = [(400.0, 0.6), (800.0, 0.8), (1_600.0, 0.9)]
            .map(|(bytes, accuracy)| Step { bytes, accuracy })
            .to_vec();
        let plain = claim(&steps);
        let small = Claim { overhead: Overhead { frame_bytes: 240.0, share: 0.04 }, ..plain };
        let granted = |claim: Claim<'_>, control_bytes_per_second: f64, goal: Goal| {
            let rate = ChannelRate { bytes_per_ms: 32.0, spread: 0.0, control_bytes_per_second };
            let grants = divide(Instant::ZERO, &rate, &[claim, claim], goal);
            grants.iter().map(|grant| grant.rung).collect::<Vec<_>>()
        };
        // 3,200 bytes in 100 ms.
        assert_eq!(granted(plain, 0.0, Goal::MaxMin), [Some(2), Some(2)]);
        assert_eq!(granted(small, 0.0, Goal::MaxMin), [Some(2), Some(1)]);
        assert_eq!(
            granted(small, 10e3, Goal::MaxMin),
            [Some(1), Some(1)],
            "1,000 bytes of that are for messages"
        );
        assert_eq!(granted(small, 10e3, Goal::Bandwidth), [Some(1), Some(1)]);
        assert_eq!(granted(small, 1e9, Goal::MaxMin), [Some(0), Some(0)], "at least half is for frames");
        let many = Claim { overhead: Overhead { frame_bytes: 2_000.0, share: 0.0 }, ..plain };
        let rate = steady(40.0);
        let unequal = divide(Instant::ZERO, &rate, &[many, plain], Goal::Bandwidth);
        assert_eq!(unequal.iter().map(|grant| grant.rung).collect::<Vec<_>>(), [Some(0), Some(2)]);
    }

    #[test]
    fn where_the_floors_do_not_fit_the_lowest_priority_is_shed() {
        let steps = steps();
        let floor = Claim { floor: lowest_at(0.95), ..claim(&steps) };
        let claims = [floor, Claim { priority: 5, ..floor }, Claim { priority: 1, ..floor }];
        // 0.95 needs 200 kB of each, and 450 kB pass in 100 ms.
        assert_eq!(rungs(4_500.0, &claims, Goal::MaxMin), [None, Some(6), Some(6)]);
        assert_eq!(rungs(500.0, &claims, Goal::MaxMin), [None, Some(6), None], "one may always try");
    }

    #[test]
    fn a_bound_below_the_frame_interval_limits_as_well() {
        let steps = steps();
        let slow = Claim { interval: Duration::from_secs(1), ..claim(&steps) };
        assert_eq!(
            rungs(2_000.0, &[slow], Goal::MaxMin),
            [Some(6)],
            "200 kB in 100 ms, not 2 MB in a second"
        );
    }

    proptest! {
        /// For any claims, the channel's airtime is not exceeded, and no camera gets less than its floor.
        /// No camera is shed while one of a lower priority with a floor at least as costly is not.
        #[test]
        fn the_channel_is_not_given_away_twice(
            claims in proptest::collection::vec((0.7f64..1.0, 20u64..300, 20u64..300, -3i32..3), 1..12),
            bytes_per_ms in 10.0f64..50_000.0,
            spread in 0.0f64..1.0,
            goal in proptest::sample::select(vec![Goal::MaxMin, Goal::Sum, Goal::Bandwidth]),
        ) {
            let (steps, ladder) = (steps(), ladder());
            let claims: Vec<Claim<'_>> = claims.iter().map(|(floor, interval, bound, priority)| Claim {
                steps: &steps,
                floor: ladder.lowest_at(Some(*floor)).unwrap_or(steps.len() - 1),
                interval: Duration::from_millis(*interval),
                latency_bound: Duration::from_millis(*bound),
                priority: *priority,
                overhead: Overhead::default(),
            }).collect();
            let channel = ChannelRate { bytes_per_ms, spread, control_bytes_per_second: 0.0 };
            let grants = divide(Instant::ZERO, &channel, &claims, goal);
            let airtime = |index: usize, rung: usize| claims[index].airtime(rung, bytes_per_ms);
            let given: Vec<(usize, usize)> = grants.iter().enumerate().filter_map(|(i, g)| Some((i, g.rung?))).collect();
            let total: f64 = given.iter().map(|(index, rung)| airtime(*index, *rung)).sum();
            prop_assert!(total <= channel.airtime_share() + 1e-9 || given.len() == 1, "{total}");
            prop_assert!(!given.is_empty());
            for (index, rung) in &given {
                prop_assert!(*rung >= claims[*index].floor());
            }
            for (index, grant) in grants.iter().enumerate() {
                let own = airtime(index, claims[index].floor());
                let wronged = grant.rung.is_none() && given.iter().any(|(other, _)| {
                    claims[*other].priority < claims[index].priority && airtime(*other, claims[*other].floor()) >= own
                });
                prop_assert!(!wronged, "camera {index} was shed for one of a lower priority");
            }
        }
    }
}
