//! Parses and prints sizes, durations and times.

use std::time::Duration;

use mez_core::frame::FRAME_BYTES_CEILING;
use mez_core::units::Timestamp;

/// Parses a size in bytes: `512MiB`, `1.5GB`, `64k`, `1048576`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(format!("unknown unit {unit:?}; write sizes like 512MiB, 1GiB or 64kB")),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value * factor < 1e15 => Ok((value * factor) as u64),
        _ => Err(format!("{text:?} is not a size; write sizes like 512MiB, 1GiB or 64kB")),
    }
}

/// A count with its noun: `1 grant`, `2 grants`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// Parses the size of a store or memory for many frames or records: at least 1 MiB.
pub(crate) fn parse_room(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes >= 1 << 20 => Ok(bytes),
        _ => Err(format!("{text} is too small; write 1MiB or more")),
    }
}

/// Parses the duration of a period: at least 1 s.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        period if period >= Duration::from_secs(1) => Ok(period),
        _ => Err(format!("{text} is too short; write 1s or more")),
    }
}

/// Parses the size of a frame: 1 to [`FRAME_BYTES_CEILING`] bytes.
pub(crate) fn parse_frame_bytes(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let ceiling = FRAME_BYTES_CEILING;
    match u32::try_from(bytes) {
        Ok(bytes) if (1..=ceiling).contains(&bytes) => Ok(bytes),
        _ => Err(format!("a frame has 1 byte to {} MiB; write a size in this range", ceiling >> 20)),
    }
}

/// Parses a count: at least 1.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    const MAX: usize = 1_000_000;
    text.parse()
        .ok()
        .filter(|count| (1..=MAX).contains(count))
        .ok_or_else(|| format!("{text:?} is not a valid number; write a whole number, 1 to {MAX}"))
}

/// Parses a frame rate: more than 0.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is not a rate; write frames per second, such as 10 or 12.5"))
}

/// Parses a duration: `250ms`, `90s`, `10m`, `1.5h`, `7d`. A number without unit is in seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("unknown unit {unit:?}; write durations like 250ms, 90s, 10m or 1h")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|value| Duration::try_from_secs_f64(value * factor).ok())
        .ok_or_else(|| format!("{text:?} is not a duration; write durations like 250ms, 90s, 10m or 1h"))
}

/// Parses a time: `now`, `-10m` (before now), `+30s` (after now), nanoseconds since 1970, or
/// `2026-11-20T21:38:46Z`.
pub(crate) fn parse_time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if text == "now" {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-') {
        return parse_duration(ago).map(|ago| now - ago);
    }
    if let Some(ahead) = text.strip_prefix('+') {
        return parse_duration(ahead).map(|ahead| now + ahead);
    }
    if let Ok(nanos) = text.parse::<u64>() {
        return Ok(Timestamp::from_nanos(nanos));
    }
    parse_utc(text).ok_or_else(|| {
        format!(
            "{text:?} is not a time; write now, -10m, +30s, 2026-11-20T21:38:46Z or nanoseconds since 1970"
        )
    })
}

/// A size: `1.4 MB`, `512 B`.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// A short duration: `3.2 ms`, `1.4 s`.
pub(crate) fn milliseconds(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    if ms < 1_000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}

/// A bit rate: `612 kbit/s`, `10.9 Mbit/s`.
pub(crate) fn rate(bits_per_second: f64) -> String {
    match bits_per_second {
        bits if bits < 1e6 => format!("{:.0} kbit/s", bits / 1e3),
        bits => format!("{:.1} Mbit/s", bits / 1e6),
    }
}

/// A share: `3.9 %`, `100 %`.
pub(crate) fn percent(share: f64) -> String {
    let digits = usize::from(share < 0.0995);
    format!("{:.digits$} %", share * 1e2)
}

/// A table with a heading.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in std::iter::once(&head.map(String::from)).chain(rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

fn parse_utc(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<u64>().ok()?, time.next()?.parse::<u64>().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    let valid = (1970..2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && (0.0..61.0).contains(&second);
    if !valid {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = (1..month).map(|month| days_in_month(year, month)).sum();
    let seconds = (years + months + day - 1) * 86_400 + hour * 3_600 + minute * 60;
    Some(Timestamp::from_nanos(seconds * 1_000_000_000 + (second * 1e9) as u64))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(is_leap(year)),
        _ => 31,
    }
}

/// A duration in its largest unit: `4 s`, `12 min`, `3 h`, `2 d`.
pub(crate) fn for_people(time: Duration) -> String {
    match time.as_secs() {
        0..100 => format!("{:.0} s", time.as_secs_f64()),
        seconds @ 100..6_000 => format!("{} min", seconds / 60),
        seconds @ 6_000..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5kB"), Ok(1500));
        assert!(
            parse_bytes("0").is_err() && parse_bytes("12 parsecs").is_err() && parse_bytes("-1").is_err()
        );
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn times_are_absolute_or_relative_to_now() {
        let now = Timestamp::from_nanos(1_000_000_000_000);
        assert_eq!(parse_time("-10m", now), Ok(Timestamp::from_nanos(400_000_000_000)));
        assert_eq!(parse_time("now", now), Ok(now));
        let text = "2024-02-29T12:34:56.5Z";
        assert_eq!(parse_time(text, now).unwrap().to_string(), "2024-02-29T12:34:56.500000000Z");
        for bad in ["2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "yesterday", "2024-01-01"] {
            assert!(parse_time(bad, now).is_err(), "{bad}");
        }
    }
}
