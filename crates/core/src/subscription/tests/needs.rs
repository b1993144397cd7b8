//! Tests of which grants a request needs, and that no request gives the past to an application that may only watch.

use super::*;
use crate::history::PastOptions;
use crate::rights::Verb;

const NOW: Timestamp = Timestamp::from_nanos(1_000 * 1_000_000_000);

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn spec(begin: Option<u64>, end: Option<u64>, past: PastOptions) -> SubscriptionSpec {
    let span = Span { begin: begin.map(seconds), end: end.map(seconds), deliver: Deliver::Every };
    SubscriptionSpec { past, ..SubscriptionSpec::new("dock/*".parse().unwrap(), span) }
}

/// The newest frames as they are published.
fn newest(past: PastOptions) -> SubscriptionSpec {
    SubscriptionSpec { past, ..SubscriptionSpec::live("dock/*".parse().unwrap()) }
}

#[test]
fn each_request_needs_what_it_gets() {
    use Verb::{Originals, Read, Watch};
    let small = PastOptions { quality: Some("jpeg/w640/q70/420".parse().unwrap()), ..PastOptions::ALL };
    let original = PastOptions::ORIGINALS;
    let held = PastOptions { tier_max: Tier::Disk, ..PastOptions::ALL };
    let cases: [(_, &[Verb]); 12] = [
        (spec(None, None, PastOptions::ALL), &[Watch]),
        (spec(None, Some(2_000), PastOptions::ALL), &[Watch]),
        (spec(Some(900), Some(950), held), &[Read]),
        (spec(Some(900), Some(950), small), &[Read]),
        (spec(Some(900), Some(950), original), &[Read, Originals]),
        (spec(Some(900), Some(950), PastOptions::ALL), &[Read, Originals]),
        // The application's clock may be ahead of ours.
        (spec(Some(900), Some(1_010), held), &[Read]),
        (spec(Some(900), None, held), &[Watch, Read]),
        (spec(Some(1_500), None, held), &[Watch, Read]),
        (spec(Some(1_500), None, PastOptions::ALL), &[Watch, Read, Originals]),
        (spec(None, None, PastOptions::FILLED), &[Watch, Read, Originals]),
        (newest(original), &[Watch, Originals]),
    ];
    for (spec, verbs) in cases {
        assert_eq!(spec.needs(NOW), verbs, "{:?} {:?}", spec.span, spec.past);
    }
}

/// An application that names a future beginning, and a frame that it claims to have, gets every frame published
/// since then. So does an application whose beginning is behind a camera's fast clock. Both therefore need `read`.
#[test]
fn whoever_may_only_watch_gets_nothing_of_the_past() {
    let first = LastFrame { id: FrameId { epoch: Epoch(1), sequence: Sequence(0) }, captured: None };
    let claims = |begin: Option<u64>| SubscriptionSpec {
        after: vec![("dock/cam1".parse().unwrap(), first)],
        ..spec(begin, None, PastOptions { tier_max: Tier::Memory, ..PastOptions::ALL })
    };
    let given = |spec: &SubscriptionSpec| {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(1 << 20));
        for sequence in 0..10 {
            append(&mut writer, 1, sequence, 900_000_000_000 + sequence, &[]);
        }
        // The camera's clock is ahead.
        append(&mut writer, 1, 10, 2_000_000_000_000, &[]);
        let mut reading = Subscription::with_past(spec.span, spec.past).resuming_after(spec.after.clone());
        reading.attach("dock/cam1".parse().unwrap(), reader);
        std::iter::from_fn(|| match reading.next(NOW) {
            Next::Frame(delivery) => Some(delivery.record.frame.meta.id.sequence.0),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    let ahead = spec(Some(1_500), None, PastOptions { tier_max: Tier::Memory, ..PastOptions::ALL });
    let cases = [
        (spec(None, None, PastOptions::default()), vec![]),
        (claims(None), vec![]),
        (claims(Some(1_000)), (1..=10).collect()),
        (claims(Some(1_500)), (1..=10).collect()),
        (ahead, vec![10]),
    ];
    for (spec, past) in cases {
        assert_eq!(given(&spec), past, "{:?} {:?}", spec.span, spec.after);
        let may_read = spec.needs(NOW).contains(&Verb::Read);
        assert!(may_read || past.is_empty(), "{:?} gives {past:?} to somebody who may not read", spec.span);
    }
}
