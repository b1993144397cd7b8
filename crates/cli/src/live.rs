//! Draws lines that stay in place on a terminal: one for each camera.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use mez_core::contract::ContractState;

use crate::text::{bytes, milliseconds};

/// The time over which rates and percentiles are computed.
const WINDOW: Duration = Duration::from_secs(5);
/// The most frames of [`WINDOW`] that are remembered: 400 a second.
const FRAMES_MAX: usize = 2_000;

/// Redraws lines in place on a terminal. Elsewhere it prints one block after the other.
pub(crate) struct Screen {
    lines: usize,
    terminal: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { lines: 0, terminal: io::stdout().is_terminal() }
    }

    /// How often to redraw.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(if self.terminal { 250 } else { 2_000 })
    }

    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.terminal && self.lines > 0 {
            // Up to the first line, and clear from there on.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        self.lines = lines.len();
        out.flush()
    }
}

/// What `mez subscribe` shows of one camera.
#[derive(Default)]
pub(crate) struct CameraLine {
    frames: VecDeque<(Instant, Option<Duration>, usize)>,
    pub(crate) delivered: u64,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    pub(crate) rung: String,
    pub(crate) size: (u32, u32),
    /// The state of the contract, if one was asked for.
    pub(crate) contract: Option<(ContractState, String)>,
    /// Set while the camera is gone: why.
    pub(crate) down: Option<String>,
    /// The last stretch that is not held, and why.
    pub(crate) not_held: Option<String>,
}

impl CameraLine {
    pub(crate) fn note(&mut self, now: Instant, age: Option<Duration>, payload_bytes: usize) {
        self.delivered += 1;
        self.frames.push_back((now, age, payload_bytes));
        while self.frames.len() > FRAMES_MAX
            || self.frames.front().is_some_and(|(at, ..)| now.duration_since(*at) > WINDOW)
        {
            self.frames.pop_front();
        }
    }

    pub(crate) fn line(&self, camera: &str, now: Instant) -> String {
        let recent: Vec<_> =
            self.frames.iter().filter(|(at, ..)| now.duration_since(*at) <= WINDOW).collect();
        let rate = match recent.first() {
            Some((first, ..)) if recent.len() > 1 => {
                (recent.len() - 1) as f64 / now.duration_since(*first).as_secs_f64().max(0.001)
            }
            _ => 0.0,
        };
        let mut ages: Vec<Duration> = recent.iter().filter_map(|(_, age, _)| *age).collect();
        ages.sort();
        let age = |share: f64| match ages.len() {
            0 => "?".to_owned(),
            n => milliseconds(ages[((n as f64 * share) as usize).min(n - 1)]),
        };
        let mean = recent.iter().map(|(.., bytes)| *bytes as u64).sum::<u64>() / (recent.len().max(1) as u64);
        let skipped: Vec<String> =
            self.skipped.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let mut state = match &self.contract {
            Some((state, reason)) => format!("  {}: {reason}", state.name()),
            None => String::new(),
        };
        if let Some(stretch) = &self.not_held {
            let _ = write!(state, "  not held: {stretch}");
        }
        if let Some(reason) = &self.down {
            let _ = write!(state, "  down: {reason}");
        }
        format!(
            "{camera:<20} {rate:>5.1} fps  age p50 {:>8} p95 {:>8}  {:>9}  {}x{} {}  delivered {}  skipped {}{state}",
            age(0.5),
            age(0.95),
            bytes(mean),
            self.size.0,
            self.size.1,
            self.rung,
            self.delivered,
            if skipped.is_empty() { "0".to_owned() } else { skipped.join(", ") },
        )
    }
}
