//! The line of one camera in `mez subscribe`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use mez_core::contract::ContractState;
use mez_node::client::{ReceivedFrame, Traffic};

use crate::columns::{Column, NOTHING, cells};
use crate::live::wrap;
use crate::text::bytes;

/// The time over which rates and percentiles are computed.
const WINDOW: Duration = Duration::from_secs(5);
/// The most remembered frames of [`WINDOW`]: 400 per second.
const FRAMES_MAX: usize = 2_000;

/// The most frame sizes that are counted.
const SIZES_MAX: usize = 8;

/// A received frame.
#[derive(Clone, Copy)]
struct Came {
    at: Instant,
    age: Option<Duration>,
    payload_bytes: u64,
    link_bytes: Option<u64>,
}

/// What is known about one camera.
#[derive(Default)]
pub(crate) struct CameraLine {
    frames: VecDeque<Came>,
    delivered: u64,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    rung: String,
    size: (u32, u32),
    /// The number of past frames of each size.
    sizes: BTreeMap<(u32, u32), u64>,
    /// The edge's report of what the camera publishes, and what of it crosses the link.
    pub(crate) traffic: Option<Traffic>,
    /// The state of the contract and its reason, if there is a contract.
    pub(crate) contract: Option<(ContractState, String)>,
    /// The reason, while the camera is absent.
    pub(crate) down: Option<String>,
    /// The reason, while the camera's source gives no frames.
    pub(crate) source: Option<String>,
    /// The last hole, and its reason.
    pub(crate) not_held: Option<String>,
}

impl CameraLine {
    /// Adds a frame.
    pub(crate) fn note(&mut self, now: Instant, frame: &ReceivedFrame) {
        self.delivered += 1;
        self.size = (frame.meta.width, frame.meta.height);
        if self.rung != frame.meta.rung.as_str() {
            self.rung = frame.meta.rung.as_str().into();
        }
        self.frames.push_back(Came {
            at: now,
            age: frame.age().map(|(age, _)| age),
            payload_bytes: frame.payload.len() as u64,
            link_bytes: frame.link_bytes,
        });
        while self.frames.len() > FRAMES_MAX
            || self.frames.front().is_some_and(|came| now.duration_since(came.at) > WINDOW)
        {
            self.frames.pop_front();
        }
    }

    /// Counts the size of the last frame, which must be one of the past.
    pub(crate) fn note_size(&mut self) {
        if self.sizes.len() < SIZES_MAX || self.sizes.contains_key(&self.size) {
            *self.sizes.entry(self.size).or_default() += 1;
        }
    }

    /// The camera's row in the table.
    pub(crate) fn row(&self, camera: &str, now: Instant) -> Row {
        let recent: Vec<Came> =
            self.frames.iter().filter(|came| now.duration_since(came.at) <= WINDOW).copied().collect();
        let mut ages: Vec<Duration> = recent.iter().filter_map(|came| came.age).collect();
        ages.sort();
        let age = |share: f64| ages.get(((ages.len() as f64 * share) as usize).min(ages.len() - 1)).copied();
        let mean = |of: fn(&Came) -> Option<u64>| {
            let known: Vec<u64> = recent.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<u64>() / known.len() as u64)
        };
        Row {
            camera: camera.to_owned(),
            fps: match recent.first() {
                Some(first) if recent.len() > 1 => {
                    (recent.len() - 1) as f64 / now.duration_since(first.at).as_secs_f64().max(0.001)
                }
                _ => 0.0,
            },
            age: if ages.is_empty() { None } else { age(0.5).zip(age(0.95)) },
            frame_bytes: mean(|came| Some(came.payload_bytes)),
            link_bytes: mean(|came| came.link_bytes),
            traffic: self.traffic,
            delivered: self.delivered,
            skipped: self.skipped.clone(),
            rung: self.rung.clone(),
            size: self.size,
            contract: self.contract.as_ref().map(|(state, _)| *state),
        }
    }

    /// Sentences about the camera, wrapped to the width of the terminal. With `with_reasons`,
    /// they include the reasons of skipped frames, for a table without this column.
    pub(crate) fn notes(&self, camera: &str, width: Option<usize>, with_reasons: bool) -> Vec<String> {
        let contract = self.contract.as_ref().map(|(state, reason)| format!("{}: {reason}", state.name()));
        let skipped = (with_reasons && !self.skipped.is_empty())
            .then(|| format!("frames not delivered: {}", reasons(&self.skipped)));
        let not_held = self.not_held.as_ref().map(|stretch| format!("not held: {stretch}"));
        let down = self.down.as_ref().map(|reason| format!("down: {reason}"));
        let sizes = (self.sizes.len() > 1).then(|| {
            let counts = self.sizes.iter().map(|((width, height), count)| format!("{count} of {width}x{height}"));
            let counts = counts.collect::<Vec<_>>().join(", ");
            format!("frames of several sizes crossed the link: {counts}; --quality original requests them from the camera as published")
        });
        // The state of the contract contains it.
        let source = self.source.clone().filter(|_| contract.is_none());
        let notes = [down, source, contract, not_held, sizes, skipped].into_iter().flatten();
        notes.flat_map(|note| wrap(&format!("{camera}: {note}"), width)).collect()
    }

    /// Whether the camera is absent, its source gives no frames, or its contract is not kept. Such cameras come first in the notes.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.down.is_some()
            || self.source.is_some()
            || self.contract.as_ref().is_some_and(|(state, _)| *state != ContractState::Ok)
    }
}

/// The values of one camera at one time.
pub(crate) struct Row {
    camera: String,
    fps: f64,
    /// Median and 95th percentile.
    age: Option<(Duration, Duration)>,
    frame_bytes: Option<u64>,
    link_bytes: Option<u64>,
    traffic: Option<Traffic>,
    delivered: u64,
    skipped: BTreeMap<&'static str, u64>,
    rung: String,
    size: (u32, u32),
    contract: Option<ContractState>,
}

/// The columns of `mez subscribe`.
pub(crate) const COLUMNS: &[Column<Row>] = &[
    Column {
        name: "camera",
        head: "CAMERA",
        about: "The camera's name",
        rank: 0,
        cell: |row| row.camera.clone(),
    },
    Column {
        name: "fps",
        head: "FPS",
        about: "Frames delivered per second, over 5 s",
        rank: 1,
        cell: |row| format!("{:.1}", row.fps),
    },
    Column {
        name: "age",
        head: "AGE P50/P95",
        about: "Age of frames at their arrival: median and 95th percentile, over 5 s",
        rank: 2,
        cell: |row| row.age.map_or(NOTHING.into(), |(p50, p95)| ages(p50, p95)),
    },
    Column {
        name: "link",
        head: "LINK",
        about: "Rate of the payload that crosses the camera's link, for all subscribers together, over 5 s",
        rank: 4,
        cell: |row| cells::crossed(row.traffic),
    },
    Column {
        name: "share",
        head: "OF PUBLISHED",
        about: "Share of the published bytes that crosses the link, over 5 s",
        rank: 5,
        cell: |row| cells::share(row.traffic),
    },
    Column {
        name: "skipped",
        head: "SKIPPED",
        about: "Frames not delivered since the start of the command",
        rank: 3,
        cell: |row| row.skipped.values().sum::<u64>().to_string(),
    },
    Column {
        name: "contract",
        head: "CONTRACT",
        about: "State of the contract (--latency-ms, --accuracy)",
        rank: 6,
        cell: |row| row.contract.map_or(NOTHING.into(), |state| state.name().into()),
    },
    Column {
        name: "rung",
        head: "RUNG",
        about: "Rung of the last frame: codec, size, quality",
        rank: 7,
        cell: |row| if row.rung.is_empty() { NOTHING.into() } else { row.rung.clone() },
    },
    Column {
        name: "size",
        head: "SIZE",
        about: "Width and height of the last frame",
        rank: 8,
        cell: |row| cells::size(row.size.0, row.size.1),
    },
    Column {
        name: "crossed",
        head: "CROSSED",
        about: "Mean bytes of a delivered frame on the link, over 5 s",
        rank: 9,
        cell: |row| row.link_bytes.map_or(NOTHING.into(), bytes),
    },
    Column {
        name: "frame",
        head: "FRAME",
        about: "Mean bytes of a frame as it was delivered to this command, over 5 s",
        rank: 10,
        cell: |row| row.frame_bytes.map_or(NOTHING.into(), bytes),
    },
    Column {
        name: "delivered",
        head: "DELIVERED",
        about: "Frames delivered since the start of the command",
        rank: 11,
        cell: |row| row.delivered.to_string(),
    },
    Column {
        name: "reasons",
        head: "WHY SKIPPED",
        about: "Frames not delivered, by reason",
        rank: 12,
        cell: |row| if row.skipped.is_empty() { NOTHING.into() } else { reasons(&row.skipped) },
    },
];

/// Counts by reason, most frequent first, such as `12 link_busy, 3 stalled`.
fn reasons(skipped: &BTreeMap<&'static str, u64>) -> String {
    let mut counts: Vec<_> = skipped.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

/// Two ages, such as `5.2/8.9 ms`.
fn ages(p50: Duration, p95: Duration) -> String {
    let (factor, unit) = if p95 < Duration::from_secs(1) { (1e3, "ms") } else { (1.0, "s") };
    format!("{:.1}/{:.1} {unit}", p50.as_secs_f64() * factor, p95.as_secs_f64() * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Table;

    fn told(columns: &[&str], row: Row) -> String {
        let mut table = Table::new(COLUMNS, columns.iter().map(|name| (*name).to_owned()).collect());
        table.lines(&[row], None).0.join("\n")
    }

    /// 5 kB of video crossed the link for a still of 136 kB. The share of published bytes comes from the edge.
    #[test]
    fn what_crosses_the_link_stands_beside_what_is_handed_on() {
        let now = Instant::now();
        let came = |link_bytes| Came { at: now, age: None, payload_bytes: 136_000, link_bytes };
        let traffic = Some(Traffic { published: 16_320_000.0, crossed: 600_000.0 });
        let mut line = CameraLine { traffic, ..CameraLine::default() };
        // A broker of another version may not report link bytes.
        line.frames.extend([came(Some(4_000)), came(Some(6_000)), came(None)]);
        assert_eq!(
            told(&["link", "share", "crossed", "frame"], line.row("cam", now)),
            "LINK        OF PUBLISHED  CROSSED  FRAME\n600 kbit/s  3.7 %         5.0 kB   136.0 kB"
        );
        let silent = CameraLine::default();
        assert_eq!(
            told(&["link", "share", "crossed", "frame"], silent.row("cam", now)),
            "LINK  OF PUBLISHED  CROSSED  FRAME\n-     -             -        -"
        );
    }

    /// Programs expect a single size. If a past has several, a note gives the number of frames of each size, and the remedy.
    #[test]
    fn sizes_that_mix_are_told() {
        let mut line = CameraLine { size: (768, 576), ..CameraLine::default() };
        line.note_size();
        line.note_size();
        assert_eq!(line.notes("cam", None, false), [""; 0], "one size");
        line.size = (384, 288);
        line.note_size();
        assert_eq!(
            line.notes("cam", None, false),
            [
                "cam: frames of several sizes crossed the link: 1 of 384x288, 2 of 768x576; --quality original requests them from the camera as published"
            ]
        );
        // A source that constantly changes its size does not fill the screen.
        for width in 0..100 {
            line.size = (640 + width, 480);
            line.note_size();
        }
        assert_eq!(line.sizes.len(), SIZES_MAX);
    }
}
