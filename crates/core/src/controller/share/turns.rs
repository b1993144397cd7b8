//! When the frames of cameras should begin so that they take turns on a channel.

use std::time::Duration;

/// Cameras whose intervals differ by more than this part have no turns: they would pass each other all the time.
const ALIKE: f64 = 0.02;
/// Nobody is asked to move by less than this part of a turn: clocks and captures are no better than that.
const MOVE_MIN: f64 = 0.25;

/// How much later than they do the frames of each camera should begin, less than an interval, so that all of them are a turn apart: the interval ÷
/// the number of cameras. Each camera is given by its interval and by when its frames begin, after those of the first. Nobody's order changes, the first
/// stays where it is, and so does whoever has another interval.
pub fn turns(cameras: &[(Duration, Duration)]) -> Vec<Duration> {
    let mut later = vec![Duration::ZERO; cameras.len()];
    let Some((interval, _)) = cameras.first().filter(|(interval, _)| !interval.is_zero()) else {
        return later;
    };
    let is_alike = |other: &Duration| (other.div_duration_f64(*interval) - 1.0).abs() <= ALIKE;
    let offset =
        |place: usize| Duration::from_nanos((cameras[place].1.as_nanos() % interval.as_nanos()) as u64);
    let mut order: Vec<usize> = (0..cameras.len()).filter(|place| is_alike(&cameras[*place].0)).collect();
    order.sort_by_key(|place| offset(*place));
    let turn = *interval / order.len().max(1) as u32;
    for (rank, place) in order.into_iter().enumerate() {
        let (due, begins) = (turn * rank as u32, offset(place));
        let move_by = if due >= begins { due - begins } else { due + *interval - begins };
        let little = turn.mul_f64(MOVE_MIN);
        if move_by > little && move_by + little < *interval {
            later[place] = move_by;
        }
    }
    later
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(60);

    fn ms(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|time| Duration::from_millis(*time)).collect()
    }

    fn later(begin: &[u64]) -> Vec<Duration> {
        let cameras: Vec<_> = ms(begin).into_iter().map(|begins| (INTERVAL, begins)).collect();
        turns(&cameras)
    }

    #[test]
    fn cameras_that_begin_together_are_moved_apart_and_others_stay() {
        assert_eq!(later(&[0, 0, 0]), ms(&[0, 20, 40]));
        assert_eq!(later(&[0, 41, 19]), ms(&[0, 0, 0]), "they take turns as it is");
        assert_eq!(later(&[0, 100, 5]), ms(&[0, 0, 15]), "one is behind by an interval");
        assert_eq!(later(&[0]), ms(&[0]));
        assert_eq!(turns(&[]), ms(&[]));
        let other = turns(&[(INTERVAL, Duration::ZERO), (INTERVAL * 2, Duration::ZERO)]);
        assert_eq!(other, ms(&[0, 0]), "there is no turn for an interval of its own");
    }

    proptest! {
        /// Whoever moves as it is told is a turn apart from its neighbours, but for what is too little to be asked for; and then nobody is asked again.
        #[test]
        fn whoever_moves_takes_turns(begin in proptest::collection::vec(0u64..1_000, 1..10)) {
            let begin = ms(&[&[0], begin.as_slice()].concat());
            let cameras: Vec<_> = begin.iter().map(|begins| (INTERVAL, *begins)).collect();
            let moved: Vec<_> =
                cameras.iter().zip(turns(&cameras)).map(|((interval, begins), later)| (*interval, *begins + later)).collect();
            prop_assert_eq!(turns(&moved), vec![Duration::ZERO; begin.len()]);
            let mut at: Vec<u128> = moved.iter().map(|(_, begins)| begins.as_nanos() % INTERVAL.as_nanos()).collect();
            at.sort_unstable();
            let turn = INTERVAL.as_nanos() / begin.len() as u128;
            let apart = at.windows(2).map(|pair| pair[1] - pair[0]).chain([at[0] + INTERVAL.as_nanos() - at[at.len() - 1]]);
            for apart in apart {
                prop_assert!(apart >= turn / 2 - begin.len() as u128 && apart <= turn * 3 / 2 + begin.len() as u128, "{:?}", at);
            }
        }
    }
}
