use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::frame::{ChainLink, Encoding, Epoch, Frame, FrameId, FrameMeta, Reference, Sequence, SkipRange};
use crate::sample;
use crate::units::{Instant, Timestamp};

fn frame(epoch: u64, sequence: u64, captured: u64, bytes: usize) -> Frame {
    Frame {
        meta: FrameMeta {
            width: 4,
            height: 2,
            published: (4, 2),
            ..sample::meta(
                FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) },
                Timestamp::from_nanos(captured),
            )
        },
        payload: Bytes::from(vec![sequence as u8; bytes]),
    }
}

fn chained(sequence: u64, index: u32, bytes: usize) -> Frame {
    let mut frame = frame(1, sequence, 10 + sequence, bytes);
    let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
    frame.meta.encoding = Encoding::H264;
    frame.meta.chain = ChainLink { chain: Sequence(sequence - u64::from(index)), index, reference };
    frame
}

fn none() -> Arc<[SkipRange]> {
    Arc::new([])
}

fn append(writer: &mut LogWriter, frame: Frame) -> Result<u64, AppendError> {
    writer.append(frame, none(), Instant::ZERO)
}

fn sequences(reader: &LogReader, range: Range<u64>) -> Vec<u64> {
    range.filter_map(|index| reader.get(index)).map(|record| record.frame.meta.id.sequence.0).collect()
}

#[test]
fn a_capture_time_that_is_not_later_is_refused_with_both_times() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, frame(1, 0, 100, 10)).unwrap();
    for captured in [99, 100] {
        assert_eq!(
            append(&mut writer, frame(1, 1, captured, 10)),
            Err(AppendError::CaptureTime {
                last: Timestamp::from_nanos(100),
                new: Timestamp::from_nanos(captured)
            })
        );
    }
    assert_eq!(reader.held(), 0..1);
    // A new epoch may well begin earlier: the wall clock was set back between two runs.
    append(&mut writer, frame(2, 0, 50, 10)).unwrap();
    assert!(matches!(append(&mut writer, frame(1, 9, 500, 10)), Err(AppendError::OutOfOrder { .. })));
}

#[test]
fn the_budget_holds_also_for_what_readers_keep() {
    let (mut writer, reader) = log(LogConfig::with_bytes_max(64 * 1024));
    let mut kept = VecDeque::new();
    for sequence in 0..500 {
        append(&mut writer, frame(1, sequence, sequence + 1, 3000)).unwrap();
        kept.push_back(reader.newest().unwrap());
        if kept.len() > 8 {
            kept.pop_front();
        }
        assert!(writer.bytes() <= 64 * 1024);
    }
    let held = reader.held();
    assert!(held.end - held.start >= 8, "only {held:?} held");
}

#[test]
fn readers_that_hold_everything_are_named_and_nothing_breaks() {
    let (mut writer, reader) = log(LogConfig::with_bytes_max(10_000));
    let mut kept = Vec::new();
    let error = loop {
        match append(&mut writer, frame(1, kept.len() as u64, kept.len() as u64 + 1, 1000)) {
            Ok(_) => kept.push(reader.newest().unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Held { .. }), "{error}");
    assert_eq!(kept.len(), 7);
    drop(kept);
    append(&mut writer, frame(1, 100, 101, 1000)).unwrap();
    assert_eq!(reader.newest().unwrap().frame.meta.id.sequence, Sequence(100));
    assert!(matches!(
        append(&mut writer, frame(1, 101, 102, 20_000)),
        Err(AppendError::LargerThanLog { .. })
    ));
}

/// A new reader starts where a chain begins. A reader inside a chain reads on after the chain's first frame is gone.
#[test]
fn a_log_is_entered_where_a_chain_begins_and_read_on_without_its_beginning() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 20_000, segment_bytes: 4_000 });
    for sequence in 0..200u64 {
        append(&mut writer, chained(sequence, (sequence % 7) as u32, 700)).unwrap();
        let (held, entry) = (reader.held(), reader.entry());
        let first = reader.get(entry).unwrap().frame.meta;
        assert_eq!(first.chain.index, 0, "nobody can enter inside a chain");
        assert_eq!(reader.held_from(), Some(first.captured));
        assert!(entry - held.start < 7, "no more than the rest of one chain is passed over");
        assert!(reader.get(held.start).is_some(), "what is held can be read by who is inside");
    }
    assert!(reader.held().end - reader.entry() > 7);
    assert_eq!(writer.chain_bytes(), (200 % 7) * (700 + record::RECORD_OVERHEAD_BYTES));
}

/// A chain that is longer than the log can be read on, but no reader can start in it. Stills
/// between its frames are no entry, because frames after them need frames that are gone.
#[test]
fn a_chain_longer_than_its_log_is_for_those_inside() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 20_000, segment_bytes: 4_000 });
    let mut inside = reader.cursor_at_end();
    for sequence in 0..99u64 {
        let of_chain = sequence % 10 != 9;
        let new = if of_chain {
            chained(sequence, sequence as u32, 700)
        } else {
            frame(1, sequence, 10 + sequence, 700)
        };
        append(&mut writer, new).unwrap();
        assert!(matches!(inside.next(), Read::Record(record) if record.frame.meta.id.sequence.0 == sequence));
    }
    assert_eq!((reader.entry(), reader.held_from()), (99, None));
    assert_eq!(reader.between(Timestamp::MIN, Timestamp::MAX), Vec::<Range<u64>>::new());
    append(&mut writer, frame(1, 99, 200, 700)).unwrap();
    assert_eq!(reader.entry(), 99, "behind the chain there is an entry again");
    let mut next = chained(100, 0, 700);
    next.meta.captured = Timestamp::from_nanos(300);
    append(&mut writer, next).unwrap();
    assert_eq!((reader.entry(), reader.held_from()), (99, Some(Timestamp::from_nanos(200))));
}

/// A chain whose first frame never came lies behind stills that can be read. Once the stills are gone, no reader can start in the chain.
#[test]
fn what_never_had_a_beginning_is_no_entry_when_all_before_it_has_gone() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 20_000, segment_bytes: 2_000 });
    for sequence in 0..8 {
        append(&mut writer, frame(1, sequence, 10 + sequence, 700)).unwrap();
    }
    for sequence in 8..40 {
        append(&mut writer, chained(sequence, (sequence - 7) as u32, 700)).unwrap();
        let entry = reader.get(reader.entry()).map(|record| record.frame.meta.id.sequence.0);
        assert!(entry.is_none_or(|entry| entry < 8), "{entry:?} can be entered");
    }
    assert_eq!((reader.held().end, reader.entry()), (40, 40));
}

proptest! {
    /// For any chains with any stills between them: from the entry on, the chain of every frame begins
    /// at or after the entry. No frame of a chain before the entry still has its chain's first frame.
    #[test]
    fn from_the_entry_on_every_frame_has_its_beginning(
        runs in proptest::collection::vec((0u64..12, 0u64..3, 50usize..900), 1..60),
        budget in 6_000u64..40_000,
    ) {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(budget));
        let mut sequence = 0;
        for (length, stills, bytes) in runs {
            let first = sequence;
            for index in 0..length + stills {
                let new = if index < length {
                    let mut new = chained(sequence, index as u32, bytes);
                    new.meta.chain.chain = Sequence(first);
                    new
                } else {
                    frame(1, sequence, 10 + sequence, bytes)
                };
                append(&mut writer, new).unwrap();
                sequence += 1;
                let (held, entry) = (reader.held(), reader.entry());
                prop_assert!(held.start <= entry && entry <= held.end);
                for index in entry..held.end {
                    let meta = reader.get(index).unwrap().frame.meta;
                    let begins = reader.beginning_of(&meta);
                    prop_assert!(begins.is_some_and(|begins| begins >= entry), "{index} from {entry}");
                }
                for index in held.start..entry {
                    let meta = reader.get(index).unwrap().frame.meta;
                    prop_assert!(reader.beginning_of(&meta).is_none() || !meta.encoding.is_chained());
                }
            }
        }
    }
}

#[test]
fn time_queries_work_across_a_clock_that_was_set_back() {
    let (mut writer, reader) = log(LogConfig::default());
    for sequence in 0..10 {
        append(&mut writer, frame(1, sequence, 1000 + 10 * sequence, 5)).unwrap();
    }
    for sequence in 0..10 {
        append(&mut writer, frame(2, sequence, 1045 + 10 * sequence, 5)).unwrap();
    }
    let at = Timestamp::from_nanos;
    let ids = |ranges: Vec<Range<u64>>| -> Vec<u64> { ranges.into_iter().flatten().collect() };
    assert_eq!(ids(reader.between(at(1040), at(1060))), [4, 5, 6, 10, 11]);
    assert_eq!(ids(reader.between(at(1136), at(2000))), Vec::<u64>::new());
    assert_eq!(
        reader.at(at(1059)).unwrap().frame.meta.id,
        FrameId { epoch: Epoch(2), sequence: Sequence(1) }
    );
    assert_eq!(
        reader.at(at(1044)).unwrap().frame.meta.id,
        FrameId { epoch: Epoch(1), sequence: Sequence(4) }
    );
    assert!(reader.at(at(999)).is_none());
}

/// The highest epoch number works like any other.
#[test]
fn time_queries_work_in_the_last_epoch_that_there_is() {
    let (mut writer, reader) = log(LogConfig::default());
    for (epoch, sequence) in [(1, 0), (u64::MAX, 0), (u64::MAX, 1)] {
        append(&mut writer, frame(epoch, sequence, 1000 + 10 * sequence, 5)).unwrap();
    }
    let at = Timestamp::from_nanos;
    assert_eq!(reader.between(at(1000), at(1010)), [0..1, 1..3]);
    assert_eq!(reader.at(at(1010)).unwrap().frame.meta.id.epoch, Epoch(u64::MAX));
}

#[test]
fn a_range_begins_where_its_chain_begins() {
    let (mut writer, reader) = log(LogConfig::default());
    for sequence in 0..20u64 {
        append(&mut writer, chained(sequence, (sequence % 5) as u32, 10)).unwrap();
    }
    let ranges = reader.between(Timestamp::from_nanos(10 + 8), Timestamp::from_nanos(10 + 11));
    assert_eq!(sequences(&reader, ranges[0].clone()), [5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn a_cursor_tells_what_it_missed() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 10_000, segment_bytes: 1_000 });
    let mut cursor = reader.cursor_at_end();
    assert!(matches!(cursor.next(), Read::Pending));
    let (mut read, mut evicted) = (0, 0);
    for sequence in 0..100 {
        append(&mut writer, frame(1, sequence, sequence + 1, 500)).unwrap();
    }
    loop {
        match cursor.next() {
            Read::Record(record) => {
                assert_eq!(record.frame.meta.id.sequence.0, read + evicted);
                read += 1;
            }
            Read::Evicted { records } => evicted += records,
            Read::Pending => break,
        }
    }
    assert_eq!(read + evicted, 100);
    assert!(evicted > 0 && read > 5);
}

proptest! {
    /// Against a plain list: for any appends, the log holds the tail of the list, and queries agree.
    #[test]
    fn the_log_agrees_with_a_list(
        sizes in proptest::collection::vec((0usize..4000, 1u64..50, prop::bool::weighted(0.05)), 1..200),
        budget in 10_000u64..100_000,
        queries in proptest::collection::vec((0u64..3000, 0u64..3000), 10),
    ) {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(budget));
        let (mut list, mut epoch, mut sequence, mut time) = (Vec::new(), 1, 0, 0);
        for (bytes, step, restart) in sizes {
            if restart {
                (epoch, sequence, time) = (epoch + 1, 0, time / 2);
            }
            time += step;
            let new = frame(epoch, sequence, time, bytes);
            list.push(new.clone());
            append(&mut writer, new).unwrap();
            sequence += 1;
        }
        prop_assert!(writer.bytes() <= budget);
        let held = reader.held();
        prop_assert_eq!(held.end, list.len() as u64);
        for index in held.clone() {
            prop_assert_eq!(&reader.get(index).unwrap().frame, &list[index as usize]);
        }
        for (a, b) in queries {
            let (begin, end) = (Timestamp::from_nanos(a.min(b)), Timestamp::from_nanos(a.max(b)));
            let found: Vec<u64> = reader.between(begin, end).into_iter().flatten().collect();
            let expected: Vec<u64> =
                held.clone().filter(|i| (begin..=end).contains(&list[*i as usize].meta.captured)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the readers of a test are threads")]
fn a_reader_of_another_thread_follows_the_writer() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 1 << 20, segment_bytes: 1 << 16 });
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut cursor = reader.cursor(0);
            let (mut next, mut seen) = (0, 0u64);
            while next < 20_000 {
                match cursor.next() {
                    Read::Record(record) => {
                        assert_eq!(record.frame.meta.id.sequence.0, next);
                        assert!(record.frame.payload.iter().all(|byte| *byte == next as u8));
                        next += 1;
                        seen += 1;
                    }
                    Read::Evicted { records } => next += records,
                    Read::Pending => std::thread::yield_now(),
                }
            }
            seen
        });
        for sequence in 0..20_000 {
            append(&mut writer, frame(1, sequence, sequence + 1, 100)).unwrap();
        }
        assert!(follower.join().unwrap() > 0);
    });
    // A reader may have held a segment when it was retired; the next retirement drops it too.
    writer.set_bytes_max(1 << 18);
    assert_eq!(
        writer.bytes(),
        (reader.held().end - reader.held().start) * (100 + record::RECORD_OVERHEAD_BYTES)
    );
}

/// A cursor ahead of its log would miss the records appended before its index.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a cursor reads behind the end of its log")]
fn a_cursor_ahead_of_its_log_is_noticed() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, frame(1, 0, 1, 100)).unwrap();
    reader.cursor(2).next();
}

mod ring {
    use std::sync::Arc;

    use crate::log::ring::{RingConfig, RingReader, RingWriter, ring};

    fn small() -> (RingWriter<Arc<u64>>, RingReader<Arc<u64>>) {
        ring(RingConfig { segments_max: 3, segment_values_max: 2 })
    }

    #[test]
    fn the_oldest_segment_makes_room() {
        let (mut writer, reader) = small();
        for value in 0..20 {
            assert_eq!(writer.push(Arc::new(value), false), value);
            for index in 0..30 {
                let expected = (reader.head()..=value).contains(&index).then_some(index);
                assert_eq!(reader.get(index).map(|v| *v), expected);
            }
            assert!(reader.tail() - reader.head() <= 6);
        }
    }

    #[test]
    fn retired_values_are_dropped_at_once_and_the_rest_with_the_ring() {
        let (mut writer, reader) = small();
        let value = Arc::new(7);
        for _ in 0..5 {
            writer.push(Arc::clone(&value), true);
        }
        assert_eq!(Arc::strong_count(&value), 1 + 3);
        while writer.retire_oldest() {}
        assert_eq!(Arc::strong_count(&value), 1);
        writer.push(Arc::clone(&value), false);
        drop(writer);
        assert_eq!(*reader.get(5).unwrap(), 7);
        drop(reader);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    /// Readers race a writer that laps them; every value read is the one of its index.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the readers of a test are threads")]
    fn readers_see_the_value_of_the_index_or_nothing() {
        let (mut writer, reader) = ring::<Box<u64>>(RingConfig { segments_max: 4, segment_values_max: 3 });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let reader = reader.clone();
                scope.spawn(move || {
                    while reader.tail() < 50_000 {
                        for index in reader.head().saturating_sub(2)..reader.tail() + 2 {
                            if let Some(value) = reader.get(index) {
                                assert_eq!(*value, index);
                            }
                        }
                    }
                });
            }
            for value in 0..50_000u64 {
                writer.push(Box::new(value), value % 7 == 0);
            }
        });
    }
}
