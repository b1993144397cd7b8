//! Queries, frames and failures in any order.

use proptest::prelude::*;

use super::*;

proptest! {
    /// For any order of frames, queries, failures, drops and finished decodings: each query is answered once, with the still of
    /// its frame or without one. A still is made only of frames that a decoder could decode, and no possible still is missing.
    #[test]
    fn every_question_is_answered(
        steps in proptest::collection::vec((0u8..10, 0u64..40, 0u8..30), 1..200),
        budget in 5_000u64..60_000,
    ) {
        let mut rig = Rig::new(budget);
        let (mut questions, mut dropped) = (BTreeMap::new(), BTreeSet::new());
        rig.comes(true, false);
        for (step, back, chance) in steps {
            match step {
                0..=2 => _ = rig.comes(chance < 3, chance == 29),
                3..=5 => {
                    let frame = rig.next.saturating_sub(1 + back);
                    let question = match chance % 3 {
                        0 => rig.ask_for_picture(rig.next - 1),
                        one => rig.ask_as(frame, one == 1),
                    };
                    questions.insert(question, if chance % 3 == 0 { rig.next - 1 } else { frame });
                }
                6 | 7 => _ = rig.work(),
                8 if chance == 0 => _ = rig.damaged.insert(rig.next),
                8 => {
                    let question = rig.asked.saturating_sub(1 + back % 3);
                    rig.maker.handle_dropped(question);
                    dropped.insert(question);
                }
                _ => {
                    rig.now += MS * 100 * u32::from(chance);
                    rig.maker.handle_timeout(rig.now);
                    rig.perform();
                }
            }
            let bytes_max = still_bytes_max(rig.maker.log.share().bytes_max);
            prop_assert!(rig.maker.bytes() <= bytes_max.max(1));
        }
        rig.settle();
        for (question, frame) in questions {
            match rig.answers.get(&question) {
                Some(answer) => prop_assert!(answer.is_none_or(|got| got == frame)),
                None => prop_assert!(dropped.contains(&question), "{} is not answered", question),
            }
        }
        // At the end, every frame that can be decoded has a still.
        let log = rig.maker.log.clone();
        for index in log.entry()..log.held().end {
            let meta = log.get(index).unwrap().frame.meta;
            let (frame, first) = (meta.id.sequence.0, meta.chain.chain.0);
            let is_damaged = meta.encoding.is_chained() && rig.damaged.range(first..=frame).next().is_some();
            if !is_damaged {
                prop_assert_eq!(rig.answer(frame), Some(frame));
            }
        }
    }
}
