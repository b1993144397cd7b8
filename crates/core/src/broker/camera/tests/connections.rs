//! Which connection a camera has, and what remains of the old one after a new connection or a new epoch.

use super::*;

/// The edge says "replaced" about a connection that another connection of this camera has replaced. That is no reason to stay away.
#[test]
fn a_connection_that_we_replaced_ourselves_does_not_hold_us_back() {
    let replaced = Message::Refuse { code: RefuseCode::Replaced, text: "".into() };
    let mut rig = Rig::connected(Contract::default());
    rig.pass(800 * MS, &[]);
    rig.broker.handle_dialled(rig.now, LinkId(2), EdgeIndex(0));
    rig.message(1, replaced.clone());
    rig.broker.handle_closed(rig.now, LinkId(2));
    rig.take();
    rig.pass(300 * MS, &[]);
    assert!(dials(&rig.take()) >= 1);

    let mut rig = Rig::connected(Contract::default());
    rig.message(1, replaced);
    rig.take();
    rig.pass(4900 * MS, &[]);
    assert_eq!(dials(&rig.take()), 0, "another start has replaced us, and we are back at once");
    rig.pass(200 * MS, &[]);
    assert_eq!(dials(&rig.take()), 1);
}

#[test]
fn a_connection_is_not_taken_where_another_works() {
    let mut rig = Rig::connected(Contract::default());
    rig.broker.handle_dialled(rig.now, LinkId(2), EdgeIndex(0));
    let outputs = rig.take();
    assert!(matches!(outputs[..], [CameraOutput::Close { link: LinkId(2) }]), "{outputs:?}");
    assert!(rig.broker.is_up());
}

/// After an attempt was given up there is room for another, whatever became of the earlier ones.
#[test]
fn dials_are_bounded_and_never_cease() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_secs(10), &[]);
    let begun = dials(&rig.take());
    assert_eq!(begun, 8, "nothing has answered yet");
    for _ in 0..begun {
        rig.broker.handle_dial_failed(rig.now, EdgeIndex(0));
    }
    rig.pass(Duration::from_secs(1), &[]);
    assert!((4..=5).contains(&dials(&rig.take())));
}

/// An epoch begins while two connections were opened with the epoch before.
#[test]
fn a_new_epoch_leaves_no_connection_of_the_old_one() {
    let mut rig = Rig::new();
    rig.publish(10);
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.pass(760 * MS, &[]);
    let taken = FrameId { epoch: Epoch(5), sequence: Sequence(7) };
    rig.welcome(2, Some(taken));
    let outputs = rig.take();
    assert!(outputs.iter().any(|output| matches!(output, CameraOutput::RaiseEpoch { above: Epoch(5) })));

    // Published in the old epoch, and not read before the new one begins.
    let old = Published {
        payload: vec![0; 10].into(),
        encoding: Encoding::Jpeg,
        width: 4,
        height: 4,
        captured: None,
    };
    rig.intake.publish(rig.now, old).unwrap();
    rig.intake.raise_epoch(Epoch(6));
    rig.broker.handle_epoch(rig.now, Epoch(6));
    let closed = rig.take();
    assert!(matches!(closed[..], [CameraOutput::Close { link: LinkId(1) }]), "{closed:?}");

    rig.broker.handle_published(rig.now);
    rig.welcome(3, Some(taken));
    rig.demand(3, 1, vec![Contract::default()]);
    assert_eq!(frames_sent(&rig.take()), [], "a frame of the old epoch was sent");
    let first = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(first, vec![])]);
}

/// Messages of another version may have another meaning.
#[test]
fn an_edge_of_another_version_is_named_and_left_alone_for_a_while() {
    let mut rig = Rig::new();
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.message(
        1,
        Message::Welcome(Welcome {
            version: 77,
            newest: None,
            frame_bytes_max: 1000,
            software: String::new(),
        }),
    );
    let outputs = rig.take();
    let named = |output: &CameraOutput| matches!(output, CameraOutput::Refused { code: RefuseCode::Version, text } if text.contains("77"));
    assert!(outputs.iter().any(named), "{outputs:?}");
    assert!(!rig.broker.is_up());
    rig.pass(4 * REFUSED_INTERVAL / 5, &[]);
    assert_eq!(dials(&rig.take()), 0);
}

/// The limits that were agreed on would no longer hold for frames on their way.
#[test]
fn an_edge_that_welcomes_twice_makes_no_sense() {
    let mut rig = Rig::connected(Contract::default());
    rig.message(
        1,
        Message::Welcome(Welcome {
            version: VERSION,
            newest: None,
            frame_bytes_max: 5,
            software: String::new(),
        }),
    );
    let outputs = rig.take();
    assert!(
        outputs.iter().any(|output| matches!(output, CameraOutput::Close { link: LinkId(1) })),
        "{outputs:?}"
    );
    assert!(!rig.broker.is_up());
}

/// The edge would refuse the frame on a connection of the new epoch, and count a refused frame that nobody misses.
#[test]
fn a_frame_that_is_being_made_does_not_survive_its_epoch() {
    let mut rig = Rig::connected(Contract { accuracy_floor: Some(0.9), ..bound(100 * MS) });
    let old = rig.publish_image(100_000, (1280, 960));
    assert!(rig.take().iter().any(|output| matches!(output, CameraOutput::Transform(_))));
    rig.intake.raise_epoch(Epoch(6));
    rig.broker.handle_epoch(rig.now, Epoch(6));
    rig.welcome(2, None);
    rig.demand(2, 1, vec![Contract::default()]);
    rig.take();
    rig.broker.handle_transformed(rig.now, old, adapting::transformed(old, Some(100)));
    assert_eq!(frames_sent(&rig.take()), []);
    let new = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(new, vec![])]);
}

/// The camera stores the edge's epoch in its counter on disk, where an absurd number would stay.
#[test]
fn an_edge_raises_the_epoch_by_a_bounded_step() {
    let highest = EPOCH_BASE.0 + EPOCH_RAISE_MAX;
    for (said, is_believed) in [
        (u64::MAX, false),
        (NUMBER_MAX - 1, false),
        (EPOCH_MAX.0, false),
        (highest + 1, false),
        (highest, true),
    ] {
        let mut rig = Rig::new();
        rig.welcome(1, Some(FrameId { epoch: Epoch(said), sequence: Sequence(NUMBER_MAX) }));
        let outputs = rig.take();
        let raised = outputs.iter().any(|output| matches!(output, CameraOutput::RaiseEpoch { .. }));
        assert_eq!(raised, is_believed, "{said}: {outputs:?}");
        let text = outputs.iter().find_map(|output| match output {
            CameraOutput::Refused { text, .. } => Some(text.clone()),
            _ => None,
        });
        assert_eq!(text.is_some_and(|text| text.contains("mez cameras reset dock/cam1")), !is_believed);
        assert!(!rig.broker.is_up());
    }
}
