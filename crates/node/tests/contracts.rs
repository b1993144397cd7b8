//! Contracts over real sockets: profiles at cameras, states of contracts, and bounds that cannot be kept.

mod api_support;

use std::time::Duration;

use api_support::{Served, Site, frame, within};
use mez_core::broker::Published;
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::{Encoding, Rung, SkipReason};
use mez_core::trace::Stage;
use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{ClientError, Event, Profile, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::edge::{EdgeBroker, EdgeOptions};
use mez_node::identity::name::Role;
use tonic::Code;

const SIZE: (u32, u32) = (640, 480);

/// A JPEG with enough detail that its quality matters.
fn picture(number: u8) -> Published {
    let (width, height) = SIZE;
    let pixel = |at: u32| (at % width / 8 * 5 + at / width / 8 * 3) as u8 ^ number;
    let pixels: Vec<u8> = (0..width * height).map(pixel).collect();
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
}

/// A profile for frames of `size`: a small rung with accuracy `small`, and the original with accuracy `original`.
fn profile(size: (u32, u32), small: f64, original: f64) -> Profile {
    profile_of(size, &[("jpeg/w320/q44/420", 9_000, small), ("original", 60_000, original)])
}

/// A profile with only the small rung. With the original in the profile, it would be chosen when the link has spare capacity.
fn only_small(size: (u32, u32), accuracy: f64) -> Profile {
    profile_of(size, &[("jpeg/w320/q44/420", 9_000, accuracy)])
}

fn profile_of((width, height): (u32, u32), rungs: &[(&str, u32, f64)]) -> Profile {
    let rung = |&(name, bytes, accuracy): &(&str, u32, f64)| {
        format!(
            r#"{{"rung":"{name}","bytes":{{"mean":{bytes},"p05":{},"p50":{bytes},"p95":{}}},"accuracy_normalised":{{"value":{accuracy}}}}}"#,
            bytes / 2,
            bytes * 2,
        )
    };
    let rungs = rungs.iter().map(rung).collect::<Vec<_>>().join(",");
    Profile::Inline(
        format!(
            r#"{{"format":"mez-profile","version":1,"app":"people","width":{width},"height":{height},"rungs":[{rungs}]}}"#
        )
        .into(),
    )
}

fn asked(floor: f64, profile: Profile) -> SubscribeOptions {
    SubscribeOptions {
        contract: Contract { accuracy_floor: Some(floor), ..within_a_second() },
        profile: Some(profile),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

fn within_a_second() -> Contract {
    Contract { latency_bound: Some(Duration::from_secs(1)), ..Contract::default() }
}

fn unless_infeasible(options: SubscribeOptions, on_infeasible: OnInfeasible) -> SubscribeOptions {
    SubscribeOptions { contract: Contract { on_infeasible, ..options.contract }, ..options }
}

/// Publishes pictures until `look` finds something.
async fn until<T>(
    camera: &CameraHandle,
    subscription: &mut Subscription,
    mut look: impl FnMut(Event) -> Option<T>,
) -> T {
    within(async {
        for number in 0.. {
            camera.publish(picture(number as u8)).unwrap();
            let pause = tokio::time::sleep(Duration::from_millis(50));
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    event = subscription.next() => {
                        let event = event.expect("the subscription has not ended");
                        if let Some(found) = look(event) {
                            return found;
                        }
                    }
                }
            }
        }
        unreachable!()
    })
    .await
}

fn a_frame(
    mut wanted: impl FnMut(&ReceivedFrame) -> bool,
) -> impl FnMut(Event) -> Option<Box<ReceivedFrame>> {
    move |event| match event {
        Event::Frame(frame) if wanted(&frame) => Some(frame),
        Event::Failed { reason } => panic!("{reason}"),
        _ => None,
    }
}

fn a_state(wanted: ContractState) -> impl FnMut(Event) -> Option<String> {
    move |event| match event {
        Event::Contract { state, reason, .. } if state == wanted => Some(reason),
        Event::Failed { reason } => panic!("{reason}"),
        _ => None,
    }
}

/// The application's profile replaces the default ladder: frames have its rungs and
/// expected accuracies, and the contract is kept. Without a floor, originals come.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_comes_to_the_camera_and_its_rungs_are_used() {
    let rig = Served::new().await;
    let client = rig.client().await;
    // The original has a lower accuracy, so the small rung is the best.
    let options = asked(0.9, only_small(SIZE, 0.93));
    let mut subscription = client.subscribe(options.clone()).await.unwrap();
    let small = Rung::new("jpeg/w320/q44/420").unwrap();
    let got = until(&rig.camera, &mut subscription, a_frame(|frame| frame.meta.rung == small)).await;
    assert_eq!((got.accuracy_expected, got.infeasible, got.meta.width), (Some(0.93), false, 320));
    let kept =
        until(&rig.camera, &mut subscription, a_frame(|frame| frame.contract_state == ContractState::Ok));
    let kept = kept.await;
    assert!(kept.contract_reason.ends_with(" within 1000 ms"), "{}", kept.contract_reason);
    let standing = client.cameras(None).await.unwrap().remove(0).contracts.remove(0);
    assert_eq!((standing.application.as_str(), standing.state), ("viewer", ContractState::Ok));

    let asked = &standing.contract;
    assert_eq!((asked.accuracy_floor, asked.latency_bound), (Some(0.9), Some(Duration::from_secs(1))));

    subscription.update(&within_a_second(), None).await.unwrap();
    let original = a_frame(|frame| frame.meta.rung == Rung::original());
    assert_eq!(until(&rig.camera, &mut subscription, original).await.accuracy_expected, Some(1.0));
}

/// The edge reports how well the camera's policy predicts, but only with a floor.
#[tokio::test(flavor = "multi_thread")]
async fn the_edge_publishes_how_well_the_camera_predicts() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let known = || async {
        let info = client.cameras(None).await.unwrap().remove(0);
        (info.predicted_on_time_share, info.observed_on_time_share)
    };
    assert_eq!(known().await, (None, None), "nothing was predicted");
    let options = asked(0.9, only_small(SIZE, 0.93));
    let mut subscription = client.subscribe(options).await.unwrap();
    let (predicted, observed) = within(async {
        loop {
            until(&rig.camera, &mut subscription, a_frame(|_| true)).await;
            if let (Some(predicted), Some(observed)) = known().await {
                return (predicted, observed);
            }
        }
    })
    .await;
    assert!((0.0..=1.0).contains(&predicted) && (0.0..=1.0).contains(&observed), "{predicted}, {observed}");
}

/// Without a profile the loss is unknown, and the state says so.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_profile_a_floor_is_unverified() {
    let rig = Served::new().await;
    let options = SubscribeOptions { profile: None, ..asked(0.9, profile(SIZE, 0.9, 1.0)) };
    let mut subscription = rig.client().await.subscribe(options).await.unwrap();
    let made = a_frame(|frame| frame.meta.rung != Rung::original());
    let made = until(&rig.camera, &mut subscription, made).await;
    assert_eq!((made.contract_state, made.accuracy_expected), (ContractState::Unverified, None));
    assert!(made.contract_reason.contains("profile the application"), "{}", made.contract_reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_that_serve_no_camera_are_refused_with_the_reason() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let Profile::Inline(bytes) = profile(SIZE, 0.92, 1.0) else { unreachable!() };
    std::fs::write(folder.path().join("people.json"), &bytes).unwrap();
    let (listen, credentials) = ("127.0.0.1:0".parse().unwrap(), site.credentials(Role::Edge, "edge"));
    let mut options = EdgeOptions::new(listen, credentials, EdgeConfig::default());
    options.profiles = Some(folder.path().into());
    let edge = EdgeBroker::start(options).unwrap();
    let rig = Served::with(site, edge, |_| {}).await;
    let client = rig.client().await;
    let mut by_name = client.subscribe(asked(0.9, Profile::Name("people".into()))).await.unwrap();
    until(&rig.camera, &mut by_name, a_frame(|frame| frame.contract_state == ContractState::Ok)).await;
    // The camera reports the size of its frames once per second.
    within(async {
        while client.cameras(None).await.unwrap()[0].width == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let newer = String::from_utf8(bytes.to_vec()).unwrap().replace("\"version\":1", "\"version\":2");
    for (profile, reason, text) in [
        (Profile::Name("faces".into()), "UNKNOWN_PROFILE", "no profile \"faces\""),
        (Profile::Name("../people".into()), "UNKNOWN_PROFILE", "cannot be the name"),
        (Profile::Inline(newer.into()), "INVALID_PROFILE", "has version 2"),
        (profile((1280, 720), 0.92, 1.0), "PROFILE_SIZE", "those of camera dock/cam1 have 640x480"),
    ] {
        match client.subscribe(asked(0.9, profile)).await {
            Err(ClientError::Refused(error)) => {
                assert_eq!(error.reason, reason);
                assert!(error.message.contains(text), "{error}");
            }
            other => panic!("{reason}: {:?}", other.map(|_| "accepted")),
        }
    }
}

/// A floor that no rung keeps: `degrade` sends the best frames, marked; `skip` sends nothing; `stop` ends. Each gives the reason.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_said_and_done_as_asked() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let options = asked(0.95, profile(SIZE, 0.7, 0.9));
    let mut degrade = client.subscribe(options.clone()).await.unwrap();
    let reason = until(&rig.camera, &mut degrade, a_state(ContractState::Infeasible)).await;
    assert_eq!(reason, "no rung of the profile keeps the floor 0.95; the best keeps 0.900");
    let marked = until(&rig.camera, &mut degrade, a_frame(|frame| frame.infeasible)).await;
    assert!(marked.accuracy_expected < Some(0.95));
    drop(degrade);

    let skip = unless_infeasible(options.clone(), OnInfeasible::Skip);
    let mut skipping = client.subscribe(skip.clone()).await.unwrap();
    until(&rig.camera, &mut skipping, a_state(ContractState::Infeasible)).await;
    // The lower floor is feasible.
    let less = Contract { accuracy_floor: Some(0.6), ..skip.contract };
    skipping.update(&less, skip.profile.as_ref()).await.unwrap();
    let first =
        until(&rig.camera, &mut skipping, a_frame(|frame| frame.contract_state == ContractState::Ok)).await;
    assert!(!first.infeasible);
    drop(skipping);

    let stop = unless_infeasible(options, OnInfeasible::Stop);
    let mut stopping = client.subscribe(stop).await.unwrap();
    let ended = |event| match event {
        Event::Failed { reason } => Some(reason),
        Event::Frame(frame) => panic!("{frame:?} lies below the floor"),
        _ => None,
    };
    match until(&rig.camera, &mut stopping, ended).await {
        ClientError::Refused(error) => {
            assert_eq!((error.code, error.reason.as_str()), (Code::FailedPrecondition, "INFEASIBLE"));
            assert!(error.message.starts_with("camera dock/cam1: no rung of the profile"), "{error}");
        }
        other => panic!("{other}"),
    }
}

/// An infeasible contract costs a feasible one nothing, even if both use `skip`. Its application is informed.
#[tokio::test(flavor = "multi_thread")]
async fn a_hopeless_contract_costs_the_others_nothing() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let skip = |floor| unless_infeasible(asked(floor, profile(SIZE, 0.7, 0.9)), OnInfeasible::Skip);
    let mut hopeless = client.subscribe(skip(0.95)).await.unwrap();
    let mut modest = client.subscribe(skip(0.8)).await.unwrap();
    let reason = until(&rig.camera, &mut hopeless, a_state(ContractState::Infeasible)).await;
    assert_eq!(reason, "no rung of the profile keeps the floor 0.95; the best keeps 0.900");
    // For the infeasible contract alone, the camera would send one frame per second to test the link.
    let mut came = Vec::new();
    let ten = until(
        &rig.camera,
        &mut modest,
        a_frame(move |frame| {
            came.push(frame.meta.id.sequence.0);
            // Frames from before the camera had the profile count for a while.
            frame.contract_state == ContractState::Ok
                && came.len() > 10
                && came[came.len() - 1] - came[came.len() - 11] <= 15
        }),
    );
    let frame = ten.await;
    assert!(!frame.infeasible && frame.accuracy_expected >= Some(0.8), "{frame:?}");
}

/// Accuracies measured by applications count, over the local protocol and gRPC. The state reports a mean below the floor, and the end of it.
#[tokio::test(flavor = "multi_thread")]
async fn accuracy_that_applications_measure_counts() {
    let rig = Served::new().await;
    for client in [rig.client_by(0).await, rig.client_by(1).await] {
        let mut subscription = client.subscribe(asked(0.8, profile(SIZE, 0.9, 1.0))).await.unwrap();
        until(&rig.camera, &mut subscription, a_state(ContractState::Ok)).await;
        let (name, control) = ("dock/cam1".parse().unwrap(), subscription.control());
        control.report_accuracy(&name, 0.5).await.unwrap();
        let reason = until(&rig.camera, &mut subscription, a_state(ContractState::AccuracyMiss)).await;
        assert!(reason.starts_with("measured accuracy 0.500 is below the floor 0.8"), "{reason}");
        // Reports about a camera that it does not read are ignored.
        control.report_accuracy(&"dock/cam2".parse().unwrap(), 0.1).await.unwrap();
        for _ in 0..5 {
            control.report_accuracy(&name, 1.0).await.unwrap();
        }
        until(&rig.camera, &mut subscription, a_state(ContractState::Ok)).await;
        for nonsense in [-0.1, 1.01, f64::NAN] {
            match control.report_accuracy(&name, nonsense).await.unwrap_err() {
                ClientError::Refused(error) => {
                    assert_eq!(error.field.as_deref(), Some("accuracy"), "{error}")
                }
                other => panic!("{other}"),
            }
        }
    }
}

/// A rung that leaves out two of three frames: delivered frames say so, and the contract
/// is kept. If the contract requires a higher frame rate, the camera skips the rung.
#[tokio::test(flavor = "multi_thread")]
async fn a_rung_leaves_frames_out_as_long_as_nobody_needs_them() {
    let rig = Served::new().await;
    let Profile::Inline(text) = profile(SIZE, 0.95, 0.9) else { unreachable!() };
    let text = String::from_utf8(text.to_vec()).unwrap().replace("q44/420", "q44/420/skip2");
    let options = asked(0.8, Profile::Inline(text.into()));
    let mut subscription = rig.client().await.subscribe(options.clone()).await.unwrap();
    let left_out = a_frame(|frame| {
        let kept = frame.contract_state == ContractState::Ok;
        let rung = frame.meta.rung.as_str() == "jpeg/w320/q44/420/skip2";
        kept && rung && frame.skipped.of(SkipReason::LeftOut) == 2
    });
    let frame = until(&rig.camera, &mut subscription, left_out).await;
    assert_eq!(frame.accuracy_expected, Some(0.95));
    // 20 frames per second are published.
    let faster = Contract { min_fps: 12.0, ..options.contract };
    subscription.update(&faster, options.profile.as_ref()).await.unwrap();
    let every =
        a_frame(|frame| frame.meta.rung.as_str() == "original" && frame.skipped.of(SkipReason::LeftOut) == 0);
    until(&rig.camera, &mut subscription, every).await;
}

/// A disconnected camera breaks a contract by its silence.
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_told() {
    let rig = Served::new().await;
    let options =
        SubscribeOptions { contract: within_a_second(), ..SubscribeOptions::new("dock/*".parse().unwrap()) };
    let mut subscription = rig.client().await.subscribe(options).await.unwrap();
    until(&rig.camera, &mut subscription, a_state(ContractState::Ok)).await;
    drop(rig.camera);
    let reason = within(async {
        loop {
            let event = subscription.next().await.expect("it goes on");
            if let Some(reason) = a_state(ContractState::Absent)(event) {
                return reason;
            }
        }
    });
    assert_eq!(reason.await, "the camera is not connected");
}

/// Latency counts until the application takes the frame: an application that takes frames late is
/// informed, over the local protocol and gRPC. Then it takes them at once, and the state is ok.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_frames_late_is_told_so() {
    let rig = Served::new().await;
    for client in [rig.client_by(0).await, rig.client_by(1).await] {
        let bound = Duration::from_millis(400);
        let contract = Contract { latency_bound: Some(bound), on_time_share: 0.6, ..Contract::default() };
        let options = SubscribeOptions { contract, ..SubscribeOptions::new("dock/*".parse().unwrap()) };
        let mut subscription = client.subscribe(options).await.unwrap();
        let reason = within(async {
            for number in 0.. {
                rig.camera.publish(picture(number)).unwrap();
                tokio::time::sleep(bound * 2).await;
                while let Some(event) = subscription.try_next() {
                    if let Some(reason) = a_state(ContractState::ApplicationLate)(event) {
                        return reason;
                    }
                }
            }
            unreachable!()
        });
        let reason = reason.await;
        assert!(reason.contains("frames wait") || reason.contains("has taken no frame"), "{reason}");
        until(&rig.camera, &mut subscription, a_state(ContractState::Ok)).await;
    }
}

/// A program that changes its contract often delays no other, and gets the last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_contract_may_flip_a_hundred_times() {
    let rig = Served::new().await;
    let client = rig.client().await;
    let one = asked(0.9, only_small(SIZE, 0.93));
    let mut flipping = client.subscribe(one.clone()).await.unwrap();
    let mut steady = client.subscribe(SubscribeOptions::new("dock/*".parse().unwrap())).await.unwrap();
    for flip in 0..100 {
        rig.camera.publish(picture(flip)).unwrap();
        let (contract, profile) =
            if flip % 2 == 0 { (&within_a_second(), None) } else { (&one.contract, one.profile.as_ref()) };
        flipping.update(contract, profile).await.unwrap();
    }
    assert!(frame(&mut steady).await.skipped.of(SkipReason::Infeasible) == 0);
    drop(steady);
    let small = Rung::new("jpeg/w320/q44/420").unwrap();
    until(&rig.camera, &mut flipping, a_frame(|frame| frame.meta.rung == small)).await;
}

/// The trace of a frame has its stages in order, and ends with its age. Over both transports, encoded and original.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_says_where_it_was_when() {
    use Stage::*;
    for transport in [Transport::Quic, Transport::Tcp] {
        let site = Site::new();
        let edge = site.edge();
        let rig = Served::with(site, edge, |options| options.transport = transport).await;
        let options = SubscribeOptions { profile: None, ..asked(0.9, profile(SIZE, 0.9, 1.0)) };
        // As a still made by the edge.
        let stills = SubscribeOptions { accept_encodings: Vec::new(), ..options.clone() };
        let mut subscription = rig.client().await.subscribe(stills).await.unwrap();
        let video =
            a_frame(|frame| frame.meta.rung.as_str().starts_with("h264") && frame.captured_at.is_some());
        let frame = until(&rig.camera, &mut subscription, video).await;
        let stages: Vec<_> = frame.trace.iter().map(|(stage, _)| stage).collect();
        assert_eq!(stages, Stage::ALL[..Taken as usize], "by all but the last, which is the program's own");
        assert_eq!(frame.trace.get(Handed), frame.age_at_broker.map(|(age, _)| age));
        let (captured, error) = frame.captured_at.unwrap();
        assert_eq!(frame.trace.get(Received), Some(frame.received_at.saturating_since(captured)));
        assert_eq!(frame.trace.error, Some(error));
        let steps: Vec<_> = frame.trace.iter().map(|(_, since)| since).collect();
        assert!(steps.is_sorted(), "{:?}", frame.trace);
        assert!(frame.age().unwrap().0 >= steps[steps.len() - 1]);
        let mut frame = frame;
        frame.stamp(Opened);
        assert!(frame.trace.get(Opened) >= frame.trace.get(Taken));

        // As video that is decoded by the client.
        let mut decodes = rig.client().await.subscribe(options.clone()).await.unwrap();
        let video = a_frame(|frame| frame.picture.is_some() && frame.captured_at.is_some());
        let frame = until(&rig.camera, &mut decodes, video).await;
        let stages: Vec<_> = frame.trace.iter().map(|(stage, _)| stage).collect();
        let expected: Vec<_> =
            Stage::ALL[..Taken as usize].iter().copied().filter(|stage| *stage != Decoded).collect();
        assert_eq!(stages, expected, "the edge had nothing to do with it");
        drop(decodes);

        // As originals, through gRPC.
        let as_they_are = SubscribeOptions { contract: within_a_second(), ..options };
        drop(subscription);
        let mut subscription = rig.client_by(1).await.subscribe(as_they_are).await.unwrap();
        let original = a_frame(|frame| frame.meta.rung == Rung::original() && frame.captured_at.is_some());
        let frame = until(&rig.camera, &mut subscription, original).await;
        let stages: Vec<_> = frame.trace.iter().map(|(stage, _)| stage).collect();
        assert_eq!(stages, [Published, Queued, Sent, Arriving, Arrived, Logged, Handed, Received, Taken]);
        // On one host with one clock, the two measurements differ by less than their stated errors.
        assert!(frame.trace.get(Handed) <= frame.age_at_broker.map(|(age, _)| age));
    }
}
