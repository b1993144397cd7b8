//! A look at a whole log, and a copy of all in it that can be read.
//!
//! | question | where |
//! | --- | --- |
//! | which segments belong to the log, and what is lost? | `check.rs` |
//! | how is that told? | `report.rs` |
//! | what of it can be saved? | `repair.rs` |

mod check;
mod repair;
mod report;

pub use self::check::{VerifyConfig, verify};
pub use self::repair::{Repair, RepairError, repair};
pub use self::report::{FINDINGS_MAX, Finding, FindingKind, LogReport, RecordWords, SegmentReport};
