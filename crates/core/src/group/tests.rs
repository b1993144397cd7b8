//! Tests of groups' records: which member gets them, and how they end.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::frame::{Epoch, Sequence};

const A: MemberId = MemberId(1);
const B: MemberId = MemberId(2);
const C: MemberId = MemberId(3);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(10) + Duration::from_millis(ms)
}

fn camera(number: u8) -> CameraName {
    format!("dock/cam{number}").parse().unwrap()
}

fn frame(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

/// A group with members, each with the number of records that it can take.
fn group(options: GroupOptions, members: &[(MemberId, u32)]) -> Group {
    let mut group = Group::new(at(0), options, Place::new());
    for (member, free) in members {
        group.handle_join(*member).unwrap();
        group.handle_ready(*member, *free).unwrap();
    }
    group
}

/// The record that is given again now, if every record is found.
fn again(group: &mut Group, now: Instant) -> Option<Given> {
    group.handle_timeout(now);
    let (camera, frame) = group.poll_again()?;
    group.give_again(now, &camera, frame)
}

/// How records have ended, in order.
fn ends(group: &mut Group) -> Vec<(u64, End)> {
    let changes = std::iter::from_fn(|| group.poll_change());
    let ends = changes.filter_map(|change| match change {
        Change::Settled { frame, end, .. } => Some((frame.sequence.0, end)),
        _ => None,
    });
    ends.collect()
}

#[test]
fn each_record_goes_to_the_member_that_is_free() {
    let mut group = group(GroupOptions::EVERY, &[(A, 1), (B, 2)]);
    let to = |given: Option<Given>| given.map(|given| given.member);
    assert_eq!(to(group.give(at(0), &camera(1), frame(0))), Some(A));
    assert_eq!(to(group.give(at(0), &camera(2), frame(0))), Some(B));
    assert_eq!(to(group.give(at(0), &camera(1), frame(1))), Some(B), "A works, B can take another");
    assert!(!group.wants(&camera(1)));
    assert_eq!(group.give(at(0), &camera(1), frame(2)), None, "nobody is free");
    assert_eq!(group.handle_done(A, &camera(1), frame(0)), Ok(Acknowledged::Settled));
    group.handle_ready(A, 1).unwrap();
    assert_eq!(to(group.give(at(1), &camera(1), frame(2))), Some(A));
    assert_eq!(group.give(at(1), &camera(1), frame(1)), None, "it was given before");
}

#[test]
fn a_record_whose_member_says_nothing_is_given_to_another() {
    let mut group = group(GroupOptions::EVERY, &[(A, 1), (B, 0)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    group.handle_ready(B, 1).unwrap();
    assert_eq!(again(&mut group, at(29_999)), None, "A still has time");
    assert_eq!(group.poll_timeout(), Some(at(30_000)));
    let second = again(&mut group, at(30_000)).unwrap();
    assert_eq!((second.member, second.attempt), (B, 2));
    assert_eq!(group.handle_done(A, &camera(1), frame(0)), Ok(Acknowledged::Settled), "late work is work");
    assert_eq!(group.handle_done(B, &camera(1), frame(0)), Ok(Acknowledged::Again));
    assert_eq!(ends(&mut group), [(0, End::Done(A))]);
}

#[test]
fn a_member_whose_connection_was_lost_may_come_back_for_a_second() {
    let mut group = group(GroupOptions::EVERY, &[(A, 1), (B, 1)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    group.handle_away(at(100), A);
    assert_eq!(again(&mut group, at(1_099)), None);
    group.handle_join(A).unwrap();
    assert_eq!(again(&mut group, at(2_000)), None, "A is back, and has its record still");
    group.handle_away(at(2_000), A);
    assert_eq!(again(&mut group, at(3_000)).map(|given| given.member), Some(B));
}

/// A record that was on its way when a connection was lost reaches nobody. It is given again without waiting for its time to pass.
#[test]
fn what_has_not_reached_a_member_that_is_back_is_given_again_at_once() {
    let mut group = group(GroupOptions::EVERY, &[(A, 3), (B, 1)]);
    for sequence in 0..3 {
        group.give(at(0), &camera(1), frame(sequence)).unwrap();
    }
    let of_a: Vec<_> =
        (0..3).map(frame).filter(|frame| group.place().holders(&camera(1), *frame) == [A]).collect();
    group.handle_away(at(100), A);
    group.handle_join(A).unwrap();
    group.handle_holds(A, &BTreeSet::from([(camera(1), of_a[0])]));
    group.handle_ready(A, 1).unwrap();
    let back = again(&mut group, at(200)).unwrap();
    assert_eq!((back.member, back.frame, back.attempt), (A, of_a[1], 2));
    assert_eq!(again(&mut group, at(200)), None, "A has the other one");
    assert_eq!(group.account().left, 1);
}

/// A driver passes on little by little that a member is free. That does not settle the records that the member has.
#[test]
fn room_says_nothing_of_what_a_member_has() {
    let mut group = group(GroupOptions::NEWEST, &[(A, 1)]);
    group.give(at(0), &camera(1), frame(3)).unwrap();
    group.handle_room(A, 1).unwrap();
    group.give(at(1), &camera(2), frame(4)).unwrap();
    assert_eq!(ends(&mut group), []);
    group.handle_ready(A, 0).unwrap();
    assert_eq!(ends(&mut group), [(3, End::Done(A)), (4, End::Done(A))]);
    assert_eq!(group.handle_room(C, 1), Err(GroupError::NoMember(3)));
}

#[test]
fn a_record_that_nobody_can_work_on_becomes_a_dead_letter_with_the_last_error() {
    let options = GroupOptions { tries_max: 3, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 9), (B, 9)]);
    let mut given = group.give(at(0), &camera(1), frame(0));
    let mut tried = Vec::new();
    while let Some(record) = given {
        tried.push(record.member);
        group.handle_failed(record.member, &camera(1), frame(0), "no such model").unwrap();
        given = again(&mut group, at(1));
    }
    assert_eq!(tried, [A, B, A], "somebody else tries it next");
    let last = Failure::Told("no such model".into());
    assert_eq!(ends(&mut group), [(0, End::Dead { tries: 3, last })]);
    assert_eq!(group.handle_done(A, &camera(1), frame(0)), Ok(Acknowledged::Again), "too late");
}

#[test]
fn a_record_that_is_gone_when_it_should_be_given_again_is_lost_and_told() {
    let mut group = group(GroupOptions::EVERY, &[(A, 1), (B, 1)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    group.handle_gone(&camera(1), frame(0), LostReason::Evicted);
    assert_eq!(ends(&mut group), [], "A works on it");
    group.handle_leave(A);
    assert_eq!(group.poll_again(), Some((camera(1), frame(0))));
    group.handle_gone(&camera(1), frame(0), LostReason::Evicted);
    group.handle_gone(&camera(1), frame(0), LostReason::Evicted);
    assert_eq!(ends(&mut group), [(0, End::Lost(LostReason::Evicted))]);
    assert_eq!(group.members().map(|(member, open, _)| (member, open)).collect::<Vec<_>>(), [(B, 0)]);
}

#[test]
fn nobody_settles_what_others_were_given() {
    let mut group = group(GroupOptions::EVERY, &[(A, 1), (B, 1)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    for frame in [frame(0), frame(1)] {
        let refused = group.handle_done(B, &camera(1), frame).unwrap_err();
        assert_eq!(refused, GroupError::NotGiven { camera: camera(1), frame });
        assert!(group.handle_failed(B, &camera(1), frame, "").is_err());
    }
    assert_eq!(group.handle_ready(C, 1), Err(GroupError::NoMember(3)));
    assert_eq!(group.place().open_count(), 1);
}

#[test]
fn with_order_a_camera_has_one_record_at_work_and_others_go_on() {
    let options = GroupOptions { ordered: true, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 9), (B, 9)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    assert!(!group.wants(&camera(1)) && group.wants(&camera(2)));
    group.handle_leave(A);
    assert!(!group.wants(&camera(1)), "the first one comes again before the second");
    assert_eq!(again(&mut group, at(0)).map(|given| given.frame), Some(frame(0)));
    group.handle_done(B, &camera(1), frame(0)).unwrap();
    assert!(group.wants(&camera(1)));
}

/// A was too slow, but settles the record first all the same. B still works on the record, so the next one has to wait for B.
#[test]
fn with_order_the_next_record_waits_for_everybody_who_works_on_the_one_before() {
    let options = GroupOptions { ordered: true, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 9), (B, 9)]);
    group.give(at(0), &camera(1), frame(0)).unwrap();
    assert_eq!(again(&mut group, at(30_000)).map(|given| given.member), Some(B));
    assert_eq!(group.handle_done(A, &camera(1), frame(0)), Ok(Acknowledged::Settled));
    assert!(!group.wants(&camera(1)), "B works on it");
    assert_eq!(group.handle_done(B, &camera(1), frame(0)), Ok(Acknowledged::Again));
    assert!(group.wants(&camera(1)));
    let account = group.account();
    assert_eq!((account.given, account.given_again, account.done, account.again), (1, 1, 1, 1));
    assert_eq!(account.silent, 1);
}

#[test]
fn who_settles_nothing_gets_nothing_more_and_that_can_be_told() {
    let options = GroupOptions { open_max: 2, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 1_000_000)]);
    for sequence in 0..2 {
        assert!(!group.is_held_back());
        group.give(at(0), &camera(1), frame(sequence)).unwrap();
    }
    group.handle_ready(A, 5).unwrap();
    assert!(group.is_held_back() && !group.wants(&camera(2)));
    assert_eq!(group.give(at(0), &camera(1), frame(2)), None);
    let long = "x".repeat(5_000);
    group.handle_failed(A, &camera(1), frame(0), &long).unwrap();
    group.handle_done(A, &camera(1), frame(1)).unwrap();
    assert!(!group.is_held_back() && group.wants(&camera(1)));
}

/// The member hangs at the only record that may be open, and has said that it can take another: that counts.
#[test]
fn a_member_that_hangs_is_given_the_record_again_in_its_other_place() {
    let options = GroupOptions { open_max: 1, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 2)]);
    let first = group.give(at(0), &camera(1), frame(0)).unwrap();
    let late = at(0) + options.again_after;
    let second = again(&mut group, late).expect("A has another place");
    assert_eq!((first.member, second.member, second.attempt), (A, A, 2));
    assert_eq!(again(&mut group, late + options.again_after), None, "it has no third");
}

#[test]
fn dead_letters_are_kept_with_their_errors_and_bounded() {
    let options = GroupOptions { tries_max: 1, ..GroupOptions::EVERY };
    let mut group = group(options, &[(A, 1)]);
    for sequence in 0..DEAD_LETTERS_MAX as u64 + 5 {
        group.give(at(0), &camera(1), frame(sequence)).unwrap();
        group.handle_failed(A, &camera(1), frame(sequence), &"é".repeat(ERROR_BYTES_MAX)).unwrap();
        group.handle_ready(A, 1).unwrap();
    }
    let account = group.account();
    assert_eq!((account.dead, account.dead_letters.len()), (105, DEAD_LETTERS_MAX));
    let Failure::Told(error) = &account.dead_letters[0].last else { panic!("{account:?}") };
    assert_eq!((account.dead_letters[0].frame, error.len()), (frame(5), ERROR_BYTES_MAX));
}

#[test]
fn a_camera_that_is_forgotten_takes_its_records_along() {
    let mut group = group(GroupOptions::EVERY, &[(A, 2)]);
    group.give(at(0), &camera(1), frame(7)).unwrap();
    group.handle_forgotten(&camera(1));
    assert_eq!(group.handle_done(A, &camera(1), frame(7)).unwrap_err().to_string(), {
        "frame 7 of dock/cam1 was not given to this member; only its own records can be acknowledged"
    });
    assert_eq!(ends(&mut group), [(7, End::Lost(LostReason::Forgotten))]);
    assert!(group.give(at(0), &camera(1), frame(7)).is_some(), "it counts its frames anew");
}

#[test]
fn the_newest_are_given_once_and_lost_with_their_member() {
    let mut group = group(GroupOptions::NEWEST, &[(A, 1), (B, 1)]);
    group.give(at(0), &camera(1), frame(3)).unwrap();
    group.give(at(0), &camera(2), frame(7)).unwrap();
    group.handle_ready(A, 1).unwrap();
    assert_eq!(again(&mut group, at(100_000)), None, "there is no time in which it has to be done");
    group.handle_leave(B);
    assert_eq!(again(&mut group, at(100_000)), None);
    assert_eq!(ends(&mut group), [(3, End::Done(A)), (7, End::Lost(LostReason::MemberLeft))]);
}

#[test]
fn a_failure_in_a_group_of_the_newest_is_a_dead_letter_at_once() {
    let mut group = group(GroupOptions::NEWEST, &[(A, 1)]);
    group.give(at(0), &camera(1), frame(2)).unwrap();
    group.handle_failed(A, &camera(1), frame(2), "no such model").unwrap();
    let last = Failure::Told("no such model".into());
    assert_eq!(ends(&mut group), [(2, End::Dead { tries: 1, last })]);
}

#[test]
fn a_group_goes_on_where_it_was_and_waits_a_second_for_its_members() {
    let mut before = group(GroupOptions::EVERY, &[(A, 2), (B, 1)]);
    for sequence in 0..3 {
        before.give(at(0), &camera(1), frame(sequence)).unwrap();
    }
    before.handle_done(A, &camera(1), frame(0)).unwrap();
    let mut written = Place::new();
    while let Some(change) = before.poll_change() {
        written.apply(&change);
    }
    assert_eq!(&written, before.place());

    let mut after = Group::new(at(5_000), GroupOptions::EVERY, written);
    let behind: Vec<_> = after.place().after().map(|(camera, last)| (camera, last.id)).collect();
    assert_eq!(behind, [(camera(1), frame(2))]);
    after.handle_join(C).unwrap();
    after.handle_ready(C, 9).unwrap();
    after.handle_join(B).unwrap();
    assert_eq!(again(&mut after, at(5_999)), None);
    let held_by_a = (0..3).map(frame).find(|frame| before.place().holders(&camera(1), *frame) == [A]);
    let back = again(&mut after, at(6_000)).unwrap();
    assert_eq!((back.member, Some(back.frame)), (C, held_by_a), "B is back with its own, A is not");
    assert_eq!(again(&mut after, at(6_000)), None);
}

/// What may happen to a group.
#[derive(Clone, Debug)]
enum Step {
    Join(u8),
    Leave(u8),
    Away(u8),
    Ready(u8, u32),
    Record(u8),
    Done(u8, u8),
    Failed(u8, u8),
    Gone(u8),
    Pass(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let member = || 0..4u8;
    let step = prop_oneof![
        2 => member().prop_map(Step::Join),
        1 => member().prop_map(Step::Leave),
        1 => member().prop_map(Step::Away),
        4 => (member(), 1..4u32).prop_map(|(who, free)| Step::Ready(who, free)),
        8 => (0..3u8).prop_map(Step::Record),
        6 => (member(), 0..6u8).prop_map(|(who, which)| Step::Done(who, which)),
        2 => (member(), 0..6u8).prop_map(|(who, which)| Step::Failed(who, which)),
        1 => (0..6u8).prop_map(Step::Gone),
        3 => (0..2_000u64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

/// A group, and a model of the group as its members see it.
struct Model {
    group: Group,
    options: GroupOptions,
    now: u64,
    next: [u64; 3],
    /// Which member works on a record, and until when no other member may.
    at_work: BTreeMap<Key, (MemberId, u64)>,
    settled: BTreeMap<Key, End>,
    written: Place,
}

impl Model {
    fn new(options: GroupOptions) -> Self {
        let group = Group::new(at(0), options, Place::new());
        let (at_work, settled) = (BTreeMap::new(), BTreeMap::new());
        Self { group, options, now: 0, next: [0; 3], at_work, settled, written: Place::new() }
    }

    fn ms(duration: Duration) -> u64 {
        duration.as_millis().try_into().unwrap()
    }

    fn gone_within(&mut self, member: MemberId, ms: u64) {
        for (_, until) in self.at_work.values_mut().filter(|(holder, _)| *holder == member) {
            *until = (*until).min(self.now + ms);
        }
    }

    /// An open record, chosen by a number.
    fn any(&self, which: u8) -> Option<Key> {
        let open: Vec<Key> =
            self.group.place().open().map(|(camera, frame)| (camera.clone(), frame)).collect();
        (!open.is_empty()).then(|| open[usize::from(which) % open.len()].clone())
    }

    fn given(&mut self, given: Option<Given>) {
        let Some(given) = given else { return };
        let key = (given.camera, given.frame);
        assert!(!self.settled.contains_key(&key), "{key:?} was settled");
        if let Some((holder, until)) = self.at_work.get(&key) {
            assert!(*until <= self.now, "{key:?} is with {holder:?} until {until}, now is {}", self.now);
        }
        if self.options.ordered {
            let works = |of: &&Key| of.0 == key.0 && **of != key;
            let others =
                self.group.place().open().filter(|(camera, frame)| works(&&((*camera).clone(), *frame)));
            assert_eq!(others.count(), 0, "another record of {} is open", key.0);
        }
        let until = self.now + Self::ms(self.options.again_after);
        self.at_work.insert(key, (given.member, until));
    }

    fn step(&mut self, step: Step) {
        let now = at(self.now);
        let id = |member: u8| MemberId(u128::from(member));
        match step {
            // The model accepts that a member that is back keeps its records no longer than if it were away.
            Step::Join(member) => self.group.handle_join(id(member)).unwrap(),
            Step::Leave(member) => {
                self.gone_within(id(member), 0);
                self.group.handle_leave(id(member));
            }
            Step::Away(member) => {
                self.gone_within(id(member), Self::ms(self.options.away_max));
                self.group.handle_away(now, id(member));
            }
            Step::Ready(member, free) => {
                let _ = self.group.handle_ready(id(member), free);
            }
            Step::Record(number) => {
                let next = self.next[usize::from(number)];
                if self.group.wants(&camera(number)) {
                    self.next[usize::from(number)] += 1;
                    let given = self.group.give(now, &camera(number), frame(next));
                    assert!(given.is_some(), "what is wanted is given");
                    self.given(given);
                }
            }
            Step::Done(member, which) => {
                if let Some((camera, frame)) = self.any(which) {
                    let had = self.group.place().holders(&camera, frame).contains(&id(member));
                    assert_eq!(self.group.handle_done(id(member), &camera, frame).is_ok(), had);
                }
            }
            Step::Failed(member, which) => {
                if let Some((camera, frame)) = self.any(which) {
                    let key = (camera, frame);
                    let is_its = self.at_work.get(&key).is_some_and(|(holder, _)| *holder == id(member));
                    if self.group.handle_failed(id(member), &key.0, frame, "broken").is_ok() && is_its {
                        self.at_work.remove(&key);
                    }
                }
            }
            Step::Gone(which) => {
                if let Some((camera, frame)) = self.any(which) {
                    self.gone(&camera, frame);
                }
            }
            Step::Pass(ms) => self.now += ms,
            Step::Restart => {
                self.written_down();
                for (_, until) in self.at_work.values_mut() {
                    *until = (*until).min(self.now + Self::ms(self.options.away_max));
                }
                self.group = Group::new(now, self.options, self.written.clone());
            }
        }
        self.group.handle_timeout(at(self.now));
        while let Some((camera, frame)) = self.group.poll_again() {
            let again = self.group.give_again(at(self.now), &camera, frame);
            assert!(again.is_some(), "somebody was free when it was looked for");
            self.given(again);
        }
        self.written_down();
    }

    /// A record is not found when the driver looks for it.
    fn gone(&mut self, camera: &CameraName, frame: FrameId) {
        self.group.handle_timeout(at(self.now));
        let looked_for: Vec<Key> = std::iter::from_fn(|| self.group.poll_again()).collect();
        for (of, other) in looked_for {
            match of == *camera && other == frame {
                true => self.group.handle_gone(&of, other, LostReason::Evicted),
                false => self.group.handle_put_off(&of, other),
            }
        }
    }

    fn written_down(&mut self) {
        while let Some(change) = self.group.poll_change() {
            let before: Vec<_> = self.written.after().collect();
            self.written.apply(&change);
            for (camera, last) in before {
                let now = self.written.after().find(|(of, _)| *of == camera);
                assert!(now.is_some_and(|(_, now)| now.id >= last.id), "the place of {camera} went back");
            }
            if let Change::Settled { camera, frame, end } = change {
                self.at_work.remove(&(camera.clone(), frame));
                let before = self.settled.insert((camera, frame), end);
                assert_eq!(before, None, "a record ends once");
            }
        }
        assert_eq!(&self.written, self.group.place());
        let mut shortest = Place::new();
        self.written.changes().iter().for_each(|change| shortest.apply(change));
        assert_eq!(shortest, self.written, "a journal can be replaced by a shorter one");
    }
}

proptest! {
    /// Every record that was given ends once. Two members have a record at once only if the first one's time is over.
    /// With order, one record of a camera is worked on at a time. The place never goes back, even over restarts.
    #[test]
    fn promises_hold_whatever_members_do(ordered: bool, steps in steps()) {
        let options = GroupOptions { ordered, open_max: 5, tries_max: 3, ..GroupOptions::EVERY };
        let mut model = Model::new(options);
        for step in steps {
            model.step(step);
        }
        // One working member ends all records.
        model.step(Step::Pass(40_000));
        model.step(Step::Join(9));
        for _ in 0..100 {
            model.step(Step::Ready(9, 1));
            while let Some((camera, frame)) = model.any(0) {
                let held = model.group.place().holders(&camera, frame).last() == Some(&MemberId(9));
                if !held {
                    break;
                }
                model.step(Step::Done(9, 0));
            }
            model.step(Step::Pass(31_000));
        }
        prop_assert_eq!(model.group.place().open_count(), 0);
        let given: u64 = model.next.iter().sum();
        prop_assert_eq!(model.settled.len() as u64, given);
    }
}
