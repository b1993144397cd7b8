//! Draws lines in place on a terminal.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Columns and rows of a terminal whose size is unknown.
const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// The lengths of the lines that are on the terminal, in characters. Shared by the whole process, because log lines are written above them.
static DRAWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn drawn() -> MutexGuard<'static, Vec<usize>> {
    // Each statement leaves the list consistent, so a poisoned lock is safe to use.
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Redraws lines in place on a terminal. Without a terminal, prints one block after another.
pub(crate) struct Screen {
    terminal: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal() }
    }

    /// How often to redraw.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(if self.terminal { 250 } else { 2_000 })
    }

    /// The most characters per line. `None` if there is no limit.
    pub(crate) fn width(&self) -> Option<usize> {
        self.terminal.then(|| size().0)
    }

    /// Draws lines in place of the previous ones. Cuts off what does not fit, so that the terminal does not scroll.
    pub(crate) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.terminal {
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            return out.flush();
        }
        let (columns, rows) = size();
        let lines = fit(lines, columns, rows);
        let mut drawn = drawn();
        // In one piece, so that no partial drawing is visible.
        let mut text = erase(&drawn, columns);
        lines.iter().for_each(|line| text.extend([line, "\n"]));
        *drawn = lines.iter().map(|line| line.chars().count()).collect();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Screen {
    /// Leaves the lines on the terminal, but clears the echo of Ctrl-C below them.
    fn drop(&mut self) {
        let mut drawn = drawn();
        if self.terminal && !drawn.is_empty() {
            let mut out = io::stdout().lock();
            // An error means that the terminal is gone.
            let _ = out.write_all(b"\r\x1b[J").and_then(|()| out.flush());
        }
        drawn.clear();
    }
}

/// The writer of log lines: to standard error, above the lines of a [`Screen`].
pub(crate) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut drawn = drawn();
        if !drawn.is_empty() && io::stderr().is_terminal() {
            let mut out = io::stdout().lock();
            out.write_all(erase(&drawn, size().0).as_bytes())?;
            out.flush()?;
            drawn.clear();
        }
        io::stderr().write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let told = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let told = told.map_or((0, 0), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    let variable = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let known = |told: usize, name, otherwise| match told {
        0 => variable(name).filter(|size| *size > 0).unwrap_or(otherwise),
        told => told,
    };
    (known(told.0, "COLUMNS", SIZE_DEFAULT.0), known(told.1, "LINES", SIZE_DEFAULT.1))
}

/// Moves the cursor to the first drawn line, and clears everything from there on, including
/// the echo of Ctrl-C. On a terminal that has become narrower, a line takes several rows.
fn erase(drawn: &[usize], columns: usize) -> String {
    let rows: usize = drawn.iter().map(|length| length.div_ceil(columns).max(1)).sum();
    match rows {
        0 => String::new(),
        rows => format!("\r\x1b[{rows}A\x1b[J"),
    }
}

/// Cuts lines to the size of the terminal. The last row is for the cursor.
fn fit(lines: &[String], columns: usize, rows: usize) -> Vec<String> {
    let room = rows.saturating_sub(1).max(1);
    let mut fitting: Vec<String> = lines.iter().map(|line| cut(line, columns)).collect();
    if fitting.len() > room {
        let more = fitting.len() - room + 1;
        fitting.truncate(room - 1);
        fitting.push(cut(&format!("… {more} more lines: this terminal has {rows} rows"), columns));
    }
    fitting
}

fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let start = line.chars().take(columns.saturating_sub(1));
    start.chain(['…']).collect()
}

/// Breaks a sentence into lines of at most `width` characters, if possible between
/// words. Lines after the first are indented. With `None`, returns one line.
pub(crate) fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    const INDENT: &str = "  ";
    let width = width.map_or(usize::MAX, |width| width.max(20));
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        let is_first = last.trim().is_empty();
        if is_first || last.chars().count() + 1 + word.chars().count() <= width {
            let gap = if is_first { "" } else { " " };
            let _ = write!(last, "{gap}{word}");
        } else {
            lines.push(format!("{INDENT}{word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_terminal() {
        let lines: Vec<String> = ["short", "exactly 10", "far too long"].map(String::from).to_vec();
        assert_eq!(fit(&lines, 10, 24), ["short", "exactly 10", "far too l…"]);
        assert_eq!(fit(&lines, 80, 3), ["short", "… 2 more lines: this terminal has 3 rows"]);
        assert_eq!(fit(&lines, 80, 4).len(), 3);
    }

    #[test]
    fn what_stood_there_is_erased_whole() {
        assert_eq!(erase(&[], 80), "");
        assert_eq!(erase(&[80, 0, 12], 80), "\r\x1b[3A\x1b[J");
        // The terminal is now half as wide.
        assert_eq!(erase(&[80, 0, 12], 40), "\r\x1b[4A\x1b[J");
    }

    #[test]
    fn sentences_break_between_words() {
        let text = "dock/cam1: latency_miss: 12 of 75 frames within 40 ms";
        assert_eq!(wrap(text, None), [text]);
        let wrapped = wrap(text, Some(30));
        assert_eq!(wrapped, ["dock/cam1: latency_miss: 12 of", "  75 frames within 40 ms"]);
    }
}
