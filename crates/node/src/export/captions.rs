//! Subtitles of a video: detections in the pictures, changes of contracts, and reasons for pauses.
//!
//! One subtitle is shown at a time. It lasts while its text stays the same, but it is split into pieces, so that none must be held back for long.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::contract::ContractState;

use super::said::{Due, Said};
use crate::notes::{NotedContract, NotedReply};
use crate::reply::ReplyContent;

/// The longest duration of one piece of a subtitle.
const PIECE_MAX: Duration = Duration::from_secs(2);
/// How long a subtitle stays after its last picture.
const AFTER_LAST: Duration = Duration::from_secs(1);
/// How long a new state of a contract, or the reason for a pause, is shown.
const CONTRACT_SHOWN: Duration = Duration::from_secs(3);

/// A text with its start and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caption {
    pub(super) at: Duration,
    pub(super) shown: Duration,
    pub(super) text: String,
}

/// Makes subtitles, picture by picture.
#[derive(Default)]
pub(super) struct Captions {
    /// The start of the current text, the time of its last picture, and the text.
    current: Option<(Duration, Duration, String)>,
    /// The state of each application's contract, and until when it is shown.
    contracts: BTreeMap<String, (String, Duration)>,
    /// The reason for the pause before the current picture, and until when it is shown.
    source: Option<(String, Duration)>,
}

impl Captions {
    /// Adds the picture at time `at`. Returns the subtitle that ends there.
    pub(super) fn add(&mut self, at: Duration, due: &Due, replies: &[Said<NotedReply>]) -> Option<Caption> {
        for Said { what: NotedContract { application, state, reason }, .. } in &due.contracts {
            let text = match state {
                ContractState::Ok => "ok".into(),
                _ => format!("{}: {reason}", state.name()),
            };
            self.contracts.insert(application.clone(), (text, at + CONTRACT_SHOWN));
        }
        self.contracts.retain(|_, (_, until)| at < *until);
        let gone = due.sources.iter().rev().find_map(|said| said.what.state.sentence(&said.what.reason));
        if let Some(sentence) = gone {
            self.source = Some((format!("no frames before this one: {sentence}"), at + CONTRACT_SHOWN));
        }
        self.source.take_if(|(_, until)| at >= *until);
        let found = replies.iter().filter_map(found);
        let stand = self.contracts.iter().map(|(application, (text, _))| format!("{application}: {text}"));
        let source = self.source.iter().map(|(text, _)| text.clone());
        let text = source.chain(found).chain(stand).collect::<Vec<_>>().join("\n");
        match &mut self.current {
            Some((since, last, current)) if *current == text && at - *since < PIECE_MAX => {
                *last = at;
                None
            }
            _ => {
                let ended = self.end(at);
                self.current = (!text.is_empty()).then_some((at, at, text));
                ended
            }
        }
    }

    /// The last subtitle.
    pub(super) fn finish(&mut self) -> Option<Caption> {
        self.end(Duration::MAX)
    }

    fn end(&mut self, at: Duration) -> Option<Caption> {
        let (since, last, text) = self.current.take()?;
        Some(Caption { at: since, shown: at.min(last + AFTER_LAST) - since, text })
    }
}

/// Counts by class, such as `counter: 2 person, 1 car`. `None` if the result is opaque or empty.
fn found(reply: &Said<NotedReply>) -> Option<String> {
    let NotedReply { application, content, .. } = &reply.what;
    let ReplyContent::Detections(found) = content else { return None };
    let mut classes: BTreeMap<String, u64> = BTreeMap::new();
    for item in found.items() {
        let name = match (item.class_name.as_str(), item.class_id) {
            ("", Some(id)) => format!("class {id}"),
            ("", None) => "found".into(),
            (name, _) => name.to_owned(),
        };
        *classes.entry(name).or_default() += 1;
    }
    let counts: Vec<String> = classes.iter().map(|(name, count)| format!("{count} {name}")).collect();
    (!counts.is_empty()).then(|| format!("{application}: {}", counts.join(", ")))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mez_core::frame::{Epoch, FrameId, Sequence};
    use mez_core::source::SourceState;
    use mez_core::units::Timestamp;

    use super::*;
    use crate::notes::NotedSource;
    use crate::reply::{Detection, Detections};

    fn reply(content: ReplyContent) -> Said<NotedReply> {
        let frame = FrameId { epoch: Epoch(1), sequence: Sequence(1) };
        let what = NotedReply { frame, captured: None, application: "counter".into(), content };
        Said { noted: Timestamp::MIN, what }
    }

    fn people(count: usize) -> Said<NotedReply> {
        let item = Detection { class_name: "person".into(), ..Detection::default() };
        reply(ReplyContent::Detections(Detections::new((64, 48), vec![item; count]).unwrap()))
    }

    fn contract(state: ContractState) -> Due {
        let (application, reason) = ("counter".into(), "3 of 9 within 40 ms".into());
        let what = NotedContract { application, state, reason };
        Due { contracts: vec![Said { noted: Timestamp::MIN, what }], ..Due::default() }
    }

    /// One subtitle is shown while pictures have the same detections. It ends with the first picture that has others.
    #[test]
    fn a_subtitle_lasts_as_long_as_pictures_say_the_same() {
        let mut captions = Captions::default();
        let ms = Duration::from_millis;
        let none = Due::default();
        assert_eq!(captions.add(ms(0), &none, &[people(2)]), None);
        assert_eq!(captions.add(ms(100), &none, &[people(2)]), None);
        let first = Caption { at: ms(0), shown: ms(200), text: "counter: 2 person".into() };
        assert_eq!(captions.add(ms(200), &none, &[people(1)]), Some(first));
        // A pause: the count after it is unknown.
        let second = Caption { at: ms(200), shown: ms(1_000), text: "counter: 1 person".into() };
        assert_eq!(captions.add(ms(5_000), &none, &[people(0)]), Some(second));
        assert_eq!(captions.add(ms(5_100), &none, &[reply(ReplyContent::Opaque(Bytes::new()))]), None);
        assert_eq!(captions.finish(), None);
    }

    /// No picture comes while the source is lost. The next one has a subtitle with the reason.
    #[test]
    fn a_pause_says_why_it_was_one() {
        let mut captions = Captions::default();
        let ms = Duration::from_millis;
        let source = |state, reason: &str| Said {
            noted: Timestamp::MIN,
            what: NotedSource { state, reason: reason.into(), since: None },
        };
        let lost = source(SourceState::Lost, "the cable is out");
        assert_eq!(captions.add(ms(0), &Due::default(), &[people(1)]), None);
        let due = Due { sources: vec![lost, source(SourceState::Live, "")], ..Due::default() };
        let before = captions.add(ms(60_000), &due, &[]).unwrap();
        assert_eq!((before.at, before.shown), (ms(0), ms(1_000)));
        let why = captions.add(ms(63_000), &Due::default(), &[people(1)]).unwrap();
        assert_eq!((why.at, why.shown), (ms(60_000), ms(1_000)));
        assert_eq!(why.text, "no frames before this one: the camera's source is lost: the cable is out");
        assert_eq!(captions.finish().unwrap().text, "counter: 1 person");
    }

    #[test]
    fn a_new_state_of_a_contract_is_shown_for_a_while() {
        let mut captions = Captions::default();
        let ms = Duration::from_millis;
        assert_eq!(captions.add(ms(0), &contract(ContractState::LatencyMiss), &[]), None);
        for at in (100..3_000).step_by(100) {
            let ended = captions.add(ms(at), &Due::default(), &[]);
            assert_eq!(ended.is_some(), at == 2_000, "in pieces of two seconds");
        }
        let last = captions.add(ms(3_000), &Due::default(), &[]).unwrap();
        assert_eq!((last.at, last.shown), (ms(2_000), ms(1_000)));
        assert_eq!(last.text, "counter: latency_miss: 3 of 9 within 40 ms");
    }
}
