//! Which certificates a list denies, which list is valid, and that no bytes are taken for another list than they are.

use proptest::prelude::*;

use super::*;
use crate::units::Timestamp;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn entry(since: u64, until: u64) -> Entry {
    Entry { since: at(since), until: at(until), because: "stolen".into() }
}

fn subject(text: &str) -> Subject {
    text.parse().unwrap()
}

fn certificate(member: &str, serial: &str, issued: u64) -> Certificate {
    Certificate { member: member.parse().unwrap(), serial: serial.parse().unwrap(), issued: at(issued) }
}

fn revoked(what: &[(&str, u64)]) -> Revocations {
    let list = Revocations::none("harbour");
    let next = |list: Revocations, (text, since): &(&str, u64)| {
        list.with(at(*since), subject(text), entry(*since, 10_000)).unwrap()
    };
    what.iter().fold(list, next)
}

#[test]
fn a_member_that_joins_again_is_accepted_and_what_it_had_before_is_not() {
    let list = revoked(&[("camera/dock", 100), ("0a:FF", 50)]);
    let denied = |member, serial, issued| list.denies(&certificate(member, serial, issued)).is_some();
    assert!(denied("camera/dock", "01", 99));
    assert!(denied("camera/dock", "01", 100), "certificates have whole seconds");
    assert!(!denied("camera/dock", "01", 101));
    // Other members are not denied, even with similar names.
    assert!(!denied("camera/dock/cam1", "01", 99) && !denied("app/dock", "01", 99));
    // A serial number is denied for every member and every time of issue.
    assert!(denied("camera/dock", "aff", 500) && denied("app/x", "0aff", 0));
    assert!(!denied("app/x", "ff", 0) && !denied("app/x", "0aff00", 0));
    let denial = list.denies(&certificate("app/x", "aff", 0)).unwrap().to_string();
    assert!(denial.contains("app/x with the serial 0aff was revoked (stolen)"), "{denial}");
    assert!(denial.contains("`mez keys token app/x`"), "{denial}");
}

/// The clock of the signing host may have been set back in between, or another host signs.
#[test]
fn a_member_that_is_revoked_again_loses_what_it_was_given_since_by_any_clock() {
    let denied = |list: &Revocations, issued| {
        let certificate = Certificate { issued, ..certificate("app/wall", "01", 0) };
        list.denies(&certificate).is_some()
    };
    let once = revoked(&[("app/wall", 100)]);
    let let_in = Timestamp::from_nanos(at(100).as_nanos() + 1);
    assert!(!denied(&once, let_in));
    for second in [0, 40, 100, 101, 200] {
        let twice = revoked(&[("app/wall", 100), ("app/wall", second)]);
        assert!(denied(&twice, let_in), "revoked again at {second} s");
        assert_eq!(twice.get(&subject("app/wall")).unwrap().since, at(second.max(101)));
    }
}

#[test]
fn only_a_newer_list_takes_the_place_of_another() {
    let (one, two) = (revoked(&[("app/a", 1)]), revoked(&[("app/a", 1), ("app/b", 2)]));
    let none = Revocations::none("harbour");
    assert_eq!((none.version(), one.version(), two.version()), (0, 1, 2));
    assert_eq!(none.judge(&one), Offer::Newer);
    assert_eq!(one.judge(&two), Offer::Newer);
    assert_eq!(two.judge(&one), Offer::Older, "what was revoked cannot be brought back");
    assert_eq!(two.judge(&none), Offer::Older);
    assert_eq!(two.judge(&two.clone()), Offer::Same);
    assert_eq!(one.judge(&revoked(&[("app/b", 1)])), Offer::Conflict);
}

#[test]
fn taking_off_is_a_newer_list() {
    let one = revoked(&[("app/a", 1), ("0a", 2)]);
    let off = one.without(&subject("app/a")).unwrap();
    assert_eq!(one.judge(&off), Offer::Newer);
    assert_eq!(off.denies(&certificate("app/a", "01", 0)), None);
    assert!(off.denies(&certificate("app/a", "0a", 0)).is_some());
    assert_eq!(off.without(&subject("app/a")), None);
    assert_eq!(off.get(&subject("0a")), one.get(&subject("0a")));
}

#[test]
fn entries_go_when_their_room_is_needed_and_their_certificates_have_expired() {
    let mut list = Revocations::none("harbour");
    let serial = |n: usize| subject(&format!("{:x}", n + 1));
    for n in 0..ENTRIES_MAX {
        list = list.with(at(1), serial(n), entry(1, if n < 3 { 50 } else { 1_000 })).unwrap();
    }
    // No entry was removed while there was room.
    assert_eq!(list.len(), ENTRIES_MAX);
    assert_eq!(list.with(at(49), subject("app/x"), entry(49, 1_000)), Err(ListFull));
    let next = list.with(at(51), subject("app/x"), entry(51, 1_000)).unwrap();
    assert_eq!(next.len(), ENTRIES_MAX - 2);
    assert!(next.get(&serial(2)).is_none() && next.get(&serial(3)).is_some());
    assert!(next.encode().len() <= LIST_BYTES_MAX);

    let long = Entry { because: "x".repeat(500), ..entry(1, 1_000) };
    let mut wordy = Revocations::none("harbour");
    let full = (0..ENTRIES_MAX).find_map(|n| {
        let next = wordy.with(at(1), serial(n), long.clone());
        next.map(|next| wordy = next).err()
    });
    assert_eq!(full, Some(ListFull), "reasons take room as well");
    assert!(wordy.entries().all(|(_, entry)| entry.because.len() == BECAUSE_BYTES_MAX));
}

#[test]
fn what_cannot_be_revoked_is_told_how_to_be_written() {
    for bad in ["", "dock", "xyz", "0g", "00", ":", "camera", &"f".repeat(41)] {
        let error = bad.parse::<Subject>().expect_err(bad).to_string();
        assert!(error.contains("camera/NAME") && error.contains("serial"), "{bad}: {error}");
    }
    for bad in ["camera/", "/dock", "user/1000", "app/*", "spiffe://harbour/app/x", "app/a b"] {
        let error = bad.parse::<Subject>().expect_err(bad).to_string();
        assert!(error.contains("app/NAME"), "{bad}: {error}");
    }
    assert_eq!(subject("00:0A").to_string(), "0a");
    assert_eq!(subject("app/counter").to_string(), "app/counter");
}

fn a_list() -> impl Strategy<Value = Revocations> {
    let name = prop_oneof![
        "[0-9a-f]{1,40}".prop_filter("zero", |text| text.parse::<Subject>().is_ok()),
        "(camera|edge|app)/[a-z]{1,9}(/[a-z]{1,9})?",
    ];
    let one = (name, any::<u64>(), any::<u64>(), ".{0,9}");
    prop::collection::vec(one, 1..9).prop_map(|all| {
        all.into_iter().fold(Revocations::none("harbour"), |list, (text, since, until, because)| {
            let (since, until) = (Timestamp::from_nanos(since), Timestamp::from_nanos(until));
            list.with(at(0), subject(&text), Entry { since, until, because }).unwrap()
        })
    })
}

proptest! {
    #[test]
    fn a_list_reads_back_and_a_cut_one_does_not(list in a_list(), cut in any::<prop::sample::Index>()) {
        let bytes = list.encode();
        prop_assert_eq!(Revocations::decode(&bytes).unwrap(), list);
        prop_assert!(Revocations::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert!(Revocations::decode(&longer).is_err());
    }

    #[test]
    fn what_is_read_is_written_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(list) = Revocations::decode(&bytes) {
            prop_assert_eq!(list.encode(), bytes);
        }
    }

    #[test]
    fn one_changed_byte_is_read_as_another_list_or_not_at_all(list in a_list(), place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = list.encode();
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8 << bit;
        if let Ok(read) = Revocations::decode(&bytes) {
            prop_assert_ne!(read, list);
        }
    }
}
