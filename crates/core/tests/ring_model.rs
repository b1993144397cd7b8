//! A model check of the log's ring: [loom](https://docs.rs/loom) replaces its atomics, and runs readers against the writer in every order.
//!
//! The number of preemptions is limited: to 2 by default, which takes seconds, or to `LOOM_MAX_PREEMPTIONS`. `make test-model` tries 3.

use loom::model::Builder;

use self::ring::{RingConfig, ring};

/// Replaces `crates/core/src/sync.rs`, whose names the ring uses.
mod sync {
    pub(crate) use loom::{
        cell::UnsafeCell,
        sync::Arc,
        sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    };
}

#[path = "../src/log/ring.rs"]
#[allow(dead_code, reason = "the log uses more of it than the model")]
mod ring;

/// One writer laps two readers over a directory of two segments.
#[test]
fn a_reader_never_sees_a_dropped_or_foreign_value() {
    let mut model = Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(|| {
        let (mut writer, reader) = ring::<Box<u64>>(RingConfig { segments_max: 2, segment_values_max: 1 });
        writer.push(Box::new(0), false);
        let other = reader.clone();
        let thread = loom::thread::spawn(move || {
            for index in 0..2 {
                if let Some(value) = other.get(index) {
                    assert_eq!(*value, index);
                }
            }
        });
        for value in 1..4 {
            writer.push(Box::new(value), false);
        }
        thread.join().unwrap();
        assert_eq!(*reader.get(3).unwrap(), 3);
    });
}
