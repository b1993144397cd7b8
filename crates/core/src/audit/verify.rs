//! Checks a whole log: whether each record has the hash that the next record holds, and whether records are missing.

use std::fmt;

use super::chain::{Chain, Head};
use super::event::Kind;
use super::record::{Record, RecordHash};

/// The most flaws that a report lists. Further flaws are only counted.
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

/// A flaw of a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// A line is no record.
    #[error("{at}: this line is not a record (after record {behind})")]
    NotARecord {
        /// The line.
        at: Place,
        /// The last record before the line.
        behind: u64,
    },
    /// Records are missing.
    #[error("{at}: records {from} to {to} are missing before this line")]
    Missing {
        /// The first missing record.
        from: u64,
        /// The last missing record.
        to: u64,
        /// The record after them.
        at: Place,
    },
    /// A record's number is not above the number of the record before.
    #[error("{at}: record {number} is out of order, after record {behind}")]
    OutOfOrder {
        /// The record's number.
        number: u64,
        /// The number of the record before.
        behind: u64,
        /// Where the record is.
        at: Place,
    },
    /// A record was changed after it was written.
    #[error("{at}: record {number} was changed: the next record holds another hash")]
    Altered {
        /// The record's number.
        number: u64,
        /// Where the record is.
        at: Place,
    },
    /// The hash of a record differs from the hash in the head, or from a hash noted elsewhere.
    #[error("record {number} was changed: {by} holds another hash")]
    NotTheHead {
        /// The record's number.
        number: u64,
        /// The source of the other hash.
        by: &'static str,
    },
    /// The end of the log is missing.
    #[error("the end is missing: {by} names record {head}, but the last record is {last}")]
    Cut {
        /// The last record that there is, 0 if none.
        last: u64,
        /// The last record that there should be.
        head: u64,
        /// The source of this number.
        by: &'static str,
    },
    /// The beginning of the log is missing.
    #[error("the beginning is missing: records {from} to {to} should still be there")]
    BeginningMissing {
        /// The oldest record that should be there.
        from: u64,
        /// The last record that is missing.
        to: u64,
    },
    /// There are records, but no valid head.
    #[error("the head is missing or damaged, so a missing end cannot be detected")]
    NoHead,
    /// The edge itself found the log damaged, and recorded it.
    #[error("record {number} says that the edge found the log damaged: {why}")]
    Noted {
        /// The number of this record.
        number: u64,
        /// What the edge found.
        why: String,
    },
}

/// The result of the check of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many records were read.
    pub records: u64,
    /// The number of the first record, if there is any.
    pub first: Option<u64>,
    /// Where the log ends.
    pub chain: Chain,
    /// Lines that were never finished, because a process was killed or a disk was full. No record is missing for them.
    pub torn: u64,
    /// The flaws, at most [`FLAWS_MAX`].
    pub flaws: Vec<Flaw>,
    /// How many further flaws there are.
    pub more_flaws: u64,
    /// Whether the record that was noted elsewhere is still kept, so that it could be compared; `None` if no record was given.
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
    /// The number and the hash of a record, as somebody noted them elsewhere.
    noted: Option<(u64, RecordHash)>,
    file: String,
    line: u64,
    /// The end of the log so far, and where its last record is.
    chain: Option<(Chain, Place)>,
    /// The chain before the last line, if this line was no record.
    before_garbage: Option<(Chain, Place)>,
    report: Report,
}

impl Verifier {
    /// A verifier for a log with this head. `noted` is the number and the hash of a record that somebody noted elsewhere.
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

    /// The lines of file `name` follow.
    pub fn handle_file(&mut self, name: &str) {
        (self.file, self.line) = (name.to_owned(), 0);
    }

    /// Checks a whole line, without its end. Returns its record, if it is one.
    pub fn handle_line(&mut self, line: &[u8]) -> Option<Record> {
        self.line += 1;
        let at = Place { file: self.file.clone(), line: self.line };
        let hash = RecordHash::of(line);
        let Ok(record) = Record::parse(line) else {
            let behind = self.chain.as_ref().map_or(0, |(chain, _)| chain.last());
            self.note(Flaw::NotARecord { at: at.clone(), behind });
            // The line replaced a record, or was inserted: the next record shows which.
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

    /// Counts a line at the end of a file that was never finished.
    pub fn handle_torn(&mut self) {
        self.report.torn += 1;
    }

    /// Ends the check, because the log has no more lines.
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

    /// Checks whether a record is the next one.
    fn follows(&mut self, record: &Record, at: &Place) {
        let was_garbage = self.before_garbage.take();
        let Some((chain, last)) = self.chain.clone() else {
            if record.number == 1 && record.previous != RecordHash::NONE {
                self.note(Flaw::Altered { number: 1, at: at.clone() });
            }
            return;
        };
        // The line was inserted if the numbers continue from the record before it.
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

    /// Compares a record with the head, and with the hash noted elsewhere.
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
