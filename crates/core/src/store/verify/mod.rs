//! Checks a whole log, and copies every readable record of it.
//!
//! | question | where |
//! | --- | --- |
//! | which segments belong to the log, and which records are lost? | `check.rs` |
//! | how are findings reported? | `report.rs` |
//! | which records can be saved? | `repair.rs` |

mod check;
mod repair;
mod report;

pub use self::check::{VerifyConfig, verify};
pub use self::repair::{Repair, RepairError, repair};
pub use self::report::{FINDINGS_MAX, Finding, FindingKind, LogReport, RecordWords, SegmentReport};
