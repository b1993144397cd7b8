use super::*;
use crate::frame::{Epoch, FrameId, Sequence};

const GOOD: FrameOutcome =
    FrameOutcome { on_time: true, infeasible: false, expected_accuracy: Some(0.96), came: true };

fn contract() -> Contract {
    Contract {
        latency_bound: Some(Duration::from_millis(100)),
        accuracy_floor: Some(0.9),
        profile: Some([1; 32]),
        ..Contract::default()
    }
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// A monitor that has seen fifteen frames with this outcome in the second before 1000 ms.
fn after(contract: Contract, outcome: impl Fn(u64) -> FrameOutcome) -> Monitor {
    let mut monitor = Monitor::new(contract, at(0));
    for frame in 0..15 {
        monitor.handle_frame(at(1 + frame * 66), outcome(frame));
    }
    monitor
}

#[test]
fn each_state_has_its_cause_and_its_sentence() {
    let around = Surroundings {
        link_rate: Some(BitsPerSecond(2.1e6)),
        need: Some(Need::Bytes(140e3)),
        interval: Some(Duration::from_secs(1) / 15),
        ..Surroundings::default()
    };
    let describe = |monitor: &Monitor| monitor.describe(at(1000), &around);
    let (state, text) = describe(&after(contract(), |_| GOOD));
    assert_eq!((state, text.as_str()), (ContractState::Ok, "15 of 15 frames handed over within 100 ms"));

    let late = after(contract(), |frame| FrameOutcome { on_time: frame != 3, ..GOOD });
    let text = "14 of 15 frames handed over within 100 ms, 98.0 % required; the link carries 2.1 Mbit/s";
    assert_eq!(describe(&late), (ContractState::LatencyMiss, text.into()));

    let slow = after(contract(), |frame| FrameOutcome { infeasible: frame > 5, on_time: false, ..GOOD });
    let text = "the link carries 2.1 Mbit/s; the floor 0.9 needs 16.8 Mbit/s at 15 fps";
    assert_eq!(describe(&slow), (ContractState::Infeasible, text.into()));

    let best = Surroundings { need: Some(Need::Best(0.999)), ..around.clone() };
    let interrupted = Surroundings { interrupted: true, ..around.clone() };
    let (state, text) = after(contract(), |_| GOOD).describe(at(1000), &interrupted);
    assert_eq!(state, ContractState::Ok, "frames that are made of the source's video keep the floor");
    assert!(text.contains("interrupted until one of its keyframes is sent"), "{text}");

    let strict = Contract { accuracy_floor: Some(0.9995), ..contract() };
    let strict = after(strict, |_| FrameOutcome { infeasible: true, ..GOOD });
    let text = "no rung of the profile keeps the floor 0.9995; the best keeps 0.999";
    assert_eq!(strict.describe(at(1000), &best), (ContractState::Infeasible, text.into()));

    let hasty = Contract { latency_bound: Some(Duration::from_millis(4)), ..contract() };
    let far = Surroundings { one_way_delay: Some(Duration::from_millis(12)), ..around.clone() };
    let text = "no frame can arrive within 4 ms: the path alone takes 12 ms";
    let said = after(hasty, |_| GOOD).describe(at(1000), &far);
    assert_eq!(said, (ContractState::Infeasible, text.into()));

    let brisk = after(Contract { min_fps: 20.0, ..contract() }, |_| GOOD);
    let text = "14 frames in the last second, 20 required; the camera publishes 15.0 fps";
    assert_eq!(brisk.describe(at(1010), &around), (ContractState::LatencyMiss, text.into()));

    let why = "the channel hall carries 2.1 Mbit/s; cameras of higher priority leave no room for this camera";
    let shed = Surroundings { shed: Some((at(600), why.into())), ..around.clone() };
    let marked = after(contract(), |frame| FrameOutcome { infeasible: frame > 8, ..GOOD });
    assert_eq!(marked.describe(at(1000), &shed), (ContractState::Infeasible, why.into()));
    assert_eq!(
        after(contract(), |_| GOOD).describe(at(1000), &shed).0,
        ContractState::Ok,
        "its frames suffice"
    );
    let as_it_is = Contract { accuracy_floor: None, ..contract() };
    let told = after(as_it_is, |_| GOOD).describe(at(1000), &shed);
    assert_eq!(told, (ContractState::Infeasible, why.into()), "few of them come");

    let conflict = Surroundings { conflict: "subscription 7 goes first".into(), ..around.clone() };
    let outdone = after(contract(), |_| FrameOutcome { on_time: false, ..GOOD });
    let (state, text) = outdone.describe(at(1000), &conflict);
    assert_eq!(state, ContractState::LatencyMiss);
    assert!(text.ends_with("Mbit/s; subscription 7 goes first"), "{text}");

    let mut wrong = after(contract(), |_| GOOD);
    wrong.handle_accuracy(at(990), 0.8);
    assert_eq!(describe(&wrong).0, ContractState::AccuracyMiss);
    wrong.handle_accuracy(at(991), 1.0);
    assert_eq!(describe(&wrong).0, ContractState::Ok, "on average it is kept");

    let unknown = after(contract(), |_| FrameOutcome { expected_accuracy: None, ..GOOD });
    assert_eq!(describe(&unknown).0, ContractState::Unverified);
}

/// In fog, frames are smaller than any frame with which the profile was measured, so its accuracies may not hold.
#[test]
fn frames_that_differ_from_those_of_the_profile_make_a_contract_drifted() {
    let drift = Some(SizeDrift { measured: 50.0, profiled: 145.0 });
    let foggy = Surroundings { drift, ..around() };
    let (state, text) = after(contract(), |_| GOOD).describe(at(1000), &foggy);
    assert_eq!(state, ContractState::Drifted);
    assert!(text.starts_with("frames have 50 bytes where the profile says 145; "), "{text}");
    let late = after(contract(), |frame| FrameOutcome { on_time: frame > 5, ..GOOD });
    assert_eq!(late.describe(at(1000), &foggy).0, ContractState::LatencyMiss, "which is certain");
    let any = Contract { accuracy_floor: None, ..contract() };
    assert_eq!(
        after(any, |_| GOOD).describe(at(1000), &foggy).0,
        ContractState::Ok,
        "it asks for no accuracy"
    );
}

#[test]
fn a_change_for_the_worse_is_told_within_a_second_and_so_is_the_end_of_it() {
    let mut monitor = Monitor::new(contract(), at(0));
    let mut states = Vec::new();
    for frame in 0..90u64 {
        let now = at(frame * 66);
        let bad = (30..60).contains(&frame);
        monitor.handle_frame(now, FrameOutcome { on_time: !bad, infeasible: bad, ..GOOD });
        states.push(monitor.describe(now, &around()).0);
    }
    let first = |state: ContractState, from: usize| {
        from + states[from..].iter().position(|known| *known == state).expect("it is told")
    };
    assert!(first(ContractState::Infeasible, 30) <= 30 + 15);
    assert!(first(ContractState::Ok, 60) <= 60 + 16);
}

fn around() -> Surroundings {
    Surroundings { interval: Some(Duration::from_secs(1) / 15), ..Surroundings::default() }
}

#[test]
fn silence_is_a_missed_latency_of_a_camera_that_publishes() {
    let monitor = after(contract(), |_| GOOD);
    let state = |monitor: &Monitor, ms, around: &Surroundings| monitor.describe(at(ms), around).0;
    assert_eq!(state(&monitor, 1_500, &around()), ContractState::Ok);
    assert_eq!(state(&monitor, 3_000, &around()), ContractState::LatencyMiss);
    assert_eq!(state(&monitor, 3_000, &Surroundings::default()), ContractState::Unverified);
    let slow = Surroundings { interval: Some(Duration::from_secs(2)), ..around() };
    assert_eq!(state(&monitor, 3_000, &slow), ContractState::Unverified);
    let away = Surroundings { is_away: true, ..Surroundings::default() };
    assert_eq!(state(&monitor, 3_000, &away), ContractState::Absent);
    let fresh = Monitor::new(contract(), at(0));
    assert_eq!(state(&fresh, 500, &around()), ContractState::Unverified);
    let mut begun = Monitor::new(contract(), at(0));
    begun.handle_frame(at(50), FrameOutcome { infeasible: true, ..GOOD });
    assert_eq!(state(&begun, 100, &around()), ContractState::Unverified, "it may be the first of many");
    assert_eq!(state(&begun, 300, &around()), ContractState::Infeasible);
    begun.handle_frame(at(120), GOOD);
    assert_eq!(state(&begun, 150, &around()), ContractState::Ok);
    let stuck = Surroundings { infeasible_since: Some(at(0)), ..around() };
    assert_eq!(state(&fresh, 200, &stuck), ContractState::Unverified);
    assert_eq!(state(&fresh, 300, &stuck), ContractState::Infeasible);
}

#[test]
fn a_frame_that_is_overdue_is_missed_before_the_second_is_over() {
    let monitor = after(contract(), |_| GOOD);
    let said = |waits: Option<u64>, around: Surroundings| {
        let around = Surroundings { waited: waits.map(Duration::from_millis), ..around };
        monitor.describe(at(1_400), &around)
    };
    assert_eq!(said(Some(430), around()).0, ContractState::Ok, "the bound and five frames");
    let text = "no frame for 0.4 s; the camera publishes 15.0 fps";
    assert_eq!(said(Some(440), around()), (ContractState::LatencyMiss, text.into()));
    assert_eq!(said(None, around()).0, ContractState::Ok, "it is busy with the last one");
    let away = Surroundings { is_away: true, ..around() };
    assert_eq!(said(Some(440), away), (ContractState::Absent, "the camera is not connected".into()));
    let unknown = Surroundings { interval: None, ..around() };
    assert_eq!(said(Some(440), unknown).0, ContractState::Ok, "the camera may have nothing to send");
    let brisk = Surroundings { interval: Some(Duration::from_millis(10)), ..around() };
    assert_eq!(said(Some(390), brisk.clone()).0, ContractState::Ok);
    assert_eq!(said(Some(410), brisk).0, ContractState::LatencyMiss);
}

#[test]
fn frames_that_the_rung_leaves_out_are_not_overdue() {
    let monitor = after(contract(), |_| GOOD);
    let said = |waits: u64, one_in: u32| {
        let around = Surroundings { waited: Some(Duration::from_millis(waits)), one_in, ..around() };
        monitor.describe(at(1_400), &around).0
    };
    assert_eq!(said(440, 1), ContractState::LatencyMiss);
    assert_eq!([said(440, 3), said(560, 3)], [ContractState::Ok; 2]);
    assert_eq!(said(570, 3), ContractState::LatencyMiss);
}

/// Hands over one of 15 frames in a second, which arrives 20 ms after its capture. Returns the handover time, and a report of the frame.
fn hand(monitor: &mut Monitor, frame: u64) -> (Instant, TakenReport) {
    let captured = at(frame * 66);
    let handed = captured + Duration::from_millis(20);
    let id = FrameId { epoch: Epoch(1), sequence: Sequence(frame) };
    monitor.handle_handed(
        handed,
        GOOD,
        Handed { frame: id, captured: Some(captured), waited: Duration::ZERO },
    );
    let received = Some(Duration::from_millis(25));
    (handed, TakenReport { frame: id, received, taken: received, error: Duration::from_micros(100) })
}

/// The state of a contract of 100 ms whose application takes every frame `wait_ms` after its arrival, and reports five times a second.
fn taking_after(wait_ms: u64) -> (ContractState, String) {
    let mut monitor = Monitor::new(contract(), at(0));
    let mut reports = Vec::new();
    for frame in 0..60 {
        let (handed, report) = hand(&mut monitor, frame);
        let taken = Duration::from_millis(25 + wait_ms);
        reports.push((at(frame * 66) + taken, TakenReport { taken: Some(taken), ..report }));
        if frame % 3 == 0 {
            for (_, report) in reports.extract_if(.., |(due, _)| *due <= handed) {
                assert_eq!(monitor.handle_taken(handed, &report), Some(Duration::from_millis(5)));
            }
        }
    }
    monitor.describe(at(59 * 66 + 21), &around())
}

/// If a frame arrived in time and waited for its application, only the application makes it late, however long it waited.
#[test]
fn who_takes_frames_late_is_told_so() {
    let (state, text) = taking_after(10);
    assert!(state == ContractState::Ok && text.ends_with("frames within 100 ms"), "{state:?}: {text}");
    for wait_ms in [100, 600, 1_500] {
        let (state, text) = taking_after(wait_ms);
        assert_eq!(state, ContractState::ApplicationLate, "{wait_ms} ms: {text}");
        let wanted = format!(
            "; the application takes a frame every 66 ms; frames wait {wait_ms} ms for the application"
        );
        assert!(text.starts_with("0 of ") && text.ends_with(&wanted), "{text}");
    }
}

/// A frame that is late on its way is a missed latency, even if the application is slow too.
#[test]
fn a_long_way_to_the_application_misses_the_latency() {
    let mut monitor = Monitor::new(contract(), at(0));
    for frame in 0..30 {
        let (handed, report) = hand(&mut monitor, frame);
        let (received, taken) = (Some(Duration::from_millis(130)), Some(Duration::from_millis(150)));
        monitor.handle_taken(handed + Duration::from_millis(200), &TakenReport { received, taken, ..report });
    }
    let far = Surroundings { way: Duration::from_millis(110), ..around() };
    let (state, text) = monitor.describe(at(29 * 66 + 300), &far);
    assert_eq!(state, ContractState::LatencyMiss);
    assert!(text.ends_with("; the path from the edge to the application takes 110 ms"), "{text}");
}

/// An application that hangs is told so. An application that takes a frame every two seconds is only slow.
#[test]
fn an_application_that_hangs_is_not_well_served() {
    let story = |takes_one_in: u64, until: u64| {
        let mut monitor = Monitor::new(contract(), at(0));
        let mut states = Vec::new();
        for frame in 0..150 {
            let (handed, report) = hand(&mut monitor, frame);
            let takes = frame % takes_one_in == 0 && frame < until;
            let taken = report.taken.filter(|_| takes);
            monitor.handle_taken(handed + Duration::from_millis(30), &TakenReport { taken, ..report });
            states.push(monitor.describe(handed + Duration::from_millis(31), &around()));
        }
        states
    };
    let slow = story(30, 150);
    // Until the application has taken two frames, nobody knows how often it takes one.
    assert!(
        slow[61..].iter().all(|(state, _)| *state == ContractState::Ok),
        "{:?}",
        slow[61..].iter().find(|(state, _)| *state != ContractState::Ok)
    );
    let (state, text) = story(1, 60).pop().expect("a state with each frame");
    assert_eq!(
        (state, text.as_str()),
        (ContractState::ApplicationLate, "the application has taken no frame for 5.9 s")
    );
}

/// Reports are bytes from outside. A claim counts only within the limits that
/// the edge saw itself, only for a frame that was handed over, and only once.
#[test]
fn claims_of_an_application_stay_within_what_the_edge_saw() {
    let mut monitor = Monitor::new(contract(), at(0));
    let (handed, report) = hand(&mut monitor, 3);
    let unknown = TakenReport { frame: FrameId { epoch: Epoch(1), sequence: Sequence(2) }, ..report };
    assert_eq!(monitor.handle_taken(handed, &unknown), None);
    let early = TakenReport { received: Some(Duration::ZERO), taken: Some(Duration::ZERO), ..report };
    assert_eq!(monitor.handle_taken(handed, &early), Some(Duration::ZERO), "not before it was handed over");
    assert_eq!(monitor.handle_taken(handed, &early), None, "once");
    let (handed, report) = hand(&mut monitor, 4);
    let late = TakenReport { received: Some(Duration::MAX), taken: Some(Duration::MAX), ..report };
    let reported = handed + Duration::from_millis(7);
    assert_eq!(monitor.handle_taken(reported, &late), Some(Duration::from_millis(7)), "not after the report");
    let (_, report) = hand(&mut monitor, 5);
    let future = TakenReport { frame: FrameId { epoch: Epoch(u64::MAX), sequence: Sequence(0) }, ..report };
    assert_eq!(monitor.handle_taken(reported, &future), None);
}

#[test]
fn memory_is_bounded() {
    let mut monitor = Monitor::new(contract(), at(0));
    for _ in 0..10_000 {
        monitor.handle_frame(at(5), GOOD);
    }
    assert_eq!(monitor.frames.len(), FRAMES_MAX);
}

/// Rates are shown in the unit that leaves a figure of at least 1, so tiny frames do not need "0.0 Mbit/s".
#[test]
fn what_is_needed_is_told_in_a_unit_of_its_size() {
    for (bytes, needs) in [(140e3, "16.8 Mbit/s"), (157.0, "19 kbit/s"), (4.0, "480 bit/s")] {
        let around = Surroundings {
            link_rate: Some(BitsPerSecond(2.1e6)),
            need: Some(Need::Bytes(bytes)),
            interval: Some(Duration::from_secs(1) / 15),
            ..Surroundings::default()
        };
        let marked = after(contract(), |_| FrameOutcome { infeasible: true, ..GOOD });
        let (_, text) = marked.describe(at(1000), &around);
        assert!(text.contains(&format!("the floor 0.9 needs {needs} at 15 fps")), "{text}");
    }
}

/// A camera whose source is gone says so at once. No frames are reported as late, and none are missed when the source is back.
#[test]
fn a_lost_source_is_no_missed_latency() {
    let why = String::from("the camera's source is lost: connection refused");
    let around = Surroundings {
        interval: Some(Duration::from_secs(1) / 15),
        source: Some(why.clone()),
        waited: Some(Duration::from_millis(40)),
        ..Surroundings::default()
    };
    let monitor = after(contract(), |_| GOOD);
    assert_eq!(monitor.describe(at(1000), &around), (ContractState::SourceLost, why.clone()));
    let waiting = Surroundings { waited: Some(Duration::from_secs(9)), ..around.clone() };
    assert_eq!(monitor.describe(at(10_000), &waiting).0, ContractState::SourceLost);
    let gone = Surroundings { is_away: true, ..waiting.clone() };
    let text = format!("the camera is not connected; {why}");
    assert_eq!(monitor.describe(at(10_000), &gone), (ContractState::Absent, text));

    // The source is back, and its first frame is on its way.
    let back = Surroundings { source: None, live_for: Some(Duration::from_millis(50)), ..waiting.clone() };
    assert_eq!(monitor.describe(at(10_000), &back).0, ContractState::Unverified);
    // The frame takes too long: now the link is the cause.
    let slow = Surroundings { live_for: Some(Duration::from_millis(1_500)), ..back };
    let (state, text) = monitor.describe(at(10_000), &slow);
    assert_eq!((state, &text[..19]), (ContractState::LatencyMiss, "no frame for 1.5 s;"), "{text}");
}

/// A camera publishes every two seconds, and all of its frames are withheld. The application
/// is told so until the next frame comes, and not only for the second that counts.
#[test]
fn a_frame_of_a_slow_camera_counts_until_the_next() {
    let mut monitor = Monitor::new(contract(), at(0));
    let slow = Surroundings { interval: Some(Duration::from_secs(2)), ..Surroundings::default() };
    for frame in 1..4 {
        monitor.handle_frame(at(2000 * frame), FrameOutcome { infeasible: true, on_time: false, ..GOOD });
        for later in [10, 990, 1010, 1990] {
            let (state, text) = monitor.describe(at(2000 * frame + later), &slow);
            assert_eq!(state, ContractState::Infeasible, "{later} ms after frame {frame}: {text}");
        }
    }
    assert_eq!(monitor.describe(at(11_000), &slow).0, ContractState::Unverified, "it comes no more");
    monitor.handle_frame(at(12_000), GOOD);
    assert_eq!(monitor.describe(at(13_500), &slow).0, ContractState::Unverified);
}
