//! How often a camera pings while nobody wants its frames.

use super::*;

/// With a connection whose path is measured, and on which the camera is welcomed and not wanted.
fn measured() -> Rig {
    let mut rig = Rig::new();
    rig.welcome(1, None);
    for _ in 0..8 {
        rig.now += 250 * MS;
        rig.broker.handle_timeout(rig.now);
        rig.answer_ping(1);
    }
    rig.take();
    rig
}

/// The pings of ten seconds, which the edge answers.
fn pings(rig: &mut Rig) -> usize {
    let (end, mut pings) = (rig.now + Duration::from_secs(10), 0);
    while rig.broker.poll_timeout() < end {
        rig.now = rig.now.max(rig.broker.poll_timeout());
        rig.broker.handle_timeout(rig.now);
        rig.drain();
        pings += usize::from(rig.asked);
        rig.answer_ping(1);
    }
    rig.now = end;
    pings
}

#[test]
fn a_camera_that_nobody_wants_pings_once_a_second() {
    let mut rig = measured();
    assert!(pings(&mut rig).abs_diff(40) <= 1, "an edge that says nothing may be an older one");
    rig.message(1, Message::Rest);
    assert!(pings(&mut rig).abs_diff(10) <= 1);
    assert_eq!(dials(&rig.take()), 0, "the edge answered all the time");
    rig.now += 500 * MS;
    rig.demand(1, 1, vec![Contract::default()]);
    assert!(rig.broker.poll_timeout() <= rig.now, "the next ping goes at once");
    assert!(pings(&mut rig).abs_diff(40) <= 1);
    rig.demand(1, 2, vec![]);
    rig.message(1, Message::Rest);
    assert!(pings(&mut rig).abs_diff(10) <= 1);
}

/// Only an edge that breaks the protocol says this.
#[test]
fn a_camera_that_is_wanted_does_not_rest() {
    let mut rig = measured();
    rig.demand(1, 1, vec![Contract::default()]);
    rig.message(1, Message::Rest);
    assert!(pings(&mut rig).abs_diff(40) <= 1);
}

/// The first pings after a start come fast, because the first frames need the path's delay.
#[test]
fn a_camera_measures_the_path_before_it_rests() {
    let mut rig = Rig::new();
    rig.welcome(1, None);
    rig.message(1, Message::Rest);
    assert!(pings(&mut rig).abs_diff(8 + 8) <= 1, "two seconds of fast pings, then eight of slow ones");
}

/// A lost edge is noticed a second later than with a demand: a ping that is not answered is sent again as soon as ever.
#[test]
fn a_resting_camera_notices_that_its_edge_is_gone() {
    let mut rig = measured();
    rig.message(1, Message::Rest);
    rig.pass(1_750 * MS, &[]);
    assert_eq!(dials(&rig.take()), 0);
    rig.pass(300 * MS, &[]);
    assert!(dials(&rig.take()) > 0);

    let mut rig = measured();
    rig.message(1, Message::Rest);
    rig.pass(1_700 * MS, &[]);
    rig.demand(1, 1, vec![Contract::default()]);
    rig.pass(740 * MS, &[]);
    assert_eq!(dials(&rig.take()), 0, "the demand itself was a message");
    rig.pass(300 * MS, &[]);
    assert!(dials(&rig.take()) > 0);
}
