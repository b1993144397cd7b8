//! Several edges, in order of preference.

use super::*;

/// The edges that the broker dialled, with the time since `start` in milliseconds.
fn dialled(rig: &mut Rig, start: Instant, duration: Duration, alive: &[u64]) -> Vec<(u64, usize)> {
    let end = rig.now + duration;
    let mut dialled = Vec::new();
    while rig.now < end {
        rig.pass(10 * MS, alive);
        for output in rig.take() {
            if let CameraOutput::Dial { edge } = output {
                dialled.push((rig.now.saturating_since(start).as_millis() as u64, edge.0));
                rig.broker.handle_dial_failed(rig.now, edge);
            }
        }
    }
    dialled
}

fn only(dialled: &[(u64, usize)]) -> Vec<usize> {
    dialled.iter().map(|(_, edge)| *edge).collect()
}

fn refuse(code: RefuseCode) -> Message {
    Message::Refuse { code, text: "".into() }
}

/// The first edge is dialled alone three times. Then the others take turns beside it.
#[test]
fn the_first_edge_is_dialled_alone_for_a_while() {
    let mut rig = Rig::with_edges(3);
    let start = rig.now;
    let dials = dialled(&mut rig, start, 1700 * MS, &[]);
    assert_eq!(only(&dials), [0, 0, 0, 0, 1, 0, 2, 0, 1, 0, 2], "{dials:?}");
    assert!(dials.iter().all(|(at, edge)| *edge == 0 || *at >= 750), "{dials:?}");
}

/// A short loss of the edge does not make the camera change its edge.
#[test]
fn after_a_pause_the_edge_in_use_is_tried_first() {
    let mut rig = Rig::with_edges(2);
    rig.welcome_at(1, 1, None);
    rig.take();
    rig.broker.handle_closed(rig.now, LinkId(1));
    let start = rig.now;
    let dials = dialled(&mut rig, start, 900 * MS, &[]);
    assert_eq!(only(&dials), [1, 1, 1, 1, 0], "{dials:?}");
}

/// The edge is killed: the next edge has the camera within two seconds, even if the end of the first was not reported.
#[test]
fn a_camera_moves_to_the_next_edge_within_two_seconds() {
    let mut rig = Rig::with_edges(2);
    rig.welcome_at(0, 1, None);
    rig.demand(1, 1, vec![Contract::default()]);
    rig.take();
    let start = rig.now;
    let dials = dialled(&mut rig, start, 2000 * MS, &[]);
    let second = dials.iter().find(|(_, edge)| *edge == 1).expect("the second edge is dialled");
    assert!(second.0 < 1600, "{dials:?}");
    rig.welcome_at(1, 2, None);
    assert_eq!(rig.broker.edge(), Some(EdgeIndex(1)));
    assert!(rig.take().iter().any(|output| matches!(output, CameraOutput::Close { link: LinkId(1) })));
    rig.demand(2, 1, vec![Contract::default()]);
    let frame = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()).last().map(|(id, _)| *id), Some(frame));
}

/// The camera returns to a better edge without a pause: the edge in use serves until the better one has welcomed the camera.
#[test]
fn a_camera_returns_to_a_better_edge() {
    let mut rig = Rig::with_edges(2);
    rig.welcome_at(1, 1, None);
    rig.demand(1, 1, vec![Contract::default()]);
    rig.take();
    let start = rig.now;
    let dials = dialled(&mut rig, start, Duration::from_secs(25), &[1]);
    assert_eq!(only(&dials), [0, 0], "{dials:?}");
    rig.broker.handle_dialled(rig.now, LinkId(2), EdgeIndex(0));
    assert_eq!(rig.broker.edge(), Some(EdgeIndex(1)), "not welcome yet");
    rig.publish(10);
    assert_eq!(frames_sent(&rig.take()).len(), 1);
    let welcome = Welcome { version: VERSION, newest: None, frame_bytes_max: 1000, software: "".into() };
    rig.message(2, Message::Welcome(welcome));
    assert_eq!(rig.broker.edge(), Some(EdgeIndex(0)));
    assert!(rig.take().iter().any(|output| matches!(output, CameraOutput::Close { link: LinkId(1) })));
    assert!(dialled(&mut rig, start, Duration::from_secs(60), &[2]).is_empty(), "there is none better");
}

/// An edge that comes and goes does not make the camera move each time.
#[test]
fn returns_that_do_not_last_become_rare() {
    let mut rig = Rig::with_edges(2);
    let (mut link, mut waits) = (0, Vec::new());
    rig.welcome_at(0, 100, None);
    for _ in 0..5 {
        link += 2;
        rig.broker.handle_closed(rig.now, LinkId(if link == 2 { 100 } else { link - 1 }));
        rig.welcome_at(1, link, None);
        rig.take();
        let start = rig.now;
        let dials = loop {
            let dials = dialled(&mut rig, start, Duration::from_secs(1), &[link]);
            if !dials.is_empty() {
                break dials;
            }
        };
        waits.push(dials[0].0.div_ceil(1000));
        rig.welcome_at(0, link + 1, None);
        rig.take();
    }
    assert_eq!(waits, [10, 20, 40, 80, 160]);
}

/// After an edge has refused the camera, the other edges are tried at once.
#[test]
fn a_refusal_holds_back_only_the_edge_that_refused() {
    let mut rig = Rig::with_edges(2);
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.message(1, refuse(RefuseCode::NotPermitted));
    rig.take();
    let start = rig.now;
    let dials = dialled(&mut rig, start, 4000 * MS, &[]);
    assert!(dials.len() > 10 && dials.iter().all(|(_, edge)| *edge == 1), "{dials:?}");
    let dials = dialled(&mut rig, start, 2000 * MS, &[]);
    assert!(dials.iter().any(|(at, edge)| *edge == 0 && *at >= 5000), "{dials:?}");

    let mut rig = Rig::with_edges(2);
    rig.welcome_at(0, 1, None);
    rig.message(1, refuse(RefuseCode::Replaced));
    rig.take();
    let start = rig.now;
    assert!(
        dialled(&mut rig, start, 4900 * MS, &[]).is_empty(),
        "another start is at work: the camera stays away"
    );
}
