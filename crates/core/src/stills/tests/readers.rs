//! Readers at several places of a chain.

use super::*;

/// Slow readers of every frame, each at another place of a chain, share one decoder. It decodes the chain a few times, not once for each still.
#[test]
fn readers_at_many_places_are_served_with_several_stills_at_a_visit() {
    const READERS: usize = 6;
    const TAKEN: u64 = 32;
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..300 {
        rig.comes(sequence == 0, false);
    }
    let mut next: Vec<u64> = (0..READERS as u64).map(|reader| 20 + 45 * reader).collect();
    let ends: Vec<u64> = next.iter().map(|first| first + TAKEN).collect();
    let mut asked: Vec<Option<u64>> = vec![None; READERS];
    while next != ends {
        for reader in (0..READERS).filter(|reader| next[*reader] < ends[*reader]).collect::<Vec<_>>() {
            let question = *asked[reader].get_or_insert_with(|| rig.ask(next[reader]));
            if let Some(answer) = rig.answers.get(&question) {
                assert_eq!(*answer, Some(next[reader]));
                next[reader] += 1;
                asked[reader] = None;
            }
        }
        rig.work();
    }
    let decoded: u32 = rig.decoded.values().sum();
    assert!(decoded <= 300 * 5, "{decoded} frames were decoded for {} stills", TAKEN * READERS as u64);
}

/// Two readers take every frame of their chains as fast as stills are made, so both decoders always have stills to make
/// ahead. A reader that waits elsewhere is still served, also with the newest frame, long before those chains end.
#[test]
fn who_waits_elsewhere_is_served_while_others_take_all_that_is_made() {
    for newest in [false, true] {
        let mut rig = Rig::new(1 << 20);
        for sequence in 0..605 {
            rig.comes(sequence % 300 == 0, false);
        }
        let mut takes: [(u64, u64); 2] = [(0, rig.ask(0)), (300, rig.ask(300))];
        let mut waits = None;
        for round in 0..400 {
            for (frame, question) in &mut takes {
                if rig.answers.contains_key(question) {
                    *frame += 1;
                    *question = rig.ask(*frame);
                }
            }
            if round == 60 {
                waits = Some(rig.ask_as(604, newest));
            }
            if waits.is_some_and(|waits| rig.answers.contains_key(&waits)) {
                break;
            }
            rig.work();
        }
        assert_eq!(rig.answers.get(&waits.unwrap()), Some(&Some(604)), "newest: {newest}");
        assert!(takes.iter().all(|(frame, _)| frame % 300 < 100), "before their chains end: {takes:?}");
    }
}
