//! Proves that the rules detect bugs: for each planted bug, its rule fails in a world that keeps every rule without the bug.

use mez_core::broker::NUMBER_MAX;
use mez_core::contract::{Contract, OnInfeasible};
use mez_testbed::footage::Footage;
use mez_testbed::{
    Action, ApplicationSpec, Ask, Bug, CameraSpec, Counter, EdgeId, EdgeSpec, Failure, HostClock, Library,
    Moment, World, mbps, ms, noticed, secs,
};

/// Two cameras, one of them on a slow link; applications that come, go and are slow; a cut and two restarts.
fn run(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(11);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let dock =
        world.camera("dock/cam1", CameraSpec { log_bytes_max: 4 << 20, ..CameraSpec::frames(20, 30_000) });
    world.camera("yard/cam1", CameraSpec::frames(20, 40_000).at_rate(mbps(2)));
    let all = world.application(ApplicationSpec { replies: true, ..ApplicationSpec::newest("**") });
    let slow = world.application(ApplicationSpec::newest("dock/*").consuming(ms(120)));
    let every = world.application(ApplicationSpec::every("yard/*"));
    let second = |s| Moment::START + secs(s);
    world.at(second(4), Action::Cut(dock)).at(second(7), Action::Restore(dock));
    world.at(second(10), Action::KillCamera(dock));
    world.at(second(11), Action::StartCamera(dock, Counter::LastWriteLost));
    world
        .at(second(14), Action::KillEdge(EdgeId::default()))
        .at(second(15), Action::StartEdge(EdgeId::default()));
    for application in [all, slow, every] {
        world.at(second(20), Action::Unsubscribe(application));
    }
    world.try_run(secs(25))
}

fn assert_noticed(bug: Bug, rule: &str) {
    noticed(bug, run(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_where_nothing_is_planted() {
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
}

#[test]
fn altered_bytes_are_noticed() {
    assert_noticed(Bug::AlteredBytes, "bytes");
}

#[test]
fn lost_skip_ranges_are_noticed() {
    assert_noticed(Bug::LostSkipRanges, "reasons");
}

#[test]
fn a_frame_delivered_again_is_noticed() {
    assert_noticed(Bug::FrameAgain, "order");
}

#[test]
fn a_miscounted_gap_is_noticed() {
    assert_noticed(Bug::Miscounted, "gaps");
}

#[test]
fn demand_that_is_not_withdrawn_is_noticed() {
    assert_noticed(Bug::DemandKept, "demand");
}

#[test]
fn a_frame_sent_twice_is_noticed() {
    assert_noticed(Bug::SentTwice, "one crossing");
}

#[test]
fn two_frames_under_way_at_once_are_noticed() {
    assert_noticed(Bug::SentTooSoon, "one in flight");
}

#[test]
fn a_clock_that_is_read_wrongly_is_noticed() {
    assert_noticed(Bug::ClockWrong, "clock");
}

#[test]
fn a_camera_that_does_not_dial_again_is_noticed() {
    assert_noticed(Bug::NoRedial, "resumes");
}

/// A link that carries nothing for two seconds, twice. Frames in the network's queue come first when it carries again.
fn cut_off(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(13);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let dock = world.camera("dock/cam1", CameraSpec::frames(15, 50_000).at_rate(mbps(4)));
    let contract =
        Contract { latency_bound: Some(ms(150)), accuracy_floor: Some(0.9), ..Contract::default() };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    for second in [5, 10] {
        let at = |s| Moment::START + secs(s);
        world.at(at(second), Action::Rate(dock, 1)).at(at(second + 2), Action::Rate(dock, mbps(4)));
    }
    world.try_run(secs(15))
}

#[test]
fn a_stale_frame_after_a_silence_is_noticed() {
    if let Err(failure) = cut_off(None) {
        panic!("{failure}");
    }
    let failure = cut_off(Some(Bug::SilenceHidden)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "newest", "{failure}");
}

/// A link at a sixtieth of its rate for three seconds delivers bytes of a frame all the time. This frame comes first when the link is fast again, and
/// no newer frame could have come sooner.
#[test]
fn nothing_is_noticed_on_a_link_that_is_slow_and_not_silent() {
    let mut world = World::seeded(17);
    let dock = world.camera("dock/cam1", CameraSpec::frames(15, 12_000).at_rate(mbps(6)));
    world.application(ApplicationSpec::newest("dock/*"));
    for round in 1..=8 {
        let slow = Moment::START + secs(round * 6) + ms(round * 170);
        world.at(slow, Action::Rate(dock, 100_000)).at(slow + secs(3), Action::Rate(dock, mbps(6)));
    }
    world.run(secs(60));
}

#[test]
fn a_frame_that_is_kept_back_is_noticed() {
    assert_noticed(Bug::FramesKeptBack, "silence");
}

#[test]
fn a_backlog_is_noticed() {
    assert_noticed(Bug::LongQueue, "backlog");
}

#[test]
fn an_altered_reply_is_noticed() {
    assert_noticed(Bug::ReplyAltered, "replies");
}

#[test]
fn a_log_above_its_budget_is_noticed() {
    assert_noticed(Bug::LogTooLarge, "memory");
}

/// Thirty applications that stall one after the other, each in the middle of another frame, at an edge with a small log.
fn stand_still(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded_with(31, EdgeSpec { log_bytes_max: 600_000, ..EdgeSpec::default() });
    if let Some(bug) = bug {
        world.plant(bug);
    }
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let brisk = world.application(ApplicationSpec::every("**"));
    for _ in 0..30 {
        let still = world.application(ApplicationSpec::newest("**"));
        world.try_run(ms(300))?;
        world.act(Action::Stall(still));
    }
    let since = world.now();
    world.try_run(secs(5))?;
    let came = world.deliveries_since(brisk, since);
    assert!(bug.is_some() || came.len() >= 98 && came.iter().all(|got| got.skipped.total() == 0));
    Ok(())
}

#[test]
fn what_is_held_for_those_who_stand_still_is_noticed() {
    if let Err(failure) = stand_still(None) {
        panic!("{failure}");
    }
    let failure = stand_still(Some(Bug::HeldWithoutShare)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "memory", "{failure}");
}

#[test]
fn a_timer_that_is_not_served_is_noticed() {
    assert_noticed(Bug::TimerIgnored, "progress");
}

/// A camera whose frames were not wanted when they were new. Later an application reads all of them, while another one reads live.
fn read_past(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    // Times of the past are the same for camera and edge.
    let clock =
        Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });
    let mut world = World::seeded_with(12, EdgeSpec { clock, ..EdgeSpec::default() });
    if let Some(bug) = bug {
        world.plant(bug);
    }
    world.camera("dock/cam1", CameraSpec { clock, ..CameraSpec::frames(10, 100_000) });
    world.try_run(secs(8))?;
    world.application(ApplicationSpec::newest("**"));
    let reader = world.application(ApplicationSpec::read("dock/*", secs(5), secs(1)));
    world.try_run(secs(40))?;
    assert!(bug.is_some() || world.has_ended(reader));
    assert!(bug.is_some() || world.deliveries(reader).len() >= 39, "{}", world.deliveries(reader).len());
    Ok(())
}

fn assert_noticed_in_the_past(bug: Bug, rule: &str) {
    noticed(bug, read_past(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_in_a_past_where_nothing_is_planted() {
    if let Err(failure) = read_past(None) {
        panic!("{failure}");
    }
}

#[test]
fn frames_of_the_past_that_are_passed_over_are_noticed() {
    assert_noticed_in_the_past(Bug::PastWithHoles, "holes");
}

#[test]
fn a_camera_that_is_not_asked_is_noticed() {
    assert_noticed_in_the_past(Bug::PastNotAsked, "holes");
}

#[test]
fn bytes_of_another_frame_of_the_past_are_noticed() {
    assert_noticed_in_the_past(Bug::PastMixedUp, "bytes");
}

#[test]
fn a_past_that_takes_more_than_its_share_of_the_link_is_noticed() {
    assert_noticed_in_the_past(Bug::PastHurries, "past last");
}

/// A camera with encoded frames, on a link that loses packets and fails from time to time.
fn run_chained(bug: Option<Bug>, seed: u64) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(seed);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let spec = CameraSpec::frames(20, 200_000).at_rate(mbps(1));
    let camera = world.camera("dock/cam1", spec);
    let contract =
        Contract { latency_bound: Some(ms(100)), accuracy_floor: Some(0.9), ..Contract::default() };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    for outage in 0..10 {
        let from = Moment::START + secs(6) + ms(1_730) * outage;
        world.at(from, Action::Cut(camera)).at(from + ms(200) + ms(70) * outage, Action::Restore(camera));
    }
    world.try_run(secs(25))
}

fn assert_noticed_in_chains(bug: Bug, rule: &str) {
    noticed(bug, (5..25).find_map(|seed| run_chained(Some(bug), seed).err()), rule);
}

#[test]
fn nothing_is_noticed_in_chains_where_nothing_is_planted() {
    if let Err(failure) = run_chained(None, 5) {
        panic!("{failure}");
    }
}

#[test]
fn a_codec_that_is_not_told_of_losses_is_noticed() {
    assert_noticed_in_chains(Bug::LossForgotten, "references");
}

#[test]
fn a_frame_that_could_not_be_decoded_is_noticed() {
    assert_noticed_in_chains(Bug::UndecodableShown, "decodable");
}

#[test]
fn a_still_of_another_frame_is_noticed() {
    assert_noticed_in_chains(Bug::StillMixedUp, "bytes");
}

/// A camera with encoded frames over a long distance. The only fault is that one packet in `lost_once_in` is lost.
fn run_calm(bug: Option<Bug>, lost_once_in: u64) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(5);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let mut spec = CameraSpec::frames(60, 30_000).at_distance(ms(70)).at_rate(mbps(100));
    spec.link.lost_once_in = lost_once_in;
    world.camera("dock/cam1", spec);
    let contract = Contract { accuracy_floor: Some(0.9), ..Contract::default() };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    world.try_run(secs(12))
}

fn assert_noticed_in_calm(bug: Bug, lost_once_in: u64, rule: &str) {
    if let Err(failure) = run_calm(None, lost_once_in) {
        panic!("{failure}");
    }
    noticed(bug, run_calm(Some(bug), lost_once_in).err(), rule);
}

/// If packets are lost, a frame may arrive before its reference.
#[test]
fn a_replica_that_takes_what_nobody_can_decode_is_noticed() {
    assert_noticed_in_calm(Bug::ParentMisnamed, 30, "decodable");
}

#[test]
fn a_still_that_never_comes_is_noticed() {
    assert_noticed_in_calm(Bug::StillForgotten, 0, "resumes");
}

/// A camera whose link becomes slow again and again, so that late frames in flight give way to newer ones. Returns how many frames did.
fn run_cancelling(bug: Option<Bug>) -> Result<u64, Box<Failure>> {
    let mut world = World::seeded(6);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let mut spec = CameraSpec::frames(15, 800_000).at_rate(mbps(12));
    spec.link.queue_bytes_max = 8_000;
    let camera = world.camera("dock/cam1", spec);
    let contract =
        Contract { latency_bound: Some(ms(100)), accuracy_floor: Some(0.9), ..Contract::default() };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    for step in 0..20 {
        let from = Moment::START + secs(4) + ms(1_530) * step;
        let back = from + ms(500);
        world.at(from, Action::Rate(camera, 500_000)).at(back, Action::Rate(camera, mbps(12)));
    }
    world.try_run(secs(36))?;
    Ok(world.camera_counts(camera).cancelled)
}

fn assert_noticed_among_cancelled(bug: Bug, rule: &str) {
    noticed(bug, run_cancelling(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_among_cancelled_frames_where_nothing_is_planted() {
    match run_cancelling(None) {
        Ok(cancelled) => assert!(cancelled >= 5, "only {cancelled} frames gave way to newer ones"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn a_link_that_goes_on_with_a_cancelled_frame_is_noticed() {
    assert_noticed_among_cancelled(Bug::CancelIgnored, "one in flight");
}

#[test]
fn a_frame_that_is_cancelled_although_it_has_left_is_noticed() {
    assert_noticed_among_cancelled(Bug::LeftUntold, "cancels");
}

/// A thief that claims the last epoch and leaves. Then the edge restarts with a state without epoch bounds, and the camera is reset.
fn run_with_thief(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(13);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.application(ApplicationSpec::newest("**"));
    let thief = world.thief(dock);
    let second = |s| Moment::START + secs(s);
    world.at(second(3), Action::Claim(thief, NUMBER_MAX - 1)).at(second(4), Action::Leave(thief));
    world.at(second(16), Action::Poison(dock)).at(second(18), Action::Reset(dock));
    world.try_run(secs(30))
}

#[test]
fn nothing_is_noticed_with_a_thief_where_nothing_is_planted() {
    if let Err(failure) = run_with_thief(None) {
        panic!("{failure}");
    }
}

#[test]
fn an_edge_that_believes_every_epoch_is_noticed() {
    let failure = run_with_thief(Some(Bug::EpochUnbounded)).expect_err("it went unnoticed");
    assert_eq!(failure.violation.rule, "resumes", "{failure}");
}

#[test]
fn a_reset_that_keeps_the_epoch_is_noticed() {
    let failure = run_with_thief(Some(Bug::ResetKeepsEpoch)).expect_err("it went unnoticed");
    assert_eq!(failure.violation.rule, "resumes", "{failure}");
}

/// A contract that cannot be kept, and of which the application is told that it is kept.
#[test]
fn a_broken_contract_that_is_called_kept_is_noticed() {
    let run = |bug: Option<Bug>| {
        let mut world = World::seeded(12);
        if let Some(bug) = bug {
            world.plant(bug);
        }
        // 40 kB take 160 ms.
        world.camera("yard/cam1", CameraSpec::frames(20, 40_000).at_rate(mbps(2)));
        let contract = Contract { latency_bound: Some(ms(100)), ..Contract::default() };
        world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("yard/*") });
        world.try_run(secs(5))
    };
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
    let failure = run(Some(Bug::AllIsWell)).expect_err("it went unnoticed");
    assert_eq!(failure.violation.rule, "contract", "{failure}");
}

/// An application that reads whole chains over a good link, with requests to its session.
fn asks(bug: Option<Bug>, asks: &[(u64, Ask)]) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(5);
    world.codecs_fail(false);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    // Original frames need twice the rate of the link.
    world.camera("dock/cam1", CameraSpec::filming(Footage::PEDESTRIANS).at_rate(mbps(2)));
    let profile = Footage::PEDESTRIANS.profile().map(|profile| world.profile(profile));
    let contract =
        Contract { latency_bound: Some(secs(1)), accuracy_floor: Some(0.9), profile, ..Contract::default() };
    let reader = world.application(ApplicationSpec {
        contract: contract.clone(),
        chains: true,
        ..ApplicationSpec::every("dock/*")
    });
    for (at, ask) in asks {
        let ask = match ask {
            Ask::Update(asked) => Ask::Update(Contract { profile, ..asked.clone() }),
            other => other.clone(),
        };
        world.asks_at(Moment::START + secs(*at), reader, ask);
    }
    world.try_run(secs(10))?;
    let chained = world.deliveries(reader).iter().filter(|got| got.encoding.is_chained()).count();
    assert!(chained > 50, "only {chained} frames of chains came: this shows nothing");
    Ok(())
}

/// Without the bug every rule holds. With the bug, its rule fails.
fn assert_noticed_in_session(bug: Bug, rule: &str, all: &[(u64, Ask)]) {
    if let Err(failure) = asks(None, all) {
        panic!("{failure}");
    }
    noticed(bug, asks(Some(bug), all).err(), rule);
}

#[test]
fn a_contract_that_is_judged_by_what_was_asked_before_is_noticed() {
    // Nothing crosses a link of 10 ms each way in 2 ms.
    let hasty = Contract { latency_bound: Some(ms(2)), accuracy_floor: Some(0.9), ..Contract::default() };
    assert_noticed_in_session(Bug::UpdateForgotten, "contract", &[(4, Ask::Update(hasty))]);
}

#[test]
fn an_accuracy_that_is_forgotten_is_noticed() {
    assert_noticed_in_session(Bug::AccuracyForgotten, "contract", &[(4, Ask::Accuracy(0.3))]);
}

#[test]
fn an_application_that_takes_frames_late_unnoticed_is_noticed() {
    let slow = Library { way: ms(0), takes_after: ms(1_200) };
    assert_noticed_in_session(Bug::TakenForgotten, "contract", &[(4, Ask::Library(slow))]);
}

/// An application that wants originals, beside an application with a contract that makes frames smaller.
fn read_originals(bug: Option<Bug>) -> Result<usize, Box<Failure>> {
    let mut world = World::seeded(17);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    world.camera("dock/cam1", CameraSpec::filming(Footage::PEDESTRIANS).at_rate(mbps(2)));
    let profile = world.profile(Footage::PEDESTRIANS.profile().expect("it was measured"));
    let contract = Contract {
        latency_bound: Some(ms(150)),
        accuracy_floor: Some(0.9),
        profile: Some(profile),
        ..Contract::default()
    };
    world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("**") });
    let reader = world.application(ApplicationSpec::originals("**"));
    world.try_run(secs(12))?;
    Ok(world.deliveries(reader).len())
}

#[test]
fn frames_that_are_no_originals_are_noticed_where_originals_are_wanted() {
    let came = read_originals(None).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(came >= 2, "{came} originals came");
    let failure = read_originals(Some(Bug::OriginalsForgotten)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "originals", "{failure}");
}

#[test]
fn a_chain_that_goes_on_for_who_has_lost_it_is_noticed() {
    assert_noticed_in_session(Bug::ChainLossForgotten, "decodable", &[(4, Ask::ChainsLost)]);
}

/// An application that wants no frames below its bounds, and then asks for bounds that no link can keep, until its end.
fn ends_in_want(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    // The end is a capture time, by the camera's clock.
    let clock =
        Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });
    let mut world = World::seeded_with(5, EdgeSpec { clock, ..EdgeSpec::default() });
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let spec = CameraSpec { clock, ..CameraSpec::filming(Footage::PEDESTRIANS).at_rate(mbps(2)) };
    world.camera("dock/cam1", spec);
    let contract = Contract {
        latency_bound: Some(secs(1)),
        accuracy_floor: Some(0.9),
        on_infeasible: OnInfeasible::Skip,
        ..Contract::default()
    };
    let hasty = Contract { latency_bound: Some(ms(2)), ..contract.clone() };
    let spec = ApplicationSpec { contract, end_after_ms: Some(8_000), ..ApplicationSpec::newest("dock/*") };
    let reader = world.application(spec);
    world.asks_at(Moment::START + secs(4), reader, Ask::Update(hasty));
    world.try_run(secs(12))?;
    let withheld: u64 = world.rest(reader).iter().map(|(_, skipped, _)| skipped.total()).sum();
    assert!(bug.is_some() || world.has_ended(reader) && withheld > 0, "nothing was withheld at the end");
    Ok(())
}

#[test]
fn a_rest_that_is_not_told_is_noticed() {
    if let Err(failure) = ends_in_want(None) {
        panic!("{failure}");
    }
    let failure = ends_in_want(Some(Bug::RestForgotten)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "rests", "{failure}");
}

/// A camera whose source is lost for five seconds in the middle.
fn unplugged(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(9);
    if let Some(bug) = bug {
        world.plant(bug);
    }
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.application(ApplicationSpec::newest("dock/*"));
    world.at(Moment::START + secs(6), Action::LoseSource(dock));
    world.at(Moment::START + secs(11), Action::Publish(dock));
    world.try_run(secs(16))
}

#[test]
fn a_lost_source_that_is_not_told_is_noticed() {
    if let Err(failure) = unplugged(None) {
        panic!("{failure}");
    }
    let failure = unplugged(Some(Bug::SourceUntold)).expect_err("it has to be noticed");
    assert_eq!(failure.violation.rule, "source", "{failure}");
}
