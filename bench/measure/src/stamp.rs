//! Drives a measured program, stamps its frames, and counts them, in the same way for all measured programs.
//!
//! The peers in `bench/peers` compile this same file, so that Mez and its peers are measured by the same code.
//!
//! A program prints `ready` when it serves. Then it reads commands from its standard input, one per
//! line, and answers each with one line of JSON on its standard output. It ends when its input ends.
//!
//! | command | to | answer |
//! | --- | --- | --- |
//! | `subscriptions N` | subscribers | `{"subscriptions":N}`, when there are N |
//! | `burst NUMBER FIRST_NS INTERVAL_NS FRAMES PAYLOAD` | publishers | the delay and the duration of each call |
//! | the same | subscribers | the latency of every frame |
//!
//! Frame `i` of a burst is due at `FIRST_NS + i * INTERVAL_NS` of `CLOCK_MONOTONIC`, which all processes of a machine
//! share, even if the frame before has not left yet. Arrivals are open-loop, so a stall counts in full. A latency is the
//! time from when the frame was due until the program has it. Then every byte is compared, outside of the timed part.

// A program either publishes or subscribes.
#![allow(dead_code)]

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::pace::{now_ns, sleep_until, wake_on_time};

/// Where the stamp is in a payload: in a JPEG's comment segment directly after its start marker.
const STAMP_OFFSET: usize = 6;
/// Burst, frame, and due time, each as 64 bits, little-endian.
const STAMP_BYTES: usize = 24;
/// A payload is made half of this time, or half of the interval if that is shorter, before its frame is due.
const PREPARATION_NS_MAX: u64 = 20_000_000;
/// How long a subscriber waits after the last frame was due. Later frames count as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Frames at a steady rate.
pub struct Burst {
    number: u64,
    first_ns: u64,
    interval_ns: u64,
    frames: u64,
    payload: Vec<u8>,
}

impl Burst {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let [number, first_ns, interval_ns, frames, payload] = words else {
            return Err("write: burst NUMBER FIRST_NS INTERVAL_NS FRAMES PAYLOAD".into());
        };
        let count = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        let content = std::fs::read(payload).map_err(|error| format!("{payload}: {error}"))?;
        if content.len() < STAMP_OFFSET + STAMP_BYTES {
            return Err(format!("{payload} is too small for a stamp"));
        }
        Ok(Self {
            number: count(number)?,
            first_ns: count(first_ns)?,
            interval_ns: count(interval_ns)?,
            frames: count(frames)?,
            payload: content,
        })
    }

    fn due_ns(&self, frame: u64) -> u64 {
        self.first_ns + frame * self.interval_ns
    }

    fn stamped(&self, frame: u64) -> Vec<u8> {
        let mut payload = self.payload.clone();
        for (index, value) in [self.number, frame, self.due_ns(frame)].into_iter().enumerate() {
            let at = STAMP_OFFSET + 8 * index;
            payload[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        payload
    }

    /// Whether `payload` equals what was sent, except for the stamp.
    fn is_intact(&self, payload: &[u8]) -> bool {
        let end = STAMP_OFFSET + STAMP_BYTES;
        payload.len() == self.payload.len()
            && payload[..STAMP_OFFSET] == self.payload[..STAMP_OFFSET]
            && payload[end..] == self.payload[end..]
    }
}

/// Reads burst, frame, and due time.
fn read_stamp(payload: &[u8]) -> Option<(u64, u64, u64)> {
    let field = |index: usize| {
        let at = STAMP_OFFSET + 8 * index;
        Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?))
    };
    Some((field(0)?, field(1)?, field(2)?))
}

fn answer(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Publishes bursts until the standard input ends. `send` gets each frame when it is due.
pub fn publish(mut send: impl FnMut(Vec<u8>) -> Result<(), String>) -> Result<(), String> {
    wake_on_time();
    answer("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let burst = match words.split_first() {
            Some((&"burst", rest)) => Burst::parse(rest)?,
            _ => return Err(format!("a publisher does not know {line:?}")),
        };
        let (mut late_ns, mut call_ns) = (Vec::new(), Vec::new());
        for frame in 0..burst.frames {
            // A camera makes the frames, not the broker. So a frame is made before it is due, and not while the one before is still in flight.
            sleep_until(burst.due_ns(frame) - burst.interval_ns.min(PREPARATION_NS_MAX) / 2);
            let payload = burst.stamped(frame);
            sleep_until(burst.due_ns(frame));
            let called_ns = now_ns();
            late_ns.push((called_ns - burst.due_ns(frame)).to_string());
            send(payload)?;
            call_ns.push((now_ns() - called_ns).to_string());
        }
        let (late_ns, call_ns) = (late_ns.join(","), call_ns.join(","));
        answer(&format!(r#"{{"burst":{},"late_ns":[{late_ns}],"call_ns":[{call_ns}]}}"#, burst.number))?;
    }
    Ok(())
}

/// A frame that a subscription received.
pub struct Receipt<B> {
    /// The number of the subscription, from 0.
    pub subscription: usize,
    /// When the program got the frame, in nanoseconds of `CLOCK_MONOTONIC`.
    pub received_ns: u64,
    /// The whole payload.
    pub payload: B,
}

/// Receives bursts until the standard input ends. `subscribe` changes the number of subscriptions to its argument.
pub fn subscribe<B: AsRef<[u8]>>(
    receipts: &Receiver<Receipt<B>>,
    mut subscribe: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    answer("ready")?;
    let mut subscriptions = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.split_first() {
            Some((&"subscriptions", [count])) => {
                subscriptions = count.parse().map_err(|error| format!("{count:?}: {error}"))?;
                subscribe(subscriptions)?;
                answer(&format!(r#"{{"subscriptions":{subscriptions}}}"#))?;
            }
            Some((&"burst", rest)) => {
                answer(&Collected::of(&Burst::parse(rest)?, subscriptions, receipts)?.json())?;
            }
            _ => return Err(format!("a subscriber does not know {line:?}")),
        }
    }
    Ok(())
}

/// A subscriber's results for a burst.
struct Collected {
    number: u64,
    /// For each subscription and frame: the latency; `None` if the frame was lost.
    latency_ns: Vec<Vec<Option<u64>>>,
    /// Number of frames with wrong bytes.
    corrupt: u64,
    /// Number of repeated frames.
    duplicate: u64,
    /// Number of frames of earlier bursts.
    stray: u64,
}

impl Collected {
    fn of<B: AsRef<[u8]>>(
        burst: &Burst,
        subscriptions: usize,
        receipts: &Receiver<Receipt<B>>,
    ) -> Result<Self, String> {
        let mut collected = Self {
            number: burst.number,
            latency_ns: vec![vec![None; burst.frames as usize]; subscriptions],
            corrupt: 0,
            duplicate: 0,
            stray: 0,
        };
        let mut missing = burst.frames * subscriptions as u64;
        let end_ns = burst.due_ns(burst.frames) + PATIENCE.as_nanos() as u64;
        while missing > 0 {
            let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
            let receipt = match receipts.recv_timeout(left) {
                Ok(receipt) => receipt,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err("the subscriptions ended".into()),
            };
            let payload = receipt.payload.as_ref();
            let Some((number, frame, due_ns)) = read_stamp(payload) else {
                collected.corrupt += 1;
                continue;
            };
            let place = collected
                .latency_ns
                .get_mut(receipt.subscription)
                .and_then(|row| row.get_mut(frame as usize));
            match place {
                _ if number != burst.number => collected.stray += 1,
                None => collected.corrupt += 1,
                Some(Some(_)) => collected.duplicate += 1,
                Some(place) => {
                    *place = Some(receipt.received_ns.saturating_sub(due_ns));
                    missing -= 1;
                    collected.corrupt += u64::from(!burst.is_intact(payload));
                }
            }
        }
        Ok(collected)
    }

    fn json(&self) -> String {
        let Self { number, corrupt, duplicate, stray, .. } = self;
        let cell = |latency: &Option<u64>| latency.map_or("null".into(), |ns| ns.to_string());
        let row = |row: &Vec<Option<u64>>| row.iter().map(cell).collect::<Vec<String>>().join(",");
        let rows = self.latency_ns.iter().map(row).collect::<Vec<_>>().join("],[");
        format!(
            r#"{{"burst":{number},"corrupt":{corrupt},"duplicate":{duplicate},"stray":{stray},"latency_ns":[[{rows}]]}}"#
        )
    }
}
