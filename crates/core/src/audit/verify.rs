//! Checks a whole log: that each record is the one that the next one holds the hash of, and that none is missing.

use std::fmt;

use super::chain::{Chain, Head};
use super::event::Kind;
use super::record::{Record, RecordHash};

/// The most flaws that a report lists. The rest is counted.
pub const FLAWS_MAX: usize = 100;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)
    }
}

/// Something that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A line is no record.
    #[error("{at}: this line is no record (behind record {behind})")]
    NotARecord {
        /// The line.
        at: Place,
        /// The last record before it.
        behind: u64,
    },
    /// Records are missing.
    #[error("{at}: records {from} to {to} are missing before it")]
    Missing {
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
        /// The record behind them.
        at: Place,
    },
    /// A number comes again, or a smaller one.
    #[error("{at}: record {number} stands behind record {behind}")]
    OutOfOrder {
        /// The number.
        number: u64,
        /// That of the record before.
        behind: u64,
        /// Where.
        at: Place,
    },
    /// A record is not the one that was written.
    #[error("{at}: record {number} is not what was written: the record behind it holds another hash")]
    Altered {
        /// Its number.
        number: u64,
        /// Where it stands.
        at: Place,
    },
    /// A record is not the one that a head names.
    #[error("record {number} is not what was written: {by} has another hash")]
    NotTheHead {
        /// Its number.
        number: u64,
        /// Who says so.
        by: &'static str,
    },
    /// The end is missing.
    #[error("the end is cut off: {by} names record {head}, and the last is {last}")]
    Cut {
        /// The last record that there is, 0 if none.
        last: u64,
        /// The last record that there should be.
        head: u64,
        /// Who says so.
        by: &'static str,
    },
    /// The beginning is missing.
    #[error("the beginning is missing: records {from} to {to} should still be kept")]
    BeginningMissing {
        /// The oldest that should be there.
        from: u64,
        /// The last that is not.
        to: u64,
    },
    /// There are records and no head.
    #[error("the head is missing or damaged, so that a cut end cannot be noticed")]
    NoHead,
    /// The edge itself found something wrong, and recorded it.
    #[error("record {number} says that the edge found the log damaged: {why}")]
    Noted {
        /// Its number.
        number: u64,
        /// What it found.
        why: String,
    },
}

/// What is known of a log after its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many records were read.
    pub records: u64,
    /// The number of the first, if there is any.
    pub first: Option<u64>,
    /// Where the log ends.
    pub chain: Chain,
    /// Lines that were never finished, because a process was killed or a disk was full. Nothing is missing for them.
    pub torn: u64,
    /// What is wrong, at most [`FLAWS_MAX`].
    pub flaws: Vec<Flaw>,
    /// How many more.
    pub more_flaws: u64,
    /// Whether the record that was noted elsewhere is still kept, so that it could be compared; `None` if none was given.
    pub compared: Option<bool>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.flaws.is_empty()
    }
}

/// Checks a log, file by file and line by line, oldest first.
#[derive(Debug)]
pub struct Verifier {
    head: Option<Head>,
    /// A record and its hash, as somebody noted them elsewhere.
    noted: Option<(u64, RecordHash)>,
    file: String,
    line: u64,
    /// Where the log stands, and where its last record is.
    chain: Option<(Chain, Place)>,
    /// A line before this one was no record; the chain as it was before that.
    before_garbage: Option<(Chain, Place)>,
    report: Report,
}

impl Verifier {
    /// For a log with this head. `noted` is a record's number and hash that somebody noted elsewhere.
    pub fn new(head: Option<Head>, noted: Option<(u64, RecordHash)>) -> Self {
        let report = Report {
            records: 0,
            first: None,
            chain: Chain::EMPTY,
            torn: 0,
            flaws: Vec::new(),
            more_flaws: 0,
            compared: noted.map(|_| false),
        };
        Self { head, noted, file: String::new(), line: 0, chain: None, before_garbage: None, report }
    }

    /// The lines of a file follow.
    pub fn handle_file(&mut self, name: &str) {
        (self.file, self.line) = (name.to_owned(), 0);
    }

    /// A whole line, without its end. Returns the record that it is.
    pub fn handle_line(&mut self, line: &[u8]) -> Option<Record> {
        self.line += 1;
        let at = Place { file: self.file.clone(), line: self.line };
        let hash = RecordHash::of(line);
        let Ok(record) = Record::parse(line) else {
            let behind = self.chain.as_ref().map_or(0, |(chain, _)| chain.last());
            self.note(Flaw::NotARecord { at: at.clone(), behind });
            // It stands where a record stood, or was put in between: the next record tells.
            self.before_garbage = self.before_garbage.take().or_else(|| self.chain.clone());
            if let Some((chain, _)) = &self.chain {
                self.chain = Some((Chain::behind(chain.next(), hash), at));
            }
            return None;
        };
        self.follows(&record, &at);
        let number = record.number;
        self.compare(number, hash);
        if record.event.kind == Kind::Damaged {
            self.note(Flaw::Noted { number, why: record.event.why.clone() });
        }
        self.report.records += 1;
        self.report.first.get_or_insert(number);
        self.chain = Some((Chain::behind(number, hash), at));
        Some(record)
    }

    /// A line that was never finished, at the end of a file.
    pub fn handle_torn(&mut self) {
        self.report.torn += 1;
    }

    /// The end of the log.
    pub fn finish(mut self) -> Report {
        let last = self.chain.as_ref().map_or(0, |(chain, _)| chain.last());
        match self.head {
            Some(head) => {
                if head.last > last {
                    self.note(Flaw::Cut { last, head: head.last, by: "the head" });
                }
                if let Some(first) = self.report.first.filter(|first| *first > head.oldest) {
                    self.note(Flaw::BeginningMissing { from: head.oldest, to: first - 1 });
                }
            }
            None if self.report.records > 0 => self.note(Flaw::NoHead),
            None => {}
        }
        if let Some((number, _)) = self.noted.filter(|(number, _)| *number > last) {
            self.note(Flaw::Cut { last, head: number, by: "what was noted elsewhere" });
        }
        if let Some((chain, _)) = self.chain {
            self.report.chain = chain;
        }
        self.report
    }

    /// Whether a record is the next one.
    fn follows(&mut self, record: &Record, at: &Place) {
        let was_garbage = self.before_garbage.take();
        let Some((chain, last)) = self.chain.clone() else {
            if record.number == 1 && record.previous != RecordHash::NONE {
                self.note(Flaw::Altered { number: 1, at: at.clone() });
            }
            return;
        };
        // A line that is no record was put in between, where the numbers go on behind what was before it.
        let inserted = was_garbage.clone().filter(|(before, _)| before.next() == record.number);
        let ((chain, last), is_told) = match (inserted, &was_garbage) {
            (Some(before), _) => (before, false),
            (None, garbage) => ((chain, last), garbage.is_some()),
        };
        if record.number > chain.next() {
            self.note(Flaw::Missing { from: chain.next(), to: record.number - 1, at: at.clone() });
        } else if record.number < chain.next() {
            self.note(Flaw::OutOfOrder { number: record.number, behind: chain.last(), at: at.clone() });
        } else if !is_told && chain.hash() != record.previous {
            self.note(Flaw::Altered { number: chain.last(), at: last });
        }
    }

    /// Whether a record is the one that a head names.
    fn compare(&mut self, number: u64, hash: RecordHash) {
        if self.head.is_some_and(|head| head.last == number && head.hash != hash) {
            self.note(Flaw::NotTheHead { number, by: "the head" });
        }
        if let Some((_, noted)) = self.noted.filter(|(noted, _)| *noted == number) {
            self.report.compared = Some(true);
            if noted != hash {
                self.note(Flaw::NotTheHead { number, by: "what was noted elsewhere" });
            }
        }
    }

    fn note(&mut self, flaw: Flaw) {
        if self.report.flaws.len() < FLAWS_MAX {
            self.report.flaws.push(flaw);
        } else {
            self.report.more_flaws += 1;
        }
    }
}
