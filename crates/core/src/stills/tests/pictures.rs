//! Decoded pictures beside stills.

use super::*;

/// For any number of readers on a host, even if some take stills: a frame is decoded once, and one picture is made of it.
#[test]
fn readers_of_pictures_and_of_stills_share_one_decoding() {
    let mut rig = Rig::new(1 << 20);
    let mut questions = Vec::new();
    for sequence in 0..100 {
        rig.comes(sequence % 40 == 0, false);
        questions.extend([rig.ask_for_picture(sequence), rig.ask_as(sequence, true)]);
        if sequence % 3 == 0 {
            rig.work();
        }
        questions.push(rig.ask_for_picture(sequence));
        rig.settle();
        questions.push(rig.ask_for_picture(sequence));
        rig.settle();
        assert!(questions.drain(..).all(|question| rig.answers[&question] == Some(sequence)));
        rig.now += MS * 33;
    }
    for counts in [&rig.decoded, &rig.pictures, &rig.made] {
        assert_eq!(counts.len(), 100);
        assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    }
}

/// A slow reader takes the next picture: no frame is decoded again for it.
#[test]
fn no_frame_is_decoded_again_for_a_picture() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..50 {
        rig.comes(sequence == 0, false);
        let newest = rig.ask_for_picture(sequence);
        rig.settle();
        assert_eq!(rig.answers[&newest], Some(sequence));
        if sequence > 0 {
            let late = rig.ask_for_picture(sequence - 1);
            rig.settle();
            assert!(rig.overtaken.contains(&late));
        }
    }
    assert!(rig.decoded.values().all(|times| *times == 1));
    assert_eq!(rig.chains_lost, 0);
}

/// If the decoder fails, readers learn that there is no picture, so that they decode themselves. The next chain has pictures again.
#[test]
fn a_decoder_that_fails_is_told_to_readers_of_pictures() {
    let mut rig = Rig::new(1 << 20);
    rig.damaged.insert(3);
    let mut got = Vec::new();
    for sequence in 0..8 {
        rig.comes(sequence == 0 || sequence == 6, false);
        let asked = rig.ask_for_picture(sequence);
        rig.settle();
        assert!(!rig.overtaken.contains(&asked));
        got.push(rig.answers[&asked]);
    }
    assert_eq!(got, [Some(0), Some(1), Some(2), None, None, None, Some(6), Some(7)]);
    assert_eq!(rig.chains_lost, 1);
}

/// A picture and the stills made ahead share the camera's budget: stills give way.
#[test]
fn stills_that_are_made_ahead_make_room_for_a_picture() {
    let mut rig = Rig::new(16 * 700);
    rig.picture_bytes = 500;
    for sequence in 0..10 {
        rig.comes(sequence == 0, false);
    }
    assert_eq!([rig.answer(0), rig.answer(1)], [Some(0), Some(1)]);
    assert_eq!(rig.answer_as(6, true), Some(6));
    assert!(rig.maker.ahead.bytes() > 200, "a still waits for the reader that asked for 1");
    let question = rig.ask_for_picture(9);
    rig.settle();
    assert_eq!(rig.answers[&question], Some(9));
    assert!((500..=700).contains(&rig.maker.bytes()), "{}", rig.maker.bytes());
    assert_eq!(rig.answer(2), Some(2), "readers of stills go on");
}

/// A picture larger than the rest of the camera's share goes to the waiting readers, and is not kept.
#[test]
fn the_newest_picture_stays_within_the_share() {
    let mut rig = Rig::new(16 * 150);
    rig.comes(true, false);
    let first = rig.ask_for_picture(0);
    rig.settle();
    assert_eq!((rig.answers[&first], rig.maker.bytes()), (Some(0), 0));
    let second = rig.ask_for_picture(0);
    rig.settle();
    assert_eq!((rig.answers[&second], rig.decoded[&0], rig.pictures[&0]), (Some(0), 1, 2));
}
