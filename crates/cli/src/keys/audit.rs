//! `mez keys audit`: prints and verifies the audit log of this host's edge.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use mez_core::audit::{Event, Kind, Record, RecordHash, Report};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::units::Timestamp;
use mez_node::audit::reader::Tail;
use mez_node::audit::{AuditError, AuditLog};
use mez_node::clock::wall_now;
use mez_node::state::{self, StateError};

use super::Terminal;
use crate::text::{counted, parse_time};

/// How often `--follow` looks for new records.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// What of the log is printed.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only records about these, such as app/counter, 'app/**', user/1000 or an address [default: all]
    #[arg(long, value_name = "PATTERN")]
    who: Option<String>,
    /// Only records of these kinds, with commas between them: refused, read, rights …
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Only records since this time: -1d, 2026-11-20T21:38:46Z, or nanoseconds since 1970 [default: the oldest record]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Only records until this time, written like --since [default: the newest record]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Print one line of JSON for each record
    #[arg(long)]
    json: bool,
    /// Then print new records, until Ctrl-C
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    /// Print only whether the log is complete and unchanged, and the number and hash of its last record
    #[arg(long, conflicts_with_all = ["who", "kind", "since", "until", "json", "follow"])]
    verify: bool,
    /// With --verify: compare with the number and hash that an earlier --verify printed, and that you kept elsewhere
    #[arg(long, value_name = "NUMBER:HASH", requires = "verify", value_parser = parse_noted)]
    noted: Option<(u64, RecordHash)>,
}

/// Why the audit log could not be printed.
#[derive(Debug, thiserror::Error)]
pub enum AuditFailure {
    /// The state folder is unknown.
    #[error(transparent)]
    State(#[from] StateError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] AuditError),
    /// An option is invalid.
    #[error("{option}: {error}")]
    Option {
        /// The option.
        option: &'static str,
        /// The error.
        error: String,
    },
    /// The log was changed or damaged.
    #[error("the audit log was changed, or is damaged: {count} {} found; compare the log with a copy that was kept elsewhere", if *count == 1 { "flaw was" } else { "flaws were" })]
    Broken {
        /// The number of flaws.
        count: u64,
    },
    /// The terminal or a pipe broke.
    #[error("cannot write to the terminal: {0}")]
    Terminal(#[from] std::io::Error),
}

fn parse_noted(text: &str) -> Result<(u64, RecordHash), String> {
    let parsed =
        text.split_once(':').and_then(|(number, hash)| Some((number.parse().ok()?, hash.parse().ok()?)));
    parsed.ok_or_else(|| {
        format!("{text:?} is not a record's number and hash, as `mez keys audit --verify` prints them")
    })
}

/// Selects the records to print.
struct Wanted {
    who: Option<String>,
    pattern: Option<CameraPattern>,
    kinds: Vec<Kind>,
    since: Timestamp,
    until: Timestamp,
}

impl Wanted {
    fn of(args: &AuditArgs, now: Timestamp) -> Result<Self, AuditFailure> {
        let time = |option, text: &Option<String>, default| match text {
            Some(text) => parse_time(text, now).map_err(|error| AuditFailure::Option { option, error }),
            None => Ok(default),
        };
        Ok(Self {
            pattern: args.who.as_deref().and_then(|who| who.parse().ok()),
            who: args.who.clone(),
            kinds: args.kind.clone(),
            since: time("--since", &args.since, Timestamp::MIN)?,
            until: time("--until", &args.until, Timestamp::MAX)?,
        })
    }

    fn includes(&self, event: &Event) -> bool {
        let is_who = |who: &String| {
            *who == event.who
                || self.pattern.as_ref().is_some_and(|pattern| {
                    event.who.parse::<CameraName>().is_ok_and(|name| pattern.matches(&name))
                })
        };
        // A record of several events spans from the first to the last.
        (self.since..=self.until).contains(&event.at)
            && self.who.as_ref().is_none_or(is_who)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }
}

impl Terminal<'_> {
    pub(super) fn audit(&mut self, args: &AuditArgs, state: Option<&Path>) -> Result<(), AuditFailure> {
        let log = AuditLog::of_state(&state::folder(state)?)?;
        let wanted = Wanted::of(args, wall_now())?;
        let mut tail = log.tail(args.noted)?;
        if !args.json && !args.verify {
            writeln!(self.out, "{}", line(["TIME", "WHO", "WHAT", "TIMES", "DETAILS"]))?;
        }
        loop {
            self.print(&mut tail, args, &wanted)?;
            if !args.follow {
                break;
            }
            self.out.flush()?;
            std::thread::sleep(FOLLOW_INTERVAL);
        }
        let report = tail.finish();
        if args.verify {
            self.verified(&report, args.noted)?;
        }
        let count = report.flaws.len() as u64 + report.more_flaws;
        if count == 0 {
            return Ok(());
        }
        for flaw in &report.flaws {
            writeln!(self.notes, "{flaw}")?;
        }
        if report.more_flaws > 0 {
            writeln!(self.notes, "and {} more flaws", report.more_flaws)?;
        }
        Err(AuditFailure::Broken { count })
    }

    fn print(&mut self, tail: &mut Tail, args: &AuditArgs, wanted: &Wanted) -> Result<(), AuditFailure> {
        let mut written = Ok(());
        tail.poll(|record| {
            if written.is_ok() && !args.verify && wanted.includes(&record.event) {
                let text = if args.json { record.to_line() } else { row(&record) };
                written = writeln!(self.out, "{text}");
            }
        })?;
        Ok(written?)
    }

    fn verified(&mut self, report: &Report, noted: Option<(u64, RecordHash)>) -> Result<(), AuditFailure> {
        let (first, last) = (report.first.unwrap_or_default(), report.chain.last());
        let whole = if report.is_whole() { "the hash chain is intact" } else { "the hash chain is broken" };
        writeln!(self.out, "{}, {first} to {last}: {whole}", counted(report.records, "record"))?;
        if report.torn > 0 {
            writeln!(
                self.out,
                "incomplete, because of a kill or a power cut: {}; no record is missing because of that",
                counted(report.torn, "line")
            )?;
        }
        if let (Some((number, _)), Some(false)) = (noted, report.compared)
            && number < first
        {
            writeln!(self.out, "record {number} is no longer kept, and could not be compared")?;
        }
        writeln!(self.out, "last record: {last}:{}", report.chain.hash())?;
        Ok(())
    }
}

/// A record as a row. The widths of columns are fixed, since later records are not known yet.
fn row(record: &Record) -> String {
    let Event { at, kind, who, what, cameras, from, why, count, since, span: _ } = &record.event;
    let time = at.to_string();
    let what: Vec<&str> =
        [kind.as_str(), what, cameras].into_iter().filter(|text| !text.is_empty()).collect();
    let from = if from.is_empty() { String::new() } else { format!("from {from}") };
    let since = since.map(|since| format!("since {}", &since.to_string()[..19])).unwrap_or_default();
    let details: Vec<&str> =
        [&from, &since, why].into_iter().filter(|text| !text.is_empty()).map(String::as_str).collect();
    // Control characters are replaced, so that a terminal does not execute them.
    let plain =
        |text: &str| -> String { text.chars().map(|c| if c.is_control() { '?' } else { c }).collect() };
    let times = if *count > 1 { format!("{count}×") } else { String::new() };
    line([
        &format!("{}Z", &time[..19]),
        &plain(who),
        &plain(&what.join(" ")),
        &times,
        &plain(&details.join("; ")),
    ])
}

fn line(cells: [&str; 5]) -> String {
    let [time, who, what, times, details] = cells;
    format!("{time:<20}  {who:<20}  {what:<28}  {times:<6}  {details}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(who: &str, kinds: &[Kind]) -> Wanted {
        Wanted {
            who: Some(who.into()),
            pattern: who.parse().ok(),
            kinds: kinds.to_vec(),
            since: Timestamp::MIN,
            until: Timestamp::MAX,
        }
    }

    #[test]
    fn records_are_chosen_by_who_and_kind() {
        let event = |who| Event::new(Timestamp::MIN, Kind::Read, who);
        assert!(wanted("app/**", &[]).includes(&event("app/line1/counter")));
        assert!(wanted("user/1000", &[Kind::Read]).includes(&event("user/1000")));
        assert!(wanted("fe80::1", &[]).includes(&event("fe80::1")));
        assert!(!wanted("app/*", &[]).includes(&event("app/line1/counter")));
        assert!(!wanted("app/**", &[Kind::Refused]).includes(&event("app/counter")));
    }

    #[test]
    fn a_row_shows_how_often_and_never_commands_a_terminal() {
        let event = Event::new(Timestamp::MIN, Kind::Refused, "app/\u{1b}[2Jx")
            .what("watch")
            .cameras("dock/*")
            .why("no grant");
        let record = Record { number: 1, event: Event { count: 17, ..event }, previous: RecordHash::NONE };
        assert_eq!(
            row(&record),
            "1970-01-01T00:00:00Z  app/?[2Jx             refused watch dock/*          17×     no grant"
        );
        assert!(parse_noted(&format!("12:{}", RecordHash::NONE)).is_ok() && parse_noted("12:ab").is_err());
    }
}
