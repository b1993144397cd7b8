//! A camera that shares a channel with others: what it does with a share, and what it requests.

use super::adapting::{Delivered, HASH, contract, rig, run, run_while, sized};
use super::*;
use crate::controller::share::Step;
use crate::wire::{Share, ShareRequest};

const LIFETIME: Duration = Duration::from_millis(300);
/// Bytes per millisecond of a link on which the original is in time.
const FAST: f64 = 7_500.0;

fn cap(frame_bytes_max: u32) -> Share {
    Share::Cap { frame_bytes_max, lifetime: LIFETIME }
}

fn share(rig: &mut Rig, share: Share) {
    rig.message(1, Message::Share(share));
}

/// A camera with its profile on a fast link, whose rung no longer changes.
fn steady(contract: Contract) -> Rig {
    let mut rig = rig(vec![contract]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let delivered = run(&mut rig, 4, FAST);
    assert_eq!(delivered.last().expect("frames").rung, "original");
    rig
}

/// Runs for two seconds while the edge repeats a share ten times a second.
fn told(rig: &mut Rig, said: Share) -> Vec<Delivered> {
    run_while(rig, Duration::from_secs(2), FAST, |rig, ms| {
        if ms % 100 == 1 {
            share(rig, said);
        }
    })
}

fn claims(rig: &mut Rig) -> Vec<ShareRequest> {
    let claims = rig.take().into_iter().filter_map(|output| match output {
        CameraOutput::Send { message: Message::ShareRequest(claim), .. } => Some(claim),
        _ => None,
    });
    claims.collect()
}

/// Frames keep to a cap as long as it lasts, but never go below the floor for it. After the cap has expired, the camera
/// takes less than without one. If nothing is shared, or the edge is another, the camera takes as much as without a cap.
#[test]
fn a_cap_is_kept_and_expires() {
    let mut rig = steady(contract(true));
    let capped = told(&mut rig, cap(70_000));
    assert!(capped.len() > 25, "{} frames in two seconds", capped.len());
    assert!(
        capped[1..].iter().all(|frame| frame.rung == "jpeg/w1280/q70/420" && !frame.infeasible),
        "{capped:?}"
    );
    rig.now += LIFETIME;
    let expired = run(&mut rig, 2, FAST);
    assert!(
        expired.iter().all(|frame| frame.rung == "jpeg/w1280/q70/420"),
        "0.7 of the original: {expired:?}"
    );
    let below = told(&mut rig, cap(10_000));
    assert!(below[1..].iter().all(|frame| frame.rung == "jpeg/w640/q60/420"), "the floor is kept: {below:?}");
    share(&mut rig, Share::Free);
    assert_eq!(run(&mut rig, 2, FAST).last().expect("frames").rung, "original");
    told(&mut rig, cap(10_000));
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.welcome(1, None);
    assert!(!rig.broker.holds_back(rig.now));
}

/// Without room, a contract that accepts lower rungs gets a small, marked frame five times a
/// second. A contract that does not gets none. Both are reported to the edge as infeasible.
#[test]
fn without_room_little_goes_or_nothing() {
    let shed = Share::Shed { lifetime: LIFETIME };
    let mut rig = steady(contract(true));
    let few = told(&mut rig, shed);
    assert!((8..=12).contains(&few.len()), "{few:?}");
    assert!(few[1..].iter().all(|frame| frame.infeasible && frame.rung == "jpeg/w320/q50/420"), "{few:?}");
    assert!(rig.broker.holds_back(rig.now));

    let mut rig = steady(Contract { on_infeasible: OnInfeasible::Skip, ..contract(true) });
    let none = told(&mut rig, shed);
    assert!(none.len() <= 1, "{none:?}");
    rig.now += LIFETIME;
    assert!(run(&mut rig, 2, FAST).len() > 25, "it is over when nobody says so any more");
}

/// Frames that go as they are cannot be made smaller: some are skipped.
#[test]
fn of_frames_that_go_as_they_are_some_are_left_out() {
    let mut rig = rig(vec![bound(Duration::from_millis(100))]);
    run(&mut rig, 2, FAST);
    for (said, expected) in [
        (cap(200_000), 28..=32),
        (cap(100_000), 14..=16),
        (cap(25_000), 3..=5),
        (Share::Shed { lifetime: LIFETIME }, 2..=3),
        (Share::Free, 28..=32),
    ] {
        let delivered = told(&mut rig, said);
        assert!(expected.contains(&delivered.len()), "{said:?}: {} frames in two seconds", delivered.len());
        assert!(delivered.iter().all(|frame| frame.rung == "original"));
    }
}

/// The edge is told the costs of rungs once it has told that there is a channel, after each change, and every second.
#[test]
fn a_claim_is_made_where_there_is_a_channel() {
    let mut rig = steady(contract(true));
    rig.take();
    run(&mut rig, 2, FAST);
    assert_eq!(claims(&mut rig), [], "nobody has spoken of a channel");
    let claim = |rig: &Rig| rig.broker.negotiation.told_claim().expect("it was told");
    share(&mut rig, Share::Free);
    run(&mut rig, 3, FAST);
    let ShareRequest { interval, latency_bound, floor, steps } = claim(&rig);
    assert!((60 * MS..72 * MS).contains(&interval), "{interval:?}");
    assert_eq!((latency_bound, floor), (Duration::from_millis(100), 1));
    let expected = [(8e3, 0.85), (20e3, 0.92), (60e3, 0.96), (200e3, 1.0)];
    assert_eq!(steps, expected.map(|(bytes, accuracy)| Step { bytes, accuracy }));

    // Frames go as they are: one in a few.
    rig.demand(1, 2, vec![bound(Duration::from_millis(100))]);
    run(&mut rig, 2, FAST);
    let bytes: Vec<f64> = claim(&rig).steps.iter().map(|step| step.bytes).collect();
    assert_eq!(bytes, [25e3, 50e3, 100e3, 200e3], "one in sixteen would be less than one a second");
    rig.now += Duration::from_secs(5);
    rig.broker.handle_timeout(rig.now);
    assert_eq!(claim(&rig), ShareRequest::default(), "it publishes nothing");
}

proptest! {
    // Each case is nine seconds of a camera, millisecond by millisecond.
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever an edge says, in any order and at any time: no frame goes that would not have gone without it, and frames continue.
    #[test]
    fn what_an_edge_says_only_ever_lowers(
        said in proptest::collection::vec((0u8..3, any::<u32>(), 0u64..2_000, 0u64..300), 1..10),
    ) {
        let mut rig = steady(contract(true));
        let mut due = 1;
        let mut said = said.into_iter();
        let delivered = run_while(&mut rig, Duration::from_secs(3), FAST, |rig, ms| {
            if ms != due {
                return;
            }
            let Some((code, bytes, lifetime, wait)) = said.next() else { return };
            due += wait.max(1);
            let lifetime = Duration::from_millis(lifetime.min(1_000));
            share(rig, match code {
                0 => Share::Free,
                1 => Share::Cap { frame_bytes_max: bytes >> (bytes % 32), lifetime },
                _ => Share::Shed { lifetime },
            });
        });
        rig.now += Duration::from_secs(1);
        let after = run(&mut rig, 2, FAST);
        prop_assert!(after.len() > 20, "{} frames in two seconds", after.len());
        // The first frame may have waited since there was no room.
        prop_assert!(after[1..].iter().all(|frame| !frame.infeasible));
        let known = ["jpeg/w320/q50/420", "jpeg/w640/q60/420", "jpeg/w1280/q70/420", "original"];
        prop_assert!(delivered.iter().all(|frame| known.contains(&frame.rung.as_str())));
        prop_assert!(delivered.iter().all(|frame| frame.rung != known[0] || frame.infeasible));
    }
}
