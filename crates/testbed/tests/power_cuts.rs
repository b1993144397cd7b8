//! A log on disk keeps its promises, however its broker and its power end. Each bug that breaks a promise is detected.

use mez_testbed::disk::{DiskBug, DiskStory, Played};

/// The number of power cuts in these tests. `MEZ_POWER_CUTS=5000 cargo test -p mez-testbed --test power_cuts` runs more.
fn power_cuts() -> u64 {
    std::env::var("MEZ_POWER_CUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

#[test]
fn a_log_survives_power_cuts_kills_and_failing_disks() {
    let (mut total, mut seed) = (Played::default(), 0);
    while total.power_cuts < power_cuts() {
        seed += 1;
        let played = DiskStory::seeded(seed).play().unwrap_or_else(|broken| panic!("{broken}"));
        total.power_cuts += played.power_cuts;
        total.frames += played.frames;
        total.recovered += played.recovered;
        total.confirmed += played.confirmed;
        total.damaged += played.damaged;
        total.lost += played.lost;
    }
    println!("{total:?}");
    // Stories in which nothing comes back, nothing tears and nothing is lost would show nothing.
    assert!(total.recovered > total.frames / 4 && total.confirmed > total.frames / 20, "{total:?}");
    assert!(total.damaged > power_cuts() / 20 && total.lost > 0, "{total:?}");
}

/// Bytes that rot between two lives cost only the records that they belong to, and all losses are stated.
#[test]
fn a_log_that_rots_loses_what_has_rotted() {
    let (mut rotted, mut recovered) = (0, 0);
    for seed in 1..=power_cuts() / 10 {
        let played = DiskStory::seeded(seed).rotting().play().unwrap_or_else(|broken| panic!("{broken}"));
        (rotted, recovered) = (rotted + played.rotted, recovered + played.recovered);
    }
    assert!(rotted > power_cuts() / 5 && recovered > rotted * 10, "{rotted} times, {recovered} records");
}

/// Pictures of a source's own video, with data records between them. Power cuts and rotten bytes cost the rest of a chain, which readers of stills
/// and a starting replica state. The next chain is whole.
#[test]
fn a_log_of_chains_loses_what_needs_what_is_lost() {
    let mut total = Played::default();
    for seed in 1..=power_cuts() / 5 {
        let story = DiskStory::seeded(seed).filming();
        let story = if seed % 2 == 0 { story.rotting() } else { story };
        let played = story.play().unwrap_or_else(|broken| panic!("{broken}"));
        total.power_cuts += played.power_cuts;
        total.rotted += played.rotted;
        total.not_decoded += played.not_decoded;
        total.recovered += played.recovered;
    }
    println!("{total:?}");
    assert!(total.power_cuts > power_cuts() / 2 && total.rotted > power_cuts() / 10, "{total:?}");
    assert!(total.not_decoded > total.rotted && total.recovered > total.not_decoded, "{total:?}");
}

/// How a bug is detected at the first seed that detects it.
fn noticed(bug: DiskBug) -> Option<String> {
    (1..=60).find_map(|seed| DiskStory::seeded(seed).planted(bug).play().err())
}

fn assert_noticed(bug: DiskBug, words: &[&str]) {
    let broken = noticed(bug).unwrap_or_else(|| panic!("{bug:?} goes unnoticed"));
    let right = words.iter().any(|words| broken.contains(words));
    assert!(right, "{bug:?} is taken for something else: {broken}");
}

#[test]
fn a_sync_that_is_skipped_is_noticed() {
    assert_noticed(DiskBug::SkippedSync, &["said to be durable", "taken for an older copy"]);
}

#[test]
fn an_acknowledgement_before_the_sync_is_noticed() {
    assert_noticed(DiskBug::EarlyAnswer, &["said to be durable"]);
}

#[test]
fn a_wrong_nonce_is_noticed() {
    assert_noticed(DiskBug::WrongNonce, &["not authentic"]);
}

#[test]
fn an_index_that_is_off_by_one_is_noticed() {
    assert_noticed(DiskBug::IndexOffByOne, &["in the place of record"]);
}

#[test]
fn pixels_in_the_clear_are_noticed() {
    assert_noticed(DiskBug::Plaintext, &["in the clear"]);
}

#[test]
fn a_salt_that_is_used_again_is_noticed() {
    assert_noticed(DiskBug::SameSalt, &["the salt of another"]);
}

#[test]
fn expiry_that_is_forgotten_is_noticed() {
    assert_noticed(DiskBug::ForgottenExpiry, &["had gone, and is back"]);
}

#[test]
fn a_checksum_that_is_not_checked_is_noticed() {
    assert_noticed(DiskBug::UncheckedChecksum, &["passes its checksum"]);
}

#[test]
fn records_that_are_served_after_damage_are_noticed() {
    assert_noticed(DiskBug::ServedAfterDamage, &["missing without a word", "older copy"]);
}
