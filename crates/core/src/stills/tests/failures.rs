//! Frames that cannot be decoded, and what they cost others.

use super::*;

/// A frame on which the decoder fails ends its chain for stills. Frames before it, and the next chain, can still be decoded.
#[test]
fn a_damaged_frame_costs_its_chain_from_there_on() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..10 {
        rig.comes(sequence == 0 || sequence == 8, false);
    }
    rig.damaged.insert(5);
    assert_eq!(rig.answer(7), None);
    assert_eq!(rig.chains_lost, 1);
    assert_eq!((rig.answer(5), rig.answer(6)), (None, None));
    assert_eq!((rig.chains_lost, rig.decoded.get(&6)), (1, None));
    assert_eq!(rig.tried_again, [5], "nobody tries a third time");
    assert_eq!((rig.answer(4), rig.answer(8)), (Some(4), Some(8)));
}

/// A decoder may fail on a sound frame. For a reader of the past, the chain is
/// decoded once more. A reader of the newest frame waits for the next chain.
#[test]
fn a_decoder_that_failed_once_gets_a_second_try() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..50 {
        rig.comes(sequence == 0, false);
    }
    rig.unlucky.insert(5);
    assert_eq!(rig.answer_as(9, true), None);
    assert_eq!((rig.chains_lost, rig.tried_again.clone()), (1, vec![5]));
    assert_eq!(rig.answer_as(9, true), None, "the camera was asked for another chain");
    assert_eq!([rig.answer(7), rig.answer_as(9, true)], [Some(7), Some(9)]);
    rig.unlucky.insert(30);
    assert_eq!([rig.answer(40), rig.answer(41), rig.answer(29)], [None, None, Some(29)]);
    assert_eq!((rig.chains_lost, rig.tried_again.len()), (2, 1), "a chain has one more try");
}

/// A chain whose first frame is gone can be continued by a decoder inside it, but not be started.
#[test]
fn a_chain_without_its_beginning_is_for_the_decoder_inside() {
    let mut rig = Rig::new(20_000);
    for sequence in 0..200 {
        rig.comes(sequence == 0, false);
        assert_eq!(rig.answer(sequence), Some(sequence));
        rig.now += MS * 33;
    }
    assert!(rig.maker.log.held().start > 50, "the beginning has gone");
    rig.now += IDLE_MAX;
    rig.maker.handle_timeout(rig.now);
    rig.perform();
    let newest = rig.comes(false, false);
    assert_eq!((rig.answer(newest), rig.chains_lost), (None, 1));
    let begins = rig.comes(true, false);
    assert_eq!(rig.answer(begins), Some(begins));
    assert_eq!(rig.answer(0), None, "evicted");
}
